//! The state of a receiver with delta temporality: the totals that it already received, and its
//! pending requests on the disk.
//!
//! Each snapshot is written to the queue before its first request is sent. After a crash, the
//! requests without an outcome are sent again with the same bytes, so only the request that was in
//! flight can arrive twice. If a receiver refuses all requests of a snapshot for reasons unrelated
//! to their contents (for example, status 403), the whole snapshot stays pending.

use std::io;
use std::path::Path;

use quipu::Registry;
use quipu_segment::hash::SeededState;
use quipu_segment::printable;
use tracing::warn;

use super::growth::Totals;
use crate::next_to;
use crate::queue::{DeltaSnapshot, Metrics, Queue, make_folder};
use crate::snapshot::Snapshot;
use quipu_process::time::now_ns;

/// The state of one receiver: its totals and its queue.
pub(crate) struct Deltas {
    queue: Queue,
    /// The totals that the receiver knows after all pending requests were sent.
    pub(super) totals: Totals,
    /// The totals before the last snapshot. `None` once the receiver may have received a request of
    /// it.
    last: Option<Totals>,
    /// The requests that an earlier run left pending, and whether they are a whole snapshot.
    pub(crate) restored: Option<(Snapshot, bool)>,
    /// The start time of this output, in nanoseconds since 1970.
    pub(super) begun_ns: u64,
    /// Whether the queue was damaged. The receiver's totals are then unknown until the next
    /// snapshot.
    is_lost: bool,
}

/// The maximum time by which a clock can be ahead: a minute.
const MOST_AHEAD_NS: u64 = 60_000_000_000;

const REMEDY: &str = "correct its permissions, or give another --state";

impl Deltas {
    /// Opens the queue of a receiver, in a directory next to the state file. Without an existing
    /// queue, the receiver knows no totals.
    ///
    /// # Errors
    /// Returns the errors of [`Queue::open`].
    pub(super) fn open(state: &Path, receiver: &str, hash: &SeededState) -> Result<Self, String> {
        let directory = &next_to(state, ".otlp");
        // These metrics are needed for the queue, but never shown.
        let metrics = Metrics::new(&Registry::new().prefix("quipu"));
        let metrics = metrics.map_err(|error| error.to_string())?.receiver(receiver);
        let fail =
            |error: io::Error| format!("cannot use {}: {error}; {REMEDY}", printable(directory));
        make_folder(directory).map_err(fail)?;
        let mut queue = Queue::open(directory, receiver, u64::MAX, 1, metrics, REMEDY)?;
        let restored = queue.restore().map_err(|error| error.to_string()).and_then(|restored| {
            let Some(DeltaSnapshot { totals, time_ns, owed, is_whole }) = restored else {
                return Ok((Totals::none(hash), None));
            };
            let owed = Snapshot { timestamp_ms: 0, bodies: owed, invalid: 0 };
            let owed = (!owed.bodies.is_empty()).then_some((owed, is_whole));
            Ok((Totals::restore(time_ns, totals, hash)?, owed))
        });
        let is_lost = restored.is_err();
        let (totals, restored) = restored.unwrap_or_else(|error| {
            let path = printable(&queue.folder);
            warn!(
                %path, %error,
                "cannot read up to where a receiver has what was added; it gets what is added from \
                 now on"
            );
            (Totals::none(hash), None)
        });
        Ok(Self { queue, totals, last: None, restored, begun_ns: now_ns(), is_lost })
    }

    /// Returns the time of a snapshot taken now.
    pub(super) fn next_ns(&self) -> u64 {
        time_after(self.totals.time_ns, now_ns())
    }

    /// Replaces the totals with the totals of the next snapshot.
    pub(super) fn advance(&mut self, totals: Totals) {
        self.last = Some(std::mem::replace(&mut self.totals, totals));
    }

    /// Writes a snapshot to the queue, before its requests are sent.
    ///
    /// # Errors
    /// Fails if the snapshot cannot be written. The next snapshot then includes its deltas.
    pub(crate) fn keep(&mut self, snapshot: &mut Snapshot) -> Result<(), String> {
        if self.is_lost {
            // Send nothing, because the receiver may already have counted a part of these totals.
            snapshot.bodies.clear();
        }
        let Totals { time_ns, bodies, .. } = &self.totals;
        let kept = self.queue.begin_snapshot(*time_ns, bodies, &snapshot.bodies);
        self.is_lost &= kept.is_err();
        kept.map_err(|error| {
            self.totals = self.last.take().unwrap_or_else(|| Totals::none(self.totals.hash()));
            let path = printable(&self.queue.folder);
            format!("cannot write to {path}, so nothing is sent: {error}")
        })
    }

    /// Records that a request was sent, so the receiver may know its contents.
    pub(crate) fn may_be_taken(&mut self) {
        self.last = None;
    }

    /// Removes the next `count` requests from the queue, because they were accepted or refused.
    pub(crate) fn settle(&mut self, count: usize) {
        self.last = None;
        self.queue.finish_next(count);
    }

    /// Revokes the last snapshot, so the next one includes its deltas. Returns false if the
    /// receiver may know one of its requests.
    pub(crate) fn take_back(&mut self) -> bool {
        let Some(last) = self.last.take() else { return false };
        self.totals = last;
        self.queue.take_back();
        true
    }
}

/// Returns the time of a snapshot: the clock, or a time just after the last snapshot if the clock
/// was set back a little. If the last time is far ahead of the clock, the clock wins, because all
/// times would otherwise be wrong until then.
fn time_after(last_ns: u64, now_ns: u64) -> u64 {
    let is_far = last_ns > now_ns.saturating_add(MOST_AHEAD_NS);
    if is_far { now_ns } else { now_ns.max(last_ns.saturating_add(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_increase_unless_the_clock_was_far_ahead() {
        assert_eq!(time_after(0, 500), 500);
        assert_eq!(time_after(500, 500), 501);
        assert_eq!(time_after(500 + MOST_AHEAD_NS, 500), 501 + MOST_AHEAD_NS);
        assert_eq!(time_after(501 + MOST_AHEAD_NS, 500), 500);
        assert_eq!(time_after(u64::MAX, u64::MAX), u64::MAX);
    }
}
