//! Helpers for the tests of line protocols, for example StatsD and Graphite.

use std::path::PathBuf;

use super::{Daemon, Home, wait_until};

/// The listeners of one protocol, on each transport.
pub(crate) struct Listeners {
    arguments: Vec<String>,
    /// The path of the socket for datagrams.
    pub(crate) datagrams: PathBuf,
    /// The path of the socket for connections.
    pub(crate) stream: PathBuf,
}

impl Listeners {
    /// Creates the listeners of the protocol with this flag, at this port of the home's address.
    pub(crate) fn new(home: &Home, flag: &str, port: u16) -> Listeners {
        let (datagrams, stream) = (home.path("datagrams"), home.path("stream"));
        let addresses = [
            format!("udp://{}:{port}", home.host()),
            format!("tcp://{}:{port}", home.host()),
            format!("unixgram:{}", datagrams.display()),
            format!("unix:{}", stream.display()),
        ];
        let arguments = addresses.into_iter().flat_map(|address| [format!("--{flag}"), address]);
        Listeners { arguments: arguments.collect(), datagrams, stream }
    }

    /// Starts a daemon with these listeners.
    pub(crate) fn start(&self, home: &Home) -> Daemon {
        home.start(&self.arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns whether the two sockets exist.
    pub(crate) fn sockets_exist(&self) -> [bool; 2] {
        [&self.datagrams, &self.stream].map(|path| path.exists())
    }
}

/// Returns all samples of the exposition except the daemon's own, sorted.
pub(crate) fn shown(daemon: &Daemon) -> Vec<String> {
    let text = daemon.get("/metrics").text();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("quipu_"));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits until the listeners of the protocol with this flag have received this many lines.
pub(crate) fn wait_for_lines(daemon: &Daemon, flag: &str, lines: f64) {
    let metric = format!("quipu_{flag}_lines_total{{");
    wait_until("the lines come in", || {
        let text = daemon.get("/metrics").text();
        let lines_of = |line: &str| {
            let value = line.strip_prefix(&metric)?.split(' ').nth(1)?;
            value.parse::<f64>().ok()
        };
        text.lines().filter_map(lines_of).sum::<f64>() >= lines
    });
}
