//! The form for programs: one JSON object. Totals are as they were, not as rates.

use std::io::{self, Write};
use std::path::Path;

use quipu_segment::printable;
use serde_json::{Value as Json, json};

use super::{History, SampleKind};
use quipu_process::json::escaped;

/// Writes the object; `docs/guide-cli.md` lists its fields.
pub(super) fn write(history: &History, file: &Path, out: &mut impl Write) -> io::Result<()> {
    let info = history.recording.info();
    let about = json!({
        "file": printable(file).to_string(),
        "interval": info.interval as f64 / 1e9,
        "held_ticks": info.ticks,
        "held_seconds": history.held() as f64 / 1e9,
        "dropped_series": info.dropped,
        "writer": match info.owner {
            0 => Json::Null,
            token => json!({"token": token, "alive": history.is_alive()}),
        },
        "times": history.shown().iter().map(|tick| tick.unix as f64 / 1e9).collect::<Vec<_>>(),
    });
    let about = escaped(&about);
    write!(out, "{},\"series\":[", about.strip_suffix('}').unwrap_or(&about))?;
    for (i, sample) in history.samples.iter().enumerate() {
        let kind = match sample.kind {
            SampleKind::Level => "gauge",
            _ => "total",
        };
        let values = sample.values[history.skipped..].iter().map(|&n| number(n));
        let series = json!({
            "name": sample.name,
            "metric": sample.metric,
            "type": kind,
            "values": Json::from_iter(values),
        });
        write!(out, "{}\n{}", if i == 0 { "" } else { "," }, escaped(&series))?;
    }
    let damage = history.recording.damage().map(|(at, what)| json!({"at": at, "what": what}));
    writeln!(out, "],\"damage\":{}}}", escaped(&Json::from_iter(damage)))
}

/// A number; a text if JSON has no such number; null if there is none.
fn number(n: f64) -> Json {
    match n {
        n if n.is_nan() => Json::Null,
        n if n.is_infinite() => json!(super::number(n)),
        n => json!(n),
    }
}
