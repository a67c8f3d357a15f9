//! The description of a metric on the server, and its meaning for the values.

use std::str::FromStr;

use quipu::Aggregation;
use quipu::snapshot::{FamilyHeader, Kind};

/// The name prefix of the store's own metrics, which are not written to the server.
pub(super) const OWN: &str = "quipu_redis_";
/// The store's metric that lists all metrics, with their name, kind and aggregation as labels.
pub(super) const METRICS: &str = "quipu_redis_metric";

/// How the values of instances are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// A sum of values that only grow.
    Counter,
    /// Like [`How::Counter`], for parts of histograms and summaries that the application names.
    Parts,
    /// By this aggregation.
    Gauge(Aggregation),
}

/// A metric's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) kind: Kind,
    pub(super) how: How,
    pub(super) help: String,
    pub(super) unit: String,
    pub(super) labels: Vec<String>,
}

impl How {
    /// Creates a description from the labels of the registry's metric [`METRICS`].
    pub(super) fn of_spec(kind: &str, aggregation: &str) -> Self {
        match kind {
            "counter" => Self::Counter,
            "gauge" => {
                Self::Gauge(Aggregation::from_str(aggregation).unwrap_or(Aggregation::LiveSum))
            }
            _ => Self::Parts,
        }
    }

    /// Returns whether it only grows.
    pub(super) fn is_sum(self) -> bool {
        !matches!(self, Self::Gauge(_))
    }

    /// Returns whether each value follows the time when it changed (`time:value`).
    pub(super) fn has_time(self) -> bool {
        matches!(self, Self::Gauge(Aggregation::MostRecent | Aggregation::LiveMostRecent))
    }

    /// Returns whether the values of dead instances count as well.
    pub(super) fn counts_dead(self) -> bool {
        use Aggregation::{LiveAll, LiveMax, LiveMin, LiveMostRecent, LiveSum};

        !matches!(self, Self::Gauge(LiveAll | LiveMax | LiveMin | LiveMostRecent | LiveSum))
    }

    /// Returns how scripts fold the values of an instance, as the name that they use.
    pub(super) fn fold(self) -> &'static str {
        match self {
            Self::Counter | Self::Parts | Self::Gauge(Aggregation::Sum) => "sum",
            Self::Gauge(Aggregation::Max) => "max",
            Self::Gauge(Aggregation::Min) => "min",
            Self::Gauge(Aggregation::MostRecent) => "recent",
            Self::Gauge(_) => "drop",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Parts => "parts",
            Self::Gauge(aggregation) => aggregation.as_str(),
        }
    }
}

impl Meta {
    /// Returns the description of a family of the registry.
    pub(super) fn from_family(family: &FamilyHeader<'_>, spec: Option<How>) -> Self {
        let (kind, how) = match (family.kind, spec) {
            (_, Some(How::Parts)) => (Kind::Unknown, How::Parts),
            (Kind::Gauge | Kind::Unknown, Some(how)) => (family.kind, how),
            (Kind::Gauge | Kind::Unknown, None) => (Kind::Gauge, How::Gauge(Aggregation::LiveSum)),
            (kind, _) => (kind, How::Counter),
        };
        Self {
            kind,
            how,
            help: family.help.into(),
            unit: family.unit.into(),
            labels: family.labels().iter().map(|label| label.name.into()).collect(),
        }
    }

    /// Returns the description as the fields of a hash.
    pub(super) fn fields(&self) -> [(&'static str, String); 6] {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("unknown", |k| k.1);
        [
            ("kind", kind.into()),
            ("how", self.how.fold().into()),
            ("aggregation", self.how.name().into()),
            ("help", self.help.clone()),
            ("unit", self.unit.clone()),
            ("labels", self.labels.join("\n")),
        ]
    }

    /// Reads a description from the fields of a hash.
    pub(super) fn read<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut meta = Self {
            kind: Kind::Unknown,
            how: How::Counter,
            help: String::new(),
            unit: String::new(),
            labels: Vec::new(),
        };
        for (name, text) in fields {
            match name {
                "kind" => {
                    meta.kind = KINDS.iter().find(|k| k.1 == text).map_or(Kind::Unknown, |k| k.0);
                }
                "aggregation" => {
                    meta.how = match text {
                        "counter" => How::Counter,
                        "parts" => How::Parts,
                        text => How::of_spec("gauge", text),
                    }
                }
                "help" => meta.help = text.into(),
                "unit" => meta.unit = text.into(),
                "labels" => {
                    meta.labels = text.lines().map(Into::into).collect();
                }
                _ => {}
            }
        }
        meta
    }
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Counter, "counter"),
    (Kind::Gauge, "gauge"),
    (Kind::Histogram, "histogram"),
    (Kind::Summary, "summary"),
    (Kind::Unknown, "unknown"),
];
