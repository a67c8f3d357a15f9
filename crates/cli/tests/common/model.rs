//! A model of windows. It computes which counts are possible, based on the times when events were
//! sent and acknowledged.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The events, each with the span of time during which the daemon counted it.
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

    /// Reads a count and checks it. The count must include every event younger than the window, and
    /// must not include an event older than the window plus the accuracy.
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

    /// Records an event by a call that returns the count, and checks this count.
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

/// The slack for the daemon's clock and its buckets, because both advance in kernel ticks of at
/// most 10 ms.
const SLACK: Duration = Duration::from_millis(20);

/// Returns a lower bound of the daemon's clock from now on. This is the kernel's coarse clock,
/// which can lag by more than a tick on a busy machine.
fn earliest() -> Duration {
    read(ClockId::MonotonicCoarse)
}

/// Returns an upper bound of the daemon's clock until now.
fn latest() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap()
}
