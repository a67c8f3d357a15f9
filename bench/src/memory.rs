//! Counts the bytes that a subject holds on the heap, and the resident pages of the process.
//!
//! If you write a benchmark binary that measures memory, install the counting allocator:
//!
//! ```
//! use quipu_bench::memory::{Counting, heap_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(heap_bytes(|| vec![0u64; 100]), 800);
//! ```
//!
//! This costs an atomic addition per allocation. If you time code that allocates, use another
//! binary, or install [`OnDemand`], which counts only while you switch it on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The system allocator, counting the requested bytes that are in use.
pub struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

/// Returns the bytes of heap that the result of `build` takes. No other thread may allocate at the
/// same time.
pub fn heap_bytes<T>(build: impl FnOnce() -> T) -> i64 {
    let before = LIVE.load(Ordering::Relaxed);
    let kept = build();
    let after = LIVE.load(Ordering::Relaxed);
    drop(kept);
    after - before
}

// SAFETY: every call goes to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the obligations of `System::alloc`.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the obligations of `System::alloc_zeroed`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller meets the obligations of `System::realloc`.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller meets the obligations of `System::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The system allocator, counting only while it is switched on. Otherwise it costs a branch.
pub struct OnDemand;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

impl OnDemand {
    /// Switches counting on or off.
    pub fn count(on: bool) {
        COUNTING.store(on, Ordering::Relaxed);
    }

    /// Returns the bytes that were allocated minus the bytes that were freed while it counted.
    pub fn live_bytes() -> i64 {
        LIVE.load(Ordering::Relaxed)
    }

    /// Returns the number of requests for memory while it counted, including requests to grow a
    /// block.
    pub fn allocations() -> u64 {
        ALLOCATIONS.load(Ordering::Relaxed)
    }

    fn note(asked: u64, bytes: i64) {
        ALLOCATIONS.fetch_add(asked, Ordering::Relaxed);
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for OnDemand {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            OnDemand::note(1, layout.size() as i64);
        }
        // SAFETY: the caller meets the obligations of `System::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            OnDemand::note(1, layout.size() as i64);
        }
        // SAFETY: the caller meets the obligations of `System::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            OnDemand::note(1, size as i64 - layout.size() as i64);
        }
        // SAFETY: the caller meets the obligations of `System::realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if COUNTING.load(Ordering::Relaxed) {
            OnDemand::note(0, -(layout.size() as i64));
        }
        // SAFETY: the caller meets the obligations of `System::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The resident memory of the process in bytes, on the heap and elsewhere, in whole pages; 0 if the
/// system does not report it.
pub fn resident_bytes() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<i64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_use_are_resident() {
        // Other tests can free memory at the same time; this allocates more than they ever hold.
        let before = resident_bytes();
        let block = vec![1u8; 256 << 20];
        let grown = resident_bytes() - before;
        assert!(before > 0 && grown >= 128 << 20, "{before} {grown}");
        drop(block);
    }
}
