//! Mixed counters: for programs that mostly count whole numbers, but not only.
//!
//! A mixed counter consists of an integer cell and a float cell, and an increment touches one of
//! them. Whole numbers cost an integer addition and stay exact beyond 2^53, where adding one to a
//! float no longer changes it. All other numbers are added to the float.

use std::sync::Arc;

use quipu_segment::series::{Schema, SeriesCells, SeriesHandle};
use quipu_segment::sync::Ordering;

use super::exemplar::{self, OwnedExemplar};
use super::family::{Family, Instrument, single};
use super::total::{self, Total, TotalKind};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::LabelGroup;
use crate::scope::{Register, Scope};
use crate::snapshot::Number;

/// A counter of numbers that are mostly whole, for the bindings of languages with one type for all
/// numbers. In Rust, use [`Counter`](crate::Counter) or [`FloatCounter`](crate::FloatCounter).
///
/// ```
/// use quipu::{Description, MixedCounter, Registry};
///
/// let registry = Registry::new();
/// let points: MixedCounter = registry.register(Description::new("points", "Points scored."))?;
/// points.inc();
/// points.inc_by(0.5);
/// assert_eq!(registry.value("points_total", &[]), Some(1.5));
/// # Ok::<(), quipu::Error>(())
/// ```
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct MixedCounter(SeriesHandle);

/// Mixed counters by label.
#[doc(hidden)]
pub type MixedCounterFamily<L> = Family<MixedCounter, L>;

/// The cell of the sum of all whole numbers.
const TOTAL: usize = 0;
/// The cell of the sum of all numbers that were not whole.
const REST: usize = 1;
/// The integer does not grow beyond this by great numbers.
const FULL: u64 = 1 << 63;
/// 2^53: from here on, not every whole number is a float.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

impl MixedCounter {
    /// Adds one.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.0.cells().add(TOTAL, 1);
    }

    /// Adds `n`. Negative numbers and NaN are ignored: a counter never decreases.
    #[inline]
    pub fn inc_by(&self, n: f64) {
        add(*self.0.cells(), n);
    }

    /// Like [`Counter::inc_with_exemplar`](crate::Counter::inc_with_exemplar).
    pub fn inc_with_exemplar(&self, n: f64, exemplar: &[(&str, &str)]) {
        self.inc_by(n);
        self.set_exemplar(n, exemplar);
    }

    /// Returns the last exemplar.
    pub fn exemplar(&self) -> Option<OwnedExemplar> {
        exemplar::kept(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0)
    }

    /// Keeps an exemplar like [`MixedCounter::inc_with_exemplar`], but adds nothing: use this if
    /// you already added.
    #[doc(hidden)]
    pub fn set_exemplar(&self, n: f64, exemplar: &[(&str, &str)]) {
        exemplar::keep(self.0.family(), self.0.cells(), Self::EXEMPLAR, 0, n, exemplar);
    }

    /// Adds `n` to the cells of a series. Numbers that another program reports never make the
    /// integer wrap around. Negative numbers and NaN are ignored.
    #[inline]
    pub(crate) fn add_to(cells: SeriesCells<'_>, n: f64) {
        if n > 1.0 && cells.sum(TOTAL) >= FULL {
            cells.add_float(REST, n);
        } else {
            add(cells, n);
        }
    }

    /// Resets the total to zero, for all processes. Concurrent additions may be kept or lost.
    #[doc(hidden)]
    pub fn reset(&self) {
        [TOTAL, REST].into_iter().for_each(|cell| self.0.cells().clear(cell));
    }

    /// Raises the total to `n` if it is less.
    pub fn raise(&self, n: f64) {
        raise(*self.0.cells(), n);
    }

    /// Returns the total.
    pub fn get(&self) -> f64 {
        Self::total(self.0.cells()).as_f64()
    }
}

#[doc(hidden)]
impl<L: LabelGroup> Family<MixedCounter, L> {
    /// Adds one to the series of these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.update(labels, |cells| cells.add(TOTAL, 1));
    }

    /// Adds `n` to the series of these labels. Negative numbers and NaN are ignored.
    #[inline]
    pub fn inc_by<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        if let Some(n) = whole(n) {
            self.update(labels, |cells| cells.add(TOTAL, n));
        } else if n > 0.0 {
            self.update(labels, |cells| cells.add_float(REST, n));
        }
    }

    /// Like [`MixedCounter::inc_with_exemplar`], in the series of these labels.
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
        self.family.read(Self::key(labels), |cells| MixedCounter::total(&cells).as_f64())
    }

    /// Raises the total of these labels to `n` if it is less. Creates the series if there is none.
    pub fn raise<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.family.update_shown(Self::key(labels), |cells| raise(cells, n));
    }
}

impl crate::kind::sealed::Sealed for MixedCounter {}

impl Instrument for MixedCounter {
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

impl Total for MixedCounter {
    const NUMBER: u8 = 10;
    const FLOATS: u64 = 1 << REST;
    const EXEMPLAR: usize = 2;
    const MORE: u16 = 2;

    /// Returns an integer, as long as the sum of the other numbers is whole and below 2^53; else a
    /// float.
    #[inline]
    fn total(cells: &SeriesCells<'_>) -> Number {
        let (sum, rest) = (cells.sum(TOTAL), cells.sum_float(REST));
        match whole(rest).filter(|_| rest < MAX_EXACT) {
            Some(rest) => Number::Unsigned(sum.wrapping_add(rest)),
            None => Number::Float(sum as f64 + rest),
        }
    }
}

impl Register for MixedCounter {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}

#[inline]
fn add(cells: SeriesCells<'_>, n: f64) {
    if let Some(n) = whole(n) {
        cells.add(TOTAL, n);
    } else if n > 0.0 {
        cells.add_float(REST, n);
    }
}

/// Returns the number as an integer, if it is whole, not negative, and at most 2^53, because few
/// greater ones would make the integer wrap around.
#[inline]
fn whole(n: f64) -> Option<u64> {
    let whole = n as u64;
    (whole as f64 == n && whole <= 1 << 53).then_some(whole)
}

/// Adds what is missing up to `n`. Of several threads that raise at once, only one adds it.
fn raise(cells: SeriesCells<'_>, n: f64) {
    let cell = cells.plain(REST);
    loop {
        // Read before the total: another raise in between makes the exchange below fail. Acquire:
        // the total is read after this.
        let old = cell.load(Ordering::Acquire);
        let missing = n - MixedCounter::total(&cells).as_f64();
        // NaN is not greater than any number, and returns here, too.
        if missing.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return;
        }
        let new = (f64::from_bits(old) + missing).to_bits();
        if cell.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::label::Values;
    use crate::{Description, MixedCounter, MixedCounterFamily, Registry};

    #[test]
    fn whole_numbers_stay_exact_and_halves_count() {
        let registry = Registry::new();
        let counter: MixedCounter = registry.register(Description::new("c", "")).unwrap();
        counter.inc_by(9_007_199_254_740_992.0);
        (0..4).for_each(|_| counter.inc());
        assert!(registry.text().contains("c_total 9007199254740996\n"));
        let counter: MixedCounter = registry.register(Description::new("d", "")).unwrap();
        for n in [1.0, 0.5, f64::NAN, -1.0, -0.5, -0.0] {
            counter.inc_by(n);
        }
        assert_eq!(counter.get(), 1.5);
        assert!(registry.text().contains("d_total 1.5\n"));
        counter.inc_by(0.5);
        assert!(registry.text().contains("d_total 2\n"));
    }

    #[test]
    fn a_raised_total_never_falls() {
        let registry = Registry::new();
        let description = Description::new("c", "").labels(["a"]);
        let family: MixedCounterFamily<Values> = registry.register(description).unwrap();
        let labels = Values(&["x"]);
        family.raise(&labels, 0.0);
        assert!(registry.text().contains("c_total{a=\"x\"} 0\n"));
        family.inc_by(&labels, 2.0);
        family.inc_by(&labels, 0.25);
        for (n, total) in [(0.0, 2.25), (2.0, 2.25), (f64::NAN, 2.25), (7.5, 7.5), (9.0, 9.0)] {
            family.raise(&labels, n);
            assert_eq!(family.bind(&labels).get(), total);
        }
        family.inc(&labels);
        assert!(registry.text().contains("c_total{a=\"x\"} 10\n"));
        assert_eq!((family.get(&labels), family.get(&Values(&["y"]))), (Some(10.0), None));
        assert_eq!(family.len(), 1);
    }
}
