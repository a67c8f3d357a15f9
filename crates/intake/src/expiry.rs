//! A background thread that hides expired series even without scrapes, and completes group
//! changes whose clients disconnected.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use quipu::intake::Intake;
use tracing::warn;

use super::Shared;
use quipu_process::background::Background;

/// The running thread. Dropping this value stops the thread, and waits for its end.
#[derive(Debug)]
pub struct ExpirySweeper(#[expect(dead_code, reason = "it is held to be dropped")] Background);

/// The time between two sweeps.
const PERIOD: Duration = Duration::from_secs(5);
/// The minimum time between two sweeps when the limit on series is reached. New series then wait
/// for others to expire.
const SHORT_PERIOD: Duration = Duration::from_millis(250);
/// When the limit on series is reached, a pause takes this many times as long as the sweep before
/// it.
const PAUSES: u32 = 20;

impl ExpirySweeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub fn start(mut intake: Intake, shared: &'static Shared) -> std::io::Result<Self> {
        let run = move |stopped: Receiver<()>| {
            let mut is_failing = false;
            let mut period = PERIOD;
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let begun = Instant::now();
                while shared.push.continue_parked(&mut intake, &shared.refusals) {}
                let swept = intake.sweep();
                if let (Err(error), false) = (&swept, is_failing) {
                    warn!(%error, "cannot look for series that have expired");
                }
                is_failing = swept.is_err();
                let is_full = intake.swept_usage().series >= intake.limits().series;
                let pause = (begun.elapsed() * PAUSES).clamp(SHORT_PERIOD, PERIOD);
                period = if is_full { pause } else { PERIOD };
            }
        };
        Background::start("sweep", run).map(Self)
    }
}
