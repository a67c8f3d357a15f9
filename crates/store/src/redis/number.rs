//! Numbers as strings that parse to the same number, and exact sums of integers.

use quipu::snapshot::Number;

/// Appends a number: an integer in digits, any other as the shortest string that parses
/// back to the same number.
pub(super) fn push_number(out: &mut String, number: Number) {
    match number {
        Number::Unsigned(n) => out.push_str(itoa::Buffer::new().format(n)),
        Number::Signed(n) => out.push_str(itoa::Buffer::new().format(n)),
        Number::Float(n) => out.push_str(&float_text(n)),
    }
}

/// Returns a float as a string that the server's scripts can parse too.
pub(super) fn float_text(n: f64) -> String {
    if n.is_nan() {
        "nan".into()
    } else if n.is_infinite() {
        if n > 0.0 { "inf" } else { "-inf" }.into()
    } else {
        zmij::Buffer::new().format_finite(n).into()
    }
}

/// Returns whether two numbers are equal, which saves a write. Compares the bits of floats.
pub(super) fn is_same(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// A sum: exact for integers, and a float for the rest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    whole: i128,
    rest: f64,
}

impl Sum {
    /// Adds the number in a string. Ignores a string that is not a number.
    pub(super) fn add(&mut self, text: &str) {
        if let Ok(whole) = text.parse::<i64>() {
            self.whole += i128::from(whole);
        } else if let Ok(whole) = text.parse::<u64>() {
            self.whole += i128::from(whole);
        } else if let Ok(n) = text.parse::<f64>() {
            self.rest += n;
        }
    }

    pub(super) fn number(self) -> Number {
        let whole = if self.rest == 0.0 { self.whole } else { i128::MAX };
        match (u64::try_from(whole), i64::try_from(whole)) {
            (Ok(n), _) => Number::Unsigned(n),
            (_, Ok(n)) => Number::Signed(n),
            _ => Number::Float(self.whole as f64 + self.rest),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sums_of_whole_numbers_are_exact() {
        let mut sum = Sum::default();
        for text in ["9007199254740993", "18446744073709551000", "-1", "x"] {
            sum.add(text);
        }
        assert!(matches!(sum.number(), Number::Float(_)));
        let mut sum = Sum::default();
        ["9007199254740993", "2", "-1"].iter().for_each(|text| sum.add(text));
        assert_eq!(sum.number(), Number::Unsigned(9_007_199_254_740_994));
        sum.add("0.5");
        assert!(matches!(sum.number(), Number::Float(_)));
    }

    #[test]
    fn texts_read_back() {
        for n in [0.1, 1e300, 1.23e-45, -0.0, f64::MAX, f64::INFINITY, 5e-324] {
            assert_eq!(float_text(n).parse::<f64>().unwrap().to_bits(), n.to_bits());
        }
        assert!(float_text(f64::NAN).parse::<f64>().unwrap().is_nan());
    }
}
