//! A program with a segment, in a process of its own: a test counts in it by lines on its standard
//! input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quipu::label::Values;
use quipu::{CounterFamily, Description, RecordingOptions, Registry};

const FILE: &str = "QUIPU_TEST_WORKER";

/// What the program does: for `count LABEL`, it counts a job in that queue; for `record`, it starts
/// to record itself. It replies to each line with one of its own.
#[test]
#[ignore = "it is the program that other tests start"]
fn program() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let registry = Registry::open(file).unwrap();
    let jobs: CounterFamily<Values> =
        registry.register(Description::new("jobs", "Jobs.").labels(["queue"])).unwrap();
    let mut recording = None;
    let mut output = std::io::stdout();
    writeln!(output, "\nworker: open").unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some((_, label)) => jobs.inc(&Values(&[label])),
            None => recording = Some(registry.record(&RecordingOptions::new()).unwrap()),
        }
        writeln!(output, "worker: {line}").unwrap();
    }
    drop(recording);
}

/// The program, killed when this is dropped.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the program, and waits until it has the file open.
    pub(crate) fn start(file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "worker::program"]);
        command.env(FILE, file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Self { child, input, output: BufReader::new(output) };
        worker.hear("open");
        worker
    }

    /// Waits for a reply.
    fn hear(&mut self, reply: &str) {
        let mut line = String::new();
        while line.trim_end() != format!("worker: {reply}") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the program ended");
        }
    }

    /// Has the program do something, and waits until it did.
    pub(crate) fn does(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.hear(order);
    }

    /// Kills the program, as the system does when it runs out of memory.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
