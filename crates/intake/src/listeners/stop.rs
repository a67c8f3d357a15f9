//! A stop signal for the threads of listeners. A flag stops a busy thread. A thread that waits in
//! `poll` wakes up, because the other end of a pipe is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// The stop signal.
#[derive(Debug)]
pub(super) struct Stop {
    is_asked: AtomicBool,
    /// The read end of a pipe; it signals a hang-up when the write end is closed.
    wakes: OwnedFd,
    /// The write end.
    other_end: Mutex<Option<OwnedFd>>,
}

impl Stop {
    pub(super) fn new() -> std::io::Result<Self> {
        let (wakes, other_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let other_end = Mutex::new(Some(other_end));
        Ok(Self { is_asked: AtomicBool::new(false), wakes, other_end })
    }

    /// Tells all threads to stop.
    pub(super) fn ask(&self) {
        // Relaxed: this flag publishes no other data. Waiting threads are woken by the pipe.
        self.is_asked.store(true, Ordering::Relaxed);
        // A poisoned lock still contains the end.
        let mut end = self.other_end.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(end.take());
    }

    /// Returns whether the threads must stop.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Waits until the descriptor is readable or the threads must stop. Returns false on a timeout
    /// of `most`.
    pub(super) fn wait_for(&self, descriptor: &OwnedFd, most: Option<Duration>) -> bool {
        let mut both =
            [PollFd::new(descriptor, PollFlags::IN), PollFd::new(&self.wakes, PollFlags::IN)];
        // We treat an interrupted wait like an event, because the caller checks again anyway.
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        poll(&mut both, most.as_ref()) != Ok(0)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}
