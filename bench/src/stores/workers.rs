//! Forked workers that increment one series with two labels at the same time.

use std::io::{Read, Write};
use std::time::Instant;

use quipu::label::Values;

use super::children::{self, pipe};
use super::increments::TOGETHER;
use super::ours::{self, Counters, TWO, VALUES};
use super::{Places, Plan};
use crate::Result;
use crate::measure::black_box;
use crate::record::{Label, Record};

/// The number of increments between two readings of the clock.
const BATCH: u64 = 1000;

/// Measures the elapsed time divided by the increments of all workers. Fails if the segment lost an
/// increment.
pub(super) fn workers(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for count in TOGETHER {
        let folder = places.fresh(&places.tmpfs);
        let registry = ours::registry(folder.path());
        let counters = ours::counters(&registry, "workers", &TWO);
        let (counted, nanos) = count_together(&plan, count, &counters)?;
        let kept = counters.bind(&Values(&VALUES)).get();
        if kept != counted {
            return Err(children::failed(format!("has {kept} of {counted} increments")));
        }
        let label = Label::new("rust workers/increment", "quipu", "time", "ns");
        records.push(label.threads(count as u32).of(&[nanos]));
    }
    Ok(records)
}

/// The number of increments of all workers, and the nanoseconds per increment.
fn count_together(plan: &Plan, count: usize, counters: &Counters) -> Result<(u64, f64)> {
    let (mut go, gate) = pipe()?;
    let (mut counts, report) = pipe()?;
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(children::fork(|| {
            let batch = || {
                for _ in 0..BATCH {
                    counters.inc_by(&Values(&black_box(VALUES)), 1);
                }
            };
            batch();
            let _ = go.read_exact(&mut [0]);
            let (start, mut sum) = (Instant::now(), BATCH);
            while start.elapsed() < 2 * plan.run_time {
                batch();
                sum += BATCH;
            }
            let _ = (&report).write_all(&sum.to_le_bytes());
        })?);
    }
    drop(report);
    // Most workers reach the gate in this time; one that is late finds it open.
    std::thread::sleep(plan.run_time / 10);
    let start = Instant::now();
    let _ = (&gate).write_all(&vec![b'g'; count]);
    for worker in workers {
        worker.wait()?;
    }
    let elapsed = start.elapsed();
    let (mut total, mut sum) = (0, [0; 8]);
    while counts.read_exact(&mut sum).is_ok() {
        total += u64::from_le_bytes(sum);
    }
    let timed = total - count as u64 * BATCH;
    Ok((total, elapsed.as_nanos() as f64 / timed as f64))
}
