//! Aggregations: how a scrape combines the values that several processes set in one gauge.

use crate::error::named;

/// How a scrape combines the values of a gauge when each process sets a separate value. The `Live`
/// variants only count living processes; the others also count values of processes that have ended.
///
/// The names are the same as in Python's `prometheus_client`; you can also use Ruby's
/// `most_recent`.
///
/// ```
/// use quipu::{Aggregation, Description, ProcessGauge, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("version", "Version of the schema.");
/// let version: ProcessGauge = registry.register(description.aggregation(Aggregation::Max))?;
/// version.set(7.0);
/// assert_eq!(registry.value("version", &[]), Some(7.0));
/// assert_eq!("livesum".parse(), Ok(Aggregation::LiveSum));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Aggregation {
    /// The value of each process, in a separate series with the label `pid`.
    #[default]
    All,
    /// Like [`Aggregation::All`], for living processes.
    LiveAll,
    /// The minimum.
    Min,
    /// The minimum over living processes.
    LiveMin,
    /// The maximum.
    Max,
    /// The maximum over living processes.
    LiveMax,
    /// The sum.
    Sum,
    /// The sum over living processes.
    LiveSum,
    /// The value that was set last.
    MostRecent,
    /// The value that was set last by a living process.
    LiveMostRecent,
}

impl Aggregation {
    /// All aggregations.
    pub const ALL: &'static [Self] = &[
        Self::All,
        Self::LiveAll,
        Self::Min,
        Self::LiveMin,
        Self::Max,
        Self::LiveMax,
        Self::Sum,
        Self::LiveSum,
        Self::MostRecent,
        Self::LiveMostRecent,
    ];

    /// Returns the name, which is the same as in Python's client.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::LiveAll => "liveall",
            Self::Min => "min",
            Self::LiveMin => "livemin",
            Self::Max => "max",
            Self::LiveMax => "livemax",
            Self::Sum => "sum",
            Self::LiveSum => "livesum",
            Self::MostRecent => "mostrecent",
            Self::LiveMostRecent => "livemostrecent",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let name = if name == "most_recent" { "mostrecent" } else { name };
        Self::ALL.iter().copied().find(|aggregation| aggregation.as_str() == name)
    }

    /// Returns whether only living processes count.
    #[doc(hidden)]
    pub fn is_live(self) -> bool {
        use Aggregation::{LiveAll, LiveMax, LiveMin, LiveMostRecent, LiveSum};
        matches!(self, LiveAll | LiveMin | LiveMax | LiveSum | LiveMostRecent)
    }
}

named!(Aggregation, "gauge aggregation", Aggregation::ALL);
