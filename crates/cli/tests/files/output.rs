//! Tests of the commands' standard output, with a reader that goes away, and with a full disk.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

use quipu::Registry;
use quipu_segment::history::Options;

use super::Home;

/// Returns commands whose output is larger than the buffer of a pipe.
fn commands(home: &Home) -> Vec<Vec<&'static str>> {
    let registry = Registry::open(home.file()).unwrap();
    let jobs = quipu::Description::new("jobs", "").labels(["queue"]);
    let jobs: quipu::CounterFamily<quipu::label::Values> = registry.register(jobs).unwrap();
    let mut text = String::new();
    for i in 0..2000 {
        jobs.inc(&quipu::label::Values(&[&format!("a queue with a long name {i}")]));
        text.push_str(&format!("a_metric_without_a_help_whose_name_is_long_{i} 1\n"));
    }
    fs::write(home.directory().join("text"), text).unwrap();
    fs::write(home.directory().join("empty"), "").unwrap();
    let options = Options::new().series(2000).bytes(4 << 20);
    let mut recorder = options.open(registry.segment()).unwrap();
    assert!(recorder.tick_at(1_700_000_000_000_000_000, 1_700_000_000_000_000_000).unwrap());
    let commands = [
        "inspect app.quipu",
        "inspect --format json app.quipu",
        "inspect --history --format json app.quipu",
        "expose app.quipu",
        "top --once --interval 10ms --all app.quipu",
        "top --replay --once --all app.quipu",
        "diff text empty",
        "diff --format json text empty",
        "check metrics text",
    ];
    commands.iter().map(|command| command.split(' ').collect()).collect()
}

fn run(mut command: Command, stdout: impl Into<Stdio>) -> Output {
    command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let home = Home::new();
    for arguments in commands(&home) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = run(home.quipu(&arguments), writer);
        // The exit code still reports the findings.
        let expected = if arguments[0] == "check" { 3 } else { 0 };
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), &*errors), (Some(expected), ""), "{arguments:?}");
    }
}

#[test]
fn the_version_names_the_release() {
    let home = Home::new();
    let version = home.succeed(&["version"]);
    assert!(version.starts_with(concat!("quipu ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert_eq!(home.succeed(&["--version"]), version);
}

#[test]
fn a_flag_decides_whether_there_are_colors() {
    let home = Home::new();
    fs::write(home.directory().join("a"), "a 1\n").unwrap();
    fs::write(home.directory().join("b"), "a 2\n").unwrap();
    let is_colored = |arguments: &[&str]| {
        let output = home.quipu(arguments).output().unwrap();
        [output.stdout, output.stderr].concat().contains(&0x1b)
    };
    for arguments in [
        &["diff", "a", "b"][..],
        &["diff", "--help"],
        &["--help"],
        &["serve", "--help"],
        &["diff", "a", "none"],
        &["diff", "--no-such-flag"],
        &["serve", "--no-such-flag"],
    ] {
        for (choice, expected) in [("always", true), ("never", false), ("auto", false)] {
            let color = ["--color", choice];
            assert_eq!(
                is_colored(&[arguments, &color].concat()),
                expected,
                "{arguments:?} {choice}"
            );
        }
    }
}

#[test]
fn errors_name_the_way_out() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total"]);
    for (arguments, code, part) in [
        (&["tpo"][..], 2, "quipu --help lists the commands"),
        (&["check", "app.quipu"], 2, "quipu check metrics FILE"),
        (&["snapshot", "--state", "none.quipu"], 1, "with --state"),
        (&["man", "none"], 1, "name a directory that exists"),
        (&["top", "--once", "--family", "x", "app.quipu"], 1, "lists them"),
        (&["push", "--to", "ftp://a", "x"], 1, "give HOST:PORT, such as localhost:8081"),
    ] {
        home.refuse(arguments, code, &[part]);
    }
}

#[test]
fn an_error_about_arguments_does_not_control_the_terminal() {
    let home = Home::new();
    for arguments in [
        &["diff", "--\x1b[31mred"][..],
        &["\x1b]0;title\x07"],
        &["inc", "a{b=\x1b[31m"],
        &["push", "--id", "\x1b[31m", "a"],
        &["top", "--interval", "\u{202e}s"],
        &["serve", "--threads", "\x1b[31m"],
    ] {
        let output = home.quipu(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!errors.contains(['\x1b', '\x07', '\u{202e}']), "{arguments:?}: {errors:?}");
    }
}

#[test]
fn a_snapshot_that_is_cut_off_is_a_failure() {
    let home = Home::new();
    commands(&home);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let snapshot = home.quipu(&["snapshot", "--state", "app.quipu", "-"]);
    let Output { status, stderr, .. } = run(snapshot, writer);
    let errors = String::from_utf8(stderr).unwrap();
    assert!(errors.contains("standard output: its reader has gone"), "{errors}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_output() {
    let home = Home::new();
    let mut commands = commands(&home);
    fs::write(home.directory().join("settings.toml"), "").unwrap();
    commands.push(vec!["serve", "--check-config"]);
    commands.push(vec!["check", "config", "settings.toml"]);
    commands.push(vec!["snapshot", "--state", "app.quipu", "-"]);
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let Output { status, stderr, .. } = run(home.quipu(&arguments), full);
        let errors = String::from_utf8(stderr).unwrap();
        let expected = "quipu: standard output: No space left on device";
        assert!(errors.starts_with(expected), "{arguments:?}: {errors}");
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}
