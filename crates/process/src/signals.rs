//! Handles the signals of the daemon and of commands. The first SIGTERM or SIGINT stops the daemon
//! cleanly, and the second ends it at once. SIGHUP is only logged.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, iterator, low_level};
use tracing::info;

/// The signals that were received since the creation of this value.
#[derive(Debug)]
pub struct Signals(iterator::Signals);

impl Signals {
    /// Registers the handlers.
    ///
    /// # Errors
    /// Fails if the system refuses a handler.
    pub fn watch() -> io::Result<Self> {
        exit_at_second(&[SIGTERM, SIGINT])?;
        // Losing the terminal (SIGHUP) costs only the log.
        Ok(Self(iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?))
    }

    /// Waits for the first signal that stops the daemon. Signals before this call count.
    pub fn first(mut self) {
        for number in &mut self.0.forever() {
            if number != SIGHUP {
                return;
            }
            info!("SIGHUP changes nothing: settings are read at startup; restart to change them");
        }
    }
}

/// Ends the process at the second of these signals, even if the process hangs. The caller handles
/// the first one.
///
/// # Errors
/// Fails if the system refuses a handler.
pub fn exit_at_second(signals: &[i32]) -> io::Result<()> {
    let seen = Arc::new(AtomicBool::new(false));
    for &number in signals {
        // The order matters: the first signal finds the flag unset, the second finds it set.
        flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
        flag::register(number, Arc::clone(&seen))?;
    }
    // Because of this handler, exceeding the file size limit (`ulimit -f`) fails the call instead
    // of killing the process.
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Returns the signals that this process does not ignore. A process that `nohup` or a shell started
/// with an ignored signal must not react to this signal.
pub fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.iter().copied().filter(|signal| mask >> (signal - 1) & 1 == 0).collect()
}

/// Ends the process, even if it hangs, unless `ended` receives a message or is disconnected within
/// this time.
pub fn end_after(time: Duration, ended: &Receiver<()>) {
    if ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    // The log may be the part that hangs, so write only if standard error accepts bytes at once.
    let stderr = io::stderr();
    let mut out = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut out, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let message = "quipu: the server did not stop in time, so the process exits; the counts \
                    are in the file\n";
        let _ = rustix::io::write(&stderr, message.as_bytes());
    }
    low_level::exit(1);
}
