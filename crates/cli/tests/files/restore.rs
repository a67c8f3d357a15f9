//! Tests of `quipu snapshot` and `quipu restore` with a terminal, with signals, and without access.
//! No file may be left, and no temporary name may be shown.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Home;
use super::top::Tmux;

/// The time limit of every wait. After it, the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the names of unfinished files of a restore.
fn unfinished(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.directory()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("unfinished")).collect()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_leaves_no_unfinished_file() {
    let home = Home::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // Restore the signals, because the process that runs the tests may ignore them, for example
        // under nohup.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_quipu")]);
        command.args(["restore", "--state", "new.quipu"]).current_dir(home.directory());
        // Keep the other end open, because the command must wait.
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until(|| !unfinished(&home).is_empty());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let _input = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
        assert_eq!(unfinished(&home), [""; 0]);
        // No message, because standard input is a pipe, not a terminal.
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    assert!(!home.directory().join("new.quipu").exists());
}

#[test]
fn an_ignored_signal_does_not_end_a_restore() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total"]);
    home.succeed(&["snapshot", "--state", "app.quipu", "taken"]);
    let binary = env!("CARGO_BIN_EXE_quipu");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" restore --state new.quipu", binary]);
    command.current_dir(home.directory()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until(|| !unfinished(&home).is_empty());
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let taken = fs::read(home.directory().join("taken")).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &taken).unwrap();
    assert!(child.wait().unwrap().success());
    let text = home.succeed(&["diff", "app.quipu", "new.quipu"]);
    assert!(text.contains("1 the same"), "{text}");
}

#[test]
fn a_command_that_reads_a_terminal_reports_it() {
    let home = Home::new();
    for arguments in
        ["restore --state new.quipu", "messages convert --from tsv --to tsv", "check metrics -"]
    {
        let tmux = Tmux::run_in(&home, arguments);
        tmux.wait_for("quipu: reading standard input, which is a terminal");
        tmux.press(&["C-c"]);
        tmux.wait_for("ended with 130");
        assert_eq!(unfinished(&home), [""; 0], "{arguments}");
    }
    home.succeed(&["inc", "jobs_total"]);
    let tmux = Tmux::run_in(&home, "snapshot --state app.quipu");
    tmux.wait_for("standard output is a terminal: a snapshot is not text");
    tmux.wait_for("ended with 1");
    let tmux = Tmux::run_in(&home, "expose --format protobuf app.quipu");
    tmux.wait_for("standard output is a terminal: protobuf is not text: name a file, or redirect");
    tmux.wait_for("ended with 1");
    fs::write(home.directory().join("in.tsv"), "").unwrap();
    let tmux = Tmux::run_in(&home, "messages convert --from tsv --to protobuf in.tsv");
    tmux.wait_for("standard output is a terminal: protobuf is not text: give -o FILE");
    tmux.wait_for("ended with 1");
}

#[test]
fn a_terminal_shows_the_results() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total"]);
    let tmux = Tmux::run_in(&home, "snapshot --state app.quipu taken");
    let screen = tmux.wait_for("quipu: wrote taken: ");
    assert!(screen.contains("KiB"), "{screen}");
    let tmux = Tmux::run_in(&home, "restore --state new.quipu taken");
    let screen = tmux.wait_for("quipu: created new.quipu: ");
    assert!(screen.contains("KiB") || screen.contains("MiB"), "{screen}");
    // Scripts see nothing.
    assert_eq!(home.succeed(&["snapshot", "--state", "app.quipu", "again"]), "");
}

#[test]
fn errors_name_the_files_of_the_command_line() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total"]);
    home.succeed(&["snapshot", "--state", "app.quipu", "taken"]);
    fs::write(home.directory().join("text.prom"), "jobs_total 1\n").unwrap();
    for (arguments, parts) in [
        (&["restore", "--state", "none/new.quipu", "taken"][..], "none/new.quipu: No such file"),
        (&["snapshot", "--state", "app.quipu", "none/out"], "none/out: No such file"),
        (&["snapshot", "--state", "text.prom", "out"], "text.prom: it is not a segment, but an"),
        (&["snapshot", "--state", "taken", "out"], "taken: it is not a segment, but a snapshot"),
        (&["restore", "--state", "new.quipu", "text.prom"], "text.prom: "),
    ] {
        let output = home.quipu(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(parts) && !errors.contains("unfinished"), "{errors}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
    assert_eq!(unfinished(&home), [""; 0]);
}
