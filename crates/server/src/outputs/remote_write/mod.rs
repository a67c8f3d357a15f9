//! Remote write to one receiver: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! At each multiple of the interval, all series go into a snapshot. It is sent until the next one
//! is due; what is not sent by then is dropped, since the next snapshot has later totals of the same
//! series. So a receiver that was away gets the current totals, whatever the length of its absence,
//! and the memory that this takes depends on the number of series alone.
//!
//! A request that is sent again has the same bytes.

mod convert;
mod fields;
mod metrics;
mod negotiation;
mod series;
mod snapshot;

use std::mem;
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
pub(super) use metrics::Metrics;
use metrics::ReceiverMetrics;
use negotiation::{Negotiation, Verdict};
use series::Flattening;
use snapshot::{Body, Requests, Snapshot};

/// Sends snapshots to a receiver.
pub(super) struct Writer {
    client: Client,
    source: Source,
    labels: Vec<ExternalLabel>,
    schedule: Schedule,
    backoff: Backoff,
    negotiation: Negotiation,
    hash: Seeded,
    /// The last snapshot of which every request was taken or refused.
    before: Option<Snapshot>,
    /// Where a snapshot begins: after the request at which the last one ended, so that a request
    /// that the receiver fails at does not keep those after it from being sent.
    first: usize,
    standing: Standing,
    metrics: ReceiverMetrics,
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
        metrics: ReceiverMetrics,
    ) -> Self {
        Self {
            client,
            source,
            labels: options.labels.clone(),
            schedule: Schedule::new(options.interval),
            backoff: Backoff::default(),
            negotiation: Negotiation::new(),
            hash: Seeded::default(),
            before: None,
            first: 0,
            standing: Standing::Unknown,
            metrics,
        }
    }

    /// Sends a snapshot at each multiple of the interval, and a last one when the daemon stops.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let mut least = Duration::ZERO;
        while let Ok(timestamp_ms) = self.schedule.wait(least, stopped) {
            let due = self.schedule.after(timestamp_ms);
            least = self.send(timestamp_ms, &Patience::Interval(due, stopped));
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
        let mut refused = None;
        let mut at = 0;
        while at < snapshot.bodies.len() {
            if at > 0 && patience.is_over() {
                self.metrics.replaced.inc_by(snapshot.samples_from(at));
                self.first = self.first.wrapping_add(at);
                return Duration::ZERO;
            }
            let body = &mut snapshot.bodies[at];
            if !self.adapt(body) {
                self.metrics.invalid.inc_by(body.samples);
                at += 1;
                continue;
            }
            match self.attempt(body, patience.timeout()) {
                Attempt::Taken => at += 1,
                Attempt::Refused(status, text) => {
                    refused = Some((status, text));
                    at += 1;
                }
                Attempt::InOtherVersion => {}
                Attempt::Failed(asked) => {
                    let delay = self.backoff.fail(asked);
                    if !patience.wait(delay) {
                        self.metrics.replaced.inc_by(snapshot.samples_from(at));
                        self.first = self.first.wrapping_add(at + 1);
                        return delay;
                    }
                    self.metrics.retried.inc_by(snapshot.bodies[at].samples);
                }
            }
        }
        match refused {
            Some((status, text)) => self.note(Standing::Refuses(status), &text),
            None => {
                self.note(Standing::Takes(self.negotiation.version()), "");
                self.metrics.completed(timestamp_ms);
            }
        }
        self.before = Some(snapshot);
        Duration::ZERO
    }

    /// Reads all series.
    fn snapshot(&mut self, timestamp_ms: i64) -> Result<Snapshot, quipu::Error> {
        let begun = Instant::now();
        let version = self.negotiation.version();
        let mut requests = Requests::new(timestamp_ms, version, self.hash.clone());
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
        let sent = self.client.post(&fields::of(body.version), &body.bytes, timeout);
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                self.note(Standing::Fails, &error);
                return Attempt::Failed(None);
            }
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
                self.note(Standing::Fails, &format!("status {}: {}", answer.status, answer.text()));
                Attempt::Failed(answer.retry_after)
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
    /// It is to be sent again, maybe after the time that the receiver asks for.
    Failed(Option<Duration>),
}

fn number(version: WriteVersion) -> i64 {
    match version {
        WriteVersion::One => 1,
        WriteVersion::Two => 2,
    }
}
