//! Unix sockets for `start_http_server` in Python: Rust binds the socket, and Python serves it.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use quipu::http::local_socket;

/// The path of a bound socket, which `remove` removes.
#[pyclass(frozen, module = "quipu_metrics._quipu")]
pub struct BoundPath(Mutex<Option<local_socket::BoundPath>>);

#[pymethods]
impl BoundPath {
    /// Removes the socket file, unless the path belongs to another file by now. Does nothing in a
    /// forked child.
    fn remove(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Returns the file descriptor of a socket that listens at a path, and the bound path. The caller
/// must close the descriptor.
#[pyfunction]
pub fn listen_at(path: PathBuf, backlog: i32) -> PyResult<(i32, BoundPath)> {
    let (socket, path) = local_socket::listen_at(&path, backlog)?;
    Ok((socket.into_raw_fd(), BoundPath(Mutex::new(Some(path)))))
}
