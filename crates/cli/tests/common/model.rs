//! A model of windows: the counts that are possible, given when events were sent and acknowledged.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Events, each with the span of time in which the daemon counted it.
#[derive(Default)]
pub(crate) struct Events(Vec<(Duration, Duration)>);

impl Events {
    /// Records an event that `count` causes.
    pub(crate) fn add<T>(&mut self, count: impl FnOnce() -> T) -> T {
        let asked = earliest();
        let response = count();
        self.0.push((asked, latest()));
        response
    }

    /// Reads a count and checks it: it includes every event younger than the window, and none that
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

    /// Records an event by a call that returns the count, and checks that count.
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

/// The daemon's clock advances in ticks of the kernel, of at most 10 ms, and so may its buckets.
const SLACK: Duration = Duration::from_millis(20);

/// A lower bound of the daemon's clock from now on. That is the kernel's coarse clock, which can
/// lag by more than a tick on a busy machine.
fn earliest() -> Duration {
    read(ClockId::MonotonicCoarse)
}

/// An upper bound of the daemon's clock until now.
fn latest() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap()
}
