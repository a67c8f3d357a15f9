//! The form for programs: one JSON object. `docs/guide-cli.md` lists its fields.

use std::io::{self, Write};
use std::path::Path;

use quipu::snapshot::{ALONE, Decoder, Number, Value, each_series};
use quipu_segment::inspect::{Damage, FamilySeen, Inspection, SeriesSeen};
use quipu_segment::printable;
use serde_json::{Map, Value as Json, json};

use super::names::number;
use super::processes;
use super::text::hex;
use quipu_process::json::escaped;

/// Writes the object: families and series one after the other, everything else at once. Returns
/// whether the file is sound.
pub(super) fn write(
    inspection: &Inspection,
    file: &Path,
    out: &mut impl Write,
) -> io::Result<bool> {
    let report = inspection.report();
    let name = json!(printable(file).to_string());
    write!(out, "{{\"file\":{},\"bytes\":{}", escaped(&name), report.length)?;
    let header = report.header.as_ref().map(|header| {
        json!({
            "version": header.version,
            "limit": header.limit,
            "size": header.size,
            "used": header.used,
            "created": seconds(header.created),
            "instance": hex(&header.instance),
            "clean": header.is_clean,
            "left": header.is_left,
            "boot": hex(&header.boot),
            "synced": seconds(header.synced),
            "synced_bytes": header.synced_bytes,
            "tokens": header.tokens,
        })
    });
    write!(out, ",\"header\":{}", json!(header))?;
    write!(out, ",\"open\":{}", json!(report.is_open))?;
    write!(out, ",\"processes\":{}", escaped(&owners(inspection, file)))?;
    let records = report.records.iter().map(|record| {
        json!({"kind": format!("{:?}", record.kind), "name": record.name, "at": record.at,
            "bytes": record.bytes})
    });
    write!(out, ",\"records\":{}", escaped(&Json::from_iter(records)))?;
    write!(out, ",\"claim_bytes\":{}", report.claim_bytes)?;
    write!(out, ",\"other_bytes\":{}", report.other_bytes())?;
    write!(out, ",\"families\":[")?;
    let mut damage = report.damage.clone();
    for (i, family) in report.families.iter().enumerate() {
        write!(out, "{}", if i == 0 { "\n" } else { ",\n" })?;
        damage.extend(write_family(inspection, family, out)?);
    }
    damage.sort_by(|one, other| (one.at, &one.message).cmp(&(other.at, &other.message)));
    damage.dedup();
    let listed = damage.iter().map(|Damage { at, message }| json!({"at": at, "what": message}));
    write!(out, "],\"left_out\":{}", inspection.left_out())?;
    writeln!(out, ",\"damage\":{}}}", escaped(&Json::from_iter(listed)))?;
    Ok(damage.is_empty())
}

/// Seconds of Unix time.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn owners(inspection: &Inspection, file: &Path) -> Json {
    let open = processes::find_open(file)
        .into_iter()
        .map(|process| json!({"pid": process.pid, "name": process.name, "state": process.state.to_string()}));
    let owners =
        inspection.report().owners.iter().map(
            |owner| json!({"token": owner.token, "alive": owner.is_alive, "has": owner.holding}),
        );
    let named = processes::gauge_processes(inspection).into_iter().map(|(token, (pid, is_alive))| {
        json!({"token": token, "alive": is_alive, "pid": pid, "has": "gauges of processes"})
    });
    json!({"open": Json::from_iter(open), "tokens": Json::from_iter(owners.chain(named))})
}

fn write_family(
    inspection: &Inspection,
    family: &FamilySeen,
    out: &mut impl Write,
) -> io::Result<Vec<Damage>> {
    let schema = &family.schema;
    let mut decoder = Decoder::new(schema);
    let labels = schema.labels.iter().filter(|label| label.name != ALONE);
    let labels = labels.map(|label| json!({"name": label.name, "values": label.values}));
    let about = json!({
        "name": schema.name,
        "help": schema.help,
        "unit": schema.unit,
        "type": decoder.kind().name(),
        "kind": decoder.kind_name(),
        "identity": decoder.identity(),
        "labels": Json::from_iter(labels),
        "limit": schema.limit,
        "idle_seconds": schema.idle.map(|idle| idle.as_secs_f64()),
        "created": seconds(family.created),
        "dense": family.is_dense,
        "lanes": family.lanes,
        "shown": family.series,
        "hidden": family.hidden,
        "overflowed": family.overflowed,
        "bytes": {
            "description": family.head_bytes,
            "series": family.series_bytes,
            "index": family.index_bytes,
            "free": family.free_bytes,
        },
    });
    let about = escaped(&about);
    write!(out, "{},\"series\":[", about.strip_suffix('}').unwrap_or(&about))?;
    let (mut written, mut is_first) = (Ok(()), true);
    let damage = each_series(inspection, family, |series| {
        if written.is_ok() {
            let comma = if is_first { "" } else { "," };
            is_first = false;
            written = write!(out, "{comma}\n{}", escaped(&series_json(&mut decoder, series)));
        }
    });
    written?;
    write!(out, "]}}")?;
    Ok(damage)
}

fn series_json(decoder: &mut Decoder, series: &SeriesSeen<'_>) -> Json {
    let labels = series.labels.iter().filter(|(name, _)| *name != ALONE);
    let labels: Map<String, Json> =
        labels.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let mut object = Map::new();
    object.insert("labels".into(), labels.into());
    object.insert("start".into(), json!(seconds(series.start)));
    for (name, is_so) in [("overflow", series.is_overflow), ("hidden", series.is_hidden)] {
        if is_so {
            object.insert(name.into(), true.into());
        }
    }
    object.insert("value".into(), value_json(decoder, series.cells));
    object.into()
}

/// A number, or a text if JSON has no such number.
pub(crate) fn float(n: f64) -> Json {
    if n.is_finite() { json!(n) } else { json!(number(n)) }
}

/// A number as it is.
pub(crate) fn exact(n: Number) -> Json {
    match n {
        Number::Unsigned(n) => json!(n),
        Number::Signed(n) => json!(n),
        Number::Float(n) => float(n),
    }
}

fn value_json(decoder: &mut Decoder, cells: &[u64]) -> Json {
    if !decoder.is_known() {
        return json!({"cells": cells});
    }
    let value = decoder.read(cells, |value| match value {
        Value::Counter { total: n, .. } | Value::Gauge(n) | Value::Unknown(n) => exact(n),
        Value::Histogram(histogram) => {
            let buckets = histogram.buckets.iter();
            let buckets: Vec<_> =
                buckets.map(|bucket| json!([float(bucket.bound), bucket.count as f64])).collect();
            let is_whole = !buckets.is_empty();
            json!({"sum": float(histogram.sum), "buckets": is_whole.then_some(buckets)})
        }
        Value::Summary { sum, count, .. } => json!({"sum": float(sum), "count": count as f64}),
        Value::StateSet(states) => {
            let states = states.iter().map(|(name, is_on)| ((*name).to_owned(), json!(is_on)));
            states.collect::<Map<_, _>>().into()
        }
        _ => json!(1),
    });
    value.into()
}
