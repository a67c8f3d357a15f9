//! Searches for the maximum rate of StatsD lines without loss.
//!
//! A rate holds if every countable line is shown afterwards, and if the subject used less processor
//! time than the load took. The second condition is needed because a long queue would otherwise
//! hold any rate for some seconds.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::packets::{Packets, Sender, Sent};
use super::subject::Running;
use super::{LOAD_CORE, Plan};
use crate::measure::on_core;
use crate::{Error, Result};

/// The rate of a first load, in lines a second. This load shows the cost of a line.
const FIRST_RATE: f64 = 50_000.0;

/// A subject that loses lines while it uses less of its core, in percent, gets a second chance,
/// because another process may have run for a moment.
const BUSY: f64 = 85.0;

/// The search ends when a rate that holds is within this factor of a rate that does not.
const NEAR: f64 = 1.03;

/// A load at one rate, and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) sent: Sent,
    /// Countable lines that are not shown.
    pub(super) lost: f64,
    /// The processor time until the subject is idle.
    pub(super) cpu: Duration,
}

impl Probe {
    /// Sends lines at this rate, and searches for all of these lines.
    pub(super) fn take(
        running: &Running,
        packets: &Packets,
        rate: f64,
        time: Duration,
    ) -> Result<Probe> {
        let before = running.countable()?;
        running.settle()?;
        let cpu = running.process.cpu_time()?;
        let mut sender = Sender::open(running.udp)?;
        let never = AtomicBool::new(false);
        let rate = rate / packets.lines_per_packet();
        let sent = on_core(LOAD_CORE, || sender.send_for(packets, rate, time, &never));
        running.settle()?;
        let cpu = running.process.cpu_time()?.saturating_sub(cpu);
        let shown = running.countable()? - before;
        Ok(Probe { sent, lost: running.expected(&sent) as f64 - shown, cpu })
    }

    /// Returns the rate that the sender reached, in lines a second.
    pub(super) fn rate(&self) -> f64 {
        self.sent.lines as f64 / self.sent.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the processor time of a line, in nanoseconds.
    pub(super) fn cpu_per_line(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.sent.lines.max(1) as f64
    }

    /// Returns the used share of the core, in percent.
    pub(super) fn share(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.sent.elapsed.as_secs_f64().max(1e-9)
    }

    fn holds(&self) -> bool {
        self.lost == 0.0 && self.cpu < self.sent.elapsed
    }
}

/// Returns the probe with the maximum rate that holds.
pub(super) fn search(running: &Running, packets: &Packets, plan: &Plan) -> Result<Probe> {
    let first = Probe::take(running, packets, FIRST_RATE, plan.load / 2)?;
    let mut range = Range::new(1e9 / first.cpu_per_line().max(10.0));
    let mut best: Option<Probe> = None;
    // Subjects that lose lines even at low rates need some more.
    for number in 0..2 * plan.probes {
        let is_enough = number >= plan.probes && best.is_some();
        let Some(rate) = range.next().filter(|_| !is_enough) else { break };
        let mut probe = Probe::take(running, packets, rate, plan.load)?;
        if !probe.holds() && probe.share() < BUSY {
            probe = Probe::take(running, packets, rate, plan.load)?;
        }
        let reached = probe.rate();
        if probe.holds() {
            if best.is_none_or(|best| best.rate() < reached) {
                best = Some(probe);
            }
            range.holds(rate);
            if reached < 0.95 * rate {
                // The sender is the limit.
                break;
            }
        } else {
            range.fails(rate.min(reached));
        }
    }
    best.ok_or_else(|| Error::command("the search for a rate", "each of the rates lost lines"))
}

/// The greatest rate that held, and the least that did not.
struct Range {
    guess: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Range {
    /// Begins with a range around a guess.
    fn new(guess: f64) -> Range {
        Range { guess, low: None, high: None }
    }

    /// Returns the next rate to try, or `None` at the end of the search.
    fn next(&self) -> Option<f64> {
        match (self.low, self.high) {
            (None, None) => Some(self.guess),
            (Some(low), None) => Some(low * 1.4),
            (None, Some(high)) => Some(high * 0.7),
            (Some(low), Some(high)) => (high > low * NEAR).then(|| (low * high).sqrt()),
        }
    }

    fn holds(&mut self, rate: f64) {
        self.low = Some(rate.max(self.low.unwrap_or(0.0)));
    }

    fn fails(&mut self, rate: f64) {
        self.high = Some(rate.min(self.high.unwrap_or(f64::INFINITY)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_closes_in_on_the_limit() {
        for (guess, limit) in [(100.0, 400.0), (1000.0, 400.0), (1000.0, 10.0)] {
            let mut range = Range::new(guess);
            let mut steps = 0;
            while let Some(rate) = range.next() {
                if rate <= limit {
                    range.holds(rate)
                } else {
                    range.fails(rate)
                }
                steps += 1;
            }
            let low = range.low.unwrap();
            assert!(low <= limit && low * NEAR * 1.01 >= limit, "{guess} {limit}: {low}");
            assert!(steps < 22, "{guess} {limit}: {steps} steps");
        }
    }
}
