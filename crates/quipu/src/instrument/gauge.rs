//! Gauges: values that go up and down.

use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// A number that can be set, raised, and lowered.
#[derive(Debug, Clone)]
pub struct Gauge(SeriesHandle);

/// Gauges by label.
pub type GaugeFamily<L> = Family<Gauge, L>;

/// An integer that can be set, raised, and lowered. Adding is cheaper than for a [`Gauge`].
#[derive(Debug, Clone)]
pub struct IntGauge(SeriesHandle);

/// Integer gauges by label.
pub type IntGaugeFamily<L> = Family<IntGauge, L>;

/// A guard that counts one thing as in progress until it is dropped.
#[derive(Debug)]
#[must_use = "if unused, the gauge is decremented at once"]
pub struct InProgress<'g>(&'g IntGauge);

/// The cell of the value.
pub(crate) const VALUE: usize = 0;

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: f64) {
        self.0.place().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: f64) {
        self.0.place().add_float(VALUE, n);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Sets the value to the wall-clock time, in seconds since 1970-01-01 00:00 UTC.
    pub fn set_to_current_time(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set(since.as_secs_f64());
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.place().plain(VALUE).load(Ordering::Relaxed))
    }
}

impl IntGauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.place().plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// Adds `n`, modulo 2^64.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.place().add(VALUE, n.cast_unsigned());
    }

    /// Subtracts `n`, modulo 2^64.
    #[inline]
    pub fn sub(&self, n: i64) {
        self.0.place().add(VALUE, n.cast_unsigned().wrapping_neg());
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds one, and subtracts it when the guard is dropped.
    #[inline]
    pub fn in_progress(&self) -> InProgress<'_> {
        self.inc();
        InProgress(self)
    }

    /// Returns the value.
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
    /// Sets the value of the series of these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.series.update_shown(Self::key(labels), |place| {
            place.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the series of these labels.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let key = Self::key(labels);
        self.series.update_shown(key, |p| p.add_float(VALUE, n));
    }

    /// Subtracts `n` from the series of these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Raises the series of these labels to `value` if it is less. Creates the series if there is
    /// none.
    pub fn raise<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.series.update_shown(Self::key(labels), |place| {
            let greater = |old| (value > f64::from_bits(old)).then_some(value.to_bits());
            // Fails if the value is already as great: it stays.
            let _ = place.plain(VALUE).fetch_update(Ordering::Relaxed, Ordering::Relaxed, greater);
        });
    }

    /// Returns the value of these labels; `None` if there is no such series. It is not created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        let read = |p: SeriesCells<'_>| f64::from_bits(p.plain(VALUE).load(Ordering::Relaxed));
        self.series.read(Self::key(labels), read)
    }
}

impl<L: LabelGroup> Family<IntGauge, L> {
    /// Sets the value of the series of these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: i64) {
        self.series.update_shown(Self::key(labels), |place| {
            place.plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the series of these labels, modulo 2^64.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        let n = n.cast_unsigned();
        let key = Self::key(labels);
        self.series.update_shown(key, |p| p.add(VALUE, n));
    }

    /// Subtracts `n` from the series of these labels, modulo 2^64.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        self.add(labels, n.wrapping_neg());
    }

    /// Adds one to the series of these labels.
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, 1);
    }

    /// Subtracts one from the series of these labels.
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

    fn bound(bound: SeriesHandle, (): &()) -> Self {
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

    fn bound(bound: SeriesHandle, (): &()) -> Self {
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
