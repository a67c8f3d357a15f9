//! Histograms: counts of observations by size, in classic buckets, exponential ones, or both.

use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle, SideAllocations};

use super::exemplar::{self, KeptExemplar};
use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use super::native;
use super::timer::Timer;
use crate::description::{DEFAULT_ZERO_THRESHOLD, Description, Native};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// Counts observations in buckets, and adds them up.
#[derive(Debug, Clone)]
pub struct Histogram {
    bound: SeriesHandle,
    layout: Arc<Layout>,
}

/// Histograms by label.
pub type HistogramFamily<L> = Family<Histogram, L>;

/// The layout of a histogram's cells: the sum; the classic buckets with `+Inf` last; if it has
/// native buckets, the zero bucket and the offset of their newest table; and the exemplar cell, if
/// it keeps exemplars. Without classic buckets, the cell of `+Inf` counts NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub(crate) bounds: Box<[f64]>,
    pub(crate) native: Option<Native>,
    pub(crate) exemplars: bool,
}

/// The default bounds of Prometheus' clients, in seconds.
const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Beyond this number of bounds, the bucket is found by binary search.
const LINEAR: usize = 16;

pub(crate) const SUM: usize = 0;
pub(crate) const FIRST_BUCKET: usize = 1;

impl Layout {
    pub(crate) fn zero(&self) -> usize {
        FIRST_BUCKET + self.bounds.len() + 1
    }

    pub(crate) fn table(&self) -> usize {
        self.zero() + 1
    }

    /// The cell for exemplars; an index out of range if it keeps none.
    pub(crate) fn exemplar(&self) -> usize {
        if self.exemplars { self.cells() - 1 } else { usize::MAX }
    }

    fn cells(&self) -> usize {
        self.zero() + 2 * usize::from(self.native.is_some()) + usize::from(self.exemplars)
    }

    /// Whether it has classic buckets.
    pub(crate) fn is_classic(&self) -> bool {
        !self.bounds.is_empty() || self.native.is_none()
    }

    /// The classic bucket of a value: the first whose bound is not below it.
    #[inline]
    fn bucket(&self, value: f64) -> usize {
        if self.bounds.len() <= LINEAR {
            // Without a branch, since buckets are unpredictable. NaN is below no bound.
            let below: usize = self.bounds.iter().map(|bound| usize::from(value <= *bound)).sum();
            self.bounds.len() - below
        } else if value.is_nan() {
            self.bounds.len()
        } else {
            self.bounds.partition_point(|bound| *bound < value)
        }
    }

    #[inline]
    fn observe(&self, family: &series::Family, place: &SeriesCells<'_>, value: f64) {
        if self.is_classic() || value.is_nan() {
            place.add(FIRST_BUCKET + self.bucket(value), 1);
        }
        if let Some(native) = &self.native
            && !value.is_nan()
        {
            if value.abs() <= native.zero_threshold {
                place.add(self.zero(), 1);
            } else {
                let (table, schema) = (self.table(), native.schema);
                if !native::observe(family, place, table, value, schema, native.buckets) {
                    // No room for a table: count it here, so that the total stays right.
                    place.add(self.zero(), 1);
                }
            }
        }
        place.add_float(SUM, value);
    }

    /// Clears the native buckets and the exemplars.
    pub(crate) fn clear_side(&self, family: &series::Family, place: &SeriesCells<'_>) {
        if self.native.is_some() {
            native::clear(family, place, self.table());
        }
        exemplar::clear(family, place, self.exemplar());
    }

    /// Whether a cell holds the offset of memory beside the cells.
    pub(crate) fn is_side(&self, cell: usize) -> bool {
        (self.native.is_some() && cell == self.table()) || cell == self.exemplar()
    }

    fn new(description: &Description) -> Result<Self, Error> {
        let fail = |what: String| Err(Error::invalid(&description.full_name(), what));
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
                "its bucket bounds are out of order ({second} after {first}): sort them, and give \
                 each once"
            ));
        }
        let bounds: Box<[f64]> =
            bounds.into_iter().filter(|bound| *bound != f64::INFINITY).collect();
        if bounds.len() > MOST_BOUNDS {
            return fail(format!("{} buckets are too many: use up to {MOST_BOUNDS}", bounds.len()));
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
        Ok(Self { bounds, native: description.native, exemplars: description.exemplars })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.exemplars), u8::from(self.native.is_some())];
        let native = self.native.unwrap_or(Native {
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

    /// Reads what [`Layout::encode`] wrote, from untrusted bytes.
    pub(crate) fn decode(schema: &Schema) -> Result<Self, Error> {
        let fail = || Error::invalid(&schema.name, "its settings in the segment are damaged");
        let (head, rest) = schema.settings.split_at_checked(16).ok_or_else(fail)?;
        let float =
            |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("both callers give 8 bytes"));
        if rest.len() % 8 != 0 || head[0] > 1 || head[1] > 1 {
            return Err(fail());
        }
        let schema_number = head[2].cast_signed();
        let native = Native {
            schema: schema_number,
            buckets: u16::from_le_bytes([head[4], head[5]]),
            zero_threshold: float(&head[8..16]),
        };
        let native = (head[1] == 1).then_some(native);
        let is_wrong = |native: Native| {
            !native::SCHEMAS.contains(&native.schema) || !NATIVE_BUCKETS.contains(&native.buckets)
        };
        if native.is_some_and(is_wrong) {
            return Err(fail());
        }
        let bounds = rest.chunks_exact(8).map(float).collect();
        let layout = Self { bounds, native, exemplars: head[0] == 1 };
        if layout.cells() != usize::from(schema.cells) {
            return Err(fail());
        }
        Ok(layout)
    }
}

/// The allowed limits for native buckets.
const NATIVE_BUCKETS: std::ops::RangeInclusive<u16> = 8..=384;
/// The maximum number of bounds, so that all cells fit in a lane.
const MOST_BOUNDS: usize = 500;

impl Histogram {
    /// Counts `value` and adds it to the sum.
    #[inline]
    pub fn observe(&self, value: f64) {
        self.layout.observe(self.bound.family(), self.bound.place(), value);
    }

    /// Like [`Histogram::observe`], and keeps `exemplar`, pairs of names and values, as the
    /// bucket's exemplar. See [`Counter::inc_with`](crate::Counter::inc_with).
    pub fn observe_with(&self, value: f64, exemplar: &[(&str, &str)]) {
        self.observe(value);
        let slot = self.layout.bucket(value);
        let (family, place) = (self.bound.family(), self.bound.place());
        exemplar::keep(family, place, self.layout.exemplar(), slot, value, exemplar);
    }

    /// Returns the last exemplar of the bucket of `value`.
    pub fn exemplar(&self, value: f64) -> Option<KeptExemplar> {
        let (family, place) = (self.bound.family(), self.bound.place());
        exemplar::kept(family, place, self.layout.exemplar(), self.layout.bucket(value))
    }

    /// Keeps an exemplar for the bucket of `value`, without counting: for callers that have already
    /// observed it.
    pub fn exemplify(&self, value: f64, exemplar: &[(&str, &str)]) {
        let slot = self.layout.bucket(value);
        let (family, place) = (self.bound.family(), self.bound.place());
        exemplar::keep(family, place, self.layout.exemplar(), slot, value, exemplar);
    }

    /// Starts a timer that observes the seconds until it is dropped.
    pub fn start_timer(&self) -> Timer<'_> {
        Timer::start(self)
    }

    /// Calls `work`, and observes how many seconds it took.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _timer = self.start_timer();
        work()
    }

    /// Returns the sum of all observations.
    pub fn sum(&self) -> f64 {
        self.bound.place().sum_float(SUM)
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        let place = self.bound.place();
        let classic = (0..=self.layout.bounds.len())
            .fold(0_u64, |sum, bucket| sum.wrapping_add(place.sum(FIRST_BUCKET + bucket)));
        match &self.layout.native {
            Some(native) if !self.layout.is_classic() => {
                let (mut positive, mut negative) = (Vec::new(), Vec::new());
                native::gather(
                    self.bound.family(),
                    place,
                    self.layout.table(),
                    native.schema,
                    native.buckets,
                    &mut positive,
                    &mut negative,
                );
                let buckets = positive.iter().chain(&negative).map(|(_, count)| count);
                let others = classic.wrapping_add(place.sum(self.layout.zero()));
                buckets.fold(others, |sum, count| sum.wrapping_add(*count))
            }
            _ => classic,
        }
    }
}

impl<L: LabelGroup> Family<Histogram, L> {
    /// Observes `value` in the series of these labels.
    #[inline]
    pub fn observe<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (family, layout) = (&self.series, &*self.shared);
        family.update(Self::key(labels), |place| layout.observe(family, &place, value));
    }
}

impl Instrument for Histogram {
    type Shared = Arc<Layout>;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let layout = Layout::new(description)?;
        schema.kind = MetricKind::Histogram as u8;
        // At most 505: `new` checked it.
        schema.cells = layout.cells() as u16;
        schema.floats = 1 << SUM;
        schema.additive = true;
        schema.settings = layout.encode();
        Ok(())
    }

    fn shared(series: &series::Family) -> Result<Arc<Layout>, Error> {
        Layout::decode(series.schema()).map(Arc::new)
    }

    fn bound(bound: SeriesHandle, layout: &Arc<Layout>) -> Self {
        Self { bound, layout: Arc::clone(layout) }
    }

    fn clear_side(series: &series::Family, layout: &Arc<Layout>, place: &SeriesCells<'_>) {
        layout.clear_side(series, place);
    }

    fn sides(layout: &Arc<Layout>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::<Layout>::clone(layout))
    }
}

impl SideAllocations for Layout {
    fn is_offset(&self, cell: usize) -> bool {
        self.is_side(cell)
    }

    fn renew(&self, family: &series::Family, place: &SeriesCells<'_>) {
        if let Some(native) = &self.native {
            native::renew(family, place, self.table(), native.schema);
        }
        exemplar::clear(family, place, self.exemplar());
    }
}

impl Register for Histogram {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
