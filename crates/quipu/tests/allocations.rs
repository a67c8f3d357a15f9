//! In the steady state, when all series exist, counting and scraping do not allocate.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

use quipu::exposition::{Escaping, Format};
use quipu::{Counter, CounterFamily, Description, Histogram, HistogramFamily, Registry, Summary};

/// The system's allocator, which counts the allocations of each thread.
struct Counting;

thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

// SAFETY: this forwards all calls to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligation.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's obligation.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_steady_state_allocates_nothing() {
    let registry = Registry::new();
    let about = |name: &str| Description::new(name, "A help.");
    let counter: Counter = registry.register(about("counter")).unwrap();
    let family: CounterFamily<[&str; 2]> =
        registry.register(about("family").labels(["a", "b"]).values("a", ["x", "y"])).unwrap();
    let classic: Histogram = registry.register(about("classic")).unwrap();
    let native: HistogramFamily<[&str; 1]> =
        registry.register(about("native").labels(["k"]).native(3).exemplars()).unwrap();
    let summary: Summary = registry.register(about("summary")).unwrap();
    let users: Vec<String> = (0..1000).map(|i| format!("user {i}")).collect();
    let round = || {
        counter.inc();
        for (i, user) in users.iter().enumerate() {
            family.inc(&[["x", "y"][i % 2], user]);
        }
        for value in [0.01, 0.5, 3.0] {
            classic.observe(value);
            native.observe(&["a"], value);
            summary.observe(value);
        }
        for format in [Format::Text, Format::OpenMetrics] {
            let mut sink = std::io::sink();
            let scrape = registry.scrape().format(format, Escaping::Underscores);
            scrape.write_to(&mut sink).unwrap();
            sink.flush().unwrap();
        }
    };
    round();
    round();
    let before = COUNT.get();
    round();
    assert_eq!(COUNT.get() - before, 0);
}
