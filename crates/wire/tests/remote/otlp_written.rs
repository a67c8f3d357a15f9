//! Any OTLP request that we read can be written again. Our reader and prost then read the same
//! points.

use proptest::prelude::*;
use prost::Message as _;
use quipu_wire::remote::{
    self,
    otlp::{
        AttributeValue, MetricsReader, MetricsResponse, MetricsWriter, NewExemplar, NewPoint,
        Point, PointValue, Temporality,
    },
};

use crate::oracle::otlp;
use crate::otlp_points::{expected, read, request, seen_alone, some_request};

/// Writes the points of a request again, at most this many in each request. Returns the requests,
/// and the points for comparison.
fn written(bytes: &[u8], most: usize) -> (Vec<Vec<u8>>, Vec<String>) {
    let mut writer = MetricsWriter::new();
    let (mut requests, mut points) = (Vec::new(), Vec::new());
    let mut reader = MetricsReader::new(bytes);
    let mut metric = 0;
    while let Some(point) = reader.next_point().unwrap() {
        if point.metric.number != metric {
            metric = point.metric.number;
            writer.begin(point.metric.name, point.metric.description, point.metric.unit);
            assert_eq!(writer.name(), point.metric.name);
        }
        push(&mut writer, &point);
        points.push(seen_alone(&point));
        if writer.points() == most {
            let mut request = Vec::new();
            writer.finish(&mut request);
            assert_eq!((writer.is_empty(), writer.len()), (true, 0));
            requests.push(request);
        }
    }
    let mut request = Vec::new();
    writer.finish(&mut request);
    requests.push(request);
    (requests, points)
}

fn push(writer: &mut MetricsWriter, point: &Point<'_, '_>) {
    let exemplars = point.exemplars.iter().map(|exemplar| {
        exemplar
            .value
            .map_or_else(NewExemplar::default, NewExemplar::new)
            .time_ns(exemplar.time_ns)
            .ids(exemplar.trace_id, exemplar.span_id)
            .attributes(point.exemplar_attributes(exemplar))
    });
    let exemplars: Vec<_> = exemplars.collect();
    let written = NewPoint::new(point.time_ns.unwrap_or(0), point.value)
        .attributes(point.attributes)
        .start_ns(point.start_ns)
        .no_recorded_value(point.no_recorded_value)
        .exemplars(&exemplars);
    writer.push(&written);
}

/// Formats the points of a request, and checks that prost can read it.
fn seen(request: &[u8]) -> Vec<String> {
    let decoded = otlp::Request::decode(request).unwrap();
    assert_eq!(read(request), expected(&decoded));
    let mut points = Vec::new();
    remote::otlp::read_metrics_request(request, |point| points.push(seen_alone(point))).unwrap();
    points
}

#[test]
fn every_field_that_is_read_is_written() {
    let (requests, points) = written(&request().encode_to_vec(), usize::MAX);
    assert_eq!((requests.len(), points.len()), (1, 24));
    assert_eq!(seen(&requests[0]), points);
    // Adjacent points belong to the same metric.
    let decoded = otlp::Request::decode(&requests[0][..]).unwrap();
    assert_eq!(decoded.resource_metrics[0].scope_metrics[0].metrics.len(), 20);
}

#[test]
fn all_requests_have_the_resource() {
    let attributes = [
        ("service.name", AttributeValue::Text("a=b")),
        ("n", AttributeValue::Int(7)),
        ("", AttributeValue::Empty),
    ];
    let mut writer = MetricsWriter::new();
    writer.set_resource(&attributes);
    let point = NewPoint::new(1, PointValue::Gauge(None));
    for _ in 0..2 {
        let mut request = Vec::new();
        writer.finish(&mut request);
        assert!(request.is_empty());
        writer.begin("level", "", "");
        writer.push(&point);
        writer.finish(&mut request);
        let mut count = 0;
        remote::otlp::read_metrics_request(&request, |point| {
            assert_eq!((point.resource.attributes, point.metric.name), (&attributes[..], "level"));
            count += 1;
        })
        .unwrap();
        assert_eq!(count, 1);
        let decoded = otlp::Request::decode(&request[..]).unwrap();
        assert_eq!(decoded.resource_metrics.len(), 1);
        assert_eq!(decoded.resource_metrics[0].scope_metrics[0].metrics.len(), 1);
    }
    // A resource without attributes is omitted.
    let mut empty = MetricsWriter::new();
    empty.set_resource(&attributes);
    empty.set_resource(&[]);
    empty.begin("level", "", "");
    empty.push(&point);
    let mut request = Vec::new();
    empty.finish(&mut request);
    let decoded = otlp::Request::decode(&request[..]).unwrap();
    assert!(decoded.resource_metrics[0].resource.is_none());
}

#[test]
fn points_of_each_resource_are_together() {
    let mut writer = MetricsWriter::new();
    let push = |writer: &mut MetricsWriter, start_ns: u64, value: PointValue<'_>| {
        writer.push(&NewPoint::new(9, value).start_ns(Some(start_ns)));
    };
    let (gauge, sum) = (
        PointValue::Gauge(None),
        PointValue::Sum { value: None, monotonic: true, temporality: Temporality::Delta },
    );
    // First without a resource, then with an unknown number.
    writer.begin("a", "help", "s");
    push(&mut writer, 1, gauge);
    writer.resume_resource(7);
    push(&mut writer, 2, sum);
    let numbers =
        ["x", "y"].map(|name| writer.set_resource(&[("service.name", AttributeValue::Text(name))]));
    push(&mut writer, 3, sum);
    writer.begin("b", "", "");
    for start_ns in [4, 6] {
        writer.resume_resource(numbers[0]);
        push(&mut writer, start_ns, gauge);
        writer.resume_resource(numbers[1]);
        push(&mut writer, start_ns + 1, gauge);
    }
    writer.resume_resource(numbers[0]);
    let length = writer.len();
    let mut requests = [Vec::new(), Vec::new(), Vec::new()];
    writer.finish(&mut requests[0]);
    assert!(length.abs_diff(requests[0].len()) < 50, "{length} {}", requests[0].len());
    // The resource and the metric continue.
    push(&mut writer, 8, gauge);
    writer.resume_resource(1);
    push(&mut writer, 9, gauge);
    writer.finish(&mut requests[1]);
    assert_eq!(writer.set_resource(&[]), 1);
    push(&mut writer, 10, gauge);
    writer.finish(&mut requests[2]);
    let shown = requests.map(|request| {
        seen(&request);
        let decoded = otlp::Request::decode(&request[..]).unwrap();
        let mut all = Vec::new();
        remote::otlp::read_metrics_request(&request, |point| {
            let resource = match point.resource.attributes {
                [("service.name", AttributeValue::Text(name))] => *name,
                none => {
                    assert_eq!(none, []);
                    "none"
                }
            };
            let described = (point.metric.name, point.metric.description, point.metric.unit);
            assert!(described == ("a", "help", "s") || described == ("b", "", ""));
            all.push(format!("{resource} {} {}", described.0, point.start_ns.unwrap()));
        })
        .unwrap();
        let metrics = decoded.resource_metrics.iter().map(|one| one.scope_metrics[0].metrics.len());
        (metrics.collect::<Vec<_>>(), all.join(", "))
    });
    let first = "none a 1, none a 2, x b 4, x b 6, y a 3, y b 5, y b 7";
    assert_eq!(shown[0], (vec![2, 1, 2], first.to_owned()));
    assert_eq!(shown[1], (vec![1], "x b 8, x b 9".to_owned()));
    assert_eq!(shown[2], (vec![1], "none b 10".to_owned()));
}

#[test]
fn responses_are_read() {
    let read = |bytes: &'static [u8]| remote::otlp::read_metrics_response(bytes);
    assert_eq!(read(b""), Ok(MetricsResponse::default()));
    let partial = MetricsResponse::new(300, "why");
    assert_eq!(read(b"\x0a\x08\x08\xac\x02\x12\x03why"), Ok(partial));
    let warning = MetricsResponse::new(0, "why");
    assert_eq!(read(b"\x0a\x05\x12\x03why\x50\x01"), Ok(warning));
    let negative = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(read(negative), Ok(MetricsResponse::default()));
    let page = read(b"<!DOCTYPE html>").unwrap_err();
    assert!(page.offset().is_some_and(|offset| offset <= 15), "{page}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_points_that_are_read_are_written(request in some_request(), most in 1_usize..5) {
        let (requests, points) = written(&request.encode_to_vec(), most);
        let again: Vec<String> = requests.iter().flat_map(|request| seen(request)).collect();
        prop_assert_eq!(again, points);
    }
}
