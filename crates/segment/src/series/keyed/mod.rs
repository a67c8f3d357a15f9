//! The series of a family with dynamic labels: one record each, in blocks, found by an index.
//!
//! A record contains a head, the cells, and the key; `docs/formats.md` draws it. Its first word is
//! the *meta* word, see `meta.rs`.
//!
//! Records are never moved. A thread that finds one claims it first (`claims.rs`), and a handle
//! does the same. The record of a removed series is *in limbo* at first. Once enough records are in
//! limbo, the claims are read: records that no claim names are then *ready* for new series, and the
//! others stay in limbo. Ready records are on lists by length, so a fitting one can be found at
//! once.

mod blocks;
mod expire;
mod free;
pub(crate) mod head;
mod mend;
mod record;
#[cfg(unix)]
mod settle;
mod survey;
mod tables;
mod unused;

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::time::Duration;

pub(crate) use self::blocks::{Records, WalkPosition};
use self::head as at;
pub(crate) use self::record::RecordReading;
use self::record::has_key;
use self::tables::STEP;
use super::cells::{Lanes, SeriesCells};
use super::family::Family;
use super::index::Index;
use super::key::{Key, PackedValues, Secrets};
use super::meta::{self, is_series, state, state_of, with_state};
use super::schema::Schema;
use super::side::SideAllocations;
use crate::cells::Cells;
use crate::claims::Memory;
use crate::clock::Clock as _;
use crate::error::Error;
use crate::layout::HEADER_BYTES;
use crate::lock::{self, StuckLock};
use crate::offset::WordOffset;
use crate::prefetch::prefetch;
use crate::readings;
use crate::region::Region;
use crate::segment::Segment;
use crate::slots::{Claim, ClaimSetter, HandleClaim};
use crate::sync::{AtomicU64, Ordering, fence};

/// The number of words of a cache line.
const LINE_WORDS: usize = 8;

/// The offset that means "no record": a record there would have no end.
pub(super) const NO_RECORD: WordOffset = WordOffset::new(u32::MAX);

/// The series of a family with dynamic labels.
#[derive(Debug)]
pub(crate) struct DynamicSeries {
    segment: Segment,
    head: Cells,
    secrets: Secrets,
    /// The number of words before the cells of a record.
    header: u32,
    cells: NonZeroU32,
    /// The number of words before the key of a record.
    before_key: u32,
    /// The number of values in a key.
    pub(crate) texts: usize,
    groups: u32,
    limit: u64,
    /// Unix time in nanoseconds of the family's creation.
    created: u64,
    idle: Option<Duration>,
    additive: bool,
    /// The position where the search for a hidden series continues: a block, and a word in the
    /// block.
    hand: AtomicU64,
    /// The tracker for the family's lock.
    stuck: StuckLock,
    /// Dummy cells for a record that does not exist.
    dummy_cells: Box<[AtomicU64]>,
}

/// A family, and the code that knows the side allocations of its series.
pub(super) type FamilyWithSides<'a> = (&'a Family, &'a dyn SideAllocations);

/// A record that a lookup found: its offset and its meta word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundRecord {
    pub(crate) at: WordOffset,
    pub(crate) meta: u64,
}

/// A time: nanoseconds of Unix time, and of the segment's time, which does not change when a clock
/// is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) unix: u64,
    pub(crate) time: u64,
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
        let header = 2 + u32::from(schema.idle.is_some());
        Self {
            segment: segment.clone(),
            head: head.clone(),
            secrets: Secrets::new(segment.seed()),
            header,
            // The description was checked, so the fallback is not used.
            cells: NonZeroU32::new(schema.cells.into()).unwrap_or(NonZeroU32::MIN),
            before_key: header + u32::from(schema.cells),
            texts,
            groups,
            limit: schema.limit.unwrap_or(u64::MAX),
            created,
            idle: schema.idle,
            additive: schema.additive,
            hand: AtomicU64::new(0),
            stuck: StuckLock::default(),
            dummy_cells: (0..schema.cells).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Creates the record of the overflow series now, because it must exist even when the segment
    /// is full.
    pub(crate) fn make_overflow(&self, now: Moment) -> Result<(), Error> {
        let key = Key { group: 0, words: &[], hash: 0 };
        let at = self.write(&key, now, None)?;
        self.set_state(at, state::HIDDEN);
        self.head[at::OVERFLOW].store(at.pack(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the number of series, including hidden ones.
    pub(crate) fn len(&self) -> u64 {
        self.head[at::LIVE].load(Ordering::Relaxed)
    }

    /// Finds a series without a lock, and claims it with `hold`. This can miss a series while the
    /// index changes, or after a process died while it changed the index.
    #[inline(always)]
    fn find(&self, key: &Key<'_>, hold: impl Fn(WordOffset)) -> Option<FoundRecord> {
        // Copy the key, because the caller's key then stays in registers.
        let key = *key;
        self.index().find(fingerprint(key.hash), move |at| {
            hold(at);
            self.matches(at, &key)
        })
    }

    /// Finds a series, and misses none, because it takes the lock if the index is changing.
    ///
    /// # Errors
    /// Returns the errors of the lock.
    pub(crate) fn find_surely(
        &self,
        key: &Key<'_>,
        hold: impl Fn(WordOffset),
    ) -> Result<Option<FoundRecord>, Error> {
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
            // Search without the lock: its owner may be stopped, and an existing series then does
            // not move.
            Err(error) if error.is_held() => self.find(key, &hold).map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Finds a series, and takes the lock for a thread that cannot get a claim. The record is not
    /// reused before the lock is released.
    ///
    /// # Errors
    /// Returns the errors of the lock.
    #[cold]
    pub(crate) fn find_and_lock(
        &self,
        key: &Key<'_>,
    ) -> Result<(Option<FoundRecord>, lock::Guard<'_>), Error> {
        let guard = self.lock_within(lock::SCRAPE)?;
        Ok((self.find_locked(key), guard))
    }

    /// Takes the lock if it is free.
    #[cold]
    pub(crate) fn try_lock(&self) -> Option<lock::Guard<'_>> {
        self.lock_within(lock::SCRAPE).ok()
    }

    fn find_locked(&self, key: &Key<'_>) -> Option<FoundRecord> {
        self.index().find_locked(fingerprint(key.hash), |at| self.matches(at, key))
    }

    /// Finds a series that is shown, without a lock, and claims it. This can miss a series, like
    /// [`DynamicSeries::find`].
    #[inline(always)]
    pub(crate) fn find_live(
        &self,
        key: &Key<'_>,
        hold: impl Fn(WordOffset),
    ) -> Option<FoundRecord> {
        self.find(key, hold).filter(|found| state_of(found.meta) == state::LIVE)
    }

    /// Like [`DynamicSeries::find_live`], for the values of a key and its group; returns the cells.
    #[inline]
    pub(crate) fn find_cells(
        &self,
        group: u32,
        texts: &mut PackedValues,
        hold: ClaimSetter<'_>,
    ) -> Option<SeriesCells<'_>> {
        let first = self.find_first_cell(group, texts, hold)?;
        // SAFETY: it is the first cell of a record with `self.cells` cells inside the region. This
        // family keeps the region alive.
        Some(unsafe { SeriesCells::new(first, self.cells, Lanes::ONE, None) })
    }

    /// Returns the first of the `self.cells` cells in a series' record.
    ///
    /// This function is the same for all labels and changes, so it is compiled only once. Rare
    /// cases are out of line, because this function then calls no other and saves few registers.
    #[inline(never)]
    fn find_first_cell(
        &self,
        group: u32,
        texts: &mut PackedValues,
        hold: ClaimSetter<'_>,
    ) -> Option<NonNull<AtomicU64>> {
        if let Some(key) = texts.finish_short(group, &self.secrets, self.texts)
            && let Some(at) = self.index().first(fingerprint(key.hash))
        {
            hold.set(at);
            let (head, texts) = self.region().known_parts(at, self.before_key, key.words.len());
            // Acquire: a thread that sees the record live sees its contents.
            let meta = head.first().map_or(0, |meta| meta.load(Ordering::Acquire));
            if state_of(meta) == state::LIVE && has_key(meta, head, texts, &key) {
                return head.get(self.header as usize).map(NonNull::from);
            }
        }
        self.find_further(group, texts, hold)
    }

    #[cold]
    #[inline(never)]
    fn find_further(
        &self,
        group: u32,
        texts: &mut PackedValues,
        hold: ClaimSetter<'_>,
    ) -> Option<NonNull<AtomicU64>> {
        let key = texts.finish(group, &self.secrets, self.texts)?;
        let found = self.find_live(&key, |at| hold.set(at))?;
        self.region().cells(found.at.byte_of(self.header), self.cells.get() as usize)
    }

    /// Returns a claim for this thread; `None` if the segment is full.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        self.segment.claim()
    }

    /// Returns this thread's claim, if it is cached and free.
    #[inline]
    pub(crate) fn claim_at_hand(&self) -> Option<Claim<'_>> {
        self.region().claim_at_hand()
    }

    /// Returns a claim for a handle; `None` if the segment is full.
    pub(crate) fn claim_for_handle(&self) -> Option<HandleClaim> {
        self.segment.claim_for_handle()
    }

    /// Stores a record in a handle's claim.
    pub(crate) fn hold(&self, claim: HandleClaim, at: WordOffset) {
        self.region().set_handle(claim, at);
    }

    /// Stores a record that another handle of this process claims in a handle's claim.
    ///
    /// # Errors
    /// Returns the errors of the lock.
    pub(crate) fn hold_again(&self, claim: HandleClaim, at: WordOffset) -> Result<(), Error> {
        // Take the lock: otherwise, a thread that reads the claims can read this one before the
        // store, and the other one after it was cleared.
        let _guard = self.lock()?;
        self.hold(claim, at);
        Ok(())
    }

    /// Frees the claim of a handle of this process.
    pub(crate) fn give_back(&self, claim: HandleClaim) {
        self.region().give_back(claim);
    }

    /// Returns the cells of a record.
    #[inline]
    pub(crate) fn cells_at(&self, at: WordOffset) -> SeriesCells<'_> {
        let first = self.region().cells(at.byte_of(self.header), self.cells.get() as usize);
        let first = first.unwrap_or_else(|| NonNull::from(&*self.dummy_cells).cast());
        // SAFETY: the lane lies inside the region, as `cells` checked, or is `dummy_cells`
        // with that many cells. This family keeps both alive for longer than the borrow.
        unsafe { SeriesCells::new(first, self.cells, Lanes::ONE, None) }
    }

    /// Returns the record of a series, if the series still owns it and is shown. Claims it with
    /// `hold`.
    #[inline]
    pub(crate) fn find_at(
        &self,
        at: WordOffset,
        generation: u32,
        hold: impl Fn(WordOffset),
    ) -> Option<FoundRecord> {
        hold(at);
        // Acquire: a thread that sees the record live sees its contents.
        let meta = self.region().word(at).load(Ordering::Acquire);
        let is_it = meta::generation_of(meta) == generation && state_of(meta) == state::LIVE;
        is_it.then_some(FoundRecord { at, meta })
    }

    /// Prefetches a record, without its key.
    #[inline]
    pub(crate) fn prefetch(&self, at: WordOffset) {
        let words = self.region().known_slice(at, self.before_key as usize);
        words.iter().step_by(LINE_WORDS).for_each(prefetch);
    }

    /// Returns whether the series of this generation owns the record, even if it is hidden.
    #[inline]
    pub(crate) fn is_series(&self, at: WordOffset, generation: u32) -> bool {
        // Acquire: like in `find_at`.
        let meta = self.region().word(at).load(Ordering::Acquire);
        is_series(meta) && meta::generation_of(meta) == generation
    }

    /// Returns the number of hidden series.
    pub(crate) fn hidden(&self) -> u64 {
        self.head[at::HIDDEN].load(Ordering::Relaxed)
    }

    /// Returns whether a series is shown, or will be after the next sweep because it changed while
    /// hidden.
    pub(crate) fn is_shown(&self, found: FoundRecord) -> bool {
        state_of(found.meta) == state::LIVE || self.has_changed(found.at)
    }

    /// Returns whether the record belongs to the overflow series.
    pub(crate) fn is_overflow(&self, at: WordOffset) -> bool {
        self.head[at::OVERFLOW].load(Ordering::Acquire) == at.pack() || at == NO_RECORD
    }

    /// Returns the overflow series, and shows it from now on.
    #[cold]
    pub(crate) fn find_overflow(&self) -> FoundRecord {
        let at = self.overflow();
        let word = self.region().word(at);
        let meta = word.load(Ordering::Acquire);
        if state_of(meta) == state::LIVE {
            return FoundRecord { at, meta };
        }
        if at == NO_RECORD {
            // Updates of these cells count as overflowed, but the cells are never shown.
            return FoundRecord { at, meta };
        }
        let meta = with_state(meta::set_state(word, state::LIVE), state::LIVE);
        FoundRecord { at, meta }
    }

    /// Finds or creates a series under the lock, after a search without the lock found none. `hold`
    /// claims the series. Returns `None` if it cannot be created.
    #[cold]
    pub(crate) fn find_or_make(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(WordOffset),
        now: impl Fn() -> Moment,
        sides: Option<FamilyWithSides<'_>>,
    ) -> Option<FoundRecord> {
        if self.is_full_without(key) {
            return None;
        }
        let found = self.make(key, hold, now(), sides).ok();
        // Release the lock first, because other threads can then add series in the meantime.
        self.segment.grow_ahead();
        found
    }

    /// Calls `act` with the cells of a key's series, and creates it if necessary. This holds the
    /// lock during the call, for a thread that cannot get a claim. Returns false if the series
    /// cannot be created.
    #[cold]
    pub(crate) fn update_locked(
        &self,
        key: &Key<'_>,
        now: Moment,
        sides: Option<FamilyWithSides<'_>>,
        act: &dyn Fn(SeriesCells<'_>),
    ) -> bool {
        let update = || {
            let found = self.make_locked(key, &|_| (), now, sides).ok()?;
            act(self.cells_at(found.at));
            Some(())
        };
        self.is_key(key) && self.with_lock(update).flatten().is_some()
    }

    /// Calls `read` with the cells of a key's series, if it exists and is shown. Holds the lock
    /// during the call.
    #[cold]
    pub(crate) fn read_locked<R>(
        &self,
        key: &Key<'_>,
        read: impl FnOnce(SeriesCells<'_>) -> R,
    ) -> Option<R> {
        let look = || {
            let found = self.find_locked(key)?;
            self.is_shown(found).then(|| read(self.cells_at(found.at)))
        };
        self.with_lock(look).flatten()
    }

    /// Calls `work` with the lock held. Returns `None` if the lock cannot be taken, for example in
    /// a signal handler that interrupted its owner.
    fn with_lock<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.lock().ok()?;
        Some(work())
    }

    /// Returns whether the family is certainly full and contains no series of this key. This check
    /// needs no lock, and it pays because label sets beyond the limit are often repeated.
    fn is_full_without(&self, key: &Key<'_>) -> bool {
        self.head[at::LIVE].load(Ordering::Relaxed) >= self.limit
            && self.head[at::HIDDEN].load(Ordering::Relaxed) == 0
            && self.is_missing(key)
    }

    /// Returns whether the key certainly owns no series. A search without the lock can prove this
    /// only while the index is at rest: no thread is changing it, none died while changing it, and
    /// no entries are left to move.
    fn is_missing(&self, key: &Key<'_>) -> bool {
        self.is_missing_if(|| {
            let is_it = |at| self.matches(at, key);
            // No claim is needed, because a found record is not used.
            self.index().find(fingerprint(key.hash), is_it).is_some()
        })
    }

    fn is_missing_if(&self, is_found: impl FnOnce() -> bool) -> bool {
        let at_rest = || {
            // Acquire, here and below: each load sees at least as much as the load before. The
            // count is loaded first: a thread that began a change before this load held the lock by
            // then. A later change shows in the second call, even if the table is the same again by
            // then.
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

    /// Finds or creates a series, and claims it.
    fn make(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(WordOffset),
        now: Moment,
        sides: Option<FamilyWithSides<'_>>,
    ) -> Result<FoundRecord, Error> {
        if !self.is_key(key) {
            let reason = "a series whose labels are not those of its family".into();
            return Err(Error::request(&self.segment, reason));
        }
        let _guard = self.lock()?;
        self.make_locked(key, hold, now, sides)
    }

    fn make_locked(
        &self,
        key: &Key<'_>,
        hold: &dyn Fn(WordOffset),
        now: Moment,
        sides: Option<FamilyWithSides<'_>>,
    ) -> Result<FoundRecord, Error> {
        let fingerprint = fingerprint(key.hash);
        if let Some(found) = self.find_locked(key) {
            // With the lock held, no record is reused.
            hold(found.at);
            if state_of(found.meta) == state::HIDDEN {
                self.show(found.at);
            }
            let meta = self.region().word(found.at).load(Ordering::Relaxed);
            return Ok(FoundRecord { at: found.at, meta });
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
        Ok(FoundRecord { at, meta })
    }

    /// Marks the family as broken, because another process wrote an invalid value into this part.
    /// The next thread that takes the lock mends the family. The caller must hold the lock.
    #[cold]
    fn damaged(&self, part: &str) -> Error {
        self.head[at::BROKEN].store(1, Ordering::Relaxed);
        Error::damaged(&self.segment, format!("{part} contradicts the layout"))
    }

    /// Returns whether a walk reaches the overflow's record that the head names, and the record is
    /// valid.
    fn has_overflow(&self) -> bool {
        let overflow = self.head[at::OVERFLOW].load(Ordering::Relaxed);
        let mut cursor = WalkPosition::default();
        std::iter::from_fn(|| self.next_record(&mut cursor))
            .any(|at| at.pack() == overflow && self.may_be_overflow(at))
    }

    /// Returns the record of the overflow series; `NO_RECORD` if the head names no valid record,
    /// for example because there was no room when the family was mended.
    fn overflow(&self) -> WordOffset {
        let at = u32::try_from(self.head[at::OVERFLOW].load(Ordering::Acquire));
        let at = at.map_or(NO_RECORD, WordOffset::new);
        if at.byte().get() >= HEADER_BYTES && self.may_be_overflow(at) { at } else { NO_RECORD }
    }

    fn lock(&self) -> Result<lock::Guard<'_>, Error> {
        self.lock_within(lock::UPDATE)
    }

    /// Takes the family's lock. This waits at most `wait` for its owner.
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
        let head: &[AtomicU64; at::END] =
            self.head.first_chunk().expect("a family is opened with a complete head");
        Index {
            memory: self.region(),
            table: &head[at::TABLE],
            previous: &head[at::PREVIOUS],
            migrated: &head[at::MIGRATED],
            entries: &head[at::ENTRIES],
        }
    }

    #[inline]
    fn region(&self) -> &Region {
        &self.segment.region
    }
}

impl Moment {
    /// Returns the current time of the segment's test clock, if there is one, or of the machine.
    pub(crate) fn now(segment: &Segment) -> Self {
        if let Some(clock) = segment.clock() {
            return Self { unix: clock.unix(), time: clock.now() };
        }
        let since_boot = Duration::from_nanos(readings::since_boot());
        Self { unix: readings::unix(), time: segment.anchor().time(since_boot) }
    }
}

#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::family::Series;
    use super::super::schema::Label;
    use super::*;

    /// Two tables take turns. A thread that searches at the same time, and finds the same table
    /// before and after, must not conclude that a series is missing.
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
