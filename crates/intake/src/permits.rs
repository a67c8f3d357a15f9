//! Permits for requests that need much memory, because their bodies are large or compressed.
//!
//! The decompressed body and the parsed data can be many times as large as the received body. All
//! threads together therefore handle only `MOST` such requests at a time. The other requests
//! wait, with their bodies as received.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The permits that all inputs share, like a semaphore that never blocks.
#[derive(Debug, Default)]
pub struct MemoryPermits {
    held: AtomicUsize,
}

/// The number of requests that can hold a permit at the same time.
const MOST: usize = 2;

/// The maximum size of a body that needs no permit, in bytes.
pub const SMALL: usize = 64 << 10;

/// The permit of one request. Dropping it returns the permit.
#[derive(Debug)]
pub struct MemoryPermit {
    permits: &'static MemoryPermits,
    is_needed: bool,
    is_held: bool,
}

impl MemoryPermit {
    /// Creates the permit of a request, without acquiring it.
    pub fn new(permits: &'static MemoryPermits, is_needed: bool) -> Self {
        Self { permits, is_needed, is_held: false }
    }

    /// Acquires the permit, if the request needs one. Returns false if the request must wait.
    pub fn take(&mut self) -> bool {
        if self.is_needed && !self.is_held {
            let next = |taken| (taken < MOST).then_some(taken + 1);
            // Relaxed: no other data depends on this number.
            let taken = self.permits.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            self.is_held = taken.is_ok();
        }
        !self.is_waiting()
    }

    /// Returns whether the request must wait for the permit.
    pub fn is_waiting(&self) -> bool {
        self.is_needed && !self.is_held
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        if self.is_held {
            self.permits.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_a_permit() {
        let permits: &MemoryPermits = Box::leak(Box::default());
        let mut large: Vec<_> = (0..=MOST).map(|_| MemoryPermit::new(permits, true)).collect();
        for _ in 0..2 {
            let has_permit: Vec<_> = large.iter_mut().map(MemoryPermit::take).collect();
            assert_eq!(has_permit, [true, true, false]);
        }
        assert!(MemoryPermit::new(permits, false).take());
        drop(large.remove(0));
        assert!(large.iter_mut().all(MemoryPermit::take));
        drop(large);
        assert_eq!(permits.held.load(Ordering::Relaxed), 0);
    }
}
