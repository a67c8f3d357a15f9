//! A small in-memory file system that can be full or read-only. Only the storm can see it, because
//! it is in a separate mount namespace.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Restarts this program in a separate mount namespace, unless this was already done.
pub(crate) fn enter_namespace() -> io::Result<()> {
    const MARK: &str = "QUIPU_STORM_NAMESPACE";
    if std::env::var_os(MARK).is_some() {
        return Ok(());
    }
    // SAFETY: The call only reads a number of this process.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new("unshare");
    command.arg("--mount").args((!is_root).then_some("--map-root-user"));
    command.arg("--").arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    Err(command.env(MARK, "1").exec())
}

/// The file system, mounted twice: writable at `directory`, read-only at `read_only`.
pub(crate) struct Disk {
    pub(crate) directory: PathBuf,
    pub(crate) read_only: PathBuf,
    is_full: bool,
}

impl Disk {
    pub(crate) fn mount(below: &Path) -> io::Result<Self> {
        let (directory, read_only) = (below.join("disk"), below.join("read-only"));
        fs::create_dir(&directory)?;
        fs::create_dir(&read_only)?;
        let mount = |arguments: &[&str], at: &Path| {
            let status = Command::new("mount").args(arguments).arg(at).status()?;
            let fail = || io::Error::other(format!("mount {arguments:?} failed; run it as root"));
            status.success().then_some(()).ok_or_else(fail)
        };
        mount(&["-t", "tmpfs", "-o", "size=64m", "storm"], &directory)?;
        let source = directory.to_string_lossy().into_owned();
        mount(&["--bind", &source], &read_only)?;
        mount(&["-o", "remount,bind,ro", &source], &read_only)?;
        Ok(Self { directory, read_only, is_full: false })
    }

    /// Fills all free space, or frees it again.
    pub(crate) fn set_full(&mut self, is_full: bool) -> io::Result<()> {
        let ballast = self.directory.join("ballast");
        if is_full && !self.is_full {
            let mut file = File::create(ballast)?;
            let block = [1; 64 << 10];
            while file.write_all(&block).is_ok() {}
            // Fill the last pages one by one.
            while file.write_all(&block[..4096]).is_ok() {}
        } else if !is_full && self.is_full {
            fs::remove_file(ballast)?;
        }
        self.is_full = is_full;
        Ok(())
    }
}
