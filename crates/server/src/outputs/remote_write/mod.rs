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
//! A request that is sent again has the same bytes.

mod backlog;
mod convert;
mod fields;
mod metrics;
mod negotiation;
mod queue;
mod series;
mod snapshot;

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use quipu_segment::hash::Seeded;
use quipu_wire::remote::WriteVersion;
use tracing::{debug, info, warn};

use super::client::Client;
use super::schedule::{Backoff, Patience, Schedule};
use super::{LAST, Options, Source};
use crate::config::ExternalLabel;
use crate::inputs::now_ms;
use crate::inputs::rules::Relabelling;
use backlog::Backlog;
pub(super) use metrics::Metrics;
use metrics::ReceiverMetrics;
use negotiation::{Negotiation, Verdict};
use queue::Id;
pub(super) use queue::{Metrics as QueueMetrics, Queue};
use series::Flattening;
use snapshot::{Body, Requests, Snapshot};

/// Sends snapshots to a receiver.
pub(super) struct Writer {
    client: Client,
    source: Source,
    labels: Vec<ExternalLabel>,
    relabelling: Option<Arc<Relabelling>>,
    schedule: Schedule,
    backoff: Backoff,
    negotiation: Negotiation,
    hash: Seeded,
    /// The series that the receiver has, in the requests that brought them.
    before: Option<Snapshot>,
    /// Where a snapshot begins: after the request at which the last one ended, so that a request
    /// that the receiver fails at does not keep those after it from being sent.
    first: usize,
    standing: Standing,
    /// What waits on the disk, if anything may.
    backlog: Option<Backlog>,
    metrics: ReceiverMetrics,
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
    refused: Option<(u16, String)>,
    /// How long to wait at least before the next snapshot.
    least: Duration,
}

/// What was last logged of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unknown,
    Takes(WriteVersion),
    Refuses(u16),
    Fails,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        source: Source,
        options: &Options,
        relabelling: Option<Arc<Relabelling>>,
        queue: Option<Queue>,
        metrics: ReceiverMetrics,
    ) -> Self {
        Self {
            client,
            source,
            labels: options.labels.clone(),
            relabelling,
            schedule: Schedule::new(options.interval),
            backoff: Backoff::default(),
            negotiation: Negotiation::new(),
            hash: Seeded::default(),
            before: None,
            first: 0,
            standing: Standing::Unknown,
            backlog: queue.map(Backlog::new),
            metrics,
        }
    }

    /// Sends a snapshot at each multiple of the interval, and a last one when the daemon stops.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let (mut least, mut last) = (Duration::ZERO, None);
        while let Ok(timestamp_ms) = self.wait(last, least, stopped) {
            last = Some(timestamp_ms);
            let patience = self.schedule.patience(timestamp_ms, stopped);
            least = self.send(timestamp_ms, &patience);
            self.drain(&patience);
        }
        // A receiver that was failing holds up the end less: the state has the totals.
        let time = if self.backoff.is_failing() { LAST / 5 } else { LAST * 4 / 5 };
        // Not at a multiple of the interval: the totals of that time may have been sent.
        self.send(now_ms(), &Patience::Deadline(Instant::now() + time));
    }

    /// Sends a snapshot. Returns how long to wait at least before the next one.
    fn send(&mut self, timestamp_ms: i64, patience: &Patience<'_>) -> Duration {
        let mut snapshot = match self.snapshot(timestamp_ms) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.note(Standing::Fails, &error.to_string());
                return Duration::ZERO;
            }
        };
        self.show_age(timestamp_ms);
        let mut kept = vec![None; snapshot.bodies.len()];
        if self.backoff.is_failing() {
            self.keep(&snapshot, &mut kept, 0);
        }
        let mut course = Course::default();
        if self.may_send(&kept, patience) {
            self.send_all(&mut snapshot, &mut kept, patience, &mut course);
        }
        let at = course.at;
        match &course.refused {
            _ if course.is_any_taken => self.allow_backlog(true),
            // A 400 is about samples, of which some may have been taken, and not about the daemon.
            Some((status, _)) => self.allow_backlog(*status == 400),
            None => {}
        }
        if at == snapshot.bodies.len() && course.skipped.is_none() {
            match course.refused {
                Some((status, text)) => self.note(Standing::Refuses(status), &text),
                None => {
                    self.note(Standing::Takes(self.negotiation.version()), "");
                    self.metrics.completed(timestamp_ms);
                }
            }
            self.before = Some(snapshot);
            return Duration::ZERO;
        }
        self.keep(&snapshot, &mut kept, at);
        // What is on the disk will be sent.
        let done = at + kept[at..].iter().take_while(|kept| kept.is_some()).count();
        let lost = snapshot.bodies.iter().zip(&kept).skip(at).filter(|(_, kept)| kept.is_none());
        self.metrics.replaced.inc_by(lost.map(|(body, _)| body.samples).sum());
        let failed = course.has_failed.then_some(at).or(course.skipped);
        self.first = self.first.wrapping_add(failed.map_or(at, |failed| failed + 1));
        let sent = done.max(at + usize::from(course.has_failed));
        self.before = snapshot.merge(self.before.take(), done, sent, &self.hash);
        course.least
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
            let body = &mut snapshot.bodies[at];
            let attempt = match self.adapt(body) {
                true => self.attempt(body, self.timeout(patience)),
                false => {
                    self.metrics.invalid.inc_by(body.samples);
                    Attempt::Invalid
                }
            };
            match attempt {
                Attempt::InOtherVersion => continue,
                Attempt::Failed(asked, text) => {
                    self.note(Standing::Fails, &text);
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
                    self.metrics.retried.inc_by(snapshot.bodies[at].samples);
                    continue;
                }
                Attempt::Taken => course.is_any_taken = true,
                Attempt::Refused(status, text) => course.refused = Some((status, text)),
                Attempt::Invalid => {}
            }
            self.settle(kept[at]);
            course.at += 1;
            course.has_failed = false;
        }
    }

    /// Reads all series.
    fn snapshot(&mut self, timestamp_ms: i64) -> Result<Snapshot, quipu::Error> {
        let begun = Instant::now();
        let version = self.negotiation.version();
        let mut requests = Requests::new(timestamp_ms, version, self.hash.clone())
            .relabelled(self.relabelling.clone());
        self.source.visit(&mut Flattening::new(&mut requests, &self.labels))?;
        if let Some(before) = &self.before {
            requests.end_missing(before);
        }
        let mut snapshot = requests.finish();
        self.metrics.invalid.inc_by(snapshot.invalid);
        let count = snapshot.bodies.len();
        if count > 0 {
            snapshot.bodies.rotate_left(self.first % count);
        }
        let receiver = &self.metrics.receiver;
        debug!(%receiver, requests = count, took = ?begun.elapsed(), "took a snapshot to send");
        Ok(snapshot)
    }

    /// Puts a request that the receiver does not take in 2.0 into 1.0, with the same samples.
    /// Returns false if that fails, which it does not.
    fn adapt(&self, body: &mut Body) -> bool {
        if body.version == WriteVersion::One || self.negotiation.version() == WriteVersion::Two {
            return true;
        }
        body.in_version_1().map(|other| *body = other).is_ok()
    }

    /// Sends a request once.
    fn attempt(&mut self, body: &Body, timeout: Option<Duration>) -> Attempt {
        let via = match &self.relabelling {
            // Where rules drop what came from others, a request may go back to them.
            Some(_) => self.source.via().own().to_owned(),
            None => self.source.via().field(),
        };
        let sent = self.client.post(&fields::of(body.version, &via), &body.bytes, timeout);
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Attempt::Failed(None, error),
        };
        self.metrics.answered(answer.status);
        let written = fields::written(&answer.headers);
        let verdict = self.negotiation.judge(body.version, answer.status, written.is_some());
        if self.negotiation.is_known() {
            self.metrics.version.set(number(self.negotiation.version()));
        }
        if verdict != Verdict::Later {
            self.backoff.succeed();
        }
        match verdict {
            Verdict::Taken => {
                self.metrics.sent.inc_by(body.samples);
                Attempt::Taken
            }
            Verdict::Refused => {
                // Those that are not refused are stored.
                let written = written.unwrap_or(0).min(body.samples);
                self.metrics.sent.inc_by(written);
                self.metrics.refused(answer.status, body.samples - written);
                Attempt::Refused(answer.status, answer.text())
            }
            Verdict::Later => {
                let text = format!("status {}: {}", answer.status, answer.text());
                Attempt::Failed(answer.retry_after, text)
            }
            Verdict::Other => Attempt::InOtherVersion,
        }
    }

    /// Logs a change of what the receiver does.
    fn note(&mut self, standing: Standing, text: &str) {
        if mem::replace(&mut self.standing, standing) == standing {
            return;
        }
        let receiver = &self.metrics.receiver;
        match standing {
            Standing::Unknown => {}
            Standing::Takes(version) => {
                info!(%receiver, version = number(version), "the receiver takes samples");
            }
            Standing::Refuses(status) => warn!(
                %receiver, status, answer = text,
                "the receiver refuses samples, which are not sent again"
            ),
            Standing::Fails if self.backlog.is_some() => warn!(
                %receiver, error = text,
                "remote write fails; requests wait in the queue"
            ),
            Standing::Fails => warn!(
                %receiver, error = text,
                "remote write fails; the receiver gets the current totals when it takes them again"
            ),
        }
    }
}

/// What came of sending a request once.
enum Attempt {
    Taken,
    /// With the status, and the beginning of the text.
    Refused(u16, String),
    /// It is to be sent in another version.
    InOtherVersion,
    /// It is to be sent again, maybe after the time that the receiver asks for. With the reason.
    Failed(Option<Duration>, String),
    /// It cannot be sent.
    Invalid,
}

fn number(version: WriteVersion) -> i64 {
    match version {
        WriteVersion::One => 1,
        WriteVersion::Two => 2,
    }
}
