//! Memory of series that were received by StatsD, and the time of a scrape.

use std::time::Instant;

use super::exposition::Shown;
use super::packets::Packets;
use super::series::{Kind, Series, amount};
use super::statsd::{FILL_RATE, create, histograms, summaries};
use super::subject::{Program, Running, Subject};
use super::{Bench, LOAD_CORE};
use crate::Result;
use crate::measure::on_core;
use crate::turns::{Figure, Outcome, Turn, take};

/// The number of scrapes in a turn; only the last is timed. A large state is scraped once.
const SCRAPES: usize = 3;

/// All cases.
pub(super) fn memory(bench: &Bench) -> Result<Outcome> {
    let [_, many] = bench.plan.series;
    let programs = [Program::Quipu, Program::StatsdExporter];
    let mut turns = Vec::new();
    for program in programs.into_iter().filter(|program| bench.has(*program)) {
        turns.push(turn(bench, "histograms", histograms(program), many, SCRAPES));
        turns.push(turn(bench, "summaries", summaries(program), many, SCRAPES));
        turns.push(turn(bench, "histograms", histograms(program), bench.plan.most_series, 1));
    }
    turns.sort_by(|a, b| a.case.cmp(&b.case));
    Ok(take(&turns, bench.plan.runs))
}

fn turn<'a>(
    bench: &'a Bench,
    what: &str,
    subject: Subject,
    series: usize,
    scrapes: usize,
) -> Turn<'a> {
    let case = format!("memory, {what}/{}", amount(series));
    let name = subject.name.clone();
    let run = move || -> Result<Vec<Figure>> {
        let folder = bench.folder()?;
        let running = subject.start(bench, folder.path())?;
        create(&running, &Packets::each(series), FILL_RATE)?;
        let memory = running.process.memory()?;
        let (mut time, mut cpu, mut text) = (0.0, 0.0, Vec::new());
        for _ in 0..scrapes {
            (time, cpu, text) = scrape(&running)?;
        }
        let expected = (0..series).filter(|series| Series(*series).kind() != Kind::Gauge).count();
        let shown = Shown::of(&text).series;
        if shown != expected {
            let problem = format!("shows {shown} of {expected} series");
            return Err(running.process.failed(&problem));
        }
        Ok(vec![
            Figure::new("memory", "B", memory as f64),
            Figure::new("memory after scrapes", "B", running.process.memory()? as f64),
            Figure::new("scrape", "ms", time),
            Figure::new("cpu time of a scrape", "ms", cpu),
            Figure::new("bytes of a scrape", "B", text.len() as f64),
        ])
    };
    Turn { case, subject: name, run: Box::new(run) }
}

/// Measures the elapsed time and the processor time of a scrape, in milliseconds; also returns its
/// result.
fn scrape(running: &Running) -> Result<(f64, f64, Vec<u8>)> {
    running.settle()?;
    let before = running.process.cpu_time()?;
    let (elapsed, text) = on_core(LOAD_CORE, || {
        let started = Instant::now();
        let text = running.metrics();
        (started.elapsed(), text)
    });
    let text = text?;
    running.settle()?;
    let cpu = running.process.cpu_time()?.saturating_sub(before);
    Ok((elapsed.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3, text))
}
