//! A value that threads share and that stays whole across a fork.
//!
//! A forked child gets its parent's memory, but only the forking thread. If another thread held a
//! lock, such as a mutex of the standard library, that lock stays locked in the child forever, and
//! the guarded value stays half changed. This cell avoids both: a value is never changed, but
//! replaced by a new one with a single store, and the lock around the replacement is free in a
//! child.

use std::fmt;

use super::mutex::ForkSafeMutex;
use crate::sync::Ordering;

/// A shared value that is replaced as a whole. Its lock is free in the child of a fork.
pub struct ForkSafeCell<T> {
    mutex: ForkSafeMutex,
    /// The value, from `Box::into_raw`.
    value: std::sync::atomic::AtomicPtr<T>,
}

// SAFETY: the cell owns a `T`, which moves along.
unsafe impl<T: Send> Send for ForkSafeCell<T> {}
// SAFETY: threads get the `T` by reference, one at a time, and each of them can replace and drop
// it. A child of a fork can take the lock over from a thread of its parent, because that thread
// does not exist in the child.
unsafe impl<T: Send> Sync for ForkSafeCell<T> {}

impl<T> ForkSafeCell<T> {
    /// Creates a cell with this first value.
    pub fn new(value: T) -> Self {
        let value = std::sync::atomic::AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { mutex: ForkSafeMutex::default(), value }
    }

    /// Calls `look` with the value. `look` must not use the same `ForkSafeCell`.
    ///
    /// You can call this in a signal handler. If the handler interrupts this code on its thread, it
    /// needs no lock, because it ends before the thread continues.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _locked = self.mutex.lock();
        // SAFETY: the pointer is from `Box::into_raw`. A thread drops a value only while it holds
        // the lock, and after it replaced the pointer.
        look(unsafe { &*self.value.load(Ordering::Acquire) })
    }

    /// Calls `next` with the value, replaces the value if `next` returns a new one, and returns the
    /// result of `next`. `next` must not use the same `ForkSafeCell`.
    ///
    /// If a signal handler interrupts this code on its thread, the old value is leaked, because the
    /// thread may be reading it. The thread can then replace the handler's value with one that it
    /// made from the old value.
    pub fn replace<R>(&self, next: impl FnOnce(&T) -> (Option<T>, R)) -> R {
        let locked = self.mutex.lock();
        // SAFETY: as above.
        let (value, result) = next(unsafe { &*self.value.load(Ordering::Acquire) });
        let Some(value) = value else { return result };
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: no other thread can find the pointer, because it was swapped out, and readers use
        // it only under the lock. A child that is forked before the drop does not find it either.
        let old = unsafe { Box::from_raw(old) };
        if locked.is_none() {
            std::mem::forget(old);
            return result;
        }
        drop(locked);
        drop(old);
        result
    }
}

impl<T: Default> Default for ForkSafeCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for ForkSafeCell<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer is from `Box::into_raw`, and `self` is not shared any more.
        drop(unsafe { Box::from_raw(*self.value.get_mut()) });
    }
}

impl<T> fmt::Debug for ForkSafeCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkSafeCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_replace_one_after_the_other() {
        let value = ForkSafeCell::new(vec![0_u32]);
        let add = || {
            for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                value.replace(|old| (Some(vec![old[0] + 1; 3]), ()));
                value.read(|value| assert!(value[0] == value[2]));
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| {
                scope.spawn(add);
            });
        });
        let count = if cfg!(miri) { 60 } else { 6000 };
        assert_eq!(value.replace(|old| (None, old[0])), count);
    }
}
