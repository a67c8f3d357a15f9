//! A program with a segment, in a separate process. You can control it by lines on its standard
//! input, for example to count.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quipu::label::Values;
use quipu::{CounterFamily, Description, RecordingOptions, Registry};

const FILE: &str = "QUIPU_TEST_WORKER";

/// The main function of the program. For `count LABEL`, it counts a job in this queue; for
/// `record`, it starts to record itself. It replies to each line with one line.
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

/// The running program, killed on drop.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the program, and waits until the file is open.
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

    /// Sends an order to the program, and waits until it is executed.
    pub(crate) fn does(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.hear(order);
    }

    /// Kills the program, like the system when it runs out of memory.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ignore the errors, because both calls fail after the process ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
