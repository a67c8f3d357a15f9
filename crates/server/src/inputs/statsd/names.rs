//! Names of metrics: what a name of StatsD becomes, by the rules of a mapping or as it is.
//!
//! Characters that Prometheus does not have become underscores, as in statsd_exporter. Results of
//! rules are cached, since a rule costs a walk or a search and several allocations.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use quipu_segment::hash::Seeded;
use quipu_wire::remote::statsd::Name;

use super::mapping::{Class, Mapped, Mapping, Treatment};

/// Finds what names become. Each listener has its own.
#[derive(Debug)]
pub(super) struct Names {
    mapping: Option<Arc<Mapping>>,
    /// Whether all counters end in `_total`.
    suffixes: bool,
    cache: Cache,
    treatment: Treatment,
    /// A name that differs from that of the line, and a key of the cache; kept for their memory.
    text: String,
    key: String,
}

/// What a name becomes.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// The name of the metric; empty if a rule makes an empty one.
    pub(super) name: &'a str,
    /// The labels that a rule adds.
    pub(super) labels: &'a [(String, String)],
    /// Whether a tag outweighs a label of that rule.
    pub(super) honors_labels: bool,
    /// How the metric is kept; none if a rule drops it.
    pub(super) treatment: Option<&'a Treatment>,
}

impl Names {
    pub(super) fn new(mapping: Option<Arc<Mapping>>, suffixes: bool) -> Self {
        let treatment =
            mapping.as_ref().map_or_else(Treatment::default, |mapping| mapping.unmapped().clone());
        Self {
            mapping: mapping.filter(|mapping| !mapping.is_empty()),
            suffixes,
            cache: Cache::default(),
            treatment,
            text: String::new(),
            key: String::new(),
        }
    }

    /// What a name becomes.
    #[inline]
    pub(super) fn find<'a>(&'a mut self, name: Name<'a>, class: Class) -> Found<'a> {
        let suffix = if self.suffixes && class == Class::Counter { "_total" } else { "" };
        if let Some(mapping) = &self.mapping {
            self.key.clear();
            self.key.push(char::from(b'0' + class as u8));
            self.key.push_str(name.head);
            self.key.push_str(name.tail);
            let mapped = self.cache.find(&self.key, |key| {
                let mut mapped = mapping.find(&key[1..], class)?;
                mapped.name = escaped(&mapped.name, suffix);
                Some(mapped)
            });
            if let Some(mapped) = mapped {
                return Found {
                    name: &mapped.name,
                    labels: &mapped.labels,
                    honors_labels: mapping.honors_labels(mapped),
                    treatment: (!mapping.drops(mapped)).then(|| mapping.treatment(mapped)),
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
                escape_to(&mut self.text, [name.head, name.tail]);
                if !self.text.ends_with(suffix) {
                    self.text.push_str(suffix);
                }
                &self.text
            }
        };
        Found { name, labels: &[], honors_labels: false, treatment: Some(&self.treatment) }
    }
}

/// Whether a name stays as it is.
#[inline]
pub(super) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes.first(), Some(b'0'..=b'9'))
        && bytes.iter().fold(true, |all, byte| all & IS_PART[usize::from(*byte)])
}

/// The name with an underscore for each character that is not a letter or digit of ASCII, and before
/// a digit at its beginning. Of several dashes in a row, one is kept for them.
pub(super) fn escaped(name: &str, suffix: &str) -> String {
    let mut text = String::with_capacity(name.len() + 1);
    escape_to(&mut text, [name, ""]);
    if !text.is_empty() && !text.ends_with(suffix) {
        text.push_str(suffix);
    }
    text
}

fn escape_to(text: &mut String, name: [&str; 2]) {
    let mut before = None;
    for character in name[0].chars().chain(name[1].chars()) {
        if before.is_none() && character.is_ascii_digit() {
            text.push('_');
        }
        if character == '-' && before == Some('-') {
            continue;
        }
        let is_part = character.is_ascii_alphanumeric();
        text.push(if is_part { character } else { '_' });
        before = Some(character);
    }
}

const IS_PART: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    table
};

/// Results by name, of which the recently used ones are kept.
///
/// There are two tables: a name that is found in the older one moves to the newer one; when this is
/// full, it becomes the older one, and the results that were not used meanwhile are dropped.
#[derive(Debug, Default)]
struct Cache {
    newer: HashMap<Box<str>, Option<Mapped>, Seeded>,
    older: HashMap<Box<str>, Option<Mapped>, Seeded>,
    /// The result for a name that is too long to keep.
    long: Option<Mapped>,
}

impl Cache {
    #[inline]
    fn find(&mut self, key: &str, make: impl FnOnce(&str) -> Option<Mapped>) -> Option<&Mapped> {
        if key.len() > MAX_CACHED_NAME {
            self.long = make(key);
            return self.long.as_ref();
        }
        // Two look-ups for what is there: the borrow checker does not see that the first one ends.
        if !self.newer.contains_key(key) {
            self.add(key, make);
        }
        self.newer.get(key)?.as_ref()
    }

    #[cold]
    fn add(&mut self, key: &str, make: impl FnOnce(&str) -> Option<Mapped>) {
        let (key, mapped) = match self.older.remove_entry(key) {
            Some(found) => found,
            None => (key.into(), make(key)),
        };
        if self.newer.len() >= CACHED {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(key, mapped);
    }
}

/// Names in one table of a cache.
const CACHED: usize = 8192;
/// The longest name that a cache keeps. A name may be as long as a datagram.
const MAX_CACHED_NAME: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(head: &str) -> Name<'_> {
        Name { head, tail: "" }
    }

    #[test]
    fn names_are_escaped_as_statsd_exporter_does() {
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
        let mut names = Names::new(None, false);
        let parts = Name { head: "foo.", tail: "1-" };
        assert_eq!(names.find(parts, Class::Counter).name, "foo_1_");
    }

    #[test]
    fn counters_end_in_total_if_that_is_asked_for() {
        let mut names = Names::new(None, true);
        let mut find = |text, class| names.find(name(text), class).name.to_owned();
        assert_eq!(find("a", Class::Counter), "a_total");
        assert_eq!(find("a.b", Class::Counter), "a_b_total");
        assert_eq!(find("a_total", Class::Counter), "a_total");
        assert_eq!(find("a.total", Class::Counter), "a_total");
        assert_eq!(find("a", Class::Gauge), "a");
        assert_eq!(find("a", Class::Observer), "a");
    }

    #[test]
    fn a_cache_forgets_names_that_are_not_used() {
        let mut cache = Cache::default();
        let mut made = 0;
        for number in 0..100_000 {
            for key in [&format!("c{number}"), "often", &"x".repeat(600)] {
                let found = cache.find(key, |key| {
                    made += usize::from(key == "often");
                    None
                });
                assert!(found.is_none());
            }
        }
        assert_eq!(made, 1);
        assert!(cache.newer.len() <= CACHED && cache.older.len() <= CACHED);
    }
}
