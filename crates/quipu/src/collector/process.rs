//! The system's statistics of this process, under the names that all Prometheus clients use
//! (`process_cpu_seconds_total` and so on). Linux only.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::Collector;
use crate::snapshot::{FamilyHeader, Kind, Sink, Timestamp};

/// Collects `process_*`. A scrape costs some system calls: about 50 microseconds.
///
/// ```
/// let registry = quipu::Registry::new();
/// registry.register_collector(quipu::collector::Process::new())?;
/// # #[cfg(target_os = "linux")]
/// assert!(registry.text().contains("process_resident_memory_bytes "));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
pub struct Process {
    /// The start of the process in seconds of Unix time, if it could be determined.
    start: Option<f64>,
}

impl Process {
    /// Creates a collector for this process.
    pub fn new() -> Self {
        Self { start: start_time() }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for Process {
    fn names(&self) -> Vec<String> {
        FAMILIES.iter().map(|family| family.name.to_owned()).collect()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let stat = Stat::read();
        let limit = getrlimit(Resource::Nofile).current;
        let values = [
            stat.as_ref().map(|stat| stat.cpu_seconds),
            open_descriptors(),
            Some(limit.map_or(f64::INFINITY, |limit| limit as f64)),
            stat.as_ref().map(|stat| stat.virtual_bytes),
            stat.as_ref().map(|stat| stat.resident_bytes),
            stat.as_ref().map(|stat| stat.threads),
            self.start,
        ];
        let start = self.start.map(|start| Timestamp::from_nanos((start * 1e9) as u64));
        for (family, value) in FAMILIES.into_iter().zip(values) {
            let Some(value) = value else { continue };
            sink.begin(family, []).start(start).sample([], value);
        }
    }
}

const fn family(
    name: &'static str,
    unit: &'static str,
    kind: Kind,
    help: &'static str,
) -> FamilyHeader<'static> {
    FamilyHeader::new(kind, name, help).unit(unit)
}

/// The help strings of `client_golang`.
const FAMILIES: [FamilyHeader<'static>; 7] = [
    family(
        "process_cpu_seconds",
        "seconds",
        Kind::Counter,
        "Total user and system CPU time spent in seconds.",
    ),
    family("process_open_fds", "", Kind::Gauge, "Number of open file descriptors."),
    family("process_max_fds", "", Kind::Gauge, "Maximum number of open file descriptors."),
    family("process_virtual_memory_bytes", "bytes", Kind::Gauge, "Virtual memory size in bytes."),
    family("process_resident_memory_bytes", "bytes", Kind::Gauge, "Resident memory size in bytes."),
    family("process_threads", "", Kind::Gauge, "Number of OS threads."),
    family(
        "process_start_time_seconds",
        "seconds",
        Kind::Gauge,
        "Start time of the process since unix epoch in seconds.",
    ),
];

/// Values of `/proc/self/stat` (proc_pid_stat(5)).
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    /// Clock ticks after boot.
    start: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the program's name in parentheses, and can contain any characters.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The manual numbers fields from 1; the first one here is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            threads: field(20)?,
            start: field(22)?,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_size() as f64,
        })
    }
}

fn open_descriptors() -> Option<f64> {
    // On Linux 6.2 and later, the size of the directory is the number. Listing 10,000 descriptors
    // takes milliseconds.
    let count = fs::metadata("/proc/self/fd").ok()?.len();
    if count > 0 {
        return Some(count as f64);
    }
    // The descriptor for the listing is included.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot: f64 = boot.trim().parse().ok()?;
    Some(boot + Stat::read()?.start / clock_ticks_per_second() as f64)
}
