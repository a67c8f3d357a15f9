//! A reentrant lock between the threads of a process, which a forked child finds free.
//!
//! A lock of the standard library would stay locked in the child forever if another thread of the
//! parent held it during the fork.
//!
//! `ForkSafeMutex` of `quipu-segment` is another lock, for rare changes that must be mended if
//! their thread vanishes. This lock is for every update of a store, and differs:
//!
//! - Its owner is a thread, which can take it again, because calls of Ruby's `synchronize` can be
//!   nested.
//! - It does not mend values. A child that takes over a [`LockedValue`] starts with the default
//!   value.
//! - A fork handler can hold it from before a fork until after it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The lock. This is one word: 0, or the process and thread that hold it.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    owner: AtomicU64,
    /// How many times the owner took the lock beyond the first.
    reentries: AtomicU32,
}

/// Holds the lock until it is dropped.
#[must_use]
pub(crate) struct LockGuard<'l> {
    lock: &'l Lock,
    own: u64,
    /// Whether the lock was taken from a thread that did not survive the fork. The value can then
    /// be in the middle of a change.
    inherited: bool,
}

/// A value under a lock.
#[derive(Debug, Default)]
pub(crate) struct LockedValue<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets only one thread at a time reach the value.
unsafe impl<T: Send> Sync for LockedValue<T> {}

const SPINS: u32 = 64;
const YIELDS: u32 = 256;
const NAP: Duration = Duration::from_micros(50);

impl Lock {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU64::new(0), reentries: AtomicU32::new(0) }
    }

    /// Takes the lock until this thread calls `release`.
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    pub(crate) fn hold(&self) {
        std::mem::forget(self.lock());
    }

    /// Releases the lock after `hold`. Has no effect in a child that was forked since.
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    pub(crate) fn release(&self) {
        drop(LockGuard { lock: self, own: this_thread(), inherited: false });
    }

    /// Waits until no other thread holds the lock, and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_> {
        let own = this_thread();
        let mut inherited = false;
        // Acquire: sees the stores of the last owner.
        match self.owner.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {}
            Err(owner) if owner == own => {
                self.reentries.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => inherited = self.wait(own),
        }
        LockGuard { lock: self, own, inherited }
    }

    #[cold]
    fn wait(&self, own: u64) -> bool {
        let mut round = 0_u32;
        loop {
            round = round.saturating_add(1);
            match self.owner.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return false,
                // Its owner is a thread of an ancestor process, which does not exist here.
                Err(owner) if owner != 0 && owner >> 32 != own >> 32 => {
                    let took = self.owner.compare_exchange(
                        owner,
                        own,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if took.is_ok() {
                        self.reentries.store(0, Ordering::Relaxed);
                        return true;
                    }
                }
                Err(_) if round < SPINS => std::hint::spin_loop(),
                Err(_) if round < YIELDS => std::thread::yield_now(),
                Err(_) => std::thread::sleep(NAP),
            }
        }
    }

    fn is_reentered(&self) -> bool {
        self.reentries.load(Ordering::Relaxed) > 0
    }
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // In a child that was forked under the lock, another thread can take it over.
        if self.lock.owner.load(Ordering::Relaxed) != self.own {
            return;
        }
        if self.lock.is_reentered() {
            self.lock.reentries.fetch_sub(1, Ordering::Relaxed);
        } else {
            // Release: the next owner sees the stores of this one.
            self.lock.owner.store(0, Ordering::Release);
        }
    }
}

impl<T> LockedValue<T> {
    #[cfg(any(test, all(feature = "lmdb", target_os = "linux")))]
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Replaces the value by its default, and keeps all other threads out until `release`.
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    pub(crate) fn reset_and_hold(&self)
    where
        T: Default,
    {
        let guard = self.lock.lock();
        if !self.lock.is_reentered() {
            let value = self.value.get();
            // SAFETY: like in `with`. An inherited value is not dropped.
            let old = unsafe { value.replace(T::default()) };
            if guard.inherited {
                std::mem::forget(old);
            }
        }
        std::mem::forget(guard);
    }

    /// Returns the value. `&mut self` proves that no other thread can reach it, so the lock is not
    /// taken.
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Like [`Lock::release`].
    #[cfg(all(feature = "lmdb", target_os = "linux"))]
    pub(crate) fn release(&self) {
        self.lock.release();
    }

    /// Calls `work` with the value. Returns `None` if this thread is already in such a call, for
    /// example because of a callback or a signal handler.
    ///
    /// A child that was forked while another thread was in here starts with the default value,
    /// because the inherited one can be in the middle of a change.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R>
    where
        T: Default,
    {
        let guard = self.lock.lock();
        if self.lock.is_reentered() {
            return None;
        }
        let value = self.value.get();
        if guard.inherited {
            // SAFETY: as below. The old value is not dropped, because dropping would read it.
            unsafe { value.write(T::default()) };
        }
        // SAFETY: this thread holds the lock, and only once, so there is no other reference.
        Some(work(unsafe { &mut *value }))
    }
}

/// Returns an identifier of this process and thread, which is never 0.
#[inline]
fn this_thread() -> u64 {
    static THREADS: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = {
            // From here on, the generation distinguishes a thread from its copies in forked
            // children.
            quipu_segment::watch_forks();
            THREADS.fetch_add(1, Ordering::Relaxed)
        };
    }
    // A thread that is exiting cannot read its number any more. All such threads share one number,
    // and count as one owner.
    let number = NUMBER.try_with(|number| *number).unwrap_or(u32::MAX);
    u64::from(quipu_segment::generation()) << 32 | u64::from(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let (locked, inside) = (LockedValue::new(0_u64), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let work = |value: &mut u64| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            *value += 1;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        };
                        locked.with(work).unwrap();
                    }
                });
            }
        });
        assert_eq!(locked.with(|value| *value), Some(8000));
    }

    #[test]
    fn a_thread_locks_again_and_gets_a_value_once() {
        let lock = Lock::default();
        let outer = lock.lock();
        drop(lock.lock());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            drop(outer);
            waiter.join().unwrap();
        });
        let locked = LockedValue::new(1);
        assert_eq!(locked.with(|_| locked.with(|value| *value)), Some(None));
        assert_eq!(locked.with(|value| *value), Some(1));
    }
}
