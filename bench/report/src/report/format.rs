//! Formats numbers for readers: with three significant digits, and a unit that keeps them short.

use crate::record::Record;

/// A value and the unit to write it in.
pub(super) struct Scale {
    /// The factor for a value in the record's unit.
    pub(super) factor: f64,
    /// The new unit, including the space before it if the unit needs one.
    pub(super) unit: String,
}

/// The scale in which a value of a record's unit is short.
pub(super) fn scale(value: f64, unit: &str) -> Scale {
    let time =
        |nanos: f64| pick(value, nanos, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]);
    match unit {
        "ns" => time(1.0),
        "us" => time(1e3),
        "ms" => time(1e6),
        "s" => time(1e9),
        "B" => pick(value, 1.0, &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)]),
        "1/s" => Scale { factor: 1.0, unit: "/s".into() },
        other => Scale { factor: 1.0, unit: format!(" {other}") },
    }
}

/// Formats a value with its unit, for example `4.70 ns`, `8.41 MB` or `79,100/s`.
pub fn quantity(value: f64, unit: &str) -> String {
    let scale = scale(value, unit);
    format!("{}{}", number_of(value * scale.factor, unit), scale.unit)
}

/// Formats the range of a median, in the median's scale and without its unit: `4.50 to 4.90`.
pub fn range(median: f64, min: f64, max: f64, unit: &str) -> String {
    let factor = scale(median, unit).factor;
    format!("{} to {}", number_of(min * factor, unit), number_of(max * factor, unit))
}

/// Formats the number of runs of the records: `one run`, `5 runs`, `3 to 5 runs`.
pub fn runs(records: &[&Record]) -> String {
    let fewest = records.iter().map(|record| record.runs).min().unwrap_or(0);
    let most = records.iter().map(|record| record.runs).max().unwrap_or(0);
    match (fewest, most) {
        (1, 1) => "one run".into(),
        _ if fewest == most => format!("{most} runs"),
        _ => format!("{fewest} to {most} runs"),
    }
}

/// Formats a ratio, for example `12.1x`.
pub fn ratio(value: f64) -> String {
    format!("{}x", number(value))
}

/// Formats the ratio of one of our figures, with a mark if we lose.
pub fn verdict(value: f64) -> String {
    if value < 1.0 { format!("{}, *lost*", ratio(value)) } else { ratio(value) }
}

/// Formats three significant digits, with commas: `0.690`, `4.70`, `113`, `79,100`.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let step = 10f64.powi(magnitude - 2);
    let rounded = (value / step).round() * step;
    // Rounding can reach the next power of ten.
    let magnitude = rounded.abs().log10().floor().max(f64::from(magnitude)) as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    commas(&format!("{rounded:.decimals$}"))
}

/// Like [`number`], but counts and shares keep all their digits.
pub fn number_of(value: f64, unit: &str) -> String {
    match unit {
        "ns" | "us" | "ms" | "s" | "B" | "1/s" => number(value),
        "%" => format!("{value:.2}"),
        _ if value.fract() == 0.0 => commas(&format!("{value:.0}")),
        _ => number(value),
    }
}

fn pick(value: f64, base: f64, units: &[(&str, f64)]) -> Scale {
    // A value that rounds up to 1000 belongs to the next unit.
    let size = value.abs() * base * 1.0005;
    let fits = units.iter().rev().find(|(_, unit)| size >= *unit).unwrap_or(&units[0]);
    Scale { factor: base / fits.1, unit: format!(" {}", fits.0) }
}

/// Formats the digits of a number with commas, for example `79,100`.
pub fn commas(digits: &str) -> String {
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    let count = whole.trim_start_matches('-').len();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if left % 3 == 0 && left < count {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_matter() {
        let cases = [
            (0.0, "0"),
            (0.6904, "0.690"),
            (0.0512, "0.0512"),
            (4.7, "4.70"),
            (9.996, "10.0"),
            (56.63, "56.6"),
            (99.96, "100"),
            (113.4, "113"),
            (999.9, "1,000"),
            (79_123.0, "79,100"),
            (1_234_567.0, "1,230,000"),
            (-1_234.0, "-1,230"),
            (-123.0, "-123"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn units_keep_the_number_short() {
        let cases = [
            (4.7, "ns", "4.70 ns"),
            (0.35, "ns", "0.350 ns"),
            (155_000.0, "ns", "155 us"),
            (999_900.0, "ns", "1.00 ms"),
            (14.5, "ms", "14.5 ms"),
            (0.71, "ms", "710 us"),
            (2_090.0, "ms", "2.09 s"),
            (8_405_088.0, "B", "8.41 MB"),
            (472.0, "B", "472 B"),
            (79_123.4, "1/s", "79,100/s"),
            (19_366.0, "requests", "19,366 requests"),
            (0.0, "requests", "0 requests"),
            (99.98, "%", "99.98 %"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(quantity(value, unit), text);
        }
    }

    #[test]
    fn a_range_keeps_the_scale_of_its_median() {
        assert_eq!(range(1_050.0, 980.0, 1_200.0, "ns"), "0.980 to 1.20");
    }
}
