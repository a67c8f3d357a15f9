//! Reads families of metrics: from Prometheus' protobuf, and assembled from lines.
//!
//! The first byte selects the format and the limits. Each family is examined completely.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::exposition::text::{Options, TextFormat, TextReader};
use quipu_wire::remote::exposition::{Families, Family, Limits, MetricValue, read_families};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let limits = match first & 4 {
        0 => Limits::default(),
        _ => Limits::default().samples(5).bytes(60),
    };
    let mut metrics = 0;
    let mut each = |family: Family<'_>| {
        check(family);
        assert!(family.metrics().len() <= limits.samples);
        metrics += family.metrics().len();
    };
    let format = match first & 3 {
        0 => TextFormat::Prometheus,
        1 => TextFormat::OpenMetrics,
        _ => {
            if let Err(error) = read_families(bytes, limits, each) {
                assert!(error.offset().expect("reading fails somewhere") <= bytes.len() as u64);
            }
            return;
        }
    };
    let mut reader = TextReader::new(bytes, Options::new(format));
    let mut families = Families::new(format, limits);
    let mut lines = 0;
    while let Some(item) = reader.next() {
        lines += 1;
        if let Ok(item) = item {
            let _ = families.push(&item, &mut each);
        }
    }
    families.finish(each);
    assert!(metrics <= lines);
});

fn check(family: Family<'_>) {
    for metric in family.metrics() {
        let labels: Vec<_> = metric.labels().collect();
        assert!(labels.is_sorted_by(|a, b| a.0 < b.0), "{labels:?}");
        assert!(labels.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
        match metric.value() {
            MetricValue::Histogram(histogram) => {
                let mut bounds = histogram.buckets().map(|bucket| bucket.upper_bound);
                assert!(bounds.by_ref().is_sorted_by(|a, b| a < b));
                if let Some(native) = histogram.native {
                    for buckets in [native.negative, native.positive] {
                        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
                    }
                }
            }
            MetricValue::Summary(summary) => {
                assert!(summary.quantiles().is_sorted_by(|a, b| a.0 < b.0));
            }
            _ => {}
        }
    }
    assert!(!format!("{family:?}").is_empty());
}
