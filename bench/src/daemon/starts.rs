//! Starts with a large state: the time until the first response to `/-/ready`.

use super::Bench;
use super::exposition::samples;
use super::pushes::{fill, shown_groups, unchecked};
use super::requests::{TextRequests, load};
use super::series::amount;
use super::subject::{PATIENCE, Program, Running, Subject};
use crate::Result;
use crate::turns::{Figure, Outcome, Turn, take};

/// The end of the previous process.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Stop,
    Kill,
}

/// Measures all cases.
pub(super) fn starts(bench: &Bench) -> Result<Outcome> {
    let series = bench.plan.most_series;
    let requests = TextRequests::new(series);
    let import = |running: &Running| {
        let (mut requests, mut left) = (requests.clone(), requests.len());
        load(running, PATIENCE, |send| {
            let is_due = left > 0;
            if is_due {
                left -= 1;
                send(requests.next());
            }
            is_due
        })
        .map(drop)
    };
    let imported = |metrics: &[u8]| samples(metrics, "checkout_requests_").count();
    let groups = bench.plan.groups[2];
    let push = |running: &Running| fill(running, groups);

    let case = format!("start/{} series", amount(series));
    let quipu = || Subject::new(Program::Quipu, &[]);
    let [stopped, killed] = ["after a stop", "after a kill"];
    let of_series = State { fill: &import, shown: &imported, expected: series };
    let mut turns = vec![
        turn(bench, &case, quipu().variant(stopped), End::Stop, of_series),
        turn(bench, &case, quipu().variant(killed), End::Kill, of_series),
    ];
    let case = format!("start/{} groups of 100 samples", amount(groups));
    let of_groups = State { fill: &push, shown: &shown_groups, expected: groups };
    turns.push(turn(bench, &case, quipu().variant(stopped), End::Stop, of_groups));
    turns.push(turn(bench, &case, quipu().variant(killed), End::Kill, of_groups));
    if bench.has(Program::Pushgateway) {
        turns.push(turn(bench, &case, unchecked(true), End::Stop, of_groups));
    }
    Ok(take(&turns, bench.plan.runs))
}

/// The state of a subject when it is started.
#[derive(Clone, Copy)]
struct State<'a> {
    fill: &'a dyn Fn(&Running) -> Result<()>,
    /// The number of series or groups in an exposition.
    shown: &'a dyn Fn(&[u8]) -> usize,
    expected: usize,
}

fn turn<'a>(
    bench: &'a Bench,
    case: &str,
    subject: Subject,
    end: End,
    state: State<'a>,
) -> Turn<'a> {
    let name = subject.name.clone();
    let run = move || -> Result<Vec<Figure>> {
        let folder = bench.folder()?;
        let before = subject.start(bench, folder.path())?;
        (state.fill)(&before)?;
        match end {
            End::Stop => before.stop()?,
            End::Kill => before.process.kill(),
        }
        let running = subject.start(bench, folder.path())?;
        let (cpu, memory) = (running.process.cpu_time()?, running.process.memory()?);
        let shown = (state.shown)(&running.metrics()?);
        Ok(vec![
            Figure::new("time until ready", "ms", running.started_in.as_secs_f64() * 1e3),
            Figure::new("cpu time until ready", "ms", cpu.as_secs_f64() * 1e3),
            Figure::new("memory", "B", memory as f64),
            Figure::new("not shown", "series or groups", state.expected as f64 - shown as f64),
        ])
    };
    Turn { case: case.into(), subject: name, run: Box::new(run) }
}
