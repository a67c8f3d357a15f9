//! The end of the terminal. Once a terminal has hung up, what waits for its keys (crossterm) reads
//! its end again and again, and never sees a signal. So a thread waits for the end, and ends the
//! program.

use std::time::Duration;
use std::{io, process, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;

use super::screen::End;

/// How long the program has to end by itself, as after a signal that came in time.
const GRACE: Duration = Duration::from_secs(1);

/// Ends the program soon after its terminal, which is standard output.
///
/// # Errors
/// If the system starts no thread.
pub(super) fn watch() -> io::Result<()> {
    let run = || {
        if has_ended() {
            thread::sleep(GRACE);
            process::exit(End::Signal(SIGHUP).code().into());
        }
    };
    thread::Builder::new().name("hangup".into()).spawn(run).map(drop)
}

/// Waits until the terminal hangs up. Returns false if it cannot be waited for.
fn has_ended() -> bool {
    let terminal = io::stdout();
    loop {
        // No events: what is always told are the end, and errors.
        let mut polled = [PollFd::new(&terminal, PollFlags::empty())];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => {
                let told = polled[0].revents();
                return told.intersects(PollFlags::HUP | PollFlags::ERR);
            }
        }
    }
}
