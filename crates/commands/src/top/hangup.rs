//! The end of the terminal. After a terminal has hung up, crossterm, which waits for keys, reads
//! the end again and again, and never returns for a signal. So a thread waits for the end, and ends
//! the program.

use std::time::Duration;
use std::{io, process, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;

use super::screen::End;

/// The time for the program to end by itself, like after a signal that arrived in time.
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

/// Waits until the terminal hangs up. Returns false if the wait fails.
fn has_ended() -> bool {
    let terminal = io::stdout();
    loop {
        // No events: the end and errors are always reported.
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
