//! What a window may say of events, from when they were asked for and when they were answered.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Events, each with the span of time in which the daemon counted it.
#[derive(Default)]
pub(crate) struct Events(Vec<(Duration, Duration)>);

impl Events {
    /// Has an event counted.
    pub(crate) fn add<T>(&mut self, count: impl FnOnce() -> T) -> T {
        let asked = earliest();
        let answer = count();
        self.0.push((asked, latest()));
        answer
    }

    /// Reads a count, and checks it: every event younger than the window is in it, and none that
    /// is older than window and accuracy together.
    #[track_caller]
    pub(crate) fn check(
        &self,
        window: Duration,
        accuracy: Duration,
        read: impl FnOnce() -> u64,
    ) -> u64 {
        let asked = earliest();
        let count = read();
        let range = self.range(window, accuracy, asked, latest());
        assert!(range.contains(&count), "{count} is not in {range:?}");
        count
    }

    /// Has an event counted by a call that answers the count, and checks that.
    #[track_caller]
    pub(crate) fn add_and_check(
        &mut self,
        window: Duration,
        accuracy: Duration,
        count: impl FnOnce() -> u64,
    ) {
        let asked = earliest();
        let count = self.add(count);
        let range = self.range(window, accuracy, asked, latest());
        assert!(range.contains(&count), "{count} is not in {range:?}");
    }

    fn range(
        &self,
        window: Duration,
        accuracy: Duration,
        asked: Duration,
        answered: Duration,
    ) -> RangeInclusive<u64> {
        let number = |counts: &dyn Fn(&(Duration, Duration)) -> bool| {
            self.0.iter().filter(|event| counts(event)).count() as u64
        };
        let least = number(&|event| answered - event.0 + SLACK < window);
        let most = number(&|event| asked.saturating_sub(event.1) <= window + accuracy + SLACK);
        least..=most
    }
}

/// The daemon's clock goes in ticks of the kernel, of 10 ms at most, and so may its buckets.
const SLACK: Duration = Duration::from_millis(20);

/// What the daemon's clock says at least from now on: it is the kernel's, which a busy machine may
/// leave behind for longer than a tick.
fn earliest() -> Duration {
    read(ClockId::MonotonicCoarse)
}

/// What it said at most until now.
fn latest() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap()
}
