//! The rules for names of metrics and labels, checked at registration; and sets of names.

use std::sync::Arc;

use quipu_segment::ForkSafeCell;

use crate::error::Error;

/// Suffixes that the formats add to names.
const RESERVED: [&str; 8] =
    ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"];

/// Checks the name of a metric. Any UTF-8 is valid: Prometheus 3 reads it, and older versions get
/// an escaped name. Names that collide with a suffix of the formats are rejected, unless `verbatim`
/// says that the program writes such names itself.
pub(crate) fn check_metric(name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid(name, "a metric without a name; give it one"));
    }
    if name.contains(['\n', '\0']) {
        return Err(Error::invalid(name, "its name contains a line feed or NUL: remove it"));
    }
    if verbatim {
        return Ok(());
    }
    if let Some(suffix) = RESERVED.iter().find(|suffix| name.ends_with(*suffix)) {
        let what = format!("its name ends in {suffix:?}, which the formats add: leave it out");
        return Err(Error::invalid(name, what));
    }
    Ok(())
}

/// Checks the name of a label.
pub(crate) fn check_label(metric: &str, name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() || name.contains(['\n', '\0']) {
        let what = format!("label name {name:?} is empty or has a line feed or NUL: rename it");
        return Err(Error::invalid(metric, what));
    }
    if name.starts_with("__") {
        let what =
            format!("the label {name:?} begins with \"__\", which Prometheus reserves: rename it");
        return Err(Error::invalid(metric, what));
    }
    if name == "quipu_overflow" || !verbatim && matches!(name, "le" | "quantile") {
        let what = format!("the label {name:?} is reserved for the formats: rename it");
        return Err(Error::invalid(metric, what));
    }
    Ok(())
}

/// A set of names, split into parts by hash: adding or removing a name copies one part only.
pub(crate) struct Names {
    parts: [ForkSafeCell<Vec<Arc<str>>>; NAME_PARTS],
}

const NAME_PARTS: usize = 64;

impl Default for Names {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| ForkSafeCell::default()) }
    }
}

impl Names {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.part(name).read(|names| find(names, name).is_ok())
    }

    /// Adds a name; returns false if it is there already.
    pub(crate) fn claim(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(_) => (None, false),
            Err(at) => (Some(with(names, at, name)), true),
        })
    }

    /// Removes a name; returns false if it is not there.
    pub(crate) fn release(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(at) => (Some(without(names, at)), true),
            Err(_) => (None, false),
        })
    }

    fn part(&self, name: &str) -> &ForkSafeCell<Vec<Arc<str>>> {
        let hash = quipu_segment::hash::fnv1a(name.as_bytes());
        &self.parts[(hash >> 32) as usize % NAME_PARTS]
    }
}

/// Finds a name in a sorted list; returns where it belongs if it is not there.
pub(crate) fn find(names: &[Arc<str>], name: &str) -> Result<usize, usize> {
    names.binary_search_by(|other| (**other).cmp(name))
}

/// A copy of a list with a name inserted.
pub(crate) fn with(names: &[Arc<str>], at: usize, name: &str) -> Vec<Arc<str>> {
    let (before, after) = names.split_at(at);
    before.iter().cloned().chain([name.into()]).chain(after.iter().cloned()).collect()
}

/// A copy of a list without one name.
pub(crate) fn without(names: &[Arc<str>], at: usize) -> Vec<Arc<str>> {
    names[..at].iter().chain(&names[at + 1..]).cloned().collect()
}
