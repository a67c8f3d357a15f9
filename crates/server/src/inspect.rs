//! `quipu inspect`: what a segment file holds, of a process that runs, is stopped, or died; also of a
//! file that is damaged. `quipu_segment::inspect` reads it; this only shows it.

pub(crate) mod json;
pub(crate) mod openmetrics;
mod processes;
pub(crate) mod text;
pub(crate) mod value;

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quipu_segment::inspect::Inspection;
use quipu_segment::printable;

/// Arguments of `quipu inspect`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu inspect /run/app.quipu
  quipu inspect --format json /run/app.quipu | jq '.families[] | {name, series: .shown}'

Nothing is changed, and no process waits. The exit code is 3 if the file is damaged: what could be read \
is shown.")]
pub struct Inspect {
    /// Segment file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: FormatName,
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

/// Shows a file. Returns whether it is sound.
///
/// # Errors
/// A file that cannot be read, or output that cannot be written.
pub fn run(arguments: &Inspect) -> Result<bool, Error> {
    let Inspect { file, format } = arguments;
    let inspection = Inspection::of_file(file)
        .map_err(|error| Error(format!("cannot read {}: {error}", printable(file))))?;
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let shown = match format {
        FormatName::Text => text::write(&inspection, file, &mut out),
        FormatName::Json => json::write(&inspection, file, &mut out),
        FormatName::Openmetrics => openmetrics::write(&inspection, &mut out),
    };
    match shown.and_then(|is_sound| out.flush().map(|()| is_sound)) {
        Ok(is_sound) => Ok(is_sound),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(Error(format!("standard output: {error}"))),
    }
}
