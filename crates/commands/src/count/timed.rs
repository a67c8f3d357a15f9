//! Runs a command transparently: it gets the standard streams of this program and the signals that
//! should end it, and this program returns its exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use quipu_process::signals::not_ignored;

/// The result of a command.
pub(super) struct Exit {
    /// The exit code, or 128 plus the number of the signal that ended the command.
    pub(super) code: u8,
    /// The duration of the command.
    pub(super) took: Duration,
}

type Signals = SignalsInfo<WithOrigin>;

/// The exit code of shells for a command that is not found.
const NOT_FOUND: u8 = 127;
/// The exit code of shells for a command that cannot be run.
const NOT_RUN: u8 = 126;

/// Runs a command, and waits for its end.
///
/// # Errors
/// Returns the error of a command that cannot be started or awaited, with an exit code.
pub(super) fn run(program: &OsString, arguments: &[OsString]) -> Result<Exit, (io::Error, u8)> {
    let code_of = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    };
    let mut signals = Signals::new(watched()).map_err(|error| (error, NOT_RUN))?;
    let begun = Instant::now();
    let child = Command::new(program).args(arguments).spawn();
    let mut child = child.map_err(|error| (code_of(&error), error)).map_err(|(c, e)| (e, c))?;
    let status = wait(&mut child, &mut signals).map_err(|error| (error, NOT_RUN))?;
    Ok(Exit { code: code(status), took: begun.elapsed() })
}

/// Returns the signals to pass on, except those that this process ignores, for example under
/// `nohup`. Includes SIGCHLD, because our parent may have ignored this signal, and we could then
/// not wait for the command.
fn watched() -> Vec<i32> {
    let mut watched = not_ignored(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP]);
    watched.push(SIGCHLD);
    watched
}

/// Waits for the end of a command, and passes signals on in the meantime.
fn wait(child: &mut Child, signals: &mut Signals) -> io::Result<ExitStatus> {
    // A process ID is positive, so it fits.
    let id = Pid::from_child(child);
    let handle = signals.handle();
    thread::Builder::new().spawn(move || {
        // Leave the process as a zombie, because no other process may get its ID while a signal is
        // passed on.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(id), options).is_err_and(|error| error == Errno::INTR) {}
        handle.close();
    })?;
    for origin in signals.forever() {
        if is_for_the_command(&origin)
            && let Some(signal) = Signal::from_named_raw(origin.signal)
        {
            // We ignore the error: it only means that the command has just ended.
            let _ = kill_process(id, signal);
        }
    }
    child.wait()
}

/// Returns whether to pass a signal on. The command receives the kernel's signals itself, because
/// the terminal sends the signals of its keys to all processes in the foreground.
fn is_for_the_command(origin: &Origin) -> bool {
    origin.signal != SIGCHLD && origin.cause != Cause::Kernel
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
