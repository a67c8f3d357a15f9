//! Remote write to one receiver: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! At each multiple of the interval, all series go into a snapshot. It is sent until the next one
//! is due; what is not sent by then is dropped, since the next snapshot has later totals of the
//! same series. So a receiver that was away gets the current totals, whatever the length of its
//! absence, and the memory that this takes depends on the number of series alone.
//!
//! With a queue on the disk, what is not sent goes there instead (`backlog.rs`), and is sent
//! between the snapshots.
//!
//! A request that is sent again has the same bytes, or the same samples in 1.0 or with Snappy if
//! the receiver was found to take that alone meanwhile.
//!
//! A receiver has one shard or several (`shards.rs`), each with a thread, a connection, and the
//! series whose hash falls to it (`placement.rs`). They send at the same time, and each has its own
//! retries: what is said here of a receiver holds for each shard.

mod backlog;
mod coding;
mod convert;
mod fields;
mod metrics;
mod negotiation;
mod parts;
mod placement;
mod queue;
mod series;
mod shards;
mod snapshot;

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use quipu_wire::remote::WriteVersion;
use tracing::debug;

use super::LAST;
use super::schedule::{Backoff, Patience, Schedule};
use backlog::Backlog;
pub use coding::Coding;
pub(super) use metrics::Metrics;
use metrics::ReceiverMetrics;
use negotiation::Verdict;
use queue::Id;
pub(super) use queue::{Lane, Metrics as QueueMetrics, Queue};
use quipu_client::sender::Client;
use quipu_client::via;
pub(super) use shards::Shards;
use shards::{Standing, number};
use snapshot::{Body, Requests, Snapshot};

/// A shard of a receiver: sends its part of each snapshot.
pub(super) struct Writer {
    client: Client,
    shards: Arc<Shards>,
    /// Its number.
    shard: usize,
    schedule: Schedule,
    backoff: Backoff,
    /// How many requests the receiver had taken of all shards at the last failure.
    taken: u64,
    /// The series that the receiver has, in the requests that brought them.
    before: Option<Snapshot>,
    /// The last snapshot that went to the queue while a request was under way.
    queued: Option<Snapshot>,
    /// Where a snapshot begins: after the request at which the last one ended, so that a request
    /// that the receiver fails at does not keep those after it from being sent.
    first: usize,
    /// What waits on the disk, if anything may.
    backlog: Option<Backlog>,
}

/// A snapshot that is being sent, with the places of its requests in the queue.
struct Sending<'s> {
    snapshot: &'s Snapshot,
    kept: &'s mut [Option<Id>],
    /// The request that is under way.
    at: usize,
}

/// What came of sending a snapshot.
#[derive(Debug, Default)]
struct Course {
    /// The requests before this one were taken or refused.
    at: usize,
    /// Whether the one there failed.
    has_failed: bool,
    /// A request that failed while others were taken, and waits in the queue.
    skipped: Option<usize>,
    /// Whether any was taken.
    is_any_taken: bool,
    /// The last response that refuses one.
    refused: Option<Refusal>,
    /// How long to wait at least before the next snapshot.
    least: Duration,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        shards: Arc<Shards>,
        shard: usize,
        interval: Duration,
        lane: Option<Lane>,
    ) -> Self {
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
            backlog: lane.map(Backlog::new),
        }
    }

    /// Sends a snapshot at each multiple of the interval, and a last one when the daemon stops.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let (mut least, mut last) = (Duration::ZERO, None);
        while let Ok(due_ms) = self.wait(last, least, stopped) {
            let requests = self.noted(self.shards.take(self.shard, due_ms));
            let timestamp_ms = requests.as_ref().map_or(due_ms, Requests::timestamp_ms);
            last = Some(timestamp_ms);
            let patience = self.schedule.patience(timestamp_ms, stopped);
            least = requests.map_or(Duration::ZERO, |requests| self.send(requests, &patience));
            self.drain(&patience);
            // It is newer than the snapshot that was sent.
            self.before = self.queued.take().or(self.before.take());
        }
        // A receiver that was failing holds up the end less: the state has the totals.
        let time = if self.backoff.is_failing() { LAST / 5 } else { LAST * 4 / 5 };
        let patience = Patience::Deadline(Instant::now() + time);
        if let Some(requests) = self.noted(self.shards.take_last(self.shard)) {
            self.send(requests, &patience);
        }
    }

    /// The requests of a snapshot. Logs why there are none.
    fn noted(&self, taken: Result<Option<Requests>, quipu::Error>) -> Option<Requests> {
        taken.unwrap_or_else(|error| {
            self.note(Standing::Fails, &error.to_string());
            None
        })
    }

    /// Sends a snapshot. Returns how long to wait at least before the next one.
    fn send(&mut self, requests: Requests, patience: &Patience<'_>) -> Duration {
        let mut snapshot = self.finish(requests, self.before.as_ref());
        self.show_age(snapshot.timestamp_ms);
        let mut kept = vec![None; snapshot.bodies.len()];
        if self.backoff.is_failing() {
            self.keep(&snapshot, &mut kept, 0);
        }
        let mut course = Course::default();
        if self.may_send(&kept, patience) {
            self.send_all(&mut snapshot, &mut kept, patience, &mut course);
        }
        let at = course.at;
        self.judge_backlog(&course);
        if at == snapshot.bodies.len() && course.skipped.is_none() {
            match course.refused {
                Some(refusal) => self.note(Standing::Refuses(refusal.status), &refusal.text),
                None if at == 0 => self.complete(Standing::Unknown, snapshot.timestamp_ms),
                None => {
                    let standing = Standing::Takes(number(self.shards.version()));
                    self.complete(standing, snapshot.timestamp_ms);
                }
            }
            self.before = Some(snapshot);
            return Duration::ZERO;
        }
        self.keep(&snapshot, &mut kept, at);
        // What is on the disk will be sent.
        let done = at + kept[at..].iter().take_while(|kept| kept.is_some()).count();
        let lost = snapshot.bodies.iter().zip(&kept).skip(at).filter(|(_, kept)| kept.is_none());
        self.metrics().replaced.inc_by(lost.map(|(body, _)| body.samples).sum());
        let failed = course.has_failed.then_some(at).or(course.skipped);
        self.first = self.first.wrapping_add(failed.map_or(at, |failed| failed + 1));
        let sent = done.max(at + usize::from(course.has_failed));
        self.before = snapshot.merge(self.before.take(), done, sent, self.shards.hash());
        course.least
    }

    /// Notes a failure. Returns whether the receiver has taken a request of any shard since the one
    /// before.
    fn are_others_taken(&mut self) -> bool {
        let taken = self.shards.taken();
        mem::replace(&mut self.taken, taken) != taken
    }

    /// Notes that all of a snapshot was sent.
    fn complete(&self, standing: Standing, timestamp_ms: i64) {
        self.note(standing, "");
        self.shards.complete(self.shard, timestamp_ms);
    }

    fn metrics(&self) -> &ReceiverMetrics {
        &self.shards.metrics
    }

    /// Notes what is known of the receiver.
    fn note(&self, standing: Standing, text: &str) {
        self.shards.note(self.shard, standing, text);
    }

    /// Sends the requests of a snapshot until there is no more time. Those that fail are kept, if
    /// there is a queue; otherwise, they are sent again.
    fn send_all(
        &mut self,
        snapshot: &mut Snapshot,
        kept: &mut [Option<Id>],
        patience: &Patience<'_>,
        course: &mut Course,
    ) {
        while course.at < snapshot.bodies.len() {
            let at = course.at;
            if at > 0 && patience.is_over() {
                return;
            }
            let attempt = if self.adapt(&mut snapshot.bodies[at]) {
                let sending = Sending { snapshot, kept, at };
                self.attempt(&snapshot.bodies[at], patience, Some(sending))
            } else {
                Attempt::Invalid
            };
            let body = &snapshot.bodies[at];
            match attempt {
                // Whatever the receiver says to other shards meanwhile, so that this ends.
                Attempt::InOtherVersion => match body.in_version_1() {
                    Ok(other) => {
                        snapshot.bodies[at] = other;
                        continue;
                    }
                    Err(_) => self.metrics().invalid.inc_by(snapshot.bodies[at].samples),
                },
                Attempt::Failed { asked, text, .. } => {
                    self.note(Standing::Fails, &text);
                    self.are_others_taken();
                    let delay = self.backoff.fail(asked);
                    course.has_failed = true;
                    self.keep(snapshot, kept, at);
                    if kept[at..].iter().all(Option::is_some) {
                        if !course.is_any_taken || course.skipped.is_some() {
                            return self.pause(delay);
                        }
                        // It may be this request alone.
                        course.skipped = Some(at);
                        course.at += 1;
                        course.has_failed = false;
                        continue;
                    }
                    if !patience.wait(delay) {
                        course.least = delay;
                        return self.pause(delay);
                    }
                    self.metrics().retried.inc_by(snapshot.bodies[at].samples);
                    continue;
                }
                Attempt::Taken => course.is_any_taken = true,
                Attempt::Refused(refusal) => course.refused = Some(refusal),
                Attempt::Invalid => self.metrics().invalid.inc_by(snapshot.bodies[at].samples),
            }
            self.settle(kept[at]);
            course.at += 1;
            course.has_failed = false;
        }
    }

    /// Ends a snapshot, with the marks of the series that are gone since the one before.
    fn finish(&self, mut requests: Requests, before: Option<&Snapshot>) -> Snapshot {
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

    /// Puts a request that the receiver does not take in 2.0 into 1.0, with the same samples.
    /// Returns false if that fails, which it does not.
    fn adapt(&self, body: &mut Body) -> bool {
        if (body.version, self.shards.version()) != (WriteVersion::Two, WriteVersion::One) {
            return true;
        }
        body.in_version_1().map(|other| *body = other).is_ok()
    }

    /// Sends a request once.
    fn attempt(
        &mut self,
        body: &Body,
        patience: &Patience<'_>,
        mut sending: Option<Sending<'_>>,
    ) -> Attempt {
        let timeout = self.timeout(patience);
        let via = self.shards.via();
        let fields = fields::of(body.version, body.coding, &via);
        let post = || self.client.post(&fields, &body.bytes, timeout);
        let (sent, queued) = self.while_keeping(post, timeout, patience, sending.as_mut());
        self.queued = queued.or(self.queued.take());
        let answer = match sent {
            Ok(answer) => answer,
            Err(text) => return Attempt::Failed { status: None, asked: None, text },
        };
        self.metrics().answered(answer.status);
        let written = fields::written(&answer.headers);
        let verdict = self.shards.judge(body.version, answer.status, written.is_some());
        if verdict != Verdict::Later {
            self.backoff.succeed();
        }
        match verdict {
            Verdict::Taken => {
                self.metrics().sent.inc_by(body.samples);
                Attempt::Taken
            }
            Verdict::Refused => {
                // Those that are not refused are stored.
                let written = written.unwrap_or(0).min(body.samples);
                self.metrics().sent.inc_by(written);
                self.metrics().refused(answer.status, body.samples - written);
                let is_loop = answer.headers.contains_key(via::FIELD);
                Attempt::Refused(Refusal { status: answer.status, is_loop, text: answer.text() })
            }
            Verdict::Later => {
                let text = format!("status {}: {}", answer.status, answer.text());
                Attempt::Failed { status: Some(answer.status), asked: answer.retry_after, text }
            }
            Verdict::Other => Attempt::InOtherVersion,
        }
    }
}

/// A response that refuses a request.
#[derive(Debug)]
struct Refusal {
    status: u16,
    /// Whether the samples are the receiver's own.
    is_loop: bool,
    /// The beginning of the body.
    text: String,
}

impl Refusal {
    /// Whether it is about the samples of the request, and not about the daemon or its way to the
    /// receiver. A status 409 is, because Thanos gives it to late samples, but not if the receiver
    /// is a daemon in a loop.
    fn is_about_samples(&self) -> bool {
        matches!(self.status, 400 | 413 | 422) || self.status == 409 && !self.is_loop
    }
}

/// What came of sending a request once.
enum Attempt {
    Taken,
    Refused(Refusal),
    /// It is to be sent in another version.
    InOtherVersion,
    /// It is to be sent again, maybe after the time that the receiver asks for. With the status, if
    /// there was a response, and the reason.
    Failed {
        status: Option<u16>,
        asked: Option<Duration>,
        text: String,
    },
    /// It cannot be sent.
    Invalid,
}
