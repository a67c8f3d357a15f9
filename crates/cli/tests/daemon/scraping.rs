//! Tests of scrape targets: servers whose behavior a test defines, other daemons, and a real
//! Prometheus.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::{Daemon, Home, poll, program, wait_until};
use crate::textparse::textparse;

/// The response of a target to a request.
#[derive(Clone)]
enum Reply {
    /// An exposition with this content type.
    Text(&'static str, String),
    /// A compressed exposition.
    Gzip(Vec<u8>),
    /// A body that is shorter than its announced length.
    Cut(&'static str),
    /// Another status, with additional header fields.
    Status(&'static str),
    /// A redirect to this URL.
    Redirect(String),
    /// No response, on a connection that stays open.
    Nothing,
}

/// A server whose reply you can change during the test.
pub(super) struct Exporter {
    pub(super) url: String,
    reply: Arc<Mutex<Reply>>,
    heads: Arc<Mutex<Vec<String>>>,
}

/// The interval of scrapes, and their time limit. A busy machine must not exceed this limit.
pub(super) const INTERVAL: &str = "1s";
const TEXT: &str = "text/plain; version=0.0.4";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0";

impl Exporter {
    pub(super) fn start(home: &Home, text: &str) -> Exporter {
        let listener = TcpListener::bind((home.host(), 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let reply = Arc::new(Mutex::new(Reply::Text(TEXT, text.into())));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (shared, seen) = (Arc::clone(&reply), Arc::clone(&heads));
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head = head(&mut BufReader::new(stream.try_clone().unwrap()));
                seen.lock().unwrap().push(head);
                let reply = shared.lock().unwrap().clone();
                // We ignore the error, because the daemon may be gone or may have given up.
                let _ = stream.write_all(&response(&reply));
                if matches!(reply, Reply::Nothing) {
                    open.push(stream);
                }
            }
        });
        Exporter { url, reply, heads }
    }

    fn now(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    pub(super) fn exposes(&self, text: &str) {
        self.now(Reply::Text(TEXT, text.into()));
    }

    /// Responds with a redirect from now on.
    pub(super) fn redirects(&self, location: &str) {
        self.now(Reply::Redirect(location.into()));
    }

    /// Responds with this status from now on.
    pub(super) fn responds(&self, status: &'static str) {
        self.now(Reply::Status(status));
    }

    /// Returns the heads of all requests so far.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(super) fn address(&self) -> &str {
        &self.url["http://".len()..]
    }
}

/// Reads the head of a request.
fn head(input: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && input.read_line(&mut head).unwrap_or(0) > 0 {}
    head
}

fn response(reply: &Reply) -> Vec<u8> {
    let ok = |fields: &str, body: &[u8], length: usize| {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    match reply {
        Reply::Text(content_type, text) => {
            let fields = format!("Content-Type: {content_type}\r\n");
            ok(&fields, text.as_bytes(), text.len())
        }
        Reply::Gzip(bytes) => ok("Content-Encoding: gzip\r\n", bytes, bytes.len()),
        Reply::Cut(text) => ok("", text.as_bytes(), text.len() + 1),
        Reply::Status(fields) => format!("HTTP/1.1 {fields}\r\nContent-Length: 0\r\n\r\n").into(),
        Reply::Redirect(to) => {
            let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation:";
            format!("{head} {to}\r\n\r\n").into()
        }
        Reply::Nothing => Vec::new(),
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns the values of all samples in the text format, by series.
fn samples(daemon: &Daemon) -> BTreeMap<String, f64> {
    values(&daemon.get("/metrics").text())
}

fn values(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    lines.map(split).collect()
}

#[track_caller]
fn wait_for(daemon: &Daemon, line: &str) {
    let has = || daemon.get("/metrics").text().lines().any(|other| other == line);
    let found = poll(|| has().then_some(()));
    assert!(found.is_some(), "no {line} in {}", daemon.get("/metrics").text());
}

/// Expects promtool, the parsers of Prometheus' server and `quipu check metrics` to read the page,
/// and each series to occur once.
#[track_caller]
fn expect_valid(daemon: &Daemon) {
    let promtool = program("promtool", "prometheus");
    for accept in [
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=2.0.0;escaping=allow-utf-8",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    ] {
        let response = daemon.scrape(accept);
        let mut known = HashSet::new();
        for mut sample in textparse(&response.fields["content-type"], &response.body) {
            let [name, labels] = ["name", "labels"].map(|field| sample[field].take().to_string());
            assert!(known.insert((name.clone(), labels.clone())), "{name}{labels} twice");
        }
        assert!(known.len() > 10, "{known:?}");
    }
    for accept in ["text/plain", "application/openmetrics-text;version=1.0.0"] {
        let response = daemon.scrape(accept);
        textparse(&response.fields["content-type"], &response.body);
        let lines = response.text();
        let mut heads = HashSet::new();
        for line in lines.lines().filter(|line| line.starts_with("# TYPE ")) {
            assert!(heads.insert(line.split(' ').nth(2)), "{line} twice in {lines}");
        }
        let home = Home::new();
        fs::write(home.path("all"), &response.body).unwrap();
        if accept == "text/plain" {
            let mut command = Command::new(&promtool);
            command.args(["check", "metrics"]).stdin(File::open(home.path("all")).unwrap());
            let output = command.output().unwrap();
            // We exit code 3 reports names against conventions.
            let is_read = matches!(output.status.code(), Some(0 | 3));
            assert!(is_read, "{output:?}\n{}", response.text());
        }
        let mut check = home.command();
        check.args(["check", "metrics", "all"]);
        let ended = home.finish(check);
        let is_read = matches!(ended.status.code(), Some(0 | 3));
        assert!(is_read, "{}{}\n{}", ended.stdout, ended.stderr, response.text());
    }
}

#[test]
fn a_target_is_shown_with_its_job_and_instance() {
    let home = Home::new();
    let exporter = Exporter::start(
        &home,
        "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
         jobs_total{queue=\"a\\\"b\",job=\"own\",exported_job=\"other\"} 7\njobs_total 2\n\
         # TYPE free gauge\nfree{instance=\"x\"} -1.5\nplain 3 1700000000000\n\
         # TYPE took histogram\ntook_bucket{le=\"1.0\"} 2\ntook_bucket{le=\"+Inf\"} 3\n\
         took_sum 4.5\ntook_count 3\n# TYPE size summary\nsize{quantile=\"0.5\"} 2\nsize_sum 8\n\
         size_count 4\nquipu_keys 9\nup 5\nup{zone=\"a\"} 6\n",
    );
    let target = format!("app={}", exporter.url);
    let daemon = home.start(&["--scrape", &target, "--scrape-interval", INTERVAL]);
    let own = format!("job=\"app\",instance=\"{}\"", exporter.address());
    wait_for(&daemon, &format!("up{{{own}}} 1"));
    let shown = samples(&daemon);
    for (name, labels, value) in [
        (
            "jobs_total",
            ",exported_job=\"other\",exported_exported_job=\"own\",queue=\"a\\\"b\"",
            7.0,
        ),
        ("jobs_total", "", 2.0),
        ("free", ",exported_instance=\"x\"", -1.5),
        ("plain", "", 3.0),
        ("took_bucket", ",le=\"1.0\"", 2.0),
        ("took_bucket", ",le=\"+Inf\"", 3.0),
        ("took_sum", "", 4.5),
        ("took_count", "", 3.0),
        ("size", ",quantile=\"0.5\"", 2.0),
        ("size_sum", "", 8.0),
        ("size_count", "", 4.0),
        // The daemon exposes this name, and so does each target.
        ("quipu_keys", "", 9.0),
        ("up", "", 1.0),
        ("up", ",zone=\"a\"", 6.0),
        ("scrape_samples_scraped", "", 14.0),
        ("scrape_samples_post_metric_relabeling", "", 13.0),
        ("scrape_timeout_seconds", "", 1.0),
    ] {
        let series = format!("{name}{{{own}{labels}}}");
        assert_eq!(shown.get(&series), Some(&value), "{series} in {shown:#?}");
    }
    let text = daemon.get("/metrics").text();
    assert!(text.contains("# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n"), "{text}");
    expect_valid(&daemon);
    // If a series vanishes from a target, it is no longer shown. New series are counted.
    exporter.exposes("# TYPE jobs_total counter\njobs_total 3\nnew 1\n");
    wait_for(&daemon, &format!("new{{{own}}} 1"));
    assert!(!daemon.get("/metrics").text().contains("free{"));
    wait_for(&daemon, &format!("scrape_series_added{{{own}}} 0"));
    let heads = exporter.heads.lock().unwrap();
    assert!(heads[0].starts_with("GET /metrics HTTP/1.1\r\n"), "{}", heads[0]);
    let head = heads[0].to_lowercase();
    for part in [
        "accept: application/openmetrics-text;version=1.0.0,",
        "accept-encoding: gzip",
        "user-agent: quipu/",
        "x-prometheus-scrape-timeout-seconds: 1",
    ] {
        assert!(head.contains(part), "{part} in {head}");
    }
}

/// Two targets can use one name for different types. The page must contain both, and stay readable.
#[test]
fn targets_whose_types_differ_are_shown_side_by_side() {
    let home = Home::new();
    let first = Exporter::start(
        &home,
        "# TYPE x gauge\nx 1\n# TYPE y counter\ny 2\n# TYPE z_total counter\nz_total 3\nx_total 4\n\
         # TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n\
         # TYPE odd histogram\nodd_bucket{le=\"1\"} 0.5\nodd_sum 1\nodd_count 0.5\n",
    );
    let second = Exporter::start(&home, "");
    second.now(Reply::Text(
        OPENMETRICS,
        "# TYPE x counter\nx_total 5\nx_created 1\n# TYPE y unknown\ny 6\n# TYPE z gauge\nz 7\n\
         # TYPE h gauge\nh 8\n# TYPE build info\nbuild_info{v=\"1\"} 1\n# TYPE mode stateset\n\
         mode{mode=\"on\"} 1\nmode{mode=\"off\"} 0\n# TYPE level gaugehistogram\n\
         level_bucket{le=\"1.0\"} 2\nlevel_bucket{le=\"+Inf\"} 3\nlevel_gsum 4\nlevel_gcount 3\n\
         # EOF\n"
            .into(),
    ));
    let [a, b] = [("a", &first), ("b", &second)].map(|(job, it)| format!("{job}={}", it.url));
    let daemon = home.start(&["--scrape", &a, "--scrape", &b, "--scrape-interval", INTERVAL]);
    let own = [("a", &first), ("b", &second)]
        .map(|(job, it)| format!("job=\"{job}\",instance=\"{}\"", it.address()));
    own.iter().for_each(|own| wait_for(&daemon, &format!("up{{{own}}} 1")));
    let shown = samples(&daemon);
    for (name, of, labels, value) in [
        ("x", 0, "", 1.0),
        ("x_total", 0, "", 4.0),
        ("x_total", 1, "", 5.0),
        ("y", 0, "", 2.0),
        ("y", 1, "", 6.0),
        ("z_total", 0, "", 3.0),
        ("z", 1, "", 7.0),
        ("h_count", 0, "", 1.0),
        ("odd_bucket", 0, ",le=\"1\"", 0.5),
        ("odd_count", 0, "", 0.5),
        ("build_info", 1, ",v=\"1\"", 1.0),
        ("mode", 1, ",mode=\"off\"", 0.0),
        ("level_bucket", 1, ",le=\"1.0\"", 2.0),
        ("level_gcount", 1, "", 3.0),
    ] {
        let series = format!("{name}{{{}{labels}}}", own[of]);
        assert_eq!(shown.get(&series), Some(&value), "{series} in {shown:#?}");
    }
    // A histogram and a gauge cannot share a name.
    assert!(!shown.contains_key(&format!("h{{{}}}", own[1])), "{shown:#?}");
    let conflicts = shown["quipu_scrape_target_conflicts{about=\"type\"}"];
    assert!(conflicts >= 1.0, "{shown:#?}");
    daemon.wait_for("conflicting metric types");
    expect_valid(&daemon);
    daemon.stop();
}

/// No client can hide the series of a target by sending series with the same names.
#[test]
fn series_of_clients_hide_no_series_of_targets() {
    let home = Home::new();
    let exporter = Exporter::start(
        &home,
        "# HELP go_goroutines Goroutines.\n# TYPE go_goroutines gauge\ngo_goroutines 7\n\
         # TYPE jobs_total counter\njobs_total{queue=\"a\"} 3\njobs_total{queue=\"b\"} 4\n\
         # TYPE level gauge\nlevel 5\n# TYPE wait counter\nwait 6\n\
         # TYPE took histogram\ntook_bucket{le=\"1\"} 1\ntook_bucket{le=\"+Inf\"} 2\n\
         took_sum 3\ntook_count 2\n# TYPE size gauge\nsize 8\nhttp_open 9\n",
    );
    let target = format!("app={}", exporter.url);
    let daemon = home.start(&["--scrape", &target, "--scrape-interval", INTERVAL]);
    let own = format!("job=\"app\",instance=\"{}\"", exporter.address());
    wait_for(&daemon, &format!("up{{{own}}} 1"));
    let sorted_samples = || -> BTreeMap<String, f64> {
        samples(&daemon).iter().map(|(series, value)| (sorted(series), *value)).collect()
    };
    let before = sorted_samples();
    // The same type, other types, the labels of a series of the target, and a name that some
    // readers need escaped.
    let text = format!(
        "# TYPE go_goroutines gauge\ngo_goroutines{{from=\"me\"}} 1\n# TYPE jobs_total counter\n\
         jobs_total{{{own},queue=\"a\"}} 100\njobs_total 2\n# TYPE level counter\nlevel 3\n\
         # TYPE wait gauge\nwait 4\n# TYPE took histogram\ntook_bucket{{le=\"1\"}} 5\n\
         took_bucket{{le=\"+Inf\"}} 6\ntook_sum 7\ntook_count 6\n# TYPE size summary\nsize_sum 8\n\
         size_count 1\n# TYPE up gauge\nup 0\n{{\"http.open\",a=\"b\"}} 1\n"
    );
    let pushed = daemon.post_body("/api/v1/import/prometheus", &[], text.as_bytes());
    assert_eq!(pushed.status, 204, "{}", pushed.text());
    let shown = sorted_samples();
    let of_target = |name: &str, labels: &str| sorted(&format!("{name}{{{own}{labels}}}"));
    for (series, value) in [
        ("go_goroutines{from=\"me\"}".to_owned(), 1.0),
        (of_target("go_goroutines", ""), 7.0),
        ("jobs_total".to_owned(), 2.0),
        // The daemon's own series is first.
        (of_target("jobs_total", ",queue=\"a\""), 100.0),
        (of_target("jobs_total", ",queue=\"b\""), 4.0),
        ("level".to_owned(), 3.0),
        (of_target("level", ""), 5.0),
        ("wait".to_owned(), 4.0),
        (of_target("wait", ""), 6.0),
        ("took_count".to_owned(), 6.0),
        (of_target("took_count", ""), 2.0),
        (of_target("took_bucket", ",le=\"1\""), 1.0),
        ("size_count".to_owned(), 1.0),
        ("up".to_owned(), 0.0),
        (of_target("up", ""), 1.0),
        ("http_open{a=\"b\"}".to_owned(), 1.0),
        (of_target("http_open", ""), 9.0),
    ] {
        assert_eq!(shown.get(&sorted(&series)), Some(&value), "{series} in {shown:#?}");
    }
    // One family of the target is kept apart, because a summary cannot share a name with a gauge.
    let gone: Vec<_> = before.keys().filter(|series| !shown.contains_key(*series)).collect();
    assert_eq!(gone, [&of_target("size", "")]);
    let conflicts = daemon.sample("quipu_scrape_target_conflicts{about=\"type\"}");
    assert!(conflicts >= 1.0, "{shown:#?}");
    wait_for(&daemon, "quipu_scrape_target_conflicts{about=\"series\"} 1");
    daemon.wait_for("a series has the name and labels of another one");
    expect_valid(&daemon);
    let named = daemon.get("/metrics?name[]=go_goroutines&name[]=jobs_total&name[]=http_open");
    assert_eq!(values(&named.text()).len(), 7, "{}", named.text());
    let text = named.text();
    assert!(text.contains("# HELP go_goroutines Goroutines.\n# TYPE go_goroutines gauge\n"));
    // Readers of the daemon see both.
    let mut top = home.command();
    let url = format!("http://{}/metrics", daemon.address());
    top.args(["top", "--once", "--interval", "100ms", "--family", "go_goroutines", &url]);
    let frame = home.finish(top);
    assert_eq!(frame.status.code(), Some(0), "{}", frame.stderr);
    let shown = frame.stdout;
    assert!(shown.contains("me") && shown.contains(exporter.address()), "{shown}");
    daemon.stop();
}

#[test]
fn the_health_of_several_daemons_is_in_one_place() {
    let home = Home::new();
    let others = ["a", "b"].map(|name| {
        let (socket, state) = (format!("unix:{name}.sock"), format!("{name}.quipu"));
        home.start(&["--listen", &socket, "--state", &state])
    });
    let daemon = home.start(&[
        "--scrape",
        "unix:a.sock",
        "--scrape",
        "unix:b.sock",
        "--scrape-interval",
        INTERVAL,
        "--segments",
        "*.quipu",
    ]);
    let of = ["a", "b"].map(|name| format!("job=\"scrape\",instance=\"unix:{name}.sock\""));
    of.iter().for_each(|of| wait_for(&daemon, &format!("up{{{of}}} 1")));
    let shown = samples(&daemon);
    let names = shown.keys().map(|series| series.split(['{', ' ']).next().unwrap());
    let names: HashSet<&str> = names.filter(|name| name.starts_with("quipu_")).collect();
    let has = |name: &str, labels: &str| {
        shown.keys().any(|series| series.starts_with(&format!("{name}{{{labels}")))
    };
    let all = ["quipu_events_total", "quipu_build_info", "quipu_http_request_duration_seconds_sum"];
    assert!(all.iter().all(|name| names.contains(name)), "{names:?}");
    for name in all {
        assert!(of.iter().all(|of| has(name, of)), "{name} in {shown:#?}");
    }
    assert!(has("quipu_build_info", "version="));
    for about in ["type", "samples", "series"] {
        for conflicts in ["quipu_scrape_target_conflicts", "quipu_segments_conflicts"] {
            let count = shown[&format!("{conflicts}{{about=\"{about}\"}}")];
            assert_eq!(count, 0.0, "{conflicts} {about}: {:#?}", daemon.log());
        }
    }
    expect_valid(&daemon);
    others.into_iter().for_each(Daemon::stop);
    daemon.stop();
}

/// After a failed scrape, `up` is 0 and the target's series are no longer shown.
#[test]
fn a_target_that_fails_is_down_and_its_series_leave() {
    let home = Home::new();
    let exporter = Exporter::start(&home, "x 1\n");
    let target = format!("app={}", exporter.url);
    let settings = ["--scrape-body-bytes", "1000", "--scrape-samples", "10"];
    let mut arguments = vec!["--scrape", &*target, "--scrape-interval", INTERVAL];
    arguments.extend(settings);
    let daemon = home.start(&arguments);
    let own = format!("job=\"app\",instance=\"{}\"", exporter.address());
    let (shown, up) = (format!("x{{{own}}} 1"), format!("up{{{own}}} 1"));
    let long = format!("# {}\nx 1\n", "a".repeat(1000));
    let many: String = (0..11).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
    let text = |text: &str| Reply::Text(TEXT, text.to_owned());
    let faults = [
        (Reply::Cut("x 1\n"), ""),
        (text("x 1\n{{{\n"), "line 2"),
        (text(&long), "more than 1000 bytes"),
        (text(&many), "more than 10 samples"),
        (Reply::Gzip(gzip(long.as_bytes())), "more than 1000 bytes"),
        (Reply::Gzip(gzip(b"x 1\n")[..15].into()), "cannot be expanded"),
        (Reply::Text(OPENMETRICS, "x 1\n".into()), "# EOF"),
        (Reply::Text("text/html", "<html>x</html>\n".into()), "line 1"),
        (Reply::Status("503 Busy"), "503"),
        (Reply::Status("401 Unauthorized"), "401 Unauthorized: name the file with its credentials"),
        (Reply::Status("302 Found\r\nLocation: /metrics"), "redirect"),
        (Reply::Nothing, "no complete response within"),
    ];
    for (reply, part) in faults {
        wait_for(&daemon, &shown);
        wait_for(&daemon, &up);
        exporter.now(reply);
        wait_for(&daemon, &format!("up{{{own}}} 0"));
        let text = daemon.get("/metrics").text();
        assert!(!text.contains("\nx{") && text.contains("\nscrape_duration_seconds{"), "{text}");
        let log = || daemon.log().into_iter().rfind(|line| line.contains("cannot be scraped"));
        wait_until(part, || log().is_some_and(|line| line.contains(part)));
        // The target returns, with compression.
        exporter.now(Reply::Gzip(gzip(b"x 1\n")));
    }
    wait_for(&daemon, &shown);
    exporter.now(text(&long));
    wait_for(&daemon, &format!("scrape_body_size_bytes{{{own}}} -1"));
    daemon.stop();
}

/// The parse cache must not show old values after a failed scrape.
#[test]
fn values_of_texts_of_one_form_are_shown_before_and_after_failures() {
    let home = Home::new();
    let text = |n: usize| {
        format!(
            "# TYPE level gauge\nlevel {n}\nlevel{{a=\"1\"}} -{n}\n# TYPE hits_total counter\nhits_total {n}\n\
             # TYPE h histogram\nh_bucket{{le=\"+Inf\"}} {n}\nh_sum {n}.5\nh_count {n}\n"
        )
    };
    let exporter = Exporter::start(&home, &text(0));
    let target = format!("app={}", exporter.url);
    let daemon = home.start(&["--scrape", &*target, "--scrape-interval", INTERVAL]);
    let own = format!("job=\"app\",instance=\"{}\"", exporter.address());
    let expect = |n: usize| {
        for line in [
            format!("level{{{own}}} {n}"),
            format!("level{{{own},a=\"1\"}} -{n}"),
            format!("hits_total{{{own}}} {n}"),
            format!("h_sum{{{own}}} {n}.5"),
            format!("h_count{{{own}}} {n}"),
            format!("up{{{own}}} 1"),
        ] {
            wait_for(&daemon, &line);
        }
    };
    let mut n = 0;
    for fault in [Reply::Status("500 Fault"), Reply::Cut("level 7\n"), Reply::Nothing] {
        for _ in 0..4 {
            n += 1;
            exporter.exposes(&text(n));
            expect(n);
        }
        wait_for(&daemon, &format!("scrape_series_added{{{own}}} 0"));
        exporter.now(fault);
        wait_for(&daemon, &format!("up{{{own}}} 0"));
        let text = daemon.get("/metrics").text();
        assert!(!text.contains("\nlevel{") && !text.contains("\nhits_total{"), "{text}");
    }
    exporter.exposes(&text(99));
    expect(99);
    wait_for(&daemon, &format!("scrape_series_added{{{own}}} 0"));
    daemon.stop();
}

/// A target that never completes its response delays neither another target nor the stop of the
/// daemon.
#[test]
fn a_slow_target_holds_up_no_other_and_no_stop() {
    let home = Home::new();
    let slow = Exporter::start(&home, "");
    slow.now(Reply::Nothing);
    let good = Exporter::start(&home, "x 1\n");
    let [first, second] = [&slow, &good].map(|exporter| format!("app={}", exporter.url));
    let daemon = home.start(&[
        "--scrape",
        &first,
        "--scrape",
        &second,
        "--scrape-interval",
        "1h",
        "--scrape-timeout",
        "30m",
    ]);
    wait_for(&daemon, &format!("x{{job=\"app\",instance=\"{}\"}} 1", good.address()));
    wait_until("the slow one is asked", || !slow.heads.lock().unwrap().is_empty());
    assert!(!daemon.get("/metrics").text().contains(slow.address()));
    // The target has half an hour left, but the daemon does not wait.
    daemon.stop();
}

#[test]
fn a_target_at_a_unix_socket_is_scraped() {
    let home = Home::new();
    let other = home.start(&["--listen", "unix:other.sock", "--state", "other.quipu"]);
    let daemon = home.start(&["--scrape", "app=unix:other.sock", "--scrape-interval", INTERVAL]);
    let own = "job=\"app\",instance=\"unix:other.sock\"";
    wait_for(&daemon, &format!("up{{{own}}} 1"));
    // The metrics of another daemon are distinct from its own.
    let shown = samples(&daemon);
    assert_eq!(shown.get(&format!("quipu_keys{{{own}}}")), Some(&0.0), "{shown:#?}");
    assert_eq!(shown.get("quipu_keys"), Some(&0.0));
    let build = shown.keys().filter(|series| series.starts_with("quipu_build_info{version="));
    assert_eq!(build.count(), 1, "{shown:#?}");
    let build = format!("quipu_build_info{{{own},version=");
    assert!(shown.keys().any(|series| series.starts_with(&build)), "{shown:#?}");
    let bucket = format!("quipu_http_request_duration_seconds_bucket{{{own},le=\"+Inf\"}}");
    assert!(shown.contains_key(&bucket), "{shown:#?}");
    // A received name with this prefix is refused.
    let body = b"# TYPE quipu_keys gauge\nquipu_keys 5\n";
    assert_eq!(daemon.post_body("/api/v1/import/prometheus", &[], body).status, 400);
    expect_valid(&daemon);
    other.stop();
    wait_for(&daemon, &format!("up{{{own}}} 0"));
    // No process accepts this connection, so either the queue is full, or the request gets no
    // response.
    let _listener = UnixListener::bind(home.path("other.sock")).unwrap();
    wait_until("a timeout", || {
        daemon.log().iter().any(|line| line.contains("no complete response within"))
    });
    daemon.stop();
}

#[test]
fn a_program_with_the_library_is_scraped_at_its_unix_socket() {
    let home = Home::new();
    let registry = quipu::Registry::new();
    registry.counter("jobs", "Completed jobs.").unwrap().inc_by(7);
    let server = quipu::http::serve_unix(home.path("app.sock"), &registry).unwrap();
    let daemon = home.start(&["--scrape", "app=unix:app.sock", "--scrape-interval", INTERVAL]);
    wait_for(&daemon, "jobs_total{job=\"app\",instance=\"unix:app.sock\"} 7");
    drop(server);
    wait_for(&daemon, "up{job=\"app\",instance=\"unix:app.sock\"} 0");
    daemon.stop();
}

#[test]
fn targets_that_cannot_be_are_refused() {
    let home = Home::new();
    for (arguments, part) in [
        (&["--scrape", "localhost:9100"][..], "begins with none of http://"),
        (&["--scrape", "http://u:p@a/"], "--scrape-basic-file"),
        (&["--scrape", "http://a", "--scrape-basic-file", "x=f"], "the job x"),
        (&["--scrape", "http://a/x", "--scrape", "http://a/y"], "another job"),
        (&["--scrape-timeout", "20s"], "give at most 15s"),
    ] {
        home.expect_refusal(arguments, 2, &[part]);
    }
    fs::write(home.path("good.toml"), "scrape = [\"node=http://a:9100\"]\n").unwrap();
    fs::write(home.path("bad.toml"), "scrape = [\"http://\"]\n").unwrap();
    for (file, code) in [("good.toml", 0), ("bad.toml", 2)] {
        let mut check = home.command();
        check.args(["check", "config", file]);
        assert_eq!(home.finish(check).status.code(), Some(code), "{file}");
    }
}

/// A Prometheus that does not scrape anything, killed on drop.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The page contains every series that a real Prometheus exposes about itself.
#[test]
fn all_series_of_a_real_prometheus_are_shown() {
    let home = Home::new();
    let listener = TcpListener::bind((home.host(), 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    fs::write(home.path("none.yml"), "").unwrap();
    let prometheus = Command::new(program("prometheus", "prometheus"))
        .args(["--config.file", "none.yml", "--storage.tsdb.path", "data"])
        .args(["--web.listen-address", &address])
        .current_dir(home.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _prometheus = Prometheus(prometheus);
    let target = format!("prometheus=http://{address}");
    let daemon = home.start(&["--scrape", &target, "--scrape-interval", "500ms"]);
    let own = format!("job=\"prometheus\",instance=\"{address}\"");
    wait_for(&daemon, &format!("prometheus_config_last_reload_successful{{{own}}} 1"));
    // All series must be shown, and those with unchanged values must have the same values.
    let fetched = poll(|| {
        let direct = values(&fetch(&address)?);
        let shown = samples(&daemon);
        let with = |series: &str| match series.strip_suffix('}') {
            Some(rest) => {
                let (name, labels) = rest.split_once('{').unwrap();
                sorted(&format!("{name}{{{own},{labels}}}"))
            }
            None => sorted(&format!("{series}{{{own}}}")),
        };
        let shown: BTreeMap<String, f64> =
            shown.into_iter().map(|(series, value)| (sorted(&series), value)).collect();
        let missing: Vec<_> =
            direct.keys().filter(|series| !shown.contains_key(&with(series))).collect();
        let same = direct.iter().filter(|(series, value)| {
            let shown = shown.get(&with(series));
            shown.is_some_and(|shown| shown == *value || shown.is_nan() && value.is_nan())
        });
        let (same, all) = (same.count(), direct.len());
        // The first requests to a path create new series.
        (missing.is_empty() && same * 10 > all * 8).then_some((same, all))
    });
    let (same, all) = fetched.expect("all series, most of them with the same value");
    assert!(all > 200, "{same} of {all}");
    expect_valid(&daemon);
    daemon.stop();
}

/// Sorts the labels of a series.
fn sorted(series: &str) -> String {
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    let mut labels: Vec<&str> = labels.trim_end_matches('}').split("\",").collect();
    labels.iter_mut().for_each(|label| *label = label.trim_end_matches('"'));
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join("\","))
}

fn fetch(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n").ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

#[test]
fn watched_files_of_a_receiver_are_scraped() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let count = || {
        let mut shell = home.command();
        shell.args(["inc", "--file", "run/cron.quipu", "jobs_total", "1"]);
        assert!(home.finish(shell).status.success());
    };
    count();
    let receiver = home.start(&["--segments", "run", "--state", "receiver.quipu"]);
    let url = format!("http://{}", receiver.address());
    let target = format!("app={url}/metrics?directory=run");
    let sent_to = format!("{url}/api/v1/write");
    let flags = ["--scrape", &target, "--scrape-interval", INTERVAL, "--remote-write", &sent_to];
    let sender = home.start(&[&flags[..], &["--remote-write-interval", "100ms"]].concat());
    let text = b"# TYPE hits_total counter\nhits_total 5\n";
    assert!(sender.post_body("/api/v1/import/prometheus", &[], text).status < 300);
    wait_until("the sender's samples", || {
        receiver.get("/metrics").text().lines().any(|line| line.starts_with("hits_total"))
    });
    // The current contents of the files were not in the earlier scrape.
    count();
    wait_until("the files", || {
        let text = sender.get("/metrics").text();
        text.lines().any(|line| line.starts_with("jobs_total{") && line.ends_with(" 2"))
    });
    let is_told = |path: &str| receiver.get(path).fields.contains_key("quipu-via");
    assert!(is_told("/metrics") && is_told("/metrics?name[]=hits_total"));
    assert!(!is_told("/metrics?directory=run") && !is_told("/metrics?segment=cron"));
}

/// Daemons that scrape each other in a ring detect the loop, and accept no sample of their own.
#[test]
fn daemons_that_scrape_each_other_in_a_ring_take_nothing() {
    const PORTS: [u16; 3] = [18095, 18096, 18097];
    for length in [1, 2, 3] {
        let home = Home::new();
        let address = |n: usize| format!("{}:{}", home.host(), PORTS[n % length]);
        let daemons: Vec<_> = (0..length)
            .map(|n| {
                let (url, state) = (format!("http://{}", address(n + 1)), format!("{n}.quipu"));
                let flags = ["--scrape", &url, "--scrape-interval", INTERVAL];
                let own = ["--listen", &address(n), "--state", &state];
                home.start(&[&flags[..], &own].concat())
            })
            .collect();
        for (n, daemon) in daemons.iter().enumerate() {
            let told = || daemon.log().iter().any(|line| line.contains("make a loop"));
            wait_until("the log", told);
            let down = format!("up{{job=\"scrape\",instance=\"{}\"}} 0", address(n + 1));
            wait_until("nothing", || {
                let text = daemon.get("/metrics").text();
                // No sample from before the detection of the ring is left.
                text.lines().any(|line| line == down) && !text.contains("exported_")
            });
        }
    }
}
