//! Tests of the compression of remote write requests, including restarts with another setting.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use quipu_wire::remote::write::WriteVersion::{One, Two};

use crate::common::{Client, Daemon, Home, wait_until};
use crate::outputs::{Receiver, Reply, Request, daemon_url, import};

/// A series that every snapshot contains.
const PROBE: &str = "quipu_keys_capacity";

fn compressed<'a>(url: &'a str, how: &'a str) -> [&'a str; 6] {
    ["--remote-write", url, "--remote-write-interval", "200ms", "--remote-write-compression", how]
}

fn metric(daemon: &Daemon, name: &str, url: &str) -> f64 {
    daemon.sample(&format!("quipu_remote_write_{name}{{receiver=\"{url}\"}}"))
}

/// Returns the times of the accepted samples of the probe, in order. No time may occur twice.
fn times(requests: &[Request], is_taken: impl Fn(&Request) -> bool) -> Vec<i64> {
    let taken = requests.iter().filter(|request| is_taken(request));
    let mut seen = HashSet::new();
    let mut times = Vec::new();
    for sample in taken.flat_map(|request| &request.samples) {
        assert!(seen.insert((sample.series.clone(), sample.timestamp_ms)), "{sample:?} twice");
        if sample.series == PROBE {
            times.push(sample.timestamp_ms);
        }
    }
    times
}

#[test]
fn zstd_goes_to_receivers_of_both_versions() {
    // The possible responses of 1.0 receivers to a 2.0 request. For example, VictoriaMetrics
    // returns 204 but stores nothing.
    for to_version_2 in [Reply::Taken, Reply::Status(204, ""), Reply::Status(415, "")] {
        let home = Home::new();
        let receiver = Receiver::start(&home, 0, move |_, request| match request.version {
            Two => to_version_2,
            _ => Reply::Status(204, ""),
        });
        let daemon = home.start(&compressed(&receiver.url, "zstd"));
        import(&daemon, 4);
        wait_until("requests", || receiver.see(<[Request]>::len) > 5);
        receiver.expect("hits_total", 4.0);
        let version = if to_version_2 == Reply::Taken { Two } else { One };
        receiver.see(|requests| {
            let first = requests.iter().position(|request| request.version == version).unwrap();
            assert!(requests[first..].iter().all(|one| one.is_zstd && one.version == version));
            // All requests of the first snapshot were accepted in the end.
            let times = times(requests, |request| request.version == version);
            assert_eq!(times[0], requests[0].samples[0].timestamp_ms);
        });
        wait_until("a version", || metric(&daemon, "version", &receiver.url) > 0.0);
    }
}

#[test]
fn another_daemon_takes_zstd() {
    let home = Home::new();
    let other = home.start(&["--state", "other.quipu"]);
    let rules = "write_relabel_configs:\n\
                 - {source_labels: [__name__], regex: 'quipu_.*', action: drop}\n";
    fs::write(home.path("write.yml"), rules).unwrap();
    let url = format!("http://{}/api/v1/write", other.address());
    let flags = compressed(&url, "zstd");
    let daemon = home.start(&[&flags[..], &["--remote-write-relabel", "write.yml"]].concat());
    import(&daemon, 1);
    import(&daemon, 5);
    wait_until("the total", || other.get("/metrics").text().contains("hits_total 5\n"));
    wait_until("a version", || metric(&daemon, "version", &url) > 1.5);
    let text = daemon.get("/metrics").text();
    let refused = format!("quipu_remote_write_requests_total{{receiver=\"{url}\",code=\"4");
    assert!(!text.contains(&refused), "{text}");
}

#[test]
fn requests_on_the_disk_keep_their_compression() {
    const PORT: u16 = 18095;
    for (before, after) in [("zstd", "snappy"), ("snappy", "zstd"), ("zstd", "zstd")] {
        let home = Home::new();
        let url = daemon_url(&home, PORT);
        let flags = |how| [&compressed(&url, how)[..], &["--remote-write-queue", "disk"]].concat();
        let daemon = home.start(&flags(before));
        import(&daemon, 1);
        wait_until("a queue", || metric(&daemon, "queue_requests", &url) >= 4.0);
        daemon.kill();
        let receiver = Receiver::start(&home, PORT, |_, _| Reply::Taken);
        let daemon = home.start(&flags(after));
        let kept = daemon.wait_for("requests wait in the queue")["requests"].as_u64().unwrap();
        assert!(kept >= 4);
        wait_until("new samples", || {
            let is_new = |requests: &[Request]| times(requests, |_| true).len() as u64 > kept;
            receiver.see(is_new) && metric(&daemon, "queue_requests", &url) < 0.5
        });
        daemon.stop();
        receiver.see(|requests| {
            assert!(times(requests, |_| true).len() as u64 > kept);
            let has = |request: &&Request| request.is_zstd == (before == "zstd");
            let unchanged = requests.iter().filter(has).count();
            let expected = if before == after { requests.len() } else { kept as usize };
            assert_eq!(unchanged, expected);
        });
    }
}

/// You can run this test with `make judge-victoria-metrics`.
#[test]
#[ignore = "needs VictoriaMetrics, which takes five minutes to build"]
fn victoria_metrics_takes_zstd() {
    let program = std::env::var_os("VICTORIA_METRICS").expect("the path of VictoriaMetrics");
    let home = Home::new();
    let address: SocketAddr = format!("{}:18428", home.host()).parse().unwrap();
    let url = daemon_url(&home, address.port());
    let mut flags = compressed(&url, "zstd").to_vec();
    flags[3] = "1s";
    let daemon = home.start(&[&flags[..], &["--remote-write-queue", "disk"]].concat());
    import(&daemon, 1);
    wait_until("a queue", || metric(&daemon, "queue_requests", &url) >= 3.0);
    let mut command = Command::new(program);
    command.arg(format!("-httpListenAddr={address}"));
    command.arg(format!("-storageDataPath={}", home.path("victoria").display()));
    let _victoria = home.spawn(command);
    let get = |path: &str| {
        let response = Client::connect(address).ok()?.request("GET", path).ok()?;
        (response.status == 200).then(|| response.text())
    };
    wait_until("an empty queue", || metric(&daemon, "queue_requests", &url) < 0.5);
    import(&daemon, 7);
    // Wait for a snapshot that contains this total.
    let last = "\nquipu_remote_write_last_sent_timestamp_seconds{";
    wait_until("a snapshot", || daemon.get("/metrics").text().contains(last));
    let sent = metric(&daemon, "last_sent_timestamp_seconds", &url);
    wait_until("snapshots", || metric(&daemon, "last_sent_timestamp_seconds", &url) > sent + 1.5);
    assert!((metric(&daemon, "version", &url) - 1.0).abs() < 0.5);
    let text = daemon.get("/metrics").text();
    let refused = format!("quipu_remote_write_requests_total{{receiver=\"{url}\",code=\"4");
    assert!(!text.contains(&refused), "{text}");
    daemon.stop();
    let exported = |series: &str| {
        let mut line = None;
        // New samples can be searched after a second.
        wait_until(series, || {
            let text = get(&format!("/api/v1/export?match[]={series}")).unwrap_or_default();
            let row: Option<serde_json::Value> = serde_json::from_str(text.trim()).ok();
            let numbers = |key: &str| -> Option<Vec<f64>> {
                row.as_ref()?[key].as_array()?.iter().map(serde_json::Value::as_f64).collect()
            };
            line = numbers("timestamps").zip(numbers("values"));
            line.as_ref().is_some_and(|(times, _)| times.last() > Some(&((sent + 1.0) * 1e3)))
        });
        line.unwrap()
    };
    // The last time belongs to the snapshot at the stop.
    let (times, _) = exported(PROBE);
    let whole = &times[..times.len() - 1];
    assert!(whole.len() >= 4, "{times:?}");
    assert!(whole.windows(2).all(|pair| (pair[1] - pair[0] - 1000.0).abs() < 0.5), "{times:?}");
    let (_, values) = exported("hits_total");
    assert_eq!((values[0], values[values.len() - 1]), (1.0, 7.0), "{values:?}");
}
