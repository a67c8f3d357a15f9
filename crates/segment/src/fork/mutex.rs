//! A lock between the threads of one process. In a forked child, it is free.
//!
//! Use it for state that must be mended when its holder vanishes: a panic or a fork leaves a mark
//! until [`ForkSafeMutex::mended`]. This lock is not reentrant. The stores use a reentrant one for
//! their updates: see `lock.rs` of `quipu-store`.

use super::generation;
use crate::lock::{BusyReason, Guard, REGISTRATION, StuckLock, acquire};
use crate::sync::{AtomicU64, Ordering};

/// A lock for the threads of one process. If the process forks while another thread holds the lock,
/// the child finds it free, unlike a lock of the standard library.
#[derive(Debug, Default)]
pub(crate) struct ForkSafeMutex {
    word: AtomicU64,
    broken: AtomicU64,
    stuck: StuckLock,
}

impl ForkSafeMutex {
    /// Waits for the lock. Returns `None` in a signal handler if the interrupted thread holds the
    /// lock or is about to take it.
    pub(crate) fn lock(&self) -> Option<Guard<'_>> {
        self.lock_or_take_over().map(|(guard, _)| guard)
    }

    /// Like [`ForkSafeMutex::lock`], but also returns whether the guarded state may be half
    /// changed. This is true if a holder panicked, or was a thread that does not exist in this
    /// child of a fork. It remains true until [`ForkSafeMutex::mended`].
    pub(crate) fn lock_or_take_over(&self) -> Option<(Guard<'_>, bool)> {
        let own = u64::from(generation()) + 1;
        let is_alive = |token| token == own;
        loop {
            // A process is stopped with all of its threads, so a living holder will continue.
            match acquire(&self.word, &self.broken, own, is_alive, &self.stuck, REGISTRATION) {
                Ok(taken) => return Some(taken),
                Err(BusyReason::Interrupted) => return None,
                Err(BusyReason::Held(_)) => {}
            }
        }
    }

    /// Clears the mark, because the guarded state is whole again. The caller must hold the lock.
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
