//! Checks that `quipu inspect` shows the contents of the segment: for running, stopped and dead
//! processes, and for damaged files.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use quipu::exposition::{Escaping, Format};
use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
use quipu::label::Values;
use quipu::snapshot::Timestamp;
use quipu::{
    Aggregation, Counter, CounterFamily, Description, FloatCounter, Gauge, Histogram, Info,
    IntGauge, MixedCounter, ProcessGauge, Registry, StateSet, Summary,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Home;

/// Returns the samples of an exposition, without exemplars and start times.
fn samples(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_created"));
    let lines = lines.filter(|line| !line.contains("quantile=") && !line.starts_with("quipu_"));
    // Parse the numbers, because numbers and bounds can be spelled in several ways.
    lines
        .map(|line| {
            let (series, value) = line.split(" # ").next().unwrap().rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            format!("{} {value}", series.replace(".0\"}", "\"}"))
        })
        .collect()
}

fn inspected(home: &Home) -> Value {
    serde_json::from_str(&home.succeed(&["inspect", "--format", "json", "app.quipu"])).unwrap()
}

/// A process that keeps the file open, killed on drop.
pub(super) struct Holder {
    child: Child,
    address: String,
}

impl Holder {
    /// Starts a program that counts in the file, and serves it.
    pub(super) fn start(home: &Home) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "inspect::a_program_holds_a_file"]);
        command.env(HELD, home.file()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("quipu: listening on http://").expect(&line);
        let address = address.strip_suffix("/metrics").unwrap().to_owned();
        Self { child, address }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn pid(&self) -> u64 {
        self.child.id().into()
    }
}

/// The environment variable with the path of a holder's file.
const HELD: &str = "QUIPU_TEST_HELD";

/// The main function of a holder, which runs until it is killed.
#[test]
#[ignore = "a process that other tests start"]
fn a_program_holds_a_file() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let registry = Registry::open(path).unwrap();
    let server = quipu::http::serve("127.0.0.1:0", &registry).unwrap();
    eprintln!("quipu: listening on http://{}/metrics", server.local_addr());
    loop {
        std::thread::park();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn all_kinds_are_shown_like_in_a_scrape() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let named = |name: &str| Description::new(name, "Help \\ with\n \"all\".");
    registry.register::<Counter>(named("a")).unwrap().inc_by(u64::MAX - 1);
    registry.register::<FloatCounter>(named("b")).unwrap().inc_by(0.5);
    registry.register::<MixedCounter>(named("c")).unwrap().inc_by(2.5);
    registry.register::<MixedCounter>(named("d")).unwrap().inc_by(2.0);
    registry.register::<Gauge>(named("e")).unwrap().set(-1.5);
    registry.register::<IntGauge>(named("f")).unwrap().set(-3);
    let hits: CounterFamily<Values> =
        registry.register(named("hits").labels(["of", "page"]).values("of", ["x", "y"])).unwrap();
    hits.inc(&Values(&["y", "é\"\\\n"]));
    hits.inc(&Values(&["x", "/"]));
    hits.inc(&Values(&["none", "/"]));
    let took: Histogram = registry.register(named("took").buckets([0.5, 2.0])).unwrap();
    [0.1, 1.0, 1.5, 7.0].iter().for_each(|&value| took.observe(value));
    let sizes: Summary = registry.register(named("sizes")).unwrap();
    [1.0, 2.0].iter().for_each(|&value| sizes.observe(value));
    let info = named("build").labels(["version"]);
    let info: quipu::Family<Info, Values> = registry.register(info).unwrap();
    let _info = info.bind(&Values(&["1.2"]));
    let states: StateSet<&str> = registry.register(named("mode").states(["on", "off"])).unwrap();
    states.set_index(1);
    let most_recent = named("recent").aggregation(Aggregation::MostRecent);
    registry.register::<ProcessGauge>(most_recent).unwrap().set(4.5);
    registry.register::<ProcessGauge>(named("each")).unwrap().set(2.0);
    for arguments in [
        &["inc", "shell_total{a=\"1\"}", "2.5"][..],
        &["inc", "shell_total"],
        &["set", "level", "0.25"],
        &["observe", "rows", "3"],
        &["inc", "{\"http.hits\",\"my label\"=\"1\"}"],
        // This label is as long as the name of a process.
        &["inc", "orders_total{pid=\"202611240000000001\"}"],
        &["inc", "orders_total{pid=\"202611250000000001\"}", "5"],
    ] {
        home.succeed(arguments);
    }
    follow_totals(&registry);
    let mut expected = Vec::new();
    let scrape = registry.scrape();
    scrape.format(Format::OpenMetrics, Escaping::AllowUtf8).append_to(&mut expected);
    let expected = String::from_utf8(expected).unwrap();
    let shown = home.succeed(&["inspect", "--format", "openmetrics", "app.quipu"]);
    assert_eq!(samples(&shown), samples(&expected));
    let mut promtool_lines = shown.lines().rev();
    assert_eq!(promtool_lines.next(), Some("# EOF"));
    let text = home.succeed(&["inspect", "app.quipu"]);
    for part in
        ["hits_total{of=\"x\",page=\"/\"}  1  since 20", "  mode  [off]  ", "count 4, sum 9.6"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let json = inspected(&home);
    assert_eq!(json["damage"], Value::Array(Vec::new()));
    let families = json["families"].as_array().unwrap();
    let family = |name: &str| families.iter().find(|family| family["name"] == name).unwrap();
    assert_eq!(family("a")["series"][0]["value"], u64::MAX - 1);
    assert_eq!(family("hits")["labels"][0]["values"][1], "y");
    assert_eq!((&family("hits")["shown"], &family("hits")["overflowed"]), (&2.into(), &1.into()));
    assert_eq!(family("level")["identity"], "variant");
    let token = |token: &Value| token["pid"] == std::process::id() && token["alive"] == true;
    assert!(json["processes"]["tokens"].as_array().unwrap().iter().any(token), "{json}");
}

/// Series are removed and their records reused while the file is read. No series may show the value
/// of another.
#[test]
fn series_of_a_file_in_use_are_never_mixed_up() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let named = Description::new("hits", "").labels(["page"]);
    let hits: CounterFamily<Values> = registry.register(named).unwrap();
    let is_over = AtomicBool::new(false);
    let run = || {
        for n in (0_u64..).take_while(|_| !is_over.load(Relaxed)) {
            hits.inc_by(&Values(&[n.to_string().as_str()]), n * 1000 + 7);
            // Another series reuses its record.
            let before = n.saturating_sub(60).to_string();
            hits.remove(&Values(&[before.as_str()])).unwrap();
        }
    };
    let check = |json: &Value, members: &[&str]| {
        let families = json["families"].as_array().unwrap().iter();
        let all = families.flat_map(|family| family["series"].as_array().unwrap());
        for one in all.clone() {
            let page = one["labels"].to_string().replace(|c: char| !c.is_ascii_digit(), "");
            let expected = page.parse::<u64>().unwrap() * 1000 + 7;
            for value in members.iter().filter_map(|member| one[member].as_f64()) {
                assert!(value == 0.0 || value == expected as f64, "{one}");
            }
        }
        all.count()
    };
    // Retry, because a series can change during every reading.
    let show = |arguments: &[&str]| -> Value {
        let output = home.quipu(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let is_whole = !errors.contains("series changed again and again");
        assert_eq!(output.status.code(), Some(if is_whole { 0 } else { 3 }), "{errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let look = || {
        let mut series = 0;
        for _ in 0..20 {
            let json = show(&["inspect", "--format", "json", "app.quipu"]);
            assert_eq!(json["damage"], Value::Array(Vec::new()), "{json}");
            assert!(json["omitted"].is_u64(), "{json}");
            series += check(&json, &["value"]);
            let json = show(&["diff", "--format", "json", "app.quipu", "app.quipu"]);
            series += check(&json, &["before", "after"]);
        }
        series
    };
    let series = thread::scope(|scope| {
        let running = scope.spawn(run);
        let looked = catch_unwind(AssertUnwindSafe(look));
        is_over.store(true, Relaxed);
        running.join().unwrap();
        looked.unwrap()
    });
    assert!(series > 100, "{series}");
}

/// Follows the totals of a source that restarts, with the times of its samples.
fn follow_totals(registry: &Registry) {
    let mut intake = Intake::new(registry, Limits::default()).unwrap();
    for (count, time) in [(5.0, 7), (2.0, 8)] {
        let buckets = [(0.5, count), (f64::INFINITY, 3.0 * count)];
        let all = [
            ("sent_total", InputValue::Counter(count)),
            ("waited", InputValue::Histogram { buckets: &buckets, sum: 1.5 * count }),
            ("slept", InputValue::Summary { quantiles: &[(0.5, 1.0)], count, sum: 2.5 * count }),
        ];
        for (name, given) in all {
            let metric = Metric { time: Some(Timestamp::from_secs(time)), ..Metric::new(name) };
            intake.take(metric, &[("by", "x")], &given, Mode::Follow, None).unwrap();
        }
    }
}

#[test]
fn processes_are_seen_running_stopped_and_dead() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total", "5"]);
    let holder = Holder::start(&home);
    let look = |open: bool| {
        let json = inspected(&home);
        assert_eq!(json["open"], open, "{json}");
        assert_eq!(json["families"][0]["series"][0]["value"], 5);
        json["processes"]["open"].clone()
    };
    let open = look(true);
    assert_eq!(open[0]["pid"], holder.pid());
    let pid = Pid::from_child(&holder.child);
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    while look(true)[0]["state"] != "T" {
        assert!(begun.elapsed() < Duration::from_secs(120));
    }
    let before = fs::read(home.file()).unwrap();
    let text = home.succeed(&["inspect", "app.quipu"]);
    assert!(text.contains("stopped") && text.contains("open in a process"), "{text}");
    assert_eq!(fs::read(home.file()).unwrap(), before);
    drop(holder);
    assert_eq!(look(false), Value::Array(Vec::new()));
    let text = home.succeed(&["inspect", "app.quipu"]);
    assert!(text.contains("left open: its last process did not close it"), "{text}");
    // The claims of an ended process remain until another process takes them over.
    home.succeed(&["inc", "jobs_total", "0"]);
    let text = home.succeed(&["inspect", "app.quipu"]);
    assert!(text.contains("closed, without a sync"), "{text}");
    assert!(text.contains("ended") && text.contains("claims of 0 series"), "{text}");
    // A read-only file.
    let mut permissions = fs::metadata(home.file()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(home.file(), permissions).unwrap();
    home.succeed(&["inspect", "app.quipu"]);
}

/// A command marks that it left the file in order, unless another process still keeps the file
/// open.
#[test]
fn a_file_that_commands_used_last_is_closed() {
    let home = Home::new();
    let look = || {
        let json = inspected(&home);
        (json["header"]["clean"].clone(), json["header"]["left"].clone())
    };
    let left = (Value::Bool(false), Value::Bool(true));
    home.succeed(&["inc", "jobs_total", "0"]);
    assert_eq!(look(), left);
    home.refuse(&["set", "jobs_total", "1"], 1, &["only grows"]);
    assert_eq!(look(), left);
    // If many commands end at the same time, exactly one of them is the last.
    for round in 1..=5 {
        let start = |_| home.quipu(&["inc", "jobs_total"]).spawn().unwrap();
        let children: Vec<_> = (0..10).map(start).collect();
        children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        assert_eq!(look(), left);
        assert_eq!(inspected(&home)["families"][0]["series"][0]["value"], 10 * round);
    }
    // Next to a running application, a command is never the last.
    let holder = Holder::start(&home);
    home.succeed(&["inc", "jobs_total"]);
    assert_eq!(look(), (Value::Bool(false), Value::Bool(false)));
    drop(holder);
    assert_eq!(look(), (Value::Bool(false), Value::Bool(false)));
    home.succeed(&["time", "spent_seconds", "--", "true"]);
    assert_eq!(look(), left);
    quipu_segment::Segment::open_or_create(home.file()).unwrap().close().unwrap();
    assert_eq!(look(), (Value::Bool(true), Value::Bool(false)));
}

/// Damage is reported, and everything that is still readable is shown.
#[test]
fn the_rest_of_a_damaged_file_is_shown() {
    let home = Home::new();
    for name in ["first", "second", "third"] {
        home.succeed(&["inc", name, "7"]);
    }
    let whole = fs::read(home.file()).unwrap();
    let look = |bytes: &[u8], code: i32| {
        fs::write(home.file(), bytes).unwrap();
        for format in ["text", "json", "openmetrics"] {
            let arguments = ["inspect", "--format", format, "app.quipu"];
            let output = home.quipu(&arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{output:?}");
        }
        String::from_utf8(home.quipu(&["inspect", "app.quipu"]).output().unwrap().stdout).unwrap()
    };
    // Cut after the families.
    let text = look(&whole[..whole.len() / 2], 3);
    assert!(text.contains("\ndamage\n") && text.contains("third  7  since"), "{text}");
    // Cut inside the families, so the list begins beyond the end.
    let at = whole.windows(5).position(|bytes| bytes == b"third").unwrap();
    let text = look(&whole[..at / 64 * 64], 3);
    assert!(text.contains("found by their checksums") && text.contains("first"), "{text}");
    // The newest record with a wrong checksum.
    let mut damaged = whole.clone();
    let at = whole.windows(5).position(|bytes| bytes == b"third").unwrap();
    damaged[at] = b'T';
    let text = look(&damaged, 3);
    assert!(text.contains("the checksum of its record"), "{text}");
    assert!(text.contains("second  7  since") && text.contains("first  7  since"), "{text}");
    home.refuse(&["inspect", "app.quipu"], 3, &["quipu: app.quipu: damaged"]);
    home.refuse(&["inspect", "none"], 1, &["cannot read none", "No such file"]);
}

#[test]
fn a_file_that_is_no_segment_is_not_called_damaged() {
    let home = Home::new();
    let refuse = |bytes: &[u8], part: &str| {
        fs::write(home.directory().join("before.prom"), bytes).unwrap();
        for more in [&["--format", "json"][..], &["--history"], &[]] {
            let arguments = [&["inspect", "before.prom"], more].concat();
            home.refuse(&arguments, 1, &[&format!("before.prom: {part}")]);
        }
    };
    refuse(b"# TYPE hits counter\nhits 5\n", "it is not a segment, but an exposition: use quipu");
    refuse(b"nothing of the kind", "it is not a segment: its first 8 bytes");
    refuse(b"", "it is empty");
    home.refuse(&["inspect", "."], 1, &[".: it is a directory", "quipu top"]);
}

#[test]
fn characters_that_control_a_terminal_are_escaped() {
    let home = Home::new();
    let hostile = "\u{9b}2J\u{202e}\u{7f}\u{2028}\u{1b}[31m";
    home.succeed(&["inc", &format!("jobs_total{{queue=\"{hostile}\"}}")]);
    let text = format!("# TYPE {{ counter\na{{b=\"{hostile}\"}} 1\na{{b=\"{hostile}\"}} 2\n");
    fs::write(home.directory().join("text.prom"), text).unwrap();
    fs::write(home.directory().join("empty.prom"), "").unwrap();
    let mut recorder = {
        let registry = Registry::open(home.file()).unwrap();
        quipu_segment::history::Options::new().bytes(64 << 10).open(registry.segment()).unwrap()
    };
    assert!(recorder.tick_at(1_700_000_000_000_000_000, 1_700_000_000_000_000_000).unwrap());
    for (arguments, has_label) in [
        (&["inspect", "--format", "json", "app.quipu"][..], true),
        (&["inspect", "app.quipu"], true),
        (&["inspect", "--history", "app.quipu"], true),
        (&["inspect", "--history", "--format", "json", "app.quipu"], true),
        (&["diff", "app.quipu", "empty.prom"], true),
        (&["diff", "--format", "json", "app.quipu", "empty.prom"], true),
        (&["top", "--once", "--interval", "10ms", "--all", "app.quipu"], true),
        (&["top", "--once", "--interval", "10ms", "text.prom"], false),
        (&["top", "--once", "--interval", "10ms", "--all", "--format", "json", "app.quipu"], true),
        (&["top", "--replay", "--once", "--all", "app.quipu"], true),
        (&["check", "metrics", "text.prom"], false),
        (&["check", "metrics", "--format", "json", "text.prom"], false),
    ] {
        let output = home.quipu(arguments).output().unwrap();
        for bytes in [&output.stdout, &output.stderr] {
            let text = std::str::from_utf8(bytes).unwrap();
            let is_plain = |c: char| quipu_segment::is_printable(c) || c == '\n';
            assert!(text.chars().all(is_plain), "{arguments:?}: {text:?}");
        }
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("202e"), has_label, "{arguments:?}: {text}");
        if has_label && arguments.contains(&"json") {
            let value: Value = serde_json::from_str(&text).unwrap();
            let plain = serde_json::to_string(&value).unwrap();
            assert!(plain.contains('\u{202e}'), "{arguments:?}: {text}");
        }
    }
}

/// Returns the values of each series in a JSON history, by name.
fn values(history: &Value) -> HashMap<String, Vec<Value>> {
    let each = |series: &Value| {
        let name = series["name"].as_str().unwrap().to_owned();
        (name, series["values"].as_array().unwrap().clone())
    };
    history["series"].as_array().unwrap().iter().map(each).collect()
}

#[test]
fn the_history_is_shown_in_all_forms() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let jobs: CounterFamily<Values> =
        registry.register(Description::new("jobs", "").labels(["queue"])).unwrap();
    let depth: Gauge = registry.register(Description::new("depth", "")).unwrap();
    let took: Histogram = registry.register(Description::new("took", "").buckets([1.0])).unwrap();
    let mut recorder =
        quipu_segment::history::Options::new().bytes(64 << 10).open(registry.segment()).unwrap();
    const SECOND: u64 = 1_000_000_000;
    for tick in 0..30 {
        jobs.inc_by(&Values(&["mail <&>"]), 10);
        if tick == 10 {
            jobs.inc(&Values(&["gone"]));
        }
        depth.set(tick as f64 / 2.0);
        took.observe(0.5);
        took.observe(1.5);
        // A gap of a minute before the last ten ticks.
        let time = (1_700_000_000 + tick + if tick < 20 { 0 } else { 60 }) * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
        if tick == 15 {
            assert!(jobs.remove(&Values(&["gone"])).unwrap());
        }
    }
    let show =
        |more: &[&str]| home.succeed(&[&["inspect", "--history", "app.quipu"], more].concat());
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&show(&[&["--format", "json"], more].concat())).unwrap()
    };
    let history = json(&[]);
    let times = history["times"].as_array().unwrap();
    assert_eq!((times.len(), &times[0], &times[20]), (30, &1.7e9.into(), &1_700_000_080.0.into()));
    assert_eq!(history["held_ticks"], 30);
    assert_eq!(history["writer"]["alive"], true);
    assert_eq!(history["damage"], Value::Array(Vec::new()));
    let mail = &history["series"].as_array().unwrap()[0];
    assert_eq!((&mail["type"], &mail["metric"]), (&"total".into(), &"jobs_total".into()));
    let all = values(&history);
    assert_eq!(all["jobs_total{queue=\"mail <&>\"}"][2], 30.0);
    assert_eq!((&all["depth"][3], &all["took_count"][3]), (&1.5.into(), &8.0.into()));
    assert_eq!(all["took_bucket{le=\"1\"}"][3], 4.0);
    let removed = all.iter().find(|(name, _)| name.contains("quipu_removed")).unwrap().1;
    assert_eq!(removed.iter().filter(|value| **value == 1.0).count(), 6);
    assert_eq!(removed.iter().filter(|value| value.is_null()).count(), 24);

    let text = show(&[]);
    for part in [
        "1m 29s in 30 ticks",
        "\n  interval  1s",
        "token 1, a running process",
        "\ngaps\n  2023-11-14T22:13:39Z  to  2023-11-14T22:14:40Z  1m 1s",
        "jobs_total{queue=\"mail <&>\"} /s",
        "took_sum (mean)",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let row = text.lines().find(|line| line.contains("mail")).unwrap();
    assert!(row.contains("  0.164  10    10    "), "{row}");
    // We know the first rate from the tick before the shown ones.
    let text = show(&["--last", "5s", "--metric", "jobs_total", "--metric", "depth"]);
    let trends: Vec<usize> = ["mail", "depth"]
        .iter()
        .map(|name| {
            let row = text.lines().find(|line| line.contains(name)).unwrap();
            row.split_whitespace().last().unwrap().chars().count()
        })
        .collect();
    assert_eq!(trends, [6, 6], "{text}");
    assert!(text.contains("6 ticks") && !text.contains("quipu_removed"), "{text}");
    let few = values(&json(&["--last", "5s", "--metric", "depth"]));
    assert_eq!(few["depth"], [12.0, 12.5, 13.0, 13.5, 14.0, 14.5]);
    assert_eq!(few.len(), 1);
    drop(recorder);
    assert!(show(&[]).contains("ended in good order"));

    home.refuse(&["inspect", "--history", "--metric", "none", "app.quipu"], 1, &["\"none\""]);
    home.refuse(&["inspect", "--history", "--last", "soon", "app.quipu"], 2, &["soon"]);
    home.refuse(&["inspect", "--history", "--format", "csv", "app.quipu"], 2, &["csv"]);
    let formless = ["inspect", "--history", "--format", "openmetrics", "app.quipu"];
    home.refuse(&formless, 2, &["no OpenMetrics form"]);
    home.refuse(&["inspect", "--metric", "depth", "app.quipu"], 2, &["--history"]);
    fs::remove_file(home.file()).unwrap();
    home.succeed(&["inc", "jobs_total"]);
    home.refuse(&["inspect", "--history", "app.quipu"], 1, &["no flight recorder"]);
}

#[test]
fn a_program_that_records_is_read_while_it_counts_and_when_it_has_ended() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let jobs = registry.counter("jobs", "").unwrap();
    let options = quipu::RecordingOptions::new().interval(Duration::from_millis(10));
    let recording = registry.record(&options).unwrap();
    let ticks = || {
        let json = home.succeed(&["inspect", "--history", "--format", "json", "app.quipu"]);
        let history: Value = serde_json::from_str(&json).unwrap();
        history["times"].as_array().unwrap().len()
    };
    let begun = Instant::now();
    while ticks() < 5 {
        jobs.inc();
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert!(recording.is_writing());
    drop(recording);
    let count = ticks();
    // The command stopped recording, and another recording continues from there.
    assert_eq!(ticks(), count);
    let _recording = registry.record(&options).unwrap();
    while ticks() <= count {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
