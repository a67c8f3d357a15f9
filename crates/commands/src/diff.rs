//! `quipu diff`: compares two targets, or one target at two times. It shows new and missing
//! families and series, the growth of sums, and changed values.

mod changes;
mod json;
mod text;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;

use crate::filter::Filter;
use crate::look::{Look, Source, Target};
use crate::output::{Coverage, Error, OutputFormat, print, warn};
use changes::Changes;
use quipu_process::time::Time;

/// Arguments of `quipu diff`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu diff /run/app.quipu --after 10s
  quipu diff before.prom after.prom --over 60s
  quipu diff --exit-code --filter 'http -quipu_' before.prom http://127.0.0.1:8081
  quipu diff --format json old.quipu http://127.0.0.1:8081/metrics

A and B are segment files, expositions that were saved, directories, URLs (http; without a path, \
that of /metrics) or process IDs, as for quipu top. What stayed the same is not listed. The exit \
code is 3 if a part of A or B could not be read. With --exit-code, it is like that of diff: 0 if \
nothing changed, 1 if something did, and 2 for an error.")]
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

    /// Compares the series that have all of these words in their name or labels; -WORD must be
    /// missing
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    filter: String,

    /// Exits with 1 if something changed, and with 2 after an error
    #[arg(long)]
    exit_code: bool,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: OutputFormat,
}

/// Runs `quipu diff`. Returns the exit code: 3 if any part of A or B was unreadable, and 1 if
/// something changed and `--exit-code` is set.
///
/// # Errors
/// Fails if a target is unreadable, or if the output cannot be written. With `--exit-code`, the
/// code of these errors is 2, because 1 means a difference.
pub fn run(arguments: &Diff) -> Result<u8, Error> {
    let code = compare(arguments);
    if arguments.exit_code { code.map_err(|error| error.with_code(2)) } else { code }
}

fn compare(arguments: &Diff) -> Result<u8, Error> {
    let mut source = Source::new(Target::parse(&arguments.a));
    let mut problems = Problems::default();
    let before = problems.look(&mut source)?;
    let begun = Instant::now();
    let (after, time) = match (&arguments.b, arguments.after) {
        (Some(b), _) => {
            let after = problems.look(&mut Source::new(Target::parse(b)))?;
            (after, arguments.over.map(|over| over.0))
        }
        (None, wait) => {
            std::thread::sleep(wait.map_or(Duration::ZERO, |wait| wait.0));
            let time = begun.elapsed();
            (problems.look(&mut source)?, Some(time))
        }
    };
    let seconds = time.map(|time| time.as_secs_f64()).filter(|seconds| *seconds > 0.0);
    let filter = Filter::parse(&arguments.filter);
    let changes = Changes::between(&before, &after, seconds, &filter);
    let is_different = arguments.exit_code && !changes.families.is_empty();
    let written = print(|out| match arguments.format {
        OutputFormat::Text => text::write(&changes, out),
        OutputFormat::Json => json::write(&changes, out),
    });
    written?;
    match Coverage::part_if(!problems.0.is_empty()) {
        Coverage::Whole => Ok(u8::from(is_different)),
        part => Ok(part.code()),
    }
}

/// The problems that were already reported. Each problem is reported only once.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// Reads a target, and reports new problems on standard error.
    fn look(&mut self, source: &mut Source) -> Result<Look, Error> {
        let look = source.look().map_err(Error::new)?;
        for problem in look.problems() {
            if !self.0.contains(&problem) {
                warn(&problem);
                self.0.push(problem);
            }
        }
        Ok(look)
    }
}
