//! The backlog of a shard: requests that wait on the disk because they could not be sent before the
//! next snapshot was due.
//!
//! - **Order.** The requests of a new snapshot are sent first. Between snapshots, the backlog is
//!   sent, the oldest request first. This order matters because receivers expect the samples of a
//!   series in order, and refuse samples that are too old.
//! - **Crashes.** While the receiver fails, each snapshot is written to the disk before the first
//!   attempt to send it.
//! - **Slow requests.** Further snapshots can become due during a slow request. Another thread
//!   appends them to the queue, after the requests of the current snapshot.
//! - **Disk errors.** If a request cannot be written, it is treated as if there were no queue.

use std::mem;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::protocol::Protocol;
use super::queue::{Id, Queue};
use super::schedule::{Backoff, Patience, ShutdownSignal};
use super::sender::{Attempt, SendProgress, Sender};
use super::shards::ReceiverState;
use super::snapshot::Snapshot;

/// A shard's view of a queue, and the times when it can send.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Arc<Mutex<Queue>>,
    shard: u8,
    /// The time before which no request is sent.
    pause: Option<Instant>,
    /// The time before which no request of the backlog is sent. This is separate from `pause`,
    /// because a request that always fails must not delay new requests.
    own_pause: Option<Instant>,
    own_backoff: Backoff,
    /// The number of requests that the receiver had accepted, over all shards, when it refused
    /// every request of this shard. While this number stays the same, the receiver would refuse the
    /// backlog too, so we don't send it.
    barred: Option<u64>,
    /// Whether refused requests that were dropped have been logged.
    is_refusal_logged: bool,
    /// Whether refused requests that wait have been logged.
    is_wait_logged: bool,
}

/// The minimum time limit of a request to a working receiver, if the next snapshot is already due.
const LEAST_WORKING: Duration = Duration::from_secs(5);
/// The minimum time limit of a request to a failing receiver. Sometimes we use the maximum instead,
/// because the receiver may only have become slow.
const LEAST_FAILING: Duration = Duration::from_millis(100);
/// The number of failures between two attempts with the maximum time limit.
const FAILURES_PER_LONG: u32 = 8;
/// The number of consecutive responses with status 503 that are not blamed on the request.
const MOST_UNAVAILABLE: u32 = 16;
/// The maximum time limit of a request.
const MOST: Duration = Duration::from_secs(30);

impl Backlog {
    pub(super) fn new(queue: Arc<Mutex<Queue>>, shard: u8) -> Self {
        Self {
            queue,
            shard,
            pause: None,
            own_pause: None,
            own_backoff: Backoff::default(),
            barred: None,
            is_refusal_logged: false,
            is_wait_logged: false,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Sender<P> {
    /// Waits until the next snapshot is due. With a queue, no snapshot is skipped because the
    /// previous one took long, or because another shard has already read it.
    pub(super) fn wait(
        &self,
        last: Option<i64>,
        least: Duration,
        stopped: &Receiver<()>,
    ) -> Result<i64, ShutdownSignal> {
        let is_ready = self.backlog.is_some()
            || least.is_zero() && last.is_some() && self.shards.has_part(self.shard);
        let last = last.filter(|_| is_ready);
        match last.and_then(|last| self.schedule.overdue(last)) {
            Some(timestamp_ms) if stopped.try_recv() == Err(TryRecvError::Empty) => {
                Ok(timestamp_ms)
            }
            _ => self.schedule.wait(least, stopped),
        }
    }

    /// Returns the time limit of a request. With a queue, it is short enough that a request without
    /// a response rarely delays the next snapshot.
    pub(super) fn timeout(&self, patience: &Patience<'_>) -> Option<Duration> {
        match patience.timeout() {
            None if self.backlog.is_some() => {
                Some(patience.left().clamp(least(self.backoff.failures()), MOST))
            }
            timeout => timeout,
        }
    }

    /// Appends the requests of a snapshot to the queue, starting at index `from`, until a write
    /// fails. Returns whether all requests are now in the queue.
    pub(super) fn keep(&self, snapshot: &Snapshot, kept: &mut [Option<Id>], from: usize) -> bool {
        let Some(backlog) = &self.backlog else { return false };
        let mut bodies = snapshot.bodies.iter().zip(kept).skip(from);
        bodies.all(|(body, kept)| {
            let push = || backlog.queue().push(backlog.shard, snapshot.timestamp_ms, body);
            *kept = kept.or_else(push);
            kept.is_some()
        })
    }

    /// Calls `post`, which sends a request. With a queue, another thread appends the snapshots that
    /// become due in the meantime to the queue, so a slow request does not block them. Returns the
    /// last snapshot that was queued completely.
    pub(super) fn while_keeping<R>(
        &self,
        post: impl FnOnce() -> R,
        timeout: Option<Duration>,
        patience: &Patience<'_>,
        sending: Option<(&Snapshot, &mut SendProgress)>,
    ) -> (R, Option<Snapshot>) {
        let is_short = timeout.is_some_and(|timeout| timeout <= patience.left());
        if self.backlog.is_none() || is_short || patience.timeout().is_some() {
            return (post(), None);
        }
        let last_ms = patience.last_ms;
        let (end, ended) = mpsc::channel();
        thread::scope(|scope| {
            let keep = move || self.keep_due(last_ms, &ended, sending);
            // If the thread cannot be started, these snapshots are skipped.
            let keeper = thread::Builder::new().name("queue".into()).spawn_scoped(scope, keep);
            let posted = post();
            drop(end);
            let queued = keeper.ok().and_then(|keeper| keeper.join().ok());
            (posted, queued.flatten())
        })
    }

    /// Appends the snapshots that become due to the queue, until the current request ends. Returns
    /// the last snapshot that was queued completely.
    fn keep_due(
        &self,
        mut last_ms: i64,
        ended: &Receiver<()>,
        mut sending: Option<(&Snapshot, &mut SendProgress)>,
    ) -> Option<Snapshot> {
        let mut queued = None;
        loop {
            let due_ms = match self.schedule.overdue(last_ms) {
                Some(due_ms) if ended.try_recv() == Err(TryRecvError::Empty) => due_ms,
                Some(_) => return queued,
                None => match self.schedule.wait(Duration::ZERO, ended) {
                    Ok(due_ms) => due_ms,
                    Err(ShutdownSignal) => return queued,
                },
            };
            last_ms = due_ms;
            if let Some((snapshot, progress)) = &mut sending {
                // We queue the rest of the current snapshot first, to preserve the order.
                self.keep(snapshot, &mut progress.kept, progress.at);
            }
            let requests = self.noted(self.shards.take(self.shard, Some(due_ms)));
            let Some(requests) = requests else { continue };
            last_ms = last_ms.max(requests.snapshot.timestamp_ms);
            let sent = sending.as_ref().map(|(snapshot, _)| *snapshot);
            let before = queued.as_ref().or(self.queued.as_ref()).or(sent);
            let snapshot = self.finish(requests, before.or(self.before.as_ref()));
            let mut kept = vec![None; snapshot.bodies.len()];
            self.keep(&snapshot, &mut kept, 0);
            let lost = snapshot.bodies.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
            let lost: u64 = lost.map(|(body, _)| body.samples).sum();
            self.shards.metrics.replaced.inc_by(lost);
            if lost == 0 {
                queued = Some(snapshot);
            }
        }
    }

    /// Returns whether the requests of a snapshot can be sent now. If some are not in the queue,
    /// waits for the end of the pause.
    pub(super) fn may_send(&self, kept: &[Option<Id>], patience: &Patience<'_>) -> bool {
        let pause = self.backlog.as_ref().map_or(Duration::ZERO, |backlog| left(backlog.pause));
        pause.is_zero() || kept.iter().any(Option::is_none) && patience.wait(pause)
    }

    /// Sends no request for this time.
    pub(super) fn pause(&mut self, time: Duration) {
        if let Some(backlog) = &mut self.backlog {
            backlog.pause = Some(Instant::now() + time);
        }
    }

    /// Removes a request from the queue, because it was accepted or refused.
    pub(super) fn release(&self, kept: Option<Id>) {
        if let (Some(backlog), Some(id)) = (&self.backlog, kept) {
            backlog.queue().finish(id);
        }
    }

    /// Determines from the outcome of a snapshot whether the receiver would accept the backlog.
    pub(super) fn judge_backlog(&mut self, progress: &SendProgress) {
        let taken = self.shards.taken();
        let Some(backlog) = &mut self.backlog else { return };
        backlog.barred = match backlog.barred {
            _ if progress.is_any_taken || progress.refused == Some(false) => None,
            // A shard without series cannot find out by itself, so it tries again after the
            // receiver accepted a request of another shard.
            Some(before) => Some(before).filter(|before| *before == taken),
            None => progress.refused.map(|_| taken),
        };
    }

    /// Updates the metric for the age of the oldest samples.
    pub(super) fn show_age(&self, now_ms: i64) {
        if let Some(backlog) = &self.backlog {
            backlog.queue().show_age(now_ms);
        }
    }

    /// Sends the backlog until the next snapshot is due.
    pub(super) fn drain(&mut self, patience: &Patience<'_>) {
        while let Some(backlog) = self.backlog.as_mut().filter(|backlog| backlog.barred.is_none()) {
            if patience.is_over() {
                return;
            }
            let pause = left(backlog.pause).max(left(backlog.own_pause));
            let Some((id, body)) = backlog.queue().front(backlog.shard) else {
                (backlog.is_refusal_logged, backlog.is_wait_logged) = (false, false);
                return;
            };
            if !pause.is_zero() && !patience.wait(pause) {
                return;
            }
            let own_failures = backlog.own_backoff.failures();
            let was_failing = self.backoff.is_failing();
            let attempt = self.attempt(&body, patience, None);
            let mut is_to_blame = false;
            if let Attempt::Failed { status, asked, text } = &attempt {
                // Blame this request if the receiver accepted other requests, of any shard, in the
                // meantime.
                is_to_blame = self.has_accepted_since_failure() || !was_failing;
                is_to_blame &= !is_throttled(*status, *asked, own_failures);
                if was_failing {
                    self.note(ReceiverState::Fails, text);
                }
            }
            self.note_backlog(id, body.samples, attempt, is_to_blame);
        }
    }

    /// Applies the outcome of a request from the backlog: removes it, blames it, or starts a pause.
    fn note_backlog(&mut self, id: Id, samples: u64, attempt: Attempt, is_to_blame: bool) {
        let Some(backlog) = &mut self.backlog else { return };
        let metrics = &self.shards.metrics;
        match attempt {
            Attempt::Failed { asked, .. } => {
                let delay = backlog.own_backoff.fail(asked);
                backlog.own_pause = Some(Instant::now() + delay);
                if is_to_blame {
                    backlog.queue().blame(id);
                }
                return;
            }
            Attempt::Taken(..) => {}
            Attempt::Refused { status, is_of_sender: true, text } => {
                // The next snapshot will show whether the receiver accepts any request.
                backlog.barred = Some(self.shards.taken());
                backlog.queue().blame(id);
                if !mem::replace(&mut backlog.is_wait_logged, true) {
                    let receiver = &metrics.receiver;
                    warn!(
                        %receiver, status, answer = text,
                        "the receiver refuses requests of the queue, which wait: the response is \
                         not about their samples"
                    );
                }
                return;
            }
            Attempt::Refused { status, text, .. } => {
                backlog.queue().count_refused(samples);
                if !mem::replace(&mut backlog.is_refusal_logged, true) {
                    let receiver = &metrics.receiver;
                    warn!(
                        %receiver, status, answer = text,
                        "the receiver refuses requests of the queue, which are dropped; Prometheus \
                         takes late samples within its out_of_order_time_window"
                    );
                }
            }
            Attempt::Invalid => metrics.invalid.inc_by(samples),
        }
        (backlog.pause, backlog.own_pause) = (None, None);
        backlog.own_backoff.succeed();
        backlog.queue().finish(id);
    }
}

/// Returns whether a request failed because the receiver is overloaded, not because of its
/// contents. We then keep the order of the samples, and don't send other requests first. A proxy
/// can also return 503 for a request that crashes its receiver, so after too many failures this
/// status is blamed on the request.
fn is_throttled(status: Option<u16>, asked: Option<Duration>, failures: u32) -> bool {
    match status {
        Some(503) => asked.is_some() || failures < MOST_UNAVAILABLE,
        _ => status == Some(429) || asked.is_some(),
    }
}

/// Returns the minimum time limit of a request after this number of failures.
fn least(failures: u32) -> Duration {
    match failures {
        0 => LEAST_WORKING,
        failures if failures.is_multiple_of(FAILURES_PER_LONG) => MOST,
        _ => LEAST_FAILING,
    }
}

/// Returns the remaining time of a pause.
fn left(pause: Option<Instant>) -> Duration {
    pause.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_throttles_blames_no_request() {
        let asked = Some(Duration::from_secs(1));
        for (status, asked, failures, expected) in [
            (Some(429), None, 1000, true),
            (Some(500), asked, 1000, true),
            (Some(503), asked, 1000, true),
            (Some(503), None, MOST_UNAVAILABLE - 1, true),
            (Some(503), None, MOST_UNAVAILABLE, false),
            (Some(500), None, 0, false),
            (None, None, 0, false),
        ] {
            let case = format!("{status:?} {asked:?} {failures}");
            assert_eq!(is_throttled(status, asked, failures), expected, "{case}");
        }
    }

    #[test]
    fn a_receiver_that_became_slow_gets_time() {
        let times: Vec<_> = (0..=16).map(least).collect();
        assert_eq!((times[0], times[8], times[16]), (LEAST_WORKING, MOST, MOST));
        assert_eq!(times.iter().filter(|time| **time == LEAST_FAILING).count(), 14);
    }
}
