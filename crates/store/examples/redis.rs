//! The workers of one machine count in one segment, which is flushed to Redis. Then the totals of
//! all machines are read back.
//!
//! ```text
//! cargo run --release --features redis --example redis -- redis://127.0.0.1/ 4 5
//! ```
//!
//! The arguments are the server's address, the number of workers, and the seconds to count for. You
//! can run it on several machines, or several times in parallel.

use std::error::Error;
use std::time::{Duration, Instant};

use quipu::label::Values;
use quipu::{Description, MixedCounterFamily, Registry};
use quipu_store::redis::RedisOptions;
use quipu_store::{Kind, Spec, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1/".into());
    let workers: u32 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;

    // Before the fork, because all workers must share its memory.
    let store = RedisOptions::new(url).namespace("example").open()?;
    let spec = Spec::new("requests", Kind::Counter).labels(["code", "path"]);
    let requests = store.metric(&spec)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    for _ in 0..workers {
        // SAFETY: the child only counts and exits; it needs only parts that a fork preserves.
        if unsafe { libc::fork() } == 0 {
            while Instant::now() < end {
                (0..1000).for_each(|_| requests.add(&["200", "/x"], 1.0));
            }
            // SAFETY: ends like a worker that is killed: its counts are in the segment.
            unsafe { libc::_exit(0) };
        }
    }
    for _ in 0..workers {
        // SAFETY: waits for a child; the null pointer means that we do not need its status.
        unsafe { libc::wait(std::ptr::null_mut()) };
    }
    let counted = requests.get(&["200", "/x"]).unwrap_or_default();
    eprintln!("{:.1} million increments per second", counted / 1e6 / seconds as f64);
    store.flush(Duration::from_secs(5))?;

    // A scrape of any machine returns this.
    let totals = Registry::new();
    totals.register_collector(store.totals())?;
    eprintln!("{}", totals.text());
    let own = store.registry().text();
    own.lines().filter(|line| line.starts_with("quipu_redis")).for_each(|line| eprintln!("{line}"));

    // The cost of an increment here, and in a segment without Redis.
    let alone = Registry::from_segment(quipu_segment::Segment::anonymous(1 << 20)?);
    let alone: MixedCounterFamily<Values<'static>> =
        alone.register(Description::new("requests", "").labels(["code", "path"]))?;
    for _ in 0..3 {
        let segment = nanoseconds(|| alone.inc_by(&Values(&["200", "/x"]), 1.0));
        let redis = nanoseconds(|| requests.add(&["200", "/x"], 1.0));
        eprintln!("an increment: segment {segment:.1} ns, redis {redis:.1} ns");
    }

    // The cost of a flush with many changed series.
    let many = store.metric(&Spec::new("many", Kind::Counter).labels(["n"]))?;
    let texts: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    for _ in 0..4 {
        texts.iter().for_each(|text| many.add(&[text], 1.0));
        let begin = Instant::now();
        store.flush(Duration::from_secs(5))?;
        let each = begin.elapsed().as_secs_f64() * 1e6 / texts.len() as f64;
        eprintln!("a flush: {each:.2} us per changed series");
    }
    Ok(())
}

fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let best = (0..5).map(|_| {
        let begin = Instant::now();
        (0..1_000_000).for_each(|_| work());
        begin.elapsed()
    });
    best.min().unwrap_or_default().as_secs_f64() * 1e3
}
