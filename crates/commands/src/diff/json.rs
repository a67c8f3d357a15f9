//! The form for programs: one JSON object. `docs/guide-cli.md` lists its fields.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::changes::{Changes, FamilyChange, SeriesChange};
use crate::inspect::json::{exact, float};
use crate::look::{Points, Value, labels};
use quipu_process::json::escaped;

/// Writes the object, one family after the other.
pub(super) fn write(changes: &Changes<'_>, out: &mut impl Write) -> io::Result<()> {
    let same = json!({"families": changes.same_families, "series": changes.same_series});
    write!(out, "{{\"seconds\":{},\"same\":{same},\"families\":[", json!(changes.seconds))?;
    for (i, family) in changes.families.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(out, "{comma}\n{}", escaped(&family_json(family, changes.seconds)))?;
    }
    writeln!(out, "]}}")
}

fn family_json(family: &FamilyChange<'_>, seconds: Option<f64>) -> Json {
    json!({
        "name": family.name,
        "type": family.kind.name(),
        "change": family.change.name(),
        "growth": family.growth.map(float),
        "same": family.same,
        "series": family.series.iter().map(|change| series_json(change, seconds)).collect::<Vec<_>>(),
    })
}

fn series_json(series: &SeriesChange<'_>, seconds: Option<f64>) -> Json {
    let labels: Map<String, Json> =
        labels(series.labels).map(|(name, value)| (name.into_owned(), json!(value))).collect();
    let rate = series.growth.zip(seconds).map(|(growth, seconds)| float(growth / seconds));
    json!({
        "labels": labels,
        "change": series.change.name(),
        "before": series.before.as_ref().map(value_json),
        "after": series.after.as_ref().map(value_json),
        "growth": series.growth.map(float),
        "rate": rate,
    })
}

fn value_json(value: &Value<Points<'_>>) -> Json {
    match value {
        Value::Number(n) => exact(*n),
        Value::Histogram { count, sum, .. } | Value::Summary { count, sum, .. } => {
            json!({"count": float(*count), "sum": float(*sum)})
        }
    }
}
