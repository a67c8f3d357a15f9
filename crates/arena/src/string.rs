//! [`ArenaString`]: a growable string in an arena.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{AddAssign, Deref};
use core::str;

use allocator_api2::alloc::AllocError;

use crate::base::default_to_heap;
use crate::vec::{ArenaVec, Within};

default_to_heap! {
    /// A growable string in an arena.
    ///
    /// ```
    /// use std::fmt::Write;
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// let mut line = ArenaString::new_in(&arena);
    /// line.push_str("requests_total ");
    /// write!(line, "{}", 17)?;
    /// let line: &mut str = line.into_str();
    /// assert_eq!(line, "requests_total 17");
    /// # Ok::<(), std::fmt::Error>(())
    /// ```
    pub struct ArenaString<'a; H: Within<'a> = &'a crate::Arena> {
        /// Always UTF-8.
        bytes: ArenaVec<'a, u8, H>,
    }
}

impl<'a, H: Within<'a>> ArenaString<'a, H> {
    /// Creates an empty string, which allocates when something is pushed.
    #[inline]
    pub const fn new_in(home: H) -> ArenaString<'a, H> {
        ArenaString { bytes: ArenaVec::new_in(home) }
    }

    /// Creates a copy of a string.
    ///
    /// # Panics
    ///
    /// When the base allocator has no memory.
    #[inline]
    #[track_caller]
    pub fn from_str_in(text: &str, home: H) -> ArenaString<'a, H> {
        let mut copy = ArenaString::with_capacity_in(text.len(), home);
        copy.push_str(text);
        copy
    }

    /// Creates an empty string with room for this number of bytes.
    ///
    /// # Panics
    ///
    /// When the base allocator has no memory.
    #[inline]
    #[track_caller]
    pub fn with_capacity_in(bytes: usize, home: H) -> ArenaString<'a, H> {
        ArenaString { bytes: ArenaVec::with_capacity_in(bytes, home) }
    }

    /// As [`with_capacity_in`](ArenaString::with_capacity_in).
    ///
    /// # Errors
    ///
    /// When the base allocator has no memory.
    #[inline]
    pub fn try_with_capacity_in(bytes: usize, home: H) -> Result<ArenaString<'a, H>, AllocError> {
        Ok(ArenaString { bytes: ArenaVec::try_with_capacity_in(bytes, home)? })
    }

    /// The number of bytes for which there is room.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a string.
    ///
    /// # Panics
    ///
    /// When the base allocator has no memory.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice_copy(text.as_bytes());
    }

    /// As [`push_str`](ArenaString::push_str).
    ///
    /// # Errors
    ///
    /// When the base allocator has no memory. The string is unchanged then.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.bytes.try_extend_from_slice_copy(text.as_bytes())
    }

    /// Appends a character.
    ///
    /// # Panics
    ///
    /// When the base allocator has no memory.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// As [`push`](ArenaString::push).
    ///
    /// # Errors
    ///
    /// When the base allocator has no memory. The string is unchanged then.
    #[inline]
    pub fn try_push(&mut self, character: char) -> Result<(), AllocError> {
        self.try_push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// Removes the last character.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.as_str().chars().next_back()?;
        self.bytes.truncate(self.len() - last.len_utf8());
        Some(last)
    }

    /// Shortens the string to this number of bytes. Does nothing if it is shorter.
    ///
    /// # Panics
    ///
    /// When the new end is within a character.
    #[track_caller]
    pub fn truncate(&mut self, bytes: usize) {
        if bytes < self.len() {
            assert!(self.is_char_boundary(bytes), "{bytes} bytes of a text end within a character");
            self.bytes.truncate(bytes);
        }
    }

    /// Makes room for at least this number of additional bytes.
    ///
    /// # Panics
    ///
    /// When the base allocator has no memory.
    #[track_caller]
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Removes all characters. The capacity stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The string as a slice.
    #[inline]
    pub const fn as_str(&self) -> &str {
        // SAFETY: All bytes came from strings.
        unsafe { str::from_utf8_unchecked(self.bytes.as_slice()) }
    }

    /// Returns the string in the arena, and frees unused capacity.
    #[inline]
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: All bytes came from strings.
        unsafe { str::from_utf8_unchecked_mut(self.bytes.into_slice()) }
    }
}

impl<'a, H: Within<'a>> Deref for ArenaString<'a, H> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Fails when the base allocator has no memory.
impl<'a, H: Within<'a>> fmt::Write for ArenaString<'a, H> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|AllocError| fmt::Error)
    }
}

impl<'a, H: Within<'a>> AsRef<str> for ArenaString<'a, H> {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl<'a, H: Within<'a>> Borrow<str> for ArenaString<'a, H> {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl<'a, H: Within<'a>> AddAssign<&str> for ArenaString<'a, H> {
    fn add_assign(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl<'a, 'e, H: Within<'a>> Extend<&'e str> for ArenaString<'a, H> {
    fn extend<I: IntoIterator<Item = &'e str>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push_str(text));
    }
}

impl<'a, H: Within<'a>> Extend<char> for ArenaString<'a, H> {
    fn extend<I: IntoIterator<Item = char>>(&mut self, characters: I) {
        characters.into_iter().for_each(|character| self.push(character));
    }
}

impl<'a, H: Within<'a>> PartialEq for ArenaString<'a, H> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<'a, H: Within<'a>> Eq for ArenaString<'a, H> {}

impl<'a, H: Within<'a>> PartialEq<str> for ArenaString<'a, H> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<'a, H: Within<'a>> PartialEq<&str> for ArenaString<'a, H> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<'a, H: Within<'a>> PartialOrd for ArenaString<'a, H> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a, H: Within<'a>> Ord for ArenaString<'a, H> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl<'a, H: Within<'a>> Hash for ArenaString<'a, H> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.as_str().hash(state);
    }
}

impl<'a, H: Within<'a>> fmt::Debug for ArenaString<'a, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<'a, H: Within<'a>> fmt::Display for ArenaString<'a, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
