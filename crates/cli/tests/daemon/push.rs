//! Tests of Pushgateway's API, with raw requests and with Prometheus' own client.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::common::{Client, Daemon, Home, Response, wait_until};
use crate::python;

fn send(client: &mut Client, method: &str, path: &str, header: &str, body: &[u8]) -> Response {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: quipu\r\n{header}Content-Length: {}\r\n\r\n",
        body.len()
    );
    client.send([head.as_bytes(), body].concat()).unwrap();
    client.read_response().unwrap()
}

impl Daemon {
    pub(crate) fn push(&self, method: &str, path: &str, body: &str) -> Response {
        send(&mut self.connect(), method, path, "", body.as_bytes())
    }

    #[track_caller]
    fn put(&self, path: &str, body: &str) {
        let response = self.push("PUT", path, body);
        assert_eq!(response.status, 200, "{response:?}");
    }

    /// Returns the series with a job, without the times of pushes.
    fn pushed(&self) -> BTreeSet<String> {
        let text = self.get("/metrics").text();
        let lines = text.lines().filter(|line| line.contains("job=\""));
        let lines = lines.filter(|line| !line.starts_with("push_"));
        lines.map(str::to_owned).collect()
    }
}

fn lines(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Creates the command `quipu push` for a daemon at this address.
fn push_to(home: &Home, address: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = home.command();
    command.args(["push", "--to", &address.to_string(), "--for", "2m"]).args(arguments);
    command
}

#[test]
fn pushes_from_a_shell_survive_a_kill_and_add_up_exactly() {
    const JOBS: &str = "jobs_total{queue=\"mail\",host=\"db 1\",instance=\"\",job=\"shell\"}";
    let home = Home::new();
    let daemon = home.start(&[]);
    let address = daemon.address();
    let succeed = |arguments: &[&str]| {
        let ended = home.finish(push_to(&home, address, arguments));
        assert!(ended.status.success() && ended.stderr.is_empty(), "{}", ended.stderr);
    };
    let jobs = ["--group", "host=db 1", "jobs_total{queue=\"mail\"}"];
    succeed(&jobs);
    succeed(&[&jobs[..], &["4"]].concat());
    succeed(&["--job", "a/b", "--set", "{\"age.seconds\"}", "-1.5"]);
    daemon.kill();
    // This push is repeated until the daemon is there again.
    let waiting = home.spawn(push_to(&home, address, &[&jobs[..], &["10"]].concat()));
    let daemon = home.start(&["--listen", &address.to_string()]);
    assert!(waiting.wait().status.success());
    let total = || {
        let text = daemon.get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with("jobs_total{")).unwrap().to_owned();
        let (labels, total) = line.rsplit_once(' ').unwrap();
        let labels: BTreeSet<_> = labels[11..].trim_end_matches('}').split(',').collect();
        let expected = JOBS[11..].trim_end_matches('}').split(',').collect();
        assert_eq!(labels, expected, "{line}");
        total.parse::<u64>().unwrap()
    };
    assert_eq!(total(), 15);
    let text = daemon.scrape("text/plain;version=1.0.0;escaping=allow-utf-8").text();
    assert!(text.contains("{\"age.seconds\",instance=\"\",job=\"a/b\"} -1.5\n"), "{text}");
    // Two pushes with the same identifier count once.
    for _ in 0..2 {
        succeed(&[&["--id", "nightly-7"], &jobs[..], &["100"]].concat());
    }
    assert_eq!(total(), 115);
    for (arguments, code, part) in [
        (&["jobs_total", "-1"][..], 2, "a counter only grows"),
        (&["quipu_keys"], 1, "status 400: "),
        (&["--group", "host=db 1", "--set", "jobs_total", "1"], 1, "as a COUNTER"),
        (&["--group", "host", "a"], 2, "write NAME=VALUE, such as host=db1"),
    ] {
        let ended = home.finish(push_to(&home, address, arguments));
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    daemon.stop();
    let mut command = home.command();
    command.args(["push", "--to", &address.to_string(), "--for", "0s", "jobs_total"]);
    let ended = home.finish(command);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("connection refused"), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing was counted"), "{}", ended.stderr);
}

/// Reads a request of `quipu push`, whose body ends in this line.
fn receive(listener: &TcpListener, end: &str) -> (TcpStream, Vec<u8>) {
    let (mut client, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    while !request.ends_with(end.as_bytes()) {
        let mut block = [0; 1024];
        let read = client.read(&mut block).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&block[..read]);
    }
    (client, request)
}

#[test]
fn an_interrupted_push_from_a_shell_prints_its_identifier() {
    let home = Home::new();
    let silent = TcpListener::bind((home.host(), 0)).unwrap();
    let pushing = home.spawn(push_to(&home, silent.local_addr().unwrap(), &["jobs_total"]));
    let (_client, request) = receive(&silent, "jobs_total 1\n");
    let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
    let (_, rest) = request.split_once("quipu-push-id: ").unwrap();
    let id = rest.lines().next().unwrap();
    pushing.signal(Signal::INT);
    let ended = pushing.wait();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("repeat it with --id {id}")), "{}", ended.stderr);
}

#[test]
fn a_push_from_a_shell_succeeds_only_at_a_daemon_or_a_pushgateway() {
    let home = Home::new();
    for (response, part) in [
        ("200 OK\r\nContent-Length: 3\r\n\r\nhi\n", "not from a quipu daemon"),
        ("429 Too Many Requests\r\nContent-Length: 3\r\n\r\nno\n", "status 429: no"),
        ("202 Accepted\r\nContent-Length: 0\r\n\r\n", ""),
    ] {
        let server = TcpListener::bind((home.host(), 0)).unwrap();
        let pushing = home.spawn(push_to(&home, server.local_addr().unwrap(), &["jobs_total"]));
        let (mut client, _) = receive(&server, "jobs_total 1\n");
        client.write_all(format!("HTTP/1.1 {response}").as_bytes()).unwrap();
        let ended = pushing.wait();
        assert_eq!(ended.status.success(), part.is_empty(), "{}", ended.stderr);
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

/// A proxy loses the first response of the daemon, after the daemon counted.
#[test]
fn a_push_from_a_shell_whose_response_is_lost_counts_once() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let proxy = TcpListener::bind((home.host(), 0)).unwrap();
    let address = proxy.local_addr().unwrap();
    let pushing = home.spawn(push_to(&home, address, &["jobs_total", "7"]));
    for is_lost in [true, false] {
        let (mut client, request) = receive(&proxy, "jobs_total 7\n");
        let mut forwarded = daemon.connect();
        forwarded.send(&request).unwrap();
        assert_eq!(forwarded.read_response().unwrap().status, 200);
        if !is_lost {
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    }
    let ended = pushing.wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(daemon.sample("jobs_total{instance=\"\",job=\"shell\"}"), 7.0);
}

/// PUT replaces all families of a group, and POST only those in its body.
#[test]
fn put_replaces_a_group_and_post_its_families() {
    let home = Home::new();
    let daemon = home.start(&[]);
    daemon.put("/metrics/job/a", "# HELP x Of a.\n# TYPE x gauge\nx 1\ny{k=\"1\"} 2\ny 3\n");
    daemon.put("/metrics/job/a/instance/i", "# TYPE x gauge\nx{job=\"z\"} 4\n");
    let response = daemon.push("POST", "/metrics/job/a", "y{k=\"2\"} 5\nz 6\n");
    assert_eq!((response.status, &*response.text()), (200, ""));
    let expected = [
        "x{instance=\"\",job=\"a\"} 1",
        "x{instance=\"i\",job=\"a\"} 4",
        "y{instance=\"\",job=\"a\",k=\"2\"} 5",
        "z{instance=\"\",job=\"a\"} 6",
    ];
    assert_eq!(daemon.pushed(), lines(&expected));
    assert!(daemon.get("/metrics").text().contains("# HELP x Of a.\n# TYPE x gauge\n"));
    assert!(daemon.sample("push_time_seconds{instance=\"\",job=\"a\"}") > 1.6e9);
    assert_eq!(daemon.sample("push_failure_time_seconds{instance=\"\",job=\"a\"}"), 0.0);

    let listing = daemon.get("/api/v1/metrics").json();
    let groups = listing["data"].as_array().unwrap();
    let group = groups.iter().find(|group| group["labels"]["instance"] == "i").unwrap();
    assert_eq!(group["last_push_successful"], true);
    assert_eq!(group["x"]["type"], "GAUGE");
    assert_eq!(group["x"]["metrics"][0]["value"], "4");
    let status = daemon.get("/api/v1/status").json();
    assert_eq!(status["data"]["flags"]["push-mode"], "replace");

    daemon.put("/metrics/job/a", "z 7\n");
    assert_eq!(daemon.push("DELETE", "/metrics/job/a/instance/i", "").status, 202);
    assert_eq!(daemon.pushed(), lines(&["z{instance=\"\",job=\"a\"} 7"]));
    // The admin API is off by default.
    assert_eq!(daemon.push("PUT", "/api/v1/admin/wipe", "").status, 404);
    let daemon = (daemon.stop(), home.start(&["--push-admin"])).1;
    assert_eq!(daemon.push("PUT", "/api/v1/admin/wipe", "").status, 202);
    assert!(!daemon.get("/metrics").text().contains("job=\""));
}

#[test]
fn faults_refuse_a_push_and_leave_the_others() {
    let home = Home::new();
    let daemon = home.start(&["--push-groups", "3"]);
    daemon.put("/metrics/job/a", "# TYPE x gauge\nx 1\n");
    for (path, body, status, part) in [
        ("/metrics/job/b", "x 1 123\n", 400, "must not have timestamps"),
        ("/metrics/job/b", "# TYPE x counter\nx 1\n", 400, "is not a COUNTER"),
        ("/metrics/job/b", "y{job=\"1\"} 1\ny{job=\"2\"} 1\n", 400, "collected before"),
        ("/metrics/job/b", "y 1\ny{ 2\n", 400, "line 2"),
        ("/metrics/job/a/b", "y 1\n", 400, "odd number of components"),
        ("/metrics/job/", "y 1\n", 400, "job name is required"),
        ("/metrics/jobs/a", "y 1\n", 404, "/metrics/job/{job}"),
        ("/metrics/job/a", "quipu_x 1\n", 400, "names that begin with"),
        ("/metrics/job/a?mode=sum", "y 1\n", 400, "give replace or add"),
        ("/metrics/job/a?ttl=soon", "y 1\n", 400, "such as"),
    ] {
        daemon.push("PUT", path, body).expect_refusal(status, part);
    }
    let long = format!("{} 1\n", "n".repeat(5000));
    let refused = daemon.push("PUT", "/metrics/job/b", &long);
    assert!(refused.text().len() < 300 && refused.text().contains("longer than"), "{refused:?}");
    assert_eq!(daemon.pushed(), lines(&["x{instance=\"\",job=\"a\"} 1"]));
    // A push with invalid contents marks its group as failed, but an unreadable push does not.
    assert!(daemon.sample("push_failure_time_seconds{instance=\"\",job=\"b\"}") > 1.6e9);
    assert_eq!(daemon.sample("push_time_seconds{instance=\"\",job=\"b\"}"), 0.0);
    // Programs that use the library expose such series next to their own.
    daemon.put("/metrics/job/c", "quipu_series_overflowed_total{family=\"x\"} 1\ny 1\n");
    daemon.push("PUT", "/metrics/job/d", "y 1\n").expect_refusal(429, "--push-groups");
    assert_eq!(daemon.push("PATCH", "/metrics/job/a", "").status, 405);
    let refused = daemon.get("/refused").text();
    assert!(refused.contains("inconsistent") && refused.contains("malformed"), "{refused}");
}

/// The limit on families per source applies to the job of a push, and not to the client whose
/// request the thread handled before.
#[test]
fn a_push_is_not_charged_to_the_client_before_it() {
    let home = Home::new();
    // This daemon uses a single thread, whose intake still holds the source of the last request.
    let daemon = home.start(&["--families", "20", "--families-per-source", "4"]);
    let flood: String = (0..6).map(|n| format!("made_up_{n} 1\n")).collect();
    let target = "/api/v1/import/prometheus";
    daemon.post_body(target, &[], flood.as_bytes()).expect_refusal(400, "families of one source");
    daemon.put("/metrics/job/a", "x 1\n");
    daemon.post_body(target, &[], flood.as_bytes()).expect_refusal(400, "families of one source");
    daemon.put("/metrics/job/b", "x 2\n");
    assert_eq!(daemon.pushed().len(), 2);
}

/// At the limit on series, a push stores the series that fit, and the response reports the others.
#[test]
fn a_push_without_room_is_refused() {
    let home = Home::new();
    // The times of the group are series, too.
    let daemon = home.start(&["--series", "8"]);
    daemon.put("/metrics/job/b", "x 1\n");
    let body: String = (0..7).map(|n| format!("x{{n=\"{n}\"}} {n}\n")).collect();
    let response = daemon.push("PUT", "/metrics/job/a", &body);
    response.expect_refusal(400, "4 of 7 series were not taken, the others were");
    assert_eq!(daemon.pushed().len(), 4);
    // The index does not keep refused series.
    let listed = || {
        let listing = daemon.get("/api/v1/metrics").json();
        let groups = listing["data"].as_array().unwrap().clone();
        let group = groups.into_iter().find(|group| group["labels"]["job"] == "a").unwrap();
        group["x"]["metrics"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(listed(), 3);
    assert!(daemon.sample("push_failure_time_seconds{instance=\"\",job=\"a\"}") > 1.6e9);
    let header = "Quipu-Push-Id: 1\r\n";
    for _ in 0..2 {
        // A repetition gets the same response as the push, and does not add anything.
        let body = "# TYPE x untyped\nx{n=\"0\"} 1\nx{n=\"9\"} 1\n";
        let path = "/metrics/job/a?mode=add&gauges=sum";
        let response = send(&mut daemon.connect(), "POST", path, header, body.as_bytes());
        response.expect_refusal(400, "1 of 2 series were not taken");
        assert_eq!(daemon.sample("x{instance=\"\",job=\"a\",n=\"0\"}"), 1.0);
        assert_eq!(listed(), 3);
    }
    // If no sample of a push was accepted, it can be sent again.
    let path = "/metrics/job/a?mode=add";
    let again = || send(&mut daemon.connect(), "POST", path, "Quipu-Push-Id: 2\r\n", b"new 1\n");
    again().expect_refusal(400, "1 of 1 series");
    again().expect_refusal(400, "1 of 1 series");
    // A deleted group makes room.
    assert_eq!(daemon.push("DELETE", "/metrics/job/a", "").status, 202);
    daemon.put("/metrics/job/c", "x 1\n");
    let body: String = (0..9).map(|n| format!("x{{n=\"{n}\"}} {n}\n")).collect();
    let response = daemon.push("PUT", "/metrics/job/a", &body);
    response.expect_refusal(400, "a push has at most 8 series");
    assert!(!daemon.get("/metrics").text().contains("job=\"a\""));
}

/// Every push with a response survives a kill, and so does the division into groups.
#[test]
fn a_kill_loses_no_acknowledged_push() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let body = "# TYPE c_total counter\nc_total 3\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\n\
        h_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n# TYPE s summary\ns{quantile=\"0.5\"} 1\n\
        s_sum 5\ns_count 6\n";
    for job in 0..30 {
        daemon.put(&format!("/metrics/job/{job}/zone/z"), body);
    }
    daemon.put("/metrics/job/0", "own{zone=\"y\"} 1\n");
    daemon.push("POST", "/metrics/job/1/zone/z?mode=add", body);
    let before = daemon.get("/metrics").text();
    let shown = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.contains("job=\"")).map(str::to_owned).collect()
    };
    daemon.kill();
    let daemon = home.start(&[]);
    assert_eq!(shown(&daemon.get("/metrics").text()), shown(&before));
    assert!(before.contains("c_total{instance=\"\",job=\"1\",zone=\"z\"} 6\n"), "{before}");
    // The index is restored, so a group is deleted as a whole, and others stay.
    assert_eq!(daemon.push("DELETE", "/metrics/job/1/zone/z", "").status, 202);
    daemon.put("/metrics/job/0/zone/z", "other 1\n");
    let text = daemon.get("/metrics").text();
    assert!(!text.contains("job=\"1\""), "{text}");
    let left: Vec<_> = text.lines().filter(|line| line.contains("job=\"0\"")).collect();
    assert_eq!(left.iter().filter(|line| !line.starts_with("push_")).count(), 2, "{left:?}");
    daemon.push("PUT", "/metrics/job/a", "# TYPE h gauge\nh 1\n").expect_refusal(400, "HISTOGRAM");
}

#[test]
fn pushes_of_several_clients_add_up() {
    let home = Home::new();
    let daemon =
        home.start(&["--push-add-jobs", "batch-*", "--push-add-jobs", "other", "--threads", "2"]);
    let body = "# TYPE c_total counter\nc_total 2\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\n\
        h_bucket{le=\"+Inf\"} 3\nh_sum 2.5\n# TYPE s summary\ns_sum 5\ns_count 6\n";
    let address = daemon.address();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address).unwrap();
                for _ in 0..25 {
                    let path = "/metrics/job/batch-1";
                    assert_eq!(send(&mut client, "POST", path, "", body.as_bytes()).status, 200);
                }
            });
        }
    });
    let of = |name: &str| daemon.sample(&format!("{name}{{instance=\"\",job=\"batch-1\"}}"));
    assert_eq!((of("c_total"), of("h_sum"), of("h_count")), (200.0, 250.0, 300.0));
    assert_eq!((of("s_sum"), of("s_count")), (500.0, 600.0));
    let bucket = "h_bucket{instance=\"\",job=\"batch-1\",le=\"1\"}";
    assert_eq!(daemon.sample(bucket), 100.0);

    // A repeated push with an identifier counts once.
    let mut client = daemon.connect();
    let header = "Quipu-Push-Id: 17\r\n";
    for _ in 0..3 {
        let response = send(&mut client, "POST", "/metrics/job/batch-1", header, body.as_bytes());
        assert_eq!(response.status, 200);
    }
    assert_eq!(of("c_total"), 202.0);

    for (how, expected) in [("set", 3.0), ("sum", 13.0), ("min", 3.0), ("max", 5.0)] {
        let job = format!("g-{how}");
        for value in [5, 5, 3] {
            let path = format!("/metrics/job/{job}?mode=add&gauges={how}");
            daemon.put(&path, &format!("# TYPE g gauge\ng {value}\n"));
        }
        assert_eq!(daemon.sample(&format!("g{{instance=\"\",job=\"{job}\"}}")), expected);
    }
    // A total needs no type, like in the examples of Pushgateway.
    for (value, expected) in [(2, 2.0), (3, 5.0), (4, 9.0)] {
        daemon.put("/metrics/job/u?mode=add", &format!("u_total {value}\nu {value}\n"));
        assert_eq!(daemon.sample("u_total{instance=\"\",job=\"u\"}"), expected);
        assert_eq!(daemon.sample("u{instance=\"\",job=\"u\"}"), f64::from(value));
    }
    // A negative value does not count as a total.
    daemon.put("/metrics/job/u?mode=add", "u_total -1\n");
    assert_eq!(daemon.sample("u_total{instance=\"\",job=\"u\"}"), -1.0);
    // A push in the other mode replaces the added values.
    let body = "# TYPE c_total counter\nc_total 1\n";
    daemon.put("/metrics/job/batch-1?mode=replace", body);
    assert_eq!(of("c_total"), 1.0);
    assert!(!daemon.get("/metrics").text().contains("s_sum{instance=\"\",job=\"batch-1\""));
}

/// The parse cache must store each push with its own values.
#[test]
fn pushes_that_differ_only_in_values_count_separately() {
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let body = |n: &str| {
        format!(
            "# HELP c Of c.\n# TYPE c counter\nc{{a=\"1\"}} {n}\nc{{a=\"2\",instance=\"i\"}} {n}\n\
             # TYPE g gauge\ng {n}\n# TYPE s summary\ns{{quantile=\"0.5\"}} {n}\ns_sum {n}\ns_count {n}\n"
        )
    };
    let shown = |job: &str, n: &str| {
        [("c{a=\"1\",", "", ""), ("c{a=\"2\",", "i", ""), ("g{", "", "")]
            .into_iter()
            .chain([("s{", "", ",quantile=\"0.5\""), ("s_sum{", "", ""), ("s_count{", "", "")])
            .map(|(name, instance, end)| {
                format!("{name}instance=\"{instance}\",job=\"{job}\"{end}}} {n}")
            })
            .collect::<Vec<String>>()
    };
    let jobs = ["a", "b", "c"];
    for n in ["1", "20", "3", "45"] {
        let value = |at: usize| format!("{n}{}", at + 1);
        for (at, job) in jobs.into_iter().enumerate() {
            daemon.put(&format!("/metrics/job/{job}"), &body(&value(at)));
        }
        let all = jobs.into_iter().enumerate().flat_map(|(at, job)| shown(job, &value(at)));
        assert_eq!(daemon.pushed(), all.collect());
    }
    // A deleted series can return, even after a restart.
    for job in ["b", "c"] {
        assert_eq!(daemon.push("DELETE", &format!("/metrics/job/{job}"), "").status, 202);
    }
    for n in ["7", "8", "9"] {
        daemon.put("/metrics/job/a", "x 1\n");
        daemon.put("/metrics/job/a", &body(n));
        assert_eq!(daemon.pushed(), shown("a", n).into_iter().collect());
        daemon = (daemon.stop(), home.start(&[])).1;
    }
    // A refused push does not change anything.
    for _ in 0..2 {
        daemon.put("/metrics/job/a", &body("6"));
        daemon.push("PUT", "/metrics/job/a", &body("x")).expect_refusal(400, "line 3");
        daemon.push("PUT", "/metrics/job/a", &body("-1")).expect_refusal(400, "cannot be taken");
        daemon.push("PUT", "/metrics/job/a", &body("1 1")).expect_refusal(400, "timestamps");
        assert_eq!(daemon.pushed(), shown("a", "6").into_iter().collect());
    }
    assert_eq!(daemon.push("DELETE", "/metrics/job/a", "").status, 202);
    // A name changes its type.
    for (kind, n) in [("gauge", 1), ("counter", 2), ("untyped", 3), ("gauge", 4), ("counter", 5)] {
        for n in [n, n + 10] {
            daemon.put("/metrics/job/t", &format!("# TYPE t {kind}\nt {n}\n"));
            assert_eq!(daemon.pushed(), lines(&[&format!("t{{instance=\"\",job=\"t\"}} {n}")]));
        }
    }
    // A push in add mode follows the same rules.
    for (n, total, most) in [(3, 3, 3), (5, 8, 5), (5, 13, 5), (4, 17, 5)] {
        daemon.put("/metrics/job/s?mode=add&gauges=max", &body(&n.to_string()));
        assert_eq!(daemon.sample("c{a=\"1\",instance=\"\",job=\"s\"}"), f64::from(total));
        assert_eq!(daemon.sample("g{instance=\"\",job=\"s\"}"), f64::from(most));
    }
}

#[test]
fn an_expired_group_continues_from_its_totals() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let body = "# TYPE c_total counter\nc_total 2\n";
    let shown = |daemon: &Daemon| daemon.get("/metrics").text().contains("job=\"a\"");
    daemon.put("/metrics/job/a?mode=add&ttl=1ms", body);
    daemon.put("/metrics/job/b?ttl=59m+30s%2030s", body);
    wait_until("the group expires", || !shown(&daemon));
    assert_eq!(daemon.pushed(), lines(&["c_total{instance=\"\",job=\"b\"} 2"]));
    assert_eq!(daemon.sample("push_expiry_seconds{instance=\"\",job=\"b\"}"), 3600.0);
    daemon.put("/metrics/job/d?ttl=100ms", body);
    daemon.kill();
    let daemon = home.start(&[]);
    assert!(!shown(&daemon));
    wait_until("a group from before the restart expires", || {
        !daemon.get("/metrics").text().contains("job=\"d\"")
    });
    daemon.put("/metrics/job/a?mode=add&ttl=1h", body);
    assert_eq!(daemon.sample("c_total{instance=\"\",job=\"a\"}"), 4.0);
    assert!(daemon.sample("push_time_seconds{instance=\"\",job=\"a\"}") > 1.6e9);
    // A group that expired begins again.
    daemon.put("/metrics/job/c?ttl=1ms", body);
    wait_until("the group expires", || !daemon.get("/metrics").text().contains("job=\"c\""));
    daemon.push("POST", "/metrics/job/c?ttl=1h", "other 1\n");
    assert!(daemon.pushed().contains("other{instance=\"\",job=\"c\"} 1"));
    assert!(!daemon.pushed().contains("c_total{instance=\"\",job=\"c\"} 2"));
}

/// A scrape must not contain a mixture of two pushes to a group.
#[test]
fn a_scrape_sees_a_push_whole_or_not_at_all() {
    let home = Home::new();
    let daemon = home.start(&["--threads", "2"]);
    // More series than one step changes.
    let body = |value: u32| -> String {
        let own = format!("own{{n=\"{value}\"}} {value}\n");
        (0..700).map(|n| format!("x{{n=\"{n}\"}} {value}\n")).collect::<String>() + &own
    };
    daemon.put("/metrics/job/a", &body(0));
    let (address, is_over) = (daemon.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(address).unwrap();
            for value in 1..40 {
                let body = body(value);
                let response = send(&mut client, "PUT", "/metrics/job/a", "", body.as_bytes());
                assert_eq!(response.status, 200);
            }
            is_over.store(true, Ordering::Release);
        });
        let mut client = Client::connect(address).unwrap();
        while !is_over.load(Ordering::Acquire) {
            let text = client.request("GET", "/metrics").unwrap().text();
            let of_job = text.lines().filter(|line| line.contains("job=\"a\""));
            let of_job = of_job.filter(|line| !line.starts_with("push_"));
            let values: Vec<&str> = of_job.filter_map(|line| line.rsplit(' ').next()).collect();
            assert_eq!(values.len(), 701);
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        }
    });
}

/// If a client disconnects in the middle of an update, the update is completed.
#[test]
fn a_push_whose_client_leaves_is_applied_whole() {
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let body: String = (0..20_000).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
    for job in 0..4 {
        let head = format!(
            "PUT /metrics/job/{job} HTTP/1.1\r\nHost: quipu\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = daemon.connect();
        client.send([head.as_bytes(), body.as_bytes()].concat()).unwrap();
        let is_begun = || !daemon.pushed().is_empty();
        if job == 0 {
            wait_until("the push is applied", is_begun);
        }
        drop(client);
        let whole = daemon.pushed().len();
        assert_eq!(whole % 20_000, 0);
        if job % 2 == 1 {
            daemon.stop();
            daemon = home.start(&[]);
            let whole = daemon.pushed().len();
            assert_eq!(whole % 20_000, 0);
        }
    }
    daemon.stop();
}

#[test]
fn prometheus_client_pushes() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/push.py");
    let mut command = Command::new(python::with_client());
    command.arg(script).arg(daemon.address().to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let labels = "empty=\"\",instance=\"a/b\",job=\"batch\"";
    let of = |name: &str| daemon.sample(&format!("{name}{{{labels}}}"));
    assert_eq!(daemon.sample(&format!("jobs_total{{{labels},queue=\"mail\"}}")), 3.0);
    assert_eq!((of("last_success"), of("added")), (7.0, 8.0));
    assert_eq!((of("took_seconds_sum"), of("took_seconds_count")), (0.5, 1.0));
    assert_eq!((of("size_bytes_sum"), of("size_bytes_count")), (100.0, 1.0));
    assert!(!daemon.get("/metrics").text().contains("job=\"gone\""));
}

/// A reader of a format without UTF-8 names, or of OpenMetrics 1.0, would refuse the whole page.
#[test]
fn no_push_or_import_makes_a_page_that_readers_refuse() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let alike = "x{\"a b\"=\"1\",a_b=\"2\"} 1\n";
    let reserved = "{\"quipu.events_total\"} 999\n";
    let push = |body| daemon.push("PUT", "/metrics/job/a", body);
    push(alike).expect_refusal(400, "one label once escaped");
    push(reserved).expect_refusal(400, "the daemon's");
    for (text, reason) in [(alike, "labels_alike"), (reserved, "reserved")] {
        let target = "/api/v1/import/prometheus";
        assert_eq!(daemon.post_body(target, &[], text.as_bytes()).status, 400, "{text}");
        let refused = format!("quipu_input_refused_total{{input=\"import\",reason=\"{reason}\"}}");
        assert_eq!(daemon.sample(&refused), 1.0);
    }
    let text = "# TYPE build_x info\n# UNIT build_x x\nbuild_x_info{v=\"1\"} 1\n\
        # TYPE took_seconds counter\n# UNIT took_seconds seconds\ntook_seconds_total 1\n# EOF\n";
    let header = "Content-Type: application/openmetrics-text; version=1.0.0\r\n";
    let response = send(&mut daemon.connect(), "PUT", "/metrics/job/a", header, text.as_bytes());
    assert_eq!(response.status, 200, "{response:?}");
    let page = daemon.scrape("application/openmetrics-text;version=1.0.0").text();
    assert!(page.contains("\nbuild_x_info{instance=\"\",job=\"a\",v=\"1\"} 1\n"), "{page}");
    assert!(page.contains("# UNIT took_seconds seconds\n"), "{page}");
    assert!(!page.contains("# UNIT build_x"), "{page}");
}
