//! Leader election: one of the processes that share a segment leads, until it dies or gives the
//! lead back. A leader can also rest: any other process can then take the lead, and the resting one
//! learns whether this happened.
//!
//! Acquiring the lead never waits: a process that does not get it asks again later. Like the owner
//! of a lock, the leader is known by its token, whose byte lock the system releases when the
//! process dies.

use crate::cells::Cells;
use crate::error::Error;
use crate::fork;
use crate::segment::Segment;
use crate::sync::Ordering;

/// The lead of this process, until it is dropped.
#[derive(Debug)]
#[must_use = "a lead that is dropped goes to the next process that asks"]
pub struct LeaderLease {
    cells: Cells,
    at: usize,
    token: u64,
    generation: u32,
}

/// The mark of a resting leader, next to its token. No process uses such a token, so any process
/// can take the lead.
const RESTING: u64 = 1 << 63;

/// Returns the token of the process that leads, or rests, from the word of a lead.
pub(crate) fn leader(word: u64) -> u64 {
    word & !RESTING
}

/// A lead that another process can take, until this is dropped.
#[derive(Debug)]
pub(crate) struct RestingLease {
    cells: Cells,
    at: usize,
    token: u64,
    generation: u32,
}

impl RestingLease {
    /// Takes the lead again if no other process has led in the meantime.
    pub(crate) fn resume(self) -> Option<LeaderLease> {
        if self.generation != fork::generation() {
            return None;
        }
        let word = &self.cells[self.at];
        let (mark, token) = (self.token | RESTING, self.token);
        // Acquire: like when a lead is taken, though no other process has led.
        word.compare_exchange(mark, token, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let (cells, at, generation) = (self.cells.clone(), self.at, self.generation);
        Some(LeaderLease { cells, at, token, generation })
    }
}

impl Drop for RestingLease {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            let mark = self.token | RESTING;
            // If another process leads, or this one again, the word is not changed.
            let word = &self.cells[self.at];
            let _ = word.compare_exchange(mark, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Segment {
    /// Takes the lead whose owner is stored in cell `at` of `cells`. The cells must belong to the
    /// segment.
    /// The cell must be zero at first, and you must not write to it otherwise. Returns `None` if
    /// another living process leads, or if this one leads already.
    ///
    /// # Errors
    /// Returns the system's error if this process cannot be marked as alive.
    ///
    /// # Panics
    /// If there is no such cell.
    #[doc(hidden)]
    pub fn lead(&self, cells: &Cells, at: usize) -> Result<Option<LeaderLease>, Error> {
        let token = self.region.token()?;
        let word = &cells[at];
        let owner = word.load(Ordering::Relaxed);
        if owner == token || owner != 0 && self.region.is_alive(owner) {
            return Ok(None);
        }
        // Acquire: sees the stores of the last leader. No leader shares the token of an earlier
        // one.
        let took = word.compare_exchange(owner, token, Ordering::Acquire, Ordering::Relaxed);
        let (cells, generation) = (cells.clone(), fork::generation());
        Ok(took.is_ok().then_some(LeaderLease { cells, at, token, generation }))
    }
}

impl LeaderLease {
    /// Returns whether this process still leads. The child of a fork inherits the handle, but not
    /// the lead.
    pub fn is_held(&self) -> bool {
        self.generation == fork::generation()
            && self.cells[self.at].load(Ordering::Relaxed) == self.token
    }

    /// Lets other processes lead. Returns `None` if this one does not lead any more.
    pub(crate) fn rest(self) -> Option<RestingLease> {
        if self.generation != fork::generation() {
            return None;
        }
        let (token, mark) = (self.token, self.token | RESTING);
        // Release: the next leader sees the stores of this one.
        let word = &self.cells[self.at];
        word.compare_exchange(token, mark, Ordering::Release, Ordering::Relaxed).ok()?;
        let (cells, at, generation) = (self.cells.clone(), self.at, self.generation);
        Some(RestingLease { cells, at, token, generation })
    }
}

impl Drop for LeaderLease {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            // Release: the next leader sees the stores of this one.
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

    #[test]
    fn a_leader_that_rests_learns_whether_another_one_led() {
        let segment = Segment::private(1 << 16).unwrap();
        let draft = segment.reserve(Kind::new(*b"LEAD", 1), "", 1).unwrap();
        let cells = draft.publish().unwrap().cells().clone();
        let word = || cells[0].load(super::Ordering::Relaxed);
        let rest = segment.lead(&cells, 0).unwrap().unwrap().rest().unwrap();
        assert_ne!(word(), super::leader(word()));
        let lead = rest.resume().unwrap();
        assert!(lead.is_held() && segment.lead(&cells, 0).unwrap().is_none());
        let rest = lead.rest().unwrap();
        // The mark belongs to no living process.
        let other = segment.lead(&cells, 0).unwrap().unwrap();
        assert!(rest.resume().is_none() && other.is_held());
        drop(other.rest().unwrap());
        assert_eq!(word(), 0);
    }
}
