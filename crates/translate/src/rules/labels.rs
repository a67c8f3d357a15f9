//! The labels of a sample while rules change them. The metric name is the label `__name__`.

use std::borrow::Cow;

/// The label that contains the metric name.
pub(super) const NAME: &str = "__name__";

/// A set of labels without empty values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Labels<'a> {
    pub(super) fn new(name: &'a str, labels: &[(&'a str, &'a str)]) -> Self {
        let filled = labels.iter().filter(|(_, value)| !value.is_empty());
        let named = [(NAME, name)].into_iter().chain(filled.copied());
        let mut pairs: Vec<_> = named.map(|(name, value)| (name.into(), value.into())).collect();
        // We sort like Prometheus, because the order can determine which label wins.
        pairs.sort();
        Self { pairs }
    }

    /// Creates the labels of a series, which include its name.
    pub(super) fn of_series(labels: &[(&'a str, &'a str)]) -> Self {
        let pairs = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort();
        Self { pairs }
    }

    /// Returns all labels sorted by name, including the metric name.
    pub(super) fn into_sorted(mut self) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        self.pairs.sort();
        self.pairs
    }

    /// Returns the value of a label, or an empty string if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.pairs.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    /// Returns a value that stays valid when the labels change.
    pub(super) fn copy(&self, name: &str) -> Cow<'a, str> {
        let found = self.pairs.iter().find(|(other, _)| other == name);
        found.map_or(Cow::Borrowed(""), |(_, value)| value.clone())
    }

    /// Sets a label; an empty value removes it. Returns whether this changed the labels.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        if self.get(name) == value {
            return false;
        }
        if value.is_empty() {
            self.pairs.retain(|(other, _)| other != name);
        } else if let Some(pair) = self.pairs.iter_mut().find(|(other, _)| other == name) {
            pair.1 = Cow::Owned(value.to_owned());
        } else {
            self.pairs.push((Cow::Owned(name.to_owned()), Cow::Owned(value.to_owned())));
        }
        true
    }

    /// Keeps only the labels for which `is_wanted` returns true. Returns whether this changed the
    /// labels.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|(name, _)| is_wanted(name));
        self.pairs.len() < before
    }

    /// Returns all labels, including the metric name.
    pub(super) fn all(&self) -> &[(Cow<'a, str>, Cow<'a, str>)] {
        &self.pairs
    }

    /// Returns all labels except the metric name.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        let others = self.pairs.iter().filter(|(name, _)| name != NAME);
        others.map(|(name, value)| (&**name, &**value)).collect()
    }
}
