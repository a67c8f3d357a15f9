//! Parses sizes and counts with units in settings: `64MiB`, `1MB`, `10k`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A whole number, optionally with a unit: `4096`, `10k`, `1MB`, `64MiB`, `1.5GiB`. Units with an
/// `i` are powers of 1024, and others are powers of 1000. The case is ignored.
///
/// In a TOML file, a number with a unit is a string. `Display` prints the number without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Size<T>(pub T);

impl<T: TryFrom<u64>> FromStr for Size<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = parse(text)?;
        T::try_from(number).map(Self).map_err(|_| out_of_range(number))
    }
}

impl<T: fmt::Display> fmt::Display for Size<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Size<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText(PhantomData))
    }
}

/// Parses a number with bounds, for a flag of a command.
///
/// # Errors
/// Fails if the string is not such a number, or if the number is out of bounds.
pub fn parse_in<T>(text: &str, bounds: RangeInclusive<u64>) -> Result<T, String>
where
    T: TryFrom<u64>,
{
    let number = parse(text)?;
    let (least, most) = (bounds.start(), bounds.end());
    let is_inside = bounds.contains(&number);
    let value = is_inside.then(|| T::try_from(number).ok()).flatten();
    value.ok_or_else(|| format!("{number} is out of range; give {least} to {most}"))
}

struct NumberOrText<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for NumberOrText<T> {
    type Value = Size<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or one with a unit in quotes, such as \"10k\" or \"64MiB\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Size<T>, E> {
        let Ok(number) = u64::try_from(number) else {
            return Err(E::custom(format_args!("{number} is negative: give a positive number")));
        };
        T::try_from(number).map(Size).map_err(|_| E::custom(out_of_range(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size<T>, E> {
        text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
    }
}

/// Returns the reason why a number does not fit into its type.
fn out_of_range(number: u64) -> String {
    match number {
        0 => "0 is out of range: give at least 1".to_owned(),
        _ => format!("{number} is out of range: give a smaller number"),
    }
}

/// The factors of the first letters of units, without and with an `i`.
const FACTORS: [(char, u64, u64); 5] = [
    ('k', 1000, 1 << 10),
    ('m', 1_000_000, 1 << 20),
    ('g', 1_000_000_000, 1 << 30),
    ('t', 1_000_000_000_000, 1 << 40),
    ('p', 1_000_000_000_000_000, 1 << 50),
];
/// The maximum number of digits after the decimal point.
const MAX_PLACES: usize = 9;

/// Parses a number with or without a unit.
fn parse(text: &str) -> Result<u64, String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let (number, unit) = text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty()
        && !number.ends_with('.')
        && !fraction.contains('.')
        && fraction.len() <= MAX_PLACES;
    let factor = factor(&unit.trim().to_ascii_lowercase());
    let (true, Some(factor)) = (is_number, factor) else { return Err(EXPECTED.to_owned()) };
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| TOO_LARGE)?;
    // This cannot overflow, because the exponent is at most `MAX_PLACES`.
    let scale = 10_u128.pow(fraction.len() as u32);
    let product = digits.checked_mul(factor.into()).ok_or(TOO_LARGE)?;
    if !product.is_multiple_of(scale) {
        return Err(format!("it is not a whole number: {EXPECTED}"));
    }
    u64::try_from(product / scale).map_err(|_| TOO_LARGE.to_owned())
}

/// Returns the factor of a unit in lower case, such as `k`, `mb` or `gib`.
fn factor(unit: &str) -> Option<u64> {
    if matches!(unit, "" | "b") {
        return Some(1);
    }
    let (_, decimal, binary) =
        FACTORS.into_iter().find(|(letter, ..)| unit.starts_with(*letter))?;
    match &unit[1..] {
        "" | "b" => Some(decimal),
        "i" | "ib" => Some(binary),
        _ => None,
    }
}

const EXPECTED: &str = "expected a whole number, such as 4096, 10k, 1MB or 64MiB";
const TOO_LARGE: &str = "it is too large: give less than 2^64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_and_without_units() {
        for (text, number) in [
            ("0", 0),
            ("4096", 4096),
            ("12b", 12),
            ("10k", 10_000),
            ("10K", 10_000),
            ("1MB", 1_000_000),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("2Gi", 2 << 30),
            ("1.5GiB", 3 << 29),
            ("0.25k", 250),
            ("1T", 1_000_000_000_000),
            ("16PiB", 1 << 54),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(number)), "{text}");
        }
    }

    #[test]
    fn errors_show_an_example() {
        for text in
            ["", "k", "-1", "1e3", "1.", ".5k", "1..2k", "1.2.3k", "10kk", "5s", "1 x", "1.5"]
        {
            let error = text.parse::<Size<u64>>().unwrap_err();
            assert!(error.contains("10k, 1MB or 64MiB"), "{text}: {error}");
        }
        for text in ["18446744073709551616", "20000PiB", &"9".repeat(50)] {
            assert_eq!(text.parse::<Size<u64>>().unwrap_err(), TOO_LARGE, "{text}");
        }
        assert_eq!(
            "256".parse::<Size<u8>>().unwrap_err(),
            "256 is out of range: give a smaller number"
        );
        assert!("0".parse::<Size<std::num::NonZeroU64>>().unwrap_err().contains("give at least 1"));
        assert_eq!(parse_in::<u16>("1k", 1..=2000), Ok(1000));
        assert_eq!(
            parse_in::<u16>("3k", 1..=2000).unwrap_err(),
            "3000 is out of range; give 1 to 2000"
        );
    }

    #[test]
    fn a_toml_file_has_numbers_or_strings() {
        #[derive(Debug, PartialEq, Deserialize, Serialize)]
        struct File {
            size: Size<u64>,
        }
        let read = |text: &str| toml::from_str::<File>(&format!("size = {text}"));
        for (text, number) in [("7", 7), ("10_000", 10_000), ("\"7\"", 7), ("\"64MiB\"", 64 << 20)]
        {
            assert_eq!(read(text).unwrap().size, Size(number), "{text}");
        }
        let file = read("\"1.5GiB\"").unwrap();
        assert_eq!(toml::to_string(&file).unwrap(), "size = 1610612736\n");
        for text in ["true", "1.5", "\"x\"", "\"1.5\""] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("such as"), "{text}: {error}");
        }
        assert!(read("-1").unwrap_err().to_string().contains("-1 is negative"));
    }
}
