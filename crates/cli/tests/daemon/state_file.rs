//! Tests of unusable state files. Each is refused with a remedy, and is not changed.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use rustix::process::Signal;

use crate::common::{Home, program};

#[test]
fn files_that_are_not_a_whole_state_are_refused_and_left_as_they_are() {
    for flaw in flaws() {
        let home = Home::new();
        let bytes = flawed(&home, &flaw);
        home.expect_refusal(&SERVE, 1, &["state.quipu", flaw.says, flaw.way_out]);
        assert_eq!(fs::read(home.state()).unwrap(), bytes, "{}", flaw.name);
        assert_eq!(home.files(), ["state.quipu"], "{}", flaw.name);
        // Setting the file aside is offered only if it is damaged.
        let ended = home.run(&SERVE);
        let offered = ended.stderr.contains("--damaged-state set-aside");
        assert_eq!(offered, flaw.is_damage, "{}: {}", flaw.name, ended.stderr);
    }
}

#[test]
fn a_file_that_is_removed_or_replaced_is_noticed() {
    type Harm = fn(&Home);
    let harms: [Harm; 2] = [
        |home| fs::remove_file(home.state()).unwrap(),
        |home| {
            let other = home.path("other");
            fs::copy(home.state(), &other).unwrap();
            fs::rename(other, home.state()).unwrap();
        },
    ];
    for harm in harms {
        let home = Home::new();
        let daemon = home.start(&["--checkpoint", "10ms"]);
        assert_eq!(daemon.count("/"), 1);
        harm(&home);
        let event = daemon.wait_for("a checkpoint failed; counting goes on in memory");
        let error = event["error"].as_str().unwrap();
        assert!(error.contains("removed or replaced while it was open"), "{error}");
        assert!(daemon.sample("quipu_checkpoint_errors_total") >= 1.0);
        // The daemon continues, but its exit code reports the failure.
        assert_eq!(daemon.count("/"), 2);
        daemon.signal(Signal::TERM);
        let ended = daemon.wait();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("the last sync failed"), "{}", ended.stderr);
    }
}

#[test]
fn a_shell_cannot_count_in_the_state_of_a_running_daemon() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let inc = || {
        let mut command = home.command();
        command.args(["inc", "--file", "state.quipu", "jobs_total"]);
        home.finish(command)
    };
    let ended = inc();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for part in ["the state of a running daemon", "quipu push"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    daemon.stop();
    assert!(inc().status.success());
}

#[test]
fn a_file_that_is_cut_ends_the_daemon() {
    let home = Home::new();
    let daemon = home.start(&["--checkpoint", "10ms"]);
    let file = fs::OpenOptions::new().write(true).open(home.state()).unwrap();
    file.set_len(4096).unwrap();
    let ended = daemon.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("its state file was truncated while in use"), "{}", ended.stderr);
}

#[test]
fn damaged_files_are_set_aside_on_request() {
    for flaw in flaws() {
        let home = Home::new();
        let bytes = flawed(&home, &flaw);
        let arguments = ["--damaged-state", "set-aside"];
        if !flaw.is_damage {
            let arguments = [&SERVE[..], &arguments[..]].concat();
            home.expect_refusal(&arguments, 1, &[flaw.says, flaw.way_out]);
            assert_eq!(fs::read(home.state()).unwrap(), bytes, "{}", flaw.name);
            assert_eq!(home.files(), ["state.quipu"], "{}", flaw.name);
            continue;
        }
        let daemon = home.start(&arguments);
        assert_eq!((daemon.opened()["new"].as_bool(), daemon.count("/")), (Some(true), 1));
        let warning = daemon.event("set a damaged state file aside").unwrap();
        assert_eq!(warning["level"], "WARN");
        assert!(warning["error"].as_str().unwrap().contains(flaw.says), "{warning}");
        let aside = warning["aside"].as_str().unwrap();
        assert!(aside.starts_with("state.quipu.damaged-"), "{aside}");
        assert_eq!(fs::read(home.path(aside)).unwrap(), bytes, "{}", flaw.name);
        assert_eq!(home.files(), ["state.quipu", aside]);
        // A second time immediately after. The file that was set aside before is not overwritten.
        daemon.stop();
        fs::write(home.state(), b"").unwrap();
        home.start(&arguments).stop();
        assert_eq!(home.files().len(), 3, "{:?}", home.files());
        assert_eq!(fs::read(home.path(aside)).unwrap(), bytes, "{}", flaw.name);
    }
}

#[test]
fn a_state_of_other_settings_is_refused_and_left_as_it_is() {
    let home = Home::new();
    let daemon = home.start(&[]);
    daemon.get("/");
    daemon.post("/hit/k");
    daemon.stop();
    let bytes = fs::read(home.state()).unwrap();
    let base = [&SERVE[..], &["--window", "1h"]].concat();
    for (changed, part) in [
        (&["--keys", "16", "--accuracy", "100ms"][..], "an accuracy of 200ms"),
        (&["--keys", "16", "--span", "2h"], "a span of 3600s"),
        (&["--keys", "17"], "a capacity of 16, not 17"),
        (&["--keys", "16", "--key-bytes", "64"], "a key size of 128, not 64"),
        (&["--keys", "16", "--key-accuracy", "1s"], "an accuracy of 60s, not 1s"),
    ] {
        let arguments: Vec<&str> = base.iter().chain(changed).copied().collect();
        let way_out = "start with those settings, or name another file";
        home.expect_refusal(&arguments, 1, &["state.quipu", "other settings", part, way_out]);
    }
    let after = fs::read(home.state()).unwrap();
    let daemon = home.start(&[]);
    assert_eq!((daemon.count("/rate"), daemon.count("/rate/k")), (1, 1));
    let left_open = daemon.opened()["left_open"].as_bool();
    let changed: Vec<usize> = (0..bytes.len()).filter(|&i| after[i..=i] != bytes[i..=i]).collect();
    assert_eq!((after.len(), left_open), (bytes.len(), Some(false)), "changed at {changed:?}");
    assert!(changed.is_empty(), "changed at {changed:?}");
}

#[test]
fn paths_that_hold_no_file_are_refused() {
    let home = Home::new();
    fs::create_dir(home.path("directory")).unwrap();
    fs::write(home.path("file"), "text").unwrap();
    let _listener = UnixListener::bind(home.path("socket")).unwrap();
    for (path, parts) in [
        ("directory", &["it is a directory", "name a file, for example one inside it"][..]),
        ("missing/state", &["its directory does not exist", "create it, or name another file"]),
        ("file/state", &["its directory does not exist", "create it, or name another file"]),
        ("/dev/null", &["it is a device, not a regular file", "name a file"]),
        ("socket", &["it is a socket, not a regular file", "name a file"]),
    ] {
        let arguments = ["--listen", "127.0.0.1:0", "--keys", "16", "--state", path];
        home.expect_refusal(&arguments, 1, &[&[path], parts].concat());
    }
    assert_eq!(home.files(), ["directory", "file", "socket"]);
    assert_eq!(fs::read(home.path("file")).unwrap(), b"text");
    // No file can be created in /proc.
    let arguments = ["--listen", "127.0.0.1:0", "--keys", "16", "--state", "/proc/state.quipu"];
    home.expect_refusal(&arguments, 1, &["/proc/state.quipu", "or name another file"]);
}

#[test]
fn a_full_disk_is_reported_before_the_first_count() {
    let home = Home::new();
    // 10,000 keys, the default, take more than a megabyte.
    let command = r#"exec "$0" serve --listen 127.0.0.1:0 --state disk/state.quipu"#;
    let Some(output) = on_small_disk(&home, command) else { return };
    assert_eq!(output.code, 1, "{}", output.stderr);
    for part in ["disk/state.quipu", "no space left on the device", "free some, or name a file"] {
        assert!(output.stderr.contains(part), "no {part:?} in {}", output.stderr);
    }
    assert_eq!(output.left, "");
}

#[test]
fn a_full_disk_keeps_what_was_set_aside() {
    let home = Home::new();
    let command = r#"printf QUIPU > disk/state.quipu
        exec "$0" serve --listen 127.0.0.1:0 --state disk/state.quipu --damaged-state set-aside"#;
    let Some(output) = on_small_disk(&home, command) else { return };
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("no space left on the device"), "{}", output.stderr);
    let left: Vec<&str> = output.left.lines().collect();
    assert!(left.len() == 1 && left[0].starts_with("state.quipu.damaged-"), "{left:?}");
}

#[test]
fn a_disk_that_cannot_be_written_is_reported() {
    let home = Home::new();
    for before in ["", "cp state.quipu disk/state.quipu;"] {
        home.start(&[]).stop();
        let command = format!(
            r#"{before} mount -o remount,ro disk
            exec "$0" serve --listen 127.0.0.1:0 --keys 16 --window 1h --state disk/state.quipu"#
        );
        let Some(output) = on_small_disk(&home, &command) else { return };
        assert_eq!(output.code, 1, "{}", output.stderr);
        for part in [
            "disk/state.quipu",
            "it cannot be written (Read-only file system",
            "make the file and its directory writable for this user, or name another file",
        ] {
            assert!(output.stderr.contains(part), "no {part:?} in {}", output.stderr);
        }
        let left = if before.is_empty() { "" } else { "state.quipu\n" };
        assert_eq!(output.left, left);
    }
}

/// A way to damage a file, and the expected message of the daemon.
struct Flaw {
    name: &'static str,
    make: fn(&mut Vec<u8>),
    says: &'static str,
    way_out: &'static str,
    is_damage: bool,
}

fn flaws() -> [Flaw; 8] {
    let damage = |name, make, says| Flaw {
        name,
        make,
        says,
        way_out: "it was left untouched: restore it, or move it away to start afresh",
        is_damage: true,
    };
    [
        damage("empty", |bytes| bytes.clear(), "truncated: 0 of 256 bytes"),
        damage("cut in its header", |bytes| bytes.truncate(100), "truncated: 100 of 256 bytes"),
        damage("cut in half", |bytes| bytes.truncate(bytes.len() / 2), "truncated: "),
        damage("appended to", |bytes| bytes.push(b'!'), "so something was appended"),
        damage(
            "another bit in its header",
            |bytes| bytes[24] ^= 1,
            "it is damaged: the checksum of its header does not match",
        ),
        damage("zeros in its header", |bytes| bytes[8..256].fill(0), "it is damaged"),
        Flaw {
            name: "foreign",
            make: |bytes| *bytes = b"the accounts of a whole year\n".repeat(1000),
            says: "it is not a segment",
            way_out: "it was left untouched: name another file, or move this one away",
            is_damage: false,
        },
        Flaw {
            name: "of a later version",
            make: |bytes| bytes[8] = 9,
            says: "it has layout version 9 and this program reads only version 3",
            way_out: "use the quipu that wrote it, or move the file away",
            is_damage: false,
        },
    ]
}

/// Creates a valid state, and then damages it. Returns the bytes of the file.
fn flawed(home: &Home, flaw: &Flaw) -> Vec<u8> {
    let daemon = home.start(&[]);
    daemon.get("/");
    daemon.stop();
    let mut bytes = fs::read(home.state()).unwrap();
    (flaw.make)(&mut bytes);
    fs::write(home.state(), &bytes).unwrap();
    bytes
}

/// The result of a command on a small disk.
struct OnDisk {
    code: i32,
    stderr: String,
    /// The names of the files on the disk afterwards, one per line.
    left: String,
}

/// Runs a shell command with the binary as `$0`, where `disk` is a separate disk of one megabyte.
/// The disk is mounted only for this command, and is always removed. Returns `None` if the system
/// does not let this user mount a disk.
fn on_small_disk(home: &Home, command: &str) -> Option<OnDisk> {
    const NO_MOUNT: i32 = 99;
    let _ = fs::create_dir(home.path("disk"));
    let script = format!(
        "mount -t tmpfs -o size=1m quipu disk || exit {NO_MOUNT}\n\
         (\n{command}\n)\ncode=$?\nls -A disk\nexit $code"
    );
    let mut shell = Command::new(program("unshare", "util-linux"));
    shell.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_quipu")]);
    shell.current_dir(home.directory());
    let ended = home.finish(shell);
    let refused = ended.stderr.contains("unshare: ") || ended.status.code() == Some(NO_MOUNT);
    if refused {
        eprintln!("not tested, as this user may not mount a disk: {}", ended.stderr);
        return None;
    }
    let code = ended.status.code().unwrap();
    Some(OnDisk { code, stderr: ended.stderr, left: ended.stdout })
}

/// The flags of a daemon on the default state of a home. This daemon should not start.
const SERVE: [&str; 4] = ["--listen", "127.0.0.1:0", "--state", "state.quipu"];
