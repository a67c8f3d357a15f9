//! The description of the machine and tools with which figures were taken, for a report.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::report::format;
use crate::{Error, Result, profile};

/// The machine, the tools and the command of a benchmark. A fact that cannot be found is `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The model of the processor, and whether the machine is virtual.
    pub cpu: String,
    /// The time of an atomic addition to a cache line that no other core uses, in nanoseconds. It
    /// is recorded because the figures of libraries that count with atomics grow with this time,
    /// and it differs by a factor of three between processors.
    #[serde(default)]
    pub locked_addition: Option<f64>,
    /// The number of cores that the benchmark can use.
    pub cores: u32,
    /// The size of the memory.
    pub memory: String,
    /// The operating system and the version of its kernel.
    pub kernel: String,
    /// The clock source of the kernel.
    pub clocksource: String,
    /// The version of the Rust compiler at the time of the run, which can differ from the build.
    pub rustc: String,
    /// The version of the Go compiler at the time of the run.
    pub go: String,
    /// The mean number of running tasks in the minute before the start.
    pub load_before: String,
    /// The start of the benchmark, in UTC.
    pub date: String,
    /// The commit that was measured, with `+changes` if the checkout had uncommitted changes.
    pub commit: String,
    /// The Cargo profile of the program that measured.
    #[serde(default = "unknown")]
    pub profile: String,
    /// The command line.
    pub command: String,
}

impl Machine {
    /// Collects the facts about this machine.
    pub fn collect() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let mut cpu = field(&cpuinfo, "model name").unwrap_or("unknown").to_string();
        // The model's name is not specific in a virtual machine.
        if let (Some(family), Some(model)) =
            (field(&cpuinfo, "cpu family"), field(&cpuinfo, "model"))
        {
            cpu.push_str(&format!(" (family {family}, model {model})"));
        }
        if field(&cpuinfo, "flags").is_some_and(|flags| flags.contains("hypervisor")) {
            cpu.push_str(", virtual machine");
        }
        let kibibytes = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
        let memory = kibibytes.map(|k| format!("{:.1} GiB", k / (1 << 20) as f64));
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Machine {
            cpu,
            locked_addition: Some(locked_addition()),
            cores,
            memory: memory.unwrap_or_else(unknown),
            kernel: format!("Linux {}", or_unknown(&read("/proc/sys/kernel/osrelease"))),
            clocksource: or_unknown(&read(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            )),
            rustc: or_unknown(&output("rustc", &["--version"]).unwrap_or_default()),
            go: or_unknown(&output("go", &["version"]).unwrap_or_default()),
            load_before: or_unknown(read("/proc/loadavg").split(' ').next().unwrap_or_default()),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            commit: commit(),
            profile: profile::name(),
            command: command(std::env::args()),
        }
    }

    /// Reads the file that [`Machine::write`] wrote.
    pub fn read(path: &Path) -> Result<Machine> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        serde_json::from_str(&text).map_err(|error| {
            Error::line(path.display().to_string(), error.line(), error.to_string())
        })
    }

    /// Writes a JSON object.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).expect("strings are always JSON");
        text.push('\n');
        fs::write(path, text).map_err(Error::file("write", path))
    }

    /// The processor, and the cost of a locked addition if it was measured.
    pub fn processor(&self) -> String {
        match self.locked_addition {
            None => self.cpu.clone(),
            Some(nanos) => {
                format!("{}; a locked addition takes {}", self.cpu, format::quantity(nanos, "ns"))
            }
        }
    }

    /// The facts as rows of a table, in the order of a report.
    pub fn rows(&self) -> [(&'static str, String); 12] {
        let locked = self.locked_addition;
        [
            ("Processor", format!("{}, {} cores", self.cpu, self.cores)),
            ("Locked addition", locked.map_or(unknown(), |nanos| format::quantity(nanos, "ns"))),
            ("Memory", self.memory.clone()),
            ("Kernel", self.kernel.clone()),
            ("Clock source", self.clocksource.clone()),
            ("Rust", self.rustc.clone()),
            ("Go", self.go.clone()),
            ("Load before", self.load_before.clone()),
            ("Date", self.date.clone()),
            ("Commit", self.commit.clone()),
            ("Profile", self.profile.clone()),
            ("Command", format!("`{}`", self.command)),
        ]
    }
}

/// Returns the time of an addition to an atomic that no other thread uses, the least of nine runs.
fn locked_addition() -> f64 {
    const ADDITIONS: u32 = 1_000_000;
    let cell = AtomicU64::new(0);
    let run = || {
        let start = Instant::now();
        for _ in 0..ADDITIONS {
            black_box(&cell).fetch_add(1, Ordering::Relaxed);
        }
        start.elapsed().as_nanos() as f64 / f64::from(ADDITIONS)
    };
    (0..9).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Returns the command, without the paths of this machine: the name of the program, the paths of
/// the checkout's files relative to it, and only the names of other files.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let root = crate::root().display().to_string() + "/";
    let mut words = Vec::new();
    for (index, argument) in arguments.enumerate() {
        let words_of_it = argument.split(' ').map(|word| {
            let word = word.replace(&root, "");
            match word.split_once('/') {
                Some((before, path))
                    if index == 0 || before.is_empty() || before.ends_with('=') =>
                {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    if index == 0 { name.to_string() } else { format!("{before}{name}") }
                }
                _ => word,
            }
        });
        let text = words_of_it.collect::<Vec<_>>().join(" ");
        words.push(if text.contains(' ') { format!("'{text}'") } else { text });
    }
    words.join(" ")
}

/// Returns the commit. The figures that benchmarks write do not count as changes.
fn commit() -> String {
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return unknown();
    };
    let changes = git(&["status", "--porcelain", "--", ".", ":!docs/benchmarks"]);
    match changes.is_some_and(|text| !text.is_empty()) {
        true => format!("{commit} +changes"),
        false => commit,
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let root = crate::root().display().to_string();
    output("git", &[&["-C", &root], arguments].concat())
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then_some(text)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn or_unknown(text: &str) -> String {
    match text.trim() {
        "" => unknown(),
        text => text.to_string(),
    }
}

fn unknown() -> String {
    "unknown".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.machine.json");
        let machine = Machine::collect();
        machine.write(&path).unwrap();
        assert_eq!(Machine::read(&path).unwrap(), machine);
        assert!(machine.cores > 0 && machine.date.ends_with('Z'));
    }

    #[test]
    fn a_command_holds_no_path_of_the_machine() {
        let inside = crate::root().join("docs/x").display().to_string();
        let text = |words: &[&str]| command(words.iter().map(|word| word.to_string()));
        assert_eq!(text(&["/a/b/release/rates", "--quick"]), "rates --quick");
        assert_eq!(text(&["target/release/rates", "--out", &inside]), "rates --out docs/x");
        assert_eq!(text(&["rates", "--out=/a/b", "/c/d"]), "rates --out=b d");
        assert_eq!(text(&["rates", "s=/a/b -p {port}"]), "rates 's=b -p {port}'");
    }

    #[test]
    fn reads_fields_of_proc_files() {
        assert_eq!(field("a\t: 1\nmodel name\t: X Y\n", "model name"), Some("X Y"));
        assert_eq!(field("a : 1", "b"), None);
    }
}
