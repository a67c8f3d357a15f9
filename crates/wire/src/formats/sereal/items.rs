//! Reads the items of a Sereal document: values, the tags around them, and copies of other items.

use core::mem::MaybeUninit;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::message::MetricType;
use crate::reader::{Reader, unzigzag};
use crate::values;

/// The items of a document.
///
/// Out-of-line functions read from a copy of this (see [`aside`](Items::aside)), because the reader
/// stays in registers only if its address is never taken.
#[derive(Clone, Copy)]
pub(super) struct Items<'m> {
    pub(super) input: Reader<'m>,
    /// The position of offset 0 in the input, which is never negative.
    zero: usize,
    /// The position of the first item.
    first: usize,
    /// The number of bytes that were read again for copies, or `None` while a copy is read.
    copied: Option<usize>,
}

/// Reads an object. `field` reads each key with its value. `usual` contains the usual beginning of
/// an object with `count` keys.
#[inline(always)]
pub(super) fn object<'m>(
    input: &mut Reader<'m>,
    usual: &'static [u8],
    count: usize,
    field: impl FnMut(&mut Items<'m>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let start = input.position();
    let (zero, first) = (start + 5, start + 6);
    let mut items = Items { input: *input, zero, first, copied: Some(0) };
    let read = fields(&mut items, start, usual, count, field);
    *input = items.input;
    read
}

#[inline(always)]
fn fields<'m>(
    items: &mut Items<'m>,
    start: usize,
    usual: &'static [u8],
    count: usize,
    mut field: impl FnMut(&mut Items<'m>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let usual = items.input.skip_literal(usual);
    let count = if usual { count } else { items.aside(|items| items.begin(start))? };
    for _ in 0..count {
        field(items)?;
    }
    Ok(())
}

impl<'m> Items<'m> {
    #[inline(always)]
    pub(super) fn aside<T>(&mut self, read: impl FnOnce(&mut Items<'m>) -> T) -> T {
        let mut copy = *self;
        let read = read(&mut copy);
        *self = copy;
        read
    }

    /// Reads any header and the beginning of an object. Returns the number of its keys.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, start: usize) -> Result<usize, Fault> {
        let version = header(&mut self.input)?;
        self.first = self.input.position();
        // Version 1 counts from the header on. Later versions count from 1 for the first item.
        self.zero = if version == 1 { start } else { self.first - 1 };
        let tag = self.tag()?;
        let count = match tag {
            HASH => self.varint("the number of keys")?,
            0x50..=0x5f => u64::from(tag & 0xf),
            _ => return Err(self.unexpected("an object with keys")),
        };
        // A key and a value take at least 2 bytes.
        self.input.count(count, 2, "the announced number of keys and values")
    }

    /// Reads the tag of the next item, after the tags around it.
    #[inline(always)]
    fn tag(&mut self) -> Result<u8, Fault> {
        let tag = self.input.byte(ITEM)? & 0x7f;
        match tag {
            PADDING | REFERENCE | WEAKEN | OBJECT | OBJECT_OF_CLASS => {
                self.aside(|items| items.inner_tag(tag))
            }
            _ => Ok(tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn inner_tag(&mut self, mut tag: u8) -> Result<u8, Fault> {
        loop {
            match tag {
                PADDING | REFERENCE | WEAKEN => {}
                OBJECT => drop(self.text()?),
                OBJECT_OF_CLASS => drop(self.offset()?),
                _ => return Ok(tag),
            }
            tag = self.input.byte(ITEM)? & 0x7f;
        }
    }

    /// Returns a fault at the tag that was just read.
    #[cold]
    fn unexpected(&mut self, expected: &'static str) -> Fault {
        self.back_to(self.input.position() - 1);
        Fault::malformed(expected)
    }

    fn back_to(&mut self, position: usize) {
        self.input = at(self.input.whole(), position);
    }

    #[inline(always)]
    fn varint(&mut self, expected: &'static str) -> Result<u64, Fault> {
        match self.input.peek() {
            Some(byte) if byte < 128 => self.input.byte(expected).map(u64::from),
            _ => self.aside(|items| items.input.varint(expected)),
        }
    }

    /// Reads the offset of an earlier item, as a position in the input.
    #[cold]
    fn offset(&mut self) -> Result<usize, Fault> {
        let before = self.input.position();
        let offset = self.varint("an offset")?;
        let position =
            usize::try_from(offset).ok().and_then(|offset| offset.checked_add(self.zero));
        match position {
            Some(position) if (self.first..before - 1).contains(&position) => Ok(position),
            _ => {
                self.back_to(before);
                Err(Fault::malformed("an offset of an item before this one"))
            }
        }
    }

    /// Calls `read` on a copied item. This item must end before the copy's tag and cannot contain
    /// copies. The copies of a document can have [`FEW_COPIES`] bytes in total, or the number of
    /// bytes before the last copy. This keeps the time linear.
    #[cold]
    #[inline(never)]
    fn copy<T>(
        &mut self,
        read: impl FnOnce(&mut Items<'m>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let tag = self.input.position() - 1;
        let Some(copied) = self.copied else {
            return Err(self.unexpected("an item that is not itself a copy within a copy"));
        };
        let target = self.offset()?;
        let before = &self.input.whole()[..tag];
        let (zero, first) = (self.zero, self.first);
        let mut items = Items { input: at(before, target), zero, first, copied: None };
        let item = read(&mut items).map_err(|fault| {
            self.back_to(tag);
            match fault.is_incomplete() {
                true => Fault::malformed("a copy of an item that ends before it"),
                false => fault,
            }
        })?;
        let copied = copied + (items.input.position() - target);
        if copied > tag.max(FEW_COPIES) {
            self.back_to(tag);
            return Err(Fault::too_large("fewer copies"));
        }
        self.copied = Some(copied);
        Ok(item)
    }

    /// Reads a key from any kind of string.
    #[cold]
    pub(super) fn key(&mut self) -> Result<&'m [u8], Fault> {
        self.text()
    }

    fn text(&mut self) -> Result<&'m [u8], Fault> {
        const EXPECTED: &str = "text as long as its length says";
        loop {
            let tag = self.input.byte("a key")? & 0x7f;
            let len = match tag {
                PADDING => continue,
                COPY => return self.copy(Self::copied_text),
                BINARY | TEXT => self.varint("the length of a text")?,
                0x60..=0x7f => u64::from(tag & 0x1f),
                _ => return Err(self.unexpected("a text")),
            };
            return self.input.take_long(len, EXPECTED);
        }
    }

    fn copied_text(items: &mut Items<'m>) -> Result<&'m [u8], Fault> {
        items.text()
    }

    #[inline(always)]
    pub(super) fn integer(&mut self) -> Result<i64, Fault> {
        let tag = self.tag()?;
        match tag {
            0..=0x0f => Ok(i64::from(tag)),
            VARINT if self.input.peek().is_some_and(|byte| byte < 128) => {
                self.varint(NUMBER).map(|number| number as i64)
            }
            _ => self.aside(|items| items.other_integer(tag)),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_integer(&mut self, tag: u8) -> Result<i64, Fault> {
        const EXPECTED: &str = "an integer of 64 bits";
        let before = self.input.position();
        let integer = match tag {
            0..=0x0f => Some(i64::from(tag)),
            0x10..=0x1f => Some(i64::from(tag) - 32),
            VARINT => i64::try_from(self.varint(NUMBER)?).ok(),
            ZIGZAG => Some(unzigzag(self.varint(NUMBER)?)),
            FLOAT | DOUBLE => {
                let value = self.float(tag)?;
                let integer = value as i64;
                // The first double that is too large is 2^63.
                (integer as f64 == value && value < 9_223_372_036_854_775_808.0).then_some(integer)
            }
            UNDEFINED | CANONICAL_UNDEFINED => Some(0),
            COPY | ALIAS | REFERENCE_BACK => Some(self.copy(|items| items.integer())?),
            _ => None,
        };
        integer.ok_or_else(|| {
            self.back_to(before - 1);
            Fault::malformed(EXPECTED)
        })
    }

    pub(super) fn metric_type(&mut self) -> Result<MetricType, Fault> {
        let before = self.input;
        let number = self.integer()?;
        self.input.metric_type(number, before)
    }

    #[inline(always)]
    pub(super) fn double(&mut self) -> Result<f64, Fault> {
        let tag = self.tag()?;
        match tag {
            DOUBLE => self.float(tag),
            _ => self.aside(|items| items.other_double(tag)),
        }
    }

    /// Reads a double of 4 or 8 bytes.
    #[inline(always)]
    fn float(&mut self, tag: u8) -> Result<f64, Fault> {
        if tag == FLOAT {
            return Ok(f64::from(f32::from_le_bytes(self.input.array("a float")?)));
        }
        Ok(f64::from_le_bytes(self.input.array("a double")?))
    }

    #[cold]
    #[inline(never)]
    fn other_double(&mut self, tag: u8) -> Result<f64, Fault> {
        let before = self.input.position();
        match tag {
            FLOAT | DOUBLE => self.float(tag),
            COPY | ALIAS | REFERENCE_BACK => self.copy(|items| items.double()),
            VARINT => {
                let number = self.varint(NUMBER)?;
                let value = number as f64;
                if value as u128 == u128::from(number) {
                    return Ok(value);
                }
                self.back_to(before - 1);
                Err(Fault::malformed("an integer that a double can represent"))
            }
            _ => {
                let number = self.other_integer(tag)?;
                let value = number as f64;
                if value as i128 == i128::from(number) {
                    return Ok(value);
                }
                self.back_to(before - 1);
                Err(Fault::malformed("an integer that a double can represent"))
            }
        }
    }

    /// Reads the number of items in a list, or returns the tag of any other item.
    #[inline(always)]
    fn list(&mut self) -> Result<Result<usize, u8>, Fault> {
        let tag = self.tag()?;
        let count = match tag {
            LIST => self.varint("the number of items in a list")?,
            0x40..=0x4f => u64::from(tag & 0xf),
            _ => return Ok(Err(tag)),
        };
        self.input.count(count, 1, "the announced number of items").map(Ok)
    }

    #[inline(always)]
    pub(super) fn doubles(&mut self, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        match self.list()? {
            Ok(count) => values::fill(count, scope, || self.double()),
            Err(tag) => self.aside(|items| items.other_doubles(tag, scope)),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_doubles(&mut self, tag: u8, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        match tag {
            UNDEFINED | CANONICAL_UNDEFINED => Ok(&[]),
            COPY | ALIAS | REFERENCE_BACK => self.copy(|items| items.doubles(scope)),
            _ => Err(self.unexpected("a list of numbers")),
        }
    }

    #[inline(always)]
    pub(super) fn id(&mut self, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
        match self.list()? {
            Ok(count) => self.bytes(count, scope),
            Err(tag) => self.aside(|items| items.other_id(tag, scope)),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_id(&mut self, tag: u8, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
        match tag {
            UNDEFINED | CANONICAL_UNDEFINED => Ok(&[]),
            COPY | ALIAS | REFERENCE_BACK => self.copy(|items| items.id(scope)),
            BINARY | TEXT | 0x60..=0x7f => {
                self.back_to(self.input.position() - 1);
                self.text()
            }
            _ => Err(self.unexpected("an id as a list of bytes or as bytes")),
        }
    }

    /// Reads a list of bytes, each as an integer.
    #[inline(always)]
    fn bytes(&mut self, count: usize, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
        let room = values::room(count, scope)?;
        if let Some((pairs, _)) = self.input.rest().as_chunks().0.split_at_checked(count)
            && untag(pairs, room)
        {
            self.input.take(2 * count, NUMBER)?;
        } else {
            self.aside(|items| items.any_bytes(room))?;
        }
        // SAFETY: All places were written, because any failure above returned.
        Ok(unsafe { values::assume_init(room) })
    }

    /// Writes all places, unless it fails.
    #[inline(never)]
    fn any_bytes(&mut self, room: &mut [MaybeUninit<u8>]) -> Result<(), Fault> {
        for place in room {
            let before = self.input;
            place.write(u8::try_from(self.integer()?).map_err(|_| {
                self.input = before;
                Fault::malformed("a byte of an id: 0 to 255")
            })?);
        }
        Ok(())
    }

    /// Skips an unknown value and everything within. Copies are not followed.
    #[cold]
    #[inline(never)]
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        // The number of items that follow. Each takes a byte, so the input ends before this
        // overflows.
        let mut open = 1_u64;
        while open > 0 {
            let tag = self.input.byte(ITEM)? & 0x7f;
            let items = match tag {
                PADDING => continue,
                0..=0x1f | UNDEFINED | CANONICAL_UNDEFINED | NO | YES | FALSE | TRUE => 0,
                VARINT | ZIGZAG => self.varint(NUMBER).map(|_| 0)?,
                FLOAT => self.input.take(4, "a float").map(|_| 0)?,
                DOUBLE => self.input.take(8, "a double").map(|_| 0)?,
                // A long double has 80 bits in 16 bytes on all 64-bit machines that support it.
                LONG_DOUBLE | QUADRUPLE => self.input.take(16, "a long double").map(|_| 0)?,
                BINARY | TEXT | 0x60..=0x7f => {
                    self.back_to(self.input.position() - 1);
                    self.text().map(|_| 0)?
                }
                REFERENCE | WEAKEN => 1,
                REFERENCE_BACK | ALIAS | COPY => self.offset().map(|_| 0)?,
                OBJECT_OF_CLASS | FROZEN_OF_CLASS => self.offset().map(|_| 1)?,
                // A class and its item, or a pattern and its modifiers.
                OBJECT | FROZEN | PATTERN => 2,
                LIST => self.varint("the number of items in a list")?,
                HASH => {
                    let count = self.varint("the number of keys")?;
                    self.input.count(count, 2, "the announced number of keys and values")?;
                    2 * count
                }
                0x40..=0x4f => u64::from(tag & 0xf),
                0x50..=0x5f => 2 * u64::from(tag & 0xf),
                _ => return Err(self.unexpected("a tag that Sereal has")),
            };
            self.input.count(items, 1, "the announced number of items")?;
            open = (open - 1).saturating_add(items);
        }
        Ok(())
    }
}

pub(super) const VARINT: u8 = 0x20;
pub(super) const ZIGZAG: u8 = 0x21;
const FLOAT: u8 = 0x22;
pub(super) const DOUBLE: u8 = 0x23;
const LONG_DOUBLE: u8 = 0x24;
const UNDEFINED: u8 = 0x25;
const BINARY: u8 = 0x26;
const TEXT: u8 = 0x27;
const REFERENCE: u8 = 0x28;
const REFERENCE_BACK: u8 = 0x29;
const HASH: u8 = 0x2a;
const LIST: u8 = 0x2b;
const OBJECT: u8 = 0x2c;
const OBJECT_OF_CLASS: u8 = 0x2d;
const ALIAS: u8 = 0x2e;
const COPY: u8 = 0x2f;
const WEAKEN: u8 = 0x30;
const PATTERN: u8 = 0x31;
const FROZEN: u8 = 0x32;
const FROZEN_OF_CLASS: u8 = 0x33;
const NO: u8 = 0x34;
const YES: u8 = 0x35;
const QUADRUPLE: u8 = 0x38;
const CANONICAL_UNDEFINED: u8 = 0x39;
const FALSE: u8 = 0x3a;
const TRUE: u8 = 0x3b;
const PADDING: u8 = 0x3f;

const ITEM: &str = "an item";
const NUMBER: &str = "a number";

/// Returns an input from a position on, which is within `whole`.
fn at(whole: &[u8], position: usize) -> Reader<'_> {
    let mut input = Reader::new(whole);
    let moved = input.take(position, ITEM);
    debug_assert!(moved.is_ok(), "a position of an item lies within the input");
    input
}

/// Extracts the bytes from pairs of a tag and a byte, 8 at a time; the last 8 overlap the previous
/// ones. Returns whether all are such pairs. If not, the written bytes are unspecified.
#[inline(always)]
fn untag(pairs: &[[u8; 2]], room: &mut [MaybeUninit<u8>]) -> bool {
    let Some(last) = pairs.len().checked_sub(8) else {
        return false;
    };
    let mut index = 0;
    loop {
        let (Some(block), Some(places)) =
            (pairs[index..].first_chunk::<8>(), room[index..].first_chunk_mut::<8>())
        else {
            return false;
        };
        let (halves, _) = block.as_flattened().as_chunks::<8>();
        let words = [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])];
        if words.iter().any(|word| word & 0x80ff_80ff_80ff_80ff != 0x0020_0020_0020_0020) {
            return false;
        }
        let [low, high] = words.map(seconds);
        for (place, byte) in places.iter_mut().zip((low | high << 32).to_le_bytes()) {
            place.write(byte);
        }
        if index == last {
            return true;
        }
        index = (index + 8).min(last);
    }
}

/// Returns every second byte of a word, in its lower half.
#[inline(always)]
fn seconds(word: u64) -> u64 {
    let word = word >> 8 & 0x00ff_00ff_00ff_00ff;
    let word = (word | word >> 8) & 0x0000_ffff_0000_ffff;
    (word | word >> 16) & 0xffff_ffff
}

/// Reads the header of an uncompressed document and returns its version.
fn header(input: &mut Reader<'_>) -> Result<u8, Fault> {
    const MAGIC: &str = "the magic of a Sereal document";
    const SUFFIX: &str = "a suffix of the header as long as its length says";
    let before = *input;
    let old = input.rest().starts_with(b"=srl");
    if input.rest().starts_with(b"=\xc3\xb3rl") {
        return Err(Fault::malformed("a Sereal document, not one that was recoded as UTF-8"));
    }
    if !old && !b"=srl".starts_with(input.rest()) {
        input.literal(b"=\xf3rl", MAGIC)?;
    } else {
        input.take(4, MAGIC)?;
    }
    let before_version = *input;
    let byte = input.byte("the type and the version of a document")?;
    let version = byte & 0xf;
    *input = before_version;
    if !(1..=5).contains(&version) {
        return Err(Fault::malformed("a version from 1 to 5"));
    }
    if old != (version < 3) {
        *input = before;
        return Err(Fault::malformed("the magic of the document's version"));
    }
    match byte >> 4 {
        0 => {}
        1 | 2 => return Err(Fault::malformed("no compression, but it is compressed with Snappy")),
        3 => return Err(Fault::malformed("no compression, but it is compressed with zlib")),
        4 => return Err(Fault::malformed("no compression, but it is compressed with Zstandard")),
        _ => return Err(Fault::malformed("a document that is not compressed")),
    }
    input.byte(MAGIC)?;
    let len = input.varint("the length of the header's suffix")?;
    input.take_long(len, SUFFIX)?;
    Ok(version)
}

/// The number of bytes that copies can stand for in any document. Beyond that, they can only stand
/// for the number of bytes before them.
const FEW_COPIES: usize = 4096;
