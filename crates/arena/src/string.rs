//! [`ArenaString`]: a growable string in an arena.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::iter::FusedIterator;
use core::ops::{AddAssign, Deref, RangeBounds};
use core::{fmt, mem, str};

use crate::allocate::no_text;
use crate::base::{AllocError, default_to_heap};
use crate::vec::{ArenaVec, Within, bounds};

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
    ///
    /// Like [`ArenaVec`], this type does not implement `Clone`: use
    /// [`clone_in`](ArenaString::clone_in).
    pub struct ArenaString<'a; H: Within<'a> = &'a crate::Arena> {
        /// Always UTF-8.
        bytes: ArenaVec<'a, u8, H>,
    }
}

impl<'a, H: Within<'a>> ArenaString<'a, H> {
    /// Creates an empty string. The first push allocates.
    #[inline]
    pub const fn new_in(home: H) -> ArenaString<'a, H> {
        ArenaString { bytes: ArenaVec::new_in(home) }
    }

    /// Creates a copy of a string.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn from_str_in(text: &str, home: H) -> ArenaString<'a, H> {
        let mut copy = ArenaString::with_capacity_in(text.len(), home);
        copy.push_str(text);
        copy
    }

    /// Like [`from_str_in`](ArenaString::from_str_in), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// assert_eq!(ArenaString::try_from_str_in("requests", &arena)?, "requests");
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline]
    pub fn try_from_str_in(text: &str, home: H) -> Result<ArenaString<'a, H>, AllocError> {
        let mut copy = ArenaString::try_with_capacity_in(text.len(), home)?;
        copy.try_push_str(text)?;
        Ok(copy)
    }

    /// Creates a formatted string; see [`arena_format!`](crate::arena_format).
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// let name = ArenaString::from_fmt_in(format_args!("{}_total", "requests"), &arena);
    /// assert_eq!(name, "requests_total");
    /// ```
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory, or a `Display` implementation returns an error.
    #[track_caller]
    pub fn from_fmt_in(arguments: fmt::Arguments<'_>, home: H) -> ArenaString<'a, H> {
        match ArenaString::try_from_fmt_in(arguments, home) {
            Ok(text) => text,
            Err(AllocError) => no_text(),
        }
    }

    /// Like [`from_fmt_in`](ArenaString::from_fmt_in), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// assert_eq!(ArenaString::try_from_fmt_in(format_args!("{:03}", 7), &arena)?, "007");
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory, or a `Display` implementation returns an error.
    pub fn try_from_fmt_in(
        arguments: fmt::Arguments<'_>,
        home: H,
    ) -> Result<ArenaString<'a, H>, AllocError> {
        let mut text = ArenaString::new_in(home);
        fmt::Write::write_fmt(&mut text, arguments).map_err(|fmt::Error| AllocError)?;
        Ok(text)
    }

    /// Creates a copy of the string in an arena or scope, whose block is exactly large enough.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let (arena, names) = (Arena::new(), Arena::new());
    /// let name = ArenaString::from_str_in("requests", &arena);
    /// let kept = name.clone_in(&names);
    /// drop(name);
    /// drop(arena);
    /// assert_eq!(kept, "requests");
    /// ```
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[track_caller]
    pub fn clone_in<'b, I: Within<'b>>(&self, home: I) -> ArenaString<'b, I> {
        ArenaString::from_str_in(self, home)
    }

    /// Like [`clone_in`](ArenaString::clone_in), but returns an error if there is no memory.
    ///
    /// ```
    /// use quipu_arena::{AllocError, Arena, arena_format};
    ///
    /// let (arena, other) = (Arena::new(), Arena::new());
    /// let name = arena_format!(in &arena, "{}_total", "requests");
    /// assert_eq!(name.try_clone_in(&other)?, "requests_total");
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    pub fn try_clone_in<'b, I: Within<'b>>(
        &self,
        home: I,
    ) -> Result<ArenaString<'b, I>, AllocError> {
        ArenaString::try_from_str_in(self, home)
    }

    /// Creates an empty string with room for this number of bytes.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn with_capacity_in(bytes: usize, home: H) -> ArenaString<'a, H> {
        ArenaString { bytes: ArenaVec::with_capacity_in(bytes, home) }
    }

    /// Like [`with_capacity_in`](ArenaString::with_capacity_in), but returns an error if there is
    /// no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory.
    #[inline]
    pub fn try_with_capacity_in(bytes: usize, home: H) -> Result<ArenaString<'a, H>, AllocError> {
        Ok(ArenaString { bytes: ArenaVec::try_with_capacity_in(bytes, home)? })
    }

    /// Returns the number of bytes that fit without a new allocation.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a string.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice_copy(text.as_bytes());
    }

    /// Like [`push_str`](ArenaString::push_str), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. The string is unchanged then.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.bytes.try_extend_from_slice_copy(text.as_bytes())
    }

    /// Appends a character.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Like [`push`](ArenaString::push), but returns an error if there is no memory.
    ///
    /// # Errors
    ///
    /// If the base allocator is out of memory. The string is unchanged then.
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

    /// Shortens the string to this number of bytes. Has no effect if the string is shorter.
    ///
    /// # Panics
    ///
    /// If the new end is within a character.
    #[track_caller]
    pub fn truncate(&mut self, bytes: usize) {
        if bytes < self.len() {
            assert!(self.is_char_boundary(bytes), "{bytes} bytes of a text end within a character");
            self.bytes.truncate(bytes);
        }
    }

    /// Removes a range of bytes, and returns an iterator over its characters.
    ///
    /// The characters are removed when you drop the iterator, even if it did not yield them. If you
    /// leak the iterator, the string is unchanged. This neither allocates nor frees: the capacity
    /// stays.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// let mut name = ArenaString::from_str_in("http_requests_total", &arena);
    /// assert!(name.drain(..5).eq("http_".chars()));
    /// assert_eq!(name, "requests_total");
    /// ```
    ///
    /// # Panics
    ///
    /// If the range starts after its end, ends after the length, or starts or ends within a
    /// character.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> StringDrain<'_, 'a, H> {
        let (start, end) = bounds(range, self.len());
        for index in [start, end] {
            assert!(self.is_char_boundary(index), "index {index} of a text is within a character");
        }
        StringDrain { string: self, start, end, next: start, last: end }
    }

    /// Moves the characters from byte `at` on to a new string in the same arena.
    ///
    /// This string keeps its capacity. The cost is a new block that is exactly large enough, and
    /// one copy of the moved bytes.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// let mut name = ArenaString::from_str_in("requests_total", &arena);
    /// let suffix = name.split_off(8);
    /// assert_eq!((name.as_str(), suffix.as_str()), ("requests", "_total"));
    /// ```
    ///
    /// # Panics
    ///
    /// If `at` is greater than the length or within a character, or the base allocator is out of
    /// memory.
    #[must_use = "to drop the characters, use `truncate`"]
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> ArenaString<'a, H> {
        assert!(self.is_char_boundary(at), "no character of a text starts at index {at}");
        ArenaString { bytes: self.bytes.split_off(at) }
    }

    /// Removes the characters that the function returns false for, in linear time.
    ///
    /// If the function panics, the string is empty.
    ///
    /// ```
    /// use quipu_arena::{Arena, ArenaString};
    ///
    /// let arena = Arena::new();
    /// let mut name = ArenaString::from_str_in("http.requests/total", &arena);
    /// name.retain(char::is_alphanumeric);
    /// assert_eq!(name, "httprequeststotal");
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(char) -> bool) {
        let empty = ArenaVec::new_in(self.bytes.home());
        // The string is empty in the meantime, because its bytes are not UTF-8 while some of them
        // are moved, and the function can panic.
        let mut bytes = mem::replace(&mut self.bytes, empty);
        let (mut kept, mut next) = (0, 0);
        loop {
            // SAFETY: The bytes from `next` on are unchanged, and start with a whole character.
            let rest = unsafe { str::from_utf8_unchecked(&bytes[next..]) };
            let Some(character) = rest.chars().next() else { break };
            let end = next + character.len_utf8();
            if keep(character) {
                bytes.copy_within(next..end, kept);
                kept += end - next;
            }
            next = end;
        }
        bytes.truncate(kept);
        self.bytes = bytes;
    }

    /// Makes room for at least this number of additional bytes.
    ///
    /// # Panics
    ///
    /// If the base allocator is out of memory.
    #[track_caller]
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Removes all characters. The capacity stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the string as a slice.
    #[inline]
    pub const fn as_str(&self) -> &str {
        // SAFETY: All bytes were copied from strings.
        unsafe { str::from_utf8_unchecked(self.bytes.as_slice()) }
    }

    /// Returns the string in the arena, and frees unused capacity.
    #[inline]
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: All bytes were copied from strings.
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

/// Fails if the base allocator is out of memory.
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

/// An iterator that removes a range of characters from a string; see [`ArenaString::drain`].
///
/// ```
/// use quipu_arena::{Arena, ArenaString, StringDrain};
///
/// let arena = Arena::new();
/// let mut line = ArenaString::from_str_in("GET /a 200", &arena);
/// let mut method: StringDrain<_> = line.drain(..4);
/// assert_eq!((method.next(), method.as_str()), (Some('G'), "ET "));
/// drop(method);
/// assert_eq!(line, "/a 200");
/// ```
pub struct StringDrain<'s, 'a, H: Within<'a>> {
    string: &'s mut ArenaString<'a, H>,
    /// The range that is removed.
    start: usize,
    end: usize,
    /// The characters from `next` to `last` are not yielded yet.
    next: usize,
    last: usize,
}

impl<'a, H: Within<'a>> StringDrain<'_, 'a, H> {
    /// Returns the characters that were not yielded.
    pub fn as_str(&self) -> &str {
        &self.string[self.next..self.last]
    }
}

impl<'a, H: Within<'a>> Iterator for StringDrain<'_, 'a, H> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let character = self.as_str().chars().next()?;
        self.next += character.len_utf8();
        Some(character)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.as_str().chars().size_hint()
    }
}

impl<'a, H: Within<'a>> DoubleEndedIterator for StringDrain<'_, 'a, H> {
    fn next_back(&mut self) -> Option<char> {
        let character = self.as_str().chars().next_back()?;
        self.last -= character.len_utf8();
        Some(character)
    }
}

impl<'a, H: Within<'a>> FusedIterator for StringDrain<'_, 'a, H> {}

impl<'a, H: Within<'a>> Drop for StringDrain<'_, 'a, H> {
    fn drop(&mut self) {
        self.string.bytes.drain(self.start..self.end);
    }
}

impl<'a, H: Within<'a>> fmt::Debug for StringDrain<'_, 'a, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StringDrain").field(&self.as_str()).finish()
    }
}
