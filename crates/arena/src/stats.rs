//! Statistics of an arena, in bytes.

/// Statistics of an arena. They cost an allocation nothing: the chunks are walked on request.
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
    /// The space for blocks in all chunks, without headers. What is neither allocated nor wasted is
    /// free in the current chunk.
    pub capacity: usize,
    /// The bytes at the ends of older chunks in which the next allocation did not fit.
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
