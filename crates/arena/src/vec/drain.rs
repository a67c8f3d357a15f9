//! [`Drain`]: takes a range of values out of a vector.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Bound, RangeBounds};
use core::{ptr, slice};

use crate::vec::{ArenaVec, Within};

impl<'a, T, H: Within<'a>> ArenaVec<'a, T, H> {
    /// Removes a range of values, and returns an iterator over them.
    ///
    /// When you drop the iterator, it drops the values that it did not yield, and moves the values
    /// after the range down. If you leak the iterator, the vector keeps only the values before the
    /// range. This neither allocates nor frees: the capacity stays.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut queue = ArenaVec::from_iter_in(["a", "b", "c", "d"], &arena);
    /// assert!(queue.drain(1..3).eq(["b", "c"]));
    /// assert_eq!(queue, ["a", "d"]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the range starts after its end, or ends after the length.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, 'a, T, H> {
        let (start, end) = bounds(range, self.len);
        let len = self.len;
        // The values from here on belong to the iterator, even if it is leaked.
        self.len = start;
        Drain { vec: self, next: start, last: end, end, len }
    }
}

/// An iterator that removes a range of values from a vector; see [`ArenaVec::drain`].
///
/// ```
/// use quipu_arena::{Arena, ArenaVec, Drain};
///
/// let arena = Arena::new();
/// let mut values = ArenaVec::from_iter_in(0..5, &arena);
/// let mut oldest: Drain<_, _> = values.drain(..3);
/// assert_eq!((oldest.next(), oldest.len()), (Some(0), 2));
/// drop(oldest);
/// assert_eq!(values, [3, 4]);
/// ```
pub struct Drain<'v, 'a, T, H: Within<'a>> {
    /// The vector, whose length is the start of the range.
    vec: &'v mut ArenaVec<'a, T, H>,
    /// The values from `next` to `last` are not yielded yet.
    next: usize,
    last: usize,
    /// The values from `end` to `len` are after the range.
    end: usize,
    len: usize,
}

impl<'a, T, H: Within<'a>> Drain<'_, 'a, T, H> {
    /// Reads a value out of the block.
    ///
    /// # Safety
    ///
    /// The index is within the range, and is read once.
    #[inline]
    unsafe fn read(&self, index: usize) -> T {
        // SAFETY: By contract; the values of the range are initialised.
        unsafe { self.vec.room.start.add(index).read() }
    }

    /// Returns the values that were not yielded.
    fn rest(&mut self) -> *mut [T] {
        // SAFETY: The indices are within the block.
        let first = unsafe { self.vec.room.start.add(self.next) };
        ptr::slice_from_raw_parts_mut(first.as_ptr(), self.last - self.next)
    }
}

impl<'a, T, H: Within<'a>> Iterator for Drain<'_, 'a, T, H> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.last {
            return None;
        }
        self.next += 1;
        // SAFETY: The value was not yielded before, and the index is past it now.
        Some(unsafe { self.read(self.next - 1) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.last - self.next, Some(self.last - self.next))
    }
}

impl<'a, T, H: Within<'a>> DoubleEndedIterator for Drain<'_, 'a, T, H> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        if self.next == self.last {
            return None;
        }
        self.last -= 1;
        // SAFETY: The value was not yielded before, and the index is past it now.
        Some(unsafe { self.read(self.last) })
    }
}

impl<'a, T, H: Within<'a>> ExactSizeIterator for Drain<'_, 'a, T, H> {}

impl<'a, T, H: Within<'a>> FusedIterator for Drain<'_, 'a, T, H> {}

impl<'a, T, H: Within<'a>> Drop for Drain<'_, 'a, T, H> {
    fn drop(&mut self) {
        /// Moves the values after the range down, even if a value's drop panics.
        struct Tail<'d, 'v, 'a, T, H: Within<'a>>(&'d mut Drain<'v, 'a, T, H>);

        impl<'a, T, H: Within<'a>> Drop for Tail<'_, '_, 'a, T, H> {
            fn drop(&mut self) {
                let Drain { vec, end, len, .. } = &mut *self.0;
                let count = *len - *end;
                // SAFETY: The values are initialised. The values of the range are gone, so their
                // places are free.
                unsafe {
                    let to = vec.room.start.add(vec.len);
                    to.copy_from(vec.room.start.add(*end), count);
                }
                vec.len += count;
            }
        }

        let tail = Tail(self);
        // SAFETY: The values were not yielded, and are dropped once.
        unsafe { tail.0.rest().drop_in_place() };
    }
}

impl<'a, T: fmt::Debug, H: Within<'a>> fmt::Debug for Drain<'_, 'a, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: The values were not yielded, so they are initialised.
        let rest = unsafe {
            let first = self.vec.room.start.add(self.next);
            slice::from_raw_parts(first.as_ptr(), self.last - self.next)
        };
        f.debug_tuple("Drain").field(&rest).finish()
    }
}

/// Returns the start and the end of a range of indices.
///
/// # Panics
///
/// If the range starts after its end, or ends after `len`.
#[track_caller]
pub(crate) fn bounds(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.checked_add(1),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => (start, end),
        _ => panic!(
            "a range of {:?} to {:?} is not within a length of {len}",
            range.start_bound(),
            range.end_bound()
        ),
    }
}
