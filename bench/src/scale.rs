//! How costs grow with the amount of work: with the series of a family, the labels of a series, the
//! threads and processes that count, the cores of the machine, and the families of a registry.
//!
//! An [`Axis`] is an amount that grows; a point is one amount. Each turn, which is a contender at a
//! point, runs in a new process. The case of a record is `axis/point`, and its metric is the
//! measured quantity.

mod cores;
mod families;
mod labels;
mod processes;
mod series;
mod threads;

use std::time::{Duration, Instant};

use crate::counting::Plan;
use crate::record::Record;
use quipu_bench_report::report::format::commas;

pub use processes::child;

/// An amount that grows.
pub struct Axis {
    /// The name of the axis, in cases and on the command line.
    pub name: &'static str,
    points: &'static [usize],
    /// Whether a point is measured on this machine.
    fits: fn(usize) -> bool,
    /// The contenders.
    pub entrants: &'static [Entrant],
}

/// A contender on an axis. You can add one in the file of its axis.
pub struct Entrant {
    /// The contender's name on the command line.
    pub key: &'static str,
    /// The highest point of this contender: beyond it, a turn takes minutes.
    pub most: usize,
    /// Takes a turn, and returns the records of one run.
    pub turn: fn(&Plan, usize) -> Vec<Record>,
}

/// All axes.
pub const AXES: [Axis; 6] =
    [series::AXIS, labels::AXIS, threads::AXIS, cores::AXIS, processes::AXIS, families::AXIS];

impl Axis {
    /// The points of a plan.
    pub fn points(&self, plan: &Plan) -> impl Iterator<Item = usize> {
        let most = if *plan == Plan::full() { usize::MAX } else { QUICK };
        let fits = self.fits;
        self.points.iter().copied().filter(move |point| *point <= most && fits(*point))
    }
}

/// For points that every machine can measure.
const EVERY: fn(usize) -> bool = |_| true;
/// The highest point of a trial.
const QUICK: usize = 10_000;

fn case(axis: &str, point: usize) -> String {
    format!("{axis}/{}", commas(&point.to_string()))
}

/// Returns the time of one of `amount` things that `work` does, repeated for the time of a run, in
/// ns. The first repetition is not counted, unless it takes longer than a second.
fn repeated(plan: &Plan, amount: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    let first = start.elapsed();
    let per_thing = |elapsed: Duration, times: u32| {
        elapsed.as_nanos() as f64 / (f64::from(times) * amount as f64)
    };
    if first > Duration::from_secs(1) {
        return per_thing(first, 1);
    }
    let start = Instant::now();
    let mut times = 0;
    while times == 0 || start.elapsed() < plan.run_time {
        work();
        times += 1;
    }
    per_thing(start.elapsed(), times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_figures_at_its_first_and_last_small_point() {
        let plan = Plan::quick();
        // The processes run this program, which is a test here.
        for axis in AXES.iter().filter(|axis| axis.name != processes::AXIS.name) {
            for entrant in axis.entrants {
                for point in axis.points(&plan).filter(|point| [0, 1, 8, 10, 100].contains(point)) {
                    let records = (entrant.turn)(&plan, point);
                    let what = format!("{} of {} at {point}", axis.name, entrant.key);
                    assert!(!records.is_empty(), "{what}");
                    // Other tests of this process can free memory at the same time.
                    let is_sound = |it: &Record| it.median >= 0.0 || it.metric == "memory";
                    assert!(records.iter().all(is_sound), "{what}");
                    assert!(records.iter().all(|record| record.case == case(axis.name, point)));
                }
            }
        }
    }
}
