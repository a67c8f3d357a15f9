//! Reads the series of an exposition in Prometheus' format, OpenMetrics or protobuf into a look.

use quipu::snapshot::{Kind, Number};
use quipu_wire::remote::exposition::text::{Item, Options, TextFormat, TextReader};
use quipu_wire::remote::exposition::{self as wire, Families, Limits};

use super::exponential;
use super::{Family, Look, Points, Value};
use quipu_client::Text;

/// Adds the series of an exposition. Unreadable lines are omitted and reported.
///
/// # Errors
/// Fails if no line is readable.
pub(super) fn read(text: &Text, look: &mut Look) -> Result<(), String> {
    let mut reader = TextReader::new(&text.bytes, Options::new(text.format));
    let mut families = Families::new(text.format, Limits::default());
    let (mut is_read, mut first_error) = (false, None);
    while let Some(item) = reader.next() {
        let problem = match item {
            Ok(item) => {
                is_read |= !matches!(item, Item::Comment(_) | Item::End);
                let pushed = families.push(&item, |family| add_family(look, text.format, family));
                pushed.err().map(|error| match item {
                    Item::Sample(sample) => format!("line {}: {error}", sample.line),
                    _ => error.to_string(),
                })
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            first_error.get_or_insert_with(|| problem.clone());
            look.add_target_problem(&problem);
        }
    }
    families.finish(|family| add_family(look, text.format, family));
    match first_error {
        Some(error) if !is_read => {
            Err(format!("neither a segment nor an exposition in Prometheus' text format: {error}"))
        }
        _ => Ok(()),
    }
}

/// Adds the series of an exposition in Prometheus' protobuf format.
///
/// # Errors
/// Fails if a message is unreadable. The messages before it are added.
pub(super) fn read_protobuf(bytes: &[u8], look: &mut Look) -> Result<(), String> {
    // The names in protobuf are the same as in Prometheus' format.
    let each = |family: wire::Family<'_>| add_family(look, TextFormat::Prometheus, family);
    wire::read_families(bytes, Limits::default(), each).map_err(|error| error.to_string())
}

fn add_family(look: &mut Look, format: TextFormat, family: wire::Family<'_>) {
    let kind = type_of(family.kind());
    // We add the suffix, because the family names of OpenMetrics lack it.
    let suffix = match (format, kind) {
        (TextFormat::OpenMetrics, Kind::Counter) => "_total",
        (TextFormat::OpenMetrics, Kind::Info) => "_info",
        _ => "",
    };
    let number = look.family(Family {
        name: format!("{}{suffix}", family.name()),
        kind,
        help: family.help().to_owned(),
        unit: family.unit().to_owned(),
    });
    let mut buckets = Vec::new();
    for metric in family.metrics() {
        let start =
            metric.created_ms().and_then(|ms| u64::try_from(ms).ok()?.checked_mul(1_000_000));
        let value: Value<Points<'_>> = match metric.value() {
            wire::MetricValue::Counter { total: n, .. }
            | wire::MetricValue::Gauge(n)
            | wire::MetricValue::Unknown(n) => Value::Number(Number::Float(n)),
            wire::MetricValue::Histogram(histogram) => {
                let is_exponential = fill(&mut buckets, histogram);
                let bucket_sum = buckets.iter().map(|(_, count)| count).sum();
                Value::Histogram {
                    count: histogram.count.unwrap_or(bucket_sum),
                    sum: histogram.sum.unwrap_or(f64::NAN),
                    buckets: &buckets,
                    is_exponential,
                }
            }
            wire::MetricValue::Summary(summary) => {
                buckets.clear();
                buckets.extend(summary.quantiles());
                Value::Summary {
                    count: summary.count.unwrap_or(f64::NAN),
                    sum: summary.sum.unwrap_or(f64::NAN),
                    quantiles: &buckets,
                }
            }
            _ => continue,
        };
        look.add(number, metric.labels(), start, value);
    }
}

/// Fills `buckets` with non-cumulative counts, and adds the bucket without a bound if it is
/// missing. Returns whether the buckets are exponential. Exponential buckets are used only if there
/// are no others, because all formats should show the same.
fn fill(buckets: &mut Vec<(f64, f64)>, histogram: wire::Histogram<'_>) -> bool {
    buckets.clear();
    let is_classic = histogram.buckets().any(|bucket| bucket.upper_bound.is_finite());
    if let (Some(native), false) = (histogram.native, is_classic) {
        let zero = (native.zero_threshold, native.zero_count);
        let sides = [native.negative, native.positive].map(|side| side.iter().copied());
        if exponential::append(native.schema, zero, sides, buckets) {
            return true;
        }
    }
    let mut before = 0.0;
    for bucket in histogram.buckets() {
        buckets.push((bucket.upper_bound, bucket.cumulative_count - before));
        before = bucket.cumulative_count;
    }
    let has_all = buckets.last().is_some_and(|(bound, _)| *bound == f64::INFINITY);
    if let (false, Some(count)) = (has_all || buckets.is_empty(), histogram.count) {
        buckets.push((f64::INFINITY, count - before));
    }
    false
}

fn type_of(kind: wire::FamilyType) -> Kind {
    match kind {
        wire::FamilyType::Counter => Kind::Counter,
        wire::FamilyType::Gauge => Kind::Gauge,
        wire::FamilyType::Histogram | wire::FamilyType::GaugeHistogram => Kind::Histogram,
        wire::FamilyType::Summary => Kind::Summary,
        wire::FamilyType::Info => Kind::Info,
        wire::FamilyType::StateSet => Kind::StateSet,
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::look::series_name;

    fn look(text: &str) -> Look {
        let mut look = Look::default();
        read(&Text::of_bytes(text.into()), &mut look).unwrap();
        look
    }

    fn names(look: &Look) -> Vec<String> {
        let name = |family: u32| &look.families()[family as usize].name;
        look.series().map(|series| series_name(name(series.family), series.labels)).collect()
    }

    #[test]
    fn both_formats_give_the_same_series() {
        let prometheus = "# TYPE hits_total counter\nhits_total{a=\"1\"} 7\n# TYPE took histogram\n\
                          took_bucket{le=\"1\"} 2\ntook_bucket{le=\"+Inf\"} 3\ntook_sum 4\n\
                          took_count 3\n";
        let openmetrics = prometheus.replace("TYPE hits_total", "TYPE hits") + "# EOF\n";
        for text in [prometheus, &openmetrics] {
            let look = look(text);
            assert_eq!(names(&look), ["hits_total{a=\"1\"}", "took"]);
            assert_eq!(look.families()[0].kind, Kind::Counter);
            let buckets = &[(1.0, 2.0), (f64::INFINITY, 1.0)][..];
            let is_exponential = false;
            let expected = Value::Histogram { count: 3.0, sum: 4.0, buckets, is_exponential };
            assert_eq!(look.series().last().unwrap().value, expected);
            assert!(look.problems().is_empty());
        }
    }

    #[test]
    fn lines_that_cannot_be_read_are_problems() {
        let look = look("a 1\nb{ 2\nc 3\nc 4\n");
        assert_eq!(names(&look), ["a", "c"]);
        let problems = look.problems();
        assert!(problems[0].contains("line 2") && problems[1].contains("line 4"), "{problems:?}");
        let error = read(&Text::of_bytes(b"\xff\xfe{{{\n".into()), &mut Look::default());
        assert!(error.unwrap_err().contains("neither a segment nor an exposition"));
    }
}
