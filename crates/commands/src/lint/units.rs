//! The units in names that Prometheus' promlint knows.

/// The units, each with the recommended base unit.
const UNITS: [(&str, &str); 24] = [
    ("amperes", "amperes"),
    ("bytes", "bytes"),
    ("celsius", "celsius"),
    ("grams", "grams"),
    ("joules", "joules"),
    ("kelvin", "kelvin"),
    ("meters", "meters"),
    ("metres", "metres"),
    ("seconds", "seconds"),
    ("volts", "volts"),
    ("minutes", "seconds"),
    ("hours", "seconds"),
    ("days", "seconds"),
    ("weeks", "seconds"),
    ("kelvins", "kelvin"),
    ("fahrenheit", "celsius"),
    ("rankine", "celsius"),
    ("inches", "meters"),
    ("yards", "meters"),
    ("miles", "meters"),
    ("bits", "bytes"),
    ("calories", "joules"),
    ("pounds", "grams"),
    ("ounces", "grams"),
];

const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mebi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
];

/// The abbreviations that names should avoid.
pub(super) const ABBREVIATIONS: [&str; 14] =
    ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];

/// Finds the first unit in a name. Returns the unit and its base unit.
pub(super) fn find_unit(name: &str) -> Option<(&str, &'static str)> {
    let base = |unit: &str| UNITS.iter().find(|(name, _)| *name == unit).map(|(_, base)| *base);
    name.split('_').find_map(|word| {
        let prefixed = || PREFIXES.iter().find_map(|prefix| base(word.strip_prefix(prefix)?));
        Some((word, base(word).or_else(prefixed)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unit_in_a_name_is_found() {
        assert_eq!(
            find_unit("request_duration_milliseconds_total"),
            Some(("milliseconds", "seconds"))
        );
        assert_eq!(find_unit("x_bytes"), Some(("bytes", "bytes")));
        assert_eq!(find_unit("kibibits"), Some(("kibibits", "bytes")));
        assert_eq!(find_unit("x_minutes_seconds"), Some(("minutes", "seconds")));
        assert_eq!(find_unit("second_kilo_x"), None);
    }
}
