//! Reads the target of `quipu top` repeatedly, in a separate thread, because a slow file or a
//! hanging server must not block the screen.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use super::app::{Action, App};
use super::screen::Feed;
use crate::look::{Look, Source};

/// The time and the result of a reading.
type TimedLook = (Instant, Result<Look, String>);

/// The handle of the thread. The thread ends with the process, or when this value is dropped.
pub(super) struct Reader {
    looks: Receiver<TimedLook>,
    /// The time from which the model counts.
    begun: Instant,
    thread: Thread,
    /// The milliseconds between two readings; 0 means a pause.
    interval: Arc<AtomicU64>,
}

impl Reader {
    /// Starts the thread, which begins after a delay. `begun` is the time of the first reading,
    /// from which the model counts.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub(super) fn start(
        mut source: Source,
        interval: Duration,
        delay: Duration,
        begun: Instant,
    ) -> io::Result<Self> {
        // The capacity is one, so one look can wait while another is shown.
        let (sender, looks) = sync_channel(1);
        let interval = Arc::new(AtomicU64::new(millis(interval)));
        let pace = Arc::clone(&interval);
        let thread = Builder::new().name("look".into()).spawn(move || {
            std::thread::park_timeout(delay);
            loop {
                // Relaxed: the number publishes no other data.
                while pace.load(Ordering::Relaxed) == 0 {
                    std::thread::park();
                }
                let begun = Instant::now();
                let look = source.look();
                // We use the time of the response, because a server can be slow.
                if sender.send((Instant::now(), look)).is_err() {
                    return;
                }
                loop {
                    let interval = Duration::from_millis(pace.load(Ordering::Relaxed));
                    let Some(rest) = interval.checked_sub(begun.elapsed()) else { break };
                    std::thread::park_timeout(rest);
                }
            }
        })?;
        Ok(Self { looks, begun, thread: thread.thread().clone(), interval })
    }

    /// Sets the interval; `None` means a pause.
    fn set_interval(&self, interval: Option<Duration>) {
        self.interval.store(interval.map_or(0, millis), Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Feed for Reader {
    fn poll(&mut self, app: &mut App) -> io::Result<bool> {
        match self.looks.try_recv() {
            Ok((at, look)) => {
                app.look(&look, at.saturating_duration_since(self.begun));
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread that reads has panicked"))
            }
        }
    }

    fn act(&mut self, app: &mut App, action: Action) {
        if action == Action::Pace {
            self.set_interval((!app.is_paused).then_some(app.interval));
        }
    }
}

fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1)
}
