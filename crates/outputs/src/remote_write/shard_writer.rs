//! Distributes the series of a snapshot over the shards of a receiver.

use quipu::snapshot::{Exemplar, Timestamp};
use quipu_wire::remote::{Label, write::Metadata};

use super::placement;
use super::samples::{Samples, Value};
use super::series::NAME;
use crate::snapshot::Requests;
use quipu_translate::rules::Relabelling;

/// A writer that adds each series to the requests of its shard, after applying the relabelling
/// rules.
#[derive(Debug)]
pub(super) struct ShardWriter<'r> {
    /// The requests of each shard, by its index.
    pub(super) requests: Vec<Requests<Samples>>,
    relabelling: Option<&'r Relabelling>,
    has_exemplars: bool,
}

impl<'r> ShardWriter<'r> {
    /// Creates a writer for these requests. `relabelling` contains the rules, if any.
    pub(super) fn new(
        requests: Vec<Requests<Samples>>,
        relabelling: Option<&'r Relabelling>,
        has_exemplars: bool,
    ) -> Self {
        Self { requests, relabelling, has_exemplars }
    }

    /// Adds a value with an exemplar. The labels must be sorted, with non-empty values.
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
            let shard = placement::shard(labels, self.requests.len());
            if let Some(part) = self.requests.get_mut(shard) {
                part.add(labels, metadata, value, start, exemplar);
            }
        };
        let Some(relabelling) = self.relabelling else { return put(labels) };
        let Some(labels) = relabelling.series(labels) else { return };
        let labels: Vec<Label<'_>> =
            labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        if labels.iter().any(|(name, _)| *name == NAME) {
            put(&labels);
        } else if let Some(part) = self.requests.first_mut() {
            // The rules removed the metric name.
            part.snapshot.invalid += 1;
        }
    }
}
