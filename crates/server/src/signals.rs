//! SIGTERM and SIGINT: the first ends the daemon in order, the second at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use tokio::signal::unix::{SignalKind, signal};

/// The signals, watched from now on.
#[derive(Debug)]
pub struct Signals {
    seen: Arc<AtomicBool>,
}

impl Signals {
    /// Begins to watch.
    ///
    /// # Errors
    /// A system that refuses to.
    pub fn watch() -> io::Result<Self> {
        let seen = Arc::new(AtomicBool::new(false));
        for number in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag unset, and the second finds it set,
            // whatever the daemon is waiting for by then.
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
            flag::register(number, Arc::clone(&seen))?;
        }
        // A file that may not grow (ulimit -f) is an error of the call that met it, not the end.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Self { seen })
    }

    /// Ends with the first signal, of before the call too. To be awaited in a tokio runtime.
    pub async fn first(self) {
        let terminate = signal(SignalKind::terminate());
        let interrupt = signal(SignalKind::interrupt());
        if self.seen.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
            // Without them the second signal still works, since the first has set the flag.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
