//! The interface of all stores: the traits [`Store`] and [`Metric`], and [`Spec`], which describes
//! a metric.

use std::sync::Arc;

use quipu::Aggregation;

use crate::error::Error;

/// The kind of a metric.
///
/// ```
/// use quipu_store::{Kind, Spec};
///
/// assert!(Spec::new("requests", Kind::Counter).is_cumulative());
/// assert!(!Spec::new("queue_length", Kind::Gauge).is_cumulative());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// The buckets and the sum of a histogram, each a separate series that the application names.
    Histogram,
    /// The count and the sum of a summary, each a separate series that the application names.
    Summary,
}

/// The description of a metric.
///
/// ```
/// use quipu_store::{Aggregation, Kind, Spec};
///
/// let spec = Spec::new("memory_bytes", Kind::Gauge)
///     .help("The memory of the worker with the most.")
///     .labels(["pool"])
///     .aggregation(Aggregation::Max);
/// assert!(spec.check().is_ok());
/// assert!(Spec::new("memory_bytes", Kind::Gauge).labels(["__pool"]).check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "pass the description to Store::metric"]
pub struct Spec {
    /// The name.
    pub name: String,
    /// The help; may be empty.
    pub help: String,
    /// The kind.
    pub kind: Kind,
    /// The label names, in the order of the label values.
    pub labels: Vec<String>,
    /// How the values of several processes are combined. `None` is the store's default: the sum, or
    /// [`Aggregation::All`] for gauges of stores that keep one value per process.
    pub aggregation: Option<Aggregation>,
}

impl Spec {
    /// Describes a metric without help, labels and aggregation.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        let (help, labels) = (String::new(), Vec::new());
        Self { name: name.into(), help, kind, labels, aggregation: None }
    }

    /// Sets the help.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Sets the label names.
    pub fn labels<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.labels = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the aggregation.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = Some(aggregation);
        self
    }

    /// Checks the rules that apply to every store.
    ///
    /// # Errors
    /// If a metric or label name is empty or contains a newline or a NUL byte, if a label name
    /// begins with `__`, or if a label name occurs twice.
    pub fn check(&self) -> Result<(), Error> {
        let subject = || format!("metric {:?}", self.name);
        if self.name.is_empty() || self.name.contains(['\n', '\0']) {
            return Err(Error::new(
                subject(),
                "the name is empty, or has a newline or a NUL byte; rename it",
            ));
        }
        for (i, label) in self.labels.iter().enumerate() {
            if label.is_empty() || label.contains(['\n', '\0']) || label.starts_with("__") {
                let reason = format!("the label name {label:?} is reserved or invalid; rename it");
                return Err(Error::new(subject(), reason));
            }
            if self.labels[..i].contains(label) {
                let reason = format!("duplicate label {label:?}; rename one");
                return Err(Error::new(subject(), reason));
            }
        }
        Ok(())
    }

    /// Returns whether the values only grow: [`Metric::set`] then never lowers one.
    pub fn is_cumulative(&self) -> bool {
        self.kind != Kind::Gauge
    }

    /// Returns the first difference from another description of the same metric, in words.
    /// Differences in the help do not count.
    pub(crate) fn contradiction(&self, other: &Self) -> Option<String> {
        if self.name != other.name {
            return Some(format!("its name is {:?}, not {:?}", self.name, other.name));
        }
        if self.kind != other.kind {
            return Some(format!("it is a {:?}, not a {:?}", self.kind, other.kind));
        }
        if self.labels != other.labels {
            let (ours, theirs) = (self.labels.join(", "), other.labels.join(", "));
            return Some(format!("its labels are ({ours}), not ({theirs})"));
        }
        if self.aggregation != other.aggregation {
            let name = |spec: &Self| spec.aggregation.map_or("the default", Aggregation::as_str);
            return Some(format!("its aggregation is {}, not {}", name(self), name(other)));
        }
        None
    }
}

/// A place for metrics. This trait is sealed: only the stores of this crate implement it.
///
/// ```
/// use quipu_store::{Error, Kind, LocalStore, Spec, Store, SynchronizedStore};
///
/// fn count(store: &dyn Store) -> Result<Option<f64>, Error> {
///     let requests = store.metric(&Spec::new("requests", Kind::Counter))?;
///     requests.add(&[], 1.0);
///     requests.add(&[], -1.0);
///     Ok(requests.get(&[]))
/// }
///
/// for store in [&LocalStore::new() as &dyn Store, &SynchronizedStore::new()] {
///     assert_eq!(count(store)?, Some(1.0));
///     assert_eq!(store.dropped(), 1, "a counter never falls");
/// }
/// # Ok::<(), Error>(())
/// ```
pub trait Store: sealed::Sealed + Send + Sync {
    /// Returns the metric of this name, and creates it if it does not exist.
    ///
    /// # Errors
    /// If this store does not support a setting, if a name or label name is invalid, if the
    /// description contradicts the existing metric, or if the underlying storage fails.
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error>;

    /// Returns the number of updates that could not be kept, for example because you passed a wrong
    /// number of label values, because the disk was full, or because an increment of a counter was
    /// negative.
    fn dropped(&self) -> u64;
}

/// A metric of a store. You pass label values in the order of the [`Spec`]'s label names. This
/// trait is sealed, too.
///
/// Updates neither fail nor wait for the underlying storage: an update that cannot be kept is
/// counted as dropped.
///
/// ```
/// use quipu_store::{Kind, Spec, Store, SynchronizedStore};
///
/// let store = SynchronizedStore::new();
/// let requests = store.metric(&Spec::new("requests", Kind::Counter).labels(["code"]))?;
/// requests.add(&["200"], 2.0);
/// requests.add(&["500"], 1.0);
/// let mut sum = 0.0;
/// requests.for_each(&mut |_labels, value| sum += value)?;
/// assert_eq!((requests.get(&["200"]), sum), (Some(2.0), 3.0));
/// # Ok::<(), quipu_store::Error>(())
/// ```
pub trait Metric: sealed::Sealed + Send + Sync {
    /// Returns the metric's description.
    fn spec(&self) -> &Spec;

    /// Adds `by` to the value of these labels. An increment of NaN, or a negative one of a counter,
    /// is dropped and counted as dropped.
    fn add(&self, labels: &[&str], by: f64);

    /// Sets the value of these labels. The values of counters, histograms and summaries never
    /// decrease: they are raised to `value` if it is greater, and 0 only creates the series. So you
    /// can set all series to 0 when a process starts, whatever other processes counted.
    fn set(&self, labels: &[&str], value: f64);

    /// Returns the value of these labels; `None` if there is no such series, or if the underlying
    /// storage fails. If the store keeps one value per process, this is the value of the calling
    /// process.
    fn get(&self, labels: &[&str]) -> Option<f64>;

    /// Calls `visit` with the label values and the value of every series, aggregated over all
    /// processes. With [`Aggregation::All`] and [`Aggregation::LiveAll`], the last label value is
    /// the pid.
    ///
    /// # Errors
    /// The errors of the underlying storage.
    fn for_each(&self, visit: &mut dyn FnMut(&[&str], f64)) -> Result<(), Error>;

    /// Calls `work` while no other thread of this process is in `synchronize` of this metric. The
    /// updates in `work` never interleave with the updates of another `synchronize`, and some
    /// stores show them to readers as one. `work` can count, and can call `synchronize` again.
    fn synchronize(&self, work: &mut dyn FnMut());

    /// Removes the series of these labels. Returns false if there is none, or if the store does not
    /// support this.
    ///
    /// # Errors
    /// The errors of the underlying storage.
    fn remove(&self, _labels: &[&str]) -> Result<bool, Error> {
        Ok(false)
    }
}

pub(crate) mod sealed {
    /// Prevents implementations outside of this crate, so that the traits can get more methods.
    pub trait Sealed {}
}
