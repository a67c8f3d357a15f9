//! The series of a family with dynamic labels: a record each, in blocks, found by an index.
//!
//! A record holds a head, the cells, and the key; `docs/formats.md` draws it. Its first word is the
//! *meta* word, see `meta.rs`: whoever adds to a record without a handle looks at it before and
//! after, and takes the addition back should the record have become another series in between.
//!
//! Records are never moved. Those of removed series are used again, after a second at least, for
//! new series of the same size.

use std::ops::Range;
use std::time::Duration;

use rapidhash::v3::RapidSecrets;

use super::extra::Beside;
use super::family::Family;
use super::index::{Index, LEAST_BITS, MOST_BITS, Memory, Table};
use super::key::{Key, next_text, with_bytes};
use super::meta::{self, PINS, PLAIN, WORDS, is_series, state, state_of, with_state};
use super::place::Place;
use super::schema::Schema;
use crate::cells::Cells;
use crate::error::Error;
use crate::layout::CELL_BYTES;
use crate::lock;
use crate::region::Region;
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering, fence};

/// The words of a family's head that a keyed family uses, behind those of every family.
pub(crate) mod at {
    /// How often the index was replaced, or made anew.
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
    /// Pairs of the first and the last free record, by the length of their key in words, modulo
    /// their number.
    pub(crate) const FREE: usize = 18;
    /// Pairs of tables that are free, by the logarithm of their slots. There are never more: a
    /// table is made when there is no free one, and one of that size is in use at most.
    pub(crate) const RETIRED: usize = FREE + 2 * super::FREE_CLASSES;
    pub(crate) const END: usize = RETIRED + 2 * (super::MOST_BITS as usize + 1);
}

const FREE_CLASSES: usize = 32;
/// How many free records are looked at for one of the right length.
const MOST_LOOKS: usize = 16;

/// The words that blocks begin with: next block and length, words in use.
const BLOCK_HEAD: u32 = 2;
const LEAST_BLOCK: u32 = 128;
const MOST_BLOCK: u32 = 1 << 15;
/// How many slots of a table move with each insertion.
const STEP: u32 = 32;
/// The slots whose memory goes back to the system at once.
const DISCARD: u32 = 1 << 15;
/// How long a record stays free before it is used again, in tenths of a second: longer than any
/// thread is between its look at a record and its addition to it.
const QUARANTINE: i32 = 10;
/// How many records are looked at, or removed, before others get the lock.
const BATCH: usize = 512;

impl Memory for Region {
    #[inline]
    fn word(&self, at: u32) -> &AtomicU64 {
        self.cell(u64::from(at) * CELL_BYTES)
    }
}

/// A keyed family.
#[derive(Debug)]
pub(crate) struct Keyed {
    segment: Segment,
    head: Cells,
    secrets: RapidSecrets,
    /// The words of a record before its cells.
    header: u32,
    cells: u32,
    /// How many texts a key has.
    pub(crate) texts: usize,
    groups: u32,
    limit: u64,
    /// When the family was made: nanoseconds of Unix time.
    created: u64,
    idle: Option<Duration>,
    additive: bool,
    /// Where the search for a hidden series goes on: a block, and a word in it.
    hand: AtomicU64,
}

/// What somebody knows of the extras of a family's series.
type Known<'a> = (&'a Family, &'a dyn Beside);

/// A record that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: u32,
    pub(crate) meta: u64,
}

/// What of a family's blocks is right.
struct Survey {
    /// The last block that is, 0 without any, and how many words of it are.
    last: u32,
    used: u32,
    /// What is wrong behind it, in words.
    flaw: Option<String>,
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

/// Where a walk over the records is: a block, and a word in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct At {
    block: u32,
    word: u32,
}

impl Keyed {
    /// Takes over the head of a family.
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
        }
    }

    /// Makes the overflow's record, so that it is there when nothing else has room.
    pub(crate) fn begin(&self, now: u64) -> Result<(), Error> {
        let key = Key { group: 0, words: &[], hash: 0 };
        let at = self.write(&key, now, None)?;
        self.set_state(at, state::HIDDEN);
        self.head[at::OVERFLOW].store(at.into(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn secrets(&self) -> &RapidSecrets {
        &self.secrets
    }

    /// How many series there are, hidden ones included.
    pub(crate) fn len(&self) -> u64 {
        self.head[at::LIVE].load(Ordering::Relaxed)
    }

    /// Finds a series without a lock. It may miss one while the index changes, or is left half
    /// changed by somebody who died.
    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<Found> {
        self.index().find(fingerprint(key.hash), |at| self.matches(at, key))
    }

    /// Finds a series, and misses none: it takes the lock where the index was not at rest.
    ///
    /// # Errors
    /// Those of the lock.
    pub(crate) fn find_surely(&self, key: &Key<'_>) -> Result<Option<Found>, Error> {
        let found = self.find(key);
        if found.is_some() || self.is_missing(key) {
            return Ok(found);
        }
        let _guard = self.lock()?;
        Ok(self.find_locked(key))
    }

    fn find_locked(&self, key: &Key<'_>) -> Option<Found> {
        self.index().find_locked(fingerprint(key.hash), |at| self.matches(at, key))
    }

    /// Finds a series that is shown, without a lock. It misses some, as [`Keyed::find`] does.
    #[inline]
    pub(crate) fn find_live(&self, key: &Key<'_>) -> Option<Found> {
        self.find(key).filter(|found| state_of(found.meta) == state::LIVE)
    }

    /// The cells of a record.
    #[inline]
    pub(crate) fn place(&self, at: u32) -> Place<'_> {
        let offset = u64::from(at + self.header) * CELL_BYTES;
        let first = self.region().cells(offset, self.cells as usize);
        // SAFETY: `cells` saw that the one lane lies inside the region, which this family keeps
        // alive for longer than the borrow.
        unsafe { Place::new(first, self.cells, (0, 1), None) }
    }

    /// A record that was a series' once.
    #[inline]
    pub(crate) fn look(&self, at: u32) -> Found {
        // Acquire: whoever sees it live sees all of it.
        Found { at, meta: self.region().word(at).load(Ordering::Acquire) }
    }

    /// Whether the record still is the series that was found.
    #[inline]
    pub(crate) fn is_still(&self, found: Found) -> bool {
        meta::is_still(self.region().word(found.at), found.meta)
    }

    /// Whether what was added to what was found belongs to that series: so it does where that was
    /// hidden meanwhile, and is shown again.
    #[inline]
    pub(crate) fn has_kept(&self, found: Found) -> bool {
        self.is_still(found) || self.has_hidden(found)
    }

    #[cold]
    fn has_hidden(&self, found: Found) -> bool {
        let word = self.region().word(found.at);
        let is_hidden = || {
            let meta = word.load(Ordering::Acquire);
            meta::is_same_series(meta, found.meta) && state_of(meta) == state::HIDDEN
        };
        if !is_hidden() {
            return false;
        }
        if self.is_overflow(found.at) {
            self.find_overflow();
        } else if let Ok(_guard) = self.lock()
            && is_hidden()
        {
            // Without the lock, the next sweep shows it.
            self.show(found.at);
        }
        true
    }

    /// Whether a series has the record, which a handle is bound to.
    #[inline]
    pub(crate) fn is_series(&self, at: u32) -> bool {
        meta::is_series(self.region().word(at).load(Ordering::Relaxed))
    }

    /// Whether the series is the overflow's.
    pub(crate) fn is_overflow(&self, at: u32) -> bool {
        self.overflow() == at
    }

    /// The overflow's series, shown from now on.
    #[cold]
    pub(crate) fn find_overflow(&self) -> Found {
        let at = self.overflow();
        let word = self.region().word(at);
        let meta = word.load(Ordering::Acquire);
        if state_of(meta) == state::LIVE {
            return Found { at, meta };
        }
        let meta = with_state(meta::set_state(word, state::LIVE), state::LIVE);
        Found { at, meta }
    }

    /// Binds a handle to what was found, unless it has become another series meanwhile.
    pub(crate) fn pin(&self, found: Found) -> bool {
        meta::pin(self.region().word(found.at), found.meta)
    }

    /// Binds one more handle to a record that one is bound to.
    pub(crate) fn pin_again(&self, at: u32) {
        meta::pin_again(self.region().word(at));
    }

    /// Releases a handle.
    pub(crate) fn unpin(&self, at: u32, now: impl Fn() -> u64) {
        let word = self.region().word(at);
        if !meta::unpin(word) {
            return;
        }
        // Without the lock, it stays as it is until the file is opened anew.
        if let Ok(_guard) = self.lock() {
            // Another thread may have freed it, and even a third used it again.
            let meta = word.load(Ordering::Relaxed);
            if meta::is_nobodys(meta) {
                self.free(at, meta, now());
            }
        }
    }

    /// Removes a series; false where there is none.
    pub(crate) fn remove(&self, key: &Key<'_>, now: u64) -> Result<bool, Error> {
        let _guard = self.lock()?;
        let found = self.find_locked(key);
        if let Some(found) = found {
            self.detach(found.at, fingerprint(key.hash), now);
        }
        Ok(found.is_some())
    }

    /// Removes the series that `keep` does not want. It is asked without the lock: it may use the
    /// family as it likes.
    pub(crate) fn retain(
        &self,
        now: u64,
        mut keep: impl FnMut(&Seen<'_>) -> bool,
    ) -> Result<u64, Error> {
        let mut removed = 0;
        let (mut cursor, mut words) = (At::default(), Vec::new());
        let mut unwanted = Vec::new();
        loop {
            unwanted.clear();
            while unwanted.len() < BATCH {
                let Some(at) = self.next_record(&mut cursor) else { break };
                let Some(seen) = self.see(at, &mut words, true) else { continue };
                if !seen.overflow && !keep(&seen) {
                    unwanted.push((at, seen.meta));
                }
            }
            if unwanted.is_empty() {
                return Ok(removed);
            }
            let _guard = self.lock()?;
            for &(at, seen) in &unwanted {
                let meta = self.region().word(at).load(Ordering::Acquire);
                // The same series, shown or not: another one may have its record by now.
                if meta::is_same_series(meta, seen) && is_series(meta) {
                    self.detach(at, fingerprint(self.hash(at)), now);
                    removed += 1;
                }
            }
        }
    }

    /// Removes all series but those that handles are bound to, which begin anew.
    pub(crate) fn reset(&self, now: u64, keep: impl Fn(usize) -> bool) -> Result<(), Error> {
        let mut cursor = At::default();
        loop {
            let _guard = self.lock()?;
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                let meta = self.region().word(at).load(Ordering::Acquire);
                if !is_series(meta) {
                    continue;
                }
                if !self.is_overflow(at) && meta & PINS == 0 {
                    self.detach(at, fingerprint(self.hash(at)), now);
                    continue;
                }
                for cell in (0..self.cells).filter(|cell| !keep(*cell as usize)) {
                    self.region().word(at + self.header + cell).store(0, Ordering::Release);
                }
                let origin = self.region().word(at + 1);
                let group = origin.load(Ordering::Relaxed) >> 32 << 32;
                origin.store(group | self.since_creation(now), Ordering::Release);
                if self.is_overflow(at) {
                    self.set_state(at, state::HIDDEN);
                }
            }
        }
    }

    /// Looks at all series: hides those that are idle for too long, or removes them where their
    /// value is no sum that has to go on, and shows those again that changed.
    pub(crate) fn sweep(&self, now: u64) -> Result<(), Error> {
        let Some(idle) = self.idle else { return Ok(()) };
        let idle = tenths(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        let tenth = self.since_creation(now);
        let mut cursor = At::default();
        loop {
            let _guard = self.lock()?;
            for _ in 0..BATCH {
                let Some(at) = self.next_record(&mut cursor) else { return Ok(()) };
                self.sweep_one(at, idle, tenth, now);
            }
        }
    }

    fn sweep_one(&self, at: u32, idle: u64, tenth: u64, now: u64) {
        let meta = self.region().word(at).load(Ordering::Acquire);
        if self.is_overflow(at) || !is_series(meta) {
            return;
        }
        let digest = self.digest(at);
        let mark = self.region().word(at + 2);
        let (old, since) = (mark.load(Ordering::Relaxed) >> 32, mark.load(Ordering::Relaxed));
        let since = since & u64::from(u32::MAX);
        let is_shown = state_of(meta) == state::LIVE;
        if old != u64::from(digest) {
            mark.store(u64::from(digest) << 32 | tenth, Ordering::Relaxed);
            if !is_shown {
                self.show(at);
            }
        } else if is_shown && tenth.saturating_sub(since) >= idle {
            if self.additive {
                self.hide(at);
            } else {
                self.detach(at, fingerprint(self.hash(at)), now);
            }
        }
    }

    /// The next record of a walk: live or not.
    #[inline]
    pub(crate) fn next_record(&self, cursor: &mut At) -> Option<u32> {
        loop {
            if cursor.block == 0 {
                // Acquire: sees the blocks as they were linked.
                cursor.block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire) as u32;
                cursor.word = BLOCK_HEAD;
                if cursor.block == 0 {
                    return None;
                }
            }
            let region = self.region();
            // Acquire: the records below are complete as far as a walk needs them.
            let used = region.word(cursor.block + 1).load(Ordering::Acquire) as u32;
            if cursor.word < used {
                let at = cursor.block + cursor.word;
                let words = (region.word(at).load(Ordering::Acquire) & WORDS) as u32;
                cursor.word += words.max(1);
                return Some(at);
            }
            let next = region.word(cursor.block).load(Ordering::Acquire) as u32;
            if next == 0 {
                return None;
            }
            *cursor = At { block: next, word: BLOCK_HEAD };
        }
    }

    /// Reads a record's labels. `None` where it is not shown; `hidden` shows those too that are
    /// idle.
    #[inline]
    pub(crate) fn see<'s>(
        &self,
        at: u32,
        words: &'s mut Vec<u8>,
        hidden: bool,
    ) -> Option<Seen<'s>> {
        let region = self.region();
        // Acquire: whoever sees it live sees all of it.
        let meta = region.word(at).load(Ordering::Acquire);
        let state = state_of(meta);
        if state != state::LIVE && !(hidden && state == state::HIDDEN) {
            return None;
        }
        let origin = region.word(at + 1).load(Ordering::Relaxed);
        let before = self.header + self.cells;
        let count = ((meta & WORDS) as u32).saturating_sub(before) as usize;
        let key = region.slice(u64::from(at + before) * CELL_BYTES, count);
        words.clear();
        words.resize(count * 8, 0);
        for (bytes, word) in words.chunks_exact_mut(8).zip(key) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        if !meta::is_still(region.word(at), meta) {
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
            group: (origin >> 32) as u32,
            texts: &words[..if overflow { 0 } else { length }],
            plain: meta & PLAIN != 0,
            overflow,
            start: self.created.saturating_add((origin & u64::from(u32::MAX)) * TENTH),
            at,
            meta,
        })
    }

    /// Checks everything that an index and a walk will trust, without changing it. The words that
    /// it lies in are added to `claims`. With `torn`, power was lost: what it may have taken is
    /// mended later, and no fault.
    ///
    /// # Errors
    /// What contradicts the layout, in words.
    pub(crate) fn inspect(&self, torn: bool, claims: &mut Vec<Range<u64>>) -> Result<(), String> {
        let survey = self.survey(|block| claims.push(block));
        let tables = self.tables();
        claims.extend(tables.iter().map(|table| table.words()));
        if torn {
            return Ok(());
        }
        if let Some(flaw) = survey.flaw {
            return Err(flaw);
        }
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if packed != 0 && !tables.iter().any(|table| table.pack() == packed) {
                return Err(format!("its index {packed:#x} lies outside of the bytes in use"));
            }
        }
        if !self.has_overflow() {
            let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
            return Err(format!("its overflow series at {overflow} is none"));
        }
        Ok(())
    }

    /// Puts everything in order, where nobody else has the segment open.
    pub(crate) fn mend_alone(&self, now: u64) -> Result<(), Error> {
        self.head[at::LOCK].store(0, Ordering::Relaxed);
        self.mend(true, now)?;
        self.head[at::BROKEN].store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Puts everything in order after somebody died in between, or power was lost: what is not
    /// complete goes, and index, free records and counts are made anew. With `alone`, nobody else
    /// has the segment open, and no handle is bound.
    fn mend(&self, alone: bool, now: u64) -> Result<(), Error> {
        let region = self.region();
        let survey = self.survey(|_| ());
        self.head[at::LAST_BLOCK].store(survey.last.into(), Ordering::Relaxed);
        if survey.flaw.is_some() {
            // What follows was never complete, or was not on the disk when power was lost.
            if survey.last == 0 {
                self.head[at::FIRST_BLOCK].store(0, Ordering::Relaxed);
            } else {
                let head = region.word(survey.last);
                head.store(head.load(Ordering::Relaxed) >> 32 << 32, Ordering::Relaxed);
                region.word(survey.last + 1).store(survey.used.into(), Ordering::Relaxed);
            }
        }
        // Before anything is taken, which may make what lies outside of the bytes in use lie inside.
        let tables = self.tables();
        for word in self.table_words() {
            let packed = word.load(Ordering::Relaxed);
            if !tables.iter().any(|table| table.pack() == packed) {
                word.store(0, Ordering::Relaxed);
            }
        }
        for i in 0..2 * FREE_CLASSES {
            self.head[at::FREE + i].store(0, Ordering::Relaxed);
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
        let mut cursor = At::default();
        while let Some(at) = self.next_record(&mut cursor) {
            let word = region.word(at);
            let mut meta = word.load(Ordering::Relaxed);
            if alone {
                meta &= !PINS;
                word.store(meta, Ordering::Relaxed);
            }
            if self.is_overflow(at) {
                continue;
            }
            if is_series(meta) && (self.texts == 0 || !self.is_overflows(at)) {
                live += 1;
                let hidden = u64::from(state_of(meta) == state::HIDDEN);
                self.head[at::HIDDEN].fetch_add(hidden, Ordering::Relaxed);
            } else if state_of(meta) != state::DETACHED || meta::is_nobodys(meta) {
                if alone && self.segment.may_have_lost_power() {
                    // What lies at the offsets in its cells may be another's.
                    (0..self.cells).for_each(|cell| {
                        region.word(at + self.header + cell).store(0, Ordering::Relaxed);
                    });
                }
                self.free(at, meta, now);
            }
        }
        self.head[at::LIVE].store(live, Ordering::Relaxed);
        if !self.has_overflow() {
            self.begin(now)?;
        }
        self.rebuild(live)
    }

    /// The series of a key that was not found, with the lock; the overflow's where it cannot be
    /// made.
    #[cold]
    pub(crate) fn find_or_make(
        &self,
        key: &Key<'_>,
        now: impl Fn() -> u64,
        beside: Option<Known<'_>>,
    ) -> Found {
        if self.is_full_without(key) {
            return self.find_overflow();
        }
        self.make(key, now(), beside).unwrap_or_else(|_| self.find_overflow())
    }

    /// Whether the family is at its limit and has no series of that key, as far as that can be told
    /// without the lock: what comes beyond the limit comes again and again.
    fn is_full_without(&self, key: &Key<'_>) -> bool {
        self.head[at::LIVE].load(Ordering::Relaxed) >= self.limit
            && self.head[at::HIDDEN].load(Ordering::Relaxed) == 0
            && self.is_missing(key)
    }

    /// Whether there is no series of that key, as far as that can be told without the lock: nobody
    /// changes the index, nor has died while doing so, and no entries are to move.
    fn is_missing(&self, key: &Key<'_>) -> bool {
        self.is_missing_if(|| self.find(key).is_some())
    }

    fn is_missing_if(&self, is_found: impl FnOnce() -> bool) -> bool {
        let at_rest = || {
            // Acquire, here and below: what is seen below is at least as new. This comes first: who
            // began to change before it had the lock by then, and another one is seen by the second
            // look, though the table may be the same again.
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
        // Acquire: had the search met a change, this would see that there was one.
        fence(Ordering::Acquire);
        at_rest() == before
    }

    /// Notes that entries will be where they were not, with the lock held.
    fn begin_change(&self) {
        // Release: who sees this sees the lock. And below: who sees something of the change sees this.
        self.head[at::CHANGES].fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Makes a series, unless it is there.
    fn make(&self, key: &Key<'_>, now: u64, beside: Option<Known<'_>>) -> Result<Found, Error> {
        if !self.is_key(key) {
            let what = "a series whose labels are not those of its family".into();
            return Err(Error::request(&self.segment, what));
        }
        let _guard = self.lock()?;
        let fingerprint = fingerprint(key.hash);
        if let Some(found) = self.find_locked(key) {
            if state_of(found.meta) == state::HIDDEN {
                self.show(found.at);
            }
            let meta = self.region().word(found.at).load(Ordering::Relaxed);
            return Ok(Found { at: found.at, meta });
        }
        if self.head[at::LIVE].load(Ordering::Relaxed) >= self.limit && !self.forget_one(now) {
            self.move_some(STEP);
            return Err(Error::full(&self.segment, 0));
        }
        self.make_room()?;
        let at = self.write(key, now, beside)?;
        self.index().insert(fingerprint, at);
        let meta = self.set_state(at, state::LIVE);
        self.head[at::LIVE].fetch_add(1, Ordering::Relaxed);
        self.move_some(STEP);
        Ok(Found { at, meta })
    }

    /// Whether the family can have a series of that key: who writes too few labels, or indices that
    /// are out of range, gets none.
    fn is_key(&self, key: &Key<'_>) -> bool {
        key.group < self.groups
            && with_bytes(key.words, |bytes| {
                texts_end(bytes, self.texts).is_some_and(|end| is_padding(&bytes[end..]))
            })
    }

    /// Takes a record, and writes everything but its state.
    fn write(&self, key: &Key<'_>, now: u64, beside: Option<Known<'_>>) -> Result<u32, Error> {
        let words = u64::from(self.header + self.cells) + key.words.len() as u64;
        if words > WORDS {
            return Err(Error::full(&self.segment, words * CELL_BYTES));
        }
        let at = self.take(words as u32, now)?;
        let region = self.region();
        let origin = u64::from(key.group) << 32 | self.since_creation(now);
        region.word(at + 1).store(origin, Ordering::Release);
        if let Some((family, beside)) = beside {
            beside.renew(family, &self.place(at));
        }
        for i in 2..self.header + self.cells {
            let is_offset = |(_, beside): Known<'_>| {
                i.checked_sub(self.header).is_some_and(|cell| beside.is_offset(cell as usize))
            };
            if !beside.is_some_and(is_offset) {
                // Release: who adds to what was zeroed here sees the new generation, and takes it
                // back.
                region.word(at + i).store(0, Ordering::Release);
            }
        }
        if self.idle.is_some() {
            let since = self.since_creation(now);
            let mark = u64::from(self.digest(at)) << 32 | since;
            region.word(at + 2).store(mark, Ordering::Release);
        }
        for (i, word) in (self.header + self.cells..).zip(key.words) {
            region.word(at + i).store(*word, Ordering::Release);
        }
        let plain = with_bytes(key.words, |bytes| self.is_plain(bytes));
        let plain = if plain { PLAIN } else { 0 };
        let meta = region.word(at).load(Ordering::Relaxed) & !PLAIN;
        region.word(at).store(meta | plain, Ordering::Relaxed);
        Ok(at)
    }

    /// A record of so many words, as a draft: a free one, or one from the end of the last block.
    fn take(&self, words: u32, now: u64) -> Result<u32, Error> {
        let region = self.region();
        if let Some(at) = self.take_free(words, now) {
            return Ok(at);
        }
        let mut block = self.head[at::LAST_BLOCK].load(Ordering::Relaxed) as u32;
        let mut used = BLOCK_HEAD;
        let mut length = 0;
        if block != 0 {
            used = region.word(block + 1).load(Ordering::Relaxed) as u32;
            length = (region.word(block).load(Ordering::Relaxed) >> 32) as u32;
        }
        if block == 0 || used + words > length {
            let wanted = (length * 2).clamp(LEAST_BLOCK, MOST_BLOCK);
            // A record has at most 2^16 words.
            let wanted = wanted.max(words + BLOCK_HEAD).next_multiple_of(8);
            let new = self.segment.take(wanted.into())?;
            region.word(new).store(u64::from(wanted) << 32, Ordering::Relaxed);
            region.word(new + 1).store(BLOCK_HEAD.into(), Ordering::Relaxed);
            // Release: who finds the block finds its head.
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
        // A power loss may have taken back how much is in use: what an earlier record had there is no
        // offset of this one.
        for cell in self.header..self.header + self.cells {
            region.word(at + cell).store(0, Ordering::Relaxed);
        }
        // Its length first: whoever walks the block can step over it, should this one die here.
        region.word(at).store(with_state(words.into(), state::DRAFT), Ordering::Relaxed);
        region.word(block + 1).store(u64::from(used + words), Ordering::Release);
        Ok(at)
    }

    /// Takes a series out of the index, and frees its record if no handle is bound to it.
    fn detach(&self, at: u32, fingerprint: u32, now: u64) {
        let word = self.region().word(at);
        self.index().remove(fingerprint, at);
        let before = meta::set_state(word, state::DETACHED);
        self.head[at::LIVE].fetch_sub(1, Ordering::Relaxed);
        if state_of(before) == state::HIDDEN {
            self.head[at::HIDDEN].fetch_sub(1, Ordering::Relaxed);
        }
        let meta = word.load(Ordering::Acquire);
        if meta::is_nobodys(meta) {
            self.free(at, meta, now);
        }
    }

    /// Puts a record at the end of the free ones of its class, as the next generation.
    fn free(&self, at: u32, meta: u64, now: u64) {
        let region = self.region();
        meta::set_free(region.word(at), meta);
        region.word(at + 1).store(self.since_creation(now), Ordering::Release);
        let (first, last) = self.free_class(meta & WORDS);
        let before = last.load(Ordering::Relaxed) as u32;
        if before == 0 {
            first.store(at.into(), Ordering::Relaxed);
        } else {
            region.word(before + 1).fetch_or(u64::from(at) << 32, Ordering::Relaxed);
        }
        last.store(at.into(), Ordering::Relaxed);
    }

    /// The free record of that very length that is free for longest, as a draft, if it was for long
    /// enough.
    fn take_free(&self, words: u32, now: u64) -> Option<u32> {
        let region = self.region();
        let (first, last) = self.free_class(words.into());
        let mut before = 0;
        let mut at = first.load(Ordering::Relaxed) as u32;
        for _ in 0..MOST_LOOKS {
            if at == 0 {
                return None;
            }
            let meta = region.word(at).load(Ordering::Relaxed);
            let link = region.word(at + 1).load(Ordering::Relaxed);
            let next = link >> 32;
            if meta & WORDS != u64::from(words) {
                (before, at) = (at, next as u32);
                continue;
            }
            let tenth = self.since_creation(now);
            // As the clock's face: both are of 32 bits.
            let waited = (tenth as u32).wrapping_sub(link as u32).cast_signed();
            if waited < QUARANTINE {
                if waited < 0 {
                    // The wall clock was set back: the wait begins now.
                    region.word(at + 1).store(next << 32 | tenth, Ordering::Relaxed);
                }
                return None;
            }
            if before == 0 {
                first.store(next, Ordering::Relaxed);
            } else {
                let link = region.word(before + 1);
                let since = link.load(Ordering::Relaxed) & u64::from(u32::MAX);
                link.store(next << 32 | since, Ordering::Relaxed);
            }
            if next == 0 {
                last.store(before.into(), Ordering::Relaxed);
            }
            let draft = with_state(meta & !PINS, state::DRAFT);
            region.word(at).store(draft, Ordering::Relaxed);
            return Some(at);
        }
        None
    }

    /// The first and the last free record of the class of a length.
    fn free_class(&self, words: u64) -> (&AtomicU64, &AtomicU64) {
        let key = words.saturating_sub(u64::from(self.header + self.cells));
        let class = at::FREE + 2 * (key as usize % FREE_CLASSES);
        (&self.head[class], &self.head[class + 1])
    }

    /// Removes a hidden series: the next one from where the last was, so that not all records are
    /// looked at each time.
    fn forget_one(&self, now: u64) -> bool {
        if self.head[at::HIDDEN].load(Ordering::Relaxed) == 0 {
            return false;
        }
        let hand = self.hand.load(Ordering::Relaxed);
        // Both halves are taken whole.
        let mut cursor = At { block: (hand >> 32) as u32, word: hand as u32 };
        let mut is_second_round = false;
        loop {
            let Some(at) = self.next_record(&mut cursor) else {
                if is_second_round {
                    return false;
                }
                (cursor, is_second_round) = (At::default(), true);
                continue;
            };
            let meta = self.region().word(at).load(Ordering::Relaxed);
            if state_of(meta) == state::HIDDEN && !self.is_overflow(at) {
                self.detach(at, fingerprint(self.hash(at)), now);
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

    /// Changes the state, and answers the meta word then.
    fn set_state(&self, at: u32, state: u64) -> u64 {
        with_state(meta::set_state(self.region().word(at), state), state)
    }

    /// Sees to it that the table has room for one more entry.
    fn make_room(&self) -> Result<(), Error> {
        if !self.index().is_crowded() {
            return Ok(());
        }
        while self.head[at::PREVIOUS].load(Ordering::Relaxed) != 0 {
            self.move_some(u32::MAX);
        }
        let live = self.head[at::LIVE].load(Ordering::Relaxed) + 1;
        // A quarter of the old one at least: all of it has moved by `STEP`s before the new one,
        // which is half full at most then, is crowded.
        let old = Table::unpack(self.head[at::TABLE].load(Ordering::Relaxed));
        let least = old.map_or(LEAST_BITS, |old| old.bits.saturating_sub(2));
        let bits = bits_for(live).max(least);
        let is_free = |word: &&AtomicU64| word.load(Ordering::Relaxed) != 0;
        let free = self.retired(bits).iter().find(is_free);
        let table = match free.and_then(|word| Table::unpack(word.load(Ordering::Relaxed))) {
            Some(table) => table,
            None => Table { at: self.segment.take(1 << bits)?, bits },
        };
        self.begin_change();
        self.index().replace(table);
        if let Some(word) = free {
            // Release: behind the stores above, so that whoever dies in between leaves it named.
            word.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Moves some entries to the new table, if there is one, and retires the old one when all are.
    fn move_some(&self, slots: u32) {
        let moved = self.head[at::MIGRATED].load(Ordering::Relaxed);
        let previous = Table::unpack(self.head[at::PREVIOUS].load(Ordering::Relaxed));
        if let Some(previous) = previous
            && moved + u64::from(slots) >= previous.slots().into()
        {
            // It is done by this. Named twice, so that whoever dies in between leaves it named.
            self.retire(previous);
        }
        let Some((table, moved, is_done)) = self.index().migrate(slots) else { return };
        // In large pieces: each costs a system call, and the pages of a large table take time.
        let piece = |slot: u32| slot / DISCARD;
        if piece(moved.start) != piece(moved.end) || is_done {
            let end = if is_done { moved.end } else { piece(moved.end) * DISCARD };
            let offset = |slot: u32| u64::from(table.at + slot) * CELL_BYTES;
            self.region().discard(offset(piece(moved.start) * DISCARD)..offset(end));
        }
    }

    /// Names a table as free, once.
    fn retire(&self, table: Table) {
        let words = self.retired(table.bits);
        let has = |what: u64| words.iter().find(|word| word.load(Ordering::Relaxed) == what);
        if has(table.pack()).is_none()
            && let Some(word) = has(0)
        {
            word.store(table.pack(), Ordering::Relaxed);
        }
    }

    /// The words of the free tables of a size.
    fn retired(&self, bits: u32) -> &[AtomicU64] {
        let first = at::RETIRED + 2 * bits as usize;
        &self.head[first..first + 2]
    }

    fn table_words(&self) -> impl Iterator<Item = &AtomicU64> {
        let retired = &self.head[at::RETIRED..at::END];
        [&self.head[at::TABLE], &self.head[at::PREVIOUS]].into_iter().chain(retired)
    }

    /// All tables that lie inside of the bytes in use, the current one first, each once.
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

    /// Makes the index anew of all series, in the tables that there are. Each of them is named by
    /// some word all the time: whoever dies on the way leaves them to the next.
    fn rebuild(&self, live: u64) -> Result<(), Error> {
        let mut tables = self.tables();
        // The one that was in use, where all fit in: a segment that is full has no room for another.
        let roomy = |table: &&Table| live <= u64::from(table.slots()) / 4 * 3;
        let table = match tables.iter().find(roomy) {
            Some(table) => *table,
            None => {
                let bits = bits_for(live + 1);
                let table = Table { at: self.segment.take(1 << bits)?, bits };
                tables.push(table);
                table
            }
        };
        self.begin_change();
        for bits in 0..=MOST_BITS {
            // Nor as one of another size, which only damage does; it is named anew below.
            for word in self.retired(bits) {
                let named = Table::unpack(word.load(Ordering::Relaxed));
                if named.is_some_and(|table| table.bits != bits) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        for one in &tables {
            // None is named twice.
            let others = self.retired(one.bits).iter();
            let named = others.filter(|word| word.load(Ordering::Relaxed) == one.pack());
            named.skip(1).for_each(|word| word.store(0, Ordering::Relaxed));
            self.retire(*one);
        }
        // Release: behind the stores above.
        for at in [at::PREVIOUS, at::TABLE, at::MIGRATED, at::ENTRIES] {
            self.head[at].store(0, Ordering::Release);
        }
        for table in &tables {
            for slot in
                self.region().slice(u64::from(table.at) * CELL_BYTES, table.slots() as usize)
            {
                // A look first: most are zero already, and need no memory then.
                if slot.load(Ordering::Relaxed) != 0 {
                    slot.store(0, Ordering::Relaxed);
                }
            }
        }
        let in_use = table;
        let table = AtomicU64::new(in_use.pack());
        // Nobody sees it before it is complete.
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
                // Release: behind the store above.
                word.store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Walks the blocks up to the first thing that is wrong; `claim` gets the words of each block.
    fn survey(&self, mut claim: impl FnMut(Range<u64>)) -> Survey {
        let region = self.region();
        let end = self.end();
        let mut survey = Survey { last: 0, used: 0, flaw: None };
        let flaw = |at: u64, what: &str| {
            Some(format!("{what} at {} of a family", at.saturating_mul(CELL_BYTES)))
        };
        let mut block = self.head[at::FIRST_BLOCK].load(Ordering::Acquire);
        // No block is shorter than the least one: a list in a circle ends.
        let mut left = end / u64::from(LEAST_BLOCK) + 1;
        while block != 0 {
            left -= 1;
            let at = u32::try_from(block).ok().filter(|_| left > 0 && block + 2 <= end);
            let length = at.map(|at| region.word(at).load(Ordering::Acquire) >> 32);
            let (Some(at), Some(length)) = (at, length) else {
                survey.flaw = flaw(block, "a block that lies outside of the bytes in use");
                return survey;
            };
            // Once it ends inside, all of its offsets are word offsets, of 32 bits.
            if length < LEAST_BLOCK.into() || block + length > end {
                survey.flaw = flaw(block, "a block that ends outside of the bytes in use");
                return survey;
            }
            claim(block..block + length);
            (survey.last, survey.used) = (at, BLOCK_HEAD);
            let used = region.word(at + 1).load(Ordering::Acquire);
            if used < u64::from(BLOCK_HEAD) || used > length {
                survey.flaw = flaw(block, "a block with more in use than it has");
                return survey;
            }
            while u64::from(survey.used) < used {
                let record = at + survey.used;
                let meta = region.word(record).load(Ordering::Acquire);
                let words = meta & WORDS;
                let fits = words >= u64::from(self.header + self.cells)
                    && u64::from(survey.used) + words <= used;
                if !fits || state_of(meta) > state::DETACHED {
                    survey.flaw = flaw(record.into(), "a record that contradicts the layout");
                    return survey;
                }
                if is_series(meta) && !self.is_sound(record, meta) {
                    survey.flaw = flaw(record.into(), "a series whose labels are unreadable");
                    return survey;
                }
                survey.used += words as u32;
            }
            block = region.word(at).load(Ordering::Acquire) & u64::from(u32::MAX);
        }
        survey
    }

    /// Whether the labels of a series are what this family has.
    fn is_sound(&self, at: u32, meta: u64) -> bool {
        let region = self.region();
        let group = region.word(at + 1).load(Ordering::Relaxed) >> 32;
        let before = self.header + self.cells;
        let count = ((meta & WORDS) as u32 - before) as usize;
        if count == 0 {
            return group < if self.texts == 0 { self.groups.into() } else { 1 };
        }
        let key = region.slice(u64::from(at + before) * CELL_BYTES, count);
        let bytes: Vec<u8> =
            key.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let Some(end) = texts_end(&bytes, self.texts) else { return false };
        group < u64::from(self.groups)
            && is_padding(&bytes[end..])
            && self.texts(&bytes).all(|text| std::str::from_utf8(text).is_ok())
            && (meta & PLAIN == 0 || self.is_plain(&bytes))
    }

    /// The texts of a key, as many as there are.
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

    /// Whether a walk comes by the record that is named as the overflow's, and it can be that.
    fn has_overflow(&self) -> bool {
        let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
        let mut cursor = At::default();
        std::iter::from_fn(|| self.next_record(&mut cursor))
            .any(|at| u64::from(at) == overflow && self.is_overflows(at))
    }

    /// Whether a record is that of a series without texts. Where the family has labels that take any
    /// text, only the overflow's is; else all are, and the overflow's was made first.
    fn is_overflows(&self, at: u32) -> bool {
        let meta = self.region().word(at).load(Ordering::Relaxed);
        is_series(meta) && meta & WORDS == u64::from(self.header + self.cells)
    }

    fn is_table(&self, table: Table) -> bool {
        (LEAST_BITS..=MOST_BITS).contains(&table.bits)
            && table.at != 0
            && table.words().end <= self.end()
    }

    /// Where the bytes in use end, or word offsets do.
    fn end(&self) -> u64 {
        (self.segment.used() / CELL_BYTES).min(1 << u32::BITS)
    }

    /// Whether the record has this key.
    #[inline]
    fn matches(&self, at: u32, key: &Key<'_>) -> Option<Found> {
        let region = self.region();
        // Acquire: whoever sees it live sees all of it.
        let meta = region.word(at).load(Ordering::Acquire);
        let before = self.header + self.cells;
        let count = key.words.len();
        let state = state_of(meta);
        if meta & WORDS != u64::from(before) + count as u64
            || !(state == state::LIVE || state == state::HIDDEN)
            || region.word(at + 1).load(Ordering::Relaxed) >> 32 != u64::from(key.group)
        {
            return None;
        }
        let words = region.slice(u64::from(at + before) * CELL_BYTES, count);
        let same = words
            .iter()
            .zip(key.words)
            .all(|(word, wanted)| word.load(Ordering::Relaxed) == *wanted);
        // The overflow's series has no entry in the index: it is never found by a key.
        same.then_some(Found { at, meta })
    }

    /// The hash of a record's key.
    fn hash(&self, at: u32) -> u64 {
        let region = self.region();
        let before = self.header + self.cells;
        let words = (region.word(at).load(Ordering::Relaxed) & WORDS) as u32;
        let count = words.saturating_sub(before) as usize;
        let key = region.slice(u64::from(at + before) * CELL_BYTES, count);
        let words: Vec<u64> = key.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let group = (region.word(at + 1).load(Ordering::Relaxed) >> 32) as u32;
        super::key::hash(&words, group, &self.secrets)
    }

    /// Something of all cells that changes when one does.
    fn digest(&self, at: u32) -> u32 {
        let offset = u64::from(at + self.header) * CELL_BYTES;
        let cells = self.region().slice(offset, self.cells as usize);
        let bytes = cells.iter().fold(0_u64, |digest, cell| {
            (digest ^ cell.load(Ordering::Relaxed))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        });
        (bytes ^ bytes >> 32) as u32
    }

    /// Tenths of a second since the family was made.
    fn since_creation(&self, now: u64) -> u64 {
        tenths(now.saturating_sub(self.created)).min(u64::from(u32::MAX))
    }

    fn overflow(&self) -> u32 {
        // It was a record's when it was stored.
        self.head[at::OVERFLOW].load(Ordering::Acquire) as u32
    }

    fn lock(&self) -> Result<lock::Guard<'_>, Error> {
        let region = self.region();
        let (word, broken) = (&self.head[at::LOCK], &self.head[at::BROKEN]);
        let (guard, half_done) =
            lock::acquire(word, broken, region.token()?, |token| region.is_alive(token));
        if half_done {
            self.mend(false, crate::readings::unix())?;
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

/// Where so many texts end.
fn texts_end(bytes: &[u8], texts: usize) -> Option<usize> {
    let mut rest = bytes;
    for _ in 0..texts {
        rest = next_text(rest)?.1;
    }
    Some(bytes.len() - rest.len())
}

/// Whether it is what fills the last word of a key.
fn is_padding(bytes: &[u8]) -> bool {
    bytes.len() < CELL_BYTES as usize && bytes.iter().all(|&byte| byte == 0)
}

const TENTH: u64 = 100_000_000;

fn tenths(nanos: u64) -> u64 {
    nanos / TENTH
}

#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The logarithm of the slots for so many series: twice to four times as many.
fn bits_for(live: u64) -> u32 {
    (live * 2).next_power_of_two().trailing_zeros().clamp(LEAST_BITS, MOST_BITS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::family::Series;
    use super::super::schema::Label;
    use super::*;

    /// Two tables take turns. Who looks for a series while they do, and finds the same table before
    /// and after, knows nothing.
    #[test]
    fn nothing_is_missing_because_tables_take_turns() {
        let segment = Segment::private(1 << 20).unwrap();
        let labels = vec![Label { name: "user".into(), values: None }];
        let schema = Schema { name: "requests".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        let Series::Keyed(keyed) = &family.inner.layout else { panic!("its label is dynamic") };
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
