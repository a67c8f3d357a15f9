//! Handles the signals of a conversion. The first SIGINT or SIGTERM ends it between two messages,
//! and the second one ends it at once.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use quipu_process::signals::exit_at_second;

/// The signals that were received since the creation of this value.
#[derive(Debug)]
pub(super) struct Stop {
    signal: Arc<AtomicUsize>,
    /// Readable after a signal, so a signal just before a wait ends this wait.
    wake: UnixStream,
}

/// The reason for the end of a wait.
pub(super) enum Wait {
    /// The input contains bytes, or is at its end.
    Ready,
    /// The timeout has passed.
    Paused,
    /// A signal with this number arrived.
    Stopped(i32),
}

impl Stop {
    pub(super) fn watch() -> io::Result<Stop> {
        let signal = Arc::new(AtomicUsize::new(0));
        let (wake, sender) = UnixStream::pair()?;
        exit_at_second(&[SIGINT, SIGTERM])?;
        for number in [SIGINT, SIGTERM] {
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
            pipe::register(number, sender.try_clone()?)?;
        }
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
