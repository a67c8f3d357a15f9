//! The agent: shows the metrics that other programs keep in files, whether these programs are
//! running or dead, next to the daemon's own metrics.
//!
//! A separate thread directs the work: it has the places searched for files, and has all files read
//! when a scrape asks for them. The thread that serves requests therefore never waits for a file
//! system, and no file is read unless a client wants it. A reading is merged once and then served
//! in steps, and scrapes at the same time share it. Two more kinds of families are merged with a
//! reading: the last readings of [others](Others), for example of [`targets`], and the families of
//! the daemon itself, whose values are read only when they are shown.
//!
//! The directing thread never waits long for a file system either, because each place in the
//! settings is handled by a thread of the place (`place.rs`).

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

use notice::{Heard, Notice};
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

/// The settings of the agent.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Files, directories, and patterns of paths.
    pub places: Vec<String>,
    /// The patterns of paths that assign labels.
    pub labels: Vec<Pattern>,
    /// How long to show the last values of a segment that is removed, or that no process keeps
    /// open.
    pub keep: Option<Duration>,
    /// The maximum number of watched sources.
    pub most: usize,
    /// The maximum number of bytes that all segments together can use.
    pub bytes: u64,
    /// The maximum number of recorded segments, if recording is on.
    pub record: Option<usize>,
    /// The daemon's own state file, which the agent does not show.
    pub own: PathBuf,
}

/// Returns the last reading of each other source. These sources are shown after the daemon's
/// families and before the families of files.
pub type Others = Box<dyn Fn() -> Vec<Arc<SourceSnapshot>> + Send>;

/// The running agent. You can stop its thread by dropping this value, which does not wait for the
/// thread.
#[derive(Debug)]
pub struct Agent {
    readings: AgentReadings,
}

impl Agent {
    /// Starts the threads. They also show the `others` and the families of `shown`.
    ///
    /// # Errors
    /// Returns the system's error if it cannot provide a thread or a descriptor.
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
        // Do not wait for the thread, because a file system that hangs must not keep the daemon
        // from stopping. Release: pairs with the acquire in the thread, which the byte wakes.
        self.readings.0.is_stopping.store(true, Ordering::Release);
        self.readings.wake();
    }
}

/// The pause after a panic, because the cause can still be there.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of the agent's thread.
struct Thread {
    table: Table,
    /// The names of files that can be sources.
    names: Names,
    others: Others,
    /// The metrics of the daemon itself.
    shown: Registry,
    woken: UnixStream,
    readings: AgentReadings,
    /// The times of the looks for sources.
    pace: Pace,
}

impl Thread {
    fn run(mut self) {
        let mut is_logged = false;
        // Acquire: see `Agent::drop`.
        while !self.readings.0.is_stopping.load(Ordering::Acquire) {
            // Catch panics, because others wrote the files: a bug in a reader must not end the
            // thread.
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
        if heard != Heard::Nothing {
            self.pace.heard(now, heard == Heard::Sources);
        }
        if self.pace.due_in(now).is_zero() || is_wanted && self.pace.is_due_for_scrape(now) {
            self.look();
        }
        if is_wanted {
            self.read();
        } else {
            self.sleep();
        }
    }

    fn look(&mut self) {
        let began = Instant::now();
        let looked = catch_unwind(AssertUnwindSafe(|| self.table.look()));
        // Record the look even after a panic, so the known sources are read before the next look.
        self.pace.looked(began, Instant::now());
        looked.unwrap_or_else(|flaw| resume_unwind(flaw));
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

    /// Sleeps until there is an event or a request, or until a look is due.
    fn sleep(&mut self) {
        let now = Instant::now();
        let (left, deaf) = (self.pace.due_in(now), self.pace.deaf_for(now));
        let time = Timespec::try_from(deaf.map_or(left, |deaf| deaf.min(left))).ok();
        let events: Vec<_> = self.table.notices().filter_map(Notice::descriptor).collect();
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN)];
        // Ignore events for this time, because they must not end every sleep at once.
        if deaf.is_none() {
            let of = |events| PollFd::from_borrowed_fd(AsFd::as_fd(events), PollFlags::IN);
            descriptors.extend(events.iter().map(of));
        }
        // Ignore the error, because an interrupted wait is like one that ended: everything is
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
