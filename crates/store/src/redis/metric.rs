//! A metric of the Redis store. Updates change a family of the local registry, which the flushing
//! process writes to the server; `for_each` reads the totals from the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quipu::label::Values;
use quipu::{Aggregation, Description, GaugeFamily, MixedCounterFamily, Registry};

use super::meta::METRICS;
use super::read::Totals;
use super::worker::Worker;
use crate::error::Error;
use crate::interface::{Kind, Metric, Spec};
use crate::lock::Lock;
use crate::table::register;

/// The gauge whose labels describe each metric, so that the flushing process knows how to combine
/// its values.
pub(super) struct Specs(GaugeFamily<Values<'static>>);

/// A metric that counts in this process and is flushed to the server.
pub(super) struct RedisMetric {
    spec: Spec,
    series: RedisSeries,
    /// Held by `synchronize` while its work runs.
    together: Lock,
    worker: Arc<Worker>,
    totals: Totals,
}

enum RedisSeries {
    /// Counters, and the parts of histograms and summaries. All drop negative increments: a sum of
    /// observations could need them, but too rarely to justify separate cells.
    Sums(MixedCounterFamily<Values<'static>>),
    /// Gauges, the only series that can decrease.
    Gauges(GaugeFamily<Values<'static>>),
}

impl Specs {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let labels = ["metric", "kind", "aggregation"];
        let description = Description::new(METRICS, "Metrics that are written to Redis.");
        let family = registry.register(description.labels(labels));
        family.map(Self).map_err(|error| Error::because("redis", "its own metrics", error))
    }

    pub(super) fn describe(&self, spec: &Spec) {
        let kind = match spec.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        let how = spec.aggregation.unwrap_or(Aggregation::LiveSum).as_str();
        self.0.set(&Values(&[&spec.name, kind, how]), 1.0);
    }
}

impl RedisMetric {
    pub(super) fn new(
        spec: &Spec,
        registry: &Registry,
        generation: u32,
        worker: &Arc<Worker>,
        totals: Totals,
    ) -> Result<Self, Error> {
        let subject = || format!("metric {:?}", spec.name);
        if spec.is_cumulative() && !matches!(spec.aggregation, None | Some(Aggregation::Sum)) {
            let reason = "only gauges can have an aggregation other than the sum; leave it out";
            return Err(Error::new(subject(), reason));
        }
        let description = Description::new(&spec.name, &spec.help);
        let description = description.labels(spec.labels.iter().cloned()).verbatim();
        let once = |registry: &Registry| {
            let description = description.clone();
            if spec.kind == Kind::Gauge {
                registry.register(description).map(RedisSeries::Gauges)
            } else {
                registry.register(description).map(RedisSeries::Sums)
            }
        };
        let series = register(registry, generation, once);
        let series = series.map_err(|error| Error::because(subject(), "its series", error))?;
        let (worker, together) = (Arc::clone(worker), Lock::default());
        Ok(Self { spec: spec.clone(), series, together, worker, totals })
    }

    /// Returns whether an update is valid, and counts it as dropped otherwise. Starts the worker if
    /// this process has none, for example after a fork.
    #[inline]
    fn is_right(&self, labels: &[&str], is_right: bool) -> bool {
        self.worker.ensure_started();
        let is_right = is_right && self.spec.fits(labels);
        if !is_right {
            self.worker.dropped().fetch_add(1, Ordering::Relaxed);
        }
        is_right
    }
}

impl crate::interface::sealed::Sealed for RedisMetric {}

impl Metric for RedisMetric {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    #[inline]
    fn add(&self, labels: &[&str], by: f64) {
        match &self.series {
            RedisSeries::Sums(series) => {
                if self.is_right(labels, by >= 0.0) {
                    series.inc_by(&Values(labels), by);
                }
            }
            RedisSeries::Gauges(series) => {
                if self.is_right(labels, self.spec.accepts(by)) {
                    series.add(&Values(labels), by);
                }
            }
        }
    }

    fn set(&self, labels: &[&str], value: f64) {
        if !self.is_right(labels, true) {
            return;
        }
        match &self.series {
            RedisSeries::Sums(series) => series.raise(&Values(labels), value),
            RedisSeries::Gauges(series) => series.set(&Values(labels), value),
        }
    }

    fn get(&self, labels: &[&str]) -> Option<f64> {
        if !self.spec.fits(labels) {
            return None;
        }
        let labels = Values(labels);
        match &self.series {
            RedisSeries::Sums(series) => series.get(&labels),
            RedisSeries::Gauges(series) => series.get(&labels),
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error> {
        let Some(total) = self.totals.read_one(&self.spec.name)? else { return Ok(()) };
        let is_each =
            matches!(self.spec.aggregation, Some(Aggregation::All | Aggregation::LiveAll));
        for part in &total.samples {
            let value = |name: &str| {
                part.labels.iter().find(|(other, _)| other == name).map_or("", |(_, v)| v)
            };
            let mut values: Vec<&str> = self.spec.labels.iter().map(|name| value(name)).collect();
            if is_each {
                values.push(value(super::read::INSTANCE));
            }
            visit(&values, part.value.as_f64());
        }
        Ok(())
    }

    fn synchronize(&self, work: &mut dyn FnMut()) {
        let _guard = self.together.lock();
        work();
    }

    fn remove(&self, labels: &[&str]) -> Result<bool, Error> {
        if !self.spec.fits(labels) {
            return Ok(false);
        }
        let removed = match &self.series {
            RedisSeries::Sums(series) => series.remove(&Values(labels)),
            RedisSeries::Gauges(series) => series.remove(&Values(labels)),
        };
        let fail = |error| Error::because(&self.spec.name, "its series cannot be removed", error);
        removed.map_err(fail)
    }
}
