//! Tests of `quipu inc`, `quipu set`, `quipu observe` and `quipu time`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use quipu::label::Values;
use quipu::{
    Aggregation, Counter, CounterFamily, Description, FloatCounter, Gauge, Histogram, Info,
    IntGaugeFamily, MixedCounterFamily, ProcessGauge, Registry, Summary,
};
use rustix::process::{Pid, Signal, kill_process};

use super::Home;

fn has(registry: &Registry, lines: &[&str]) {
    let text = registry.text();
    for line in lines {
        assert!(text.lines().any(|other| other == *line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_value_is_printed_for_scripts() {
    let home = Home::new();
    assert_eq!(home.succeed(&["inc", "--print", "jobs_total{queue=\"mail\"}", "3"]), "3\n");
    assert_eq!(home.succeed(&["inc", "--print", "jobs_total{queue=\"mail\"}"]), "4\n");
    assert_eq!(home.succeed(&["inc", "--print", "level", "0.5"]), "0.5\n");
    home.succeed(&["inc", "jobs_total{queue=\"sms\"}", "9007199254740992"]);
    home.succeed(&["observe", "rows", "2"]);
    for (series, value) in [
        ("jobs_total{queue=\"mail\"}", "4"),
        ("jobs_total{queue=\"sms\"}", "9007199254740992"),
        ("level", "0.5"),
        ("rows_count", "1"),
        ("rows_bucket{le=\"+Inf\"}", "1"),
    ] {
        assert_eq!(home.succeed(&["get", series]), format!("{value}\n"), "{series}");
    }
    assert_eq!(home.succeed(&["get", "--sum", "jobs_total"]), "9007199254740996\n");
    home.refuse(&["get", "jobs_total"], 1, &["2 series match: jobs_total{queue=\"mail\"}"]);
    home.refuse(&["get", "job_total"], 1, &["did you mean jobs_total?"]);
    home.refuse(&["get", "-f", "none.quipu", "x"], 1, &["none.quipu: No such file"]);
    home.refuse(&["get", "-f", "127.0.0.1:1", "x"], 1, &["connection refused"]);
}

#[test]
fn commands_create_the_file_and_their_counts_add_up() {
    let home = Home::new();
    for arguments in [
        &["inc", "--help-text", "Jobs.", "jobs_total{queue=\"mail\"}"][..],
        &["inc", "jobs_total{queue=\"mail\"}", "2.5"],
        &["inc", "jobs_total{queue=\"sms\",shard=\"1\"}", "7"],
        &["inc", "jobs_total"],
        &["set", "--unit", "bytes", "free_bytes{disk=\"a\"}", "-12"],
        &["inc", "free_bytes{disk=\"a\"}", "-0.5"],
        &["inc", "free_bytes{disk=\"b\"}", "3"],
        &["set", "level", "NaN"],
        &["observe", "--buckets", "1,10", "rows", "2"],
        &["observe", "rows{table=\"a\"}", "3"],
        &["observe", "--buckets", "1,10,+Inf", "rows", "20"],
        &["observe", "took", "0.3"],
        &["inc", "{\"http.hits\",\"my label\"=\"a\\\"b\"}"],
    ] {
        assert_eq!(home.succeed(arguments), "");
    }
    let lines = [
        "# HELP jobs_total Jobs.",
        "jobs_total{queue=\"mail\"} 3.5",
        "jobs_total{queue=\"sms\",shard=\"1\"} 7",
        "jobs_total 1",
        "# TYPE free_bytes gauge",
        "free_bytes{disk=\"a\"} -12.5",
        "free_bytes{disk=\"b\"} 3",
        "level NaN",
        "rows_bucket{le=\"10.0\"} 1",
        "rows_bucket{le=\"+Inf\"} 2",
        "rows_bucket{table=\"a\",le=\"10.0\"} 1",
        "took_bucket{le=\"0.25\"} 0",
        "took_bucket{le=\"0.5\"} 1",
    ];
    let registry = Registry::open(home.file()).unwrap();
    has(&registry, &lines.map(|line| line.replace("10.0", "10")).each_ref().map(|l| &**l));
}

#[test]
fn a_new_file_has_the_mode_that_was_asked_for() {
    let home = Home::new();
    let bits = || home.file().metadata().unwrap().permissions().mode() & 0o777;
    home.succeed(&["inc", "a_total"]);
    assert_eq!(bits(), 0o600);
    home.succeed(&["inc", "--mode", "0660", "a_total"]);
    assert_eq!(bits(), 0o600, "an existing file keeps its mode");
    for command in [
        &["inc", "a_total"][..],
        &["set", "b", "1"],
        &["observe", "c", "1"],
        &["time", "d", "--", "true"],
    ] {
        std::fs::remove_file(home.file()).unwrap();
        let (name, rest) = command.split_first().unwrap();
        home.succeed(&[&[*name, "--mode", "0640"], rest].concat());
        assert_eq!(bits(), 0o640, "{command:?}");
    }
    std::fs::remove_file(home.file()).unwrap();
    let mut command = home.quipu(&["inc", "a_total"]);
    assert!(command.env("QUIPU_MODE", "664").status().unwrap().success());
    assert_eq!(bits(), 0o664);
    home.refuse(&["inc", "--mode", "rw", "a_total"], 2, &["--mode", "such as 0660"]);
}

#[test]
fn errors_of_the_command_line_name_the_way_out() {
    let home = Home::new();
    home.refuse(&["time", "a", "ls"], 2, &["tip: put -- before the command"]);
    home.refuse(&["sevre"], 2, &["similar subcommands exist: 'serve', "]);
    home.refuse(&["diff", "a"], 2, &["tip: give --after TIME"]);
    let mut command = home.quipu(&["inc", "a"]);
    let output = command.env_remove("QUIPU_FILE").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("tip: the variable QUIPU_FILE can name the file"), "{errors}");
    assert!(!home.file().exists());
}

#[test]
fn a_shell_counts_in_a_metric_of_an_application() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let jobs: Counter = registry.counter("jobs", "Jobs.").unwrap();
    let spent: FloatCounter = registry.register(Description::new("spent", "")).unwrap();
    let described = Description::new("hits", "").labels(["page", "user"]);
    let hits: CounterFamily<Values> = registry.register(described).unwrap();
    let described =
        Description::new("calls", "").labels(["method", "by"]).values("method", ["GET", "PUT"]);
    let calls: MixedCounterFamily<Values> = registry.register(described.verbatim()).unwrap();
    let described = Description::new("busy", "").labels(["pool"]).values("pool", ["a", "b"]);
    let busy: IntGaugeFamily<Values> = registry.register(described).unwrap();
    let level: Gauge = registry.gauge("level", "").unwrap();
    let shared = Description::new("shared", "").aggregation(Aggregation::MostRecent);
    let shared: ProcessGauge = registry.register(shared).unwrap();
    let took: Histogram = registry.register(Description::new("took", "").buckets([1.0])).unwrap();
    let sizes: Summary = registry.register(Description::new("sizes", "")).unwrap();
    jobs.inc();
    for arguments in [
        &["inc", "jobs", "2"][..],
        &["inc", "jobs_total"],
        &["inc", "spent_total", "0.25"],
        &["inc", "hits_total{user=\"ada\",page=\"/\"}", "3"],
        &["inc", "hits{user=\"\",page=\"/\"}"],
        &["inc", "calls_total{by=\"x\",method=\"PUT\"}", "0.5"],
        &["set", "busy{pool=\"b\"}", "-4"],
        &["inc", "busy{pool=\"b\"}", "-1"],
        &["set", "level", "0.5"],
        &["set", "shared", "2.5"],
        &["observe", "took", "0.5"],
        &["observe", "--buckets", "1", "took", "2"],
        &["observe", "sizes", "12"],
    ] {
        home.succeed(arguments);
    }
    assert_eq!((jobs.get(), spent.get()), (4, 0.25));
    assert_eq!(hits.bind(&Values(&["/", "ada"])).get(), 3);
    assert_eq!(hits.bind(&Values(&["/", ""])).get(), 1);
    assert_eq!(calls.get(&Values(&["PUT", "x"])), Some(0.5));
    assert_eq!(busy.bind(&Values(&["b"])).get(), -5);
    assert_eq!((level.get(), shared.get()), (0.5, 2.5));
    assert_eq!((took.count(), took.sum(), sizes.count()), (2, 2.5, 1));
    let families = registry.text().lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(families, 9, "{}", registry.text());
}

#[test]
fn errors_name_the_existing_metric_and_the_way_out() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let _: Counter = registry.counter("jobs", "").unwrap();
    let labels = Description::new("calls", "").labels(["method", "by"]);
    let labels = labels.values("method", ["GET", "PUT"]);
    let _: CounterFamily<Values> = registry.register(labels).unwrap();
    let took: Histogram = registry.register(Description::new("took", "").buckets([1.0])).unwrap();
    let _: ProcessGauge = registry.register(Description::new("each", "")).unwrap();
    let info: Info = registry.register(Description::new("build", "").labels([""; 0])).unwrap();
    let few = Description::new("few", "").labels(["a"]).max_series(1);
    let few: CounterFamily<Values> = registry.register(few).unwrap();
    few.inc(&Values(&["x"]));
    home.succeed(&["set", "level{a=\"1\"}", "2"]);
    home.succeed(&["observe", "--buckets", "1,2", "rows", "1"]);
    for (arguments, parts) in [
        (&["inc", "jobs", "0.5"][..], &["\"jobs\"", "whole numbers", "0.5"][..]),
        (&["inc", "jobs_total", "-1"], &["\"jobs_total\"", "-1 cannot be added"]),
        (&["inc", "jobs{a=\"1\"}"], &["with no labels", "\"a\"", "another name"]),
        (&["set", "jobs_total", "1"], &["only grows", "add to it"]),
        (&["observe", "jobs_total", "1"], &["is a counter", "add to it"]),
        (&["inc", "calls{method=\"GET\"}"], &["give \"by\", too"]),
        (&["inc", "calls{method=\"DEL\",by=\"\"}"], &["\"GET\" or \"PUT\", not \"DEL\""]),
        (&["inc", "took"], &["is a histogram", "observe"]),
        (&["observe", "--buckets", "2", "took", "1"], &["other buckets", "leave the buckets out"]),
        (&["observe", "--buckets", "2,1", "new", "1"], &["out of order"]),
        (&["set", "each", "1"], &["each process", "mostrecent"]),
        (&["set", "build", "1"], &["an info", "another name"]),
        (
            &["set", "took_sum", "1"],
            &["another metric, \"took\" (histogram), has samples named \"took_sum\"", "rename"],
        ),
        (&["observe", "level{b=\"1\"}", "1"], &["is a gauge", "set it"]),
        (&["observe", "--buckets", "2", "rows{a=\"1\"}", "1"], &["other buckets"]),
        (&["inc", "fresh", "-1"], &["\"fresh\"", "only grows", "quipu set"]),
        (&["set", "--unit", "bytes", "free", "1"], &["use free_bytes"]),
    ] {
        home.refuse(arguments, 1, parts);
    }
    for (arguments, parts) in [
        (&["inc", "jobs{queue=mail}"][..], &["column 12", "in single quotes"][..]),
        (&["inc", "jobs", "one"], &["expected a number"]),
        (&["set", "jobs"], &["<VALUE>"]),
        (&["time", "took"], &["<COMMAND>"]),
    ] {
        home.refuse(arguments, 2, parts);
    }
    assert_eq!(took.count(), 0);
    drop(info);
    let output = home.quipu(&["inc", "few{a=\"y\"}"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("its overflow series"));
    has(&registry, &["few_total{a=\"x\"} 1", "few_total{quipu_overflow=\"true\"} 1"]);
    std::fs::write(home.directory().join("text"), "not a segment").unwrap();
    home.refuse(&["inc", "--file", "text", "a"], 1, &["text", "is not a segment"]);
    home.refuse(&["inc", "--file", "none/a", "a"], 1, &["none/a"]);
}

#[test]
fn processes_that_count_at_once_and_are_killed_lose_nothing() {
    const CALLS: u64 = 20;
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let family = Description::new("jobs", "").labels(["queue"]);
    let family: CounterFamily<Values> = registry.register(family).unwrap();
    home.succeed(&["inc", "shell_total", "0"]);
    let stop = AtomicBool::new(false);
    let (killed, counted) = thread::scope(|scope| {
        let shells: Vec<_> = ["one", "two"]
            .iter()
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        home.succeed(&["inc", "jobs_total{queue=\"a\"}"]);
                        home.succeed(&["inc", "shell_total"]);
                    }
                })
            })
            .collect();
        let killer = scope.spawn(|| {
            let mut killed = 0;
            for micros in 0..CALLS {
                let mut child = home.quipu(&["inc", "killed_total"]).spawn().unwrap();
                thread::sleep(Duration::from_micros(micros * 300));
                let _ = child.kill();
                killed += u64::from(child.wait().unwrap().signal().is_some());
            }
            killed
        });
        let counter = scope.spawn(|| {
            let mut counted = 0;
            while !stop.load(Ordering::Relaxed) {
                family.inc(&Values(&["a"]));
                counted += 1;
            }
            counted
        });
        shells.into_iter().for_each(|shell| shell.join().unwrap());
        let killed = killer.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        (killed, counter.join().unwrap())
    });
    let total: u64 = 2 * CALLS + counted;
    has(&registry, &[&format!("jobs_total{{queue=\"a\"}} {total}"), "shell_total 40"]);
    let text = registry.text();
    let line = text.lines().find_map(|line| line.strip_prefix("killed_total "));
    let count: u64 = line.map_or(0, |count| count.parse().unwrap());
    assert!((CALLS - killed..=CALLS).contains(&count), "{count} of {CALLS}, {killed} killed");
    // A later call takes over the claims of a dead process.
    let used = registry.segment().used();
    for _ in 0..8 {
        home.succeed(&["inc", "shell_total"]);
    }
    assert_eq!(registry.segment().used(), used);
}

#[test]
fn a_timed_command_keeps_its_streams_and_its_exit_code() {
    let home = Home::new();
    let timed = |name: &str, script: &str| {
        let arguments = ["time", name, "--", "sh", "-c", script];
        let mut command = home.quipu(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = timed("took{of=\"cat\"}", "cat; echo oh >&2; exit 3");
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((&*output.stdout, &*output.stderr), (&b"in\n"[..], &b"oh\n"[..]));
    let output = timed("took{of=\"kill\"}", "kill -9 $$").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(137));
    // The timed command runs even if it cannot be counted.
    home.succeed(&["inc", "jobs_total"]);
    let output = timed("jobs_total", "echo out; exit 4").wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(4), &b"out\n"[..]));
    assert!(errors.contains("is a counter"), "{errors}");
    let unfound = ["time", "unfound", "--", "./there-is-none"];
    home.refuse(&unfound, 127, &["./there-is-none", "No such file"]);
    home.refuse(&["time", "unfound", "--", "/"], 126, &["denied"]);
    let registry = Registry::open(home.file()).unwrap();
    has(&registry, &["took_count{of=\"cat\"} 1", "took_count{of=\"kill\"} 1"]);
    assert!(!registry.text().contains("unfound"));
    assert!(registry.text().contains("took_bucket{of=\"cat\",le=\"3600\"} 1"));
}

#[test]
fn signals_go_to_the_timed_command() {
    let home = Home::new();
    for (signal, script, code) in [
        (Signal::TERM, "echo up; exec sleep 60", 143),
        (Signal::TERM, "trap 'exit 7' TERM; echo up; sleep 60 & wait", 7),
        (Signal::INT, "trap 'exit 8' INT; echo up; sleep 60 & wait", 8),
    ] {
        let quipu = home.quipu(&["time", "took", "--", "sh", "-c", script]);
        // Restore the signal, because a test in the background of a shell ignores SIGINT, and the
        // command would inherit this.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(quipu.get_program()).args(quipu.get_args());
        command.env("QUIPU_FILE", home.file()).current_dir(home.directory());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{script}");
    }
    // A signal from a process, in the foreground of a terminal.
    let quipu = home.quipu(&["time", "took", "--", "sh", "-c", "echo up $PPID; exec sleep 60"]);
    let words = std::iter::once(quipu.get_program()).chain(quipu.get_args());
    let words = words.map(|word| format!("'{}'", word.to_str().unwrap()));
    let mut command = Command::new("env");
    command.args(["--default-signal", "script", "--quiet", "--return", "--flush", "--command"]);
    command.arg(words.collect::<Vec<_>>().join(" ")).arg("/dev/null").stdin(Stdio::piped());
    command.env("QUIPU_FILE", home.file()).current_dir(home.directory());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let id = line.trim().strip_prefix("up ").unwrap().parse().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // The parent ignores the end of children.
    let quipu = home.quipu(&["time", "took", "--", "sh", "-c", "exit 3"]);
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD"]).arg(quipu.get_program()).args(quipu.get_args());
    command.env("QUIPU_FILE", home.file()).current_dir(home.directory());
    assert_eq!(command.status().unwrap().code(), Some(3));
    let registry = Registry::open(home.file()).unwrap();
    has(&registry, &["took_count 5"]);
}
