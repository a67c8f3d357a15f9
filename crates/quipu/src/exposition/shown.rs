//! The names that an exposition shows: the names of families and of their samples.

use std::collections::HashSet;

use super::{Escaping, escape_name, underscored_name};
use crate::snapshot::Kind;

/// Returns the name of a counter's family: the name of its samples without the suffix `_total`. The
/// name `_total` is empty before its suffix, so it stays unchanged.
pub fn counter_stem(name: &str) -> &str {
    name.strip_suffix("_total").filter(|stem| !stem.is_empty()).unwrap_or(name)
}

/// Returns the unit that can be shown for a family; empty if there is none. OpenMetrics 1.0
/// requires that the name, without the suffix of its type, ends in an underscore and the unit,
/// because a reader refuses the whole exposition otherwise. `name` is the shown name, with the
/// suffix or without.
pub fn unit_of<'u>(name: &str, kind: Kind, unit: &'u str) -> &'u str {
    let base = match kind {
        Kind::Counter => counter_stem(name),
        // Infos and state sets never carry a unit.
        Kind::Info | Kind::StateSet => return "",
        _ => name,
    };
    let is_end = base.strip_suffix(unit).is_some_and(|rest| rest.len() > 1 && rest.ends_with('_'));
    let is_plain = || unit.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_end && is_plain() { unit } else { "" }
}

/// The names that are taken in an exposition with several sources. A reader would refuse the whole
/// exposition because of a duplicate name, so you can check here before you write a family.
#[derive(Debug, Clone, Default)]
pub struct ShownNames(HashSet<String>);

impl ShownNames {
    /// Takes all names under which a family is shown, with the suffixes that the formats add,
    /// escaped for readers that need it. Returns false, and takes none, if one of them is taken.
    pub fn take(&mut self, name: &str, kind: Kind) -> bool {
        let is_free = self.are_free(name, kind);
        if is_free {
            self.add(name, kind);
        }
        is_free
    }

    /// Takes all names under which a family is shown, also those that are taken.
    pub fn add(&mut self, name: &str, kind: Kind) {
        self.0.extend(Self::for_family(name, kind));
    }

    /// Returns whether all names that a family would be shown with are free.
    pub fn are_free(&self, name: &str, kind: Kind) -> bool {
        self.0.is_empty() || !Self::for_family(name, kind).any(|name| self.0.contains(&name))
    }

    /// Returns the escaped names that a family is shown with: the name of the family, and the names
    /// of its samples.
    pub fn for_family(name: &str, kind: Kind) -> impl Iterator<Item = String> + use<> {
        let suffixes: &[&str] = match kind {
            Kind::Counter => &["", "_total"],
            Kind::Histogram => &["", "_bucket", "_sum", "_count"],
            Kind::Summary => &["", "_sum", "_count"],
            Kind::Info => &["", "_info"],
            Kind::Gauge | Kind::StateSet | Kind::Unknown => &[""],
        };
        let mut escaped = String::new();
        escape_name(name, Escaping::Underscores, &mut escaped);
        suffixes.iter().map(move |suffix| format!("{escaped}{suffix}"))
    }
}

impl<'t> FromIterator<&'t str> for ShownNames {
    /// Takes names without any suffix, escaped like the names of families.
    fn from_iter<I: IntoIterator<Item = &'t str>>(names: I) -> Self {
        Self(names.into_iter().map(|name| underscored_name(name).into_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_taken_in_its_escaped_form() {
        let mut names = ShownNames::from_iter(["a.b", "c_total"]);
        assert!(!names.take("a_b", Kind::Gauge) && !names.take("a b", Kind::Gauge));
        assert!(!names.take("c", Kind::Counter) && names.take("c", Kind::Gauge));
    }

    #[test]
    fn a_unit_is_the_end_of_the_name_without_its_suffix() {
        for (name, kind, unit, expected) in [
            ("took_seconds_total", Kind::Counter, "seconds", "seconds"),
            ("took_seconds", Kind::Counter, "seconds", "seconds"),
            ("took_seconds", Kind::Histogram, "seconds", "seconds"),
            ("x_bytes_per_second", Kind::Gauge, "bytes_per_second", "bytes_per_second"),
            ("took", Kind::Gauge, "seconds", ""),
            ("seconds", Kind::Gauge, "seconds", ""),
            ("_seconds", Kind::Gauge, "seconds", ""),
            ("tookseconds", Kind::Gauge, "seconds", ""),
            // Only counters use this suffix.
            ("took_seconds_total", Kind::Gauge, "seconds", ""),
            ("took_seconds_total", Kind::Unknown, "seconds", ""),
            ("build_x_info", Kind::Gauge, "x", ""),
            ("build_x", Kind::Info, "x", ""),
            ("states_x", Kind::StateSet, "x", ""),
            ("took_", Kind::Gauge, "", ""),
            ("took_s\u{e9}", Kind::Gauge, "s\u{e9}", ""),
            ("took_a\nb", Kind::Gauge, "a\nb", ""),
        ] {
            assert_eq!(unit_of(name, kind, unit), expected, "{name:?} {kind:?} {unit:?}");
        }
    }
}
