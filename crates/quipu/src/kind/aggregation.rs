//! Aggregations: how a scrape combines the values that several processes set in one gauge.

use std::fmt;
use std::str::FromStr;

/// How a scrape shows the values of a gauge that has one for each process. The `Live` variants only
/// count living processes; the others also count values of processes that have ended.
///
/// The names are those of Python's `prometheus_client`; Ruby's `most_recent` is accepted, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Aggregation {
    /// The value of each process, in a series of its own with the label `pid`.
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
    pub const EVERY: &'static [Self] = &[
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

    /// The name, which is that of Python's client.
    pub fn name(self) -> &'static str {
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

    /// Whether only living processes count.
    pub fn is_live(self) -> bool {
        use Aggregation::{LiveAll, LiveMax, LiveMin, LiveMostRecent, LiveSum};
        matches!(self, LiveAll | LiveMin | LiveMax | LiveSum | LiveMostRecent)
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that no aggregation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAggregation(String);

impl fmt::Display for UnknownAggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Aggregation::EVERY.iter().map(|a| a.name()).collect();
        write!(f, "unknown gauge aggregation {:?}: use one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownAggregation {}

impl FromStr for Aggregation {
    type Err = UnknownAggregation;

    fn from_str(name: &str) -> Result<Self, UnknownAggregation> {
        let plain = if name == "most_recent" { "mostrecent" } else { name };
        let found = Self::EVERY.iter().copied().find(|aggregation| aggregation.name() == plain);
        found.ok_or_else(|| UnknownAggregation(name.to_owned()))
    }
}
