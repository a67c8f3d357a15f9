//! The cells of a histogram, and how a scrape reads them.

use std::sync::Arc;

use quipu_segment::series::{Family, Schema, SeriesCells, SideAllocations};

use super::bounds::{Bounds, FEW};
use crate::description::{DEFAULT_ZERO_THRESHOLD, Description, NativeSettings};
use crate::error::Error;
use crate::kind::exemplar::{self, ReadExemplar};
use crate::kind::metric_kind::{MetricKind, Scratch, add_count, are_bounds, damaged};
use crate::kind::native::{self, NativeGrowth, Sides};
use crate::snapshot::{self, Bucket, HistogramValue, Value};

/// The layout of a histogram's cells: the sum; the classic buckets with `+Inf` last; with native
/// buckets, the zero bucket and the offset of their newest table; the exemplar cell, if it keeps
/// exemplars; and the time of the last sample, if it keeps that time. Without classic buckets, the
/// cell of `+Inf` counts NaN.
///
/// A histogram in lanes, with fewer than 16 bounds and no native buckets, is *paired*: each bucket
/// is a pair of a sum and a count, and a scrape adds up the sums. This layout takes nearly twice
/// the memory, but an observation is one addition to a pair, and does not wait for the last
/// addition to a common sum. Without restartable sequences, this is two atomic additions, like in
/// the other layout. An unused cell follows the exemplar cell, because the pairs of the next series
/// must be aligned.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramLayout {
    bounds: Bounds,
    is_paired: bool,
    pub(crate) native: Option<NativeSettings>,
    pub(crate) exemplars: bool,
    pub(crate) times: bool,
}

/// The default bounds of Prometheus' clients, in seconds.
const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The cell of the sum, or of the first pair's sum.
pub(crate) const SUM: usize = 0;
/// The cell of the first bucket's count.
const FIRST_BUCKET: usize = 1;

impl HistogramLayout {
    /// The cells that hold floats, as bits, if it is not paired.
    pub(crate) const FLOATS: u64 = 1 << SUM;

    /// Checks the settings of a description.
    pub(super) fn new(description: &Description) -> Result<Self, Error> {
        let fail = |reason: String| Err(Error::invalid(&description.full_name(), reason));
        let bounds = match (&description.buckets, &description.native) {
            (Some(bounds), _) => bounds.clone(),
            (None, Some(_)) => Vec::new(),
            (None, None) => DEFAULT_BOUNDS.to_vec(),
        };
        if bounds.iter().any(|bound| bound.is_nan()) {
            return fail("a bucket bound is NaN: leave it out".into());
        }
        if let Some(pair) = bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
            let (first, second) = (pair[0], pair[1]);
            return fail(format!(
                "its bucket bounds are out of order ({second} after {first}): sort them, and list \
                 each once"
            ));
        }
        let bounds: Box<[f64]> =
            bounds.into_iter().filter(|bound| *bound != f64::INFINITY).collect();
        if bounds.len() > MAX_BOUNDS {
            return fail(format!("{} buckets are too many: use up to {MAX_BOUNDS}", bounds.len()));
        }
        if let Some(native) = &description.native {
            if !native::SCHEMAS.contains(&native.schema) {
                let schema = native.schema;
                return fail(format!("native schema {schema} is out of range: use -4 to 8"));
            }
            if !NATIVE_BUCKETS.contains(&native.buckets) {
                return fail(format!(
                    "a limit of {} native buckets is out of range: use 8 to 384",
                    native.buckets
                ));
            }
            if native.zero_threshold < 0.0 || native.zero_threshold.is_nan() {
                return fail("its zero threshold is negative or NaN: use 0 or more".into());
            }
        }
        Ok(Self {
            bounds: Bounds::new(bounds),
            is_paired: false,
            native: description.native,
            exemplars: description.exemplars,
            times: false,
        })
    }

    /// Changes a schema to the paired layout, if the family is in lanes and uses few buckets.
    pub(super) fn pair(schema: &mut Schema) {
        let Some(layout) = Self::from_schema(schema) else { return };
        let paired = Self { is_paired: true, ..layout };
        if paired.can_be_paired() && schema.suits_pairs(paired.cells()) {
            // Fewer than 16 bounds: at most 34 cells.
            schema.cells = paired.cells() as u16;
            schema.pairs = (paired.bounds.len() + 1) as u8;
            schema.floats = (0..schema.pairs).fold(0, |floats, pair| floats | 1 << (2 * pair));
        }
    }

    /// Reduces a schema to a layout whose cells can be read without side allocations. The first
    /// cell holds the sums of all pairs. Exponential buckets are dropped, if there are classic
    /// ones.
    pub(crate) fn reduce(schema: &mut Schema) {
        let Some(layout) = Self::from_schema(schema) else { return };
        let native = layout.native.filter(|_| layout.bounds.is_empty());
        let (is_paired, exemplars, times) = (false, false, false);
        let reduced = Self { is_paired, native, exemplars, times, ..layout };
        schema.settings = reduced.encode();
        schema.cells = reduced.cells() as u16; // Fewer than before.
        (schema.pairs, schema.floats) = (0, Self::FLOATS);
    }

    /// Reads the settings of a family's record, which are untrusted. `None` if they are invalid or
    /// contradict the cells.
    fn from_schema(schema: &Schema) -> Option<Self> {
        let (head, rest) = schema.settings.split_at_checked(16)?;
        let float =
            |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("both callers give 8 bytes"));
        if rest.len() % 8 != 0 || head[0] > KEEPS_EXEMPLARS | KEEPS_TIMES || head[1] > 1 {
            return None;
        }
        let schema_number = head[2].cast_signed();
        let native = NativeSettings {
            schema: schema_number,
            buckets: u16::from_le_bytes([head[4], head[5]]),
            zero_threshold: float(&head[8..16]),
        };
        let native = (head[1] == 1).then_some(native);
        let is_wrong = |native: NativeSettings| {
            !native::SCHEMAS.contains(&native.schema)
                || !NATIVE_BUCKETS.contains(&native.buckets)
                || native.zero_threshold < 0.0
                || native.zero_threshold.is_nan()
        };
        if native.is_some_and(is_wrong) {
            return None;
        }
        let bounds: Box<[f64]> = rest.chunks_exact(8).map(float).collect();
        if !are_bounds(&bounds) {
            return None;
        }
        let bounds = Bounds::new(bounds);
        let keeps = |bit| head[0] & bit != 0;
        let (exemplars, times) = (keeps(KEEPS_EXEMPLARS), keeps(KEEPS_TIMES));
        let is_paired = schema.pairs > 0;
        let layout = Self { bounds, is_paired, native, exemplars, times };
        let has_pairs =
            layout.can_be_paired() && usize::from(schema.pairs) == layout.bounds.len() + 1;
        let has_cells = layout.cells() == usize::from(schema.cells);
        (has_cells && (has_pairs || !is_paired)).then_some(layout)
    }

    /// Returns whether there are few buckets, all classic. Only families with dynamic labels keep
    /// times.
    fn can_be_paired(&self) -> bool {
        self.native.is_none() && self.bounds.len() < FEW && !self.times
    }

    /// Returns the cell with the count of an existing classic bucket.
    fn count_cell(&self, bucket: usize) -> usize {
        FIRST_BUCKET + (bucket << u32::from(self.is_paired))
    }

    /// Returns the cell with the count of a classic bucket, if there is such a bucket.
    pub(crate) fn bucket_cell(&self, bucket: usize) -> Option<usize> {
        (bucket <= self.bounds.len()).then(|| self.count_cell(bucket))
    }

    /// Returns the cells that add up to the sum.
    pub(crate) fn sum_cells(&self) -> impl Iterator<Item = usize> + use<> {
        let sums = if self.is_paired { self.bounds.len() + 1 } else { 1 };
        (0..sums).map(|pair| SUM + 2 * pair)
    }

    /// Encodes the settings for the family's record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let bit = |keeps: bool, bit: u8| if keeps { bit } else { 0 };
        let kept = bit(self.exemplars, KEEPS_EXEMPLARS) | bit(self.times, KEEPS_TIMES);
        let mut out = vec![kept, u8::from(self.native.is_some())];
        let native = self.native.unwrap_or(NativeSettings {
            schema: 0,
            buckets: 0,
            zero_threshold: DEFAULT_ZERO_THRESHOLD,
        });
        out.extend_from_slice(&native.schema.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&native.buckets.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&native.zero_threshold.to_le_bytes());
        self.bounds.iter().for_each(|bound| out.extend_from_slice(&bound.to_le_bytes()));
        out
    }

    #[inline(always)]
    pub(super) fn observe(&self, sides: &impl Sides, cells: &SeriesCells<'_>, value: f64) {
        if cells.last_pair().is_some() {
            return self.observe_pair(cells, value);
        }
        match &self.native {
            None => self.observe_classic(cells, value),
            Some(native) => self.observe_native(native, sides, cells, value),
        }
    }

    /// Observes a value in cells that begin with pairs.
    #[inline(always)]
    pub(super) fn observe_pair(&self, cells: &SeriesCells<'_>, value: f64) {
        if let Some(last) = cells.last_pair() {
            cells.add_pair(self.bounds.rank(value, last), 1, value);
        }
    }

    #[inline]
    pub(super) fn is_paired(&self) -> bool {
        self.is_paired
    }

    /// Never inlined: otherwise, callers that observe in pairs would save registers for this path.
    #[inline(never)]
    fn observe_classic(&self, cells: &SeriesCells<'_>, value: f64) {
        cells.add(FIRST_BUCKET + self.bounds.bucket(value), 1);
        cells.add_float(SUM, value);
    }

    /// Never inlined, because most native histograms contain no classic buckets.
    #[inline(never)]
    fn count_classic(&self, cells: &SeriesCells<'_>, value: f64) {
        cells.add(FIRST_BUCKET + self.bounds.bucket(value), 1);
    }

    /// Observes a value in native buckets, and in classic ones, if there are any. Never inlined, so
    /// callers that observe in classic buckets only save no registers for this (84 instructions if
    /// it is called from one function with them, 77 if not).
    #[inline(never)]
    fn observe_native(
        &self,
        native: &NativeSettings,
        sides: &impl Sides,
        cells: &SeriesCells<'_>,
        value: f64,
    ) {
        if value.is_nan() {
            // NaN is in no native bucket. The classic bucket of `+Inf` always exists.
            return self.observe_classic(cells, value);
        }
        if !self.bounds.is_empty() {
            self.count_classic(cells, value);
        }
        let (table, schema) = (self.table(), native.schema);
        // If there is no room for a table, count the value as zero, because the total must stay
        // right.
        if value.abs() <= native.zero_threshold
            || !native::observe(sides, cells, table, value, schema, native.buckets)
        {
            cells.add(self.zero(), 1);
        }
        cells.add_float(SUM, value);
    }

    /// Returns the bounds, without `+Inf`.
    pub(crate) fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Observes a value `n` times.
    pub(crate) fn observe_many(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        value: f64,
        n: u64,
    ) {
        cells.add_float(SUM, value * n as f64);
        if self.is_classic() || value.is_nan() {
            let bucket = if value.is_nan() { self.bounds.len() } else { self.bounds.bucket(value) };
            add_count(cells, self.count_cell(bucket), n);
        }
        let Some(native) = self.native.filter(|_| !value.is_nan()) else { return };
        let (table, schema) = (self.table(), native.schema);
        // As in `observe_native`.
        if value.abs() <= native.zero_threshold
            || !native::observe_many(family, cells, table, value, n, schema, native.buckets)
        {
            add_count(cells, self.zero(), n);
        }
    }

    /// Adds counts of classic buckets, `+Inf` last, and a sum.
    pub(crate) fn add_classic(&self, cells: &SeriesCells<'_>, counts: &[(f64, f64)], sum: f64) {
        cells.add_float(SUM, sum);
        for (bucket, (_, count)) in counts.iter().take(self.bounds.len() + 1).enumerate() {
            // The count is not negative, because the intake checks it.
            add_count(cells, self.count_cell(bucket), count.round() as u64);
        }
    }

    /// Adds counts of native buckets, which can use another schema than the existing ones, and a
    /// sum.
    pub(crate) fn add_native(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        given: &snapshot::Native<'_>,
        sum: f64,
    ) {
        let Some(native) = self.native else { return };
        let (table, schema, most) = (self.table(), given.schema, native.buckets);
        cells.add_float(SUM, sum);
        let mut zero = given.zero_count;
        for (side, is_negative) in [(given.positive, false), (given.negative, true)] {
            for &(index, count) in side.iter().filter(|(_, count)| *count > 0) {
                let bucket = (index, is_negative);
                if !native::add(family, cells, table, bucket, count, schema, most) {
                    zero = zero.saturating_add(count);
                }
            }
        }
        add_count(cells, self.zero(), zero);
    }

    /// Sets the native buckets and the sum to the values of a source. If one of them decreased, all
    /// of them start over, because the source restarted.
    pub(crate) fn follow_native(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        given: &snapshot::Native<'_>,
        sum: f64,
    ) {
        let mut scratch = Scratch::default();
        let Some((_, schema)) = self.read_native(family, cells, &mut scratch) else { return };
        // In the coarser of both schemas.
        let common = schema.min(given.schema);
        let coarse = |side| native::coarsened(side, given.schema, common);
        let have = |side| native::coarsened(side, schema, common);
        let missing = (
            native::missing(&coarse(given.positive), &have(&scratch.positive)),
            native::missing(&coarse(given.negative), &have(&scratch.negative)),
            given.zero_count.checked_sub(cells.sum(self.zero())),
        );
        let (Some(positive), Some(negative), Some(zero_count)) = missing else {
            return self.set_native(family, cells, given, sum);
        };
        let missing = snapshot::Native {
            schema: common,
            positive: &positive,
            negative: &negative,
            zero_count,
            ..*given
        };
        self.add_native(family, cells, &missing, sum - self.sum(cells));
    }

    /// Returns how much the native buckets of a source have grown since these cells followed it, in
    /// the coarser of both schemas, and at most `most` observations. If the source restarted, the
    /// growth is everything that the source counts.
    pub(crate) fn native_growth(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        given: &snapshot::Native<'_>,
        mut most: u64,
        is_restarted: bool,
    ) -> Option<NativeGrowth> {
        let mut scratch = Scratch::default();
        let (_, schema) = self.read_native(family, cells, &mut scratch)?;
        let common = if is_restarted { given.schema } else { schema.min(given.schema) };
        let mut grown = |given_side: &[(i32, u64)], side: &[(i32, u64)]| {
            let have = match is_restarted {
                true => Vec::new(),
                false => native::coarsened(side, schema, common),
            };
            native::grown(&native::coarsened(given_side, given.schema, common), &have, &mut most)
        };
        let positive = grown(given.positive, &scratch.positive);
        let negative = grown(given.negative, &scratch.negative);
        let zero = if is_restarted { 0 } else { cells.sum(self.zero()) };
        let zero_count = given.zero_count.saturating_sub(zero).min(most);
        Some(NativeGrowth { schema: common, zero_count, positive, negative })
    }

    /// Replaces the native buckets and the sum.
    pub(crate) fn set_native(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        given: &snapshot::Native<'_>,
        sum: f64,
    ) {
        native::clear(family, cells, self.table());
        cells.clear(self.zero());
        cells.clear(FIRST_BUCKET + self.bounds.len());
        cells.clear(SUM);
        self.add_native(family, cells, given, sum);
    }

    /// Returns the sum of all observations.
    pub(super) fn sum(&self, cells: &SeriesCells<'_>) -> f64 {
        if self.is_paired { cells.sum_of_pairs() } else { cells.sum_float(SUM) }
    }

    /// Returns the number of observations.
    pub(crate) fn count(&self, family: &Family, cells: &SeriesCells<'_>) -> u64 {
        let classic = (0..=self.bounds.len())
            .fold(0_u64, |sum, bucket| sum.saturating_add(cells.sum(self.count_cell(bucket))));
        if self.is_classic() {
            return classic;
        }
        let mut scratch = Scratch::default();
        self.read_native(family, cells, &mut scratch);
        let buckets = scratch.positive.iter().chain(&scratch.negative).map(|(_, count)| *count);
        buckets.fold(classic.saturating_add(cells.sum(self.zero())), u64::saturating_add)
    }

    /// Reads the exponential buckets, and returns their schema.
    fn read_native(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
    ) -> Option<(NativeSettings, i8)> {
        let native = self.native?;
        let Scratch { positive, negative, .. } = scratch;
        let (table, finest, most) = (self.table(), native.schema, native.buckets);
        let schema = native::gather(family, cells, table, finest, most, positive, negative);
        Some((native, schema))
    }

    fn zero(&self) -> usize {
        FIRST_BUCKET + self.bounds.len() + 1
    }

    fn table(&self) -> usize {
        self.zero() + 1
    }

    /// Returns the cell for exemplars; an index out of range if it keeps none.
    pub(crate) fn exemplar(&self) -> usize {
        if self.exemplars { self.kept() } else { usize::MAX }
    }

    /// Returns the cell for the time of the last sample or increment, if it keeps that time.
    pub(crate) fn time(&self) -> Option<usize> {
        self.times.then(|| self.cells() - 1)
    }

    pub(super) fn cells(&self) -> usize {
        let kept = usize::from(self.exemplars) + usize::from(self.times);
        if self.is_paired { self.kept() + 2 * kept } else { self.kept() + kept }
    }

    /// Returns the first cell after the buckets.
    fn kept(&self) -> usize {
        if self.is_paired {
            return 2 * (self.bounds.len() + 1);
        }
        self.zero() + 2 * usize::from(self.native.is_some())
    }

    /// Returns whether there are classic buckets.
    pub(crate) fn is_classic(&self) -> bool {
        !self.bounds.is_empty() || self.native.is_none()
    }

    /// Returns the classic bucket of a value.
    #[inline]
    pub(crate) fn bucket(&self, value: f64) -> usize {
        self.bounds.bucket(value)
    }
}

impl MetricKind for HistogramLayout {
    const NUMBER: u8 = 5;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Histogram;

    fn decode(family: &Family) -> Result<Self, Error> {
        let schema = family.schema();
        Self::from_schema(schema).ok_or_else(|| damaged(schema))
    }

    fn read(
        &self,
        family: &Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let native = self.read_native(family, cells, scratch);
        exemplar::read_all(family, cells, self.exemplar(), scratch);
        let Scratch { slots, texts, arena, positive, negative, .. } = &mut *scratch;
        let exemplar = |slot: &ReadExemplar| slot.exemplar(texts);
        arena.scoped(|scope| {
            // A range, not a chain: the compiler would not inline the closure into both parts.
            let (bounds, read) = (&*self.bounds, &slots[..]);
            let buckets: &mut [Bucket<'_>] = scope.alloc_iter((0..=bounds.len()).map(|i| {
                let bound = bounds.get(i).copied().unwrap_or(f64::INFINITY);
                let slot = read.get(i).and_then(Option::as_ref);
                let count = cells.sum(self.count_cell(i));
                Bucket { bound, le: None, count, exemplar: slot.map(exemplar) }
            }));
            let sum = self.sum(cells);
            let mut count = buckets.iter().fold(0_u64, |sum, b| sum.saturating_add(b.count));
            let native = native.map(|(settings, schema)| snapshot::Native {
                schema,
                zero_threshold: settings.zero_threshold,
                zero_count: cells.sum(self.zero()),
                positive,
                negative,
                exemplars: scope.alloc_iter(slots.iter().flatten().map(exemplar)),
            });
            let is_classic = self.is_classic();
            if let Some(native) = &native {
                let sides = native.positive.iter().chain(native.negative).map(|(_, count)| *count);
                let total = sides.fold(native.zero_count, u64::saturating_add);
                // A scraper refuses native buckets that do not add up to the count, unless a NaN
                // was observed, which is in the last classic bucket only. An observation between
                // the reads above is in one kind of buckets only, and so is an observation whose
                // process was killed in between.
                count = if !is_classic {
                    count.saturating_add(total)
                } else if sum.is_nan() {
                    count.max(total)
                } else {
                    total
                };
                fit(buckets, count);
            }
            let buckets: &[Bucket<'_>] = if is_classic { buckets } else { &[] };
            emit(Value::Histogram(HistogramValue { count, sum, buckets, native }));
        });
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::<Self>::clone(self))
    }
}

/// Makes buckets add up to a count: limits each cumulative count to `count`, and raises the last
/// one to it. Neither the cumulative counts of the cells nor `count` decrease between two scrapes,
/// so the results do not decrease either.
fn fit(buckets: &mut [Bucket<'_>], count: u64) {
    let mut rest = count;
    for bucket in &mut *buckets {
        bucket.count = bucket.count.min(rest);
        rest -= bucket.count;
    }
    if let Some(last) = buckets.last_mut() {
        last.count += rest;
    }
}

impl SideAllocations for HistogramLayout {
    fn is_offset(&self, cell: usize) -> bool {
        (self.native.is_some() && cell == self.table()) || cell == self.exemplar()
    }

    fn clear(&self, family: &Family, cells: &SeriesCells<'_>) {
        if self.native.is_some() {
            native::clear(family, cells, self.table());
        }
        exemplar::clear(family, cells, self.exemplar());
    }

    fn renew(&self, family: &Family, cells: &SeriesCells<'_>) {
        if let Some(native) = &self.native {
            native::renew(family, cells, self.table(), native.schema);
        }
        exemplar::clear(family, cells, self.exemplar());
    }
}

/// The bits of the first byte of the settings.
pub(crate) const KEEPS_EXEMPLARS: u8 = 1;
pub(crate) const KEEPS_TIMES: u8 = 2;
/// The allowed limits for native buckets.
const NATIVE_BUCKETS: std::ops::RangeInclusive<u16> = 8..=384;
/// The maximum number of bounds. All cells of this many bounds fit in a lane.
pub(crate) const MAX_BOUNDS: usize = 500;
