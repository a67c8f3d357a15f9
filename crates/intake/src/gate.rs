//! A lock between scrapes and replacements of groups, like a fair read-write lock that never
//! blocks. A scrape sees a group of series either before or after its replacement, but never a
//! mixture.
//!
//! A handler that cannot enter keeps its position in the queue, and tries again later. No scrape
//! enters before a waiting replacement, and no replacement enters before the scrapes that waited
//! for the last one, so neither side starves the other. A waiting handler delays others for at most
//! `PATIENCE`, because a connection whose client does not read is not served, and would never
//! enter.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The gate. Either any number of scrapes or one replacement can be inside.
#[derive(Debug, Default)]
pub struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of scrapes in progress.
    scrapes: usize,
    is_replacing: bool,
    /// The number of completed replacements.
    round: u64,
    /// The number of waiting replacements.
    replacements: usize,
    /// The time since which the first waiting replacement has delayed scrapes.
    closed: Option<Instant>,
    /// The number of scrapes that began to wait in this round.
    waiting: usize,
    /// The number of scrapes that still wait since the last round. They enter before the next
    /// replacement.
    first: usize,
    /// The time when the last round ended.
    ended: Option<Instant>,
}

/// A guard of a scrape. No replacement runs while it exists.
#[derive(Debug)]
pub struct ScrapeGuard<'g>(&'g Gate);

/// A guard of a replacement. No scrape and no other replacement runs while it exists.
#[derive(Debug)]
pub struct ReplacementGuard<'g>(&'g Gate);

/// The queue position of a waiting scrape. Dropping it leaves the queue.
#[derive(Debug)]
pub struct WaitingScrape<'g> {
    gate: &'g Gate,
    round: u64,
}

/// The queue position of a waiting replacement. Dropping it leaves the queue.
#[derive(Debug)]
pub struct WaitingReplacement<'g>(&'g Gate);

impl Gate {
    /// Begins a scrape, or joins the queue. `place` stores the position in the queue between calls.
    pub fn scrape<'g>(&'g self, place: &mut Option<WaitingScrape<'g>>) -> Option<ScrapeGuard<'g>> {
        let mut state = self.state();
        let round = place.as_ref().map(|place| place.round);
        let is_first = round.is_some_and(|round| round != state.round);
        if state.is_replacing || !is_first && state.is_closed() {
            if let Some(round) = round.filter(|_| is_first) {
                // Its time was over before its turn.
                state.leave(round);
            }
            if round.is_none() || is_first {
                state.waiting += 1;
                let round = state.round;
                match place {
                    Some(place) => place.round = round,
                    None => *place = Some(WaitingScrape { gate: self, round }),
                }
            }
            return None;
        }
        state.scrapes += 1;
        drop(state);
        *place = None;
        Some(ScrapeGuard(self))
    }

    /// Begins a replacement, or joins the queue. `place` stores the position in the queue between
    /// calls.
    pub fn replace<'g>(
        &'g self,
        place: &mut Option<WaitingReplacement<'g>>,
    ) -> Option<ReplacementGuard<'g>> {
        let mut state = self.state();
        let are_others_first = state.first > 0 && is_recent(state.ended);
        if state.is_replacing || state.scrapes > 0 || are_others_first {
            if place.is_none() {
                state.replacements += 1;
                *place = Some(WaitingReplacement(self));
            }
            state.closed.get_or_insert_with(Instant::now);
            return None;
        }
        state.is_replacing = true;
        (state.first, state.closed) = (0, None);
        drop(state);
        *place = None;
        Some(ReplacementGuard(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex is fine, because no change of the state can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether waiting replacements keep scrapes out.
    fn is_closed(&self) -> bool {
        self.replacements > 0 && is_recent(self.closed)
    }

    /// Removes a scrape from the queue that joined it in this round.
    fn leave(&mut self, round: u64) {
        let place = match self.round - round {
            0 => &mut self.waiting,
            1 => &mut self.first,
            _ => return,
        };
        *place = place.saturating_sub(1);
    }
}

fn is_recent(time: Option<Instant>) -> bool {
    time.is_some_and(|time| time.elapsed() < PATIENCE)
}

impl Drop for ScrapeGuard<'_> {
    fn drop(&mut self) {
        self.0.state().scrapes -= 1;
    }
}

impl Drop for ReplacementGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_replacing = false;
        state.round += 1;
        state.first = std::mem::take(&mut state.waiting);
        state.ended = Some(Instant::now());
    }
}

impl Drop for WaitingScrape<'_> {
    fn drop(&mut self) {
        self.gate.state().leave(self.round);
    }
}

impl Drop for WaitingReplacement<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.replacements -= 1;
        if state.replacements == 0 {
            state.closed = None;
        }
    }
}

/// The maximum time for which a waiting handler delays others.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapes_share_the_gate_and_replacements_do_not() {
        let gate = Gate::default();
        let scrape = || gate.scrape(&mut None);
        let replace = || gate.replace(&mut None);
        let (first, second) = (scrape().unwrap(), scrape().unwrap());
        assert!(replace().is_none());
        drop(first);
        assert!(replace().is_none());
        drop(second);
        let alone = replace().unwrap();
        assert!(scrape().is_none() && replace().is_none());
        drop(alone);
        assert!(scrape().is_some());
    }

    #[test]
    fn neither_side_starves_the_other() {
        let gate = Gate::default();
        let before = gate.scrape(&mut None).unwrap();
        let (mut replacement, mut other) = (None, None);
        assert!(gate.replace(&mut replacement).is_none());
        // Overlapping scrapes would otherwise exclude the replacement forever.
        let (mut scrape, mut gone) = (None, None);
        assert!(gate.scrape(&mut scrape).is_none() && gate.scrape(&mut gone).is_none());
        drop(before);
        assert!(gate.scrape(&mut scrape).is_none());
        let replacing = gate.replace(&mut replacement).unwrap();
        assert!(gate.replace(&mut other).is_none() && gate.scrape(&mut scrape).is_none());
        drop(replacing);
        // The waiting scrapes are first, then the other replacement.
        assert!(gate.replace(&mut other).is_none() && gate.scrape(&mut None).is_none());
        drop(gate.scrape(&mut scrape).unwrap());
        assert!(gate.replace(&mut other).is_none());
        drop(gone);
        drop(gate.replace(&mut other).unwrap());
        assert!(gate.scrape(&mut None).is_some());
        let state = gate.state();
        assert_eq!((state.scrapes, state.replacements, state.waiting, state.first), (0, 0, 0, 0));
    }
}
