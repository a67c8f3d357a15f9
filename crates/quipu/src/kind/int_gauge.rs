//! Integer gauges: whole numbers that go up and down.

use std::borrow::Cow;
use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle};
use quipu_segment::sync::Ordering;

use super::family::{Family, Instrument, single};
use super::in_progress::InProgress;
use super::metric_kind::{MetricKind, Scratch, check_cells};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Number, Value};

/// An integer that you can set, raise, and lower. Adding is cheaper than for a
/// [`Gauge`](crate::Gauge).
///
/// ```
/// let registry = quipu::Registry::new();
/// let connections = registry.int_gauge("connections", "Open connections.")?;
/// connections.inc();
/// connections.add(4);
/// connections.dec();
/// assert_eq!(connections.get(), 4);
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct IntGauge(SeriesHandle);

/// Integer gauges by label.
pub type IntGaugeFamily<L> = Family<IntGauge, L>;

/// The meaning of an integer gauge's cells.
#[derive(Debug)]
pub struct IntGaugeKind;

/// The cell of the value.
const VALUE: usize = 0;

impl IntGauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.cells().plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// Adds `n`, modulo 2^64.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.cells().add(VALUE, n.cast_unsigned());
    }

    /// Subtracts `n`, modulo 2^64.
    #[inline]
    pub fn sub(&self, n: i64) {
        self.0.cells().add(VALUE, n.cast_unsigned().wrapping_neg());
    }

    /// Adds one.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds one, and subtracts it when the guard is dropped. The guard borrows this handle: to move
    /// a guard to another task or thread, use [`IntGauge::in_progress_owned`].
    #[inline]
    pub fn in_progress(&self) -> InProgress<'_> {
        InProgress::whole(Cow::Borrowed(self))
    }

    /// Like [`IntGauge::in_progress`], with a guard that can move to another task or thread.
    pub fn in_progress_owned(&self) -> InProgress<'static> {
        InProgress::whole(Cow::Owned(self.clone()))
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.cells().plain(VALUE).load(Ordering::Relaxed).cast_signed()
    }
}

impl<L: LabelGroup> Family<IntGauge, L> {
    /// Sets the value of the series of these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: i64) {
        self.family.update_shown(Self::key(labels), |cells| {
            cells.plain(VALUE).store(value.cast_unsigned(), Ordering::Relaxed);
        });
    }

    /// Adds `n` to the series of these labels, modulo 2^64.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        let n = n.cast_unsigned();
        let key = Self::key(labels);
        self.family.update_shown(key, |p| p.add(VALUE, n));
    }

    /// Subtracts `n` from the series of these labels, modulo 2^64.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: i64) {
        self.add(labels, n.wrapping_neg());
    }

    /// Adds one to the series of these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, 1);
    }

    /// Subtracts one from the series of these labels.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, -1);
    }

    /// Adds one to the series of these labels, and subtracts it when the guard is dropped.
    pub fn in_progress<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
    ) -> InProgress<'static> {
        InProgress::whole(Cow::Owned(self.bind(labels)))
    }

    /// Returns the value of these labels; `None` if there is no such series. It is not created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<i64> {
        let read = |cells: SeriesCells<'_>| cells.plain(VALUE).load(Ordering::Relaxed);
        self.family.read(Self::key(labels), read).map(u64::cast_signed)
    }
}

impl crate::kind::sealed::Sealed for IntGauge {}

impl Instrument for IntGauge {
    type Kind = IntGaugeKind;
    const SETTINGS: &'static [Setting] = &[];

    fn describe(_: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.cells = 1;
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<IntGaugeKind>) -> Self {
        Self(handle)
    }
}

impl MetricKind for IntGaugeKind {
    const NUMBER: u8 = 4;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Gauge;

    fn decode(family: &series::Family) -> Result<Self, Error> {
        check_cells(family, 1..=1).map(|()| Self)
    }

    #[inline]
    fn read(
        &self,
        _: &series::Family,
        cells: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let value = cells.plain(VALUE).load(Ordering::Relaxed);
        emit(Value::Gauge(Number::Signed(value.cast_signed())));
    }
}

impl Register for IntGauge {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
