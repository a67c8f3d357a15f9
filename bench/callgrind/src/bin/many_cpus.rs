//! Measures families on a machine that pretends to have many CPUs. For example, `many_cpus 128 hot`
//! prints the memory of a series, and the times of an addition and of a scrape, on 128 CPUs; you
//! can pass `cold` instead of `hot`.
//!
//! The process runs one thread, and states its CPU in a separate area for restartable sequences.
//! This uses the lanes of all CPUs, but no two cores contend.

use std::hint::black_box;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use quipu::{CounterFamily, Description, HistogramFamily, LabelGroup, LabelValue, Registry};
use quipu_bench_callgrind::rseq;
use quipu_segment::series::{Cursor, Family};

#[derive(Clone, Copy, LabelValue)]
enum Kind {
    A,
    B,
    C,
}

#[derive(Clone, Copy, LabelValue)]
enum Route {
    A,
    B,
    C,
    D,
    E,
    F,
}

#[derive(Clone, Copy, LabelGroup)]
struct Enums {
    kind: Kind,
    route: Route,
}

const KINDS: [Kind; 3] = [Kind::A, Kind::B, Kind::C];
const ROUTES: [Route; 6] = [Route::A, Route::B, Route::C, Route::D, Route::E, Route::F];
const SERIES: usize = KINDS.len() * ROUTES.len();
const FAMILIES: usize = 200;
const BOUNDS: [f64; 8] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cpus, state] = arguments.as_slice() else {
        eprintln!("usage: many_cpus CPUS cold|hot");
        return ExitCode::FAILURE;
    };
    let Ok(cpus) = cpus.parse::<u32>() else {
        eprintln!("many_cpus: {cpus:?} is not a number of CPUs");
        return ExitCode::FAILURE;
    };
    rseq::register();
    quipu_segment::pretend_cpus(cpus as usize);
    let is_hot = state == "hot";
    let counters = measure(cpus, is_hot, |registry, name| {
        let description = Description::new(name, "Things.");
        let family: CounterFamily<Enums> = registry.register(description).expect("a new name");
        Box::new(move |labels| family.inc(labels))
    });
    let histograms = measure(cpus, is_hot, |registry, name| {
        let description = Description::new(name, "Things.").buckets(BOUNDS);
        let family: HistogramFamily<Enums> = registry.register(description).expect("a new name");
        Box::new(move |labels| family.observe(labels, 0.03))
    });
    let reproduced = reproduce(cpus as usize);
    let line = format!(
        "{cpus} CPUs, {state}: counter {counters}; histogram {histograms}; counter, cell by cell: \
         {reproduced:.1} ns a series"
    );
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

type Update = Box<dyn Fn(&Enums)>;

/// Makes families, uses all series on one CPU, or on each one, and scrapes one family.
fn measure(cpus: u32, is_hot: bool, make: impl Fn(&Registry, &str) -> Update) -> String {
    // The first family takes everything that the process needs only once.
    let registry = Registry::new();
    let first = make(&registry, "first");
    let (used, resident) = (registry.segment().used(), resident_bytes());
    let updates: Vec<Update> =
        (0..FAMILIES).map(|i| make(&registry, &format!("things_{i:03}"))).collect();
    let families = registry.segment().families().expect("a sound segment");
    if is_hot {
        families.iter().for_each(Family::stripe);
    }
    for cpu in 0..if is_hot { cpus } else { 1 } {
        rseq::pretend_to_be_on(cpu);
        updates.iter().chain([&first]).for_each(add);
    }
    rseq::pretend_to_be_on(0);
    let of_a_series = |bytes: u64| bytes as f64 / (FAMILIES * SERIES) as f64;
    let reserved = of_a_series(registry.segment().used() - used);
    let resident = of_a_series(resident_bytes().saturating_sub(resident));
    let family = families.last().expect("it was just made");
    entry_scrape(black_box(family));
    let scraped = time(|| _ = black_box(scrape(black_box(family))));
    let update = updates.last().expect("it was just made");
    entry_add(black_box(update));
    let added = time(|| add(black_box(update)));
    format!(
        "{reserved:.0} B reserved, {resident:.0} B resident, {added:.1} ns an addition, \
         {scraped:.1} ns a series in a scrape"
    )
}

/// The time of `body` for each of the series, in nanoseconds.
fn time(body: impl Fn()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        (0..20).for_each(|_| body());
        best = best.min(start.elapsed().as_nanos() as f64 / (20 * SERIES) as f64);
    }
    best
}

/// The additions that callgrind counts.
#[inline(never)]
#[unsafe(export_name = "entry_add")]
fn entry_add(update: &Update) {
    add(update);
}

/// Adds to each series.
fn add(update: &Update) {
    for kind in KINDS {
        ROUTES.iter().for_each(|&route| update(&Enums { kind, route }));
    }
}

/// The scrape that callgrind counts, after the families of all measurements were scraped once.
#[inline(never)]
#[unsafe(export_name = "entry_scrape")]
fn entry_scrape(family: &Family) {
    black_box(scrape(family));
}

/// Adds up the first cell of each series.
#[inline(never)]
fn scrape(family: &Family) -> u64 {
    let mut sum = 0_u64;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        sum = sum.wrapping_add(view.cells.sum(0));
        ControlFlow::Continue(())
    });
    sum
}

/// Reads the lanes of such a family of counters in the order of a scrape cell by cell, twice, with
/// lanes 4 KiB apart. This was quipu's order before it added up lane by lane.
fn reproduce(cpus: usize) -> f64 {
    const LANE: usize = 512;
    let lanes: Vec<AtomicU64> = (0..(cpus + 1) * LANE).map(|_| AtomicU64::new(0)).collect();
    entry_cells(black_box(&lanes), LANE);
    time(|| entry_cells(black_box(&lanes), LANE))
}

#[inline(never)]
#[unsafe(export_name = "entry_cells")]
fn entry_cells(lanes: &[AtomicU64], lane: usize) {
    let sum = |cell: usize| {
        let cells = lanes[cell..].iter().step_by(lane);
        cells.fold(0_u64, |sum, cell| sum.wrapping_add(cell.load(Ordering::Acquire)))
    };
    // A counter consists of two cells; both are compared to zero, and the first one is then read
    // again.
    for series in 0..SERIES {
        let is_zero = black_box(sum(2 * series)) == 0 && black_box(sum(2 * series + 1)) == 0;
        black_box((is_zero, sum(2 * series)));
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
