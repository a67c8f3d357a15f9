//! Units in names, as Prometheus' promlint knows them.

/// Units, and the base unit that a name should have instead.
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

/// What names should not have instead of a unit.
pub(super) const ABBREVIATIONS: [&str; 14] =
    ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];

/// The first unit in a name, and its base unit.
pub(super) fn of_name(name: &str) -> Option<(&str, &'static str)> {
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
    fn units_are_found_in_names() {
        assert_eq!(
            of_name("request_duration_milliseconds_total"),
            Some(("milliseconds", "seconds"))
        );
        assert_eq!(of_name("x_bytes"), Some(("bytes", "bytes")));
        assert_eq!(of_name("kibibits"), Some(("kibibits", "bytes")));
        assert_eq!(of_name("x_minutes_seconds"), Some(("minutes", "seconds")));
        assert_eq!(of_name("second_kilo_x"), None);
    }
}
