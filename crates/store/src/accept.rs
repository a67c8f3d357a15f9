//! The rules for updates: which of them a store accepts, and which value it keeps. All stores use
//! these rules, so they agree.

use crate::interface::{Kind, Spec};

impl Spec {
    /// Returns whether there is one value for each label.
    #[inline]
    pub(crate) fn fits(&self, labels: &[&str]) -> bool {
        labels.len() == self.labels.len()
    }

    /// Returns whether an increment of `by` is kept: not NaN, and not negative for a counter.
    #[inline]
    pub(crate) fn accepts(&self, by: f64) -> bool {
        !by.is_nan() && (by >= 0.0 || self.kind != Kind::Counter)
    }

    /// Returns the value of a series, `old` if there is one, after it was set to `value`. A
    /// cumulative series starts at 0 and never falls; setting it to NaN only creates it.
    pub(crate) fn after_set(&self, old: Option<f64>, value: f64) -> f64 {
        match old {
            _ if !self.is_cumulative() => value,
            Some(old) if value > old.max(0.0) => value,
            Some(old) => old,
            None => value.max(0.0),
        }
    }
}
