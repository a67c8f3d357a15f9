//! The ring of chunks: how a frame becomes visible, and how a reader notices that a chunk is
//! overwritten while it reads.
//!
//! Each use of a chunk is one *lap*, whose number is its SEQUENCE: lap `n` uses chunk `(n - 1) mod
//! CHUNKS`. Within a lap, frames are only added, and a store of COMMITTED publishes each. To start
//! a lap, the writer sets SEQUENCE to 0, then COMMITTED to 0, and then SEQUENCE to the lap's
//! number. A reader copies the committed words between two loads of SEQUENCE (a seqlock; Boehm
//! 2012, "Can seqlocks get along with programming language memory models?").
//!
//! The writer can die between any two stores. For example, if it dies before the store of
//! COMMITTED, the last frame does not exist, and if it dies while it starts a lap, the oldest chunk
//! is empty.

use crate::hash::fnv1a_of;
use crate::sync::{Ordering, fence};

/// The words of a recording, for reading. They are untrusted, and may change while you read them.
pub(crate) trait Load {
    /// Loads a word; 0 after the end. Later loads return values that are at least as new.
    fn load(&self, at: usize) -> u64;

    /// Loads the words from `from` on, in any order.
    fn copy(&self, from: usize, into: &mut [u64]);

    /// Returns the number of words.
    fn words(&self) -> usize;
}

/// The words of a recording, for its single writer.
pub(super) trait Store: Load {
    fn store(&self, at: usize, value: u64, ordering: Ordering);
}

impl Load for crate::Cells {
    fn load(&self, at: usize) -> u64 {
        // Acquire, because the trait demands it.
        self.get(at).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    fn copy(&self, from: usize, into: &mut [u64]) {
        for (at, word) in (from..).zip(into) {
            *word = self.get(at).map_or(0, |cell| cell.load(Ordering::Relaxed));
        }
    }

    fn words(&self) -> usize {
        self.len()
    }
}

impl Store for crate::Cells {
    fn store(&self, at: usize, value: u64, ordering: Ordering) {
        if let Some(cell) = self.get(at) {
            cell.store(value, ordering);
        }
    }
}

/// Indexes into the head of the record.
pub(super) mod head {
    pub(in super::super) const GEOMETRY: usize = 0;
    pub(in super::super) const INTERVAL: usize = 1;
    pub(in super::super) const OWNER: usize = 2;
    pub(in super::super) const DROPPED: usize = 3;
    pub(in super::super) const END: usize = 8;
}

/// Indexes into the head of a chunk.
mod chunk {
    pub(super) const SEQUENCE: usize = 0;
    pub(super) const COMMITTED: usize = 1;
    pub(super) const TIME: usize = 2;
    pub(super) const UNIX: usize = 3;
    pub(super) const END: usize = 8;
}

/// The number of chunks, and the words of each, including its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    chunks: u32,
    words: u32,
}

/// The number of chunks of a new record. Starting a lap overwrites a sixteenth of the recording.
const CHUNKS: u32 = 16;
/// The maximum number of words of all chunks. This bounds a reader's allocations, because it trusts
/// a chunk's length.
const MAX_WORDS: u64 = (64 << 20) / 8;
/// The size of a chunk is a multiple of this number of words, which is a cache line.
const LINE: u32 = 8;

impl Geometry {
    /// Returns the largest geometry that fits into a record's cells.
    pub(super) fn of_cells(cells: u64) -> Option<Self> {
        let words = cells.checked_sub(head::END as u64)? / u64::from(CHUNKS);
        let words = u32::try_from(words).ok()? / LINE * LINE;
        (words > chunk::END as u32).then_some(Self { chunks: CHUNKS, words })
    }

    /// Returns the words of the record, including its head.
    pub(super) fn all_words(self) -> usize {
        head::END + self.chunks as usize * self.words as usize
    }

    /// Returns the words for the frames of a chunk.
    pub(super) fn frame_words(self) -> usize {
        self.words as usize - chunk::END
    }

    pub(super) fn pack(self) -> u64 {
        u64::from(self.chunks) | u64::from(self.words) << 32
    }

    /// Reads the head of a record; `None` if it contradicts itself.
    pub(super) fn unpack(word: u64) -> Option<Self> {
        // The truncation is intended: each cast keeps one half.
        let (chunks, words) = (word as u32, (word >> 32) as u32);
        let is_sound = (2..=1 << 16).contains(&chunks)
            && words > chunk::END as u32
            && words.is_multiple_of(LINE)
            && u64::from(chunks) * u64::from(words) <= MAX_WORDS;
        is_sound.then_some(Self { chunks, words })
    }

    /// Returns the first word of a lap's chunk.
    fn chunk_of(self, lap: u64) -> usize {
        let index = lap.wrapping_sub(1) % u64::from(self.chunks);
        // The index is less than 2^32 words.
        head::END + (index * u64::from(self.words)) as usize
    }

    /// Returns a chunk's lap and its first word; `None` if the chunk belongs to no lap.
    fn lap(self, memory: &impl Load, index: u32) -> Option<(u64, usize)> {
        let at = head::END + index as usize * self.words as usize;
        let lap = memory.load(at + chunk::SEQUENCE);
        (lap != 0 && self.chunk_of(lap) == at).then_some((lap, at))
    }

    /// Returns the laps of all chunks, oldest first. A chunk that is overwritten at the same time
    /// is skipped.
    pub(super) fn laps(self, memory: &impl Load) -> Vec<Lap> {
        let laps = (0..self.chunks).filter_map(|index| {
            let (number, at) = self.lap(memory, index)?;
            let time = memory.load(at + chunk::TIME);
            let has_frames = memory.load(at + chunk::COMMITTED) > 0;
            let first = has_frames.then(|| memory.load(at + chunk::END + FRAME_TIME));
            // The load is at least as new as the words above. If one of them is from the next lap,
            // this load sees that the lap has ended.
            let is_same = memory.load(at + chunk::SEQUENCE) == number;
            is_same.then_some(Lap { number, at, time, first })
        });
        let mut laps: Vec<_> = laps.collect();
        laps.sort_unstable();
        laps
    }

    /// Copies the chunk of a lap; `None` if the chunk belongs to another lap by now.
    pub(super) fn read(self, memory: &impl Load, lap: u64) -> Option<ChunkCopy> {
        let at = self.chunk_of(lap);
        // Acquire, in `load`: sees the stores from before the lap began, and from before each frame
        // was committed.
        if memory.load(at + chunk::SEQUENCE) != lap {
            return None;
        }
        let committed = memory.load(at + chunk::COMMITTED);
        let there = memory.words().saturating_sub(at + chunk::END).min(self.frame_words());
        let is_whole = committed <= there as u64;
        let count = if is_whole { committed as usize } else { there };
        let mut words = vec![0; chunk::END + count];
        memory.copy(at, &mut words);
        // Acquire: if a word above is from the next lap, the load below sees that this lap has
        // ended.
        fence(Ordering::Acquire);
        if memory.load(at + chunk::SEQUENCE) != lap {
            return None;
        }
        let (time, unix) = (words[chunk::TIME], words[chunk::UNIX]);
        Some(ChunkCopy { at, lap, time, unix, is_whole, words: words.split_off(chunk::END) })
    }
}

/// The lap of a chunk, read from the chunk's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lap {
    pub(super) number: u64,
    /// The first word of the chunk in the record.
    at: usize,
    /// The chunk's TIME, which no checksum covers.
    pub(super) time: u64,
    /// The time of the first frame, if there is one. A writer sets both times to the same value.
    pub(super) first: Option<u64>,
}

impl Lap {
    /// Returns the word of TIME in the record.
    pub(super) fn time_at(&self) -> usize {
        self.at + chunk::TIME
    }
}

/// A copy of a chunk.
#[derive(Debug)]
pub(super) struct ChunkCopy {
    /// The word of its head in the record.
    at: usize,
    lap: u64,
    /// The time of the segment at the beginning of the lap.
    pub(super) time: u64,
    /// The wall clock's time at the beginning of the lap.
    pub(super) unix: u64,
    /// Whether COMMITTED is in bounds.
    pub(super) is_whole: bool,
    words: Vec<u64>,
}

/// The bits of a frame's first word that contain its length in words.
const LENGTH: u64 = (1 << 24) - 1;
/// The mark of a key frame: a frame that depends on no earlier one.
pub(super) const KEY: u64 = 1 << 24;
/// The word of a frame that contains its time.
const FRAME_TIME: usize = 1;

impl ChunkCopy {
    /// Returns the time of its first frame. You can trust it if `frames` visits a frame.
    pub(super) fn first(&self) -> Option<u64> {
        self.words.get(FRAME_TIME).copied()
    }

    /// Calls `visit` with the words of each frame; the first word contains the marks. Stops at the
    /// first frame that `visit` refuses, or whose length or checksum is wrong, and returns its word
    /// in the record.
    pub(super) fn frames(&self, mut visit: impl FnMut(&[u64]) -> bool) -> Result<(), usize> {
        let mut rest = &self.words[..];
        while let Some(&first) = rest.first() {
            let at = self.at + chunk::END + self.words.len() - rest.len();
            // The length is less than 2^24.
            let length = (first & LENGTH) as usize;
            if length == 0 || length > rest.len() {
                return Err(at);
            }
            let (frame, after) = rest.split_at(length);
            if first >> 32 != check(self.lap, frame) || !visit(frame) {
                return Err(at);
            }
            rest = after;
        }
        if self.is_whole { Ok(()) } else { Err(self.at + chunk::COMMITTED) }
    }
}

/// Returns the 32-bit checksum of a frame. It covers the lap, so a frame of an earlier lap does not
/// match.
fn check(lap: u64, frame: &[u64]) -> u64 {
    let first = frame.first().map_or(0, |word| word & u64::from(u32::MAX));
    let words = [lap, first].into_iter().chain(frame.iter().skip(1).copied());
    let hash = fnv1a_of(words.flat_map(u64::to_le_bytes));
    (hash ^ hash >> 32) & u64::from(u32::MAX)
}

/// The writer's position: the last lap that was begun, and the committed words of its chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) geometry: Geometry,
    /// The number of the lap; 0 before the first.
    lap: u64,
    committed: usize,
    /// The time of the last frame that the last writer committed.
    pub(super) time: u64,
}

impl Position {
    /// Finds the position of the last writer. Its chunk is continued only if all frames are sound
    /// and there is at least one, because the first frame must have the time of the lap.
    pub(super) fn find(memory: &impl Load, geometry: Geometry) -> Self {
        let full = geometry.frame_words();
        let laps = (0..geometry.chunks).filter_map(|index| geometry.lap(memory, index));
        let Some((lap, _)) = laps.max() else {
            return Self { geometry, lap: 0, committed: full, time: 0 };
        };
        let mut time = 0;
        let mut note = |frame: &[u64]| {
            time = frame.get(FRAME_TIME).copied().unwrap_or(time);
            true
        };
        let sound = geometry.read(memory, lap).filter(|chunk| chunk.frames(&mut note).is_ok());
        let committed = sound.map_or(full, |chunk| chunk.words.len());
        let committed = if committed == 0 { full } else { committed };
        Self { geometry, lap, committed, time }
    }

    /// Returns whether a frame of that many words fits into the chunk.
    pub(super) fn has_room(&self, words: usize) -> bool {
        words <= self.geometry.frame_words().saturating_sub(self.committed)
    }

    /// Starts the next lap.
    pub(super) fn start(&mut self, memory: &impl Store, time: u64, unix: u64) {
        self.lap = self.lap.wrapping_add(1).max(1);
        self.committed = 0;
        let at = self.geometry.chunk_of(self.lap);
        memory.store(at + chunk::SEQUENCE, 0, Ordering::Relaxed);
        // Release: a reader that sees any word of this lap sees that the last one has ended.
        fence(Ordering::Release);
        let words = [(chunk::COMMITTED, 0), (chunk::TIME, time), (chunk::UNIX, unix)];
        for (word, value) in words {
            memory.store(at + word, value, Ordering::Relaxed);
        }
        // Release: a reader that sees the lap sees that no frame is committed yet.
        memory.store(at + chunk::SEQUENCE, self.lap, Ordering::Release);
    }

    /// Adds a frame, if there is room. Its first word contains the marks; this fills in the length
    /// and the checksum.
    pub(super) fn commit(&mut self, memory: &impl Store, frame: &mut [u64]) {
        let length = frame.len();
        if length == 0 || length as u64 > LENGTH || !self.has_room(length) {
            return;
        }
        frame[0] = frame[0] & u64::from(u32::MAX) & !LENGTH | length as u64;
        frame[0] |= check(self.lap, frame) << 32;
        let at = self.geometry.chunk_of(self.lap);
        for (to, &word) in (at + chunk::END + self.committed..).zip(&*frame) {
            memory.store(to, word, Ordering::Relaxed);
        }
        self.committed += length;
        // Release: a reader that sees the number sees the frame.
        memory.store(at + chunk::COMMITTED, self.committed as u64, Ordering::Release);
    }
}

/// A model for loom: two chunks, with room for two words each.
#[cfg(loom)]
pub mod model {
    use super::*;
    use crate::Cells;

    /// A record with two chunks.
    #[derive(Clone)]
    pub struct Chunks(Cells);

    const GEOMETRY: Geometry = Geometry { chunks: 2, words: 16 };

    impl Default for Chunks {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Chunks {
        /// Returns empty chunks.
        pub fn new() -> Self {
            Self(Cells::private(GEOMETRY.all_words()))
        }

        /// Starts a number of laps with a number of frames each. A frame contains its lap's number.
        pub fn write(&self, laps: u64, frames: u64) {
            let mut position = Position::find(&self.0, GEOMETRY);
            for _ in 0..laps {
                position.start(&self.0, position.lap + 1, 0);
                for _ in 0..frames {
                    position.commit(&self.0, &mut [KEY, position.lap]);
                }
            }
        }

        /// Returns the number of a lap's frames, or `None` if its chunk belongs to another lap.
        pub fn read(&self, lap: u64) -> Option<u64> {
            let chunk = GEOMETRY.read(&self.0, lap)?;
            assert_eq!((chunk.time, chunk.is_whole), (lap, true));
            let mut frames = 0;
            let ended = chunk.frames(|frame| {
                frames += 1;
                frame[1] == lap
            });
            assert_eq!(ended, Ok(()));
            Some(frames)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;

    use super::*;

    const GEOMETRY: Geometry = Geometry { chunks: 3, words: 24 };

    /// Memory that logs all stores.
    #[derive(Default)]
    struct LoggedMemory(RefCell<(Vec<u64>, Log)>);

    /// The index and the value of each store.
    type Log = Vec<(usize, u64)>;

    impl Load for LoggedMemory {
        fn load(&self, at: usize) -> u64 {
            self.0.borrow().0.get(at).copied().unwrap_or(0)
        }

        fn copy(&self, from: usize, into: &mut [u64]) {
            (from..).zip(into).for_each(|(at, word)| *word = self.load(at));
        }

        fn words(&self) -> usize {
            GEOMETRY.all_words()
        }
    }

    impl Store for LoggedMemory {
        fn store(&self, at: usize, value: u64, _: Ordering) {
            let (words, log) = &mut *self.0.borrow_mut();
            words.resize(words.len().max(at + 1), 0);
            words[at] = value;
            log.push((at, value));
        }
    }

    /// Returns the numbers in all frames, oldest first.
    fn numbers(memory: &impl Load) -> Vec<u64> {
        let mut numbers = Vec::new();
        for lap in GEOMETRY.laps(memory) {
            let chunk = GEOMETRY.read(memory, lap.number).unwrap();
            assert_eq!((chunk.time, chunk.first()), (lap.time, lap.first));
            assert!(lap.first.is_none_or(|first| first == lap.time));
            chunk
                .frames(|frame| {
                    numbers.push(frame[1]);
                    true
                })
                .unwrap();
        }
        numbers
    }

    /// Writes frames of one to four words, numbered from `first` on.
    fn write(memory: &impl Store, first: u64, count: u64) {
        let mut position = Position::find(memory, GEOMETRY);
        for number in first..first + count {
            let mut frame = vec![KEY, number];
            frame.resize(2 + number as usize % 3, 7);
            if !position.has_room(frame.len()) {
                position.start(memory, number, 0);
            }
            position.commit(memory, &mut frame);
        }
    }

    #[test]
    fn a_death_between_any_two_stores_loses_at_most_the_last_frame_and_the_oldest_chunk() {
        let memory = LoggedMemory::default();
        write(&memory, 1, 100);
        let log = memory.0.take().1;
        let replayed = LoggedMemory::default();
        let mut last = 0;
        for (step, &(at, value)) in log.iter().enumerate() {
            replayed.store(at, value, Ordering::Relaxed);
            let seen = numbers(&replayed);
            let newest = seen.last().copied().unwrap_or(last);
            assert!(newest == last || newest == last + 1, "{seen:?}");
            let expected: Vec<u64> = (newest + 1 - seen.len() as u64..=newest).collect();
            assert_eq!(seen, expected, "after {step}");
            // Two of three chunks survive, each of 16 words, with frames of at most four.
            assert!(seen.len() as u64 >= newest.min(8), "{seen:?}");
            last = newest;
            // The next writer continues from there.
            if step % 7 == 0 {
                let next = LoggedMemory(RefCell::new((replayed.0.borrow().0.clone(), Vec::new())));
                write(&next, newest + 1, 3);
                assert_eq!(numbers(&next).last(), Some(&(newest + 3)));
            }
        }
        assert_eq!(last, 100);
    }

    #[test]
    fn a_damaged_frame_ends_a_chunk() {
        let memory = LoggedMemory::default();
        write(&memory, 1, 5);
        let words = memory.0.take().0;
        for at in head::END..words.len() {
            for bit in [0, 3, 24, 40, 63] {
                let mut words = words.clone();
                words[at] ^= 1 << bit;
                let memory = LoggedMemory(RefCell::new((words, Vec::new())));
                let mut seen = 0;
                for lap in GEOMETRY.laps(&memory) {
                    let Some(chunk) = GEOMETRY.read(&memory, lap.number) else { continue };
                    let _ = chunk.frames(|frame| {
                        seen += 1;
                        (1..=5).contains(&frame[1])
                    });
                }
                assert!(seen <= 5);
                write(&memory, 6, 1);
            }
        }
    }

    #[test]
    fn a_chunk_without_frames_is_not_continued() {
        let memory = LoggedMemory::default();
        write(&memory, 1, 1);
        Position::find(&memory, GEOMETRY).start(&memory, 50, 0);
        // Much later, another writer starts.
        write(&memory, 99, 1);
        assert_eq!(numbers(&memory), [1, 99]);
        let times: Vec<_> =
            GEOMETRY.laps(&memory).iter().map(|lap| (lap.time, lap.first)).collect();
        assert_eq!(times, [(1, Some(1)), (50, None), (99, Some(99))]);
    }

    /// Memory where a chunk starts a new lap after this word, its SEQUENCE, was loaded once.
    struct RacedMemory(LoggedMemory, std::cell::Cell<Option<usize>>);

    impl Load for RacedMemory {
        fn load(&self, at: usize) -> u64 {
            let word = self.0.load(at);
            if self.1.get() == Some(at) {
                self.1.set(None);
                Position::find(&self.0, GEOMETRY).start(&self.0, 1000, 0);
            }
            word
        }

        fn copy(&self, from: usize, into: &mut [u64]) {
            self.0.copy(from, into);
        }

        fn words(&self) -> usize {
            self.0.words()
        }
    }

    #[test]
    fn a_chunk_that_starts_over_has_no_time_of_the_next_lap() {
        let memory = LoggedMemory::default();
        write(&memory, 1, 50);
        let laps = GEOMETRY.laps(&memory);
        let raced = RacedMemory(memory, std::cell::Cell::new(Some(laps[0].at + chunk::SEQUENCE)));
        assert_eq!(GEOMETRY.laps(&raced), laps[1..]);
        assert_eq!(raced.1.get(), None);
    }

    #[test]
    fn geometries_are_checked() {
        for cells in [0, 8, 136, 200, 1 << 13, 1 << 19] {
            let Some(geometry) = Geometry::of_cells(cells) else {
                assert!(cells < 8 + 16 * 16);
                continue;
            };
            assert!(geometry.all_words() as u64 <= cells);
            assert_eq!(Geometry::unpack(geometry.pack()), Some(geometry));
        }
        for word in [0, 1, u64::MAX, 16 | 9 << 32, 16 | 8 << 32, 1 << 17 | 16 << 32] {
            assert_eq!(Geometry::unpack(word), None);
        }
    }
}
