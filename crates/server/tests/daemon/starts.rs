//! Starts that fail: what is told, with what exit code. Those on the state are in `state_file`.

use std::fs;

use crate::common::Home;

#[test]
fn flags_that_are_wrong_end_with_2() {
    let home = Home::new();
    for (arguments, parts) in [
        (&["--windw", "1s"][..], &["'--windw'", "--window"][..]),
        (&["extra"], &["'extra'"]),
        (&["--window"], &["--window <TIME>"]),
        (&["--window", "soon"], &["'soon'", "--window", "such as 200ms, 60s, or 1h 30m"]),
        (&["--window", "60"], &["'60'", "--window", "such as 200ms, 60s, or 1h 30m"]),
        (&["--window", ""], &["--window"]),
        (&["--keys", "-1"], &["-1"]),
        (&["--keys", "many"], &["'many'", "--keys"]),
        (&["--damaged-state", "ignore"], &["'ignore'", "refuse", "set-aside"]),
        (&["--log-format", "xml"], &["'xml'", "text", "json"]),
        (&["--log-level", "loud"], &["'loud'", "error, warn, info, debug, trace"]),
        (&["--window", "1s", "--window", "2s"], &["--window", "multiple times"]),
    ] {
        home.expect_refusal(arguments, 2, parts);
    }
    assert!(home.files().is_empty());
}

#[test]
fn values_that_do_not_go_together_end_with_2_and_the_way_out() {
    let home = Home::new();
    for (arguments, parts) in [
        (&["--window", "1s", "--accuracy", "300ms"][..], &["--window", "take 900ms or 1.2s"][..]),
        (&["--accuracy", "2m"], &["--window", "take 120s, or a finer accuracy"]),
        (&["--window", "0s"], &["--window", "at least a nanosecond"]),
        (&["--accuracy", "0s"], &["at least a nanosecond"]),
        (&["--accuracy", "1ns"], &["--window", "a coarser accuracy or a shorter window"]),
        (&["--window", "300y"], &["--window", "too long; give at most"]),
        (&["--span", "30s"], &["--span", "it is shorter than the window; give at least"]),
        (&["--key-accuracy", "7s"], &["--key-accuracy", "give one that divides it"]),
        (&["--keys", "0"], &["--keys", "room for 1 to 2^28 keys"]),
        (&["--key-bytes", "0"], &["--key-bytes", "give 1 to 4096"]),
        (&["--checkpoint", "0s"], &["--checkpoint", "give at least 1ms"]),
        (&["--threads", "1025"], &["--threads", "1 to 1024"]),
        (&["--connections", "0"], &["--connections", "give 1 to"]),
        (&["--header-bytes", "10"], &["--header-bytes", "give 256 to"]),
        (&["--read-timeout", "1ms"], &["--read-timeout", "give at least 10ms"]),
        (&["--write-timeout", "1ms"], &["--write-timeout", "give at least 10ms"]),
        (&["--idle-timeout", "1ms"], &["--idle-timeout", "give at least 10ms"]),
    ] {
        home.expect_refusal(arguments, 2, parts);
    }
    assert!(home.files().is_empty());
}

#[test]
fn settings_of_the_environment_are_checked_as_flags_are() {
    let home = Home::new();
    for (name, value, part) in [
        ("QUIPU_WINDOW", "soon", "such as 200ms, 60s, or 1h 30m"),
        ("QUIPU_KEYS", "many", "--keys"),
        ("QUIPU_ACCURACY", "7ms", "--window"),
        ("QUIPU_LOG_LEVEL", "loud", "error, warn, info, debug, trace"),
    ] {
        let mut command = home.command();
        command.arg("serve").env(name, value);
        let ended = home.finish(command);
        assert_eq!(ended.status.code(), Some(2), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{name}: {}", ended.stderr);
    }
    assert!(home.files().is_empty());
}

#[test]
fn files_of_settings_that_cannot_be_used_end_with_2() {
    let home = Home::new();
    let path = home.path("quipu.toml");
    for (text, parts) in [
        (&b"window = "[..], &["line 1"][..]),
        (b"window 60s", &["line 1"]),
        (b"window = \"60s\"\nwindw = \"60s\"", &["line 2", "unknown field `windw`", "`window`"]),
        (b"[serve]\nwindow = \"60s\"", &["unknown field `serve`"]),
        (b"window = 60", &["line 1", "invalid type: integer `60`"]),
        (b"window = \"soon\"", &["\"soon\"", "such as 200ms, 60s, or 1h 30m"]),
        (b"window = \"1s\"\nwindow = \"2s\"", &["line 2", "duplicate key"]),
        (b"keys = -1", &["-1"]),
        (b"log-format = \"xml\"", &["`xml`", "`text`", "`json`"]),
        (b"\xff\xfe", &["UTF-8"]),
    ] {
        fs::write(&path, text).unwrap();
        let arguments = ["--config", "quipu.toml"];
        home.expect_refusal(&arguments, 2, &[&["quipu.toml"], parts].concat());
        assert_eq!(fs::read(&path).unwrap(), text);
    }
    let way_out = "name a TOML file that this user may read";
    home.expect_refusal(&["--config", "missing.toml"], 2, &["missing.toml", "No such", way_out]);
    home.expect_refusal(&["--config", "."], 2, &["directory", way_out]);
    assert_eq!(home.files(), ["quipu.toml"]);
}

#[test]
fn an_address_in_use_is_named_with_the_way_out() {
    let home = Home::new();
    let other = Home::new();
    for threads in ["1", "2"] {
        let daemon = home.start(&["--threads", threads]);
        let address = daemon.address();
        // However many threads either has: a port is never shared with another daemon.
        for threads in ["1", "2"] {
            let listen = ["--listen", &address.to_string(), "--keys", "16", "--threads", threads];
            let way_out = format!(
                "another process has port {} (ss -ltnp 'sport = :{}' names it): stop it or choose \
                 another port",
                address.port(),
                address.port()
            );
            other.expect_refusal(&listen, 1, &[&format!("cannot listen on {address}"), &way_out]);
        }
        daemon.stop();
    }
}

#[test]
fn an_address_in_use_does_not_make_a_state() {
    let (holder, other) = (Home::new(), Home::new());
    let holder = holder.start(&[]);
    let ended = other.launch(&["--listen", &holder.address().to_string()]).wait();
    assert!(ended.stderr.contains("cannot listen"), "{}", ended.stderr);
    assert!(other.files().is_empty(), "{:?}", other.files());
}

#[test]
fn an_address_in_use_leaves_a_state_that_was_closed() {
    let (holder, other) = (Home::new(), Home::new());
    let holder = holder.start(&[]);
    let daemon = other.start(&[]);
    daemon.get("/");
    daemon.stop();
    let ended = other.launch(&["--listen", &holder.address().to_string()]).wait();
    assert!(ended.stderr.contains("cannot listen"), "{}", ended.stderr);
    let daemon = other.start(&[]);
    assert_eq!(daemon.count("/rate"), 1);
    assert_eq!(daemon.opened()["left_open"], false);
}

#[test]
fn addresses_that_are_none_are_told_how_to_write_one() {
    let home = Home::new();
    for address in ["", "8081", "127.0.0.1", "127.0.0.1:99999", "[::1:80", "http://127.0.0.1:80"] {
        let parts = [&format!("cannot use {address:?}"), "write host:port, such as 127.0.0.1:8081"];
        home.expect_refusal(&["--listen", address, "--keys", "16"], 1, &parts);
    }
    // An address of documentation is nobody's interface.
    let parts = ["192.0.2.1:80", "no interface of this machine", "0.0.0.0"];
    home.expect_refusal(&["--listen", "192.0.2.1:80", "--keys", "16"], 1, &parts);
}

#[test]
fn without_a_command_there_is_help() {
    let home = Home::new();
    let ended = home.finish(home.command());
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("Usage: quipu <COMMAND>"), "{}", ended.stderr);
    for (arguments, part) in [
        (&["--version"][..], concat!("quipu ", env!("CARGO_PKG_VERSION"), "\n")),
        (&["--help"], "serve"),
        (&["serve", "--help"], "--damaged-state"),
    ] {
        let mut command = home.command();
        command.args(arguments);
        let ended = home.finish(command);
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.contains(part), "{}", ended.stdout);
    }
}

#[test]
fn a_state_that_is_in_use_is_free_when_its_daemon_is_gone() {
    let home = Home::new();
    let daemon = home.start(&[]);
    daemon.get("/");
    for what in ["refuse", "set-aside"] {
        let parts = ["state.quipu", "another process has it open", "stop that process, or name"];
        let arguments = ["--listen", "127.0.0.1:0", "--damaged-state", what];
        home.expect_refusal(&arguments, 1, &parts);
    }
    assert_eq!(home.files(), ["state.quipu"]);
    // The one that has it does not notice.
    assert_eq!(daemon.count("/"), 2);
    daemon.kill();
    assert_eq!(home.start(&[]).count("/rate"), 2);
}
