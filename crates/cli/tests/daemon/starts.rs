//! Tests of failed starts: messages and exit codes. The failures of the state are in `state_file`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use quipu_segment::Options;
use quipu_window::KeyedWindows;

use crate::common::{Home, program, wait_until};

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

/// hyper would panic at the first request.
#[test]
fn a_clock_before_1970_is_refused() {
    let home = Home::new();
    let mut command = Command::new(program("faketime", "faketime"));
    command.args(["-f", "@1969-06-01 00:00:00", env!("CARGO_BIN_EXE_quipu"), "serve"]);
    command.args(["--listen", "127.0.0.1:0"]).current_dir(home.directory());
    let ended = home.finish(command);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("a time before 1970; set it"), "{}", ended.stderr);
    assert!(home.files().is_empty());
}

#[test]
fn settings_of_the_environment_are_checked_like_flags() {
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
        (b"[serve]\nwindow = \"60s\"", &["unknown field: quipu serve --help lists the settings"]),
        (b"window = 60", &["line 1", "60 has no unit: write \"60s\""]),
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
        // A port is never shared with another daemon, no matter how many threads each of them uses.
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

/// A daemon that cannot listen must not create a state file.
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
fn the_daemon_listens_on_a_unix_socket_and_an_address() {
    let home = Home::new();
    let path = home.path("quipu.sock");
    let listen = format!("{}:0,unix:quipu.sock", home.host());
    let start = || home.start(&["--listen", &listen, "--threads", "2"]);
    let get = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: quipu\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.") && response.contains(" 200 OK"), "{response}");
        assert!(response.contains("\nquipu_http_connections_open "), "{response}");
    };
    let daemon = start();
    get();
    assert_eq!(daemon.count("/"), 1);
    home.expect_refusal(
        &["--listen", "unix:quipu.sock", "--state", "other.quipu"],
        1,
        &["cannot listen on unix:quipu.sock", "another process listens on it"],
    );
    // A killed process does not remove its socket.
    daemon.kill();
    assert!(path.exists());
    let daemon = start();
    (0..20).for_each(|_| get());
    daemon.stop();
    assert!(!path.exists());
}

#[test]
fn malformed_addresses_are_refused_with_an_example() {
    let home = Home::new();
    for address in ["", "081x", "127.0.0.1", "127.0.0.1:99999", "[::1:80", "http://127.0.0.1:80"] {
        let start = format!("cannot use --listen: {address:?}");
        let parts = [&*start, "write host:port, such as 127.0.0.1:8081"];
        home.expect_refusal(&["--listen", address, "--check-config"], 2, &parts);
        home.expect_refusal(&["--listen", address, "--keys", "16"], 2, &parts);
    }
    // No interface uses an address of the documentation range.
    let parts = ["192.0.2.1:80", "no interface of this machine", "0.0.0.0"];
    home.expect_refusal(&["--listen", "192.0.2.1:80", "--keys", "16"], 1, &parts);
}

#[test]
fn a_port_without_a_host_is_a_port_of_this_machine() {
    let home = Home::new();
    let ended = home.run(&["--check-config", "--listen", "8081,:80,[::1]:1"]);
    let listen = "listen = [\"127.0.0.1:8081\", \":80\", \"[::1]:1\"]\n";
    assert!(ended.stdout.starts_with(listen), "{}", ended.stdout);
    home.expect_refusal(&["--check-config", "--listen", "65536"], 2, &["up to 65535"]);
}

#[test]
fn variables_that_are_no_settings_are_named() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["serve", "--check-config"]).env("QUIPU_WINDW", "10s").env("QUIPU_\n", "");
    for known in ["QUIPU_WINDOW", "QUIPU_DIR", "QUIPU_PORT_80_TCP", "QUIPU_SERVICE_HOST"] {
        command.env(known, "10s");
    }
    let ended = home.finish(command);
    let message = "is not a setting and is ignored; quipu serve --help lists the settings";
    let expected = format!("quipu: QUIPU_\\n {message}\nquipu: QUIPU_WINDW {message}\n");
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), expected));
    let mut command = home.command();
    command.args(["serve", "--listen", "192.0.2.1:80", "--log-format", "json"]);
    let ended = home.finish({
        command.env("QUIPU_WINDW", "10s");
        command
    });
    assert!(ended.stderr.contains("\"name\":\"QUIPU_WINDW\""), "{}", ended.stderr);
}

/// Returns a command for the binary, with a limit of the shell on its resources.
fn limited(home: &Home, flag: char, limit: u64) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -{flag} {limit} && exec \"$0\" \"$@\"")]);
    command.arg(home.command().get_program()).current_dir(home.directory());
    command
}

/// Returns the approximate address space in KiB that a daemon needs before it opens its state.
fn least_addresses(home: &Home) -> u64 {
    // The size of the program depends on the compiler. A daemon needs more than this before it
    // opens the state, but far less than the added 16,000 KiB.
    let runs = |kib: &u64| {
        let mut command = limited(home, 'v', *kib);
        command.arg("--version");
        home.finish(command).status.success()
    };
    (16_000..1_000_000).step_by(4000).find(runs).unwrap() + 16_000
}

/// Returns the address space in KiB that a refusal mentions.
fn needed(refusal: &str) -> Option<u64> {
    let (_, rest) = refusal.rsplit_once(" needs ")?;
    rest.split_once(" KiB")?.0.parse().ok()
}

/// With too little address space, the daemon names the necessary limit, and a start with this limit
/// succeeds.
#[test]
fn a_refused_start_leaves_no_state_and_its_advice_works() {
    let home = Home::new();
    let serve = |flag: char, limit: u64| {
        let mut command = limited(&home, flag, limit);
        command.args(["serve", "--listen", &format!("{}:0", home.host())]);
        command.args(["--log-format", "json", "--input-bytes", "1048576"]);
        command
    };
    let least = least_addresses(&home);
    // We try limits from too little address space for the state to enough for everything except
    // metrics or a thread. The state takes over 64 MiB and the metrics take 16 MiB, so no step
    // skips either.
    let (mut refused, mut advice) = (Vec::new(), BTreeSet::new());
    for kib in (least..least + 1_000_000).step_by(4000) {
        let daemon = home.spawn(serve('v', kib));
        if daemon.starts() {
            daemon.stop();
            fs::remove_file(home.state()).unwrap();
            break;
        }
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(1), "{kib}: {}", ended.stderr);
        assert_eq!(home.files(), [""; 0], "{kib}: {}", ended.stderr);
        advice.extend(needed(&ended.stderr));
        assert!(advice.iter().all(|needed| kib < *needed), "{kib}: {}", ended.stderr);
        refused.push(ended.stderr);
    }
    for part in ["cannot use the state", "cannot make the daemon's own metrics"] {
        assert!(refused.iter().any(|refusal| refusal.contains(part)), "{part}: {refused:#?}");
    }
    assert_eq!(advice.len(), 1, "{refused:#?}");
    let daemon = home.spawn(serve('v', advice.pop_first().unwrap()));
    daemon.wait_for("started");
    daemon.stop();
    fs::remove_file(home.state()).unwrap();

    // Shells use a unit of either 512 bytes or a kilobyte.
    let daemon = home.spawn(serve('f', 4000));
    let ended = daemon.wait();
    assert!(ended.stderr.contains("fewer --keys"), "{}", ended.stderr);
    assert_eq!(home.files(), [""; 0]);
    let mut command = serve('f', 4000);
    command.args(["--keys", "16"]);
    let daemon = home.spawn(command);
    daemon.wait_for("started");
    daemon.stop();
}

#[test]
fn a_start_without_room_for_the_index_of_the_keys_is_refused() {
    const KEYS: usize = 50_000;
    let (home, keys, minute) = (Home::new(), KEYS.to_string(), Duration::from_secs(60));
    let settings = ["--keys", &keys, "--key-bytes", "8", "--key-accuracy", "1m"];
    let settings = [&settings[..], &["--window", "1m", "--input-bytes", "1048576"]].concat();
    home.start(&settings).stop();
    let segment = Options::new().open(home.state()).unwrap();
    let table = KeyedWindows::options(minute, minute, KEYS).max_key_bytes(8);
    let table = table.build_in(&segment, "keys").unwrap();
    for key in 0..KEYS {
        table.add_and_count(&key.to_le_bytes(), 1).unwrap();
    }
    drop(table);
    segment.close().unwrap();
    drop(segment);
    let serve = |kib: u64| {
        let mut command = limited(&home, 'v', kib);
        command.args(["serve", "--listen", &format!("{}:0", home.host())]);
        command.args(["--log-format", "json"]).args(&settings);
        home.spawn(command)
    };
    // The index takes over 8000 KiB.
    let least = least_addresses(&home);
    let mut refused = Vec::new();
    for kib in (least..least + 1_000_000).step_by(4000) {
        let daemon = serve(kib);
        if daemon.starts() {
            daemon.stop();
            break;
        }
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(1), "{kib}: {}", ended.stderr);
        refused.push(ended.stderr);
    }
    let heap = refused.iter().find(|refusal| refusal.contains("is left for the keys"));
    let advice = needed(heap.unwrap_or_else(|| panic!("{refused:#?}"))).unwrap();
    let daemon = serve(advice);
    assert_eq!(daemon.opened()["keys"], KEYS);
    daemon.wait_for("started");
    daemon.stop();
}

#[test]
fn a_link_to_a_state_that_is_not_there_is_named_with_its_target() {
    let home = Home::new();
    for target in ["missing/state.quipu", "missing.quipu"] {
        let link = home.path("link.quipu");
        std::os::unix::fs::symlink(target, &link).unwrap();
        let parts = ["link.quipu: it is a symbolic link to", target, "name that file, or remove"];
        home.expect_refusal(&["--listen", "127.0.0.1:0", "--state", "link.quipu"], 1, &parts);
        assert_eq!(home.files(), ["link.quipu"]);
        fs::remove_file(link).unwrap();
    }
}

#[test]
fn too_few_open_files_are_an_error_before_the_start() {
    let home = Home::new();
    let listen = format!("{}:0", home.host());
    for (files, threads) in [(16, 1), (32, 1), (40, 1), (41, 1), (64, 1), (48, 4), (67, 4), (68, 4)]
    {
        let mut command = limited(&home, 'n', files);
        command.args(["serve", "--listen", &listen, "--threads", &threads.to_string()]);
        command.args(["--log-format", "json"]);
        let daemon = home.spawn(command);
        if files < 32 + 9 * threads {
            let ended = daemon.wait();
            assert_eq!(ended.status.code(), Some(1), "{files}: {}", ended.stderr);
            assert!(!ended.stderr.contains("started"), "{files}: {}", ended.stderr);
            assert!(ended.stderr.contains("(ulimit -n)"), "{files}: {}", ended.stderr);
            continue;
        }
        daemon.wait_for("started");
        // The daemon serves requests, however many other connections are open.
        let mut clients: Vec<_> = (0..files).map(|_| daemon.connect()).collect();
        clients.iter_mut().for_each(|client| {
            let status = client.request("GET", "/rate").map(|response| response.status);
            assert!(matches!(status, Ok(200 | 503)), "{files}: {status:?}");
        });
        assert_eq!(daemon.get("/-/healthy").status, 200);
        daemon.stop();
    }
}

/// Incomplete requests do not give way to requests of the same client.
#[test]
fn a_flood_of_connections_does_not_use_up_the_open_files() {
    let home = Home::new();
    let mut command = limited(&home, 'n', 64);
    let listen = format!("{}:0", home.host());
    command.args(["serve", "--listen", &listen, "--log-format", "json", "--log-level", "debug"]);
    let daemon = home.spawn(command);
    daemon.wait_for("started");
    let mut clients: Vec<_> = (0..360).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        // We ignore the error, because a rejected client may be gone.
        let _ = client.send("GET / HTTP/1.1\r\nHost: quipu\r\n");
    }
    assert_eq!(daemon.get("/-/healthy").status, 200);
    drop(clients);
    wait_until("there is room again", || daemon.get("/rate").status == 200);
    assert_eq!(daemon.sample("quipu_http_accept_pauses_total"), 0.0);
}

#[test]
fn the_program_without_a_command_shows_help() {
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
    for message in ["refuse", "set-aside"] {
        let parts = ["state.quipu", "another process has it open", "stop that process, or name"];
        let arguments = ["--listen", "127.0.0.1:0", "--damaged-state", message];
        home.expect_refusal(&arguments, 1, &parts);
    }
    assert_eq!(home.files(), ["state.quipu"]);
    // The process that keeps the file open is not affected.
    assert_eq!(daemon.count("/"), 2);
    daemon.kill();
    assert_eq!(home.start(&[]).count("/rate"), 2);
}
