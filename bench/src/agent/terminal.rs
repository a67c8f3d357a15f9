//! A program in a separate terminal. Its frames are counted.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::server::{end_with_us, exact_cpu_time};
use crate::{Error, Result};

/// The lines and columns.
const SIZE: [u16; 2] = [40, 120];

/// The longest pause within a frame. A frame is written at once; before the next one, the program
/// waits 50 ms for a key.
const GAP: Duration = Duration::from_millis(20);

/// A program in a terminal. Dropping it kills the program.
pub(super) struct Terminal {
    child: Child,
    written: Receiver<Instant>,
}

/// The frames in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    pub(super) count: u32,
    /// From the first frame to the last.
    pub(super) elapsed: Duration,
    /// The processor time of the program in this period.
    pub(super) cpu: Duration,
}

impl Terminal {
    /// Starts a program.
    pub(super) fn start(mut command: Command) -> Result<Terminal> {
        let name = format!("{command:?}");
        let start = || -> io::Result<(Child, File)> {
            let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            grantpt(&ours)?;
            unlockpt(&ours)?;
            let [ws_row, ws_col] = SIZE;
            tcsetwinsize(&ours, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?;
            let path = ptsname(&ours, Vec::new())?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NOCTTY);
            let theirs = options.open(OsStr::from_bytes(path.as_bytes()))?;
            command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
            command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
            end_with_us(&mut command);
            let child = command.spawn()?;
            // The command keeps its ends of the terminal open.
            drop(command);
            Ok((child, File::from(ours)))
        };
        let (child, mut ours) =
            start().map_err(|error| Error::command(&name, format!("in a terminal: {error}")))?;
        let (sender, written) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 65_536];
            // The end of the program is an error on this side of the terminal.
            while ours.read(&mut chunk).is_ok_and(|read| read > 0) {
                if sender.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
        Ok(Terminal { child, written })
    }

    /// Counts frames for some time, from the end of the second one on.
    pub(super) fn frames(&mut self, time: Duration, patience: Duration) -> Result<Frames> {
        let last = self.frame(patience).and_then(|_| self.frame(patience));
        let begun = last.ok_or_else(|| self.failed())?;
        let failed = |error| Error::command("quipu top", format!("processor time: {error}"));
        let before = exact_cpu_time(self.child.id()).map_err(failed)?;
        let (mut count, mut last) = (0, begun);
        while last.duration_since(begun) < time {
            last = self.frame(patience).ok_or_else(|| self.failed())?;
            count += 1;
        }
        let cpu = exact_cpu_time(self.child.id()).map_err(failed)?.saturating_sub(before);
        Ok(Frames { count, elapsed: last.duration_since(begun), cpu })
    }

    /// Waits for a frame, and returns the arrival of its last bytes.
    fn frame(&self, patience: Duration) -> Option<Instant> {
        let mut last = self.written.recv_timeout(patience).ok()?;
        loop {
            match self.written.recv_timeout(GAP) {
                Ok(at) => last = at,
                Err(RecvTimeoutError::Timeout) => return Some(last),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn failed(&mut self) -> Error {
        let status = self.child.try_wait();
        Error::command("quipu top", format!("shows no further frame; its status is {status:?}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
