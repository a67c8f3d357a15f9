//! Exemplars that other programs send, in the cells of their series.

use std::sync::atomic::Ordering;

use quipu_segment::series::SeriesCells;

use super::class::{Class, Role};
use super::table::{FamilyEntry, MAX_LABELS, SortedLabels};
use super::{Intake, change};
use crate::error::Error;
use crate::exposition::is_legacy_name;
use crate::kind::{
    AnyKind, GAUGE_EXEMPLAR, MixedCounter, RelayCounter, Total, exemplar_takes_memory,
    keep_exemplar,
};
use crate::snapshot::Timestamp;

/// An exemplar that another program sends.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "to be made by literals")]
pub struct InputExemplar<'a> {
    /// Pairs of names and values, of at most 128 characters in all.
    pub labels: &'a [(&'a str, &'a str)],
    /// The value of the event.
    pub value: f64,
    /// The time of the event, if it is known.
    pub time: Option<Timestamp>,
}

impl Intake {
    /// Keeps an exemplar of the series with these labels; in a histogram, in the bucket of the
    /// exemplar's value. The exemplar replaces the earlier exemplar. If the existing exemplar is
    /// later, it stays, because it would have replaced this one by now.
    ///
    /// Returns false if the exemplar was not kept, because
    ///
    /// - there is no such series outside of groups, its family keeps no exemplars, or it is a
    ///   summary;
    /// - the value is NaN, and the series is a counter or a histogram;
    /// - the labels of the exemplar are too long, a name is used twice, or a name contains
    ///   characters other than letters, digits and underscores;
    /// - another thread or process is writing an exemplar in the same place, or recently died while
    ///   writing;
    /// - the exemplar would be the first of its series or bucket, and less of the segment is left
    ///   than [`Limits::bytes_for_series`](super::Limits::bytes_for_series):
    ///   [`Usage::exemplars`](super::Usage::exemplars) counts these.
    ///
    /// Scrapers can see the exemplars of counters and of buckets. Their formats cannot represent
    /// other exemplars, which you find in [`Series::exemplar`](crate::snapshot::Series::exemplar).
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputExemplar, InputValue, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let hits = Metric { exemplars: true, ..Metric::new("hits_total") };
    /// intake.take(hits, &[], &InputValue::Counter(5.0), Mode::Follow, None)?;
    /// let exemplar = InputExemplar { labels: &[("trace_id", "4bf9")], value: 1.0, time: None };
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
        exemplar: &InputExemplar<'_>,
    ) -> Result<bool, Error> {
        self.table.refresh(self.registry.segment())?;
        let Ok(labels) = SortedLabels::new(labels, MAX_LABELS, false) else { return Ok(false) };
        if !are_distinct(exemplar.labels) {
            return Ok(false);
        }
        let reserve = self.limits.bytes_for_series;
        let (mut is_kept, mut omitted) = (false, 0);
        for entry in self.table.of_labels(Role::Shown, name, &labels) {
            if !Class::from_schema(entry.family.schema()).grouped {
                let mut act = |entry: &FamilyEntry, cells: &SeriesCells<'_>| match keep(
                    entry, cells, exemplar, reserve,
                ) {
                    Some(kept) => is_kept |= kept,
                    None => omitted += 1,
                };
                change(&entry, &labels, &mut act);
            }
        }
        self.used.exemplars.fetch_add(omitted, Ordering::Relaxed);
        Ok(is_kept)
    }
}

/// Returns whether all formats can show these label names, and each occurs once.
fn are_distinct(labels: &[(&str, &str)]) -> bool {
    labels.len() <= MAX_LABELS
        && labels.iter().enumerate().all(|(i, (name, _))| {
            let is_plain = is_legacy_name(name) && !name.contains(':');
            is_plain && labels[..i].iter().all(|(other, _)| other != name)
        })
}

/// Keeps an exemplar. Returns `None` if this would use the bytes that are reserved for series.
fn keep(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    exemplar: &InputExemplar<'_>,
    reserve: u64,
) -> Option<bool> {
    let InputExemplar { labels, value, time } = *exemplar;
    let place = match &entry.kind {
        AnyKind::Gauge(_) | AnyKind::Unknown(_) => (GAUGE_EXEMPLAR, 0),
        // NaN is in no bucket, and never raises a counter.
        _ if value.is_nan() => return Some(false),
        AnyKind::MixedCounter(_) => (MixedCounter::EXEMPLAR, 0),
        AnyKind::RelayCounter(_) => (RelayCounter::EXEMPLAR, 0),
        AnyKind::Histogram(layout) => (layout.exemplar(), layout.bucket(value)),
        AnyKind::RelayHistogram(kind) => kind.exemplar_of(value),
        _ => return Some(false),
    };
    let segment = entry.family.segment();
    let limit = segment.limit();
    let is_scarce = || limit.saturating_sub(segment.used()) < reserve.min(limit / 4);
    // Series without exemplars use one cell fewer.
    let has_place = place.0 < cells.len();
    if has_place && is_scarce() && exemplar_takes_memory(&entry.family, cells, place) {
        return None;
    }
    let time = time.map(Timestamp::as_nanos);
    Some(keep_exemplar(&entry.family, cells, place, value, labels, time))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::sync::AtomicU64;

    use super::*;
    use crate::Registry;
    use crate::intake::{InputValue, Limits, Metric, Mode};

    #[test]
    fn an_exemplar_whose_place_another_writer_uses_is_not_kept() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let metric = Metric { exemplars: true, ..Metric::new("level") };
        intake.take(metric, &[], &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
        let of = |value| InputExemplar { labels: &[("id", "7")], value, time: None };
        assert!(intake.exemplify("level", &[], &of(1.0)).unwrap());
        // Another writer began, or continued.
        let advance = |intake: &Intake| {
            let labels = SortedLabels::new(&[], MAX_LABELS, false).unwrap();
            let entry = intake.table.of_labels(Role::Shown, "level", &labels).into_iter().next();
            change(
                &entry.unwrap(),
                &labels,
                &mut |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                    let word = |at: &AtomicU64| at.load(Ordering::Relaxed) as u32;
                    let table =
                        entry.family.side(cells, word(cells.plain(GAUGE_EXEMPLAR))).unwrap();
                    let slot = entry.family.side(cells, word(&table.words()[0])).unwrap();
                    slot.words()[0].fetch_add(1, Ordering::Relaxed);
                },
            );
        };
        advance(&intake);
        assert!(!intake.exemplify("level", &[], &of(2.0)).unwrap());
        advance(&intake);
        assert!(intake.exemplify("level", &[], &of(3.0)).unwrap());
    }
}
