//! A background thread that periodically syncs the state file to the disk.
//!
//! Because of these checkpoints, a power loss costs only the events since the last sync. A killed
//! process loses no event even without them. While no events are counted, the thread syncs only
//! once a minute. It still checks in every period that the file is in place and complete, because
//! the counts would be lost with a file that was removed, replaced or truncated.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use quipu_segment::ErrorKind;
use tracing::{debug, error, info};

use crate::metrics::Metrics;
use crate::state::State;
use quipu_process::background::Background;

/// The running thread. Dropping this value stops the thread, and waits for its end.
#[derive(Debug)]
pub struct Checkpoints(#[expect(dead_code, reason = "it is held to be dropped")] Background);

impl Checkpoints {
    /// Starts the thread. It syncs whenever `period` has passed since the last sync began.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub fn start(
        state: &'static State,
        period: Duration,
        metrics: &'static Metrics,
    ) -> std::io::Result<Self> {
        let run = move |stopped: Receiver<()>| {
            let mut failing = false;
            let mut synced = None;
            let mut last_sync = Instant::now();
            let mut begun = Instant::now();
            loop {
                let left = period.saturating_sub(begun.elapsed());
                match stopped.recv_timeout(left) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
                begun = Instant::now();
                let is_there = state.segment.check_file();
                if let Err(error) = &is_there
                    && matches!(error.kind(), ErrorKind::Cut { .. })
                {
                    // Exit, because the next count beyond the truncated end would kill the process
                    // with SIGBUS.
                    error!(%error, "the daemon exits: its state file was truncated while in use");
                    std::process::exit(1);
                }
                let counted = state.counted();
                // Sync occasionally even without events, because the file also stores the current
                // time, which the first start after a reboot reads.
                let may_wait = synced == Some(counted) && begun - last_sync < MAX_SPARED;
                if is_there.is_ok() && may_wait {
                    metrics.checkpoint_spared();
                    continue;
                }
                let result = is_there.and_then(|()| state.segment.sync());
                metrics.checkpointed(begun.elapsed(), result.is_ok());
                debug!(took = ?begun.elapsed(), succeeded = result.is_ok(), "synced the state");
                synced = result.is_ok().then_some(counted);
                last_sync = begun;
                match result {
                    // We log each change between success and failure once, instead of every failed
                    // sync.
                    Err(error) if !failing => {
                        error!(%error, "a checkpoint failed; counting goes on in memory");
                        failing = true;
                    }
                    Ok(()) if failing => {
                        info!("checkpoints work again");
                        failing = false;
                    }
                    _ => {}
                }
            }
        };
        Background::start("checkpoint", run).map(Self)
    }
}

/// The maximum time without a sync while no events are counted.
const MAX_SPARED: Duration = Duration::from_secs(60);
