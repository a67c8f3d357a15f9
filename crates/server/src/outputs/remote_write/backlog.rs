//! What waits on the disk for a receiver: requests that were not sent by the time the next snapshot
//! was due.
//!
//! - **Order.** The requests of a new snapshot go first. Between snapshots, the backlog is sent,
//!   oldest first: so the samples of a series in it stay in order, as receivers expect, and those
//!   that a receiver will soon find too old go first.
//! - **Deaths.** While the receiver fails, a snapshot is on the disk before the first attempt to
//!   send it.
//! - **Faults.** What the disk does not take is treated as without a queue.

use std::mem;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::queue::{Id, Queue};
use super::snapshot::Snapshot;
use super::{Attempt, Standing, Writer};
use crate::outputs::schedule::{Backoff, Patience, Stopped};

/// The queue of a receiver, and when it may be sent.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Queue,
    /// No request is sent before this.
    pause: Option<Instant>,
    /// Of the backlog: a request in it that always fails does not hold up new ones.
    own_pause: Option<Instant>,
    own_backoff: Backoff,
    /// Whether the receiver takes new requests. If it refuses all of them, it would refuse these.
    is_allowed: bool,
    /// Whether it was logged that the receiver refuses requests.
    is_refusal_logged: bool,
}

/// The time that a request gets, though the next snapshot is due: of a receiver that works, and of
/// one that fails.
const LEAST_WORKING: Duration = Duration::from_secs(5);
const LEAST_FAILING: Duration = Duration::from_millis(100);
/// The time limit of a request.
const MOST: Duration = Duration::from_secs(30);

impl Backlog {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            pause: None,
            own_pause: None,
            own_backoff: Backoff::default(),
            is_allowed: true,
            is_refusal_logged: false,
        }
    }
}

impl Writer {
    /// Waits until the next snapshot is due. With a queue, no snapshot is left out since the one
    /// before took long.
    pub(super) fn wait(
        &self,
        last: Option<i64>,
        least: Duration,
        stopped: &Receiver<()>,
    ) -> Result<i64, Stopped> {
        let overdue = self.backlog.as_ref().and(last).and_then(|last| self.schedule.overdue(last));
        match overdue {
            Some(timestamp_ms) if stopped.try_recv() == Err(TryRecvError::Empty) => {
                Ok(timestamp_ms)
            }
            _ => self.schedule.wait(least, stopped),
        }
    }

    /// The time that a request may take. With a queue, one that gets no response does not hold up
    /// the next snapshot.
    pub(super) fn timeout(&self, patience: &Patience<'_>) -> Option<Duration> {
        match (&self.backlog, patience) {
            (Some(_), Patience::Interval(..)) => {
                let is_failing = self.backoff.is_failing();
                let least = if is_failing { LEAST_FAILING } else { LEAST_WORKING };
                Some(patience.left().clamp(least, MOST))
            }
            _ => patience.timeout(),
        }
    }

    /// Puts the requests of a snapshot from this one on into the queue, as far as it takes them.
    pub(super) fn keep(&mut self, snapshot: &Snapshot, kept: &mut [Option<Id>], from: usize) {
        let Some(backlog) = &mut self.backlog else { return };
        let bodies = snapshot.bodies.iter().zip(kept).skip(from);
        for (body, kept) in bodies.filter(|(_, kept)| kept.is_none()) {
            *kept = backlog.queue.push(snapshot.timestamp_ms, body);
            if kept.is_none() {
                return;
            }
        }
    }

    /// Whether the requests of a snapshot may be sent now. If they are not in the queue, this
    /// waits.
    pub(super) fn may_send(&self, kept: &[Option<Id>], patience: &Patience<'_>) -> bool {
        let pause = self.backlog.as_ref().map_or(Duration::ZERO, |backlog| left(backlog.pause));
        pause.is_zero() || kept.iter().any(Option::is_none) && patience.wait(pause)
    }

    /// Sends nothing for this time.
    pub(super) fn pause(&mut self, time: Duration) {
        if let Some(backlog) = &mut self.backlog {
            backlog.pause = Some(Instant::now() + time);
        }
    }

    /// A request was taken or refused, and does not have to be kept.
    pub(super) fn settle(&mut self, kept: Option<Id>) {
        if let (Some(backlog), Some(id)) = (&mut self.backlog, kept) {
            backlog.queue.finish(id);
        }
    }

    /// Says whether the receiver takes new requests.
    pub(super) fn allow_backlog(&mut self, is_allowed: bool) {
        if let Some(backlog) = &mut self.backlog {
            backlog.is_allowed = is_allowed;
        }
    }

    /// Shows how long the oldest samples have waited.
    pub(super) fn show_age(&self, now_ms: i64) {
        if let Some(backlog) = &self.backlog {
            backlog.queue.show_age(now_ms);
        }
    }

    /// Sends requests that wait, until the next snapshot is due.
    pub(super) fn drain(&mut self, patience: &Patience<'_>) {
        while let Some(backlog) = self.backlog.as_mut().filter(|backlog| backlog.is_allowed) {
            if patience.is_over() {
                return;
            }
            let pause = left(backlog.pause).max(left(backlog.own_pause));
            let Some((id, mut body)) = backlog.queue.front() else {
                backlog.is_refusal_logged = false;
                return;
            };
            if !pause.is_zero() && !patience.wait(pause) {
                return;
            }
            let was_failing = self.backoff.is_failing();
            let attempt = match self.adapt(&mut body) {
                true => self.attempt(&body, self.timeout(patience)),
                false => Attempt::Invalid,
            };
            if was_failing && let Attempt::Failed(_, text) = &attempt {
                self.note(Standing::Fails, text);
            }
            self.note_backlog(id, body.samples, attempt, was_failing);
        }
    }

    /// Notes what came of sending a request of the backlog.
    fn note_backlog(&mut self, id: Id, samples: u64, attempt: Attempt, was_failing: bool) {
        let Some(backlog) = &mut self.backlog else { return };
        match attempt {
            Attempt::InOtherVersion => return,
            Attempt::Failed(asked, _) => {
                let delay = backlog.own_backoff.fail(asked);
                backlog.own_pause = Some(Instant::now() + delay);
                if !was_failing {
                    backlog.queue.blame();
                }
                return;
            }
            Attempt::Taken => {}
            Attempt::Refused(status, text) => {
                backlog.queue.count_refused(samples);
                if !mem::replace(&mut backlog.is_refusal_logged, true) {
                    let receiver = &self.metrics.receiver;
                    warn!(
                        %receiver, status, answer = text,
                        "the receiver refuses requests of the queue, which are dropped; Prometheus \
                         takes late samples within its out_of_order_time_window"
                    );
                }
            }
            Attempt::Invalid => self.metrics.invalid.inc_by(samples),
        }
        (backlog.pause, backlog.own_pause) = (None, None);
        backlog.own_backoff.succeed();
        backlog.queue.finish(id);
    }
}

/// The time until then.
fn left(pause: Option<Instant>) -> Duration {
    pause.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
}
