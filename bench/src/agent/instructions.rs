//! Counts the instructions of an increment, with a watcher and without: a program counts in a
//! segment under callgrind, while the daemon reads it for ten scrapes a second.
//!
//! Valgrind does not support restartable sequences, so the program takes the path for machines
//! without them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use super::serving::Watcher;
use super::{Bench, Kind, MEMORY, folder};
use crate::progress::Progress;
use crate::record::{Label, Record};
use crate::server::end_with_us;
use crate::turns::Outcome;
use crate::{Error, Result};

const KINDS: [(Kind, &str); 3] = [
    (Kind::Counter, "counter, by handle"),
    (Kind::Labels, "counter, by two labels"),
    (Kind::Histogram, "histogram, by handle"),
];

/// Measures the instructions.
pub(super) fn instructions(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut progress = Progress::new(2 * KINDS.len());
    let folder = folder(Path::new(MEMORY))?;
    for (kind, name) in KINDS {
        // Both count in copies of one file, because the places of series depend on a random seed in
        // this file.
        let file = folder.path().join("made");
        run(&mut child(Command::new(&bench.program), kind, 0, &file))?;
        let mut of = |is_watched: bool| {
            let subject = if is_watched { "watched" } else { "not watched" };
            progress.step(&format!("{name}, {subject}"));
            count(bench, kind, &file, is_watched)
        };
        let (alone, _) = of(false)?;
        let (watched, scrapes) = of(true)?;
        outcome.records.extend(records(bench, name, [alone, watched], scrapes));
        fs::remove_file(&file).map_err(Error::file("remove", &file))?;
    }
    progress.finish("done");
    Ok(outcome)
}

fn records(bench: &Bench, name: &str, [alone, watched]: [u64; 2], scrapes: u64) -> Vec<Record> {
    let case = format!("instructions/{name}");
    let label = |subject, metric, unit| Label::new(&case, subject, metric, unit);
    let of = |count: u64| [count as f64 / bench.plan.instructions as f64];
    let unit = "instructions";
    vec![
        label("quipu (not watched)", unit, unit).of(&of(alone)),
        label("quipu (watched)", unit, unit).of(&of(watched)),
        label("quipu (watched)", "added", unit).of(&[watched as f64 - alone as f64]),
        label("quipu (watched)", "counted", "increments").of(&[bench.plan.instructions as f64]),
        label("quipu (watched)", "meanwhile", "scrapes").of(&[scrapes as f64]),
    ]
}

/// Counts the instructions of all increments, and the scrapes during them.
fn count(bench: &Bench, kind: Kind, made: &Path, is_watched: bool) -> Result<(u64, u64)> {
    let folder = folder(Path::new(MEMORY))?;
    let file = folder.path().join("counted.quipu");
    fs::copy(made, &file).map_err(Error::file("copy", made))?;
    let watcher = match is_watched {
        true => Some(Watcher::start(bench, folder.path())?),
        false => None,
    };
    let counts = folder.path().join("counts");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--toggle-collect=entry_watched_*"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(&bench.program);
    run(&mut child(valgrind, kind, bench.plan.instructions, &file))?;
    let scrapes = watcher.map(Watcher::stop).transpose()?.unwrap_or(0);
    if is_watched && scrapes == 0 {
        return Err(Error::report("no scrape has seen the program: count more increments"));
    }
    Ok((total(&counts)?, scrapes))
}

/// Adds the arguments that make this program a child to a command.
fn child(mut command: Command, kind: Kind, operations: u64, file: &Path) -> Command {
    let kind = kind.to_possible_value().map(|value| value.get_name().to_owned());
    command.stdout(Stdio::null());
    command.args(["--child", &kind.unwrap_or_default()]);
    command.args(["--operations", &operations.to_string(), "--file"]).arg(file);
    end_with_us(&mut command);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let output = command.output().map_err(|error| {
        Error::command(&name, format!("{error}: `make tools` installs valgrind"))
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::command(name, String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// The sum of all instructions in callgrind's output.
fn total(path: &Path) -> Result<u64> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let total = line("summary: ").or_else(|| line("totals: "));
    total
        .and_then(|total| total.split_whitespace().next()?.parse().ok())
        .filter(|total| *total > 0)
        .ok_or_else(|| Error::line(path.display().to_string(), 1, "no instructions were counted"))
}
