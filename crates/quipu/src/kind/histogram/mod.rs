//! Histograms: counts of observations by size, in classic buckets, exponential ones, or both.

mod bounds;
mod layout;

use std::borrow::Cow;
use std::sync::Arc;

use quipu_segment::series::{Schema, SeriesCells, SeriesHandle};

use super::exemplar::{self, OwnedExemplar};
use super::family::{Family, Instrument, single};
use super::timer::{Observer, Timer, timers};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};

pub(crate) use layout::{HistogramLayout, KEEPS_EXEMPLARS, KEEPS_TIMES, MAX_BOUNDS};

/// Counts observations in buckets, and adds them up.
///
/// ```
/// use quipu::{Description, Histogram, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("body", "Sizes of bodies.").unit("bytes");
/// let bodies: Histogram = registry.register(description.buckets([1024.0, 65536.0]))?;
/// bodies.observe(700.0);
/// bodies.observe(70_000.0);
/// assert_eq!((bodies.count(), bodies.sum()), (2, 70_700.0));
/// assert_eq!(registry.value("body_bytes_bucket", &[("le", "65536")]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Histogram {
    bound: SeriesHandle,
    layout: Arc<HistogramLayout>,
}

/// Histograms by label.
pub type HistogramFamily<L> = Family<Histogram, L>;

impl Histogram {
    /// Counts `value` and adds it to the sum.
    #[doc(alias = "record")]
    #[inline]
    pub fn observe(&self, value: f64) {
        self.layout.observe(&self.bound, self.bound.cells(), value);
    }

    /// Like [`Histogram::observe`], and keeps `exemplar`, pairs of names and values, as the
    /// bucket's exemplar. See [`Counter::inc_with_exemplar`](crate::Counter::inc_with_exemplar).
    pub fn observe_with_exemplar(&self, value: f64, exemplar: &[(&str, &str)]) {
        self.observe(value);
        let slot = self.layout.bucket(value);
        let (family, cells) = (self.bound.family(), self.bound.cells());
        exemplar::keep(family, cells, self.layout.exemplar(), slot, value, exemplar);
    }

    /// Returns the last exemplar of the bucket of `value`.
    pub fn exemplar(&self, value: f64) -> Option<OwnedExemplar> {
        let (family, cells) = (self.bound.family(), self.bound.cells());
        exemplar::kept(family, cells, self.layout.exemplar(), self.layout.bucket(value))
    }

    /// Keeps an exemplar for the bucket of `value`, without counting: use this if you already
    /// observed the value.
    #[doc(hidden)]
    pub fn set_exemplar(&self, value: f64, exemplar: &[(&str, &str)]) {
        let slot = self.layout.bucket(value);
        let (family, cells) = (self.bound.family(), self.bound.cells());
        exemplar::keep(family, cells, self.layout.exemplar(), slot, value, exemplar);
    }

    /// Returns the sum of all observations.
    pub fn sum(&self) -> f64 {
        self.layout.sum(self.bound.cells())
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.layout.count(self.bound.family(), self.bound.cells())
    }

    pub(crate) fn layout(&self) -> &HistogramLayout {
        &self.layout
    }
}

timers!(Histogram);

impl<L: LabelGroup> Family<Histogram, L> {
    /// Observes `value` in the series of these labels.
    #[doc(alias = "record")]
    #[inline]
    pub fn observe<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let layout = &*self.kind;
        if layout.is_paired() {
            // Don't call `observe`: it passes a reference to the cells to other functions, so the
            // cells would be written to the stack first (84 instructions instead of 66).
            let act = |cells: SeriesCells<'_>| layout.observe_pair(&cells, value);
            return self.family.update_dense(Self::key(labels), act);
        }
        self.observe_unpaired(labels, value);
    }

    /// Like [`Histogram::observe_with_exemplar`], in the series of these labels.
    pub fn observe_with_exemplar<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
        value: f64,
        exemplar: &[(&str, &str)],
    ) {
        self.bind(labels).observe_with_exemplar(value, exemplar);
    }

    /// Returns the number of observations with these labels; `None` if there is no such series. It
    /// is not created.
    pub fn count<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<u64> {
        self.family.read(Self::key(labels), |cells| self.kind.count(&self.family, &cells))
    }

    /// Returns the sum of the observations with these labels; `None` if there is no such series. It
    /// is not created.
    pub fn sum<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        self.family.read(Self::key(labels), |cells| self.kind.sum(&cells))
    }

    #[inline(never)]
    fn observe_unpaired<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (family, layout) = (&self.family, &*self.kind);
        self.update(labels, |cells| layout.observe(family, &cells, value));
    }
}

impl crate::kind::sealed::Sealed for Histogram {}

impl Instrument for Histogram {
    type Kind = HistogramLayout;
    const SETTINGS: &'static [Setting] = &[Setting::Buckets, Setting::Native, Setting::Exemplars];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let layout = HistogramLayout::new(description)?;
        // At most 505: `new` checked it.
        schema.cells = layout.cells() as u16;
        schema.floats = HistogramLayout::FLOATS;
        schema.additive = true;
        schema.settings = layout.encode();
        Ok(())
    }

    fn arrange(schema: &mut Schema) {
        HistogramLayout::pair(schema);
    }

    fn from_handle(handle: SeriesHandle, layout: &Arc<HistogramLayout>) -> Self {
        Self { bound: handle, layout: Arc::clone(layout) }
    }
}

impl Register for Histogram {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
