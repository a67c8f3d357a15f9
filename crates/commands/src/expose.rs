//! `quipu expose`: exposes the metrics that applications store in files, either once on standard
//! output, or through an HTTP endpoint.

mod background;
mod dedup;
mod sources;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use quipu::exposition::{Escaping, Format};
use quipu::{Aggregation, Registry};
use quipu_store::Kind;
use quipu_store::files::Hint;

use crate::output::{Coverage, Error, print, refuse_terminal, warn};
use background::BackgroundSources;
use quipu_process::address::with_host;
use quipu_process::signals::Signals;
use sources::{SharedSources, Sources};

/// Arguments of `quipu expose`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Expose {
    /// Directories with quipu segments (*.quipu), with files of prometheus_client (Python), or of
    /// prometheus-client's DirectFileStore (Ruby); and quipu segment files
    #[arg(value_name = "PATH", required = true, env = "PROMETHEUS_MULTIPROC_DIR")]
    pub paths: Vec<PathBuf>,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub format: ExpositionFormat,

    /// Serves /metrics at this address, HOST:PORT or unix:PATH, until a signal ends it, instead of
    /// writing once
    #[arg(long, value_name = "ADDRESS", conflicts_with = "format")]
    pub listen: Option<String>,

    /// Kind and aggregation of a Ruby metric, which Ruby's files do not record
    #[arg(long, value_name = "NAME=KIND[,AGGREGATION]", value_parser = hint)]
    pub metric: Vec<(String, Hint)>,
}

const AFTER_HELP: &str = "\
Examples:
  quipu expose /run/app/metrics
  quipu expose --listen 127.0.0.1:9184 /run/app/metrics
  quipu expose --listen unix:/run/app/metrics.sock /run/app/metrics
  quipu expose --format openmetrics /run/python /run/ruby /run/app.quipu
  quipu expose --metric queue_length=gauge,max /run/ruby

KIND is counter, gauge, histogram or summary. AGGREGATION is sum (the default), min, max or \
most_recent. Files and paths that cannot be used are omitted, named on standard error, and counted \
in quipu_scrape_files_skipped_total; the exit code is 3 then. With --listen, each scrape looks at \
the paths again.";

/// An exposition format, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExpositionFormat {
    /// Prometheus text format, version 0.0.4
    Text,
    /// OpenMetrics 1.0.0
    Openmetrics,
    /// MetricFamily messages, each preceded by its length
    Protobuf,
}

fn hint(text: &str) -> Result<(String, Hint), String> {
    let (name, value) =
        text.split_once('=').ok_or("expected NAME=KIND or NAME=KIND,AGGREGATION")?;
    let (kind, aggregation) =
        value.split_once(',').map_or((value, None), |(kind, rest)| (kind, Some(rest)));
    let kind = match kind {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        "summary" => Kind::Summary,
        _ => {
            return Err(format!("unknown kind {kind:?}; use counter, gauge, histogram or summary"));
        }
    };
    let aggregation = match aggregation.map(str::parse) {
        None => None,
        Some(Ok(
            aggregation @ (Aggregation::Sum
            | Aggregation::Min
            | Aggregation::Max
            | Aggregation::MostRecent),
        )) => Some(aggregation),
        Some(_) => return Err("the aggregation must be sum, min, max or most_recent".into()),
    };
    if aggregation.is_some_and(|aggregation| aggregation != Aggregation::Sum) && kind != Kind::Gauge
    {
        return Err("only gauges can have an aggregation other than sum".into());
    }
    let hint = Hint::new(kind);
    let hint = aggregation.map_or(hint, |aggregation| hint.aggregation(aggregation));
    Ok((name.to_owned(), hint))
}

/// Writes an exposition, or serves it until a signal arrives. Returns whether the exposition
/// contains all files.
///
/// # Errors
///
/// Fails if the paths are unusable, if the output cannot be written, or if the address is unusable.
pub fn run(arguments: &Expose) -> Result<Coverage, Error> {
    let hints = arguments.metric.iter().cloned();
    let sources = Sources::open(&arguments.paths, hints)?;
    match &arguments.listen {
        Some(address) => listen(address, sources).map(|()| Coverage::Whole),
        None => write(arguments.format, sources),
    }
}

fn write(format: ExpositionFormat, sources: Sources) -> Result<Coverage, Error> {
    if format == ExpositionFormat::Protobuf {
        refuse_terminal("protobuf is not text")?;
    }
    sources.refuse_nothing()?;
    let format = match format {
        ExpositionFormat::Text => Format::Text,
        ExpositionFormat::Openmetrics => Format::OpenMetrics,
        ExpositionFormat::Protobuf => Format::Protobuf,
    };
    let (sources, registry) = (Arc::new(Mutex::new(sources)), Registry::new());
    registry.register_collector(SharedSources(Arc::clone(&sources))).map_err(Error::new)?;
    let scrape = registry.scrape().format(format, Escaping::default());
    let written = print(|out| scrape.write_to(out))?;
    let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    if written.is_some() && !sources.is_used {
        return Err(Error::new("no metrics: none of the files could be read, see above"));
    }
    Ok(Coverage::part_if(sources.is_part()))
}

fn listen(address: &str, sources: Sources) -> Result<(), Error> {
    let failed = |error: &dyn fmt::Display| Error::new(format_args!("{address}: {error}"));
    let signals = Signals::watch().map_err(|error| failed(&error))?;
    if let Err(error) = sources.refuse_nothing() {
        // Only warn, because the application may be about to start.
        warn(&error);
    }
    let registry = BackgroundSources::registry(sources)?;
    if let Some(path) = address.strip_prefix("unix:") {
        let server = quipu::http::serve_unix(path, &registry);
        let server = server.map_err(Error::new)?;
        warn(&format_args!("listening on unix:{}, path /metrics", server.path().display()));
        signals.first();
        return Ok(());
    }
    let server = quipu::http::serve(with_host(address), &registry).map_err(|error| {
        failed(&format_args!(
            "{error}; give --listen HOST:PORT, such as 127.0.0.1:9184, or unix:PATH"
        ))
    })?;
    warn(&format_args!("listening on http://{}/metrics", server.local_addr()));
    signals.first();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hints_with_unknown_kinds_or_aggregations_are_refused() {
        let (name, found) = hint("queue=gauge,max").unwrap();
        let expected = Hint::new(Kind::Gauge).aggregation(Aggregation::Max);
        assert_eq!((&*name, found), ("queue", expected));
        assert_eq!(hint("a=counter").unwrap().1.aggregation, None);
        assert!(hint("a=gauge,most_recent").is_ok() && hint("a=counter,sum").is_ok());
        for bad in ["a", "a=", "a=info", "a=gauge,", "a=gauge,livesum", "a=counter,max"] {
            assert!(hint(bad).is_err(), "{bad}");
        }
    }
}
