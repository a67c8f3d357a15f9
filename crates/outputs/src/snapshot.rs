//! A snapshot of all series, as compressed requests that are ready to be sent.
//!
//! The requests of the last sent snapshot stay in memory, because they contain the labels of all
//! series. If a series is missing in the next snapshot, its labels are needed to mark its end. A
//! series therefore costs a hash, and its labels in a compressed request. If only a part of a
//! snapshot was sent, [`Snapshot::merge`] adds the series of the previous one.

use std::collections::HashSet;
use std::io;
use std::mem;

use quipu_segment::hash::SeededState;

use super::coding::{Coding, Compressor};
use super::queue::Form;

/// A compressed request.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) form: Form,
    pub(super) coding: Coding,
    pub(super) bytes: Vec<u8>,
    pub(super) samples: u64,
    /// The hashes of the series with a sample.
    pub(super) series: Vec<u64>,
    /// The hashes of the series with an end mark.
    pub(super) ends: Vec<u64>,
}

/// The requests of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The time when the snapshot was due, in milliseconds since 1970.
    pub(super) timestamp_ms: i64,
    pub(super) bodies: Vec<Body>,
    /// The number of samples that could not be written.
    pub(super) invalid: u64,
}

/// Builds the requests of a snapshot.
#[derive(Debug)]
pub(super) struct Requests<W> {
    pub(super) writer: W,
    /// The hash function for series, the same for all snapshots.
    pub(super) hash: SeededState,
    pub(super) snapshot: Snapshot,
    /// The hashes of all series so far.
    seen: HashSet<u64, SeededState>,
    /// The number of samples, and the hashes of series and ended series, in the current request.
    samples: u64,
    series: Vec<u64>,
    ends: Vec<u64>,
    bytes: Vec<u8>,
    compressor: Compressor,
}

/// A writer of requests for one protocol.
pub(super) trait Writer: Sized {
    fn form(&self) -> Form;

    /// Returns whether a request with this number of samples is full.
    fn is_full(&self, samples: u64) -> bool;

    /// Appends the encoded request to `out`, and begins the next one.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Adds an end mark for each series of an earlier request for whose hash `take` returns true.
    fn mark(
        requests: &mut Requests<Self>,
        form: Form,
        request: &[u8],
        take: &mut dyn FnMut(u64) -> bool,
    );
}

/// The maximum number of ended series whose end marks could not be sent yet.
const MOST_GONE: u64 = 1 << 20;
/// The maximum size of a decompressed request in bytes. This is large, because a full request can
/// still contain the labels of one more series.
const MOST_EXPANDED: usize = 1 << 30;

impl Body {
    /// Decompresses the request.
    pub(super) fn expand(&self) -> io::Result<Vec<u8>> {
        self.coding.uncompress(&self.bytes, MOST_EXPANDED)
    }
}

impl<W: Writer> Requests<W> {
    /// Begins the requests of a snapshot.
    pub(super) fn new(writer: W, timestamp_ms: i64, coding: Coding, hash: &SeededState) -> Self {
        Self {
            writer,
            hash: hash.clone(),
            snapshot: Snapshot { timestamp_ms, bodies: Vec::new(), invalid: 0 },
            seen: HashSet::with_hasher(hash.clone()),
            samples: 0,
            series: Vec::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
            compressor: Compressor::new(coding),
        }
    }

    /// Reserves memory for this number of series.
    pub(super) fn expecting(mut self, series: usize) -> Self {
        self.seen.reserve(series);
        self
    }

    /// Returns the number of series.
    pub(super) fn series(&self) -> usize {
        self.seen.len()
    }

    /// Returns the number of samples.
    pub(super) fn samples(&self) -> u64 {
        self.samples + self.snapshot.bodies.iter().map(|body| body.samples).sum::<u64>()
    }

    /// Begins a series. Returns false for a duplicate, for example if two names are the same after
    /// escaping. This check is necessary because a receiver would refuse the second sample, and
    /// maybe the whole request.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let is_new = self.seen.insert(id);
        self.snapshot.invalid += u64::from(!is_new);
        is_new
    }

    /// Counts a sample or an end mark of a series, and finishes a full request.
    pub(super) fn end(&mut self, id: u64, is_mark: bool) {
        self.samples += 1;
        if is_mark { &mut self.ends } else { &mut self.series }.push(id);
        if self.writer.is_full(self.samples) {
            self.finish_request();
        }
    }

    fn finish_request(&mut self) {
        let samples = mem::take(&mut self.samples);
        if samples == 0 {
            return;
        }
        self.bytes.clear();
        self.writer.finish(&mut self.bytes);
        let [series, ends] = [&mut self.series, &mut self.ends].map(|ids| {
            ids.shrink_to_fit();
            mem::take(ids)
        });
        let (form, coding) = (self.writer.form(), self.compressor.coding());
        match self.compressor.compress(&self.bytes) {
            Ok(bytes) => {
                let body = Body { form, coding, bytes, samples, series, ends };
                self.snapshot.bodies.push(body);
            }
            // Unreachable in practice, because a request is smaller than 4 GiB.
            Err(_) => self.snapshot.invalid += samples,
        }
    }

    /// Adds end marks for the series of the previous snapshot that are missing in this one. Call
    /// this after adding all series.
    pub(super) fn end_missing(&mut self, before: &Snapshot) {
        let seen = mem::replace(&mut self.seen, HashSet::with_hasher(self.hash.clone()));
        self.mark(before, |id| !seen.contains(&id));
    }

    /// Adds end marks for the missing series of a snapshot. Decompresses only the requests that
    /// contain such a series.
    fn mark(&mut self, before: &Snapshot, mut is_missing: impl FnMut(u64) -> bool) {
        for body in &before.bodies {
            let missing = body.series.iter().copied().filter(|id| is_missing(*id));
            let mut missing: HashSet<u64> = missing.collect();
            if let (false, Ok(request)) = (missing.is_empty(), body.expand()) {
                W::mark(self, body.form, &request, &mut |id| missing.remove(&id));
            }
        }
    }

    /// Completes the snapshot.
    pub(super) fn finish(mut self) -> Snapshot {
        self.finish_request();
        self.snapshot
    }
}

impl Snapshot {
    /// Returns the series that the receiver knows after a part of this snapshot was sent, to be
    /// used as the previous snapshot of the next one. The requests before index `done` were
    /// accepted or refused, and the requests before `sent` may have been accepted. `rest` collects
    /// the series of the snapshot `before` this one that still need an end mark: all that are
    /// neither in this snapshot nor in an end mark of a done request.
    pub(super) fn merge<W: Writer>(
        mut self,
        before: Option<Self>,
        done: usize,
        sent: usize,
        mut rest: Requests<W>,
    ) -> Option<Self> {
        if done >= self.bodies.len() {
            return Some(self);
        }
        if sent == 0 {
            return before;
        }
        let done = self.bodies[..done].iter();
        let ended: HashSet<u64> = done.flat_map(|body| &body.ends).copied().collect();
        let current = self.series();
        self.bodies.truncate(sent);
        let open = self.series();
        let Some(before) = before else { return Some(self) };
        if ended.is_empty() && open.is_subset(&before.series()) {
            // This is common, for example during an outage: the series did not change.
            return Some(before);
        }
        let mut gone = 0;
        rest.mark(&before, |id| {
            let is_settled = ended.contains(&id) || open.contains(&id);
            gone += u64::from(!is_settled && !current.contains(&id));
            !is_settled && gone <= MOST_GONE
        });
        // These requests are kept for their labels, so their ended series count as existing.
        let mut rest = rest.finish().bodies;
        rest.iter_mut().for_each(|body| body.series = mem::take(&mut body.ends));
        self.bodies.append(&mut rest);
        Some(self)
    }

    /// Returns the hashes of all series that have not ended.
    fn series(&self) -> HashSet<u64> {
        self.bodies.iter().flat_map(|body| &body.series).copied().collect()
    }
}
