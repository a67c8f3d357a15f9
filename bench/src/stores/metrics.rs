//! An application with many metrics: the time to create them, and to scrape them.

use std::time::Instant;

use quipu::label::Values;

use super::children;
use super::ours::{self, TWO, VALUES};
use super::scrape::times;
use super::{Places, Plan};
use crate::Result;
use crate::record::{Label, Record};

/// The number of metrics.
const METRICS: usize = 2000;

/// Each metric is created and counts once; then all are scraped.
pub(super) fn metrics(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let most = if plan == Plan::quick() { 100 } else { METRICS };
    let folder = places.fresh(&places.tmpfs);
    let registry = ours::registry(folder.path());
    let start = Instant::now();
    for number in 0..most {
        ours::counters(&registry, &format!("metric{number}"), &TWO).inc(&Values(&VALUES));
    }
    let took = start.elapsed().as_secs_f64() * 1e3;
    let text = registry.text();
    let found = text.lines().filter(|line| line.starts_with("metric")).count();
    if found != most {
        return Err(children::failed("made metrics that a scrape lacks"));
    }
    let subject = "quipu (Rust)";
    let created = Label::new("metrics/creation", subject, "time", "ms").of(&[took]);
    // One run, because this workload is measured in rounds.
    let once = Plan { scrapes: 1, ..plan };
    Ok(vec![created, times(once, "metrics/scrape", subject, || registry.text())])
}
