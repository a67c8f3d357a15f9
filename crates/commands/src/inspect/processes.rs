//! Processes: those that have the file open now, as `/proc` says, and those that gauges of
//! processes name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quipu::snapshot::Decoder;
use quipu_segment::inspect::Inspection;
use quipu_segment::printable;

use quipu_sources::procfs;
use quipu_sources::segment_file::file_id;

/// A process that has the file open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) pid: u32,
    pub(super) name: String,
    /// The letter of its state: `T` if it is stopped.
    pub(super) state: char,
}

/// The processes that have the file open, as far as this user may see them.
pub(super) fn open(file: &Path) -> Vec<Open> {
    let Ok(wanted) = fs::metadata(file) else { return Vec::new() };
    let wanted = Some(file_id(&wanted));
    let own = std::process::id();
    let has_open = |pid| procfs::open_files(pid).any(|file| file.id() == wanted);
    let mut found: Vec<Open> = procfs::processes()
        .filter(|&pid| pid != own && has_open(pid))
        .map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map_or("", str::trim).to_owned()
            };
            let state = field("State:").chars().next().unwrap_or('?');
            Open { pid, name: printable(&field("Name:")).to_string(), state }
        })
        .collect();
    found.sort_by_key(|open| open.pid);
    found
}

/// The processes that gauges of processes name: token, process id, and whether it lives.
pub(super) type Named = BTreeMap<u64, (u32, Option<bool>)>;

/// The processes of all gauges of processes.
pub(super) fn named(inspection: &Inspection) -> Named {
    let mut named = Named::new();
    for family in &inspection.report().families {
        let decoder = Decoder::new(&family.schema);
        if !decoder.has_processes() {
            continue;
        }
        inspection.series(family, |series| {
            if let Some((token, pid)) = decoder.process(series) {
                named.entry(token).or_insert_with(|| (pid, inspection.is_alive(token)));
            }
        });
    }
    named
}
