//! A state with a thread of its own, which does what may wait for a file system that hangs.
//!
//! A thread that hangs in the kernel cannot be ended. So there is one for each state, for good: it
//! takes the state with each errand, and gives it back. While it hangs, the state is away, and its
//! owner goes on without it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::error;

/// A state that is here, or with its thread. Dropping it ends the thread, without waiting for it.
#[derive(Debug)]
pub struct Apart<S> {
    /// `None` while the thread has it.
    state: Option<S>,
    errands: Sender<(S, Errand<S>)>,
    /// States, and whether their errand was done.
    back: Receiver<(S, bool)>,
    /// Whether the last errand failed that came back.
    has_failed: bool,
    /// Whether the state was away when that was asked last.
    is_late: bool,
}

/// The age from which the last reading of a thread is no longer shown. Prometheus gives its last
/// samples the same age.
pub const STALE: Duration = Duration::from_secs(5 * 60);

/// What a thread does with its state.
type Errand<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: Send + 'static> Apart<S> {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of the system if it has no thread.
    pub fn start(name: &str, state: S) -> io::Result<Self> {
        let (errands, all) = channel::<(S, Errand<S>)>();
        let (done, back) = channel();
        let run = move || {
            let mut is_logged = false;
            for (mut state, errand) in all {
                // What it reads was written by others: a flaw must not end the thread.
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

    /// The state if it is here. One that came back is, once [`Apart::wait`] has taken it.
    pub fn here(&self) -> Option<&S> {
        self.state.as_ref()
    }

    /// As [`Apart::here`].
    pub fn here_mut(&mut self) -> Option<&mut S> {
        self.state.as_mut()
    }

    /// Gives the state to its thread, for this errand. Returns false, and does nothing, if it is
    /// away.
    pub fn send(&mut self, errand: impl FnOnce(&mut S) + Send + 'static) -> bool {
        // The thread ends after this sender.
        let send = |state| self.errands.send((state, Box::new(errand))).is_ok();
        self.state.take().is_some_and(send)
    }

    /// Waits for the state until then, if it is away. Returns it if it is here now.
    pub fn wait(&mut self, until: Instant) -> Option<&mut S> {
        if self.state.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok((state, is_done)) = self.back.recv_timeout(left) {
                (self.state, self.has_failed) = (Some(state), !is_done);
            }
        }
        self.state.as_mut()
    }

    /// Takes the state if it came back. Returns whether it is away, if that has changed since the
    /// last call.
    pub fn take_back(&mut self) -> Option<bool> {
        let is_late = self.wait(Instant::now()).is_none();
        (std::mem::replace(&mut self.is_late, is_late) != is_late).then_some(is_late)
    }

    /// Whether the last errand failed that came back.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Gives a state an errand, and waits for it.
    fn run<S: Send + 'static>(
        apart: &mut Apart<S>,
        errand: impl FnOnce(&mut S) + Send + 'static,
    ) -> &S {
        assert!(apart.send(errand));
        apart.wait(Instant::now() + Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_state_that_is_away_comes_back_later() {
        let mut apart = Apart::start("test", vec![1]).unwrap();
        assert_eq!(run(&mut apart, |state| state.push(2)), &[1, 2]);
        let (release, wait) = channel::<()>();
        apart.send(move |state| {
            let _ = wait.recv();
            state.push(3);
        });
        assert_eq!((apart.take_back(), apart.take_back()), (Some(true), None));
        // It has only one thread, which is not asked for more meanwhile.
        assert!(!apart.send(|state| state.push(4)));
        assert!(apart.here().is_none() && apart.here_mut().is_none());
        release.send(()).unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(apart.wait(later), Some(&mut vec![1, 2, 3]));
        assert_eq!(apart.take_back(), Some(false));
        // A flaw ends neither the thread nor the state.
        let flaw = |state: &mut Vec<i32>| {
            state.clear();
            std::panic::resume_unwind(Box::new(()));
        };
        assert!(run(&mut apart, flaw).is_empty());
        assert!(apart.has_failed());
        assert_eq!(run(&mut apart, |state| state.push(5)), &[5]);
        assert!(!apart.has_failed());
    }
}
