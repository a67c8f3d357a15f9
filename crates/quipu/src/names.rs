//! The rules for names of metrics and labels, checked at registration and by the derives at compile
//! time; and sorted lists of names.

use std::sync::Arc;

use crate::error::Error;
use crate::exposition::{is_legacy_label, underscored_label};
use crate::snapshot::Kind;

/// Checks the name of a metric. Any UTF-8 is valid, because Prometheus 3 can read it and older
/// versions get an escaped name. Names that collide with a suffix of the formats are rejected,
/// unless `verbatim` is true because the program writes such names itself.
pub(crate) fn check_metric(name: &str, verbatim: bool) -> Result<(), Error> {
    metric_fault(name, verbatim).map_or(Ok(()), |fault| Err(Error::invalid(name, fault)))
}

/// Checks the name of a label.
pub(crate) fn check_label(metric: &str, name: &str, verbatim: bool) -> Result<(), Error> {
    label_fault(name, verbatim)
        .or_else(|| escaped_label_fault(name))
        .map_or(Ok(()), |fault| Err(Error::invalid(metric, format!("label {name:?}: {fault}"))))
}

/// Returns whether another program can use this name for a metric, with any suffix.
pub(crate) fn is_metric(name: &str) -> bool {
    metric_fault(name, true).is_none()
}

/// Returns whether another program can use this name for a label.
pub(crate) fn is_label(name: &str) -> bool {
    label_fault(name, true).is_none() && escaped_label_fault(name).is_none()
}

/// Returns the fault of a label's name for readers that get it escaped, if any.
fn escaped_label_fault(name: &str) -> Option<&'static str> {
    let is_reserved = !is_legacy_label(name)
        && ["__name__", "__type__", "__unit__", "quipu_overflow"]
            .contains(&&*underscored_label(name));
    is_reserved.then_some(RESERVED)
}

/// Returns the label that the formats add to the samples of a kind. Its series cannot use this
/// label.
pub(crate) fn label_of_samples(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Histogram => Some("le"),
        Kind::Summary => Some("quantile"),
        _ => None,
    }
}

/// Checks the name of a metric at compile time, for the code that `Metrics`' derive generates.
///
/// # Panics
/// If the name is invalid.
#[track_caller]
pub const fn assert_metric(name: &str) {
    if let Some(fault) = metric_fault(name, false) {
        panic!("{}", fault);
    }
}

/// Checks the name of a label at compile time, for the code that `LabelGroup`'s derive generates.
///
/// # Panics
/// If the name is invalid.
#[track_caller]
pub const fn assert_label(name: &str) {
    if let Some(fault) = label_fault(name, false) {
        panic!("{}", fault);
    }
}

/// Checks the names of all labels of a metric at compile time, for the macros.
///
/// # Panics
/// If a name is invalid, or appears twice.
#[track_caller]
pub const fn assert_labels(names: &[&str]) {
    let mut rest = names;
    while let [name, others @ ..] = rest {
        assert_label(name);
        let mut next = others;
        while let [other, others @ ..] = next {
            assert!(
                !is_equal(name.as_bytes(), other.as_bytes()),
                "a label appears twice: rename one"
            );
            next = others;
        }
        rest = others;
    }
}

/// Returns the fault of a metric's name, if any.
const fn metric_fault(name: &str, verbatim: bool) -> Option<&'static str> {
    let fault = text_fault(name);
    if fault.is_some() || verbatim {
        return fault;
    }
    let mut rest = SUFFIXES;
    while let [(suffix, fault), others @ ..] = rest {
        if ends_with(name.as_bytes(), suffix.as_bytes()) {
            return Some(fault);
        }
        rest = others;
    }
    None
}

/// Returns the fault of a label's name, if any.
const fn label_fault(name: &str, verbatim: bool) -> Option<&'static str> {
    let fault = text_fault(name);
    if fault.is_some() {
        return fault;
    }
    match name.as_bytes() {
        [b'_', b'_', ..] => {
            Some("the name begins with \"__\", which Prometheus reserves: choose another")
        }
        b"quipu_overflow" => Some(RESERVED),
        b"le" | b"quantile" if !verbatim => Some(RESERVED),
        _ => None,
    }
}

const RESERVED: &str = "the name is reserved for the formats: choose another";

/// Returns the fault of any name, if any.
const fn text_fault(name: &str) -> Option<&'static str> {
    let mut rest = name.as_bytes();
    if rest.is_empty() {
        return Some("the name is empty: choose one");
    }
    while let [byte, others @ ..] = rest {
        if matches!(byte, b'\n' | b'\0') {
            return Some("the name contains a line feed or NUL: remove it");
        }
        rest = others;
    }
    None
}

/// Returns whether two names are equal, at compile time.
pub(crate) const fn is_equal(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && ends_with(name, other)
}

const fn ends_with(name: &[u8], suffix: &[u8]) -> bool {
    let (mut name, mut suffix) = (name, suffix);
    while let [others @ .., last] = suffix {
        match name {
            [before @ .., byte] if *byte == *last => (name, suffix) = (before, others),
            _ => return false,
        }
    }
    true
}

macro_rules! suffixes {
    ($($suffix:literal)*) => {
        &[$(($suffix, concat!(
            "the name ends in \"", $suffix, "\", which the formats add: leave it out"
        ))),*]
    };
}

/// Suffixes that the formats add to names, each with its error message.
const SUFFIXES: &[(&str, &str)] =
    suffixes!["_total" "_created" "_bucket" "_count" "_sum" "_info" "_gcount" "_gsum"];

/// Finds a name in a sorted list; if it is not in the list, returns the position to insert it.
pub(crate) fn find(names: &[Arc<str>], name: &str) -> Result<usize, usize> {
    names.binary_search_by(|other| (**other).cmp(name))
}

/// Returns a copy of a list with a name inserted.
pub(crate) fn with(names: &[Arc<str>], at: usize, name: &str) -> Vec<Arc<str>> {
    let (before, after) = names.split_at(at);
    before.iter().cloned().chain([name.into()]).chain(after.iter().cloned()).collect()
}

/// Returns a copy of a list without one name.
pub(crate) fn without(names: &[Arc<str>], at: usize) -> Vec<Arc<str>> {
    names[..at].iter().chain(&names[at + 1..]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_faults_unless_they_are_meant() {
        for (suffix, fault) in SUFFIXES {
            let name = format!("a{suffix}");
            assert_eq!(metric_fault(&name, false), Some(*fault));
            assert_eq!(metric_fault(suffix, false), Some(*fault));
            assert!(fault.contains(suffix));
            assert_eq!(metric_fault(&name, true), None);
        }
        for name in ["total", "_tota", "a_total_", "a_totam", "caf\u{e9}.x y"] {
            assert_eq!(metric_fault(name, false), None, "{name}");
        }
        for name in ["le", "quantile"] {
            assert_eq!(label_fault(name, false), Some(RESERVED));
            assert_eq!(label_fault(name, true), None);
        }
        for name in ["l", "lee", "_le", "requests_total"] {
            assert_eq!(label_fault(name, false), None, "{name}");
        }
        for name in ["", "a\n", "\0"] {
            assert!(metric_fault(name, true).is_some() && label_fault(name, true).is_some());
        }
        for name in ["__", "__name", "quipu_overflow"] {
            assert!(label_fault(name, true).is_some(), "{name}");
        }
    }
}
