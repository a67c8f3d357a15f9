//! `quipu inspect`: what a segment file holds, of a process that runs, is stopped, or died; also of
//! a file that is damaged. With `--history`, what the flight recorder recorded.
//! `quipu_segment::inspect` reads it; this only shows it.

mod history;
pub(crate) mod json;
pub(crate) mod openmetrics;
mod processes;
pub(crate) mod text;
pub(crate) mod value;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use quipu_segment::inspect::Inspection;
use quipu_segment::printable;

use self::history::History;
use crate::output::print;

/// Arguments of `quipu inspect`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu inspect /run/app.quipu
  quipu inspect --format json /run/app.quipu | jq '.families[] | {name, series: .shown}'
  quipu inspect --history --last 2m --metric jobs_total /run/app.quipu
  quipu inspect --history --format svg /run/app.quipu >before-the-crash.svg

Nothing is changed, and no process waits. The exit code is 3 if the file is damaged: what could be read \
is shown.")]
pub struct Inspect {
    /// Segment file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: FormatName,

    /// Shows what the flight recorder recorded: the values of the last minutes, second by second
    #[arg(long)]
    history: bool,

    /// Shows only this metric of the history; can be given several times
    #[arg(long, value_name = "NAME", requires = "history")]
    metric: Vec<String>,

    /// How much of the history to show, up to its last tick
    #[arg(
        long,
        value_name = "TIME",
        requires = "history",
        default_value = "10m",
        value_parser = humantime::parse_duration
    )]
    last: Duration,
}

/// How a file is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// For people: everything, in columns
    Text,
    /// For programs: everything, as one object
    Json,
    /// The values alone, as an OpenMetrics exposition
    Openmetrics,
    /// The history: a line for each tick, a column for each value
    Csv,
    /// The history: a chart for each metric
    Svg,
}

/// Why a file could not be shown.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The most bytes in use of a file that is copied: those of `--segments-bytes`.
pub(crate) const MAX_COPY: u64 = 1 << 30;

/// Says how many series are not shown; `None` if all of them are.
pub(crate) fn left_out(inspection: &Inspection) -> Option<String> {
    let left_out = inspection.left_out();
    let what = "series changed again and again while they were read, and are left out";
    (left_out > 0).then(|| format!("{left_out} {what}"))
}

/// Shows a file. Returns whether it is sound.
///
/// # Errors
/// A file that cannot be read, or output that cannot be written.
pub fn run(arguments: &Inspect) -> Result<bool, Error> {
    let Inspect { file, format, history, metric, last } = arguments;
    match (format, history) {
        (FormatName::Openmetrics, true) => {
            let what = "--history has no OpenMetrics form; use text, json, csv or svg";
            return Err(Error(what.into()));
        }
        (FormatName::Csv | FormatName::Svg, false) => {
            return Err(Error("csv and svg are forms of the history; add --history".into()));
        }
        _ => {}
    }
    let inspection = match history {
        // Recordings have an order of their own, which a copy does not keep.
        true => Inspection::of_file(file),
        false => Inspection::of_copy(file, MAX_COPY),
    };
    let inspection =
        inspection.map_err(|error| Error(format!("cannot read {}: {error}", printable(file))))?;
    let shown = if *history {
        let history = History::read(&inspection, *last, metric, *format)
            .map_err(|what| Error(format!("{}: {what}", printable(file))))?;
        print(|out| history.write(*format, file, out))
    } else {
        print(|out| of_now(&inspection, *format, file, out))
    };
    // The others show it.
    if let (FormatName::Openmetrics, Some(what)) = (format, left_out(&inspection)) {
        let _ = writeln!(io::stderr(), "quipu: {}: {what}", printable(file));
    }
    // A reader that has gone is not told what it did not wait for.
    shown.map(|is_sound| is_sound.unwrap_or(true)).map_err(|error| Error(error.to_string()))
}

fn of_now(
    inspection: &Inspection,
    format: FormatName,
    file: &Path,
    out: &mut impl Write,
) -> io::Result<bool> {
    match format {
        FormatName::Json => json::write(inspection, file, out),
        FormatName::Openmetrics => openmetrics::write(inspection, out),
        // `run` has refused the others.
        _ => text::write(inspection, file, out),
    }
}
