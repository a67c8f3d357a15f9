//! Reads a segment file into a look, without changing, locking or trusting the file. We read a
//! copy, like a scrape. A damaged file is read as far as possible.

use std::fs::File;
use std::io;
use std::path::Path;

use quipu::snapshot::{Sink, visit_inspected};
use quipu_segment::inspect::{Damage, Inspection};
use quipu_segment::printable;
use quipu_sources::segment_file;

use super::Look;
use super::sink::LookSink;
use crate::inspect::{MAX_COPY, omitted_message};

/// Passes the series of a segment file to a sink, like a scrape. Returns the number of omitted
/// series, and the damage.
pub(crate) fn visit(
    file: File,
    name: &Path,
    sink: &mut impl Sink,
) -> io::Result<(u64, Vec<Damage>)> {
    if let Ok(header) = segment_file::visit(name, &file, MAX_COPY, sink) {
        return Ok((header.omitted, Vec::new()));
    }
    let inspection = Inspection::of_open_copy(name, file, MAX_COPY)?;
    let damage = visit_inspected(&inspection, sink);
    Ok((inspection.omitted(), damage))
}

/// Adds the series of a segment file. Damaged series are omitted, and reported with the name of the
/// file.
pub(super) fn read(file: File, name: &Path, look: &mut Look) -> Result<(), String> {
    let visited = visit(file, name, &mut LookSink::new(look));
    let (count, damage) = visited.map_err(|error| error.to_string())?;
    let name = printable(name);
    if let Some(message) = omitted_message(count) {
        look.add_problem(format!("{name}: {message}"));
    }
    if let Some(first) = damage.first() {
        let others = match damage.len() {
            1 => String::new(),
            count => format!(", and {} more: see quipu inspect", count - 1),
        };
        // A truncated file ends somewhere else than at the byte that reveals this.
        let place = if first.is_truncation {
            String::new()
        } else {
            format!("damaged at byte {}: ", first.at)
        };
        look.add_problem(format!("{name}: {place}{}{others}", first.message));
    }
    Ok(())
}
