//! [`SharedArena`]: an arena for several threads; and [`Batch`], the pieces of one thread.
//!
//! The current chunk contains an offset. An allocation adds its size to this offset by one atomic
//! addition. If the sum is within the chunk, the block is the caller's. If a thread finds the chunk
//! full, it replaces the chunk by a compare-and-exchange, and frees its new chunk if another thread
//! was faster. Blocks of more than 64 KiB get separate chunks, on a separate list. Memory is only
//! freed when the arena is reset or dropped, and no thread ever waits.

use core::alloc::Layout;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::{self, NonNull};

use crate::allocate::{allocating, expect_array, refuse_drop, uninit};
use crate::arena::{Arena, out_of_bytes, out_of_memory};
use crate::arithmetic::round_up;
use crate::base::{AllocError, BaseAllocator, Global};
use crate::boxed::ArenaBox;
use crate::chunk;
use crate::policy::Pieces;
use crate::stats::Stats;
use crate::string::ArenaString;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, const_unless_loom};
use crate::vec::ArenaVec;

/// Sizes are rounded up to this unit, and every block is aligned to this unit.
const UNIT: usize = 8;

/// The total size of the first chunk.
const FIRST: usize = 64 * 1024;

/// Chunks double up to this size.
const MAX_CHUNK: usize = 16 * 1024 * 1024;

/// Chunks start at a cache line boundary, because writes to neighbours must not slow down the
/// offset.
const ALIGN: usize = 128;

/// The largest block in a shared chunk. This limit keeps sums of offsets from wrapping.
const MAX_SHARED: usize = 64 * 1024;

/// The header of a chunk, at its start: a cache line that all threads write, and one that they only
/// read.
#[repr(C)]
struct Chunk {
    offset: Offset,
    /// The number of bytes for blocks.
    room: usize,
    /// The size of the largest block; a larger block needs a larger chunk.
    most: usize,
    /// The previous current chunk, or the next in the list of large chunks; or null.
    prev: *mut Chunk,
}

/// The place of the next block, relative to the end of the header. Threads that add too late can
/// move it past the room, but only by a bounded sum: see [`block_in`].
#[repr(align(64))]
struct Offset(AtomicUsize);

const HEADER: usize = size_of::<Chunk>();

/// A bump allocator that threads share.
///
/// An allocation is one atomic addition. You can allocate single values, slices and strings, and a
/// reference to the arena is a [`BaseAllocator`]; for everything else, for example vectors, use a
/// batch.
///
/// Threads that allocate a lot contend for the offset. You can avoid this if you give each thread a
/// [`Batch`], because a batch takes some KiB at a time.
///
/// ```
/// use quipu_arena::SharedArena;
///
/// let arena = SharedArena::new();
/// let names: Vec<&str> = std::thread::scope(|threads| {
///     let workers: Vec<_> = (0..2)
///         .map(|n| {
///             let arena = &arena;
///             threads.spawn(move || &*arena.batch().alloc_fmt(format_args!("worker {n}")))
///         })
///         .collect();
///     workers.into_iter().map(|worker| worker.join().unwrap()).collect()
/// });
/// assert_eq!(names, ["worker 0", "worker 1"]);
/// assert_eq!(arena.alloc_str("requests"), "requests");
/// ```
pub struct SharedArena<A: BaseAllocator = Global> {
    current: AtomicPtr<Chunk>,
    large: AtomicPtr<Chunk>,
    base: A,
}

// SAFETY: The arena owns its chunks; the fields that threads share are atomic.
unsafe impl<A: BaseAllocator + Send> Send for SharedArena<A> {}
// SAFETY: As above; several threads can call the base allocator.
unsafe impl<A: BaseAllocator + Sync> Sync for SharedArena<A> {}

impl SharedArena {
    const_unless_loom! {
        /// Creates an arena on the heap that takes 64 KiB at the first allocation.
        #[must_use]
        pub fn new() -> SharedArena {
            SharedArena::new_in(Global)
        }
    }

    /// Creates an arena on the heap whose first chunk is `size` bytes long, including its header.
    ///
    /// # Panics
    ///
    /// If the heap is out of memory.
    #[must_use]
    #[track_caller]
    pub fn with_size(size: usize) -> SharedArena {
        SharedArena::with_size_in(size, Global)
    }

    /// Like [`with_size`](SharedArena::with_size), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the heap is out of memory.
    pub fn try_with_size(size: usize) -> Result<SharedArena, AllocError> {
        SharedArena::try_with_size_in(size, Global)
    }
}

impl Default for SharedArena {
    fn default() -> SharedArena {
        SharedArena::new()
    }
}

impl<A: BaseAllocator> SharedArena<A> {
    const_unless_loom! {
        /// Creates an arena on a base allocator that takes 64 KiB at the first allocation.
        #[must_use]
        pub fn new_in(base: A) -> SharedArena<A> {
            SharedArena {
                current: AtomicPtr::new(ptr::null_mut()),
                large: AtomicPtr::new(ptr::null_mut()),
                base,
            }
        }
    }

    /// Creates an arena whose first chunk is `size` bytes long, including its header.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[must_use]
    #[track_caller]
    pub fn with_size_in(size: usize, base: A) -> SharedArena<A> {
        match SharedArena::try_with_size_in(size, base) {
            Ok(arena) => arena,
            Err(AllocError) => out_of_bytes(size),
        }
    }

    /// Like [`with_size_in`](SharedArena::with_size_in), but returns an error if there is no
    /// memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    pub fn try_with_size_in(size: usize, base: A) -> Result<SharedArena<A>, AllocError> {
        let arena = SharedArena::new_in(base);
        let chunk = arena.take(size.max(2 * HEADER), 0, ptr::null_mut())?;
        arena.current.store(chunk.as_ptr(), Ordering::Relaxed);
        Ok(arena)
    }

    /// Returns a handle for one thread, which takes pieces of 4 to 16 KiB. Its allocations live as
    /// long as the shared arena; only the handle belongs to the thread.
    #[must_use]
    pub fn batch(&self) -> Batch<'_, A> {
        Batch { arena: ManuallyDrop::new(Arena::empty_in(self)) }
    }

    /// Returns the base allocator.
    pub const fn base(&self) -> &A {
        &self.base
    }

    /// Frees all allocations. Keeps the current chunk.
    pub fn reset(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        // Unlink all chunks before freeing them, because the base allocator can panic.
        let mut rest = self.large.swap(ptr::null_mut(), Ordering::Relaxed);
        if !current.is_null() {
            // SAFETY: The arena owns the chunks, and is not borrowed.
            unsafe {
                (*current).offset.0.store(0, Ordering::Relaxed);
                let mut older = core::mem::replace(&mut (*current).prev, ptr::null_mut());
                while !older.is_null() {
                    let next = core::mem::replace(&mut (*older).prev, rest);
                    rest = core::mem::replace(&mut older, next);
                }
            }
        }
        self.give_back_list(rest);
    }

    /// Returns statistics of the arena. Pieces of batches count as allocated in full, and so does
    /// the unused space at the ends of full chunks.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        // Acquire: the chunks' fields were written before the chunk was published.
        let current = self.current.load(Ordering::Acquire);
        for list in [current, self.large.load(Ordering::Acquire)] {
            let mut chunk = list;
            while !chunk.is_null() {
                // SAFETY: Chunks stay until the arena is reset, which borrows it mutably.
                let (room, used, prev) = unsafe {
                    let used = (*chunk).offset.0.load(Ordering::Relaxed);
                    ((*chunk).room, used.min((*chunk).room), (*chunk).prev)
                };
                stats.chunks += 1;
                stats.capacity += room;
                stats.allocated += used;
                stats.reserved += room + HEADER;
                chunk = prev;
            }
        }
        stats
    }

    /// Allocates a block.
    #[inline(always)]
    fn block(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        // Blocks are aligned to the unit; a larger alignment needs room to choose a start.
        let slack = layout.align().saturating_sub(UNIT);
        // A layout's size + (align - 1) does not overflow.
        let bytes = round_up(layout.size() + slack, UNIT);
        // Acquire: the chunk's fields were written before it was published.
        let chunk = self.current.load(Ordering::Acquire);
        if !chunk.is_null() {
            // SAFETY: Chunks stay until the arena is reset, which borrows it mutably.
            if let Some(block) = unsafe { block_in(chunk, layout, bytes) } {
                return Ok(block);
            }
        }
        self.block_slow(layout, bytes, chunk)
    }

    #[cold]
    #[inline(never)]
    fn block_slow(
        &self,
        layout: Layout,
        bytes: usize,
        mut seen: *mut Chunk,
    ) -> Result<NonNull<u8>, AllocError> {
        if bytes > MAX_SHARED {
            return self.block_alone(layout, bytes);
        }
        loop {
            let mut size = FIRST;
            if !seen.is_null() {
                // SAFETY: Chunks stay until the arena is reset.
                unsafe {
                    // The rest of this chunk is unused: the chunk is replaced.
                    (*seen).offset.0.store((*seen).room, Ordering::Relaxed);
                    let before = (*seen).room + HEADER;
                    size = before.saturating_mul(2).min(MAX_CHUNK).max(before);
                }
            }
            // Grow until the next block of this size fits, too.
            while most_in(size - HEADER) < bytes {
                size *= 2;
            }
            let chunk = match self.take_up_to(size, bytes, seen) {
                Ok(chunk) => chunk,
                Err(AllocError) => {
                    // Another thread may have taken the last memory, and its chunk may be large
                    // enough.
                    // Acquire: the chunk's fields were written before it was published.
                    let current = self.current.load(Ordering::Acquire);
                    if current == seen {
                        return Err(AllocError);
                    }
                    // SAFETY: Chunks stay until the arena is reset.
                    if let Some(block) = unsafe { block_in(current, layout, bytes) } {
                        return Ok(block);
                    }
                    seen = current;
                    continue;
                }
            };
            // Release: the chunk's fields are written before it is published. Acquire on failure:
            // this makes the fields of the other thread's chunk visible.
            let swapped = self.current.compare_exchange(
                seen,
                chunk.as_ptr(),
                Ordering::Release,
                Ordering::Acquire,
            );
            match swapped {
                // SAFETY: The chunk's first bytes are reserved for this thread.
                Ok(_) => return Ok(unsafe { block_at(chunk.as_ptr(), 0, layout.align()) }),
                Err(faster) => {
                    // SAFETY: No other thread can see the chunk.
                    unsafe { self.give_back(chunk.as_ptr()) };
                    // SAFETY: Chunks stay until the arena is reset.
                    if let Some(block) = unsafe { block_in(faster, layout, bytes) } {
                        return Ok(block);
                    }
                    seen = faster;
                }
            }
        }
    }

    /// Allocates a block in a separate chunk.
    fn block_alone(&self, layout: Layout, bytes: usize) -> Result<NonNull<u8>, AllocError> {
        let size = bytes.checked_add(HEADER).ok_or(AllocError)?;
        let mut next = self.large.load(Ordering::Relaxed);
        let chunk = self.take(size, bytes, next)?;
        // Release: the chunk's fields are written before it is published.
        while let Err(newer) =
            self.large.compare_exchange(next, chunk.as_ptr(), Ordering::Release, Ordering::Relaxed)
        {
            next = newer;
            // SAFETY: No other thread can see the chunk.
            unsafe { (*chunk.as_ptr()).prev = next };
        }
        // SAFETY: The chunk's block belongs to this thread.
        Ok(unsafe { block_at(chunk.as_ptr(), 0, layout.align()) })
    }

    /// Takes a chunk of `size` bytes. If this is too much for the base allocator, takes a smaller
    /// one with room for the first `used` bytes.
    fn take_up_to(
        &self,
        mut size: usize,
        used: usize,
        prev: *mut Chunk,
    ) -> Result<NonNull<Chunk>, AllocError> {
        let least = used + HEADER;
        loop {
            match self.take(size, used, prev) {
                Err(AllocError) if size > least => size = (size / 2).max(least),
                result => return result,
            }
        }
    }

    /// Takes a chunk of `size` bytes from the base allocator, with `used` bytes allocated already.
    fn take(
        &self,
        size: usize,
        used: usize,
        prev: *mut Chunk,
    ) -> Result<NonNull<Chunk>, AllocError> {
        if size > isize::MAX as usize - ALIGN {
            return Err(AllocError);
        }
        let size = round_up(size, UNIT);
        let Ok(layout) = Layout::from_size_align(size, ALIGN) else { return Err(AllocError) };
        let chunk = self.base.allocate(layout)?.cast::<Chunk>();
        // SAFETY: The memory is fresh, and large enough for a header.
        unsafe {
            let room = size - HEADER;
            let offset = Offset(AtomicUsize::new(used));
            chunk.write(Chunk { offset, room, most: most_in(room), prev });
        }
        Ok(chunk)
    }

    /// # Safety
    ///
    /// The chunk belongs to this arena, and is no longer used.
    unsafe fn give_back(&self, chunk: *mut Chunk) {
        // SAFETY: By contract.
        unsafe {
            let size = (*chunk).room + HEADER;
            chunk.drop_in_place();
            let layout = Layout::from_size_align_unchecked(size, ALIGN);
            self.base.deallocate(NonNull::new_unchecked(chunk.cast()), layout);
        }
    }

    fn give_back_list(&mut self, first: *mut Chunk) {
        // SAFETY: The arena owns the chunks and is borrowed mutably; they are already unlinked.
        chunk::give_back_each(first, |next| unsafe {
            let chunk = core::mem::replace(next, (**next).prev);
            self.give_back(chunk);
        });
    }
}

// ------------------------------------------------------------------------------ the allocations

impl<A: BaseAllocator> SharedArena<A> {
    /// Allocates a value of a type that does not need dropping. For other types, use
    /// [`alloc_box`](SharedArena::alloc_box).
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    #[track_caller]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        refuse_drop!(T);
        ArenaBox::leak(self.alloc_box(value))
    }

    /// Like [`alloc`](SharedArena::alloc), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        refuse_drop!(T);
        self.try_alloc_box(value).map(ArenaBox::leak)
    }

    /// Allocates a value, and returns a box that drops it.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[track_caller]
    pub fn alloc_box<T>(&self, value: T) -> ArenaBox<'_, T> {
        match self.try_alloc_box(value) {
            Ok(value) => value,
            Err(AllocError) => out_of_memory(Layout::new::<T>()),
        }
    }

    /// Like [`alloc_box`](SharedArena::alloc_box), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. Then the value is dropped.
    #[inline(always)]
    pub fn try_alloc_box<T>(&self, value: T) -> Result<ArenaBox<'_, T>, AllocError> {
        let block = if size_of::<T>() == 0 {
            NonNull::dangling()
        } else {
            self.block(Layout::new::<T>())?.cast::<T>()
        };
        // SAFETY: The block is fresh and large enough for the value.
        unsafe {
            block.write(value);
            Ok(ArenaBox::from_raw(block))
        }
    }

    /// Allocates a copy of a slice.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    #[track_caller]
    pub fn alloc_slice_copy<T: Copy>(&self, source: &[T]) -> &mut [T] {
        expect_array::<T, _>(self.try_alloc_slice_copy(source), source.len())
    }

    /// Like [`alloc_slice_copy`](SharedArena::alloc_slice_copy), but returns an error if there is
    /// no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn try_alloc_slice_copy<T: Copy>(&self, source: &[T]) -> Result<&mut [T], AllocError> {
        let block = self.block(Layout::for_value(source))?.cast::<T>();
        // SAFETY: The block is fresh and large enough for all values.
        unsafe {
            ptr::copy_nonoverlapping(source.as_ptr(), block.as_ptr(), source.len());
            Ok(core::slice::from_raw_parts_mut(block.as_ptr(), source.len()))
        }
    }

    /// Allocates a copy of a string.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    #[track_caller]
    pub fn alloc_str(&self, text: &str) -> &mut str {
        expect_array::<u8, _>(self.try_alloc_str(text), text.len())
    }

    /// Like [`alloc_str`](SharedArena::alloc_str), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
        let bytes = self.try_alloc_slice_copy(text.as_bytes())?;
        // SAFETY: The bytes are a copy of a string.
        Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes) })
    }
}

// SAFETY: Blocks stay in place until the arena is dropped or is reset, which borrows it mutably.
unsafe impl<A: BaseAllocator> BaseAllocator for SharedArena<A> {
    #[inline(always)]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Ok(NonNull::slice_from_raw_parts(self.block(layout)?, layout.size()))
    }

    /// Has no effect: a shared arena frees all memory at once.
    #[inline(always)]
    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
}

impl<A: BaseAllocator> Drop for SharedArena<A> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        self.give_back_list(current);
        self.give_back_list(self.large.load(Ordering::Relaxed));
    }
}

impl<A: BaseAllocator> fmt::Debug for SharedArena<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedArena").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A handle of one thread to a [`SharedArena`]. It takes pieces of 4 to 16 KiB, and allocates in
/// them without atomic operations.
///
/// ```
/// use quipu_arena::SharedArena;
///
/// let arena = SharedArena::new();
/// let name = {
///     let batch = arena.batch();
///     batch.alloc_str("lives as long as the shared arena")
/// };
/// assert!(name.starts_with("lives"));
/// ```
pub struct Batch<'a, A: BaseAllocator = Global> {
    /// The chunks belong to the shared arena, where freeing them would have no effect.
    arena: ManuallyDrop<Arena<Pieces, &'a SharedArena<A>>>,
}

// SAFETY: Only one thread at a time owns the batch and its pieces; the shared arena is `Sync`.
unsafe impl<A: BaseAllocator + Sync> Send for Batch<'_, A> {}

impl<'a, A: BaseAllocator> Batch<'a, A> {
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena<Pieces, &'a SharedArena<A>> {
        &self.arena
    }

    allocating!([][] 'a);

    /// Returns statistics of the batch, whose chunks are the pieces that it took.
    pub fn stats(&self) -> Stats {
        self.arena.stats()
    }
}

impl<A: BaseAllocator> fmt::Debug for Batch<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("stats", &self.arena.stats()).finish_non_exhaustive()
    }
}

/// Returns the largest block for a chunk with this much room, because little should remain unused.
const fn most_in(room: usize) -> usize {
    if room / 4 < MAX_SHARED { room / 4 } else { MAX_SHARED }
}

/// Allocates a block in a chunk, if it is small enough and there is room.
///
/// # Safety
///
/// This is a chunk, and remains one while the block is in use.
#[inline(always)]
unsafe fn block_in(chunk: *mut Chunk, layout: Layout, bytes: usize) -> Option<NonNull<u8>> {
    // Concurrent threads can move the offset past the room: each adds at most 64 KiB, and then sets
    // it back to the room. The sum could only wrap with 2^47 threads, or on 32 bits with 2^15,
    // whose stacks do not fit into memory.
    // SAFETY: By contract; the block is within the chunk, and reserved for this thread.
    unsafe {
        if bytes > (*chunk).most {
            return None;
        }
        let offset = (*chunk).offset.0.fetch_add(bytes, Ordering::Relaxed);
        (offset + bytes <= (*chunk).room).then(|| block_at(chunk, offset, layout.align()))
    }
}

/// Returns the block at an offset.
///
/// # Safety
///
/// The chunk contains this block, with room to choose an aligned start.
#[inline(always)]
unsafe fn block_at(chunk: *mut Chunk, offset: usize, align: usize) -> NonNull<u8> {
    // SAFETY: By contract.
    unsafe {
        let start = chunk.cast::<u8>().add(HEADER + offset);
        let start = if align > UNIT { start.map_addr(|a| round_up(a, align)) } else { start };
        NonNull::new_unchecked(start)
    }
}
