//! Encodes families for inputs with binary messages, such as protobuf, OTLP, remote write and
//! segments.

use std::fmt::Write as _;
use std::path::Path;

use quipu::label::Values;
use quipu::{
    Counter, CounterFamily, Description, FloatCounterFamily, GaugeFamily, HistogramFamily, Info,
    Registry, StateSet, SummaryFamily,
};
use quipu_segment::series::{Identity, Label as SeriesLabel, Schema};
use quipu_segment::{Options, Segment};
use quipu_wire::remote::write::{
    FamilyMetadata, HistogramSample, Metadata, RemoteWrite1, RemoteWrite2, Sample, SeriesType,
};

use crate::program::{Family, kind, segment};

/// Registers families and counts in each. A family that the library refuses is omitted.
pub fn register(registry: &Registry, families: &[Family], argument: u8) {
    for family in families {
        let mut about = Description::new(&family.name, &family.help).unit(&family.unit);
        if argument & segment::VERBATIM != 0 {
            about = about.verbatim();
        }
        if argument & segment::VARIANT != 0 {
            about = about.variant();
        }
        // The library may refuse any family, but if it accepts one, we must be able to read it.
        let _ = register_one(registry, family, about.exemplars());
    }
}

fn register_one(
    registry: &Registry,
    family: &Family,
    about: Description,
) -> Result<(), quipu::Error> {
    let Family { labels, values, .. } = family;
    let names = labels.iter().map(|(name, _)| name.as_str());
    let texts: Vec<&str> = labels.iter().map(|(_, value)| value.as_str()).collect();
    let texts = Values(&texts);
    let labelled = about.clone().labels(names);
    match family.kind {
        kind::COUNTER if labels.is_empty() => {
            let counter: Counter = registry.register(about)?;
            counter.inc_with_exemplar(1, &[("a b", "1"), ("a_b", "2")]);
        }
        kind::COUNTER if values.iter().any(|value| value.fract() != 0.0) => {
            let counters: FloatCounterFamily<Values> = registry.register(labelled)?;
            values.iter().for_each(|value| counters.inc_by(&texts, *value));
        }
        kind::COUNTER => {
            let counters: CounterFamily<Values> = registry.register(labelled)?;
            counters.inc(&texts);
        }
        kind::HISTOGRAM | kind::NATIVE => {
            let about = match family.kind {
                kind::NATIVE if values.is_empty() => labelled.native(2),
                kind::NATIVE => labelled.native(2).buckets(values.iter().copied()),
                _ => labelled.buckets(values.iter().copied()),
            };
            let histograms: HistogramFamily<Values> = registry.register(about)?;
            let histogram = histograms.bind(&texts);
            values.iter().for_each(|value| histogram.observe_with_exemplar(*value, &[("id", "1")]));
        }
        kind::SUMMARY => {
            let about = labelled.quantiles(values.iter().copied());
            let summaries: SummaryFamily<Values> = registry.register(about)?;
            summaries.observe(&texts, 1.5);
        }
        kind::INFO => {
            let about = labels
                .iter()
                .fold(about, |about, (name, value)| about.values(name.clone(), [value.clone()]));
            let _: Info = registry.register(about)?;
        }
        kind::STATE_SET => {
            let states = labels.iter().map(|(_, value)| value.as_str());
            let states: StateSet<&str> = registry.register(about.states(states))?;
            states.set_index(0);
        }
        _ => {
            let gauges: GaugeFamily<Values> = registry.register(labelled)?;
            gauges.set(&texts, values.first().copied().unwrap_or(1.0));
        }
    }
    Ok(())
}

/// Writes a segment file with these families.
pub fn write_segment(path: &Path, families: &[Family], argument: u8) {
    let options = Options::new().limit(1 << 22);
    let Ok(file): Result<Segment, _> = options.open_or_create(path) else { return };
    if argument & segment::HOSTILE == 0 {
        register(&Registry::from_segment(file), families, argument);
        return;
    }
    for family in families {
        let labels = family.labels.iter();
        let labels = labels.map(|(name, _)| SeriesLabel { name: name.clone(), values: None });
        let mut schema = Schema {
            name: family.name.clone(),
            help: family.help.clone(),
            unit: family.unit.clone(),
            cells: 1,
            labels: labels.collect(),
            identity: Identity::Variant,
            ..Schema::default()
        };
        let bytes = family.values.iter().flat_map(|value| value.to_le_bytes());
        // These are the numbers and settings of kinds in `quipu::kind`.
        match family.kind {
            kind::COUNTER => schema.kind = 1,
            kind::HISTOGRAM | kind::NATIVE => {
                let is_native = family.kind == kind::NATIVE;
                (schema.kind, schema.floats) = (5, 1);
                schema.cells = 2 + family.values.len() as u16 + 2 * u16::from(is_native);
                schema.settings = vec![0, u8::from(is_native), 2, 0, 160, 0, 0, 0];
                schema.settings.extend(0.5_f64.to_le_bytes());
                schema.settings.extend(bytes);
            }
            kind::SUMMARY => {
                (schema.kind, schema.cells, schema.floats, schema.additive) = (6, 3, 2, true);
                schema.settings = 1_000_000_000_u64.to_le_bytes().to_vec();
                schema.settings.extend(bytes);
            }
            kind::INFO => schema.kind = 7,
            kind::STATE_SET => {
                schema.kind = 8;
                schema.cells = family.labels.len().max(1) as u16;
                let states: Vec<&str> = family.labels.iter().map(|(_, value)| &**value).collect();
                schema.settings = states.join("\0").into_bytes();
                schema.labels.clear();
            }
            kind::UNKNOWN => (schema.kind, schema.floats) = (11, 1),
            _ => (schema.kind, schema.floats) = (3, 1),
        }
        let Ok(made) = file.family(&schema) else { continue };
        for cell in 0..usize::from(schema.cells) {
            let add = |key: &mut quipu_segment::series::KeyWriter<'_>| {
                schema.labels.iter().zip(&family.labels).for_each(|(_, (_, text))| key.text(text));
            };
            made.add(add, cell, 1);
        }
    }
}

/// Returns a remote write request, version 1 or 2, before compression.
pub fn remote_write(families: &[Family], is_second: bool, now_ms: i64) -> Vec<u8> {
    let (mut first, mut second) = (RemoteWrite1::new(), RemoteWrite2::new());
    for family in families {
        let series_type = [
            SeriesType::Counter,
            SeriesType::Gauge,
            SeriesType::Histogram,
            SeriesType::Histogram,
            SeriesType::Summary,
            SeriesType::Info,
            SeriesType::StateSet,
            SeriesType::Unknown,
        ][usize::from(family.kind)];
        let mut put = |suffix: &str, own: Option<(&str, String)>, value: f64| {
            let name = format!("{}{suffix}", family.name);
            let mut labels = vec![("__name__", name.as_str())];
            labels
                .extend(family.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            labels.extend(own.as_ref().map(|(name, value)| (*name, value.as_str())));
            labels.sort_by_key(|label| label.0);
            // This request is skipped, because no sender can write its labels.
            if is_second {
                let metadata = Metadata::new(series_type, &family.help, &family.unit);
                let sample = Sample::new(value, now_ms, None);
                let _ = second.push_sample(&labels, &metadata, &sample);
            } else {
                let _ = first.push(&labels, value, now_ms);
            }
        };
        match family.kind {
            kind::HISTOGRAM => {
                for (at, bound) in family.values.iter().enumerate() {
                    put("_bucket", Some(("le", bound.to_string())), at as f64);
                }
                let count = family.values.len() as f64;
                put("_bucket", Some(("le", "+Inf".into())), count);
                put("_sum", None, 1.0);
                put("_count", None, count);
            }
            kind::SUMMARY => {
                for quantile in &family.values {
                    put("", Some(("quantile", quantile.to_string())), 1.0);
                }
                put("_sum", None, 1.0);
                put("_count", None, 2.0);
            }
            kind::NATIVE => {
                let value = family.values.first().copied().unwrap_or(1.0);
                let mut native = HistogramSample::new(now_ms, 3.0, value, 1);
                let buckets = [(-3, 1.0), (2, 2.0)];
                native.positive = &buckets;
                if family.values.len() > 1 {
                    native.schema = HistogramSample::CUSTOM;
                    native.custom_bounds = &family.values;
                }
                let mut labels = vec![("__name__", family.name.as_str())];
                labels.extend(
                    family.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())),
                );
                labels.sort_by_key(|label| label.0);
                let metadata = Metadata::new(series_type, &family.help, &family.unit);
                if is_second {
                    let _ = second.push_histogram(&labels, &metadata, &native);
                } else {
                    let _ = first.push_histogram(&labels, &native);
                }
            }
            _ => put("", None, family.values.first().copied().unwrap_or(1.0)),
        }
        if !is_second {
            let metadata = Metadata::new(series_type, &family.help, &family.unit);
            first.push_family(&FamilyMetadata::new(&family.name, metadata));
        }
    }
    let mut request = Vec::new();
    if is_second {
        second.finish(&mut request)
    } else {
        first.finish(&mut request)
    }
    let mut body = Vec::new();
    quipu_wire::remote::snappy::compress(&request, &mut body).expect("it is short");
    body
}

/// Returns an OTLP request in JSON. The lowest bit of `argument` makes the values deltas, and the
/// next bit makes the labels attributes of the resource.
pub fn otlp(families: &[Family], argument: u8, now_ns: u64) -> Vec<u8> {
    let temporality = 2 - (argument & 1);
    let mut metrics = Vec::new();
    let mut resource = String::new();
    for family in families {
        let Family { kind, name, unit, help, labels, values } = family;
        let attributes = labels.iter().map(|(name, value)| {
            format!("{{\"key\":{},\"value\":{{\"stringValue\":{}}}}}", json(name), json(value))
        });
        let mut attributes = attributes.collect::<Vec<_>>().join(",");
        if argument & 2 != 0 {
            resource = std::mem::take(&mut attributes);
        }
        let value = number(values.first().copied().unwrap_or(1.0));
        let point = format!(
            "\"attributes\":[{attributes}],\"startTimeUnixNano\":\"1\",\"timeUnixNano\":\"{now_ns}\""
        );
        let list = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>();
        let counts = |length: usize| vec!["1"; length].join(",");
        let data = match *kind {
            kind::COUNTER | kind::INFO => format!(
                "\"sum\":{{\"aggregationTemporality\":{temporality},\"isMonotonic\":true,\
                 \"dataPoints\":[{{{point},\"asDouble\":{value}}}]}}"
            ),
            kind::HISTOGRAM => format!(
                "\"histogram\":{{\"aggregationTemporality\":{temporality},\"dataPoints\":[{{{point},\
                 \"count\":{},\"sum\":1,\"bucketCounts\":[{}],\"explicitBounds\":[{}]}}]}}",
                values.len() + 1,
                counts(values.len() + 1),
                list(values).join(",")
            ),
            kind::NATIVE => format!(
                "\"exponentialHistogram\":{{\"aggregationTemporality\":{temporality},\
                 \"dataPoints\":[{{{point},\"count\":3,\"sum\":1,\"scale\":3,\"zeroCount\":1,\
                 \"positive\":{{\"offset\":{},\"bucketCounts\":[1,1]}}}}]}}",
                values.first().map_or(0, |value| *value as i32)
            ),
            kind::SUMMARY => format!(
                "\"summary\":{{\"dataPoints\":[{{{point},\"count\":2,\"sum\":1,\
                 \"quantileValues\":[{}]}}]}}",
                values
                    .iter()
                    .map(|value| format!("{{\"quantile\":{},\"value\":1}}", number(*value)))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            _ => format!("\"gauge\":{{\"dataPoints\":[{{{point},\"asDouble\":{value}}}]}}"),
        };
        metrics.push(format!(
            "{{\"name\":{},\"description\":{},\"unit\":{},{data}}}",
            json(name),
            json(help),
            json(unit)
        ));
    }
    format!(
        "{{\"resourceMetrics\":[{{\"resource\":{{\"attributes\":[{resource}]}},\
         \"scopeMetrics\":[{{\"metrics\":[{}]}}]}}]}}",
        metrics.join(",")
    )
    .into_bytes()
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "\"NaN\"".into()
    } else if value.is_infinite() {
        if value > 0.0 { "\"Infinity\"".into() } else { "\"-Infinity\"".into() }
    } else {
        format!("{value:e}")
    }
}

fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}
