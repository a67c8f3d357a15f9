//! The JSON responses of Pushgateway's API: `GET /api/v1/metrics` and `GET /api/v1/status`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use quipu::intake::Intake;
use quipu::snapshot::{CounterValue, HistogramValue, Native, SummaryValue, Value as Sample};
use serde_json::{Map, Value, json};

use super::builder::{FAILURE_HELP, FAILURE_TIME, PUSH_HELP, PUSH_TIME};
use super::groups::{Group, GroupFamily, Groups, Key, Nanos};
use super::packed;
use super::update::full_labels;
use super::values;
use quipu_http::{Response, text};
use quipu_process::memory;

/// The response to `GET /api/v1/metrics` under construction. A step adds a few series, because a
/// response with all groups can take long.
#[derive(Debug)]
pub(super) struct Listing {
    keys: Vec<Key>,
    group: Option<CurrentGroup>,
    body: Vec<u8>,
}

/// The group that is being written, copied when its turn began.
#[derive(Debug)]
struct CurrentGroup {
    key: Key,
    /// The remaining families in reverse order; the next one is at the end.
    families: Vec<GroupFamily>,
    /// The byte position of the next series of the current family.
    at: usize,
}

impl Listing {
    /// Begins a listing of these groups.
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys, group: None, body: br#"{"status":"success","data":["#.to_vec() }
    }

    /// Reserves memory for the next step. Returns false if there is not enough.
    pub(super) fn reserve(&mut self) -> bool {
        memory::reserve(&mut self.body, STEP_BYTES)
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn held(&self) -> usize {
        let families = self.group.as_ref().map_or(0, |current| current.families.len());
        self.body.len()
            + self.keys.capacity() * size_of::<Key>()
            + families * size_of::<GroupFamily>()
    }

    /// Adds some series. Returns the complete body after the last series.
    pub(super) fn step(&mut self, groups: &Groups, intake: &mut Intake) -> Option<Vec<u8>> {
        let mut left = SERIES;
        loop {
            while let Some(current) = &mut self.group {
                let Some(family) = current.families.last() else {
                    self.body.push(b'}');
                    self.group = None;
                    break;
                };
                if left == 0 {
                    return None;
                }
                left -= 1;
                current.at = put_series(&mut self.body, &current.key, family, current.at, intake);
                if current.at == DONE {
                    current.families.pop();
                    current.at = 0;
                }
            }
            // We count a group like a series, because an empty group takes time, too.
            if left == 0 {
                return None;
            }
            left -= 1;
            let Some(key) = self.keys.pop() else {
                self.body.extend_from_slice(b"]}");
                return Some(std::mem::take(&mut self.body));
            };
            if let Some(group) = groups.group(&key).filter(|group| !group.is_expired()) {
                if self.body.last() != Some(&b'[') {
                    self.body.push(b',');
                }
                put_group(&mut self.body, &key, group);
                let families = group.families().iter().rev().cloned().collect();
                self.group = Some(CurrentGroup { key, families, at: 0 });
            }
        }
    }
}

/// Returns the response to `GET /api/v1/status`.
pub(super) fn status(
    flags: &BTreeMap<String, String>,
    started: SystemTime,
    reader: Option<HeaderValue>,
) -> Response {
    let build = json!({
        "branch": "", "buildDate": "", "buildUser": "", "goVersion": "", "revision": "",
        "version": env!("CARGO_PKG_VERSION"),
    });
    let data = json!({
        "build_information": build,
        "flags": flags,
        "start_time": time(started),
    });
    respond(json!({ "status": "success", "data": data }).to_string().into_bytes(), reader)
}

/// Writes the labels and times of a group. Leaves the JSON object open for its families.
fn put_group(body: &mut Vec<u8>, key: &Key, group: &Group) {
    let labels: Map<String, Value> =
        packed::unpack(key).map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut object = Map::new();
    object.insert("labels".into(), labels.into());
    object.insert("last_push_successful".into(), (group.failed <= group.pushed).into());
    let changed = time_of(group.pushed.max(group.failed));
    let mut labels = Vec::new();
    full_labels(key, &[], &mut labels);
    let times = [(PUSH_TIME, PUSH_HELP, group.pushed), (FAILURE_TIME, FAILURE_HELP, group.failed)];
    for (name, help, nanos) in times {
        let metric = json!({ "labels": map(&labels), "value": float(nanos as f64 / 1e9) });
        let metrics = [metric];
        let family = json!({
            "time_stamp": changed, "type": "GAUGE", "help": help, "metrics": metrics
        });
        object.insert(name.into(), family);
    }
    put(body, &object.into());
    // We remove the closing brace, because the families follow.
    body.pop();
}

/// Writes a series. The first series of a family also begins the family, and the last one ends it.
/// Returns the position of the next series, or [`DONE`].
fn put_series(
    body: &mut Vec<u8>,
    key: &Key,
    family: &GroupFamily,
    at: usize,
    intake: &mut Intake,
) -> usize {
    let (own, next) = family.series.next(at).unwrap_or((&[], DONE));
    let mut labels = Vec::new();
    full_labels(key, own, &mut labels);
    let mut help = String::new();
    let mut metric = Map::new();
    values::read(intake, &family.name, &labels, |taken| {
        help.push_str(taken.help);
        metric.insert("labels".into(), map(&labels));
        put_sample(&mut metric, taken.value);
    });
    if at == 0 {
        body.push(b',');
        put(body, &(&*family.name).into());
        body.push(b':');
        let time = time_of(family.time);
        let mut about = json!({ "time_stamp": time, "type": family.kind.name() });
        if !help.is_empty() {
            about["help"] = help.into();
        }
        put(body, &about);
        body.pop();
        body.extend_from_slice(br#","metrics":["#);
    }
    if !metric.is_empty() {
        if body.last() != Some(&b'[') {
            body.push(b',');
        }
        put(body, &metric.into());
    }
    if family.series.next(next).is_some() {
        return next;
    }
    body.extend_from_slice(b"]}");
    DONE
}

/// The position after the last series of a family.
const DONE: usize = usize::MAX;

fn put(body: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory cannot fail.
    let _ = serde_json::to_writer(body, value);
}

fn time_of(nanos: Nanos) -> String {
    time(UNIX_EPOCH + Duration::from_nanos(nanos))
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
        Sample::Counter(CounterValue { total, .. }) => put("value", float(total.as_f64()).into()),
        Sample::Gauge(value) | Sample::Unknown(value) => {
            put("value", float(value.as_f64()).into());
        }
        Sample::Summary(SummaryValue { quantiles, count, sum, .. }) => {
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

/// Formats classic buckets as an object from bounds to cumulative counts, and native buckets like
/// Prometheus' API: which bounds are inclusive, both bounds, and the count.
fn buckets(histogram: &HistogramValue<'_>) -> Value {
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
    let bound = |index: i32| upper_bound(native.schema, index);
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

/// Returns the upper bound of a native bucket: `2^(index / 2^schema)`. The integer part of the
/// exponent is applied separately, because powers of two should be exact.
fn upper_bound(schema: i8, index: i32) -> f64 {
    if schema < 0 {
        return 2_f64.powi(index.saturating_mul(1 << -schema.max(-8)));
    }
    let schema = schema.min(8);
    let part = index & ((1 << schema) - 1);
    let part = 2_f64.powf(f64::from(part) / f64::from(1 << schema));
    part * 2_f64.powi(index >> schema)
}

/// Formats a number like Go's `%v`: the shortest digits that identify it, with an exponent below
/// 1e-4 and from 1e6 on.
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

/// Returns the response to `OPTIONS`, which has no body.
pub(super) fn options(reader: Option<HeaderValue>) -> Response {
    let mut response = respond(Vec::new(), reader);
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// Returns a response with the headers of Pushgateway's API. Pushgateway allows all web pages to
/// read it; we allow only the daemon's own pages and the `reader` origin.
pub(super) fn respond(body: Vec<u8>, reader: Option<HeaderValue>) -> Response {
    let mut response = text(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, must-revalidate"));
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = reader {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in CORS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    response
}

const CORS: [(&str, &str); 3] = [
    ("access-control-allow-headers", "Accept, Authorization, Content-Type, Origin"),
    ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS"),
    ("access-control-expose-headers", "Date"),
];

/// The number of series and groups per step, which takes about 100 us.
const SERIES: usize = 64;
/// The memory to reserve per step in bytes, which is more than most steps add.
const STEP_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_powers_of_two_are_exact() {
        for (schema, index, expected) in [
            (3, 0, 1.0),
            (3, 8, 2.0),
            (3, -8, 0.5),
            (0, 10, 1024.0),
            (-2, 2, 256.0),
            (1, 1, std::f64::consts::SQRT_2),
        ] {
            assert_eq!(upper_bound(schema, index), expected);
        }
    }

    #[test]
    fn numbers_have_the_format_of_go() {
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
