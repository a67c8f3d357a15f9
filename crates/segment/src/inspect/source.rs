//! The bytes of a file that nothing vouches for: read on demand, a chunk at a time, in bounded
//! memory; or those of its copy.
//!
//! A file may be cut while it is read. What is not there reads as zeros, and a mapping would end
//! the process instead.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::copied::SegmentCopy;
use crate::layout::Words;
use crate::offset::ByteOffset;

/// The bytes of a chunk, and the most chunks in memory.
pub(super) const CHUNK: u64 = 1 << 16;
const CHUNKS: u64 = 256;

/// Bytes that can be read at any offset.
pub(super) trait ReadAt {
    /// Reads bytes from an offset on; fewer if there are no more.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Where the next bytes are that are stored: all that lie between are zero. `None` if there are
    /// no more; the offset itself if that is not known.
    fn next_stored(&self, offset: u64) -> Option<u64> {
        Some(offset)
    }
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    fn next_stored(&self, offset: u64) -> Option<u64> {
        // The position in the file is used by no reader of it.
        match rustix::fs::seek(self, rustix::fs::SeekFrom::Data(offset)) {
            Ok(at) => Some(at.max(offset)),
            Err(rustix::io::Errno::NXIO) => None,
            Err(_) => Some(offset),
        }
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// A chunk, and its number.
type NumberedChunk = (u64, Box<[u8]>);

/// The bytes, and what may still be read of them.
pub(super) struct Source {
    bytes: Box<dyn ReadAt>,
    copied: Option<SegmentCopy>,
    length: u64,
    /// By the number of the chunk, modulo `CHUNKS`.
    chunks: RefCell<Vec<Option<NumberedChunk>>>,
    /// The words that may still be visited: parts of a damaged file may overlap, and would be read
    /// over and over.
    budget: Cell<u64>,
    failed: Cell<bool>,
}

impl Source {
    pub(super) fn new(bytes: Box<dyn ReadAt>, length: u64) -> Self {
        let chunks = (0..CHUNKS).map(|_| None).collect();
        let source = Self {
            bytes,
            copied: None,
            length,
            chunks: RefCell::new(chunks),
            budget: Cell::new(0),
            failed: Cell::new(false),
        };
        source.refill();
        source
    }

    /// The words of a copy of a file of this length.
    pub(super) fn of_copy(copied: SegmentCopy, length: u64) -> Self {
        Self { copied: Some(copied), ..Self::new(Box::new(Vec::<u8>::new()), length) }
    }

    /// The copy, if it is one.
    pub(super) fn copied(&self) -> Option<&SegmentCopy> {
        self.copied.as_ref()
    }

    /// The number of bytes when reading began.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The offset of the next bytes that the file system stores, from this one on; the length if
    /// there are no more. All that lie between are zero. A file of a few kilobytes may be a TiB
    /// long.
    pub(super) fn next_stored(&self, offset: u64) -> u64 {
        let next = match &self.copied {
            Some(copied) => Some(offset).filter(|&at| at < copied.end()),
            None => self.bytes.next_stored(offset),
        };
        next.map_or(self.length, |at| at.min(self.length))
    }

    /// Whether the system refused to read some bytes.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Allows a pass over the file.
    pub(super) fn refill(&self) {
        self.budget.set(self.length / 2 + 4096);
    }

    /// Takes a number of words from the budget; returns false if there are not that many left.
    pub(super) fn spend(&self, words: u64) -> bool {
        let left = self.budget.get().checked_sub(words);
        self.budget.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Whether these words lie in the file.
    pub(super) fn has_words(&self, first: u64, count: u64) -> bool {
        let end = first.checked_add(count).and_then(|end| end.checked_mul(8));
        end.is_some_and(|end| end <= self.length)
    }

    /// A word by its number; 0 if it is not there.
    #[inline]
    pub(super) fn at(&self, word: u64) -> u64 {
        if let Some(copied) = &self.copied {
            return copied.at(word);
        }
        let Some(offset) = word.checked_mul(8).filter(|&at| at + 8 <= self.length) else {
            return 0;
        };
        let (number, within) = (offset / CHUNK, (offset % CHUNK) as usize);
        let mut chunks = self.chunks.borrow_mut();
        let slot = &mut chunks[(number % CHUNKS) as usize];
        let chunk = match slot {
            Some((there, chunk)) if *there == number => chunk,
            _ => &mut slot.insert((number, self.read(number))).1,
        };
        let bytes = chunk[within..within + 8].try_into().expect("a slice of 8 bytes");
        u64::from_le_bytes(bytes)
    }

    /// Words from one on, as bytes. The caller has checked that they are there.
    pub(super) fn bytes(&self, first: u64, count: u64, out: &mut Vec<u8>) {
        out.clear();
        (first..first.saturating_add(count)).for_each(|word| {
            out.extend_from_slice(&self.at(word).to_le_bytes());
        });
    }

    /// The words from one on, as they are now: those that were read before may have changed. What
    /// is not there is zero.
    pub(super) fn fresh(&self, first: u64, out: &mut [u64]) {
        if let Some(copied) = &self.copied {
            (first..).zip(out).for_each(|(at, word)| *word = copied.at(at));
            return;
        }
        let mut bytes = vec![0; out.len() * 8];
        if let Some(offset) = first.checked_mul(8).filter(|&offset| offset < self.length) {
            self.fill(&mut bytes, offset);
        }
        for (word, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    fn read(&self, number: u64) -> Box<[u8]> {
        let mut chunk = vec![0; CHUNK as usize].into_boxed_slice();
        self.fill(&mut chunk, number * CHUNK);
        chunk
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.bytes.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.failed.set(true);
                    break;
                }
            }
        }
    }
}

impl Words for Source {
    fn word(&self, offset: ByteOffset) -> u64 {
        self.at(offset.get() / 8)
    }

    fn has(&self, _: u64) -> bool {
        // What is not there is zero, which is not a record.
        true
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Bytes that are stored at one place of a long file.
    struct SparseBytes {
        at: u64,
        bytes: Vec<u8>,
        readings: Rc<Cell<u64>>,
    }

    impl ReadAt for SparseBytes {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.readings.set(self.readings.get() + 1);
            assert!(self.readings.get() < 100, "it reads through a hole");
            buffer.fill(0);
            for (at, byte) in (self.at..).zip(&self.bytes) {
                if let Some(place) = at.checked_sub(offset).filter(|&at| at < buffer.len() as u64) {
                    buffer[place as usize] = *byte;
                }
            }
            Ok(buffer.len())
        }

        fn next_stored(&self, offset: u64) -> Option<u64> {
            Some(offset.max(self.at)).filter(|&at| at < self.at + self.bytes.len() as u64)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes minutes")]
    fn a_search_for_records_skips_holes() {
        let readings = Rc::default();
        let bytes =
            SparseBytes { at: 1 << 39, bytes: vec![1; 1 << 18], readings: Rc::clone(&readings) };
        let source = Source::new(Box::new(bytes), 1 << 40);
        assert!(super::super::records::search(&source, &[]).is_empty());
        assert_eq!(readings.get(), 4);
    }
}
