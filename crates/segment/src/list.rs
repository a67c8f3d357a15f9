//! The list of records: how a record becomes visible.
//!
//! Records are pushed at the front, by one compare-and-swap of the root. Records of freed families
//! are removed by a process that has the segment to itself (`series/freed.rs`). A thread that dies
//! before the swap leaves a record that cannot be found. No thread waits for another.

use crate::sync::{AtomicU64, Ordering};

/// Puts the record at `offset`, whose link is `next`, before the record that `root` names. This
/// calls `before_publication` after the record and its link are written, and before the record can
/// be found. Returns the record that the link names.
pub(crate) fn push<E>(
    root: &AtomicU64,
    next: &AtomicU64,
    offset: u64,
    mut before_publication: impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    let mut head = root.load(Ordering::Relaxed);
    loop {
        next.store(head, Ordering::Relaxed);
        before_publication()?;
        // Release: a thread that reads the root (Acquire) sees the whole record and its link; and
        // through the link the records before it, because every push of the root continues the
        // release.
        match root.compare_exchange_weak(head, offset, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Ok(head),
            Err(found) => head = found,
        }
    }
}

/// Like [`push`], for a record whose link is `head` already. Returns false if another record was
/// pushed in the meantime.
pub(crate) fn push_before(root: &AtomicU64, head: u64, offset: u64) -> bool {
    // Release: as above.
    root.compare_exchange(head, offset, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// A model for loom: a root and records of two cells, a value and a link.
#[cfg(loom)]
pub mod model {
    use std::convert::Infallible;

    use super::*;
    use crate::Cells;

    /// The root in cell 0; the value of record `n` is in cell `2n`, and its link in `2n + 1`.
    pub struct List(Cells);

    impl List {
        /// Returns a list with room for `records` records.
        pub fn new(records: usize) -> Self {
            Self(Cells::private(2 * records + 2))
        }

        /// Writes the value of record `n`, then publishes it.
        pub fn publish(&self, n: u64, value: u64) {
            let at = 2 * n as usize;
            self.0[at].store(value, Ordering::Relaxed);
            let Ok(_) = push(&self.0[0], &self.0[at + 1], n, || Ok::<_, Infallible>(()));
        }

        /// Returns the values of all records that can be found, newest first.
        pub fn values(&self) -> Vec<u64> {
            let mut values = Vec::new();
            let mut n = self.0[0].load(Ordering::Acquire);
            while n != 0 {
                let at = 2 * n as usize;
                values.push(self.0[at].load(Ordering::Relaxed));
                n = self.0[at + 1].load(Ordering::Acquire);
            }
            values
        }
    }
}
