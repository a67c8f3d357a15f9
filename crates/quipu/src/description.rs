//! What a metric is to be: its name, its help, and whatever its kind can be told.

use std::time::Duration;

use crate::instrument::Aggregation;

/// The description of a metric that is registered.
///
/// ```
/// use std::time::Duration;
/// use quipu::Description;
///
/// let description = Description::new("http_request_duration", "From head to answer.")
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
    pub(crate) apart: bool,
    pub(crate) aggregation: Aggregation,
}

/// How exponential buckets are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Native {
    pub(crate) schema: i8,
    pub(crate) buckets: u16,
    pub(crate) zero_threshold: f64,
}

impl Description {
    /// A metric of that name. What a format adds by itself (`_total`, `_bucket`, `_info`) is no
    /// part of it.
    pub fn new(name: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name: name.into(), help: help.into(), ..Self::default() }
    }

    /// The unit of its values, a base unit in the plural (`seconds`, `bytes`). It becomes the end
    /// of the name, unless the name ends in it already.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// The upper bounds of a histogram's classic buckets, ascending; `+Inf` comes by itself.
    /// Without this, a histogram has those from 5 ms to 10 s that Prometheus' clients agree on.
    pub fn buckets(mut self, bounds: impl IntoIterator<Item = f64>) -> Self {
        self.buckets = Some(bounds.into_iter().collect());
        self
    }

    /// Gives a histogram exponential ("native") buckets of a resolution from -4 (factor 65536) to
    /// 8 (factor 1.0027); 3 makes them 9 % wide. When more than 160 are filled, or as many as
    /// [`Description::native_buckets`] says, the resolution is halved.
    ///
    /// It has no classic buckets then, unless [`Description::buckets`] asks for both.
    pub fn native(mut self, schema: i8) -> Self {
        self.native_mut().schema = schema;
        self
    }

    /// The most exponential buckets: 8 to 384.
    pub fn native_buckets(mut self, most: u16) -> Self {
        self.native_mut().buckets = most;
        self
    }

    /// What is at most as far from zero is counted in the zero bucket: 2^-128 without this.
    pub fn zero_threshold(mut self, threshold: f64) -> Self {
        self.native_mut().zero_threshold = threshold;
        self
    }

    /// The quantiles of a summary, 0 to 1 each; without this, the median, 0.9 and 0.99. A summary
    /// with an empty list counts and adds up, and is as cheap as that.
    pub fn quantiles(mut self, quantiles: impl IntoIterator<Item = f64>) -> Self {
        self.quantiles = Some(quantiles.into_iter().collect());
        self
    }

    /// The span of time that a summary's quantiles or a window's count cover.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// The width of a window's buckets; without this, a 300th of the window.
    pub fn accuracy(mut self, accuracy: Duration) -> Self {
        self.accuracy = Some(accuracy);
        self
    }

    /// The names of the labels, where they are known at run time only. See
    /// [`LabelGroup`](crate::LabelGroup) for arrays of texts.
    pub fn labels<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.labels = names.into_iter().map(Into::into).collect();
        self
    }

    /// The values that a label of texts can have. Series of labels that all have their values are
    /// found by arithmetic. Any other text is counted in the overflow series.
    pub fn values<S: Into<String>>(
        mut self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        self.values.push((label.into(), values.into_iter().map(Into::into).collect()));
        self
    }

    /// The states of a [`StateSet<&str>`](crate::StateSet), whose names are known at run time only.
    pub fn states<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.states = names.into_iter().map(Into::into).collect();
        self
    }

    /// The most series that the family may have. What comes beyond is counted in one series with
    /// the label `quipu_overflow="true"`.
    pub fn limit(mut self, series: u64) -> Self {
        self.limit = Some(series);
        self
    }

    /// Hides a series of dynamic labels when it has not changed for that long. A counter or a
    /// histogram that changes again goes on from its last total; a gauge begins anew.
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

    /// Whether each CPU counts in memory of its own, which takes 8 bytes a CPU and is never slow.
    /// Without this, families of fixed label values do while they take less than a mebibyte.
    pub fn striped(mut self, striped: bool) -> Self {
        self.striped = Some(striped);
        self
    }

    /// Takes names as they are: for series that an application names itself, such as those of a
    /// histogram's buckets, by the label `le`.
    #[doc(hidden)]
    pub fn verbatim(mut self) -> Self {
        self.verbatim = true;
        self
    }

    /// Makes a metric that stands apart from the registry, whatever others there are of its name: it
    /// takes no name, and is shown by [`Family::source`](crate::Family::source) alone.
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// How the values of several processes are shown, for a [`ProcessGauge`](crate::ProcessGauge);
    /// each for itself without this.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// The name with its unit.
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

/// 2^-128, as `client_golang` has it.
pub(crate) const DEFAULT_ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;
