//! Scrape targets: programs whose metrics the daemon fetches over HTTP, and shows on its own page.
//!
//! Each target has a thread, which waits only for the network of this target. A slow target
//! therefore never delays another target or a request to the daemon. The threads parse their
//! responses one at a time, the shortest response first (`turns.rs`). The page shows the result of
//! a target's last scrape, and no series if this scrape failed.

mod address;
mod families;
mod form;
mod report;
mod schedule;
pub mod settings;
mod turns;

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quipu_segment::hash::{SeededState, fnv1a};
use quipu_segment::printable;
use tracing::{info, warn};

use super::Others;
pub use address::{Target, TargetFile};
use families::{Body, Flaw};
use form::{Form, Shape};
use quipu_client::credentials::Credentials;
use quipu_client::fetch::{Fault, FaultKind, Fetcher};
use quipu_client::tls;
use quipu_client::via::Via;
use quipu_sources::recorded::{Origin, RecordedFamily, SourceSnapshot};
use report::Report;
use schedule::Schedule;
use turns::{Late, Turns};

/// The options of all scrapes.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The targets. No two share both job and instance.
    pub targets: Vec<Target>,
    /// The credentials to send to each target, if any.
    pub credentials: Vec<Option<Credentials>>,
    /// The time between two scrapes of a target.
    pub interval: Duration,
    /// The time limit of a scrape; at most the interval.
    pub timeout: Duration,
    /// The maximum size of an exposition after decompression, in bytes.
    pub body_bytes: u64,
    /// The maximum number of samples in an exposition.
    pub samples: usize,
}

/// The reason why scraping cannot start.
#[derive(Debug)]
pub enum Error {
    /// HTTPS needs trusted certificates, but the system provides none.
    Certificates(String),
    /// The system cannot create a thread.
    Thread(io::Error),
}

/// The running threads. Dropping this value stops them, without waiting.
#[derive(Debug)]
pub struct Targets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    /// The result of each target's last scrape.
    slots: Vec<Mutex<Slot>>,
    is_stopping: Mutex<bool>,
    stopped: Condvar,
    /// The queue of threads that parse a response.
    turns: Turns,
}

/// The result of a target's last scrape, which may have failed.
#[derive(Debug, Default)]
struct Slot {
    report: Option<Report>,
    snapshot: Option<Arc<SourceSnapshot>>,
}

impl Targets {
    /// Starts a thread for each target. A scrape that would pass through the daemon of `via` again
    /// is refused, because it is part of a loop.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the remedy.
    pub fn start(options: Options, via: &'static Via) -> Result<Self, Error> {
        let slots = options.targets.iter().map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared {
            options,
            slots,
            is_stopping: Mutex::new(false),
            stopped: Condvar::new(),
            turns: Turns::default(),
        });
        let all = Self(Arc::clone(&shared));
        let Options { targets, credentials, timeout, body_bytes, .. } = &shared.options;
        let is_encrypted = targets.iter().any(Target::is_encrypted);
        let trusting =
            is_encrypted.then(tls::of_system).transpose().map_err(Error::Certificates)?;
        for (number, target) in targets.iter().enumerate() {
            let credentials = credentials.get(number).cloned().flatten();
            let tls = trusting.clone().filter(|_| target.is_encrypted());
            let tls = tls.unwrap_or_else(tls::without_trust);
            let fetcher = Fetcher::new(target.socket(), tls, *timeout, *body_bytes);
            let scraper = Scraper {
                number,
                fetcher: fetcher.of_daemon(via, credentials),
                shared: Arc::clone(&shared),
                hash: SeededState::default(),
                before: None,
                shape: None,
                form: None,
                faults: Vec::new(),
            };
            let thread = thread::Builder::new().name("scrape".into());
            thread.spawn(move || scraper.run()).map_err(Error::Thread)?;
        }
        Ok(all)
    }

    /// Returns a function that returns the current sources: the report about all scrapes, and the
    /// last exposition of each target.
    pub fn others(&self) -> Others {
        let shared = Arc::clone(&self.0);
        Box::new(move || shared.snapshots())
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // We don't wait for the threads, because a target that hangs must not delay the stop of the
        // daemon.
        let shared = &self.0;
        *locked(&shared.is_stopping) = true;
        shared.stopped.notify_all();
    }
}

impl Shared {
    fn snapshots(&self) -> Vec<Arc<SourceSnapshot>> {
        let Self { options, slots, .. } = self;
        let (mut reports, mut targets) = (Vec::new(), Vec::new());
        for (target, slot) in options.targets.iter().zip(slots) {
            let slot = locked(slot);
            reports.extend(slot.report.map(|report| (target, report)));
            targets.extend(slot.snapshot.clone());
        }
        if !reports.is_empty() {
            // The report is first, so no target can take over its names.
            targets.insert(0, report::snapshot(&reports, options));
        }
        targets
    }
}

/// The maximum number of different errors to log for a target until its next successful scrape.
const MAX_FAULTS: usize = 10;

/// The state of a target's thread.
struct Scraper {
    number: usize,
    fetcher: Fetcher,
    shared: Arc<Shared>,
    hash: SeededState,
    /// The series of the last successful scrape: their hashes, with the numbers of their samples.
    before: Option<HashMap<u64, u32, SeededState>>,
    /// The hash of the shape of the last exposition.
    shape: Option<u64>,
    /// The form of the last exposition, to parse the next one faster.
    form: Option<Form>,
    /// The errors that were logged since the last successful scrape.
    faults: Vec<FaultKind>,
}

impl Scraper {
    fn run(mut self) {
        let target = &self.shared.options.targets[self.number];
        let name = [target.job(), target.instance()].join("\0");
        let interval = self.shared.options.interval;
        // The offset stays the same after a restart. We rotate the hash, because its low bits are
        // the best ones.
        let offset = fnv1a(name.as_bytes()).rotate_left(32);
        let mut schedule = Schedule::new(interval, offset);
        loop {
            self.scrape();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            if self.is_stopped_within(schedule.delay(now)) {
                return;
            }
        }
    }

    /// Waits for this time. Returns true if the daemon stops in the meantime.
    fn is_stopped_within(&self, time: Duration) -> bool {
        let Shared { is_stopping, stopped, .. } = &*self.shared;
        let waited = stopped.wait_timeout_while(locked(is_stopping), time, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Scrapes the target once, and stores the result.
    fn scrape(&mut self) {
        let begun = Instant::now();
        // Catch panics, because the response is from another program, and a bug in the parser must
        // not end the thread.
        let fetched = catch_unwind(AssertUnwindSafe(|| self.fetch(begun)));
        let flaw = || Err(Fault::from("its reader failed: report that".to_owned()));
        let fetched = fetched.unwrap_or_else(|_| flaw());
        let seconds = begun.elapsed().as_secs_f64();
        let slot = match fetched {
            Ok((bytes, body)) => self.taken(bytes, body, seconds),
            Err(fault) => self.failed(fault, seconds),
        };
        let old = std::mem::replace(&mut *locked(&self.shared.slots[self.number]), slot);
        // We drop the old result after unlocking, because it can contain many series.
        drop(old);
    }

    /// Fetches and parses the exposition, for a scrape that began at `begun`.
    fn fetch(&mut self, begun: Instant) -> Result<(usize, Body), Fault> {
        let options = &self.shared.options;
        let text = self.fetcher.fetch(options.targets[self.number].url())?;
        let until = begun + options.timeout;
        let turn = self.shared.turns.take(text.bytes.len(), until);
        let turn = turn.map_err(|Late| too_late(options.timeout))?;
        let known = self.form.take().and_then(|form| form.read(&text, &self.hash, &turn));
        let body = match known {
            Some(body) => body,
            None => {
                let is_useful = |shape: &Shape| shape.is_useful(self.shape);
                let read = families::read(&text, options.samples, &self.hash, &turn, is_useful);
                read.map_err(|flaw| match flaw {
                    Flaw::Late => too_late(options.timeout),
                    Flaw::Contents(reason) => reason.into(),
                })?
            }
        };
        Ok((text.bytes.len(), body))
    }

    fn taken(&mut self, bytes: usize, body: Body, seconds: f64) -> Slot {
        let target = &self.shared.options.targets[self.number];
        let Body { families, series, samples, kept, identities, shape, form } = body;
        let is_known =
            |one: &u64| self.before.as_ref().is_some_and(|before| before.contains_key(one));
        let new = identities.iter().flatten().filter(|(one, _)| !is_known(one));
        let added = new.map(|(_, samples)| u64::from(*samples)).sum();
        let (job, instance) = (printable(target.job()), printable(target.instance()));
        if !std::mem::take(&mut self.faults).is_empty() {
            info!(%job, %instance, "a target can be scraped again");
        } else if self.before.is_none() {
            info!(%job, %instance, samples, "scraped a target");
        }
        self.before = identities.or(self.before.take());
        self.shape = shape.or(self.shape);
        let report = Report { up: true, seconds, samples, kept, added, bytes: bytes as f64 };
        let name = [target.job(), target.instance()].join("/");
        let snapshot = exposed(name, target.job(), target.instance(), (families, series));
        self.form = form.map(|form| form.with_snapshot(&snapshot));
        Slot { report: Some(report), snapshot: Some(snapshot) }
    }

    fn failed(&mut self, fault: Fault, seconds: f64) -> Slot {
        let target = &self.shared.options.targets[self.number];
        // We limit the log, because the target determines how many different messages and statuses
        // there are.
        if self.faults.len() < MAX_FAULTS && !self.faults.contains(&fault.kind) {
            let (job, instance) = (printable(target.job()), printable(target.instance()));
            warn!(%job, %instance, error = %printable(&fault.message), "a target cannot be scraped");
            self.faults.push(fault.kind);
        }
        // We free the form, because its snapshot contains series that are no longer shown, and the
        // target may stay unavailable for long.
        self.form = None;
        let bytes = if fault.kind == FaultKind::TooLarge { -1.0 } else { 0.0 };
        let report = Report { up: false, seconds, samples: 0, kept: 0, added: 0, bytes };
        Slot { report: Some(report), snapshot: None }
    }
}

/// Creates the snapshot of a target from its families and their number of series.
fn exposed(
    name: String,
    job: &str,
    instance: &str,
    (families, series): (Vec<RecordedFamily>, usize),
) -> Arc<SourceSnapshot> {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let labels = vec![label("job", job), label("instance", instance)];
    let origin = Origin::Target;
    Arc::new(SourceSnapshot { origin, name, labels, families, series, ..SourceSnapshot::default() })
}

fn too_late(timeout: Duration) -> Fault {
    let reason = format!(
        "the response was not read within {}: it has too many samples, or shorter ones of other \
         targets took the time",
        humantime::format_duration(timeout)
    );
    Fault { message: reason, kind: FaultKind::Timeout }
}

/// Parses an exposition like a scrape of the target with this index, for tests and fuzzing. Returns
/// `None` if the scrape would fail.
#[doc(hidden)]
pub fn read_exposition(
    number: usize,
    body: &[u8],
    content_type: &str,
) -> Option<Arc<SourceSnapshot>> {
    let text = quipu_client::Text::of_type(body.to_vec(), content_type.to_owned());
    let turns = Turns::default();
    let turn = turns.take(body.len(), Instant::now() + Duration::from_secs(60)).ok()?;
    let read = families::read(&text, MAX_READ, &SeededState::default(), &turn, |_| false).ok()?;
    let Body { families, series, .. } = read;
    let name = format!("target-{number}");
    Some(exposed(name.clone(), "scrape", &name, (families, series)))
}

/// Returns these targets as sources, after a report about their scrapes.
#[doc(hidden)]
pub fn with_reports(targets: &[Arc<SourceSnapshot>]) -> Vec<Arc<SourceSnapshot>> {
    let Some(first) = targets.first() else { return Vec::new() };
    let url = format!("http://{}/metrics", first.name);
    let options = Options { targets: url.parse().into_iter().collect(), ..Options::default() };
    let report = Report { up: true, seconds: 0.5, samples: 1, kept: 1, added: 1, bytes: 1.0 };
    let reports: Vec<_> = options.targets.iter().map(|target| (target, report)).collect();
    let mut sources = vec![report::snapshot(&reports, &options)];
    sources.extend(targets.iter().cloned());
    sources
}

/// The maximum number of samples for [`read_exposition`].
const MAX_READ: usize = 10_000;

/// Locks a mutex. A poisoned mutex is fine, because no change of these values can panic half way.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Certificates(what) => write!(f, "cannot verify the targets of --scrape: {what}"),
            Self::Thread(error) => {
                write!(f, "the system starts no thread: {error}; raise its limits")
            }
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
