//! The untrusted bytes of a file, read on demand, one chunk at a time, in bounded memory. A source
//! can also read the words of a copy.
//!
//! This module reads instead of mapping the file, because the file may be truncated in the
//! meantime. A missing byte then reads as zero, where a mapping would end the process with SIGBUS.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::copied::SegmentCopy;
use crate::layout::Words;
use crate::offset::ByteOffset;

/// The number of bytes of a chunk.
pub(super) const CHUNK: u64 = 1 << 16;
/// The maximum number of chunks in memory.
const CHUNKS: u64 = 256;

/// Bytes that can be read at any offset.
pub(super) trait ReadAt {
    /// Reads bytes at an offset; fewer if the end is reached.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the next offset whose bytes are stored; all bytes before it are zero. Returns `None`
    /// if no stored byte follows, and `offset` itself if that cannot be determined.
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
        // Moving the file's position is harmless, because all reads pass an offset.
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

/// A chunk with its number.
type NumberedChunk = (u64, Box<[u8]>);

/// The bytes of a file, and the budget of words that may still be read.
pub(super) struct Source {
    bytes: Box<dyn ReadAt>,
    copied: Option<SegmentCopy>,
    length: u64,
    /// A cache of chunks, indexed by the chunk's number modulo `CHUNKS`.
    chunks: RefCell<Vec<Option<NumberedChunk>>>,
    /// The number of words that may still be visited. The parts of a damaged file can overlap, and
    /// would otherwise be read over and over.
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

    /// Returns a source that reads a copy of a file of this length.
    pub(super) fn of_copy(copied: SegmentCopy, length: u64) -> Self {
        Self { copied: Some(copied), ..Self::new(Box::new(Vec::<u8>::new()), length) }
    }

    /// Returns the copy, if this source reads one.
    pub(super) fn copied(&self) -> Option<&SegmentCopy> {
        self.copied.as_ref()
    }

    /// Returns the length of the file in bytes when reading began.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the offset of the next stored byte at or after this one, or the length if no stored
    /// byte follows. All bytes in between are zero. This skips holes, because a sparse file of a
    /// few kilobytes can be a TiB long.
    pub(super) fn next_stored(&self, offset: u64) -> u64 {
        let next = match &self.copied {
            Some(copied) => Some(offset).filter(|&at| at < copied.end()),
            None => self.bytes.next_stored(offset),
        };
        next.map_or(self.length, |at| at.min(self.length))
    }

    /// Returns whether the system refused to read some bytes.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Refills the budget for one more pass over the file.
    pub(super) fn refill(&self) {
        self.budget.set(self.length / 2 + 4096);
    }

    /// Subtracts words from the budget. Returns false if it is too small.
    pub(super) fn spend(&self, words: u64) -> bool {
        let left = self.budget.get().checked_sub(words);
        self.budget.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns whether these words lie in the file.
    pub(super) fn has_words(&self, first: u64, count: u64) -> bool {
        let end = first.checked_add(count).and_then(|end| end.checked_mul(8));
        end.is_some_and(|end| end <= self.length)
    }

    /// Returns the word with this number, or 0 after the end of the file.
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

    /// Reads `count` words from `first` on, as bytes. The caller has checked that they are in the
    /// file.
    pub(super) fn bytes(&self, first: u64, count: u64, out: &mut Vec<u8>) {
        out.clear();
        (first..first.saturating_add(count)).for_each(|word| {
            out.extend_from_slice(&self.at(word).to_le_bytes());
        });
    }

    /// Reads the current words from `first` on, past the cache, because they may have changed since
    /// the chunk was read. A word after the end is zero.
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
        // A word after the end reads as zero, which is not a valid record.
        true
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// A long file that stores bytes in one place only.
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
