//! Formats numbers: values of samples, and bounds of buckets.

use std::io::Write;

use super::line::append;
use crate::snapshot::Number;

/// The maximum length of a number in bytes.
pub(super) const MAX_LENGTH: usize = 24;

/// A buffer for the digits of a number.
pub(super) struct Digits {
    whole: itoa::Buffer,
    float: zmij::Buffer,
}

impl Default for Digits {
    #[inline(always)]
    fn default() -> Self {
        Self { whole: itoa::Buffer::new(), float: zmij::Buffer::new() }
    }
}

impl Digits {
    /// Formats the value of a sample in at most [`MAX_LENGTH`] bytes.
    #[inline(always)]
    pub(super) fn format(&mut self, number: Number) -> &[u8] {
        let text = match number {
            Number::Unsigned(n) => self.whole.format(n).as_bytes(),
            Number::Signed(n) => self.whole.format(n).as_bytes(),
            Number::Float(n) => self.of_float(n),
        };
        debug_assert!(text.len() <= MAX_LENGTH);
        text
    }

    /// Formats a float: as an integer if it is whole and below 2^53, else with the fewest digits
    /// that round-trip.
    fn of_float(&mut self, n: f64) -> &[u8] {
        if !n.is_finite() {
            match n {
                f64::INFINITY => b"+Inf",
                f64::NEG_INFINITY => b"-Inf",
                _ => b"NaN",
            }
        } else if n == n.trunc() && n.abs() < WHOLE && (n != 0.0 || n.is_sign_positive()) {
            // Below 2^53: exact.
            self.whole.format(n as i64).as_bytes()
        } else {
            self.float.format_finite(n).as_bytes()
        }
    }
}

/// Appends the value of a sample.
#[inline]
pub(super) fn put(number: Number, out: &mut Vec<u8>) {
    append(Digits::default().format(number), out);
}

#[inline]
pub(super) fn put_unsigned(n: u64, out: &mut Vec<u8>) {
    if n < 10 {
        // Less than 10: the digit is a byte.
        out.push(b'0' + n as u8);
    } else {
        append(itoa::Buffer::new().format(n).as_bytes(), out);
    }
}

/// Appends a float: see [`Digits::of`].
pub(super) fn put_float(n: f64, out: &mut Vec<u8>) {
    put(Number::Float(n), out);
}

/// Appends a bucket bound or a quantile. Its spelling must match other programs, because it is the
/// value of a label: Go's `strconv` format `'g'` with precision -1 and, in OpenMetrics, a `.0` if
/// it would look like an integer.
pub(super) fn put_bound(n: f64, open_metrics: bool, out: &mut Vec<u8>) {
    if !n.is_finite() {
        return put_float(n, out);
    }
    let start = out.len();
    let size = n.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{n:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) =
            exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        // Writing to memory does not fail.
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    } else {
        let _ = write!(out, "{n}");
    }
    if open_metrics && !out[start..].iter().any(|byte| matches!(byte, b'.' | b'e')) {
        out.extend_from_slice(b".0");
    }
}

/// Returns the value of the label `le` of a bucket, or of the label `quantile`, in the spelling of
/// OpenMetrics. `spelled` is the bound in another program's spelling, if the bound is from another
/// program ([`Bucket::le`]).
///
/// [`Bucket::le`]: crate::snapshot::Bucket::le
pub fn bound_label(bound: f64, spelled: Option<&str>) -> String {
    let Some(spelled) = spelled else {
        let mut out = Vec::new();
        put_bound(bound, true, &mut out);
        // Digits and signs.
        return String::from_utf8(out).unwrap_or_default();
    };
    let point = if is_spelled_whole(spelled) { ".0" } else { "" };
    format!("{spelled}{point}")
}

/// Returns whether OpenMetrics adds `.0` to a bound of another program.
pub(super) fn is_spelled_whole(bound: &str) -> bool {
    bound.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// 2^53.
const WHOLE: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_bounds_are_read_back_by_parsers() {
        let value = |n| {
            let mut out = Vec::new();
            put_float(n, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(value(3.0), "3");
        assert_eq!(value(-0.5), "-0.5");
        assert_eq!(value(f64::NEG_INFINITY), "-Inf");
        assert_eq!(value(f64::NAN), "NaN");
        for n in [-0.0, 1e300, 5e-324, 0.1, 1.0 / 3.0, f64::MAX, 9e15, 1e22] {
            assert_eq!(value(n).parse::<f64>().unwrap().to_bits(), n.to_bits(), "{n}");
        }
        let bound = |n, om| {
            let mut out = Vec::new();
            put_bound(n, om, &mut out);
            String::from_utf8(out).unwrap()
        };
        for (n, text, open_metrics) in [
            (1.0, "1", "1.0"),
            (0.0, "0", "0.0"),
            (0.005, "0.005", "0.005"),
            (1e-5, "1e-05", "1e-05"),
            (1e6, "1000000", "1000000.0"),
            (1e21, "1e+21", "1e+21"),
            (2.5e-10, "2.5e-10", "2.5e-10"),
            (f64::INFINITY, "+Inf", "+Inf"),
        ] {
            assert_eq!((&*bound(n, false), &*bound(n, true)), (text, open_metrics));
        }
    }
}
