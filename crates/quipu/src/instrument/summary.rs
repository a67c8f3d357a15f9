//! Summaries: quantiles of what was observed in the last minutes, a count and a sum.
//!
//! The quantiles come from exponential buckets that are 2.2 % wide: a quantile is off by 1.1 % at
//! most, whatever the distribution (Masson, Rim, Lee: "DDSketch", 2019, has the same guarantee by
//! the same means). The window is cut into five ages. Each has buckets of its own, which are emptied
//! when its turn comes again; an observation in that very moment may be lost from the quantiles, and
//! never from count and sum.

use std::sync::Arc;
use std::time::Duration;

use quipu_segment::clock::{Clock, Coarse};
use quipu_segment::series::{self, Beside, Bound, Place, Schema};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use super::native;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// Shows quantiles of what it observed within a sliding window.
///
/// Quantiles cannot be added up over several machines, which the buckets of a [`Histogram`] can.
/// Processes that share the segment observe into the same window.
///
/// [`Histogram`]: crate::Histogram
#[derive(Debug, Clone)]
pub struct Summary {
    bound: Bound,
    layout: Arc<Layout>,
}

/// Summaries by label.
pub type SummaryFamily<L> = Family<Summary, L>;

/// What all series of a summary share.
#[derive(Debug)]
pub struct Layout {
    pub(crate) quantiles: Box<[f64]>,
    window: Duration,
    /// The segment's: all processes have the same ticks.
    clock: Coarse,
}

pub(crate) const SUM: usize = 0;
pub(crate) const COUNT: usize = 1;
/// For each age: the number of the tick that it has, the tables of its buckets, and how many
/// observations were zero.
const FIRST_AGE: usize = 2;
const AGE_CELLS: usize = 3;
const TICK: usize = 0;
const TABLE: usize = 1;
const ZERO: usize = 2;
const AGES: u64 = 5;
const CELLS: u16 = FIRST_AGE as u16 + AGES as u16 * AGE_CELLS as u16;
/// 32 buckets an octave.
const SCHEMA: i8 = 5;
const MOST_BUCKETS: u16 = 384;
const DEFAULT_WINDOW: Duration = Duration::from_secs(600);
const DEFAULT_QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

impl Layout {
    fn tick(&self, now: u64) -> u64 {
        let width = self.window.as_nanos() / u128::from(AGES);
        // A window is at least 5 milliseconds: `describe` saw to it.
        now / u64::try_from(width).unwrap_or(u64::MAX).max(1)
    }

    #[inline]
    fn observe(&self, family: &series::Family, place: &Place<'_>, value: f64) {
        place.add(COUNT, 1);
        place.add_float(SUM, value);
        if value.is_nan() || self.quantiles.is_empty() {
            return;
        }
        let tick = self.tick(self.clock.now());
        let mut age = FIRST_AGE + (tick % AGES) as usize * AGE_CELLS;
        if place.plain(age + TICK).load(Ordering::Acquire) != tick {
            age = self.turn(family, place);
        }
        // What finds no room for a table is in count and sum alone.
        if value == 0.0 {
            place.plain(age + ZERO).fetch_add(1, Ordering::Relaxed);
        } else {
            native::observe(family, place, age + TABLE, value, SCHEMA, MOST_BUCKETS);
        }
    }

    /// Empties an age whose turn has come again, unless another thread does, and answers it.
    #[cold]
    fn turn(&self, family: &series::Family, place: &Place<'_>) -> usize {
        // The cheap clock of this process may not have seen yet that the machine was suspended.
        let tick = self.tick(self.clock.settle());
        let age = FIRST_AGE + (tick % AGES) as usize * AGE_CELLS;
        let mark = place.plain(age + TICK);
        let seen = mark.load(Ordering::Acquire);
        // Who comes late counts in what has begun meanwhile. What lies far ahead is of no time.
        let is_over = seen < tick || seen > tick + AGES;
        if is_over && mark.compare_exchange(seen, tick, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            place.plain(age + ZERO).store(0, Ordering::Relaxed);
            native::clear(family, place, age + TABLE);
        }
        age
    }

    /// Empties all ages.
    pub(crate) fn clear_beside(&self, family: &series::Family, place: &Place<'_>) {
        for age in 0..AGES as usize {
            let age = FIRST_AGE + age * AGE_CELLS;
            place.plain(age + ZERO).store(0, Ordering::Relaxed);
            native::clear(family, place, age + TABLE);
        }
    }

    /// Whether a cell has the offset of what lies beside.
    pub(crate) fn is_beside(cell: usize) -> bool {
        cell >= FIRST_AGE && (cell - FIRST_AGE) % AGE_CELLS == TABLE
    }

    /// The quantiles of the window, into `out`. The other vectors are memory to work in.
    pub(crate) fn read(
        &self,
        family: &series::Family,
        place: &Place<'_>,
        [positive, negative, all]: [&mut Vec<(i32, u64)>; 3],
        out: &mut Vec<(f64, f64)>,
    ) {
        let tick = self.tick(self.clock.settle());
        let mut coarsest = SCHEMA;
        let mut zeros = 0_u64;
        all.clear();
        // Two rounds: the ages may differ in their schemas, and the first finds the coarsest.
        for round in 0..2 {
            for age in 0..AGES as usize {
                let age = FIRST_AGE + age * AGE_CELLS;
                let seen = place.plain(age + TICK).load(Ordering::Acquire);
                if seen > tick || seen + AGES <= tick {
                    continue;
                }
                let schema = native::gather(
                    family,
                    place,
                    age + TABLE,
                    SCHEMA,
                    u16::MAX,
                    positive,
                    negative,
                );
                if round == 0 {
                    coarsest = coarsest.min(schema);
                    let zero = place.plain(age + ZERO).load(Ordering::Relaxed);
                    zeros = zeros.wrapping_add(zero);
                    continue;
                }
                let fold = |index: i32| (coarsest..schema).fold(index, |i, _| (i + 1) >> 1);
                // Twice the index, and one more for those above zero: in the order of the values.
                all.extend(negative.iter().map(|&(i, count)| (-2 * fold(i) - OFFSET, count)));
                all.extend(positive.iter().map(|&(i, count)| (2 * fold(i) + OFFSET, count)));
            }
        }
        all.push((0, zeros));
        all.sort_unstable_by_key(|(order, _)| *order);
        let total: u64 = all.iter().fold(0, |sum, (_, count)| sum.wrapping_add(*count));
        out.clear();
        for &quantile in &self.quantiles {
            let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
            let mut below = 0_u64;
            let found = all.iter().find(|(_, count)| {
                below = below.wrapping_add(*count);
                below >= rank
            });
            let value = found.filter(|_| total > 0).map_or(f64::NAN, |&(order, _)| {
                let middle = |twice: i32| {
                    let index = (twice - OFFSET) / 2;
                    // In the middle, by factor, of its bucket's bounds.
                    let (low, high) =
                        (native::bound(index - 1, coarsest), native::bound(index, coarsest));
                    2.0 * low * (high / (low + high))
                };
                match order {
                    0 => 0.0,
                    order if order > 0 => middle(order),
                    order => -middle(-order),
                }
            });
            out.push((quantile, value));
        }
    }

    /// Reads what `describe` wrote, from bytes that may be anything.
    pub(crate) fn decode(series: &series::Family) -> Result<Self, Error> {
        let schema = series.schema();
        let fail = || Error::invalid(&schema.name, "its settings in the segment are damaged");
        let (head, rest) = schema.settings.split_first_chunk::<8>().ok_or_else(fail)?;
        let window = Duration::from_nanos(u64::from_le_bytes(*head));
        if rest.len() % 8 != 0 || schema.cells != CELLS || window < LEAST_WINDOW {
            return Err(fail());
        }
        let quantiles = rest
            .chunks_exact(8)
            .map(|chunk| f64::from_le_bytes(chunk.try_into().expect("a chunk has 8 bytes")));
        let anchor = series.segment().anchor();
        Ok(Self { quantiles: quantiles.collect(), window, clock: Coarse::anchored(anchor) })
    }
}

/// More than the distance from any index, times two, to zero.
const OFFSET: i32 = 1 << 20;
const LEAST_WINDOW: Duration = Duration::from_millis(5);

impl Summary {
    /// Counts `value`.
    #[inline]
    pub fn observe(&self, value: f64) {
        self.layout.observe(self.bound.family(), self.bound.place(), value);
    }

    /// Calls `work`, and observes the seconds that it took.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = std::time::Instant::now();
        let answer = work();
        self.observe(start.elapsed().as_secs_f64());
        answer
    }

    /// The sum of all observations, older ones included.
    pub fn sum(&self) -> f64 {
        self.bound.place().sum_float(SUM)
    }

    /// How many observations there were, older ones included.
    pub fn count(&self) -> u64 {
        self.bound.place().sum(COUNT)
    }

    /// Pairs of quantile and value, of the window; NaN where nothing was observed.
    pub fn quantiles(&self) -> Vec<(f64, f64)> {
        let mut out = Vec::new();
        let mut memory = [const { Vec::new() }; 3];
        let [a, b, c] = &mut memory;
        self.layout.read(self.bound.family(), self.bound.place(), [a, b, c], &mut out);
        out
    }
}

impl<L: LabelGroup> Family<Summary, L> {
    /// Observes `value` in the series of these labels.
    #[inline]
    pub fn observe<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (family, layout) = (&self.series, &*self.shared);
        family.update(Self::key(labels), |place| layout.observe(family, &place, value));
    }
}

impl Instrument for Summary {
    type Shared = Arc<Layout>;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let fail = |what: String| Err(Error::invalid(&description.full_name(), what));
        let quantiles = description.quantiles.as_deref().unwrap_or(&DEFAULT_QUANTILES);
        if let Some(wrong) = quantiles.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return fail(format!("{wrong} is no quantile; those from 0 to 1 are"));
        }
        if quantiles.windows(2).any(|pair| pair[0] >= pair[1]) {
            return fail("its quantiles are out of order; sort them, and give each once".into());
        }
        let window = description.window.unwrap_or(DEFAULT_WINDOW);
        if window < LEAST_WINDOW {
            return fail(format!("a window of {window:?}; {LEAST_WINDOW:?} is the least"));
        }
        schema.kind = MetricKind::Summary as u8;
        schema.cells = CELLS;
        schema.floats = 1 << SUM;
        schema.additive = true;
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        schema.settings = nanos.to_le_bytes().to_vec();
        schema.settings.extend(quantiles.iter().flat_map(|quantile| quantile.to_le_bytes()));
        Ok(())
    }

    fn shared(series: &series::Family) -> Result<Arc<Layout>, Error> {
        Layout::decode(series).map(Arc::new)
    }

    fn bound(bound: Bound, layout: &Arc<Layout>) -> Self {
        Self { bound, layout: Arc::clone(layout) }
    }

    fn clear_beside(series: &series::Family, layout: &Arc<Layout>, place: &Place<'_>) {
        layout.clear_beside(series, place);
    }

    fn beside(layout: &Arc<Layout>) -> Option<Arc<dyn Beside>> {
        Some(Arc::<Layout>::clone(layout))
    }
}

impl Beside for Layout {
    fn is_offset(&self, cell: usize) -> bool {
        Self::is_beside(cell)
    }

    fn renew(&self, family: &series::Family, place: &Place<'_>) {
        for age in 0..AGES as usize {
            native::renew(family, place, FIRST_AGE + age * AGE_CELLS + TABLE, SCHEMA);
        }
    }
}

impl Register for Summary {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
