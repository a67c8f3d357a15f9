//! Lets a scrape request a reading of all sources, and wait for it without occupying a thread.
//!
//! Each reading begins after its request, so its values are current. If a reading takes too long,
//! the scrape shows the last one, unless this is too old. The scrape itself decides this, because
//! the reading thread can hang.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

use super::merged::{MergedFamilies, OmittedSeries};
use super::own::Status;
use quipu_sources::offload::STALE;

/// The time that a scrape waits for a reading, before it shows the last one.
const PATIENCE: Duration = Duration::from_secs(3);

/// A handle to the readings of the agent. Clones share the same readings.
#[derive(Debug, Clone)]
pub struct AgentReadings(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) is_stopping: AtomicBool,
    /// The write end of a socket pair: a byte wakes the thread.
    wake: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
    /// The numbers of omitted series, shared by all readings.
    pub(super) omitted: Arc<OmittedSeries>,
    /// Makes the next reading panic, for tests.
    #[cfg(test)]
    pub(super) has_flaw: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of the last requested reading.
    wanted: u64,
    begun: u64,
    ended: u64,
    /// The time when the last successful reading started.
    read: Option<Instant>,
    /// The time when the current reading started.
    begins: Option<Instant>,
    merged: Arc<MergedFamilies>,
    status: Arc<Status>,
    /// The waiting tasks, by the number of their request.
    wakers: HashMap<u64, Waker>,
    /// The number of requests so far.
    requests: u64,
}

impl State {
    /// Returns the last reading, unless it is too old.
    fn last(&self, now: Instant) -> Reading {
        match self.read {
            Some(read) if now.saturating_duration_since(read) < STALE => {
                Reading::Families(Arc::clone(&self.merged))
            }
            _ => Reading::Stale,
        }
    }
}

/// The result of a reading.
#[derive(Debug, Clone)]
pub enum Reading {
    /// The families of all sources, from the requested reading or from the last one.
    Families(Arc<MergedFamilies>),
    /// There is no reading that is recent enough.
    Stale,
}

/// A request for a reading. Poll it until [`ReadingRequest::reading`] returns a result.
#[derive(Debug)]
pub struct ReadingRequest {
    readings: AgentReadings,
    /// The number of the awaited reading.
    number: u64,
    /// The number of this request.
    request: u64,
    since: Instant,
    /// The time limit. After it, the last reading is shown.
    patience: Option<Pin<Box<Sleep>>>,
}

impl AgentReadings {
    pub(super) fn new(wake: UnixStream) -> Self {
        Self(Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            wake,
            state: Mutex::default(),
            changed: Condvar::new(),
            omitted: Arc::default(),
            #[cfg(test)]
            has_flaw: AtomicBool::default(),
        }))
    }

    /// Requests a reading that begins after this call.
    pub fn ask(&self) -> ReadingRequest {
        let mut state = self.state();
        let number = state.begun + 1;
        let is_new = state.wanted < number;
        state.wanted = number;
        state.requests += 1;
        let request = state.requests;
        drop(state);
        if is_new {
            self.wake();
        }
        ReadingRequest {
            readings: self.clone(),
            number,
            request,
            since: Instant::now(),
            patience: None,
        }
    }

    /// Reads all sources and waits, for a thread that can block. Returns the last reading if this
    /// takes too long.
    pub fn fresh(&self) -> Reading {
        let request = self.ask();
        let is_waiting = |state: &mut State| state.ended < request.number;
        let waited = self.0.changed.wait_timeout_while(self.state(), PATIENCE, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.last(Instant::now())
    }

    /// Returns the state of all sources at the last reading, and whether this reading is too old to
    /// be shown.
    pub(super) fn status(&self) -> (Arc<Status>, bool) {
        let state = self.state();
        (Arc::clone(&state.status), matches!(state.last(Instant::now()), Reading::Stale))
    }

    /// Begins a reading, if any was requested. Returns false otherwise.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let is_wanted = state.begun < state.wanted;
        if is_wanted {
            state.begun += 1;
            state.begins = Some(Instant::now());
        }
        is_wanted
    }

    /// Ends a running reading that failed. The waiting scrapes then show the last reading.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.ended = state.begun;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Ends a reading, and publishes its result.
    pub(super) fn end(&self, merged: Arc<MergedFamilies>, status: Status) {
        let mut state = self.state();
        state.ended = state.begun;
        state.read = state.begins;
        let old = std::mem::replace(&mut state.merged, merged);
        state.status = Arc::new(status);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
        // We drop the old reading after unlocking, because it can contain many series.
        drop(old);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned mutex is fine, because no change of the state can panic half way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        // We ignore the error: if the buffer is full, the thread will wake up anyway.
        let _ = rustix::io::write(&self.0.wake, &[0]);
    }
}

impl ReadingRequest {
    /// Waits until the reading has ended or takes too long.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.readings.state();
        if state.ended >= self.number {
            return Poll::Ready(());
        }
        state.wakers.insert(self.request, cx.waker().clone());
        drop(state);
        let late = (self.since + PATIENCE).into();
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep_until(late)));
        patience.as_mut().poll(cx)
    }

    /// Returns the reading, or the last one after the time limit. Returns `None` while the caller
    /// must wait.
    pub fn reading(&self) -> Option<Reading> {
        let (state, now) = (self.readings.state(), Instant::now());
        let is_late = now.saturating_duration_since(self.since) >= PATIENCE;
        (state.ended >= self.number || is_late).then(|| state.last(now))
    }
}

impl Drop for ReadingRequest {
    fn drop(&mut self) {
        self.readings.state().wakers.remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Creates readings without a thread, because the test acts as the thread.
    fn readings() -> (AgentReadings, UnixStream) {
        let (wake, woken) = UnixStream::pair().unwrap();
        (AgentReadings::new(wake), woken)
    }

    #[tokio::test]
    async fn a_request_is_woken_when_its_reading_ends() {
        let (readings, _woken) = readings();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut first = readings.ask();
        assert!(first.poll(&mut context).is_pending() && first.reading().is_none());
        assert!(readings.begin() && !readings.begin());
        // This request follows the start of the reading, so it needs another reading.
        let mut second = readings.ask();
        assert!(second.poll(&mut context).is_pending());
        drop(readings.ask());
        readings.end(Arc::default(), Status::default());
        assert_eq!(woken.0.load(SeqCst), 2);
        assert!(first.poll(&mut context).is_ready());
        assert!(matches!(first.reading(), Some(Reading::Families(_))));
        assert!(second.poll(&mut context).is_pending() && second.reading().is_none());
        // The waker of a client that leaves is removed.
        assert_eq!(readings.state().wakers.len(), 1);
        drop(second);
        assert_eq!(readings.state().wakers.len(), 0);
        // A failed reading ends the wait.
        let mut third = readings.ask();
        assert!(third.poll(&mut context).is_pending() && readings.begin());
        readings.give_up();
        assert!(third.poll(&mut context).is_ready());
        assert_eq!(woken.0.load(SeqCst), 3);
    }

    #[test]
    fn an_old_reading_is_shown_until_it_is_too_old() {
        let (readings, _woken) = readings();
        let request = readings.ask();
        let now = Instant::now();
        assert!(matches!(readings.state().last(now), Reading::Stale), "nothing was read");
        assert!(readings.begin());
        readings.end(Arc::default(), Status::default());
        assert!(matches!(request.reading(), Some(Reading::Families(_))));
        assert!(!readings.status().1);
        let now = Instant::now();
        assert!(matches!(readings.state().last(now + STALE / 2), Reading::Families(_)));
        assert!(matches!(readings.state().last(now + STALE), Reading::Stale));
    }
}
