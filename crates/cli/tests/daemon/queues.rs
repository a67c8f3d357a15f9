//! Tests of remote write requests on the disk, during outages of the receiver and after kills of
//! the daemon.

use std::fs;
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{Home, wait_until};
use crate::kept::Prometheus;
use crate::outputs::{Receiver, Reply, Request, daemon_url, import};

/// A series that every snapshot contains. Its samples show which snapshots arrived.
const PROBE: &str = "quipu_keys_capacity";

/// Returns the sorted times of the samples of a series, from all requests, whatever the receiver
/// responded.
fn times(receiver: &Receiver, series: &str) -> Vec<i64> {
    receiver.see(|requests| {
        let samples = requests.iter().flat_map(|request| &request.samples);
        let times = samples.filter(|sample| sample.series == series);
        let mut times: Vec<i64> = times.map(|sample| sample.timestamp_ms).collect();
        times.sort_unstable();
        times
    })
}

/// Returns the flags of a queue on the disk.
fn queued(url: &str) -> [&str; 6] {
    ["--remote-write", url, "--remote-write-interval", "200ms", "--remote-write-queue", "disk"]
}

#[test]
fn a_queue_brings_all_samples_of_an_outage_over_kills() {
    const PORT: u16 = 18091;
    let home = Home::new();
    let url = format!("http://{}:{PORT}/api/v1/write", home.host());
    let flags = queued(&url);
    let waiting = format!("quipu_remote_write_queue_requests{{receiver=\"{url}\"}}");
    let mut total = 0;
    for _ in 0..3 {
        let daemon = home.start(&flags);
        let before = daemon.sample(&waiting);
        for _ in 0..4 {
            total += 1;
            import(&daemon, total);
            let now = daemon.sample(&waiting);
            // The first request may belong to a snapshot from before the import.
            wait_until("requests in the queue", || daemon.sample(&waiting) >= now + 2.0);
        }
        assert!(daemon.sample(&waiting) >= before + 4.0);
        daemon.kill();
    }
    let folder = fs::read_dir(home.path("state.quipu.queue")).unwrap().next().unwrap();
    let name = fs::read_to_string(folder.unwrap().path().join("receiver")).unwrap();
    assert_eq!(name.trim(), url);
    let daemon = home.start(&flags);
    let logged = daemon.wait_for("requests wait in the queue");
    let kept = logged["requests"].as_u64().unwrap();
    assert!(kept >= 12, "{logged}");
    let receiver = Receiver::start(&home, PORT, |_, _| Reply::Taken);
    receiver.expect("hits_total", total as f64);
    wait_until("an empty queue", || daemon.sample(&waiting) == 0.0);
    // Each total arrived once, with a separate time.
    receiver.see(|requests| {
        let samples = requests.iter().flat_map(|request| &request.samples);
        let samples = samples.filter(|sample| sample.series == "hits_total");
        let mut rows: Vec<_> =
            samples.map(|sample| (sample.timestamp_ms, sample.value as u64)).collect();
        rows.sort_unstable();
        assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0), "{rows:?}");
        assert!(rows.iter().all(|(time, _)| time % 200 == 0), "{rows:?}");
        assert!(rows.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{rows:?}");
        rows.dedup_by_key(|(_, value)| *value);
        let values: Vec<_> = rows.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, (1..=total).collect::<Vec<_>>());
    });
    daemon.stop();
}

#[test]
fn no_snapshot_is_omitted_while_a_receiver_fails() {
    let home = Home::new();
    let is_up = Arc::new(Mutex::new(false));
    let up = Arc::clone(&is_up);
    let receiver = Receiver::start(&home, 0, move |_, _| match *up.lock().unwrap() {
        true => Reply::Taken,
        false => Reply::Status(503, "Retry-After: 1\r\n"),
    });
    // Long enough for a thread to run in each interval, however busy the machine is.
    let mut flags = queued(&receiver.url);
    flags[3] = "1s";
    let daemon = home.start(&flags);
    let name =
        |metric: &str| format!("quipu_remote_write_{metric}{{receiver=\"{}\"}}", receiver.url);
    wait_until("a queue", || daemon.sample(&name("queue_requests")) >= 4.0);
    assert!(daemon.sample(&name("queue_oldest_age_seconds")) > 0.0);
    assert!(daemon.sample(&name("queue_size_bytes")) > 0.0);
    receiver.requests.lock().unwrap().clear();
    *is_up.lock().unwrap() = true;
    wait_until("an empty queue", || daemon.sample(&name("queue_requests")) == 0.0);
    daemon.stop();
    // The last time belongs to the snapshot at the stop.
    let mut times = times(&receiver, PROBE);
    times.pop();
    assert!(
        times.len() >= 4 && times.windows(2).all(|pair| pair[1] - pair[0] == 1000),
        "{times:?}"
    );
}

/// After a start, the first request may take several seconds, and this receiver does not respond.
#[test]
fn no_snapshot_is_omitted_while_a_request_gets_no_response() {
    let home = Home::new();
    let is_up = Arc::new((Mutex::new(false), Condvar::new()));
    let up = Arc::clone(&is_up);
    let wait = move || {
        let (is_up, changed) = &*up;
        drop(changed.wait_while(is_up.lock().unwrap(), |is_up| !*is_up).unwrap());
    };
    let receiver = Receiver::start_slow(&home, 0, wait, |_, _| Reply::Taken);
    let mut flags = queued(&receiver.url);
    flags[3] = "1s";
    let daemon = home.start(&flags);
    let name = format!("quipu_remote_write_queue_requests{{receiver=\"{}\"}}", receiver.url);
    wait_until("a queue", || daemon.sample(&name) >= 8.0);
    // Forget the requests that were cut off.
    receiver.requests.lock().unwrap().clear();
    *is_up.0.lock().unwrap() = true;
    is_up.1.notify_all();
    wait_until("an empty queue", || daemon.sample(&name) == 0.0);
    daemon.stop();
    let mut times = times(&receiver, PROBE);
    times.pop();
    // A request with a late response was sent again.
    times.dedup();
    assert!(
        times.len() >= 8 && times.windows(2).all(|pair| pair[1] - pair[0] == 1000),
        "{times:?}"
    );
}

#[test]
fn requests_of_the_queue_that_a_receiver_refuses_are_dropped() {
    let home = Home::new();
    let opened = Arc::new(Mutex::new(None::<i64>));
    let open = Arc::clone(&opened);
    // Behaves like a Prometheus that is up again but rejects late samples.
    let receiver = Receiver::start(&home, 0, move |_, request| {
        let time = request.samples[0].timestamp_ms;
        match *open.lock().unwrap() {
            None => Reply::Cut,
            Some(first) if time < first => Reply::Status(400, ""),
            Some(_) => Reply::Taken,
        }
    });
    let daemon = home.start(&queued(&receiver.url));
    let name =
        |metric: &str| format!("quipu_remote_write_{metric}{{receiver=\"{}\"}}", receiver.url);
    wait_until("a queue", || daemon.sample(&name("queue_requests")) >= 2.0);
    let last = receiver.see(|requests| requests.last().unwrap().samples[0].timestamp_ms);
    *opened.lock().unwrap() = Some(last + 1);
    daemon.wait_for("the receiver refuses requests of the queue");
    daemon.wait_for("the receiver takes samples");
    let dropped = format!(
        "quipu_remote_write_queue_dropped_samples_total{{receiver=\"{}\",reason=\"refused\"}}",
        receiver.url
    );
    assert!(daemon.sample(&dropped) > 0.0);
    wait_until("an empty queue", || daemon.sample(&name("queue_requests")) == 0.0);
}

#[test]
fn a_refusal_that_is_not_about_samples_drops_nothing() {
    let home = Home::new();
    let opened = Arc::new(Mutex::new(None::<i64>));
    let responses = Arc::new(Mutex::new(Vec::<(i64, bool)>::new()));
    let (open, given) = (Arc::clone(&opened), Arc::clone(&responses));
    // Accepts new samples, and older ones after it refused three requests with older samples.
    let receiver = Receiver::start(&home, 0, move |_, request| {
        let time = request.samples[0].timestamp_ms;
        let mut given = given.lock().unwrap();
        let refused = given.iter().filter(|(_, is_taken)| !*is_taken).count();
        match *open.lock().unwrap() {
            None => Reply::Cut,
            Some(first) if time < first && refused < 3 => {
                given.push((time, false));
                Reply::Status(401, "")
            }
            Some(_) => {
                given.push((time, true));
                Reply::Taken
            }
        }
    });
    let daemon = home.start(&queued(&receiver.url));
    let name =
        |metric: &str| format!("quipu_remote_write_{metric}{{receiver=\"{}\"}}", receiver.url);
    wait_until("a queue", || daemon.sample(&name("queue_requests")) >= 4.0);
    let last = receiver.see(|requests| requests.last().unwrap().samples[0].timestamp_ms);
    *opened.lock().unwrap() = Some(last + 1);
    daemon.wait_for("the receiver refuses requests of the queue, which wait");
    let refused = || {
        let responses = responses.lock().unwrap();
        let times = responses.iter().filter(|(_, is_taken)| !*is_taken);
        times.map(|(time, _)| *time).collect::<Vec<_>>()
    };
    wait_until("refusals", || refused().len() == 3);
    wait_until("an empty queue", || daemon.sample(&name("queue_requests")) == 0.0);
    // New requests that had to wait may be refused, too.
    for time in refused() {
        assert!(responses.lock().unwrap().contains(&(time, true)), "{time}");
    }
    let dropped = format!(
        "quipu_remote_write_queue_dropped_samples_total{{receiver=\"{}\",reason=\"refused\"}}",
        receiver.url
    );
    assert_eq!(daemon.sample(&dropped).to_bits(), 0_f64.to_bits());
}

#[test]
fn a_request_that_always_fails_does_not_hold_up_others() {
    let home = Home::new();
    let is_stuck =
        |request: &Request| request.samples.iter().any(|sample| sample.series == "filler{n=\"0\"}");
    let receiver = Receiver::start(&home, 0, move |_, request| match is_stuck(request) {
        true => Reply::Status(500, ""),
        false => Reply::Taken,
    });
    let daemon = home.start(&queued(&receiver.url));
    let text = (0..25_000).map(|n| format!("filler{{n=\"{n}\"}} 1\n")).collect::<String>();
    let text = format!("# TYPE filler gauge\n{text}");
    let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
    let counts = || {
        receiver.see(|requests| {
            let stuck = requests.iter().filter(|request| is_stuck(request)).count();
            let others = requests.iter().flat_map(|request| &request.samples);
            (stuck, others.filter(|sample| sample.series == "filler{n=\"24999\"}").count())
        })
    };
    wait_until("requests of many snapshots", || counts().0 >= 6 && counts().1 >= 6);
    let waiting = format!("quipu_remote_write_queue_requests{{receiver=\"{}\"}}", receiver.url);
    assert!(daemon.sample(&waiting) > 0.0);
}

#[test]
fn two_daemons_do_not_share_a_queue() {
    let home = Home::new();
    let url = format!("http://{}:9/", home.host());
    let mut flags = queued(&url).to_vec();
    flags.extend(["--remote-write-queue-directory", "shared"]);
    let _first = home.start(&flags);
    flags.extend(["--state", "other.quipu"]);
    let listen = format!("{}:0", home.host());
    flags.extend(["--listen", &listen]);
    let refused =
        ["another daemon has", "give each daemon its own by --remote-write-queue-directory"];
    home.expect_refusal(&flags, 1, &refused);
}

#[test]
fn a_real_prometheus_takes_the_queue_of_an_outage() {
    let home = Home::new();
    let url = daemon_url(&home, 19090);
    let waiting = format!("quipu_remote_write_queue_requests{{receiver=\"{url}\"}}");
    let daemon = home.start(&queued(&url));
    import(&daemon, 1);
    wait_until("a queue", || daemon.sample(&waiting) >= 6.0);
    daemon.kill();
    let daemon = home.start(&queued(&url));
    let kept = daemon.wait_for("requests wait in the queue")["requests"].as_f64().unwrap();
    let config = "storage: {tsdb: {out_of_order_time_window: 1h}}\n";
    let prometheus = Prometheus::launch(&home, config, &["--web.enable-remote-write-receiver"]);
    wait_until("an empty queue", || daemon.sample(&waiting) == 0.0);
    let count = prometheus.query(&format!("count_over_time({PROBE}[1h])"));
    assert!(kept >= 6.0 && count >= Some(kept + 1.0), "{count:?} of {kept}");
    let dropped = "quipu_remote_write_queue_dropped_samples_total";
    let refused = format!("{dropped}{{receiver=\"{url}\",reason=\"refused\"}}");
    assert_eq!(daemon.sample(&refused).to_bits(), 0_f64.to_bits());
}
