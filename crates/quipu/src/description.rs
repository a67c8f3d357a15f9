//! The description under which a metric is registered: name, help, and kind-specific options.

use std::time::Duration;

use quipu_segment::series::Identity;

use crate::error::Error;
use crate::kind::Aggregation;

/// The description of a metric: its name, its help, and kind-specific options.
///
/// If you set an option that the registered kind does not use, such as buckets of a counter, the
/// registration returns an error.
///
/// ```
/// use std::time::Duration;
/// use quipu::Description;
///
/// let description = Description::new("http_request_duration", "Time to serve a request.")
///     .unit("seconds")
///     .buckets([0.005, 0.05, 0.5])
///     .max_series(10_000)
///     .expire_after(Duration::from_secs(3600));
/// assert_eq!(description.full_name(), "http_request_duration_seconds");
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "register a metric with the description"]
pub struct Description {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) unit: String,
    pub(crate) buckets: Option<Vec<f64>>,
    pub(crate) native: Option<NativeSettings>,
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

/// A setting that only some metrics use.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    Buckets,
    Native,
    Quantiles,
    Window,
    Accuracy,
    States,
    Exemplars,
    Aggregation,
    /// Labels and their values.
    Labels,
    /// The limit on series.
    Limit,
    /// The time after which series expire.
    Expiry,
}

impl Setting {
    /// The settings that families use, whatever their kind.
    pub(crate) const OF_FAMILIES: [Self; 3] = [Self::Labels, Self::Limit, Self::Expiry];

    /// Returns the name of the setting, and the metrics that use it.
    fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Buckets => ("buckets", "a histogram"),
            Self::Native => ("native buckets", "a histogram"),
            Self::Quantiles => ("quantiles", "a summary"),
            Self::Window => ("a window", "a summary or a window"),
            Self::Accuracy => ("an accuracy", "a window"),
            Self::States => ("states", "a state set"),
            Self::Exemplars => ("exemplars", "a counter or a histogram"),
            Self::Aggregation => ("an aggregation", "a ProcessGauge"),
            Self::Labels => ("labels", "a family"),
            Self::Limit => ("a limit on series", "a family"),
            Self::Expiry => ("an expiry", "a family"),
        }
    }
}

/// The settings of exponential buckets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NativeSettings {
    pub(crate) schema: i8,
    pub(crate) buckets: u16,
    pub(crate) zero_threshold: f64,
}

impl Description {
    /// Describes a metric by its name and help. Omit suffixes that the format adds (`_total`,
    /// `_bucket`, `_info`).
    #[doc(alias = "describe_counter")]
    pub fn new(name: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name: name.into(), help: help.into(), ..Self::default() }
    }

    /// Sets the unit of the values: a base unit in the plural (`seconds`, `bytes`). The unit is
    /// appended to the name, unless the name already ends in the unit.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Sets the upper bounds of a histogram's classic buckets, in ascending order; `+Inf` is added.
    /// The default is the bounds from 5 ms to 10 s that Prometheus' clients share.
    #[doc(alias = "exponential_buckets")]
    pub fn buckets(mut self, bounds: impl IntoIterator<Item = f64>) -> Self {
        self.buckets = Some(bounds.into_iter().collect());
        self
    }

    /// Gives a histogram exponential ("native") buckets. `schema` is their resolution, from -4
    /// (factor 65536) to 8 (factor 1.0027); at 3, a bucket is 9 % wide. When more than 160 buckets,
    /// or the number set by [`Description::native_buckets`], are filled, the resolution is halved.
    ///
    /// The histogram then uses no classic buckets, unless you also call [`Description::buckets`].
    pub fn native(mut self, schema: i8) -> Self {
        self.native_mut().schema = schema;
        self
    }

    /// Sets the maximum number of exponential buckets, 8 to 384; 160 by default.
    pub fn native_buckets(mut self, most: u16) -> Self {
        self.native_mut().buckets = most;
        self
    }

    /// Sets the width of the zero bucket of exponential buckets: values whose distance from zero is
    /// at most `threshold` are counted there. The default is 2^-128.
    pub fn zero_threshold(mut self, threshold: f64) -> Self {
        self.native_mut().zero_threshold = threshold;
        self
    }

    /// Sets the quantiles of a summary, each from 0 to 1, in ascending order; the default is 0.5,
    /// 0.9 and 0.99. With an empty list, a summary only keeps a count and a sum, and costs no more
    /// than these.
    pub fn quantiles(mut self, quantiles: impl IntoIterator<Item = f64>) -> Self {
        self.quantiles = Some(quantiles.into_iter().collect());
        self
    }

    /// Sets the span of time that a summary's quantiles or a window's count cover; by default, ten
    /// minutes for a summary and one minute for a window.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the width of a window's buckets; by default, 1/300 of the window.
    pub fn accuracy(mut self, accuracy: Duration) -> Self {
        self.accuracy = Some(accuracy);
        self
    }

    /// Sets the names of the labels. Use this if you only know them at run time. See
    /// [`LabelGroup`](crate::LabelGroup) for arrays of strings.
    pub fn labels<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.labels = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the possible values of a string label. If all labels of a family use fixed values, an
    /// update finds its series by arithmetic. Updates with any other value are counted in the
    /// overflow series.
    pub fn values<S: Into<String>>(
        mut self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        self.values.push((label.into(), values.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the states of a [`StateSet<&str>`](crate::StateSet). Use this if you only know them at
    /// run time.
    pub fn states<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.states = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the maximum number of series in the family. Updates to further label sets are counted
    /// in one overflow series with the label `quipu_overflow="true"`.
    pub fn max_series(mut self, series: u64) -> Self {
        self.limit = Some(series);
        self
    }

    /// Hides a series with dynamic labels if it does not change for `idle`. A counter or a
    /// histogram that changes again continues from its last total; a gauge starts over.
    ///
    /// The idle time starts at the first scrape, or [`Registry::value`](crate::Registry::value),
    /// after a change, because the update itself does not read the clock. `get` of a bound handle
    /// still returns the value of an expired series. In a test, advance a
    /// [`TestClock`](crate::TestClock) instead of sleeping.
    pub fn expire_after(mut self, idle: Duration) -> Self {
        self.expiry = Some(idle);
        self
    }

    /// Keeps the last exemplar of each counter or bucket. See
    /// [`Counter::inc_with_exemplar`](crate::Counter::inc_with_exemplar).
    pub fn exemplars(mut self) -> Self {
        self.exemplars = true;
        self
    }

    /// Sets whether each CPU counts in separate memory, which takes 8 bytes per CPU and avoids
    /// contention. Families with fixed label values do this by default if they take at most 1 MiB;
    /// `false` turns it off.
    pub fn striped(mut self, striped: bool) -> Self {
        self.striped = Some(striped);
        self
    }

    /// Accepts reserved names of metrics and labels. Use this if your application writes such
    /// series itself, for example a histogram's buckets with the label `le`.
    #[doc(hidden)]
    pub fn verbatim(mut self) -> Self {
        self.verbatim = true;
        self
    }

    /// Keeps the metric out of the registry: it claims no name, so others can use the same one, and
    /// only [`Family::source`](crate::Family::source) shows it.
    #[doc(hidden)]
    pub fn apart(mut self) -> Self {
        self.identity = Identity::Apart;
        self
    }

    /// Makes the metric one of several variants of its name, which differ in label names, unit or
    /// settings. Use this for metrics that other programs send, because their series can carry
    /// different labels. A variant claims no name: if you register it again, with the labels in the
    /// same order, you get the same metric.
    ///
    /// Scrapes show all variants of a name as one metric, as long as they are of one type. A
    /// variant of another type, or with the label names of an earlier one, is not shown, but
    /// counted in `quipu_variants_not_shown`. A metric that is registered under the name precedes
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
    #[doc(hidden)]
    pub fn variant(mut self) -> Self {
        self.identity = Identity::Variant;
        self
    }

    /// Sets how a scrape combines the values of several processes, for a
    /// [`ProcessGauge`](crate::ProcessGauge). By default, each process uses a separate series.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// Returns the name, ending in the unit.
    pub fn full_name(&self) -> String {
        let has_unit = self.unit.is_empty()
            || self.name == self.unit
            || self.name.strip_suffix(&self.unit).is_some_and(|rest| rest.ends_with('_'));
        if has_unit { self.name.clone() } else { format!("{}_{}", self.name, self.unit) }
    }

    /// Checks that the metric uses all settings, because an ignored setting is a mistake. `name` is
    /// the full name, `metric` the kind of metric with its article, and `used` are the settings
    /// that it uses.
    pub(crate) fn check_settings(
        &self,
        name: &str,
        metric: &str,
        used: &[Setting],
    ) -> Result<(), Error> {
        let settings = [
            (Setting::Buckets, self.buckets.is_some()),
            (Setting::Native, self.native.is_some()),
            (Setting::Quantiles, self.quantiles.is_some()),
            (Setting::Window, self.window.is_some()),
            (Setting::Accuracy, self.accuracy.is_some()),
            (Setting::States, !self.states.is_empty()),
            (Setting::Exemplars, self.exemplars),
            (Setting::Aggregation, self.aggregation != Aggregation::default()),
            (Setting::Labels, !self.labels.is_empty() || !self.values.is_empty()),
            (Setting::Limit, self.limit.is_some()),
            (Setting::Expiry, self.expiry.is_some()),
        ];
        let unused = settings.iter().find(|(setting, is_set)| *is_set && !used.contains(setting));
        let Some((setting, _)) = unused else { return Ok(()) };
        let (what, user) = setting.described();
        let fault = format!(
            "its description has {what}, which {metric} does not use: remove this setting, or \
             register {user}"
        );
        Err(Error::invalid(name, fault))
    }

    fn native_mut(&mut self) -> &mut NativeSettings {
        self.native.get_or_insert(NativeSettings {
            schema: 3,
            buckets: 160,
            zero_threshold: DEFAULT_ZERO_THRESHOLD,
        })
    }
}

/// 2^-128, the default of `client_golang`.
pub(crate) const DEFAULT_ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Registry;
    #[cfg(feature = "window")]
    use crate::Window;
    use crate::kind::{
        Counter, Gauge, Histogram, Info, IntGauge, MixedCounter, ProcessGauge, StateSet, Summary,
    };
    use crate::scope::Register;

    /// Returns the settings that make the registration of a kind fail, by a part of the error.
    fn refused<R: Register>(kind: &str) -> Vec<&'static str> {
        let new = || Description::new("x", "");
        let settings = [
            ("buckets", new().buckets([1.0])),
            ("native buckets", new().native(3)),
            ("quantiles", new().quantiles([0.5])),
            ("a window", new().window(Duration::from_secs(60))),
            ("an accuracy", new().accuracy(Duration::from_secs(1))),
            ("states", new().states(["a"])),
            ("exemplars", new().exemplars()),
            ("an aggregation", new().aggregation(Aggregation::Max)),
        ];
        let mut refused = Vec::new();
        for (setting, description) in settings {
            let Err(error) = Registry::new().register::<R>(description) else { continue };
            let error = error.to_string();
            // A state set without states is refused for another reason.
            let is_unused = error.contains(&format!("its description has {setting}, which {kind}"));
            if is_unused {
                refused.push(setting);
            } else {
                assert_eq!(kind, "a state set", "{error}");
            }
        }
        refused
    }

    #[test]
    fn a_setting_of_another_kind_is_an_error() {
        let all = [
            "buckets",
            "native buckets",
            "quantiles",
            "a window",
            "an accuracy",
            "states",
            "exemplars",
            "an aggregation",
        ];
        let all_but = |used: &[&str]| -> Vec<&str> {
            all.into_iter().filter(|setting| !used.contains(setting)).collect()
        };
        assert_eq!(refused::<Counter>("a counter"), all_but(&["exemplars"]));
        assert_eq!(refused::<MixedCounter>("a counter"), all_but(&["exemplars"]));
        assert_eq!(refused::<Gauge>("a gauge"), all);
        assert_eq!(refused::<IntGauge>("a gauge"), all);
        assert_eq!(refused::<ProcessGauge>("a gauge"), all_but(&["an aggregation"]));
        let used = ["buckets", "native buckets", "exemplars"];
        assert_eq!(refused::<Histogram>("a histogram"), all_but(&used));
        assert_eq!(refused::<Summary>("a summary"), all_but(&["quantiles", "a window"]));
        assert_eq!(refused::<Info>("an info"), all);
        assert_eq!(refused::<StateSet<&str>>("a state set"), all_but(&["states"]));
        #[cfg(feature = "window")]
        assert_eq!(refused::<Window>("a window"), all_but(&["a window", "an accuracy"]));
    }

    #[test]
    fn a_value_that_is_computed_has_no_labels_and_no_limit() {
        let registry = Registry::new();
        let scope = registry.scope();
        let new = || Description::new("x", "");
        for description in [new().labels(["a"]), new().max_series(1), new().values("a", ["b"])] {
            let error = scope.gauge_fn(description, || 1.0).unwrap_err().to_string();
            assert!(error.contains("a gauge that is computed does not use"), "{error}");
        }
        scope.gauge_fn(new().unit("seconds"), || 1.0).unwrap();
    }
}
