//! The inputs that respond to a request, and requests that can be identified one by one.
//!
//! Each request contains a sample of each of 100 series. For totals, the value is the number of the
//! request; for increments, it is 1. This gives the least and the greatest valid value of a series
//! after a kill.

use std::collections::BTreeMap;

use quipu_wire::{AnyFormat, Counter, Framing, Message};

use super::exposition::keyed;
use super::requests::{REMOTE_WRITE, now_ms, request, write_body};
use super::subject::{Program, Running};
use crate::{Error, Result};

/// The number of series.
pub(super) const SERIES: usize = 100;

/// The name of these series.
const NAME: &str = "bench_kill_total";

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    RemoteWrite,
    Import,
    Push,
    Ingest,
}

impl Way {
    pub(super) const ALL: [Way; 4] = [Way::RemoteWrite, Way::Import, Way::Push, Way::Ingest];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::RemoteWrite => "remote write",
            Way::Import => "import",
            Way::Push => "push",
            Way::Ingest => "ingest",
        }
    }

    /// Returns whether a request adds to the existing values.
    pub(super) fn adds(self, program: Program) -> bool {
        match self {
            Way::RemoteWrite | Way::Import => false,
            // Pushgateway replaces.
            Way::Push => program == Program::Quipu,
            Way::Ingest => true,
        }
    }
}

/// The requests of an input, by their numbers.
pub(super) struct Requests {
    way: Way,
    program: Program,
    paths: Vec<String>,
    start: i64,
}

impl Requests {
    pub(super) fn new(way: Way, program: Program) -> Requests {
        let paths = (0..SERIES).map(|number| format!("p{number:02}")).collect();
        // Times are a millisecond apart, and in the past.
        Requests { way, program, paths, start: now_ms() - 3_600_000 }
    }

    /// The request with a number, from 1.
    pub(super) fn get(&self, number: u64) -> Result<Vec<u8>> {
        let value = if self.way.adds(self.program) { 1 } else { number };
        match self.way {
            Way::RemoteWrite => {
                let time = self.start + i64::try_from(number).unwrap_or(0);
                let labels: Vec<[(&str, &str); 2]> = self
                    .paths
                    .iter()
                    .map(|path| [("__name__", NAME), ("path", path.as_str())])
                    .collect();
                let samples = labels.iter().map(|labels| (&labels[..], value as f64, time));
                Ok(request("POST", "/api/v1/write", REMOTE_WRITE, &write_body(samples)?))
            }
            Way::Import => {
                let target = "/api/v1/import/prometheus";
                Ok(request("POST", target, "", self.text(value).as_bytes()))
            }
            Way::Push => {
                let text = format!("# TYPE {NAME} counter\n{}", self.text(value));
                let mode = if self.way.adds(self.program) { "?mode=add" } else { "" };
                Ok(request("PUT", &format!("/metrics/job/kill{mode}"), "", text.as_bytes()))
            }
            Way::Ingest => Ok(request("POST", "/ingest?format=quipu", "", &self.messages()?)),
        }
    }

    /// Returns the values of the series that a program shows.
    pub(super) fn shown(&self, running: &Running) -> Result<BTreeMap<String, f64>> {
        if self.program == Program::VictoriaMetrics {
            let text = running.get(&format!("/api/v1/export?match[]={NAME}"))?;
            return exported(&text);
        }
        Ok(keyed(&running.metrics()?, &format!("{NAME}{{")))
    }

    fn text(&self, value: u64) -> String {
        self.paths.iter().map(|path| format!("{NAME}{{path=\"{path}\"}} {value}\n")).collect()
    }

    fn messages(&self) -> Result<Vec<u8>> {
        let failed = |error: quipu_wire::Error| Error::report(format!("a message: {error}"));
        let format = "quipu".parse::<AnyFormat>();
        let format = format.map_err(|error| Error::report(error.to_string()))?;
        let mut encoder = format.encoder(Framing::Own);
        let mut body = Vec::new();
        for path in &self.paths {
            let id = format!("{NAME}{{path=\"{path}\"}}");
            let message = Message::from(Counter { id: id.as_bytes(), value: 1 });
            encoder.append(&message.to_union().into(), &mut body).map_err(failed)?;
        }
        encoder.flush(&mut body);
        Ok(body)
    }
}

/// Returns the greatest value of each series in VictoriaMetrics' export: a JSON object on each
/// line.
fn exported(text: &[u8]) -> Result<BTreeMap<String, f64>> {
    #[derive(serde::Deserialize)]
    struct Line {
        metric: BTreeMap<String, String>,
        values: Vec<f64>,
    }
    let mut all = BTreeMap::new();
    for line in serde_json::Deserializer::from_slice(text).into_iter::<Line>() {
        let line = line.map_err(|error| Error::report(format!("/api/v1/export: {error}")))?;
        let greatest = line.values.iter().copied().fold(0.0, f64::max);
        let key = line.metric.get("path").cloned().unwrap_or_default();
        let entry: &mut f64 = all.entry(key).or_default();
        *entry = entry.max(greatest);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_request_with_all_series() {
        for way in Way::ALL {
            let bytes = Requests::new(way, Program::Quipu).get(7).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            // Remote write is compressed, and a stream of messages repeats no string.
            let least = if matches!(way, Way::Import | Way::Push) { SERIES } else { 1 };
            assert!(text.matches(NAME).count() >= least, "{way:?}");
        }
        let pushed = Requests::new(Way::Push, Program::Pushgateway).get(7).unwrap();
        assert!(String::from_utf8_lossy(&pushed).ends_with("{path=\"p99\"} 7\n"));
    }

    #[test]
    fn exports_are_read() {
        let text = br#"{"metric":{"__name__":"a","path":"p00"},"values":[1,3],"timestamps":[1,2]}
            {"metric":{"__name__":"a","path":"p00"},"values":[2],"timestamps":[3]}"#;
        assert_eq!(exported(text).unwrap(), BTreeMap::from([("p00".to_string(), 3.0)]));
        assert!(exported(b"{").is_err());
    }
}
