//! Converts the names of lines to metric names, by the rules of a mapping file, if any.
//!
//! Characters that Prometheus does not allow become underscores, like in statsd_exporter. The
//! results are cached, because a match costs a search in a tree or with regular expressions, and
//! several allocations.

use std::sync::Arc;

use quipu_wire::remote::statsd::Name;

use super::cache::BoundedCache;
use super::mapping::{Mapping, MetricClass, RuleMatch, Treatment};

/// Converts the names of lines. Each listener uses a separate resolver with a separate cache.
#[derive(Debug)]
pub(crate) struct NameResolver {
    mapping: Option<Arc<Mapping>>,
    /// Whether the names of all counters end in `_total`.
    suffixes: bool,
    /// The cached results of matching names against the rules.
    cache: BoundedCache<Option<RuleMatch>>,
    /// The result for a name that is too long to cache.
    uncached: Option<RuleMatch>,
    treatment: Treatment,
    /// Reused buffers for an escaped name, and for a key of the cache.
    text: Vec<u8>,
    key: String,
}

/// The metric of a line, without the labels from its tags.
#[derive(Debug)]
pub(crate) struct ResolvedName<'a> {
    /// The metric name; empty if the templates of the rule produce an empty name.
    pub(crate) name: &'a str,
    /// The labels that the rule adds.
    pub(crate) labels: &'a [(String, String)],
    /// Whether a tag overrides a label of the rule with the same name.
    pub(crate) honors_labels: bool,
    /// The properties of the metric; `None` if the rule drops it.
    pub(crate) treatment: Option<&'a Treatment>,
}

impl NameResolver {
    pub(super) fn new(mapping: Option<Arc<Mapping>>, suffixes: bool) -> Self {
        let treatment =
            mapping.as_ref().map_or_else(Treatment::default, |mapping| mapping.unmapped().clone());
        Self {
            mapping: mapping.filter(|mapping| !mapping.is_empty()),
            suffixes,
            cache: BoundedCache::default(),
            uncached: None,
            treatment,
            text: Vec::new(),
            key: String::new(),
        }
    }

    /// Returns the metric of a line with this name.
    #[inline]
    pub(crate) fn resolve<'a>(
        &'a mut self,
        name: Name<'a>,
        class: MetricClass,
    ) -> ResolvedName<'a> {
        let suffix = if self.suffixes && class == MetricClass::Counter { "_total" } else { "" };
        if let Some(mapping) = &self.mapping {
            self.key.clear();
            self.key.push(char::from(b'0' + class as u8));
            self.key.push_str(name.head);
            self.key.push_str(name.tail);
            let make = |key: &str| {
                let mut rule_match = mapping.find(&key[1..], class)?;
                rule_match.name = escaped(&rule_match.name, suffix);
                Some(rule_match)
            };
            let rule_match = if self.key.len() > MAX_CACHED_NAME {
                self.uncached = make(&self.key);
                self.uncached.as_ref()
            } else {
                self.cache.get_or_insert_with(&self.key, make).and_then(Option::as_ref)
            };
            if let Some(rule_match) = rule_match {
                return ResolvedName {
                    name: &rule_match.name,
                    labels: &rule_match.labels,
                    honors_labels: mapping.honors_labels(rule_match),
                    treatment: (!mapping.drops(rule_match)).then(|| mapping.treatment(rule_match)),
                };
            }
        }
        let is_whole = name.tail.is_empty()
            && is_name(name.head)
            && (suffix.is_empty() || name.head.ends_with(suffix));
        let name = match is_whole {
            true => name.head,
            false => {
                self.text.clear();
                escape_to(&mut self.text, name.head, name.tail, suffix);
                // Escaped names are ASCII.
                str::from_utf8(&self.text).unwrap_or_default()
            }
        };
        ResolvedName { name, labels: &[], honors_labels: false, treatment: Some(&self.treatment) }
    }
}

/// Returns whether a name can be used without escaping.
#[inline]
pub(crate) fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit()) && traits(name) == 0
}

/// Escapes a name: replaces each character that is not an ASCII letter or digit with an underscore,
/// several dashes in a row with one underscore, and adds an underscore before a leading digit.
pub(super) fn escaped(name: &str, suffix: &str) -> String {
    let mut text = Vec::with_capacity(name.len() + 1);
    if !name.is_empty() {
        escape_to(&mut text, name, "", suffix);
    }
    // Escaped names are ASCII.
    String::from_utf8(text).unwrap_or_default()
}

fn escape_to(text: &mut Vec<u8>, head: &str, tail: &str, suffix: &str) {
    if head.starts_with(|first: char| first.is_ascii_digit())
        || head.is_empty() && tail.starts_with(|first: char| first.is_ascii_digit())
    {
        text.push(b'_');
    }
    if (traits(head) | traits(tail)) & IS_HARD == 0 {
        for part in [head, tail] {
            text.extend(part.bytes().map(|byte| ESCAPED[usize::from(byte)]));
        }
    } else {
        let mut before = None;
        for character in head.chars().chain(tail.chars()) {
            if character == '-' && before == Some('-') {
                continue;
            }
            text.push(if character.is_ascii_alphanumeric() { character as u8 } else { b'_' });
            before = Some(character);
        }
    }
    if !text.ends_with(suffix.as_bytes()) {
        text.extend_from_slice(suffix.as_bytes());
    }
}

/// Returns the properties of all bytes of a name, as bits.
#[inline]
fn traits(name: &str) -> u8 {
    name.bytes().fold(0, |all, byte| all | TRAITS[usize::from(byte)])
}

/// The byte becomes an underscore.
const IS_STRANGE: u8 = 1;
/// The result depends on the neighbouring bytes, for example for a dash or a part of a UTF-8
/// character.
const IS_HARD: u8 = 2;

const TRAITS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => 0,
            b'-' | 0x80.. => IS_STRANGE | IS_HARD,
            _ => IS_STRANGE,
        };
        byte += 1;
    }
    table
};

const ESCAPED: [u8; 256] = {
    let mut table = [b'_'; 256];
    let mut byte = 0;
    while byte < 256 {
        if TRAITS[byte] == 0 {
            table[byte] = byte as u8;
        }
        byte += 1;
    }
    table
};

/// The maximum length of a cached name in bytes. This is limited because a name can be as long as a
/// datagram.
const MAX_CACHED_NAME: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(head: &str) -> Name<'_> {
        Name { head, tail: "" }
    }

    #[test]
    fn names_are_escaped_like_in_statsd_exporter() {
        for (from, to) in [
            ("clean", "clean"),
            ("0starts_with_digit", "_0starts_with_digit"),
            ("with.dots", "with_dots"),
            ("with-dash", "with_dash"),
            ("a--b---c-d", "a_b_c_d"),
            ("__", "__"),
            ("with\u{e9}\u{1f600}.", "with___"),
            ("-a", "_a"),
            ("a:b c", "a_b_c"),
            ("", ""),
        ] {
            assert_eq!(escaped(from, ""), to, "{from}");
            assert_eq!(is_name(from), from == to, "{from}");
        }
        let mut names = NameResolver::new(None, false);
        let parts = Name { head: "foo.", tail: "1-" };
        assert_eq!(names.resolve(parts, MetricClass::Counter).name, "foo_1_");
    }

    #[test]
    fn counters_end_in_total_if_that_is_asked_for() {
        let mut names = NameResolver::new(None, true);
        let mut find = |text, class| names.resolve(name(text), class).name.to_owned();
        assert_eq!(find("a", MetricClass::Counter), "a_total");
        assert_eq!(find("a.b", MetricClass::Counter), "a_b_total");
        assert_eq!(find("a_total", MetricClass::Counter), "a_total");
        assert_eq!(find("a.total", MetricClass::Counter), "a_total");
        assert_eq!(find("a", MetricClass::Gauge), "a");
        assert_eq!(find("a", MetricClass::Observer), "a");
    }
}
