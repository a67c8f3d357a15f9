//! Copies of segment files in private memory, for readers of files in which other processes count.
//!
//! A copy costs these processes nothing: it takes no lock, and what its reader does to claims, locks and
//! expired series stays in the copy. The file is read and not mapped, so that a file that is cut
//! meanwhile is an error and not a SIGBUS.
//!
//! The words of a copy are of different times, as they are to a process that reads the file while others
//! change it. So, as in such a process, the copy is used without being mended, unless power was lost
//! before. But nothing vouches for the file: what its families occupy is checked as when a file is
//! opened, so that the walks over all of them take time in proportion to its length.

use std::fs::File;
use std::path::Path;

use super::open::FoundAs;
use super::{Contents, Segment, Shared, anchor_cells};
use crate::access::Access;
use crate::error::{Error, ErrorKind};
use crate::file::read_up_to;
use crate::layout::{HEADER_BYTES, LINE_BYTES, Words, at, check_header, check_records};
use crate::offset::{ByteOffset, CELL_BYTES};
use crate::presence;
use crate::readings::Readings;
use crate::region::Region;
use crate::sync::{Arc, Ordering};

/// How often a file in use is copied until a copy is whole.
const TRIES: usize = 4;
/// The bytes that are read at a time, and those of the header.
const BLOCK: usize = 1 << 16;
const HEADER: usize = HEADER_BYTES as usize;
/// Room for what other processes add meanwhile, and for the claims of the reader.
const ROOM: u64 = 1 << 20;

impl Segment {
    /// See [`Segment::copy_of`].
    pub(crate) fn copied(
        path: &Path,
        file: &File,
        most: u64,
        contents: fn() -> Arc<dyn Contents>,
    ) -> Result<Self, Error> {
        // A file that no process has open does not change.
        let mut tries = if presence::is_present(file).unwrap_or(true) { TRIES } else { 1 };
        loop {
            tries -= 1;
            match copy(path, file, most, contents()) {
                Err(error) if tries > 0 && error.is_damage() => {}
                done => return done.map_err(|error| error.at(path)),
            }
        }
    }
}

fn copy(
    path: &Path,
    file: &File,
    most: u64,
    contents: Arc<dyn Contents>,
) -> Result<Segment, Error> {
    let fail = |kind| Error::new(Some(path), kind);
    let failed = |error| Error::new(Some(path), ErrorKind::Io(error));
    let mut head = [0; HEADER];
    let filled = read_up_to(file, &mut head, 0).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let header = check_header(&head[..filled], length).map_err(fail)?;
    let readings = Readings::now();
    let torn = header.is_torn(readings.boot);
    let used = head[..].word(at::CURSOR);
    if used > most {
        let what = format!("it has {used} bytes in use, and at most {most} are read");
        return Err(fail(ErrorKind::Request(what)));
    }
    let limit = (used + used / 8 + ROOM).next_multiple_of(LINE_BYTES);
    let origin = file.try_clone().map_err(failed)?;
    let region = Region::copy_of(origin, limit);
    let region = region.ok_or_else(|| fail(ErrorKind::NoMemory { wanted: limit }))?;
    let end = copy_records(file, &region, used, torn).map_err(fail)?;
    // Which records there are is that of the beginning; how far they reach, that of the end.
    put(&region, 0, &head);
    let store = |at: ByteOffset, word| region.cell(at).store(word, Ordering::Relaxed);
    store(at::CURSOR, end);
    store(at::SIZE, limit);
    // The locks and claims of other processes do not concern the copy.
    let locks = [at::REGISTRATION, at::REGISTRATION_BROKEN, at::GROWING, at::GROWING_BROKEN];
    locks.into_iter().chain([at::CLAIMS]).for_each(|at| store(at, 0));
    check_records(&region).map_err(fail)?;
    let (anchor, _) = anchor_cells(&region).resume(&readings);
    let found = if header.clean { FoundAs::Clean } else { FoundAs::Unclean };
    let mut segment = Segment {
        region: Arc::new(region),
        anchor,
        boot: readings.boot,
        found,
        // What a change left half done does not count as damage.
        torn: true,
        dirty: 0,
        shared: Shared::new(Access::Exclusive, torn),
        contents,
        jobs: [].into(),
    };
    segment.jobs = segment.contents.inspect(&segment)?.into();
    Ok(segment)
}

/// Copies what follows the header, up to `end` at first, and returns where it ends. New records go to
/// the end of a segment: what the copied words refer to was copied before, or is copied then.
fn copy_records(file: &File, region: &Region, end: u64, torn: bool) -> Result<u64, ErrorKind> {
    let (mut offset, mut end) = (HEADER_BYTES, end);
    let mut block = vec![0; BLOCK];
    while offset < end {
        while offset < end {
            let count = usize::try_from(end - offset).unwrap_or(BLOCK).min(BLOCK);
            let filled = read_up_to(file, &mut block[..count], offset).map_err(ErrorKind::Io)?;
            // A loss of power may have left the file too short.
            if filled < count && !torn {
                let length = offset + filled as u64;
                return Err(ErrorKind::Cut { length, expected: end });
            }
            put(region, offset, &block[..filled]);
            offset += count as u64;
        }
        let mut head = [0; HEADER];
        if read_up_to(file, &mut head, 0).map_err(ErrorKind::Io)? < HEADER {
            return Err(ErrorKind::Cut { length: 0, expected: end });
        }
        let used = head[..].word(at::CURSOR);
        if !used.is_multiple_of(LINE_BYTES) || used > region.limit() - ROOM / 2 {
            let what = format!("its allocation cursor went from {end} to {used} in the meantime");
            return Err(ErrorKind::Damaged(what));
        }
        end = end.max(used);
    }
    Ok(end)
}

/// Stores whole words. The memory is zero before: pages of zeros are not touched.
fn put(region: &Region, offset: u64, bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<{ CELL_BYTES as usize }>();
    let cells = region.slice(ByteOffset::new(offset), words.len());
    for (cell, word) in cells.iter().zip(words) {
        let word = u64::from_le_bytes(*word);
        if word != 0 {
            cell.store(word, Ordering::Relaxed);
        }
    }
}
