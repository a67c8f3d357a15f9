//! `quipu compare`: what the messages of a file take in every format, in bytes and in time.

mod measure;
mod plot;
mod report;
mod sample;

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quipu_arena::Arena;
use quipu_segment::printable;
use quipu_wire::AnyFormat;

use crate::wire::{Error, FramingName, Input, MessageKind, formats};
use measure::Measurement;
use report::Report;
use sample::Sample;

/// What to compare.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Bytes and times are those of a message, on average: in a stream with the \
    format's own framing, and standing alone. Times are the medians of rounds in which every format \
    takes its turn.")]
pub struct Compare {
    /// File with messages; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Format of the file [default: what the file's name ends with, or the only one that can read
    /// it]
    #[arg(long, value_parser = formats(), value_name = "FORMAT")]
    pub from: Option<AnyFormat>,

    /// What every message is
    #[arg(long, value_enum, value_name = "KIND", default_value = "union")]
    pub message: MessageKind,

    /// What stands between the messages of the file
    #[arg(long, value_enum, value_name = "FRAMING", default_value = "own")]
    pub from_framing: FramingName,

    /// Time to take
    #[arg(long, value_parser = seconds, value_name = "SECONDS", default_value = "10")]
    pub seconds: Duration,

    /// Draws size against time, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Prints JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("expected a number of seconds above 0".into()),
    }
}

/// Compares, and prints what came out.
///
/// # Errors
///
/// A file that cannot be read or has no messages, and output that cannot be written.
pub fn run(arguments: &Compare) -> Result<(), Error> {
    let input = Input::open(&arguments.file)?;
    if let Some(svg) = &arguments.svg
        && let Ok(existing) = std::fs::File::open(svg)
        && input.is_same(&existing)
    {
        return Err(Error::new(format!("{} is the file to read", printable(svg))));
    }
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let sample = Sample::read(input, arguments, &scope)?;
    let Measurement { entries, refusals } = measure::measure(&sample, arguments.seconds);
    let report = Report::new(&sample, &entries, &refusals);
    if let Some(path) = &arguments.svg {
        let failed =
            |error: &dyn std::fmt::Display| Error::new(format!("{}: {error}", printable(path)));
        let svg = plot::render(&report).map_err(|error| failed(&error))?;
        std::fs::write(path, svg).map_err(|error| failed(&error))?;
    }
    let text = if arguments.json { report.to_json() } else { report.to_text() };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
