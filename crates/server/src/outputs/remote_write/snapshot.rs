//! A snapshot of all series, as compressed requests that are ready to be sent.
//!
//! The requests of the last snapshot that was sent are kept, since they have the labels of all
//! series: those that are gone from the next snapshot get a mark of their end there. So a series
//! costs what its labels take in a compressed request, and a hash.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::mem;

use quipu::snapshot::{Native, Timestamp};
use quipu_segment::hash::Seeded;
use quipu_wire::remote::{
    self, Entry, HistogramSample, Label, Metadata, RemoteWrite2, Sample, WriteReader, WriteVersion,
};

use super::convert::to_version_1;

/// A request, compressed.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) version: WriteVersion,
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
    request: RemoteWrite2,
    /// The samples in the request.
    samples: u64,
    version: WriteVersion,
    hash: Seeded,
    snapshot: Snapshot,
    /// Buffers.
    bytes: Vec<u8>,
    negative: Vec<(i32, f64)>,
    positive: Vec<(i32, f64)>,
}

/// The most samples of a request, as in Prometheus, and the bytes from which it is full.
const MOST_SAMPLES: u64 = 2000;
const MOST_BYTES: usize = 1 << 20;
/// The most bytes of a request. One that is full has the labels of one series more.
const MOST_EXPANDED: usize = 1 << 30;

impl Body {
    fn new(version: WriteVersion, request: &[u8], samples: u64) -> Result<Self, quipu_wire::Error> {
        let mut bytes = Vec::new();
        remote::compress(request, &mut bytes)?;
        bytes.shrink_to_fit();
        Ok(Self { version, bytes, samples })
    }

    pub(super) fn expand(&self) -> Result<Vec<u8>, quipu_wire::Error> {
        let mut bytes = Vec::new();
        remote::uncompress(&self.bytes, MOST_EXPANDED, &mut bytes).map(|()| bytes)
    }

    /// The same samples in a request in 1.0.
    pub(super) fn in_version_1(&self) -> Result<Self, quipu_wire::Error> {
        Self::new(WriteVersion::One, &to_version_1(&self.expand()?)?, self.samples)
    }
}

impl Requests {
    /// Begins the requests of a snapshot. The same hash is to be used for all of them.
    pub(super) fn new(timestamp_ms: i64, version: WriteVersion, hash: Seeded) -> Self {
        let series = HashSet::with_hasher(hash.clone());
        Self {
            request: RemoteWrite2::new(),
            samples: 0,
            version,
            hash,
            snapshot: Snapshot { timestamp_ms, bodies: Vec::new(), invalid: 0, series },
            bytes: Vec::new(),
            negative: Vec::new(),
            positive: Vec::new(),
        }
    }

    /// Adds a number. The labels are in order, and have values.
    pub(super) fn sample(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        value: f64,
        start: Option<Timestamp>,
    ) {
        if !self.begin(labels) {
            return;
        }
        // Only we may end a series.
        let value = if value.is_nan() { f64::NAN } else { value };
        let sample = Sample::new(value, self.snapshot.timestamp_ms, self.start_ms(start));
        let added = self.request.push_sample(labels, metadata, &sample);
        self.end(added.is_ok());
    }

    /// Adds a native histogram.
    pub(super) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        (native, count, sum): (&Native<'_>, u64, f64),
        start: Option<Timestamp>,
    ) {
        if !self.begin(labels) {
            return;
        }
        let sum = if sum.is_nan() { f64::NAN } else { sum };
        let schema = i32::from(native.schema);
        let mut sample =
            HistogramSample::new(self.snapshot.timestamp_ms, count as f64, sum, schema);
        sample.start_ms = self.start_ms(start);
        sample.zero_threshold = native.zero_threshold;
        sample.zero_count = native.zero_count as f64;
        for (out, buckets) in
            [(&mut self.negative, native.negative), (&mut self.positive, native.positive)]
        {
            out.clear();
            out.extend(buckets.iter().map(|(index, count)| (*index, *count as f64)));
        }
        (sample.negative, sample.positive) = (&self.negative, &self.positive);
        let added = self.request.push_histogram(labels, metadata, &sample);
        let is_added = added.is_ok();
        self.end(is_added);
    }

    /// Notes a series. Returns false if it is there already, as when two names are the same after
    /// they were escaped: a receiver would refuse the second sample, and maybe all of the request.
    fn begin(&mut self, labels: &[Label<'_>]) -> bool {
        let is_new = self.snapshot.series.insert(self.hash.hash_one(labels));
        if !is_new {
            self.snapshot.invalid += 1;
        }
        is_new
    }

    /// Counts a sample, and ends a request that is full.
    fn end(&mut self, is_added: bool) {
        if is_added {
            self.samples += 1;
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
        if self.samples >= MOST_SAMPLES || self.request.len() >= MOST_BYTES {
            self.finish_request();
        }
    }

    fn finish_request(&mut self) {
        let samples = mem::take(&mut self.samples);
        if samples == 0 {
            return;
        }
        self.bytes.clear();
        self.request.finish(&mut self.bytes);
        let body = match self.version {
            WriteVersion::One => to_version_1(&self.bytes)
                .and_then(|request| Body::new(WriteVersion::One, &request, samples)),
            WriteVersion::Two => Body::new(WriteVersion::Two, &self.bytes, samples),
        };
        match body {
            Ok(body) => self.snapshot.bodies.push(body),
            // What was just written can be read; a request has less than 4 GiB.
            Err(_) => self.snapshot.invalid += samples,
        }
    }

    /// Marks the end of the series that the snapshot before has and this one has not.
    pub(super) fn end_missing(&mut self, before: &Snapshot) {
        if before.series.iter().all(|series| self.snapshot.series.contains(series)) {
            return;
        }
        for body in &before.bodies {
            let Ok(request) = body.expand() else { continue };
            let Ok(mut reader) = WriteReader::new(body.version, &request) else { continue };
            while let Some(Ok(entry)) = reader.next() {
                let Entry::Series(series) = entry else { continue };
                let hash = self.hash.hash_one(series.labels);
                // What is not in the set there was a mark itself.
                if !before.series.contains(&hash) || self.snapshot.series.contains(&hash) {
                    continue;
                }
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
                self.end(added.is_ok());
            }
        }
    }

    /// Ends the snapshot.
    pub(super) fn finish(mut self) -> Snapshot {
        self.finish_request();
        self.snapshot
    }
}
