//! Numbers in quipu's own format. Whole numbers and doubles share one code, and each number takes
//! its shortest exact form.
//!
//! ```text
//! 00..7f  0 to 127
//! 80..bf  128 to 16511: the six low bits, then 8 more, plus 128
//! c0..c7  a positive number in the 1 to 8 bytes that follow, least significant first
//! c8..cf  a negative number, with all bits inverted
//! d1..d8  a decimal with 1 to 8 places: the number that follows, divided by 10^places
//! f0..f8  the 0 to 8 most significant bytes of a double, most significant first; zeros follow
//! ```
//!
//! All other first bytes are reserved for later versions. A double that is a whole number is
//! written as a whole number, except -0. Decimals are exact, because IEEE 754 defines the rounding
//! of a division by a power of 10.

use crate::error::Fault;
use crate::pieces::{Byte, FixedPiece, Le64, Piece};
use crate::reader::Reader;

/// A whole number.
#[derive(Clone, Copy)]
pub(super) struct Whole(pub(super) i64);

// SAFETY: `bound` below is the same constant.
unsafe impl FixedPiece for Whole {
    const BOUND: usize = 9;
}

// SAFETY: The longest form takes 9 bytes, and each of the long forms writes 9.
unsafe impl Piece for Whole {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            match self.0 as u64 {
                number @ 0..SHORT => Byte(number as u8).put(at),
                number @ SHORT..MIDDLE => {
                    let number = number - SHORT;
                    (Byte(0x80 | (number >> 8) as u8), Byte(number as u8)).put(at)
                }
                _ => put_long(self.0, 0xc0, at),
            }
        }
    }
}

/// Numbers below this take one byte.
const SHORT: u64 = 0x80;
/// Numbers below this take two.
const MIDDLE: u64 = SHORT + 0x4000;

/// Writes a number in the bytes that it needs, after a lead that encodes its length and its sign.
///
/// # Safety
///
/// `at` is valid for 9 bytes.
#[inline(always)]
unsafe fn put_long(number: i64, lead: u8, at: *mut u8) -> *mut u8 {
    let (lead, bits) = if number < 0 { (lead | 8, !number as u64) } else { (lead, number as u64) };
    let bytes = bytes_of(bits);
    // SAFETY: `at` is valid for 9 bytes, and the end is at most 8 after the first.
    unsafe {
        let at = Byte(lead | (bytes - 1) as u8).put(at);
        Le64(bits).put(at);
        at.add(bytes)
    }
}

/// Returns how many bytes a number takes, at least 1.
#[inline(always)]
fn bytes_of(bits: u64) -> usize {
    8 - ((bits | 1).leading_zeros() / 8) as usize
}

/// Returns the length of a whole number.
#[inline(always)]
pub(super) fn whole_len(number: i64) -> usize {
    match number as u64 {
        0..SHORT => 1,
        SHORT..MIDDLE => 2,
        _ => 1 + bytes_of(if number < 0 { !number as u64 } else { number as u64 }),
    }
}

/// A double in its shortest form.
#[derive(Clone, Copy)]
pub(super) struct CompactDouble(pub(super) f64);

// SAFETY: `bound` below is the same constant.
unsafe impl FixedPiece for CompactDouble {
    const BOUND: usize = 10;
}

// SAFETY: The longest form is a decimal: a byte and then a whole number.
unsafe impl Piece for CompactDouble {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 10 bytes.
        unsafe {
            match mantissa(self.0, 0) {
                Some(number) => Whole(number).put(at),
                None => put_fraction(self.0, at),
            }
        }
    }
}

/// Writes a double that is not a whole number.
///
/// # Safety
///
/// `at` is valid for 10 bytes.
#[inline(never)]
unsafe fn put_fraction(value: f64, at: *mut u8) -> *mut u8 {
    let bytes = top_bytes(value);
    // SAFETY: The caller's obligation.
    unsafe {
        if bytes > 2
            && let Some((places, number)) = decimal(value)
            && whole_len(number) < bytes
        {
            return (Byte(0xd0 | places as u8), Whole(number)).put(at);
        }
        put_top_bytes(value, at)
    }
}

/// Returns how many of the most significant bytes contain all non-zero bits.
#[inline(always)]
pub(super) fn top_bytes(value: f64) -> usize {
    8 - (value.to_bits().trailing_zeros() / 8) as usize
}

/// # Safety
///
/// `at` is valid for 9 bytes.
#[inline(always)]
pub(super) unsafe fn put_top_bytes(value: f64, at: *mut u8) -> *mut u8 {
    let bytes = top_bytes(value);
    // SAFETY: `at` is valid for 9 bytes, and the end is at most 8 after the first.
    unsafe {
        let at = Byte(0xf0 | bytes as u8).put(at);
        Le64(value.to_bits().swap_bytes()).put(at);
        at.add(bytes)
    }
}

/// Returns the length of a double.
pub(super) fn double_len(value: f64) -> usize {
    if let Some(number) = mantissa(value, 0) {
        return whole_len(number);
    }
    let bytes = top_bytes(value);
    match decimal(value) {
        Some((_, number)) if bytes > 2 => 1 + bytes.min(whole_len(number)),
        _ => 1 + bytes,
    }
}

/// The divisors of decimals.
pub(super) const POWERS: [f64; 9] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// The maximum number of decimal places.
pub(super) const MAX_PLACES: usize = 8;

/// Rounds a double below 2^51: after adding this constant, the lowest bits contain the nearest
/// whole number.
const ROUND: f64 = (3u64 << 51) as f64;

/// Whole numbers below this limit are correct in the result of [`round`].
pub(super) const EXACT: u64 = 1 << 51;

/// Returns the whole number that yields exactly this value, bit for bit, when divided by 10^places.
#[inline(always)]
pub(super) fn mantissa(value: f64, places: usize) -> Option<i64> {
    let (number, back) = round(value, places);
    let exact = back.to_bits() == value.to_bits() && number.unsigned_abs() < EXACT;
    exact.then_some(number)
}

/// Returns the whole number nearest to the value times 10^places, and the value of this decimal.
/// You can trust the whole number if it is below 2^51. For larger values and for NaN it is wrong,
/// but then it is not below 2^51.
#[inline(always)]
pub(super) fn round(value: f64, places: usize) -> (i64, f64) {
    let power = POWERS[places];
    let rounded = value * power + ROUND;
    // For -0 the difference is +0, whose bits differ.
    let whole = rounded - ROUND;
    (whole_of(rounded), if places == 0 { whole } else { whole / power })
}

/// Extracts the whole number from a sum with [`ROUND`].
#[inline(always)]
fn whole_of(rounded: f64) -> i64 {
    rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i64
}

/// Returns the whole number of a value that is already known to be exact.
#[inline(always)]
pub(super) fn known_mantissa(value: f64, places: usize) -> i64 {
    whole_of(value * POWERS[places] + ROUND)
}

/// Returns the smallest number of decimal places, 1 to 8, that represents the value exactly, and
/// the corresponding whole number. For example, 1.25 yields 2 and 125.
///
/// If a value is exact with some places, it is also exact with more, up to whole numbers of 2^51.
/// Because of this, one division is enough to reject a value that is not a decimal.
#[inline(never)]
pub(super) fn decimal(value: f64) -> Option<(usize, i64)> {
    let mut places = MAX_PLACES;
    // NaN passes this loop and fails below.
    while value.abs() * POWERS[places] >= EXACT as f64 {
        places = places.checked_sub(1)?;
    }
    if places == 0 {
        return None;
    }
    let mut number = mantissa(value, places)?;
    for (step, power) in [(4, 10_000), (2, 100), (1, 10), (1, 10)] {
        if places > step && number % power == 0 {
            number /= power;
            places -= step;
        }
    }
    Some((places.max(1), number))
}

/// Reads a whole number.
#[inline(always)]
pub(super) fn read_whole(input: &mut Reader<'_>, expected: &'static str) -> Result<i64, Fault> {
    match input.peek() {
        Some(byte) if u64::from(byte) < SHORT => {
            input.advance(1);
            Ok(i64::from(byte))
        }
        _ => match read_ahead(input) {
            Some(number) => Ok(number),
            None => input.apart(|input| read_long(input, expected)),
        },
    }
}

/// Reads a number of two or more bytes, if the input contains at least nine, the length of the
/// longest number. Reads no bytes if this is not the case, or if the number is malformed.
#[inline(always)]
fn read_ahead(input: &mut Reader<'_>) -> Option<i64> {
    let &[lead, low, ..] = input.rest().first_chunk::<9>()?;
    let word = input.rest()[1..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
    match lead {
        0x80..=0xbf => {
            input.advance(2);
            Some((i64::from(lead & 0x3f) << 8 | i64::from(low)) + SHORT as i64)
        }
        0xc0..=0xcf => {
            let bytes = usize::from(lead & 7) + 1;
            let number = i64::try_from(word & (u64::MAX >> (64 - 8 * bytes))).ok()?;
            input.advance(1 + bytes);
            // Inverts all bits of a negative number.
            Some(number ^ -i64::from(lead >> 3 & 1))
        }
        _ => None,
    }
}

#[inline(never)]
fn read_long(input: &mut Reader<'_>, expected: &'static str) -> Result<i64, Fault> {
    let before = *input;
    let lead = input.byte(expected)?;
    let number = match lead {
        0..=0x7f => Ok(i64::from(lead)),
        0x80..=0xbf => input
            .byte(expected)
            .map(|low| (i64::from(lead & 0x3f) << 8 | i64::from(low)) + SHORT as i64),
        0xc0..=0xcf => read_bytes(input, lead, expected),
        _ => Err(Fault::malformed(expected)),
    };
    if number.is_err() {
        *input = before;
    }
    number
}

/// Reads the bytes from [`put_long`] after the lead.
#[inline(always)]
fn read_bytes(input: &mut Reader<'_>, lead: u8, expected: &'static str) -> Result<i64, Fault> {
    let bits = input.little_endian(usize::from(lead & 7) + 1, expected)?;
    match i64::try_from(bits) {
        Ok(bits) => Ok(if lead & 8 == 0 { bits } else { !bits }),
        Err(_) => Err(Fault::malformed(expected)),
    }
}

/// Reads a double.
#[inline(always)]
pub(super) fn read_double(input: &mut Reader<'_>, expected: &'static str) -> Result<f64, Fault> {
    match input.peek() {
        Some(byte) if u64::from(byte) < SHORT => {
            input.advance(1);
            Ok(f64::from(byte))
        }
        _ => input.apart(|input| read_long_double(input, expected)),
    }
}

#[inline(never)]
fn read_long_double(input: &mut Reader<'_>, expected: &'static str) -> Result<f64, Fault> {
    let before = *input;
    let lead = input.byte(expected)?;
    let value = match lead {
        0xd1..=0xd8 => {
            read_whole(input, expected).map(|number| number as f64 / POWERS[usize::from(lead & 15)])
        }
        0xf0..=0xf8 => read_top_bytes(input, lead, expected),
        _ => {
            *input = before;
            read_long(input, expected).map(|number| number as f64)
        }
    };
    if value.is_err() {
        *input = before;
    }
    value
}

/// Reads the bytes from [`put_top_bytes`] after the lead.
#[inline(always)]
pub(super) fn read_top_bytes(
    input: &mut Reader<'_>,
    lead: u8,
    expected: &'static str,
) -> Result<f64, Fault> {
    let bytes = usize::from(lead & 15);
    if bytes == 0 {
        return Ok(0.0);
    }
    Ok(f64::from_bits(input.little_endian(bytes, expected)?.swap_bytes()))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::pieces::append;

    fn round_trip(value: f64) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, CompactDouble(value));
        assert_eq!(out.len(), double_len(value), "{value}");
        let mut input = Reader::new(&out);
        let read = read_double(&mut input, "a number").unwrap();
        assert_eq!(read.to_bits(), value.to_bits(), "{value}");
        assert!(input.is_empty());
        for len in 0..out.len() {
            assert!(read_double(&mut Reader::new(&out[..len]), "").unwrap_err().is_incomplete());
        }
        out
    }

    #[test]
    fn doubles_take_the_shortest_form() {
        assert_eq!(round_trip(100.0), [100]);
        assert_eq!(round_trip(0.0), [0]);
        assert_eq!(round_trip(-0.0), [0xf1, 0x80]);
        assert_eq!(round_trip(-1.0), [0xc8, 0]);
        assert_eq!(round_trip(16511.0), [0xbf, 0xff]);
        assert_eq!(round_trip(16512.0), [0xc1, 0x80, 0x40]);
        assert_eq!(round_trip(0.1), [0xd1, 1]);
        assert_eq!(round_trip(12.345), [0xd3, 0xaf, 0xb9]);
        assert_eq!(round_trip(0.5), [0xf2, 0x3f, 0xe0]);
        assert_eq!(round_trip(core::f64::consts::PI).len(), 9);
        assert_eq!(round_trip(1e300).len(), 9);
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 5e-324, f64::MAX] {
            round_trip(value);
        }
        round_trip(f64::from_bits(0x7ff8_0000_0000_0001));
        round_trip(f64::from_bits(0xfff8_0000_c0ff_ee00));
    }

    #[test]
    fn decimals_have_as_few_places_as_can_be() {
        for (places, power) in POWERS.iter().enumerate().skip(1) {
            for number in [1i64, 7, 99, 101, 12_345, 999_999_999, -3, -12_345] {
                let value = number as f64 / power;
                if number % 10 == 0 {
                    continue;
                }
                assert_eq!(decimal(value), Some((places, number)), "{value}");
            }
        }
        assert_eq!(decimal(core::f64::consts::E), None);
        assert_eq!(decimal(f64::NAN), None);
        assert_eq!(decimal(f64::INFINITY), None);
        assert_eq!(decimal(1e-9), None);
    }

    #[test]
    fn whole_numbers_of_any_size() {
        for bits in (0..64).step_by(if cfg!(miri) { 7 } else { 1 }) {
            for number in [1i64 << bits, (1i64 << bits).wrapping_sub(1), -(1i64 << (bits % 63))] {
                let mut out = Vec::new();
                append(&mut out, Whole(number));
                assert_eq!(out.len(), whole_len(number));
                let mut input = Reader::new(&out);
                assert_eq!(read_whole(&mut input, "").unwrap(), number);
                round_trip(number as f64);
            }
        }
    }
}
