//! What an increment costs in each store, with two label values, over 100 series.
//!
//! `cargo run --release -p quipu-store --features lmdb --example costs`

#![allow(clippy::print_stdout, reason = "it is a program whose output is what it is for")]

use std::time::Instant;

use quipu_store::{Kind, Local, SegmentStore, Spec, Store, Synchronized};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    println!("{:<44} {:>12} {:>14}", "store", "increment/ns", "scrape of 1000/us");
    measure("memory, one thread", &Local::new(), 2_000_000)?;
    measure("memory, synchronized", &Synchronized::new(), 2_000_000)?;
    let segment = SegmentStore::options();
    measure("segment, private", &segment.private()?, 2_000_000)?;
    measure("segment, anonymous", &segment.anonymous()?, 2_000_000)?;
    measure("segment, file", &segment.open(directory.path())?, 2_000_000)?;
    #[cfg(feature = "lmdb")]
    {
        use quipu_store::Embedded;
        let path = |name| directory.path().join(name);
        measure("embedded database", &Embedded::open(path("fast"))?, 50_000)?;
        let durable = Embedded::options().durable(true).open(path("durable"))?;
        measure("embedded database, durable", &durable, 500)?;
    }
    Ok(())
}

fn measure(name: &str, store: &dyn Store, times: usize) -> Result<(), Box<dyn std::error::Error>> {
    let metric = store.metric(&Spec::new("requests", Kind::Counter).labels(["code", "path"]))?;
    let paths: Vec<String> = (0..100).map(|i| format!("/path/{i}")).collect();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begun = Instant::now();
        for path in paths.iter().cycle().take(times / 5) {
            metric.increment(&["200", path], 1.0);
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / (times / 5) as f64);
    }
    let more = store.metric(&Spec::new("more", Kind::Counter).labels(["number"]))?;
    if times > 1000 {
        (0..1000).for_each(|i| more.increment(&[&i.to_string()], 1.0));
    }
    let mut scrape = f64::INFINITY;
    for _ in 0..20 {
        let (begun, mut sum) = (Instant::now(), 0.0);
        more.all_values(&mut |_, value| sum += value)?;
        std::hint::black_box(sum);
        scrape = scrape.min(begun.elapsed().as_nanos() as f64 / 1000.0);
    }
    println!("{name:<44} {best:>12.0} {scrape:>14.0}");
    Ok(())
}
