//! OTLP over HTTP to one receiver: <https://opentelemetry.io/docs/specs/otlp/>.
//!
//! At each multiple of the interval, all series go into a snapshot.
//!
//! **Cumulative**, it has totals. It is sent until the next one is due; what is not sent by then is
//! dropped, since the next snapshot has later totals of the same series. So a receiver that was
//! away gets the current totals, and the memory that this takes depends on the number of series
//! alone.
//!
//! **Delta**, it has what was added since the last snapshot. It is sent until each of its requests
//! is taken or refused, whatever time that takes; only then, the next snapshot is taken, which
//! covers the time since. If all of them are refused for what is not in them, it has that, too; or
//! they are sent again, if the receiver may have one of them nevertheless. A file has the requests
//! and the totals, for when the daemon is killed.
//!
//! | file | has |
//! |---|---|
//! | `points.rs` | families as points |
//! | `requests.rs` | points as requests, marks of the end of series |
//! | `resources.rs` | which labels are attributes of a resource |
//! | `growth.rs` | what was added to totals |
//! | `note.rs` | the file |
//! | `verdict.rs` | what a response means |
//! | `metrics.rs` | the daemon's own metrics |
//!
//! A request that is sent again has the same bytes.

mod growth;
mod metrics;
mod note;
mod points;
mod requests;
mod resources;
mod verdict;

use std::collections::HashSet;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use quipu_segment::hash::Seeded;
use quipu_segment::printable;
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use super::schedule::{Backoff, Patience, Schedule};
use super::{Headers, LAST, Source};
use crate::labels::{ExternalLabel, ResourceAttribute};
use growth::{Growing, Totals};
pub(super) use metrics::Metrics;
use metrics::ReceiverMetrics;
use note::Note;
use points::Translation;
use quipu_client::ReceiverUrl;
use quipu_client::sender::Client;
use quipu_client::via;
use quipu_process::time::now_ns;
use requests::{Body, Requests, Snapshot};
use resources::Given;
use verdict::{Verdict, judge};

/// What is sent by OTLP.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The receivers.
    pub receivers: Vec<ReceiverUrl>,
    /// The time between two snapshots.
    pub interval: Duration,
    /// What sums and histograms count from.
    pub temporality: Temporality,
    /// How requests are compressed.
    pub compression: Compression,
    /// The attributes of all resources, but for those that labels of series replace.
    pub resource: Vec<ResourceAttribute>,
    /// What users add to requests.
    pub headers: Headers,
    /// The state file, beside which are those of receivers of deltas.
    pub state: PathBuf,
}

/// What sums and histograms count from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Temporality {
    /// Their start.
    #[default]
    Cumulative,
    /// The last snapshot that was sent.
    Delta,
}

/// How requests are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip.
    Gzip,
}

/// Sends snapshots to a receiver.
pub(super) struct Exporter {
    client: Client,
    source: Arc<dyn Source>,
    labels: Vec<ExternalLabel>,
    resource: Arc<Given>,
    compression: Compression,
    schedule: Schedule,
    backoff: Backoff,
    hash: Seeded,
    /// The last snapshot of which every request was taken or refused.
    before: Option<Snapshot>,
    state: State,
    standing: Standing,
    metrics: ReceiverMetrics,
}

/// What the next snapshot depends on.
enum State {
    /// Where it begins: after the request at which the last one ended, so that a request that the
    /// receiver fails at does not keep those after it from being sent.
    Cumulative {
        first: usize,
    },
    Delta(Box<Deltas>),
}

/// What a receiver of deltas has.
struct Deltas {
    note: Note,
    /// The totals up to which it has everything but what is owed.
    totals: Totals,
    owed: Option<Owed>,
    /// When this began, in nanoseconds since 1970.
    begun_ns: u64,
    /// Whether the file was damaged, and the totals are not yet known.
    is_lost: bool,
    /// Whether it was logged that the file cannot be added to.
    is_fault_logged: bool,
}

/// A snapshot that is being sent.
struct Owed {
    snapshot: Snapshot,
    compression: Compression,
    /// How many of its requests have got a response that settles them.
    settled: usize,
    worst: Standing,
    text: String,
    /// Whether all of these were refused for what is not in them. The file has none of them then.
    is_whole: bool,
    /// The totals before, as long as the receiver has nothing of the snapshot.
    last: Option<Totals>,
}

/// What was last logged of a receiver. The later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Unknown,
    Takes,
    Rejects,
    Refuses(u16),
    /// It refuses all of a snapshot of deltas, which is kept.
    PutsOff(u16),
    Fails,
}

impl Standing {
    /// Whether a request was refused for what is not in it: for the daemon, or for the way to the
    /// receiver.
    fn is_of_sender(self) -> bool {
        matches!(self, Self::Refuses(300..=399 | 401 | 403..=405 | 407 | 409))
    }
}

/// What came of sending a request once.
enum Attempt {
    /// It is settled: taken, or refused with a text.
    Settled(Standing, String),
    /// It is to be sent again, maybe after the time that the receiver asks for.
    Failed(Option<Duration>),
}

impl Exporter {
    pub(super) fn new(
        client: Client,
        source: Arc<dyn Source>,
        labels: &[ExternalLabel],
        options: &Options,
        metrics: ReceiverMetrics,
    ) -> Self {
        let hash = Seeded::default();
        let state = match options.temporality {
            Temporality::Cumulative => State::Cumulative { first: 0 },
            Temporality::Delta => {
                let note = Note::new(&options.state, &metrics.receiver);
                State::Delta(Box::new(Deltas::restore(note, &hash)))
            }
        };
        Self {
            client,
            source,
            labels: labels.to_vec(),
            resource: Arc::new(Given::new(&options.resource)),
            compression: options.compression,
            schedule: Schedule::new(options.interval),
            backoff: Backoff::default(),
            hash,
            before: None,
            state,
            standing: Standing::Unknown,
            metrics,
        }
    }

    /// Sends a snapshot at each multiple of the interval, and a last one when the daemon stops.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let mut least = Duration::ZERO;
        while let Ok(timestamp_ms) = self.schedule.wait(least, stopped) {
            least = self.export(&self.schedule.patience(timestamp_ms, stopped));
        }
        // A receiver that was failing holds up the end less: the state has the totals.
        let time = if self.backoff.is_failing() { LAST / 5 } else { LAST * 4 / 5 };
        self.export(&Patience::Deadline(Instant::now() + time));
    }

    /// Sends a snapshot. Returns how long to wait at least before the next one.
    fn export(&mut self, patience: &Patience<'_>) -> Duration {
        match &mut self.state {
            State::Cumulative { .. } => self.export_totals(patience),
            State::Delta(deltas) => {
                // What was not sent in time goes first.
                if let Some(owed) = deltas.owed.take() {
                    let waiting = self.settle(owed, patience);
                    if self.is_owed() || patience.is_over() {
                        return waiting;
                    }
                }
                match self.take_growth() {
                    Ok(owed) => self.settle(owed, patience),
                    Err(error) => {
                        self.note(Standing::Fails, &error);
                        Duration::ZERO
                    }
                }
            }
        }
    }

    fn is_owed(&self) -> bool {
        matches!(&self.state, State::Delta(deltas) if deltas.owed.is_some())
    }

    /// Sends totals, until the next ones are due.
    fn export_totals(&mut self, patience: &Patience<'_>) -> Duration {
        let State::Cumulative { first } = self.state else { return Duration::ZERO };
        let time_ns = now_ns();
        let requests = self.requests();
        let (mut requests, series) = match self.visit(requests, time_ns) {
            Ok(read) => read,
            Err(error) => {
                self.note(Standing::Fails, &error.to_string());
                return Duration::ZERO;
            }
        };
        if let Some(before) = &self.before {
            requests.end_missing(before, &series, time_ns);
        }
        let mut bodies = requests.finish();
        if !bodies.is_empty() {
            let count = bodies.len();
            bodies.rotate_left(first % count);
        }
        let points_from = |at: usize| bodies.iter().skip(at).map(|body| body.points).sum();
        let (mut worst, mut why) = (Standing::Takes, String::new());
        let mut at = 0;
        while at < bodies.len() {
            let left = |by: usize| State::Cumulative { first: first.wrapping_add(by) };
            if at > 0 && patience.is_over() {
                self.metrics.replaced.inc_by(points_from(at));
                self.state = left(at);
                return Duration::ZERO;
            }
            match self.attempt(&bodies[at], self.compression, patience.timeout()) {
                Attempt::Settled(standing, text) => {
                    at += 1;
                    if standing > worst {
                        (worst, why) = (standing, text);
                    }
                }
                Attempt::Failed(asked) => {
                    let delay = self.backoff.fail(asked);
                    if !patience.wait(delay) {
                        self.metrics.replaced.inc_by(points_from(at));
                        self.state = left(at + 1);
                        return delay;
                    }
                    self.metrics.retried.inc_by(bodies[at].points);
                }
            }
        }
        self.complete(Snapshot { bodies, series }, time_ns, (worst, &why));
        Duration::ZERO
    }

    /// Takes a snapshot of what was added, and notes it.
    fn take_growth(&mut self) -> Result<Owed, String> {
        let hash = self.hash.clone();
        let nothing = Totals::none(&hash);
        let State::Delta(deltas) = &mut self.state else { return Err("no deltas".into()) };
        let begun_ns = deltas.begun_ns;
        let last = mem::replace(&mut deltas.totals, nothing);
        let time_ns = time_after(last.time_ns, now_ns());
        let requests = self.requests();
        let growing = Growing::new(requests, &last, time_ns, begun_ns, &hash);
        let taken = self.visit(growing, time_ns).map_err(|error| error.to_string());
        let taken = taken.and_then(|(growing, series)| {
            let (mut requests, totals) = growing.finish();
            if let Some(before) = &self.before {
                requests.end_missing(before, &series, time_ns);
            }
            let mut snapshot = Snapshot { bodies: requests.finish(), series };
            let State::Delta(deltas) = &mut self.state else { return Err("no deltas".into()) };
            if deltas.is_lost {
                // What the receiver has of these totals is not known.
                snapshot.bodies.clear();
            }
            let (noted, bodies) = (&totals.bodies, &snapshot.bodies);
            match deltas.note.write(time_ns, noted, self.compression, bodies) {
                Ok(()) => Ok((snapshot, totals)),
                Err(error) => {
                    let path = printable(deltas.note.path());
                    Err(format!("cannot write {path}, so nothing is sent: {error}"))
                }
            }
        });
        let State::Delta(deltas) = &mut self.state else { return Err("no deltas".into()) };
        match taken {
            Ok((snapshot, totals)) => {
                deltas.is_lost = false;
                deltas.totals = totals;
                let last = (!snapshot.bodies.is_empty()).then_some(last);
                Ok(Owed { last, ..Owed::new(snapshot, self.compression, 0) })
            }
            Err(error) => {
                deltas.totals = last;
                Err(error)
            }
        }
    }

    /// Sends the requests that are owed, until the next snapshot is due. What is left then is owed
    /// further on.
    fn settle(&mut self, mut owed: Owed, patience: &Patience<'_>) -> Duration {
        let mut begun = false;
        let waiting = loop {
            let Some(body) = owed.snapshot.bodies.get(owed.settled) else { break None };
            if mem::replace(&mut begun, true) && patience.is_over() {
                break Some(Duration::ZERO);
            }
            match self.attempt(body, owed.compression, patience.timeout()) {
                Attempt::Settled(standing, text) => {
                    let count = owed.settle(standing, text);
                    let State::Delta(deltas) = &mut self.state else { break None };
                    if let Err(error) = deltas.note.settle(count) {
                        deltas.complain(&error);
                    }
                }
                Attempt::Failed(asked) => {
                    // The receiver may have it.
                    owed.last = None;
                    let points = body.points;
                    let delay = self.backoff.fail(asked);
                    if !patience.wait(delay) {
                        break Some(delay);
                    }
                    self.metrics.retried.inc_by(points);
                }
            }
        };
        let State::Delta(deltas) = &mut self.state else { return Duration::ZERO };
        if let Some(waiting) = waiting {
            deltas.owed = Some(owed);
            return waiting;
        }
        if owed.is_whole && owed.settled > 0 {
            if let Standing::Refuses(status) = owed.worst {
                self.note(Standing::PutsOff(status), &owed.text);
            }
            self.put_back(owed);
            return Duration::ZERO;
        }
        let time_ns = deltas.totals.time_ns;
        self.complete(owed.snapshot, time_ns, (owed.worst, &owed.text));
        Duration::ZERO
    }

    /// Keeps what was in a snapshot that was refused as a whole for the sender. If the receiver has
    /// nothing of it, the next one has what was in it, too. Else its requests are sent again as
    /// they are, by which a receiver may tell those that it has.
    fn put_back(&mut self, owed: Owed) {
        let State::Delta(deltas) = &mut self.state else { return };
        let Some(last) = owed.last else {
            deltas.owed = Some(Owed::new(owed.snapshot, owed.compression, 0));
            return;
        };
        if let Err(error) = deltas.note.write(last.time_ns, &last.bodies, owed.compression, &[]) {
            deltas.complain(&error);
        }
        deltas.totals = last;
    }

    fn requests(&self) -> Requests {
        Requests::new(self.compression).by_resource(&self.resource, &self.hash)
    }

    /// Notes that each request of a snapshot is settled.
    fn complete(&mut self, snapshot: Snapshot, time_ns: u64, (worst, why): (Standing, &str)) {
        self.note(worst, why);
        if worst <= Standing::Rejects {
            self.metrics.completed(time_ns);
        }
        self.before = Some(snapshot);
    }

    /// Passes all series on, and returns what took them and which ones there are.
    fn visit<P: points::Points>(
        &self,
        points: P,
        time_ns: u64,
    ) -> Result<(P, HashSet<u64, Seeded>), quipu::Error> {
        let begun = Instant::now();
        let labels = (&self.labels[..], &*self.resource);
        let mut translation = Translation::new(points, labels, time_ns, &self.hash);
        self.source.visit(&mut translation)?;
        let (points, series, invalid) = translation.into_parts();
        self.metrics.invalid.inc_by(invalid);
        let receiver = &self.metrics.receiver;
        debug!(%receiver, series = series.len(), took = ?begun.elapsed(), "took a snapshot to send");
        Ok((points, series))
    }

    /// Sends a request once.
    fn attempt(
        &mut self,
        body: &Body,
        compression: Compression,
        timeout: Option<Duration>,
    ) -> Attempt {
        let via = self.source.via().field();
        let mut fields = vec![(CONTENT_TYPE, "application/x-protobuf"), (via::FIELD, &*via)];
        if compression == Compression::Gzip {
            fields.push((CONTENT_ENCODING, "gzip"));
        }
        let answer = match self.client.post(&fields, &body.bytes, timeout) {
            Ok(answer) => answer,
            Err(error) => {
                self.note(Standing::Fails, &error);
                return Attempt::Failed(None);
            }
        };
        self.metrics.answered(answer.status);
        let verdict = judge(&answer);
        if verdict != Verdict::Later {
            self.backoff.succeed();
        }
        match verdict {
            Verdict::Taken => {
                self.metrics.sent.inc_by(body.points);
                Attempt::Settled(Standing::Takes, String::new())
            }
            Verdict::Partly(rejected, why) => {
                let rejected = rejected.min(body.points);
                self.metrics.sent.inc_by(body.points - rejected);
                self.metrics.rejected.inc_by(rejected);
                Attempt::Settled(Standing::Rejects, why)
            }
            Verdict::Refused => {
                self.metrics.refused(answer.status, body.points);
                Attempt::Settled(Standing::Refuses(answer.status), answer.text())
            }
            Verdict::Later => {
                self.note(Standing::Fails, &format!("status {}: {}", answer.status, answer.text()));
                Attempt::Failed(answer.retry_after)
            }
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
            Standing::Takes => info!(%receiver, "the receiver takes data points"),
            Standing::Rejects => warn!(
                %receiver, answer = text,
                "the receiver takes data points, but for some that it rejects"
            ),
            Standing::Refuses(status) => warn!(
                %receiver, status, answer = text,
                "the receiver refuses data points, which are not sent again"
            ),
            Standing::PutsOff(status) => warn!(
                %receiver, status, answer = text,
                "the receiver refuses data points; it gets what they have later"
            ),
            Standing::Fails => {
                let later = match self.state {
                    State::Cumulative { .. } => "it gets the current totals later",
                    State::Delta(_) => "it gets what was added meanwhile later",
                };
                warn!(%receiver, error = text, "OTLP fails; {later}");
            }
        }
    }
}

impl Deltas {
    /// Logs once that the file cannot be written.
    fn complain(&mut self, error: &io::Error) {
        if !mem::replace(&mut self.is_fault_logged, true) {
            let path = printable(self.note.path());
            warn!(
                %path, %error,
                "cannot note what became of a request: after a kill, what it has may be sent and \
                 counted again, or not at all"
            );
        }
    }

    /// What the file has. Without one, everything is still to be sent.
    fn restore(mut note: Note, hash: &Seeded) -> Self {
        let restored = note.read().and_then(|noted| {
            let Some(noted) = noted else { return Ok(None) };
            let totals = Totals::restore(noted.time_ns, noted.totals, hash)?;
            let series = HashSet::with_hasher(hash.clone());
            let snapshot = Snapshot { bodies: noted.owed, series };
            Ok(Some((totals, Owed::new(snapshot, noted.compression, noted.settled))))
        });
        let is_lost = restored.is_err();
        let restored = restored.unwrap_or_else(|error| {
            let path = printable(note.path());
            warn!(
                %path, %error,
                "cannot read up to where a receiver has what was added; it gets what is added from \
                 now on"
            );
            None
        });
        let (totals, owed) =
            restored.map_or((None, None), |(totals, owed)| (Some(totals), Some(owed)));
        let owed = owed.filter(|owed| owed.settled < owed.snapshot.bodies.len());
        let totals = totals.unwrap_or_else(|| Totals::none(hash));
        Self { note, totals, owed, begun_ns: now_ns(), is_lost, is_fault_logged: false }
    }
}

/// The time of a snapshot: later than that of the last one, though the clock was set back a little.
/// If the clock was far ahead at the last one, all times would be wrong until then.
fn time_after(last_ns: u64, now_ns: u64) -> u64 {
    let is_far = last_ns > now_ns.saturating_add(MOST_AHEAD_NS);
    if is_far { now_ns } else { now_ns.max(last_ns.saturating_add(1)) }
}

/// A minute.
const MOST_AHEAD_NS: u64 = 60_000_000_000;

impl Owed {
    fn new(snapshot: Snapshot, compression: Compression, settled: usize) -> Self {
        let (worst, text) = (Standing::Takes, String::new());
        let is_whole = settled == 0;
        Self { snapshot, compression, settled, worst, text, is_whole, last: None }
    }

    /// Settles the next request. Returns how many are settled for good by that: none as long as all
    /// were refused for what is not in them, and all of those with the first other one.
    fn settle(&mut self, standing: Standing, text: String) -> usize {
        self.settled += 1;
        if standing > self.worst {
            (self.worst, self.text) = (standing, text);
        }
        if self.is_whole && standing.is_of_sender() {
            return 0;
        }
        self.last = None;
        if mem::replace(&mut self.is_whole, false) { self.settled } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_unless_the_clock_was_far_ahead() {
        assert_eq!(time_after(0, 500), 500);
        assert_eq!(time_after(500, 500), 501);
        assert_eq!(time_after(500 + MOST_AHEAD_NS, 500), 501 + MOST_AHEAD_NS);
        assert_eq!(time_after(501 + MOST_AHEAD_NS, 500), 500);
        assert_eq!(time_after(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn refusals_for_the_sender_are_settled_with_the_first_other_response() {
        let hash = Seeded::default();
        let owed = |settled| {
            let series = HashSet::with_hasher(hash.clone());
            let snapshot = Snapshot { bodies: Vec::new(), series };
            let last = Some(Totals::none(&hash));
            Owed { last, ..Owed::new(snapshot, Compression::None, settled) }
        };
        let settle = |owed: &mut Owed, standings: &[Standing]| -> Vec<usize> {
            let each = standings.iter().map(|standing| owed.settle(*standing, String::new()));
            each.collect()
        };
        let (takes, rejects, refuses) = (Standing::Takes, Standing::Rejects, Standing::Refuses);
        let mut whole = owed(0);
        assert_eq!(settle(&mut whole, &[refuses(401), refuses(302), refuses(409)]), [0, 0, 0]);
        assert!(whole.is_whole && whole.last.is_some());
        for other in [takes, rejects, refuses(400)] {
            let mut mixed = owed(0);
            let standings = [refuses(401), refuses(404), other, refuses(401), takes];
            assert_eq!(settle(&mut mixed, &standings), [0, 0, 3, 1, 1]);
            assert!(!mixed.is_whole && mixed.last.is_none());
            assert_eq!(mixed.settled, 5);
        }
        // An earlier run has settled some.
        assert_eq!(settle(&mut owed(2), &[refuses(401), takes]), [1, 1]);
    }
}
