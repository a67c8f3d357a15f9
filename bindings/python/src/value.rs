//! One number of a metric, with the interface of the value classes of `prometheus_client`.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use quipu::binding::{SUMMARY_COUNT, SUMMARY_SUM, WithSeries};
use quipu::{MixedCounter, ProcessGauge};

use crate::core::{Held, Metric};
use crate::counter::Counter;
use crate::exemplar;
use crate::gauge::Gauge;
use crate::histogram::Histogram;
use crate::summary::Summary;

/// A number. It is empty until it is attached to a metric.
#[pyclass(frozen, subclass, module = "quipu_metrics._quipu")]
pub struct Value {
    /// No Python code runs while this mutex is locked, so no thread holds the lock during a fork.
    part: Mutex<Option<Part>>,
}

/// The part of a metric that the number represents.
enum Part {
    Counter(WithSeries<MixedCounter>),
    Gauge(ProcessGauge),
    /// The sum of a histogram.
    HistogramSum(WithSeries<quipu::Histogram>),
    /// A sum of floats, in the cell with that index.
    Sum(quipu_segment::series::SeriesHandle, usize),
    /// A count, in the cell with that index.
    Count(quipu_segment::series::SeriesHandle, usize),
    /// A bucket of a histogram: the index of its cell, and its bound.
    Bucket(WithSeries<quipu::Histogram>, usize, f64),
}

/// An exemplar: pairs of names and values, the observation, and its Unix time in seconds.
type Exemplar = (Vec<(String, String)>, f64, f64);

#[pymethods]
impl Value {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        _args: &Bound<'_, pyo3::types::PyTuple>,
        _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> Self {
        Self { part: Mutex::default() }
    }

    /// Attaches the number to a part of a bound metric: `value`, `sum`, `count`, or `bucket` with
    /// its index and bound.
    #[pyo3(signature = (metric, part, number = 0, bound = 0.0))]
    fn attach(
        &self,
        metric: &Bound<'_, PyAny>,
        part: &str,
        number: usize,
        bound: f64,
    ) -> PyResult<()> {
        let wrong = || PyTypeError::new_err(format!("{metric} has no {part}"));
        let part = if let Ok(counter) = metric.cast::<Counter>() {
            Part::Counter(counter.get().bound().ok_or_else(wrong)?.clone())
        } else if let Ok(gauge) = metric.cast::<Gauge>() {
            Part::Gauge(gauge.get().bound().ok_or_else(wrong)?.clone())
        } else if let Ok(histogram) = metric.cast::<Histogram>() {
            let raw = histogram.get().bound().ok_or_else(wrong)?.clone();
            match part {
                "sum" => Part::HistogramSum(raw),
                "bucket" => {
                    let cell = raw.bucket_cell(number).ok_or_else(wrong)?;
                    Part::Bucket(raw, cell, bound)
                }
                _ => return Err(wrong()),
            }
        } else if let Ok(summary) = metric.cast::<Summary>() {
            let raw = summary.get().bound().ok_or_else(wrong)?.clone();
            match part {
                "sum" => Part::Sum(raw.series, SUMMARY_SUM),
                "count" => Part::Count(raw.series, SUMMARY_COUNT),
                _ => return Err(wrong()),
            }
        } else {
            return Err(wrong());
        };
        *self.locked() = Some(part);
        Ok(())
    }

    /// Adds `amount`.
    fn inc(slf: &Bound<'_, Self>, amount: f64) -> PyResult<()> {
        Self::follow(slf)?;
        match &*slf.get().locked() {
            Some(Part::Counter(counter)) => counter.instrument.inc_by(amount),
            Some(Part::Gauge(gauge)) => gauge.add(amount),
            Some(Part::HistogramSum(raw)) => {
                raw.sum_cells().take(1).for_each(|cell| raw.series.cells().add_float(cell, amount));
            }
            Some(Part::Sum(series, cell)) => series.cells().add_float(*cell, amount),
            // Counts are whole numbers.
            Some(Part::Count(series, cell)) => series.cells().add(*cell, amount as u64),
            Some(Part::Bucket(raw, cell, _)) => raw.series.cells().add(*cell, amount as u64),
            None => {}
        }
        Ok(())
    }

    /// Sets the number to `value`, for all processes.
    #[pyo3(signature = (value, timestamp = None))]
    fn set(
        slf: &Bound<'_, Self>,
        value: f64,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = timestamp;
        Self::follow(slf)?;
        let set = |series: &quipu_segment::series::SeriesHandle, cell: usize, bits: u64| {
            series.cells().clear(cell);
            series.cells().plain(cell).store(bits, Ordering::Relaxed);
        };
        match &*slf.get().locked() {
            Some(Part::Counter(counter)) => {
                counter.instrument.reset();
                counter.instrument.inc_by(value);
                if value == 0.0 {
                    counter.series.restart();
                }
            }
            Some(Part::Gauge(gauge)) => gauge.set(value),
            Some(Part::HistogramSum(raw)) => {
                // The first cell holds the whole sum.
                let values = std::iter::once(value).chain(std::iter::repeat(0.0));
                raw.sum_cells().zip(values).for_each(|(cell, value)| {
                    set(&raw.series, cell, value.to_bits());
                });
            }
            Some(Part::Sum(series, cell)) => set(series, *cell, value.to_bits()),
            Some(Part::Count(series, cell)) => set(series, *cell, value as u64),
            Some(Part::Bucket(raw, cell, _)) => set(&raw.series, *cell, value as u64),
            None => {}
        }
        Ok(())
    }

    /// Returns the number, over all processes.
    fn get(slf: &Bound<'_, Self>) -> PyResult<f64> {
        if slf.get().locked().is_none() {
            Self::follow(slf)?;
        }
        Ok(match &*slf.get().locked() {
            Some(Part::Counter(counter)) => counter.instrument.get(),
            Some(Part::Gauge(gauge)) => gauge.get(),
            Some(Part::HistogramSum(raw)) => raw.instrument.sum(),
            Some(Part::Sum(series, cell)) => series.cells().sum_float(*cell),
            Some(Part::Count(series, cell)) => series.cells().sum(*cell) as f64,
            Some(Part::Bucket(raw, cell, _)) => raw.series.cells().sum(*cell) as f64,
            None => 0.0,
        })
    }

    /// Attaches the number if it is not attached, or if its series was removed. Subclasses override
    /// this.
    fn _rebind(&self) {}

    /// Keeps an exemplar: an object with `labels` and `value`.
    fn set_exemplar(slf: &Bound<'_, Self>, exemplar: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::follow(slf)?;
        let labels = exemplar.getattr("labels")?;
        let value: f64 = exemplar.getattr("value")?.extract()?;
        exemplar::read(&labels, |pairs| match &*slf.get().locked() {
            Some(Part::Counter(counter)) => counter.instrument.set_exemplar(value, pairs),
            Some(Part::Bucket(raw, ..)) => raw.instrument.set_exemplar(value, pairs),
            _ => {}
        })
    }

    /// Returns the latest exemplar of all processes, as `(labels, value, seconds)`.
    fn _exemplar(&self) -> Option<Exemplar> {
        let kept = match self.locked().as_ref()? {
            Part::Counter(counter) => counter.instrument.exemplar(),
            Part::Bucket(raw, _, bound) => raw.instrument.exemplar(*bound),
            _ => None,
        };
        kept.map(|kept| (kept.labels, kept.value, kept.time.as_nanos() as f64 / 1e9))
    }
}

impl Value {
    fn locked(&self) -> MutexGuard<'_, Option<Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `_rebind` if the number is not attached, or if its series was removed.
    fn follow(slf: &Bound<'_, Self>) -> PyResult<()> {
        let is_loose = slf.get().locked().as_ref().is_none_or(Part::is_removed);
        if is_loose {
            slf.as_any().call_method0(pyo3::intern!(slf.py(), "_rebind"))?;
        }
        Ok(())
    }
}

impl Part {
    fn is_removed(&self) -> bool {
        match self {
            Self::Counter(counter) => counter.is_removed(),
            Self::Gauge(gauge) => gauge.is_removed(),
            Self::Sum(series, _) | Self::Count(series, _) => series.is_removed(),
            Self::HistogramSum(raw) | Self::Bucket(raw, ..) => raw.is_removed(),
        }
    }
}
