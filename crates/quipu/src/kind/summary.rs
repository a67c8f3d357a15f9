//! Summaries: quantiles over a sliding window, and a count and a sum of all observations.
//!
//! The quantiles are computed from exponential buckets that are 2.2 % wide: a quantile is off by at
//! most 1.1 %, whatever the distribution (Masson, Rim, Lee: "DDSketch", 2019, gives the same
//! guarantee by the same means). The window is divided into five ages with separate buckets, which
//! are used in turn: an age is cleared when its turn starts again. An observation at this very
//! moment can be lost from the quantiles, but never from count and sum.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use quipu_segment::clock::{Clock, CoarseClock};
use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle, SideAllocations};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::metric_kind::{MetricKind, Scratch, add_count, are_quantiles, damaged, most_added};
use super::native;
use super::timer::{Observer, Timer, timers};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, SummaryValue, Value};

/// Shows quantiles of its observations within a sliding window.
///
/// You cannot combine the quantiles of several machines; use a [`Histogram`] for this, because its
/// buckets can be added. Processes that share the segment observe into the same window.
/// A [`TestClock`](crate::TestClock) does not advance this window.
///
/// [`Histogram`]: crate::Histogram
///
/// ```
/// use quipu::{Description, Registry, Summary};
///
/// let registry = Registry::new();
/// let description = Description::new("row", "Sizes of rows.").unit("bytes").quantiles([0.5]);
/// let rows: Summary = registry.register(description)?;
/// (1..=99).for_each(|size| rows.observe(f64::from(size)));
/// let (quantile, median) = rows.quantiles()[0];
/// assert_eq!(quantile, 0.5);
/// assert!((45.0..55.0).contains(&median));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Summary {
    bound: SeriesHandle,
    layout: Arc<SummaryLayout>,
}

/// Summaries by label.
pub type SummaryFamily<L> = Family<Summary, L>;

/// The settings that all series of a summary share.
#[derive(Debug)]
pub struct SummaryLayout {
    quantiles: Box<[f64]>,
    /// The nanoseconds of an age: at least a millisecond.
    width: u64,
    /// Anchored to the segment, because all processes must agree on the ticks.
    clock: CoarseClock,
}

pub(crate) const SUM: usize = 0;
pub(crate) const COUNT: usize = 1;
/// The first cell of the ages. Each age takes three cells: the number of its tick, the offset of
/// its newest table of buckets, and the count of observations that were zero.
const FIRST_AGE: usize = 2;
const AGE_CELLS: usize = 3;
const TICK: usize = 0;
const TABLE: usize = 1;
const ZERO: usize = 2;
const AGES: u64 = 5;
const CELLS: u16 = FIRST_AGE as u16 + AGES as u16 * AGE_CELLS as u16;
/// 32 buckets per octave.
const SCHEMA: i8 = 5;
const MAX_BUCKETS: u16 = 384;
const DEFAULT_WINDOW: Duration = Duration::from_secs(600);
const DEFAULT_QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

impl SummaryLayout {
    /// The cells of a series.
    pub(crate) const CELLS: u16 = CELLS;
    /// The shortest window.
    pub(crate) const MIN_WINDOW: Duration = MIN_WINDOW;

    #[inline]
    fn tick(&self, now: u64) -> u64 {
        now / self.width
    }

    #[inline]
    fn observe(&self, family: &series::Family, cells: &SeriesCells<'_>, value: f64) {
        self.observe_many(family, cells, value, 1);
    }

    /// Observes a value `n` times.
    #[inline]
    pub(crate) fn observe_many(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        value: f64,
        n: u64,
    ) {
        add_count(cells, COUNT, n);
        cells.add_float(SUM, value * n as f64);
        if value.is_nan() || self.quantiles.is_empty() {
            return;
        }
        let tick = self.tick(self.clock.now());
        let mut age = FIRST_AGE + (tick % AGES) as usize * AGE_CELLS;
        if cells.plain(age + TICK).load(Ordering::Acquire) != tick {
            age = self.turn(family, cells);
        }
        // Without room for a table, the observation is in count and sum only.
        if value == 0.0 {
            let zeros = cells.plain(age + ZERO);
            zeros.fetch_add(most_added(zeros.load(Ordering::Relaxed), n), Ordering::Relaxed);
        } else if n == 1 {
            native::observe(family, cells, age + TABLE, value, SCHEMA, MAX_BUCKETS);
        } else {
            native::observe_many(family, cells, age + TABLE, value, n, SCHEMA, MAX_BUCKETS);
        }
    }

    /// Clears the current age if its turn starts again, unless another thread does. Returns its
    /// first cell.
    #[cold]
    fn turn(&self, family: &series::Family, cells: &SeriesCells<'_>) -> usize {
        // This process' cheap clock may be late after the machine was suspended.
        let tick = self.tick(self.clock.settle());
        let age = FIRST_AGE + (tick % AGES) as usize * AGE_CELLS;
        let mark = cells.plain(age + TICK);
        let seen = mark.load(Ordering::Acquire);
        // If the age already carries a later tick, a late thread counts there. A tick far ahead is
        // invalid.
        let is_over = seen < tick || seen > tick + AGES;
        if is_over && mark.compare_exchange(seen, tick, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            cells.plain(age + ZERO).store(0, Ordering::Relaxed);
            native::clear(family, cells, age + TABLE);
        }
        age
    }

    /// Reads the quantiles of the window.
    fn read_quantiles(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
    ) {
        let schema = self.read_buckets(family, cells, scratch);
        let total: u64 = scratch.all.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
        scratch.quantiles.clear();
        for &quantile in &self.quantiles {
            let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
            let mut below = 0_u64;
            let found = scratch.all.iter().find(|(_, count)| {
                below = below.saturating_add(*count);
                below >= rank
            });
            let value =
                found.filter(|_| total > 0).map_or(f64::NAN, |(key, _)| middle(*key, schema));
            scratch.quantiles.push((quantile, value));
        }
    }

    /// Reads the buckets of the window into `scratch.all`: pairs of key and count, by ascending
    /// value. Returns their schema.
    fn read_buckets(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
    ) -> i8 {
        let Scratch { positive, negative, all, .. } = scratch;
        let tick = self.tick(self.clock.settle());
        let mut coarsest = SCHEMA;
        let mut zeros = 0_u64;
        all.clear();
        // Two rounds: the ages can use different schemas, and the first round finds the coarsest.
        for round in 0..2 {
            for age in 0..AGES as usize {
                let age = FIRST_AGE + age * AGE_CELLS;
                let seen = cells.plain(age + TICK).load(Ordering::Acquire);
                if seen > tick || seen + AGES <= tick {
                    continue;
                }
                let table = age + TABLE;
                let schema =
                    native::gather(family, cells, table, SCHEMA, u16::MAX, positive, negative);
                if round == 0 {
                    coarsest = coarsest.min(schema);
                    let zero = cells.plain(age + ZERO).load(Ordering::Relaxed);
                    zeros = zeros.saturating_add(zero);
                    continue;
                }
                let fold = |index: i32| (coarsest..schema).fold(index, |i, _| native::coarser(i));
                all.extend(negative.iter().map(|&(i, count)| (-2 * fold(i) - OFFSET, count)));
                all.extend(positive.iter().map(|&(i, count)| (2 * fold(i) + OFFSET, count)));
            }
        }
        all.push((0, zeros));
        all.sort_unstable_by_key(|(key, _)| *key);
        coarsest
    }
}

/// Returns the value that stands for a bucket. The key of a bucket is twice its index, shifted away
/// from zero by [`OFFSET`], and mirrored for values below zero. This gives keys and values the same
/// order.
fn middle(key: i32, schema: i8) -> f64 {
    if key == 0 {
        return 0.0;
    }
    let index = (key.abs() - OFFSET) / 2;
    // The harmonic mean of the bounds, because its relative error to both is the same.
    let (low, high) = (native::bound(index - 1, schema), native::bound(index, schema));
    (2.0 * low * (high / (low + high))).copysign(key.into())
}

/// Greater than twice the absolute value of any index.
const OFFSET: i32 = 1 << 20;
const MIN_WINDOW: Duration = Duration::from_millis(5);

impl Summary {
    /// Observes `value`.
    #[doc(alias = "record")]
    #[inline]
    pub fn observe(&self, value: f64) {
        self.layout.observe(self.bound.family(), self.bound.cells(), value);
    }

    /// Returns the sum of all observations, including those before the window.
    pub fn sum(&self) -> f64 {
        self.bound.cells().sum_float(SUM)
    }

    /// Returns the number of all observations, including those before the window.
    pub fn count(&self) -> u64 {
        self.bound.cells().sum(COUNT)
    }

    /// Returns pairs of quantile and value for the window. The values are NaN without observations.
    pub fn quantiles(&self) -> Vec<(f64, f64)> {
        let mut scratch = Scratch::default();
        self.layout.read_quantiles(self.bound.family(), self.bound.cells(), &mut scratch);
        scratch.quantiles
    }
}

timers!(Summary);

impl<L: LabelGroup> Family<Summary, L> {
    /// Returns the number of all observations with these labels; `None` if there is no such series.
    /// This method does not create the series.
    pub fn count<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<u64> {
        self.family.read(Self::key(labels), |cells| cells.sum(COUNT))
    }

    /// Returns the sum of all observations with these labels; `None` if there is no such series. It
    /// is not created.
    pub fn sum<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        self.family.read(Self::key(labels), |cells| cells.sum_float(SUM))
    }

    /// Observes `value` in the series of these labels.
    #[doc(alias = "record")]
    #[inline]
    pub fn observe<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (family, layout) = (&self.family, &*self.kind);
        self.update(labels, |cells| layout.observe(family, &cells, value));
    }
}

impl crate::kind::sealed::Sealed for Summary {}

impl Instrument for Summary {
    type Kind = SummaryLayout;
    const SETTINGS: &'static [Setting] = &[Setting::Quantiles, Setting::Window];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let fail = |reason: String| Err(Error::invalid(&description.full_name(), reason));
        let quantiles = description.quantiles.as_deref().unwrap_or(&DEFAULT_QUANTILES);
        if let Some(wrong) = quantiles.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return fail(format!("quantile {wrong} is out of range: use 0 to 1"));
        }
        if quantiles.windows(2).any(|pair| pair[0] >= pair[1]) {
            return fail("its quantiles are out of order: sort them, and list each once".into());
        }
        let window = description.window.unwrap_or(DEFAULT_WINDOW);
        if window < MIN_WINDOW {
            return fail(format!("window {window:?} is too short: use {MIN_WINDOW:?} or more"));
        }
        schema.cells = CELLS;
        schema.floats = 1 << SUM;
        schema.additive = true;
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        schema.settings = nanos.to_le_bytes().to_vec();
        schema.settings.extend(quantiles.iter().flat_map(|quantile| quantile.to_le_bytes()));
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, layout: &Arc<SummaryLayout>) -> Self {
        Self { bound: handle, layout: Arc::clone(layout) }
    }
}

impl MetricKind for SummaryLayout {
    const NUMBER: u8 = 6;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Summary;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        let schema = family.schema();
        let fail = || damaged(schema);
        let (head, rest) = schema.settings.split_first_chunk::<8>().ok_or_else(fail)?;
        let window = u64::from_le_bytes(*head);
        let is_short = Duration::from_nanos(window) < MIN_WINDOW;
        if rest.len() % 8 != 0 || schema.cells != CELLS || is_short {
            return Err(fail());
        }
        let quantiles: Box<[f64]> = rest
            .chunks_exact(8)
            .map(|chunk| f64::from_le_bytes(chunk.try_into().expect("a chunk has 8 bytes")))
            .collect();
        if !are_quantiles(&quantiles) {
            return Err(fail());
        }
        let clock = CoarseClock::anchored(family.segment().anchor());
        Ok(Self { quantiles, width: window / AGES, clock })
    }

    fn read(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        self.read_quantiles(family, cells, scratch);
        let (count, sum) = (cells.sum(COUNT), cells.sum_float(SUM));
        emit(Value::Summary(SummaryValue::new(count, sum).quantiles(&scratch.quantiles)));
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::<Self>::clone(self))
    }
}

impl SideAllocations for SummaryLayout {
    fn is_offset(&self, cell: usize) -> bool {
        cell >= FIRST_AGE && (cell - FIRST_AGE) % AGE_CELLS == TABLE
    }

    fn clear(&self, family: &series::Family, cells: &SeriesCells<'_>) {
        for age in 0..AGES as usize {
            let age = FIRST_AGE + age * AGE_CELLS;
            cells.plain(age + ZERO).store(0, Ordering::Relaxed);
            native::clear(family, cells, age + TABLE);
        }
    }

    fn renew(&self, family: &series::Family, cells: &SeriesCells<'_>) {
        for age in 0..AGES as usize {
            native::renew(family, cells, FIRST_AGE + age * AGE_CELLS + TABLE, SCHEMA);
        }
    }
}

impl Register for Summary {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
