//! Syncs the state to the disk, now and then, on a thread of its own.
//!
//! A process that is killed loses nothing without it. It is for the machine that loses power,
//! which then loses what was counted since the last sync. While nothing is counted, the disk is
//! left alone for a minute at a time, but for a look whether the file is still there and whole: one
//! that was removed, replaced or cut would take the counts with it.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quipu_segment::Flaw;
use tracing::{debug, error, info};

use crate::metrics::Metrics;
use crate::state::State;

/// The running checkpoints. They end when this is dropped.
#[derive(Debug)]
pub struct Checkpoints {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Syncs the state each time that `period` has passed since the last sync began.
    ///
    /// # Errors
    /// A system that gives no thread.
    pub fn start(
        state: &'static State,
        period: Duration,
        metrics: &'static Metrics,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
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
                    && matches!(error.flaw(), Flaw::Cut { .. })
                {
                    // The next count in what was cut off would end the process by SIGBUS.
                    error!(%error, "the daemon ends: its state was cut while it was in use");
                    std::process::exit(1);
                }
                let counted = state.counted();
                // Now and then all the same: the time that it is goes into the file as well, for
                // the first start after a reboot.
                let may_wait = synced == Some(counted) && begun - last_sync < MOST_SPARED;
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
                    // A line at each change, not twice a second.
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
        let thread = thread::Builder::new().name("checkpoint".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// The longest time without a sync.
const MOST_SPARED: Duration = Duration::from_secs(60);

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was told there, and the last sync is the caller's.
            let _ = thread.join();
        }
    }
}
