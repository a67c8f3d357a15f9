//! Runs the commands that work on a segment file: the real binary, next to processes that keep the
//! file open. This test process is one of them.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "files/check.rs"]
mod check;
#[path = "files/count.rs"]
mod count;
#[path = "files/diff.rs"]
mod diff;
#[path = "files/hostile.rs"]
mod hostile;
#[path = "files/inspect.rs"]
mod inspect;
#[path = "files/output.rs"]
mod output;
#[path = "files/picture.rs"]
mod picture;
#[path = "files/record.rs"]
mod record;
#[path = "files/replay.rs"]
mod replay;
#[path = "files/restore.rs"]
mod restore;
#[path = "files/top.rs"]
mod top;
#[path = "common/worker.rs"]
mod worker;

/// A directory for a segment file, which does not exist at first.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn directory(&self) -> &Path {
        self.0.path()
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("app.quipu")
    }

    /// Creates a command for the binary, with its file in the environment.
    fn quipu(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quipu"));
        command.args(arguments).env("QUIPU_FILE", self.file()).current_dir(self.directory());
        command
    }

    /// Runs the binary, and returns its standard output.
    fn succeed(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.quipu(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stderr.is_empty(), "{arguments:?}: {status}: {errors}");
        String::from_utf8(stdout).unwrap()
    }

    /// Runs the binary, which must exit with this code and print each of the parts.
    fn refuse(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        let output = self.quipu(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        for part in parts {
            assert!(errors.contains(part), "{arguments:?}: no {part:?} in {errors}");
        }
    }
}
