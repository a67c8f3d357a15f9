//! Signals of a conversion. The first SIGINT or SIGTERM ends it between two messages, the second at
//! once.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level::pipe};

/// The signals, watched since creation.
#[derive(Debug)]
pub(super) struct Stop {
    signal: Arc<AtomicUsize>,
    /// Becomes readable when a signal arrives, so a signal just before a wait ends that wait.
    wake: UnixStream,
}

/// Why a wait ended.
pub(super) enum Wait {
    /// The input has bytes, or has ended.
    Ready,
    /// The timeout has passed.
    Paused,
    /// A signal with this number has arrived.
    Stopped(i32),
}

impl Stop {
    pub(super) fn watch() -> io::Result<Stop> {
        let signal = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(AtomicBool::new(false));
        let (wake, sender) = UnixStream::pair()?;
        for number in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag unset, the second finds it set.
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
            flag::register(number, Arc::clone(&seen))?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
            pipe::register(number, sender.try_clone()?)?;
        }
        // With a handler, exceeding the file size limit (ulimit -f) fails the write instead of
        // killing the process.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Stop { signal, wake })
    }

    /// Waits until the input is readable, a signal arrives, or the timeout passes.
    pub(super) fn wait(
        &self,
        input: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<Wait> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        loop {
            let mut both = [
                PollFd::from_borrowed_fd(input, PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            let ready = match poll(&mut both, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            return Ok(match self.signal.load(Ordering::SeqCst) {
                0 if ready == 0 => Wait::Paused,
                0 => Wait::Ready,
                number => Wait::Stopped(number as i32),
            });
        }
    }
}
