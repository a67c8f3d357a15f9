//! Measures the rate of one core for samples by remote write 1.0 and as lines of Prometheus'
//! format.

use super::Bench;
use super::exposition::sum;
use super::requests::{Load, SAMPLES, TextRequests, load, write_requests};
use super::series::amount;
use super::subject::{PATIENCE, Program, Running, Subject};
use crate::Result;
use crate::turns::{Figure, Outcome, Turn, take};

/// The programs that accept both.
const PROGRAMS: [Program; 3] = [Program::Quipu, Program::Vmagent, Program::VictoriaMetrics];

/// Remote write 1.0, with 1,000 samples a request.
pub(super) fn remote_write(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for series in bench.plan.series {
        let requests = write_requests(series, bench.plan.requests)?;
        let sweep = series.div_ceil(SAMPLES);
        let case = format!("remote write/{} series", amount(series));
        let measure = |running: &Running| {
            let mut left = requests.iter();
            let mut first = left.by_ref().take(sweep);
            load(running, PATIENCE, |send| {
                first.next().map(|request| send(&request[..])).is_some()
            })?;
            load(running, bench.plan.load, |send| {
                left.next().map(|request| send(&request[..])).is_some()
            })
        };
        let names = ["remote_write", "promremotewrite"];
        outcome.add(take(&turns(bench, &case, names, sweep, &measure), bench.plan.runs));
    }
    Ok(outcome)
}

/// `POST /api/v1/import/prometheus`, with 1,000 lines a request.
pub(super) fn text(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for series in bench.plan.series {
        let requests = TextRequests::new(series);
        let sweep = requests.len();
        let case = format!("import/{} series", amount(series));
        let measure = |running: &Running| {
            let mut requests = requests.clone();
            let mut left = sweep;
            let mut next = |send: &mut dyn FnMut(&[u8])| {
                send(requests.next());
                true
            };
            load(running, PATIENCE, |send| {
                left > 0 && {
                    left -= 1;
                    next(send)
                }
            })?;
            load(running, bench.plan.load, next)
        };
        let names = ["import", "prometheus"];
        outcome.add(take(&turns(bench, &case, names, sweep, &measure), bench.plan.runs));
    }
    Ok(outcome)
}

/// Returns the turns of all programs. `measure` sends each series once, and then a load. `names`
/// are the names of this input's counter, in the metrics of quipu and of the others.
fn turns<'a>(
    bench: &'a Bench,
    case: &str,
    names: [&'static str; 2],
    sweep: usize,
    measure: &'a dyn Fn(&Running) -> Result<Load>,
) -> Vec<Turn<'a>> {
    let programs = PROGRAMS.into_iter().filter(|program| bench.has(*program));
    let turn = |program: Program| {
        let subject = Subject::new(program, &[]);
        let name = subject.name.clone();
        let run = move || -> Result<Vec<Figure>> {
            let folder = bench.folder()?;
            let running = subject.start(bench, folder.path())?;
            let load = measure(&running)?;
            let shown = shown(&running.metrics()?, program, names);
            let sent = (load.requests + sweep as u64) * SAMPLES as u64;
            Ok(figures(&load, sent as f64 - shown))
        };
        Turn { case: case.into(), subject: name, run: Box::new(run) }
    };
    programs.map(turn).collect()
}

/// Returns the number of samples that a program reports as accepted.
fn shown(metrics: &[u8], program: Program, [ours, theirs]: [&str; 2]) -> f64 {
    let prefix = match program {
        Program::Quipu => format!("quipu_input_samples_total{{input=\"{ours}\"}}"),
        // The samples that it aggregates, of all inputs.
        Program::Vmagent => "vm_streamaggr_matched_samples_total{".into(),
        _ => format!("vm_rows_inserted_total{{type=\"{theirs}\"}}"),
    };
    sum(metrics, &prefix)
}

fn figures(load: &Load, lost: f64) -> Vec<Figure> {
    let samples = (load.requests * SAMPLES as u64) as f64;
    let requests = load.requests.max(1) as f64;
    vec![
        Figure::new("samples/s", "1/s", samples / load.cpu.as_secs_f64().max(0.01)),
        Figure::new("time of a request", "us", load.elapsed.as_secs_f64() * 1e6 / requests),
        Figure::new("cpu time of a request", "us", load.cpu.as_secs_f64() * 1e6 / requests),
        Figure::new("lost samples", "samples", lost),
    ]
}
