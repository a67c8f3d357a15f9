//! Tests remote write in both directions: prost, an independent protobuf library, encodes requests
//! with samples, histograms, exemplars, metadata and start times. We read these requests, and write
//! them again.

use prost::Message as _;
use quipu_wire::remote::{
    self,
    write::{
        Entry, ExemplarSample, HistogramSample, LabelFault, RemoteWrite1, RemoteWrite2, ResetHint,
        Sample, SeriesType, WriteReader, WriteVersion,
    },
};

use crate::oracle::{v1, v2};
use crate::{TIME, owned};

fn label(name: &str, value: &str) -> v1::Label {
    v1::Label { name: name.into(), value: value.into() }
}

fn span(offset: i32, length: u32) -> v1::BucketSpan {
    v1::BucketSpan { offset, length }
}

/// Returns a native histogram with counts 1, 3, 4, 7 and 8 in positive buckets, 1 and 2 in negative
/// buckets, and 1 in the zero bucket. One span is empty.
fn histogram() -> v1::Histogram {
    v1::Histogram {
        count: Some(v1::Count::Int(27)),
        sum: 1.5,
        schema: -1,
        zero_threshold: 0.25,
        zero_count: Some(v1::ZeroCount::Int(1)),
        negative_spans: vec![span(-7, 2)],
        negative_deltas: vec![1, 1],
        positive_spans: vec![span(0, 3), span(0, 0), span(2, 2)],
        positive_deltas: vec![1, 2, 1, 3, 1],
        reset_hint: 2,
        timestamp: TIME,
        ..Default::default()
    }
}

/// Returns a gauge histogram, whose counts are floats, with a start time.
fn floats() -> v1::Histogram {
    v1::Histogram {
        count: Some(v1::Count::Float(1.5)),
        zero_count: Some(v1::ZeroCount::Float(0.25)),
        positive_spans: vec![span(3, 1)],
        positive_counts: vec![1.25],
        reset_hint: 3,
        start_timestamp: 77,
        ..Default::default()
    }
}

/// Returns a native histogram with custom buckets: schema -53.
fn custom() -> v1::Histogram {
    v1::Histogram {
        count: Some(v1::Count::Int(5)),
        schema: -53,
        positive_spans: vec![span(1, 2)],
        positive_deltas: vec![2, 1],
        custom_values: vec![0.5, 1.0],
        ..Default::default()
    }
}

/// Formats the histograms of a request as our reader returns them.
fn histograms(version: WriteVersion, bytes: &[u8]) -> Vec<Result<String, String>> {
    let mut seen = vec![];
    let mut reader = WriteReader::new(version, bytes).unwrap();
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry.unwrap() else { continue };
        for histogram in series.histograms() {
            seen.push(match histogram {
                Ok(histogram) => Ok(format!("{histogram:?}")),
                Err(fault) => Err(fault.to_string()),
            });
        }
    }
    seen
}

/// Returns a request of version 1.0 with samples, an exemplar, each kind of histogram, and
/// metadata.
pub(crate) fn full_1() -> v1::WriteRequest {
    let sample = |value| v1::Sample { value, timestamp: TIME };
    let exemplar =
        v1::Exemplar { labels: vec![label("trace", "7")], value: 1.0, timestamp: TIME - 1 };
    v1::WriteRequest {
        timeseries: vec![
            v1::TimeSeries {
                labels: vec![label("b", "2"), label("__name__", "x"), label("a", "")],
                samples: vec![sample(1.0), sample(f64::NEG_INFINITY), sample(0.0)],
                exemplars: vec![exemplar],
                histograms: vec![],
            },
            v1::TimeSeries {
                labels: vec![label("__name__", "y")],
                histograms: vec![histogram(), floats(), custom()],
                ..Default::default()
            },
        ],
        metadata: vec![v1::Metadata {
            r#type: 1,
            name: "x".into(),
            help: "What it is.".into(),
            unit: "bytes".into(),
        }],
    }
}

/// Returns a request of version 2.0 with samples, exemplars, histograms, metadata and start times.
pub(crate) fn full_2() -> v2::Request {
    let sample = |start_timestamp| v2::Sample { value: 1.5, timestamp: TIME, start_timestamp };
    let exemplar = v2::Exemplar { labels_refs: vec![3, 4], value: 2.0, timestamp: TIME };
    v2::Request {
        symbols: ["", "__name__", "x", "b", "2", "What it is.", "bytes"].map(String::from).into(),
        timeseries: vec![
            v2::TimeSeries {
                labels_refs: vec![3, 4, 1, 2],
                samples: vec![sample(0), sample(9)],
                exemplars: vec![exemplar; 2],
                metadata: Some(v2::Metadata { r#type: 3, help_ref: 5, unit_ref: 6 }),
                created_timestamp: 5,
                ..Default::default()
            },
            v2::TimeSeries {
                labels_refs: vec![1, 2],
                histograms: vec![histogram(), floats()],
                created_timestamp: 5,
                ..Default::default()
            },
        ],
    }
}

#[test]
fn all_of_remote_write_1_is_read() {
    let bytes = full_1().encode_to_vec();
    let mut reader = WriteReader::new(WriteVersion::One, &bytes).unwrap();
    let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
    assert_eq!(owned(series.labels), owned(&[("__name__", "x"), ("a", ""), ("b", "2")]));
    assert_eq!((series.fault, series.label("b"), series.label("c")), (None, Some("2"), None));
    let samples = series.samples.iter().map(|s| (s.value, s.timestamp_ms, s.start_ms));
    assert!(samples.eq([1.0, f64::NEG_INFINITY, 0.0].map(|value| (value, TIME, None))));
    let [exemplar] = series.exemplars().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(exemplar.labels, [("trace", "7")]);
    assert_eq!((exemplar.value, exemplar.timestamp_ms), (1.0, TIME - 1));
    let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
    assert_eq!((series.samples.len(), series.exemplars().len()), (0, 0));
    let read: Vec<HistogramSample<'_>> = series.histograms().map(Result::unwrap).collect();
    let [first, second, third] = read[..] else { panic!() };
    assert_eq!(first.negative, [(-7, 1.0), (-6, 2.0)]);
    assert_eq!(first.positive, [(0, 1.0), (1, 3.0), (2, 4.0), (5, 7.0), (6, 8.0)]);
    assert_eq!((first.count, first.sum, first.schema), (27.0, 1.5, -1));
    assert_eq!((first.zero_count, first.zero_threshold), (1.0, 0.25));
    assert_eq!((first.timestamp_ms, first.start_ms), (TIME, None));
    assert_eq!(first.reset_hint, ResetHint::No);
    assert_eq!((second.count, second.zero_count), (1.5, 0.25));
    assert_eq!((second.positive, second.start_ms), (&[(3, 1.25)][..], Some(77)));
    assert_eq!(second.reset_hint, ResetHint::Gauge);
    assert_eq!(third.schema, HistogramSample::CUSTOM);
    assert_eq!((third.custom_bounds, third.positive), (&[0.5, 1.0][..], &[(1, 2.0), (2, 3.0)][..]));
    let Some(Ok(Entry::Family(family))) = reader.next() else { panic!() };
    let metadata = family.metadata;
    assert_eq!((family.name, metadata.series_type), ("x", SeriesType::Counter));
    assert_eq!((metadata.help, metadata.unit), ("What it is.", "bytes"));
    assert!(reader.next().is_none());
}

/// If the caller recognizes the encoded labels of a series, the reader skips them and returns only
/// the samples. If the series contains more than labels and samples, it is read completely.
#[test]
fn known_labels_are_not_read() {
    let sample = |value| v1::Sample { value, timestamp: TIME };
    let series = |labels: &[&str], values: &[f64]| v1::TimeSeries {
        labels: labels.iter().map(|name| label(name, "v")).collect(),
        samples: values.iter().copied().map(sample).collect(),
        ..Default::default()
    };
    let mut with_exemplars = series(&["a"], &[1.0]);
    with_exemplars.exemplars = full_1().timeseries.remove(0).exemplars;
    let all = [
        series(&["a", "b"], &[1.0, 2.0]),
        series(&["b", "a"], &[]),
        series(&["a"], &[f64::INFINITY]),
        with_exemplars,
        series(&[], &[1.0]),
        series(&["c", "c"], &[0.0]),
    ];
    let request = |timeseries: &[v1::TimeSeries]| {
        let (timeseries, metadata) = (timeseries.to_vec(), full_1().metadata);
        v1::WriteRequest { timeseries, metadata }.encode_to_vec()
    };
    // A series whose last label follows a sample. Its labels are not adjacent, so the reader cannot
    // recognize them.
    let late = [0x12, 0, 0x0a, 3, 0x0a, 1, b'd'];
    let late = [&[0x0a, 15][..], &series(&["a"], &[]).encode_to_vec(), &late].concat();
    let bytes = [request(&all), late].concat();
    let mut reader = WriteReader::new(WriteVersion::One, &bytes).unwrap();
    let (mut encoded, mut read) = (vec![], vec![]);
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry.unwrap() else { continue };
        encoded.push(series.encoded);
        read.push((owned(series.labels), series.samples.to_vec()));
    }
    assert_eq!((encoded.len(), encoded[6]), (7, None));
    for known in encoded.iter().flatten().filter(|known| !known.is_empty()) {
        let mut reader = WriteReader::new(WriteVersion::One, &bytes).unwrap();
        let (mut number, mut count) = (0, 0);
        loop {
            let find = |bytes: &[u8]| bytes.starts_with(known).then_some((known.len(), 9));
            let entry = reader.next_known(find);
            let is_known = match entry {
                None => break,
                Some(Ok(Entry::Known { series: 9, samples, .. })) => {
                    assert_eq!((encoded[number], samples), (Some(*known), &read[number].1[..]));
                    true
                }
                Some(Ok(Entry::Family(_))) => continue,
                entry => {
                    let Some(Ok(Entry::Series(series))) = entry else { panic!() };
                    assert_eq!(owned(series.labels), read[number].0);
                    false
                }
            };
            if is_known {
                count += 1;
                let Some(Ok(Entry::Series(series))) = reader.reread() else { panic!() };
                assert_eq!(owned(series.labels), read[number].0);
            }
            number += 1;
        }
        assert_eq!((number, count), (7, 1));
    }
}

/// Labels of version 2.0 are recognized, too: `encode_labels` and the reader convert them to the
/// encoding of version 1.0.
#[test]
fn known_labels_of_remote_write_2_are_not_read() {
    let mut request = full_2();
    let mut plain = request.timeseries[0].clone();
    (plain.exemplars, plain.created_timestamp) = (vec![], 0);
    request.timeseries.push(plain);
    let bytes = request.encode_to_vec();
    let mut known = vec![];
    remote::write::encode_labels(&[("b", "2"), ("__name__", "x")], &mut known).unwrap();
    let labels = vec![label("b", "2"), label("__name__", "x")];
    assert_eq!(known, v1::TimeSeries { labels, ..Default::default() }.encode_to_vec());
    let long = [("name", &*"v".repeat(120))];
    assert_eq!(remote::write::encode_labels(&long, &mut vec![]), None);

    let mut reader = WriteReader::new(WriteVersion::Two, &bytes).unwrap();
    let find = |bytes: &[u8]| bytes.starts_with(&known).then_some((known.len(), 9));
    // A series with exemplars, and a series with histograms.
    for _ in 0..2 {
        assert!(matches!(reader.next_known(find), Some(Ok(Entry::Series(_)))));
    }
    let entry = reader.next_known(find);
    let Some(Ok(Entry::Known { series: 9, samples, metadata })) = entry else { panic!() };
    let starts = samples.iter().map(|sample| (sample.value, sample.timestamp_ms, sample.start_ms));
    assert!(starts.eq([(1.5, TIME, None), (1.5, TIME, Some(9))]));
    let expected = ("What it is.", "bytes", SeriesType::Histogram);
    assert_eq!((metadata.help, metadata.unit, metadata.series_type), expected);
    let Some(Ok(Entry::Series(series))) = reader.reread() else { panic!() };
    assert_eq!(owned(series.labels), owned(&[("__name__", "x"), ("b", "2")]));
    assert!(reader.next().is_none());
}

#[test]
fn all_of_remote_write_2_is_read() {
    let request = full_2();
    let bytes = request.encode_to_vec();
    // The symbol table may also follow the series.
    let series = v2::Request { symbols: vec![], ..request.clone() }.encode_to_vec();
    let symbols = v2::Request { timeseries: vec![], ..request }.encode_to_vec();
    for bytes in [bytes, [series, symbols].concat()] {
        let mut reader = WriteReader::new(WriteVersion::Two, &bytes).unwrap();
        let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
        assert_eq!(owned(series.labels), owned(&[("__name__", "x"), ("b", "2")]));
        // The start of a series applies to samples that lack a start.
        let starts = series.samples.iter().map(|sample| sample.start_ms);
        assert!(starts.eq([Some(5), Some(9)]));
        let metadata = series.metadata;
        assert_eq!(metadata.series_type, SeriesType::Histogram);
        assert_eq!((metadata.help, metadata.unit), ("What it is.", "bytes"));
        let exemplars: Vec<_> = series.exemplars().collect();
        assert_eq!((exemplars.len(), exemplars[1].labels), (2, &[("b", "2")][..]));
        let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
        let starts = series.histograms().map(|histogram| histogram.unwrap().start_ms);
        assert!(starts.eq([Some(5), Some(77)]));
        assert_eq!(series.metadata.series_type, SeriesType::Unknown);
        assert!(reader.next().is_none());
    }
}

/// Returns the exemplars of the first series.
fn exemplars(version: WriteVersion, bytes: &[u8]) -> Vec<String> {
    let mut reader = WriteReader::new(version, bytes).unwrap();
    let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
    series.exemplars().map(|exemplar| format!("{exemplar:?}")).collect()
}

/// Reads a request and writes it again in both versions.
fn rewritten(version: WriteVersion, bytes: &[u8]) -> [Vec<u8>; 2] {
    let (mut one, mut two) = (RemoteWrite1::new(), RemoteWrite2::new());
    let mut reader = WriteReader::new(version, bytes).unwrap();
    while let Some(entry) = reader.next() {
        match entry.unwrap() {
            Entry::Series(series) => {
                for exemplar in series.exemplars() {
                    one.push_exemplar(&exemplar).unwrap();
                    two.push_exemplar(&exemplar).unwrap();
                }
                for sample in series.samples {
                    one.push(series.labels, sample.value, sample.timestamp_ms).unwrap();
                    two.push_sample(series.labels, &series.metadata, sample).unwrap();
                }
                for histogram in series.histograms().map(Result::unwrap) {
                    one.push_histogram(series.labels, &histogram).unwrap();
                    two.push_histogram(series.labels, &series.metadata, &histogram).unwrap();
                }
            }
            Entry::Family(family) => one.push_family(&family),
            _ => {}
        }
    }
    let [mut first, mut second] = [vec![], vec![]];
    one.finish(&mut first);
    two.finish(&mut second);
    [first, second]
}

#[test]
fn a_series_can_have_more_exemplars_than_labels() {
    let mut request = RemoteWrite2::new();
    for number in 0..5000 {
        let exemplar = [("trace", "abc")];
        request.push_exemplar(&ExemplarSample::new(&exemplar, 1.0, TIME + number)).unwrap();
    }
    request.push(&[("__name__", "hits_total")], 1.0, TIME).unwrap();
    let mut bytes = vec![];
    request.finish(&mut bytes);
    let mut reader = WriteReader::new(WriteVersion::Two, &bytes).unwrap();
    let Some(Ok(Entry::Series(series))) = reader.next() else { panic!("no series") };
    assert_eq!(series.exemplars().count(), 5000);
}

#[test]
fn read_requests_can_be_written_again() {
    let all = [
        (WriteVersion::One, full_1().encode_to_vec()),
        (WriteVersion::Two, full_2().encode_to_vec()),
    ];
    for (version, bytes) in all {
        let [one, two] = rewritten(version, &bytes);
        let expected = histograms(version, &bytes);
        assert_eq!(histograms(WriteVersion::Two, &two), expected);
        let without_starts = expected.into_iter().map(|histogram| {
            let text = histogram.unwrap();
            Ok(text.replace("Some(77)", "None").replace("Some(5)", "None"))
        });
        assert!(histograms(WriteVersion::One, &one).into_iter().eq(without_starts));
        // A second round trip returns the same bytes.
        assert_eq!(rewritten(WriteVersion::One, &one)[0], one);
        assert_eq!(rewritten(WriteVersion::Two, &two)[1], two);
        for (other, written) in [(WriteVersion::One, &one), (WriteVersion::Two, &two)] {
            let expected = exemplars(version, &bytes);
            assert_eq!(expected.len(), if version == WriteVersion::One { 1 } else { 2 });
            assert_eq!(exemplars(other, written), expected);
        }

        let one = v1::WriteRequest::decode(&one[..]).unwrap();
        let two = v2::Request::decode(&two[..]).unwrap();
        if version == WriteVersion::One {
            assert_eq!(one.metadata, full_1().metadata);
            let series = one.timeseries.iter().filter_map(|series| series.histograms.first());
            let spans: Vec<_> = series.map(|h| (&h.positive_spans[..], h.count)).collect();
            let [(first, count), ..] = spans[..] else { panic!("{spans:?}") };
            assert_eq!((first, count), (&[span(0, 3), span(2, 2)][..], histogram().count));
        } else {
            let starts = two.timeseries.iter().map(|series| {
                let sample = series.samples.first().map(|sample| sample.start_timestamp);
                let histogram = series.histograms.first().map(|h| h.start_timestamp);
                (series.created_timestamp, sample.or(histogram).unwrap())
            });
            assert!(starts.eq([(5, 5), (9, 9), (5, 5), (77, 77)]));
            let metadata = two.timeseries[0].metadata.as_ref().unwrap();
            let text = |number: u32| two.symbols[number as usize].as_str();
            assert_eq!(
                (metadata.r#type, text(metadata.help_ref), text(metadata.unit_ref)),
                (3, "What it is.", "bytes")
            );
        }
    }
    let labels = [("__name__", "x")];
    let mut request = RemoteWrite2::new();
    // An exemplar belongs only to the next sample, and its value can be zero.
    request.push_exemplar(&ExemplarSample::new(&labels, 1.0, TIME)).unwrap();
    request.push(&[], 1.0, TIME).unwrap_err();
    request.push(&labels, 1.0, TIME).unwrap();
    request.push_exemplar(&ExemplarSample::new(&[], 0.0, 0)).unwrap();
    request.push(&labels, 2.0, TIME).unwrap();
    let mut bytes = vec![];
    request.finish(&mut bytes);
    let series = v2::Request::decode(&bytes[..]).unwrap().timeseries;
    assert_eq!(
        (&series[0].exemplars[..], &series[1].exemplars[..]),
        (&[][..], &[v2::Exemplar::default()][..])
    );
    // Stale markers remain stale markers.
    request.push_sample(&labels, &Default::default(), &Sample::stale(TIME)).unwrap();
    request.push_histogram(&labels, &Default::default(), &HistogramSample::stale(TIME)).unwrap();
    let mut bytes = vec![];
    request.finish(&mut bytes);
    let mut reader = WriteReader::new(WriteVersion::Two, &bytes).unwrap();
    let mut ends = 0;
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry.unwrap() else { continue };
        ends += series.samples.iter().filter(|sample| sample.is_stale()).count();
        ends += series.histograms().filter(|h| h.unwrap().is_stale()).count();
    }
    assert_eq!(ends, 2);
}

#[test]
fn a_histogram_that_contradicts_itself_does_not_take_others_along() {
    type Change = fn(&mut v1::Histogram);
    let bad: [(Change, &str); 14] = [
        (|h| h.count = Some(v1::Count::Int(99)), "the sum of the buckets"),
        (|h| h.positive_deltas[1] = -2, "that are not negative"),
        (|h| h.positive_spans[2].offset = -1, "in the order"),
        (|h| h.positive_spans[0].length = u32::MAX, "one bucket for each count"),
        (|h| h.negative_deltas.clear(), "one bucket for each count"),
        (|h| h.negative_counts.push(1.0), "one bucket for each count"),
        (|h| h.positive_spans[2].offset = i32::MAX, "fit in 32 bits"),
        (|h| h.schema = 9, "a schema"),
        (|h| h.zero_threshold = -1.0, "the zero bucket"),
        (|h| h.zero_count = Some(v1::ZeroCount::Float(f64::NAN)), "not negative"),
        (|h| h.custom_values.push(1.0), "schema -53 alone"),
        (|h| *h = v1::Histogram { custom_values: vec![1.0, 1.0], ..custom() }, "ascending"),
        (|h| *h = v1::Histogram { custom_values: vec![1.0], ..custom() }, "that have bounds"),
        (|h| *h = v1::Histogram { zero_threshold: 1.0, ..custom() }, "no zero bucket"),
    ];
    for (change, expected) in bad {
        let mut changed = histogram();
        change(&mut changed);
        let good = v1::Histogram { sum: f64::NAN, count: Some(v1::Count::Int(28)), ..histogram() };
        let series = v1::TimeSeries {
            labels: vec![label("__name__", "y")],
            histograms: vec![histogram(), changed, good],
            ..Default::default()
        };
        let request = v1::WriteRequest { timeseries: vec![series], metadata: vec![] };
        let seen = histograms(WriteVersion::One, &request.encode_to_vec());
        assert_eq!(seen.len(), 3);
        assert!(seen[0].is_ok() && seen[2].is_ok(), "{expected}: {seen:?}");
        let fault = seen[1].as_ref().unwrap_err();
        assert!(fault.contains(expected), "{expected}: {fault}");
    }
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let series = v1::TimeSeries {
        labels: vec![label("__name__", "y")],
        histograms: vec![v1::Histogram { sum: stale, ..Default::default() }],
        ..Default::default()
    };
    let request = v1::WriteRequest { timeseries: vec![series], metadata: vec![] };
    let bytes = request.encode_to_vec();
    let mut reader = WriteReader::new(WriteVersion::One, &bytes).unwrap();
    let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
    assert!(series.histograms().all(|histogram| histogram.unwrap().is_stale()));
}

#[test]
fn labels_that_name_no_series_do_not_take_others_along() {
    for (labels, fault) in [
        (&[][..], Some(LabelFault::Missing)),
        (&[("", "x"), ("a", "1")], Some(LabelFault::Unnamed)),
        (&[("b", "1"), ("a", "1"), ("b", "1")], Some(LabelFault::Duplicate)),
        // A label without a value is accepted, because it means the same as no label.
        (&[("a", "")], None),
    ] {
        let labels = labels.iter().map(|(name, value)| label(name, value)).collect();
        let series = v1::TimeSeries { labels, ..Default::default() };
        let timeseries = vec![series, full_1().timeseries.remove(0)];
        let bytes = v1::WriteRequest { timeseries, metadata: vec![] }.encode_to_vec();
        let mut reader = WriteReader::new(WriteVersion::One, &bytes).unwrap();
        let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
        assert_eq!(series.fault, fault);
        let Some(Ok(Entry::Series(series))) = reader.next() else { panic!() };
        assert_eq!((series.fault, series.samples.len()), (None, 3));
    }
}

/// Returns the error that ends a request.
fn error(version: WriteVersion, bytes: &[u8]) -> quipu_wire::Error {
    let mut reader = match WriteReader::new(version, bytes) {
        Ok(reader) => reader,
        Err(error) => return error,
    };
    loop {
        if let Err(error) = reader.next().unwrap() {
            assert!(reader.next().is_none(), "it ends after an error");
            return error;
        }
    }
}

#[test]
fn faults_are_found_where_they_are() {
    let mut bad = full_2();
    bad.timeseries.truncate(1);
    bad.timeseries[0] = v2::TimeSeries { labels_refs: vec![1, 7], ..Default::default() };
    let bytes = bad.encode_to_vec();
    let fault = error(WriteVersion::Two, &bytes);
    assert!(fault.expected().contains("in the table"), "{fault}");
    assert_eq!(fault.offset(), Some(bytes.len() as u64 - 1));
    for (labels, of_exemplar) in [(vec![1], vec![]), (vec![1, 2], vec![3]), (vec![1, 2], vec![9])] {
        let exemplar = v2::Exemplar { labels_refs: of_exemplar, ..Default::default() };
        bad.timeseries[0].labels_refs = labels;
        bad.timeseries[0].exemplars = vec![exemplar];
        error(WriteVersion::Two, &bad.encode_to_vec());
    }
    bad.symbols[0] = "x".into();
    error(WriteVersion::Two, &bad.encode_to_vec());
    // A string that is not UTF-8, a field with an unexpected wire type, and fields that are longer
    // than their message.
    for (bytes, offset) in [
        (&b"\x0a\x09\x0a\x07\x0a\x01\xff\x12\x02ab"[..], 4),
        (b"\x08\x01", 0),
        (b"\x0a\x02\x12\x05", 4),
        (b"\x0a\x03\x0a\x05a", 4),
    ] {
        let error = error(WriteVersion::One, bytes);
        assert!(!error.is_incomplete(), "{error}");
        assert_eq!(error.offset(), Some(offset), "{error}");
    }
    assert!(error(WriteVersion::One, b"\x0a\x05\x0a").is_incomplete());
}

#[test]
fn the_parts_of_a_series_are_bounded() {
    let many = |tag: &[u8], count: usize| {
        let body = tag.repeat(count);
        let mut request = vec![0x0a];
        let mut len = body.len();
        while len >= 0x80 {
            request.push(len as u8 | 0x80);
            len >>= 7;
        }
        request.push(len as u8);
        request.extend(body);
        request
    };
    for (tag, most) in
        [(b"\x0a\0", 1 << 12), (b"\x12\0", 1 << 16), (b"\x1a\0", 1 << 16), (b"\x22\0", 1 << 16)]
    {
        assert!(read_all(WriteVersion::One, &many(tag, most)));
        assert!(error(WriteVersion::One, &many(tag, most + 1)).is_too_large());
    }
    let symbols = b"\x22\0".repeat((1 << 20) + 1);
    assert!(error(WriteVersion::Two, &symbols).is_too_large());
}

/// Reads a request to its end. Returns whether it is valid.
pub(crate) fn read_all(version: WriteVersion, bytes: &[u8]) -> bool {
    let Ok(mut reader) = WriteReader::new(version, bytes) else { return false };
    while let Some(entry) = reader.next() {
        match entry {
            Err(error) => {
                assert!(error.offset().is_some_and(|offset| offset <= bytes.len() as u64));
                return false;
            }
            Ok(Entry::Series(series)) => {
                for histogram in series.histograms().flatten() {
                    assert!(histogram.count >= 0.0);
                }
                for exemplar in series.exemplars() {
                    assert!(exemplar.labels.len() <= bytes.len());
                }
            }
            Ok(_) => {}
        }
    }
    true
}
