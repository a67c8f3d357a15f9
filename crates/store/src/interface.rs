//! What all stores can do.

use std::sync::Arc;

use quipu::Aggregation;

use crate::error::Error;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Buckets of a histogram, and its sum, each a series of its own as the application names them.
    Histogram,
    /// Count and sum of a summary, each a series of its own as the application names them.
    Summary,
}

/// A metric, as an application describes it to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Its help, which may be empty.
    pub help: String,
    /// Its kind.
    pub kind: Kind,
    /// The names of its labels, in the order in which values are given.
    pub labels: Vec<String>,
    /// How the values of several processes become one. `None` is the store's own choice: the sum,
    /// and for gauges of stores that keep one value a process, [`Aggregation::All`].
    pub aggregation: Option<Aggregation>,
}

/// Where metrics are kept.
pub trait Store: Send + Sync {
    /// The metric of that name, made where there is none.
    ///
    /// # Errors
    /// Settings that this store does not have, a name or labels that cannot be, a description that
    /// contradicts the metric that is there, and the errors of what lies below.
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error>;
}

/// A metric of a store. Label values are given in the order of the [`Spec`]'s names.
///
/// Nothing here fails or waits for what lies below: what cannot be kept is counted as dropped.
pub trait Metric: Send + Sync {
    /// What it is.
    fn spec(&self) -> &Spec;

    /// Adds to the value of these labels.
    fn increment(&self, labels: &[&str], by: f64);

    /// Makes the value of these labels `value`.
    fn set(&self, labels: &[&str], value: f64);

    /// The value of these labels, 0 where there is none: this process' own, where the store keeps
    /// one for each process.
    fn get(&self, labels: &[&str]) -> f64;

    /// Gives all series and their values, of all processes, aggregated. With [`Aggregation::All`]
    /// and the like there is one label value more than the spec has names: the pid.
    ///
    /// # Errors
    /// Those of what lies below.
    fn all_values(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error>;

    /// Calls `work` while no other thread of this process is in a `synchronize` of this metric.
    /// What is counted in there may be seen as one by stores that can, and is never torn apart by
    /// another `synchronize`.
    fn synchronize(&self, work: &mut dyn FnMut());
}
