//! A lock between the threads of one process, which a forked child finds free.
//!
//! It guards what must be mended when its holder vanishes: a panic or a fork leaves a mark until
//! [`ForkSafeMutex::mended`]. It is not reentrant. The stores have another lock, which is, for
//! their updates: see `lock.rs` of `quipu-store`.

use super::generation;
use crate::lock::{BusyReason, Guard, REGISTRATION, StuckLock, acquire};
use crate::sync::{AtomicU64, Ordering};

/// A lock for the threads of one process. If a process forks while another of its threads holds the
/// lock, the child finds it free, unlike a lock of the standard library.
#[derive(Debug, Default)]
pub(crate) struct ForkSafeMutex {
    word: AtomicU64,
    broken: AtomicU64,
    stuck: StuckLock,
}

impl ForkSafeMutex {
    /// Waits for the lock. Returns `None` in a signal handler that interrupted a thread which has
    /// the lock or is about to take it.
    pub(crate) fn lock(&self) -> Option<Guard<'_>> {
        self.lock_or_take_over().map(|(guard, _)| guard)
    }

    /// As [`ForkSafeMutex::lock`]; also returns whether what the lock guards may be half changed:
    /// its holder was a thread that this child of a fork does not have, or panicked. That remains
    /// set until [`ForkSafeMutex::mended`].
    pub(crate) fn lock_or_take_over(&self) -> Option<(Guard<'_>, bool)> {
        let own = u64::from(generation()) + 1;
        let is_alive = |token| token == own;
        loop {
            // A process is stopped with all of its threads, so a living holder will go on.
            match acquire(&self.word, &self.broken, own, is_alive, &self.stuck, REGISTRATION) {
                Ok(taken) => return Some(taken),
                Err(BusyReason::Interrupted) => return None,
                Err(BusyReason::Held(_)) => {}
            }
        }
    }

    /// Notes that what the lock guards is whole again. The caller must hold the lock.
    pub(crate) fn mended(&self) {
        self.broken.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_the_mutex_is_told_so() {
        let mutex = ForkSafeMutex::default();
        let guard = mutex.lock();
        assert!(guard.is_some() && mutex.lock().is_none());
        drop(guard);
        assert!(mutex.lock().is_some());
    }
}
