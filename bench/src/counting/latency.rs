//! The durations of many calls, with one reading of the time stamp counter per call.

use quanta::Clock;

/// The times of consecutive calls, in memory that is allocated in advance.
pub(super) struct Latencies {
    clock: Clock,
    last: u64,
    /// The times in ticks of the clock.
    ticks: Vec<u64>,
}

impl Latencies {
    /// Makes room for this number of calls. Further calls are not recorded.
    pub(super) fn new(calls: usize) -> Latencies {
        // Writing the memory touches its pages, so the first records need not do this.
        let mut ticks = vec![1; calls];
        ticks.clear();
        Latencies { clock: Clock::new(), last: 0, ticks }
    }

    /// Marks the start of the first call.
    pub(super) fn start(&mut self) {
        self.last = self.clock.raw();
    }

    /// Marks the end of a call and the start of the next.
    pub(super) fn note(&mut self) {
        let now = self.clock.raw();
        if self.ticks.len() < self.ticks.capacity() {
            self.ticks.push(now - self.last);
        }
        self.last = now;
    }

    /// Sorts the times.
    pub(super) fn finish(mut self) -> Ordered {
        self.ticks.sort_unstable();
        Ordered(self)
    }
}

/// Sorted times.
pub(super) struct Ordered(Latencies);

impl Ordered {
    /// The time that this share of the calls does not exceed, in ns; a share of 1 is the slowest.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let ticks = &self.0.ticks;
        let index = (share * ticks.len() as f64).ceil() as usize;
        let at = index.clamp(1, ticks.len().max(1)) - 1;
        ticks.get(at).map_or(0.0, |ticks| self.0.clock.delta_as_nanos(0, *ticks) as f64)
    }

    /// The mean in ns, minus the time to read the clock.
    pub(super) fn mean(&self) -> f64 {
        let total = self.0.clock.delta_as_nanos(0, self.0.ticks.iter().sum()) as f64;
        total / self.0.ticks.len().max(1) as f64 - reading(&self.0.clock)
    }
}

/// The time to read the clock, in ns.
fn reading(clock: &Clock) -> f64 {
    const READINGS: u32 = 100_000;
    let start = clock.raw();
    for _ in 1..READINGS {
        std::hint::black_box(clock.raw());
    }
    clock.delta_as_nanos(start, clock.raw()) as f64 / f64::from(READINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(ticks: &[u64]) -> Ordered {
        let latencies = Latencies { clock: Clock::new(), last: 0, ticks: ticks.to_vec() };
        latencies.finish()
    }

    #[test]
    fn quantiles_are_of_the_calls() {
        let times: Vec<u64> = (1..=10_000).rev().map(|n| n * 1_000_000).collect();
        let ordered = ordered(&times);
        let unit = ordered.quantile(0.0);
        let share = |q| (ordered.quantile(q) / unit).round() as u64;
        assert_eq!((share(0.5), share(0.9999), share(1.0)), (5_000, 9_999, 10_000));
    }

    #[test]
    fn calls_beyond_the_room_are_not_noted() {
        let mut latencies = Latencies::new(2);
        latencies.start();
        (0..5).for_each(|_| latencies.note());
        let ordered = latencies.finish();
        assert_eq!(ordered.0.ticks.len(), 2);
        assert!(ordered.quantile(1.0) >= ordered.quantile(0.5));
    }
}
