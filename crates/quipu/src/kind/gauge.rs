//! Gauges: values that go up and down.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle, SideAllocations};
use quipu_segment::sync::Ordering;

use super::exemplar::{self, Exemplars};
use super::family::{Family, Instrument, single};
use super::in_progress::InProgress;
use super::metric_kind::{MetricKind, Scratch, check_cells};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Exemplar, Number, Value};

/// A number that you can set, raise, and lower.
///
/// ```
/// let registry = quipu::Registry::new();
/// let temperature = registry.gauge("temperature_celsius", "Temperature of the room.")?;
/// temperature.set(21.5);
/// temperature.add(0.5);
/// temperature.sub(2.0);
/// assert_eq!(temperature.get(), 20.0);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gauge(SeriesHandle);

/// Gauges by label.
pub type GaugeFamily<L> = Family<Gauge, L>;

/// The meaning of a gauge's cells.
#[derive(Debug)]
pub struct GaugeKind;

/// The cell of the value.
pub(crate) const VALUE: usize = 0;
/// The cell of the time of the last sample, in families for values of other programs.
pub(crate) const TIME: usize = 1;
/// The cell of the exemplar, in families for values of other programs that keep exemplars.
pub(crate) const EXEMPLAR: usize = 2;

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: f64) {
        self.0.cells().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: f64) {
        self.0.cells().add_float(VALUE, n);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Adds one.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Subtracts one.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec(&self) {
        self.add(-1.0);
    }

    /// Adds one, and subtracts it when the guard is dropped. The guard borrows this handle: to move
    /// a guard to another task or thread, use [`Gauge::in_progress_owned`].
    #[inline]
    pub fn in_progress(&self) -> InProgress<'_> {
        InProgress::float(Cow::Borrowed(self))
    }

    /// Like [`Gauge::in_progress`], with a guard that can move to another task or thread.
    pub fn in_progress_owned(&self) -> InProgress<'static> {
        InProgress::float(Cow::Owned(self.clone()))
    }

    /// Raises the value to `value` if it is less.
    pub fn raise(&self, value: f64) {
        raise(self.0.cells(), value);
    }

    /// Sets the value to the wall-clock time, in seconds since 1970-01-01 00:00 UTC.
    pub fn set_to_current_time(&self) {
        self.set(unix_seconds());
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.cells().plain(VALUE).load(Ordering::Relaxed))
    }
}

impl<L: LabelGroup> Family<Gauge, L> {
    /// Sets the value of the series of these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.family.update_shown(Self::key(labels), |cells| {
            cells.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the series of these labels.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let key = Self::key(labels);
        self.family.update_shown(key, |p| p.add_float(VALUE, n));
    }

    /// Subtracts `n` from the series of these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Raises the series of these labels to `value` if it is less. Creates the series if there is
    /// none.
    pub fn raise<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        self.family.update_shown(Self::key(labels), |cells| raise(&cells, value));
    }

    /// Adds one to the series of these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, 1.0);
    }

    /// Subtracts one from the series of these labels.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, -1.0);
    }

    /// Adds one to the series of these labels, and subtracts it when the guard is dropped.
    pub fn in_progress<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
    ) -> InProgress<'static> {
        InProgress::float(Cow::Owned(self.bind(labels)))
    }

    /// Sets the series of these labels to the wall-clock time, in seconds since 1970-01-01 00:00
    /// UTC.
    pub fn set_to_current_time<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.set(labels, unix_seconds());
    }

    /// Returns the value of these labels; `None` if there is no such series. It is not created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        let read = |p: SeriesCells<'_>| f64::from_bits(p.plain(VALUE).load(Ordering::Relaxed));
        self.family.read(Self::key(labels), read)
    }
}

/// Raises the value to `value` if it is less.
fn raise(cells: &SeriesCells<'_>, value: f64) {
    let greater = |old| (value > f64::from_bits(old)).then_some(value.to_bits());
    // Fails if the value is already as great: it stays.
    let _ = cells.plain(VALUE).fetch_update(Ordering::Relaxed, Ordering::Relaxed, greater);
}

impl crate::kind::sealed::Sealed for Gauge {}

impl Instrument for Gauge {
    type Kind = GaugeKind;
    const SETTINGS: &'static [Setting] = &[];

    fn describe(_: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.cells = 1;
        schema.floats = 1 << VALUE;
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<GaugeKind>) -> Self {
        Self(handle)
    }
}

impl MetricKind for GaugeKind {
    const NUMBER: u8 = 3;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Gauge;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        check_cells(family, 1..=3).map(|()| Self)
    }

    #[inline]
    fn read(
        &self,
        _: &series::Family,
        cells: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        emit(Value::Gauge(number(cells)));
    }

    #[inline]
    fn read_all(
        &self,
        family: &series::Family,
        cells: &SeriesCells<'_>,
        scratch: &mut Scratch,
        emit: impl FnOnce(Value<'_>, Option<Exemplar<'_>>),
    ) {
        emit(Value::Gauge(number(cells)), exemplar::last(family, cells, EXEMPLAR, scratch));
    }

    fn side_allocations(self: &Arc<Self>) -> Option<Arc<dyn SideAllocations>> {
        Some(Arc::new(Exemplars(EXEMPLAR)))
    }
}

/// Returns the wall-clock time, in seconds since 1970-01-01 00:00 UTC.
pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the value of a gauge, or of a metric of unknown type.
#[inline]
pub(super) fn number(cells: &SeriesCells<'_>) -> Number {
    Number::Float(f64::from_bits(cells.plain(VALUE).load(Ordering::Relaxed)))
}

impl Register for Gauge {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
