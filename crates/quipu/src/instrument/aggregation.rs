//! How the values that several processes give a gauge become what a scrape shows.

use std::fmt;
use std::str::FromStr;

/// How the values of a gauge, one for each process, are shown. Those of `Live` count processes that
/// live; the others count what a process set before it ended as well.
///
/// The names are those of Python's `prometheus_client`; Ruby's `most_recent` is understood too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Aggregation {
    /// Each process' value, in a series of its own with the label `pid`.
    #[default]
    All,
    /// As [`Aggregation::All`], of processes that live.
    LiveAll,
    /// The smallest.
    Min,
    /// The smallest of processes that live.
    LiveMin,
    /// The largest.
    Max,
    /// The largest of processes that live.
    LiveMax,
    /// The sum.
    Sum,
    /// The sum over processes that live.
    LiveSum,
    /// What was set last.
    MostRecent,
    /// What was set last by a process that lives.
    LiveMostRecent,
}

impl Aggregation {
    /// All of them.
    pub const EVERY: [Self; 10] = [
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

    /// Its name, as Python's client has it.
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

    /// Whether what ended processes set does not count.
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

/// A name that no aggregation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAggregation(String);

impl fmt::Display for UnknownAggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Aggregation::EVERY.iter().map(|a| a.name()).collect();
        write!(f, "{:?} is no aggregation of a gauge; take one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownAggregation {}

impl FromStr for Aggregation {
    type Err = UnknownAggregation;

    fn from_str(name: &str) -> Result<Self, UnknownAggregation> {
        let plain = if name == "most_recent" { "mostrecent" } else { name };
        let found = Self::EVERY.into_iter().find(|aggregation| aggregation.name() == plain);
        found.ok_or_else(|| UnknownAggregation(name.to_owned()))
    }
}
