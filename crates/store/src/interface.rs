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

impl Spec {
    /// A metric without help, labels and aggregation.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        let (help, labels) = (String::new(), Vec::new());
        Self { name: name.into(), help, kind, labels, aggregation: None }
    }

    /// With this help.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// With labels of these names.
    pub fn labels<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.labels = names.into_iter().map(Into::into).collect();
        self
    }

    /// With this aggregation.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = Some(aggregation);
        self
    }

    /// Checks what no store can keep.
    ///
    /// # Errors
    /// A name or a label name that cannot be, and a label that is there twice.
    pub fn check(&self) -> Result<(), Error> {
        let subject = || format!("metric {:?}", self.name);
        if self.name.is_empty() || self.name.contains(['\n', '\0']) {
            return Err(Error::new(subject(), "no name that can be written; give it another"));
        }
        for (i, label) in self.labels.iter().enumerate() {
            if label.is_empty() || label.contains(['\n', '\0']) || label.starts_with("__") {
                let what = format!("the label {label:?} has no name that can be; rename it");
                return Err(Error::new(subject(), what));
            }
            if self.labels[..i].contains(label) {
                let what = format!("the label {label:?} is there twice; rename one");
                return Err(Error::new(subject(), what));
            }
        }
        Ok(())
    }

    /// Whether its values only grow, so that setting one never takes it back.
    pub fn is_cumulative(&self) -> bool {
        self.kind != Kind::Gauge
    }

    /// What of this contradicts another description of the same metric, in words. The help may
    /// differ.
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
            let name = |spec: &Self| spec.aggregation.map_or("not said", Aggregation::name);
            return Some(format!("its aggregation is {}, not {}", name(self), name(other)));
        }
        None
    }
}

/// Where metrics are kept.
pub trait Store: Send + Sync {
    /// The metric of that name, made where there is none.
    ///
    /// # Errors
    /// Settings that this store does not have, a name or labels that cannot be, a description that
    /// contradicts the metric that is there, and the errors of what lies below.
    fn metric(&self, spec: &Spec) -> Result<Arc<dyn Metric>, Error>;

    /// How many updates could not be kept: more or fewer label values than the spec has names, a
    /// full disk, a counter that was to go back.
    fn dropped(&self) -> u64;
}

/// A metric of a store. Label values are given in the order of the [`Spec`]'s names.
///
/// Nothing here fails or waits for what lies below: what cannot be kept is counted as dropped.
pub trait Metric: Send + Sync {
    /// What it is.
    fn spec(&self) -> &Spec;

    /// Adds to the value of these labels. A counter leaves a negative number out, all leave NaN out:
    /// the update is counted as dropped.
    fn increment(&self, labels: &[&str], by: f64);

    /// Makes the value of these labels `value`. Counters, histograms and summaries never go back:
    /// theirs is raised to `value` where that is greater, and 0 does no more than make the series.
    /// So a process that begins may set all its series to 0, whatever others have counted.
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
    /// another `synchronize`. `work` may count, and may call `synchronize` again.
    fn synchronize(&self, work: &mut dyn FnMut());

    /// Removes the series of these labels; false where there is none, and where the store cannot.
    fn remove(&self, _labels: &[&str]) -> bool {
        false
    }
}
