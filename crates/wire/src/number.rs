//! Decimal numbers as strings, used by JSON and Hprose.
//!
//! Floats are written like Go's `strconv.FormatFloat(value, 'g', -1, 64)`: with the shortest digits
//! that read back as the same value. A decimal exponent from -4 to 5 is written plain, any other as
//! `d.ddde+XX` with at least two digits in the exponent. (Only Go's `fmt` and `encoding/json` stay
//! plain up to an exponent of 20.)

use crate::error::Fault;
use crate::pieces::{Byte, Bytes, FixedPiece, Literal, Piece};
use crate::reader::Reader;

/// An integer that is written in decimal.
#[derive(Clone, Copy)]
pub(crate) struct Decimal(pub(crate) i64);

// SAFETY: The end is after a sign and at most 19 digits, which were all written.
unsafe impl Piece for Decimal {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 20 bytes, of which all but the first are for the digits.
        unsafe {
            at.write(b'-');
            put_digits(self.0.unsigned_abs(), at.add(usize::from(self.0 < 0)))
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Decimal {
    const BOUND: usize = 20;
}

/// A double. If it is not finite, it is written as `NaN`, `+Inf` or `-Inf`.
#[derive(Clone, Copy)]
pub(crate) struct Double(pub(crate) f64);

// SAFETY: The longest double is `-d.dddddddddddddddde-ddd`: 17 digits and 7 other characters.
unsafe impl Piece for Double {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let value = self.0;
        // Most values are small whole numbers. This compares bits, so -0 is excluded.
        let whole = value as i32;
        if whole.unsigned_abs() < 1_000_000 && f64::from(whole).to_bits() == value.to_bits() {
            // SAFETY: `at` is valid for 24 bytes, and an integer takes 20.
            return unsafe { Decimal(i64::from(whole)).put(at) };
        }
        // SAFETY: `at` is valid for 24 bytes.
        unsafe { put_other(value, at) }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Double {
    const BOUND: usize = 24;
}

/// Three digits for each number, and in the last byte the number of digits without leading zeros.
static THREE_DIGITS: [[u8; 4]; 1000] = {
    let mut table = [[0; 4]; 1000];
    let mut number = 0;
    while number < 1000 {
        let digits = [number / 100, number / 10 % 10, number % 10];
        let len = 1 + (number >= 10) as u8 + (number >= 100) as u8;
        table[number] =
            [b'0' + digits[0] as u8, b'0' + digits[1] as u8, b'0' + digits[2] as u8, len];
        number += 1;
    }
    table
};

/// # Safety
///
/// `at` is valid for writes of 19 bytes, or 20 if the number has 20 digits.
#[inline(always)]
unsafe fn put_digits(number: u64, at: *mut u8) -> *mut u8 {
    // SAFETY: The caller's obligation. Up to 6 digits write at most 7 bytes.
    unsafe {
        if number < 1000 {
            put_three_digits(number as usize, at)
        } else if number < 1_000_000 {
            let at = put_three_digits(number as usize / 1000, at);
            at.cast::<[u8; 4]>().write_unaligned(THREE_DIGITS[number as usize % 1000]);
            at.add(3)
        } else {
            put_many_digits(number, at)
        }
    }
}

/// Writes a number below 1000 without leading zeros.
///
/// # Safety
///
/// `at` is valid for writes of 4 bytes.
#[inline(always)]
unsafe fn put_three_digits(number: usize, at: *mut u8) -> *mut u8 {
    let entry = THREE_DIGITS[number];
    let len = entry[3] & 3;
    let digits = u32::from_le_bytes(entry) >> (24 - 8 * u32::from(len));
    // SAFETY: The caller's obligation, and the length is at most 3.
    unsafe {
        at.cast::<[u8; 4]>().write_unaligned(digits.to_le_bytes());
        at.add(usize::from(len))
    }
}

/// # Safety
///
/// `at` is valid for writes of one byte for each digit of the number.
#[inline(never)]
unsafe fn put_many_digits(number: u64, at: *mut u8) -> *mut u8 {
    // SAFETY: The caller's obligation.
    unsafe { Bytes(itoa::Buffer::new().format(number).as_bytes()).put(at) }
}

/// # Safety
///
/// `at` is valid for writes of 24 bytes.
#[inline(never)]
unsafe fn put_other(value: f64, at: *mut u8) -> *mut u8 {
    // Three decimals are common too. At most one string of up to 15 digits reads back as the value.
    let thousandths = (value.abs() * 1000.0 + 0.5) as u32;
    if thousandths < 1_000_000_000 && f64::from(thousandths) / 1000.0 == value.abs() && value != 0.0
    {
        // SAFETY: `at` is valid for 24 bytes, and the string takes up to 11.
        return unsafe { put_thousandths(value < 0.0, thousandths, at) };
    }
    // SAFETY: The caller's obligation.
    unsafe { put_shortest(value, at) }
}

/// Writes a number of thousandths that is not whole.
///
/// # Safety
///
/// `at` is valid for writes of 24 bytes.
#[inline(always)]
unsafe fn put_thousandths(negative: bool, number: u32, at: *mut u8) -> *mut u8 {
    let fraction = number as usize % 1000;
    let zeros =
        usize::from(fraction.is_multiple_of(10)) + usize::from(fraction.is_multiple_of(100));
    // SAFETY: `at` is valid for a sign, 6 digits, a point and 4 bytes.
    unsafe {
        at.write(b'-');
        let at = put_digits(u64::from(number / 1000), at.add(usize::from(negative)));
        at.write(b'.');
        at.add(1).cast::<[u8; 4]>().write_unaligned(THREE_DIGITS[fraction]);
        at.add(4 - zeros)
    }
}

/// # Safety
///
/// `at` is valid for writes of 24 bytes.
#[inline(never)]
unsafe fn put_shortest(value: f64, at: *mut u8) -> *mut u8 {
    let word: &[u8] = match value {
        f64::INFINITY => b"+Inf",
        f64::NEG_INFINITY => b"-Inf",
        _ if value.is_nan() => b"NaN",
        // Only -0 gets here, because +0 was already written as a whole number.
        0.0 => b"-0",
        _ => b"",
    };
    if !word.is_empty() {
        // SAFETY: The word is shorter than 24 bytes.
        return unsafe { Bytes(word).put(at) };
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value).as_bytes();
    if (1e-4..1e6).contains(&value.abs()) {
        // Whole numbers were already written, so this is a fraction, which zmij writes plain too.
        // SAFETY: A sign, `0.000` and 17 digits are 23 bytes.
        return unsafe { Bytes(text).put(at) };
    }
    // SAFETY: The caller's obligation.
    unsafe { put_scientific(value < 0.0, text, at) }
}

/// # Safety
///
/// `at` is valid for writes of 24 bytes, and `text` contains up to 17 significant digits.
#[inline(always)]
unsafe fn put_scientific(negative: bool, text: &[u8], at: *mut u8) -> *mut u8 {
    let mut room = [0; MAX_DIGITS];
    let (digits, exponent) = significant_digits(text, &mut room);
    let (first, others) = digits.split_at(1);
    let scale = exponent.unsigned_abs();
    let scale_digits = [scale / 100, scale / 10 % 10, scale % 10].map(|digit| b'0' + digit as u8);
    let piece = (
        negative.then_some(Byte(b'-')),
        Bytes(first),
        (!others.is_empty()).then_some((Byte(b'.'), Bytes(others))),
        Literal(if exponent < 0 { b"e-" } else { b"e+" }),
        Bytes(&scale_digits[usize::from(scale < 100)..]),
    );
    debug_assert!(piece.bound() <= Double::BOUND, "the shortest text has 17 digits at most");
    // SAFETY: The pieces take up to 1, 1, 17, 2 and 3 bytes.
    unsafe { piece.put(at) }
}

/// A plain number consists of up to 17 digits, with zeros on one side.
const MAX_DIGITS: usize = 32;

/// Returns the significant digits of a float, without zeros at either end, and the decimal exponent
/// of the first. The float must not be 0, and must be written with a point or an exponent.
fn significant_digits<'r>(text: &[u8], room: &'r mut [u8; MAX_DIGITS]) -> (&'r [u8], i32) {
    let (mut len, mut before_point) = (0, None);
    let mut exponent = 0;
    for (index, &byte) in text.iter().enumerate() {
        match byte {
            // Zeros before the first significant digit move the point.
            b'0' if len == 0 => exponent -= i32::from(before_point.is_some()),
            b'0'..=b'9' if len < MAX_DIGITS => {
                room[len] = byte;
                len += 1;
            }
            b'.' => before_point = Some(len as i32),
            b'e' => {
                exponent += scale(&text[index + 1..]);
                break;
            }
            _ => {}
        }
    }
    exponent += before_point.unwrap_or(len as i32) - 1;
    while len > 1 && room[len - 1] == b'0' {
        len -= 1;
    }
    (&room[..len.max(1)], exponent)
}

/// Returns the exponent after the `e`.
fn scale(text: &[u8]) -> i32 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let scale = digits.fold(0, |scale, digit| 10 * scale + i32::from(digit - b'0'));
    if text.first() == Some(&b'-') { -scale } else { scale }
}

/// Reads `-? digits`, without leading zeros.
#[inline(always)]
pub(crate) fn integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    const EXPECTED: &str = "a whole number of 64 bits";
    let text = input.rest();
    let start = usize::from(text.first() == Some(&b'-'));
    let (mut number, mut end) = (0, start);
    let len = digits(text, &mut end, &mut number);
    if len == 0 && end == text.len() {
        return Err(Fault::incomplete(EXPECTED));
    }
    let fits = len <= 19 && number <= i64::MAX as u64 + start as u64;
    if len == 0 || !fits || (len > 1 && text[start] == b'0') {
        return Err(Fault::malformed(EXPECTED));
    }
    input.take(end, EXPECTED)?;
    Ok(if start > 0 { number.wrapping_neg() } else { number } as i64)
}

/// Reads a JSON number: `-? digits (. digits)? ([eE] [+-]? digits)?`, without leading zeros.
#[inline(always)]
pub(crate) fn double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    let text = input.rest();
    let start = usize::from(text.first() == Some(&b'-'));
    let (mut mantissa, mut end) = (0, start);
    let len = digits(text, &mut end, &mut mantissa);
    if len == 0 {
        return Err(no_number(text, end));
    }
    if len > 1 && text[start] == b'0' {
        return Err(Fault::malformed(NUMBER));
    }
    let mut decimals = 0;
    if text.get(end) == Some(&b'.') {
        end += 1;
        decimals = digits(text, &mut end, &mut mantissa);
        if decimals == 0 {
            return Err(no_number(text, end));
        }
    }
    let exact = len + decimals <= 19 && mantissa <= 1 << 53 && decimals < POWERS_OF_TEN.len();
    if !exact || matches!(text.get(end), Some(b'e' | b'E')) {
        return any_double(input, end);
    }
    input.take(end, NUMBER)?;
    // Both operands are exact, so the quotient is rounded once.
    let magnitude = match decimals {
        0 => mantissa as f64,
        _ => mantissa as f64 / POWERS_OF_TEN[decimals],
    };
    Ok(if start > 0 { -magnitude } else { magnitude })
}

const NUMBER: &str = "a number within the range of doubles";

static POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Adds digits to a number and returns how many. The number wraps after 19 digits.
#[inline(always)]
fn digits(text: &[u8], at: &mut usize, number: &mut u64) -> usize {
    let start = *at;
    while let Some(byte) = text.get(*at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        *at += 1;
    }
    *at - start
}

/// Reads a number with an exponent or many digits. `end` is the end of the part before the
/// exponent.
#[inline(never)]
fn any_double(input: &mut Reader<'_>, mut end: usize) -> Result<f64, Fault> {
    let text = input.rest();
    // A number that is too large may still get a negative exponent.
    let goes_on = end == text.len();
    if matches!(text.get(end), Some(b'e' | b'E')) {
        end += 1;
        end += usize::from(matches!(text.get(end), Some(b'+' | b'-')));
        if digits(text, &mut end, &mut 0) == 0 {
            return Err(no_number(text, end));
        }
    }
    let before = *input;
    let value =
        core::str::from_utf8(input.take(end, NUMBER)?).ok().and_then(|text| text.parse().ok());
    value.filter(|value: &f64| value.is_finite()).ok_or_else(|| {
        if goes_on {
            return Fault::incomplete(NUMBER);
        }
        *input = before;
        Fault::malformed(NUMBER)
    })
}

/// Returns the fault for missing digits.
#[cold]
fn no_number(text: &[u8], end: usize) -> Fault {
    if end >= text.len() { Fault::incomplete(NUMBER) } else { Fault::malformed(NUMBER) }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;
    use crate::pieces::append;

    fn text(piece: impl Piece) -> String {
        let mut out = Vec::new();
        append(&mut out, piece);
        String::from_utf8(out).unwrap()
    }

    fn read(text: &str) -> Result<f64, Fault> {
        let mut input = Reader::new(text.as_bytes());
        double(&mut input).inspect(|_| assert!(input.is_empty(), "{text}"))
    }

    #[test]
    fn integers_come_back() {
        let mut numbers: Vec<i64> = (0..if cfg!(miri) { 20 } else { 2000 }).collect();
        numbers.extend((0..19).flat_map(|power| {
            let power = 10i64.pow(power);
            [power - 1, power, power + 1, power.saturating_mul(7)]
        }));
        numbers.extend([i64::MAX, i64::MIN, i64::MIN + 1]);
        for number in numbers.iter().flat_map(|number| [*number, number.wrapping_neg()]) {
            let text = text(Decimal(number));
            assert_eq!(text, std::format!("{number}"));
            let mut input = Reader::new(text.as_bytes());
            assert_eq!(integer(&mut input).unwrap(), number);
            assert!(input.is_empty());
        }
    }

    #[test]
    fn integers_that_are_none() {
        for (text, incomplete) in [
            ("", true),
            ("-", true),
            ("+1", false),
            ("--1", false),
            ("01", false),
            ("9223372036854775808", false),
            ("-9223372036854775809", false),
            ("18446744073709551617", false),
            ("100000000000000000000000000000", false),
        ] {
            let mut input = Reader::new(text.as_bytes());
            assert_eq!(integer(&mut input).unwrap_err().is_incomplete(), incomplete, "{text}");
            assert_eq!(input.position(), 0);
        }
    }

    #[test]
    fn doubles_are_written_as_go_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (100.0, "100"),
            (-999_999.0, "-999999"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (-1_234_567.5, "-1.2345675e+06"),
            (999_999.5, "999999.5"),
            (0.1, "0.1"),
            (0.000_1, "0.0001"),
            (0.001, "0.001"),
            (-0.01, "-0.01"),
            (2234.143, "2234.143"),
            (-999_999.999, "-999999.999"),
            (999_999.999_9, "999999.9999"),
            (7.05, "7.05"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.000_4, "0.0004"),
            (1e-300, "1e-300"),
            (0.000_123_456_789_012_345_67, "0.00012345678901234567"),
            (0.000_099_9, "9.99e-05"),
            (1e-5, "1e-05"),
            (9_007_199_254_740_992.0, "9.007199254740992e+15"),
            (1e15, "1e+15"),
            (1e16, "1e+16"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (1e22, "1e+22"),
            (1e23, "1e+23"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-f64::MIN_POSITIVE, "-2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (-f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(text(Double(value)), expected);
        }
    }

    #[test]
    fn doubles_come_back() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..if cfg!(miri) { 200 } else { 100_000 } {
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let value = match round % 4 {
                0 => f64::from_bits(bits),
                1 => (bits >> 34) as f64 / 1000.0,
                2 => (bits >> 12) as f64,
                _ => (bits >> 40) as f64 / 1e9,
            };
            if value.is_finite() {
                let text = text(Double(value));
                assert_eq!(read(&text).unwrap().to_bits(), value.to_bits(), "{text}");
                // The length must equal Rust's. The last digit can differ if two strings are
                // equally near.
                let digits = |text: &str| {
                    let (mantissa, _) = text.split_once('e').unwrap_or((text, ""));
                    let digits = mantissa.replace(['-', '.'], "");
                    digits.trim_start_matches('0').trim_end_matches('0').len()
                };
                assert_eq!(digits(&text), digits(&std::format!("{value:e}")), "{text}");
                let plain = std::format!("{value}");
                assert_eq!(read(&plain).unwrap().to_bits(), value.to_bits(), "{plain}");
            }
        }
    }

    #[test]
    fn doubles_that_are_none() {
        for (text, incomplete) in [
            ("", true),
            ("-", true),
            ("1.", true),
            ("1e", true),
            ("1e+", true),
            ("-1.5E-", true),
            ("+1", false),
            (".5", false),
            ("1.e5", false),
            ("01", false),
            ("-00", false),
            ("1e400", false),
            ("-1e400", false),
            ("1ex", false),
            ("NaN", false),
            ("inf", false),
            ("infinity", false),
        ] {
            let mut input = Reader::new(text.as_bytes());
            assert_eq!(double(&mut input).unwrap_err().is_incomplete(), incomplete, "{text}");
            assert_eq!(input.position(), 0, "{text}");
        }
    }
}
