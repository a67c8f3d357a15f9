//! Tells when something appears in a directory, or goes: by inotify, where the system has it.
//!
//! Events are only a hint that a look is due. A look every few seconds finds what has no events:
//! file systems over a network, and a queue that was full.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::{mem::MaybeUninit, os::fd::OwnedFd};

#[cfg(target_os = "linux")]
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// The most events that are taken at a time.
#[cfg(target_os = "linux")]
const MAX_EVENTS: usize = 1 << 16;

/// The directories that are watched.
#[derive(Debug)]
pub(super) struct Notice {
    #[cfg(target_os = "linux")]
    inotify: Option<OwnedFd>,
    /// The number of each directory's watch; `None` if the system refused it.
    watched: HashMap<PathBuf, Option<i32>>,
}

impl Notice {
    /// Watches nothing yet.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            watched: HashMap::new(),
        }
    }

    /// Readable when there are events.
    pub(super) fn descriptor(&self) -> Option<impl AsFd> {
        #[cfg(target_os = "linux")]
        return self.inotify.as_ref();
        #[cfg(not(target_os = "linux"))]
        None::<std::os::fd::BorrowedFd<'_>>
    }

    /// The number of directories that have no events.
    pub(super) fn unwatched(&self) -> usize {
        self.watched.values().filter(|watch| watch.is_none()).count()
    }

    /// Watches these directories, and no others.
    pub(super) fn watch(&mut self, directories: BTreeSet<PathBuf>) {
        let gone = self.watched.extract_if(|path, _| !directories.contains(path));
        let gone: Vec<i32> = gone.filter_map(|(_, watch)| watch).collect();
        for watch in gone {
            // Two paths may lead to one directory, and then share a watch.
            if !self.watched.values().any(|other| *other == Some(watch)) {
                self.remove(watch);
            }
        }
        for path in directories {
            // Those that were refused are tried again: a limit may have been raised.
            if self.watched.get(&path).is_none_or(Option::is_none) {
                let watch = self.add(&path);
                self.watched.insert(path, watch);
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn add(&self, path: &std::path::Path) -> Option<i32> {
        let appears = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let goes = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let flags = appears | goes | itself | WatchFlags::ONLYDIR;
        inotify::add_watch(self.inotify.as_ref()?, path, flags).ok()
    }

    #[cfg(target_os = "linux")]
    fn remove(&self, watch: i32) {
        if let Some(inotify) = &self.inotify {
            // A watch whose directory was removed is gone already.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// Takes all events; returns whether there were any.
    #[cfg(target_os = "linux")]
    pub(super) fn take(&mut self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let (mut has_any, mut ended) = (false, Vec::new());
        for _ in 0..MAX_EVENTS {
            // An error means that there are no more, for now.
            let Ok(event) = events.next() else { break };
            has_any = true;
            // The system has removed the watch: its directory is gone.
            if event.events().contains(ReadFlags::IGNORED) {
                ended.push(event.wd());
            }
        }
        if !ended.is_empty() {
            self.watched.retain(|_, watch| watch.is_none_or(|watch| !ended.contains(&watch)));
        }
        has_any
    }

    #[cfg(not(target_os = "linux"))]
    fn add(&self, _: &std::path::Path) -> Option<i32> {
        None
    }

    #[cfg(not(target_os = "linux"))]
    fn remove(&self, _: i32) {}

    /// Takes all events; returns whether there were any.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn take(&mut self) -> bool {
        false
    }
}
