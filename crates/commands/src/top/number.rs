//! Formats numbers for the columns of `quipu top`, in at most ten characters.

/// Formats a number in at most ten characters: whole numbers below 10^9 in full, others with four
/// digits and a letter for thousands.
pub(super) fn short(n: f64) -> String {
    let size = n.abs();
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if size < 1e9 && n.fract() == 0.0 {
        return format!("{n:.0}");
    }
    if !(1e-4..1e18).contains(&size) {
        return format!("{n:.2e}");
    }
    if size < 1e5 {
        return digits(n);
    }
    let mut rest = n;
    for letter in ["k", "M", "G", "T", "P"] {
        rest /= 1000.0;
        if rest.abs() < 999.95 || letter == "P" {
            return digits(rest) + letter;
        }
    }
    digits(rest)
}

/// Formats four digits, without zeros at the end of a fraction.
fn digits(n: f64) -> String {
    let size = n.abs();
    let places = match size {
        _ if size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ if size >= 1.0 => 3,
        _ if size >= 0.1 => 4,
        _ if size >= 0.01 => 5,
        _ => 6,
    };
    let text = format!("{n:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a count, with a comma between thousands.
pub(super) fn count(n: usize) -> String {
    let text = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_at_most_ten_characters() {
        for (n, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (7.0, "7"),
            (999_999_999.0, "999999999"),
            (-1234.5, "-1234"),
            (12.345, "12.35"),
            (0.001_234, "0.001234"),
            (0.1, "0.1"),
            (1e-7, "1.00e-7"),
            (123_456.7, "123.5k"),
            (1e9, "1G"),
            (1_234_567_890_123.0, "1.235T"),
            (1.8e19, "1.80e19"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(short(n), text);
        }
        for exponent in -40..40 {
            for n in [-1.0, 9.999_999, 0.99995] {
                let text = short(n * 10_f64.powi(exponent));
                assert!(text.len() <= 10, "{text}");
            }
        }
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
