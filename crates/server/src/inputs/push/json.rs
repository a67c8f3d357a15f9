//! The JSON of Pushgateway's API: `GET /api/v1/metrics` and `GET /api/v1/status`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use quipu::intake::Intake;
use quipu::snapshot::{Histogram, Native, Value as Sample};
use serde_json::{Map, Value, json};

use super::apply::full_labels;
use super::batch::{FAILURE_TIME, PUSH_TIME};
use super::groups::{Family, Group, Groups, Key, Nanos};
use super::packed;
use super::values;
use crate::http::{Response, text};

/// The response to `GET /api/v1/metrics`, made group by group.
#[derive(Debug)]
pub(super) struct Listing {
    keys: Vec<Key>,
    body: Vec<u8>,
}

impl Listing {
    /// Begins with these groups.
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys, body: br#"{"status":"success","data":["#.to_vec() }
    }

    /// Adds some groups. Returns the response after the last.
    pub(super) fn step(&mut self, groups: &Groups, intake: &mut Intake) -> Option<Response> {
        let mut left = SERIES;
        while let Some(key) = self.keys.pop() {
            let Some(group) = groups.group(&key).filter(|group| !group.is_expired()) else {
                continue;
            };
            if self.body.last() != Some(&b'[') {
                self.body.push(b',');
            }
            let object = describe(&key, group, intake);
            // Writing JSON to memory cannot fail.
            let _ = serde_json::to_writer(&mut self.body, &object);
            let series: usize = group.families().iter().map(|family| family.series.len()).sum();
            left = left.saturating_sub(series + 1);
            if left == 0 {
                return None;
            }
        }
        self.body.extend_from_slice(b"]}");
        Some(respond(std::mem::take(&mut self.body)))
    }
}

/// The response to `GET /api/v1/status`.
pub(super) fn status(flags: &BTreeMap<String, String>, started: SystemTime) -> Response {
    let build = json!({
        "branch": "", "buildDate": "", "buildUser": "", "goVersion": "", "revision": "",
        "version": env!("CARGO_PKG_VERSION"),
    });
    let data = json!({
        "build_information": build,
        "flags": flags,
        "start_time": time(started),
    });
    respond(json!({ "status": "success", "data": data }).to_string().into_bytes())
}

/// A group: its labels, its families by name, and whether the last push succeeded.
fn describe(key: &Key, group: &Group, intake: &mut Intake) -> Value {
    let labels: Map<String, Value> =
        packed::unpack(key).map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut object = Map::new();
    object.insert("labels".into(), labels.into());
    object.insert("last_push_successful".into(), (group.failed <= group.pushed).into());
    let changed = group.pushed.max(group.failed);
    let times = [(PUSH_TIME, group.pushed), (FAILURE_TIME, group.failed)];
    for (name, nanos) in times {
        let value = float(nanos as f64 / 1e9);
        let mut labels = Vec::new();
        full_labels(key, &[], &mut labels);
        let metric = json!({ "labels": map(&labels), "value": value });
        object.insert(name.into(), family_object(changed, "GAUGE", "", vec![metric]));
    }
    for family in group.families() {
        object.insert(family.name.to_string(), describe_family(key, family, intake));
    }
    object.into()
}

fn describe_family(key: &Key, family: &Family, intake: &mut Intake) -> Value {
    let mut metrics = Vec::with_capacity(family.series.len());
    let mut labels = Vec::new();
    let mut help = String::new();
    for own in family.series.iter() {
        full_labels(key, own, &mut labels);
        values::read(intake, &family.name, &labels, |taken| {
            if help.is_empty() {
                help.push_str(taken.help);
            }
            let mut metric = Map::new();
            metric.insert("labels".into(), map(&labels));
            put_sample(&mut metric, taken.value);
            metrics.push(metric.into());
        });
    }
    family_object(family.time, family.kind.name(), &help, metrics)
}

fn family_object(at: Nanos, kind: &str, help: &str, metrics: Vec<Value>) -> Value {
    let mut object = Map::new();
    object.insert("time_stamp".into(), time(UNIX_EPOCH + Duration::from_nanos(at)).into());
    object.insert("type".into(), kind.into());
    if !help.is_empty() {
        object.insert("help".into(), help.into());
    }
    object.insert("metrics".into(), metrics.into());
    object.into()
}

fn map(labels: &[(&str, &str)]) -> Value {
    let pairs = labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    pairs.collect::<Map<_, _>>().into()
}

fn put_sample(metric: &mut Map<String, Value>, sample: &Sample<'_>) {
    let mut put = |name: &str, value: Value| {
        metric.insert(name.to_owned(), value);
    };
    match sample {
        Sample::Counter { total, .. } => put("value", float(total.as_f64()).into()),
        Sample::Gauge(value) | Sample::Unknown(value) => {
            put("value", float(value.as_f64()).into());
        }
        Sample::Summary { quantiles, count, sum } => {
            let quantiles = quantiles.iter().map(|(at, value)| (float(*at), float(*value).into()));
            put("quantiles", quantiles.collect::<Map<_, _>>().into());
            put("count", count.to_string().into());
            put("sum", float(*sum).into());
        }
        Sample::Histogram(histogram) => {
            put("count", histogram.count.to_string().into());
            put("sum", float(histogram.sum).into());
            put("buckets", buckets(histogram));
        }
        _ => {}
    }
}

/// Classic buckets by bound with cumulative counts, or the native ones in the form of Prometheus'
/// API: which bounds are inclusive, the bounds, and the count.
fn buckets(histogram: &Histogram<'_>) -> Value {
    if let Some(native) = histogram.native.filter(|_| histogram.buckets.is_empty()) {
        return native_buckets(&native);
    }
    let mut before = 0;
    let mut counts = Map::new();
    for bucket in histogram.buckets {
        before += bucket.count;
        counts.insert(float(bucket.bound), before.to_string().into());
    }
    counts.into()
}

fn native_buckets(native: &Native<'_>) -> Value {
    let base = 2_f64.powf(2_f64.powi(-i32::from(native.schema)));
    let bound = |index: i32| base.powi(index);
    let mut buckets = Vec::new();
    for (index, count) in native.negative.iter().rev() {
        let (lower, upper) = (float(-bound(*index)), float(-bound(*index - 1)));
        buckets.push(json!([1, lower, upper, count.to_string()]));
    }
    if native.zero_count > 0 {
        let width = native.zero_threshold;
        buckets.push(json!([3, float(-width), float(width), native.zero_count.to_string()]));
    }
    for (index, count) in native.positive {
        let (lower, upper) = (float(bound(*index - 1)), float(bound(*index)));
        buckets.push(json!([0, lower, upper, count.to_string()]));
    }
    buckets.into()
}

/// A number as Go prints it (`%v`): the shortest digits, with an exponent if that is 6 or more, or
/// less than -4.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let digits = format!("{value:e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{value}"),
    }
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_nanos(time).to_string()
}

/// The response to `OPTIONS`.
pub(super) fn options() -> Response {
    respond(Vec::new())
}

/// A response with the headers of Pushgateway's API.
fn respond(body: Vec<u8>) -> Response {
    let mut response = text(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, must-revalidate"));
    for (name, value) in CORS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

const CORS: [(&str, &str); 4] = [
    ("access-control-allow-headers", "Accept, Authorization, Content-Type, Origin"),
    ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
    ("access-control-allow-origin", "*"),
    ("access-control-expose-headers", "Date"),
];

/// How many series a step lists, in about 100 us.
const SERIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_go() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (123_456.0, "123456"),
            (1_795_386_986.5, "1.7953869865e+09"),
            (1e20, "1e+20"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "+Inf"),
            (-1.25, "-1.25"),
        ] {
            assert_eq!(float(value), expected);
        }
    }
}
