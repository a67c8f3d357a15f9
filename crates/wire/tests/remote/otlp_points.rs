//! The OTLP reader returns the same fields that prost encoded.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use quipu_wire::remote::{
    self,
    otlp::{AttributeValue, MetricsReader, Number, Point, PointValue, Progress, Temporality},
};

use crate::oracle::otlp::{self, AnyValueKind, Data, NumberValue};

/// Returns a request that uses each field of the schema.
pub(crate) fn request() -> otlp::Request {
    use AnyValueKind::{Array, Bool, Bytes, Double, Int, Text};
    let any = |value| otlp::AnyValue { value: Some(value) };
    let array = otlp::Array { values: vec![any(Int(1)), any(Text("a".into()))] };
    let attributes = |values: Vec<AnyValueKind>| -> Vec<otlp::KeyValue> {
        let pair = |value| otlp::KeyValue { key: "k".into(), value: Some(any(value)) };
        values.into_iter().map(pair).collect()
    };
    let mut all = attributes(vec![
        Text("t".into()),
        Bool(true),
        Int(-5),
        Double(0.5),
        Array(array),
        Bytes(vec![0, 255]),
    ]);
    all.push(otlp::KeyValue { key: "none".into(), value: None });
    let exemplar = otlp::Exemplar {
        filtered_attributes: all[..2].to_vec(),
        time_unix_nano: 8,
        value: Some(otlp::ExemplarValue::AsDouble(0.5)),
        span_id: vec![1; 8],
        trace_id: vec![2; 16],
    };
    let number = otlp::NumberDataPoint {
        attributes: all.clone(),
        start_time_unix_nano: 1,
        time_unix_nano: 9,
        value: Some(NumberValue::AsInt(-3)),
        exemplars: vec![exemplar.clone(), otlp::Exemplar::default()],
        flags: 1,
    };
    let histogram = otlp::HistogramDataPoint {
        count: 3,
        sum: Some(1.5),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![0.5],
        exemplars: vec![exemplar.clone()],
        min: Some(0.1),
        max: Some(0.9),
        ..Default::default()
    };
    let buckets = |offset| Some(otlp::Buckets { offset, bucket_counts: vec![1, 0, 300] });
    let exponential = otlp::ExponentialDataPoint {
        attributes: all[..1].to_vec(),
        count: 605,
        sum: Some(-1.0),
        scale: -3,
        zero_count: 3,
        positive: buckets(-7),
        negative: buckets(7),
        exemplars: vec![exemplar],
        zero_threshold: 0.25,
        ..Default::default()
    };
    let value = |quantile| otlp::ValueAtQuantile { quantile, value: 7.0 };
    let summary = otlp::SummaryDataPoint {
        count: 4,
        sum: 2.0,
        quantile_values: vec![value(0.5), value(0.9)],
        ..Default::default()
    };
    let metric = |data| otlp::Metric {
        name: "m".into(),
        description: "What it is.".into(),
        unit: "s".into(),
        data: Some(data),
        metadata: all[..1].to_vec(),
    };
    let sum = otlp::Sum {
        data_points: vec![number.clone(), otlp::NumberDataPoint::default()],
        aggregation_temporality: 1,
        is_monotonic: true,
    };
    let data = [
        Data::Gauge(otlp::Gauge { data_points: vec![number] }),
        Data::Sum(sum),
        Data::Histogram(otlp::Histogram {
            data_points: vec![histogram],
            aggregation_temporality: 2,
        }),
        Data::Exponential(otlp::Exponential {
            data_points: vec![exponential],
            aggregation_temporality: 7,
        }),
        Data::Summary(otlp::Summary { data_points: vec![summary] }),
    ];
    let scope =
        otlp::Scope { name: "library".into(), version: "1".into(), attributes: all[..1].to_vec() };
    let resource = otlp::Resource { attributes: all.clone(), dropped_attributes_count: 1 };
    let scope_metrics = otlp::ScopeMetrics {
        scope: Some(scope),
        metrics: data.into_iter().map(metric).collect(),
        schema_url: "https://example.com/scope".into(),
    };
    let empty = otlp::ResourceMetrics {
        scope_metrics: vec![otlp::ScopeMetrics::default(); 2],
        ..Default::default()
    };
    let full = otlp::ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope_metrics.clone(), otlp::ScopeMetrics::default(), scope_metrics],
        schema_url: "https://example.com".into(),
    };
    otlp::Request { resource_metrics: vec![empty, full.clone(), full] }
}

/// Formats each point of prost's types.
pub(crate) fn expected(request: &otlp::Request) -> Vec<String> {
    let mut points = Vec::new();
    for resource_metrics in &request.resource_metrics {
        let resource = resource_metrics.resource.as_ref().map(|r| attributes(&r.attributes));
        for scope_metrics in &resource_metrics.scope_metrics {
            let scope = scope_metrics.scope.clone().unwrap_or_default();
            let head = format!(
                "{} / {} {} {} {}",
                resource.clone().unwrap_or_default(),
                scope.name,
                scope.version,
                scope_metrics.schema_url,
                attributes(&scope.attributes)
            );
            for metric in &scope_metrics.metrics {
                let otlp::Metric { name, description, unit, .. } = metric;
                let head = format!("{head} / {name} {description} {unit} / ");
                let mut push = |text: String| points.push(head.clone() + &text);
                match &metric.data {
                    None => {}
                    Some(Data::Gauge(gauge)) => {
                        let numbers = gauge.data_points.iter().map(number);
                        numbers.for_each(|(point, value)| push(format!("{point} gauge {value:?}")));
                    }
                    Some(Data::Sum(sum)) => sum.data_points.iter().map(number).for_each(|it| {
                        let (monotonic, from) = (sum.is_monotonic, sum.aggregation_temporality);
                        let (point, value) = it;
                        push(format!("{point} sum {value:?} {monotonic} {}", kind(from)));
                    }),
                    Some(Data::Histogram(all)) => all.data_points.iter().for_each(|p| {
                        let point = head_of(
                            &p.attributes,
                            [p.start_time_unix_nano, p.time_unix_nano],
                            p.flags,
                            &p.exemplars,
                        );
                        push(format!(
                            "{point} histogram {} {:?} {:?} {:?} {:?} {:?} {}",
                            p.count,
                            p.sum,
                            p.min,
                            p.max,
                            p.bucket_counts,
                            p.explicit_bounds,
                            kind(all.aggregation_temporality)
                        ));
                    }),
                    Some(Data::Exponential(all)) => all.data_points.iter().for_each(|p| {
                        let point = head_of(
                            &p.attributes,
                            [p.start_time_unix_nano, p.time_unix_nano],
                            p.flags,
                            &p.exemplars,
                        );
                        let positive = p.positive.clone().unwrap_or_default();
                        let negative = p.negative.clone().unwrap_or_default();
                        push(format!(
                            "{point} exponential {} {:?} {:?} {:?} {} {} {:?} {} {:?} {} {:?} {}",
                            p.count,
                            p.sum,
                            p.min,
                            p.max,
                            p.scale,
                            p.zero_count,
                            p.zero_threshold,
                            positive.offset,
                            positive.bucket_counts,
                            negative.offset,
                            negative.bucket_counts,
                            kind(all.aggregation_temporality)
                        ));
                    }),
                    Some(Data::Summary(all)) => all.data_points.iter().for_each(|p| {
                        let times = [p.start_time_unix_nano, p.time_unix_nano];
                        let point = head_of(&p.attributes, times, p.flags, &[]);
                        let quantiles = p.quantile_values.iter().map(|v| (v.quantile, v.value));
                        let quantiles: Vec<(f64, f64)> = quantiles.collect();
                        push(format!("{point} summary {} {:?} {quantiles:?}", p.count, p.sum));
                    }),
                }
            }
        }
    }
    points
}

fn number(point: &otlp::NumberDataPoint) -> (String, Option<Number>) {
    let times = [point.start_time_unix_nano, point.time_unix_nano];
    let value = point.value.as_ref().map(|value| match *value {
        NumberValue::AsDouble(number) => Number::Double(number),
        NumberValue::AsInt(number) => Number::Int(number),
    });
    (head_of(&point.attributes, times, point.flags, &point.exemplars), value)
}

fn head_of(
    all: &[otlp::KeyValue],
    times: [u64; 2],
    flags: u32,
    exemplars: &[otlp::Exemplar],
) -> String {
    let exemplars: Vec<String> = exemplars
        .iter()
        .map(|e| {
            let value = e.value.as_ref().map(|value| match *value {
                otlp::ExemplarValue::AsDouble(number) => Number::Double(number),
                otlp::ExemplarValue::AsInt(number) => Number::Int(number),
            });
            let attributes = attributes(&e.filtered_attributes);
            format!("{} {value:?} {:?} {:?} {attributes}", e.time_unix_nano, e.span_id, e.trace_id)
        })
        .collect();
    format!("{} {times:?} {} {exemplars:?}", attributes(all), flags & 1 == 1)
}

fn kind(temporality: i32) -> &'static str {
    match temporality {
        1 => "Delta",
        2 => "Cumulative",
        _ => "Unknown",
    }
}

fn attributes(attributes: &[otlp::KeyValue]) -> String {
    let pairs = attributes.iter().map(|pair| {
        let value = pair.value.as_ref().and_then(|any| any.value.as_ref());
        format!("{:?}={}", pair.key, value.map_or("nothing".into(), shown))
    });
    pairs.collect::<Vec<_>>().join(",")
}

fn shown(value: &AnyValueKind) -> String {
    match value {
        AnyValueKind::Text(text) => format!("{text:?}"),
        AnyValueKind::Bool(value) => format!("{value:?}"),
        AnyValueKind::Int(value) => format!("{value:?}"),
        AnyValueKind::Double(value) => format!("{value:?}"),
        AnyValueKind::Bytes(value) => format!("{value:?}"),
        AnyValueKind::Array(array) => {
            let item = |item: &otlp::AnyValue| item.value.as_ref().map_or("nothing".into(), shown);
            format!("list {:?}", array.values.iter().map(item).collect::<Vec<_>>())
        }
    }
}

/// Formats a point of our reader in the same way.
fn seen(point: &Point<'_, '_>) -> String {
    let scope = point.scope;
    format!(
        "{} / {} {} {} {} / {}",
        read_attributes(point.resource.attributes),
        scope.name,
        scope.version,
        scope.schema_url,
        read_attributes(scope.attributes),
        seen_alone(point),
    )
}

/// Formats a point without its resource and scope.
pub(crate) fn seen_alone(point: &Point<'_, '_>) -> String {
    let metric = point.metric;
    let exemplars = point.exemplars.iter().map(|e| {
        let attributes = read_attributes(point.exemplar_attributes(e));
        let time = e.time_ns.unwrap_or(0);
        format!("{time} {:?} {:?} {:?} {attributes}", e.value, e.span_id, e.trace_id)
    });
    let exemplars: Vec<String> = exemplars.collect();
    let head = format!(
        "{} {} {} / {} {:?} {} {exemplars:?}",
        metric.name,
        metric.description,
        metric.unit,
        read_attributes(point.attributes),
        [point.start_ns, point.time_ns].map(|time| time.unwrap_or(0)),
        point.no_recorded_value,
    );
    let kind = |temporality: Temporality| format!("{temporality:?}");
    let value = match point.value {
        PointValue::Gauge(value) => format!("gauge {value:?}"),
        PointValue::Sum { value, monotonic, temporality } => {
            format!("sum {value:?} {monotonic} {}", kind(temporality))
        }
        PointValue::Histogram { point: p, temporality } => format!(
            "histogram {} {:?} {:?} {:?} {:?} {:?} {}",
            p.count,
            p.sum,
            p.min,
            p.max,
            p.buckets,
            p.bounds,
            kind(temporality)
        ),
        PointValue::Exponential { point: p, temporality } => format!(
            "exponential {} {:?} {:?} {:?} {} {} {:?} {} {:?} {} {:?} {}",
            p.count,
            p.sum,
            p.min,
            p.max,
            p.scale,
            p.zero_count,
            p.zero_threshold,
            p.positive.offset,
            p.positive.counts,
            p.negative.offset,
            p.negative.counts,
            kind(temporality)
        ),
        PointValue::Summary(p) => format!("summary {} {:?} {:?}", p.count, p.sum, p.quantiles),
        other => panic!("{other:?}"),
    };
    format!("{head} {value}")
}

fn read_attributes(attributes: &[remote::otlp::Attribute<'_>]) -> String {
    let pairs = attributes.iter().map(|(key, value)| format!("{key:?}={}", read_value(*value)));
    pairs.collect::<Vec<_>>().join(",")
}

fn read_value(value: AttributeValue<'_>) -> String {
    match value {
        AttributeValue::Empty => "nothing".into(),
        AttributeValue::Text(text) => format!("{text:?}"),
        AttributeValue::Bool(value) => format!("{value:?}"),
        AttributeValue::Int(value) => format!("{value:?}"),
        AttributeValue::Double(value) => format!("{value:?}"),
        AttributeValue::Bytes(value) => format!("{value:?}"),
        AttributeValue::Nested(encoded) => {
            let mut items = Vec::new();
            let is_map = AttributeValue::each_nested(encoded, |key, value| {
                assert_eq!(key, None);
                items.push(read_value(value));
            });
            assert_eq!(is_map, Some(false));
            format!("list {items:?}")
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn read(bytes: &[u8]) -> Vec<String> {
    let mut points = Vec::new();
    remote::otlp::read_metrics_request(bytes, |point| points.push(seen(point))).unwrap();
    points
}

#[test]
fn otlp_requests_that_prost_writes_are_read() {
    let request = request();
    let points = read(&request.encode_to_vec());
    assert_eq!(points.len(), 24);
    assert_eq!(points, expected(&request));
}

#[test]
fn resources_scopes_and_metrics_are_numbered() {
    let mut numbers = Vec::new();
    remote::otlp::read_metrics_request(&request().encode_to_vec(), |point| {
        numbers.push([point.resource.number, point.scope.number, point.metric.number]);
    })
    .unwrap();
    let metrics: Vec<usize> = numbers[..12].iter().map(|number| number[2]).collect();
    assert_eq!(metrics, [1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10]);
    assert_eq!(numbers[0], [2, 3, 1]);
    assert_eq!(numbers[6], [2, 5, 6]);
    assert_eq!(numbers[12], [3, 6, 11]);
}

#[test]
fn a_fault_ends_the_points_and_has_its_place() {
    // A resource, a scope, a metric, and a gauge with a good and a truncated point.
    let bytes = b"\x0a\x11\x12\x0f\x12\x0d\x2a\x0b\x0a\x00\x0a\x07\x21\x00\x00\x00\x00\x00\x00";
    let mut reader = MetricsReader::new(bytes);
    assert!(reader.next_point().unwrap().is_some());
    let error = reader.next_point().unwrap_err();
    assert_eq!((error.offset(), error.is_incomplete()), (Some(13), false), "{error}");
    assert_eq!(reader.next_point(), Ok(None));
    // The whole request can be truncated too.
    assert!(MetricsReader::new(&bytes[..9]).next_point().unwrap_err().is_incomplete());
}

#[test]
fn reading_pauses_in_many_fields_without_points() {
    // Empty resources, unknown fields, and a resource with empty metrics and a point.
    let mut bytes = b"\x0a\x00".repeat(10_000);
    bytes.extend(b"\x78\x00".repeat(10_000));
    let mut scope = b"\x12\x00".repeat(10_000);
    scope.extend(b"\x12\x04\x2a\x02\x0a\x00");
    let length = |len: usize| [len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8];
    let resource = [&[0x12][..], &length(scope.len()), &scope].concat();
    bytes.extend([&[0x0a][..], &length(resource.len()), &resource].concat());
    let mut reader = MetricsReader::new(&bytes);
    let (mut points, mut pauses) = (0, 0);
    loop {
        match reader.next_progress().unwrap() {
            Progress::Point(_) => points += 1,
            Progress::Nothing => pauses += 1,
            Progress::End => break,
        }
    }
    assert_eq!((points, pauses), (1, 30));
    assert_eq!(reader.next_progress(), Ok(Progress::End));
    let mut reader = MetricsReader::new(&bytes);
    assert!(reader.next_point().unwrap().is_some());
    assert_eq!(reader.next_point(), Ok(None));
}

#[test]
fn lists_that_take_more_memory_than_bytes_are_limited() {
    let attributes = vec![otlp::KeyValue::default(); 4097];
    let resource = otlp::Resource { attributes, dropped_attributes_count: 0 };
    let metrics = otlp::ResourceMetrics { resource: Some(resource), ..Default::default() };
    let request = otlp::Request { resource_metrics: vec![metrics] };
    let bytes = request.encode_to_vec();
    let error = remote::otlp::read_metrics_request(&bytes, |_| ()).unwrap_err();
    assert!(error.is_too_large(), "{error}");
}

fn some_attributes() -> impl Strategy<Value = Vec<otlp::KeyValue>> {
    let leaf = prop_oneof![
        ".{0,3}".prop_map(AnyValueKind::Text),
        any::<bool>().prop_map(AnyValueKind::Bool),
        any::<i64>().prop_map(AnyValueKind::Int),
        any::<f64>().prop_map(AnyValueKind::Double),
        vec(any::<u8>(), 0..3).prop_map(AnyValueKind::Bytes),
    ];
    let value = leaf.prop_recursive(2, 6, 3, |inner| {
        let item = option::of(inner).prop_map(|value| otlp::AnyValue { value });
        vec(item, 0..3).prop_map(|values| AnyValueKind::Array(otlp::Array { values }))
    });
    let value = option::of(value.prop_map(|value| otlp::AnyValue { value: Some(value) }));
    let pair = (".{0,3}", value).prop_map(|(key, value)| otlp::KeyValue { key, value });
    vec(pair, 0..3)
}

fn some_exemplars() -> impl Strategy<Value = Vec<otlp::Exemplar>> {
    let value = prop_oneof![
        any::<f64>().prop_map(otlp::ExemplarValue::AsDouble),
        any::<i64>().prop_map(otlp::ExemplarValue::AsInt),
    ];
    let id = || vec(any::<u8>(), 0..3);
    let exemplar = (some_attributes(), any::<u64>(), option::of(value), id(), id()).prop_map(
        |(filtered_attributes, time_unix_nano, value, span_id, trace_id)| otlp::Exemplar {
            filtered_attributes,
            time_unix_nano,
            value,
            span_id,
            trace_id,
        },
    );
    vec(exemplar, 0..3)
}

fn some_number() -> impl Strategy<Value = otlp::NumberDataPoint> {
    let value = prop_oneof![
        any::<f64>().prop_map(NumberValue::AsDouble),
        any::<i64>().prop_map(NumberValue::AsInt),
    ];
    (some_attributes(), any::<[u64; 2]>(), option::of(value), some_exemplars(), 0..4_u32).prop_map(
        |(attributes, [start_time_unix_nano, time_unix_nano], value, exemplars, flags)| {
            otlp::NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                value,
                exemplars,
                flags,
            }
        },
    )
}

/// Generates any double except -0, because prost omits it like 0.
fn some_double() -> impl Strategy<Value = f64> {
    any::<f64>().prop_map(|double| double + 0.0)
}

fn some_data() -> impl Strategy<Value = Data> {
    let sum = (vec(some_number(), 0..3), 0..4, any::<bool>());
    let histogram = (
        some_attributes(),
        any::<[u64; 3]>(),
        any::<[Option<f64>; 3]>(),
        vec(any::<u64>(), 0..4),
        vec(any::<f64>(), 0..4),
        some_exemplars(),
        0..4_u32,
    );
    let buckets = || option::of((any::<i32>(), vec(any::<u64>(), 0..4)));
    let buckets = || {
        let of = |(offset, bucket_counts)| otlp::Buckets { offset, bucket_counts };
        buckets().prop_map(move |found| found.map(of))
    };
    let exponential = (
        some_attributes(),
        any::<[u64; 4]>(),
        any::<[Option<f64>; 3]>(),
        (any::<i32>(), some_double()),
        (buckets(), buckets()),
        some_exemplars(),
        0..4_u32,
    );
    let summary = (
        some_attributes(),
        any::<[u64; 3]>(),
        some_double(),
        vec([some_double(), some_double()], 0..3),
        0..4_u32,
    );
    prop_oneof![
        vec(some_number(), 0..3).prop_map(|data_points| Data::Gauge(otlp::Gauge { data_points })),
        sum.prop_map(|(data_points, aggregation_temporality, is_monotonic)| {
            Data::Sum(otlp::Sum { data_points, aggregation_temporality, is_monotonic })
        }),
        histogram.prop_map(|(attributes, [start, end, count], [sum, min, max], b, c, e, flags)| {
            let point = otlp::HistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: end,
                count,
                sum,
                bucket_counts: b,
                explicit_bounds: c,
                exemplars: e,
                flags,
                min,
                max,
            };
            let data_points = vec![point.clone(), point];
            Data::Histogram(otlp::Histogram { data_points, aggregation_temporality: 2 })
        }),
        exponential.prop_map(
            |(attributes, [start, end, count, zero], [sum, min, max], s, b, e, f)| {
                let point = otlp::ExponentialDataPoint {
                    attributes,
                    start_time_unix_nano: start,
                    time_unix_nano: end,
                    count,
                    sum,
                    scale: s.0,
                    zero_count: zero,
                    positive: b.0,
                    negative: b.1,
                    flags: f,
                    exemplars: e,
                    min,
                    max,
                    zero_threshold: s.1,
                };
                let data_points = vec![point, otlp::ExponentialDataPoint::default()];
                Data::Exponential(otlp::Exponential { data_points, aggregation_temporality: 1 })
            }
        ),
        summary.prop_map(|(attributes, [start, end, count], sum, quantiles, flags)| {
            let of = |[quantile, value]: [f64; 2]| otlp::ValueAtQuantile { quantile, value };
            let point = otlp::SummaryDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: end,
                count,
                sum,
                quantile_values: quantiles.into_iter().map(of).collect(),
                flags,
            };
            Data::Summary(otlp::Summary { data_points: vec![point] })
        }),
    ]
}

pub(crate) fn some_request() -> impl Strategy<Value = otlp::Request> {
    let metric = (".{0,3}", ".{0,3}", ".{0,3}", option::of(some_data())).prop_map(
        |(name, description, unit, data)| otlp::Metric {
            name,
            description,
            unit,
            data,
            metadata: Vec::new(),
        },
    );
    let scope = (".{0,3}", ".{0,3}", some_attributes())
        .prop_map(|(name, version, attributes)| otlp::Scope { name, version, attributes });
    let scope_metrics = (option::of(scope), vec(metric, 0..3), ".{0,3}")
        .prop_map(|(scope, metrics, schema_url)| otlp::ScopeMetrics { scope, metrics, schema_url });
    let resource = some_attributes()
        .prop_map(|attributes| otlp::Resource { attributes, dropped_attributes_count: 0 });
    let resource_metrics = (option::of(resource), vec(scope_metrics, 0..3), ".{0,3}").prop_map(
        |(resource, scope_metrics, schema_url)| otlp::ResourceMetrics {
            resource,
            scope_metrics,
            schema_url,
        },
    );
    vec(resource_metrics, 0..3).prop_map(|resource_metrics| otlp::Request { resource_metrics })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_request_of_prost_is_read(request in some_request()) {
        prop_assert_eq!(read(&request.encode_to_vec()), expected(&request));
    }

    #[test]
    fn damaged_requests_are_read_or_refused(
        request in some_request(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = request.encode_to_vec();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut reader = MetricsReader::new(&bytes);
        let error = loop {
            match reader.next_point() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break error.offset(),
            }
        };
        prop_assert!(error.is_none_or(|offset| offset <= bytes.len() as u64));
        prop_assert_eq!(reader.next_point(), Ok(None));
    }
}

/// The same points in JSON: with strings for numbers, nulls, unknown keys and each type of value.
const JSON: &str = r#"{"resourceMetrics": [{
  "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "x\u00e9"}}], "droppedAttributesCount": 1},
  "scopeMetrics": [{"scope": {"name": "l", "version": "1", "attributes": []}, "schemaUrl": "u", "metrics": [
    {"name": "g", "description": "d", "unit": "s", "gauge": {"dataPoints": [
      {"asDouble": "NaN", "timeUnixNano": "9", "startTimeUnixNano": 1, "flags": 1, "attributes": null},
      {"asDouble": 5}, {"asInt": "-7"}, {"asInt": 18e2}, {"asDouble": "-Infinity"}]}},
    {"name": "s", "sum": {"aggregationTemporality": 2, "isMonotonic": true, "newField": [{}], "dataPoints": [
      {"asInt": 3, "exemplars": [{"asDouble": 0.5, "spanId": "0102", "traceId": "fF", "filteredAttributes": [
        {"key": "a", "value": {"intValue": "-5"}}, {"key": "b", "value": {"boolValue": true}},
        {"key": "c", "value": {"doubleValue": 1.5}}, {"key": "d", "value": {"bytesValue": "AP8="}},
        {"key": "e", "value": {"arrayValue": {"values": [{"stringValue": "t"}, {}]}}}]}]}]}},
    {"name": "h", "histogram": {"aggregationTemporality": 1, "dataPoints": [
      {"count": "3", "sum": 1.5, "min": 0, "max": 1, "bucketCounts": ["1", 2], "explicitBounds": [0.5]}]}},
    {"name": "e", "exponentialHistogram": {"dataPoints": [{"count": 4, "scale": -3, "zeroCount": 1,
      "zeroThreshold": 0.25, "positive": {"offset": -7, "bucketCounts": [1, "2"]}}]}},
    {"name": "q", "summary": {"dataPoints": [{"count": 4, "sum": 2, "quantileValues": [{"quantile": 0.5, "value": 7}]}]}},
    {"name": "none", "gauge": {"dataPoints": []}}]}, null]}]}"#;

fn from_json(json: &str) -> Vec<String> {
    read(&remote::otlp::metrics_request_from_json(json.as_bytes()).unwrap())
}

#[test]
fn json_is_read() {
    let head = r#""service.name"="xé" / l 1 u  / "#;
    let expected = [
        r#"g d s /  [1, 9] true [] gauge Some(Double(NaN))"#,
        r#"g d s /  [0, 0] false [] gauge Some(Double(5.0))"#,
        r#"g d s /  [0, 0] false [] gauge Some(Int(-7))"#,
        r#"g d s /  [0, 0] false [] gauge Some(Int(1800))"#,
        r#"g d s /  [0, 0] false [] gauge Some(Double(-inf))"#,
        r#"s   /  [0, 0] false ["0 Some(Double(0.5)) [1, 2] [255] \"a\"=-5,\"b\"=true,\"c\"=1.5,\"d\"=[0, 255],\"e\"=list [\"\\\"t\\\"\", \"nothing\"]"] sum Some(Int(3)) true Cumulative"#,
        r#"h   /  [0, 0] false [] histogram 3 Some(1.5) Some(0.0) Some(1.0) [1, 2] [0.5] Delta"#,
        r#"e   /  [0, 0] false [] exponential 4 None None None -3 1 0.25 -7 [1, 2] 0 [] Unknown"#,
        r#"q   /  [0, 0] false [] summary 4 2.0 [(0.5, 7.0)]"#,
    ];
    let points = from_json(JSON);
    assert_eq!(points, expected.map(|point| format!("{head}{point}")));
}

#[test]
fn an_invalid_json_request_is_refused_with_its_offset() {
    let deep = r#"{"arrayValue":{"values":["#.repeat(200);
    let deep = format!(r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"value":{deep}"#);
    for (json, part) in [
        ("", "line 1 column 0"),
        ("[]", "the message ExportMetricsServiceRequest"),
        ("{} x", "trailing characters at line 1 column 4"),
        (&deep, "recursion limit"),
        ("{\"resourceMetrics\": {}}", "a list for resourceMetrics"),
        ("{\"resourceMetrics\":\n [3]}", "an object, the message ResourceMetrics at line 2"),
    ] {
        let error =
            remote::otlp::metrics_request_from_json(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
    let metric = |field: &str| {
        format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{{field}}}]}}]}}]}}"#)
    };
    for (field, part) in [
        (r#""name": 3"#, "a text for name"),
        (r#""sum": {"aggregationTemporality": "DELTA"}"#, "for aggregationTemporality"),
        (r#""sum": {"dataPoints": [{"asInt": 1.5}]}"#, "for asInt"),
        (r#""sum": {"dataPoints": [{"timeUnixNano": -1}]}"#, "an integer from 0 to 2^64-1"),
        (r#""sum": {"dataPoints": [{"timeUnixNano": [1]}]}"#, "for timeUnixNano"),
        (r#""sum": {"isMonotonic": 1}"#, "true or false"),
        (r#""sum": {"dataPoints": [{"exemplars": [{"spanId": "0g"}]}]}"#, "hexadecimal"),
        (r#""sum": {"dataPoints": [{"exemplars": [{"spanId": "012"}]}]}"#, "hexadecimal"),
    ] {
        let json = metric(field);
        let error =
            remote::otlp::metrics_request_from_json(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("line 1 column"), "{json}: {error}");
    }
}

proptest! {
    #[test]
    fn damaged_json_is_read_or_refused(at in 0..JSON.len(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut json = JSON.as_bytes().to_vec();
        if cut {
            json.truncate(at);
        } else {
            json[at] = byte;
        }
        if let Ok(bytes) = remote::otlp::metrics_request_from_json(&json) {
            prop_assert!(remote::otlp::read_metrics_request(&bytes, |_| ()).is_ok());
            prop_assert!(bytes.len() <= 8 * json.len());
        }
    }
}
