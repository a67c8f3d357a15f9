//! The agent: shows the metrics of other programs on the daemon's page. It reads the segment files
//! of running and of ended programs, and scrapes programs over HTTP ([`targets`]).
//!
//! A separate thread controls the work: it finds the files, and reads all of them when a scrape
//! requests a reading. The thread that serves requests therefore never waits for a file system, and
//! no file is read unless a client asks. Each reading is merged once and then served in steps, and
//! simultaneous scrapes share it. The merge also includes the last results of [other
//! sources](Others), such as scrape targets, and the families of the daemon, whose values are read
//! only when they are shown.
//!
//! The controlling thread never waits long for a file system either, because each configured path
//! is handled by a separate thread (`place.rs`).

mod merged;
mod notice;
pub mod own;
mod pace;
mod pattern;
mod place;
mod readings;
mod retry;
mod selection;
mod settings;
mod source;
mod table;
pub mod targets;
mod turns;
mod walk;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use quipu::Registry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::error;

use notice::{EventSubject, Notice};
pub use own::Own;
use pace::Pace;
use quipu_sources::places::Names;
use quipu_sources::recorded::SourceSnapshot;
use table::Table;

pub use merged::{About, Conflict, Filter, MergedFamilies, OmittedSeries};
pub use pattern::Pattern;
pub use readings::{AgentReadings, Reading, ReadingRequest};
pub use settings::SegmentFlags;
#[doc(hidden)]
pub use source::read_segment;
pub use walk::PageWalk;

/// The options of the agent.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The paths from `--segments`: files, directories, and patterns of paths.
    pub places: Vec<String>,
    /// The path patterns that assign labels to files.
    pub labels: Vec<Pattern>,
    /// The time for which to show the last values of a segment whose file was removed or closed by
    /// its last process.
    pub keep: Option<Duration>,
    /// The maximum number of watched sources.
    pub most: usize,
    /// The maximum number of bytes that all segments together can use.
    pub bytes: u64,
    /// The maximum number of recorded segments; `None` if the daemon does not record.
    pub record: Option<usize>,
    /// The daemon's own state file, which is not shown a second time.
    pub own: PathBuf,
}

/// A function that returns the last result of each other source. On the page, these sources follow
/// the daemon and precede the files.
pub type Others = Box<dyn Fn() -> Vec<Arc<SourceSnapshot>> + Send>;

/// The running agent. Dropping this value stops its thread, without a wait.
#[derive(Debug)]
pub struct Agent {
    readings: AgentReadings,
}

impl Agent {
    /// Starts the threads. The page also contains the `others`, and the families of the registry
    /// `shown`.
    ///
    /// # Errors
    /// Fails if the system provides no thread or descriptor.
    pub fn start(options: Options, others: Others, shown: Registry) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let readings = AgentReadings::new(wake);
        let thread = Thread {
            names: Names::from_places(&options.places),
            table: Table::new(options)?,
            others,
            shown,
            woken,
            readings: readings.clone(),
            pace: Pace::new(),
        };
        thread::Builder::new().name("agent".into()).spawn(move || thread.run())?;
        Ok(Self { readings })
    }

    /// Returns the readings of the agent.
    pub fn readings(&self) -> AgentReadings {
        self.readings.clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // We don't wait for the thread, because a file system that hangs must not delay the stop of
        // the daemon. Release: pairs with the acquire in the thread, which the byte wakes.
        self.readings.0.is_stopping.store(true, Ordering::Release);
        self.readings.wake();
    }
}

/// The pause after a panic, because its cause may still exist.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of the controlling thread.
struct Thread {
    table: Table,
    /// Matches file names that can be sources.
    names: Names,
    others: Others,
    /// The metrics of the daemon itself.
    shown: Registry,
    woken: UnixStream,
    readings: AgentReadings,
    /// Determines when to scan the directories.
    pace: Pace,
}

impl Thread {
    fn run(mut self) {
        let mut is_logged = false;
        // Acquire: see `Agent::drop`.
        while !self.readings.0.is_stopping.load(Ordering::Acquire) {
            // Catch panics, because the files are from other programs, and a bug in a reader must
            // not end the thread.
            if catch_unwind(AssertUnwindSafe(|| self.round())).is_err() {
                self.readings.give_up();
                if !std::mem::replace(&mut is_logged, true) {
                    error!("a reading of what is watched failed: report that");
                }
                thread::sleep(PAUSE);
            }
        }
    }

    fn round(&mut self) {
        let is_wanted = self.readings.begin();
        let (heard, now) = (self.table.heard(&self.names), Instant::now());
        if heard != EventSubject::Nothing {
            self.pace.heard(now, heard == EventSubject::Sources);
        }
        if self.pace.due_in(now).is_zero() || is_wanted && self.pace.is_due_for_scrape(now) {
            self.scan();
        }
        if is_wanted {
            self.read();
        } else {
            self.sleep();
        }
    }

    fn scan(&mut self) {
        let began = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| self.table.scan()));
        // Record the scan even after a panic, so the known sources are read before the next scan.
        self.pace.looked(began, Instant::now());
        result.unwrap_or_else(|flaw| resume_unwind(flaw));
    }

    fn read(&mut self) {
        #[cfg(test)]
        if self.readings.0.has_flaw.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new(()));
        }
        let begun = Instant::now();
        let (files, is_part) = self.table.read();
        let mut sources = (self.others)();
        sources.extend(files);
        let mut merged = MergedFamilies::merge(&self.shown, sources);
        merged.directories = self.table.directories(Instant::now());
        merged.is_part = is_part;
        merged.omitted = Arc::clone(&self.readings.0.omitted);
        let merged = Arc::new(merged);
        self.table.log(&merged.conflicts);
        let mut status = self.table.status(&merged);
        status.took = begun.elapsed();
        self.readings.end(merged, status);
    }

    /// Sleeps until there is an event, a request or a due scan.
    fn sleep(&mut self) {
        let now = Instant::now();
        let (left, deaf) = (self.pace.due_in(now), self.pace.deaf_for(now));
        let time = Timespec::try_from(deaf.map_or(left, |deaf| deaf.min(left))).ok();
        let events: Vec<_> = self.table.notices().filter_map(Notice::descriptor).collect();
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN)];
        // We ignore events for this time, because constant events would end every sleep at once.
        if deaf.is_none() {
            let of = |events| PollFd::from_borrowed_fd(AsFd::as_fd(events), PollFlags::IN);
            descriptors.extend(events.iter().map(of));
        }
        // We ignore the error: an interrupted wait is like one that ended, because everything is
        // checked again.
        let _ = poll(&mut descriptors, time.as_ref());
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(count) if count > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_ends_a_reading_and_not_the_thread() {
        let home = tempfile::tempdir().unwrap();
        let places = vec![home.path().to_str().unwrap().to_owned()];
        let options = Options { places, bytes: 1 << 20, most: 10, ..Options::default() };
        let agent = Agent::start(options, Box::new(Vec::new), Registry::new()).unwrap();
        let readings = agent.readings();
        readings.0.has_flaw.store(true, Ordering::Relaxed);
        // There is no earlier reading to show.
        assert!(matches!(readings.fresh(), Reading::Stale));
        // The thread pauses after a failure.
        let mut readings = (0..20).map(|_| readings.fresh());
        assert!(readings.any(|reading| matches!(reading, Reading::Families(_))));
    }
}
