//! Gauges: values that go up and down.

use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::series::{self, Bound, Place, Schema};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// A number that is set, or goes up and down.
#[derive(Debug, Clone)]
pub struct Gauge(Bound);

/// Gauges by label.
pub type GaugeFamily<L> = Family<Gauge, L>;

/// A whole number that is set, or goes up and down: cheaper than [`Gauge`] to add to.
#[derive(Debug, Clone)]
pub struct IntGauge(Bound);

/// Whole-number gauges by label.
pub type IntGaugeFamily<L> = Family<IntGauge, L>;

/// Counts one thing as in progress until it is dropped.
#[derive(Debug)]
#[must_use = "what is dropped at once was never in progress"]
pub struct InProgress<'g>(&'g IntGauge);

/// The cell of the value.
pub(crate) const VALUE: usize = 0;

impl Gauge {
    /// Makes it `value`.
    #[inline]
    pub fn set(&self, value: f64) {
        self.0.place().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: f64) {
        self.0.place().add_float(VALUE, n);
    }

    /// Takes away `n`.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Makes it the wall clock's time, in seconds since 1970.
    pub fn set_to_current_time(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set(since.as_secs_f64());
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.place().plain(VALUE).load(Ordering::Relaxed))
    }
}

impl IntGauge {
    /// Makes it `value`.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.place().plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// Adds `n`, modulo 2^64.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.place().add(VALUE, n.cast_unsigned());
    }

    /// Takes away `n`, modulo 2^64.
    #[inline]
    pub fn sub(&self, n: i64) {
        self.0.place().add(VALUE, n.cast_unsigned().wrapping_neg());
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes away one.
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds one until the guard is dropped.
    #[inline]
    pub fn in_progress(&self) -> InProgress<'_> {
        self.inc();
        InProgress(self)
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.place().plain(VALUE).load(Ordering::Relaxed).cast_signed()
    }
}

impl Drop for InProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<L: LabelGroup> Family<Gauge, L> {
    /// Makes the value of these labels `value`.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.series.update_shown(Self::key(labels), |place| {
            place.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the value of these labels.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let key = Self::key(labels);
        self.series.update_shown(key, |p| p.add_float(VALUE, n));
    }

    /// Takes `n` from the value of these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Raises the value of these labels to `value` where it is less. The series is there from now
    /// on.
    pub fn raise<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.series.update_shown(Self::key(labels), |place| {
            let greater = |old| (value > f64::from_bits(old)).then_some(value.to_bits());
            // Whoever meets a greater value leaves it.
            let _ = place.plain(VALUE).fetch_update(Ordering::Relaxed, Ordering::Relaxed, greater);
        });
    }

    /// The value of these labels; `None` where there is no such series, which is not made.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        let read = |p: Place<'_>| f64::from_bits(p.plain(VALUE).load(Ordering::Relaxed));
        self.series.look(Self::key(labels), read)
    }
}

impl<L: LabelGroup> Family<IntGauge, L> {
    /// Makes the value of these labels `value`.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: i64) {
        self.series.update_shown(Self::key(labels), |place| {
            place.plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the value of these labels.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        let n = n.cast_unsigned();
        let key = Self::key(labels);
        self.series.update_shown(key, |p| p.add(VALUE, n));
    }

    /// Takes `n` from the value of these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        self.add(labels, n.wrapping_neg());
    }

    /// Adds one to the value of these labels.
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, 1);
    }

    /// Takes one from the value of these labels.
    #[inline]
    pub fn dec<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, -1);
    }
}

impl Instrument for Gauge {
    type Shared = ();

    fn describe(_: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.kind = MetricKind::Gauge as u8;
        schema.cells = 1;
        schema.floats = 1 << VALUE;
        Ok(())
    }

    fn shared(_: &series::Family) -> Result<(), Error> {
        Ok(())
    }

    fn bound(bound: Bound, (): &()) -> Self {
        Self(bound)
    }
}

impl Instrument for IntGauge {
    type Shared = ();

    fn describe(_: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.kind = MetricKind::IntGauge as u8;
        schema.cells = 1;
        Ok(())
    }

    fn shared(_: &series::Family) -> Result<(), Error> {
        Ok(())
    }

    fn bound(bound: Bound, (): &()) -> Self {
        Self(bound)
    }
}

impl Register for Gauge {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}

impl Register for IntGauge {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
