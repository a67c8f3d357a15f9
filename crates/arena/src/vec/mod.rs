//! [`ArenaVec`]: a vector in an arena.
//!
//! Compared with a `Vec<T, &Arena>` of allocator-api2, this vector copies slices whole, needs no
//! check of a layout that the compiler cannot see, and frees unused capacity when you turn it into
//! a slice. This slice lives as long as the scope, not only as long as the borrow of the scope. If
//! you need the whole interface of `Vec`, use allocator-api2's vector.

mod drain;
mod edit;
mod into_iter;

use core::alloc::Layout;
use core::borrow::{Borrow, BorrowMut};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::slice;

use crate::allocate::{expect_array, no_growth, refuse_drop};
use crate::arena::Arena;
use crate::base::{AllocError, BaseAllocator, default_to_heap};
use crate::boxed::ArenaBox;
use crate::policy::Policy;
use crate::scope::Scope;

pub use drain::Drain;
pub(crate) use drain::bounds;
pub use into_iter::IntoIter;

/// The places where a vector or a string can live: `&Arena`, `&Scope` or `&Batch`.
///
/// If a function takes a vector in any of these places, make the place a type parameter:
///
/// ```
/// use quipu_arena::{Arena, ArenaVec, Within};
///
/// fn push_all<'a, H: Within<'a>>(vec: &mut ArenaVec<'a, u32, H>, values: &[u32]) {
///     values.iter().for_each(|value| vec.push(*value));
/// }
///
/// let mut arena = Arena::new();
/// push_all(&mut ArenaVec::new_in(&arena), &[1, 2]);
/// arena.scoped(|scope| push_all(&mut ArenaVec::new_in(&scope), &[3, 4]));
/// ```
///
/// # Safety
///
/// Allocations there live as long as `'a`.
pub unsafe trait Within<'a>: Copy + sealed::SealedTarget {
    /// The arena's policy.
    type Policy: Policy;
    /// The arena's base allocator.
    type Base: BaseAllocator;
    /// Returns the arena.
    #[doc(hidden)]
    fn arena(&self) -> &Arena<Self::Policy, Self::Base>;
}

// SAFETY: The arena is borrowed for `'a`.
unsafe impl<'a, P: Policy, A: BaseAllocator> Within<'a> for &'a Arena<P, A> {
    type Policy = P;
    type Base = A;

    #[inline(always)]
    fn arena(&self) -> &Arena<P, A> {
        self
    }
}

// SAFETY: Allocations of a scope live as long as its lifetime.
unsafe impl<'a, P: Policy, A: BaseAllocator> Within<'a> for &Scope<'a, P, A> {
    type Policy = P;
    type Base = A;

    #[inline(always)]
    fn arena(&self) -> &Arena<P, A> {
        Scope::arena(self)
    }
}

mod sealed {
    use super::{Arena, BaseAllocator, Policy, Scope};

    pub trait SealedTarget {}
    impl<P: Policy, A: BaseAllocator> SealedTarget for &Arena<P, A> {}
    impl<P: Policy, A: BaseAllocator> SealedTarget for &Scope<'_, P, A> {}
    #[cfg(feature = "alloc")]
    impl<A: BaseAllocator> SealedTarget for &crate::Batch<'_, A> {}
}

// SAFETY: Allocations of a batch live as long as the shared arena.
#[cfg(feature = "alloc")]
unsafe impl<'a, A: BaseAllocator> Within<'a> for &crate::Batch<'a, A> {
    type Policy = crate::Pieces;
    type Base = &'a crate::SharedArena<A>;

    #[inline(always)]
    fn arena(&self) -> &Arena<crate::Pieces, &'a crate::SharedArena<A>> {
        crate::Batch::arena(self)
    }
}

default_to_heap! {
    /// A vector in an arena.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut buckets = ArenaVec::new_in(&arena);
    /// buckets.extend_from_slice_copy(&[1, 2, 3]);
    /// buckets.push(4);
    /// let buckets: &mut [i32] = buckets.into_slice();
    /// assert_eq!(buckets, [1, 2, 3, 4]);
    /// assert_eq!(arena.stats().allocated, 16);
    /// ```
    ///
    /// Threads can share a vector, but not its arena. So the vector does not implement `Clone`,
    /// because cloning would allocate: use [`clone_in`](ArenaVec::clone_in).
    pub struct ArenaVec<'a, T; H: Within<'a> = &'a Arena> {
        room: Room<T, H>,
        /// A separate field, because a loop of pushes can then keep the length in a register.
        len: usize,
        /// The vector owns its values, whose lifetimes can be shorter than the arena's: for
        /// example, they can hold a `&Scope`.
        owns: PhantomData<(&'a (), T)>,
    }
}

/// The block that holds the values of a vector.
struct Room<T, H> {
    start: NonNull<T>,
    capacity: usize,
    home: H,
}

impl<'a, T, H: Within<'a>> ArenaVec<'a, T, H> {
    /// Creates an empty vector. The first push allocates this vector's block.
    #[inline(always)]
    pub const fn new_in(home: H) -> ArenaVec<'a, T, H> {
        let capacity = if size_of::<T>() == 0 { usize::MAX } else { 0 };
        let room = Room { start: NonNull::dangling(), capacity, home };
        ArenaVec { room, len: 0, owns: PhantomData }
    }

    /// Creates an empty vector with room for `capacity` values.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    #[inline]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, home: H) -> ArenaVec<'a, T, H> {
        expect_array::<T, _>(ArenaVec::try_with_capacity_in(capacity, home), capacity)
    }

    /// Creates a vector of the values that an iterator yields.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn from_iter_in(items: impl IntoIterator<Item = T>, home: H) -> ArenaVec<'a, T, H> {
        let mut vec = ArenaVec::new_in(home);
        vec.extend(items);
        vec
    }

    /// Like [`from_iter_in`](ArenaVec::from_iter_in), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let squares = ArenaVec::try_from_iter_in((0..4).map(|n| n * n), &arena)?;
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. Then the values are dropped.
    #[inline]
    pub fn try_from_iter_in(
        items: impl IntoIterator<Item = T>,
        home: H,
    ) -> Result<ArenaVec<'a, T, H>, AllocError> {
        let mut vec = ArenaVec::new_in(home);
        vec.try_extend(items)?;
        Ok(vec)
    }

    /// Like [`with_capacity_in`](ArenaVec::with_capacity_in), but returns an error if there is no
    /// memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    #[inline]
    pub fn try_with_capacity_in(
        capacity: usize,
        home: H,
    ) -> Result<ArenaVec<'a, T, H>, AllocError> {
        let mut vec = ArenaVec::new_in(home);
        if size_of::<T>() != 0 && capacity != 0 {
            vec.room.start = home.arena().try_room_for(capacity)?;
            vec.room.capacity = capacity;
        }
        Ok(vec)
    }

    /// Returns the number of values that fit without a new allocation.
    pub const fn capacity(&self) -> usize {
        self.room.capacity
    }

    /// Returns the values as a slice.
    #[inline(always)]
    pub const fn as_slice(&self) -> &[T] {
        // SAFETY: The first `len` values are initialised.
        unsafe { slice::from_raw_parts(self.room.start.as_ptr(), self.len) }
    }

    /// Returns the values as a mutable slice.
    #[inline(always)]
    pub const fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: The first `len` values are initialised.
        unsafe { slice::from_raw_parts_mut(self.room.start.as_ptr(), self.len) }
    }

    /// Appends a value.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline(always)]
    #[track_caller]
    pub fn push(&mut self, value: T) {
        if self.len == self.room.capacity {
            self.room.grow_one();
        }
        // SAFETY: The block is large enough.
        unsafe { self.push_unchecked(value) };
    }

    /// Like [`push`](ArenaVec::push), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. Then the value is dropped.
    #[inline(always)]
    pub fn try_push(&mut self, value: T) -> Result<(), AllocError> {
        if self.len == self.room.capacity {
            self.room.grow(self.len, 1)?;
        }
        // SAFETY: The block is large enough.
        unsafe { self.push_unchecked(value) };
        Ok(())
    }

    /// Removes the last value.
    #[inline]
    pub const fn pop(&mut self) -> Option<T> {
        match self.len.checked_sub(1) {
            Some(len) => {
                self.len = len;
                // SAFETY: The value was initialised, and the vector no longer owns it.
                Some(unsafe { self.room.start.add(len).read() })
            }
            None => None,
        }
    }

    /// Inserts a value at an index, and moves the values from there on up by one.
    ///
    /// # Panics
    ///
    /// If the index is greater than the length, or the base allocator is out of memory.
    #[track_caller]
    pub fn insert(&mut self, index: usize, value: T) {
        assert!(index <= self.len, "an index of {index} in a vector of {}", self.len);
        self.reserve(1);
        // SAFETY: There is room for one more.
        unsafe {
            let at = self.room.start.add(index);
            at.copy_to(at.add(1), self.len - index);
            at.write(value);
        }
        self.len += 1;
    }

    /// Removes the value at an index, and moves the values after it down by one.
    ///
    /// # Panics
    ///
    /// If the index is out of bounds.
    #[track_caller]
    pub fn remove(&mut self, index: usize) -> T {
        assert!(index < self.len, "an index of {index} in a vector of {}", self.len);
        self.len -= 1;
        // SAFETY: The value was initialised, and the others move over it.
        unsafe {
            let at = self.room.start.add(index);
            let value = at.read();
            at.copy_from(at.add(1), self.len - index);
            value
        }
    }

    /// Removes the value at an index, and replaces it with the last one. This takes constant time,
    /// but changes the order.
    ///
    /// # Panics
    ///
    /// If the index is out of bounds.
    #[track_caller]
    pub fn swap_remove(&mut self, index: usize) -> T {
        assert!(index < self.len, "an index of {index} in a vector of {}", self.len);
        self.len -= 1;
        // SAFETY: Both values were initialised; the last one takes the place of the other.
        unsafe {
            let at = self.room.start.add(index);
            let value = at.read();
            at.copy_from(self.room.start.add(self.len), 1);
            value
        }
    }

    /// Drops the values from index `len` on.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let dropped = self.len - len;
            self.len = len;
            // SAFETY: They were initialised, and the vector no longer owns them, even if a drop
            // panics.
            unsafe {
                ptr::slice_from_raw_parts_mut(self.room.start.as_ptr().add(len), dropped)
                    .drop_in_place();
            }
        }
    }

    /// Changes the length: drops excess values, or appends clones of `value`.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    pub fn resize(&mut self, len: usize, value: T)
    where
        T: Clone,
    {
        self.truncate(len);
        let missing = len - self.len;
        self.reserve(missing);
        self.extend(core::iter::repeat_n(value, missing));
    }

    /// Drops all values. The capacity stays, so you can fill this vector again without allocating.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Drops the values that the function returns false for, in linear time.
    ///
    /// If the function panics, the vector keeps all of its values, in another order.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut latencies = ArenaVec::from_iter_in([3, 250, 7, 900], &arena);
    /// latencies.retain(|milliseconds| *milliseconds < 100);
    /// assert_eq!(latencies, [3, 7]);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for index in 0..self.len {
            if keep(&self.as_slice()[index]) {
                self.as_mut_slice().swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Makes room for at least `additional` more values.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    #[inline]
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        expect_array::<T, _>(self.try_reserve(additional), additional);
    }

    /// Like [`reserve`](ArenaVec::reserve), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    #[inline]
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), AllocError> {
        if additional > self.room.capacity - self.len {
            self.room.grow(self.len, additional)
        } else {
            Ok(())
        }
    }

    /// Appends clones of the values of a slice. If the values are `Copy`, you can use the cheaper
    /// [`extend_from_slice_copy`](ArenaVec::extend_from_slice_copy).
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn extend_from_slice(&mut self, source: &[T])
    where
        T: Clone,
    {
        self.extend(source.iter().cloned());
    }

    /// Appends a copy of a slice.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn extend_from_slice_copy(&mut self, source: &[T])
    where
        T: Copy,
    {
        expect_array::<T, _>(self.try_extend_from_slice_copy(source), source.len());
    }

    /// Like [`extend_from_slice_copy`](ArenaVec::extend_from_slice_copy), but returns an error if
    /// there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline]
    pub fn try_extend_from_slice_copy(&mut self, source: &[T]) -> Result<(), AllocError>
    where
        T: Copy,
    {
        self.try_reserve(source.len())?;
        // SAFETY: There is room. An existing slice cannot overlap with uninitialised room.
        unsafe {
            ptr::copy_nonoverlapping(
                source.as_ptr(),
                self.room.start.as_ptr().add(self.len),
                source.len(),
            );
        }
        self.len += source.len();
        Ok(())
    }

    /// Appends the values that an iterator yields, until it ends or memory runs out.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. Values appended before the error stay.
    #[inline]
    pub fn try_extend(&mut self, items: impl IntoIterator<Item = T>) -> Result<(), AllocError> {
        let items = items.into_iter();
        let least = items.size_hint().0;
        let reserved = if self.room.capacity == 0 && least != 0 {
            // A vector's first reservation: inlined, and without a minimum capacity.
            self.room.home.arena().try_room_for(least).map(|start| {
                self.room.start = start;
                self.room.capacity = least;
            })
        } else {
            self.try_reserve(least)
        };
        if reserved.is_err() {
            // If there is not enough memory for all at once, append the values that fit; but fail
            // if the vector would exceed `isize::MAX` bytes.
            let sum = self.len.checked_add(least).ok_or(AllocError)?;
            Layout::array::<T>(sum).map_err(|_| AllocError)?;
        }
        for item in items {
            self.try_push(item)?;
        }
        Ok(())
    }

    /// Frees unused capacity, if this vector is the arena's last allocation. Otherwise, for example
    /// after another allocation, this has no effect, because an arena can only free its last one.
    pub fn shrink_to_fit(&mut self) {
        if size_of::<T>() == 0 || self.len == self.room.capacity {
            return;
        }
        let arena = self.room.home.arena();
        let block = self.room.start.cast::<u8>();
        if self.len == 0 {
            // SAFETY: The block belongs to the arena, and holds no values.
            unsafe { arena.free_block(block, self.room.capacity * size_of::<T>()) };
            self.room.start = NonNull::dangling();
            self.room.capacity = 0;
            return;
        }
        // SAFETY: The block is of the old layout; the new one is smaller, with the same alignment,
        // so this needs no memory.
        unsafe {
            let new = layout_of::<T>(self.len);
            if let Ok(block) =
                arena.shrink_block::<true>(block, layout_of::<T>(self.room.capacity), new)
            {
                self.room.start = block.cast();
                self.room.capacity = self.len;
            }
        }
    }

    /// Returns the values as a slice in the arena. The type must not need dropping; for other
    /// types, you can use [`into_boxed_slice`](ArenaVec::into_boxed_slice).
    #[inline]
    pub fn into_slice(self) -> &'a mut [T] {
        refuse_drop!(T);
        ArenaBox::leak(self.into_boxed_slice())
    }

    /// Returns the values as a boxed slice in the arena, which drops them.
    #[inline]
    pub fn into_boxed_slice(mut self) -> ArenaBox<'a, [T]> {
        self.shrink_to_fit();
        let this = ManuallyDrop::new(self);
        // SAFETY: The block is the arena's, where it lives as long as `'a`, without another owner.
        unsafe { ArenaBox::from_raw(NonNull::slice_from_raw_parts(this.room.start, this.len)) }
    }

    /// Returns the place where the vector lives.
    pub(crate) const fn home(&self) -> H {
        self.room.home
    }

    /// # Safety
    ///
    /// The length is less than the capacity.
    #[inline(always)]
    unsafe fn push_unchecked(&mut self, value: T) {
        // SAFETY: By contract.
        unsafe { self.room.start.add(self.len).write(value) };
        self.len += 1;
    }
}

impl<'a, T, H: Within<'a>> Room<T, H> {
    #[inline(always)]
    #[track_caller]
    fn grow_one(&mut self) {
        self.take(grown_by_one(self.home, self.start, self.capacity));
    }

    /// Makes room for `additional` values beyond `len`.
    #[inline(always)]
    fn grow(&mut self, len: usize, additional: usize) -> Result<(), AllocError> {
        self.take(grown(self.home, self.start, self.capacity, len, additional)?);
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, room: NonNull<[T]>) {
        self.start = room.cast();
        self.capacity = room.len();
    }
}

/// Moves the values of a full block to a larger one. Takes and returns plain values, because the
/// vector itself can then stay in registers.
#[cold]
#[inline(never)]
#[track_caller]
fn grown_by_one<'a, T, H: Within<'a>>(home: H, start: NonNull<T>, capacity: usize) -> NonNull<[T]> {
    expect_array::<T, _>(grown(home, start, capacity, capacity, 1), capacity.saturating_add(1))
}

/// Returns a block with room for `additional` values beyond `len`.
#[cold]
#[inline(never)]
fn grown<'a, T, H: Within<'a>>(
    home: H,
    start: NonNull<T>,
    capacity: usize,
    len: usize,
    additional: usize,
) -> Result<NonNull<[T]>, AllocError> {
    if size_of::<T>() == 0 {
        return Err(AllocError);
    }
    let Some(needed) = len.checked_add(additional) else { return Err(AllocError) };
    let least = if size_of::<T>() == 1 { 8 } else { 4 };
    let wished = needed.max(capacity.saturating_mul(2)).max(least);
    // Near a limit, there may be enough memory for the needed size, though not for twice as much.
    match with_capacity(home, start, capacity, wished) {
        Err(AllocError) if wished > needed => with_capacity(home, start, capacity, needed),
        result => result,
    }
}

/// Returns a block with room for `new` values in all, which is more than before.
fn with_capacity<'a, T, H: Within<'a>>(
    home: H,
    start: NonNull<T>,
    old: usize,
    new: usize,
) -> Result<NonNull<[T]>, AllocError> {
    let Ok(layout) = Layout::array::<T>(new) else { return Err(AllocError) };
    let arena = home.arena();
    let block = if old == 0 {
        arena.allocate_block(layout)?
    } else {
        // SAFETY: The block is of the old layout, and the new one is larger.
        unsafe { arena.grow_block(start.cast(), layout_of::<T>(old), layout)? }
    };
    Ok(NonNull::slice_from_raw_parts(block.cast(), new))
}

/// Returns the layout of a block for `capacity` values.
///
/// # Safety
///
/// Such a block exists.
unsafe fn layout_of<T>(capacity: usize) -> Layout {
    // SAFETY: A block of that layout exists, so the layout is valid.
    unsafe { Layout::from_size_align_unchecked(capacity * size_of::<T>(), align_of::<T>()) }
}

impl<'a, T, H: Within<'a>> Drop for ArenaVec<'a, T, H> {
    #[inline]
    fn drop(&mut self) {
        /// Frees the block, even if a value's drop panics.
        struct Block<'v, 'a, T, H: Within<'a>>(&'v mut ArenaVec<'a, T, H>);

        impl<'a, T, H: Within<'a>> Drop for Block<'_, 'a, T, H> {
            #[inline]
            fn drop(&mut self) {
                let vec = &self.0.room;
                if size_of::<T>() != 0 && vec.capacity != 0 {
                    let bytes = vec.capacity * size_of::<T>();
                    // SAFETY: The block belongs to the arena, and its values are gone.
                    unsafe { vec.home.arena().free_block(vec.start.cast(), bytes) };
                }
            }
        }

        Block(self).0.clear();
    }
}

impl<'a, T, H: Within<'a>> Deref for ArenaVec<'a, T, H> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<'a, T, H: Within<'a>> DerefMut for ArenaVec<'a, T, H> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<'a, T, H: Within<'a>> Extend<T> for ArenaVec<'a, T, H> {
    #[inline]
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        if self.try_extend(items).is_err() {
            no_growth();
        }
    }
}

impl<'a, 'e, T: Copy + 'e, H: Within<'a>> Extend<&'e T> for ArenaVec<'a, T, H> {
    #[inline]
    fn extend<I: IntoIterator<Item = &'e T>>(&mut self, items: I) {
        self.extend(items.into_iter().copied());
    }
}

impl<'v, 'a, T, H: Within<'a>> IntoIterator for &'v ArenaVec<'a, T, H> {
    type Item = &'v T;
    type IntoIter = slice::Iter<'v, T>;

    fn into_iter(self) -> slice::Iter<'v, T> {
        self.iter()
    }
}

impl<'v, 'a, T, H: Within<'a>> IntoIterator for &'v mut ArenaVec<'a, T, H> {
    type Item = &'v mut T;
    type IntoIter = slice::IterMut<'v, T>;

    fn into_iter(self) -> slice::IterMut<'v, T> {
        self.iter_mut()
    }
}

impl<'a, T: fmt::Debug, H: Within<'a>> fmt::Debug for ArenaVec<'a, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

// SAFETY: A shared reference gives access to the values, but not to the arena.
unsafe impl<'a, T: Sync, H: Within<'a>> Sync for ArenaVec<'a, T, H> {}

impl<'a, 'b, T: PartialEq<U>, U, H: Within<'a>, I: Within<'b>> PartialEq<ArenaVec<'b, U, I>>
    for ArenaVec<'a, T, H>
{
    fn eq(&self, other: &ArenaVec<'b, U, I>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

macro_rules! equal {
    ($([$($generics:tt)*] $other:ty),* $(,)?) => {$(
        impl<'a, T: PartialEq<U>, U, H: Within<'a>, $($generics)*> PartialEq<$other>
            for ArenaVec<'a, T, H>
        {
            fn eq(&self, other: &$other) -> bool {
                self.as_slice() == &other[..]
            }
        }
    )*};
}

equal!([] [U], [] &[U], [] &mut [U], [const N: usize] [U; N], [const N: usize] &[U; N]);

impl<'a, T: Eq, H: Within<'a>> Eq for ArenaVec<'a, T, H> {}

impl<'a, 'b, T: PartialOrd, H: Within<'a>, I: Within<'b>> PartialOrd<ArenaVec<'b, T, I>>
    for ArenaVec<'a, T, H>
{
    fn partial_cmp(&self, other: &ArenaVec<'b, T, I>) -> Option<Ordering> {
        self.as_slice().partial_cmp(other.as_slice())
    }
}

impl<'a, T: Ord, H: Within<'a>> Ord for ArenaVec<'a, T, H> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl<'a, T: Hash, H: Within<'a>> Hash for ArenaVec<'a, T, H> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.as_slice().hash(state);
    }
}

impl<'a, T, H: Within<'a>> AsRef<[T]> for ArenaVec<'a, T, H> {
    fn as_ref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<'a, T, H: Within<'a>> AsMut<[T]> for ArenaVec<'a, T, H> {
    fn as_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<'a, T, H: Within<'a>> Borrow<[T]> for ArenaVec<'a, T, H> {
    fn borrow(&self) -> &[T] {
        self.as_slice()
    }
}

impl<'a, T, H: Within<'a>> BorrowMut<[T]> for ArenaVec<'a, T, H> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}
