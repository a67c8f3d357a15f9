//! The segments of a Cap'n Proto message, and the pointers between them.
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

use core::cell::Cell;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::reader::Reader;
use crate::values;

/// The code of the item size in a list pointer: a byte.
pub(super) const BYTE: u64 = 2;
/// The code of the item size: a word.
pub(super) const WORD: u64 = 5;
/// The code of the item size: structs of one size, which precedes them. The length of such a list
/// is in words.
pub(super) const STRUCT: u64 = 7;

/// The maximum number of segments in a message, like in other readers.
pub(super) const MAX_SEGMENTS: usize = 512;

const TABLE: &str = "a table of segments";
pub(super) const SEGMENTS: &str = "segments as long as their table says";

/// Returns the number of words for these bytes.
#[inline(always)]
pub(super) fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Returns the length of a table in bytes, from its first number.
pub(super) fn table_len(segments_but_one: u32) -> Result<usize, Fault> {
    let segments = segments_but_one as usize;
    if segments >= MAX_SEGMENTS {
        return Err(Fault::too_large("at most 512 segments"));
    }
    Ok(8 * (segments.div_ceil(2) + 1))
}

/// Returns the number of words in each segment. The sum cannot overflow, because there are at most
/// 512.
pub(super) fn segment_lens(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (numbers, _) = table.as_chunks::<4>();
    let segments = numbers.first().map_or(0, |number| u32::from_le_bytes(*number) as usize + 1);
    numbers.iter().skip(1).take(segments).map(|len| u64::from(u32::from_le_bytes(*len)))
}

#[inline(always)]
fn take_words<'m>(input: &mut Reader<'m>, words: u64) -> Result<&'m [[u8; 8]], Fault> {
    Ok(input.take_long(words.saturating_mul(8), SEGMENTS)?.as_chunks().0)
}

/// The words of a message.
pub(super) struct Segments<'m> {
    /// The table, if there are several segments. If this is empty, the body is a single segment.
    table: &'m [u8],
    /// The concatenated segments.
    body: &'m [[u8; 8]],
    /// The word with a fault, counted over all segments.
    wrong: Cell<usize>,
}

/// The words of a segment, and their place in the message.
#[derive(Clone, Copy)]
struct Segment<'m> {
    words: &'m [[u8; 8]],
    /// The word where the segment begins, counted over all segments.
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
    #[inline(always)]
    pub(super) fn new(table: &'m [u8], body: &'m [[u8; 8]]) -> Segments<'m> {
        Segments { table, body, wrong: Cell::new(0) }
    }

    /// Reads a table and its segments.
    #[inline(always)]
    pub(super) fn read(input: &mut Reader<'m>) -> Result<Segments<'m>, Fault> {
        let before = *input;
        let first = u64::from_le_bytes(input.array(TABLE)?);
        if first as u32 != 0 {
            *input = before;
            let segments = input.apart(Segments::read_several)?;
            return Ok(segments);
        }
        Ok(Segments::new(&[], take_words(input, first >> 32)?))
    }

    #[cold]
    #[inline(never)]
    fn read_several(input: &mut Reader<'m>) -> Result<Segments<'m>, Fault> {
        let before = *input;
        let first = u32::from_le_bytes(input.array(TABLE)?);
        *input = before;
        let table = input.take(table_len(first)?, TABLE)?;
        let body = take_words(input, segment_lens(table).sum())?;
        Ok(Segments::new(table, body))
    }

    /// Remembers a fault at a word.
    #[cold]
    #[inline(never)]
    fn fault(&self, word: usize, expected: &'static str) -> Fault {
        self.wrong.set(word);
        Fault::malformed(expected)
    }

    /// Returns how many words of the message, including its table, precede the fault.
    pub(super) fn words_before_fault(&self) -> usize {
        words_of(self.table.len()).max(1) + self.wrong.get()
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
    pub(super) fn root(&self) -> Result<Root<'_, 'm>, Fault> {
        let Some((segment, pointer)) = self.first().and_then(|first| Some((first, first.word(0)?)))
        else {
            return Err(self.fault(0, "a first segment that begins with a pointer"));
        };
        let Object { segment, start, pointer, .. } = self.follow(segment, 0, pointer)?;
        // A null pointer means a struct without words: all its fields are zero.
        let data = usize::from((pointer >> 32) as u16);
        let pointers = usize::from((pointer >> 48) as u16);
        match segment.words(start, data + pointers) {
            Some(words) if pointer & 3 == 0 => {
                let (data, pointers) = words.split_at(data);
                Ok(Root { segments: self, segment, start, data, pointers })
            }
            _ => Err(self.fault(0, "a pointer to a struct within its segment")),
        }
    }

    /// Follows a pointer, which is the word `at` of a segment.
    #[inline(always)]
    fn follow(
        &self,
        segment: Segment<'m>,
        at: usize,
        pointer: u64,
    ) -> Result<Object<'_, 'm>, Fault> {
        let place = segment.place + at;
        if pointer & 2 != 0 {
            // Kept separate from the result below, which then stays in registers.
            let object = self.follow_far(place, pointer)?;
            return Ok(object);
        }
        Ok(Object { segments: self, segment, start: target(at, pointer), pointer, place })
    }

    /// Follows a far pointer: to another pointer, or to a pair that contains the position and the
    /// type of the object.
    #[cold]
    #[inline(never)]
    fn follow_far(&self, place: usize, pointer: u64) -> Result<Object<'_, 'm>, Fault> {
        const LOST: &str = "a far pointer to another pointer within a segment";
        let lost = || self.fault(place, LOST);
        if pointer & 3 != 2 {
            return Err(self.fault(place, "a pointer to a struct or a list"));
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
            return Ok(Object { segments: self, segment, start, pointer: landing, place });
        }
        let tag = segment.word(at + 1).ok_or_else(lost)?;
        if landing & 7 != 2 || tag & 2 != 0 {
            return Err(lost());
        }
        Ok(Object {
            segments: self,
            segment: segment_of(landing)?,
            start: word_of(landing),
            pointer: tag,
            place,
        })
    }
}

/// Returns the target of the pointer at a word. A target before the first word becomes a word
/// beyond all segments.
#[inline(always)]
fn target(at: usize, pointer: u64) -> usize {
    at.wrapping_add(1).wrapping_add_signed((pointer as i32 >> 2) as isize)
}

/// The root struct.
#[derive(Clone, Copy)]
pub(super) struct Root<'s, 'm> {
    segments: &'s Segments<'m>,
    segment: Segment<'m>,
    /// The position in the segment: data, then pointers.
    start: usize,
    data: &'m [[u8; 8]],
    pointers: &'m [[u8; 8]],
}

impl<'s, 'm> Root<'s, 'm> {
    /// Returns a word of the data. A word that the writer's schema lacks is zero.
    #[inline(always)]
    pub(super) fn word(self, at: usize) -> u64 {
        self.data.get(at).map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Remembers a fault at a word of the data.
    #[inline(always)]
    pub(super) fn fault(self, at: usize, expected: &'static str) -> Fault {
        self.segments.fault(self.segment.place + self.start + at, expected)
    }

    /// Follows a pointer. A pointer that the writer's schema lacks is null.
    #[inline(always)]
    pub(super) fn pointer(self, at: usize) -> Result<Object<'s, 'm>, Fault> {
        let pointer = self.pointers.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        self.segments.follow(self.segment, self.start + self.data.len() + at, pointer)
    }
}

/// The target of a pointer that is not null.
#[derive(Clone, Copy)]
pub(super) struct Object<'s, 'm> {
    segments: &'s Segments<'m>,
    segment: Segment<'m>,
    /// The position in the segment.
    start: usize,
    /// The kind and the size.
    pointer: u64,
    /// The word that contains the pointer, counted over all segments.
    place: usize,
}

impl<'m> Object<'_, 'm> {
    #[inline(always)]
    pub(super) fn bytes(self) -> Result<&'m [u8], Fault> {
        let len = (self.pointer >> 35) as usize;
        match self.segment.words(self.start, words_of(len)) {
            Some(words) if is_list_of(BYTE, self.pointer) => Ok(&words.as_flattened()[..len]),
            _ if self.pointer == 0 => Ok(&[]),
            _ => Err(self.fault("a pointer to a list of bytes in its segment")),
        }
    }

    #[inline(always)]
    pub(super) fn doubles(self, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        let len = (self.pointer >> 35) as usize;
        match self.segment.words(self.start, len) {
            Some(words) if is_list_of(WORD, self.pointer) => {
                let values = values::little_endian(words.as_flattened(), scope)?;
                Ok(values)
            }
            _ if self.pointer == 0 => Ok(&[]),
            _ => match first_doubles(self.segment.words, self.start, self.pointer, scope) {
                Some(values) => values,
                None => Err(self.fault(DOUBLES)),
            },
        }
    }

    #[inline(always)]
    fn fault(self, expected: &'static str) -> Fault {
        self.segments.fault(self.place, expected)
    }
}

/// Returns the first word of each struct in a list. This supports schemas that changed a list of
/// doubles to a list of structs. Returns `None` for any other list.
#[cold]
#[inline(never)]
fn first_doubles<'m>(
    segment: &[[u8; 8]],
    start: usize,
    pointer: u64,
    scope: &Scope<'m>,
) -> Option<Result<&'m [f64], Fault>> {
    let words = (pointer >> 35) as usize;
    let (tag, items) = segment.get(start..)?.split_first()?;
    let items = items.get(..words)?;
    let tag = u64::from_le_bytes(*tag);
    let count = tag as u32 as usize >> 2;
    let data = usize::from((tag >> 32) as u16);
    let stride = data + usize::from((tag >> 48) as u16);
    let fits = count as u64 * stride as u64 <= words as u64;
    if !is_list_of(STRUCT, pointer) || tag & 3 != 0 || data == 0 || !fits {
        return None;
    }
    let mut firsts = items.iter().step_by(stride);
    Some(values::fill(count, scope, || match firsts.next() {
        Some(first) => Ok(f64::from_le_bytes(*first)),
        None => Err(Fault::malformed(DOUBLES)),
    }))
}

#[inline(always)]
fn is_list_of(item: u64, pointer: u64) -> bool {
    pointer & (7 << 32 | 3) == (item << 32 | 1)
}

pub(super) const DOUBLES: &str = "a pointer to a list of doubles in its segment";
