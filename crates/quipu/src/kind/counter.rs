//! Counters: integer sums that only grow.

use std::sync::Arc;

use quipu_segment::series::{Schema, SeriesCells, SeriesHandle};

use super::exemplar;
use super::family::{Family, Instrument, single};
use super::total::{self, Total, TotalKind};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::Number;

/// A counter of integers, modulo 2^64.
///
/// ```
/// let registry = quipu::Registry::new();
/// let jobs = registry.counter("jobs", "Completed jobs.")?;
/// jobs.inc();
/// jobs.inc_by(2);
/// assert_eq!(jobs.get(), 3);
/// assert!(registry.text().ends_with("jobs_total 3\n"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Counter(SeriesHandle);

/// Counters by label.
pub type CounterFamily<L> = Family<Counter, L>;

/// The cell of the total.
const TOTAL: usize = 0;

impl Counter {
    /// Adds one.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.0.cells().add(TOTAL, 1);
    }

    /// Adds `n`.
    #[inline]
    pub fn inc_by(&self, n: u64) {
        self.0.cells().add(TOTAL, n);
    }

    /// Adds `n`, and keeps `exemplar`: pairs of names and values, such as the ID of a trace. The
    /// exemplar is dropped if the names and values together are longer than 128 characters, or
    /// longer than 256 bytes with one byte added for each. You need [`Description::exemplars`];
    /// without this setting, no exemplar is kept.
    pub fn inc_with_exemplar(&self, n: u64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        exemplar::keep(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0, n as f64, exemplar);
    }

    /// Returns the total, the sum over all lanes. Concurrent additions may be included or not.
    pub fn get(&self) -> u64 {
        self.0.cells().sum(TOTAL)
    }
}

impl<L: LabelGroup> Family<Counter, L> {
    /// Adds one to the series of these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.inc_by(labels, 1);
    }

    /// Adds `n` to the series of these labels.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: u64) {
        self.family.add(Self::key(labels), TOTAL, n);
    }

    /// Like [`Counter::inc_with_exemplar`], in the series of these labels.
    pub fn inc_with_exemplar<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
        n: u64,
        exemplar: &[(&str, &str)],
    ) {
        self.bind(labels).inc_with_exemplar(n, exemplar);
    }

    /// Returns the total of these labels; `None` if there is no such series. It is not created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<u64> {
        self.family.read(Self::key(labels), |cells| cells.sum(TOTAL))
    }
}

impl crate::kind::sealed::Sealed for Counter {}

impl Instrument for Counter {
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

impl Total for Counter {
    const NUMBER: u8 = 1;
    const FLOATS: u64 = 0;
    const EXEMPLAR: usize = 1;

    #[inline]
    fn total(cells: &SeriesCells<'_>) -> Number {
        Number::Unsigned(cells.sum(TOTAL))
    }
}

impl Register for Counter {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
