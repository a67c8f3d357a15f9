//! Watches directories for new and removed files, with inotify where the system supports it.
//!
//! An event is only a hint that a scan is due. A scan every few seconds also finds changes without
//! events, for example on a network file system or after an overflow of the event queue.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::{mem::MaybeUninit, os::fd::OwnedFd};

#[cfg(target_os = "linux")]
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use quipu_sources::places::Names;

/// The maximum number of events to read at a time.
#[cfg(target_os = "linux")]
const MAX_EVENTS: usize = 1 << 16;

/// The most important subject of some events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventSubject {
    /// There were no events.
    Nothing,
    /// Only files that cannot be sources.
    Others,
    /// Files or directories that can be sources.
    Sources,
}

/// The watched directories, and the source of their events.
#[derive(Debug)]
pub(super) struct Notice {
    #[cfg(target_os = "linux")]
    inotify: Option<OwnedFd>,
    /// The inotify watch of each directory; `None` if the system refused the watch.
    watched: HashMap<PathBuf, Option<i32>>,
}

impl Notice {
    /// Creates a value without watched directories.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            watched: HashMap::new(),
        }
    }

    /// Returns the descriptor that is readable if there are events.
    pub(super) fn descriptor(&self) -> Option<impl AsFd> {
        #[cfg(target_os = "linux")]
        return self.inotify.as_ref();
        #[cfg(not(target_os = "linux"))]
        None::<std::os::fd::BorrowedFd<'_>>
    }

    /// Returns the number of directories that the system does not watch.
    pub(super) fn unwatched(&self) -> usize {
        self.watched.values().filter(|watch| watch.is_none()).count()
    }

    /// Sets the watched directories. Returns whether any of them is new.
    pub(super) fn watch(&mut self, directories: BTreeSet<PathBuf>) -> bool {
        let mut has_new = false;
        let gone = self.watched.extract_if(|path, _| !directories.contains(path));
        let gone: Vec<i32> = gone.filter_map(|(_, watch)| watch).collect();
        for watch in gone {
            // Two paths can name the same directory, and then share a watch.
            if !self.watched.values().any(|other| *other == Some(watch)) {
                self.remove(watch);
            }
        }
        for path in directories {
            // We add every directory again, because its path can name another directory now, or
            // because a limit was raised. An existing watch keeps its number.
            let watch = self.add(&path);
            let before = self.watched.insert(path, watch).flatten();
            if before == watch {
                continue;
            }
            has_new |= watch.is_some();
            if let Some(before) = before
                && !self.watched.values().any(|other| *other == Some(before))
            {
                self.remove(before);
            }
        }
        has_new
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
            // We ignore the error: if the directory was removed, the watch is gone already.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// Reads all events, and returns their most important subject. An event matters only if a file
    /// name matches `names`, because other programs may write many unrelated files to a directory.
    #[cfg(target_os = "linux")]
    pub(super) fn read_events(&mut self, names: &Names) -> EventSubject {
        let Some(inotify) = &self.inotify else { return EventSubject::Nothing };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let (mut subject, mut ended) = (EventSubject::Nothing, Vec::new());
        for _ in 0..MAX_EVENTS {
            // An error means that there are no more events for now.
            let Ok(event) = events.next() else { break };
            // An event without a name concerns the directory itself or the queue.
            let name = event.file_name().map(|name| name.to_string_lossy());
            let is_other = name.is_some_and(|name| !names.has(&name));
            subject = match is_other && !event.events().contains(ReadFlags::ISDIR) {
                true => subject.max(EventSubject::Others),
                false => EventSubject::Sources,
            };
            // The system removed the watch because the directory is gone.
            if event.events().contains(ReadFlags::IGNORED) {
                ended.push(event.wd());
            }
        }
        if !ended.is_empty() {
            self.watched.retain(|_, watch| watch.is_none_or(|watch| !ended.contains(&watch)));
        }
        subject
    }

    #[cfg(not(target_os = "linux"))]
    fn add(&self, _: &std::path::Path) -> Option<i32> {
        None
    }

    #[cfg(not(target_os = "linux"))]
    fn remove(&self, _: i32) {}

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read_events(&mut self, _: &Names) -> EventSubject {
        EventSubject::Nothing
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_names_that_may_be_found_are_of_interest() {
        let home = tempfile::tempdir().unwrap();
        let names = Names::from_places(&[home.path().to_str().unwrap().to_owned()]);
        let mut notice = Notice::new();
        assert!(notice.watch([home.path().to_owned()].into()));
        assert!(!notice.watch([home.path().to_owned()].into()));
        assert_eq!(notice.read_events(&names), EventSubject::Nothing);
        fs::write(home.path().join("log.txt"), "x").unwrap();
        fs::rename(home.path().join("log.txt"), home.path().join("log.1")).unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Others);
        fs::write(home.path().join("a.quipu"), "x").unwrap();
        fs::write(home.path().join("log.txt"), "x").unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Sources);
        fs::create_dir(home.path().join("below")).unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Sources);
        fs::remove_file(home.path().join("a.quipu")).unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Sources);
        assert_eq!(notice.read_events(&names), EventSubject::Nothing);
    }

    #[test]
    fn a_directory_that_takes_the_path_of_another_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let (path, old) = (home.path().join("run"), home.path().join("old"));
        let names = Names::from_places(&[path.to_str().unwrap().to_owned()]);
        fs::create_dir(&path).unwrap();
        let mut notice = Notice::new();
        assert!(notice.watch([path.clone()].into()));
        fs::rename(&path, &old).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(notice.watch([path.clone()].into()));
        assert_eq!(notice.read_events(&names), EventSubject::Sources);
        assert!(!notice.watch([path.clone()].into()));
        assert_eq!(notice.read_events(&names), EventSubject::Nothing);
        fs::write(old.join("a.quipu"), "x").unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Nothing);
        fs::write(path.join("a.quipu"), "x").unwrap();
        assert_eq!(notice.read_events(&names), EventSubject::Sources);
    }
}
