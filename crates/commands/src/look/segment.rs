//! Looks into segment files: nothing in them is changed, locked or trusted. A copy of the file is
//! read as a scrape reads a segment. Of a file that is damaged, the cells are read as far as they
//! can be.

use std::fs::File;
use std::io;
use std::path::Path;

use quipu::snapshot::{Sink, visit_inspected};
use quipu_segment::inspect::{Damage, Inspection};
use quipu_segment::printable;
use quipu_sources::segment_file;

use super::Look;
use super::sink::LookSink;
use crate::inspect::{MAX_COPY, left_out};

/// Passes on the series of a segment file that scrapes show. Returns how many of them were left
/// out, and what is damaged.
pub(crate) fn visit(
    file: File,
    name: &Path,
    sink: &mut impl Sink,
) -> io::Result<(u64, Vec<Damage>)> {
    if let Ok(header) = segment_file::visit(name, &file, MAX_COPY, sink) {
        return Ok((header.left_out, Vec::new()));
    }
    let inspection = Inspection::of_open_copy(name, file, MAX_COPY)?;
    let damage = visit_inspected(&inspection, sink);
    Ok((inspection.left_out(), damage))
}

/// Adds the series of a segment file. What is damaged is left out, and reported with the name.
pub(super) fn read(file: File, name: &Path, look: &mut Look) -> Result<(), String> {
    let visited = visit(file, name, &mut LookSink::new(look));
    let (count, damage) = visited.map_err(|error| error.to_string())?;
    let name = printable(name);
    if let Some(what) = left_out(count) {
        look.problem(format!("{name}: {what}"));
    }
    if let Some(first) = damage.first() {
        let others = match damage.len() {
            1 => String::new(),
            count => format!(", and {} more: see quipu inspect", count - 1),
        };
        look.problem(format!("{name}: damaged at byte {}: {}{others}", first.at, first.message));
    }
    Ok(())
}
