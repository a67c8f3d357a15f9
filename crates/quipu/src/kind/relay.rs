//! Relayed values: totals that another program counts, and that this one passes on.
//!
//! The source may restart, and then counts from zero again. What it counted before is kept, so the
//! total that a scrape sees only grows. A series has `n` values: one for a counter, the buckets and
//! the sum for a histogram, the count and the sum for a summary. Its cells are
//!
//! | cell | meaning |
//! |---|---|
//! | 0 | phase: even, or odd while a restart of the source is being noted |
//! | 1 | the time since which the source counts, if known |
//! | 2 | the [time of the last sample](SampleTime) |
//! | 3.. | `n` times the last value of the source |
//! | | `n` times what was counted beside it: before its last restart, or added by others |
//! | | `n` times the sum of both, valid while the phase is odd |
//! | last | the exemplars, if the family keeps them |
//!
//! A restart changes all of them, and the process may die at any point in between. So the sums are
//! written first; then the phase becomes odd, and they are what is shown; then they become what was
//! counted before, the last values become zero, and the phase even. The next update completes what
//! a dead process left.
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
use crate::snapshot::{self, Bucket, Number, Value};

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

/// What a source says of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time since which it counts, in nanoseconds of Unix time; 0 if it says nothing.
    pub(crate) start: u64,
    /// The time of the sample, 0 if that is not after 1970; `None` if it says nothing.
    pub(crate) sample: Option<u64>,
    /// The latest time that can be right. One in the cells that is later came from a clock that was
    /// ahead, and counts as unknown: otherwise it would lock the series until then.
    pub(crate) latest: u64,
    /// Whether totals with different starts are from different senders, which may all be alive.
    pub(crate) by_start: bool,
}

impl Times {
    /// The times of an update whose source says nothing.
    pub(crate) const UNKNOWN: Self =
        Self { start: 0, sample: None, latest: u64::MAX, by_start: false };
}

/// What a value is beside the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// One that arrives late, or again.
    Late,
    /// One of the same run of the source.
    Same,
    /// The first one that came after a restart.
    Restarted,
    /// The total of another sender. The followed sender has this start.
    Other(u64),
}

/// The result of following a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowResult {
    /// It was stored, or arrived late.
    Done,
    /// A lock cannot be had in time. Nothing was changed.
    Locked,
    /// The total of another sender is followed, which has this start. Nothing was changed.
    Other(u64),
}

/// The last total of a sender.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastTotal {
    pub(crate) start: u64,
    /// The time of its sample; 0 if it had none.
    pub(crate) time: u64,
    /// One value for each value of the series.
    pub(crate) values: Vec<f64>,
}

/// What is known of the growth of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// All of it.
    Known,
    /// The sample arrives late, or again.
    Late,
    /// Nothing: a lock cannot be had in time.
    Locked,
    /// Nothing: the total of another sender is followed, which has this start.
    Other(u64),
}

impl<'c> Relay<'c> {
    /// The number of cells of a series with that many values.
    pub(crate) const fn cells(count: usize) -> usize {
        FIRST + 3 * count
    }

    /// The values of a series, of which the first `growing` are counts. `cells` has at least
    /// [`Relay::cells`] cells.
    fn new(cells: SeriesCells<'c>, count: usize, growing: usize) -> Self {
        Self { cells, count, growing }
    }

    /// Stores the current values of the source. If it restarted, what it counted before is kept: it
    /// restarted if it says so, or if a count is less than before. A sample that is not later than
    /// the last one, or of an earlier run, is left out.
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
                // Another thread may have noted the same restart meanwhile.
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

    /// Returns the last total of the sender that is followed, and ends its turn: later totals with
    /// its start are from another sender. `None` if a lock cannot be had in time.
    pub(crate) fn end_turn(&self, segment: &Segment) -> Option<LastTotal> {
        let _guard = segment.lock_registration().ok()?;
        self.complete();
        let last = self.last_total();
        // The last values become zero before the next sender's start is stored. A process that dies
        // in between leaves a start that no sender has: otherwise this sender's next total would
        // count in full.
        self.cells.plain(START).store(last.start.saturating_add(1), Ordering::Release);
        Some(last)
    }

    /// Returns the last total of the sender that is followed.
    pub(crate) fn last_total(&self) -> LastTotal {
        let [start, time] = self.turn();
        let values = (0..self.count).map(|i| self.last(i)).collect();
        LastTotal { start, time, values }
    }

    /// Begins the turn of another sender, after the turn that ended with this last total. Returns
    /// false, and changes nothing, if a lock cannot be had in time.
    pub(crate) fn begin_turn(
        &self,
        segment: &Segment,
        last: &LastTotal,
        times: Times,
        value: impl Fn(usize) -> f64,
    ) -> bool {
        let Ok(_guard) = segment.lock_registration() else { return false };
        self.complete();
        // Another thread may have stored a later total since the turn ended: its sender's place has
        // this one, from which it grows.
        self.keep(|i| last.values.get(i).copied().unwrap_or(0.0));
        // The next sender's clock may show an earlier time.
        self.cells.plain(TIME).store(0, Ordering::Relaxed);
        self.store(times, value);
        true
    }

    /// The start of the sender that is followed, and the time of its last sample; 0 if unknown.
    pub(crate) fn turn(&self) -> [u64; 2] {
        [START, TIME].map(|cell| self.cells.plain(cell).load(Ordering::Relaxed))
    }

    /// Makes this total the last one of a series that has only the totals of one sender.
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

    /// Returns the time of the last sample; 0 if there is none, if it is later than `latest`, or if
    /// a process died while it noted a restart: the next sample completes that.
    pub(crate) fn last_sample(&self, latest: u64) -> u64 {
        if self.phase().is_multiple_of(2) { self.time().last(latest) } else { 0 }
    }

    /// Whether these are the last values of the source.
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

    /// Replaces the values, whatever was counted before. Returns false, and changes nothing, if a
    /// lock cannot be had in time.
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

    /// Adds to the values, beside what the source counts. Returns false, and changes nothing, if a
    /// lock cannot be had in time.
    pub(crate) fn add(&self, segment: &Segment, value: impl Fn(usize) -> f64) -> bool {
        if !self.is_completed(segment) {
            return false;
        }
        self.add_all(value);
        self.time().pass(None);
        true
    }

    /// As [`Relay::add`], while another thread may follow the source: a restart that it notes at
    /// the same time would lose what is added, so this holds the lock. The time of the last sample
    /// stays, because it is the time of the source.
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

    /// Passes to `emit` by how much each value has grown since what was followed last: by all of it
    /// if the source restarted. A sum that is not a number has not grown. Changes nothing.
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
        // Noting the restart takes the lock: without it, the growth would be given again and again.
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

    /// Completes what a dead process left. Returns false if the lock for that cannot be had in
    /// time.
    fn is_completed(&self, segment: &Segment) -> bool {
        if self.phase().is_multiple_of(2) {
            return true;
        }
        let Ok(_guard) = segment.lock_registration() else { return false };
        self.complete();
        true
    }

    /// Passes the totals to `emit`, each with or each without a restart of the source, unless it
    /// restarts again and again meanwhile.
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
            // Before the values: if this process dies in between, the same values may come again,
            // and are no restart.
            self.cells.plain(START).store(times.start, Ordering::Release);
        }
        for i in 0..self.count {
            self.put(0, i, value(i));
        }
        self.time().store(times.sample);
    }

    /// Notes that the source begins at zero: the values that it had last become those before.
    fn keep(&self, last: impl Fn(usize) -> f64) {
        for i in 0..self.count {
            self.put(2, i, last(i) + self.get(1, i));
        }
        self.advance();
        self.complete();
    }

    /// Completes [`Relay::keep`], which may have been begun by a process that died.
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
        // Release: a reader that sees the phase sees the values before it. The fence orders what is
        // stored after it for a reader that looks at the phase again.
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

/// The kind of a relayed summary, with its quantiles. The values are the count and the sum; the
/// cells after them are those of the quantiles.
pub(crate) struct RelaySummary(Box<[f64]>);

impl RelayCounter {
    pub(crate) const VALUES: usize = 1;
    /// The cell of the exemplar.
    pub(crate) const EXEMPLAR: usize = Relay::cells(Self::VALUES);

    /// The value of a series.
    pub(crate) fn relay(cells: SeriesCells<'_>) -> Relay<'_> {
        Relay::new(cells, Self::VALUES, Self::VALUES)
    }
}

impl RelayHistogram {
    /// The number of values of a series with that many bounds.
    pub(crate) fn values(bounds: usize) -> usize {
        bounds + 2
    }

    /// The cell of the exemplars of a series with that many bounds.
    pub(crate) const fn exemplars(bounds: usize) -> usize {
        Relay::cells(bounds + 2)
    }

    /// Where the exemplar of a value is: the cell, and the slot.
    pub(crate) fn exemplar_of(&self, value: f64) -> (usize, usize) {
        let slot = self.0.partition_point(|bound| *bound < value);
        (Self::exemplars(self.0.len()), slot)
    }

    /// The values of a series with that many bounds.
    pub(crate) fn relay(cells: SeriesCells<'_>, bounds: usize) -> Relay<'_> {
        Relay::new(cells, Self::values(bounds), bounds + 1)
    }

    /// Observes a value that is a number `n` times, beside what the source counts. Returns false,
    /// and changes nothing, if a lock cannot be had in time.
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

    /// The values of a series.
    pub(crate) fn relay(cells: SeriesCells<'_>) -> Relay<'_> {
        Relay::new(cells, Self::VALUES, 1)
    }

    /// The mean of the observations; `None` if there are none.
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

/// Whether the cells of a copied file are of one phase. A series of which that cannot be told is
/// left out.
#[inline]
fn is_settled(family: &Family, cells: &SeriesCells<'_>) -> bool {
    let is_settled = family.settle(cells.shared(), PHASE);
    if !is_settled {
        family.leave_out();
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

/// As [`check`], for a family that may have a cell for exemplars.
fn check_with_exemplars(family: &Family, cells: usize) -> Result<(), Error> {
    let cells = u16::try_from(cells).map_err(|_| damaged(family.schema()))?;
    check_cells(family, cells..=cells.saturating_add(1))
}

/// Checks the number of cells, which comes from the family's record.
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
        emit(Value::Counter { total: Number::Float(total), exemplar });
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
                // A count is not negative; one of a damaged file becomes 0.
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
        emit(Value::Summary { quantiles: &scratch.quantiles, count: count as u64, sum });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::series::{Identity, Label};

    use super::*;

    /// What is in the cells: last value, before, sum of both, for the two values of a summary; and
    /// the phase.
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

    /// A process that notes a restart may die after any of its stores. What is shown stays the
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
                // The same update again, as a sender would that got no response.
                for _ in 0..2 {
                    let stored = relay.follow(segment, Times::UNKNOWN, |i| [3.0, 4.0][i]);
                    assert_eq!(stored, FollowResult::Done);
                    assert_eq!(shown(relay), [9.0, 13.0], "{point:?}");
                }
            }
        });
    }

    /// A process may die while it stores a sample, and then the one before it comes again, too.
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
                    // What the cells contain now is what a death leaves.
                    let is_last = relay.is_last(|_| last);
                    assert!(is_last || relay.last_sample(u64::MAX) == 101, "{next}");
                    next
                });
                assert_eq!(followed, FollowResult::Done);
                assert_eq!(relay.last_sample(u64::MAX), 200);
            }
        });
    }

    /// A process may die while another sender takes over.
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
