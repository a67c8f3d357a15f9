//! [`IntoIter`]: takes the values out of a vector that is no longer needed.

use core::fmt;
use core::iter::FusedIterator;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use crate::boxed::ArenaBox;
use crate::vec::{ArenaVec, Within};

/// An iterator that owns the values of a vector. If you drop it, the remaining values are dropped;
/// their memory stays with the arena.
///
/// ```
/// use quipu_arena::{Arena, arena_vec};
///
/// let arena = Arena::new();
/// let mut values = arena_vec![in &arena; 1, 2, 3].into_iter();
/// assert_eq!((values.next(), values.next_back()), (Some(1), Some(3)));
/// assert_eq!(values.len(), 1);
/// ```
pub struct IntoIter<'a, T> {
    values: NonNull<T>,
    next: usize,
    len: usize,
    owns: PhantomData<(&'a (), T)>,
}

// SAFETY: The iterator owns its values, and does not touch the arena.
unsafe impl<T: Send> Send for IntoIter<'_, T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for IntoIter<'_, T> {}

impl<T> Iterator for IntoIter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.len {
            return None;
        }
        // SAFETY: The value is initialised, and is read once.
        let value = unsafe { self.values.add(self.next).read() };
        self.next += 1;
        Some(value)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl<T> DoubleEndedIterator for IntoIter<'_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        if self.next == self.len {
            return None;
        }
        self.len -= 1;
        // SAFETY: The value is initialised, and is read once.
        Some(unsafe { self.values.add(self.len).read() })
    }
}

impl<T> ExactSizeIterator for IntoIter<'_, T> {}

impl<T> FusedIterator for IntoIter<'_, T> {}

impl<T> Drop for IntoIter<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The remaining values are initialised, and were not read.
        unsafe {
            let rest = self.values.add(self.next).as_ptr();
            ptr::slice_from_raw_parts_mut(rest, self.len - self.next).drop_in_place();
        }
    }
}

impl<T> fmt::Debug for IntoIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &self.len()).finish_non_exhaustive()
    }
}

impl<'a, T, H: Within<'a>> IntoIterator for ArenaVec<'a, T, H> {
    type Item = T;
    type IntoIter = IntoIter<'a, T>;

    #[inline]
    fn into_iter(self) -> IntoIter<'a, T> {
        let values = ArenaBox::into_raw(self.into_boxed_slice());
        IntoIter { values: values.cast(), next: 0, len: values.len(), owns: PhantomData }
    }
}
