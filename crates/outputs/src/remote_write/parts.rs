//! A snapshot in parts, one for each shard of a receiver. Each series is in the part of its shard.

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
    /// In the order of the shards.
    pub(super) parts: Vec<Requests<Samples>>,
    relabelling: Option<&'r Relabelling>,
    has_exemplars: bool,
}

impl<'r> Parts<'r> {
    /// Adds series to these parts by these rules, with exemplars or without.
    pub(super) fn new(
        parts: Vec<Requests<Samples>>,
        relabelling: Option<&'r Relabelling>,
        has_exemplars: bool,
    ) -> Self {
        Self { parts, relabelling, has_exemplars }
    }

    /// Adds a value with an exemplar by the rules, if there are any. The labels are in order, and
    /// have values.
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
            // A rule removed the name.
            part.snapshot.invalid += 1;
        }
    }
}
