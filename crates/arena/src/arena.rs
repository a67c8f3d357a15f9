//! [`Arena`]: constructors, resetting, and the slow paths.
//!
//! The methods that allocate are in `allocate.rs`, because scopes use the same ones. The traits of
//! allocators are implemented in `allocator.rs`.

use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use crate::arithmetic::{self, LOW, Place, StaticFacts};
use crate::base::{AllocError, BaseAllocator, InBuffer, default_to_heap};
use crate::chunk::{self, Chunks, Header};
use crate::policy::Policy;
use crate::scope::{Checkpoint, Scope, ScopeGuard};
use crate::stats::Stats;

default_to_heap! {
    /// A bump allocator.
    ///
    /// An allocation advances a position. If the position would pass the end of the chunk, the
    /// arena takes another chunk from the base allocator `A`. Allocated values live as long as the
    /// arena is borrowed. You free them all at once: by [`reset`](Arena::reset), by the end of a
    /// scope, or by dropping the arena.
    ///
    /// ```
    /// use quipu_arena::Arena;
    ///
    /// let mut arena = Arena::new();
    /// let name = arena.alloc_str("requests");
    /// let buckets = arena.alloc_slice_fill(8, 0u64);
    /// buckets[3] += 1;
    /// assert_eq!((&*name, buckets[3]), ("requests", 1));
    /// arena.reset();
    /// ```
    ///
    /// An arena is as large as two words plus its base allocator. You can send it to another
    /// thread, but not share it: see [`Pool`](crate::Pool) and [`SharedArena`](crate::SharedArena).
    ///
    /// `P` is the [policy](Policy): direction, minimum alignment, and the effect of shrinking.
    /// `Arena::new` and similar constructors return an `Arena<Up>`; for another policy, write for
    /// example `Arena::<Down<8>>::new_in(Global)`. Without the feature `alloc` there is no heap, so
    /// both parameters lack a default.
    ///
    /// Values that need dropping are refused at compile time, because an arena never drops. You can
    /// allocate them with [`alloc_box`](Arena::alloc_box):
    ///
    /// ```compile_fail
    /// let arena = quipu_arena::Arena::new();
    /// arena.alloc(String::from("would never be freed"));
    /// ```
    pub struct Arena<P: Policy = crate::Up, A: BaseAllocator = crate::Global> {
        /// Upwards, the first free byte; downwards, the last used one. A multiple of the minimum
        /// alignment.
        pos: Cell<NonNull<u8>>,
        /// The end of free memory. Upwards, the header begins there; downwards, the header ends
        /// there.
        limit: Cell<NonNull<u8>>,
        base: A,
        policy: PhantomData<fn() -> P>,
    }
}

// SAFETY: An arena owns its chunks, and a borrow from it prevents sending it.
unsafe impl<P: Policy, A: BaseAllocator + Send> Send for Arena<P, A> {}

#[cfg(feature = "alloc")]
impl Arena {
    /// Creates an arena on the heap, with a first chunk of half a kilobyte.
    ///
    /// # Panics
    ///
    /// If the heap is out of memory.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn new() -> Arena {
        Arena::new_in(crate::Global)
    }

    /// Like [`new`](Arena::new), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the heap is out of memory.
    #[inline(always)]
    pub fn try_new() -> Result<Arena, AllocError> {
        Arena::try_new_in(crate::Global)
    }

    /// Creates an arena on the heap that takes its first chunk at the first allocation.
    #[inline(always)]
    #[must_use]
    pub const fn empty() -> Arena {
        Arena::empty_in(crate::Global)
    }

    /// Creates an arena on the heap whose first chunk is `size` bytes long, including its header.
    ///
    /// # Panics
    ///
    /// If the heap is out of memory.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn with_size(size: usize) -> Arena {
        Arena::with_size_in(size, crate::Global)
    }

    /// Like [`with_size`](Arena::with_size), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the heap is out of memory.
    #[inline]
    pub fn try_with_size(size: usize) -> Result<Arena, AllocError> {
        Arena::try_with_size_in(size, crate::Global)
    }

    /// Creates an arena on the heap whose first chunk can hold `bytes`.
    ///
    /// # Panics
    ///
    /// If the heap is out of memory.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn with_capacity(bytes: usize) -> Arena {
        Arena::with_capacity_in(bytes, crate::Global)
    }

    /// Like [`with_capacity`](Arena::with_capacity), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the heap is out of memory.
    #[inline]
    pub fn try_with_capacity(bytes: usize) -> Result<Arena, AllocError> {
        Arena::try_with_capacity_in(bytes, crate::Global)
    }
}

impl<P: Policy, A: BaseAllocator> Arena<P, A> {
    /// Creates an arena on a base allocator, with a first chunk of half a kilobyte.
    ///
    /// ```
    /// use quipu_arena::{Arena, Down, Global};
    ///
    /// let arena = Arena::<Down<8>>::new_in(Global);
    /// assert_eq!(*arena.alloc(7u64), 7);
    /// ```
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn new_in(base: A) -> Arena<P, A> {
        match Arena::try_new_in(base) {
            Ok(arena) => arena,
            Err(AllocError) => out_of_memory(Layout::new::<[u8; chunk::FIRST]>()),
        }
    }

    /// Like [`new_in`](Arena::new_in), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    pub fn try_new_in(base: A) -> Result<Arena<P, A>, AllocError> {
        // SAFETY: The size is not zero; the alignment is a power of two.
        let layout = unsafe { Layout::from_size_align_unchecked(P::FIRST_SIZE, P::ALIGN) };
        let Some(chunk) = chunk::usable(&base, layout, base.allocate(layout)) else {
            return Err(AllocError);
        };
        // SAFETY: The chunk is fresh, and is of this size and alignment.
        let (pos, limit) =
            unsafe { chunk::write::<P>(chunk.cast(), P::FIRST_SIZE, ptr::null_mut()) };
        Ok(Arena { pos: Cell::new(pos), limit: Cell::new(limit), base, policy: PhantomData })
    }

    /// Creates an arena that takes its first chunk at the first allocation.
    #[inline(always)]
    #[must_use]
    pub const fn empty_in(base: A) -> Arena<P, A> {
        let limit = chunk::empty_limit::<P>();
        Arena { pos: Cell::new(limit), limit: Cell::new(limit), base, policy: PhantomData }
    }

    /// Creates an arena whose first chunk is `size` bytes long, including its header.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn with_size_in(size: usize, base: A) -> Arena<P, A> {
        match Arena::try_with_size_in(size, base) {
            Ok(arena) => arena,
            Err(AllocError) => out_of_bytes(size),
        }
    }

    /// Like [`with_size_in`](Arena::with_size_in), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline]
    pub fn try_with_size_in(size: usize, base: A) -> Result<Arena<P, A>, AllocError> {
        let arena = Arena::empty_in(base);
        let least = P::HEADER + P::ALIGN;
        // Rounded down, because a requested page must stay one page.
        let size = (if size < least { least } else { size }) & P::ALIGN.wrapping_neg();
        match chunk::take::<P, A>(&arena.base, size) {
            Some(chunk) => {
                // SAFETY: The chunk is fresh.
                unsafe { arena.push_chunk(chunk) };
                Ok(arena)
            }
            None => Err(AllocError),
        }
    }

    /// Creates an arena whose first chunk can hold `bytes`.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(bytes: usize, base: A) -> Arena<P, A> {
        match Arena::try_with_capacity_in(bytes, base) {
            Ok(arena) => arena,
            Err(AllocError) => out_of_bytes(bytes),
        }
    }

    /// Like [`with_capacity_in`](Arena::with_capacity_in), but returns an error if there is no
    /// memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline]
    pub fn try_with_capacity_in(bytes: usize, base: A) -> Result<Arena<P, A>, AllocError> {
        match bytes.checked_add(P::HEADER + P::ALIGN - 1) {
            Some(size) => Arena::try_with_size_in(size, base),
            None => Err(AllocError),
        }
    }

    /// Returns the base allocator.
    #[inline]
    pub const fn base(&self) -> &A {
        &self.base
    }

    /// Frees all allocations. Keeps the largest chunk; to free this one too, use
    /// [`release`](Arena::release).
    #[inline(always)]
    pub fn reset(&mut self) {
        let header = self.header();
        // SAFETY: A header can always be read, even in an empty arena.
        unsafe {
            // One chunk and no spare one: checks the two words together.
            if ((*header).prev.addr() | (*header).spare.addr()) == 0 {
                self.pos.set((*header).far);
            } else {
                self.reset_slow();
            }
        }
    }

    /// Frees all allocations, and returns all chunks to the base allocator. The next allocation
    /// takes a new chunk. An arena in a
    /// buffer owns no chunk then, and every allocation fails.
    pub fn release(&mut self) {
        // SAFETY: The arena can be borrowed mutably, so there are no other borrows.
        unsafe { self.give_back_all() };
    }

    /// Calls a function with a [`Scope`], and frees the allocations of the scope.
    ///
    /// ```
    /// use quipu_arena::Arena;
    ///
    /// let mut arena = Arena::new();
    /// let longest = arena.scoped(|scope| {
    ///     let words = scope.alloc_iter("to count is to know".split(' '));
    ///     words.iter().map(|word| word.len()).max()
    /// });
    /// assert_eq!(longest, Some(5));
    /// assert_eq!(arena.stats().allocated, 0);
    /// ```
    ///
    /// The compiler proves that allocations of a scope cannot outlive it:
    ///
    /// ```compile_fail
    /// # let mut arena = quipu_arena::Arena::new();
    /// let kept = arena.scoped(|scope| scope.alloc(7));
    /// ```
    #[inline]
    pub fn scoped<R>(&mut self, f: impl for<'s> FnOnce(Scope<'s, P, A>) -> R) -> R {
        self.as_scope().scoped(f)
    }

    /// Returns a guard. When you drop this guard, it frees the allocations of its scope.
    ///
    /// ```
    /// # let mut arena = quipu_arena::Arena::new();
    /// let mut guard = arena.guard();
    /// for line in ["a b", "c d"] {
    ///     let scope = guard.scope();
    ///     assert_eq!(scope.alloc_iter(line.split(' ')).len(), 2);
    ///     guard.reset();
    /// }
    /// ```
    #[inline]
    pub fn guard(&mut self) -> ScopeGuard<'_, P, A> {
        ScopeGuard::new(self)
    }

    /// Returns the arena as a scope. Its allocations stay while you open and close scopes within
    /// it.
    ///
    /// ```
    /// # let mut arena = quipu_arena::Arena::new();
    /// let mut outer = arena.as_scope();
    /// let kept = outer.alloc(1);
    /// outer.scoped(|inner| *kept += *inner.alloc(2));
    /// assert_eq!(*kept, 3);
    /// ```
    #[inline(always)]
    pub fn as_scope(&mut self) -> Scope<'_, P, A> {
        Scope::new(self)
    }

    /// Returns the current position of the arena, for [`reset_to`](Arena::reset_to).
    #[inline(always)]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { pos: self.pos.get(), limit: self.limit.get() }
    }

    /// Frees all allocations since the checkpoint was taken.
    ///
    /// # Safety
    ///
    /// - The checkpoint was taken from this arena.
    /// - Since then, the arena was not reset, released, or set back to an earlier checkpoint, and
    ///   no block from before was freed, grown or shrunk.
    /// - No allocation since then is used any more.
    #[inline(always)]
    pub unsafe fn reset_to(&self, checkpoint: Checkpoint) {
        if self.limit.get() == checkpoint.limit {
            self.pos.set(checkpoint.pos);
        } else {
            // SAFETY: By contract.
            unsafe { self.reset_to_slow(checkpoint) };
        }
    }

    /// Returns statistics of the arena. This walks all chunks.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        let newest = self.header();
        if chunk::is_empty(newest) {
            return stats;
        }
        let (mut header, mut pos) = (newest, self.pos.get());
        // SAFETY: The list consists of headers, and older chunks store their last position in
        // `left`.
        unsafe {
            let spare = (*newest).spare;
            if !spare.is_null() {
                stats.spare = chunk::size::<P>(spare);
                stats.reserved = stats.spare;
            }
            loop {
                let used = pos.addr().get().abs_diff((*header).far.addr().get());
                let room = chunk::room::<P>(header);
                stats.chunks += 1;
                stats.allocated += used;
                stats.capacity += room;
                stats.reserved += chunk::size::<P>(header);
                if header != newest {
                    stats.wasted += room - used;
                }
                header = (*header).prev;
                if header.is_null() {
                    return stats;
                }
                pos = (*header).left.assume_init();
            }
        }
    }

    /// Returns the number of free bytes in the current chunk.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.limit.get().addr().get().abs_diff(self.pos.get().addr().get())
    }
}

// ------------------------------------------------------------------------------ within the crate

impl<P: Policy, A: BaseAllocator> Arena<P, A> {
    /// Returns the position, as an address.
    #[inline(always)]
    pub(crate) fn pos(&self) -> usize {
        self.pos.get().addr().get()
    }

    /// Returns the limit, as an address.
    #[inline(always)]
    pub(crate) fn limit(&self) -> usize {
        self.limit.get().addr().get()
    }

    /// Returns where a block fits in the current chunk.
    #[inline(always)]
    pub(crate) fn place(&self, size: usize, align: usize, known: StaticFacts) -> Option<Place> {
        let (pos, limit) = (self.pos(), self.limit());
        if P::UP {
            arithmetic::upwards::<LOW>(pos, limit, size, align, P::MIN_ALIGN, known)
        } else {
            arithmetic::downwards::<LOW>(pos, limit, size, align, P::MIN_ALIGN, known)
        }
    }

    /// Moves the position past a place, and returns its block.
    ///
    /// # Safety
    ///
    /// The place was returned by [`place`](Arena::place), and there were no allocations since.
    #[inline(always)]
    pub(crate) unsafe fn commit(&self, place: Place) -> NonNull<u8> {
        let pos = self.pos.get().as_ptr();
        // SAFETY: Both addresses are in the current chunk, and therefore not null.
        unsafe {
            self.pos.set(NonNull::new_unchecked(pos.with_addr(place.pos)));
            NonNull::new_unchecked(pos.with_addr(place.start))
        }
    }

    /// Moves the position within the current chunk.
    ///
    /// # Safety
    ///
    /// The address is in the current chunk, a multiple of the minimum alignment, and not before
    /// the end of a block that is in use.
    #[inline(always)]
    pub(crate) unsafe fn set_pos(&self, address: usize) -> NonNull<u8> {
        // SAFETY: By contract. The limit points into the same chunk as the position.
        let pos = unsafe { NonNull::new_unchecked(self.limit.get().as_ptr().with_addr(address)) };
        self.pos.set(pos);
        pos
    }

    /// Takes another chunk, because the block does not fit in the current one, and allocates it
    /// there.
    #[cold]
    #[inline(never)]
    pub(crate) fn block_slow(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.next_chunk(layout) {
            Some(()) => match self.place(layout.size(), layout.align(), StaticFacts::Nothing) {
                // SAFETY: The place was just found.
                Some(place) => Ok(unsafe { self.commit(place) }),
                None => Err(AllocError),
            },
            None => Err(AllocError),
        }
    }

    /// Makes a chunk with room for the layout the current one: the spare chunk if it is large
    /// enough, otherwise a new one.
    ///
    /// The base allocator can do anything: for example, it can panic, and it can even allocate in
    /// this arena. So the arena must be valid at each call of the base allocator, and values read
    /// before a call must not be used after the call.
    fn next_chunk(&self, layout: Layout) -> Option<()> {
        let need = chunk::size_for::<P>(layout)?;
        let newest = self.header();
        let mut size = P::FIRST_SIZE;
        if !chunk::is_empty(newest) {
            // SAFETY: This is the header of the newest chunk, and only it refers to the spare one.
            unsafe {
                size = chunk::next_size::<P>(chunk::size::<P>(newest));
                let spare = (*newest).spare;
                if !spare.is_null() {
                    (*newest).spare = ptr::null_mut();
                    if chunk::size::<P>(spare) >= need {
                        (*newest).left.write(self.pos.get());
                        (*spare).prev = newest;
                        self.enter(spare);
                        return Some(());
                    }
                    size = chunk::next_size::<P>(chunk::size::<P>(spare));
                    chunk::give_back::<P, A>(&self.base, spare);
                }
            }
        }
        let mut size = arithmetic::round_up(size.min(isize::MAX as usize / 2), P::ALIGN).max(need);
        // If there is no memory for the preferred size, there may be for a smaller one.
        let chunk = loop {
            match chunk::take::<P, A>(&self.base, size) {
                Some(chunk) => break chunk,
                None if size == need => return None,
                None => size = arithmetic::round_up(size / 2, P::ALIGN).max(need),
            }
        };
        // SAFETY: The chunk is fresh.
        unsafe { self.push_chunk(chunk) };
        Some(())
    }

    /// Makes a fresh chunk the newest one.
    ///
    /// # Safety
    ///
    /// The memory is owned by the caller, and was returned by [`chunk::take`].
    unsafe fn push_chunk(&self, chunk: NonNull<[u8]>) {
        let newest = self.header();
        let prev = if chunk::is_empty(newest) { ptr::null_mut() } else { newest };
        // SAFETY: By contract. The older chunk records the current position.
        unsafe {
            let (pos, limit) = chunk::write::<P>(chunk.cast(), chunk.len(), prev);
            if !prev.is_null() {
                (*prev).left.write(self.pos.get());
                // Only the newest chunk can own a spare one.
                let spare = core::mem::replace(&mut (*prev).spare, ptr::null_mut());
                (*chunk::header_at::<P>(limit)).spare = spare;
            }
            self.pos.set(pos);
            self.limit.set(limit);
        }
    }

    /// Makes a chunk the current one, and sets the position to its beginning.
    ///
    /// # Safety
    ///
    /// This is the header of the arena's newest chunk, and its blocks are not in use.
    unsafe fn enter(&self, header: *mut Header) {
        // SAFETY: By contract.
        self.pos.set(unsafe { (*header).far });
        self.limit.set(chunk::limit_at::<P>(header));
    }

    /// Returns the header of the current chunk, or the empty header.
    #[inline(always)]
    fn header(&self) -> *mut Header {
        chunk::header_at::<P>(self.limit.get())
    }

    #[cold]
    #[inline(never)]
    fn reset_slow(&mut self) {
        let newest = self.header();
        if chunk::is_empty(newest) {
            return;
        }
        // SAFETY: The arena is not borrowed. Chunks are unlinked before they are freed.
        unsafe {
            let (kept, rest) = largest::<P>(newest, ptr::null_mut());
            self.enter(kept);
            self.give_back(rest);
        }
    }

    /// # Safety
    ///
    /// The obligations of [`reset_to`](Arena::reset_to).
    #[cold]
    #[inline(never)]
    unsafe fn reset_to_slow(&self, checkpoint: Checkpoint) {
        let newest = self.header();
        let older = chunk::header_at::<P>(checkpoint.limit);
        // SAFETY: By contract, chunks newer than the checkpoint's are no longer used. They are
        // unlinked before they are freed.
        unsafe {
            if chunk::is_empty(older) {
                let (kept, rest) = largest::<P>(newest, ptr::null_mut());
                self.enter(kept);
                self.give_back(rest);
            } else {
                let (kept, rest) = largest::<P>(newest, older);
                (*older).spare = kept;
                self.pos.set(checkpoint.pos);
                self.limit.set(checkpoint.limit);
                self.give_back(rest);
            }
        }
    }

    /// Frees a list of chunks.
    ///
    /// # Safety
    ///
    /// The chunks are unlinked from any arena, and are no longer used.
    unsafe fn give_back(&self, first: *mut Header) {
        // SAFETY: By contract.
        chunk::give_back_each(first, |next| unsafe {
            let header = core::mem::replace(next, (**next).prev);
            chunk::give_back::<P, A>(&self.base, header);
        });
    }

    /// Frees all chunks, and leaves the arena empty.
    ///
    /// # Safety
    ///
    /// The allocations are no longer used.
    unsafe fn give_back_all(&self) {
        let newest = self.header();
        if chunk::is_empty(newest) {
            return;
        }
        let limit = chunk::empty_limit::<P>();
        self.pos.set(limit);
        self.limit.set(limit);
        // SAFETY: By contract; the chunks are no longer linked to the arena.
        unsafe {
            let spare = (*newest).spare_alone();
            let first = if spare.is_null() { newest } else { spare };
            if !spare.is_null() {
                (*spare).prev = newest;
            }
            self.give_back(first);
        }
    }
}

/// Unlinks the spare chunk and the chunks that are newer than `last`. Returns the largest of these
/// as a single chunk, and the others as a list.
///
/// # Safety
///
/// `newest` is the newest chunk, and not `last`. `last` is an older chunk, or null.
unsafe fn largest<P: Policy>(newest: *mut Header, last: *mut Header) -> (*mut Header, *mut Header) {
    let mut rest = ptr::null_mut();
    // SAFETY: The list is intact.
    unsafe {
        let mut kept = newest;
        let mut next = (*newest).prev;
        let spare = (*newest).spare_alone();
        if !spare.is_null() {
            (*spare).prev = next;
            next = spare;
        }
        while next != last {
            let mut header = next;
            next = (*header).prev;
            if chunk::size::<P>(header) > chunk::size::<P>(kept) {
                core::mem::swap(&mut header, &mut kept);
            }
            (*header).prev = rest;
            rest = header;
        }
        (*kept).prev = ptr::null_mut();
        (*kept).spare = ptr::null_mut();
        (kept, rest)
    }
}

impl<'b, P: Policy> Arena<P, InBuffer<'b>> {
    /// Creates an arena inside a buffer, on the stack or in a static. This arena never grows.
    ///
    /// Header and alignment take up to 62 bytes of the buffer, with a minimum alignment of at most
    /// 16. If you pass a smaller buffer, every allocation fails.
    ///
    /// ```
    /// use core::mem::MaybeUninit;
    /// use quipu_arena::{Arena, InBuffer, Up};
    ///
    /// let mut buffer = [MaybeUninit::uninit(); 256];
    /// let arena = Arena::<Up, InBuffer>::in_buffer(&mut buffer);
    /// assert_eq!(arena.alloc_str("on the stack"), "on the stack");
    /// assert!(arena.try_alloc([0u64; 32]).is_err());
    /// ```
    pub fn in_buffer(buffer: &'b mut [MaybeUninit<u8>]) -> Arena<P, InBuffer<'b>> {
        let arena = Arena::empty_in(InBuffer::new());
        let skipped = buffer.as_ptr().addr().wrapping_neg() & (P::ALIGN - 1);
        let size = buffer.len().saturating_sub(skipped) & P::ALIGN.wrapping_neg();
        if size > P::HEADER {
            // SAFETY: `skipped` is at most the length of the buffer.
            let start = unsafe { NonNull::from(buffer).cast::<u8>().add(skipped) };
            if chunk::is_usable(start) {
                // SAFETY: The buffer is borrowed for as long as the arena lives, the start is
                // aligned, the size is a multiple of the alignment, and there is no older chunk.
                let (pos, limit) = unsafe { chunk::write::<P>(start, size, ptr::null_mut()) };
                arena.pos.set(pos);
                arena.limit.set(limit);
            }
        }
        arena
    }
}

impl<P: Policy, A: BaseAllocator> Drop for Arena<P, A> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The arena ends here, so it is not borrowed.
        unsafe { self.give_back_all() };
    }
}

/// Creates an arena without a chunk.
impl<P: Policy, A: BaseAllocator + Default> Default for Arena<P, A> {
    fn default() -> Arena<P, A> {
        Arena::empty_in(A::default())
    }
}

impl<P: Policy, A: BaseAllocator> fmt::Debug for Arena<P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Panics. Methods that cannot return an error panic only here.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn out_of_memory(layout: Layout) -> ! {
    panic!(
        "the base allocator of an arena has no memory for {} bytes at a multiple of {}; the \
         methods that begin with try_ return an error instead",
        layout.size(),
        layout.align()
    )
}

/// Like [`out_of_memory`], for a size without a valid layout.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn out_of_bytes(size: usize) -> ! {
    panic!(
        "an arena cannot have {size} bytes; the methods that begin with try_ return an error instead"
    )
}
