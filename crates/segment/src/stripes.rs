//! Stripes: one counter on several cache lines, so that concurrent additions do not contend.
//!
//! Each CPU owns a line, where a thread adds in a restartable sequence (`rseq(2)`, Linux 4.18;
//! Desnoyers, Turner, Hunter): the kernel restarts the two instructions if the thread loses its CPU
//! between them. This way, the addition needs no lock prefix and never waits, across all processes
//! that share the cells. The lines after these are for threads without restartable sequences, which
//! add atomically.
//!
//! A reader adds up all lines. The sum includes all additions from before the read began, and none
//! from after it ended.

use crate::cells::Cells;
use crate::cpus;
use crate::rseq::Sequence;
use crate::sync::Ordering;

/// A counter on `cpus` lines, one for each CPU, and `shared` lines for the other threads.
#[derive(Debug, Clone)]
pub struct Stripes {
    lines: Cells,
    cpus: u32,
    shared: usize,
    /// The sequence that adds to a CPU's line, if this machine supports it and there are such
    /// lines.
    sequence: Option<Sequence>,
}

/// The cells of a cache line.
const LINE: usize = 8;
/// The bytes of a line, as a power of two.
const SHIFT: u32 = 6;
const MAX_LINES: usize = 1 << 20;

impl Stripes {
    /// Returns the number of cells of a counter with `cpus` CPU lines and `shared` shared lines.
    pub const fn cells(cpus: usize, shared: usize) -> usize {
        (cpus + shared) * LINE
    }

    /// Creates a counter of cells that begin on a cache line.
    ///
    /// # Panics
    /// If there are not exactly [`Stripes::cells`] of them, no shared line, or more than 2^20
    /// lines.
    pub fn new(lines: Cells, cpus: usize, shared: usize) -> Self {
        // More lines would not fit into any address space.
        assert!(cpus <= MAX_LINES && (1..=MAX_LINES).contains(&shared), "{cpus} + {shared} lines");
        assert_eq!(lines.len(), Self::cells(cpus, shared));
        let sequence = if cpus > 0 { Sequence::find() } else { None };
        Self { lines, cpus: cpus as u32, shared, sequence }
    }

    /// Returns the numbers of CPU lines and of shared lines that you should use on this machine.
    ///
    /// There are at most 1,024 CPU lines, because every line costs each reader a load.
    pub fn advised() -> (usize, usize) {
        cpus::lane_counts(Sequence::find().is_some())
    }

    /// Adds `n`, modulo 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        if let Some(sequence) = self.sequence {
            // SAFETY: `new` checked that these CPUs own the first lines.
            if unsafe { sequence.add::<SHIFT>(self.lines.as_ptr(), self.cpus, n) } {
                return;
            }
        }
        self.add_shared(n);
    }

    /// Adds `n`, and returns the sum including `n`. Two concurrent calls can both see both
    /// additions, unless all additions go to one line: then each call returns a different sum.
    #[inline]
    pub fn add_and_sum(&self, n: u64) -> u64 {
        if self.lines.len() == LINE {
            // Release: like in `add_shared`. Acquire: like in `sum`.
            return self.lines[0].fetch_add(n, Ordering::AcqRel).wrapping_add(n);
        }
        self.add(n);
        self.sum()
    }

    /// Returns the sum of all lines, modulo 2^64.
    #[inline]
    pub fn sum(&self) -> u64 {
        // Acquire: a reader that sees an addition sees the stores of its thread before it, and
        // later loads in program order are not moved before these.
        self.lines
            .iter()
            .step_by(LINE)
            .fold(0, |sum: u64, cell| sum.wrapping_add(cell.load(Ordering::Acquire)))
    }

    /// Sets the sum to `n`. No other thread may add at the same time.
    pub fn set(&self, n: u64) {
        for (i, cell) in self.lines.iter().step_by(LINE).enumerate() {
            cell.store(if i == 0 { n } else { 0 }, Ordering::Release);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_shared(&self, n: u64) {
        let line =
            self.cpus as usize + if self.shared == 1 { 0 } else { thread_number() % self.shared };
        // Release: a reader that sees the addition sees this thread's stores before it.
        self.lines[line * LINE].fetch_add(n, Ordering::Release);
    }
}

/// Returns a small number for this thread; threads are numbered in the order of their first
/// additions.
pub(crate) fn thread_number() -> usize {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    {
        use std::cell::Cell;
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
        // A thread that is ending has no locals any more, and can use any line.
        NUMBER
            .try_with(|number| {
                if number.get() == usize::MAX {
                    number.set(NEXT.fetch_add(1, Ordering::Relaxed));
                }
                number.get()
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Segment};

    fn stripes(cpus: usize, shared: usize) -> Stripes {
        let count = Stripes::cells(cpus, shared);
        let segment = Segment::private(1 << 16).unwrap();
        let draft = segment.reserve(Kind::new(*b"TEST", 1), "stripes", count).unwrap();
        Stripes::new(draft.cells().slice(0..count), cpus, shared)
    }

    #[test]
    fn additions_of_many_threads_all_count() {
        let (cpus, shared) = Stripes::advised();
        let each = if cfg!(miri) { 50 } else { 200_000 };
        for (cpus, shared) in [(cpus, shared), (0, 1), (0, 3), (1, 1)] {
            let stripes = stripes(cpus, shared);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for n in 0..each {
                            stripes.add(n);
                        }
                    });
                }
            });
            assert_eq!(stripes.sum(), 8 * each * (each - 1) / 2, "{cpus} + {shared} lines");
        }
    }

    #[test]
    fn one_line_gives_every_caller_a_sum_of_its_own() {
        let stripes = stripes(0, 1);
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..100).map(|_| stripes.add_and_sum(1)).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (1..=400).collect::<Vec<_>>());
    }

    #[test]
    fn sums_wrap() {
        let stripes = stripes(0, 2);
        stripes.set(u64::MAX);
        assert_eq!(stripes.add_and_sum(3), 2);
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
    #[test]
    fn each_cpu_has_a_line() {
        if Sequence::find().is_none() {
            return;
        }
        let cpus = cpus::count();
        let stripes = stripes(cpus, 1);
        stripes.add(5);
        let own: u64 = (0..cpus).map(|i| stripes.lines[i * LINE].load(Ordering::Relaxed)).sum();
        assert_eq!(own, 5);
    }
}
