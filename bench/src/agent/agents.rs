//! The programs that show and send the metrics of other programs: quipu and its peers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Bench, CORE, PATIENCE};
use crate::server::{self, Process, free_port};
use crate::{Error, Result};

/// A program that collects the metrics of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// The daemon of quipu.
    Quipu,
    /// Prometheus' node exporter, which shows `.prom` files.
    NodeExporter,
    /// VictoriaMetrics' agent, which scrapes and sends.
    Vmagent,
    /// A server in Python that shows the files of prometheus_client in multi-process mode.
    Python,
}

impl Program {
    /// Returns the program's name with the version that `make/bench.mk` builds.
    pub(super) fn with_version(self) -> &'static str {
        match self {
            Program::Quipu => "quipu",
            Program::NodeExporter => "node_exporter 1.9.1",
            Program::Vmagent => "vmagent 1.143.0",
            Program::Python => "prometheus_client 0.26.0, multi-process",
        }
    }

    fn path(self, bench: &Bench) -> PathBuf {
        match self {
            Program::Quipu => bench.quipu.clone(),
            Program::NodeExporter => bench.peers.join("node_exporter"),
            Program::Vmagent => bench.peers.join("vmagent"),
            Program::Python => bench.python.clone(),
        }
    }

    /// Returns the command that starts the program, without the options of a subject.
    fn command(self, bench: &Bench, port: u16, folder: &Path) -> Vec<String> {
        let path = self.path(bench).display().to_string();
        let address = format!("127.0.0.1:{port}");
        match self {
            Program::Quipu => vec![
                path,
                "serve".into(),
                format!("--listen={address}"),
                format!("--state={}", folder.join("state.quipu").display()),
                "--log-level=warn".into(),
            ],
            Program::NodeExporter => vec![
                path,
                format!("--web.listen-address={address}"),
                "--web.disable-exporter-metrics".into(),
                "--collector.disable-defaults".into(),
                "--collector.textfile".into(),
                "--log.level=warn".into(),
            ],
            Program::Vmagent => {
                vec![path, format!("-httpListenAddr={address}"), "-loggerLevel=WARN".into()]
            }
            Program::Python => vec![path, script(), "serve".into(), port.to_string()],
        }
    }

    /// Starts the program on the first core with options, and waits until it responds. Its own
    /// files are in a folder.
    pub(super) fn start(self, bench: &Bench, folder: &Path, options: &[String]) -> Result<Running> {
        let path = self.path(bench);
        if !path.is_file() {
            let missing = "it is not built: run `make bench-agent`";
            return Err(Error::file("start", &path)(std::io::Error::other(missing)));
        }
        fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
        let port = free_port()?;
        let mut words = self.command(bench, port, folder);
        words.extend(options.iter().cloned());
        let process = Process::start(&words, Some(CORE), folder, &folder.join("log"))?;
        let running = Running { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
        let begun = Instant::now();
        while server::get(running.address, "/metrics", PATIENCE).is_err() {
            if let Some(status) = running.process.ended() {
                return Err(running.process.failed(&format!("ended with {status} at its start")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(running.process.failed("does not respond"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }
}

/// The program in Python that writes and shows files of prometheus_client.
pub(super) fn script() -> String {
    crate::root().join("bench/peers/python/multi_process.py").display().to_string()
}

/// A running program. Dropping this kills the program.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
}

impl Running {
    /// Returns the exposition of the program.
    pub(super) fn metrics(&self) -> Result<Vec<u8>> {
        server::get(self.address, "/metrics", PATIENCE)
            .map_err(|error| self.process.failed(&format!("GET /metrics: {error}")))
    }
}
