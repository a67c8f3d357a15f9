//! Scopes: views of a registry that add a prefix to names and constant labels.

use quipu_segment::series::{self, Identity, Label, Schema};

use crate::collector::Callback;
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::exposition::underscored_label;
use crate::kind::{Counter, Gauge, Histogram, Instrument, IntGauge, MetricKind, sealed};
use crate::label;
use crate::names;
use crate::registry::Registry;
use crate::snapshot::{self, Kind};

/// A view of a registry for one part of a program: with a prefix for names, and constant labels.
/// It is a handle of the registry, so you can keep it, for example in a struct that registers
/// metrics later.
///
/// ```
/// use quipu::{Counter, Description, Registry};
///
/// let registry = Registry::new();
/// let scope = registry.prefix("orders_db").label("shard", "1");
/// let queries: Counter = scope.register(Description::new("queries", "Queries."))?;
/// queries.inc();
/// assert_eq!(registry.value("orders_db_queries_total", &[("shard", "1")]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scope {
    registry: Registry,
    prefix: String,
    labels: Vec<(String, String)>,
    /// Whether a name that a family already uses yields another handle of this family.
    reuses: bool,
}

/// A metric that you can register under a description: for example, an instrument or a family of
/// instruments. This trait is sealed. For a group of several metrics, implement [`Metrics`].
///
/// ```
/// use quipu::{Counter, Description, Gauge, Register, Registry};
///
/// /// Registers a metric of any kind under the prefix of this library.
/// fn register<R: Register>(registry: &Registry, name: &str) -> Result<R, quipu::Error> {
///     registry.prefix("pool").register(Description::new(name, ""))
/// }
///
/// let registry = Registry::new();
/// register::<Counter>(&registry, "connections")?.inc();
/// register::<Gauge>(&registry, "size")?.set(5.0);
/// assert_eq!(registry.value("pool_size", &[]), Some(5.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a metric that you can register",
    note = "register an instrument, such as Counter, or a family, such as CounterFamily<Labels>",
    note = "for a struct of several metrics, derive Metrics, and call Registry::metrics"
)]
pub trait Register: sealed::Sealed + Sized {
    /// Registers the metric in `scope` under `description`.
    ///
    /// # Errors
    /// If the name is taken, a name or a setting is invalid, the settings differ from the settings
    /// of the existing family, or the segment is full.
    fn register(scope: &Scope, description: Description) -> Result<Self, Error>;
}

/// A group of metrics. Derive it for a struct of instruments and families.
///
/// ```
/// use quipu::{Counter, IntGauge, Metrics, Registry};
///
/// #[derive(Metrics)]
/// #[metrics(prefix = "pool")]
/// struct PoolMetrics {
///     /// Connections made.
///     connections: Counter,
///     /// Connections in use.
///     in_use: IntGauge,
/// }
///
/// let registry = Registry::new();
/// let metrics: PoolMetrics = registry.metrics()?;
/// metrics.connections.inc();
/// metrics.in_use.set(1);
/// assert_eq!(registry.value("pool_connections_total", &[]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
pub trait Metrics: Sized {
    /// Registers all metrics of the group.
    ///
    /// # Errors
    /// The error of the first metric that cannot be registered.
    fn register(scope: &Scope) -> Result<Self, Error>;
}

impl Scope {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            prefix: String::new(),
            labels: Vec::new(),
            reuses: false,
        }
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns a scope that adds `prefix` and an underscore to the names, after this scope's
    /// prefix.
    pub fn prefix(&self, prefix: &str) -> Self {
        let prefix = match (self.prefix.as_str(), prefix) {
            (outer, "") => outer.to_owned(),
            ("", inner) => inner.to_owned(),
            (outer, inner) => format!("{outer}_{inner}"),
        };
        Self { prefix, ..self.clone() }
    }

    /// Returns a scope that adds this label to all metrics.
    pub fn label(&self, name: &str, value: &str) -> Self {
        let mut scope = self.clone();
        scope.labels.push((name.to_owned(), value.to_owned()));
        scope
    }

    /// Returns a scope whose registrations can return another handle of an existing metric of the
    /// same name: see [`Registry::register_or_get`].
    pub fn reuse(&self) -> Self {
        Self { reuses: true, ..self.clone() }
    }

    /// Registers an instrument or a family in this scope.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn register<R: Register>(&self, description: Description) -> Result<R, Error> {
        R::register(self, description)
    }

    /// Registers a group of metrics in this scope.
    ///
    /// # Errors
    /// The errors of [`Metrics::register`].
    pub fn metrics<M: Metrics>(&self) -> Result<M, Error> {
        M::register(self)
    }

    /// Registers a counter.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a gauge.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers an integer gauge.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a histogram with the default buckets.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn histogram(&self, name: &str, help: &str) -> Result<Histogram, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a gauge whose value every scrape obtains by calling `value`.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    pub fn gauge_fn(
        &self,
        description: Description,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let callback =
            self.callback(description, Kind::Gauge, ("a gauge that is computed", &[]), value)?;
        self.registry.register_collector(callback)
    }

    /// Registers a counter whose total every scrape obtains by calling `total`. The total must
    /// never decrease.
    ///
    /// # Errors
    /// The errors of [`Register::register`].
    #[doc(alias = "absolute")]
    pub fn counter_fn(
        &self,
        description: Description,
        total: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let callback =
            self.callback(description, Kind::Counter, ("a counter that is computed", &[]), total)?;
        self.registry.register_collector(callback)
    }

    /// Returns the name of a metric in this scope, with prefix and unit.
    pub fn full_name(&self, description: &Description) -> String {
        let name = description.full_name();
        if self.prefix.is_empty() { name } else { format!("{}_{name}", self.prefix) }
    }

    /// Creates a collector of one value. `metric` is the kind of metric with its article, and
    /// `used` are the settings that it uses.
    pub(crate) fn callback(
        &self,
        description: Description,
        kind: Kind,
        (metric, used): (&str, &[Setting]),
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<Callback, Error> {
        let name = self.full_name(&description);
        names::check_metric(&name, description.verbatim)?;
        description.check_settings(&name, metric, used)?;
        let Description { help, unit, .. } = description;
        Ok(Callback::new(name, help, unit, kind, self.labels.clone(), Box::new(value)))
    }

    /// Creates a family, or opens the existing one in the segment.
    pub(crate) fn family<I: Instrument>(
        &self,
        description: &Description,
        labels: &[snapshot::Label<'_>],
        count: usize,
    ) -> Result<series::Family, Error> {
        let name = self.full_name(description);
        names::check_metric(&name, description.verbatim)?;
        let used = [I::SETTINGS, &Setting::OF_FAMILIES].concat();
        description.check_settings(&name, I::Kind::SNAPSHOT_KIND.with_article(), &used)?;
        let mut schema = Schema {
            name: name.clone(),
            help: description.help.clone(),
            unit: description.unit.clone(),
            limit: description.limit,
            idle: description.expiry,
            identity: description.identity,
            kind: I::Kind::NUMBER,
            ..Schema::default()
        };
        I::describe(description, &mut schema)?;
        schema.additive &= description.striped.unwrap_or(true);
        if count != label::ANY && labels.len() + description.labels.len() != count {
            let (given, names) = (labels.len() + description.labels.len(), count);
            let reason = format!(
                "it has {given} labels, but its label type has {names} values: name one label for \
                 each value, with Description::labels if the type is an array"
            );
            return Err(Error::invalid(&name, reason));
        }
        schema.labels =
            self.labels(&name, description, labels, std::mem::take(&mut schema.labels))?;
        I::arrange(&mut schema);
        let claims_name = description.identity == Identity::Name
            && match self.registry.claim(&name) {
                Ok(()) => true,
                Err(_) if self.reuses && self.waits_for_family(&name) => false,
                Err(error) => return Err(error),
            };
        self.registry.segment().family_of(schema).map_err(|error| {
            if claims_name {
                self.registry.release(&name);
            }
            Error::segment(&name, error)
        })
    }

    /// Returns whether the registry contains a family of this name. If another thread is creating
    /// the family, waits for this thread, but not for long. If a collector uses the name, returns
    /// at once.
    fn waits_for_family(&self, name: &str) -> bool {
        for _ in 0..MAX_YIELDS {
            if self.registry.is_collected(name) {
                return false;
            }
            if self.registry.has_family(name) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    fn labels(
        &self,
        metric: &str,
        description: &Description,
        labels: &[snapshot::Label<'_>],
        instruments: Vec<Label>,
    ) -> Result<Vec<Label>, Error> {
        let own = labels.iter().map(|label| Label {
            name: label.name.to_owned(),
            values: label.values.map(|v| v.iter().map(|&text| text.to_owned()).collect()),
        });
        let named =
            description.labels.iter().map(|name| Label { name: name.clone(), values: None });
        let constant = self
            .labels
            .iter()
            .map(|(name, value)| Label { name: name.clone(), values: Some(vec![value.clone()]) });
        // The constant labels are last, because a key is written with the caller's values first,
        // and a label with a single value does not change the group.
        let mut all: Vec<Label> = own.chain(named).chain(constant).collect();
        for (name, values) in &description.values {
            let label = all.iter_mut().find(|label| label.name == *name);
            let label = label.ok_or_else(|| {
                let reason =
                    format!("values are given for {name:?}, which is not one of its labels");
                Error::invalid(metric, reason)
            })?;
            if label.values.is_some() {
                let reason = format!("the type of the label {name:?} sets its values: omit them");
                return Err(Error::invalid(metric, reason));
            }
            label.values = Some(values.clone());
        }
        // The instrument's own labels follow the values that the caller writes.
        let own = labels.len() + description.labels.len();
        all.splice(own..own, instruments);
        for (i, label) in all.iter().enumerate() {
            names::check_label(metric, &label.name, description.verbatim)?;
            let shown = underscored_label(&label.name);
            let is_alike = |other: &&Label| underscored_label(&other.name) == shown;
            if let Some(other) = all[..i].iter().find(is_alike) {
                let reason = match other.name == label.name {
                    true => format!("the label {:?} appears twice: rename one", label.name),
                    false => format!(
                        "the labels {:?} and {:?} are one label for readers without UTF-8 names: \
                         rename one",
                        other.name, label.name
                    ),
                };
                return Err(Error::invalid(metric, reason));
            }
        }
        Ok(all)
    }
}

/// How often a registration yields the CPU to a thread that is creating the same family.
const MAX_YIELDS: usize = 100;
