//! A snapshot in parts: one part per shard of a receiver, which contains the series of this shard.

use quipu::snapshot::{Exemplar, Timestamp};
use quipu_wire::remote::{Label, write::Metadata};

use super::placement;
use super::samples::{Samples, Value};
use super::series::NAME;
use crate::snapshot::Requests;
use quipu_translate::rules::Relabelling;

/// Writes the parts of a snapshot.
#[derive(Debug)]
pub(super) struct Parts<'r> {
    /// The parts, ordered by shard.
    pub(super) parts: Vec<Requests<Samples>>,
    relabelling: Option<&'r Relabelling>,
    has_exemplars: bool,
}

impl<'r> Parts<'r> {
    /// Creates a writer for these parts. `relabelling` contains the rules, if there are any.
    pub(super) fn new(
        parts: Vec<Requests<Samples>>,
        relabelling: Option<&'r Relabelling>,
        has_exemplars: bool,
    ) -> Self {
        Self { parts, relabelling, has_exemplars }
    }

    /// Adds a value with an exemplar, after applying the rules. The labels are sorted, and their
    /// values are not empty.
    pub(super) fn add(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: Value<'_>,
        start: Option<Timestamp>,
        exemplar: Option<&Exemplar<'_>>,
    ) {
        let exemplar = exemplar.filter(|_| self.has_exemplars);
        let mut put = |labels: &[Label<'_>]| {
            let shard = placement::shard(labels, self.parts.len());
            if let Some(part) = self.parts.get_mut(shard) {
                part.add(labels, metadata, value, start, exemplar);
            }
        };
        let Some(relabelling) = self.relabelling else { return put(labels) };
        let Some(labels) = relabelling.series(labels) else { return };
        let labels: Vec<Label<'_>> =
            labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        if labels.iter().any(|(name, _)| *name == NAME) {
            put(&labels);
        } else if let Some(part) = self.parts.first_mut() {
            // A rule removed the name of the metric.
            part.snapshot.invalid += 1;
        }
    }
}
