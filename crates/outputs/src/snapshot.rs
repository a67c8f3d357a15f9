//! A snapshot of all series, as compressed requests that are ready to be sent.
//!
//! The requests of the last snapshot that was sent are kept, since they have the labels of all
//! series: a series that is gone from the next snapshot gets a mark of its end there. So a series
//! costs what its labels take in a compressed request, and a hash. If a snapshot was sent in part,
//! [`Snapshot::merge`] adds what the one before had.

use std::collections::HashSet;
use std::io;
use std::mem;

use quipu_segment::hash::SeededState;

use super::coding::{Coding, Compressor};
use super::queue::Form;

/// A request, compressed.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) form: Form,
    pub(super) coding: Coding,
    pub(super) bytes: Vec<u8>,
    pub(super) samples: u64,
    /// The hashes of the series that it has, and of those whose end it marks.
    pub(super) series: Vec<u64>,
    pub(super) ends: Vec<u64>,
}

/// The requests of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// When it was due, in milliseconds since 1970.
    pub(super) timestamp_ms: i64,
    pub(super) bodies: Vec<Body>,
    /// Samples that cannot be written.
    pub(super) invalid: u64,
}

/// Makes the requests of a snapshot.
#[derive(Debug)]
pub(super) struct Requests<W> {
    pub(super) writer: W,
    /// Of all series. The same is to be used for all snapshots.
    pub(super) hash: SeededState,
    pub(super) snapshot: Snapshot,
    /// The hashes of all series so far.
    seen: HashSet<u64, SeededState>,
    /// Of the request that is being written: its samples, series, and ended series.
    samples: u64,
    series: Vec<u64>,
    ends: Vec<u64>,
    bytes: Vec<u8>,
    compressor: Compressor,
}

/// Writes requests in the form of a protocol.
pub(super) trait Writer: Sized {
    fn form(&self) -> Form;

    /// Whether no more is to be added to a request with this many samples.
    fn is_full(&self, samples: u64) -> bool;

    /// Appends the request, and begins the next.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Adds a mark of the end of each series of an earlier request whose hash is taken.
    fn mark(
        requests: &mut Requests<Self>,
        form: Form,
        request: &[u8],
        take: &mut dyn FnMut(u64) -> bool,
    );
}

/// The most series that are gone and whose marks could not be sent.
const MOST_GONE: u64 = 1 << 20;
/// The most bytes of a request. One that is full has the labels of one series more.
const MOST_EXPANDED: usize = 1 << 30;

impl Body {
    /// The request, as it was before it was compressed.
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

    /// Makes room for the hashes of this many series.
    pub(super) fn expecting(mut self, series: usize) -> Self {
        self.seen.reserve(series);
        self
    }

    /// How many series there are.
    pub(super) fn series(&self) -> usize {
        self.seen.len()
    }

    /// How many samples there are.
    pub(super) fn samples(&self) -> u64 {
        self.samples + self.snapshot.bodies.iter().map(|body| body.samples).sum::<u64>()
    }

    /// Notes a series. Returns false if it is there already, as when two names are the same after
    /// they were escaped: a receiver would refuse the second sample, and maybe all of the request.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let is_new = self.seen.insert(id);
        self.snapshot.invalid += u64::from(!is_new);
        is_new
    }

    /// Counts a sample of a series, or a mark of its end, and ends a request that is full.
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
            // A request has less than 4 GiB.
            Err(_) => self.snapshot.invalid += samples,
        }
    }

    /// Marks the end of the series that the snapshot before has and this one has not. All series
    /// were added before.
    pub(super) fn end_missing(&mut self, before: &Snapshot) {
        let seen = mem::replace(&mut self.seen, HashSet::with_hasher(self.hash.clone()));
        self.mark(before, |id| !seen.contains(&id));
    }

    /// Marks the end of those series of a snapshot. Only requests that have one of them are read.
    fn mark(&mut self, before: &Snapshot, mut is_missing: impl FnMut(u64) -> bool) {
        for body in &before.bodies {
            let missing = body.series.iter().copied().filter(|id| is_missing(*id));
            let mut missing: HashSet<u64> = missing.collect();
            if let (false, Ok(request)) = (missing.is_empty(), body.expand()) {
                W::mark(self, body.form, &request, &mut |id| missing.remove(&id));
            }
        }
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
            // The usual case, such as an outage: nothing has changed.
            return Some(before);
        }
        let mut gone = 0;
        rest.mark(&before, |id| {
            let is_settled = ended.contains(&id) || open.contains(&id);
            gone += u64::from(!is_settled && !current.contains(&id));
            !is_settled && gone <= MOST_GONE
        });
        // For its labels: the series go on.
        let mut rest = rest.finish().bodies;
        rest.iter_mut().for_each(|body| body.series = mem::take(&mut body.ends));
        self.bodies.append(&mut rest);
        Some(self)
    }

    /// The hashes of all series that go on.
    fn series(&self) -> HashSet<u64> {
        self.bodies.iter().flat_map(|body| &body.series).copied().collect()
    }
}
