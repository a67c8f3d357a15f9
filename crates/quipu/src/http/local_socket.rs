//! Unix sockets with a path. The path of a process that was killed stays there: it is replaced if
//! nothing listens on it.
//!
//! For `serve_unix`, the daemon, and the bindings. Linux only.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// A path that is removed when this is dropped, unless it has become that of another file. A child
/// of a fork does not remove it.
///
/// Drop this before the socket is closed: as long as the socket listens, no other process takes its
/// path for that of an ended process.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    /// The path, whatever the working directory is by then.
    absolute: PathBuf,
    /// The file: device and inode.
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

    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the socket of a process that has ended was there, and was removed.
    pub fn has_replaced(&self) -> bool {
        self.has_replaced
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        let is_own = self.generation == quipu_segment::generation();
        if is_own && self.file.is_some() && self.file == file_at(&self.absolute) {
            // It may be gone already; nothing depends on it.
            let _ = fs::remove_file(&self.absolute);
        }
    }
}

/// Device and inode of a path, if it is there.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// A socket that listens for connections at a path, of which the kernel queues `backlog`. It does
/// not block. The umask decides on its mode.
///
/// # Errors
/// If the path cannot be used; the message has the way out.
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<(OwnedFd, BoundPath)> {
    let (socket, path) = bind_at(path, SocketType::STREAM)?;
    listen(&socket, backlog)?;
    Ok((socket, path))
}

/// As [`listen_at`], for datagrams.
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

/// Removes a socket that no process listens on. Returns false if it has gone meanwhile.
///
/// Does not block: a process whose queue of connections is full listens, too.
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
