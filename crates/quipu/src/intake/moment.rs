//! The time of a few updates: to read the clocks takes as long as an update.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quipu_segment::clock::Clock;

use super::Intake;
use crate::kind::Times;
use crate::snapshot::Timestamp;

/// A time, to be used for updates within less than a millisecond.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// By the intake's clock.
    pub(super) stamp: u64,
    /// The latest time that a source may say, in nanoseconds of Unix time.
    pub(super) latest: u64,
}

/// How far a time may be ahead of this machine's clock.
const AHEAD: Duration = Duration::from_secs(600);

impl Intake {
    /// Now.
    pub fn moment(&self) -> Moment {
        Moment::at(self.clock.now())
    }
}

impl Moment {
    /// Now, with the time by the intake's clock.
    pub(super) fn at(stamp: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let latest = u64::try_from((now + AHEAD).as_nanos()).unwrap_or(u64::MAX);
        Self { stamp, latest }
    }

    /// What the source of a total says of times. A time that is far ahead is wrong: a source that
    /// corrected its clock later would be left out until then.
    #[inline]
    pub(super) fn times(&self, start: Option<Timestamp>, sample: Option<Timestamp>) -> Times {
        let known =
            |time: Option<Timestamp>| time.map(|time| time.0).filter(|time| *time <= self.latest);
        let Self { stamp, latest } = *self;
        let start = known(start).unwrap_or(0);
        Times { start, sample: known(sample), latest, ..Times::unknown(stamp) }
    }
}
