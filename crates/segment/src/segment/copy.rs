//! Copies segment files to private memory, for readers of files where other processes count.
//!
//! A copy costs the other processes nothing, because it takes no lock, and its reader changes
//! claims, locks and expired series in the copy only. This code reads the file instead of mapping
//! it. If the file is truncated in the meantime, you get an error and not a SIGBUS.
//!
//! A file in use is read three times. Comparing the passes shows the words that moved (`moved.rs`);
//! all other words are from one moment. Indexes are read once, because a walk does not use them.
//! Some words that moved concern more than themselves, for example the state of a record. These are
//! read again in the order that other processes use (`series/settle.rs`), so a copy shows the same
//! as such a process sees.
//!
//! For the same reason, a copy is used without being mended, unless power was lost before. Since
//! the file is not trusted, the space of its families is checked like at opening. This keeps the
//! time of all walks proportional to the length of the file.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use super::open::InitialState;
use super::{Contents, Segment, SharedFile, anchor_cells};
use crate::access::Access;
use crate::error::{Error, ErrorKind};
use crate::file::read_up_to;
use crate::layout::{HEADER_BYTES, LINE_BYTES, Words, at, check_header, check_records};
use crate::moved::Pass;
use crate::offset::{self, ByteOffset};
use crate::presence;
use crate::readings::Readings;
use crate::region::Region;
use crate::sync::{Arc, Ordering, fence};

/// The number of attempts at a consistent copy of a file in use.
const TRIES: usize = 4;
/// The number of bytes to read at a time.
const BLOCK: usize = 1 << 16;
const HEADER: usize = HEADER_BYTES as usize;
/// Room for words that other processes add in the meantime, and for the reader's claims.
const ROOM: u64 = 1 << 20;

/// Settings of a copy: the bytes to read at a time, a hook that is called before each read with the
/// number of the pass and the offset, and the number of words that may be read again.
pub(crate) struct Steps<'a> {
    block: usize,
    before: Option<&'a mut dyn FnMut(usize, u64)>,
    budget: Option<u64>,
}

impl Steps<'static> {
    /// The defaults, without a hook.
    pub(crate) const NONE: Self = Self { block: BLOCK, before: None, budget: None };
}

impl<'a> Steps<'a> {
    /// Calls `before` before each word is read, for tests.
    pub(crate) fn words(before: &'a mut dyn FnMut(usize, u64), budget: Option<u64>) -> Self {
        Self { block: 8, before: Some(before), budget }
    }
}

impl Segment {
    /// See [`Segment::copy_of`].
    pub(crate) fn copied(
        path: &Path,
        file: &File,
        most: u64,
        contents: fn() -> Arc<dyn Contents>,
        mut steps: Steps<'_>,
    ) -> Result<Self, Error> {
        let mut tries = if is_in_use(file) { TRIES } else { 1 };
        loop {
            tries -= 1;
            match copy(path, file, most, contents(), &mut steps) {
                Err(error) if tries > 0 && error.is_damage() => {}
                done => return done.map_err(|error| error.at(path)),
            }
        }
    }

    /// Returns the number of series that this copy does not show. Such a series kept changing while
    /// it was read, so its cells could be half of one series and half of another. The number grows
    /// during a walk, because a series is counted when it is met. It is 0 for a segment that is not
    /// a copy.
    #[doc(hidden)]
    pub fn omitted(&self) -> u64 {
        self.region.origin().map_or(0, crate::origin::Origin::omitted)
    }
}

/// Returns whether a process may be using the file. Otherwise the file does not change.
fn is_in_use(file: &File) -> bool {
    presence::is_present(file).unwrap_or(true)
}

fn copy(
    path: &Path,
    file: &File,
    most: u64,
    contents: Arc<dyn Contents>,
    steps: &mut Steps<'_>,
) -> Result<Segment, Error> {
    let fail = |kind| Error::new(Some(path), kind);
    let failed = |error| Error::new(Some(path), ErrorKind::Io(error));
    let was_in_use = is_in_use(file);
    let mut head = [0; HEADER];
    let filled = read_up_to(file, &mut head, 0).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let header = check_header(&head[..filled], length).map_err(fail)?;
    let readings = Readings::now();
    let torn = header.is_torn(readings.boot);
    let used = head[..].word(at::CURSOR);
    if used > most {
        let reason = format!("it has {used} bytes in use, and at most {most} are read");
        return Err(fail(ErrorKind::Request(reason)));
    }
    if used > length && !torn {
        return Err(fail(ErrorKind::Cut { length, expected: used }));
    }
    let limit = (used + used / 8 + ROOM).next_multiple_of(LINE_BYTES);
    // Memory and the words to read again are bounded by the file's length, not by its header: after
    // a power loss, the header can claim more bytes than the file contains.
    let moving = limit.min((length + length / 8 + ROOM).next_multiple_of(LINE_BYTES));
    let original = file.try_clone().map_err(failed)?;
    let region = Region::copy_of(original, limit, moving);
    let region = region.ok_or_else(|| fail(ErrorKind::NoMemory { wanted: limit }))?;
    if let (Some(origin), Some(most)) = (region.origin(), steps.budget) {
        origin.set_budget(most);
    }
    let mut passes = Passes { file, region: &region, torn, steps, without: &[], block: Vec::new() };
    let end = passes.growing(Pass::First, HEADER_BYTES, used).map_err(fail)?;
    let is_moving = was_in_use || is_in_use(file);
    // Take the list of records from the beginning of the copy, and their extent from its end.
    put_header(&region, &head, end);
    check_records(&region).map_err(fail)?;
    let (anchor, _) = anchor_cells(&region).resume(&readings);
    let found = InitialState::from_header(&header, readings.boot);
    let mut segment = Segment {
        region: Arc::new(region),
        anchor,
        boot: readings.boot,
        found,
        // Half of a change does not count as damage.
        torn: true,
        seen: u64::MAX,
        dirty: 0,
        shared: SharedFile::new(Access::Exclusive, torn),
        contents,
        jobs: [].into(),
    };
    if is_moving {
        let without = segment.contents.indexes(&segment);
        let region = &*segment.region;
        let block = Vec::new();
        let mut passes = Passes { file, region, torn, steps, without: &without, block };
        let end = passes.growing(Pass::Second, HEADER_BYTES, end).map_err(fail)?;
        // If no word moved, all words are from one moment.
        if region.origin().is_some_and(|origin| !origin.moved.is_empty()) {
            passes.read(Pass::Third, HEADER_BYTES, end).map_err(fail)?;
        }
        set_end(region, end);
        segment.contents.settle(&segment)?;
        // Words that were read again may refer to words that others added since.
        let end = passes.growing(Pass::Second, end, end).map_err(fail)?;
        set_end(region, end);
    }
    segment.jobs = segment.contents.inspect(&segment)?.into();
    Ok(segment)
}

/// Stores `end` as the end of the copy in bytes.
fn set_end(region: &Region, end: u64) {
    region.origin().into_iter().for_each(|origin| origin.set_copied(offset::words(end)));
    region.cell(at::CURSOR).store(end, Ordering::Relaxed);
}

/// Stores the header of a copy that ends at byte `end`.
fn put_header(region: &Region, head: &[u8; HEADER], end: u64) {
    let cells = region.slice(ByteOffset::new(0), HEADER / 8);
    let (words, _) = head.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    for (cell, word) in cells.iter().zip(words.clone()) {
        cell.store(word, Ordering::Relaxed);
    }
    region.origin().into_iter().for_each(|origin| origin.set_head(words.clone()));
    let store = |at: ByteOffset, word| region.cell(at).store(word, Ordering::Relaxed);
    set_end(region, end);
    store(at::SIZE, region.limit());
    // Clear the locks, claims and freed memory of other processes, which do not concern the copy.
    let locks = [at::REGISTRATION, at::REGISTRATION_BROKEN, at::GROWING, at::GROWING_BROKEN];
    locks.into_iter().chain([at::CLAIMS, at::FREED]).for_each(|at| store(at, 0));
}

/// The passes over a file.
struct Passes<'a, 's> {
    file: &'a File,
    region: &'a Region,
    /// Whether a power loss may have left the file too short.
    torn: bool,
    steps: &'a mut Steps<'s>,
    /// The words to skip, in ascending order.
    without: &'a [Range<u64>],
    /// A buffer that the passes reuse.
    block: Vec<u8>,
}

impl Passes<'_, '_> {
    /// Reads the bytes from `begin` to `end`, then those that were added in the meantime, and
    /// returns the new end. New records go to the end of a segment, so every word that a read word
    /// refers to is read before or now.
    fn growing(&mut self, pass: Pass, begin: u64, end: u64) -> Result<u64, ErrorKind> {
        let (mut begin, mut end) = (begin, end);
        loop {
            self.read(pass, begin, end)?;
            begin = end;
            let mut head = [0; HEADER];
            if read_up_to(self.file, &mut head, 0).map_err(ErrorKind::Io)? < HEADER {
                return Err(ErrorKind::Cut { length: 0, expected: end });
            }
            let used = head[..].word(at::CURSOR);
            if !used.is_multiple_of(LINE_BYTES) || used > self.region.limit() - ROOM / 2 {
                let reason =
                    format!("its allocation cursor went from {end} to {used} in the meantime");
                return Err(ErrorKind::Damaged(reason));
            }
            if used <= end {
                return Ok(end);
            }
            end = used;
        }
    }

    fn read(&mut self, pass: Pass, begin: u64, end: u64) -> Result<(), ErrorKind> {
        let mut begin = begin;
        for words in self.without {
            let (first, next) = (offset::bytes(words.start), offset::bytes(words.end));
            if first < end && begin < next {
                self.read_all(pass, begin, first)?;
                begin = next;
            }
        }
        self.read_all(pass, begin, end)?;
        // Acquire: the next pass sees at least the values of this pass and the stores before them.
        // Its system call loads after the calls of this pass, in program order.
        fence(Ordering::Acquire);
        Ok(())
    }

    fn read_all(&mut self, pass: Pass, begin: u64, end: u64) -> Result<(), ErrorKind> {
        let origin = self.region.origin().expect("it is made as a copy");
        let most = usize::try_from(end.saturating_sub(begin)).unwrap_or(BLOCK);
        let most = most.min(self.steps.block);
        if self.block.len() < most {
            self.block = vec![0; most];
        }
        let block = &mut self.block;
        let mut offset = begin;
        while offset < end {
            if let Some(before) = &mut self.steps.before {
                before(pass as usize, offset);
            }
            let count = usize::try_from(end - offset).unwrap_or(BLOCK).min(block.len());
            let filled =
                read_up_to(self.file, &mut block[..count], offset).map_err(ErrorKind::Io)?;
            if filled < count && !self.torn {
                let length = offset + filled as u64;
                return Err(ErrorKind::Cut { length, expected: end });
            }
            let cells = self.region.slice(ByteOffset::new(offset), count / 8);
            origin.moved.take(pass, cells, &block[..filled], offset::words(offset));
            if filled < count {
                // Bytes that the file lacks are zero.
                break;
            }
            offset += count as u64;
        }
        Ok(())
    }
}
