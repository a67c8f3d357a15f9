//! Measures a scrape with live workers, and after the death of many, each with a thousand series.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use quipu::Registry;
use quipu::label::Values;
use quipu_store::files::Directories;

use super::children::{self, Alive};
use super::ours::{self, Counters, SERIES, TWO};
use super::respawns::sizes;
use super::{Places, Plan};
use crate::measure::black_box;
use crate::record::{Label, Record};
use crate::{Error, Result};

/// Measures a segment in a file, and the files of Python's workers.
pub(super) fn scrape(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let subject = "quipu (Rust)";
    let mut records = of_files(plan, places)?;
    for (name, count) in [("8 live", 8), ("50 dead", 50), ("500 dead", plan.dead)] {
        let folder = places.fresh(&places.tmpfs);
        let registry = ours::registry(folder.path());
        let counters = ours::counters(&registry, "scraped", &TWO);
        let paths = ours::paths();
        let work = || count_all(&counters, &paths);
        let case = format!("scrape/{name} workers");
        let alive = if name.ends_with("live") {
            Some(Alive::start(count, work)?)
        } else {
            for _ in 0..count {
                children::fork(work)?.wait()?;
            }
            None
        };
        let text = registry.text();
        let of_all = format!("path=\"/path/{}\"}} {count}\n", SERIES - 1);
        if !text.contains(&of_all) {
            return Err(children::failed("left counts that a scrape lacks"));
        }
        records.push(times(plan, &case, subject, || registry.text()));
        if alive.is_none() {
            records.extend(sizes(&case, subject, folder.path())?);
        }
    }
    Ok(records)
}

/// Scrapes the files of Python's workers, like prometheus_client in its multi-process mode. The
/// folders are named after the number of workers.
fn of_files(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (name, count) in [("8 live", 8), ("50 dead", 50), ("500 dead", plan.dead)] {
        let number = name.split_once(' ').map_or("", |(number, _)| number);
        let folder = places.tmpfs.join(format!("multi-process-{number}"));
        if !folder.is_dir() {
            continue;
        }
        let case = format!("scrape/{name} workers");
        let registry = Registry::new();
        let collected = registry.register_collector(Directories::new([folder.clone()]));
        collected.map_err(|error| Error::report(format!("{}: {error}", folder.display())))?;
        let of_all = format!("path=\"/path/{}\"}} {count}\n", SERIES - 1);
        if !registry.text().contains(&of_all) {
            let problem = format!("a scrape of {} lacks counts", folder.display());
            return Err(Error::report(problem));
        }
        records.push(times(plan, &case, "quipu (Python's files)", || registry.text()));
        daemon(places, &folder)?;
        // The first call already succeeded.
        let scrape = || daemon(places, &folder).is_ok();
        records.push(times(plan, &case, "quipu (Python's files, the command)", scrape));
    }
    Ok(records)
}

/// Runs `quipu expose FOLDER` to completion.
fn daemon(places: &Places, folder: &Path) -> Result<()> {
    let mut command = Command::new(&places.quipu);
    command.arg("expose").arg(folder);
    let output = command.output().map_err(Error::file("run", &places.quipu))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(Error::report(format!("quipu expose: {problem}")))
        }
    }
}

fn count_all(counters: &Counters, paths: &[String]) {
    for path in paths {
        counters.inc_by(&Values(&["200", path]), 1);
    }
}

/// Returns the times of a scrape, after one that is not timed.
pub(super) fn times<R>(
    plan: Plan,
    case: &str,
    subject: &str,
    mut scrape: impl FnMut() -> R,
) -> Record {
    black_box(scrape());
    let mut time = |_| {
        let start = Instant::now();
        black_box(scrape());
        start.elapsed().as_secs_f64() * 1e3
    };
    let values: Vec<f64> = (0..plan.scrapes).map(&mut time).collect();
    Label::new(case, subject, "time", "ms").of(&values)
}
