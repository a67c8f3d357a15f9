//! Measures a copy of a segment file, and a walk over it: of a file at rest, of one where a thread
//! counts, and of one where a thread creates and removes series.
//!
//! You can run it with `cargo run --release -p quipu-segment --example copies -- [SERIES]`.

#![allow(clippy::print_stdout, reason = "the example prints its measurements")]

use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Options, Segment};

/// The number of copies. The example prints the median.
const COPIES: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse::<u64>())?;
    let place = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." };
    let path = Path::new(place).join(format!("quipu-copies-{}", std::process::id()));
    let segment = Options::new().shared().limit(1 << 32).open_or_create(&path)?;
    let open = File::open(&path)?;
    std::fs::remove_file(&path)?;
    let labels = vec![Label { name: "user".into(), values: None }];
    let schema = Schema { name: "c".into(), cells: 1, additive: true, labels, ..Schema::default() };
    let family = segment.family(&schema)?;
    (0..count).for_each(|i| count_once(&family, i));
    println!("{count} series, {} MiB", segment.used() >> 20);
    measure("at rest", &path, &open, || std::thread::sleep(Duration::from_millis(1)))?;
    let mut i = 0;
    let mut random = || {
        i = (i * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % (1 << 60);
        (i >> 20) % count
    };
    measure("counting", &path, &open, || count_once(&family, random()))?;
    let mut next = count;
    measure("making and removing", &path, &open, || {
        count_once(&family, next);
        let last = (next - 100).to_string();
        let _ = family.remove(|key| key.text(&last));
        next += 1;
    })?;
    drop((segment, family));
    measure("closed", &path, &open, || std::thread::sleep(Duration::from_millis(1)))
}

fn count_once(family: &Family, i: u64) {
    family.add(|key| key.text(&i.to_string()), 0, 1);
}

/// Copies the file while another thread calls `work` again and again.
fn measure(
    name: &str,
    path: &Path,
    open: &File,
    mut work: impl FnMut() + Send,
) -> Result<(), Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut count = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                work();
                count += 1;
            }
            count
        });
        let begun = Instant::now();
        let times = copies(path, open);
        let took = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let count = worker.join().unwrap_or_default();
        let (copy, walk) = times?;
        let rate = count as f64 / took.as_secs_f64();
        println!("{name}: copy {copy:.1?}, walk {walk:.1?}; {rate:.0} operations per second");
        Ok(())
    })
}

/// Returns the median times of a copy and of a walk over it.
fn copies(path: &Path, open: &File) -> Result<(Duration, Duration), quipu_segment::Error> {
    let (mut copies, mut walks) = (Vec::new(), Vec::new());
    for _ in 0..COPIES {
        let begun = Instant::now();
        let copy = Segment::copy_of(path, open, u64::MAX)?;
        copies.push(begun.elapsed());
        let begun = Instant::now();
        let mut sum = 0_u64;
        for family in copy.families()? {
            let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
                sum = sum.wrapping_add(view.cells.sum(0));
                ControlFlow::Continue(())
            });
        }
        std::hint::black_box(sum);
        walks.push(begun.elapsed());
    }
    copies.sort();
    walks.sort();
    Ok((copies[COPIES / 2], walks[COPIES / 2]))
}
