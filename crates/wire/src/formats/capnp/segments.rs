//! What a message is read from: segments, pointers, and what they point to.
//!
//! ```text
//! pointer to a struct  0: 2 bits, words from here to it: 30 bits, words of data: 16 bits,
//!                      pointers: 16 bits
//! pointer to a list    1: 2 bits, words from here to it: 30 bits, size of an item: 3 bits,
//!                      items: 29 bits
//! far pointer          2: 2 bits, 0: 1 bit, word of its segment: 29 bits, segment: 32 bits.
//!                      There is another pointer
//! double-far pointer   2: 2 bits, 1: 1 bit, and the same. There is a far pointer to the object,
//!                      and a pointer that says what it is
//! ```

use quipu_arena::Scope;

use crate::error::Fault;
use crate::reader::Reader;
use crate::values;

/// The size of an item: a byte.
pub(super) const BYTE: u64 = 2;
/// A word.
pub(super) const WORD: u64 = 5;
/// Structs of one size, which stands before them. The number is that of their words.
pub(super) const STRUCT: u64 = 7;

/// How many segments a message can have: as for the other readers.
const MOST_SEGMENTS: usize = 512;

const TABLE: &str = "a table of segments";
pub(super) const SEGMENTS: &str = "segments as long as their table says";

/// How many words so many bytes take.
#[inline(always)]
pub(super) fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// How many bytes a table has, by its first number.
pub(super) fn table_len(segments_but_one: u32) -> Result<usize, Fault> {
    let segments = segments_but_one as usize;
    if segments >= MOST_SEGMENTS {
        return Err(Fault::too_large("at most 512 segments"));
    }
    Ok(8 * (segments.div_ceil(2) + 1))
}

/// How many words each segment has. Of at most 512, so that the sum does not overflow.
pub(super) fn segment_lens(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (numbers, _) = table.as_chunks::<4>();
    let segments = numbers.first().map_or(0, |number| u32::from_le_bytes(*number) as usize + 1);
    numbers.iter().skip(1).take(segments).map(|len| u64::from(u32::from_le_bytes(*len)))
}

#[inline(always)]
fn take_words<'m>(input: &mut Reader<'m>, words: u64) -> Result<&'m [[u8; 8]], Fault> {
    Ok(input.take_long(words.saturating_mul(8), SEGMENTS)?.as_chunks().0)
}

/// Where in the segments something is wrong, and what.
pub(super) struct Misplaced {
    /// The word, from the first of all segments.
    pub(super) word: usize,
    pub(super) fault: Fault,
}

impl Misplaced {
    #[cold]
    fn new(word: usize, expected: &'static str) -> Misplaced {
        Misplaced { word, fault: Fault::malformed(expected) }
    }
}

/// A message's words.
pub(super) struct Segments<'m> {
    /// The table of several segments. Empty when there is one, which is all of the body.
    pub(super) table: &'m [u8],
    /// All segments, one behind the other.
    pub(super) body: &'m [[u8; 8]],
}

/// One segment.
#[derive(Clone, Copy)]
struct Segment<'m> {
    words: &'m [[u8; 8]],
    /// Where it begins, as a word of all segments.
    place: usize,
}

impl<'m> Segment<'m> {
    #[inline(always)]
    fn word(&self, at: usize) -> Option<u64> {
        self.words.get(at).map(|word| u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn words(&self, start: usize, len: usize) -> Option<&'m [[u8; 8]]> {
        self.words.get(start..)?.get(..len)
    }
}

impl<'m> Segments<'m> {
    /// Reads a table and its segments.
    #[inline(always)]
    pub(super) fn read(input: &mut Reader<'m>) -> Result<Segments<'m>, Fault> {
        let before = *input;
        let first = u64::from_le_bytes(input.array(TABLE)?);
        if first as u32 != 0 {
            *input = before;
            return input.apart(Segments::read_several);
        }
        Ok(Segments { table: &[], body: take_words(input, first >> 32)? })
    }

    #[cold]
    #[inline(never)]
    fn read_several(input: &mut Reader<'m>) -> Result<Segments<'m>, Fault> {
        let before = *input;
        let first = u32::from_le_bytes(input.array(TABLE)?);
        *input = before;
        let table = input.take(table_len(first)?, TABLE)?;
        let body = take_words(input, segment_lens(table).sum())?;
        Ok(Segments { table, body })
    }

    /// How many words the table had.
    pub(super) fn table_words(&self) -> usize {
        words_of(self.table.len()).max(1)
    }

    #[inline(always)]
    fn first(&self) -> Option<Segment<'m>> {
        if self.table.is_empty() {
            Some(Segment { words: self.body, place: 0 })
        } else {
            self.segment(0)
        }
    }

    #[cold]
    #[inline(never)]
    fn segment(&self, number: usize) -> Option<Segment<'m>> {
        if self.table.is_empty() {
            return (number == 0).then_some(Segment { words: self.body, place: 0 });
        }
        let len = segment_lens(self.table).nth(number)? as usize;
        let place = segment_lens(self.table).take(number).sum::<u64>() as usize;
        Some(Segment { words: self.body.get(place..)?.get(..len)?, place })
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<Root<'_, 'm>, Misplaced> {
        let first = match self.first() {
            Some(first) if !first.words.is_empty() => first,
            _ => return Err(Misplaced::new(0, "a first segment that begins with a pointer")),
        };
        let Object { segment, start, pointer, .. } = self.follow(first, 0)?;
        // A null pointer is one to a struct without any words: all fields are zero.
        let data = usize::from((pointer >> 32) as u16);
        let pointers = usize::from((pointer >> 48) as u16);
        match segment.words(start, data + pointers) {
            Some(words) if pointer & 3 == 0 => {
                let data = &words[..data];
                Ok(Root { segments: self, segment, start, data, pointers })
            }
            _ => Err(Misplaced::new(0, "a pointer to a struct within its segment")),
        }
    }

    /// What the pointer at a word of a segment points to. A word that is not there is null.
    #[inline(always)]
    fn follow(&self, segment: Segment<'m>, at: usize) -> Result<Object<'m>, Misplaced> {
        let pointer = segment.word(at).unwrap_or(0);
        if pointer & 2 != 0 {
            return self.follow_far(segment.place + at, pointer);
        }
        let start = target(at, pointer);
        Ok(Object { segment, start, pointer, place: segment.place + at })
    }

    /// The same for a pointer from segment to segment: to another pointer, or to a pair that says
    /// where the object is, and what.
    #[cold]
    #[inline(never)]
    fn follow_far(&self, place: usize, pointer: u64) -> Result<Object<'m>, Misplaced> {
        const LOST: &str = "a far pointer to another pointer within a segment";
        let lost = || Misplaced::new(place, LOST);
        if pointer & 3 != 2 {
            return Err(Misplaced::new(place, "a pointer to a struct or a list"));
        }
        let segment_of = |far: u64| self.segment((far >> 32) as usize).ok_or_else(lost);
        let word_of = |far: u64| far as u32 as usize >> 3;
        let segment = segment_of(pointer)?;
        let at = word_of(pointer);
        let landing = segment.word(at).ok_or_else(lost)?;
        if pointer & 4 == 0 {
            if landing & 2 != 0 {
                return Err(lost());
            }
            let start = target(at, landing);
            return Ok(Object { segment, start, pointer: landing, place });
        }
        let tag = segment.word(at + 1).ok_or_else(lost)?;
        if landing & 7 != 2 || tag & 2 != 0 {
            return Err(lost());
        }
        Ok(Object { segment: segment_of(landing)?, start: word_of(landing), pointer: tag, place })
    }
}

/// The word to which a pointer at a word points; one beyond all segments when it is before the
/// first.
#[inline(always)]
fn target(at: usize, pointer: u64) -> usize {
    at.wrapping_add(1).wrapping_add_signed((pointer as i32 >> 2) as isize)
}

/// The root struct.
pub(super) struct Root<'s, 'm> {
    segments: &'s Segments<'m>,
    segment: Segment<'m>,
    /// Where it begins in the segment: data, then pointers.
    start: usize,
    data: &'m [[u8; 8]],
    pointers: usize,
}

impl<'m> Root<'_, 'm> {
    /// A word of the data. What the writer's schema does not have is zero.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.data.get(at).map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// What is wrong with a word of the data.
    #[cold]
    pub(super) fn wrong(&self, at: usize, expected: &'static str) -> Misplaced {
        Misplaced::new(self.segment.place + self.start + at, expected)
    }

    #[inline(always)]
    pub(super) fn pointer(&self, at: usize) -> Result<Object<'m>, Misplaced> {
        if at < self.pointers {
            self.segments.follow(self.segment, self.start + self.data.len() + at)
        } else {
            Ok(Object { segment: self.segment, start: 0, pointer: 0, place: 0 })
        }
    }
}

/// What a pointer points to, when it is not null.
pub(super) struct Object<'m> {
    segment: Segment<'m>,
    /// Where it begins in the segment.
    start: usize,
    /// Its kind and size.
    pointer: u64,
    /// Where the pointer is, as a word of all segments.
    place: usize,
}

impl<'m> Object<'m> {
    #[inline(always)]
    pub(super) fn bytes(&self) -> Result<&'m [u8], Misplaced> {
        if self.pointer == 0 {
            return Ok(&[]);
        }
        let len = (self.pointer >> 35) as usize;
        match self.segment.words(self.start, words_of(len)) {
            Some(words) if self.is_list_of(BYTE) => Ok(&words.as_flattened()[..len]),
            _ => Err(Misplaced::new(self.place, "a pointer to a list of bytes in its segment")),
        }
    }

    #[inline(always)]
    pub(super) fn doubles(&self, scope: &Scope<'m>) -> Result<&'m [f64], Misplaced> {
        if self.pointer == 0 {
            return Ok(&[]);
        }
        let len = (self.pointer >> 35) as usize;
        if !self.is_list_of(WORD) {
            return self.first_doubles(len, scope);
        }
        let Some(words) = self.segment.words(self.start, len) else {
            return Err(Misplaced::new(self.place, DOUBLES));
        };
        values::little_endian(words.as_flattened(), scope)
            .map_err(|fault| Misplaced { word: self.place, fault })
    }

    /// The first word of each struct of a list: what a list of doubles becomes when its schema is
    /// changed to one of structs.
    #[cold]
    #[inline(never)]
    fn first_doubles(&self, len: usize, scope: &Scope<'m>) -> Result<&'m [f64], Misplaced> {
        let wrong = || Misplaced::new(self.place, DOUBLES);
        let words = self.segment.words(self.start, len.saturating_add(1)).ok_or_else(wrong)?;
        let Some((tag, items)) = words.split_first() else { return Err(wrong()) };
        let tag = u64::from_le_bytes(*tag);
        let count = tag as u32 as usize >> 2;
        let data = usize::from((tag >> 32) as u16);
        let stride = data + usize::from((tag >> 48) as u16);
        let fits = count as u64 * stride as u64 <= items.len() as u64;
        if !self.is_list_of(STRUCT) || tag & 3 != 0 || data == 0 || !fits {
            return Err(wrong());
        }
        let mut structs = items.chunks_exact(stride);
        values::fill(count, scope, || match structs.next() {
            Some([first, ..]) => Ok(f64::from_le_bytes(*first)),
            _ => Err(Fault::malformed(DOUBLES)),
        })
        .map_err(|fault| Misplaced { word: self.place, fault })
    }

    #[inline(always)]
    fn is_list_of(&self, item: u64) -> bool {
        self.pointer & 3 == 1 && self.pointer >> 32 & 7 == item
    }
}

pub(super) const DOUBLES: &str = "a pointer to a list of doubles in its segment";
