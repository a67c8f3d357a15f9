//! Sends snapshots of all series to one receiver. A [`Sender`] is a single shard: a thread with a
//! connection and a part of the series. The shards of a receiver (`shards.rs`) send in parallel,
//! and each retries independently.
//!
//! At each multiple of the interval, all series are copied into a snapshot of compressed requests.
//! The shard sends them until the next snapshot is due, and drops the rest, because the next
//! snapshot contains newer totals of the same series. After an outage of any length, the receiver
//! therefore gets the current totals, and the memory depends only on the number of series.
//!
//! There are two exceptions, both on the disk (`queue/mod.rs`):
//!
//! - With a backlog (`backlog.rs`), unsent requests are stored, and sent between the snapshots.
//! - A snapshot of deltas (`otlp/deltas.rs`) is sent until each of its requests is accepted or
//!   refused, regardless of the time. Only then do we read the next snapshot, which contains the
//!   growth since then. If the receiver refuses all requests for reasons unrelated to their
//!   contents, the next snapshot includes their deltas. If the receiver may already know one of
//!   them, they are sent again instead.
//!
//! A request that is sent again contains the same bytes, or the same samples in another version.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tracing::debug;

use super::backlog::Backlog;
use super::metrics::ReceiverMetrics;
use super::protocol::{Protocol, Verdict};
use super::queue::Id;
use super::schedule::{Backoff, Patience, Schedule};
use super::shards::{ReceiverState, Shards};
use super::snapshot::{Body, Requests, Snapshot};
use super::{LAST, fields};
use quipu_client::sender::{Client, NoResponse};

/// One shard of a receiver.
pub(super) struct Sender<P: Protocol> {
    client: Client,
    pub(super) shards: Arc<Shards<P>>,
    /// The index of the shard.
    pub(super) shard: usize,
    pub(super) schedule: Schedule,
    pub(super) backoff: Backoff,
    /// The number of requests that the receiver had accepted, over all shards, at the last failure.
    taken: u64,
    /// The last sent snapshot, whose requests contain the labels of all series that the receiver
    /// knows.
    pub(super) before: Option<Snapshot>,
    /// The last snapshot that was queued while a request was sent.
    pub(super) queued: Option<Snapshot>,
    /// The index of the first request to send of the next snapshot: after the end of the last one.
    /// Without this rotation, a request at which the receiver fails would block the requests after
    /// it forever.
    first: usize,
    /// The pending requests on the disk, if there is a queue.
    pub(super) backlog: Option<Backlog>,
    /// The snapshot of deltas that must be sent before the next one is read.
    owed: Option<(Snapshot, SendProgress)>,
}

/// The progress of sending a snapshot.
#[derive(Debug)]
pub(super) struct SendProgress {
    /// The identifiers of the requests in the queue.
    pub(super) kept: Vec<Option<Id>>,
    /// The index of the current request. All requests before it are done.
    pub(super) at: usize,
    /// Whether the current request failed.
    has_failed: bool,
    /// The index of a request that failed while others were accepted. It stays in the queue.
    skipped: Option<usize>,
    /// Whether any request was accepted.
    pub(super) is_any_taken: bool,
    /// Whether the last refusal was unrelated to the contents of the request.
    pub(super) refused: Option<bool>,
    /// Whether all refusals were unrelated to the contents. If so, deltas stay pending.
    is_whole: bool,
    /// The number of deltas that are done.
    settled: usize,
    /// The worst state of the receiver so far, with a message.
    worst: ReceiverState,
    text: String,
    /// The minimum wait before the next snapshot.
    least: Duration,
}

/// The outcome of sending a request once.
pub(super) enum Attempt {
    /// The request was accepted, possibly except some samples. The string contains the reason.
    Taken(ReceiverState, String),
    Refused {
        status: u16,
        /// Whether the sender or the path to the receiver is the reason, and not the contents.
        is_of_sender: bool,
        text: String,
    },
    /// The request must be sent again, possibly after a wait that the receiver requests. There is a
    /// status if there was a response.
    Failed { status: Option<u16>, asked: Option<Duration>, text: String },
    /// The request cannot be sent.
    Invalid,
}

impl SendProgress {
    fn new(snapshot: &Snapshot, is_whole: bool) -> Self {
        Self {
            kept: vec![None; snapshot.bodies.len()],
            at: 0,
            has_failed: false,
            skipped: None,
            is_any_taken: false,
            refused: None,
            is_whole,
            settled: 0,
            worst: ReceiverState::Unknown,
            text: String::new(),
            least: Duration::ZERO,
        }
    }

    fn note(&mut self, state: ReceiverState, text: String) {
        if state > self.worst {
            (self.worst, self.text) = (state, text);
        }
    }
}

impl<P: Protocol> Sender<P> {
    pub(super) fn new(
        client: Client,
        shards: Arc<Shards<P>>,
        shard: usize,
        interval: Duration,
        backlog: Option<Backlog>,
    ) -> Self {
        let owed = shards.protocol.deltas().and_then(|mut deltas| deltas.restored.take());
        Self {
            client,
            shards,
            shard,
            schedule: Schedule::new(interval),
            backoff: Backoff::default(),
            taken: 0,
            before: None,
            queued: None,
            first: 0,
            backlog,
            owed: owed.map(|(snapshot, is_whole)| {
                let progress = SendProgress::new(&snapshot, is_whole);
                (snapshot, progress)
            }),
        }
    }

    /// Sends a snapshot at each multiple of the interval, and the last one when the daemon stops.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let (mut least, mut last) = (Duration::ZERO, None);
        while let Ok(due_ms) = self.wait(last, least, stopped) {
            let mut patience = self.schedule.patience(due_ms, stopped);
            (last, least) = (Some(due_ms), Duration::ZERO);
            if let Some(waiting) = self.send_owed(&patience) {
                least = waiting;
            } else if let Some(requests) = self.noted(self.shards.take(self.shard, Some(due_ms))) {
                let timestamp_ms = requests.snapshot.timestamp_ms;
                last = Some(timestamp_ms);
                patience = self.schedule.patience(timestamp_ms, stopped);
                least = self.send(requests, &patience);
            }
            self.drain(&patience);
            // The queued snapshot is newer than the sent one.
            self.before = self.queued.take().or(self.before.take());
        }
        // Spend less time on a failing receiver, because the state file contains the totals anyway.
        let time = if self.backoff.is_failing() { LAST / 5 } else { LAST * 4 / 5 };
        let patience = Patience::at_stop(time);
        if self.send_owed(&patience).is_none()
            && let Some(requests) = self.noted(self.shards.take(self.shard, None))
        {
            self.send(requests, &patience);
        }
    }

    /// Returns the requests of a snapshot. Logs an error of reading the series.
    pub(super) fn noted<R>(&self, taken: Result<Option<R>, quipu::Error>) -> Option<R> {
        taken.unwrap_or_else(|error| {
            self.note(ReceiverState::Fails, &error.to_string());
            None
        })
    }

    /// Sends the rest of the previous snapshot of deltas. Returns the minimum wait if it is still
    /// not done, so no other snapshot can be read.
    fn send_owed(&mut self, patience: &Patience<'_>) -> Option<Duration> {
        let (snapshot, progress) = self.owed.take()?;
        let least = self.send_rest(snapshot, progress, patience);
        (self.owed.is_some() || patience.is_over()).then_some(least)
    }

    /// Sends a snapshot. Returns the minimum wait before the next one.
    fn send(&mut self, requests: Requests<P::Writer>, patience: &Patience<'_>) -> Duration {
        let mut snapshot = self.finish(requests, self.before.as_ref());
        let kept = self.shards.protocol.deltas().map(|mut deltas| deltas.keep(&mut snapshot));
        if let Some(Err(error)) = kept {
            self.note(ReceiverState::Fails, &error);
            return Duration::ZERO;
        }
        self.show_age(snapshot.timestamp_ms);
        let mut progress = SendProgress::new(&snapshot, true);
        if self.backoff.is_failing() {
            self.keep(&snapshot, &mut progress.kept, 0);
        }
        self.send_rest(snapshot, progress, patience)
    }

    /// Sends the remaining requests of a snapshot.
    fn send_rest(
        &mut self,
        snapshot: Snapshot,
        mut progress: SendProgress,
        patience: &Patience<'_>,
    ) -> Duration {
        progress.least = Duration::ZERO;
        if self.may_send(&progress.kept, patience) {
            self.send_all(&snapshot, &mut progress, patience);
        }
        self.judge_backlog(&progress);
        let SendProgress { at, least, has_failed, skipped, .. } = progress;
        let is_delta = self.shards.protocol.deltas().is_some();
        if at == snapshot.bodies.len() && skipped.is_none() {
            match progress.worst {
                ReceiverState::Refuses(status) if is_delta && progress.is_whole => {
                    self.note(ReceiverState::PutsOff(status), &progress.text);
                    self.put_back(snapshot);
                    return Duration::ZERO;
                }
                state => self.note(state, &progress.text),
            }
            if progress.worst <= ReceiverState::Rejects {
                self.shards.complete(self.shard, snapshot.timestamp_ms);
            }
            self.before = Some(snapshot);
            return Duration::ZERO;
        }
        if is_delta {
            self.owed = Some((snapshot, progress));
            return least;
        }
        self.keep(&snapshot, &mut progress.kept, at);
        // The requests on the disk count as done, because they will be sent later.
        let kept = &progress.kept;
        let done = at + kept[at..].iter().take_while(|kept| kept.is_some()).count();
        let lost = snapshot.bodies.iter().zip(kept).skip(at).filter(|(_, kept)| kept.is_none());
        self.metrics().replaced.inc_by(lost.map(|(body, _)| body.samples).sum());
        let failed = has_failed.then_some(at).or(skipped);
        self.first = self.first.wrapping_add(failed.map_or(at, |failed| failed + 1));
        let sent = done.max(at + usize::from(has_failed));
        let rest = self.shards.protocol.begin(snapshot.timestamp_ms);
        self.before = snapshot.merge(self.before.take(), done, sent, rest);
        least
    }

    /// Handles a snapshot of deltas that was refused as a whole, for reasons unrelated to its
    /// contents. If the receiver knows none of it, the next snapshot includes its deltas.
    /// Otherwise, its requests are sent again unchanged, because a receiver can recognize a
    /// repeated request by its bytes.
    fn put_back(&mut self, snapshot: Snapshot) {
        if !self.shards.protocol.deltas().is_some_and(|mut deltas| deltas.take_back()) {
            let progress = SendProgress::new(&snapshot, true);
            self.owed = Some((snapshot, progress));
        }
    }

    /// Returns whether the receiver accepted a request of any shard since the previous failure.
    pub(super) fn has_accepted_since_failure(&mut self) -> bool {
        let taken = self.shards.taken();
        mem::replace(&mut self.taken, taken) != taken
    }

    fn metrics(&self) -> &ReceiverMetrics {
        &self.shards.metrics
    }

    /// Reports the state of the receiver to all shards.
    pub(super) fn note(&self, state: ReceiverState, text: &str) {
        self.shards.note(self.shard, state, text);
    }

    /// Sends the requests of a snapshot until the time is over. With a queue, failed requests stay
    /// there; otherwise, they are sent again.
    fn send_all(
        &mut self,
        snapshot: &Snapshot,
        progress: &mut SendProgress,
        patience: &Patience<'_>,
    ) {
        let mut is_begun = false;
        while let Some(body) = snapshot.bodies.get(progress.at) {
            if mem::replace(&mut is_begun, true) && patience.is_over() {
                return;
            }
            let is_of_sender = match self.attempt(body, patience, Some((snapshot, progress))) {
                Attempt::Failed { asked, text, .. } => {
                    self.note(ReceiverState::Fails, &text);
                    self.has_accepted_since_failure();
                    if let Some(mut deltas) = self.shards.protocol.deltas() {
                        deltas.may_be_taken();
                    }
                    let delay = self.backoff.fail(asked);
                    progress.has_failed = true;
                    if self.keep(snapshot, &mut progress.kept, progress.at) {
                        if !progress.is_any_taken || progress.skipped.is_some() {
                            return self.pause(delay);
                        }
                        // We continue with the next request, because only this one may be affected.
                        progress.skipped = Some(progress.at);
                        progress.at += 1;
                        progress.has_failed = false;
                        continue;
                    }
                    if !patience.wait(delay) {
                        progress.least = delay;
                        return self.pause(delay);
                    }
                    self.metrics().retried.inc_by(body.samples);
                    continue;
                }
                Attempt::Taken(state, text) => {
                    progress.is_any_taken = true;
                    progress.note(state, text);
                    false
                }
                Attempt::Refused { status, is_of_sender, text } => {
                    progress.refused = Some(is_of_sender);
                    progress.note(ReceiverState::Refuses(status), text);
                    is_of_sender
                }
                Attempt::Invalid => {
                    self.metrics().invalid.inc_by(body.samples);
                    false
                }
            };
            self.release(progress.kept[progress.at]);
            progress.at += 1;
            progress.has_failed = false;
            progress.is_whole &= is_of_sender;
            if let (false, Some(mut deltas)) = (progress.is_whole, self.shards.protocol.deltas()) {
                deltas.settle(progress.at - mem::replace(&mut progress.settled, progress.at));
            }
        }
    }

    /// Completes a snapshot, with end marks for the series that are no longer there.
    pub(super) fn finish(
        &self,
        mut requests: Requests<P::Writer>,
        before: Option<&Snapshot>,
    ) -> Snapshot {
        let begun = Instant::now();
        if let Some(before) = before {
            requests.end_missing(before);
        }
        let mut snapshot = requests.finish();
        self.metrics().invalid.inc_by(snapshot.invalid);
        let count = snapshot.bodies.len();
        if count > 0 {
            snapshot.bodies.rotate_left(self.first % count);
        }
        let (receiver, shard) = (&self.metrics().receiver, self.shard);
        debug!(%receiver, shard, requests = count, took = ?begun.elapsed(), "made the requests of a snapshot");
        snapshot
    }

    /// Sends a request, and a second time if the receiver requires another version.
    pub(super) fn attempt(
        &mut self,
        body: &Body,
        patience: &Patience<'_>,
        mut sending: Option<(&Snapshot, &mut SendProgress)>,
    ) -> Attempt {
        let via = self.shards.via();
        let (mut body, mut is_asked) = (Cow::Borrowed(body), false);
        loop {
            match self.shards.protocol.converted(&body, is_asked) {
                Some(Ok(other)) => body = Cow::Owned(other),
                Some(Err(_)) => return Attempt::Invalid,
                None => {}
            }
            let fields = fields::for_request(&body, &via);
            let timeout = self.timeout(patience);
            let post = || self.client.post(&fields, &body.bytes, timeout);
            let sending = sending.as_mut().map(|(snapshot, progress)| (*snapshot, &mut **progress));
            let (sent, queued) = self.while_keeping(post, timeout, patience, sending);
            self.queued = queued.or(self.queued.take());
            let response = match sent {
                Ok(response) => response,
                Err(NoResponse { message: text, .. }) => {
                    return Attempt::Failed { status: None, asked: None, text };
                }
            };
            let status = response.status;
            self.metrics().answered(status);
            let verdict = self.shards.judge(&body, &response);
            if verdict != Verdict::Later {
                self.backoff.succeed();
            }
            return match verdict {
                Verdict::Taken(rejected, why) => {
                    self.metrics().sent.inc_by(body.samples - rejected);
                    let state = match rejected {
                        0 => ReceiverState::Takes(body.form),
                        _ => ReceiverState::Rejects,
                    };
                    Attempt::Taken(state, why)
                }
                Verdict::Refused { written, is_of_sender } => {
                    self.metrics().sent.inc_by(written);
                    self.metrics().refused(status, body.samples - written);
                    Attempt::Refused { status, is_of_sender, text: response.text() }
                }
                Verdict::Later => {
                    let text = format!("status {status}: {}", response.text());
                    Attempt::Failed { status: Some(status), asked: response.retry_after, text }
                }
                Verdict::Other if is_asked => Attempt::Invalid,
                Verdict::Other => {
                    is_asked = true;
                    continue;
                }
            };
        }
    }
}
