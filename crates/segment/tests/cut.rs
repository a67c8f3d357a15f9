//! Truncates files while this process has them mapped. These tests are a separate program, because
//! the handler affects the whole process.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use quipu_segment::{Kind, Options, Segment, survive_cuts};

const KIND: Kind = Kind::new(*b"TEST", 1);
const CELLS: usize = 1 << 14;

/// Returns a segment with a record whose cells are 1.
fn made(path: &Path) -> (Segment, quipu_segment::Cells) {
    let segment = Options::new().shared().open_or_create(path).unwrap();
    let draft = segment.reserve(KIND, "", CELLS).unwrap();
    draft.cells().iter().for_each(|cell| cell.store(1, Ordering::Relaxed));
    let cells = draft.publish().unwrap().cells().clone();
    (segment, cells)
}

fn cut(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn sum(cells: &[std::sync::atomic::AtomicU64]) -> u64 {
    cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
}

#[test]
fn cells_beyond_a_cut_read_as_zeros() {
    survive_cuts().unwrap();
    let home = tempfile::tempdir().unwrap();
    let (cut_path, other_path) = (home.path().join("a.quipu"), home.path().join("b.quipu"));
    let (segment, cells) = made(&cut_path);
    let (other, others) = made(&other_path);
    assert!(!segment.was_cut() && !other.was_cut());
    cut(&cut_path, 8192);
    assert!(sum(&cells) < CELLS as u64);
    assert!(segment.was_cut());
    // Writes are lost, and a longer file keeps its length.
    cells.iter().for_each(|cell| cell.store(7, Ordering::Relaxed));
    assert_eq!(File::open(&cut_path).unwrap().metadata().unwrap().len(), 8192);
    // This works even if the file gets its length back before the check.
    cut(&cut_path, 1 << 20);
    assert!(segment.was_cut());
    cut(&cut_path, 0);
    let _ = segment.find(KIND, "");
    assert_eq!((sum(&others), other.was_cut()), (CELLS as u64, false));
    drop((segment, cells));
    // Other files can reuse its entry in the handler's table.
    let (segment, cells) = made(&home.path().join("c.quipu"));
    assert_eq!((sum(&cells), segment.was_cut()), (CELLS as u64, false));
}

/// A process that ends by SIGBUS.
#[test]
fn worker() {
    let Ok(moment) = std::env::var("CUT_WORKER") else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.quipu");
    if moment == "before" {
        let (_segment, cells) = made(&path);
        survive_cuts().unwrap();
        cut(&path, 4096);
        sum(&cells);
    } else {
        survive_cuts().unwrap();
        let (_segment, _cells) = made(&path);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS)
            .unwrap();
    }
}

#[test]
fn any_other_fault_ends_the_process() {
    for moment in ["before", "sent"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]);
        command.env("CUT_WORKER", moment).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(rustix::process::Signal::BUS.as_raw()), "{moment}");
    }
}
