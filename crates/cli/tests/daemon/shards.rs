//! Tests of remote write with several shards: they send in parallel, keep the order of each series,
//! and do not affect each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quipu_wire::remote::write::WriteVersion;

use crate::common::{Daemon, Home, wait_until};
use crate::outputs::{Receiver, Reply, Request, count, import};

/// Returns the flags for a receiver with this many shards, which gets a snapshot in each interval.
fn sharded<'a>(url: &'a str, shards: &'a str, interval: &'a str) -> [&'a str; 6] {
    ["--remote-write", url, "--remote-write-interval", interval, "--remote-write-shards", shards]
}

/// Imports this many gauges.
fn fill(daemon: &Daemon, count: usize) {
    let text = (0..count).map(|n| format!("filler{{n=\"{n}\"}} 1\n")).collect::<String>();
    let text = format!("# TYPE filler gauge\n{text}");
    let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
}

/// Returns the series on each connection.
fn by_connection(requests: &[Request]) -> BTreeMap<usize, BTreeSet<String>> {
    let mut all: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for request in requests {
        let series = request.samples.iter().map(|sample| sample.series.clone());
        all.entry(request.connection).or_default().extend(series);
    }
    all
}

/// Returns the times of the samples of each series, in the order of their arrival.
fn by_series(requests: &[Request]) -> BTreeMap<&str, Vec<i64>> {
    let mut all: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for sample in requests.iter().flat_map(|request| &request.samples) {
        all.entry(&sample.series).or_default().push(sample.timestamp_ms);
    }
    all
}

/// Returns a metric of the daemon about a receiver.
fn metric(daemon: &Daemon, name: &str, receiver: &Receiver) -> f64 {
    daemon.sample(&format!("quipu_remote_write_{name}{{receiver=\"{}\"}}", receiver.url))
}

#[test]
fn shards_send_at_once_what_was_read_at_once() {
    const SHARDS: usize = 4;
    let home = Home::new();
    // The receiver does not respond until there is a request of each shard.
    let barrier = Barrier::new(SHARDS);
    let wait = move || {
        barrier.wait();
    };
    let receiver = Receiver::start_slow(&home, 0, wait, |_, _| Reply::Taken);
    let daemon = home.start(&sharded(&receiver.url, "4", "200ms"));
    fill(&daemon, 100);
    // We send requests, because the daemon's own counts of requests change all the time.
    let mut connection = daemon.connect();
    wait_until("requests", || {
        for _ in 0..200 {
            connection.request("GET", "/").unwrap();
        }
        receiver.see(<[Request]>::len) > 20 * SHARDS
    });
    assert!(metric(&daemon, "samples_sent_total", &receiver) > 0.0);
    assert!(metric(&daemon, "last_sent_timestamp_seconds", &receiver) > 0.0);
    receiver.see(|all| {
        let connections = by_connection(all);
        assert_eq!(connections.len(), SHARDS);
        // Each series is in one shard, and its samples are in order.
        let series: BTreeSet<_> = connections.values().flatten().collect();
        assert_eq!(series.len(), connections.values().map(BTreeSet::len).sum::<usize>());
        for (series, times) in by_series(all) {
            assert!(times.iter().all(|time| time % 200 == 0), "{series}: {times:?}");
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{series}: {times:?}");
        }
        // The samples of one time are from one reading, no matter which shard sends them.
        let mut counts: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for sample in all.iter().flat_map(|request| &request.samples) {
            let part = sample.series.strip_prefix("quipu_http_request_duration_seconds_");
            if part.is_some_and(|part| part.starts_with("count") || part.contains("le=\"+Inf\"")) {
                counts.entry(sample.timestamp_ms).or_default().push(sample.value);
            }
        }
        // The last snapshot can be incomplete.
        counts.pop_last();
        assert!(counts.len() > 10);
        for (time, counts) in counts {
            assert!(counts.len() == 2 && counts[0] == counts[1], "{time}: {counts:?}");
        }
    });
    daemon.kill();
}

/// Waits until the next second of the clock.
fn wait_for_second() {
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let begun = second();
    while second() == begun {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_slow_link_takes_more_with_shards() {
    let home = Home::new();
    // No response arrives before the next snapshot is due.
    let receiver = Receiver::start_slow(&home, 0, wait_for_second, |_, _| Reply::Taken);
    let shown = |daemon: &Daemon| {
        let text = daemon.get("/metrics").text();
        text.contains("\nquipu_remote_write_last_sent_timestamp_seconds{")
    };
    let flags = |shards| sharded(&receiver.url, shards, "1s");
    // Three requests, one after the other. There is only enough time for the first one.
    let daemon = home.start(&flags("1"));
    fill(&daemon, 25_000);
    let replaced = format!(
        "quipu_remote_write_samples_dropped_total{{receiver=\"{}\",reason=\"replaced\"}}",
        receiver.url
    );
    wait_until("a replacement", || daemon.sample(&replaced) > 0.0);
    let begun = receiver.see(<[Request]>::len);
    wait_until("more requests", || receiver.see(<[Request]>::len) > begun + 2);
    receiver.see(|requests| {
        let times = requests.iter().map(|request| request.samples[0].timestamp_ms);
        let distinct: BTreeSet<i64> = times.clone().collect();
        assert_eq!(distinct.len(), requests.len(), "{:?}", times.collect::<Vec<_>>());
    });
    daemon.kill();
    let daemon = home.start(&flags("8"));
    fill(&daemon, 25_000);
    let all = || {
        receiver.see(|requests| {
            let mut each: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
            for sample in requests.iter().flat_map(|request| &request.samples) {
                each.entry(sample.timestamp_ms).or_default().insert(&sample.series);
            }
            let is_whole = |series: &BTreeSet<&str>| {
                series.iter().filter(|series| series.starts_with("filler")).count() == 25_000
            };
            each.values().any(is_whole)
        })
    };
    wait_until("all of a snapshot", all);
    wait_until("its time", || shown(&daemon));
    daemon.kill();
}

#[test]
fn a_shard_that_fails_holds_up_no_other() {
    for queue in ["latest", "disk"] {
        let home = Home::new();
        let is_stuck = |request: &Request| {
            request.samples.iter().any(|sample| sample.series == "filler{n=\"0\"}")
        };
        let receiver = Receiver::start(&home, 0, move |_, request| match is_stuck(request) {
            true => Reply::Status(500, ""),
            false => Reply::Taken,
        });
        let flags = sharded(&receiver.url, "4", "200ms");
        let daemon = home.start(&[&flags[..], &["--remote-write-queue", queue]].concat());
        fill(&daemon, 100);
        let counts = || {
            receiver.see(|requests| {
                let first = requests.iter().position(is_stuck);
                let after = &requests[first.unwrap_or(requests.len())..];
                let stuck = after.iter().filter(|request| is_stuck(request)).count();
                let taken = after.iter().filter(|request| !is_stuck(request));
                let mut times: BTreeMap<i64, usize> = BTreeMap::new();
                taken.for_each(|one| *times.entry(one.samples[0].timestamp_ms).or_default() += 1);
                (stuck, times.values().filter(|count| **count >= 3).count())
            })
        };
        // The other three shards send whole snapshots.
        wait_until("requests of many snapshots", || counts().0 >= 6 && counts().1 >= 6);
        assert!(metric(&daemon, "samples_sent_total", &receiver) > 0.0);
        // If a receiver accepts some requests and fails at others, this is logged in one line.
        assert_eq!(count(&daemon, "remote write fails"), 1);
        if queue == "disk" {
            wait_until("a queue", || metric(&daemon, "queue_requests", &receiver) > 0.0);
        } else {
            assert!(metric(&daemon, "samples_retried_total", &receiver) > 0.0);
        }
        daemon.kill();
    }
}

#[test]
fn a_mark_of_the_end_comes_from_the_shard_of_its_series() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let daemon = home.start(&sharded(&receiver.url, "4", "200ms"));
    let text = (0..40).map(|n| format!("level{{n=\"{n}\"}} 2\n")).collect::<String>();
    let text = format!("# TYPE level gauge\n{text}");
    let group = "/metrics/job/batch";
    let response = daemon.post_body(group, &[], text.as_bytes());
    assert!(response.status < 300, "{response:?}");
    let levels = |is_stale: bool| {
        receiver.see(|requests| {
            let samples = requests.iter().flat_map(|request| {
                request.samples.iter().map(|sample| (request.connection, sample))
            });
            let levels = samples.filter(|(_, sample)| sample.series.starts_with("level"));
            let levels = levels.filter(|(_, sample)| sample.is_stale == is_stale);
            levels.map(|(at, sample)| (sample.series.clone(), at)).collect::<Vec<_>>()
        })
    };
    let distinct = |is_stale| levels(is_stale).into_iter().collect::<BTreeSet<_>>();
    wait_until("samples", || distinct(false).len() == 40);
    assert!(daemon.connect().request("DELETE", group).unwrap().status < 300);
    wait_until("marks", || distinct(true).len() == 40);
    let before = receiver.see(<[Request]>::len);
    wait_until("more requests", || receiver.see(<[Request]>::len) > before + 12);
    // Each sample arrives once, on the connection of its series.
    assert_eq!((levels(true).len(), distinct(true)), (40, distinct(false)));
    daemon.stop();
}

#[test]
fn shards_learn_the_version_together() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, request| match request.version {
        WriteVersion::One => Reply::Status(204, ""),
        _ => Reply::Status(415, ""),
    });
    let daemon = home.start(&sharded(&receiver.url, "8", "200ms"));
    import(&daemon, 4);
    receiver.expect("hits_total", 4.0);
    let old = |requests: &[Request]| {
        requests.iter().filter(|request| request.version == WriteVersion::One).count()
    };
    wait_until("requests", || receiver.see(old) > 40);
    // At most the first request of each shard.
    assert!(receiver.see(|requests| requests.len() - old(requests)) <= 8);
    wait_until("a version", || metric(&daemon, "version", &receiver) == 1.0);
    receiver.see(|requests| {
        let taken = requests.iter().filter(|request| request.version == WriteVersion::One);
        let mut times: BTreeMap<(&str, i64), usize> = BTreeMap::new();
        for sample in taken.flat_map(|request| &request.samples) {
            *times.entry((&sample.series, sample.timestamp_ms)).or_default() += 1;
        }
        assert!(times.values().all(|count| *count == 1));
    });
    daemon.stop();
}

#[test]
fn the_last_snapshot_has_the_same_time_in_all_shards() {
    let home = Home::new();
    let receiver = Receiver::start(&home, 0, |_, _| Reply::Taken);
    let daemon = home.start(&sharded(&receiver.url, "4", "1000h"));
    import(&daemon, 9);
    daemon.stop();
    receiver.expect("hits_total", 9.0);
    receiver.see(|requests| {
        let samples = requests.iter().flat_map(|request| &request.samples);
        let times: BTreeSet<_> = samples.map(|sample| sample.timestamp_ms).collect();
        assert_eq!((requests.len(), times.len()), (4, 1));
    });
}

#[test]
fn a_queue_stays_in_order_over_kills_and_other_numbers_of_shards() {
    const PORT: u16 = 18095;
    let home = Home::new();
    let url = format!("http://{}:{PORT}/api/v1/write", home.host());
    let waiting = format!("quipu_remote_write_queue_requests{{receiver=\"{url}\"}}");
    let start = |shards: u32| {
        let shards = shards.to_string();
        let queue = ["--remote-write-queue", "disk"];
        home.start(&[&sharded(&url, &shards, "200ms")[..], &queue].concat())
    };
    let mut total = 0;
    for shards in [4, 1, 3] {
        let daemon = start(shards);
        fill(&daemon, 50);
        for _ in 0..3 {
            total += 1;
            import(&daemon, total);
            let now = daemon.sample(&waiting);
            // Each shard needs a request from before the import, and one after it. The shards can
            // be one snapshot apart.
            let more = f64::from(shards * 3);
            wait_until("requests in the queue", || daemon.sample(&waiting) >= now + more);
        }
        daemon.kill();
    }
    let killed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let daemon = start(2);
    let logged = daemon.wait_for("requests wait in the queue");
    assert!(logged["requests"].as_u64().unwrap() >= 3 * (4 + 1 + 3) * 3, "{logged}");
    let receiver = Receiver::start(&home, PORT, |_, _| Reply::Taken);
    receiver.expect("hits_total", total as f64);
    wait_until("an empty queue", || daemon.sample(&waiting) == 0.0);
    receiver.see(|requests| {
        // The queued requests arrived once, in order.
        for (series, mut times) in by_series(requests) {
            times.retain(|time| *time <= killed);
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{series}: {times:?}");
        }
        let samples = requests.iter().flat_map(|request| &request.samples);
        let hits = samples.filter(|sample| sample.series == "hits_total");
        let values: BTreeSet<u64> = hits.map(|sample| sample.value as u64).collect();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), (1..=total).collect::<Vec<_>>());
    });
    daemon.stop();
}

#[test]
fn a_shard_whose_new_requests_are_refused_holds_up_no_queue() {
    const PORT: u16 = 18098;
    // The receiver uses the first two statuses for all shards, and the last two for all shards but
    // one.
    for status in [409, 422, 401, 404] {
        let home = Home::new();
        let url = format!("http://{}:{PORT}/api/v1/write", home.host());
        let start = |shards: &str| {
            let queue = ["--remote-write-queue", "disk"];
            home.start(&[&sharded(&url, shards, "200ms")[..], &queue].concat())
        };
        let daemon = start("1");
        // This series belongs to shard 2.
        let text = "# TYPE hits counter\nhits_total{n=\"3\"} 1\n";
        let response = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
        assert!(response.status < 300, "{response:?}");
        let waiting = format!("quipu_remote_write_queue_requests{{receiver=\"{url}\"}}");
        wait_until("requests in the queue", || daemon.sample(&waiting) >= 4.0);
        daemon.kill();
        let killed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let is_old = move |request: &Request| request.samples[0].timestamp_ms <= killed;
        let receiver = Receiver::start(&home, PORT, move |_, request| {
            let is_other = status > 400 && status < 405 && {
                request.samples.iter().any(|sample| sample.series == "hits_total{n=\"3\"}")
            };
            match is_old(request) || is_other {
                true => Reply::Taken,
                false => Reply::Status(status, "X-Prometheus-Remote-Write-Samples-Written: 0\r\n"),
            }
        });
        // All queued requests belong to the first of four shards.
        let daemon = start("4");
        let logged = daemon.wait_for("requests wait in the queue");
        let kept = logged["requests"].as_u64().unwrap() as usize;
        let times = || {
            receiver.see(|requests| {
                let old = requests.iter().filter(|request| is_old(request));
                old.map(|request| request.samples[0].timestamp_ms).collect::<BTreeSet<_>>()
            })
        };
        wait_until(&format!("the queue, with {status}"), || times().len() == kept);
        daemon.kill();
    }
}

#[test]
fn no_shards_are_refused() {
    let home = Home::new();
    let refused = ["--remote-write-shards", "0 is out of range", "give 1 to 64"];
    home.expect_refusal(&["--remote-write-shards", "0"], 2, &refused);
}
