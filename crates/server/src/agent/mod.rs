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

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use quipu::Registry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use notice::Notice;
use own::Status;
pub use own::{OfTargets, Own};
use table::Table;
use targets::Scraped;

pub use merged::{About, Conflict, Filter, Merged, Seen, Walk};
pub use pattern::Pattern;
pub use recorded::{Labels, Recorded};

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

/// What the agent has read, for those that show it. Clones share it.
#[derive(Debug, Clone)]
pub struct Watched(Arc<Shared>);

/// A reading that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    number: u64,
    since: Instant,
}

#[derive(Debug)]
struct Shared {
    is_stopping: AtomicBool,
    /// A byte here wakes the thread.
    wake: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of readings that were asked for, that began, and that ended.
    wanted: u64,
    begun: u64,
    ended: u64,
    merged: Arc<Merged>,
    status: Arc<Status>,
}

/// The time between two looks for sources that no event announced.
const PERIOD: Duration = Duration::from_secs(5);
/// The least time between two looks because of events.
const CALM: Duration = Duration::from_millis(50);
/// How long a scrape waits for a reading before it shows the last one.
const PATIENCE: Duration = Duration::from_secs(3);

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
        let shared = Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            wake,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let watched = Watched(shared);
        let thread = Thread {
            table: Table::new(options),
            scraped,
            shown,
            notice: Notice::new(),
            woken,
            watched: watched.clone(),
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

impl Watched {
    /// Asks for a reading that begins after this call.
    pub fn ask(&self) -> Asked {
        let mut state = self.state();
        let number = state.begun + 1;
        let is_new = state.wanted < number;
        state.wanted = number;
        drop(state);
        if is_new {
            self.wake();
        }
        Asked { number, since: Instant::now() }
    }

    /// Waits for a reading, at most for that time. `None` if there is none yet. A reading that
    /// takes too long is not waited for: then the last one is returned.
    pub fn wait(&self, asked: &Asked, time: Duration) -> Option<Arc<Merged>> {
        let is_waiting = |state: &mut State| state.ended < asked.number;
        let waited = self.0.changed.wait_timeout_while(self.state(), time, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_there = state.ended >= asked.number || asked.since.elapsed() >= PATIENCE;
        is_there.then(|| Arc::clone(&state.merged))
    }

    /// Reads all sources, for a thread that may wait. If that takes too long, returns what was read
    /// last.
    pub fn fresh(&self) -> Arc<Merged> {
        let asked = self.ask();
        self.wait(&asked, PATIENCE).unwrap_or_else(|| Arc::clone(&self.state().merged))
    }

    fn status(&self) -> Arc<Status> {
        Arc::clone(&self.state().status)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change of the state can panic half way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // If there is no room for another byte, the thread is awake soon.
        let _ = rustix::io::write(&self.0.wake, &[0]);
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
    /// When it last looked for sources.
    looked: Option<Instant>,
    /// Whether there were events since.
    is_due: bool,
}

impl Thread {
    fn run(mut self) {
        // Acquire: see `Agent::drop`.
        while !self.watched.0.is_stopping.load(Ordering::Acquire) {
            let mut state = self.watched.state();
            let is_wanted = state.begun < state.wanted;
            state.begun += u64::from(is_wanted);
            drop(state);
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
        self.table.update(look);
        (self.looked, self.is_due) = (Some(Instant::now()), false);
    }

    fn read(&mut self) {
        let begun = Instant::now();
        let mut sources = self.scraped.seen();
        sources.extend(self.table.read());
        let shown = self.shown.family_names().ok();
        let is_taken = |name: &str| shown.as_ref().is_some_and(|shown| shown.contains(name));
        let merged = Arc::new(Merged::of(sources, is_taken));
        self.table.log(&merged.conflicts);
        let mut status = self.table.status(&merged);
        status.unwatched = self.notice.unwatched();
        status.took = begun.elapsed();
        let mut state = self.watched.state();
        state.ended = state.begun;
        let old = std::mem::replace(&mut state.merged, merged);
        state.status = Arc::new(status);
        drop(state);
        self.watched.0.changed.notify_all();
        // Without the lock: it may have many series.
        drop(old);
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
