//! Float counters: sums of floating-point numbers that only grow.

use std::sync::Arc;

use quipu_segment::series::{Schema, SeriesCells, SeriesHandle};

use super::exemplar::{self, OwnedExemplar};
use super::family::{Family, Instrument, single};
use super::total::{self, Total, TotalKind};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::Number;

/// A counter of floating-point numbers, such as seconds.
///
/// ```
/// use quipu::{Description, FloatCounter, Registry};
///
/// let registry = Registry::new();
/// let waited: FloatCounter =
///     registry.register(Description::new("lock_wait", "Time waited.").unit("seconds"))?;
/// waited.inc_by(0.25);
/// waited.inc_by(-1.0); // is ignored
/// assert_eq!(registry.value("lock_wait_seconds_total", &[]), Some(0.25));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FloatCounter(SeriesHandle);

/// Float counters by label.
pub type FloatCounterFamily<L> = Family<FloatCounter, L>;

/// The cell of the total.
const TOTAL: usize = 0;

impl FloatCounter {
    /// Returns the last exemplar.
    pub fn exemplar(&self) -> Option<OwnedExemplar> {
        exemplar::kept(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0)
    }

    /// Keeps an exemplar like [`Counter::inc_with_exemplar`](crate::Counter::inc_with_exemplar),
    /// but adds nothing: use this if you already added.
    #[doc(hidden)]
    pub fn set_exemplar(&self, value: f64, exemplar: &[(&str, &str)]) {
        exemplar::keep(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0, value, exemplar);
    }

    /// Adds one.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.inc_by(1.0);
    }

    /// Adds `n`. Negative numbers and NaN are ignored: a counter never decreases.
    #[inline]
    pub fn inc_by(&self, n: f64) {
        if n >= 0.0 {
            self.0.cells().add_float(TOTAL, n);
        }
    }

    /// Like [`Counter::inc_with_exemplar`](crate::Counter::inc_with_exemplar).
    pub fn inc_with_exemplar(&self, n: f64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        exemplar::keep(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0, n, exemplar);
    }

    /// Returns the total.
    pub fn get(&self) -> f64 {
        self.0.cells().sum_float(TOTAL)
    }
}

impl<L: LabelGroup> Family<FloatCounter, L> {
    /// Adds one to the series of these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.inc_by(labels, 1.0);
    }

    /// Like [`FloatCounter::inc_with_exemplar`], in the series of these labels.
    pub fn inc_with_exemplar<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
        n: f64,
        exemplar: &[(&str, &str)],
    ) {
        self.bind(labels).inc_with_exemplar(n, exemplar);
    }

    /// Returns the total of these labels; `None` if there is no such series. It is not created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        self.family.read(Self::key(labels), |cells| cells.sum_float(TOTAL))
    }

    /// Adds `n` to the series of these labels. Negative numbers and NaN are ignored.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        if n >= 0.0 {
            let key = Self::key(labels);
            self.family.update(key, |p| p.add_float(TOTAL, n));
        }
    }
}

impl crate::kind::sealed::Sealed for FloatCounter {}

impl Instrument for FloatCounter {
    type Kind = TotalKind<Self>;
    const SETTINGS: &'static [Setting] = &[Setting::Exemplars];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        total::describe::<Self>(description, schema);
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<TotalKind<Self>>) -> Self {
        Self(handle)
    }
}

impl Total for FloatCounter {
    const NUMBER: u8 = 2;
    const FLOATS: u64 = 1 << TOTAL;
    const EXEMPLAR: usize = 1;

    #[inline]
    fn total(cells: &SeriesCells<'_>) -> Number {
        Number::Float(cells.sum_float(TOTAL))
    }
}

impl Register for FloatCounter {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
