//! Creates Python interpreters with packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a Python interpreter with Prometheus' client.
pub(crate) fn with_client() -> PathBuf {
    with("python-multiprocess", "tests/expose/requirements.txt")
}

/// Returns a Python interpreter with the packages of a requirements file. The virtual environment
/// `name` is created below the target directory.
pub(crate) fn with(name: &str, requirements: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let python = home.join("bin/python");
    // Lock, because tests in other processes must wait until the environment is complete.
    let lock = fs::File::create(home.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !home.join("complete").exists() {
        succeed(Command::new("python3").arg("-m").arg("venv").arg(&home));
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        succeed(pip.arg(manifest.join(requirements)));
        fs::write(home.join("complete"), "").unwrap();
    }
    python
}

fn succeed(command: &mut Command) {
    let status = command.status();
    let status =
        status.unwrap_or_else(|error| panic!("{command:?}: {error}; `make test` installs it"));
    assert!(status.success(), "{command:?}: {status}");
}
