//! How names, labels and bounds are written in the line-based formats.

use super::escape::{self, Escaping, is_legacy_label};
use super::number;

/// The dialect, which determines the rules of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Dialect {
    #[default]
    Text,
    OpenMetrics,
    OpenMetrics2,
}

/// Appends a bound.
pub(super) type PutBound = fn(f64, &mut Vec<u8>);

/// The style of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    pub(super) dialect: Dialect,
    pub(super) escaping: Escaping,
    /// Writes bounds of buckets and quantiles, unless Go's format is used.
    pub(super) put_bound: Option<PutBound>,
}

impl Style {
    /// Writes a label of fixed cardinality.
    pub(super) fn put_label(self, name: &str, value: &str, out: &mut Vec<u8>) {
        self.put_label_name(name, out);
        out.extend_from_slice(b"=\"");
        escape::put_quoted(value, out);
        out.push(b'"');
    }

    pub(super) fn put_label_name(self, name: &str, out: &mut Vec<u8>) {
        if self.escaping == Escaping::AllowUtf8 && !is_legacy_label(name) {
            out.push(b'"');
            escape::put_quoted(name, out);
            out.push(b'"');
        } else {
            escape::put_label_name(name, self.escaping, out);
        }
    }

    /// Writes the bound of a bucket, or a quantile.
    pub(super) fn put_bound(self, bound: f64, out: &mut Vec<u8>) {
        match self.put_bound {
            Some(put) => put(bound, out),
            None => number::put_bound(bound, self.dialect != Dialect::Text, out),
        }
    }

    /// Returns whether the name of a metric is also valid for a label.
    pub(super) fn is_label(self, name: &str) -> bool {
        let (mut metric, mut label) = (Vec::new(), Vec::new());
        escape::put_metric_name(name, "", self.escaping, &mut metric);
        escape::put_label_name(name, self.escaping, &mut label);
        metric == label
    }
}
