//! Tests of the sources of settings. Flags override the environment, which overrides the file.

use std::fs;
use std::process::Command;

use toml::{Table, Value};

use crate::common::Home;

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let home = Home::new();
    let file = "window = \"10s\"\naccuracy = \"1s\"\nkeys = 10\nlisten = [\"127.0.0.1:1\"]\n";
    fs::write(home.path("quipu.toml"), file).unwrap();
    let shown = |environment: &[(&str, &str)], arguments: &[&str]| -> Table {
        let mut command = home.command();
        command.args(["serve", "--check-config"]).args(arguments);
        command.envs(environment.iter().copied());
        let ended = home.finish(command);
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
        ended.stdout.parse().unwrap()
    };
    let expect = |table: &Table, window: &str, keys: i64, accuracy: &str, listen: &[&str]| {
        assert_eq!(table["window"].as_str(), Some(window));
        assert_eq!(table["keys"].as_integer(), Some(keys));
        assert_eq!(table["accuracy"].as_str(), Some(accuracy));
        let addresses = table["listen"].as_array().unwrap();
        assert_eq!(addresses.iter().filter_map(Value::as_str).collect::<Vec<_>>(), listen);
    };
    expect(&shown(&[], &[]), "1m", 10_000, "200ms", &["127.0.0.1:8081"]);
    let with_file = ["--config", "quipu.toml"];
    expect(&shown(&[], &with_file), "10s", 10, "1s", &["127.0.0.1:1"]);
    let environment = [("QUIPU_WINDOW", "20s"), ("QUIPU_LISTEN", "127.0.0.1:2,127.0.0.1:3")];
    let both = ["127.0.0.1:2", "127.0.0.1:3"];
    expect(&shown(&environment, &with_file), "20s", 10, "1s", &both);
    let flags =
        ["--config", "quipu.toml", "--window", "30s", "--keys", "30", "--listen", "127.0.0.1:4"];
    expect(&shown(&environment, &flags), "30s", 30, "1s", &["127.0.0.1:4"]);
    // The environment can name the file, too.
    let named = [("QUIPU_CONFIG", "quipu.toml"), ("QUIPU_KEYS", "20")];
    expect(&shown(&named, &["--window", "30s"]), "30s", 20, "1s", &["127.0.0.1:1"]);
    // The checks created no files.
    assert_eq!(home.files(), ["quipu.toml"]);
}

#[test]
fn a_daemon_runs_on_the_settings_that_were_shown() {
    let home = Home::new();
    let host = home.host();
    let flags = ["--window", "2s", "--accuracy", "20ms", "--keys", "7", "--log-format", "json"];
    let check = ["--check-config", "--listen", &format!("{host}:0"), "--state", "a b.quipu"];
    let ended = home.run(&[&check[..], &flags[..]].concat());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    fs::write(home.path("shown.toml"), &ended.stdout).unwrap();
    // Printing the settings again gives the same result.
    let again = home.run(&["--check-config", "--config", "shown.toml"]);
    assert_eq!(again.stdout, ended.stdout);

    let mut command = home.command();
    command.args(["serve", "--config", "shown.toml"]);
    let daemon = home.spawn(command);
    assert_eq!(daemon.opened()["path"], "a b.quipu");
    assert_eq!(daemon.count("/"), 1);
    assert_eq!(daemon.sample("quipu_keys_capacity"), 7.0);
    assert!(daemon.sample("quipu_window_events{window=\"2s\"}") <= 1.0);
    daemon.stop();
    assert_eq!(home.files(), ["a b.quipu", "shown.toml"]);
}

#[test]
fn every_setting_is_shown_with_its_value() {
    let home = Home::new();
    let ended = home.run(&["--check-config"]);
    let shown: Table = ended.stdout.parse().unwrap();
    let help = home.run(&["--help"]).stdout;
    for flag in shown.keys() {
        let is_there = [" ", "["].iter().any(|end| help.contains(&format!("--{flag}{end}")));
        assert!(is_there, "no --{flag} in {help}");
    }
    let flags = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    // All settings except --config, --check-config, and --help, whose line begins with its short
    // form.
    let words: Vec<&str> = help.split_whitespace().collect();
    let unset = words.join(" ").matches("[default: none]").count();
    assert_eq!(shown.len(), flags - 2 - unset, "{help}");
}

#[test]
fn settings_that_cannot_be_used_end_a_check_with_2() {
    let home = Home::new();
    for (arguments, part) in [
        (["--check-config", "--accuracy", "7ms"], "cannot use --window"),
        (["--check-config", "--keys", "0"], "cannot use --keys"),
        (["--check-config", "--span", "1s"], "cannot use --span"),
        (["--check-config", "--threads", "0"], "cannot use --threads"),
        (["--check-config", "--config", "missing.toml"], "missing.toml"),
    ] {
        home.expect_refusal(&arguments, 2, &[part]);
    }
    assert!(home.files().is_empty());
}

#[test]
fn a_file_of_settings_is_checked_by_itself() {
    let home = Home::new();
    let file = home.path("quipu.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = home.command();
        // The environment is not part of the file.
        command.args(["check", "config", "quipu.toml"]).env("QUIPU_KEYS", "none");
        home.finish(command)
    };
    let good = check("window = \"30s\"\nseries = 5\n");
    assert_eq!(good.status.code(), Some(0), "{}", good.stderr);
    assert_eq!(good.stdout, "quipu.toml: the settings are valid\n");
    for (text, part) in [
        ("series = -1\n", "line 1"),
        ("serie = 1\n", "unknown field `serie`"),
        ("keys = 0\n", "cannot use --keys"),
    ] {
        let bad = check(text);
        assert_eq!(bad.status.code(), Some(2), "{text}");
        assert!(bad.stderr.contains(part), "{text}: {}", bad.stderr);
    }
}

#[test]
fn files_with_secrets_are_checked_and_not_shown() {
    let home = Home::new();
    let settings = |flag: &str| match flag {
        _ if flag.starts_with("scrape") => "scrape = \"node=http://a:1\"",
        _ if flag.starts_with("otlp") => "otlp = \"http://a:1\"",
        _ => "remote-write = \"http://a:1/w\"",
    };
    let check = |flag: &str, file: &str| {
        let text = format!("{}\n{flag} = {file:?}\n", settings(flag));
        fs::write(home.path("quipu.toml"), text).unwrap();
        let mut command = home.command();
        command.args(["check", "config", "quipu.toml"]);
        let ended = home.finish(command);
        let mut command = home.command();
        command.args(["serve", "--check-config", "--config", "quipu.toml"]);
        let same = home.finish(command);
        assert_eq!((same.status.code(), same.stderr), (ended.status.code(), ended.stderr.clone()));
        assert!(
            !ended.stderr.contains("fish") && !same.stdout.contains("fish"),
            "{}",
            ended.stderr
        );
        (ended.status.code(), ended.stderr)
    };
    fs::write(home.path("empty"), "\n").unwrap();
    fs::write(home.path("long"), "fish ".repeat(20_000)).unwrap();
    fs::write(home.path("lines"), "a: fish\nfish\n").unwrap();
    fs::write(home.path("word"), "swordfish\n").unwrap();
    fs::write(home.path("pair"), "a: swordfish\n").unwrap();
    fs::create_dir(home.path("folder")).unwrap();
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    let all = [
        ("remote-write-bearer-file", "word", "lines", "more than a line"),
        ("remote-write-basic-file", "pair", "word", "no colon; write USER:PASSWORD"),
        ("remote-write-header-file", "pair", "lines", "line 2 of lines: it has no colon"),
        ("otlp-bearer-file", "word", "lines", "more than a line"),
        ("otlp-basic-file", "pair", "word", "no colon; write USER:PASSWORD"),
        ("otlp-header-file", "pair", "lines", "line 2 of lines: it has no colon"),
        ("scrape-bearer-file", "word", "lines", "more than a line"),
        ("scrape-basic-file", "pair", "word", "no colon; write USER:PASSWORD"),
    ];
    for (flag, good, bad, part) in all {
        assert_eq!(check(flag, good), (Some(0), String::new()), "{flag}");
        for (file, part) in [
            (bad, part),
            ("none", "cannot read none: No such file"),
            ("empty", "empty is empty"),
            ("long", "more than 65536 bytes"),
            ("folder", "folder is not a regular file"),
            ("pipe", "pipe is not a regular file"),
        ] {
            let (code, error) = check(flag, file);
            assert_eq!(code, Some(2), "{flag}: {error}");
            let start = format!("quipu: cannot use --{flag}: ");
            assert!(error.starts_with(&start) && error.contains(part), "{flag}: {error}");
        }
    }
}

#[test]
fn a_receiver_without_a_path_is_a_warning() {
    const WARNING: &str = "the URL http://127.0.0.1:1 has no path";
    let home = Home::new();
    let flags = ["--remote-write", "http://127.0.0.1:1?key=fish", "--otlp", "http://127.0.0.1:1"];
    let ended = home.run(&[&["--check-config"], &flags[..]].concat());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.starts_with(&format!("quipu: --remote-write: {WARNING}")));
    assert!(ended.stderr.contains("/api/v1/write") && !ended.stderr.contains("fish"));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);

    let check = |url: &str| {
        fs::write(home.path("quipu.toml"), format!("remote-write = [{url:?}]")).unwrap();
        let mut command = home.command();
        command.args(["check", "config", "quipu.toml"]);
        home.finish(command)
    };
    let bare = check("http://127.0.0.1:1");
    assert_eq!(bare.status.code(), Some(0), "{}", bare.stderr);
    assert!(bare.stderr.contains(WARNING), "{}", bare.stderr);
    assert_eq!(check("http://127.0.0.1:1/w").stderr, "");
    let two = check("http://127.0.0.1:1/w,http://127.0.0.1:2/w");
    assert_eq!(two.status.code(), Some(2));
    assert!(two.stderr.contains("value 1: it has a comma and another URL"), "{}", two.stderr);

    let daemon = home.start(&flags);
    daemon.wait_for(&format!("--remote-write: {WARNING}"));
    daemon.stop();
}
