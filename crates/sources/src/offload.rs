//! Runs blocking work, such as reading from a file system that can hang, in a separate thread.
//!
//! A thread that hangs in the kernel cannot be stopped. We therefore don't start a thread for each
//! task: each state has one thread forever. The owner sends the state to the thread with a task (an
//! *errand*), and gets it back afterwards. While the thread hangs, the owner continues without the
//! state.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::error;

/// A state that is either here, or away in its thread. Dropping this value ends the thread,
/// without a wait.
#[derive(Debug)]
pub struct OffloadedState<S> {
    /// The state; `None` while the thread holds it.
    state: Option<S>,
    errands: Sender<(S, Errand<S>)>,
    /// The states that the thread returned, and whether their tasks succeeded.
    back: Receiver<(S, bool)>,
    /// Whether the last task failed.
    has_failed: bool,
    /// Whether the state was away at the last call of [`OffloadedState::take_back`].
    is_late: bool,
}

/// The age at which the last result of a thread is no longer shown. Prometheus uses the same limit
/// for its last samples.
pub const STALE: Duration = Duration::from_secs(5 * 60);

/// A task: a function that the thread calls with its state.
type Errand<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: Send + 'static> OffloadedState<S> {
    /// Starts the thread, and keeps the state here at first.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub fn start(name: &str, state: S) -> io::Result<Self> {
        let (errands, all) = channel::<(S, Errand<S>)>();
        let (done, back) = channel();
        let run = move || {
            let mut is_logged = false;
            for (mut state, errand) in all {
                // Catch panics, because a task reads files of other programs, and a bug in a reader
                // must not end the thread.
                let is_done = catch_unwind(AssertUnwindSafe(|| errand(&mut state))).is_ok();
                if !is_done && !std::mem::replace(&mut is_logged, true) {
                    let thread = thread::current();
                    error!(thread = thread.name(), "a reader failed, and goes on: report that");
                }
                if done.send((state, is_done)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { state: Some(state), errands, back, has_failed: false, is_late: false })
    }

    /// Returns the state, if it is here. A state that the thread returned is not here before
    /// [`OffloadedState::wait`].
    pub fn here(&self) -> Option<&S> {
        self.state.as_ref()
    }

    /// Works like [`OffloadedState::here`], for changes.
    pub fn here_mut(&mut self) -> Option<&mut S> {
        self.state.as_mut()
    }

    /// Sends the state to the thread with a task. Returns false, and changes nothing, if the state
    /// is away.
    pub fn send(&mut self, errand: impl FnOnce(&mut S) + Send + 'static) -> bool {
        // The thread lives longer than this sender.
        let send = |state| self.errands.send((state, Box::new(errand))).is_ok();
        self.state.take().is_some_and(send)
    }

    /// Waits until this time for a state that is away. Returns the state, if it is then here.
    pub fn wait(&mut self, until: Instant) -> Option<&mut S> {
        if self.state.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok((state, is_done)) = self.back.recv_timeout(left) {
                (self.state, self.has_failed) = (Some(state), !is_done);
            }
        }
        self.state.as_mut()
    }

    /// Gets the state back if the thread has returned it. If this differs from the last call,
    /// returns whether the state is away.
    pub fn take_back(&mut self) -> Option<bool> {
        let is_late = self.wait(Instant::now()).is_none();
        (std::mem::replace(&mut self.is_late, is_late) != is_late).then_some(is_late)
    }

    /// Returns whether the last task failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Runs an errand on a state and waits for it to finish.
    fn run<S: Send + 'static>(
        offloaded: &mut OffloadedState<S>,
        errand: impl FnOnce(&mut S) + Send + 'static,
    ) -> &S {
        assert!(offloaded.send(errand));
        offloaded.wait(Instant::now() + Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_state_that_is_away_comes_back_later() {
        let mut offloaded = OffloadedState::start("test", vec![1]).unwrap();
        assert_eq!(run(&mut offloaded, |state| state.push(2)), &[1, 2]);
        let (release, wait) = channel::<()>();
        offloaded.send(move |state| {
            let _ = wait.recv();
            state.push(3);
        });
        assert_eq!((offloaded.take_back(), offloaded.take_back()), (Some(true), None));
        // The only thread is busy and accepts no other errand.
        assert!(!offloaded.send(|state| state.push(4)));
        assert!(offloaded.here().is_none() && offloaded.here_mut().is_none());
        release.send(()).unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(offloaded.wait(later), Some(&mut vec![1, 2, 3]));
        assert_eq!(offloaded.take_back(), Some(false));
        // A panic ends neither the thread nor the state.
        let flaw = |state: &mut Vec<i32>| {
            state.clear();
            std::panic::resume_unwind(Box::new(()));
        };
        assert!(run(&mut offloaded, flaw).is_empty());
        assert!(offloaded.has_failed());
        assert_eq!(run(&mut offloaded, |state| state.push(5)), &[5]);
        assert!(!offloaded.has_failed());
    }
}
