//! The agent: shows the metrics that other programs keep in files, live or dead, beside those that
//! the daemon takes in.
//!
//! A thread of its own finds the files, and reads all of them when a scrape asks for them: the
//! thread that serves requests never waits for a file system, and nothing is read that no client
//! wants. What was read is merged once, and is then passed on in steps. Scrapes that come at the
//! same time share a reading. What [`targets`] exposed last is merged with it.

mod merged;
mod notice;
mod own;
mod pattern;
mod places;
mod recorded;
mod source;
mod table;
pub mod targets;
mod watched;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use quipu::Registry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use notice::Notice;
pub use own::{OfTargets, Own};
use table::Table;
use targets::Scraped;

pub use merged::{About, Conflict, Filter, Merged, Seen, Walk};
pub use pattern::Pattern;
pub use recorded::{Labels, Recorded};
pub use watched::{Asked, Reading, Watched};

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
    /// The daemon's own state file, which is not shown.
    pub own: PathBuf,
}

/// The running agent. Dropping it stops its thread, without waiting for it.
#[derive(Debug)]
pub struct Agent {
    watched: Watched,
}

/// The time between two looks for sources that no event announced.
const PERIOD: Duration = Duration::from_secs(5);
/// The least time between two looks because of events.
const CALM: Duration = Duration::from_millis(50);

impl Agent {
    /// Starts the thread, which shows what was `scraped`, too. A family that `shown` has keeps
    /// those of its name in other sources apart.
    ///
    /// # Errors
    /// That of the system if it has no thread or descriptor.
    pub fn start(options: Options, scraped: Scraped, shown: Registry) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let watched = Watched::new(wake);
        let thread = Thread {
            table: Table::new(options),
            scraped,
            shown,
            notice: Notice::new(),
            woken,
            watched: watched.clone(),
            directories: Vec::new(),
            looked: None,
            is_due: false,
        };
        thread::Builder::new().name("agent".into()).spawn(move || thread.run())?;
        Ok(Self { watched })
    }

    /// What the agent has read.
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Nothing waits for the thread: a file system that hangs must not keep the daemon from
        // stopping. Release: pairs with the acquire of the thread, which the byte wakes.
        self.watched.0.is_stopping.store(true, Ordering::Release);
        self.watched.wake();
    }
}

/// What the thread has.
struct Thread {
    table: Table,
    scraped: Scraped,
    /// What the daemon shows itself.
    shown: Registry,
    notice: Notice,
    woken: UnixStream,
    watched: Watched,
    /// The directories in which it looks, with absolute paths.
    directories: Vec<PathBuf>,
    /// When it last looked for sources.
    looked: Option<Instant>,
    /// Whether there were events since.
    is_due: bool,
}

impl Thread {
    fn run(mut self) {
        // Acquire: see `Agent::drop`.
        while !self.watched.0.is_stopping.load(Ordering::Acquire) {
            let is_wanted = self.watched.begin();
            self.is_due |= self.notice.take();
            let age = self.looked.map_or(Duration::MAX, |looked| looked.elapsed());
            let due = if self.is_due { CALM } else { PERIOD };
            if age >= due || is_wanted && self.is_due {
                self.look();
            }
            if is_wanted {
                self.read();
            } else {
                self.sleep();
            }
        }
    }

    fn look(&mut self) {
        // Directories are watched before they are looked at: nothing appears unnoticed in between.
        let mut look = places::look(&self.table.options().places);
        for _ in 0..LOOKS {
            self.notice.watch(std::mem::take(&mut look.directories));
            let again = places::look(&self.table.options().places);
            let is_same = again.found == look.found;
            look = again;
            if is_same {
                break;
            }
        }
        let directories = look.directories.iter();
        self.directories = directories.flat_map(std::path::absolute).collect();
        self.table.update(look);
        (self.looked, self.is_due) = (Some(Instant::now()), false);
    }

    fn read(&mut self) {
        let begun = Instant::now();
        let mut sources = self.scraped.seen();
        sources.extend(self.table.read());
        let shown = self.shown.family_names().ok();
        let is_taken = |name: &str| shown.as_ref().is_some_and(|shown| shown.contains(name));
        let mut merged = Merged::of(sources, is_taken);
        merged.directories.clone_from(&self.directories);
        let merged = Arc::new(merged);
        self.table.log(&merged.conflicts);
        let mut status = self.table.status(&merged);
        status.unwatched = self.notice.unwatched();
        status.took = begun.elapsed();
        self.watched.end(merged, status);
    }

    /// Sleeps until there is an event, a request, or a look is due.
    fn sleep(&mut self) {
        let due = if self.is_due { CALM } else { PERIOD };
        let left = self.looked.map_or(Duration::ZERO, |at| due.saturating_sub(at.elapsed()));
        let time = Timespec::try_from(left).ok();
        let events = self.notice.descriptor();
        let mut descriptors = vec![PollFd::new(&self.woken, PollFlags::IN)];
        // Events that are known to be there must not end the sleep again.
        if let (Some(events), false) = (&events, self.is_due) {
            descriptors.push(PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN));
        }
        // An interrupted wait is like one that ends: all is looked at again.
        let _ = poll(&mut descriptors, time.as_ref());
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(count) if count > 0) {}
    }
}

/// How often a look is repeated if something appears meanwhile.
const LOOKS: usize = 3;
