//! `quipu inc`, `quipu set`, `quipu observe` and `quipu time`: count from shells and cron jobs in a
//! segment file, even while programs keep this file open.
//!
//! Each command opens the file like any program, changes one series, and ends. If a command is
//! killed, the series either changed or did not. A command does not wait for the disk when it ends,
//! but a mark in the file shows that it was closed in order.

mod series_name;
mod timed;

use std::ffi::OsString;
use std::fs::TryLockError;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use quipu::Registry;
use quipu::intake::{Buckets, Change, Intake, Limits, Metric, Rejection, Shape};
use quipu_segment::inspect::{Inspection, is_open, open_regular};
use quipu_segment::{Options, printable};

use crate::output::{Error, print, warn};

pub use series_name::SeriesName;

/// The flags of all commands that count: the file, and the description of a new metric.
#[derive(Args, Clone, Debug)]
pub struct CountFlags {
    /// Segment file; created if it does not exist
    #[arg(long, short, env = FILE_VARIABLE, value_name = "FILE")]
    pub file: PathBuf,

    /// Permission bits of a file that is created, such as 0660 for all users of its group; an
    /// existing file keeps its own
    #[arg(long, env = MODE_VARIABLE, value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub mode: u32,

    /// Help of a new metric
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub help_text: String,

    /// Unit of a new metric, in which its name ends, such as seconds
    #[arg(long, value_name = "UNIT", default_value = "")]
    pub unit: String,
}

/// The environment variable with the path of the file.
pub const FILE_VARIABLE: &str = "QUIPU_FILE";

/// The environment variable with the permission bits of a new file.
pub const MODE_VARIABLE: &str = "QUIPU_MODE";

/// Arguments of `quipu inc`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Inc {
    #[command(flatten)]
    flags: CountFlags,

    /// Counter or gauge, such as 'jobs_total{queue="mail"}'
    #[arg(value_name = "SERIES")]
    series: SeriesName,

    /// What to add; less than zero for gauges only
    #[arg(value_name = "N", default_value = "1", value_parser = number, allow_hyphen_values = true)]
    n: f64,

    /// Print the new value
    #[arg(long)]
    print: bool,
}

/// Arguments of `quipu set`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Set {
    #[command(flatten)]
    flags: CountFlags,

    /// Gauge, such as 'free_bytes{disk="a"}'
    #[arg(value_name = "SERIES")]
    series: SeriesName,

    /// Its new value
    #[arg(value_name = "VALUE", value_parser = number, allow_hyphen_values = true)]
    value: f64,
}

/// Arguments of `quipu observe`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Observe {
    #[command(flatten)]
    flags: CountFlags,

    #[command(flatten)]
    bounds: Bounds,

    /// Histogram or summary, such as 'rows{table="users"}'
    #[arg(value_name = "SERIES")]
    series: SeriesName,

    /// The value
    #[arg(value_name = "VALUE", value_parser = number, allow_hyphen_values = true)]
    value: f64,
}

/// Arguments of `quipu time`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Time {
    #[command(flatten)]
    flags: CountFlags,

    #[command(flatten)]
    bounds: Bounds,

    /// Histogram or summary for the seconds that the command takes
    #[arg(value_name = "SERIES")]
    series: SeriesName,

    /// The command, after --
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

/// The buckets of a histogram.
#[derive(Args, Clone, Debug)]
pub struct Bounds {
    /// Upper bounds of a new histogram's buckets, such as 0.1,1,10. The default of observe is
    /// 0.005 to 10, and of time, 0.01 to 3600
    #[arg(long, value_name = "BOUNDS", value_delimiter = ',', value_parser = number)]
    buckets: Option<Vec<f64>>,
}

const EXAMPLES: &str = "\
Examples:
  quipu inc --file /run/app.quipu 'jobs_total{queue=\"mail\"}'
  quipu inc -f /run/app.quipu --print bytes_total 4096
  quipu set -f /run/app.quipu 'backup_age_seconds{host=\"db1\"}' 30
  quipu observe -f /run/app.quipu --buckets 10,100,1000 rows 250
  quipu time -f /run/app.quipu 'backup_seconds' -- tar cf backup.tar data

QUIPU_FILE names the file if --file does not, and QUIPU_MODE its mode.";

/// The default bounds of Prometheus' client libraries, in seconds.
const OBSERVED: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The default bounds for commands, which can take hours.
const TIMED: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];

/// Runs `quipu inc`.
///
/// # Errors
/// Fails if the file is unusable, or if the metric does not accept the number.
pub fn inc(arguments: &Inc) -> Result<(), Error> {
    let Inc { flags, series, n, print: is_printed } = arguments;
    let registry = change(flags, series, &Change::Add(*n))?;
    if *is_printed {
        let labels = series.labels();
        let value = |name: &str| registry.value(name, &labels);
        // The exposition adds the suffix of a counter if its name lacks it.
        let value = value(&series.name).or_else(|| value(&format!("{}_total", series.name)));
        print(|out| value.map_or(Ok(()), |value| writeln!(out, "{value}")))?;
    }
    Ok(())
}

/// Runs `quipu set`.
///
/// # Errors
/// Returns the errors of [`inc`].
pub fn set(arguments: &Set) -> Result<(), Error> {
    change(&arguments.flags, &arguments.series, &Change::Set(arguments.value)).map(drop)
}

/// Runs `quipu observe`.
///
/// # Errors
/// Returns the errors of [`inc`].
pub fn observe(arguments: &Observe) -> Result<(), Error> {
    let Observe { flags, bounds, series, value } = arguments;
    let shape = bounds.shape(&OBSERVED);
    change(flags, series, &Change::Observe(*value, bounds.buckets(&shape))).map(drop)
}

/// Runs `quipu time`. Returns the exit code of the command. If the time cannot be stored, this is
/// reported, but the exit code stays the same.
pub fn time(arguments: &Time) -> u8 {
    let Time { flags, bounds, series, command } = arguments;
    // clap requires a command.
    let Some((program, rest)) = command.split_first() else { return 2 };
    let exit = match timed::run(program, rest) {
        Ok(exit) => exit,
        Err((error, code)) => {
            warn(&format_args!("cannot run {}: {error}", printable(program)));
            return code;
        }
    };
    let shape = bounds.shape(&TIMED);
    let seconds = exit.took.as_secs_f64();
    let observed = change(flags, series, &Change::Observe(seconds, bounds.buckets(&shape)));
    if let Err(error) = observed {
        warn(&error);
    }
    exit.code
}

impl Bounds {
    fn shape(&self, default: &[f64]) -> Shape {
        Shape::Classic(self.buckets.clone().unwrap_or_else(|| default.to_vec()))
    }

    fn buckets<'s>(&self, shape: &'s Shape) -> Buckets<'s> {
        if self.buckets.is_some() { Buckets::Only(shape) } else { Buckets::OrElse(shape) }
    }
}

/// Changes a series in the file, and returns the registry of the file.
fn change(flags: &CountFlags, series: &SeriesName, change: &Change<'_>) -> Result<Registry, Error> {
    let CountFlags { file, mode, help_text, unit } = flags;
    let name = series.name.as_str();
    let base = name.strip_suffix("_total").unwrap_or(name);
    if !unit.is_empty() && !base.strip_suffix(unit.as_str()).is_some_and(|b| b.ends_with('_')) {
        return Err(Error::new(format_args!(
            "metric {name:?}: the name does not end in the unit: use {base}_{unit}, or leave \
             --unit out"
        )));
    }
    if is_state_in_use(file) {
        return Err(Error::new(format_args!(
            "{}: this is the state of a running daemon, which shares it with no process: push to \
             the daemon instead (quipu push), or name another file",
            printable(file)
        )));
    }
    let segment = Options::new().shared().mode(*mode).open_or_create(file);
    let registry = Registry::from_segment(segment.map_err(Error::new)?);
    // Even after a refusal, the file must not look as if its process was killed.
    registry.segment().leave_in_order();
    let fail = |error: quipu::Error| Error::new(format_args!("{}: {error}", printable(file)));
    let metric = Metric { help: help_text, unit, ..Metric::new(name) };
    let mut intake = Intake::new(&registry, Limits::default()).map_err(fail)?;
    let changed = intake.change(metric, &series.labels(), change).map_err(|error| {
        let is_new = error.rejection() == Some(Rejection::Value);
        match change {
            Change::Add(n) if *n < 0.0 && is_new => Error::new(format_args!(
                "{}: metric {name:?} is new, so it would be a counter, which only grows: add a \
                 positive number, or create a gauge with quipu set",
                printable(file)
            )),
            _ => fail(error),
        }
    });
    if !changed? {
        warn(&format_args!(
            "{}: metric {name:?}: counted in its overflow series, since it has all the series that \
             its application allows",
            printable(file)
        ));
    }
    Ok(registry)
}

/// Returns whether a daemon has locked the file as its state. Opening such a file would wait for
/// the lock.
fn is_state_in_use(file: &Path) -> bool {
    let Ok(opened) = open_regular(file) else { return false };
    // If this lock makes another program fail to open the file, that program tries again.
    if !matches!(opened.try_lock_shared(), Err(TryLockError::WouldBlock))
        || is_open(&opened) != Some(true)
    {
        return false;
    }
    let Ok(inspection) = Inspection::of_file(file) else { return false };
    let records = &inspection.report().records;
    [REQUESTS, KEYS].iter().all(|name| records.iter().any(|record| record.name == *name))
}

/// The name of the daemon's record with the window of requests.
pub const REQUESTS: &str = "requests";
/// The name of the daemon's record with the windows of keys.
pub const KEYS: &str = "keys";

/// Parses a number. An integer must be exact as a float.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number: f64 =
        text.parse().map_err(|_| "expected a number, such as 1 or 0.25".to_owned())?;
    if number.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        return Err("it is larger than any float: give a smaller one, or +Inf or -Inf".into());
    }
    let is_exact = text.parse::<i128>().is_ok_and(|whole| whole.unsigned_abs() <= 1 << 53);
    if is_exact || text.parse::<i128>().is_err() {
        return Ok(number);
    }
    Err("a whole number beyond 2^53 cannot be counted exactly: give a smaller one".into())
}

/// Parses permission bits in octal. The owner must be able to use the file.
fn mode(text: &str) -> Result<u32, String> {
    const EXAMPLE: &str = "such as 0660 for this user and its group";
    let bits = u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8);
    match bits {
        Ok(bits) if bits & !0o777 == 0 && bits & 0o600 == 0o600 => Ok(bits),
        Ok(bits) if bits & !0o777 == 0 => Err(format!(
            "the owner of the file cannot use it with that mode: \
                         give a mode {EXAMPLE}"
        )),
        _ => Err(format!("expected permission bits in octal, 0600 to 0777, {EXAMPLE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inexact_numbers_and_useless_modes_are_refused() {
        assert_eq!(number("9007199254740992"), Ok(9_007_199_254_740_992.0));
        assert_eq!(number("-2.5"), Ok(-2.5));
        assert_eq!(number("+Inf"), Ok(f64::INFINITY));
        for (text, bits) in [("0660", 0o660), ("600", 0o600), ("0o777", 0o777)] {
            assert_eq!(mode(text), Ok(bits), "{text}");
        }
        for text in ["", "0400", "440", "1660", "0680", "u=rw", "-660", "0o", "0x1ff"] {
            assert!(mode(text).unwrap_err().contains("such as 0660"), "{text}");
        }
        assert_eq!(number("-inf"), Ok(f64::NEG_INFINITY));
        for text in ["9007199254740993", "-9007199254740994", "", "1s", "0x10", "-1e400"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
