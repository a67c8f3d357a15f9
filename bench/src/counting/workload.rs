//! The workloads of the contenders, with one file per workload.

pub mod create;
pub mod encode;
pub mod enums;
pub mod handle;
pub mod histogram;
pub mod insert;
pub mod memory;
pub mod route;
pub mod scrape;
pub mod user;

use super::Plan;
use super::contender::{ByUser, Contender};
use super::data::Keys;
use crate::measure::{Case, Options, on_cores};
use crate::record::{Label, Record};
use quipu_bench_report::report::format::commas;

/// The time of an operation on `threads` threads, each pinned to a different core as long as there
/// are enough. `body(thread, n)` does `n` operations on a thread.
pub(crate) fn time<C: Contender>(
    plan: &Plan,
    case: &str,
    threads: usize,
    body: impl Fn(usize, u64) + Sync,
) -> Record {
    let options = Options { runs: 1, run_time: plan.run_time };
    let body = &body;
    let records = Case::new(case)
        .threads(threads)
        .timed(&C::subject(), |threads, n| on_cores(threads, |thread| body(thread, n)))
        .run(&options);
    // The case returns the elapsed time divided by the operations of all threads.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let core_time = records[0].median * threads.min(cores) as f64;
    label::<C>(case, "core time", "ns").threads(threads as u32).of(&[core_time])
}

fn label<C: Contender>(case: &str, metric: &str, unit: &str) -> Label {
    Label::new(case, &C::subject(), metric, unit)
}

/// Does `n` operations, cycling through the inputs.
pub(crate) fn each<T: Copy>(inputs: &[T], n: u64, operation: impl Fn(T)) {
    let mut left = n as usize;
    while left > 0 {
        let turn = left.min(inputs.len());
        for input in &inputs[..turn] {
            operation(*input);
        }
        left -= turn;
    }
}

/// Adds one to the series of each key.
fn fill(family: &impl ByUser, keys: &Keys) {
    for (kind, route, user) in keys.iter() {
        family.inc(kind, route, user);
    }
}

/// A count with commas: `18,000`.
fn count(number: usize) -> String {
    commas(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn rounds_through_the_inputs_end_after_n() {
        let (calls, sum) = (Cell::new(0), Cell::new(0));
        each(&[1, 2, 3], 7, |input| {
            calls.set(calls.get() + 1);
            sum.set(sum.get() + input);
        });
        assert_eq!((calls.get(), sum.get()), (7, 13));
    }
}
