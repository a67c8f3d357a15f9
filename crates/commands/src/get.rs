//! `quipu get`: prints the value of one series, for scripts.
//!
//! The series is named like in an exposition, so the parts of a histogram are `x_count`, `x_sum`
//! and `x_bucket{le="1"}`. You can omit labels that are not needed to identify a single series.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use quipu::snapshot::{Kind, Number};
use quipu_process::similar::closest;

use crate::count::{FILE_VARIABLE, SeriesName};
use crate::look::{Family, Look, Source, Target, Value, labels, series_name};
use crate::output::{Coverage, Error, print, warn};

/// Arguments of `quipu get`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu get --file /run/app.quipu 'jobs_total{queue=\"mail\"}'
  quipu get -f http://127.0.0.1:8081 quipu_events_total
  quipu get -f localhost:9100 'node_filesystem_free_bytes{mountpoint=\"/\"}'
  quipu get -f /run/app.quipu 'request_seconds_bucket{le=\"0.5\"}'
  quipu get -f /run/app.quipu --sum jobs_total

Prints a number. The exit code is 1 if there is no such series, or if several series match.")]
pub struct Get {
    /// Segment file, directory, process ID, or URL of an exposition [default: the daemon at
    /// 127.0.0.1:8081]
    #[arg(long, short, env = FILE_VARIABLE, value_name = "FILE|DIR|URL|PID")]
    file: Option<OsString>,

    /// Print the sum of all series with these labels
    #[arg(long)]
    sum: bool,

    /// Series, such as 'jobs_total{queue="mail"}'
    #[arg(value_name = "SERIES")]
    series: SeriesName,
}

/// Prints a value.
///
/// # Errors
/// Returns an error if the target is unreadable, or if the name matches no series or several.
pub fn run(arguments: &Get) -> Result<Coverage, Error> {
    let target = Target::parse_or_daemon(arguments.file.as_deref());
    let name = target.name();
    let look = Source::new(target).look().map_err(Error::new)?;
    let problems = look.problems();
    problems.iter().for_each(|problem| warn(problem));
    let number = select(&look, &arguments.series, arguments.sum)
        .map_err(|reason| Error::new(format_args!("{name}: {reason}")))?;
    print(|out| match number {
        Number::Unsigned(n) => writeln!(out, "{n}"),
        Number::Signed(n) => writeln!(out, "{n}"),
        Number::Float(n) if n.is_infinite() => writeln!(out, "{n:+}"),
        Number::Float(n) => writeln!(out, "{n}"),
    })?;
    Ok(Coverage::part_if(!problems.is_empty()))
}

/// The maximum number of series in an error message.
const MOST_LISTED: usize = 5;

/// Finds the value of the series with this name. Returns an error if no series or several series
/// match.
fn select(look: &Look, wanted: &SeriesName, is_sum: bool) -> Result<Number, String> {
    let mut found: Vec<(String, Number)> = Vec::new();
    let mut is_known = None;
    for series in look.series() {
        let family = &look.families()[series.family as usize];
        let Some(part) = wanted.name.strip_prefix(&*family.name).and_then(Part::parse) else {
            continue;
        };
        is_known = is_known.or(Some(family));
        let own: Vec<_> = labels(series.labels).collect();
        let mut rest = wanted.labels.clone();
        // This label selects a part of a histogram or a summary; the series itself lacks it.
        let selector = part.selector(family.kind).and_then(|name| {
            let at = rest.iter().position(|(label, _)| label == name)?;
            Some(rest.remove(at).1)
        });
        let Some(number) = part.value(&series.value, selector.as_deref()) else { continue };
        let has_all = rest
            .iter()
            .all(|(name, value)| own.iter().any(|(label, text)| label == name && text == value));
        if !has_all {
            continue;
        }
        if own.len() == rest.len() && !is_sum {
            return Ok(number);
        }
        found.push((series_name(&wanted.name, series.labels), number));
    }
    match &found[..] {
        [] => Err(missing(look, wanted, is_known)),
        [(_, number)] => Ok(*number),
        _ if is_sum => Ok(sum(found.iter().map(|(_, number)| *number))),
        _ => {
            let names: Vec<&str> =
                found.iter().take(MOST_LISTED).map(|(name, _)| name.as_str()).collect();
            let more = match found.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(format!(
                "{} series match: {}{more}; add labels, or use --sum",
                found.len(),
                names.join(", ")
            ))
        }
    }
}

/// Adds numbers. Integers are added exactly, unless the sum overflows.
fn sum(numbers: impl Iterator<Item = Number> + Clone) -> Number {
    let whole = numbers.clone().try_fold(0u64, |sum, number| match number {
        Number::Unsigned(n) => sum.checked_add(n),
        _ => None,
    });
    whole.map_or_else(|| Number::Float(numbers.map(Number::as_f64).sum()), Number::Unsigned)
}

/// Returns the error for a missing series, with the closest family.
fn missing(look: &Look, wanted: &SeriesName, known: Option<&Family>) -> String {
    let name = &wanted.name;
    if let Some(family) = known {
        return match family.kind {
            Kind::Histogram if *name == family.name => format!(
                "{name} is a histogram: use {name}_count, {name}_sum, or \
                 {name}_bucket{{le=\"...\"}}"
            ),
            Kind::Summary if *name == family.name => format!(
                "{name} is a summary: use {name}_count, {name}_sum, or {name}{{quantile=\"...\"}}"
            ),
            _ => format!("{name} has no series with these labels; quipu top lists its series"),
        };
    }
    let names = look.families().iter().map(|family| &*family.name);
    match closest(name, names, name.len() / 3) {
        Some(other) => format!("there is no metric {name}; did you mean {other}?"),
        None => format!("there is no metric {name}; quipu top lists the metrics"),
    }
}

/// The part of a series that a sample of an exposition shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The value of a series, or the quantile of a summary.
    Whole,
    Count,
    Sum,
    Bucket,
}

impl Part {
    /// Parses the end of a sample's name, after the name of its family.
    fn parse(end: &str) -> Option<Self> {
        match end {
            "" => Some(Self::Whole),
            "_count" => Some(Self::Count),
            "_sum" => Some(Self::Sum),
            "_bucket" => Some(Self::Bucket),
            _ => None,
        }
    }

    /// Returns the label that selects a part of the value, if any.
    fn selector(self, kind: Kind) -> Option<&'static str> {
        match (self, kind) {
            (Self::Bucket, _) => Some("le"),
            (Self::Whole, Kind::Summary) => Some("quantile"),
            _ => None,
        }
    }

    /// Returns this part of a value, if the value contains it.
    fn value(self, value: &Value<&[(f64, f64)]>, selector: Option<&str>) -> Option<Number> {
        let selector = || selector?.parse::<f64>().ok();
        match (self, *value) {
            (Self::Whole, Value::Number(number)) => Some(number),
            (Self::Count, Value::Histogram { count, .. } | Value::Summary { count, .. }) => {
                Some(Number::Float(count))
            }
            (Self::Sum, Value::Histogram { sum, .. } | Value::Summary { sum, .. }) => {
                Some(Number::Float(sum))
            }
            (Self::Bucket, Value::Histogram { count, buckets, .. }) => {
                let bound = selector()?;
                if bound == f64::INFINITY {
                    return Some(Number::Float(count));
                }
                let last = buckets.iter().position(|bucket| bucket.0 == bound)?;
                Some(Number::Float(buckets[..=last].iter().map(|bucket| bucket.1).sum()))
            }
            (Self::Whole, Value::Summary { quantiles, .. }) => {
                let quantile = selector()?;
                let found = quantiles.iter().find(|(q, _)| *q == quantile)?;
                Some(Number::Float(found.1))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use quipu_client::Text;

    use super::*;

    const TEXT: &str = "\
# TYPE jobs_total counter
jobs_total{queue=\"mail\",host=\"a\"} 3
jobs_total{queue=\"mail\",host=\"b\"} 4
jobs_total{queue=\"sms\",host=\"a\"} 9007199254740993
# TYPE up gauge
up 1.5
# TYPE took_seconds histogram
took_seconds_bucket{le=\"0.5\"} 2
took_seconds_bucket{le=\"1\"} 5
took_seconds_bucket{le=\"+Inf\"} 6
took_seconds_sum 4.5
took_seconds_count 6
# TYPE rows summary
rows{quantile=\"0.9\"} 40
rows_sum 100
rows_count 4
";

    fn get(series: &str, is_sum: bool) -> Result<f64, String> {
        let look = crate::look::read_text(&Text::of_bytes(TEXT.into())).unwrap();
        select(&look, &series.parse().unwrap(), is_sum).map(Number::as_f64)
    }

    #[test]
    fn a_sample_is_found_by_the_labels_that_distinguish_it() {
        for (series, value) in [
            ("up", 1.5),
            ("jobs_total{host=\"b\"}", 4.0),
            ("jobs_total{host=\"a\",queue=\"mail\"}", 3.0),
            ("took_seconds_count", 6.0),
            ("took_seconds_sum", 4.5),
            ("took_seconds_bucket{le=\"1\"}", 5.0),
            ("took_seconds_bucket{le=\"1.0\"}", 5.0),
            ("took_seconds_bucket{le=\"+Inf\"}", 6.0),
            ("rows{quantile=\"0.9\"}", 40.0),
        ] {
            assert_eq!(get(series, false), Ok(value), "{series}");
        }
        assert_eq!(get("jobs_total{queue=\"mail\"}", true), Ok(7.0));
    }

    #[test]
    fn an_error_names_the_way_out() {
        for (series, message) in [
            ("jobs_total", "3 series match: jobs_total{host=\"a\",queue=\"mail\"}, "),
            ("jobs_totl", "did you mean jobs_total?"),
            ("took_seconds", "use took_seconds_count"),
            ("rows", "use rows_count"),
            ("up{x=\"y\"}", "no series with these labels"),
            ("entirely_different", "there is no metric entirely_different; quipu top"),
        ] {
            let error = get(series, false).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
