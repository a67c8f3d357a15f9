//! Stores a complete value in the cells of its series, and computes the growth of a total.

use std::sync::atomic::Ordering;

use quipu_segment::series::SeriesCells;

use super::input::{InputValue, Mode};
use super::table::FamilyEntry;
use crate::kind::{
    AnyKind, FollowResult, GAUGE_VALUE, Growth, MixedCounter, NativeGrowth, Relay, RelayCounter,
    RelayHistogram, RelaySummary, SampleTime, Times,
};
use crate::snapshot::Native;

/// The result of putting a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PutResult {
    /// The value was stored.
    Done,
    /// A lock is needed, and is not available in time.
    Locked,
    /// Others add to the series, which therefore cannot follow a total.
    Added,
    /// The increment's time is not later than the time of the last increment.
    Again,
    /// An increment with a time, in a family without a cell for the time of the last increment.
    Untimed,
    /// The total of another sender, with this start, is followed.
    Other(u64),
}

/// Stores a value.
pub(super) fn put(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    input: &InputValue<'_>,
    mode: Mode,
    times: Times,
) -> PutResult {
    let segment = entry.family.segment();
    if let (Mode::Add, Some(time)) = (mode, times.sample) {
        let Some(last) = sample_time(entry, cells) else { return PutResult::Untimed };
        if !last.advance(time, times.latest) {
            return PutResult::Again;
        }
    }
    if let Some(relay) = relay(entry, cells, input) {
        if let InputValue::Summary { quantiles, .. } = input {
            RelaySummary::put_quantiles(cells, quantiles);
        }
        return match input {
            // A loop over the values of a counter takes 30 instructions more.
            InputValue::Counter(total) => put_relayed(entry, &relay, mode, times, |_| *total),
            _ => put_relayed(entry, &relay, mode, times, |i| value(input, i)),
        };
    }
    match (&entry.kind, input) {
        (AnyKind::MixedCounter(_), InputValue::Counter(_))
        | (AnyKind::Histogram(_), InputValue::Histogram { .. })
            if mode != Mode::Add =>
        {
            return PutResult::Added;
        }
        (AnyKind::MixedCounter(_), InputValue::Counter(n)) => MixedCounter::add_to(*cells, *n),
        (
            AnyKind::Gauge(_) | AnyKind::Unknown(_),
            InputValue::Gauge(n) | InputValue::Unknown(n),
        ) => {
            put_gauge(entry, cells, *n, mode, times.sample);
        }
        (AnyKind::Histogram(layout), InputValue::Histogram { buckets, sum }) => {
            layout.add_classic(cells, buckets, *sum);
        }
        (AnyKind::Histogram(layout), InputValue::Native { buckets, sum }) => match mode {
            Mode::Add => layout.add_native(&entry.family, cells, buckets, *sum),
            mode => {
                // Two threads that follow one source would both add the missing part.
                let Ok(_guard) = segment.lock_registration() else { return PutResult::Locked };
                // A later sample may have arrived while this one waited. Fewer counts than in the
                // later sample would look like a restart of the source.
                let last = sample_time(entry, cells).map_or(0, |time| time.last(times.latest));
                if times.sample.is_some_and(|sample| sample < last) {
                    return PutResult::Done;
                }
                in_time(entry, cells, times.sample, || match mode {
                    Mode::Follow => layout.follow_native(&entry.family, cells, buckets, *sum),
                    _ => layout.set_native(&entry.family, cells, buckets, *sum),
                });
            }
        },
        // The weight is a whole number: see `Intake::rounded`.
        (AnyKind::Histogram(layout), InputValue::Observation { value, weight }) => {
            layout.observe_many(&entry.family, cells, *value, *weight as u64);
        }
        (AnyKind::Summary(layout), InputValue::Observation { value, weight }) => {
            layout.observe_many(&entry.family, cells, *value, *weight as u64);
        }
        // Others send totals of the same buckets.
        (AnyKind::RelayHistogram(kind), InputValue::Observation { value, weight }) => {
            return done(kind.observe_many(segment, cells, *value, *weight as u64));
        }
        // `settings` chose a matching kind for the value.
        _ => {}
    }
    PutResult::Done
}

/// Stores the values of a relayed series.
#[inline]
fn put_relayed(
    entry: &FamilyEntry,
    relay: &Relay<'_>,
    mode: Mode,
    times: Times,
    value: impl Fn(usize) -> f64,
) -> PutResult {
    let segment = entry.family.segment();
    done(match mode {
        Mode::Follow => match relay.follow(segment, times, value) {
            FollowResult::Done => true,
            FollowResult::Locked => false,
            FollowResult::Other(start) => return PutResult::Other(start),
        },
        Mode::Set => relay.set(segment, times, value),
        // A push that adds to a group is the only writer of this group.
        Mode::Add if entry.class.grouped => relay.add(segment, value),
        Mode::Add => relay.add_beside(segment, value),
    })
}

/// Adds a number to a gauge or a value of unknown type, or stores it.
#[inline]
pub(super) fn put_gauge(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    n: f64,
    mode: Mode,
    sample: Option<u64>,
) {
    in_time(entry, cells, sample, || match mode {
        Mode::Add => cells.add_float(GAUGE_VALUE, n),
        _ => cells.plain(GAUGE_VALUE).store(n.to_bits(), Ordering::Relaxed),
    });
}

/// Calls `act`, which stores a value, and keeps the time of its sample.
#[inline]
fn in_time(entry: &FamilyEntry, cells: &SeriesCells<'_>, sample: Option<u64>, act: impl FnOnce()) {
    // A variant that an application registered keeps no time.
    let Some(time) = sample_time(entry, cells) else { return act() };
    time.pass(sample);
    act();
    time.store(sample);
}

/// Returns the time of the last sample or increment of a series that is not relayed, if the series
/// stores it.
#[inline]
pub(super) fn sample_time<'c>(
    entry: &FamilyEntry,
    cells: &SeriesCells<'c>,
) -> Option<SampleTime<'c>> {
    entry.time.map(|cell| SampleTime(cells.plain(cell)))
}

/// Returns how much a total has grown since the last followed one, as a value for each value of the
/// series.
pub(super) fn growth(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    input: &InputValue<'_>,
    times: Times,
) -> (Growth, Vec<f64>) {
    let Some(relay) = relay(entry, cells, input) else { return (Growth::Late, Vec::new()) };
    let mut by = Vec::new();
    let known = relay.growth(entry.family.segment(), times, |i| value(input, i), |n| by.push(n));
    (known, by)
}

/// Returns the growth of the buckets of a native histogram since they were followed last, like
/// `HistogramLayout::native_growth`.
pub(super) fn native_growth(
    entry: &FamilyEntry,
    cells: &SeriesCells<'_>,
    input: &Native<'_>,
    most: u64,
    is_restarted: bool,
) -> Option<NativeGrowth> {
    let AnyKind::Histogram(layout) = &entry.kind else { return None };
    layout.native_growth(&entry.family, cells, input, most, is_restarted)
}

/// Calls `act` with the increment with these values, and the bounds of `input`.
pub(super) fn with_increment<R>(
    input: &InputValue<'_>,
    by: &[f64],
    act: impl FnOnce(&InputValue<'_>) -> R,
) -> R {
    let value = |i: usize| by.get(i).copied().unwrap_or(0.0);
    match input {
        InputValue::Histogram { buckets, .. } => {
            let counts = buckets.iter().enumerate().map(|(i, (bound, _))| (*bound, value(i)));
            let counts: Vec<(f64, f64)> = counts.collect();
            act(&InputValue::Histogram { buckets: &counts, sum: value(buckets.len()) })
        }
        InputValue::Summary { .. } => {
            // Quantiles of several sources cannot be added.
            act(&InputValue::Summary { quantiles: &[], count: value(0), sum: value(1) })
        }
        _ => act(&InputValue::Counter(value(0))),
    }
}

/// Returns the values of a relayed series, if it can take the given value.
pub(super) fn relay<'c>(
    entry: &FamilyEntry,
    cells: &SeriesCells<'c>,
    input: &InputValue<'_>,
) -> Option<Relay<'c>> {
    match (&entry.kind, input) {
        (AnyKind::RelayCounter(_), InputValue::Counter(_)) => Some(RelayCounter::relay(*cells)),
        (AnyKind::RelayHistogram(_), InputValue::Histogram { buckets, .. }) => {
            Some(RelayHistogram::relay(*cells, buckets.len().saturating_sub(1)))
        }
        (AnyKind::RelaySummary(_), InputValue::Summary { .. }) => Some(RelaySummary::relay(*cells)),
        _ => None,
    }
}

/// Returns a value of a relayed series, by its number.
pub(super) fn value(input: &InputValue<'_>, i: usize) -> f64 {
    match input {
        InputValue::Counter(total) => *total,
        InputValue::Histogram { buckets, sum } => buckets.get(i).map_or(*sum, |(_, count)| *count),
        InputValue::Summary { count, sum, .. } => {
            if i == 0 {
                *count
            } else {
                *sum
            }
        }
        _ => 0.0,
    }
}

fn done(is_done: bool) -> PutResult {
    if is_done { PutResult::Done } else { PutResult::Locked }
}
