//! Child processes for tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::Command;

/// Runs `work` in a process where no other test runs: starts this program again, with only the test
/// of that name.
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    if std::env::var("QUIPU_ALONE").is_ok() {
        return work();
    }
    let output = this_program()
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("QUIPU_ALONE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts this program again, with the emulator that runs it, if there is one.
fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("QUIPU_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else { return Command::new(program) };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}

/// Returns a directory in memory, if the system provides one, because a disk would sync each new
/// file.
pub(crate) fn in_memory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let in_memory = memory.is_dir().then(|| tempfile::tempdir_in(memory));
    in_memory.unwrap_or_else(tempfile::tempdir).unwrap()
}

/// A child that is killed on drop, unless it was waited for.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Starts a child, which ends with success if `work` returns true.
    pub(crate) fn start(work: impl FnOnce() -> bool) -> Self {
        // SAFETY: the child uses the tested code, and memory, which the C library keeps in order
        // across forks; it ends without its parent's clean-up.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                // The signal ends a child that waits forever.
                libc::alarm(60);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(!matches!(result, Ok(true))));
            }
            Self(child)
        }
    }

    /// Waits for the child, and returns whether it ended with success.
    pub(crate) fn wait(self) -> bool {
        let status = self.status();
        std::mem::forget(self);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    /// Returns whether the child has not ended yet.
    pub(crate) fn is_alive(&self) -> bool {
        // SAFETY: all bytes of a `siginfo_t` can be zero. The call leaves an ended child to `wait`.
        unsafe {
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            let (id, how) = (self.0 as libc::id_t, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
            libc::waitid(libc::P_PID, id, &raw mut info, how) == 0 && info.si_pid() == 0
        }
    }

    pub(crate) fn kill(self) {
        // SAFETY: this is a child of this process, and there are no other waiters.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        assert!(!self.wait(), "it was killed");
    }

    fn status(&self) -> i32 {
        let mut status = 0;
        // SAFETY: as above.
        unsafe { assert_eq!(libc::waitpid(self.0, &raw mut status, 0), self.0) };
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.status();
    }
}
