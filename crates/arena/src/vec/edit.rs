//! Methods that clone, move or compare many values of a vector.

use core::ptr;

use crate::allocate::expect_array;
use crate::base::AllocError;
use crate::vec::{ArenaVec, Within};

impl<'a, T, H: Within<'a>> ArenaVec<'a, T, H> {
    /// Creates a vector of clones in an arena or scope, whose block is exactly large enough.
    ///
    /// For example, you can clone a vector into an outer scope, because its values must outlive the
    /// inner one.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let (mut arena, results) = (Arena::new(), Arena::new());
    /// let fields = arena.scoped(|scope| {
    ///     let mut fields = ArenaVec::from_iter_in("b c a".split(' '), &scope);
    ///     fields.sort();
    ///     fields.clone_in(&results)
    /// });
    /// assert_eq!(fields, ["a", "b", "c"]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[track_caller]
    pub fn clone_in<'b, I: Within<'b>>(&self, home: I) -> ArenaVec<'b, T, I>
    where
        T: Clone,
    {
        expect_array::<T, _>(self.try_clone_in(home), self.len)
    }

    /// Like [`clone_in`](ArenaVec::clone_in), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, arena_vec};
    ///
    /// let (arena, other) = (Arena::new(), Arena::new());
    /// let codes = arena_vec![in &arena; 200, 404];
    /// assert_eq!(codes.try_clone_in(&other)?, [200, 404]);
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    pub fn try_clone_in<'b, I: Within<'b>>(&self, home: I) -> Result<ArenaVec<'b, T, I>, AllocError>
    where
        T: Clone,
    {
        ArenaVec::try_from_iter_in(self.iter().cloned(), home)
    }

    /// Moves all values of another vector to the end of this one.
    ///
    /// The other vector can be in another arena or scope. It is empty afterwards, and keeps its
    /// capacity. The cost is one copy of the other vector's bytes.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let (arena, other) = (Arena::new(), Arena::new());
    /// let mut names = ArenaVec::from_iter_in(["a", "b"], &arena);
    /// let mut more = ArenaVec::from_iter_in(["c"], &other);
    /// names.append(&mut more);
    /// assert_eq!(names, ["a", "b", "c"]);
    /// assert!(more.is_empty());
    /// ```
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
    #[track_caller]
    pub fn append<'b, I: Within<'b>>(&mut self, other: &mut ArenaVec<'b, T, I>) {
        expect_array::<T, _>(self.try_append(other), other.len);
    }

    /// Like [`append`](ArenaVec::append), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, arena_vec};
    ///
    /// let arena = Arena::new();
    /// let mut codes = arena_vec![in &arena; 200, 404];
    /// codes.try_append(&mut arena_vec![in &arena; 500])?;
    /// assert_eq!(codes, [200, 404, 500]);
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes. Both
    /// vectors are unchanged then.
    pub fn try_append<'b, I: Within<'b>>(
        &mut self,
        other: &mut ArenaVec<'b, T, I>,
    ) -> Result<(), AllocError> {
        self.try_reserve(other.len)?;
        // SAFETY: The block is large enough, and two vectors own different blocks. The other vector
        // no longer owns the values.
        unsafe {
            let to = self.room.start.add(self.len);
            ptr::copy_nonoverlapping(other.room.start.as_ptr(), to.as_ptr(), other.len);
        }
        self.len += core::mem::take(&mut other.len);
        Ok(())
    }

    /// Moves the values from index `at` on to a new vector in the same arena.
    ///
    /// This vector keeps its capacity. The cost is a new block that is exactly large enough, and
    /// one copy of the moved bytes. If you want to move the values to another arena or scope, or to
    /// handle an error, append a [`drain`](ArenaVec::drain) with
    /// [`try_extend`](ArenaVec::try_extend).
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut head = ArenaVec::from_iter_in(0..5, &arena);
    /// let tail = head.split_off(3);
    /// assert_eq!(head, [0, 1, 2]);
    /// assert_eq!(tail, [3, 4]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the index is greater than the length, or the base allocator is out of memory.
    #[must_use = "to drop the values, use `truncate`"]
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> ArenaVec<'a, T, H> {
        assert!(at <= self.len, "an index of {at} in a vector of {}", self.len);
        let count = self.len - at;
        let mut tail = ArenaVec::with_capacity_in(count, self.room.home);
        self.len = at;
        // SAFETY: The values are initialised, and the new block is large enough. This vector no
        // longer owns them.
        unsafe {
            let from = self.room.start.add(at);
            ptr::copy_nonoverlapping(from.as_ptr(), tail.room.start.as_ptr(), count);
        }
        tail.len = count;
        tail
    }

    /// Drops all but the first of consecutive equal values, in linear time.
    ///
    /// If the vector is sorted, no value remains twice.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut codes = ArenaVec::from_iter_in([200, 200, 404, 200], &arena);
    /// codes.dedup();
    /// assert_eq!(codes, [200, 404, 200]);
    /// ```
    pub fn dedup(&mut self)
    where
        T: PartialEq,
    {
        self.dedup_by(|value, kept| value == kept);
    }

    /// Drops all but the first of consecutive values whose keys are equal, in linear time. The
    /// function returns the key of a value.
    ///
    /// If the function panics, the vector keeps all of its values, in another order.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut times = ArenaVec::from_iter_in([1003, 1450, 2001, 2002], &arena);
    /// times.dedup_by_key(|milliseconds| *milliseconds / 1000);
    /// assert_eq!(times, [1003, 2001]);
    /// ```
    pub fn dedup_by_key<K: PartialEq>(&mut self, mut key: impl FnMut(&mut T) -> K) {
        self.dedup_by(|value, kept| key(value) == key(kept));
    }

    /// Drops each value that is the same as the last kept value before it, in linear time.
    ///
    /// `is_same(value, kept)` compares two values. If it panics, the vector keeps all of its
    /// values, in another order.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaVec};
    ///
    /// let arena = Arena::new();
    /// let mut methods = ArenaVec::from_iter_in(["get", "GET", "post"], &arena);
    /// methods.dedup_by(|method, kept| method.eq_ignore_ascii_case(kept));
    /// assert_eq!(methods, ["get", "post"]);
    /// ```
    pub fn dedup_by(&mut self, mut is_same: impl FnMut(&mut T, &mut T) -> bool) {
        let mut kept = self.len.min(1);
        for index in 1..self.len {
            let (before, rest) = self.as_mut_slice().split_at_mut(index);
            if !is_same(&mut rest[0], &mut before[kept - 1]) {
                self.as_mut_slice().swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }
}
