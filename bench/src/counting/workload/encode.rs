//! Measures a scrape of all series into a page that is reused: the time per series, and the
//! allocations. Families use three labels, one string label, or two enums. Libraries that can write
//! directly to a reader also do this, in pieces of 64 KiB.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use super::{Plan, count, fill, label};
use crate::counting::contender::{ByText, Contender, Filled, Scrape};
use crate::counting::data::Keys;
use crate::measure::{black_box, on_core};
use crate::memory::OnDemand;
use crate::record::Record;

/// The highest number of series in the cases of allocations and of pieces: with more, each scrape
/// takes seconds.
const MANY: usize = 100_000;
/// A longer first scrape is not repeated, because creating the page is only a small part of its
/// time.
const LONG: Duration = Duration::from_secs(1);

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let mut records = Vec::new();
    for series in plan.sizes([18_000, 100_000, 1_000_000]) {
        if let Some(family) = C::by_user() {
            fill(&family, &Keys::new(0..series));
            let case = format!("encode/{} series", count(series));
            records.extend(scrapes::<C>(plan, &case, series, &family));
            if series <= MANY {
                let case = format!("encode in pieces/{} series", count(series));
                records.extend(pieces::<C>(plan, &case, series, &family));
            }
            std::mem::forget(family);
        }
    }
    // Like in the benchmark of `measured`: one label, whose values are numbers.
    for series in plan.sizes([100, 1_000, 10_000, 100_000]) {
        if let Some(family) = C::by_text() {
            (0..series).for_each(|number| family.inc(&number.to_string()));
            let case = format!("encode short/{} series", count(series));
            records.extend(scrapes::<C>(plan, &case, series, &family));
        }
    }
    for filled in C::filled_by_enums() {
        records.push(by_enums::<C>(plan, filled));
    }
    records
}

/// The time of a series among 100, of two enums.
fn by_enums<C: Contender>(plan: &Plan, mut filled: Filled) -> Record {
    let case = format!("encode enums/{}", filled.instruments);
    on_core(0, || {
        let mut scrape = || filled.scrape(&mut |page| _ = black_box(page));
        // The first scrape grows the page to its final size.
        scrape();
        let time = time_of_series(plan, 100, scrape);
        label::<C>(&case, "time", "ns").of(&[time])
    })
}

fn scrapes<C: Contender>(
    plan: &Plan,
    case: &str,
    series: usize,
    family: &impl Scrape,
) -> Vec<Record> {
    on_core(0, || {
        let mut page = Default::default();
        let mut scrape = || _ = black_box(family.scrape(&mut page));
        // The first scrape grows the page to its final size.
        let time = time_of_series(plan, series, &mut scrape);
        let mut records = vec![label::<C>(case, "time", "ns").of(&[time])];
        if series <= MANY {
            OnDemand::count(true);
            let before = OnDemand::allocations();
            scrape();
            let allocations = (OnDemand::allocations() - before) as f64;
            OnDemand::count(false);
            let label = label::<C>(case, "allocations", "allocations");
            records.push(label.of(&[allocations]));
        }
        records
    })
}

/// The time of one of `series` series. The first scrape decides how often the run repeats it; a
/// long one is not repeated.
fn time_of_series(plan: &Plan, series: usize, mut scrape: impl FnMut()) -> f64 {
    let mut scrapes = |times: u32| {
        let start = Instant::now();
        (0..times).for_each(|_| scrape());
        start.elapsed()
    };
    let first = scrapes(1);
    let times = (plan.run_time.as_secs_f64() / first.as_secs_f64()).max(1.0) as u32;
    let elapsed = if first > LONG { first } else { scrapes(times) };
    elapsed.as_nanos() as f64 / (f64::from(times) * series as f64)
}

fn pieces<C: Contender>(
    plan: &Plan,
    case: &str,
    series: usize,
    family: &impl Scrape,
) -> Option<Record> {
    on_core(0, || {
        let mut writer = BufWriter::with_capacity(64 << 10, Reader);
        let start = Instant::now();
        let mut scrapes = 0;
        while scrapes == 0 || start.elapsed() < plan.run_time {
            family.stream(&mut writer)?.expect("the reader takes everything");
            scrapes += 1;
        }
        let time = start.elapsed().as_nanos() as f64 / (f64::from(scrapes) * series as f64);
        Some(label::<C>(case, "time", "ns").of(&[time]))
    })
}

/// A reader that takes everything at once.
struct Reader;

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(black_box(bytes).len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
