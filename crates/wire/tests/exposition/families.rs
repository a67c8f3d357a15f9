//! Families of metrics. We can read families from prost. Cut, changed or random input is read or
//! refused, without a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use quipu_wire::remote::exposition::text::{Options, TextFormat, TextReader};
use quipu_wire::remote::exposition::{
    Exemplar, Families, Family, Limits, MetricValue, read_families,
};

use crate::noise;

/// `io.prometheus.client`, written by hand from its schema.
mod client {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MetricFamily {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) help: Option<String>,
        #[prost(int32, optional, tag = "3")]
        pub(super) kind: Option<i32>,
        #[prost(message, repeated, tag = "4")]
        pub(super) metrics: Vec<Metric>,
        #[prost(string, optional, tag = "5")]
        pub(super) unit: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub(super) labels: Vec<Label>,
        #[prost(message, optional, tag = "2")]
        pub(super) gauge: Option<Number>,
        #[prost(message, optional, tag = "3")]
        pub(super) counter: Option<Counter>,
        #[prost(message, optional, tag = "4")]
        pub(super) summary: Option<Summary>,
        #[prost(message, optional, tag = "5")]
        pub(super) untyped: Option<Number>,
        #[prost(int64, optional, tag = "6")]
        pub(super) timestamp_ms: Option<i64>,
        #[prost(message, optional, tag = "7")]
        pub(super) histogram: Option<Histogram>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) value: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Number {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Counter {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
        #[prost(message, optional, tag = "2")]
        pub(super) exemplar: Option<Exemplar>,
        #[prost(message, optional, tag = "3")]
        pub(super) created: Option<Time>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Summary {
        #[prost(uint64, optional, tag = "1")]
        pub(super) count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) quantiles: Vec<Quantile>,
        #[prost(message, optional, tag = "4")]
        pub(super) created: Option<Time>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Quantile {
        #[prost(double, optional, tag = "1")]
        pub(super) quantile: Option<f64>,
        #[prost(double, optional, tag = "2")]
        pub(super) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Histogram {
        #[prost(uint64, optional, tag = "1")]
        pub(super) count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) buckets: Vec<Bucket>,
        #[prost(double, optional, tag = "4")]
        pub(super) count_float: Option<f64>,
        #[prost(sint32, optional, tag = "5")]
        pub(super) schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        pub(super) zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        pub(super) zero_count: Option<u64>,
        #[prost(message, repeated, tag = "9")]
        pub(super) negative_spans: Vec<Run>,
        #[prost(double, repeated, packed = "false", tag = "11")]
        pub(super) negative_counts: Vec<f64>,
        #[prost(message, repeated, tag = "12")]
        pub(super) positive_spans: Vec<Run>,
        #[prost(sint64, repeated, packed = "false", tag = "13")]
        pub(super) positive_deltas: Vec<i64>,
        #[prost(message, optional, tag = "15")]
        pub(super) created: Option<Time>,
        #[prost(message, repeated, tag = "16")]
        pub(super) exemplars: Vec<Exemplar>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Bucket {
        #[prost(uint64, optional, tag = "1")]
        pub(super) count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) bound: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(super) exemplar: Option<Exemplar>,
        #[prost(double, optional, tag = "4")]
        pub(super) count_float: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Run {
        #[prost(sint32, optional, tag = "1")]
        pub(super) offset: Option<i32>,
        #[prost(uint32, optional, tag = "2")]
        pub(super) length: Option<u32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Exemplar {
        #[prost(message, repeated, tag = "1")]
        pub(super) labels: Vec<Label>,
        #[prost(double, optional, tag = "2")]
        pub(super) value: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(super) time: Option<Time>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Time {
        #[prost(int64, optional, tag = "1")]
        pub(super) seconds: Option<i64>,
        #[prost(int32, optional, tag = "2")]
        pub(super) nanos: Option<i32>,
    }
}

fn number() -> impl Strategy<Value = f64> {
    any::<i32>().prop_map(|n| f64::from(n) / 8.0)
}

fn labels() -> impl Strategy<Value = Vec<client::Label>> {
    prop::collection::btree_map("[a-z\u{e9}]{1,6}", "[a-z ]{1,6}", 0..4).prop_map(|labels| {
        let label = |(name, value)| client::Label { name: Some(name), value: Some(value) };
        labels.into_iter().map(label).collect()
    })
}

fn time() -> impl Strategy<Value = Option<client::Time>> {
    prop::option::of((0..4_000_000_000_i64, 0..1_000_000_000)).prop_map(|time| {
        time.map(|(seconds, nanos)| client::Time { seconds: Some(seconds), nanos: Some(nanos) })
    })
}

fn exemplar() -> impl Strategy<Value = Option<client::Exemplar>> {
    prop::option::of((labels(), number(), time())).prop_map(|exemplar| {
        exemplar.map(|(labels, value, time)| client::Exemplar { labels, value: Some(value), time })
    })
}

fn runs() -> impl Strategy<Value = Vec<client::Run>> {
    vec((1..9_i32, 0..4_u32), 0..4).prop_map(|runs| {
        let run = |(offset, length)| client::Run { offset: Some(offset), length: Some(length) };
        runs.into_iter().map(run).collect()
    })
}

fn length(runs: &[client::Run]) -> usize {
    runs.iter().map(|run| run.length() as usize).sum()
}

fn histogram() -> impl Strategy<Value = client::Histogram> {
    let buckets = vec((0..99_u64, exemplar()), 0..4).prop_map(|buckets| {
        let bucket = |(index, (count, exemplar))| client::Bucket {
            count: Some(count),
            bound: Some(f64::from(index as i32)),
            exemplar,
            count_float: None,
        };
        buckets.into_iter().enumerate().map(bucket).collect::<Vec<_>>()
    });
    let native = (runs(), runs(), -4..9, 0..99_u64);
    (buckets, native, number(), any::<u32>(), time(), vec(exemplar(), 0..3)).prop_map(
        |(buckets, (negative, positive, schema, zeros), sum, count, created, exemplars)| {
            client::Histogram {
                count: Some(count.into()),
                sum: Some(sum),
                buckets,
                schema: Some(schema),
                zero_count: Some(zeros),
                negative_counts: (0..length(&negative)).map(|n| n as f64 + 0.5).collect(),
                positive_deltas: (0..length(&positive)).map(|n| n as i64 % 3).collect(),
                negative_spans: negative,
                positive_spans: positive,
                created,
                exemplars: exemplars.into_iter().flatten().collect(),
                ..client::Histogram::default()
            }
        },
    )
}

fn metric(kind: i32) -> impl Strategy<Value = client::Metric> {
    let counter = (number(), exemplar(), time());
    let summary = (number(), any::<u32>(), vec(number(), 0..3), time());
    (labels(), prop::option::of(any::<i64>()), number(), counter, summary, histogram()).prop_map(
        move |(labels, timestamp_ms, value, counter, summary, histogram)| {
            let value = client::Number { value: Some(value) };
            let mut metric = client::Metric { labels, timestamp_ms, ..Default::default() };
            match kind {
                0 => {
                    let (value, exemplar, created) = counter;
                    let value = Some(value);
                    metric.counter = Some(client::Counter { value, exemplar, created });
                }
                1 => metric.gauge = Some(value),
                2 => {
                    let (sum, count, values, created) = summary;
                    let quantile = |(index, value)| client::Quantile {
                        quantile: Some(f64::from(index as i32) / 4.0),
                        value: Some(value),
                    };
                    let quantiles = values.into_iter().enumerate().map(quantile).collect();
                    let (count, sum) = (Some(count.into()), Some(sum));
                    metric.summary = Some(client::Summary { count, sum, quantiles, created });
                }
                3 => metric.untyped = Some(value),
                _ => metric.histogram = Some(histogram),
            }
            metric
        },
    )
}

fn family() -> impl Strategy<Value = client::MetricFamily> {
    let texts = ("[a-z\u{e9}.]{1,9}", prop::option::of(".{1,9}"), prop::option::of("[a-z]{1,4}"));
    (0..6_i32).prop_flat_map(|kind| (Just(kind), vec(metric(kind), 0..4))).prop_flat_map(
        move |(kind, metrics)| {
            texts.clone().prop_map(move |(name, help, unit)| client::MetricFamily {
                name: Some(name),
                help,
                kind: Some(kind),
                metrics: metrics.clone(),
                unit,
            })
        },
    )
}

/// Converts a family from our reader to prost's type.
fn back(family: Family<'_>) -> client::MetricFamily {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kinds = ["Counter", "Gauge", "Summary", "Unknown", "Histogram", "GaugeHistogram"];
    let kind = format!("{:?}", family.kind());
    client::MetricFamily {
        name: text(family.name()),
        help: text(family.help()),
        unit: text(family.unit()),
        kind: kinds.iter().position(|known| *known == kind).map(|kind| kind as i32),
        metrics: family
            .metrics()
            .map(|metric| {
                let mut back = client::Metric {
                    labels: pairs(metric.labels()),
                    timestamp_ms: metric.timestamp_ms(),
                    ..Default::default()
                };
                put_value(metric.value(), ms(metric.created_ms()), &mut back);
                back
            })
            .collect(),
    }
}

fn put_value(value: MetricValue<'_>, created: Option<client::Time>, metric: &mut client::Metric) {
    let number = |value| Some(client::Number { value: Some(value) });
    match value {
        MetricValue::Counter { total, exemplar } => {
            let exemplar = exemplar.map(example);
            metric.counter = Some(client::Counter { value: Some(total), exemplar, created });
        }
        MetricValue::Gauge(value) => metric.gauge = number(value),
        MetricValue::Unknown(value) => metric.untyped = number(value),
        MetricValue::Summary(summary) => {
            let pair = |(q, value)| client::Quantile { quantile: Some(q), value: Some(value) };
            metric.summary = Some(client::Summary {
                count: summary.count.map(|count| count as u64),
                sum: summary.sum,
                quantiles: summary.quantiles().map(pair).collect(),
                created,
            });
        }
        MetricValue::Histogram(histogram) => {
            let bucket = |bucket: quipu_wire::remote::exposition::Bucket<'_>| client::Bucket {
                count: Some(bucket.cumulative_count as u64),
                bound: Some(bucket.upper_bound),
                exemplar: bucket.exemplar.map(example),
                count_float: None,
            };
            let mut back = client::Histogram {
                count: histogram.count.map(|count| count as u64),
                sum: histogram.sum,
                buckets: histogram.buckets().map(bucket).collect(),
                created,
                ..Default::default()
            };
            if let Some(native) = histogram.native {
                back.schema = Some(native.schema);
                back.zero_count = Some(native.zero_count as u64);
                // Each bucket becomes a separate span, and counts are not differences.
                back.negative_spans = indices(native.negative);
                back.negative_counts = native.negative.iter().map(|bucket| bucket.1).collect();
                back.positive_spans = indices(native.positive);
                back.positive_deltas = native.positive.iter().map(|b| b.1 as i64).collect();
                back.exemplars = native.exemplars().map(example).collect();
            }
            metric.histogram = Some(back);
        }
        value => panic!("{value:?}"),
    }
}

fn indices(buckets: &[(i32, f64)]) -> Vec<client::Run> {
    let run = |bucket: &(i32, f64)| client::Run { offset: Some(bucket.0), length: Some(1) };
    buckets.iter().map(run).collect()
}

/// Converts a family to the form of `back`: a span for each bucket, and milliseconds.
fn plain(mut family: client::MetricFamily) -> client::MetricFamily {
    for metric in &mut family.metrics {
        if let Some(counter) = &mut metric.counter {
            round(&mut counter.created);
            counter.exemplar.iter_mut().for_each(|exemplar| round(&mut exemplar.time));
        }
        if let Some(summary) = &mut metric.summary {
            round(&mut summary.created);
        }
        let Some(histogram) = &mut metric.histogram else { continue };
        round(&mut histogram.created);
        let buckets = histogram.buckets.iter_mut().filter_map(|bucket| bucket.exemplar.as_mut());
        buckets.chain(&mut histogram.exemplars).for_each(|exemplar| round(&mut exemplar.time));
        let spans = histogram.negative_spans.len() + histogram.positive_spans.len();
        if spans == 0 && histogram.zero_count() == 0 {
            // The histogram is not native.
            (histogram.schema, histogram.zero_count) = (None, None);
            histogram.exemplars.clear();
        }
        for runs in [&mut histogram.negative_spans, &mut histogram.positive_spans] {
            let mut end = 0;
            let mut all = Vec::new();
            for run in &*runs {
                let start = end + run.offset();
                end = start + run.length() as i32;
                all.extend((start..end).map(|index| (index, 0.0)));
            }
            *runs = indices(&all);
        }
        let mut sum = 0;
        for delta in &mut histogram.positive_deltas {
            sum += *delta;
            *delta = sum;
        }
    }
    family
}

fn round(time: &mut Option<client::Time>) {
    if let Some(time) = time {
        time.nanos = Some(time.nanos() / 1_000_000 * 1_000_000);
    }
}

fn ms(time: Option<i64>) -> Option<client::Time> {
    time.map(|ms| client::Time {
        seconds: Some(ms / 1000),
        nanos: Some((ms % 1000 * 1_000_000) as i32),
    })
}

fn example(exemplar: Exemplar<'_>) -> client::Exemplar {
    client::Exemplar {
        labels: pairs(exemplar.labels()),
        value: Some(exemplar.value),
        time: ms(exemplar.timestamp_ms),
    }
}

fn pairs<'f>(labels: impl Iterator<Item = (&'f str, &'f str)>) -> Vec<client::Label> {
    let owned = |text: &str| Some(text.to_owned());
    let pair = |(name, value)| client::Label { name: owned(name), value: owned(value) };
    labels.map(pair).collect()
}

fn encoded(families: &[client::MetricFamily]) -> Vec<u8> {
    families.iter().flat_map(prost::Message::encode_length_delimited_to_vec).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn families_that_prost_encodes_are_read(families in vec(family(), 0..4), shuffled in any::<bool>()) {
        let mut sent = families.clone();
        if shuffled {
            let metrics = sent.iter_mut().flat_map(|family| &mut family.metrics);
            metrics.for_each(|metric| metric.labels.reverse());
        }
        let mut read = Vec::new();
        read_families(&encoded(&sent), Limits::default(), |family| read.push(back(family)))
            .unwrap();
        let expected: Vec<_> = families.into_iter().map(plain).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn families_that_are_cut_or_changed_are_read_or_refused(
        families in vec(family(), 1..3), at in any::<Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&families);
        let at = at.index(bytes.len());
        let mut count = 0;
        let result = read_families(&bytes[..at], Limits::default(), |_| count += 1);
        prop_assert!(result.is_ok() || result.unwrap_err().is_incomplete());
        prop_assert!(count <= families.len());
        bytes[at] = byte;
        let shown = |family: Family<'_>| drop(format!("{family:?}"));
        if let Err(error) = read_families(&bytes, Limits::default(), shown) {
            prop_assert!(error.offset().unwrap() <= bytes.len() as u64);
        }
    }

    #[test]
    fn any_lines_are_families_or_errors(input in noise(), samples in 0..9_usize) {
        for format in crate::FORMATS {
            let mut reader = TextReader::new(&input, Options::new(format));
            let mut families = Families::new(format, Limits::default().samples(samples).bytes(50));
            let mut metrics = 0;
            let mut lines = 0;
            while let Some(item) = reader.next() {
                lines += 1;
                if let Ok(item) = item {
                    let count = |family: Family<'_>| metrics += family.metrics().len();
                    let _ = families.push(&item, count);
                }
            }
            families.finish(|family| metrics += family.metrics().len());
            prop_assert!(metrics <= lines);
        }
        let _ = read_families(&input, Limits::default().samples(samples).bytes(50), |family| {
            assert!(family.metrics().len() <= samples);
        });
    }
}

#[test]
fn text_and_protobuf_give_the_same_families() {
    let text = "# HELP hits All.\n# TYPE hits counter\nhits{a=\"b\"} 7 1000\n\
        # TYPE took histogram\ntook_bucket{le=\"1.0\"} 2\ntook_bucket{le=\"+Inf\"} 3\n\
        took_sum 4.5\ntook_count 3\n\
        # TYPE size summary\nsize{quantile=\"0.5\"} 2\nsize_sum 8\nsize_count 4\n";
    let mut from_text = Vec::new();
    let mut reader = TextReader::new(text.as_bytes(), Options::new(TextFormat::Prometheus));
    let mut families = Families::new(TextFormat::Prometheus, Limits::default());
    while let Some(item) = reader.next() {
        families.push(&item.unwrap(), |family| from_text.push(back(family))).unwrap();
    }
    families.finish(|family| from_text.push(back(family)));
    let mut from_protobuf = Vec::new();
    let shown = |family: Family<'_>| from_protobuf.push(back(family));
    read_families(&encoded(&from_text), Limits::default(), shown).unwrap();
    assert_eq!(from_text, from_protobuf);
    assert_eq!(from_text.len(), 3);
}
