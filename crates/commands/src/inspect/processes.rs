//! Finds the processes that keep the file open, in `/proc`, and the processes that gauges belong
//! to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quipu::snapshot::Decoder;
use quipu_segment::inspect::Inspection;
use quipu_segment::printable;

use quipu_sources::procfs;
use quipu_sources::segment_file::file_id;

/// A process that keeps the file open.
#[derive(Debug)]
pub(super) struct OpenProcess {
    pub(super) pid: u32,
    pub(super) name: String,
    /// The letter of the state: `T` if the process is stopped.
    pub(super) state: char,
}

/// Finds the processes that keep the file open, as far as this user can see them.
pub(super) fn find_open(file: &Path) -> Vec<OpenProcess> {
    let Ok(wanted) = fs::metadata(file) else { return Vec::new() };
    let wanted = Some(file_id(&wanted));
    let own = std::process::id();
    let has_open = |pid| procfs::open_files(pid).any(|file| file.id() == wanted);
    let mut found: Vec<OpenProcess> = procfs::processes()
        .filter(|&pid| pid != own && has_open(pid))
        .map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map_or("", str::trim).to_owned()
            };
            let state = field("State:").chars().next().unwrap_or('?');
            OpenProcess { pid, name: printable(&field("Name:")).to_string(), state }
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// The processes that gauges refer to, by token: the process ID, and whether the process lives.
pub(super) type GaugeProcesses = BTreeMap<u64, (u32, Option<bool>)>;

/// Reads the processes of all gauges of processes.
pub(super) fn gauge_processes(inspection: &Inspection) -> GaugeProcesses {
    let mut processes = GaugeProcesses::new();
    for family in &inspection.report().families {
        let decoder = Decoder::new(&family.schema);
        if !decoder.has_processes() {
            continue;
        }
        inspection.series(family, |series| {
            if let Some((token, pid)) = decoder.process(series) {
                processes.entry(token).or_insert_with(|| (pid, inspection.is_alive(token)));
            }
        });
    }
    processes
}
