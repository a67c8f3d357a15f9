//! A Redis server that is private to the benchmark.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{end_with_us, free_port};
use crate::{Error, Result};

/// The longest wait for the server to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server in memory, on a free port and a socket. Dropping this kills it.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    socket: PathBuf,
}

impl RedisServer {
    /// Starts a server without persistence, with its socket in the folder.
    pub fn start(folder: &Path) -> Result<RedisServer> {
        let port = free_port()?;
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.arg("--dir").arg(folder).arg("--unixsocket").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        end_with_us(&mut command);
        let child = command.spawn().map_err(|error| {
            let problem = format!("cannot be started: {error}. Install redis-server.");
            Error::command("redis-server", problem)
        })?;
        let mut server = RedisServer { child, port, socket };
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            let ended = server.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > PATIENCE {
                return Err(Error::command("redis-server", "does not listen on its socket"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Returns the server's port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of the server's unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Both fail only if the process already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
