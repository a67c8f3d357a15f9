//! The subjects of the daemon benchmark: how quipu and its peers are started, and the requests that
//! they support.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::exposition::Shown;
use super::packets::Sent;
use super::{Bench, CORE};
use crate::server::{self, Process, free_port};
use crate::{Error, Result};

/// The longest wait for a subject to start, to stop, or to complete its work. The slowest is
/// Pushgateway with 10,000 groups.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// A program that accepts metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// quipu.
    Quipu,
    /// Prometheus' bridge from StatsD.
    StatsdExporter,
    /// The original server of StatsD, for Node.js.
    Statsd,
    /// Prometheus' Pushgateway.
    Pushgateway,
    /// VictoriaMetrics' agent, which aggregates.
    Vmagent,
    /// VictoriaMetrics, which stores.
    VictoriaMetrics,
}

impl Program {
    /// All peers.
    pub const PEERS: [Program; 5] = [
        Program::StatsdExporter,
        Program::Statsd,
        Program::Pushgateway,
        Program::Vmagent,
        Program::VictoriaMetrics,
    ];

    /// Returns its name, which is also the name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Program::Quipu => "quipu",
            Program::StatsdExporter => "statsd_exporter",
            Program::Statsd => "statsd",
            Program::Pushgateway => "pushgateway",
            Program::Vmagent => "vmagent",
            Program::VictoriaMetrics => "victoria-metrics",
        }
    }

    /// Returns its name with the version that `make/bench.mk` builds.
    pub fn with_version(self) -> &'static str {
        match self {
            Program::Quipu => "quipu",
            Program::StatsdExporter => "statsd_exporter 0.31.0",
            Program::Statsd => "statsd 0.9.0",
            Program::Pushgateway => "pushgateway 1.11.1",
            Program::Vmagent => "vmagent 1.143.0",
            Program::VictoriaMetrics => "victoria-metrics 1.143.0",
        }
    }

    /// Returns the path of its file, which must exist.
    pub fn path(self, bench: &Bench) -> PathBuf {
        match self {
            Program::Quipu => bench.quipu.clone(),
            Program::Statsd => bench.peers.join("node_modules/statsd/stats.js"),
            _ => bench.peers.join(self.name()),
        }
    }

    /// Returns its command, without the options of a subject.
    fn command(self, bench: &Bench, ports: Ports, folder: &Path) -> Vec<String> {
        let path = self.path(bench).display().to_string();
        let in_folder = |name: &str| folder.join(name).display().to_string();
        let http = format!("127.0.0.1:{}", ports.http);
        match self {
            Program::Quipu => vec![
                path,
                "serve".into(),
                format!("--listen={http}"),
                format!("--state={}", in_folder("state.quipu")),
                "--log-level=warn".into(),
                // The default is 1,000,000, which some loads reach.
                "--series=2000000".into(),
            ],
            Program::StatsdExporter => vec![
                path,
                format!("--web.listen-address={http}"),
                format!("--statsd.listen-udp=127.0.0.1:{}", ports.udp),
                "--statsd.listen-tcp=".into(),
                // The size that quipu requests by default.
                "--statsd.read-buffer=4194304".into(),
                "--log.level=warn".into(),
            ],
            Program::Statsd => vec!["node".into(), path, in_folder("statsd.js")],
            Program::Pushgateway => {
                vec![path, format!("--web.listen-address={http}"), "--log.level=warn".into()]
            }
            Program::Vmagent => vec![
                path,
                format!("-httpListenAddr={http}"),
                // No process listens there, because aggregates are written only after the end of an
                // interval, and no turn reaches it.
                "-remoteWrite.url=http://127.0.0.1:9/".into(),
                format!("-remoteWrite.tmpDataPath={}", in_folder("vmagent")),
                format!("-streamAggr.config={}", in_folder("aggregate.yml")),
                "-loggerLevel=WARN".into(),
            ],
            Program::VictoriaMetrics => vec![
                path,
                format!("-httpListenAddr={http}"),
                format!("-storageDataPath={}", in_folder("victoria")),
                "-loggerLevel=WARN".into(),
            ],
        }
    }
}

/// A program with options.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) program: Program,
    /// The subject of its records.
    pub(super) name: String,
    /// The options. `{folder}` is the folder of its files, and `{udp}` the port for StatsD.
    options: Vec<String>,
}

impl Subject {
    pub(super) fn new(program: Program, options: &[&str]) -> Subject {
        let options = options.iter().map(|option| option.to_string()).collect();
        Subject { program, name: program.with_version().into(), options }
    }

    /// Adds a variant to its name: `quipu (after a kill)`.
    pub(super) fn variant(mut self, variant: &str) -> Subject {
        self.name = format!("{} ({variant})", self.name);
        self
    }

    /// Starts it on the first core with its files in a folder, and waits until it is ready.
    pub(super) fn start(&self, bench: &Bench, folder: &Path) -> Result<Running> {
        let ports = Ports { http: free_port()?, udp: free_udp_port()? };
        write_files(folder, ports)?;
        let mut words = self.program.command(bench, ports, folder);
        let (directory, udp) = (folder.display().to_string(), ports.udp.to_string());
        words.extend(
            self.options
                .iter()
                .map(|option| option.replace("{folder}", &directory).replace("{udp}", &udp)),
        );
        let started = Instant::now();
        let process = Process::start(&words, Some(CORE), folder, &folder.join("log"))?;
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Running {
            program: self.program,
            process,
            http: local(ports.http),
            udp: local(ports.udp),
            started_in: Duration::ZERO,
        };
        while !running.is_ready() {
            if let Some(status) = running.process.ended() {
                let problem = format!("ended with {status} at its start");
                return Err(running.process.failed(&problem));
            }
            if started.elapsed() > PATIENCE {
                return Err(running.process.failed("is not ready"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        running.started_in = started.elapsed();
        Ok(running)
    }
}

#[derive(Clone, Copy)]
struct Ports {
    /// The port of HTTP, or of the console of the server for Node.js.
    http: u16,
    udp: u16,
}

/// The buckets of client_golang, for both: 11, and the one without a bound.
const MAPPING: &str = "defaults:
  observer_type: histogram
  histogram_options:
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
";

const AGGREGATION: &str = "- interval: 10m
  no_align_flush_to_interval: true
  by: [service, route, code]
  outputs: [total]
";

/// Writes the settings files of the subjects.
fn write_files(folder: &Path, ports: Ports) -> Result<()> {
    let statsd = format!(
        "{{ port: {}, address: '127.0.0.1', mgmt_port: {}, mgmt_address: '127.0.0.1', \
         backends: [], flushInterval: 3600000 }}\n",
        ports.udp, ports.http
    );
    for (name, text) in
        [("histograms.yml", MAPPING), ("aggregate.yml", AGGREGATION), ("statsd.js", &statsd)]
    {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

/// A running subject. Dropping this kills the subject.
#[derive(Debug)]
pub(super) struct Running {
    program: Program,
    pub(super) process: Process,
    pub(super) http: SocketAddr,
    pub(super) udp: SocketAddr,
    /// The time from its start until it was ready.
    pub(super) started_in: Duration,
}

impl Running {
    /// Returns the body of a response to a GET.
    pub(super) fn get(&self, target: &str) -> Result<Vec<u8>> {
        server::get(self.http, target, PATIENCE)
            .map_err(|error| self.process.failed(&format!("GET {target}: {error}")))
    }

    /// Returns its exposition.
    pub(super) fn metrics(&self) -> Result<Vec<u8>> {
        self.get("/metrics")
    }

    /// Stops it in an orderly way.
    pub(super) fn stop(self) -> Result<()> {
        self.process.stop(PATIENCE)
    }

    /// Waits until it is idle: until it uses no processor time.
    pub(super) fn settle(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(200);
        // Even an idle process can use a clock tick.
        const IDLE: Duration = Duration::from_millis(10);
        let began = Instant::now();
        loop {
            let before = self.process.cpu_time()?;
            std::thread::sleep(LOOK);
            if self.process.cpu_time()?.saturating_sub(before) <= IDLE {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(self.process.failed("does not come to rest"));
            }
        }
    }

    /// Returns the number of countable lines that it shows. The server for Node.js counts all
    /// lines.
    pub(super) fn countable(&self) -> Result<f64> {
        if self.program == Program::Statsd {
            let text = self.console("counters")?;
            let name = "'statsd.metrics_received':";
            let after = text.split_once(name).map(|(_, after)| after.trim_start());
            let digits = after.and_then(|text| text.split(|c: char| !c.is_ascii_digit()).next());
            let lines = digits.and_then(|digits| digits.parse().ok());
            return lines.ok_or_else(|| self.process.failed("its console shows no count of lines"));
        }
        Ok(Shown::of(&self.metrics()?).countable)
    }

    /// Returns the growth of `countable` if no line is lost.
    pub(super) fn expected(&self, sent: &Sent) -> u64 {
        if self.program == Program::Statsd { sent.lines } else { sent.countable }
    }

    fn is_ready(&self) -> bool {
        if self.program == Program::Statsd {
            return self.console("health").is_ok();
        }
        server::get(self.http, "/-/ready", PATIENCE).is_ok()
    }

    /// Returns the response of the console of the server for Node.js.
    fn console(&self, command: &str) -> Result<String> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.http, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{command}\n").as_bytes())?;
            // A response contains no length; the response to `counters` ends with a line.
            let mut text = Vec::new();
            let mut chunk = [0; 65_536];
            while !text.ends_with(b"END\n\n") && !text.starts_with(b"health: ") {
                match stream.read(&mut chunk)? {
                    0 => break,
                    read => text.extend_from_slice(&chunk[..read]),
                }
            }
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        ask().map_err(|error| self.process.failed(&format!("its console: {error}")))
    }
}

/// Returns a UDP port without a listener.
fn free_udp_port() -> Result<u16> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::command("bind 127.0.0.1:0", format!("no free port: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_command_with_its_own_ports_and_files() {
        let bench = Bench {
            quipu: "q/quipu".into(),
            peers: "p".into(),
            chosen: Vec::new(),
            disk: "d".into(),
            plan: super::super::Plan::quick(),
        };
        let ports = Ports { http: 4001, udp: 4002 };
        for program in Program::PEERS.into_iter().chain([Program::Quipu]) {
            let line = program.command(&bench, ports, Path::new("f")).join(" ");
            assert!(line.contains(&program.path(&bench).display().to_string()), "{line}");
            let is_told = program == Program::Statsd || line.contains("127.0.0.1:4001");
            assert!(is_told, "{line}");
            assert!(program.with_version().starts_with(program.name()), "{program:?}");
        }
    }
}
