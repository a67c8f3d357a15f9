//! Measures the effect of a scrape on counting: one thread adds to series at random, while another
//! repeatedly scrapes the whole family.
//!
//! The scrape is written to a page that is reused, or to a slow reader: 64 KiB at a time, with a
//! pause of a millisecond after each, like over a network of half a gigabit per second. Libraries
//! that can write directly to a reader do this; the others write a page and then send it.

use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Plan, count, fill, label};
use crate::counting::contender::{ByUser, Contender, Scrape};
use crate::counting::data::Keys;
use crate::counting::latency::{Latencies, Ordered};
use crate::measure::{black_box, pin};
use crate::record::Record;

/// The minimum duration of a phase, which ends with the end of a scrape.
const PHASE: Duration = Duration::from_millis(300);

/// The maximum number of latencies that are recorded in a phase.
const NOTED: usize = 8_000_000;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let mut records = stalls::<C>(plan);
    for series in plan.sizes([1_000, 10_000, 100_000, 1_000_000]) {
        records.extend(times::<C>(plan, series));
    }
    records
}

/// The slowdown of adding by scrapes of 500,000 series, without and with new ones.
fn stalls<C: Contender>(plan: &Plan) -> Vec<Record> {
    let Some(family) = C::by_user() else { return Vec::new() };
    let series = plan.series(500_000);
    fill(&family, &Keys::new(0..series));
    let (known, new) = (Keys::shuffled(series, 1), Keys::new(series..2 * series));
    let mut adder = Adder { family: &family, known: &known, new: &new, next_new: 0 };

    let mut records = Vec::new();
    for (what, every, readers) in [
        ("existing series", None, &[Reader::None, Reader::Page][..]),
        ("1% new series", Some(100), &[Reader::None, Reader::Page, Reader::Slow]),
    ] {
        let mut alone = 0.0;
        for reader in readers {
            let phase = adder.add(plan, every, *reader);
            let suffix = match reader {
                Reader::None => ", no scrape",
                Reader::Page => "",
                Reader::Slow => ", slow reader",
            };
            let case = format!("scrape of {}/{what}{suffix}", count(series));
            let record = |metric, unit, value| label::<C>(&case, metric, unit).of(&[value]);
            records.push(record("adds/s", "1/s", phase.rate));
            records.push(record("p99.99", "ns", phase.times.quantile(0.9999)));
            records.push(record("slowest", "ns", phase.times.quantile(1.0)));
            match reader {
                Reader::None => alone = phase.rate,
                _ => records.push(record("share kept", "%", 100.0 * phase.rate / alone)),
            }
        }
    }
    std::mem::forget(family);
    records
}

/// Measures the duration of a scrape while another thread adds, and the slowest addition during it.
fn times<C: Contender>(plan: &Plan, series: usize) -> Vec<Record> {
    let Some(family) = C::by_user() else { return Vec::new() };
    fill(&family, &Keys::new(0..series));
    let (known, new) = (Keys::shuffled(series, 1), Keys::new(0..0));
    let mut adder = Adder { family: &family, known: &known, new: &new, next_new: 0 };
    let phase = adder.add(plan, None, Reader::Page);
    std::mem::forget(family);
    let case = format!("scrape while adding/{} series", count(series));
    vec![
        label::<C>(&case, "time", "ns").of(&[phase.scrape.as_nanos() as f64]),
        label::<C>(&case, "slowest add", "ns").of(&[phase.times.quantile(1.0)]),
    ]
}

/// The reader of these scrapes.
#[derive(Clone, Copy)]
enum Reader {
    None,
    Page,
    Slow,
}

/// Makes one addition after the other.
struct Adder<'a, F> {
    family: &'a F,
    known: &'a Keys,
    new: &'a Keys,
    next_new: usize,
}

/// The results of a phase.
struct Phase {
    /// Additions per second.
    rate: f64,
    times: Ordered,
    /// The mean time of a scrape.
    scrape: Duration,
}

impl<F: ByUser + Scrape> Adder<'_, F> {
    /// Adds for the duration of a phase. Every `every`th addition creates a series.
    fn add(&mut self, plan: &Plan, every: Option<usize>, reader: Reader) -> Phase {
        let (family, time) = (self.family, plan.time(PHASE));
        let ended = AtomicBool::new(false);
        let started = Barrier::new(2);
        std::thread::scope(|scope| {
            let scraper = scope.spawn(|| {
                pin(1);
                started.wait();
                let scrape = scrape_for(time, family, reader);
                ended.store(true, Ordering::Relaxed);
                scrape
            });
            let adder = scope.spawn(|| {
                pin(0);
                let latencies = Latencies::new(plan.series(NOTED));
                started.wait();
                self.add_until(&ended, every, latencies)
            });
            let (rate, times) = adder.join().expect("adding does not panic");
            let scrape = scraper.join().expect("scraping does not panic");
            Phase { rate, times, scrape }
        })
    }

    fn add_until(
        &mut self,
        ended: &AtomicBool,
        every: Option<usize>,
        mut latencies: Latencies,
    ) -> (f64, Ordered) {
        let every = every.unwrap_or(usize::MAX);
        let mut added = 0;
        let start = Instant::now();
        latencies.start();
        // At least once, however late the thread is scheduled.
        while added == 0 || !ended.load(Ordering::Relaxed) {
            added += 1;
            let (kind, route, user) = if added % every == 0 && self.next_new < self.new.len() {
                self.next_new += 1;
                self.new.key(self.next_new - 1)
            } else {
                self.known.key(added % self.known.len())
            };
            self.family.inc(kind, route, user);
            latencies.note();
        }
        let rate = added as f64 / start.elapsed().as_secs_f64();
        (rate, latencies.finish())
    }
}

/// Scrapes for at least `time`, and returns the mean time of a scrape.
fn scrape_for(time: Duration, family: &impl Scrape, reader: Reader) -> Duration {
    let mut page = Default::default();
    let start = Instant::now();
    let mut scrapes = 0;
    while scrapes == 0 || start.elapsed() < time {
        match reader {
            Reader::None => std::thread::sleep(time),
            Reader::Page => {
                black_box(family.scrape(&mut page));
            }
            Reader::Slow => {
                let mut slow = Slow { left: Slow::CHUNK };
                let sent = family.stream(&mut slow);
                let sent = sent.unwrap_or_else(|| slow.write_all(family.scrape(&mut page)));
                sent.expect("a slow reader takes everything");
            }
        }
        scrapes += 1;
    }
    start.elapsed() / scrapes
}

/// A reader that takes 64 KiB at a time.
struct Slow {
    /// The number of bytes before its next pause.
    left: usize,
}

impl Slow {
    const CHUNK: usize = 64 << 10;
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.left);
        self.left -= taken;
        if self.left == 0 {
            std::thread::sleep(Duration::from_millis(1));
            self.left = Slow::CHUNK;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_takes_everything_with_pauses() {
        let start = Instant::now();
        let mut slow = Slow { left: Slow::CHUNK };
        slow.write_all(&[0; 3 * Slow::CHUNK + 1]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(3));
        assert_eq!(slow.left, Slow::CHUNK - 1);
    }
}
