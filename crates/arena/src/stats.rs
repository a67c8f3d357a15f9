//! Statistics of an arena, in bytes.

/// Statistics of an arena. They do not slow down allocations, because the chunks are only walked
/// when you ask.
///
/// ```
/// use quipu_arena::Arena;
///
/// let arena = Arena::with_capacity(1000);
/// arena.alloc_slice_copy(&[0_u8; 100]);
/// let stats = arena.stats();
/// assert_eq!((stats.allocated, stats.wasted, stats.chunks), (100, 0, 1));
/// assert!(stats.capacity >= 1000 && stats.reserved > stats.capacity);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Allocated bytes, including alignment padding.
    pub allocated: usize,
    /// The space for blocks in all chunks, without headers. Bytes that are neither allocated nor
    /// wasted are free in the current chunk.
    pub capacity: usize,
    /// The bytes at the ends of older chunks that were too small for the next allocation.
    pub wasted: usize,
    /// The bytes of the spare chunk, which is used next when the current one is full.
    pub spare: usize,
    /// The bytes taken from the base allocator: all chunks with their headers, and the spare one.
    pub reserved: usize,
    /// The number of chunks, without the spare one.
    pub chunks: usize,
}

impl core::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.allocated += other.allocated;
        self.capacity += other.capacity;
        self.wasted += other.wasted;
        self.spare += other.spare;
        self.reserved += other.reserved;
        self.chunks += other.chunks;
    }
}
