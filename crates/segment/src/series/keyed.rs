//! The series of a family with dynamic labels: one record each, in blocks, found by an index.
//!
//! A record holds a head, the cells, and the key; `docs/formats.md` draws it. Its first word is the
//! *meta* word, see `meta.rs`.
//!
//! Records are never moved. A thread that finds one claims it first (`claims.rs`), and so does a
//! handle. The record of a removed series is *in limbo* at first. Once enough records are in limbo,
//! the claims are read: records that no claim names are then *ready* for new series; the others
//! stay in limbo. Ready records lie on lists by their length, so that one that fits is found at
//! once.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use rapidhash::v3::RapidSecrets;

use super::cells::SeriesCells;
use super::family::Family;
use super::index::{Index, LEAST_BITS, MOST_BITS, Table};
use super::key::{Key, next_text, with_bytes};
use super::meta::{self, MOST_SLACK, PLAIN, WORDS, is_series, state, state_of, with_state};
use super::schema::Schema;
use super::side::SideAllocations;
use crate::cells::Cells;
use crate::claims::{Memory, Named};
use crate::error::Error;
use crate::layout::{CELL_BYTES, HEADER_BYTES};
use crate::lock::{self, Stuck};
use crate::readings;
use crate::region::Region;
use crate::segment::Segment;
use crate::slots::{Claim, HandleClaim};
use crate::sync::{AtomicU64, Ordering, fence};

/// The words of a family's head that a keyed family uses, in addition to those of every family.
pub(crate) mod at {
    /// The number of times that the index was replaced or rebuilt.
    pub(crate) const CHANGES: usize = 2;
    pub(crate) const OVERFLOW: usize = 4;
    pub(crate) const TABLE: usize = 6;
    pub(crate) const PREVIOUS: usize = 7;
    pub(crate) const LOCK: usize = 8;
    pub(crate) const BROKEN: usize = 9;
    pub(crate) const MIGRATED: usize = 10;
    pub(crate) const ENTRIES: usize = 11;
    pub(crate) const LIVE: usize = 12;
    pub(crate) const HIDDEN: usize = 13;
    pub(crate) const FIRST_BLOCK: usize = 16;
    pub(crate) const LAST_BLOCK: usize = 17;
    /// The first record in limbo, and the number of records in limbo.
    pub(crate) const LIMBO: usize = 18;
    pub(crate) const LIMBO_COUNT: usize = 19;
    /// The number of those that were claimed when the claims were last read, and the number in
    /// limbo at which they are read again.
    pub(crate) const CLAIMED: usize = 20;
    pub(crate) const NEXT_READ: usize = 21;
    /// A bit for each class that has a ready record.
    pub(crate) const FILLED: usize = 22;
    /// The first ready record of each class.
    pub(crate) const READY: usize = FILLED + 2;
    /// Pairs of free tables, by the logarithm of their slots. There are never more: a table is made
    /// only if none is free, and at most one of each size is in use.
    pub(crate) const RETIRED: usize = READY + super::CLASSES as usize;
    pub(crate) const END: usize = RETIRED + 2 * (super::MOST_BITS as usize + 1);
}

/// The classes of records by their length: one for each length up to 32 words, then four for each
/// doubling.
const CLASSES: u32 = EXACT + 4 * (MOST_WORDS.trailing_zeros() - EXACT.trailing_zeros());
const EXACT: u32 = 32;
/// The most words of a record.
const MOST_WORDS: u32 = 1 << 15;
const _: () = assert!(MOST_WORDS as u64 <= WORDS && (MOST_WORDS / 8) as u64 <= MOST_SLACK + 1);
/// The number of records in limbo from which the claims are read.
const LEAST_READ: u64 = 32;

/// Stands for no record: no word offset is that high.
const NONE: u32 = u32::MAX;
/// The words at the start of a block: next block and length; words in use.
const BLOCK_HEAD: u32 = 2;
const LEAST_BLOCK: u32 = 128;
const MOST_BLOCK: u32 = 1 << 15;
/// The number of slots of a table that move with each insertion.
const STEP: u32 = 32;
/// The number of slots whose memory is returned to the system at a time.
const DISCARD: u32 = 1 << 15;
/// The number of records that are inspected or removed before other threads may get the lock.
const BATCH: usize = 512;

/// A keyed family.
#[derive(Debug)]
pub(crate) struct DynamicSeries {
    segment: Segment,
    head: Cells,
    secrets: RapidSecrets,
    /// The words of a record before its cells.
    header: u32,
    cells: u32,
    /// The number of texts of a key.
    pub(crate) texts: usize,
    groups: u32,
    limit: u64,
    /// When the family was made, in nanoseconds of Unix time.
    created: u64,
    idle: Option<Duration>,
    additive: bool,
    /// Where the search for a hidden series continues: a block, and a word in it.
    hand: AtomicU64,
    /// For the family's lock.
    stuck: Stuck,
    /// Stands in for the cells of a record that is not there.
    nowhere: Box<[AtomicU64]>,
}

/// A family, and the code that knows the side allocations of its series.
type Known<'a> = (&'a Family, &'a dyn SideAllocations);

/// A record that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: u32,
    pub(crate) meta: u64,
}

/// The valid part of a family's blocks.
struct Survey {
    /// The last valid block, or 0 if there is none, and the number of its valid words.
    last: u32,
    used: u32,
    /// What is wrong after that, in words.
    kind: Option<String>,
}

/// A time: nanoseconds of Unix time, and of the segment's time, which setting a clock does not
/// move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) unix: u64,
    pub(crate) time: u64,
}

/// What a scrape sees of a record.
pub(crate) struct Seen<'s> {
    pub(crate) group: u32,
    pub(crate) texts: &'s [u8],
    pub(crate) plain: bool,
    pub(crate) overflow: bool,
    pub(crate) start: u64,
    pub(crate) at: u32,
    meta: u64,
}

/// The position of a walk over the records: a block, and a word in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct At {
    block: u32,
    word: u32,
}

impl DynamicSeries {
    /// Opens the head of a family.
    pub(crate) fn open(
        segment: &Segment,
        head: &Cells,
        schema: &Schema,
        groups: u32,
        created: u64,
    ) -> Self {
        let texts = schema.labels.iter().filter(|label| label.values.is_none()).count();
        Self {
            segment: segment.clone(),
            head: head.clone(),
            secrets: RapidSecrets::seed(segment.seed()),
            header: 2 + u32::from(schema.idle.is_some()),
            cells: schema.cells.into(),
            texts,
            groups,
            limit: schema.limit.unwrap_or(u64::MAX),
            created,
            idle: schema.idle,
            additive: schema.additive,
            hand: AtomicU64::new(0),
            stuck: Stuck::default(),
            nowhere: (0..schema.cells).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Makes the record of the overflow series, so that it exists when there is no room for
    /// anything else.
    pub(crate) fn begin(&self, now: Moment) -> Result<(), Error> {
        let key = Key { group: 0, words: &[], hash: 0 };
        let at = self.write(&key, now, None)?;
        self.set_state(at, state::HIDDEN);
        self.head[at::OVERFLOW].store(at.into(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn secrets(&self) -> &RapidSecrets {
        &self.secrets
    }

    /// The number of series, hidden ones included.
    pub(crate) fn len(&self) -> u64 {
        self.head[at::LIVE].load(Ordering::Relaxed)
    }

    /// Finds a series without a lock, and claims it by `hold`. It may miss one while the index
    /// changes, or if a process died and left it half changed.
    #[inline]
    fn find(&self, key: &Key<'_>, hold: impl Fn(u32)) -> Option<Found> {
        self.index().find(fingerprint(key.hash), |at| {
            hold(at);
            self.matches(at, key)
        })
    }

    /// Finds a series, and misses none: it takes the lock if the index is changing.
    ///
    /// # Errors
    /// Those of the lock.
    pub(crate) fn find_surely(
        &self,
        key: &Key<'_>,
        hold: impl Fn(u32),
    ) -> Result<Option<Found>, Error> {
        let found = self.find(key, &hold);
        if found.is_some() || self.is_missing(key) {
            return Ok(found);
        }
        match self.lock_within(lock::SCRAPE) {
            Ok(_guard) => {
                let found = self.find_locked(key);
                // With the lock held, no record is reused.
                found.inspect(|found| hold(found.at));
                Ok(found)
            }
            // Its owner may be stopped. Then nothing moves, and an existing series is found.
            Err(error) if error.is_held() => self.find(key, &hold).map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    fn find_locked(&self, key: &Key<'_>) -> Option<Found> {
        self.index().find_locked(fingerprint(key.hash), |at| self.matches(at, key))
    }

    /// Finds a series that is shown, without a lock, and claims it. It may miss one, as
    /// [`DynamicSeries::find`].
    #[inline]
    pub(crate) fn find_live(&self, key: &Key<'_>, hold: impl Fn(u32)) -> Option<Found> {
        self.find(key, hold).filter(|found| state_of(found.meta) == state::LIVE)
    }

    /// A claim for this thread; `None` if the segment has no room for it.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        self.segment.claim()
    }

    /// The claim of this thread, if it is cached and free.
    #[inline]
    pub(crate) fn claim_at_hand(&self) -> Option<Claim<'_>> {
        self.region().claim_at_hand()
    }

    /// A claim for a handle; `None` if the segment has no room for it.
    pub(crate) fn claim_for_handle(&self) -> Option<HandleClaim> {
        self.segment.claim_for_handle()
    }

    /// Makes a handle's claim name a record.
    pub(crate) fn hold(&self, claim: HandleClaim, at: u32) {
        self.region().set_handle(claim, at);
    }

    /// Makes the claim of a handle name a record that another handle of this process claims.
    ///
    /// # Errors
    /// Those of the lock.
    pub(crate) fn hold_again(&self, claim: HandleClaim, at: u32) -> Result<(), Error> {
        // Without the lock, a thread that reads the claims could read this one before it is stored,
        // and the other one after it was cleared.
        let _guard = self.lock()?;
        self.hold(claim, at);
        Ok(())
    }

    /// Gives back the claim of a handle that this process made.
    pub(crate) fn give_back(&self, claim: HandleClaim) {
        self.region().give_back(claim);
    }

    /// The cells of a record.
    #[inline]
    pub(crate) fn place(&self, at: u32) -> SeriesCells<'_> {
        let offset = (u64::from(at) + u64::from(self.header)) * CELL_BYTES;
        let first = self.region().cells(offset, self.cells as usize);
        let first = first.unwrap_or_else(|| NonNull::from(&*self.nowhere).cast());
        // SAFETY: the one lane lies inside the region, as `cells` checked, or is `nowhere`, which
        // has that many cells: this family keeps both alive for longer than the borrow.
        unsafe { SeriesCells::new(first, self.cells, (0, 1), None) }
    }

    /// The record of a series, if that series still has it and is shown. `hold` claims it.
    #[inline]
    pub(crate) fn find_at(&self, at: u32, generation: u32, hold: impl Fn(u32)) -> Option<Found> {
        hold(at);
        // Acquire: a thread that sees it live sees all of it.
        let meta = self.region().word(at).load(Ordering::Acquire);
        let is_it = meta::generation_of(meta) == generation && state_of(meta) == state::LIVE;
        is_it.then_some(Found { at, meta })
    }

    /// Whether the series of that generation has the record, shown or not.
    #[inline]
    pub(crate) fn is_series(&self, at: u32, generation: u32) -> bool {
        // Acquire: as above.
        let meta = self.region().word(at).load(Ordering::Acquire);
        is_series(meta) && meta::generation_of(meta) == generation
    }

    /// Whether a series is shown, or will be after the next sweep because it changed while hidden.
    pub(crate) fn is_shown(&self, found: Found) -> bool {
        state_of(found.meta) == state::LIVE || self.has_changed(found.at)
    }

    /// Whether a series has changed since the last sweep.
    fn has_changed(&self, at: u32) -> bool {
        let mark = self.word_of(at, 2).load(Ordering::Relaxed);
        self.idle.is_some() && mark >> 32 != u64::from(self.digest(at))
    }

    /// Whether the series is the overflow series.
    pub(crate) fn is_overflow(&self, at: u32) -> bool {
        self.head[at::OVERFLOW].load(Ordering::Acquire) == u64::from(at) || at == NONE
    }

    /// The overflow series, which is shown from now on.
    #[cold]
    pub(crate) fn find_overflow(&self) -> Found {
        let at = self.overflow();
        let word = self.region().word(at);
        let meta = word.load(Ordering::Acquire);
        if state_of(meta) == state::LIVE {
            return Found { at, meta };
        }
        if at == NONE {
            // Updates of these cells are counted as overflowed, and the cells are never shown.
            return Found { at, meta };
        }
        let meta = with_state(meta::set_state(word, state::LIVE), state::LIVE);
        Found { at, meta }
    }

    /// Removes a series; returns false if there is none.
    pub(crate) fn remove(&self, key: &Key<'_>, wait: Duration) -> Result<bool, Error> {
        let _guard = self.lock_within(wait)?;
        let found = self.find_locked(key);
        if let Some(found) = found {
            self.detach(found.at, fingerprint(key.hash));
        }
        Ok(found.is_some())
    }

    /// Removes the series for which `keep` returns false. It is called without the lock, so that it
    /// may use the family in any way.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&Seen<'_>) -> bool) -> Result<u64, Error> {
        let mut removed = 0;
        let (mut cursor, mut words) = (At::default(), Vec::new());
        let mut unwanted = Vec::new();
        loop {
            unwanted.clear();
            let claim = self.claim();
            while unwanted.len() < BATCH {
                let Some(at) = self.next_record(&mut cursor) else { break };
                let Some(seen) = self.see(at, claim.as_ref(), &mut words, true) else { continue };
                if !seen.overflow && !keep(&seen) {
                    unwanted.push((at, seen.meta));
                }
            }
            if unwanted.is_empty() {
                return Ok(removed);
            }
            drop(claim);
            let _guard = self.lock_within(lock::REMOVAL)?;
            for &(at, seen) in &unwanted {
                let meta = self.region().word(at).load(Ordering::Acquire);
                // The same series, shown or not: another one may have its record by now.
                if meta::is_same_series(meta, seen) && is_series(meta) {
                    self.detach(at, fingerprint(self.hash(at)));
                    removed += 1;
                }
            }
        }
    }

    /// Removes all series except those that handles are bound to, which restart at zero.
    pub(crate) fn reset(&self, now: Moment, keep: impl Fn(usize) -> bool) -> Result<(), Error> {
        let bound = self.named(true);
        let mut cursor = At::default();
        loop {
            let _guard = self.lock_within(lock::REMOVAL)?;
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                let meta = self.region().word(at).load(Ordering::Acquire);
                if !is_series(meta) {
                    continue;
                }
                if !self.is_overflow(at) && !bound.as_ref().is_none_or(|bound| bound.has(at)) {
                    self.detach(at, fingerprint(self.hash(at)));
                    continue;
                }
                for cell in (0..self.cells).filter(|cell| !keep(*cell as usize)) {
                    self.region().word(at + self.header + cell).store(0, Ordering::Release);
                }
                self.restart(at, now);
                if self.is_overflow(at) {
                    self.set_state(at, state::HIDDEN);
                }
            }
        }
    }

    /// Notes that the series of that generation counts from zero since `now`, if it still exists
    /// and the lock can be taken.
    pub(crate) fn restart_series(&self, at: u32, generation: u32, now: Moment) {
        // The record of a removed series is on a list, whose link is in the same word.
        if let Ok(_guard) = self.lock()
            && self.is_series(at, generation)
        {
            self.restart(at, now);
        }
    }

    /// Notes that a series counts from zero since `now`. Requires the lock.
    fn restart(&self, at: u32, now: Moment) {
        let origin = self.word_of(at, 1);
        let group = origin.load(Ordering::Relaxed) >> 32 << 32;
        origin.store(group | self.since_creation(now), Ordering::Release);
    }

    /// Inspects all series. Hides those that are idle for too long; if their values are not sums,
    /// which have to continue, removes them instead. Shows hidden series again that changed.
    pub(crate) fn sweep(&self, now: Moment) -> Result<(), Error> {
        let Some(idle) = self.idle else { return Ok(()) };
        let idle = tenths(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        let tenth = mark_time(now);
        let mut cursor = At::default();
        loop {
            let _guard = match self.lock_within(lock::SCRAPE) {
                // The next sweep inspects the rest.
                Err(error) if error.is_held() => return Ok(()),
                guard => guard?,
            };
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                self.sweep_one(at, idle, tenth);
            }
        }
    }

    fn sweep_one(&self, at: u32, idle: u64, tenth: u32) {
        let meta = self.region().word(at).load(Ordering::Acquire);
        if self.is_overflow(at) || !is_series(meta) {
            return;
        }
        let digest = self.digest(at);
        let mark = self.word_of(at, 2);
        let seen = mark.load(Ordering::Relaxed);
        // Truncation is meant: each half has 32 bits. The time wraps around after 13 years.
        let (old, quiet) = ((seen >> 32) as u32, tenth.wrapping_sub(seen as u32));
        let is_shown = state_of(meta) == state::LIVE;
        if old != digest {
            mark.store(u64::from(digest) << 32 | u64::from(tenth), Ordering::Relaxed);
            if !is_shown {
                self.show(at);
            }
        } else if is_shown && u64::from(quiet) >= idle {
            if self.additive {
                self.hide(at);
            } else {
                self.detach(at, fingerprint(self.hash(at)));
            }
        }
    }

    /// The next record of a walk, with or without a live series.
    #[inline]
    pub(crate) fn next_record(&self, cursor: &mut At) -> Option<u32> {
        let region = self.region();
        let least = self.header + self.cells;
        loop {
            if cursor.block == 0 {
                // Acquire: sees the blocks as they were linked.
                cursor.block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire) as u32;
                cursor.word = BLOCK_HEAD;
                if cursor.block == 0 {
                    return None;
                }
            }
            // Acquire: the records below are complete enough for a walk.
            let used = self.word_of(cursor.block, 1).load(Ordering::Acquire);
            // If another process wrote nonsense into that, the records of the next block are still
            // returned only once.
            let next = region.word(cursor.block).load(Ordering::Relaxed) as u32;
            if u64::from(cursor.word) < used
                && let Some(at) = cursor.block.checked_add(cursor.word)
                && (at < next || next <= cursor.block)
            {
                let words = (region.word(at).load(Ordering::Acquire) & WORDS) as u32;
                if words >= least && self.has_words(at, words) {
                    cursor.word = cursor.word.saturating_add(words);
                    return Some(at);
                }
                // Another process wrote nonsense into it: the rest of this block cannot be walked.
            }
            let next = region.word(cursor.block).load(Ordering::Acquire) as u32;
            // Each block lies after those that were taken before it, so that a walk ends.
            if next <= cursor.block {
                return None;
            }
            *cursor = At { block: next, word: BLOCK_HEAD };
        }
    }

    /// Word `i` of a record or block.
    #[inline]
    fn word_of(&self, at: u32, i: u32) -> &AtomicU64 {
        self.region().cell((u64::from(at) + u64::from(i)) * CELL_BYTES)
    }

    #[inline]
    fn bytes(&self, words: u32) -> u64 {
        u64::from(words) * CELL_BYTES
    }

    /// Whether `words` words lie in the segment, at word offsets of 32 bits.
    #[inline]
    fn has_words(&self, at: u32, words: u32) -> bool {
        at.checked_add(words).is_some()
            && self.region().has(u64::from(at) * CELL_BYTES, self.bytes(words))
    }

    /// The words of a record's key; empty if they are not all there.
    #[inline]
    fn key_at(&self, at: u32, count: usize) -> &[AtomicU64] {
        let first = u64::from(at) + u64::from(self.header + self.cells);
        self.region().slice(first * CELL_BYTES, count)
    }

    /// Reads a record's labels, and claims it, so that its cells belong to that series until the
    /// claim is set again. `None` if it is not shown; with `hidden`, idle series are returned too.
    #[inline]
    pub(crate) fn see<'s>(
        &self,
        at: u32,
        claim: Option<&Claim<'_>>,
        words: &'s mut Vec<u8>,
        hidden: bool,
    ) -> Option<Seen<'s>> {
        let region = self.region();
        if let Some(claim) = claim {
            claim.set(at);
        }
        // Acquire: a thread that sees it live sees all of it.
        let meta = region.word(at).load(Ordering::Acquire);
        let state = state_of(meta);
        if state != state::LIVE && !(hidden && state == state::HIDDEN) {
            return None;
        }
        let origin = self.word_of(at, 1).load(Ordering::Relaxed);
        let group = (origin >> 32) as u32;
        let count = self.key_words(meta);
        let key = self.key_at(at, count);
        if key.len() != count || group >= self.groups {
            return None;
        }
        words.clear();
        words.resize(count * 8, 0);
        for (bytes, word) in words.chunks_exact_mut(8).zip(key) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        // Acquire: if a load above saw what a removal wrote, the load below sees the removal.
        fence(Ordering::Acquire);
        if !meta::is_same_series(region.word(at).load(Ordering::Relaxed), meta) {
            return None;
        }
        let overflow = self.is_overflow(at);
        let mut rest = &words[..];
        if !overflow {
            for _ in 0..self.texts {
                rest = next_text(rest)?.1;
            }
        }
        let length = words.len() - rest.len();
        Some(Seen {
            group,
            texts: &words[..if overflow { 0 } else { length }],
            plain: meta & PLAIN != 0,
            overflow,
            start: self.created.saturating_add((origin & u64::from(u32::MAX)) * TENTH),
            at,
            meta,
        })
    }

    /// Validates everything that an index and a walk will trust, without changing it. Adds the
    /// words that the family occupies to `claims`. With `torn`, power was lost: what it may have
    /// destroyed is mended later, and is not an error.
    ///
    /// # Errors
    /// What contradicts the layout, in words.
    pub(crate) fn inspect(&self, torn: bool, claims: &mut Vec<Range<u64>>) -> Result<(), String> {
        let survey = self.survey(torn, |block| claims.push(block));
        let tables = self.tables();
        claims.extend(tables.iter().map(|table| table.words()));
        if torn {
            return Ok(());
        }
        if let Some(kind) = survey.kind {
            return Err(kind);
        }
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if packed != 0 && !tables.iter().any(|table| table.pack() == packed) {
                return Err(format!("its index {packed:#x} lies outside of the bytes in use"));
            }
        }
        if !self.has_overflow() {
            let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
            return Err(format!("it has no overflow series at {overflow}"));
        }
        Ok(())
    }

    /// Mends the family. No other process may have the segment open.
    pub(crate) fn mend_alone(&self, now: Moment) -> Result<(), Error> {
        self.head[at::LOCK].store(0, Ordering::Relaxed);
        self.mend(true, now)?;
        self.head[at::BROKEN].store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Mends the family after a process died during a change, or power was lost: removes what is
    /// incomplete, and rebuilds index, free records and counts. With `alone`, no other process has
    /// the segment open.
    fn mend(&self, alone: bool, now: Moment) -> Result<(), Error> {
        let region = self.region();
        let torn = alone && self.segment.may_have_lost_power();
        // While others count, nothing is cut off: they have claimed records there. A series with
        // unreadable labels is an error only when the file is opened.
        let survey = self.survey(torn || !alone, |_| ());
        if survey.kind.is_none() || alone {
            self.head[at::LAST_BLOCK].store(survey.last.into(), Ordering::Relaxed);
        }
        if survey.kind.is_some() && alone {
            // What follows was never complete, or was not on the disk when power was lost.
            if survey.last == 0 {
                self.head[at::FIRST_BLOCK].store(0, Ordering::Relaxed);
            } else {
                let head = region.word(survey.last);
                head.store(head.load(Ordering::Relaxed) >> 32 << 32, Ordering::Relaxed);
                region.word(survey.last + 1).store(survey.used.into(), Ordering::Relaxed);
            }
        }
        // Before anything is taken: that may extend the bytes in use over tables that lie outside
        // of them.
        let tables = self.tables();
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if !tables.iter().any(|table| table.pack() == packed) {
                word.store(0, Ordering::Relaxed);
            }
        }
        for word in &self.head[at::LIMBO..at::RETIRED] {
            word.store(0, Ordering::Relaxed);
        }
        self.head[at::HIDDEN].store(0, Ordering::Relaxed);
        if !self.has_overflow() {
            let mut cursor = At::default();
            let known = std::iter::from_fn(|| self.next_record(&mut cursor))
                .find(|&at| self.is_overflows(at))
                .unwrap_or(0);
            self.head[at::OVERFLOW].store(known.into(), Ordering::Relaxed);
        }
        let mut live = 0_u64;
        let torn_series = if torn { self.torn_series() } else { Vec::new() };
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = region.word(at).load(Ordering::Relaxed);
            if self.is_overflow(at) {
                // A loss of power may have left the group of another record there.
                self.word_of(at, 1).fetch_and(u32::MAX.into(), Ordering::Release);
                continue;
            }
            let is_kept = torn_series.binary_search(&at).is_err();
            if is_kept && is_series(meta) && (self.texts == 0 || !self.is_overflows(at)) {
                live += 1;
                let hidden = u64::from(state_of(meta) == state::HIDDEN);
                self.head[at::HIDDEN].fetch_add(hidden, Ordering::Relaxed);
            } else {
                if torn {
                    // The memory at the offsets in its cells may belong to another series.
                    (0..self.cells).for_each(|cell| {
                        region.word(at + self.header + cell).store(0, Ordering::Relaxed);
                    });
                }
                // All of them go to limbo: handles may be bound to some.
                self.free(at);
            }
        }
        self.head[at::LIVE].store(live, Ordering::Relaxed);
        if !self.has_overflow() {
            self.begin(now)?;
        }
        self.rebuild(live)
    }

    /// Finds or makes, with the lock, the series of a key that was not found, claimed by `hold`.
    /// `None` if it cannot be made.
    #[cold]
    pub(crate) fn find_or_make(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(u32),
        now: impl Fn() -> Moment,
        sides: Option<Known<'_>>,
    ) -> Option<Found> {
        if self.is_full_without(key) {
            return None;
        }
        let found = self.make(key, hold, now(), sides).ok();
        // Without the lock, so that other series can be made meanwhile.
        self.segment.grow_ahead();
        found
    }

    /// Calls `act` with the cells of the series of a key, which is made if there is none. Holds the
    /// lock meanwhile: for a thread that cannot get a claim. Returns false if the series cannot be
    /// made.
    #[cold]
    pub(crate) fn update_locked(
        &self,
        key: &Key<'_>,
        now: Moment,
        sides: Option<Known<'_>>,
        act: &dyn Fn(SeriesCells<'_>),
    ) -> bool {
        let update = || {
            let found = self.make_locked(key, &|_| (), now, sides).ok()?;
            act(self.place(found.at));
            Some(())
        };
        self.is_key(key) && self.with_lock(update).flatten().is_some()
    }

    /// Calls `read` with the cells of the series of a key, if it exists and is shown. Holds the
    /// lock meanwhile.
    #[cold]
    pub(crate) fn look_locked<R>(
        &self,
        key: &Key<'_>,
        read: impl FnOnce(SeriesCells<'_>) -> R,
    ) -> Option<R> {
        let look = || {
            let found = self.find_locked(key)?;
            self.is_shown(found).then(|| read(self.place(found.at)))
        };
        self.with_lock(look).flatten()
    }

    /// Calls `work` with the lock held. Returns `None` if the thread is in such a call already: it
    /// would wait for itself.
    fn with_lock<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                IS_INSIDE.set(false);
            }
        }
        thread_local!(static IS_INSIDE: Cell<bool> = const { Cell::new(false) });
        if IS_INSIDE.replace(true) {
            return None;
        }
        let _leave = Leave;
        let _guard = self.lock().ok()?;
        Some(work())
    }

    /// Whether the family is at its limit and has no series of that key, as far as that can be told
    /// without the lock. Label sets beyond the limit tend to come again and again.
    fn is_full_without(&self, key: &Key<'_>) -> bool {
        self.head[at::LIVE].load(Ordering::Relaxed) >= self.limit
            && self.head[at::HIDDEN].load(Ordering::Relaxed) == 0
            && self.is_missing(key)
    }

    /// Whether there is certainly no series of that key, without the lock: no thread is changing
    /// the index or died while changing it, and no entries are to be moved.
    fn is_missing(&self, key: &Key<'_>) -> bool {
        self.is_missing_if(|| {
            let is_it = |at| self.matches(at, key);
            // Without a claim: what it finds is not used.
            self.index().find(fingerprint(key.hash), is_it).is_some()
        })
    }

    fn is_missing_if(&self, is_found: impl FnOnce() -> bool) -> bool {
        let at_rest = || {
            // Acquire, here and below: each load sees at least what the one before saw. The count
            // comes first: a thread that began a change before this load had the lock by then. A
            // later change is seen by the second look, even if the table is then the same again.
            let changes = self.head[at::CHANGES].load(Ordering::Acquire);
            let locked = self.head[at::LOCK].load(Ordering::Acquire);
            let broken = self.head[at::BROKEN].load(Ordering::Acquire);
            let previous = self.head[at::PREVIOUS].load(Ordering::Acquire);
            let table = self.head[at::TABLE].load(Ordering::Acquire);
            let is_at_rest = locked == 0 && broken == 0 && previous == 0 && table != 0;
            is_at_rest.then_some((table, changes))
        };
        let before = at_rest();
        if before.is_none() || is_found() {
            return false;
        }
        // Acquire: if the search saw a change, the loads below see that there was one.
        fence(Ordering::Acquire);
        at_rest() == before
    }

    /// Announces that entries will move. Requires the lock.
    fn begin_change(&self) {
        // Release: a thread that sees the count sees the lock. And below: a thread that sees a part
        // of the change sees the count.
        self.head[at::CHANGES].fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Finds or makes a series, and claims it.
    fn make(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(u32),
        now: Moment,
        sides: Option<Known<'_>>,
    ) -> Result<Found, Error> {
        if !self.is_key(key) {
            let what = "a series whose labels are not those of its family".into();
            return Err(Error::request(&self.segment, what));
        }
        let _guard = self.lock()?;
        self.make_locked(key, hold, now, sides)
    }

    fn make_locked(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(u32),
        now: Moment,
        sides: Option<Known<'_>>,
    ) -> Result<Found, Error> {
        let fingerprint = fingerprint(key.hash);
        if let Some(found) = self.find_locked(key) {
            // With the lock held, no record is reused.
            hold(found.at);
            if state_of(found.meta) == state::HIDDEN {
                self.show(found.at);
            }
            let meta = self.region().word(found.at).load(Ordering::Relaxed);
            return Ok(Found { at: found.at, meta });
        }
        if self.head[at::LIVE].load(Ordering::Relaxed) >= self.limit && !self.forget_one() {
            self.move_some(STEP);
            return Err(Error::full(&self.segment, 0));
        }
        self.make_room()?;
        let at = self.write(key, now, sides)?;
        hold(at);
        self.index().insert(fingerprint, at);
        let meta = self.set_state(at, state::LIVE);
        self.head[at::LIVE].fetch_add(1, Ordering::Relaxed);
        self.move_some(STEP);
        Ok(Found { at, meta })
    }

    /// Whether the family can have a series of that key: a caller may have written too few labels,
    /// or indices that are out of range.
    fn is_key(&self, key: &Key<'_>) -> bool {
        key.group < self.groups
            && with_bytes(key.words, |bytes| {
                texts_end(bytes, self.texts).is_some_and(|end| is_padding(&bytes[end..]))
            })
    }

    /// Takes a record, and writes everything but its state.
    fn write(&self, key: &Key<'_>, now: Moment, sides: Option<Known<'_>>) -> Result<u32, Error> {
        let words = u64::from(self.header + self.cells) + key.words.len() as u64;
        if words > MOST_WORDS.into() {
            return Err(Error::full(&self.segment, words * CELL_BYTES));
        }
        let at = self.take(words as u32)?;
        let region = self.region();
        let origin = u64::from(key.group) << 32 | self.since_creation(now);
        // Release, here and below: a walk without a claim that sees what is written here sees the
        // new generation.
        region.word(at + 1).store(origin, Ordering::Release);
        if let Some((family, sides)) = sides {
            sides.renew(family, &self.place(at));
        }
        for i in 2..self.header + self.cells {
            let is_offset = |(_, sides): Known<'_>| {
                i.checked_sub(self.header).is_some_and(|cell| sides.is_offset(cell as usize))
            };
            if !sides.is_some_and(is_offset) {
                region.word(at + i).store(0, Ordering::Release);
            }
        }
        if self.idle.is_some() {
            let mark = u64::from(self.digest(at)) << 32 | u64::from(mark_time(now));
            region.word(at + 2).store(mark, Ordering::Release);
        }
        for (i, word) in (self.header + self.cells..).zip(key.words) {
            region.word(at + i).store(*word, Ordering::Release);
        }
        let plain = with_bytes(key.words, |bytes| self.is_plain(bytes));
        let plain = if plain { PLAIN } else { 0 };
        let meta = region.word(at).load(Ordering::Relaxed) & !PLAIN;
        let meta = meta::with_checksum(meta, key.hash);
        region.word(at).store(meta | plain, Ordering::Relaxed);
        Ok(at)
    }

    /// Takes a record of `words` words as a draft: a ready one, or one from the end of the last
    /// block.
    fn take(&self, words: u32) -> Result<u32, Error> {
        let count = |at: usize| self.head[at].load(Ordering::Relaxed);
        if let Some(at) = self.take_ready(words) {
            return Ok(at);
        }
        if count(at::LIMBO_COUNT) >= count(at::NEXT_READ).max(LEAST_READ) {
            self.reclaim();
            if let Some(at) = self.take_ready(words) {
                return Ok(at);
            }
        }
        match self.take_new(words) {
            // The last resort.
            Err(full) if count(at::LIMBO_COUNT) > count(at::CLAIMED) => {
                self.reclaim();
                self.take_ready(words).ok_or(full)
            }
            taken => taken,
        }
    }

    /// Takes a record from the end of the last block, as a draft.
    fn take_new(&self, used_words: u32) -> Result<u32, Error> {
        let region = self.region();
        let words = class_words(class_of(used_words));
        let mut block = self.head[at::LAST_BLOCK].load(Ordering::Relaxed) as u32;
        let mut used = BLOCK_HEAD;
        let mut length = 0;
        if block != 0 {
            used = self.word_of(block, 1).load(Ordering::Relaxed) as u32;
            length = (region.word(block).load(Ordering::Relaxed) >> 32) as u32;
            // Both are read once: another process may write nonsense into them after the check.
            if used < BLOCK_HEAD || used > length || !self.has_words(block, length) {
                let at = u64::from(block) * CELL_BYTES;
                return Err(self.damaged(&format!("the last block of a family, at {at}")));
            }
        }
        if block == 0 || words > length - used {
            let wanted = length.saturating_mul(2).clamp(LEAST_BLOCK, MOST_BLOCK);
            // A record has at most 2^15 words.
            let wanted = wanted.max(words + BLOCK_HEAD).next_multiple_of(8);
            let new = self.segment.take(wanted.into(), lock::UPDATE)?;
            region.word(new).store(u64::from(wanted) << 32, Ordering::Relaxed);
            region.word(new + 1).store(BLOCK_HEAD.into(), Ordering::Relaxed);
            // Release: a thread that finds the block finds its head.
            if block == 0 {
                self.head[at::FIRST_BLOCK].store(new.into(), Ordering::Release);
            } else {
                let link = u64::from(length) << 32 | u64::from(new);
                region.word(block).store(link, Ordering::Release);
            }
            self.head[at::LAST_BLOCK].store(new.into(), Ordering::Relaxed);
            (block, used) = (new, BLOCK_HEAD);
        }
        let at = block + used;
        // A power loss may have set back the number of words in use: offsets that an earlier record
        // had there are not offsets of this one.
        for cell in self.header..self.header + self.cells {
            region.word(at + cell).store(0, Ordering::Relaxed);
        }
        // The length first, so that a walk can step over the record if this process dies here.
        let meta = meta::draft(words.into(), used_words.into());
        region.word(at).store(meta, Ordering::Relaxed);
        region.word(block + 1).store(u64::from(used + words), Ordering::Release);
        Ok(at)
    }

    /// Removes a series from the index, and puts its record in limbo.
    fn detach(&self, at: u32, fingerprint: u32) {
        let state = state_of(self.region().word(at).load(Ordering::Relaxed));
        self.index().remove(fingerprint, at);
        self.head[at::LIVE].fetch_sub(1, Ordering::Relaxed);
        if state == state::HIDDEN {
            self.head[at::HIDDEN].fetch_sub(1, Ordering::Relaxed);
        }
        self.free(at);
    }

    /// Puts a record in limbo, with the next generation.
    fn free(&self, at: u32) {
        meta::set_free(self.region().word(at));
        self.push(&self.head[at::LIMBO], at);
        self.head[at::LIMBO_COUNT].fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the records ready that are in limbo and that no claim names.
    fn reclaim(&self) {
        let (limbo, count) = (&self.head[at::LIMBO], &self.head[at::LIMBO_COUNT]);
        let in_limbo = count.load(Ordering::Relaxed);
        let Some(named) = self.named(false) else {
            self.head[at::NEXT_READ].store(in_limbo.saturating_mul(2), Ordering::Relaxed);
            return;
        };
        let mut next = limbo.load(Ordering::Relaxed) as u32;
        let mut claimed = 0;
        limbo.store(0, Ordering::Relaxed);
        // Bounded, so that a circular list ends.
        let most = self.end() / u64::from(self.header + self.cells);
        for _ in 0..in_limbo.min(most) {
            let at = next;
            // Records after a damaged one are not reused until the family is mended.
            let Some(class) = self.free_class(at) else { break };
            next = self.link(at);
            if named.has(at) {
                self.push(limbo, at);
                claimed += 1;
            } else {
                self.push(&self.head[at::READY + class as usize], at);
                self.filled(class).fetch_or(1 << (class % 64), Ordering::Relaxed);
            }
        }
        count.store(claimed, Ordering::Relaxed);
        self.head[at::CLAIMED].store(claimed, Ordering::Relaxed);
        // So that reading the claims costs each removal only a bounded time.
        let after = 2 * claimed + named.read / 8 + LEAST_READ;
        self.head[at::NEXT_READ].store(after, Ordering::Relaxed);
    }

    /// The class of a record without a series; `None` if it is not such a record, as for an offset
    /// that another process wrote.
    fn free_class(&self, at: u32) -> Option<u32> {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let words = (meta & WORDS) as u32;
        let is_record = (self.header + self.cells..=MOST_WORDS).contains(&words)
            && u64::from(at) >= HEADER_BYTES / CELL_BYTES
            && self.has_words(at, words);
        let class = is_record.then(|| class_of(words))?;
        (state_of(meta) == state::FREE && class_words(class) == words).then_some(class)
    }

    /// The records that claims name; `None` if that cannot be told.
    fn named(&self, handles_only: bool) -> Option<Named> {
        let region = self.region();
        self.segment.claim_blocks().named(handles_only, |token| region.is_alive(token))
    }

    /// Takes a ready record of `words` to twice `words` words, as a draft.
    fn take_ready(&self, words: u32) -> Option<u32> {
        let wanted = class_of(words);
        let from = |class: u32| {
            let filled = self.filled(class).load(Ordering::Relaxed) >> (class % 64);
            (filled != 0).then(|| class + filled.trailing_zeros())
        };
        let class = from(wanted).or_else(|| if wanted < 64 { from(64) } else { None })?;
        let slack = class_words(class).checked_sub(words)?;
        if slack > words || u64::from(slack) > MOST_SLACK {
            return None;
        }
        let first = self.head.get(at::READY + class as usize)?;
        let at = first.load(Ordering::Relaxed) as u32;
        // Always true, except in a damaged file: then the list ends here.
        let is_it = self.free_class(at) == Some(class);
        let next = if is_it { self.link(at) } else { 0 };
        first.store(next.into(), Ordering::Relaxed);
        if next == 0 {
            self.filled(class).fetch_and(!(1 << (class % 64)), Ordering::Relaxed);
        }
        let word = self.region().word(at);
        let meta = word.load(Ordering::Relaxed);
        // Read again: another process may have written nonsense into it since.
        if !is_it || meta & WORDS != u64::from(class_words(class)) {
            return None;
        }
        word.store(meta::draft(meta, words.into()), Ordering::Relaxed);
        Some(at)
    }

    /// The word with the bit of a class.
    fn filled(&self, class: u32) -> &AtomicU64 {
        &self.head[at::FILLED + class as usize / 64]
    }

    /// Pushes a record onto a list. Its group stays: a thread that claims the record may read it.
    fn push(&self, first: &AtomicU64, at: u32) {
        let origin = self.word_of(at, 1);
        let group = origin.load(Ordering::Relaxed) >> 32 << 32;
        let next = first.load(Ordering::Relaxed) & u64::from(u32::MAX);
        // Release: a walk that sees the link sees the new generation.
        origin.store(group | next, Ordering::Release);
        first.store(at.into(), Ordering::Relaxed);
    }

    /// The record after `at` on its list.
    fn link(&self, at: u32) -> u32 {
        // Truncation is meant: the lower half.
        self.word_of(at, 1).load(Ordering::Relaxed) as u32
    }

    /// Removes a hidden series: the first one from where the last search ended, so that not all
    /// records are searched each time.
    fn forget_one(&self) -> bool {
        if self.head[at::HIDDEN].load(Ordering::Relaxed) == 0 {
            return false;
        }
        let hand = self.hand.load(Ordering::Relaxed);
        // Truncation is meant: each half has 32 bits.
        let mut cursor = At { block: (hand >> 32) as u32, word: hand as u32 };
        let mut is_second_round = false;
        loop {
            let Some(at) = self.next_record(&mut cursor) else {
                if is_second_round {
                    // None is hidden, even if another process wrote another number: do not search
                    // again.
                    self.head[at::HIDDEN].store(0, Ordering::Relaxed);
                    return false;
                }
                (cursor, is_second_round) = (At::default(), true);
                continue;
            };
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if state_of(meta) == state::HIDDEN && !self.is_overflow(at) {
                if self.has_changed(at) {
                    // It has counted since it was hidden.
                    self.show(at);
                    continue;
                }
                self.detach(at, fingerprint(self.hash(at)));
                let hand = u64::from(cursor.block) << 32 | u64::from(cursor.word);
                self.hand.store(hand, Ordering::Relaxed);
                return true;
            }
        }
    }

    fn show(&self, at: u32) {
        self.set_state(at, state::LIVE);
        self.head[at::HIDDEN].fetch_sub(1, Ordering::Relaxed);
    }

    fn hide(&self, at: u32) {
        self.set_state(at, state::HIDDEN);
        self.head[at::HIDDEN].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes the state, and returns the new meta word.
    fn set_state(&self, at: u32, state: u64) -> u64 {
        with_state(meta::set_state(self.region().word(at), state), state)
    }

    /// Makes room in the table for one more entry.
    fn make_room(&self) -> Result<(), Error> {
        let table = Table::unpack(self.head[at::TABLE].load(Ordering::Relaxed));
        if let Some(table) = table.filter(|table| !self.is_table(*table)) {
            let at = u64::from(table.at) * CELL_BYTES;
            return Err(self.damaged(&format!("the index of a family, at {at}")));
        }
        if !self.index().is_crowded() {
            return Ok(());
        }
        if self.head[at::PREVIOUS].load(Ordering::Relaxed) != 0 {
            self.move_some(u32::MAX);
            // It is zero already, unless another process wrote nonsense.
            self.head[at::PREVIOUS].store(0, Ordering::Release);
        }
        let live = self.head[at::LIVE].load(Ordering::Relaxed).saturating_add(1);
        // At least a quarter of the old table: then all of the old one has moved, in `STEP`s,
        // before the new one, which is at most half full by then, is crowded.
        let old = Table::unpack(self.head[at::TABLE].load(Ordering::Relaxed));
        let old = old.map_or(LEAST_BITS, |old| old.bits).clamp(LEAST_BITS, MOST_BITS);
        // And at most four times the old table, whatever another process wrote into the count.
        let bits = bits_for(live).clamp((old - 2).max(LEAST_BITS), (old + 2).min(MOST_BITS));
        let is_free = |word: &&AtomicU64| word.load(Ordering::Relaxed) != 0;
        let free = self.retired(bits).iter().find(is_free);
        let table = match free.and_then(|word| Table::unpack(word.load(Ordering::Relaxed))) {
            Some(table) => table,
            None => Table { at: self.segment.take(1 << bits, lock::UPDATE)?, bits },
        };
        self.begin_change();
        self.index().replace(table);
        if let Some(word) = free {
            // Release: after the stores above, so that a process that dies in between leaves the
            // table named.
            word.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Marks the family as broken, because another process wrote nonsense where a part of it should
    /// be. The next thread that takes the lock mends it. Requires the lock.
    #[cold]
    fn damaged(&self, what: &str) -> Error {
        self.head[at::BROKEN].store(1, Ordering::Relaxed);
        Error::damaged(&self.segment, format!("{what} contradicts the layout"))
    }

    /// Moves some entries to the new table, if there is one. Retires the old one when all have
    /// moved.
    fn move_some(&self, slots: u32) {
        let moved = self.head[at::MIGRATED].load(Ordering::Relaxed);
        let previous = Table::unpack(self.head[at::PREVIOUS].load(Ordering::Relaxed));
        if let Some(previous) = previous
            && moved.saturating_add(slots.into()) >= previous.slots().into()
        {
            // This call completes the move. The table is named twice, so that a process that dies
            // in between leaves it named.
            self.retire(previous);
        }
        let Some((table, moved, is_done)) = self.index().migrate(slots) else { return };
        // In large pieces: each costs a system call, and the pages of a large table take time.
        let piece = |slot: u32| slot / DISCARD;
        if piece(moved.start) != piece(moved.end) || is_done {
            let end = if is_done { moved.end } else { piece(moved.end) * DISCARD };
            let offset = |slot: u32| (u64::from(table.at) + u64::from(slot)) * CELL_BYTES;
            self.region().discard(offset(piece(moved.start) * DISCARD)..offset(end));
        }
    }

    /// Names a table as free, but only once.
    fn retire(&self, table: Table) {
        let words = self.retired(table.bits);
        let has = |what: u64| words.iter().find(|word| word.load(Ordering::Relaxed) == what);
        if has(table.pack()).is_none()
            && let Some(word) = has(0)
        {
            word.store(table.pack(), Ordering::Relaxed);
        }
    }

    /// The words that name the free tables of a size.
    fn retired(&self, bits: u32) -> &[AtomicU64] {
        let first = at::RETIRED + 2 * bits as usize;
        &self.head[first..first + 2]
    }

    fn table_words(&self) -> impl Iterator<Item = &AtomicU64> {
        let retired = &self.head[at::RETIRED..at::END];
        [&self.head[at::TABLE], &self.head[at::PREVIOUS]].into_iter().chain(retired)
    }

    /// All tables that lie inside the bytes in use, the current one first, each once.
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for word in self.table_words() {
            let table = Table::unpack(word.load(Ordering::Relaxed));
            if let Some(table) = table.filter(|table| self.is_table(*table))
                && !tables.contains(&table)
            {
                tables.push(table);
            }
        }
        tables
    }

    /// Rebuilds the index of all series, in the existing tables. Each table is named by some word
    /// all the time, so that a process that dies midway leaves all of them to the next.
    fn rebuild(&self, live: u64) -> Result<(), Error> {
        let mut tables = self.tables();
        // The table that was in use, if all entries fit: a full segment has no room for another
        // one.
        let roomy = |table: &&Table| live <= u64::from(table.slots()) / 4 * 3;
        let table = match tables.iter().find(roomy) {
            Some(table) => *table,
            None => {
                let bits = bits_for(live.saturating_add(1));
                let table = Table { at: self.segment.take(1 << bits, lock::UPDATE)?, bits };
                tables.push(table);
                table
            }
        };
        self.begin_change();
        for bits in 0..=MOST_BITS {
            // No table may be named under another size, which only damage does; it is named
            // correctly below.
            for word in self.retired(bits) {
                let named = Table::unpack(word.load(Ordering::Relaxed));
                if named.is_some_and(|table| table.bits != bits) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        for one in &tables {
            // None may be named twice.
            let others = self.retired(one.bits).iter();
            let named = others.filter(|word| word.load(Ordering::Relaxed) == one.pack());
            named.skip(1).for_each(|word| word.store(0, Ordering::Relaxed));
            self.retire(*one);
        }
        // Release: after the stores above.
        for at in [at::PREVIOUS, at::TABLE, at::MIGRATED, at::ENTRIES] {
            self.head[at].store(0, Ordering::Release);
        }
        for table in &tables {
            for slot in
                self.region().slice(u64::from(table.at) * CELL_BYTES, table.slots() as usize)
            {
                // Loads first: most are zero already, and then need no memory.
                if slot.load(Ordering::Relaxed) != 0 {
                    slot.store(0, Ordering::Relaxed);
                }
            }
        }
        let in_use = table;
        let table = AtomicU64::new(in_use.pack());
        // No other thread sees it before it is complete.
        let index = Index { table: &table, ..self.index() };
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let is_series = is_series(self.region().word(at).load(Ordering::Relaxed));
            if is_series && !self.is_overflow(at) {
                index.insert(fingerprint(self.hash(at)), at);
            }
        }
        self.head[at::TABLE].store(in_use.pack(), Ordering::Release);
        for word in self.retired(in_use.bits) {
            if word.load(Ordering::Relaxed) == in_use.pack() {
                // Release: after the store above.
                word.store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Walks the blocks up to the first error. `claim` gets the words of each block. With
    /// `passes_labels`, a series with labels that are not its own is not an error.
    fn survey(&self, passes_labels: bool, mut claim: impl FnMut(Range<u64>)) -> Survey {
        let region = self.region();
        let end = self.end();
        let mut survey = Survey { last: 0, used: 0, kind: None };
        let kind = |at: u64, what: &str| {
            Some(format!("{what} at {} of a family", at.saturating_mul(CELL_BYTES)))
        };
        let mut block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
        // No block is shorter than the least one, so that a circular list ends.
        let mut left = end / u64::from(LEAST_BLOCK) + 1;
        while block != 0 {
            left -= 1;
            let at = u32::try_from(block).ok().filter(|_| left > 0 && block + 2 <= end);
            let length = at.map(|at| region.word(at).load(Ordering::Acquire) >> 32);
            let (Some(at), Some(length)) = (at, length) else {
                survey.kind = kind(block, "a block that lies outside of the bytes in use");
                return survey;
            };
            // Since the block ends inside, all of its offsets are word offsets, of 32 bits.
            if length < LEAST_BLOCK.into() || block + length > end {
                survey.kind = kind(block, "a block that ends outside of the bytes in use");
                return survey;
            }
            claim(block..block + length);
            (survey.last, survey.used) = (at, BLOCK_HEAD);
            let used = region.word(at + 1).load(Ordering::Acquire);
            if used < u64::from(BLOCK_HEAD) || used > length {
                survey.kind = kind(block, "a block with more words in use than it has");
                return survey;
            }
            while u64::from(survey.used) < used {
                let record = at + survey.used;
                let meta = region.word(record).load(Ordering::Acquire);
                let words = meta & WORDS;
                let fits = meta::used_words(meta) >= u64::from(self.header + self.cells)
                    && u64::from(survey.used) + words <= used;
                if !fits || state_of(meta) > state::HIDDEN {
                    survey.kind = kind(record.into(), "a record that contradicts the layout");
                    return survey;
                }
                if is_series(meta) && !passes_labels && !self.is_sound(record, meta) {
                    survey.kind = kind(record.into(), "a series whose labels are unreadable");
                    return survey;
                }
                survey.used += words as u32;
            }
            let next = region.word(at).load(Ordering::Acquire) & u64::from(u32::MAX);
            if next != 0 && next <= block {
                survey.kind = kind(next, "a block that does not lie after the one before");
                return survey;
            }
            block = next;
        }
        survey
    }

    /// The records, sorted, of series that a loss of power left incomplete: their labels are not
    /// their own, or another record has the same labels, since a removal was lost. Of the latter,
    /// the series that began last stays.
    fn torn_series(&self) -> Vec<u32> {
        let (mut torn, mut whole) = (Vec::new(), Vec::new());
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if !is_series(meta) || self.is_overflow(at) {
                continue;
            }
            if self.is_sound(at, meta) {
                let start = self.word_of(at, 1).load(Ordering::Relaxed) & u64::from(u32::MAX);
                whole.push((self.hash(at), start, at));
            } else {
                torn.push(at);
            }
        }
        whole.sort_unstable();
        let key = |at: u32| -> Vec<u64> {
            let meta = self.region().word(at).load(Ordering::Relaxed);
            let words = self.key_at(at, self.key_words(meta)).iter();
            words.map(|word| word.load(Ordering::Relaxed)).collect()
        };
        for pair in whole.windows(2) {
            let [(hash, _, at), (next_hash, _, next)] = [pair[0], pair[1]];
            if hash == next_hash && key(at) == key(next) {
                torn.push(at);
            }
        }
        torn.sort_unstable();
        torn
    }

    /// Whether the labels of a series are valid for this family.
    fn is_sound(&self, at: u32, meta: u64) -> bool {
        let region = self.region();
        let group = region.word(at + 1).load(Ordering::Relaxed) >> 32;
        let before = self.header + self.cells;
        let count = self.key_words(meta);
        if count == 0 {
            return group < if self.texts == 0 { self.groups.into() } else { 1 };
        }
        let key = region.slice(u64::from(at + before) * CELL_BYTES, count);
        let bytes: Vec<u8> =
            key.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let Some(end) = texts_end(&bytes, self.texts) else { return false };
        group < u64::from(self.groups)
            && is_padding(&bytes[end..])
            && meta::has_checksum(meta, self.hash(at))
            && self.texts(&bytes).all(|text| std::str::from_utf8(text).is_ok())
            && (meta & PLAIN == 0 || self.is_plain(&bytes))
    }

    /// The texts of a key, one for each dynamic label of the family.
    fn texts<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let mut rest = bytes;
        (0..self.texts).map_while(move |_| {
            let (text, behind) = next_text(rest)?;
            rest = behind;
            Some(text)
        })
    }

    /// Whether no text of a key needs an escape.
    fn is_plain(&self, bytes: &[u8]) -> bool {
        let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | b'\n');
        self.texts(bytes).all(|text| text.iter().all(is_plain))
    }

    /// Whether a walk comes across the record that the head names as the overflow's, and it can be
    /// that.
    fn has_overflow(&self) -> bool {
        let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
        let mut cursor = At::default();
        std::iter::from_fn(|| self.next_record(&mut cursor))
            .any(|at| u64::from(at) == overflow && self.is_overflows(at))
    }

    /// Whether a record belongs to a series without texts. If the family has dynamic labels, only
    /// the overflow's record does; else all do, and the overflow's was made first.
    fn is_overflows(&self, at: u32) -> bool {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        let words = self.header + self.cells;
        is_series(meta)
            && self.key_words(meta) == 0
            && self.region().has(u64::from(at) * CELL_BYTES, self.bytes(words))
    }

    /// The number of words of a record's key.
    #[inline]
    fn key_words(&self, meta: u64) -> usize {
        // At most 2^16.
        (meta::used_words(meta) as usize).saturating_sub((self.header + self.cells) as usize)
    }

    fn is_table(&self, table: Table) -> bool {
        (LEAST_BITS..=MOST_BITS).contains(&table.bits)
            && table.at != 0
            && table.words().end <= self.end()
    }

    /// The end of the bytes in use, in words, or of what word offsets reach.
    fn end(&self) -> u64 {
        (self.segment.used() / CELL_BYTES).min(1 << u32::BITS)
    }

    /// Returns the record if it has this key.
    #[inline]
    fn matches(&self, at: u32, key: &Key<'_>) -> Option<Found> {
        let region = self.region();
        // Acquire: a thread that sees it live sees all of it.
        let meta = region.word(at).load(Ordering::Acquire);
        let before = self.header + self.cells;
        let count = key.words.len();
        let state = state_of(meta);
        if meta::used_words(meta) != u64::from(before) + count as u64
            || !(state == state::LIVE || state == state::HIDDEN)
            || self.word_of(at, 1).load(Ordering::Relaxed) >> 32 != u64::from(key.group)
        {
            return None;
        }
        // The whole record is there if its last words are.
        let words = self.key_at(at, count);
        let same = words.len() == count
            && words
                .iter()
                .zip(key.words)
                .all(|(word, wanted)| word.load(Ordering::Relaxed) == *wanted);
        // The overflow series has no entry in the index: it is never found by a key.
        same.then_some(Found { at, meta })
    }

    /// The hash of a record's key.
    fn hash(&self, at: u32) -> u64 {
        let region = self.region();
        let count = self.key_words(region.word(at).load(Ordering::Relaxed));
        let key = self.key_at(at, count);
        let words: Vec<u64> = key.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let group = (self.word_of(at, 1).load(Ordering::Relaxed) >> 32) as u32;
        super::key::hash(&words, group, &self.secrets)
    }

    /// Digest of the cells, to detect idleness.
    fn digest(&self, at: u32) -> u32 {
        let offset = (u64::from(at) + u64::from(self.header)) * CELL_BYTES;
        let cells = self.region().slice(offset, self.cells as usize);
        let bytes = cells.iter().fold(0_u64, |digest, cell| {
            (digest ^ cell.load(Ordering::Relaxed))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        });
        (bytes ^ bytes >> 32) as u32
    }

    /// Tenths of a second since the family was made.
    fn since_creation(&self, now: Moment) -> u64 {
        tenths(now.unix.saturating_sub(self.created)).min(u64::from(u32::MAX))
    }

    /// The record of the overflow series. `NONE` if the head names no record that can be it, as
    /// when there was no room for one while the family was mended.
    fn overflow(&self) -> u32 {
        let at = u32::try_from(self.head[at::OVERFLOW].load(Ordering::Acquire)).unwrap_or(NONE);
        if u64::from(at) * CELL_BYTES >= HEADER_BYTES && self.is_overflows(at) { at } else { NONE }
    }

    fn lock(&self) -> Result<lock::Guard<'_>, Error> {
        self.lock_within(lock::UPDATE)
    }

    /// Takes the family's lock; `wait` is how long to wait for its owner.
    fn lock_within(&self, wait: Duration) -> Result<lock::Guard<'_>, Error> {
        let region = self.region();
        let (word, broken) = (&self.head[at::LOCK], &self.head[at::BROKEN]);
        let (token, is_alive) = (region.token()?, |token| region.is_alive(token));
        let taken = lock::acquire(word, broken, token, is_alive, &self.stuck, wait);
        let (guard, half_done) =
            taken.map_err(|busy| Error::held(&self.segment, "a family of series", busy))?;
        if half_done {
            self.mend(false, Moment::now(&self.segment))?;
            broken.store(0, Ordering::Relaxed);
        }
        Ok(guard)
    }

    #[inline]
    fn index(&self) -> Index<'_, Region> {
        Index {
            memory: self.region(),
            table: &self.head[at::TABLE],
            previous: &self.head[at::PREVIOUS],
            migrated: &self.head[at::MIGRATED],
            entries: &self.head[at::ENTRIES],
        }
    }

    #[inline]
    fn region(&self) -> &Region {
        &self.segment.region
    }
}

impl Moment {
    pub(crate) fn now(segment: &Segment) -> Self {
        let since_boot = Duration::from_nanos(readings::since_boot());
        Self { unix: readings::unix(), time: segment.anchor().time(since_boot) }
    }
}

/// The smallest class whose records have room for `words` words, 1 to 2^15.
fn class_of(words: u32) -> u32 {
    if words <= EXACT {
        return words - 1;
    }
    let last = words - 1;
    let quarter = last.ilog2() - 2;
    EXACT + 4 * (last.ilog2() - EXACT.ilog2()) + (last >> quarter & 3)
}

/// The words of the records of a class.
fn class_words(class: u32) -> u32 {
    if class < EXACT {
        return class + 1;
    }
    let (doubling, quarter) = ((class - EXACT) / 4, (class - EXACT) % 4);
    (quarter + 5) << (EXACT.ilog2() + doubling - 2)
}

/// The offset at which the first `texts` texts end.
fn texts_end(bytes: &[u8], texts: usize) -> Option<usize> {
    let mut rest = bytes;
    for _ in 0..texts {
        rest = next_text(rest)?.1;
    }
    Some(bytes.len() - rest.len())
}

/// Whether the bytes are the padding of a key's last word.
fn is_padding(bytes: &[u8]) -> bool {
    bytes.len() < CELL_BYTES as usize && bytes.iter().all(|&byte| byte == 0)
}

const TENTH: u64 = 100_000_000;

fn tenths(nanos: u64) -> u64 {
    nanos / TENTH
}

/// Tenths of a second of the segment's time, modulo 2^32.
fn mark_time(now: Moment) -> u32 {
    tenths(now.time) as u32
}

#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The logarithm of the number of slots for `live` series: two to four slots for each.
fn bits_for(live: u64) -> u32 {
    let slots = live.min(1 << MOST_BITS) * 2;
    slots.next_power_of_two().trailing_zeros().clamp(LEAST_BITS, MOST_BITS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::family::Series;
    use super::super::schema::Label;
    use super::*;

    #[test]
    fn each_length_has_a_class_of_at_most_a_quarter_more() {
        let mut before = 0;
        let most_words = if cfg!(miri) { 600 } else { MOST_WORDS };
        for words in 1..=most_words {
            let class = class_of(words);
            let most = class_words(class);
            assert!(class < CLASSES && (class == before || class == before + 1));
            assert!(words <= most && most - words <= words / 4, "{words} in {most}");
            assert_eq!(class_of(most), class);
            before = class;
        }
        assert!(cfg!(miri) || before == CLASSES - 1);
    }

    /// Two tables take turns. A thread that searches meanwhile, and finds the same table before and
    /// after, must not conclude that a series is missing.
    #[test]
    fn nothing_is_missing_because_tables_take_turns() {
        let segment = Segment::private(1 << 20).unwrap();
        let labels = vec![Label { name: "user".into(), values: None }];
        let schema = Schema { name: "requests".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        let Series::Dynamic(keyed) = &family.inner.layout else { panic!("its label is dynamic") };
        let mut names = (0..).map(|i| i.to_string());
        let mut churn = || {
            let name = names.next().unwrap();
            family.add(|key| key.text(&name), 0, 1);
            family.remove(|key| key.text(&name)).unwrap();
        };
        (0..50).for_each(|_| churn());
        assert!(keyed.is_missing_if(|| false));
        let table = || keyed.head[at::TABLE].load(Ordering::Relaxed);
        let is_missing = keyed.is_missing_if(|| {
            let first = table();
            while table() == first {
                churn();
            }
            while table() != first {
                churn();
            }
            false
        });
        assert!(!is_missing, "the table was another one meanwhile");
    }
}
