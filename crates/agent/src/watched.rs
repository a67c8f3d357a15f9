//! What the agent has read, for those that show it: they ask for a reading, and wait for it without
//! a thread.
//!
//! Each reading that is asked for begins after that. One that takes too long is not waited for:
//! then the last one is shown, until it is too old. The thread that reads may not come that far,
//! so those that wait decide that.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

use super::merged::{LeftOut, Merged};
use super::own::Status;
use quipu_sources::apart::STALE;

/// How long a scrape waits for a reading before it shows the last one.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the agent has read. Clones share it.
#[derive(Debug, Clone)]
pub struct Watched(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) is_stopping: AtomicBool,
    /// A byte here wakes the thread.
    wake: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
    /// Is the same for all readings.
    pub(super) left_out: Arc<LeftOut>,
    /// Whether the next reading fails.
    #[cfg(test)]
    pub(super) has_flaw: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of readings that were asked for, that began, and that ended.
    wanted: u64,
    begun: u64,
    ended: u64,
    /// When the last reading began that ended; not a multiple of readings asked for.
    read: Option<Instant>,
    /// When the one under way began.
    begins: Option<Instant>,
    merged: Arc<Merged>,
    status: Arc<Status>,
    /// The tasks that wait, by the number of their request.
    wakers: HashMap<u64, Waker>,
    /// The number of requests.
    asked: u64,
}

impl State {
    /// What was read last; nothing if that is too old.
    fn last(&self, now: Instant) -> Reading {
        match self.read {
            Some(read) if now.saturating_duration_since(read) < STALE => {
                Reading::Of(Arc::clone(&self.merged))
            }
            _ => Reading::Stale,
        }
    }
}

/// The result of a reading that was asked for.
#[derive(Debug, Clone)]
pub enum Reading {
    /// What the files have, or had when they were read last.
    Of(Arc<Merged>),
    /// All that is known is too old.
    Stale,
}

/// A reading that was asked for.
#[derive(Debug)]
pub struct Asked {
    watched: Watched,
    /// The number of the reading, and of the request.
    number: u64,
    request: u64,
    since: Instant,
    /// Ends when the last reading is to be shown instead.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(super) fn new(wake: UnixStream) -> Self {
        Self(Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            wake,
            state: Mutex::default(),
            changed: Condvar::new(),
            left_out: Arc::default(),
            #[cfg(test)]
            has_flaw: AtomicBool::default(),
        }))
    }

    /// Asks for a reading that begins after this call.
    pub fn ask(&self) -> Asked {
        let mut state = self.state();
        let number = state.begun + 1;
        let is_new = state.wanted < number;
        state.wanted = number;
        state.asked += 1;
        let request = state.asked;
        drop(state);
        if is_new {
            self.wake();
        }
        Asked { watched: self.clone(), number, request, since: Instant::now(), patience: None }
    }

    /// Reads all sources, for a thread that may wait. If that takes too long, returns what was read
    /// last.
    pub fn fresh(&self) -> Reading {
        let asked = self.ask();
        let is_waiting = |state: &mut State| state.ended < asked.number;
        let waited = self.0.changed.wait_timeout_while(self.state(), PATIENCE, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.last(Instant::now())
    }

    /// What the last reading said of the sources, and whether that is too old to be shown.
    pub(super) fn status(&self) -> (Arc<Status>, bool) {
        let state = self.state();
        (Arc::clone(&state.status), matches!(state.last(Instant::now()), Reading::Stale))
    }

    /// Begins a reading if one was asked for; returns whether it was.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        let is_wanted = state.begun < state.wanted;
        if is_wanted {
            state.begun += 1;
            state.begins = Some(Instant::now());
        }
        is_wanted
    }

    /// Ends a reading that failed, if one is under way: the last one is shown.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.ended = state.begun;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Ends a reading: shows what it has found.
    pub(super) fn end(&self, merged: Arc<Merged>, status: Status) {
        let mut state = self.state();
        state.ended = state.begun;
        state.read = state.begins;
        let old = std::mem::replace(&mut state.merged, merged);
        state.status = Arc::new(status);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
        // Without the lock: it may have many series.
        drop(old);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change of the state can panic half way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        // If there is no room for another byte, the thread is awake soon.
        let _ = rustix::io::write(&self.0.wake, &[0]);
    }
}

impl Asked {
    /// Ready when the reading has ended, or takes too long.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.watched.state();
        if state.ended >= self.number {
            return Poll::Ready(());
        }
        state.wakers.insert(self.request, cx.waker().clone());
        drop(state);
        let late = (self.since + PATIENCE).into();
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep_until(late)));
        patience.as_mut().poll(cx)
    }

    /// The reading, or the last one if this one takes too long; `None` while it is waited for.
    pub fn reading(&self) -> Option<Reading> {
        let (state, now) = (self.watched.state(), Instant::now());
        let is_late = now.saturating_duration_since(self.since) >= PATIENCE;
        (state.ended >= self.number || is_late).then(|| state.last(now))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.watched.state().wakers.remove(&self.request);
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

    /// One whose thread is the test.
    fn watched() -> (Watched, UnixStream) {
        let (wake, woken) = UnixStream::pair().unwrap();
        (Watched::new(wake), woken)
    }

    #[tokio::test]
    async fn a_request_is_woken_when_its_reading_ends() {
        let (watched, _woken) = watched();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut first = watched.ask();
        assert!(first.poll(&mut context).is_pending() && first.reading().is_none());
        assert!(watched.begin() && !watched.begin());
        // This one came after the reading began.
        let mut second = watched.ask();
        assert!(second.poll(&mut context).is_pending());
        drop(watched.ask());
        watched.end(Arc::default(), Status::default());
        assert_eq!(woken.0.load(SeqCst), 2);
        assert!(first.poll(&mut context).is_ready());
        assert!(matches!(first.reading(), Some(Reading::Of(_))));
        assert!(second.poll(&mut context).is_pending() && second.reading().is_none());
        // Nothing of a client that leaves stays.
        assert_eq!(watched.state().wakers.len(), 1);
        drop(second);
        assert_eq!(watched.state().wakers.len(), 0);
        // One that fails is not waited for.
        let mut third = watched.ask();
        assert!(third.poll(&mut context).is_pending() && watched.begin());
        watched.give_up();
        assert!(third.poll(&mut context).is_ready());
        assert_eq!(woken.0.load(SeqCst), 3);
    }

    #[test]
    fn an_old_reading_is_shown_until_it_is_too_old() {
        let (watched, _woken) = watched();
        let asked = watched.ask();
        let now = Instant::now();
        assert!(matches!(watched.state().last(now), Reading::Stale), "nothing was read");
        assert!(watched.begin());
        watched.end(Arc::default(), Status::default());
        assert!(matches!(asked.reading(), Some(Reading::Of(_))));
        assert!(!watched.status().1);
        let now = Instant::now();
        assert!(matches!(watched.state().last(now + STALE / 2), Reading::Of(_)));
        assert!(matches!(watched.state().last(now + STALE), Reading::Stale));
    }
}
