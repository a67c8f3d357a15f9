//! Opens files of the outputs: only this user may read them, and links are not followed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file that is neither a link, nor a pipe or a device.
pub(super) fn plain(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // A pipe could make the daemon wait.
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file; remove it")),
    }
}

/// Options of a file to read and write, which only this user may read if it is created.
pub(super) fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}
