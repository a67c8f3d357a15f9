//! Unix sockets with a path. The path of a process that was killed stays there: it is removed if
//! nothing listens on it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use quipu_segment::printable;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use tracing::info;

/// A path that is removed when this is dropped, unless it has become that of another file.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    /// The file: device and inode.
    file: Option<(u64, u64)>,
}

impl BoundPath {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: file_at(path) }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file_at(&self.path) {
            // It may be gone already; nothing depends on it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a path, if it is there.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Binds a socket to a path.
pub(crate) fn bind_at(path: &Path, kind: SocketType) -> io::Result<(OwnedFd, BoundPath)> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &address, kind)?;
            bind(&socket, &address)?;
        }
        bound => bound?,
    }
    Ok((socket, BoundPath::new(path)))
}

/// As [`bind_at`], for connections, of which the kernel queues `backlog`.
pub(crate) fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    let (socket, path) = bind_at(path, SocketType::STREAM)?;
    listen(&socket, backlog)?;
    Ok((socket, path))
}

/// Does not block: a process whose queue of connections is full listens, too.
fn remove_stale(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    let other = |what: String| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return other("the path is there, and is not a socket: remove it, or give another".into());
    }
    let socket = socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    match connect(&socket, address) {
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path)?;
            info!(path = %printable(path), "removed the socket of a process that has ended");
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN) => {
            other("another process listens on it: stop it, or give another path".into())
        }
        Err(error) => other(format!(
            "the path is there, and cannot be connected to ({error}): remove it, or give another"
        )),
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
