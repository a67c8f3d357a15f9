//! Helpers that the tests of the stores share.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::process::Command;

use quipu_store::Metric;

/// All series and their values.
pub(crate) fn all(metric: &dyn Metric) -> BTreeMap<Vec<String>, f64> {
    let mut all = BTreeMap::new();
    let mut visit = |labels: &[&str], value: f64| {
        let labels: Vec<String> = labels.iter().map(|&text| text.to_owned()).collect();
        assert!(all.insert(labels, value).is_none(), "duplicate series");
    };
    metric.for_each(&mut visit).unwrap();
    all
}

/// The sum of all series.
pub(crate) fn total(metric: &dyn Metric) -> f64 {
    all(metric).values().sum()
}

/// Runs `work` in a separate process, which only runs the test of this name, because no other test
/// may run in it when it forks.
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    if std::env::var("STORE_ALONE").is_ok() {
        return work();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("STORE_ALONE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A forked child, which runs `work` and exits.
#[cfg(target_os = "linux")]
pub(crate) struct Child(libc::pid_t);

#[cfg(target_os = "linux")]
impl Child {
    pub(crate) fn fork(work: impl FnOnce()) -> Self {
        // SAFETY: the child uses stores, which is what is tested, and allocation, which the C
        // library keeps usable across forks. It exits without running the parent's clean-up.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                // The signal ends a child that hangs.
                libc::alarm(30);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(result.is_err()));
            }
            Self(child)
        }
    }

    pub(crate) fn kill(&self) {
        // SAFETY: the child was not waited for, so the pid is still its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for the child. Returns whether it exited with success.
    pub(crate) fn wait(self) -> bool {
        let mut status = 0;
        // SAFETY: as above.
        unsafe { assert_eq!(libc::waitpid(self.0, &raw mut status, 0), self.0) };
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}
