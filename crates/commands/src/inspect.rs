//! `quipu inspect`: shows the contents of a segment file, even of a damaged one, and whether its
//! process is running, stopped or dead. With `--history`, it shows the recording of the flight
//! recorder. `quipu_segment::inspect` reads the file, and this module only formats it.

mod history;
pub(crate) mod json;
pub(crate) mod names;
mod processes;
pub(crate) mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use quipu::exposition::{Encoder, Escaping, Format};
use quipu_segment::inspect::{Inspection, open_regular};
use quipu_segment::printable;

use self::history::History;
use crate::look::{foreign, segment};
use crate::output::{Coverage, Error, print, warn};

/// Arguments of `quipu inspect`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu inspect /run/app.quipu
  quipu inspect --format json /run/app.quipu | jq '.families[] | {name, series: .shown}'
  quipu inspect --history --last 2m --metric jobs_total /run/app.quipu
  quipu inspect --history --format json /run/app.quipu >before-the-crash.json

Nothing is changed, and no process waits. The exit code is 3 if the file is damaged, or if series \
changed again and again: the rest is shown.")]
pub struct Inspect {
    /// Segment file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: InspectFormat,

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

/// The format in which a file is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// For people: everything, in columns
    Text,
    /// For programs: everything, as one object
    Json,
    /// The values alone, as an OpenMetrics exposition
    Openmetrics,
}

/// The maximum size of a file to copy, in used bytes; the same as the default of
/// `--segments-bytes`.
pub(crate) const MAX_COPY: u64 = 1 << 30;

/// Returns a message about series that are not shown; `None` if all are shown.
pub(crate) fn omitted_message(count: u64) -> Option<String> {
    let message = "series changed again and again while they were read, and are omitted";
    (count > 0).then(|| format!("{count} {message}"))
}

/// Shows a file. Returns whether all of it was readable.
///
/// # Errors
/// Fails if the file is unreadable or not a segment, or if the output cannot be written.
pub fn run(arguments: &Inspect) -> Result<Coverage, Error> {
    let Inspect { file, format, history, metric, last } = arguments;
    if *history && *format == InspectFormat::Openmetrics {
        return Err(Error::usage("--history has no OpenMetrics form; use text or json"));
    }
    let inspection = match history {
        // Do not copy a recording, because a copy does not preserve the order of its writes.
        true => Inspection::of_file(file),
        false => Inspection::of_copy(file, MAX_COPY),
    };
    let inspection = inspection.map_err(|error| unreadable(file, &error))?;
    if inspection.report().header.is_none()
        && let Some(message) = foreign::describe(file)
    {
        return Err(Error::new(format_args!("{}: {message}", printable(file))));
    }
    let (shown, omitted) = if *history {
        let history = History::read(file, inspection, *last, metric, *format)
            .map_err(|message| Error::new(format_args!("{}: {message}", printable(file))))?;
        (print(|out| history.write(*format, file, out)), None)
    } else {
        let shown = print(|out| write_values(&inspection, *format, file, out));
        (shown, omitted_message(inspection.omitted()))
    };
    // We assume no damage if the reader closed the output early.
    let is_sound = shown?.unwrap_or(true);
    if let Some(message) = &omitted {
        warn(&format_args!("{}: {message}", printable(file)));
    }
    if !is_sound {
        warn(&format_args!("{}: damaged: only a part of it is shown", printable(file)));
    }
    Ok(Coverage::part_if(!is_sound || omitted.is_some()))
}

fn unreadable(file: &Path, error: &io::Error) -> Error {
    let name = printable(file);
    if file.is_dir() {
        let message = "it is a directory: name a file in it, or use quipu top";
        return Error::new(format_args!("{name}: {message}"));
    }
    Error::new(format_args!("cannot read {name}: {error}"))
}

/// Writes the current contents. Returns whether the file is undamaged.
fn write_values(
    inspection: &Inspection,
    format: InspectFormat,
    file: &Path,
    out: &mut impl Write,
) -> io::Result<bool> {
    match format {
        InspectFormat::Json => json::write(inspection, file, out),
        InspectFormat::Openmetrics => {
            let mut encoder = Encoder::new(Format::OpenMetrics, Escaping::AllowUtf8);
            let (_, damage) = segment::visit(open_regular(file)?, file, &mut encoder)?;
            encoder.finish();
            out.write_all(encoder.buffer())?;
            Ok(damage.is_empty())
        }
        // `run` has already refused the other formats.
        _ => text::write(inspection, file, out),
    }
}
