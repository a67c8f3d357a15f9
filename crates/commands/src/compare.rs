//! `quipu messages compare`: measures the size and the time of a file's messages in every format.

mod measure;
mod plot;
mod report;
mod sample;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quipu_arena::Arena;
use quipu_segment::printable;
use quipu_wire::AnyFormat;

use crate::output::{Error, print};
use crate::wire::{FramingName, Input, MessageKind, formats};
use measure::Measurement;
use report::Comparison;
use sample::Sample;

/// Arguments of `quipu messages compare`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Sizes and times are averages per message: in a stream with the format's \
    own framing, and for a message that stands alone. Times are medians over rounds; each round \
    measures every format.")]
pub struct Compare {
    /// File with messages; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Format of the file [default: the file name's extension, or the only format that can read
    /// the file]
    #[arg(long, value_parser = formats(), value_name = "FORMAT")]
    pub from: Option<AnyFormat>,

    /// Kind of every message
    #[arg(long, value_enum, value_name = "KIND", default_value = "union")]
    pub message: MessageKind,

    /// Framing of the messages in the file
    #[arg(long, value_enum, value_name = "FRAMING", default_value = "own")]
    pub from_framing: FramingName,

    /// Time to spend on measuring
    #[arg(long, value_parser = seconds, value_name = "SECONDS", default_value = "10")]
    pub seconds: Duration,

    /// Plots size against time into this file, as SVG
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

/// Compares the formats and prints the report.
///
/// # Errors
///
/// Fails if the file is unreadable or contains no messages, or if the output cannot be written.
pub fn run(arguments: &Compare) -> Result<(), Error> {
    let input = Input::open(&arguments.file)?;
    if let Some(svg) = &arguments.svg
        && let Ok(existing) = std::fs::File::open(svg)
        && input.is_same(&existing)
    {
        return Err(Error::new(format_args!("{} is the input file", printable(svg))));
    }
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let sample = Sample::read(input, arguments, &scope)?;
    let Measurement { entries, refusals } = measure::measure(&sample, arguments.seconds);
    let comparison = Comparison::new(&sample, &entries, &refusals);
    if let Some(path) = &arguments.svg {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(format_args!("{}: {error}", printable(path)))
        };
        let svg = plot::render(&comparison).map_err(|error| failed(&error))?;
        std::fs::write(path, svg).map_err(|error| failed(&error))?;
    }
    if arguments.json {
        return print(|out| comparison.write_json(out)).map(drop);
    }
    print(|out| out.write_all(comparison.to_text().as_bytes())).map(drop)
}
