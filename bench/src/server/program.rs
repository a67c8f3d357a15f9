//! Starts a server that counts requests, and stops it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use super::client::{self, Tally};
use super::process::Process;
use crate::{Error, Result};

/// The longest wait for a response after the start, or for the end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that can be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The subject of its records.
    pub subject: String,
    /// The program and its arguments. `{port}` and `{state}` are replaced by the port to listen on
    /// and the file for the count.
    pub command: Vec<String>,
}

impl Program {
    /// A program from a command line, which is split at spaces.
    pub fn new(subject: &str, command: &str) -> Program {
        let command = command.split_whitespace().map(String::from).collect();
        Program { subject: subject.into(), command }
    }

    /// Parses `SUBJECT=COMMAND`.
    pub fn parse(text: &str) -> std::result::Result<Program, String> {
        let wanted = "SUBJECT=COMMAND, where the command holds {port} and {state}";
        let (subject, command) = text.split_once('=').ok_or(wanted)?;
        if subject.is_empty() || !command.contains("{port}") || !command.contains("{state}") {
            return Err(wanted.into());
        }
        Ok(Program::new(subject, command))
    }

    /// Starts the server with its state in a folder, on a free port or on the given one, on all
    /// cores or on the given one, and waits until it responds.
    pub fn start(&self, folder: &Path, port: Option<u16>, core: Option<usize>) -> Result<Running> {
        let port = port.map_or_else(free_port, Ok)?;
        let state = folder.join("state").display().to_string();
        let fill =
            |text: &String| text.replace("{port}", &port.to_string()).replace("{state}", &state);
        let words: Vec<String> = self.command.iter().map(fill).collect();
        let process = Process::start(&words, core, crate::root(), &folder.join("log"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Running { process, address, probes: Tally::default(), first_count: 0 };
        let started = Instant::now();
        loop {
            if let Some(status) = running.process.ended() {
                return Err(running.process.failed(&format!("ended with {status} at its start")));
            }
            match client::ask(running.address) {
                Ok(count) => {
                    running.probes.sent += 1;
                    running.probes.answered += 1;
                    running.first_count = count;
                    return Ok(running);
                }
                // Without a connection, no request was sent.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(error) if started.elapsed() > PATIENCE => {
                    return Err(running.process.failed(&format!("does not respond well: {error}")));
                }
                Err(_) => running.probes.sent += 1,
            }
            if started.elapsed() > PATIENCE {
                return Err(running.process.failed("does not listen"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    process: Process,
    address: SocketAddr,
    probes: Tally,
    first_count: u64,
}

impl Running {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests that probed whether it responds.
    pub fn probes(&self) -> Tally {
        self.probes
    }

    /// The count in the first response after the start, which includes that probe.
    pub fn first_count(&self) -> u64 {
        self.first_count
    }

    /// Returns the server's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> Result<()> {
        self.process.stop(PATIENCE)
    }
}

/// Returns a port without a listener. If another process takes this port before the server does,
/// the server reports this.
pub(crate) fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::command("bind 127.0.0.1:0", format!("no free port: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_program() {
        let program = Program::parse("my server=bin/x -p {port} -s={state}").unwrap();
        assert_eq!(program.subject, "my server");
        assert_eq!(program.command, ["bin/x", "-p", "{port}", "-s={state}"]);
        assert!(Program::parse("bin/x {port}").is_err());
        assert!(Program::parse("x=bin/x {port}").is_err());
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let error = |command: &str| {
            let program = Program::new("s", command);
            program.start(folder.path(), None, None).unwrap_err().to_string()
        };
        let missing = error("no-such-program-here {port} {state}");
        assert!(missing.contains("cannot be started"), "{missing}");
        let ended = error("ls --no-such-option {port} {state}");
        assert!(ended.contains("at its start\nls: "), "{ended}");
    }
}
