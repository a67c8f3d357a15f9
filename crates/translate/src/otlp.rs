//! Translates the names of metrics, units and attributes from OTLP, with the same results as
//! Prometheus. For example, the gauge `network.io` with the unit `By/s` becomes
//! `network_io_bytes_per_second`.
//!
//! This follows Prometheus' package `otlptranslator`, version 1.0.0, and therefore the rules of
//! <https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>.

use std::borrow::Cow;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The strategy for translating names. The variants are named like the values of Prometheus'
/// setting `translation_strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[clap(rename_all = "verbatim")]
pub enum Translation {
    /// Units and types become suffixes. All characters except letters, digits and colons become
    /// underscores.
    UnderscoreEscapingWithSuffixes,
    /// Units and types become suffixes. All characters are kept.
    #[allow(non_camel_case_types, reason = "Prometheus' spelling")]
    NoUTF8EscapingWithSuffixes,
    /// All characters except letters, digits, colons and underscores become underscores.
    UnderscoreEscapingWithoutSuffixes,
    /// Names are unchanged.
    NoTranslation,
}

/// The type of a metric, as far as its name depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A gauge. A sum that rises and falls is not included.
    Gauge,
    /// Any other type.
    Other,
}

impl Translation {
    fn escapes(self) -> bool {
        matches!(
            self,
            Self::UnderscoreEscapingWithSuffixes | Self::UnderscoreEscapingWithoutSuffixes
        )
    }

    fn has_suffixes(self) -> bool {
        matches!(self, Self::UnderscoreEscapingWithSuffixes | Self::NoUTF8EscapingWithSuffixes)
    }

    /// Returns the name of a metric, or `None` if the translation removes every character.
    pub fn metric(self, name: &str, unit: &str, kind: Kind) -> Option<String> {
        if !self.escapes() {
            let named = if self.has_suffixes() { suffixed(name, unit, kind) } else { name.into() };
            return (!named.is_empty()).then_some(named);
        }
        let mut named = if self.has_suffixes() {
            escaped_with_suffixes(name, unit, kind)
        } else {
            let tokens = name.split(|c: char| !is_metric_char(c) && c != '_');
            tokens.filter(|token| !token.is_empty()).collect::<Vec<_>>().join("_")
        };
        if named.starts_with(|c: char| c.is_ascii_digit()) {
            named.insert(0, '_');
        }
        let is_left = named == name || named.contains(|c| c != '_');
        (is_left && !named.is_empty()).then_some(named)
    }

    /// Returns the unit, for example `bytes_per_second`; empty if there is none.
    pub fn unit(self, unit: &str) -> String {
        let (main, per) = unit_suffixes(unit);
        let (main, per) = (clean_unit(&main), clean_unit(&per));
        let joined = match (main.is_empty(), per.is_empty()) {
            (false, false) => format!("{main}_{per}"),
            (false, true) => main,
            (true, _) => per,
        };
        let joined = joined.strip_prefix('_').unwrap_or(&joined);
        joined.strip_suffix('_').unwrap_or(joined).to_owned()
    }

    /// Returns the label name for an attribute, or `None` if the translation removes all of its
    /// key.
    pub fn label(self, key: &str) -> Option<Cow<'_, str>> {
        let named = if self.escapes() { escaped_label(key) } else { Cow::Borrowed(key) };
        named.contains(|c| c != '_').then_some(named)
    }
}

fn is_metric_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

fn escaped_with_suffixes(name: &str, unit: &str, kind: Kind) -> String {
    let (main, per) = unit_suffixes(unit);
    let (mut main, mut per) = (clean_unit(&main), clean_unit(&per));
    let tokens = name.split(|c| !is_metric_char(c)).filter(|token| !token.is_empty());
    let mut tokens: Vec<&str> = tokens.collect();
    if tokens.contains(&main.as_str()) {
        main.clear();
    }
    if per == "per_" {
        per.clear();
    }
    let per = per.strip_suffix('_').unwrap_or(&per);
    let per = if tokens.contains(&per) { "" } else { per };
    let main = if per.is_empty() { &main[..] } else { main.strip_suffix('_').unwrap_or(&main) };
    tokens.extend([main, per].into_iter().filter(|suffix| !suffix.is_empty()));
    let mut end_in = |suffix| {
        tokens.retain(|token| *token != suffix);
        tokens.push(suffix);
    };
    if kind == Kind::Counter {
        end_in("total");
    }
    if kind == Kind::Gauge && unit == "1" {
        end_in("ratio");
    }
    tokens.join("_")
}

/// Returns the name with suffixes, and with all of its characters.
fn suffixed(name: &str, unit: &str, kind: Kind) -> String {
    let mut name = name;
    let mut last = "";
    if kind == Kind::Gauge && unit == "1" {
        (name, last) = (trimmed(name, "ratio"), "_ratio");
    }
    if kind == Kind::Counter {
        (name, last) = (trimmed(name, "total"), "_total");
    }
    let (main, per) = unit_suffixes(unit);
    if !per.is_empty() {
        name = trimmed(name, &per);
    }
    let mut named = name.to_owned();
    if !main.is_empty() && !name.ends_with(&*main) {
        named.push('_');
        named.push_str(&main);
    }
    if !per.is_empty() {
        named.push('_');
        named.push_str(&per);
    }
    named + last
}

/// Removes a suffix and the character before it, unless no character would remain.
fn trimmed<'a>(name: &'a str, suffix: &str) -> &'a str {
    match name.strip_suffix(suffix) {
        // Prometheus cuts one byte. If this byte is not a whole character, we keep the name.
        Some(rest) if rest.len() > 1 => rest.get(..rest.len() - 1).unwrap_or(name),
        _ => name,
    }
}

/// Returns the suffixes for a unit such as `By/s`: for the unit itself, and `per_` with its
/// divisor. Annotations in braces produce no suffix.
fn unit_suffixes(unit: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let is_unit = |text: &&str| !text.is_empty() && !text.contains(['{', '}']);
    let main = Some(main.trim()).filter(is_unit).map_or("", |main| word(UNITS, main));
    let per = Some(per.trim()).filter(is_unit).map_or("", |per| word(PER_UNITS, per));
    let per = if per.is_empty() { Cow::Borrowed("") } else { format!("per_{per}").into() };
    (main.into(), per)
}

fn word<'a>(words: &[(&str, &'a str)], unit: &'a str) -> &'a str {
    words.iter().find(|(short, _)| *short == unit).map_or(unit, |(_, word)| word)
}

/// Replaces invalid characters in a unit by single underscores, but not at the start.
fn clean_unit(unit: &str) -> String {
    let mut clean = String::with_capacity(unit.len());
    for c in unit.chars() {
        let c = if is_metric_char(c) { c } else { '_' };
        if c != '_' || !(clean.ends_with('_') || clean.is_empty()) {
            clean.push(c);
        }
    }
    clean
}

fn escaped_label(key: &str) -> Cow<'_, str> {
    let reserved = key.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    let inner = reserved.unwrap_or(key);
    let mut last = ' ';
    let is_kept = |c: char| c.is_ascii_alphanumeric();
    let is_clean = inner.chars().all(|c| {
        let before = std::mem::replace(&mut last, c);
        is_kept(c) || (c == '_' && before != '_')
    });
    let starts_with_digit = reserved.is_none() && key.starts_with(|c: char| c.is_ascii_digit());
    if is_clean && !starts_with_digit {
        return Cow::Borrowed(key);
    }
    let mut escaped = String::with_capacity(key.len() + 4);
    if starts_with_digit {
        escaped.push_str("key_");
    }
    let mut is_gap = false;
    for c in inner.chars() {
        if is_kept(c) {
            escaped.push(c);
        } else if !is_gap {
            escaped.push('_');
        }
        is_gap = !is_kept(c);
    }
    if reserved.is_some() { format!("__{escaped}__").into() } else { escaped.into() }
}

/// Returns the UCUM unit for words, such as `By/s` for `bytes_per_second`. Unknown words stay
/// unchanged.
pub fn ucum(unit: &str) -> Cow<'_, str> {
    let short = |units: &[(&'static str, &str)], unit: &str| {
        units.iter().find(|(_, word)| *word == unit).map(|(short, _)| *short)
    };
    match unit {
        "" => "".into(),
        "ratio" => "1".into(),
        unit => match unit.split_once("_per_") {
            None => short(UNITS, unit).unwrap_or(unit).into(),
            Some((main, per)) => match (short(UNITS, main), short(PER_UNITS, per)) {
                (Some(main), Some(per)) => format!("{main}/{per}").into(),
                _ => unit.into(),
            },
        },
    }
}

/// UCUM units and their words.
const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

/// UCUM divisors and their words.
const PER_UNITS: &[(&str, &str)] = &[
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// The attribute of a resource that becomes `job`.
pub const NAME: &str = "service.name";
/// The attribute that precedes [`NAME`] in `job`, separated by a slash.
pub const NAMESPACE: &str = "service.namespace";
/// The attribute that becomes `instance`.
pub const INSTANCE: &str = "service.instance.id";

#[cfg(test)]
mod tests {
    use super::Kind::{Counter, Gauge, Other};
    use super::Translation::{
        NoTranslation, NoUTF8EscapingWithSuffixes, UnderscoreEscapingWithSuffixes,
        UnderscoreEscapingWithoutSuffixes,
    };
    use super::*;

    #[test]
    fn names_get_the_suffixes_of_their_unit_and_type() {
        let with = UnderscoreEscapingWithSuffixes;
        for (name, unit, kind, expected) in [
            ("http.server.duration", "s", Other, "http_server_duration_seconds"),
            ("http.requests", "{request}", Counter, "http_requests_total"),
            ("total.requests", "1", Counter, "requests_total"),
            ("disk.used", "1", Gauge, "disk_used_ratio"),
            ("network.io", "By/s", Gauge, "network_io_bytes_per_second"),
            ("bytes.sent", "By", Counter, "bytes_sent_total"),
            ("2nd", "", Other, "_2nd"),
            ("a__b..c", "", Other, "a_b_c"),
            ("x", "my unit%", Other, "x_my_unit_"),
        ] {
            assert_eq!(with.metric(name, unit, kind).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(with.metric("...", "", Other), None);
        assert_eq!(with.metric("", "s", Other).as_deref(), Some("seconds"));
    }

    #[test]
    fn each_strategy_keeps_what_it_says() {
        let names = |translation: Translation| {
            [("a.b_total", "By", Counter), ("\u{e9}.x", "1", Gauge)]
                .map(|(name, unit, kind)| translation.metric(name, unit, kind).unwrap())
        };
        assert_eq!(names(UnderscoreEscapingWithSuffixes), ["a_b_bytes_total", "x_ratio"]);
        assert_eq!(names(NoUTF8EscapingWithSuffixes), ["a.b_bytes_total", "\u{e9}.x_ratio"]);
        assert_eq!(names(UnderscoreEscapingWithoutSuffixes), ["a_b_total", "x"]);
        assert_eq!(names(NoTranslation), ["a.b_total", "\u{e9}.x"]);
    }

    #[test]
    fn keys_become_names_of_labels() {
        let label = |key| UnderscoreEscapingWithSuffixes.label(key).map(Cow::into_owned);
        for (key, expected) in [
            ("http.method", "http_method"),
            ("plain_name", "plain_name"),
            ("a..b__c", "a_b_c"),
            ("1st", "key_1st"),
            ("_x", "_x"),
            ("__reserved.name__", "__reserved_name__"),
        ] {
            assert_eq!(label(key).as_deref(), Some(expected));
        }
        assert_eq!((label(""), label("..."), label("____")), (None, None, None));
        assert_eq!(NoTranslation.label("a.b").as_deref(), Some("a.b"));
    }

    #[test]
    fn units_are_words() {
        let unit = |unit| UnderscoreEscapingWithSuffixes.unit(unit);
        assert_eq!(unit("By/s"), "bytes_per_second");
        assert_eq!([unit("1"), unit("{call}"), unit("")], ["", "", ""]);
        assert_eq!(unit("m^2"), "m_2");
        for short in ["By/s", "s", "Cel", "V"] {
            assert_eq!(ucum(&unit(short)), short);
        }
        assert_eq!(["ratio", "", "parsecs", "a_per_b"].map(ucum), ["1", "", "parsecs", "a_per_b"]);
    }

    /// Compares with names that Prometheus' own package translated. You can run this with `make
    /// judge-otlp`.
    #[test]
    #[ignore = "needs the names of a program in Go"]
    fn prometheus_translates_names_alike() {
        let names = std::env::var_os("QUIPU_OTLP_NAMES").expect("the file of `make judge-otlp`");
        let names = std::fs::read_to_string(names).unwrap();
        let (mut all, mut alike) = (0, 0);
        for line in names.lines() {
            let [strategy, kind, name, unit, metric, word, label]: [String; 7] =
                serde_json::from_str(line).unwrap();
            let translation = Translation::from_str(&strategy, false).unwrap();
            let kind = match &*kind {
                "counter" => Counter,
                "gauge" => Gauge,
                _ => Other,
            };
            let ours = [
                translation.metric(&name, &unit, kind).unwrap_or_default(),
                translation.unit(&unit),
                translation.label(&name).unwrap_or_default().into_owned(),
            ];
            all += 1;
            if ours == [&*metric, &*word, &*label] {
                alike += 1;
            } else {
                eprintln!("{line}: {ours:?}");
            }
        }
        eprintln!("{alike} of {all} names are alike");
        assert!(all > 0 && alike == all);
    }
}
