//! The agent: shows the metrics that other programs keep in files, live or dead, beside those that
//! the daemon takes in.
//!
//! A thread of its own has the files found, and all of them read when a scrape asks for them: the
//! thread that serves requests never waits for a file system, and nothing is read that no client
//! wants. What was read is merged once, and is then passed on in steps. Scrapes that come at the
//! same time share a reading. The last readings of [others](Others), such as [`targets`], are
//! merged with it, and so are the families of the daemon itself, whose series are read when they
//! are shown.
//!
//! Nor does that thread wait for a file system for long: each place that the settings name has a
//! thread for that (`place.rs`).

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

pub use merged::{About, Conflict, Filter, LeftOut, MergedFamilies};
pub use pattern::Pattern;
pub use readings::{AgentReadings, Reading, ReadingRequest};
pub use settings::SegmentFlags;
#[doc(hidden)]
pub use source::read_segment;
pub use walk::All;

/// What the agent watches, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Files, directories, and patterns of paths.
    pub places: Vec<String>,
    /// The patterns of paths that give labels.
    pub labels: Vec<Pattern>,
    /// How long the last values of a segment are shown that no process has open, or that is
    /// removed.
    pub keep: Option<Duration>,
    /// The most sources that are watched.
    pub most: usize,
    /// The most bytes that all segments together may have in use.
    pub bytes: u64,
    /// The most segments that are recorded, if any are.
    pub record: Option<usize>,
    /// The daemon's own state file, which is not shown.
    pub own: PathBuf,
}

/// Returns the last reading of each other source. They are shown after the daemon's families and
/// before the families of files.
pub type Others = Box<dyn Fn() -> Vec<Arc<SourceSnapshot>> + Send>;

/// The running agent. Dropping it stops its thread, without waiting for it.
#[derive(Debug)]
pub struct Agent {
    readings: AgentReadings,
}

impl Agent {
    /// Starts the threads, which show the `others` and the families of `shown`, too.
    ///
    /// # Errors
    /// That of the system if it has no thread or descriptor.
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
        // Nothing waits for the thread: a file system that hangs must not keep the daemon from
        // stopping. Release: pairs with the acquire of the thread, which the byte wakes.
        self.readings.0.is_stopping.store(true, Ordering::Release);
        self.readings.wake();
    }
}

/// How long the thread waits after a flaw: it may be there again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of the agent's thread.
struct Thread {
    table: Table,
    /// The names of files that may be sources.
    names: Names,
    others: Others,
    /// What the daemon shows itself.
    shown: Registry,
    woken: UnixStream,
    readings: AgentReadings,
    /// When it looks for sources.
    pace: Pace,
}

impl Thread {
    fn run(mut self) {
        let mut is_logged = false;
        // Acquire: see `Agent::drop`.
        while !self.readings.0.is_stopping.load(Ordering::Acquire) {
            // What it reads was written by others: a flaw must not end the thread.
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
        // Also after a flaw: what is known is read before the next look.
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
        merged.left_out = Arc::clone(&self.readings.0.left_out);
        let merged = Arc::new(merged);
        self.table.log(&merged.conflicts);
        let mut status = self.table.status(&merged);
        status.took = begun.elapsed();
        self.readings.end(merged, status);
    }

    /// Sleeps until there is an event, a request, or a look is due.
    fn sleep(&mut self) {
        let now = Instant::now();
        let (left, deaf) = (self.pace.due_in(now), self.pace.deaf_for(now));
        let time = Timespec::try_from(deaf.map_or(left, |deaf| deaf.min(left))).ok();
        let events: Vec<_> = self.table.notices().filter_map(Notice::descriptor).collect();
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN)];
        // Events must not end the sleep again and again.
        if deaf.is_none() {
            let of = |events| PollFd::from_borrowed_fd(AsFd::as_fd(events), PollFlags::IN);
            descriptors.extend(events.iter().map(of));
        }
        // An interrupted wait is like one that ends: all is looked at again.
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
        // There is no other reading that could be shown.
        assert!(matches!(readings.fresh(), Reading::Stale));
        // The thread waits a little.
        let mut readings = (0..20).map(|_| readings.fresh());
        assert!(readings.any(|reading| matches!(reading, Reading::Families(_))));
    }
}
