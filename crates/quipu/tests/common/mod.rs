//! Helpers for tests with children of forks.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `work` in a separate process without other tests: this starts the test binary again, with
/// only the test of this name.
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    if std::env::var("QUIPU_ALONE").is_ok() {
        return work();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("QUIPU_ALONE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A child process that is killed on drop, unless it was waited for.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Starts a child, which exits with success if `work` returns true.
    pub(crate) fn start(work: impl FnOnce() -> bool) -> Self {
        // SAFETY: the child only uses the code under test and the allocator, which the C library
        // keeps usable across forks; it exits without its parent's cleanup.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                // The signal ends a child that hangs.
                libc::alarm(60);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(!matches!(result, Ok(true))));
            }
            Self(child)
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.cast_unsigned()
    }

    /// Waits for the child, and returns whether it exited with success.
    pub(crate) fn wait(self) -> bool {
        let status = self.status();
        std::mem::forget(self);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    pub(crate) fn kill(self) {
        // SAFETY: this is a child of this process, and no other code waits for this child.
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

/// Sleeps in a child, for longer than any test takes.
pub(crate) fn sleep() -> bool {
    std::thread::sleep(Duration::from_secs(60));
    false
}

/// Waits until a condition holds; panics with `condition` after two minutes.
pub(crate) fn eventually(condition: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{condition}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the lines of samples that start with `name`.
pub(crate) fn lines(text: &str, name: &str) -> Vec<String> {
    let is_sample = |line: &&str| line.starts_with(name) && !line.starts_with('#');
    text.lines().filter(is_sample).map(str::to_owned).collect()
}
