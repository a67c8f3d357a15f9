//! A queue for the threads that parse a fetched response. Only one thread parses at a time. The
//! shortest response is first, and every few lines the parsing thread lets shorter responses go
//! first. A response that takes seconds to parse therefore delays only targets with even longer
//! responses.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The queue of all threads.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// The length of the shortest waiting response in bytes; `usize::MAX` if none waits.
    shortest: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a thread is parsing.
    is_taken: bool,
    /// The waiting responses, by length and then by order of arrival.
    waiting: BTreeSet<(usize, u64)>,
    /// The number of the next response to arrive.
    next: u64,
}

/// The right to parse. Dropping this value passes it to the next thread.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    /// The length of the response in bytes.
    bytes: usize,
    until: Instant,
    /// The number of lines until the next check of the time limit and of other responses.
    lines: Cell<u32>,
    /// Whether this thread is parsing. False if it let another one go first and then reached its
    /// time limit.
    has_turn: Cell<bool>,
    is_late: Cell<bool>,
}

/// The error of a scrape that exceeds its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Late;

/// The number of lines between two checks. Parsing them takes about 50 us.
const LINES: u32 = 64;

impl Default for Turns {
    fn default() -> Self {
        let shortest = AtomicUsize::new(usize::MAX);
        Self { state: Mutex::default(), changed: Condvar::new(), shortest }
    }
}

impl Turns {
    /// Waits for the turn of a response with this length.
    ///
    /// # Errors
    /// Returns [`Late`] if the turn does not begin before `until`.
    pub(super) fn take(&self, bytes: usize, until: Instant) -> Result<Turn<'_>, Late> {
        self.wait(self.state(), bytes, until)?;
        Ok(Turn {
            turns: self,
            bytes,
            until,
            lines: Cell::new(LINES),
            has_turn: Cell::new(true),
            is_late: Cell::new(false),
        })
    }

    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        bytes: usize,
        until: Instant,
    ) -> Result<(), Late> {
        let own = (bytes, state.next);
        state.next += 1;
        state.waiting.insert(own);
        self.note_shortest(&state);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_first = !state.is_taken && state.waiting.first() == Some(&own);
            if is_first || left.is_zero() {
                state.waiting.remove(&own);
                state.is_taken |= is_first;
                self.note_shortest(&state);
                // We wake the others: another response can be the first one now that this one has
                // given up.
                self.changed.notify_all();
                return if is_first { Ok(()) } else { Err(Late) };
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn note_shortest(&self, state: &State) {
        let shortest = state.waiting.first().map_or(usize::MAX, |first| first.0);
        // Relaxed: it is fine if the parsing thread notices the value a few lines later.
        self.shortest.store(shortest, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex is fine, because no change of the state can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Counts a line. Every few lines, lets shorter responses go first.
    ///
    /// # Errors
    /// Returns [`Late`] if the time limit has passed, and on every later call.
    #[inline]
    pub(super) fn line(&self) -> Result<(), Late> {
        match self.lines.get().checked_sub(1) {
            Some(left) => {
                self.lines.set(left);
                Ok(())
            }
            None => self.look(),
        }
    }

    /// Returns the result of the last check of the time limit.
    ///
    /// # Errors
    /// Returns [`Late`] if the time limit has passed.
    pub(super) fn check(&self) -> Result<(), Late> {
        if self.is_late.get() { Err(Late) } else { Ok(()) }
    }

    #[cold]
    fn look(&self) -> Result<(), Late> {
        self.is_late.set(self.is_late.get() || Instant::now() >= self.until);
        self.check()?;
        if self.turns.shortest.load(Ordering::Relaxed) < self.bytes {
            let mut state = self.turns.state();
            state.is_taken = false;
            self.has_turn.set(false);
            self.turns.changed.notify_all();
            let waited = self.turns.wait(state, self.bytes, self.until);
            self.has_turn.set(waited.is_ok());
            self.is_late.set(waited.is_err());
            waited?;
        }
        self.lines.set(LINES);
        Ok(())
    }
}

/// Returns a turn that never ends early, for tests with a single response.
#[cfg(test)]
pub(super) fn free() -> Turn<'static> {
    let until = Instant::now() + std::time::Duration::from_secs(600);
    Box::leak(Box::<Turns>::default()).take(0, until).unwrap()
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.has_turn.get() {
            self.turns.state().is_taken = false;
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Waits until this many responses are waiting.
    fn until_waiting(turns: &Turns, count: usize) {
        while turns.state().waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_long_text_gives_way_to_a_shorter_one() {
        let (turns, is_read) = (Turns::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let long = turns.take(1000, later()).unwrap();
            scope.spawn(|| {
                let _turn = turns.take(10, later()).unwrap();
                is_read.store(true, Ordering::SeqCst);
            });
            while !is_read.load(Ordering::SeqCst) {
                long.line().unwrap();
            }
            assert!(turns.state().is_taken);
        });
        assert!(!turns.state().is_taken);
    }

    #[test]
    fn the_shortest_text_is_read_first_and_no_other_is_held_up_for_longer_ones() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        let turn = turns.take(20, later()).unwrap();
        thread::scope(|scope| {
            for (number, bytes) in [30, 20, 25, 20].into_iter().enumerate() {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take(bytes, later()).unwrap();
                    order.lock().unwrap().push(number);
                });
                until_waiting(turns, number + 1);
            }
            (0..1000).for_each(|_| turn.line().unwrap());
            assert!(order.lock().unwrap().is_empty());
            drop(turn);
        });
        assert_eq!(order.into_inner().unwrap(), [1, 3, 2, 0]);
    }

    #[test]
    fn a_text_whose_time_is_over_is_late() {
        let turns = Turns::default();
        let turn = turns.take(10, Instant::now()).unwrap();
        assert_eq!(turns.take(5, Instant::now()).unwrap_err(), Late);
        assert!(turns.state().waiting.is_empty());
        let lines = (0..1000).take_while(|_| turn.line().is_ok()).count();
        assert_eq!(lines, LINES as usize);
        assert_eq!(turn.line(), Err(Late));
        drop(turn);
        // A thread that gave up its turn must not end the turn of the next thread.
        let gives_up_within = |limit: Duration| {
            thread::scope(|scope| {
                let long = turns.take(1000, Instant::now() + limit).unwrap();
                let short = scope.spawn(|| turns.take(10, later()).unwrap());
                until_waiting(&turns, 1);
                while long.line().is_ok() {}
                let gave_up = !long.has_turn.get();
                if gave_up {
                    let short = short.join().unwrap();
                    drop(long);
                    assert!(turns.state().is_taken);
                    drop(short);
                }
                gave_up
            })
        };
        // Try several limits, because a short one can pass on a busy machine before the long
        // response gives way.
        assert!((4..16).any(|power| gives_up_within(Duration::from_millis(1 << power))));
        assert!(!turns.state().is_taken);
    }
}
