//! Families as Python objects, for `collect()`, which returns samples instead of bytes.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use quipu::snapshot::{
    CounterValue, Exemplar, FamilyHeader, Kind, Series, Sink, SummaryValue, Value,
};

use crate::exposition::bound_text;

/// A sink that makes lists: a family is `(name, help, type, unit, samples)`, a sample `(name,
/// labels, value, exemplar)`, and an exemplar `(labels, value, seconds)`.
pub struct Lists<'py> {
    py: Python<'py>,
    families: Bound<'py, PyList>,
    /// The samples of the latest family.
    samples: Option<Bound<'py, PyList>>,
    /// The name of this family. The samples of another family with the same name are appended to
    /// it.
    name: String,
    /// Whether to add `_created` samples.
    created: bool,
    /// The first error that Python raised.
    result: PyResult<()>,
}

impl<'py> Lists<'py> {
    pub fn new(py: Python<'py>, created: bool) -> Self {
        let (families, name) = (PyList::empty(py), String::new());
        Self { py, families, samples: None, name, created, result: Ok(()) }
    }

    pub fn finish(self) -> PyResult<Bound<'py, PyList>> {
        self.result.map(|()| self.families)
    }

    fn begin(&mut self, family: &FamilyHeader<'_>) -> PyResult<()> {
        if self.samples.is_some() && self.name == family.name {
            return Ok(());
        }
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Info => "info",
            Kind::StateSet => "stateset",
            _ => "unknown",
        };
        let samples = PyList::empty(self.py);
        self.families.append((family.name, family.help, kind, family.unit, &samples))?;
        self.samples = Some(samples);
        family.name.clone_into(&mut self.name);
        Ok(())
    }

    fn labels(
        &self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(self.py);
        if series.overflow {
            labels.set_item("quipu_overflow", series.overflow_value())?;
            return Ok(labels);
        }
        for (name, value) in family.fixed(series.group) {
            labels.set_item(name, value)?;
        }
        for (name, value) in family.dynamic().zip(series.texts) {
            labels.set_item(name, value)?;
        }
        Ok(labels)
    }

    fn add(&self, family: &FamilyHeader<'_>, series: &Series<'_>) -> PyResult<()> {
        let Some(samples) = &self.samples else { return Ok(()) };
        let name = family.name;
        let labels = self.labels(family, series)?;
        let plain = |suffix: &str, value: f64| {
            samples.append((format!("{name}{suffix}"), labels.copy()?, value, self.py.None()))
        };
        let labelled = |suffix: &str, label: &str, of: &str, value: f64, exemplar| {
            let labels = labels.copy()?;
            labels.set_item(label, of)?;
            samples.append((format!("{name}{suffix}"), labels, value, self.exemplar(exemplar)?))
        };
        match series.value {
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                let exemplar = self.exemplar(exemplar)?;
                let value = total.as_f64();
                samples.append((format!("{name}_total"), labels.copy()?, value, exemplar))?;
            }
            Value::Gauge(value) | Value::Unknown(value) => plain("", value.as_f64())?,
            Value::Histogram(histogram) => {
                let mut count = 0_u64;
                for bucket in histogram.buckets {
                    count = count.wrapping_add(bucket.count);
                    let bound = bound_text(bucket.bound);
                    labelled("_bucket", "le", &bound, count as f64, bucket.exemplar)?;
                }
                plain("_count", histogram.count as f64)?;
                if histogram.buckets.first().is_none_or(|bucket| bucket.bound >= 0.0) {
                    plain("_sum", histogram.sum)?;
                }
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                for (quantile, value) in quantiles {
                    labelled("", "quantile", &bound_text(*quantile), *value, None)?;
                }
                plain("_count", count as f64)?;
                plain("_sum", sum)?;
            }
            Value::Info => plain("_info", 1.0)?,
            Value::StateSet(states) => {
                for (state, is_on) in states {
                    labelled("", name, state, f64::from(u8::from(*is_on)), None)?;
                }
            }
            _ => {}
        }
        if let (true, Some(start), Kind::Counter | Kind::Histogram | Kind::Summary) =
            (self.created, series.start, family.kind)
        {
            plain("_created", start.as_nanos() as f64 / 1e9)?;
        }
        Ok(())
    }

    fn exemplar(&self, exemplar: Option<Exemplar<'_>>) -> PyResult<Bound<'py, PyAny>> {
        let Some(exemplar) = exemplar else { return Ok(self.py.None().into_bound(self.py)) };
        let labels = PyDict::new(self.py);
        let mut texts = exemplar.labels;
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            labels.set_item(name, value)?;
        }
        let time = exemplar.time.map(|time| time.as_nanos() as f64 / 1e9);
        Ok((labels, exemplar.value, time).into_pyobject(self.py)?.into_any())
    }
}

impl Sink for Lists<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        if self.result.is_ok() {
            self.result = self.begin(family);
        }
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if self.result.is_ok() {
            self.result = self.add(family, series);
        }
    }
}
