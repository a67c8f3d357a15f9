//! `quipu diff`: what differs between two looks at metrics, or two moments of the same: families
//! and series that are new or gone, by how much sums grew, and which values changed.

mod changes;
mod json;
mod text;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use quipu_segment::printable;

use crate::config::Time;
use crate::look::{Look, Source, Target};
use crate::output::print;
use changes::Changes;

/// Arguments of `quipu diff`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu diff /run/app.quipu --after 10s
  quipu diff before.prom after.prom --over 60s
  quipu diff --format json old.quipu http://127.0.0.1:8081/metrics

A and B are segment files, expositions that were saved, directories, URLs (http; without a path, \
that of /metrics) or process IDs, as for quipu top. What stayed the same is not listed.")]
pub struct Diff {
    /// What was there
    #[arg(value_name = "A")]
    a: OsString,

    /// What is there now
    #[arg(value_name = "B", required_unless_present = "after", conflicts_with = "after")]
    b: Option<OsString>,

    /// Compares A with itself, this time later
    #[arg(long, value_name = "TIME")]
    after: Option<Time>,

    /// Time between A and B: growth is then shown by the second, too
    #[arg(long, value_name = "TIME", conflicts_with = "after")]
    over: Option<Time>,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: FormatName,
}

/// How the differences are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// For people
    Text,
    /// For programs: one object
    Json,
}

/// Why nothing could be compared.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Compares.
///
/// # Errors
/// What cannot be read, or output that cannot be written.
pub fn run(arguments: &Diff) -> Result<(), Error> {
    let mut source = Source::new(Target::parse(&arguments.a));
    let before = look(&mut source)?;
    let begun = Instant::now();
    let (after, time) = match (&arguments.b, arguments.after) {
        (Some(b), _) => {
            (look(&mut Source::new(Target::parse(b)))?, arguments.over.map(|over| over.0))
        }
        (None, wait) => {
            std::thread::sleep(wait.map_or(Duration::ZERO, |wait| wait.0));
            let time = begun.elapsed();
            (look(&mut source)?, Some(time))
        }
    };
    let seconds = time.map(|time| time.as_secs_f64()).filter(|seconds| *seconds > 0.0);
    let changes = Changes::between(&before, &after, seconds);
    let written = print(|out| match arguments.format {
        FormatName::Text => text::write(&changes, out),
        FormatName::Json => json::write(&changes, out),
    });
    written.map(drop).map_err(|error| Error(error.to_string()))
}

/// Looks, and reports on standard error what could not be read.
fn look(source: &mut Source) -> Result<Look, Error> {
    let look = source.look().map_err(Error)?;
    for problem in look.problems() {
        // If standard error is closed, there is no place for it.
        let _ = writeln!(io::stderr(), "quipu: {}", printable(&problem));
    }
    Ok(look)
}
