//! Exemplars of what was taken, in the cells of their series.

use quipu_segment::series::SeriesCells;

use super::class::{Class, Role};
use super::table::{Entry, MAX_LABELS, Sorted};
use super::{Intake, change};
use crate::error::Error;
use crate::exposition::is_legacy_name;
use crate::kind::{AnyKind, MixedCounter, RelayCounter, Total, keep_exemplar};
use crate::snapshot::Timestamp;

/// An exemplar from outside.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "to be made by literals")]
pub struct GivenExemplar<'a> {
    /// Pairs of names and values, of at most 128 characters in all.
    pub labels: &'a [(&'a str, &'a str)],
    /// The value of the event.
    pub value: f64,
    /// When it happened, if that is known.
    pub time: Option<Timestamp>,
}

impl Intake {
    /// Keeps an exemplar of the counter or histogram with these labels; of a histogram, in the
    /// bucket of its value. It replaces the one before it. Returns false if it was not kept:
    /// there is no such series outside of groups, its family keeps no exemplars, a later one is
    /// there, the value is NaN, the segment is full, or its labels are none, too long, named twice,
    /// or with names that are not letters, digits and underscores.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{Given, GivenExemplar, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let hits = Metric { exemplars: true, ..Metric::new("hits_total") };
    /// intake.take(hits, &[], &Given::Counter(5.0), Mode::Follow, None)?;
    /// let exemplar = GivenExemplar { labels: &[("trace_id", "4bf9")], value: 1.0, time: None };
    /// assert!(intake.exemplify("hits_total", &[], &exemplar)?);
    /// assert!(!intake.exemplify("misses_total", &[], &exemplar)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn exemplify(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        exemplar: &GivenExemplar<'_>,
    ) -> Result<bool, Error> {
        self.table.refresh(self.registry.segment())?;
        let Ok(labels) = Sorted::new(labels, MAX_LABELS, false) else { return Ok(false) };
        if exemplar.value.is_nan() || !are_distinct(exemplar.labels) {
            return Ok(false);
        }
        let mut is_kept = false;
        for entry in self.table.of_labels(Role::Shown, name, &labels) {
            if !Class::of(entry.family.schema()).grouped {
                let mut act = |entry: &Entry, cells: &SeriesCells<'_>| {
                    is_kept |= keep(entry, cells, exemplar);
                };
                change(&entry, &labels, &mut act);
            }
        }
        Ok(is_kept)
    }
}

/// Whether these are names of labels that all formats can show, each of them once.
fn are_distinct(labels: &[(&str, &str)]) -> bool {
    labels.len() <= MAX_LABELS
        && labels.iter().enumerate().all(|(i, (name, _))| {
            let is_plain = is_legacy_name(name) && !name.contains(':');
            is_plain && labels[..i].iter().all(|(other, _)| other != name)
        })
}

fn keep(entry: &Entry, cells: &SeriesCells<'_>, exemplar: &GivenExemplar<'_>) -> bool {
    let GivenExemplar { labels, value, time } = *exemplar;
    let place = match &entry.kind {
        AnyKind::MixedCounter(_) => (MixedCounter::EXEMPLAR, 0),
        AnyKind::RelayCounter(_) => (RelayCounter::EXEMPLAR, 0),
        AnyKind::Histogram(layout) => (layout.exemplar(), layout.bucket(value)),
        AnyKind::RelayHistogram(kind) => kind.exemplar_of(value),
        _ => return false,
    };
    keep_exemplar(&entry.family, cells, place, value, labels, time.map(|time| time.0))
}
