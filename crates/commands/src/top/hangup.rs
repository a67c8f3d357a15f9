//! Ends `quipu top` after its terminal hangs up. After a hangup, crossterm reads the end again and
//! again while it waits for keys, and never returns for a signal. A separate thread therefore waits
//! for the hangup.

use std::time::Duration;
use std::{io, process, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;

use super::screen::End;

/// The time for the program to end by itself, for example because of a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Starts a thread that ends the program soon after its terminal, which is standard output, hangs
/// up.
///
/// # Errors
/// Fails if the system cannot start a thread.
pub(super) fn watch() -> io::Result<()> {
    let run = || {
        if has_ended() {
            thread::sleep(GRACE);
            process::exit(End::Signal(SIGHUP).code().into());
        }
    };
    thread::Builder::new().name("hangup".into()).spawn(run).map(drop)
}

/// Waits until the terminal hangs up. Returns false if the wait fails.
fn has_ended() -> bool {
    let terminal = io::stdout();
    loop {
        // We request no events, because hangups and errors are always reported.
        let mut polled = [PollFd::new(&terminal, PollFlags::empty())];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => {
                let events = polled[0].revents();
                return events.intersects(PollFlags::HUP | PollFlags::ERR);
            }
        }
    }
}
