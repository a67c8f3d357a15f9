//! Worker processes, forked from this process, which must be single-threaded.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use crate::{Error, Result};

/// Runs the work in a child process, which exits when it returns.
///
/// The calling process must be single-threaded.
pub(super) fn fork(work: impl FnOnce()) -> Result<Child> {
    // SAFETY: there is no other thread that could hold a lock that the child needs. The child exits
    // without running the parent's clean-up.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let done = catch_unwind(AssertUnwindSafe(work));
            libc::_exit(i32::from(done.is_err()));
        }
        pid
    };
    match pid {
        -1 => Err(failed(format!("cannot fork: {}", io::Error::last_os_error()))),
        pid => Ok(Child { pid, waited: false }),
    }
}

/// A worker. Dropping this waits for the end of the worker.
#[must_use]
pub(super) struct Child {
    pid: i32,
    waited: bool,
}

impl Child {
    /// Waits for the exit of the worker.
    pub(super) fn wait(mut self) -> Result<()> {
        let status = self.status()?;
        if status.success() { Ok(()) } else { Err(failed(format!("ended with {status}"))) }
    }

    fn status(&mut self) -> Result<ExitStatus> {
        self.waited = true;
        let mut status = 0;
        // SAFETY: the process is a child, and no other code waits for this process.
        if unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            return Err(failed(format!("cannot be waited for: {}", io::Error::last_os_error())));
        }
        Ok(ExitStatus::from_raw(status))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.waited {
            // A drop cannot return an error.
            let _ = self.status();
        }
    }
}

/// Workers that finished their work and stay alive until this is dropped.
pub(super) struct Alive {
    /// The end of a pipe. The workers end when we close it.
    leave: Option<io::PipeWriter>,
    children: Vec<Child>,
}

impl Alive {
    /// Forks `count` workers, which do the work one after the other and stay alive.
    pub(super) fn start(count: usize, mut work: impl FnMut()) -> Result<Alive> {
        let (mut stay, leave) = pipe()?;
        let mut alive = Alive { leave: Some(leave), children: Vec::new() };
        for _ in 0..count {
            let (mut done, mut is_done) = pipe()?;
            let leave = &mut alive.leave;
            let child = fork(|| {
                drop(leave.take());
                work();
                let _ = is_done.write_all(b"d");
                // Returns when the parent closes its end.
                let _ = stay.read(&mut [0]);
            })?;
            drop(is_done);
            alive.children.push(child);
            done.read_exact(&mut [0]).map_err(|_| failed("ended before its work was done"))?;
        }
        Ok(alive)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(self.leave.take());
    }
}

pub(super) fn pipe() -> Result<(io::PipeReader, io::PipeWriter)> {
    io::pipe().map_err(|error| failed(format!("needs a pipe: {error}")))
}

pub(super) fn failed(problem: impl Into<String>) -> Error {
    Error::command("a worker", problem)
}
