//! The description under which a metric is registered: name, help, and kind-specific options.

use std::time::Duration;

use quipu_segment::series::Identity;

use crate::kind::Aggregation;

/// The description of a metric: its name, its help, and kind-specific options.
///
/// ```
/// use std::time::Duration;
/// use quipu::Description;
///
/// let description = Description::new("http_request_duration", "Time to serve a request.")
///     .unit("seconds")
///     .buckets([0.005, 0.05, 0.5])
///     .limit(10_000)
///     .expire_after(Duration::from_secs(3600));
/// assert_eq!(description.full_name(), "http_request_duration_seconds");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Description {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) unit: String,
    pub(crate) buckets: Option<Vec<f64>>,
    pub(crate) native: Option<Native>,
    pub(crate) quantiles: Option<Vec<f64>>,
    pub(crate) window: Option<Duration>,
    pub(crate) accuracy: Option<Duration>,
    pub(crate) labels: Vec<String>,
    pub(crate) values: Vec<(String, Vec<String>)>,
    pub(crate) limit: Option<u64>,
    pub(crate) expiry: Option<Duration>,
    pub(crate) states: Vec<String>,
    pub(crate) exemplars: bool,
    pub(crate) striped: Option<bool>,
    pub(crate) verbatim: bool,
    pub(crate) identity: Identity,
    pub(crate) aggregation: Aggregation,
}

/// The settings of exponential buckets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Native {
    pub(crate) schema: i8,
    pub(crate) buckets: u16,
    pub(crate) zero_threshold: f64,
}

impl Description {
    /// Describes a metric by its name and help. Omit suffixes that the format adds (`_total`,
    /// `_bucket`, `_info`).
    pub fn new(name: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name: name.into(), help: help.into(), ..Self::default() }
    }

    /// The unit of the values: a base unit in the plural (`seconds`, `bytes`). It is appended to
    /// the name, unless the name already ends in it.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// The upper bounds of a histogram's classic buckets, in ascending order; `+Inf` is added. The
    /// default is the bounds from 5 ms to 10 s that Prometheus' clients share.
    pub fn buckets(mut self, bounds: impl IntoIterator<Item = f64>) -> Self {
        self.buckets = Some(bounds.into_iter().collect());
        self
    }

    /// Gives a histogram exponential ("native") buckets. `schema` is their resolution, from -4
    /// (factor 65536) to 8 (factor 1.0027); at 3, a bucket is 9 % wide. When more than 160 buckets,
    /// or the number set by [`Description::native_buckets`], are filled, the resolution is halved.
    ///
    /// The histogram then has no classic buckets, unless [`Description::buckets`] asks for both.
    pub fn native(mut self, schema: i8) -> Self {
        self.native_mut().schema = schema;
        self
    }

    /// The maximum number of exponential buckets, 8 to 384; 160 by default.
    pub fn native_buckets(mut self, most: u16) -> Self {
        self.native_mut().buckets = most;
        self
    }

    /// The width of the zero bucket of exponential buckets: values whose distance from zero is at
    /// most `threshold` are counted there. The default is 2^-128.
    pub fn zero_threshold(mut self, threshold: f64) -> Self {
        self.native_mut().zero_threshold = threshold;
        self
    }

    /// The quantiles of a summary, each from 0 to 1, in ascending order; the default is 0.5, 0.9
    /// and 0.99. With an empty list, a summary keeps only a count and a sum, and costs no more than
    /// these.
    pub fn quantiles(mut self, quantiles: impl IntoIterator<Item = f64>) -> Self {
        self.quantiles = Some(quantiles.into_iter().collect());
        self
    }

    /// The span of time that a summary's quantiles or a window's count cover; by default, ten
    /// minutes for a summary and one minute for a window.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// The width of a window's buckets; by default, 1/300 of the window.
    pub fn accuracy(mut self, accuracy: Duration) -> Self {
        self.accuracy = Some(accuracy);
        self
    }

    /// The names of the labels, if they are known at run time only. See
    /// [`LabelGroup`](crate::LabelGroup) for arrays of texts.
    pub fn labels<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.labels = names.into_iter().map(Into::into).collect();
        self
    }

    /// The values that a text label can have. If all labels of a family have fixed values, its
    /// series are found by arithmetic. Updates with any other text are counted in the overflow
    /// series.
    pub fn values<S: Into<String>>(
        mut self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        self.values.push((label.into(), values.into_iter().map(Into::into).collect()));
        self
    }

    /// The states of a [`StateSet<&str>`](crate::StateSet), if they are known at run time only.
    pub fn states<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.states = names.into_iter().map(Into::into).collect();
        self
    }

    /// The maximum number of series in the family. Updates to label sets beyond it are counted in
    /// one overflow series with the label `quipu_overflow="true"`.
    pub fn limit(mut self, series: u64) -> Self {
        self.limit = Some(series);
        self
    }

    /// Hides a series with dynamic labels after it has not changed for `idle`. A counter or a
    /// histogram that changes again continues from its last total; a gauge starts over.
    pub fn expire_after(mut self, idle: Duration) -> Self {
        self.expiry = Some(idle);
        self
    }

    /// Keeps the last exemplar of each counter or bucket. See
    /// [`Counter::inc_with`](crate::Counter::inc_with).
    pub fn exemplars(mut self) -> Self {
        self.exemplars = true;
        self
    }

    /// Whether each CPU may count in memory of its own, which takes 8 bytes per CPU and avoids
    /// contention. Families with fixed label values do so by default if they take at most 1 MiB;
    /// `false` turns it off.
    pub fn striped(mut self, striped: bool) -> Self {
        self.striped = Some(striped);
        self
    }

    /// Accepts reserved names of metrics and labels: for an application that writes such series
    /// itself, such as a histogram's buckets with the label `le`.
    #[doc(hidden)]
    pub fn verbatim(mut self) -> Self {
        self.verbatim = true;
        self
    }

    /// Keeps the metric apart from the registry: it claims no name, so others may have the same
    /// one, and only [`Family::source`](crate::Family::source) shows it.
    pub fn apart(mut self) -> Self {
        self.identity = Identity::Apart;
        self
    }

    /// Makes the metric one of several variants of its name, which differ in label names, unit or
    /// settings: for metrics from outside, whose series have different labels. It claims
    /// no name, and registering it again, with the labels in the same order, returns the same
    /// metric. Scrapes show all variants of a name as one metric, as long as they are of one type.
    /// A variant of another type, or with the label names of an earlier one, is not shown, but
    /// counted in `quipu_variants_not_shown`; a metric that is registered under the name precedes
    /// all variants.
    ///
    /// ```
    /// use quipu::label::Values;
    /// use quipu::{CounterFamily, Description, Registry};
    ///
    /// let registry = Registry::new();
    /// let hits = |labels: &[&str]| -> Result<CounterFamily<Values>, quipu::Error> {
    ///     let labels = labels.iter().copied();
    ///     registry.register(Description::new("hits", "Hits.").labels(labels).variant())
    /// };
    /// hits(&["page"])?.inc(&Values(&["/"]));
    /// hits(&["page", "user"])?.inc(&Values(&["/", "ada"]));
    /// hits(&["page"])?.inc(&Values(&["/"]));
    /// let text = registry.text();
    /// assert!(text.contains("hits_total{page=\"/\"} 2\nhits_total{page=\"/\",user=\"ada\"} 1\n"));
    /// # Ok::<(), quipu::Error>(())
    /// ```
    pub fn variant(mut self) -> Self {
        self.identity = Identity::Variant;
        self
    }

    /// How a scrape combines the values of several processes, for a
    /// [`ProcessGauge`](crate::ProcessGauge). By default, each process has a series of its own.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// The name, ending in the unit.
    pub fn full_name(&self) -> String {
        let has_unit = self.unit.is_empty()
            || self.name == self.unit
            || self.name.strip_suffix(&self.unit).is_some_and(|rest| rest.ends_with('_'));
        if has_unit { self.name.clone() } else { format!("{}_{}", self.name, self.unit) }
    }

    fn native_mut(&mut self) -> &mut Native {
        self.native.get_or_insert(Native {
            schema: 3,
            buckets: 160,
            zero_threshold: DEFAULT_ZERO_THRESHOLD,
        })
    }
}

/// 2^-128, the default of `client_golang`.
pub(crate) const DEFAULT_ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;
