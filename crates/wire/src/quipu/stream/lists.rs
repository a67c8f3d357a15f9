//! The values of batch timers: short lists of decimals, and all other lists.
//!
//! A list begins with a byte for its shape. The 3 high bits of a short list's shape are the number
//! of values, 1 to 7, and the 5 low bits their width. The values are whole numbers, divided by
//! 10^places. The series remembers the places. A short list begins and ends with whole bytes.
//!
//! A shape of 0 to 8 marks a list in the general form (`values.rs`). This shape is also the number
//! of places that the series uses from then on.

use alloc::vec::Vec;

use quipu_arena::Scope;

use super::MAX_VALUES;
use super::bits::{NARROW, put_eight};
use crate::error::Fault;
use crate::pieces::{Piece, append};
use crate::quipu::number::{MAX_PLACES, POWERS, round};
use crate::quipu::values::{self, Values};
use crate::reader::Reader;

/// The maximum number of values in a short list.
const FEW: usize = 7;
/// The bytes that a reader loads for a short list: all bytes before the last number's first byte,
/// and 8 more.
const AHEAD: usize = (FEW - 1) * NARROW as usize / 8 + 8;

/// A short list of decimals, as whole numbers. The eighth number is 0.
#[derive(Clone, Copy)]
struct ShortList {
    numbers: [u64; 8],
    count: usize,
    width: u32,
}

impl ShortList {
    /// Returns `None` if the list is not short, or if a value is not a decimal with these places,
    /// is negative, or needs too many bits.
    #[inline(always)]
    fn from_values(values: &[f64], places: u8) -> Option<ShortList> {
        let last = values.len().checked_sub(1).filter(|last| *last < FEW)?;
        let (mut bits, mut rest) = (0, 0);
        let mut numbers = [0; 8];
        // Always seven numbers, with the last value repeated, because a loop without branches on
        // the count is faster.
        for (index, place) in numbers[..FEW].iter_mut().enumerate() {
            let value = values[index.min(last)];
            let (number, back) = round(value, usize::from(places));
            bits |= number as u64;
            rest |= back.to_bits() ^ value.to_bits();
            *place = if index <= last { number as u64 } else { 0 };
        }
        let width = 64 - bits.leading_zeros();
        (rest == 0 && width <= NARROW).then_some(ShortList { numbers, count: last + 1, width })
    }
}

// SAFETY: `put_eight` needs 32 bytes, and seven numbers of 31 bits take 28.
unsafe impl Piece for ShortList {
    #[inline(always)]
    fn bound(&self) -> usize {
        32
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 32 bytes.
        unsafe {
            put_eight(&self.numbers, self.width, at);
            at.add((self.count * self.width as usize).div_ceil(8))
        }
    }
}

/// Appends a list and returns its shape, if it is a short list with these places.
#[inline(always)]
pub(super) fn write_short(values: &[f64], places: u8, out: &mut Vec<u8>) -> Option<u8> {
    let short = ShortList::from_values(values, places)?;
    append(out, short);
    Some((short.count as u8) << 5 | short.width as u8)
}

/// Appends a list in the general form and returns its shape: the places that its series uses now.
#[inline(never)]
pub(super) fn write_any(values: &[f64], places: u8, out: &mut Vec<u8>) -> u8 {
    let mut now = places;
    append(out, Values::with_hint(values, &mut now));
    // A list of other numbers does not change the places for lists of decimals.
    if now == 0 { places } else { now }
}

/// The lists of a block that is being read, one after another.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The values, up to `end`. More values follow, because a short list is stored as seven values.
    values: Vec<f64>,
    end: usize,
    /// How many values the lists in the general form can still contain.
    left: usize,
}

impl Lists {
    /// Forgets all lists.
    pub(super) fn clear(&mut self) {
        (self.end, self.left) = (0, MAX_VALUES);
    }

    /// Returns the start of the next list.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        self.end as u32
    }

    /// Returns how many values a list in the general form can contain.
    pub(super) fn left(&self) -> u64 {
        self.left as u64
    }

    /// Returns the values between two positions.
    #[inline(always)]
    pub(super) fn get(&self, start: u32, end: u32) -> &[f64] {
        self.values.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Reads a short list with this number of values and this width.
    #[inline(always)]
    pub(super) fn read_short(
        &mut self,
        input: &mut Reader<'_>,
        shape: u8,
        places: u8,
    ) -> Result<(), Fault> {
        let (count, width) = (usize::from(shape >> 5), usize::from(shape & 31));
        let bytes = (count * width).div_ceil(8);
        let power = POWERS[usize::from(places).min(MAX_PLACES)];
        let values = if let Some(ahead) = input.rest().first_chunk() {
            input.advance(bytes);
            unpack(ahead, width, power)
        } else {
            let mut padded = [0; AHEAD];
            let packed = input.take(bytes, "the values of a batch timer")?;
            padded[..bytes].copy_from_slice(packed);
            unpack(&padded, width, power)
        };
        if let Some(room) = self.values.get_mut(self.end..self.end + FEW) {
            room.copy_from_slice(&values);
        } else {
            self.values.resize(self.end, 0.0);
            self.values.extend_from_slice(&values);
        }
        self.end += count;
        Ok(())
    }

    /// Reads a list in the general form.
    #[cold]
    #[inline(never)]
    pub(super) fn read_any(
        &mut self,
        input: &mut Reader<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        let mut copy = Reader::new(input.rest());
        let list = values::read_most(&mut copy, self.left(), scope);
        input.advance(copy.position());
        self.append(list?)
    }

    /// Appends a list in the general form.
    pub(super) fn append(&mut self, list: &[f64]) -> Result<(), Fault> {
        self.values.truncate(self.end);
        self.values.try_reserve(list.len()).map_err(|_| Fault::memory())?;
        self.values.extend_from_slice(list);
        self.end = self.values.len();
        self.left = self.left.saturating_sub(list.len());
        Ok(())
    }
}

/// Returns whether this version defines the shape.
#[inline(always)]
pub(super) fn is_shape(shape: u8) -> bool {
    shape >> 5 != 0 || usize::from(shape) <= MAX_PLACES
}

/// Unpacks seven numbers and returns their values.
#[inline(always)]
fn unpack(packed: &[u8; AHEAD], width: usize, power: f64) -> [f64; FEW] {
    let mask = (1 << width) - 1;
    let mut values = [0.0; FEW];
    for (index, value) in values.iter_mut().enumerate() {
        let bit = index * width;
        let word = packed[bit / 8..].first_chunk().copied().unwrap_or_default();
        let number = u64::from_le_bytes(word) >> (bit % 8) & mask;
        // With at most 31 bits, this is a signed 32-bit number, which converts fast.
        *value = f64::from(number as i32) / power;
    }
    values
}
