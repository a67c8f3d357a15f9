//! Leader election: one of the processes that share a segment leads, until it dies or gives the
//! lead back.
//!
//! Acquiring the lead never waits: a process that does not get it asks again later. As with the
//! locks, the leader is known by its token, whose byte lock the system releases when the process
//! dies.

use crate::cells::Cells;
use crate::error::Error;
use crate::fork;
use crate::segment::Segment;
use crate::sync::Ordering;

/// Held by the process that leads, until it is dropped.
#[derive(Debug)]
#[must_use = "a lead that is dropped goes to the next process that asks"]
pub struct LeaderLease {
    cells: Cells,
    at: usize,
    token: u64,
    generation: u32,
}

impl Segment {
    /// Takes the lead that cell `at` of `cells` stands for. The cells are the segment's; the cell
    /// must be zero at first, and written by nothing else. Returns `None` where another process
    /// leads and lives, or this one leads already.
    ///
    /// # Errors
    /// The system's, where this process cannot be marked as alive.
    ///
    /// # Panics
    /// If there is no such cell.
    pub fn lead(&self, cells: &Cells, at: usize) -> Result<Option<LeaderLease>, Error> {
        let token = self.region.token()?;
        let word = &cells[at];
        let owner = word.load(Ordering::Relaxed);
        if owner == token || owner != 0 && self.region.is_alive(owner) {
            return Ok(None);
        }
        // Acquire: sees what the last leader wrote. No leader has the token of an earlier one.
        let took = word.compare_exchange(owner, token, Ordering::Acquire, Ordering::Relaxed);
        let (cells, generation) = (cells.clone(), fork::generation());
        Ok(took.is_ok().then_some(LeaderLease { cells, at, token, generation }))
    }
}

impl LeaderLease {
    /// Whether this process still leads: a child of a fork has the handle, but not the lead.
    pub fn is_held(&self) -> bool {
        self.generation == fork::generation()
            && self.cells[self.at].load(Ordering::Relaxed) == self.token
    }
}

impl Drop for LeaderLease {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            // Release: the next leader sees what this one wrote.
            let _ = self.cells[self.at].compare_exchange(
                self.token,
                0,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::{Kind, Segment};

    #[test]
    fn one_leads_until_it_gives_the_lead_back() {
        let segment = Segment::private(1 << 16).unwrap();
        let draft = segment.reserve(Kind::new(*b"LEAD", 1), "", 1).unwrap();
        let cells = draft.publish().unwrap().cells().clone();
        let lead = segment.lead(&cells, 0).unwrap().unwrap();
        assert!(lead.is_held());
        assert!(segment.lead(&cells, 0).unwrap().is_none());
        drop(lead);
        assert!(segment.lead(&cells, 0).unwrap().is_some());
    }
}
