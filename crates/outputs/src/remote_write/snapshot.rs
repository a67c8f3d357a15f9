//! A snapshot of all series, as compressed requests that are ready to be sent.
//!
//! The requests of the last snapshot that was sent are kept, since they have the labels of all
//! series: those that are gone from the next snapshot get a mark of their end there. So a series
//! costs what its labels take in a compressed request, and a hash. If a snapshot was sent in part,
//! [`Snapshot::merge`] adds what the one before had.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::mem;

use quipu::snapshot::{Exemplar, Native, Timestamp};
use quipu_segment::hash::Seeded;
use quipu_wire::remote::{
    Entry, ExemplarSample, HistogramSample, Label, Metadata, Sample, Series, WriteReader,
    WriteVersion,
};

use super::coding::{Coding, Compressor};
use super::convert::{Request, to_version_1};
use super::series::{NAME, label_name};

/// A request, compressed.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) version: WriteVersion,
    pub(super) coding: Coding,
    pub(super) bytes: Vec<u8>,
    pub(super) samples: u64,
}

/// The requests of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The time of all samples, in milliseconds since 1970.
    pub(super) timestamp_ms: i64,
    pub(super) bodies: Vec<Body>,
    /// Samples that cannot be written.
    pub(super) invalid: u64,
    /// The hashes of the labels of all series, without those that have ended.
    series: HashSet<u64, Seeded>,
}

/// Writes the requests of a snapshot.
#[derive(Debug)]
pub(super) struct Requests {
    request: Request,
    /// The samples in the request.
    samples: u64,
    /// The bytes that a request in 2.0 takes in 1.0 beyond those that it has, at most: each series
    /// has all of its texts there.
    repeated: usize,
    hash: Seeded,
    snapshot: Snapshot,
    /// Buffers.
    bytes: Vec<u8>,
    compressor: Compressor,
    negative: Vec<(i32, f64)>,
    positive: Vec<(i32, f64)>,
}

/// The most samples of a request, as in VictoriaMetrics' agent, and the bytes from which it is
/// full in 2.0.
const MOST_SAMPLES: u64 = 10_000;
const MOST_BYTES: usize = 1 << 20;
/// The bytes in 1.0 from which a request is full, in either version. So it has less than 8 MiB
/// there, beside one series: receivers refuse what is too large, such as 32 MiB, and it would be
/// lost.
const MOST_REPEATED: usize = 7 << 20;
/// The most characters of the labels of an exemplar, as in OpenMetrics.
const MOST_CHARACTERS: usize = 128;
/// The most series that are gone and whose marks could not be sent.
const MOST_GONE: u64 = 1 << 20;
/// The most bytes of a request. One that is full has the labels of one series more.
const MOST_EXPANDED: usize = 1 << 30;

impl Body {
    fn new(
        version: WriteVersion,
        request: &[u8],
        samples: u64,
        compressor: &mut Compressor,
    ) -> io::Result<Self> {
        let bytes = compressor.compress(request)?.to_vec();
        Ok(Self { version, coding: compressor.coding(), bytes, samples })
    }

    pub(super) fn expand(&self) -> io::Result<Vec<u8>> {
        self.coding.uncompress(&self.bytes, MOST_EXPANDED)
    }

    /// Passes all series of the request.
    pub(super) fn each_series(&self, mut see: impl FnMut(&Series<'_, '_>)) {
        let Ok(request) = self.expand() else { return };
        let Ok(mut reader) = WriteReader::new(self.version, &request) else { return };
        while let Some(Ok(entry)) = reader.next() {
            if let Entry::Series(series) = entry {
                see(&series);
            }
        }
    }

    /// The same samples in a request in 1.0.
    pub(super) fn in_version_1(&self) -> io::Result<Self> {
        let request = to_version_1(&self.expand()?).map_err(io::Error::other)?;
        Self::new(WriteVersion::One, &request, self.samples, &mut Compressor::new(self.coding))
    }
}

impl Requests {
    /// Begins the requests of a snapshot. The same hash is to be used for all of them.
    pub(super) fn new(timestamp_ms: i64, version: WriteVersion, hash: Seeded) -> Self {
        let series = HashSet::with_hasher(hash.clone());
        Self {
            request: Request::new(version),
            samples: 0,
            repeated: 0,
            hash,
            snapshot: Snapshot { timestamp_ms, bodies: Vec::new(), invalid: 0, series },
            bytes: Vec::new(),
            compressor: Compressor::default(),
            negative: Vec::new(),
            positive: Vec::new(),
        }
    }

    /// Makes room for the hashes of this many series.
    pub(super) fn expecting(mut self, series: usize) -> Self {
        self.snapshot.series.reserve(series);
        self
    }

    /// Compresses the requests so.
    pub(super) fn compressed(self, coding: Coding) -> Self {
        Self { compressor: Compressor::new(coding), ..self }
    }

    /// How many series there are.
    pub(super) fn series(&self) -> usize {
        self.snapshot.series.len()
    }

    /// The time of all samples, in milliseconds since 1970.
    pub(super) fn timestamp_ms(&self) -> i64 {
        self.snapshot.timestamp_ms
    }

    /// How many samples there are.
    pub(super) fn samples(&self) -> u64 {
        self.samples + self.snapshot.bodies.iter().map(|body| body.samples).sum::<u64>()
    }

    /// Adds a number with its exemplar. The labels are in order, and have values.
    pub(super) fn sample(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: f64,
        start: Option<Timestamp>,
        exemplar: Option<&Exemplar<'_>>,
    ) {
        // Only we may end a series.
        let value = if value.is_nan() { f64::NAN } else { value };
        let sample = Sample::new(value, self.snapshot.timestamp_ms, self.start_ms(start));
        if self.begin(labels) {
            if let Some(exemplar) = exemplar {
                self.exemplify(exemplar);
            }
            let added = self.request.push_sample(labels, metadata, &sample);
            self.end(labels, metadata, added.is_ok());
        }
    }

    /// Adds a native histogram with an exemplar.
    pub(super) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        (native, count, sum): (&Native<'_>, u64, f64),
        start: Option<Timestamp>,
        exemplar: Option<&Exemplar<'_>>,
    ) {
        let sum = if sum.is_nan() { f64::NAN } else { sum };
        let schema = i32::from(native.schema);
        let mut sample =
            HistogramSample::new(self.snapshot.timestamp_ms, count as f64, sum, schema);
        sample.start_ms = self.start_ms(start);
        sample.zero_threshold = native.zero_threshold;
        sample.zero_count = native.zero_count as f64;
        let [mut negative, mut positive] = [&mut self.negative, &mut self.positive].map(mem::take);
        for (out, buckets) in [(&mut negative, native.negative), (&mut positive, native.positive)] {
            out.clear();
            out.extend(buckets.iter().map(|(index, count)| (*index, *count as f64)));
        }
        (sample.negative, sample.positive) = (&negative, &positive);
        if self.begin(labels) {
            if let Some(exemplar) = exemplar {
                self.exemplify(exemplar);
            }
            let added = self.request.push_histogram(labels, metadata, &sample);
            self.end(labels, metadata, added.is_ok());
        }
        (self.negative, self.positive) = (negative, positive);
    }

    /// Gives an exemplar to what is added next. One without a time is left out: it would be another
    /// one in each snapshot. So is one that receivers refuse for its labels.
    fn exemplify(&mut self, exemplar: &Exemplar<'_>) {
        let Some(time) = exemplar.time else { return };
        let Some(labels) = labels_of(exemplar) else { return };
        let labels: Vec<Label<'_>> = labels.iter().map(|(name, value)| (&**name, *value)).collect();
        let timestamp_ms = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
        self.repeated += repeated(&labels);
        self.request.exemplify(&ExemplarSample::new(&labels, exemplar.value, timestamp_ms));
    }

    /// Notes a series. Returns false if it is there already, as when two names are the same after
    /// they were escaped: a receiver would refuse the second sample, and maybe all of the request.
    fn begin(&mut self, labels: &[Label<'_>]) -> bool {
        let is_new = self.snapshot.series.insert(identity(&self.hash, labels));
        if !is_new {
            self.snapshot.invalid += 1;
        }
        is_new
    }

    /// Counts a sample of a series, and ends a request that is full.
    fn end(&mut self, labels: &[Label<'_>], metadata: &Metadata<'_>, is_added: bool) {
        if is_added {
            self.samples += 1;
            // A family is described once if its series follow each other, and before each if not.
            let family = [("", name_of(labels)), (metadata.help, metadata.unit)];
            self.repeated += repeated(labels) + repeated(&family);
            self.finish_if_full();
        } else {
            self.snapshot.invalid += 1;
        }
    }

    /// A start that is before the sample. One that is not is that of a series that began since the
    /// snapshot was due.
    fn start_ms(&self, start: Option<Timestamp>) -> Option<i64> {
        let start_ms = i64::try_from(start?.0 / 1_000_000).ok()?;
        (start_ms < self.snapshot.timestamp_ms).then_some(start_ms)
    }

    fn finish_if_full(&mut self) {
        let len = self.request.len();
        let is_large = match self.request {
            Request::One(_) => len >= MOST_REPEATED,
            Request::Two(_) => len >= MOST_BYTES || self.repeated >= MOST_REPEATED,
        };
        if is_large || self.samples >= MOST_SAMPLES {
            self.finish_request();
        }
    }

    fn finish_request(&mut self) {
        self.repeated = 0;
        let samples = mem::take(&mut self.samples);
        if samples == 0 {
            return;
        }
        self.bytes.clear();
        self.request.finish(&mut self.bytes);
        let version = self.request.version();
        let body = Body::new(version, &self.bytes, samples, &mut self.compressor);
        match body {
            Ok(body) => self.snapshot.bodies.push(body),
            // A request has less than 4 GiB.
            Err(_) => self.snapshot.invalid += samples,
        }
    }

    /// Marks the end of the series that the snapshot before has and this one has not.
    pub(super) fn end_missing(&mut self, before: &Snapshot) {
        if before.series.iter().all(|series| self.snapshot.series.contains(series)) {
            return;
        }
        // After a merge, a series may be there twice.
        let mut marked = HashSet::with_hasher(self.hash.clone());
        for body in &before.bodies {
            body.each_series(|series| {
                let hash = identity(&self.hash, series.labels);
                // What is not in the set there was a mark itself.
                let is_open = before.series.contains(&hash);
                if is_open && !self.snapshot.series.contains(&hash) && marked.insert(hash) {
                    self.mark(series);
                }
            });
        }
    }

    /// Adds a mark of the end of a series.
    fn mark(&mut self, series: &Series<'_, '_>) {
        let time = self.snapshot.timestamp_ms;
        let added = match series.histograms().next() {
            Some(_) => {
                let stale = HistogramSample::stale(time);
                self.request.push_histogram(series.labels, &series.metadata, &stale)
            }
            None => {
                let stale = Sample::stale(time);
                self.request.push_sample(series.labels, &series.metadata, &stale)
            }
        };
        let is_added = added.is_ok();
        self.end(series.labels, &series.metadata, is_added);
    }

    /// Ends the snapshot.
    pub(super) fn finish(mut self) -> Snapshot {
        self.finish_request();
        self.snapshot
    }
}

impl Snapshot {
    /// The series that a receiver has after this snapshot was sent in part, as the snapshot before
    /// the next one. The requests before `done` were taken or refused, and those before `sent` may
    /// have been taken. The rest is what the snapshot before this one had: its series are still to
    /// be marked, unless they are or their mark is in a request that is done.
    pub(super) fn merge(
        mut self,
        before: Option<Self>,
        done: usize,
        sent: usize,
        hash: &Seeded,
    ) -> Option<Self> {
        if done >= self.bodies.len() {
            return Some(self);
        }
        if sent == 0 {
            return before;
        }
        self.bodies.truncate(sent);
        let mut open = HashSet::with_hasher(hash.clone());
        let mut ended = HashSet::with_hasher(hash.clone());
        for (at, body) in self.bodies.iter().enumerate() {
            body.each_series(|series| {
                let hash = identity(hash, series.labels);
                if self.series.contains(&hash) {
                    open.insert(hash);
                } else if at < done {
                    ended.insert(hash);
                }
            });
        }
        let current = mem::replace(&mut self.series, open);
        let Some(before) = before else { return Some(self) };
        if ended.is_empty() && self.series.is_subset(&before.series) {
            // The usual case, such as an outage: nothing has changed.
            return Some(before);
        }
        let mut rest = Requests::new(self.timestamp_ms, WriteVersion::Two, hash.clone());
        let mut gone = 0;
        for body in &before.bodies {
            body.each_series(|series| {
                let hash = identity(hash, series.labels);
                if !before.series.contains(&hash) || ended.contains(&hash) {
                    return;
                }
                gone += u64::from(!current.contains(&hash));
                if gone <= MOST_GONE && self.series.insert(hash) {
                    // For its labels: what is in the set is not seen as a mark.
                    rest.mark(series);
                }
            });
        }
        self.bodies.append(&mut rest.finish().bodies);
        Some(self)
    }
}

/// The labels of an exemplar in order, with names as those of series have; `None` if they are too
/// long, or if two have the same name.
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

/// The bytes of labels in 1.0, at most, without those of their numbers in 2.0.
fn repeated(labels: &[Label<'_>]) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len() + 8).sum()
}

/// The name of the metric.
fn name_of<'a>(labels: &[Label<'a>]) -> &'a str {
    labels.iter().find(|(name, _)| *name == NAME).map_or("", |(_, name)| name)
}

/// The hash of a series. Each text is hashed with its length.
fn identity(hash: &Seeded, labels: &[Label<'_>]) -> u64 {
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
    use quipu_wire::remote::SeriesType;

    use super::*;

    /// Expects samples in this many requests at most, each of 8 MiB in 1.0 at most.
    #[track_caller]
    fn expect(snapshot: &Snapshot, samples: u64, most: usize) {
        let all: u64 = snapshot.bodies.iter().map(|body| body.samples).sum();
        assert_eq!((all, snapshot.invalid), (samples, 0));
        assert!(snapshot.bodies.len() <= most, "{}", snapshot.bodies.len());
        for body in &snapshot.bodies {
            let bytes = match body.version {
                WriteVersion::One => body.expand().unwrap(),
                WriteVersion::Two => body.in_version_1().unwrap().expand().unwrap(),
            };
            assert!(bytes.len() < 8 << 20, "{}", bytes.len());
        }
    }

    /// In 2.0, a text that all series have is there once.
    #[test]
    fn requests_are_bounded_in_1_0_too() {
        let (long, hash) = ("x".repeat(3500), Seeded::default());
        let mut texts = Vec::new();
        ["a", &long[..100]].iter().for_each(|text| Texts::push(&mut texts, text));
        let exemplar =
            Exemplar { labels: Texts::new(&texts), value: 0.5, time: Some(Timestamp(1_000_000)) };
        for (samples, shared, help, exemplar) in [
            (2500, &*long, "", None),
            // Each series is of another family.
            (2500, "x", &*long, None),
            (10_000, &long[..700], "", Some(&exemplar)),
        ] {
            for version in [WriteVersion::One, WriteVersion::Two] {
                let mut all = Requests::new(1000, version, hash.clone());
                let metadata = Metadata::new(SeriesType::Gauge, help, "");
                for n in 0..samples {
                    let name = format!("level_{n}");
                    let labels = [(NAME, name.as_str()), ("shared", shared)];
                    all.sample(&labels, &metadata, 0.5, None, exemplar);
                }
                let all = all.finish();
                expect(&all, samples, 2);
                // Their ends have the same texts.
                let mut ends = Requests::new(2000, version, hash.clone());
                ends.end_missing(&all);
                expect(&ends.finish(), samples, 2);
            }
        }
    }
}
