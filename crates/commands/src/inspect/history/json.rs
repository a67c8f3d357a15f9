//! The output for programs: one JSON object. It contains the recorded totals, not rates.

use std::io::{self, Write};
use std::path::Path;

use quipu_segment::printable;
use serde::{Serialize, Serializer};

use super::{History, Sample, SampleKind};
use crate::inspect::json::{DamageEntry, JsonFloat};
use quipu_process::json;

/// Writes the object. You can find its fields in `docs/cli/inspect.md`.
pub(super) fn write(history: &History, file: &Path, out: &mut impl Write) -> io::Result<()> {
    let info = history.recording.info();
    let damage = history.recording.damage();
    let document = Document {
        file: printable(file).to_string(),
        interval: info.interval as f64 / 1e9,
        held_ticks: info.ticks,
        held_seconds: history.held() as f64 / 1e9,
        dropped_series: info.dropped,
        writer: (info.owner != 0).then(|| Owner { token: info.owner, alive: history.is_alive() }),
        times: history.shown().iter().map(|tick| tick.unix as f64 / 1e9).collect(),
        series: history.samples.iter().map(|sample| Series::new(history, sample)).collect(),
        damage: damage.map(|(at, what)| DamageEntry { at, what }).collect(),
    };
    json::write(&document, out)?;
    writeln!(out)
}

/// The whole object.
#[derive(Serialize)]
struct Document<'h> {
    file: String,
    interval: f64,
    held_ticks: u64,
    held_seconds: f64,
    dropped_series: u64,
    /// The writer; `None` if the recording ended in good order.
    writer: Option<Owner>,
    times: Vec<f64>,
    series: Vec<Series<'h>>,
    damage: Vec<DamageEntry<'h>>,
}

#[derive(Serialize)]
struct Owner {
    token: u64,
    alive: Option<bool>,
}

#[derive(Serialize)]
struct Series<'h> {
    name: &'h str,
    metric: &'h str,
    r#type: &'static str,
    #[serde(serialize_with = "serialize_values")]
    values: &'h [f64],
}

impl<'h> Series<'h> {
    fn new(history: &History, sample: &'h Sample) -> Self {
        Self {
            name: &sample.name,
            metric: &sample.metric,
            r#type: match sample.kind {
                SampleKind::Level => "gauge",
                _ => "total",
            },
            values: &sample.values[history.skipped..],
        }
    }
}

/// Serializes values, with null for ticks without a value.
fn serialize_values<S: Serializer>(values: &&[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|n| (!n.is_nan()).then_some(JsonFloat(*n))))
}
