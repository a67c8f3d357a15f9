//! `quipu inspect` of a segment with many series, from the start of the program to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use quipu::{CounterFamily, Description, Registry};
use quipu_segment::Options;

use super::{Bench, MEMORY, amount, failed, folder};
use crate::turns::{Figure, Outcome, Turn, take};
use crate::{Error, Result};

const FORMATS: [&str; 3] = ["text", "json", "openmetrics"];
/// The address space of the file.
const LIMIT: u64 = 4 << 30;

/// Measures `quipu inspect`.
pub(super) fn inspect(bench: &Bench) -> Result<Outcome> {
    let folder = folder(Path::new(MEMORY))?;
    let mut turns = Vec::new();
    for series in bench.plan.inspected {
        let path = folder.path().join(format!("{series}.quipu"));
        drop(fill(&path, series)?);
        for format in FORMATS {
            let path = path.clone();
            turns.push(Turn {
                case: format!("inspect/{} series", amount(series)),
                subject: format!("quipu ({format})"),
                run: Box::new(move || once(&bench.quipu, &path, format)),
            });
        }
    }
    Ok(take(&turns, bench.plan.runs))
}

/// A family in a segment, and the values of its two labels, one pair for each series.
pub(super) type Filled = (CounterFamily<[&'static str; 2]>, &'static [[String; 2]]);

/// Writes a segment with a family of this number of series.
pub(super) fn fill(path: &Path, series: usize) -> Result<Filled> {
    let segment = Options::new().shared().limit(LIMIT).open_or_create(path).map_err(failed)?;
    let registry = Registry::from_segment(segment);
    let description = Description::new("requests", "Requests.").labels(["route", "user"]);
    let family = registry.register(description.max_series(series as u64)).map_err(failed)?;
    let labels = |number| [format!("/api/v1/r{:03}", number % 1000), format!("user-{number:07}")];
    // A few megabytes, once for each segment.
    let labels: &'static [[String; 2]] = (0..series).map(labels).collect::<Vec<_>>().leak();
    grow((&family, labels));
    Ok((family, labels))
}

/// Adds to each series.
pub(super) fn grow((family, labels): (&CounterFamily<[&'static str; 2]>, &'static [[String; 2]])) {
    for [route, user] in labels {
        family.inc(&[route.as_str(), user.as_str()]);
    }
}

/// Returns the time of one run.
fn once(quipu: &Path, path: &Path, format: &str) -> Result<Vec<Figure>> {
    let start = Instant::now();
    let mut command = Command::new(quipu);
    command.args(["inspect", "--format", format]).arg(path).stdout(Stdio::null());
    let status = command.status().map_err(Error::file("start", quipu))?;
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    match status.success() {
        true => Ok(vec![Figure::new("time", "ms", elapsed)]),
        false => Err(Error::command(format!("{command:?}"), status.to_string())),
    }
}
