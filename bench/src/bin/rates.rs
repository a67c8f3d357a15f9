//! Measures quipu's sliding windows, compared to Go packages.
//!
//! `cargo run --profile default-release -p quipu-bench --bin rates`

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use quipu_bench::measure::{Case, Options, black_box};
use quipu_bench::memory::{Counting, heap_bytes};
use quipu_bench::output::{self, Output};
use quipu_bench::progress::Progress;
use quipu_bench::record::{self, Label, Record};
use quipu_bench::{Error, Result, peer};
use quipu_segment::Segment;
use quipu_segment::clock::{CachedClock, Clock, CoarseClock, PreciseClock, TestClock};
use quipu_window::{
    BucketedWindow, ConstantWindow, ExactWindow, KeyedWindows, SlidingWindow, load_file, save_file,
    save_file_synced,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The name of the report.
const NAME: &str = "rates";

/// Measures the windows of quipu and of its peers, in rotation.
#[derive(Parser)]
#[command(name = "rates")]
struct Arguments {
    /// The number of runs of each case.
    #[arg(long, default_value_t = 9)]
    runs: u32,
    /// Use a tenth of the time, as a trial.
    #[arg(long)]
    quick: bool,
    /// Measure only quipu.
    #[arg(long)]
    alone: bool,
    /// The folder for the records.
    #[arg(long, default_value_os_t = output::default_folder())]
    folder: PathBuf,
}

fn main() -> ExitCode {
    quipu_bench::end(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let output = Output::of_profile(&arguments.folder, NAME)?;
    let peers = if arguments.alone { None } else { Some(peer::go("rates")?) };
    let scratch =
        tempfile::tempdir().map_err(Error::file("make a folder in", Path::new("/tmp")))?;
    let options = if arguments.quick { Options::quick() } else { Options::default() };
    let options = Options { runs: 1, ..options };
    let mut rounds = Vec::new();
    let mut progress = Progress::new(arguments.runs as usize);
    for round in 1..=arguments.runs {
        progress.step(&format!("round {round}"));
        let mut records = Vec::new();
        // The two alternate: each is the first in every second round.
        if round % 2 == 1 {
            records = ours(&options, scratch.path());
        }
        if let Some(peers) = &peers {
            let mut command = Command::new(peers);
            command.args(["-runs", "1"]);
            if arguments.quick {
                command.arg("-quick");
            }
            records.extend(peer::run(&mut command)?);
        }
        if round % 2 == 0 {
            records.extend(ours(&options, scratch.path()));
        }
        rounds.push(records);
    }
    progress.finish("done");
    output.push(&record::merge(&rounds)?)
}

const WINDOW: Duration = Duration::from_secs(60);
const ACCURACY: Duration = Duration::from_millis(200);
const EVENTS: u64 = 1_000_000;
/// The number of calls that a loop makes between two updates of the time.
const TURN: u64 = 1024;

/// Measures one round of all cases.
fn ours(options: &Options, scratch: &Path) -> Vec<Record> {
    let mut records = Vec::new();
    for threads in [1, 2] {
        records.extend(bucketed(options, threads, scratch));
        records.extend(exact(options, threads));
        records.extend(constant(options, threads));
        records.extend(keyed(options, threads));
    }
    records.extend(bucketed_files(options, scratch));
    records.extend(exact_files(options, scratch));
    records.push(add_while_saving(scratch));
    records.extend(memory());
    records
}

fn bucketed(options: &Options, threads: usize, scratch: &Path) -> Vec<Record> {
    let path = scratch.join("state.quipu");
    // Remove the file of the previous round.
    let _ = std::fs::remove_file(&path);
    let segment = Segment::open_or_create(&path).expect("a new segment in a scratch folder");
    let sound = "the window is sound";
    let private = BucketedWindow::new(WINDOW, ACCURACY).expect(sound);
    let shared =
        BucketedWindow::options(WINDOW, ACCURACY).build_in(&segment, "requests").expect(sound);
    let tickets = BucketedWindow::options(WINDOW, ACCURACY).tickets().build().expect(sound);
    let clock = CoarseClock::new();
    let now = clock.now();
    let mut records = Vec::new();
    records.extend(
        Case::new("bucketed/add")
            .threads(threads)
            .each("quipu", || private.add(1))
            .each("quipu (in a file)", || shared.add(1))
            .each("quipu (one cell)", || tickets.add(1))
            .each("quipu (time given)", || private.add_at(now, 1))
            .run(options),
    );
    records.extend(
        Case::new("bucketed/count")
            .threads(threads)
            .each("quipu", || private.count())
            .each("quipu (in a file)", || shared.count())
            .each("quipu (one cell)", || tickets.count())
            .each("quipu (time given)", || private.count_at(now))
            .run(options),
    );
    records.extend(
        Case::new("bucketed/add+count")
            .threads(threads)
            .each("quipu", || private.add_and_count(1))
            .each("quipu (in a file)", || shared.add_and_count(1))
            .each("quipu (one cell)", || tickets.add_and_count(1))
            .each("quipu (time given)", || private.add_and_count_at(now, 1))
            .each("quipu (two calls)", || {
                private.add(1);
                private.count()
            })
            .run(options),
    );
    records
}

fn constant(options: &Options, threads: usize) -> Vec<Record> {
    let sound = "the window is sound";
    let noted = ConstantWindow::new(WINDOW).expect(sound);
    let coarse = ConstantWindow::with_clock(WINDOW, 20, CoarseClock::new()).expect(sound);
    let turns = |n: u64, call: &dyn Fn(u64)| {
        let mut left = n;
        while left > 0 {
            let turn = left.min(TURN);
            noted.clock().note();
            call(turn);
            left -= turn;
        }
    };
    let mut records = Vec::new();
    records.extend(
        Case::new("constant/add")
            .threads(threads)
            .shared("quipu", |_, n| turns(n, &|turn| (0..turn).for_each(|_| noted.add(1))))
            .each("quipu (coarse clock)", || coarse.add(1))
            .run(options),
    );
    let count = |turn| {
        for _ in 0..turn {
            black_box(noted.count());
        }
    };
    records.extend(
        Case::new("constant/count")
            .threads(threads)
            .shared("quipu", |_, n| turns(n, &count))
            .each("quipu (coarse clock)", || coarse.count())
            .run(options),
    );
    records
}

/// A clock that reads the time stamp counter, for machines with synchronized counters.
struct StampCounter {
    clock: quanta::Clock,
    start: quanta::Instant,
    base: u64,
}

impl StampCounter {
    fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { start: clock.now(), clock, base: PreciseClock::new().now() }
    }
}

impl Clock for StampCounter {
    fn now(&self) -> u64 {
        self.base + self.clock.now().duration_since(self.start).as_nanos() as u64
    }
}

/// Fills a counter with a million events of the last minute, at pseudo-random intervals.
fn fill<C: Clock>(clock: C, now: u64) -> ExactWindow<C> {
    let counter = ExactWindow::with_clock(WINDOW, clock).expect("the window is sound");
    for time in minute(now) {
        counter.add_at(time, 1);
    }
    counter
}

/// Returns the times of a million events in the minute before `now`, with exponential intervals.
fn minute(now: u64) -> impl Iterator<Item = u64> {
    let mut random = 88_172_645_463_325_252_u64;
    let mut time = (now - WINDOW.as_nanos() as u64 + 1_000_000_000) as f64;
    (0..EVENTS).map(move |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
        time += -58_000.0 * (1.0 - uniform).ln();
        (time as u64).min(now)
    })
}

/// Calls `call` `n` times, with the number of the call.
fn each<R>(n: u64, call: impl Fn(u64) -> R) {
    for i in 0..n {
        black_box(call(i));
    }
}

fn exact(options: &Options, threads: usize) -> Vec<Record> {
    let precise = || {
        let clock = PreciseClock::new();
        let now = clock.now();
        fill(clock, now)
    };
    let stamps = || {
        let clock = StampCounter::new();
        let now = clock.now();
        fill(clock, now)
    };
    let given = || {
        let now = PreciseClock::new().now();
        (fill(TestClock::from_nanos(now), now), now)
    };
    let mut records = Vec::new();
    records.extend(
        Case::new("exact/add")
            .threads(threads)
            .prepared("quipu", precise, |counter, _, n| each(n, |_| counter.add(1)))
            .prepared("quipu (time stamp counter)", stamps, |counter, _, n| {
                each(n, |_| counter.add(1));
            })
            .prepared("quipu (time given)", given, |(counter, now), _, n| {
                each(n, |i| counter.add_at(now + i * 60_000, 1));
            })
            .run(options),
    );
    records.extend(
        Case::new("exact/count")
            .threads(threads)
            .prepared("quipu", precise, |counter, _, n| {
                each(n, |_| counter.count());
            })
            .prepared("quipu (time stamp counter)", stamps, |counter, _, n| {
                each(n, |_| counter.count());
            })
            .prepared("quipu (time given)", given, |(counter, now), _, n| {
                each(n, |_| counter.count_at(*now));
            })
            .run(options),
    );
    records.extend(
        Case::new("exact/add+count")
            .threads(threads)
            .prepared("quipu", precise, |counter, _, n| {
                each(n, |_| counter.add_and_count(1));
            })
            .prepared("quipu (time stamp counter)", stamps, |counter, _, n| {
                each(n, |_| counter.add_and_count(1));
            })
            .prepared("quipu (time given)", given, |(counter, now), _, n| {
                each(n, |i| counter.add_and_count_at(now + i * 60_000, 1));
            })
            .run(options),
    );
    records
}

fn keyed(options: &Options, threads: usize) -> Vec<Record> {
    let table = KeyedWindows::options(WINDOW, Duration::from_secs(1), 10_000);
    let table = table.build().expect("the window is sound");
    let keys: Vec<String> = (0..10_000).map(|i| format!("client-{i}")).collect();
    Case::new("keyed/hit of 10,000")
        .threads(threads)
        .shared("quipu", |thread, n| {
            let mut random = 88_172_645_463_325_252 + thread as u64;
            for _ in 0..n {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = &keys[(random % 10_000) as usize];
                black_box(table.add_and_count(key.as_bytes(), 1).expect("the key is short enough"));
            }
        })
        .run(options)
}

/// Measures writing 300 filled buckets to a file, and reading them back.
fn bucketed_files(options: &Options, scratch: &Path) -> Vec<Record> {
    let path = scratch.join("buckets.json");
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    let counter = BucketedWindow::options(WINDOW, ACCURACY).build_with_clock(clock.clone());
    let mut counter = counter.expect("the window is sound");
    for _ in 0..300 {
        clock.advance(ACCURACY);
        counter.add(1);
    }
    let scratch_takes_it = "the scratch folder takes the file";
    let mut records = Case::new("bucketed/save")
        .each("quipu", || save_file(&counter, &path).expect(scratch_takes_it))
        .each("quipu (cut and written)", || cut_and_write(&counter, &path))
        .each("quipu (synced)", || save_file_synced(&counter, &path).expect(scratch_takes_it))
        .run(options);
    records.extend(
        Case::new("bucketed/load")
            .exclusive("quipu", |n| {
                for _ in 0..n {
                    black_box(load_file(&mut counter, &path).expect("it was just saved"));
                }
            })
            .run(options),
    );
    let state = scratch.join("opened.quipu");
    let open = || {
        let segment = Segment::open_or_create(&state).expect(scratch_takes_it);
        BucketedWindow::options(WINDOW, ACCURACY)
            .build_in(&segment, "requests")
            .expect("it is sound")
    };
    drop(open());
    records.extend(Case::new("bucketed/load").each("quipu (opened in a file)", open).run(options));
    records
}

/// Measures writing a million events to a file, and reading them back.
fn exact_files(options: &Options, scratch: &Path) -> Vec<Record> {
    let path = scratch.join("times");
    let now = 1_700_000_000_000_000_000;
    let mut counter = fill(TestClock::from_nanos(now), now);
    let scratch_takes_it = "the scratch folder takes the file";
    let mut records = Case::new("exact/save")
        .each("quipu", || save_file(&counter, &path).expect(scratch_takes_it))
        .each("quipu (cut and written)", || cut_and_write(&counter, &path))
        .each("quipu (synced)", || save_file_synced(&counter, &path).expect(scratch_takes_it))
        .run(options);
    records.extend(
        Case::new("exact/load")
            .exclusive("quipu", |n| {
                for _ in 0..n {
                    black_box(load_file(&mut counter, &path).expect("it was just saved"));
                }
            })
            .run(options),
    );
    records
}

/// Saves like the Go packages: a process that is killed during this leaves an incomplete file.
fn cut_and_write(window: &impl SlidingWindow, path: &Path) {
    let mut file = File::create(path).expect("the scratch folder takes the file");
    window.save(&mut file).expect("the file takes the bytes");
}

/// Measures the slowest addition while a million events are saved.
fn add_while_saving(scratch: &Path) -> Record {
    let path = scratch.join("times while adding");
    let clock = PreciseClock::new();
    let now = clock.now();
    let counter = fill(clock, now);
    let (adding, saving) = (AtomicBool::new(false), AtomicBool::new(true));
    let worst = std::thread::scope(|scope| {
        let adder = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while saving.load(Ordering::Relaxed) {
                let start = Instant::now();
                counter.add(1);
                worst = worst.max(start.elapsed());
                adding.store(true, Ordering::Relaxed);
            }
            worst
        });
        while !adding.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        save_file(&counter, &path).expect("the scratch folder takes the file");
        saving.store(false, Ordering::Relaxed);
        adder.join().expect("adding does not panic")
    });
    Label::new("exact/add while saving", "quipu", "worst time", "ms")
        .of(&[worst.as_secs_f64() * 1e3])
}

/// Measures the heap of a million events.
fn memory() -> Vec<Record> {
    let of = |case: &str, bytes: i64| Label::new(case, "quipu", "memory", "B").of(&[bytes as f64]);
    let now = 1_700_000_000_000_000_000;
    let sound = "the window is sound";
    vec![
        of(
            "bucketed/memory",
            heap_bytes(|| {
                let clock = TestClock::from_nanos(now - WINDOW.as_nanos() as u64);
                let counter =
                    BucketedWindow::options(WINDOW, ACCURACY).build_with_clock(clock).expect(sound);
                minute(now).for_each(|time| counter.add_at(time, 1));
                counter
            }),
        ),
        of("exact/memory", heap_bytes(|| fill(TestClock::from_nanos(now), now))),
        of(
            "constant/memory",
            heap_bytes(|| {
                let counter =
                    ConstantWindow::with_clock(WINDOW, 20, CachedClock::new()).expect(sound);
                (0..EVENTS).for_each(|_| counter.add(1));
                counter
            }),
        ),
    ]
}
