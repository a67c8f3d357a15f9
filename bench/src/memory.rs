//! Counts the bytes that a subject holds on the heap.
//!
//! A benchmark binary that measures memory installs the counting allocator:
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
//! It costs an atomic addition for each allocation: time allocating code in another binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

/// The system's allocator, which counts the bytes that are in use as they were asked for.
pub struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

/// How many bytes the heap grows by what `build` returns. Nothing else may allocate meanwhile.
pub fn heap_bytes<T>(build: impl FnOnce() -> T) -> i64 {
    let before = LIVE.load(Ordering::Relaxed);
    let kept = build();
    let after = LIVE.load(Ordering::Relaxed);
    drop(kept);
    after - before
}

// SAFETY: every call goes to the system's allocator with its arguments as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `System::alloc`.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `System::alloc_zeroed`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `System::realloc`.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's obligations are those of `System::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
