//! The time of a few updates, read once, because reading the clock takes as long as an update.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kind::Times;
use crate::snapshot::Timestamp;

/// A time for updates within less than a millisecond.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The latest time that a source can state, in nanoseconds of Unix time.
    latest: u64,
}

/// How far a time may be ahead of this machine's clock, as in Prometheus.
const AHEAD: Duration = Duration::from_secs(600);

impl Moment {
    /// Reads the clock.
    pub fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { latest: u64::try_from((now + AHEAD).as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns the times that the source of a total states. A time that is far ahead is wrong: if
    /// the source corrected its clock later, its samples would be omitted until then.
    #[inline]
    pub(super) fn times(self, start: Option<Timestamp>, sample: Option<Timestamp>) -> Times {
        let Self { latest } = self;
        let known =
            |time: Option<Timestamp>| time.map(Timestamp::as_nanos).filter(|time| *time <= latest);
        Times { start: known(start).unwrap_or(0), sample: known(sample), latest, by_start: false }
    }
}
