//! Children of forks, in tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `work` in a process of its own, in which nothing else runs: the test of that name, started
/// again.
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

/// A child that is killed when it is dropped, unless it was waited for.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Starts a child, which ends with success if `work` returns true.
    pub(crate) fn start(work: impl FnOnce() -> bool) -> Self {
        // SAFETY: the child uses what is tested, and memory, which the C library keeps in order
        // across forks; it ends without the clean-up of its parent.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                // Whoever waits for ever is ended by the signal.
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

    /// Waits for it, and answers whether it ended with success.
    pub(crate) fn wait(self) -> bool {
        let status = self.status();
        std::mem::forget(self);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    pub(crate) fn kill(self) {
        // SAFETY: it is a child of this process that nobody else waits for.
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

/// Sleeps for ever, in a child.
pub(crate) fn sleep() -> bool {
    std::thread::sleep(Duration::from_secs(60));
    false
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The lines of a text format that begin so.
pub(crate) fn lines(text: &str, name: &str) -> Vec<String> {
    let is_sample = |line: &&str| line.starts_with(name) && !line.starts_with('#');
    text.lines().filter(is_sample).map(str::to_owned).collect()
}
