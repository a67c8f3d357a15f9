//! Unix sockets that are bound to a path. The socket file of a killed process remains, and a bind
//! to its path would then fail. This module therefore removes a socket file without a listener
//! before it binds.
//!
//! `serve_unix`, the daemon, and the bindings use this. Linux only.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// The path of a bound socket. Dropping this removes the socket file, unless the path belongs to
/// another file by then, or this process is a forked child.
///
/// Drop this before you close the socket, because no other process replaces the socket file while
/// the socket listens.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    /// The absolute path, which stays valid if the working directory changes.
    absolute: PathBuf,
    /// The device and inode of the socket file.
    file: Option<(u64, u64)>,
    has_replaced: bool,
    generation: u32,
}

impl BoundPath {
    fn new(path: &Path, has_replaced: bool) -> Self {
        quipu_segment::watch_forks();
        Self {
            path: path.to_owned(),
            absolute: absolute(path).unwrap_or_else(|_| path.to_owned()),
            file: file_at(path),
            has_replaced,
            generation: quipu_segment::generation(),
        }
    }

    /// Returns the path as given, which can be relative.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this replaced the socket file of an ended process.
    pub fn has_replaced(&self) -> bool {
        self.has_replaced
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        let is_own = self.generation == quipu_segment::generation();
        if is_own && self.file.is_some() && self.file == file_at(&self.absolute) {
            // Ignore the error, because the file can already be gone.
            let _ = fs::remove_file(&self.absolute);
        }
    }
}

/// Returns the device and inode of a path, if there is a file.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns a nonblocking socket that listens for connections at a path. The kernel queues up to
/// `backlog` connections. The umask determines the mode of the path.
///
/// # Errors
/// If the path cannot be used; the error message explains what to do.
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    let (socket, path) = bind_at(path, SocketType::STREAM)?;
    listen(&socket, backlog)?;
    Ok((socket, path))
}

/// Returns a nonblocking socket that receives datagrams at a path, like [`listen_at`].
///
/// # Errors
/// The errors of [`listen_at`].
pub fn receive_at(path: &Path) -> io::Result<(OwnedFd, BoundPath)> {
    bind_at(path, SocketType::DGRAM)
}

fn bind_at(path: &Path, kind: SocketType) -> io::Result<(OwnedFd, BoundPath)> {
    let address = SocketAddrUnix::new(path).map_err(with_way_out)?;
    let socket = socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    let mut has_replaced = false;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            has_replaced = remove_stale(path, &address, kind)?;
            bind(&socket, &address).map_err(with_way_out)?;
        }
        bound => bound.map_err(with_way_out)?,
    }
    Ok((socket, BoundPath::new(path, has_replaced)))
}

/// Adds a remedy to the error message, for example "create its directory".
fn with_way_out(error: Errno) -> io::Error {
    let way_out = match error {
        Errno::NOENT => "create its directory",
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            "give a path in a directory that this user may write to"
        }
        Errno::NAMETOOLONG => "give a path of at most 107 bytes",
        Errno::ADDRINUSE => "another process has just taken the path: give another one",
        _ => return error.into(),
    };
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{error}; {way_out}"))
}

/// Removes a socket file without a listener. Returns false if there is no such file any more.
///
/// The test connection does not block: if the listener's queue is full, the connection fails with
/// `EAGAIN`, which proves that there is a listener.
fn remove_stale(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> io::Result<bool> {
    let other = |reason: String| Err(io::Error::new(io::ErrorKind::AddrInUse, reason));
    let is_socket = match fs::symlink_metadata(path) {
        Ok(file) => file.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !is_socket {
        return other("the path is there, and is not a socket: remove it, or give another".into());
    }
    let socket = socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    match connect(&socket, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map(|()| true),
        Err(Errno::NOENT) => Ok(false),
        Ok(()) | Err(Errno::AGAIN) => {
            other("another process listens on it: stop it, or give another path".into())
        }
        Err(error) => other(format!(
            "the path is there, and cannot be connected to ({error}): remove it, or give another"
        )),
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
