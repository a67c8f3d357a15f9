//! A background thread that hides series which have expired, whether anybody scrapes or not, and
//! ends changes of groups whose clients left.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tracing::warn;

use super::Shared;
use crate::background::Background;
use crate::state::State;

/// The running thread. Dropping this stops the thread and waits for it.
#[derive(Debug)]
pub struct Sweeps(#[expect(dead_code, reason = "it is held to be dropped")] Background);

/// The time between two sweeps.
const PERIOD: Duration = Duration::from_secs(5);

impl Sweeps {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of the system if it cannot create a thread.
    pub fn start(state: &'static State, shared: &'static Shared) -> std::io::Result<Self> {
        let mut intake = state.intake.clone();
        let run = move |stopped: Receiver<()>| {
            let mut is_failing = false;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                while shared.push.go_on(&mut intake, &shared.refusals) {}
                let swept = intake.sweep();
                if let (Err(error), false) = (&swept, is_failing) {
                    warn!(%error, "cannot look for series that have expired");
                }
                is_failing = swept.is_err();
            }
        };
        Background::start("sweep", run).map(Self)
    }
}
