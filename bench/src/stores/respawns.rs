//! The disk usage after many workers started and ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use quipu::label::Values;

use super::{Places, Plan, children, ours};
use crate::record::{Label, Record};
use crate::{Error, Result};

/// Runs workers, one after the other. Each counts in a hundred series.
pub(super) fn respawns(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let subject = "quipu";
    let folder = places.fresh(&places.tmpfs);
    let registry = ours::registry(folder.path());
    let counters = ours::counters(&registry, "respawned", &ours::TWO);
    let paths = ours::paths();
    let mut records = Vec::new();
    let mut early = 0.0;
    for worker in 1..=plan.respawns {
        children::fork(|| {
            for path in &paths[..100] {
                counters.inc_by(&Values(&["200", path]), 1);
            }
        })?
        .wait()?;
        let first = worker == plan.respawns / 100;
        if first || worker == plan.respawns / 50 || worker == plan.respawns {
            let sizes = sizes(&format!("disk/{worker} respawns"), subject, folder.path())?;
            if first {
                early = sizes[0].median;
            }
            records.extend(sizes);
        }
    }
    let last = records.iter().rev().find(|record| record.metric == "bytes");
    let growth = last.map_or(0.0, |record| record.median) - early;
    records.push(Label::new("disk/growth", subject, "growth", "B").of(&[growth]));
    Ok(records)
}

/// The disk usage of the files in a folder, and their number.
pub(super) fn sizes(case: &str, subject: &str, folder: &Path) -> Result<Vec<Record>> {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(folder).map_err(Error::file("read", folder))? {
        let metadata = entry.and_then(|entry| entry.metadata());
        bytes += metadata.map_err(Error::file("read", folder))?.blocks() * 512;
        files += 1;
    }
    let label = |metric, unit| Label::new(case, subject, metric, unit);
    Ok(vec![label("bytes", "B").of(&[bytes as f64]), label("files", "files").of(&[files.into()])])
}
