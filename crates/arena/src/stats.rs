//! What an arena holds, in bytes.

/// What an arena holds. Counting costs an allocation nothing: the chunks are looked at when asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The bytes that are allocated, with what alignment took.
    pub allocated: usize,
    /// The bytes that the chunks have room for, headers aside. What is neither allocated nor wasted
    /// is left in the current chunk.
    pub capacity: usize,
    /// The bytes at the ends of older chunks, in which the next allocation found no room.
    pub wasted: usize,
    /// The bytes of the chunk that waits for the next time that the current one is full.
    pub spare: usize,
    /// The bytes that were taken from the base allocator: all chunks, their headers and the spare.
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
