//! A snapshot in parts, one for each shard of a receiver. Each series is in the part of its shard.

use std::sync::Arc;

use quipu::snapshot::{Exemplar, Native, Timestamp};
use quipu_segment::hash::Seeded;
use quipu_wire::remote::{Label, Metadata, WriteVersion};

use super::coding::Coding;
use super::placement;
use super::snapshot::Requests;
use quipu_translate::rules::Relabelling;

/// Writes the parts of a snapshot.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<Requests>,
    relabelling: Option<Arc<Relabelling>>,
    has_exemplars: bool,
    /// Samples whose name a rule removed.
    nameless: u64,
}

impl Parts {
    /// Begins a snapshot for this many shards. The same hash is to be used for all snapshots.
    pub(super) fn new(
        timestamp_ms: i64,
        version: WriteVersion,
        hash: &Seeded,
        shards: usize,
    ) -> Self {
        let part = |_| Requests::new(timestamp_ms, version, hash.clone());
        let parts = (0..shards).map(part).collect();
        Self { parts, relabelling: None, has_exemplars: false, nameless: 0 }
    }

    /// Compresses the requests so.
    pub(super) fn compressed(mut self, coding: Coding) -> Self {
        let parts = self.parts.into_iter().map(|part| part.compressed(coding));
        self.parts = parts.collect();
        self
    }

    /// Applies these rules to all series.
    pub(super) fn relabelled(self, relabelling: Option<Arc<Relabelling>>) -> Self {
        Self { relabelling, ..self }
    }

    /// Makes room for this many series in each of them.
    pub(super) fn expecting(mut self, series: usize) -> Self {
        let parts = self.parts.into_iter().map(|part| part.expecting(series));
        self.parts = parts.collect();
        self
    }

    /// Adds exemplars, or leaves them out.
    pub(super) fn with_exemplars(self, has_exemplars: bool) -> Self {
        Self { has_exemplars, ..self }
    }

    /// Adds a number with its exemplar. The labels are in order, and have values.
    pub(super) fn sample(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: f64,
        start: Option<Timestamp>,
        exemplar: Option<&Exemplar<'_>>,
    ) {
        let exemplar = exemplar.filter(|_| self.has_exemplars);
        self.place(labels, |part, labels| part.sample(labels, metadata, value, start, exemplar));
    }

    /// Adds a native histogram with its newest exemplar: receivers refuse one that is older than
    /// the one before it.
    pub(super) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: (&Native<'_>, u64, f64),
        start: Option<Timestamp>,
    ) {
        let exemplars = value.0.exemplars.iter().filter(|_| self.has_exemplars);
        let newest = exemplars.max_by_key(|exemplar| exemplar.time);
        self.place(labels, |part, labels| part.histogram(labels, metadata, value, start, newest));
    }

    /// The parts, in the order of the shards, and how many samples had no name.
    pub(super) fn finish(self) -> (Vec<Requests>, u64) {
        (self.parts, self.nameless)
    }

    /// Applies the rules, if there are any, and adds what is left to its part.
    fn place(&mut self, labels: &[Label<'_>], add: impl FnOnce(&mut Requests, &[Label<'_>])) {
        let Some(relabelling) = &self.relabelling else { return self.put(labels, add) };
        let Some(labels) = relabelling.series(labels) else { return };
        let labels: Vec<Label<'_>> =
            labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        if labels.iter().any(|(name, _)| *name == "__name__") {
            self.put(&labels, add);
        } else {
            self.nameless += 1;
        }
    }

    fn put(&mut self, labels: &[Label<'_>], add: impl FnOnce(&mut Requests, &[Label<'_>])) {
        let shard = placement::shard(labels, self.parts.len());
        if let Some(part) = self.parts.get_mut(shard) {
            add(part, labels);
        }
    }
}
