//! SIGTERM and SIGINT: the first ends the daemon in order, the second at once. SIGHUP changes nothing,
//! and is logged.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, iterator, low_level};
use tracing::info;

/// The signals, watched from now on.
#[derive(Debug)]
pub struct Signals(iterator::Signals);

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
        // A file that may not grow (ulimit -f) is an error of the call that met it, and a terminal
        // that is gone only takes the log with it: not the end.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Self(iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?))
    }

    /// Waits for the first signal that ends the daemon, of before the call too.
    pub fn first(mut self) {
        for number in &mut self.0.forever() {
            if number != SIGHUP {
                return;
            }
            info!("SIGHUP changes nothing: settings are read at the start; restart to change them");
        }
    }
}

/// Ends the process if nothing comes from `ended` within the time, without a look at what it is
/// doing.
pub fn end_after(time: Duration, ended: &Receiver<()>) {
    if ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    // It may be the log that stands still: this does not wait for it.
    let stderr = io::stderr();
    let mut out = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut out, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let what = "quipu: the server does not stop, so it was ended; the counts are in the file\n";
        let _ = rustix::io::write(&stderr, what.as_bytes());
    }
    low_level::exit(1);
}
