//! Lets a real Prometheus watch the received metrics while senders restart and the daemon is
//! killed. Each increment must count exactly once, in series that only grow.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::{Client, Daemon, Home, program, wait_until};

const KILLS: u64 = 5;
/// The number of answered requests per sender before a kill, and of arrived packets.
const BEFORE_A_KILL: u64 = 40;

const IMPORT: &str = "/api/v1/import/prometheus";
const PUSH: &str = "/metrics/job/batch?mode=add";

/// A running Prometheus.
pub(crate) struct Prometheus {
    address: SocketAddr,
    _process: Daemon,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes the daemon.
    fn start(home: &Home, target: &str) -> Prometheus {
        let config = format!(
            "global: {{scrape_interval: 200ms}}\n\
             scrape_configs: [{{job_name: quipu, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        Prometheus::launch(home, &config, &[])
    }

    /// Starts a Prometheus with this configuration and these flags.
    pub(crate) fn launch(home: &Home, text: &str, flags: &[&str]) -> Prometheus {
        let config = home.path("prometheus.yml");
        fs::write(&config, text).unwrap();
        let address = format!("{}:19090", home.host());
        let mut command = Command::new(program("prometheus", "prometheus"));
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", home.path("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(flags);
        Prometheus { address: address.parse().unwrap(), _process: home.spawn(command) }
    }

    /// Returns the value of a query with one result; `None` as long as there is no result.
    pub(crate) fn query(&self, query: &str) -> Option<f64> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut client = Client::connect(self.address).ok()?;
        let response = client.request("GET", &format!("/api/v1/query?query={query}")).ok()?;
        // The status differs before Prometheus is ready.
        let response = (response.status == 200).then(|| response.json())?;
        let result = &response["data"]["result"];
        assert!(result.as_array().is_none_or(|series| series.len() <= 1), "{result}");
        result[0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits for the value of a counter, and checks that it grew from 0 to this value without a
    /// reset.
    #[track_caller]
    fn expect_increase(&self, name: &str, total: u64) {
        let mut last = None;
        wait_until(&format!("{name} at {total}"), || {
            last = self.query(name);
            last == Some(total as f64)
        });
        let increase = format!("max_over_time({name}[1h]) - min_over_time({name}[1h])");
        assert_eq!(self.query(&increase), Some(total as f64), "{name}");
        assert_eq!(self.query(&format!("resets({name}[1h])")), Some(0.0), "{name}");
    }
}

/// Sends a body for each number from 1 on, until the daemon is gone. Returns the last sent number,
/// which the daemon may or may not have counted.
fn send_until_killed(
    address: SocketAddr,
    target: &str,
    body: impl Fn(u64) -> String,
    answered: &AtomicU64,
) -> u64 {
    let mut client = Client::connect(address).unwrap();
    let mut number = 1;
    while let Ok(response) = client.post(target, &[], body(number).as_bytes()) {
        assert!(response.status < 300, "{response:?}");
        answered.store(number, Ordering::SeqCst);
        number += 1;
    }
    number
}

fn import(total: u64) -> String {
    format!("# TYPE imported_total counter\nimported_total {total}\n")
}

fn push(increment: u64) -> String {
    format!("# TYPE pushed_total counter\npushed_total {increment}\n")
}

#[track_caller]
fn post(daemon: &Daemon, target: &str, body: &str) {
    let response = daemon.post_body(target, &[], body.as_bytes());
    assert!(response.status < 300, "{response:?}");
}

#[test]
fn a_real_prometheus_sees_each_increment_once_over_kills() {
    let home = Home::new();
    let [listen, statsd] = [18081, 18125].map(|port| format!("{}:{port}", home.host()));
    let start = || home.start(&["--listen", &listen, "--statsd", &format!("udp://{statsd}")]);
    let mut daemon = start();
    let sender = UdpSocket::bind((home.host(), 0)).unwrap();
    let packets = |daemon: &Daemon| {
        let text = daemon.get("/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix("packets "));
        value.map(|value| value.parse::<f64>().unwrap())
    };
    // We start with a zero, because Prometheus computes an increase from the first sample on.
    post(&daemon, IMPORT, &import(0));
    post(&daemon, PUSH, &push(0));
    sender.send_to(b"packets:0|c", &statsd).unwrap();
    wait_until("a packet", || packets(&daemon) == Some(0.0));
    let prometheus = Prometheus::start(&home, &listen);
    for name in ["imported_total", "pushed_total", "packets"] {
        wait_until(name, || prometheus.query(name) == Some(0.0));
    }
    let (mut imported, mut received, mut pushed) = (0, 0, 0);
    for _ in 0..KILLS {
        let address = daemon.address();
        let [imports, pushes] = [AtomicU64::new(0), AtomicU64::new(0)];
        let last = thread::scope(|scope| {
            // This source starts with 1 again each time.
            let importer = scope.spawn(|| send_until_killed(address, IMPORT, import, &imports));
            let pusher = scope.spawn(|| send_until_killed(address, PUSH, |_| push(1), &pushes));
            for _ in 0..BEFORE_A_KILL {
                sender.send_to(b"packets:1|c", &statsd).unwrap();
            }
            received += BEFORE_A_KILL;
            wait_until("packets", || packets(&daemon) == Some(received as f64));
            wait_until("responses", || {
                [&imports, &pushes].iter().all(|n| n.load(Ordering::SeqCst) >= BEFORE_A_KILL)
            });
            daemon.kill();
            [importer, pusher].map(|sender| sender.join().unwrap())
        });
        daemon = start();
        // A source can repeat an unacknowledged total, but it must give up an unacknowledged
        // increment.
        post(&daemon, IMPORT, &import(last[0]));
        imported += last[0];
        let possible = pushed + pushes.load(Ordering::SeqCst)..=pushed + last[1];
        pushed = daemon.sample("pushed_total{instance=\"\",job=\"batch\"}") as u64;
        assert!(possible.contains(&pushed), "{pushed} is not in {possible:?}");
    }
    daemon.stop();
    let daemon = start();
    prometheus.expect_increase("imported_total", imported);
    prometheus.expect_increase("pushed_total", pushed);
    prometheus.expect_increase("packets", received);
    drop(daemon);
}
