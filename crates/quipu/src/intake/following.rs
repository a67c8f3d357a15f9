//! Samples with times: their series keep the order of the samples.
//!
//! The invariant: a sample only changes its series if it is later than the [last
//! one](crate::kind::SampleTime). So a sample that is sent again counts once, even if this process
//! ended in the meantime: if it ended between storing the value and its time, the sample is later
//! than the time in the cell, and is stored once more. Samples of one series that arrive on several
//! threads at once can be stored in any order. A total that is not less than the last one does not
//! count as a restart of the source.

use std::sync::atomic::Ordering;
use std::time::Duration;

use quipu_segment::series::SeriesCells;

use super::class::Role;
use super::input::{InputValue, Metric, Mode, Order};
use super::moment::Moment;
use super::put::{PutResult, put, relay, sample_time, value};
use super::rejection::Rejection;
use super::table::{FamilyEntry, MAX_LABELS, SortedLabels};
use super::{Intake, change, settings};
use crate::kind::{AnyKind, GAUGE_VALUE, RelayCounter, Times};
use crate::snapshot::Timestamp;

/// The maximum age of a sample, relative to the last one. An older sample is refused.
const LATE: Duration = Duration::from_secs(2 * 60 * 60);

impl Intake {
    /// Takes a sample whose series keeps the order of its samples. Returns false, without a change
    /// to this series, if the sample begins the order of its series: then the caller puts it there.
    ///
    /// # Errors
    /// The errors of [`Intake::take`].
    pub(super) fn take_in_order(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        (input, mode): (&InputValue<'_>, Mode),
        times: Times,
    ) -> Result<bool, Rejection> {
        let sample = times.sample.ok_or(Rejection::TooNew)?;
        let mut settings = std::mem::take(&mut self.settings);
        let wanted = settings::family_needs(metric, input, mode, &mut settings);
        let mut id = None;
        let taken = wanted.map(|wanted| {
            let entry = self.table.find(&wanted, labels)?;
            id = Some(entry.family.id());
            let mut taken = None;
            if !entry.is_dormant() && (metric.help.is_empty() || entry.has_help()) {
                change(entry, labels, &mut |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                    taken = put_next(entry, cells, (input, mode), times, metric.order);
                });
            }
            taken
        });
        self.settings = settings;
        match taken? {
            Some(taken) => taken.map(|()| true),
            None => self.begin_order(metric, labels, id, sample, times.latest),
        }
    }

    /// Finds the last sample among all series of these labels. Returns true if it is not before
    /// this one. Otherwise, if the metric [replaces](Metric::replaces), removes these series from
    /// all families except the family with this number.
    fn begin_order(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        id: Option<u64>,
        sample: u64,
        latest: u64,
    ) -> Result<bool, Rejection> {
        let (last, others) = self.last_sample(metric.name, labels, latest, id)?;
        if last >= sample && last > 0 {
            return late(last - sample).map(|()| true);
        }
        if metric.replaces && others {
            let labels: Vec<(&str, &str)> = labels.iter().collect();
            self.remove(metric.name, &labels).map_err(|_| Rejection::Full)?;
        }
        Ok(false)
    }

    /// Returns the time of the last sample of the series of these labels that belong to no group, 0
    /// if there is none; and whether any of them is in another family than `own`.
    fn last_sample(
        &mut self,
        name: &str,
        labels: &SortedLabels<'_>,
        latest: u64,
        own: Option<u64>,
    ) -> Result<(u64, bool), Rejection> {
        self.table.refresh(self.registry.segment()).map_err(|_| Rejection::Full)?;
        let (mut last, mut others) = (0, false);
        for role in [Role::Shown, Role::Beside] {
            let entries = self.table.of_labels(role, name, labels);
            for entry in entries.iter().filter(|entry| !entry.class.grouped) {
                let is_there =
                    change(entry, labels, &mut |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                        last = last.max(last_sample(entry, cells, latest));
                    });
                others |= is_there && role == Role::Shown && Some(entry.family.id()) != own;
            }
        }
        Ok((last, others))
    }

    /// Removes the series of these labels like [`Intake::remove`], unless one of them contains a
    /// sample of this time or a later time. Use this for a source that states that its series
    /// ended.
    ///
    /// # Errors
    /// [`Rejection::TooNew`], [`Rejection::OutOfOrder`], and [`Rejection::Full`] if the segment
    /// cannot be locked in time.
    pub fn end(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        time: Option<Timestamp>,
    ) -> Result<u64, Rejection> {
        if let Some(time) = time {
            let Times { sample, latest, .. } = Moment::now().times(None, Some(time));
            let sample = sample.ok_or(Rejection::TooNew)?;
            let sorted = SortedLabels::new(labels, MAX_LABELS, false)?;
            let (last, _) = self.last_sample(name, &sorted, latest, None)?;
            if last >= sample {
                return late(last - sample).map(|()| 0);
            }
        }
        self.remove(name, labels).map_err(|_| Rejection::Full)
    }
}

/// Puts a sample into its series if the series already contains the time of its last sample.
/// Otherwise, returns `None` and changes no series.
#[inline]
pub(super) fn put_next(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    (input, mode): (&InputValue<'_>, Mode),
    times: Times,
    order: Order,
) -> Option<Result<(), Rejection>> {
    let (sample, last) = (times.sample?, last_sample(entry, cells, times.latest));
    if last == 0 {
        return None;
    }
    if sample < last {
        return Some(late(last - sample));
    }
    if sample == last {
        if is_last(entry, cells, input) {
            return Some(Ok(()));
        }
        if order == Order::Strict {
            return Some(Err(Rejection::Duplicate));
        }
    }
    match put(entry, cells, input, mode, times) {
        PutResult::Done => Some(Ok(())),
        PutResult::Locked => Some(Err(Rejection::Full)),
        // Only `Intake::take` can handle this.
        _ => None,
    }
}

/// Returns the time of the last sample of a series; 0 if there is none, or if it is after `latest`.
#[inline]
fn last_sample(entry: &FamilyEntry, cells: &SeriesCells<'_>, latest: u64) -> u64 {
    match &entry.kind {
        // The first cells are the same for all.
        AnyKind::RelayCounter(_) | AnyKind::RelayHistogram(_) | AnyKind::RelaySummary(_) => {
            RelayCounter::relay(*cells).last_sample(latest)
        }
        // Others store the time of the last increment, which is not the time of a total.
        AnyKind::MixedCounter(_) => 0,
        AnyKind::Histogram(layout) if layout.native.is_none() => 0,
        _ => sample_time(entry, cells).map_or(0, |time| time.last(latest)),
    }
}

/// Returns whether a value equals the last one of its series.
fn is_last(entry: &FamilyEntry, cells: &SeriesCells<'_>, input: &InputValue<'_>) -> bool {
    match (&entry.kind, input) {
        (_, InputValue::Gauge(n) | InputValue::Unknown(n)) => {
            cells.plain(GAUGE_VALUE).load(Ordering::Relaxed) == n.to_bits()
        }
        (AnyKind::Histogram(layout), InputValue::Native { buckets, .. }) => {
            layout.count(&entry.family, cells) == buckets.count()
        }
        _ => relay(entry, cells, input).is_some_and(|relay| relay.is_last(|i| value(input, i))),
    }
}

/// Returns the result for a sample that is older than the last one by this many nanoseconds.
fn late(by: u64) -> Result<(), Rejection> {
    if Duration::from_nanos(by) > LATE { Err(Rejection::OutOfOrder) } else { Ok(()) }
}
