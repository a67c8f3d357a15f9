//! Counters: sums that only grow.

use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle, SideAllocations};

use super::exemplar::{self, Exemplars, KeptExemplar};
use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// A counter of integers, modulo 2^64.
#[derive(Debug, Clone)]
pub struct Counter(SeriesHandle);

/// Counters by label.
pub type CounterFamily<L> = Family<Counter, L>;

/// A counter of floating-point numbers, such as seconds.
#[derive(Debug, Clone)]
pub struct FloatCounter(SeriesHandle);

/// Float counters by label.
pub type FloatCounterFamily<L> = Family<FloatCounter, L>;

/// The cell of the total.
pub(crate) const TOTAL: usize = 0;
/// The cell of the exemplar, if the family keeps exemplars.
pub(crate) const EXEMPLAR: usize = 1;

impl Counter {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.0.place().add(TOTAL, 1);
    }

    /// Adds `n`.
    #[inline]
    pub fn inc_by(&self, n: u64) {
        self.0.place().add(TOTAL, n);
    }

    /// Adds `n`, and keeps `exemplar`: pairs of names and values, such as the ID of a trace. It is
    /// dropped if the names and values together have more than 128 characters, or more than 256
    /// bytes with one byte added for each. Without [`Description::exemplars`], none is kept.
    pub fn inc_with(&self, n: u64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        exemplar::keep(self.0.family(), self.0.place(), EXEMPLAR, 0, n as f64, exemplar);
    }

    /// Returns the total, the sum over all lanes. Concurrent additions may be included or not.
    pub fn get(&self) -> u64 {
        self.0.place().sum(TOTAL)
    }
}

impl FloatCounter {
    /// Returns the last exemplar.
    pub fn exemplar(&self) -> Option<KeptExemplar> {
        exemplar::kept(self.0.family(), self.0.place(), EXEMPLAR, 0)
    }

    /// Keeps an exemplar as [`Counter::inc_with`] does, without adding: for callers that have
    /// already added.
    pub fn exemplify(&self, value: f64, exemplar: &[(&str, &str)]) {
        exemplar::keep(self.0.family(), self.0.place(), EXEMPLAR, 0, value, exemplar);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.inc_by(1.0);
    }

    /// Adds `n`. Negative numbers and NaN are ignored: a counter never decreases.
    #[inline]
    pub fn inc_by(&self, n: f64) {
        if n >= 0.0 {
            self.0.place().add_float(TOTAL, n);
        }
    }

    /// Like [`Counter::inc_with`].
    pub fn inc_with(&self, n: f64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        exemplar::keep(self.0.family(), self.0.place(), EXEMPLAR, 0, n, exemplar);
    }

    /// Returns the total.
    pub fn get(&self) -> f64 {
        self.0.place().sum_float(TOTAL)
    }
}

impl<L: LabelGroup> Family<Counter, L> {
    /// Adds one to the series of these labels.
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.inc_by(labels, 1);
    }

    /// Adds `n` to the series of these labels.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: u64) {
        self.series.add(Self::key(labels), TOTAL, n);
    }
}

impl<L: LabelGroup> Family<FloatCounter, L> {
    /// Adds `n` to the series of these labels. Negative numbers and NaN are ignored.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        if n >= 0.0 {
            let key = Self::key(labels);
            self.series.update(key, |p| p.add_float(TOTAL, n));
        }
    }
}

impl Instrument for Counter {
    type Shared = ();

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        describe(description, schema, MetricKind::Counter, 0);
        Ok(())
    }

    fn shared(_: &series::Family) -> Result<(), Error> {
        Ok(())
    }

    fn bound(bound: SeriesHandle, (): &()) -> Self {
        Self(bound)
    }

    fn clear_side(series: &series::Family, (): &(), place: &SeriesCells<'_>) {
        exemplar::clear(series, place, EXEMPLAR);
    }

    fn sides((): &()) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(EXEMPLAR)))
    }
}

impl Instrument for FloatCounter {
    type Shared = ();

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        describe(description, schema, MetricKind::FloatCounter, 1 << TOTAL);
        Ok(())
    }

    fn shared(_: &series::Family) -> Result<(), Error> {
        Ok(())
    }

    fn bound(bound: SeriesHandle, (): &()) -> Self {
        Self(bound)
    }

    fn clear_side(series: &series::Family, (): &(), place: &SeriesCells<'_>) {
        exemplar::clear(series, place, EXEMPLAR);
    }

    fn sides((): &()) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(EXEMPLAR)))
    }
}

impl Register for Counter {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}

impl Register for FloatCounter {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}

fn describe(description: &Description, schema: &mut Schema, kind: MetricKind, floats: u64) {
    schema.kind = kind as u8;
    schema.cells = 1 + u16::from(description.exemplars);
    schema.floats = floats;
    schema.additive = true;
}
