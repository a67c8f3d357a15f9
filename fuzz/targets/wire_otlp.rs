//! Reads OTLP responses and requests. If the first byte is a brace, a request is in JSON, otherwise
//! in protobuf.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::{
    self,
    otlp::{AttributeValue, MetricsReader, PointValue},
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    if first == b'{' {
        let Ok(request) = remote::otlp::metrics_request_from_json(bytes) else { return };
        assert!(request.len() <= 8 * bytes.len());
        if let Err(error) = read(&request) {
            // The lists of both are limited.
            assert!(error.is_too_large(), "{error}");
        }
    } else if let Err(error) = read(bytes) {
        assert!(error.offset().unwrap() <= bytes.len() as u64, "{error}");
    }
    if let Err(error) = remote::otlp::read_metrics_response(bytes) {
        assert!(error.offset().unwrap() <= bytes.len() as u64, "{error}");
    }
});

fn read(request: &[u8]) -> Result<(), quipu_wire::Error> {
    let mut reader = MetricsReader::new(request);
    let mut numbers = [0; 3];
    while let Some(point) = reader.next_point()? {
        let now = [point.resource.number, point.scope.number, point.metric.number];
        assert!(numbers.iter().zip(now).all(|(before, now)| *before <= now && now > 0));
        numbers = now;
        for (_, value) in point.attributes.iter().chain(point.resource.attributes) {
            walk(value, 0);
        }
        for exemplar in point.exemplars {
            point.exemplar_attributes(exemplar).iter().for_each(|(_, value)| walk(value, 0));
        }
        if let PointValue::Exponential { point, .. } = point.value {
            assert!(point.positive.counts.len() <= 1 << 16);
        }
    }
    Ok(())
}

fn walk(value: &AttributeValue<'_>, depth: usize) {
    if let AttributeValue::Nested(encoded) = value
        && depth < 8
    {
        AttributeValue::each_nested(encoded, |_, value| walk(&value, depth + 1));
    }
}
