//! Relayed values: totals that another program counts, and that this one passes on.
//!
//! The source can restart, and then counts from zero again. Its earlier count is kept, so the total
//! that a scrape sees only grows. A series consists of `n` values: for example, a counter of one
//! value, a histogram of its buckets and the sum, a summary of the count and the sum. Its cells are
//!
//! | cell | meaning |
//! |---|---|
//! | 0 | phase: even, or odd while a restart of the source is being noted |
//! | 1 | the time since which the source counts, if known |
//! | 2 | the [time of the last sample](SampleTime) |
//! | 3.. | `n` times the last value of the source |
//! | | `n` times the remaining count: before the source's last restart, or added by others |
//! | | `n` times the sum of both, valid while the phase is odd |
//! | last | the exemplars, if the family keeps them |
//!
//! A restart changes all of them, and the process can die at any point in between. So the sums are
//! written first. Then the phase becomes odd, which makes a scrape show the sums. Then the sums
//! become the earlier count, the last values become zero, and the phase becomes even. If a process
//! dies before this is complete, the next update completes it.
//!
//! Values of one series that arrive in several threads at once may be stored in any order. Only one
//! thread at a time notes a restart, or completes one: it holds the lock of the segment.

use std::sync::Arc;
use std::sync::atomic::fence;

use quipu_segment::Segment;
use quipu_segment::series::{Family, Schema, SeriesCells, SideAllocations};
use quipu_segment::sync::Ordering;

use super::exemplar::{self, Exemplars, ReadExemplar};
use super::metric_kind::{MetricKind, Scratch, are_bounds, are_quantiles, check_cells, damaged};
use super::sample_time::SampleTime;
use crate::error::Error;
use crate::snapshot::{self, Bucket, CounterValue, Number, SummaryValue, Value};

const PHASE: usize = 0;
const START: usize = 1;
const TIME: usize = 2;
const FIRST: usize = 3;

/// The values of a relayed series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relay<'c> {
    cells: SeriesCells<'c>,
    count: usize,
    /// The number of values that never decrease unless the source restarts: all but a sum of
    /// observations, which may be negative.
    growing: usize,
}

/// The times that a source reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time since which it counts, in nanoseconds of Unix time; 0 if it is not reported.
    pub(crate) start: u64,
    /// The time of the sample, 0 if that is not after 1970; `None` if it is not reported.
    pub(crate) sample: Option<u64>,
    /// The latest time that can be right. If the time in the cells is later, it is from a clock
    /// that was ahead, and counts as unknown, because otherwise it would lock the series until
    /// then.
    pub(crate) latest: u64,
    /// Whether totals with different starts are from different senders, which may all be alive.
    pub(crate) by_start: bool,
}

impl Times {
    /// The times of an update whose source reports none.
    pub(crate) const UNKNOWN: Self =
        Self { start: 0, sample: None, latest: u64::MAX, by_start: false };
}

/// The relation of a value to the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The value arrives late, or again.
    Late,
    /// The value is from the same run of the source.
    Same,
    /// The value is the first after a restart.
    Restarted,
    /// The total of another sender. This is the start of the followed sender.
    Other(u64),
}

/// The result of following a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowResult {
    /// The total was stored, or arrived late.
    Done,
    /// The lock is not available in time. The cells are unchanged.
    Locked,
    /// The total of another sender, with this start, is followed. The cells are unchanged.
    Other(u64),
}

/// The last total of a sender.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastTotal {
    pub(crate) start: u64,
    /// The time of its sample; 0 if unknown.
    pub(crate) time: u64,
    /// One value for each value of the series.
    pub(crate) values: Vec<f64>,
}

/// How much is known of the growth of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// All growth was passed on.
    Known,
    /// The sample arrives late, or again.
    Late,
    /// The growth is unknown, because the lock is not available in time.
    Locked,
    /// The growth is unknown, because the total of another sender, with this start, is followed.
    Other(u64),
}

impl<'c> Relay<'c> {
    /// Returns the number of cells of a series with this many values.
    pub(crate) const fn cells(count: usize) -> usize {
        FIRST + 3 * count
    }

    /// Creates a view of the values of a series. The first `growing` values are counts. `cells`
    /// contains at least [`Relay::cells`] cells.
    fn new(cells: SeriesCells<'c>, count: usize, growing: usize) -> Self {
        Self { cells, count, growing }
    }

    /// Stores the current values of the source. If the source restarted, its earlier count is kept.
    /// A restart is recognized by the reported start, or by a count that decreased. A sample is
    /// omitted if it is not later than the last one, or is from an earlier run.
    pub(crate) fn follow(
        &self,
        segment: &Segment,
        times: Times,
        value: impl Fn(usize) -> f64,
    ) -> FollowResult {
        match self.compare(times, &value) {
            Next::Late => return FollowResult::Done,
            Next::Other(start) => return FollowResult::Other(start),
            Next::Same if self.phase().is_multiple_of(2) => {
                self.time().pass(times.sample);
                self.store(times, value);
            }
            _ => {
                let Ok(_guard) = segment.lock_registration() else { return FollowResult::Locked };
                self.complete();
                // Another thread may have noted the same restart in the meantime.
                let next = self.compare(times, &value);
                match next {
                    Next::Late => return FollowResult::Done,
                    Next::Other(start) => return FollowResult::Other(start),
                    Next::Same | Next::Restarted => {}
                }
                self.time().pass(times.sample);
                if next == Next::Restarted {
                    self.keep(|i| self.last(i));
                }
                self.store(times, value);
            }
        }
        FollowResult::Done
    }

    /// Returns the last total of the followed sender, and ends its turn: later totals with its
    /// start are treated like another sender's. `None` if the lock is not available in time.
    pub(crate) fn end_turn(&self, segment: &Segment) -> Option<LastTotal> {
        let _guard = segment.lock_registration().ok()?;
        self.complete();
        let last = self.last_total();
        // The last values become zero before the next sender's start is stored. If the process dies
        // in between, the remaining start belongs to no sender. Otherwise, this sender's next total
        // would count in full.
        self.cells.plain(START).store(last.start.saturating_add(1), Ordering::Release);
        Some(last)
    }

    /// Returns the last total of the followed sender.
    pub(crate) fn last_total(&self) -> LastTotal {
        let [start, time] = self.turn();
        let values = (0..self.count).map(|i| self.last(i)).collect();
        LastTotal { start, time, values }
    }

    /// Begins the turn of another sender, after the turn that ended with this last total. Returns
    /// false, without a change, if the lock is not available in time.
    pub(crate) fn begin_turn(
        &self,
        segment: &Segment,
        last: &LastTotal,
        times: Times,
        value: impl Fn(usize) -> f64,
    ) -> bool {
        let Ok(_guard) = segment.lock_registration() else { return false };
        self.complete();
        // Another thread may have stored a later total of the previous sender since its turn ended.
        // `last` is kept nevertheless, because the sender's place contains `last`, and its next
        // total is compared with this place.
        self.keep(|i| last.values.get(i).copied().unwrap_or(0.0));
        // The next sender's clock may show an earlier time.
        self.cells.plain(TIME).store(0, Ordering::Relaxed);
        self.store(times, value);
        true
    }

    /// Returns the start of the followed sender, and the time of its last sample; 0 if unknown.
    pub(crate) fn turn(&self) -> [u64; 2] {
        [START, TIME].map(|cell| self.cells.plain(cell).load(Ordering::Relaxed))
    }

    /// Makes this total the last one of a series that only follows one sender.
    pub(crate) fn replace(&self, total: &LastTotal) {
        // Until the values are complete, they belong to no sender.
        self.cells.plain(START).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for i in 0..self.count {
            self.put(0, i, total.values.get(i).copied().unwrap_or(0.0));
        }
        self.cells.plain(TIME).store(total.time, Ordering::Relaxed);
        self.cells.plain(START).store(total.start, Ordering::Release);
    }

    /// Returns the time of the last sample. Returns 0 if there is none, if it is later than
    /// `latest`, or if a process died while it noted a restart, because the next sample completes
    /// the restart.
    pub(crate) fn last_sample(&self, latest: u64) -> u64 {
        if self.phase().is_multiple_of(2) { self.time().last(latest) } else { 0 }
    }

    /// Returns whether these equal the last values of the source.
    pub(crate) fn is_last(&self, value: impl Fn(usize) -> f64) -> bool {
        (0..self.count).all(|i| value(i).to_bits() == self.last(i).to_bits())
    }

    fn compare(&self, times: Times, value: &impl Fn(usize) -> f64) -> Next {
        let known = self.cells.plain(START).load(Ordering::Relaxed);
        let known = if known > times.latest { 0 } else { known };
        if times.by_start && times.start != known && times.start != 0 && known != 0 {
            return Next::Other(known);
        }
        let last = self.time().last(times.latest);
        let is_late = last != 0 && times.sample.is_some_and(|sample| sample <= last);
        if is_late || (times.start != 0 && times.start < known) {
            return Next::Late;
        }
        let is_known = times.start != 0 && times.start == known;
        let is_less = (0..self.growing).any(|i| value(i) < self.last(i));
        match (is_less, is_known) {
            (true, true) => Next::Late,
            (true, false) => Next::Restarted,
            _ if times.start > known && known != 0 => Next::Restarted,
            _ => Next::Same,
        }
    }

    /// Replaces the values and all earlier counts. Returns false, without a change, if the lock is
    /// not available in time.
    pub(crate) fn set(
        &self,
        segment: &Segment,
        times: Times,
        value: impl Fn(usize) -> f64,
    ) -> bool {
        if !self.is_completed(segment) {
            return false;
        }
        for i in 0..self.count {
            self.put(1, i, 0.0);
        }
        self.time().pass(times.sample);
        self.store(times, value);
        self.cells.plain(START).store(times.start, Ordering::Relaxed);
        true
    }

    /// Adds to the values, in addition to the source's count. Returns false, without a change, if
    /// the lock is not available in time.
    pub(crate) fn add(&self, segment: &Segment, value: impl Fn(usize) -> f64) -> bool {
        if !self.is_completed(segment) {
            return false;
        }
        self.add_all(value);
        self.time().pass(None);
        true
    }

    /// Like [`Relay::add`], while another thread may follow the source. This holds the lock,
    /// because a restart that is noted at the same time would lose the addition. The time of the
    /// last sample stays, because it is the time of the source.
    pub(crate) fn add_beside(&self, segment: &Segment, value: impl Fn(usize) -> f64) -> bool {
        let Ok(_guard) = segment.lock_registration() else { return false };
        self.complete();
        self.add_all(value);
        true
    }

    fn add_all(&self, value: impl Fn(usize) -> f64) {
        for i in 0..self.count {
            self.cells.add_float(FIRST + self.count + i, value(i));
        }
    }

    /// Passes the growth of each value since the last followed one to `emit`: the whole value, if
    /// the source restarted. A sum that is not a number counts as not grown. The cells stay
    /// unchanged.
    pub(crate) fn growth(
        &self,
        segment: &Segment,
        times: Times,
        value: impl Fn(usize) -> f64,
        mut emit: impl FnMut(f64),
    ) -> Growth {
        if !self.is_completed(segment) {
            return Growth::Locked;
        }
        let next = self.compare(times, &value);
        match next {
            Next::Late => return Growth::Late,
            Next::Other(start) => return Growth::Other(start),
            Next::Same | Next::Restarted => {}
        }
        // Storing the restart requires the lock. Without it, each later value would emit the same
        // growth again.
        if next == Next::Restarted && segment.lock_registration().is_err() {
            return Growth::Locked;
        }
        for i in 0..self.count {
            let last = if next == Next::Restarted { 0.0 } else { self.last(i) };
            let grown = value(i) - last;
            emit(if grown.is_finite() { grown } else { 0.0 });
        }
        Growth::Known
    }

    /// Completes the restart that a dead process began. Returns false if the lock for this is not
    /// available in time.
    fn is_completed(&self, segment: &Segment) -> bool {
        if self.phase().is_multiple_of(2) {
            return true;
        }
        let Ok(_guard) = segment.lock_registration() else { return false };
        self.complete();
        true
    }

    /// Passes the totals to `emit`, either all from before or all from after a restart of the
    /// source, unless the source restarts again and again during the reading.
    fn read(&self, mut emit: impl FnMut(usize, f64)) {
        for _ in 0..4 {
            // Acquire: the values are read after the phase.
            let phase = self.cells.plain(PHASE).load(Ordering::Acquire);
            for i in 0..self.count {
                let total = match phase % 2 {
                    0 => self.last(i) + self.get(1, i),
                    _ => self.get(2, i),
                };
                emit(i, total);
            }
            // The values are read before the phase is read again.
            fence(Ordering::Acquire);
            if self.cells.plain(PHASE).load(Ordering::Relaxed) == phase {
                return;
            }
        }
    }

    fn store(&self, times: Times, value: impl Fn(usize) -> f64) {
        if times.start != 0 {
            // Before the values: if this process dies in between, the sender may repeat the same
            // values, which then do not look like a restart.
            self.cells.plain(START).store(times.start, Ordering::Release);
        }
        for i in 0..self.count {
            self.put(0, i, value(i));
        }
        self.time().store(times.sample);
    }

    /// Records that the source started again at zero: adds its last values to the earlier count.
    fn keep(&self, last: impl Fn(usize) -> f64) {
        for i in 0..self.count {
            self.put(2, i, last(i) + self.get(1, i));
        }
        self.advance();
        self.complete();
    }

    /// Completes [`Relay::keep`], which a process may have begun before it died.
    fn complete(&self) {
        if self.phase().is_multiple_of(2) {
            return;
        }
        for i in 0..self.count {
            self.put(1, i, self.get(2, i));
            self.put(0, i, 0.0);
        }
        self.advance();
    }

    fn advance(&self) {
        // Release: a reader that sees the phase sees the values before it. The fence orders the
        // stores after the phase, for a reader that reads the phase again.
        self.cells.plain(PHASE).store(self.phase().wrapping_add(1), Ordering::Release);
        fence(Ordering::Release);
    }

    fn time(&self) -> SampleTime<'c> {
        SampleTime(self.cells.plain(TIME))
    }

    fn phase(&self) -> u64 {
        self.cells.plain(PHASE).load(Ordering::Relaxed)
    }

    fn last(&self, i: usize) -> f64 {
        self.get(0, i)
    }

    fn get(&self, part: usize, i: usize) -> f64 {
        f64::from_bits(self.cells.plain(FIRST + part * self.count + i).load(Ordering::Relaxed))
    }

    fn put(&self, part: usize, i: usize, value: f64) {
        let cell = self.cells.plain(FIRST + part * self.count + i);
        cell.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// The kind of a relayed counter.
pub(crate) struct RelayCounter;

/// The kind of a relayed histogram, with its bounds without `+Inf`. The values are the buckets,
/// `+Inf` last, and the sum.
pub(crate) struct RelayHistogram(Box<[f64]>);

/// The kind of a relayed summary, with its quantiles. The values are the count and the sum,
/// followed by the cells of the quantiles.
pub(crate) struct RelaySummary(Box<[f64]>);

impl RelayCounter {
    pub(crate) const VALUES: usize = 1;
    /// The cell of the exemplar.
    pub(crate) const EXEMPLAR: usize = Relay::cells(Self::VALUES);

    /// Returns the values of a series.
    pub(crate) fn relay(cells: SeriesCells<'_>) -> Relay<'_> {
        Relay::new(cells, Self::VALUES, Self::VALUES)
    }
}

impl RelayHistogram {
    /// Returns the number of values of a series with this many bounds.
    pub(crate) fn values(bounds: usize) -> usize {
        bounds + 2
    }

    /// Returns the cell of the exemplars of a series with this many bounds.
    pub(crate) const fn exemplars(bounds: usize) -> usize {
        Relay::cells(bounds + 2)
    }

    /// Returns the location of the exemplar of a value: the cell, and the slot.
    pub(crate) fn exemplar_of(&self, value: f64) -> (usize, usize) {
        let slot = self.0.partition_point(|bound| *bound < value);
        (Self::exemplars(self.0.len()), slot)
    }

    /// Returns the values of a series with this many bounds.
    pub(crate) fn relay(cells: SeriesCells<'_>, bounds: usize) -> Relay<'_> {
        Relay::new(cells, Self::values(bounds), bounds + 1)
    }

    /// Observes a numeric value `n` times, in addition to the source's count. Returns false,
    /// without a change, if the lock is not available in time.
    pub(crate) fn observe_many(
        &self,
        segment: &Segment,
        cells: &SeriesCells<'_>,
        observed: f64,
        n: u64,
    ) -> bool {
        let (bounds, n) = (&self.0, n as f64);
        let bucket = bounds.partition_point(|bound| *bound < observed);
        let value = |i: usize| match i {
            i if i == bucket => n,
            i if i > bounds.len() => observed * n,
            _ => 0.0,
        };
        Self::relay(*cells, bounds.len()).add_beside(segment, value)
    }
}

impl RelaySummary {
    pub(crate) const VALUES: usize = 2;

    /// Returns the values of a series.
    pub(crate) fn relay(cells: SeriesCells<'_>) -> Relay<'_> {
        Relay::new(cells, Self::VALUES, 1)
    }

    /// Returns the mean of the observations; `None` if there are none.
    pub(crate) fn mean(cells: &SeriesCells<'_>) -> Option<f64> {
        let mut values = [0.0; Self::VALUES];
        Self::relay(*cells).read(|i, value| values[i] = value);
        let [count, sum] = values;
        (count > 0.0).then(|| sum / count)
    }

    /// Stores the quantiles' values.
    pub(crate) fn put_quantiles(cells: &SeriesCells<'_>, quantiles: &[(f64, f64)]) {
        for (i, (_, value)) in quantiles.iter().enumerate() {
            let cell = cells.plain(Relay::cells(Self::VALUES) + i);
            cell.store(value.to_bits(), Ordering::Relaxed);
        }
    }
}

/// Returns whether the cells of a copied file are of one phase. If this cannot be determined, the
/// series is omitted.
#[inline]
fn is_settled(family: &Family, cells: &SeriesCells<'_>) -> bool {
    let is_settled = family.settle(cells.shared(), PHASE);
    if !is_settled {
        family.count_omitted();
    }
    is_settled
}

/// Reads the numbers in the settings of a family, which `are_valid` checks.
fn numbers(family: &Family, are_valid: fn(&[f64]) -> bool) -> Result<Box<[f64]>, Error> {
    let schema: &Schema = family.schema();
    let (chunks, rest) = schema.settings.as_chunks::<8>();
    let numbers: Box<[f64]> = chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect();
    if !rest.is_empty() || !are_valid(&numbers) {
        return Err(damaged(schema));
    }
    Ok(numbers)
}

/// Like [`check`], for a family with an optional cell for exemplars.
fn check_with_exemplars(family: &Family, cells: usize) -> Result<(), Error> {
    let cells = u16::try_from(cells).map_err(|_| damaged(family.schema()))?;
    check_cells(family, cells..=cells.saturating_add(1))
}

/// Checks the number of cells against the family's record.
fn check(family: &Family, cells: usize) -> Result<(), Error> {
    let cells = u16::try_from(cells).map_err(|_| damaged(family.schema()))?;
    check_cells(family, cells..=cells)
}

impl MetricKind for RelayCounter {
    const NUMBER: u8 = 12;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Counter;

    fn decode(family: &Family) -> Result<Self, Error> {
        check_with_exemplars(family, Self::EXEMPLAR).map(|()| Self)
    }

    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        if !is_settled(family, cells) {
            return;
        }
        let mut total = 0.0;
        Self::relay(*cells).read(|_, value| total = value);
        let exemplar = exemplar::last(family, cells, Self::EXEMPLAR, scratch);
        emit(Value::Counter(CounterValue::new(Number::Float(total)).exemplar(exemplar)));
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(Self::EXEMPLAR)))
    }
}

impl MetricKind for RelayHistogram {
    const NUMBER: u8 = 13;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Histogram;

    fn decode(family: &Family) -> Result<Self, Error> {
        let bounds = numbers(family, are_bounds)?;
        check_with_exemplars(family, Self::exemplars(bounds.len()))?;
        Ok(Self(bounds))
    }

    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        if !is_settled(family, cells) {
            return;
        }
        let (bounds, mut sum) = (&self.0, 0.0);
        exemplar::read_all(family, cells, Self::exemplars(bounds.len()), scratch);
        let Scratch { slots, texts, arena, .. } = &mut *scratch;
        arena.scoped(|scope| {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let bucket = |(i, bound)| {
                let slot = slots.get(i).and_then(Option::as_ref);
                let exemplar = slot.map(|slot: &ReadExemplar| slot.exemplar(texts));
                Bucket { bound, le: None, count: 0, exemplar }
            };
            let buckets: &mut [Bucket<'_>] = scope.alloc_iter(bounds.enumerate().map(bucket));
            Self::relay(*cells, self.0.len()).read(|i, value| match buckets.get_mut(i) {
                // A count is not negative; in a damaged file, a negative count becomes 0.
                Some(bucket) => bucket.count = value as u64,
                None => sum = value,
            });
            let count = buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count));
            let histogram = snapshot::HistogramValue { count, sum, buckets, native: None };
            emit(Value::Histogram(histogram));
        });
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(Self::exemplars(self.0.len()))))
    }
}

impl MetricKind for RelaySummary {
    const NUMBER: u8 = 14;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Summary;

    fn decode(family: &Family) -> Result<Self, Error> {
        let quantiles = numbers(family, are_quantiles)?;
        check(family, Relay::cells(Self::VALUES) + quantiles.len())?;
        Ok(Self(quantiles))
    }

    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        if !is_settled(family, cells) {
            return;
        }
        let mut values = [0.0; Self::VALUES];
        Self::relay(*cells).read(|i, value| values[i] = value);
        scratch.quantiles.clear();
        scratch.quantiles.extend(self.0.iter().enumerate().map(|(i, quantile)| {
            let cell = cells.plain(Relay::cells(Self::VALUES) + i);
            (*quantile, f64::from_bits(cell.load(Ordering::Relaxed)))
        }));
        let [count, sum] = values;
        emit(Value::Summary(SummaryValue::new(count as u64, sum).quantiles(&scratch.quantiles)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::series::{Identity, Label};

    use super::*;

    /// The content of the cells: last value, before, sum of both, for the two values of a summary;
    /// and the phase.
    type Cells = ([f64; 2], [f64; 2], [f64; 2], u64);

    fn store(relay: &Relay<'_>, (last, before, both, phase): Cells) {
        for (part, values) in [last, before, both].into_iter().enumerate() {
            values.into_iter().enumerate().for_each(|(i, value)| relay.put(part, i, value));
        }
        relay.cells.plain(PHASE).store(phase, Ordering::Relaxed);
    }

    fn shown(relay: &Relay<'_>) -> [f64; 2] {
        let mut shown = [0.0; 2];
        relay.read(|i, value| shown[i] = value);
        shown
    }

    /// Calls `test` with the cells of a summary.
    fn with_summary(test: impl Fn(&Segment, &Relay<'_>)) {
        let segment = Segment::private(1 << 20).unwrap();
        let schema = Schema {
            name: "s".into(),
            cells: u16::try_from(Relay::cells(2)).unwrap(),
            additive: true,
            labels: vec![Label { name: "l".into(), values: None }],
            identity: Identity::Variant,
            ..Schema::default()
        };
        let family = segment.family(&schema).unwrap();
        family.update(|key| key.text("x"), |cells| test(&segment, &RelaySummary::relay(cells)));
    }

    /// A process that notes a restart can die after any of its stores. The shown value stays the
    /// same, and the next update counts the source's new value once.
    #[test]
    fn a_death_at_any_point_of_a_restart_loses_nothing_and_counts_nothing_twice() {
        let (last, before, both) = ([5.0, 7.0], [1.0, 2.0], [6.0, 9.0]);
        let old = [0.0, 0.0];
        let points: [Cells; 10] = [
            (last, before, old, 4),
            (last, before, [6.0, 0.0], 4),
            (last, before, both, 4),
            (last, before, both, 5),
            (last, [6.0, 2.0], both, 5),
            ([0.0, 7.0], [6.0, 2.0], both, 5),
            ([0.0, 7.0], [6.0, 9.0], both, 5),
            ([0.0, 0.0], [6.0, 9.0], both, 5),
            ([0.0, 0.0], [6.0, 9.0], both, 6),
            ([3.0, 0.0], [6.0, 9.0], both, 6),
        ];
        with_summary(|segment, relay| {
            for point in points {
                store(relay, point);
                if point.0 != [3.0, 0.0] {
                    assert_eq!(shown(relay), both, "{point:?}");
                }
                // Repeats the same update, like a sender that received no response.
                for _ in 0..2 {
                    let stored = relay.follow(segment, Times::UNKNOWN, |i| [3.0, 4.0][i]);
                    assert_eq!(stored, FollowResult::Done);
                    assert_eq!(shown(relay), [9.0, 13.0], "{point:?}");
                }
            }
        });
    }

    /// A process can die while it stores a sample, and then the sender may repeat the sample before
    /// it, too.
    #[test]
    fn a_death_before_the_time_of_a_sample_makes_the_one_before_it_late() {
        with_summary(|segment, relay| {
            for (last, next) in [(5.0, 7.0), (5.0, 2.0)] {
                store(relay, ([0.0; 2], [0.0; 2], [0.0; 2], 0));
                relay.cells.plain(TIME).store(0, Ordering::Relaxed);
                let at = |sample| Times { sample: Some(sample), ..Times::UNKNOWN };
                assert_eq!(relay.follow(segment, at(100), |_| last), FollowResult::Done);
                assert_eq!(relay.last_sample(u64::MAX), 100);
                let followed = relay.follow(segment, at(200), |_| {
                    // The cells now contain the state that a death leaves.
                    let is_last = relay.is_last(|_| last);
                    assert!(is_last || relay.last_sample(u64::MAX) == 101, "{next}");
                    next
                });
                assert_eq!(followed, FollowResult::Done);
                assert_eq!(relay.last_sample(u64::MAX), 200);
            }
        });
    }

    /// A process can die while another sender takes over.
    #[test]
    fn a_death_between_two_turns_counts_no_total_in_full_again() {
        with_summary(|segment, relay| {
            let of = |start| Times { start, by_start: true, ..Times::UNKNOWN };
            assert_eq!(relay.follow(segment, of(100), |_| 5.0), FollowResult::Done);
            assert_eq!(relay.follow(segment, of(200), |_| 2.0), FollowResult::Other(100));
            let last = relay.end_turn(segment).unwrap();
            assert_eq!(last, LastTotal { start: 100, time: 1, values: vec![5.0; 2] });
            for start in [100, 200] {
                assert_eq!(relay.follow(segment, of(start), |_| 6.0), FollowResult::Other(101));
            }
            assert_eq!(shown(relay), [5.0; 2]);
            assert!(relay.begin_turn(segment, &last, of(200), |_| 2.0));
            assert_eq!(shown(relay), [7.0; 2]);
            assert_eq!(relay.follow(segment, of(200), |_| 3.0), FollowResult::Done);
            assert_eq!(shown(relay), [8.0; 2]);
        });
    }

    /// The clocks of a source and of this machine were ahead, and are corrected.
    #[test]
    fn times_that_were_ahead_do_not_lock_a_series() {
        with_summary(|segment, relay| {
            let follow = |start, sample, latest, value: f64| {
                let times = Times { start, sample: Some(sample), latest, ..Times::UNKNOWN };
                assert_eq!(relay.follow(segment, times, |_| value), FollowResult::Done);
                assert_eq!(shown(relay), [value; 2]);
                assert_eq!(relay.last_sample(latest), sample);
            };
            follow(900, 1000, 1000, 5.0);
            assert_eq!(relay.last_sample(500), 0);
            follow(300, 400, 500, 6.0);
            follow(300, 410, 500, 7.0);
        });
    }
}
