//! [`Exact`], a window that keeps the time of every event to the nanosecond.

use std::io::{Read, Write};
use std::time::Duration;

#[allow(
    clippy::disallowed_types,
    reason = "a child of a fork makes windows of its own, as the page says"
)]
use parking_lot::{Mutex, MutexGuard};
use quipu_segment::clock::{Clock, Precise};

use crate::error::Error;
use crate::log::Log;
use crate::save::{Loaded, Window};
use crate::shape::nanoseconds;

/// A sliding window that knows the time of every event to the nanosecond.
///
/// # Error bound
/// None: an event counts if and only if it is younger than the window, by the clock. If a thread
/// reads the clock and another one with a later time adds first, its event gets that later time.
///
/// # Range
/// A window holds up to 2^64 - 1 events; further events are not counted. Saving writes 8 bytes per
/// event.
///
/// # Cost
/// Adding and counting take a lock that is held for some nanoseconds; saving does not hold it while
/// it writes. An event takes about 2.2 bytes if events come at random, and up to 20 if several
/// share a nanosecond; [`Exact::limit`] bounds the memory.
///
/// A forked child must make its own counter: it could wait forever for the lock of its parent's.
#[derive(Debug)]
pub struct Exact<C = Precise> {
    window: u64,
    limit: usize,
    clock: C,
    #[allow(
        clippy::disallowed_types,
        reason = "a child of a fork makes windows of its own, as the page says"
    )]
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Log,
    dropped: u64,
}

impl State {
    /// Drops the oldest events until no more than `limit` bytes are taken.
    fn trim(&mut self, limit: usize) {
        while self.log.bytes() > limit && self.log.has_sealed() {
            self.dropped += self.log.drop_block();
        }
    }
}

impl Exact {
    /// Makes a counter on the system's precise clock.
    ///
    /// # Errors
    /// A window of zero or over 292 years.
    pub fn new(window: Duration) -> Result<Self, Error> {
        Self::on(Precise::new(), window)
    }
}

impl<C: Clock> Exact<C> {
    /// Makes a counter on the given clock.
    ///
    /// # Errors
    /// As [`Exact::new`].
    pub fn on(clock: C, window: Duration) -> Result<Self, Error> {
        let window = nanoseconds("window", window)?;
        let state = State::default().into();
        Ok(Self { window, limit: usize::MAX, clock, state })
    }

    /// Limits the memory: beyond `bytes`, the oldest events are dropped early, and counted as
    /// [`dropped`](Exact::dropped). About 20 KiB are always kept.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// The number of events that were dropped early because of the limit on memory.
    pub fn dropped(&self) -> u64 {
        self.state().dropped
    }

    /// The memory that the events take, in bytes.
    pub fn bytes(&self) -> usize {
        self.state().log.bytes()
    }

    /// Counts `n` events at time `now` of the counter's clock. Does not read the clock.
    #[inline]
    pub fn add_at(&self, now: u64, n: u64) {
        self.push(&mut self.state(), now, n);
    }

    /// The events of the window that ends at time `now` of the counter's clock.
    #[inline]
    pub fn count_at(&self, now: u64) -> u64 {
        self.expire(&mut self.state(), now)
    }

    /// Adds and counts at time `now`, taking the lock once.
    #[inline]
    pub fn add_and_count_at(&self, now: u64, n: u64) -> u64 {
        let state = &mut self.state();
        self.push(state, now, n);
        self.expire(state, now)
    }

    /// The events of a shorter window that ends now. Takes some microseconds, for a window of any
    /// length up to the counter's own.
    ///
    /// # Errors
    /// A window that is zero, or longer than the counter's.
    pub fn count_over(&self, window: Duration) -> Result<u64, Error> {
        let nanos = nanoseconds("window", window)?;
        if nanos > self.window {
            return Err(Error::OverSpan { window, span: self.window() });
        }
        let now = self.clock.now();
        let state = &mut self.state();
        self.expire(state, now);
        Ok(match border(state, now, nanos) {
            Some(border) => state.log.count_after(border),
            None => state.log.events(),
        })
    }

    #[inline]
    fn push(&self, state: &mut State, now: u64, n: u64) {
        if n > 0 && state.log.push(now, n) {
            self.expire(state, now);
            state.trim(self.limit);
        }
    }

    #[inline]
    fn expire(&self, state: &mut State, now: u64) -> u64 {
        if let Some(border) = border(state, now, self.window) {
            state.log.drop_until(border);
        }
        state.log.events()
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The newest time that is no longer in a window that ends at `now`.
#[inline]
fn border(state: &State, now: u64, window: u64) -> Option<u64> {
    // A clock that went back must not make events younger.
    now.max(state.log.last()).checked_sub(window)
}

impl<C: Clock> Window for Exact<C> {
    fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    #[inline]
    fn add(&self, n: u64) {
        self.add_at(self.clock.now(), n);
    }

    #[inline]
    fn count(&self) -> u64 {
        self.count_at(self.clock.now())
    }

    #[inline]
    fn add_and_count(&self, n: u64) -> u64 {
        self.add_and_count_at(self.clock.now(), n)
    }

    fn reset(&self) {
        let state = &mut self.state();
        let last = state.log.last();
        state.log.drop_until(last);
    }

    /// Writes the binary format of `derlaft/ratecounter/nanocounter`: the Unix time of each event
    /// in nanoseconds, oldest first, as little-endian 64-bit integers. Other threads may add
    /// meanwhile.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (now, unix) = (self.clock.now(), self.clock.unix());
        let snapshot = {
            let state = &mut self.state();
            self.expire(state, now);
            state.log.snapshot()
        };
        let mut buffer = vec![0; BUFFER];
        let mut filled = 0;
        snapshot.try_for_each(|time, events| {
            let bytes = time.wrapping_sub(now).wrapping_add(unix).to_le_bytes();
            for _ in 0..events {
                buffer[filled..filled + 8].copy_from_slice(&bytes);
                filled += 8;
                if filled == BUFFER {
                    out.write_all(&buffer)?;
                    filled = 0;
                }
            }
            Ok::<(), Error>(())
        })?;
        Ok(out.write_all(&buffer[..filled])?)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<Loaded, Error> {
        let (now, unix) = (self.clock.now(), self.clock.unix());
        let mut loaded = Loaded::default();
        let mut times = Times { limit: self.limit, ..Times::default() };
        let mut buffer = vec![0; BUFFER];
        let mut kept = 0;
        loop {
            let read = match input.read(&mut buffer[kept..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let filled = kept + read;
            let whole = filled / 8 * 8;
            for bytes in buffer[..whole].chunks_exact(8) {
                let time = i64::from_le_bytes(bytes.try_into().expect("a chunk has 8 bytes"));
                // A time before 1970 is older than any window.
                let time = u64::try_from(time).unwrap_or(0);
                if time > unix {
                    loaded.future += 1;
                } else if unix - time >= self.window {
                    loaded.expired += 1;
                } else {
                    times.push(now.saturating_sub(unix - time));
                    loaded.counted += 1;
                }
            }
            buffer.copy_within(whole..filled, 0);
            kept = filled - whole;
        }
        loaded.ragged = kept as u64;
        let state = self.state.get_mut();
        *state = times.into_state();
        loaded.counted -= state.dropped;
        Ok(loaded)
    }
}

/// Times as they are loaded: a log as long as they are in order, then a list to be sorted.
#[derive(Default)]
struct Times {
    state: State,
    list: Vec<u64>,
    limit: usize,
}

impl Times {
    #[inline]
    fn push(&mut self, time: u64) {
        if self.list.is_empty() && time >= self.state.log.last() {
            if self.state.log.push(time, 1) {
                self.state.trim(self.limit);
            }
        } else {
            self.push_out_of_order(time);
        }
    }

    #[cold]
    fn push_out_of_order(&mut self, time: u64) {
        if self.list.is_empty() {
            let Ok(()) = self.state.log.snapshot().try_for_each(|time, events| {
                self.list.extend((0..events).map(|_| time));
                Ok::<(), std::convert::Infallible>(())
            });
        }
        self.list.push(time);
    }

    fn into_state(mut self) -> State {
        if self.list.is_empty() {
            return self.state;
        }
        self.list.sort_unstable();
        let mut state = State { log: Log::new(), dropped: self.state.dropped };
        for time in self.list {
            if state.log.push(time, 1) {
                state.trim(self.limit);
            }
        }
        state
    }
}

const BUFFER: usize = 64 << 10;
