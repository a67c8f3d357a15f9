//! The record of a series: its meta word, its origin (group and start), its idle mark, its cells,
//! and its key.
//!
//! A record is written as a draft. Later, a change of its state shows, hides or removes it.

use super::blocks::BlockRecord;
use super::expire::{TENTH, mark_time, tenths};
use super::free::MAX_WORDS;
use super::head as at;
use super::{DynamicSeries, FamilyWithSides, FoundRecord, Moment};
use crate::claims::Memory;
use crate::error::Error;
use crate::offset::{self, CELL_BYTES, WordOffset};
use crate::series::cells::SeriesCells;
use crate::series::key::{Key, next_text};
use crate::series::meta::{self, ESCAPE_FREE, state, state_of, with_state};
use crate::slots::Claim;
use crate::sync::{AtomicU64, Ordering, fence};

/// The parts of a record that a scrape reads.
#[derive(Clone, Copy)]
pub(crate) struct RecordReading<'s> {
    pub(crate) group: u32,
    pub(crate) texts: &'s [u8],
    pub(crate) escape_free: bool,
    pub(crate) overflow: bool,
    pub(crate) start: u64,
    /// The record's offset and, in the upper half, the series' generation of the record.
    pub(crate) id: u64,
    pub(crate) cells: SeriesCells<'s>,
    pub(super) meta: u64,
}

impl DynamicSeries {
    /// Stores `now` as the start of a series. The caller must hold the lock.
    pub(super) fn restart(&self, at: WordOffset, now: Moment) {
        let origin = self.word_of(at, 1);
        let group = origin.load(Ordering::Relaxed) >> 32 << 32;
        origin.store(group | self.since_creation(now), Ordering::Release);
    }

    /// Returns word `i` of a record or block.
    #[inline]
    pub(super) fn word_of(&self, at: WordOffset, i: u32) -> &AtomicU64 {
        self.region().cell(at.byte_of(i))
    }

    /// Returns whether `words` words lie in the segment, at word offsets of 32 bits.
    #[inline]
    pub(super) fn has_words(&self, at: WordOffset, words: u32) -> bool {
        at.checked_plus(words).is_some()
            && self.region().has(at.byte(), offset::bytes(words.into()))
    }

    /// Returns the words of a record's key; empty if they are not all in the segment.
    #[inline]
    pub(super) fn key_at(&self, at: WordOffset, count: usize) -> &[AtomicU64] {
        self.region().slice(at.byte_of(self.before_key), count)
    }

    /// Reads a record's labels, and claims it, so that its cells belong to this series until the
    /// claim changes. Returns `None` if the record is not shown; with `hidden`, idle series are
    /// returned, too. `buffer` is memory for the labels, with any content.
    #[inline(always)]
    pub(crate) fn read_claimed<'s>(
        &'s self,
        BlockRecord { at, head, tail }: BlockRecord<'s>,
        claim: Option<&Claim<'_>>,
        buffer: &'s mut Vec<u8>,
        hidden: bool,
    ) -> Option<RecordReading<'s>> {
        if let Some(claim) = claim {
            claim.set(at);
        }
        let [word, origin, ..] = head else { return None };
        // Acquire: a thread that sees the record live sees its contents.
        let meta = word.load(Ordering::Acquire);
        let state = state_of(meta);
        if state != state::LIVE && !(hidden && state == state::HIDDEN) {
            return None;
        }
        let key = tail.get(..(meta::used_words(meta) as usize).checked_sub(head.len())?)?;
        let origin = origin.load(Ordering::Relaxed);
        let group = (origin >> 32) as u32;
        if group >= self.groups {
            return None;
        }
        if buffer.len() < key.len() * 8 {
            grow(buffer, key.len() * 8);
        }
        let bytes = &mut buffer[..key.len() * 8];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(key) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        // Acquire: if a load above saw a store after a removal, the load below sees the removal.
        fence(Ordering::Acquire);
        if !meta::is_same_series(word.load(Ordering::Relaxed), meta) {
            return None;
        }
        // The overflow series does not have label values.
        let overflow = key.is_empty() && self.is_overflow(at);
        let end = if overflow { 0 } else { texts_end(bytes, self.texts)? };
        Some(RecordReading {
            group,
            texts: &bytes[..end],
            escape_free: meta & ESCAPE_FREE != 0,
            overflow,
            start: self.created.saturating_add((origin & u64::from(u32::MAX)) * TENTH),
            id: meta::series_id(at, meta),
            cells: SeriesCells::in_one_lane(head.get(self.header as usize..)?)?,
            meta,
        })
    }

    /// Returns whether the key is valid for this family. A caller can write too few labels, for
    /// example, or indices that are out of range.
    pub(super) fn is_key(&self, key: &Key<'_>) -> bool {
        let bytes = key.words.as_flattened();
        key.group < self.groups
            && texts_end(bytes, self.texts).is_some_and(|end| is_padding(&bytes[end..]))
    }

    /// Reserves a record, and writes everything but its state.
    pub(super) fn write(
        &self,
        key: &Key<'_>,
        now: Moment,
        sides: Option<FamilyWithSides<'_>>,
    ) -> Result<WordOffset, Error> {
        let words = u64::from(self.before_key) + key.words.len() as u64;
        if words > MAX_WORDS.into() {
            return Err(Error::full(&self.segment, offset::bytes(words)));
        }
        let at = self.take(words as u32)?;
        let region = self.region();
        let origin = u64::from(key.group) << 32 | self.since_creation(now);
        // Release, here and below: a walk without a claim that sees these stores sees the new
        // generation.
        self.word_of(at, 1).store(origin, Ordering::Release);
        if let Some((family, sides)) = sides {
            sides.renew(family, &self.cells_at(at));
        }
        for i in 2..self.before_key {
            let is_offset = |(_, sides): FamilyWithSides<'_>| {
                i.checked_sub(self.header).is_some_and(|cell| sides.is_offset(cell as usize))
            };
            if !sides.is_some_and(is_offset) {
                self.word_of(at, i).store(0, Ordering::Release);
            }
        }
        if self.idle.is_some() {
            let mark = u64::from(self.digest(at)) << 32 | u64::from(mark_time(now));
            self.word_of(at, 2).store(mark, Ordering::Release);
        }
        for (i, word) in (self.before_key..).zip(key.words) {
            self.word_of(at, i).store(u64::from_le_bytes(*word), Ordering::Release);
        }
        let escape_free = self.is_escape_free(key.words.as_flattened());
        let mark = if escape_free { ESCAPE_FREE } else { 0 };
        let meta = region.word(at).load(Ordering::Relaxed) & !ESCAPE_FREE;
        let meta = meta::with_checksum(meta, key.hash);
        region.word(at).store(meta | mark, Ordering::Relaxed);
        Ok(at)
    }

    pub(super) fn show(&self, at: WordOffset) {
        self.set_state(at, state::LIVE);
        self.head[at::HIDDEN].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn hide(&self, at: WordOffset) {
        self.set_state(at, state::HIDDEN);
        self.head[at::HIDDEN].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes the state, and returns the new meta word.
    pub(super) fn set_state(&self, at: WordOffset, state: u64) -> u64 {
        with_state(meta::set_state(self.region().word(at), state), state)
    }

    /// Returns the values of a key, one for each dynamic label of the family.
    pub(super) fn texts<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let mut rest = bytes;
        (0..self.texts).map_while(move |_| {
            let (text, behind) = next_text(rest)?;
            rest = behind;
            Some(text)
        })
    }

    /// Returns whether no value of a key needs an escape.
    pub(super) fn is_escape_free(&self, bytes: &[u8]) -> bool {
        // Don't stop early, because the compiler can then check many bytes at once.
        let has_any = |text: &[u8]| {
            text.iter().fold(false, |any, byte| any | matches!(byte, b'"' | b'\\' | b'\n'))
        };
        !self.texts(bytes).any(has_any)
    }

    /// Returns the number of words of a record's key.
    #[inline]
    pub(super) fn key_words(&self, meta: u64) -> usize {
        // The cast is safe, because a record is at most 2^16 words long.
        (meta::used_words(meta) as usize).saturating_sub(self.before_key as usize)
    }

    /// Returns the record if this is its key.
    #[inline]
    pub(super) fn matches(&self, at: WordOffset, key: &Key<'_>) -> Option<FoundRecord> {
        let count = self.before_key as usize + key.words.len();
        let words = self.region().slice(at.byte(), count);
        let (head, texts) = words.split_at_checked(self.before_key as usize)?;
        // Acquire: a thread that sees the record live sees its contents.
        let meta = head.first()?.load(Ordering::Acquire);
        (meta::is_series(meta) && has_key(meta, head, texts, key))
            .then_some(FoundRecord { at, meta })
    }

    /// Returns the hash of a record's key.
    pub(super) fn hash(&self, at: WordOffset) -> u64 {
        self.hash_in(at, &mut Vec::new())
    }

    /// Like [`DynamicSeries::hash`], for a caller with many records: `buffer` is memory for the
    /// key.
    pub(super) fn hash_in(&self, at: WordOffset, buffer: &mut Vec<u8>) -> u64 {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let group = (self.word_of(at, 1).load(Ordering::Relaxed) >> 32) as u32;
        self.secrets.hash(group, self.texts, self.key_bytes(at, meta, buffer))
    }

    /// Copies the key of a record with this meta word to `buffer`.
    pub(super) fn key_bytes<'b>(
        &self,
        at: WordOffset,
        meta: u64,
        buffer: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        let key = self.key_at(at, self.key_words(meta));
        if buffer.len() < size_of_val(key) {
            grow(buffer, size_of_val(key));
        }
        let bytes = &mut buffer[..size_of_val(key)];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(key) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        bytes
    }

    /// Returns a digest of the cells, which shows whether a series is idle.
    pub(super) fn digest(&self, at: WordOffset) -> u32 {
        let cells = self.region().slice(at.byte_of(self.header), self.cells.get() as usize);
        let bytes = cells.iter().fold(0_u64, |digest, cell| {
            (digest ^ cell.load(Ordering::Relaxed))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        });
        (bytes ^ bytes >> 32) as u32
    }

    /// Returns the tenths of a second since the family was created.
    fn since_creation(&self, now: Moment) -> u64 {
        tenths(now.unix.saturating_sub(self.created)).min(u64::from(u32::MAX))
    }
}

/// Returns whether this is the key of the series in a record with this meta word. `head` is the
/// words before the record's key, and `texts` the words after them, whose number is the same as in
/// `key`. If both are empty, some words are outside of the segment, and this returns false.
#[inline]
pub(super) fn has_key(meta: u64, head: &[AtomicU64], texts: &[AtomicU64], key: &Key<'_>) -> bool {
    let [_, origin, ..] = head else { return false };
    let same = |(word, wanted): (&AtomicU64, &[u8; _])| {
        word.load(Ordering::Relaxed).to_le_bytes() == *wanted
    };
    // This need not exclude the overflow series: no search by key finds it, because the index does
    // not list it.
    meta::uses(meta, (head.len() + texts.len()) as u64)
        && origin.load(Ordering::Relaxed) >> 32 == u64::from(key.group)
        && key.words.len() == texts.len()
        && texts.iter().zip(key.words).all(same)
}

/// Extends the memory for label values.
#[cold]
fn grow(buffer: &mut Vec<u8>, length: usize) {
    buffer.resize(length, 0);
}

/// Returns the offset where the first `texts` values end.
#[inline(always)]
pub(super) fn texts_end(bytes: &[u8], texts: usize) -> Option<usize> {
    let mut rest = bytes;
    for _ in 0..texts {
        rest = next_text(rest)?.1;
    }
    Some(bytes.len() - rest.len())
}

/// Returns whether the bytes are the padding of a key's last word.
pub(super) fn is_padding(bytes: &[u8]) -> bool {
    bytes.len() < CELL_BYTES as usize && bytes.iter().all(|&byte| byte == 0)
}
