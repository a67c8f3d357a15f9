//! Writes samples to remote write requests of bounded size, in version 1.0 or 2.0.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::io;

use quipu::snapshot::{Exemplar, Native, Timestamp};
use quipu_segment::hash::SeededState;
use quipu_wire::remote::{
    Label,
    write::{
        Entry, ExemplarSample, HistogramSample, Metadata, Sample, Series, WriteReader, WriteVersion,
    },
};

use super::convert::{Request, to_version_1};
use super::series::{NAME, label_name};
use super::version;
use crate::coding::Compressor;
use crate::queue::Form;
use crate::snapshot::{Body, Requests, Writer};

/// The writer of one request.
#[derive(Debug)]
pub(crate) struct Samples {
    request: Request,
    /// An upper bound of the bytes that the request additionally takes in 1.0, where each series
    /// repeats its strings.
    repeated: usize,
    /// Reused buffers for the buckets of a histogram.
    negative: Vec<(i32, f64)>,
    positive: Vec<(i32, f64)>,
}

/// The value of a series.
#[derive(Clone, Copy)]
pub(super) enum Value<'v> {
    Number(f64),
    /// A native histogram with its count and sum.
    Native(&'v Native<'v>, u64, f64),
}

/// The maximum number of samples per request, like in VictoriaMetrics' agent.
const MOST_SAMPLES: u64 = 10_000;
/// The number of bytes in 2.0 at which a request is full.
const MOST_BYTES: usize = 1 << 20;
/// The number of bytes in 1.0 at which a request is full, in either version. This keeps a request
/// below 8 MiB plus one series, because receivers refuse requests that are too large (for example
/// above 32 MiB), and the samples would be lost.
const MOST_REPEATED: usize = 7 << 20;
/// The maximum number of characters in the labels of an exemplar, by OpenMetrics.
const MOST_CHARACTERS: usize = 128;

impl Samples {
    pub(super) fn new(version: WriteVersion) -> Self {
        let request = Request::new(version);
        Self { request, repeated: 0, negative: Vec::new(), positive: Vec::new() }
    }
}

impl Writer for Samples {
    fn form(&self) -> Form {
        match self.request {
            Request::One(_) => Form::Write1,
            Request::Two(_) => Form::Write2,
        }
    }

    fn is_full(&self, samples: u64) -> bool {
        let len = self.request.len();
        let is_large = match self.request {
            Request::One(_) => len >= MOST_REPEATED,
            Request::Two(_) => len >= MOST_BYTES || self.repeated >= MOST_REPEATED,
        };
        is_large || samples >= MOST_SAMPLES
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.repeated = 0;
        self.request.finish(out);
    }

    fn mark(
        requests: &mut Requests<Self>,
        form: Form,
        request: &[u8],
        take: &mut dyn FnMut(u64) -> bool,
    ) {
        each_series(form, request, |series| {
            let id = identity(&requests.hash, series.labels);
            if take(id) {
                requests.mark_end(id, series);
            }
        });
    }
}

impl Requests<Samples> {
    /// Adds a value with an exemplar. The labels must be sorted, with non-empty values.
    pub(super) fn add(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: Value<'_>,
        start: Option<Timestamp>,
        exemplar: Option<&Exemplar<'_>>,
    ) {
        let id = identity(&self.hash, labels);
        if !self.begin(id) {
            return;
        }
        if let Some(exemplar) = exemplar {
            self.exemplify(exemplar);
        }
        // We replace each NaN by a plain one, because only the daemon may write the NaN that ends a
        // series.
        let plain = |value: f64| if value.is_nan() { f64::NAN } else { value };
        let (time, start_ms) = (self.snapshot.timestamp_ms, self.start_ms(start));
        let Samples { request, negative, positive, .. } = &mut self.writer;
        let added = match value {
            Value::Number(value) => {
                request.push_sample(labels, metadata, &Sample::new(plain(value), time, start_ms))
            }
            Value::Native(native, count, sum) => {
                let schema = i32::from(native.schema);
                let mut sample = HistogramSample::new(time, count as f64, plain(sum), schema);
                sample.start_ms = start_ms;
                sample.zero_threshold = native.zero_threshold;
                sample.zero_count = native.zero_count as f64;
                let sides = [(&mut *negative, native.negative), (&mut *positive, native.positive)];
                for (out, buckets) in sides {
                    out.clear();
                    out.extend(buckets.iter().map(|(index, count)| (*index, *count as f64)));
                }
                (sample.negative, sample.positive) = (negative, positive);
                request.push_histogram(labels, metadata, &sample)
            }
        };
        let is_added = added.is_ok();
        self.count((id, false), labels, metadata, is_added);
    }

    /// Adds an exemplar to the next value. An exemplar without a timestamp is omitted, because it
    /// would look new in each snapshot. An exemplar whose labels a receiver would refuse is omitted
    /// too.
    fn exemplify(&mut self, exemplar: &Exemplar<'_>) {
        let Some(time) = exemplar.time else { return };
        let Some(labels) = labels_of(exemplar) else { return };
        let labels: Vec<Label<'_>> = labels.iter().map(|(name, value)| (&**name, *value)).collect();
        let timestamp_ms = i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        self.writer.repeated += repeated(&labels);
        let exemplar = ExemplarSample::new(&labels, exemplar.value, timestamp_ms);
        self.writer.request.push_exemplar(&exemplar);
    }

    /// Adds an end mark (a staleness marker) for a series.
    fn mark_end(&mut self, id: u64, series: &Series<'_, '_>) {
        let (labels, metadata) = (series.labels, &series.metadata);
        let (time, request) = (self.snapshot.timestamp_ms, &mut self.writer.request);
        let added = match series.histograms().next() {
            Some(_) => request.push_histogram(labels, metadata, &HistogramSample::stale(time)),
            None => request.push_sample(labels, metadata, &Sample::stale(time)),
        };
        let is_added = added.is_ok();
        self.count((id, true), labels, metadata, is_added);
    }

    /// Counts a sample or an end mark, if it was added.
    fn count(
        &mut self,
        (id, is_mark): (u64, bool),
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        is_added: bool,
    ) {
        if !is_added {
            self.snapshot.invalid += 1;
            return;
        }
        // In the worst case, 1.0 repeats the metadata of a family before every series. If the
        // series of a family are adjacent, there is one copy.
        let family = [("", name_of(labels)), (metadata.help, metadata.unit)];
        self.writer.repeated += repeated(labels) + repeated(&family);
        self.end(id, is_mark);
    }

    /// Returns the start time, if it is before the sample. A later start means that the series
    /// began after the snapshot was due.
    fn start_ms(&self, start: Option<Timestamp>) -> Option<i64> {
        let start_ms = i64::try_from(start?.as_nanos() / 1_000_000).ok()?;
        (start_ms < self.snapshot.timestamp_ms).then_some(start_ms)
    }
}

/// Calls `see` with each series of a request.
pub(super) fn each_series(form: Form, request: &[u8], mut see: impl FnMut(&Series<'_, '_>)) {
    let Ok(mut reader) = WriteReader::new(version(form), request) else { return };
    while let Some(Ok(entry)) = reader.next() {
        if let Entry::Series(series) = entry {
            see(&series);
        }
    }
}

/// Converts a request to version 1.0.
pub(super) fn in_version_1(body: &Body) -> io::Result<Body> {
    let request = to_version_1(&body.expand()?).map_err(io::Error::other)?;
    let bytes = Compressor::new(body.coding).compress(&request)?;
    Ok(Body { form: Form::Write1, bytes, ..body.clone() })
}

/// Returns the labels of an exemplar, sorted and with escaped names. `None` if they are too long,
/// or if two names are equal.
fn labels_of<'a>(exemplar: &Exemplar<'a>) -> Option<Vec<(Cow<'a, str>, &'a str)>> {
    let characters: usize = exemplar.labels.map(|text| text.chars().count()).sum();
    if characters > MOST_CHARACTERS {
        return None;
    }
    let mut labels = Vec::new();
    let mut texts = exemplar.labels;
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        labels.push((label_name(name), value));
    }
    labels.sort_unstable();
    let is_valid = labels.windows(2).all(|two| two[0].0 != two[1].0);
    is_valid.then_some(labels)
}

/// Returns the maximum size of labels in 1.0, without their references in 2.0.
fn repeated(labels: &[Label<'_>]) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len() + 8).sum()
}

/// Returns the metric name.
fn name_of<'a>(labels: &[Label<'a>]) -> &'a str {
    labels.iter().find(|(name, _)| *name == NAME).map_or("", |(_, name)| name)
}

/// Returns the hash of a series. Each string is hashed with its length.
fn identity(hash: &SeededState, labels: &[Label<'_>]) -> u64 {
    let mut hasher = hash.build_hasher();
    for (name, value) in labels {
        hasher.write(name.as_bytes());
        hasher.write(value.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use quipu::snapshot::Texts;
    use quipu_wire::remote::write::SeriesType;

    use super::*;
    use crate::coding::Coding;
    use crate::snapshot::Snapshot;

    /// Checks that there are at most `most` requests, and that each is at most 8 MiB in version
    /// 1.0.
    #[track_caller]
    fn expect(snapshot: &Snapshot, samples: u64, most: usize) {
        let all: u64 = snapshot.bodies.iter().map(|body| body.samples).sum();
        assert_eq!((all, snapshot.invalid), (samples, 0));
        assert!(snapshot.bodies.len() <= most, "{}", snapshot.bodies.len());
        for body in &snapshot.bodies {
            let bytes = match version(body.form) {
                WriteVersion::One => body.expand().unwrap(),
                _ => in_version_1(body).unwrap().expand().unwrap(),
            };
            assert!(bytes.len() < 8 << 20, "{}", bytes.len());
        }
    }

    /// In version 2.0, a string that all series share is stored once.
    #[test]
    fn requests_are_bounded_in_1_0_too() {
        let (long, hash) = ("x".repeat(3500), SeededState::default());
        let mut texts = Vec::new();
        ["a", &long[..100]].iter().for_each(|text| Texts::push(&mut texts, text));
        let exemplar =
            Exemplar::new(Texts::new(&texts), 0.5).time(Timestamp::from_nanos(1_000_000));
        for (samples, shared, help, exemplar) in [
            (2500, &*long, "", None),
            // Each series belongs to another family.
            (2500, "x", &*long, None),
            (10_000, &long[..700], "", Some(&exemplar)),
        ] {
            for version in [WriteVersion::One, WriteVersion::Two] {
                let requests = |timestamp_ms| {
                    Requests::new(Samples::new(version), timestamp_ms, Coding::Snappy, &hash)
                };
                let mut all = requests(1000);
                let metadata = Metadata::new(SeriesType::Gauge, help, "");
                for n in 0..samples {
                    let name = format!("level_{n}");
                    let labels = [(NAME, name.as_str()), ("shared", shared)];
                    all.add(&labels, &metadata, Value::Number(0.5), None, exemplar);
                }
                let all = all.finish();
                expect(&all, samples, 2);
                // The end marks contain the same strings.
                let mut ends = requests(2000);
                ends.end_missing(&all);
                expect(&ends.finish(), samples, 2);
            }
        }
    }
}
