//! The processes that count in one file at the same time: on one counter, and in a family. No peer
//! in Rust supports metrics that processes share.
//!
//! The processes are this program, started with the path of the file. Each reports that it is
//! ready, starts on a command, and prints its start and end, by the clock of the machine.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quipu::{Counter, CounterFamily, Description, Registry};
use rustix::time::{ClockId, clock_gettime};

use super::{Axis, EVERY, Entrant, case};
use crate::counting::contender::Contender;
use crate::counting::data::Random;
use crate::counting::{Plan, QuipuInFile};
use crate::measure::pin;
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "processes",
    points: &[1, 2, 3, 4, 5, 6, 7, 8],
    fits: EVERY,
    entrants: &[Entrant { key: QuipuInFile::KEY, most: usize::MAX, turn }],
};

const SERIES: usize = 1_000;

/// The metrics of the processes.
const KINDS: [(&str, &str); 2] = [("counter", "one counter"), ("family", "many series")];

fn turn(plan: &Plan, processes: usize) -> Vec<Record> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(place).expect("a folder for temporary files takes one");
    let path = folder.path().join("scale.quipu");
    let mut records = Vec::new();
    for (kind, metric) in KINDS {
        let mut running: Vec<_> =
            (0..processes).map(|number| Process::start(&path, kind, number)).collect();
        let mut operations = 1_000;
        let mut elapsed = run(&mut running, operations);
        while elapsed < plan.run_time.as_nanos() as f64 / 2.0 {
            operations *= 2;
            elapsed = run(&mut running, operations);
        }
        running.into_iter().for_each(Process::end);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let core_time =
            elapsed * processes.min(cores) as f64 / (operations as f64 * processes as f64);
        let label = Label::new(&case(AXIS.name, processes), &QuipuInFile::subject(), metric, "ns");
        records.push(label.of(&[core_time]));
    }
    records
}

/// One run: the time in ns from the start of the first process to the end of the last.
fn run(processes: &mut [Process], operations: u64) -> f64 {
    for process in &mut *processes {
        process.tell(operations);
    }
    let spans: Vec<(u64, u64)> = processes.iter_mut().map(Process::span).collect();
    let first = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.1).max().unwrap_or(0);
    (last - first) as f64
}

struct Process {
    child: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Process {
    fn start(path: &Path, kind: &str, number: usize) -> Process {
        let mut child = Command::new("/proc/self/exe")
            .args(["--child", kind, "--core", &number.to_string(), "--file"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let orders = child.stdin.take().expect("it is piped");
        let replies = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Process { child, orders, replies };
        assert_eq!(process.reply(), "ready");
        process
    }

    fn tell(&mut self, operations: u64) {
        writeln!(self.orders, "{operations}").expect("the process waits for orders");
    }

    fn span(&mut self) -> (u64, u64) {
        let reply = self.reply();
        let span = reply
            .split_once(' ')
            .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
        span.expect("the reply has two times")
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).expect("the process replies");
        line.trim().to_string()
    }

    fn end(mut self) {
        drop(self.orders);
        self.child.wait().expect("it is our child");
    }
}

/// Counts in a file as one of the processes, until its orders end.
pub fn child(kind: &str, core: usize, path: &Path) {
    pin(core);
    let registry = Registry::open(path).expect("the file can be shared");
    let counter: Counter = registry
        .register(Description::new("counter", "Things that were counted."))
        .expect("all processes register the same");
    let family: CounterFamily<[&str; 1]> = registry
        .register(Description::new("family", "Things that were counted.").labels(["name"]))
        .expect("all processes register the same");
    let mut random = Random::new(core as u64 + 1);
    let names: Vec<String> =
        (0..4 * SERIES).map(|_| format!("name-{:04}", random.below(SERIES))).collect();
    names.iter().for_each(|name| family.inc(&[name]));

    say("ready");
    for line in std::io::stdin().lines() {
        let operations: usize = line.ok().and_then(|line| line.parse().ok()).unwrap_or(0);
        let start = now();
        match kind {
            "counter" => (0..operations).for_each(|_| counter.inc()),
            _ => names.iter().cycle().take(operations).for_each(|name| family.inc(&[name])),
        }
        say(&format!("{start} {}", now()));
    }
}

fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let said = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    said.expect("the parent reads");
}

/// Returns the time of the machine, which is the same for all processes.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
