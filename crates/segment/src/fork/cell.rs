//! A value that threads share and that a fork leaves whole.
//!
//! A forked child has no other thread of its parent, but the memory as they left it: a lock of the
//! standard library that one of them held stays locked in the child forever, and what it guards
//! stays half changed. So the value is never changed, but replaced by a new one, in one store; and
//! the lock under which that happens is free in a child.

use std::fmt;

use super::mutex::ForkSafeMutex;
use crate::sync::Ordering;

/// A shared value that is replaced as a whole, under a lock that a child of a fork finds free.
pub struct ForkSafeCell<T> {
    mutex: ForkSafeMutex,
    /// From `Box::into_raw`.
    value: std::sync::atomic::AtomicPtr<T>,
}

// SAFETY: it owns a `T`, which moves with it.
unsafe impl<T: Send> Send for ForkSafeCell<T> {}
// SAFETY: threads get the `T` by reference, one at a time, and any of them may replace and drop it.
// A child of a fork may take the lock over from a thread of its parent, which does not exist there.
unsafe impl<T: Send> Sync for ForkSafeCell<T> {}

impl<T> ForkSafeCell<T> {
    /// Makes one with the given first value.
    pub fn new(value: T) -> Self {
        let value = std::sync::atomic::AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { mutex: ForkSafeMutex::default(), value }
    }

    /// Calls `look` with the value. `look` must not use this same `ForkSafeCell`.
    ///
    /// A signal handler may call it. If it interrupts a thread of its own here, it needs no lock,
    /// since it ends before that thread goes on.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _locked = self.mutex.lock();
        // SAFETY: the pointer is from `Box::into_raw`, and a thread that drops what it points to
        // has the lock and replaces the pointer before.
        look(unsafe { &*self.value.load(Ordering::Acquire) })
    }

    /// Replaces the value with the one that `next` makes from it, if it makes one, and returns what
    /// `next` returns. `next` must not use this same `ForkSafeCell`.
    ///
    /// In a signal handler that interrupts its own thread here, the old value is not freed, since
    /// that thread may be reading it; and that thread may then replace the new value with what it
    /// made from the old one.
    pub fn replace<R>(&self, next: impl FnOnce(&T) -> (Option<T>, R)) -> R {
        let locked = self.mutex.lock();
        // SAFETY: as above.
        let (value, result) = next(unsafe { &*self.value.load(Ordering::Acquire) });
        let Some(value) = value else { return result };
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: it was taken out, so no other thread finds it; readers had it only under the
        // lock. A child that is forked before the drop no longer has it.
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
        // SAFETY: it is from `Box::into_raw`, and nothing else refers to `self` any more.
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
