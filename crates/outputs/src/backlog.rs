//! What waits on the disk for a receiver: requests that were not sent by the time the next snapshot
//! was due.
//!
//! - **Order.** The requests of a new snapshot go first. Between snapshots, the backlog is sent,
//!   oldest first: so the samples of a series in it stay in order, as receivers expect, and those
//!   that a receiver will soon find too old go first.
//! - **Deaths.** While the receiver fails, a snapshot is on the disk before the first attempt to
//!   send it.
//! - **Long requests.** A request may take longer than until the next snapshot is due. Then another
//!   thread puts the snapshots that are due in the meantime into the queue, after the requests of
//!   the current snapshot.
//! - **Faults.** What the disk does not take is treated as without a queue.

use std::mem;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::protocol::Protocol;
use super::queue::{Id, Queue};
use super::schedule::{Backoff, Patience, ShutdownSignal};
use super::sender::{Attempt, Course, Sender};
use super::shards::Standing;
use super::snapshot::Snapshot;

/// The part of a queue that a shard fills and sends, and when it may be sent.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Arc<Mutex<Queue>>,
    shard: u8,
    /// No request is sent before this.
    pause: Option<Instant>,
    /// Of the backlog: a request in it that always fails does not hold up new ones.
    own_pause: Option<Instant>,
    own_backoff: Backoff,
    /// How many requests the receiver had taken of all shards when it was found to refuse all of
    /// this one, so that it would refuse these, too.
    barred: Option<u64>,
    /// Whether it was logged that the receiver refuses requests, which are dropped, or wait.
    is_refusal_logged: bool,
    is_wait_logged: bool,
}

/// The time that a request gets, though the next snapshot is due: of a receiver that works, and of
/// one that fails. Such a one gets the most at times: it may have become slow.
const LEAST_WORKING: Duration = Duration::from_secs(5);
const LEAST_FAILING: Duration = Duration::from_millis(100);
/// After each this many failures.
const FAILURES_PER_LONG: u32 = 8;
/// How often in a row status 503 says nothing about a request.
const MOST_UNAVAILABLE: u32 = 16;
/// The time limit of a request.
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
    /// Waits until the next snapshot is due. With a queue, no snapshot is left out since the one
    /// before took long; nor is one that another shard has read.
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

    /// The time that a request may take. With a queue, one that gets no response does not hold up
    /// the next snapshot, but for a few.
    pub(super) fn timeout(&self, patience: &Patience<'_>) -> Option<Duration> {
        match patience.timeout() {
            None if self.backlog.is_some() => {
                Some(patience.left().clamp(least(self.backoff.failures()), MOST))
            }
            timeout => timeout,
        }
    }

    /// Puts the requests of a snapshot from this one on into the queue, as far as it takes them.
    /// Returns whether all are there.
    pub(super) fn keep(&self, snapshot: &Snapshot, kept: &mut [Option<Id>], from: usize) -> bool {
        let Some(backlog) = &self.backlog else { return false };
        let mut bodies = snapshot.bodies.iter().zip(kept).skip(from);
        bodies.all(|(body, kept)| {
            let push = || backlog.queue().push(backlog.shard, snapshot.timestamp_ms, body);
            *kept = kept.or_else(push);
            kept.is_some()
        })
    }

    /// Calls `post`, which sends a request. If there is a queue, and the request may take longer
    /// than until the next snapshot is due, those that are due in the meantime go to the queue.
    /// Returns the last of them that is there as a whole.
    pub(super) fn while_keeping<R>(
        &self,
        post: impl FnOnce() -> R,
        timeout: Option<Duration>,
        patience: &Patience<'_>,
        sending: Option<(&Snapshot, &mut Course)>,
    ) -> (R, Option<Snapshot>) {
        let is_short = timeout.is_some_and(|timeout| timeout <= patience.left());
        if self.backlog.is_none() || is_short || patience.timeout().is_some() {
            return (post(), None);
        }
        let last_ms = patience.last_ms;
        let (end, ended) = mpsc::channel();
        thread::scope(|scope| {
            let keep = move || self.keep_due(last_ms, &ended, sending);
            // Without a thread, the snapshots are omitted.
            let keeper = thread::Builder::new().name("queue".into()).spawn_scoped(scope, keep);
            let posted = post();
            drop(end);
            let queued = keeper.ok().and_then(|keeper| keeper.join().ok());
            (posted, queued.flatten())
        })
    }

    /// Puts the snapshots that are due after this one into the queue, until a request ends. Returns
    /// the last of them that is there as a whole.
    fn keep_due(
        &self,
        mut last_ms: i64,
        ended: &Receiver<()>,
        mut sending: Option<(&Snapshot, &mut Course)>,
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
            if let Some((snapshot, course)) = &mut sending {
                // In order.
                self.keep(snapshot, &mut course.kept, course.at);
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
    pub(super) fn release(&self, kept: Option<Id>) {
        if let (Some(backlog), Some(id)) = (&self.backlog, kept) {
            backlog.queue().finish(id);
        }
    }

    /// Notes what came of a snapshot: whether the receiver would take what waits.
    pub(super) fn judge_backlog(&mut self, course: &Course) {
        let taken = self.shards.taken();
        let Some(backlog) = &mut self.backlog else { return };
        backlog.barred = match backlog.barred {
            _ if course.is_any_taken || course.refused == Some(false) => None,
            // A shard may have no series, and others wait for what it is to send. If the receiver
            // has taken something of them since, this one tries.
            Some(before) => Some(before).filter(|before| *before == taken),
            None => course.refused.map(|_| taken),
        };
    }

    /// Shows how long the oldest samples have waited.
    pub(super) fn show_age(&self, now_ms: i64) {
        if let Some(backlog) = &self.backlog {
            backlog.queue().show_age(now_ms);
        }
    }

    /// Sends requests that wait, until the next snapshot is due.
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
                // Of this shard or of others, requests were taken.
                is_to_blame = self.are_others_taken() || !was_failing;
                is_to_blame &= !is_throttled(*status, *asked, own_failures);
                if was_failing {
                    self.note(Standing::Fails, text);
                }
            }
            self.note_backlog(id, body.samples, attempt, is_to_blame);
        }
    }

    /// Notes what came of sending a request of the backlog.
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
                // The next snapshot tells whether the receiver takes anything.
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

/// Whether a request failed since the receiver has too much to do, and not for what is in it: that
/// the samples of a series come in order matters more then. A proxy may give status 503 to a
/// request that its receiver crashes at, so that counts after this many failures in a row.
fn is_throttled(status: Option<u16>, asked: Option<Duration>, failures: u32) -> bool {
    match status {
        Some(503) => asked.is_some() || failures < MOST_UNAVAILABLE,
        _ => status == Some(429) || asked.is_some(),
    }
}

/// The least time that a request gets after this many failures in a row.
fn least(failures: u32) -> Duration {
    match failures {
        0 => LEAST_WORKING,
        failures if failures.is_multiple_of(FAILURES_PER_LONG) => MOST,
        _ => LEAST_FAILING,
    }
}

/// The time until then.
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
