//! `quipu inspect` of a segment with many series, from the start of the program to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use quipu::{CounterFamily, Description, Registry};
use quipu_segment::Options;

use super::{Bench, failed, folder};
use crate::progress::Progress;
use crate::record::{Label, Record};
use crate::report::format::commas;
use crate::{Error, Result};

/// The formats, and the numbers of series.
const FORMATS: [&str; 3] = ["text", "json", "openmetrics"];
const SERIES: [usize; 2] = [100_000, 1_000_000];
/// The address space of the file.
const LIMIT: u64 = 4 << 30;

/// Measures it.
pub(super) fn inspect(bench: &Bench) -> Result<Vec<Record>> {
    let folder = folder(Path::new("/dev/shm"))?;
    let mut progress = Progress::new(SERIES.len() * FORMATS.len());
    let mut records = Vec::new();
    for series in SERIES {
        let path = folder.path().join(format!("{series}.quipu"));
        fill(&path, series)?;
        for format in FORMATS {
            progress.step(&format!("inspect {series} series as {format}"));
            let times = (0..bench.runs).map(|_| once(&bench.quipu, &path, format));
            let times = times.collect::<Result<Vec<f64>>>()?;
            let case = format!("inspect/{} series", commas(&series.to_string()));
            records.push(Label::new(&case, &format!("quipu ({format})"), "time", "ms").of(&times));
        }
    }
    progress.finish("done");
    Ok(records)
}

/// Writes a segment, as a process does that is dead by now.
fn fill(path: &Path, series: usize) -> Result<()> {
    let segment = Options::new().shared().limit(LIMIT).open_or_create(path).map_err(failed)?;
    let registry = Registry::on(segment);
    let description = Description::new("requests", "Requests.").labels(["route", "user"]);
    let description = description.limit(series as u64);
    let family: CounterFamily<[&str; 2]> = registry.register(description).map_err(failed)?;
    for number in 0..series {
        let route = format!("/api/v1/r{:03}", number % 1000);
        family.inc(&[route.as_str(), format!("user-{number:07}").as_str()]);
    }
    Ok(())
}

/// The time in ms.
fn once(quipu: &Path, path: &Path, format: &str) -> Result<f64> {
    let start = Instant::now();
    let mut command = Command::new(quipu);
    command.args(["inspect", "--format", format]).arg(path).stdout(Stdio::null());
    let status = command.status().map_err(Error::file("start", quipu))?;
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    match status.success() {
        true => Ok(elapsed),
        false => Err(Error::command(format!("{command:?}"), status.to_string())),
    }
}
