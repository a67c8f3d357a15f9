//! Keeps scrapes and replacements apart: a scrape sees a group of series before it is replaced, or
//! after that, but never a part of both.
//!
//! Nothing blocks here. A handler that cannot enter returns to its thread and tries again, and
//! keeps its place meanwhile: no scrape enters before a replacement that waits, and no replacement
//! before the scrapes that waited for the last one. So neither side starves the other. A place
//! holds others up for `PATIENCE` at most: a connection that is not served, since its client does
//! not read, does not use its place.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The gate, which is open for scrapes or for one replacement.
#[derive(Debug, Default)]
pub struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of scrapes under way.
    scrapes: usize,
    is_replacing: bool,
    /// The number of replacements that have ended.
    round: u64,
    /// The replacements that wait, and since when the first of them has held up scrapes.
    replacements: usize,
    closed: Option<Instant>,
    /// The scrapes that began to wait in this round.
    waiting: usize,
    /// The scrapes that have waited since the last round, and when it ended.
    first: usize,
    ended: Option<Instant>,
}

/// Held during a scrape: no replacement runs.
#[derive(Debug)]
pub struct ScrapeGuard<'g>(&'g Gate);

/// Held during a replacement: no scrape and no other replacement runs.
#[derive(Debug)]
pub struct ReplacementGuard<'g>(&'g Gate);

/// The place of a waiting scrape in the queue.
#[derive(Debug)]
pub struct WaitingScrape<'g> {
    gate: &'g Gate,
    round: u64,
}

/// The place of a waiting replacement in the queue.
#[derive(Debug)]
pub struct WaitingReplacement<'g>(&'g Gate);

impl Gate {
    /// Begins a scrape, or takes or keeps a place in the queue.
    pub fn scrape<'g>(&'g self, place: &mut Option<WaitingScrape<'g>>) -> Option<ScrapeGuard<'g>> {
        let mut state = self.state();
        let round = place.as_ref().map(|place| place.round);
        let is_first = round.is_some_and(|round| round != state.round);
        if state.is_replacing || !is_first && state.is_closed() {
            if let Some(round) = round.filter(|_| is_first) {
                // Its turn was over before it came.
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

    /// Begins to replace a group, or takes or keeps a place in the queue.
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
        // No change of the state can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether replacements that wait hold up scrapes.
    fn is_closed(&self) -> bool {
        self.replacements > 0 && is_recent(self.closed)
    }

    /// Removes a scrape that began to wait in this round from the queue.
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

/// How long a place in the queue holds up others.
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
        // Scrapes that overlap would keep the replacement out for ever.
        let (mut scrape, mut gone) = (None, None);
        assert!(gate.scrape(&mut scrape).is_none() && gate.scrape(&mut gone).is_none());
        drop(before);
        assert!(gate.scrape(&mut scrape).is_none());
        let replacing = gate.replace(&mut replacement).unwrap();
        assert!(gate.replace(&mut other).is_none() && gate.scrape(&mut scrape).is_none());
        drop(replacing);
        // The scrapes that waited are first, then the other replacement.
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
