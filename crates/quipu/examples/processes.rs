//! Measures updates of metrics in a segment that processes share, in nanoseconds per call.
//!
//! You can run it with `cargo run --release -p quipu-metrics --example processes`.

#![allow(clippy::print_stdout, reason = "the example prints its measurements")]

use std::hint::black_box;
use std::time::Instant;

use quipu::label::Values;
use quipu::{Aggregation, Counter, CounterFamily, Description, ProcessGauge, ProcessGaugeFamily};
use quipu::{Error, Registry};

fn measure(name: &str, mut work: impl FnMut()) {
    let rounds = 2_000_000;
    let best = (0..7).map(|_| {
        let begun = Instant::now();
        (0..rounds).for_each(|_| work());
        begun.elapsed().as_nanos() as f64 / f64::from(rounds)
    });
    println!("{name:40} {:6.2}", best.fold(f64::INFINITY, f64::min));
}

fn main() -> Result<(), Error> {
    let path = std::env::temp_dir().join(format!("processes-{}.quipu", std::process::id()));
    let registry = Registry::open(&path)?;
    let named = |name: &str, labels: &[&str]| Description::new(name, "").labels(labels.to_vec());
    let two: CounterFamily<Values> = registry.register(named("two", &["code", "path"]))?;
    let three: CounterFamily<Values> = registry.register(named("three", &["a", "b", "c"]))?;
    let plain: Counter = registry.register(Description::new("plain", ""))?;
    let bound = two.bind(&Values(&["200", "/x"]));
    measure("increment by 2 labels", || two.inc(&Values(black_box(&["200", "/x"]))));
    measure("increment by 3 labels", || three.inc(&Values(black_box(&["GET", "200", "/x"]))));
    measure("increment, bound", || black_box(&bound).inc());
    measure("increment, without labels", || black_box(&plain).inc());
    for aggregation in [Aggregation::Sum, Aggregation::LiveMostRecent] {
        let description = |name: &str| named(name, &["path"]).aggregation(aggregation);
        let name = format!("process_{aggregation}");
        let family: ProcessGaugeFamily<Values> = registry.register(description(&name))?;
        let bound: ProcessGauge = family.bind(&Values(&["/x"]));
        measure(&format!("set {aggregation}, by label"), || family.set(&Values(&["/x"]), 1.0));
        measure(&format!("set {aggregation}, bound"), || black_box(&bound).set(1.0));
    }
    std::fs::remove_file(path)?;
    Ok(())
}
