//! [`ArenaBox`]: owns a value in an arena, and drops it.

use core::borrow::{Borrow, BorrowMut};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// Owns a value in an arena, and drops this value. The memory stays the arena's.
///
/// You cannot pin this box: if a pinned box were forgotten, its value would never be dropped, yet
/// its memory would be reused.
///
/// ```
/// use quipu_arena::Arena;
///
/// let arena = Arena::new();
/// let names = arena.alloc_box(vec!["a".to_owned(), "b".to_owned()]);
/// assert_eq!(names.len(), 2);
/// drop(names); // frees what the vector has on the heap
/// ```
///
/// With [`unsize!`](crate::unsize), you can convert it into a box of a trait object or a slice:
///
/// ```
/// use quipu_arena::{Arena, ArenaBox, unsize};
///
/// let arena = Arena::new();
/// let call: ArenaBox<'_, dyn Fn(u32) -> u32> = unsize!(arena.alloc_box(|n: u32| n + 1));
/// assert_eq!(call(1), 2);
/// ```
pub struct ArenaBox<'a, T: ?Sized> {
    value: NonNull<T>,
    /// The box owns its value, and can be used where a shorter lifetime is expected.
    owns: PhantomData<(&'a (), T)>,
}

// SAFETY: This is like a mutable reference to its value, and dropping it does not touch the arena.
unsafe impl<T: ?Sized + Send> Send for ArenaBox<'_, T> {}
// SAFETY: As above.
unsafe impl<T: ?Sized + Sync> Sync for ArenaBox<'_, T> {}

impl<'a, T: ?Sized> ArenaBox<'a, T> {
    /// Creates a box that owns a value.
    ///
    /// # Safety
    ///
    /// The value is aligned, is in memory that lives as long as `'a`, and is not used or dropped by
    /// any other code.
    #[inline(always)]
    pub const unsafe fn from_raw(value: NonNull<T>) -> ArenaBox<'a, T> {
        ArenaBox { value, owns: PhantomData }
    }

    /// Returns the value. It is not dropped, unless you create a box from it again.
    #[inline(always)]
    pub const fn into_raw(this: ArenaBox<'a, T>) -> NonNull<T> {
        let value = this.value;
        core::mem::forget(this);
        value
    }

    /// Returns the value. It is never dropped.
    #[inline(always)]
    pub fn leak(this: ArenaBox<'a, T>) -> &'a mut T {
        // SAFETY: The value lives as long as `'a`, and the box is gone.
        unsafe { ArenaBox::into_raw(this).as_mut() }
    }
}

/// Converts an [`ArenaBox`] into a box of a trait object or a slice, like `Box` does by itself.
///
/// ```
/// use std::fmt::Display;
/// use quipu_arena::{Arena, ArenaBox, unsize};
///
/// let arena = Arena::new();
/// let mut shown: Vec<ArenaBox<'_, dyn Display>> = Vec::new();
/// shown.push(unsize!(arena.alloc_box(1)));
/// shown.push(unsize!(arena.alloc_box("two")));
/// assert_eq!(format!("{}, {}", shown[0], shown[1]), "1, two");
/// ```
#[macro_export]
macro_rules! unsize {
    ($boxed:expr) => {{
        let (value, life) = $crate::ArenaBox::into_parts($boxed);
        // SAFETY: Both parts are from a box, whose pointer is converted to another pointer to the
        // same value.
        unsafe { $crate::ArenaBox::from_parts(value, life) }
    }};
}

impl<'a, T: ?Sized> ArenaBox<'a, T> {
    /// For [`unsize!`](crate::unsize): returns the value and its lifetime.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn into_parts(this: ArenaBox<'a, T>) -> (NonNull<T>, PhantomData<&'a ()>) {
        (ArenaBox::into_raw(this), PhantomData)
    }

    /// For [`unsize!`](crate::unsize).
    ///
    /// # Safety
    ///
    /// Both were returned by one call of [`into_parts`](ArenaBox::into_parts).
    #[doc(hidden)]
    #[inline(always)]
    pub const unsafe fn from_parts(value: NonNull<T>, _: PhantomData<&'a ()>) -> ArenaBox<'a, T> {
        // SAFETY: A box owned the value, which lives as long as `'a`.
        unsafe { ArenaBox::from_raw(value) }
    }
}

impl<'a, T> ArenaBox<'a, T> {
    /// Moves the value out of the box.
    #[inline]
    pub fn into_inner(this: ArenaBox<'a, T>) -> T {
        // SAFETY: The value is initialised, and the box no longer owns it.
        unsafe { ArenaBox::into_raw(this).read() }
    }
}

impl<T: ?Sized> Drop for ArenaBox<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: The box owns the value.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T: ?Sized> Deref for ArenaBox<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: The box owns the value.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for ArenaBox<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The box owns the value.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> AsRef<T> for ArenaBox<'_, T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> AsMut<T> for ArenaBox<'_, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for ArenaBox<'_, T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized> BorrowMut<T> for ArenaBox<'_, T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ArenaBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for ArenaBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + PartialEq> PartialEq for ArenaBox<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for ArenaBox<'_, T> {}

impl<T: ?Sized + PartialOrd> PartialOrd for ArenaBox<'_, T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: ?Sized + Ord> Ord for ArenaBox<'_, T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: ?Sized + Hash> Hash for ArenaBox<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<I: ?Sized + Iterator> Iterator for ArenaBox<'_, I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        (**self).next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (**self).size_hint()
    }
}
