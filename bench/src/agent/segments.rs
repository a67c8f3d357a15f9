//! The agent: one program that shows the metrics of many others to a scraper. It is compared to
//! Prometheus' node exporter with `.prom` files, and to prometheus_client's directory with a file
//! for each of its workers.
//!
//! All series grow before each scrape. This program makes them grow, or for prometheus_client a
//! process in Python: this cost is not in the figures.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::agents::{Program, script};
use super::programs::{self, Programs, shown};
use super::{Bench, MEMORY, OTHER_CORE, amount, folder};
use crate::measure::on_core;
use crate::server::end_with_us;
use crate::turns::{Figure, Outcome, Turn, take};
use crate::{Error, Result};

/// The pause between two scrapes.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval for the share of a core.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// The duration of the measurement of a program at rest.
const REST: Duration = Duration::from_secs(3);

/// Measures the agents.
pub(super) fn segments(bench: &Bench) -> Result<Outcome> {
    let [count, series] = bench.plan.programs;
    let case = format!("segments/{count} programs of {} series", amount(series));
    let mut turns = vec![turn(bench, &case, "quipu", Source::Segments)];
    if bench.with_peers {
        turns.push(turn(bench, &case, "quipu (Python's files)", Source::Files(Program::Quipu)));
        turns.push(turn(bench, &case, Program::NodeExporter.with_version(), Source::Texts));
        let python = Program::Python;
        turns.push(turn(bench, &case, python.with_version(), Source::Files(python)));
    }
    Ok(take(&turns, bench.plan.runs))
}

/// The kind of files, and the program that reads them, if there are several.
#[derive(Clone, Copy, Debug)]
enum Source {
    Segments,
    Texts,
    Files(Program),
}

fn turn<'a>(bench: &'a Bench, case: &str, subject: &str, source: Source) -> Turn<'a> {
    let run = move || {
        let folder = folder(Path::new(MEMORY))?;
        let path = folder.path();
        match source {
            Source::Segments => {
                let programs = Programs::create(path, bench.plan.programs)?;
                let option = format!("--segments={}", programs::segments(path).display());
                measure(bench, Program::Quipu, path, option, || {
                    programs.change();
                    Ok(())
                })
            }
            Source::Texts => {
                let programs = Programs::create(path, bench.plan.programs)?;
                let texts = made(path.join("texts"))?;
                programs.write_texts(&texts)?;
                let option = format!("--collector.textfile.directory={}", texts.display());
                measure(bench, Program::NodeExporter, path, option, || {
                    programs.change();
                    programs.write_texts(&texts)
                })
            }
            Source::Files(program) => {
                let files = made(path.join("files"))?;
                let mut writer = Writer::start(bench, &files)?;
                let option = match program {
                    Program::Quipu => format!("--segments={}", files.display()),
                    _ => files.display().to_string(),
                };
                measure(bench, program, path, option, || writer.change())
            }
        }
    };
    Turn { case: case.into(), subject: subject.into(), run: Box::new(run) }
}

fn made(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).map_err(Error::file("make the folder", &path))?;
    Ok(path)
}

/// Starts a program and scrapes it.
fn measure(
    bench: &Bench,
    program: Program,
    folder: &Path,
    option: String,
    mut change: impl FnMut() -> Result<()> + Send,
) -> Result<Vec<Figure>> {
    let running = program.start(bench, &folder.join("own"), &[option])?;
    let [programs, series] = bench.plan.programs;
    let mut scrape = || -> Result<(Duration, usize)> {
        on_core(OTHER_CORE, || {
            change()?;
            let begun = Instant::now();
            let text = running.metrics()?;
            let elapsed = begun.elapsed();
            match shown(&text) == programs * series {
                true => Ok((elapsed, text.len())),
                false => {
                    let problem = format!("shows {} of {} series", shown(&text), programs * series);
                    Err(running.process.failed(&problem))
                }
            }
        })
    };
    // The first scrapes make room for the output.
    let (_, bytes) = scrape().and_then(|_| scrape())?;
    let cpu = || running.process.exact_cpu_time();
    let (before, begun) = (cpu()?, Instant::now());
    std::thread::sleep(REST);
    let at_rest = (cpu()? - before).as_secs_f64() / begun.elapsed().as_secs_f64();

    let (before, begun) = (cpu()?, Instant::now());
    let mut times = Vec::new();
    for _ in 0..bench.plan.scrapes {
        let next = Instant::now() + PAUSE;
        times.push(scrape()?.0.as_secs_f64() * 1e3);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let rest = at_rest * begun.elapsed().as_secs_f64();
    let used = (cpu()? - before).as_secs_f64() - rest;
    let each = used.max(0.0) / f64::from(bench.plan.scrapes);
    times.sort_by(f64::total_cmp);
    let share = at_rest + each / SCRAPE_INTERVAL.as_secs_f64();
    Ok(vec![
        Figure::new("cpu time of a scrape", "ms", each * 1e3),
        Figure::new("scrape", "ms", times[times.len() / 2]),
        Figure::new("core used, a scrape each 15 s", "%", 100.0 * share),
        Figure::new("memory", "B", running.process.memory()? as f64),
        Figure::new("bytes of a scrape", "B", bytes as f64),
    ])
}

/// A process that writes files of prometheus_client.
struct Writer {
    child: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Writer {
    /// Returns when all files exist.
    fn start(bench: &Bench, files: &Path) -> Result<Writer> {
        let [programs, series] = bench.plan.programs;
        let mut command = Command::new(&bench.python);
        command.args([script(), "write".into()]).arg(files);
        command.args([programs.to_string(), series.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        end_with_us(&mut command);
        let failed = |problem: &str| Error::command("multi_process.py write", problem);
        let mut child = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let (Some(orders), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("has no pipes"));
        };
        let mut writer = Writer { child, orders, replies: BufReader::new(replies) };
        writer.wait()?;
        Ok(writer)
    }

    /// Increments all series.
    fn change(&mut self) -> Result<()> {
        let asked = self.orders.write_all(b"\n");
        asked.map_err(|error| Error::command("multi_process.py write", error.to_string()))?;
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(read) if read > 0 => Ok(()),
            _ => Err(Error::command("multi_process.py write", "has ended")),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
