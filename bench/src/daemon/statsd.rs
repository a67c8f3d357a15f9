//! Measures StatsD over UDP: the maximum rate without loss, and the processor time of a line.

use super::packets::{Form, Packets, Sender, Sent};
use super::search::search;
use super::series::amount;
use super::subject::{Program, Running, Subject};
use super::{Bench, LOAD_CORE};
use crate::Result;
use crate::measure::on_core;
use crate::turns::{Figure, Outcome, Turn, take};

/// The rate at which series are created, in lines a second, because the slowest subject can process
/// this.
pub(super) const FILL_RATE: f64 = 50_000.0;

/// The maximum number of times that lines lost during the creation of series are sent again.
const FILLS: u32 = 3;

/// The options for histograms of 11 buckets.
pub(super) fn histograms(program: Program) -> Subject {
    match program {
        Program::Quipu => Subject::new(
            program,
            &["--statsd=udp://127.0.0.1:{udp}", "--statsd-mapping={folder}/histograms.yml"],
        ),
        Program::StatsdExporter => {
            Subject::new(program, &["--statsd.mapping-config={folder}/histograms.yml"])
        }
        _ => Subject::new(program, &[]),
    }
}

/// Returns the default options, which give summaries.
pub(super) fn summaries(program: Program) -> Subject {
    match program {
        Program::Quipu => Subject::new(program, &["--statsd=udp://127.0.0.1:{udp}"]),
        _ => Subject::new(program, &[]),
    }
}

/// Measures all cases.
pub(super) fn statsd(bench: &Bench) -> Result<Outcome> {
    use Program::{Quipu, Statsd, StatsdExporter};
    let mut outcome = Outcome::default();
    for series in bench.plan.series {
        for form in [Form::Packed, Form::Single] {
            // Use enough lines, because they must not stay in a cache of the processor if the
            // series do not.
            let lines = (20 * series).clamp(200_000, 600_000);
            let packets = Packets::random(series, lines, form);
            let name = if form == Form::Packed { "packed" } else { "single" };
            let case = format!("statsd/{name}, {} series", amount(series));
            let mut turns = Vec::new();
            for program in [Quipu, StatsdExporter, Statsd] {
                // For the original server, one amount of series is enough.
                let is_fit = program != Statsd || series == bench.plan.series[0];
                if bench.has(program) && is_fit {
                    turns.push(turn(bench, &case, histograms(program), series, &packets));
                }
            }
            let case = format!("{case}, summaries");
            for program in [Quipu, StatsdExporter] {
                if bench.has(program) && form == Form::Packed {
                    turns.push(turn(bench, &case, summaries(program), series, &packets));
                }
            }
            outcome.add(take(&turns, bench.plan.runs));
        }
    }
    Ok(outcome)
}

fn turn<'a>(
    bench: &'a Bench,
    case: &str,
    subject: Subject,
    series: usize,
    packets: &'a Packets,
) -> Turn<'a> {
    let name = subject.name.clone();
    let run = move || -> Result<Vec<Figure>> {
        let folder = bench.folder()?;
        let running = subject.start(bench, folder.path())?;
        fill(&running, series)?;
        let best = search(&running, packets, &bench.plan)?;
        Ok(vec![
            Figure::new("lines/s", "1/s", best.rate()),
            Figure::new("cpu time", "ns", best.cpu_per_line()),
            Figure::new("core used", "%", best.share()),
        ])
    };
    Turn { case: case.into(), subject: name, run: Box::new(run) }
}

/// Sends a line of each series to create it, again if some lines were lost.
fn fill(running: &Running, series: usize) -> Result<()> {
    let packets = Packets::each(series);
    let mut shown = 0.0;
    for attempt in 1..=FILLS {
        let sent = create(running, &packets, FILL_RATE / f64::from(attempt))?;
        let now = running.countable()?;
        if now - shown == running.expected(&sent) as f64 {
            return Ok(());
        }
        shown = now;
    }
    let problem = format!("lost lines when {series} series were created, {FILLS} times");
    Err(running.process.failed(&problem))
}

/// Sends each packet once, at this rate of lines a second, and waits until it was handled.
pub(super) fn create(running: &Running, packets: &Packets, rate: f64) -> Result<Sent> {
    let mut sender = Sender::open(running.udp)?;
    let rate = rate / packets.lines_per_packet();
    let sent = on_core(LOAD_CORE, || sender.send_all(packets, rate));
    running.settle()?;
    Ok(sent)
}
