//! A family: its description, and all operations on its series.

use std::fmt;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::time::Duration;

use super::cells::SeriesCells;
use super::dense::{Dense, Layout, Slab};
use super::key::{Key, KeyWriter};
use super::keyed::{self, At, DynamicSeries, Found, Moment};
use super::meta;
use super::schema::Schema;
use super::side::SideAllocations;
use super::strings::StringSet;
use crate::cells::Cells;
use crate::clock::{Clock, Manual};
use crate::error::Error;
use crate::fork;
use crate::layout::{CELL_BYTES, HEADER_BYTES, Kind, NAME_BYTES, RECORD_BYTES};
use crate::lock::{self, Stuck};
use crate::segment::{Record, Segment};
use crate::slots::{Claim, HandleClaim};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The record of a family.
const FAMILY: Kind = Kind::new(*b"FMLY", 2);

/// The words of a family's head.
mod at {
    pub(super) const SCHEMA_BYTES: usize = 0;
    pub(super) const DENSE: usize = 1;
    pub(super) const MARKS: usize = 2;
    pub(super) const CREATED: usize = 3;
    pub(super) const FOLDING: usize = 5;
    pub(super) const OVERFLOWED: usize = 14;
    pub(super) const FOLDING_BROKEN: usize = 15;
    pub(super) const END: usize = 16;
}

/// A handle to a family. Clones share it.
#[derive(Clone)]
pub struct Family {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    segment: Segment,
    head: Cells,
    schema: Schema,
    pub(super) sets: Vec<Option<StringSet>>,
    groups: u32,
    created: u64,
    pub(super) layout: Series,
    clock: Option<Manual>,
    /// Set by the thread that makes the handle, before any other thread has it: no thread waits for
    /// it.
    #[allow(
        clippy::disallowed_types,
        reason = "no child of a fork has a handle in which it is being set"
    )]
    sides: std::sync::OnceLock<Arc<dyn SideAllocations>>,
    /// For the lock of [`Family::try_folding`].
    pub(super) folding: Stuck,
    /// The offset of its record, which is unique to it.
    id: u64,
}

/// How its series are stored.
pub(super) enum Series {
    Dense(Dense),
    Dynamic(DynamicSeries),
}

/// A handle to one series, which is looked up only once: an update through it costs only the
/// addition.
///
/// Removing the series does not harm the handle. What it counts afterwards is not shown, unless all
/// of the family's labels are of fixed cardinality: then the series restarts with it.
pub struct SeriesHandle {
    place: SeriesCells<'static>,
    /// The record of the series and its generation, if it has a record.
    record: Option<(u32, u32)>,
    /// The slot of the series, if it has one.
    slot: u32,
    /// The claim on the record, 0 for none, and in the upper half the generation of the process
    /// that made the claim.
    held: AtomicU64,
    /// The cells that replace those of the series in a child of a fork, if the series was removed
    /// before the child claimed it; null if there are none.
    other: AtomicPtr<OtherCells>,
    family: Family,
}

/// Cells that replace those of a series: those of the overflow series, or some that are never
/// shown.
struct OtherCells {
    place: SeriesCells<'static>,
    _own: Box<[AtomicU64]>,
}

/// The cells of a series that was found. Until this is dropped, they belong to that series, or to
/// no series once it is removed.
pub struct Claimed<'f> {
    place: SeriesCells<'f>,
    _claim: Option<Claim<'f>>,
}

impl<'f> Claimed<'f> {
    pub(super) fn new(place: SeriesCells<'f>, claim: Option<Claim<'f>>) -> Self {
        Self { place, _claim: claim }
    }
}

impl<'f> std::ops::Deref for Claimed<'f> {
    type Target = SeriesCells<'f>;

    fn deref(&self) -> &SeriesCells<'f> {
        &self.place
    }
}

/// A series, as a scrape sees it.
#[derive(Debug)]
pub struct View<'a> {
    /// The index of its combination of fixed label values; the last label varies fastest.
    pub group: u32,
    /// Its dynamic label values, each preceded by its length: one byte if it is less than 255, else
    /// the byte 255 and four little-endian bytes.
    pub texts: &'a [u8],
    /// Whether no dynamic value contains a quote, a backslash or a line feed.
    pub plain: bool,
    /// Whether it is the overflow series, which stands for everything beyond the family's limit or
    /// values.
    pub overflow: bool,
    /// When it started to count from zero, in nanoseconds of Unix time.
    pub start: u64,
    /// Its cells.
    pub place: SeriesCells<'a>,
}

/// The position of a walk over a family's series. The default is the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    slot: u32,
    record: At,
    /// Whether it is after the last series.
    done: bool,
}

impl Segment {
    /// Opens the family of that name, or makes it. A family that is to stand [apart](Schema::apart)
    /// is always made.
    ///
    /// # Errors
    /// A description that no family can have or that contradicts the existing family, a full
    /// segment, and the errors of the disk.
    pub fn family(&self, schema: &Schema) -> Result<Family, Error> {
        Family::open_or_make(self, schema, None)
    }

    /// As [`Segment::family`], with a clock that is set by hand, for tests.
    ///
    /// # Errors
    /// Those of [`Segment::family`].
    pub fn family_at(&self, schema: &Schema, clock: Manual) -> Result<Family, Error> {
        Family::open_or_make(self, schema, Some(clock))
    }

    /// The families, in the order in which they were made.
    ///
    /// # Errors
    /// A family whose record contradicts itself.
    pub fn families(&self) -> Result<Vec<Family>, Error> {
        self.begin_once()?;
        all_families(self)
    }

    /// The families that were made after the record with that number, in order, and the number of
    /// the newest record now. 0 stands for the time before the first record.
    ///
    /// # Errors
    /// A family whose record contradicts itself.
    pub fn families_since(&self, newest: u64) -> Result<(Vec<Family>, u64), Error> {
        self.begin_once()?;
        families_since(self, newest)
    }

    /// The number of the newest record. As long as it is the same, there are no new families. It
    /// does not always increase: a record may be reserved before another one, and published after
    /// it.
    pub fn newest(&self) -> u64 {
        self.root()
    }
}

impl Family {
    fn open_or_make(
        segment: &Segment,
        schema: &Schema,
        clock: Option<Manual>,
    ) -> Result<Self, Error> {
        let fail =
            |what: String| Error::request(segment, format!("the family {:?}: {what}", schema.name));
        let groups = schema.check().map_err(fail)?;
        segment.begin_once()?;
        if schema.apart {
            let _making = segment.making()?;
            return Self::make(segment, schema, groups, clock);
        }
        if let Some(family) = Self::named(segment, schema, &clock)? {
            return Ok(family);
        }
        let _making = segment.making()?;
        match Self::named(segment, schema, &clock)? {
            Some(family) => Ok(family),
            None => Self::make(segment, schema, groups, clock),
        }
    }

    /// The family of that name, if it exists. Takes no lock that other processes hold, and its cost
    /// does not depend on the number of families.
    fn named(
        segment: &Segment,
        schema: &Schema,
        clock: &Option<Manual>,
    ) -> Result<Option<Self>, Error> {
        let (name, short) = (&schema.name, record_name(&schema.name));
        let Some(record) = segment.names.family(segment, name, short)? else { return Ok(None) };
        let family = Self::open(segment, &record, clock.clone())?;
        if family.inner.schema.name != *name {
            // Its record has the name of another family, whose name does not fit whole.
            return Ok(None);
        }
        match family.inner.schema.contradiction(schema) {
            None => Ok(Some(family)),
            Some(what) => {
                let what = format!("the family {name:?} exists already, and {what}");
                Err(Error::mismatch(segment, what))
            }
        }
    }

    fn make(
        segment: &Segment,
        schema: &Schema,
        groups: u32,
        clock: Option<Manual>,
    ) -> Result<Self, Error> {
        let bytes = schema.encode();
        let is_dense = is_dense(schema, groups);
        let head = if is_dense { at::END } else { keyed::head::END };
        let name = record_name(&schema.name);
        let draft = segment.reserve(FAMILY, name, head + bytes.len().div_ceil(8))?;
        let cells = draft.cells();
        let now = moment(segment, clock.as_ref());
        cells[at::SCHEMA_BYTES].store(bytes.len() as u64, Ordering::Relaxed);
        cells[at::CREATED].store(now.unix, Ordering::Relaxed);
        for (cell, chunk) in cells[head..].iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        if is_dense {
            let slots = groups + 1;
            let layout = Dense::allocate(segment, schema, slots)?;
            let marks = segment.take(Dense::mark_words(slots, schema.cells), lock::REGISTRATION)?;
            cells[at::DENSE].store(layout.pack(), Ordering::Relaxed);
            cells[at::MARKS].store(marks.into(), Ordering::Relaxed);
        } else {
            DynamicSeries::open(segment, cells, schema, groups, now.unix).begin(now)?;
        }
        let record = draft.publish()?;
        Self::open(segment, &record, clock)
    }

    fn open(segment: &Segment, record: &Record, clock: Option<Manual>) -> Result<Self, Error> {
        let fail =
            |what: &str| Error::damaged(segment, format!("its family {:?}: {what}", record.name()));
        if record.kind() != FAMILY {
            let what = format!(
                "family {:?} is of kind {:?} and this program reads {FAMILY:?}",
                record.name(),
                record.kind()
            );
            return Err(Error::mismatch(segment, what));
        }
        let head = record.cells();
        if head.len() < at::END {
            return Err(fail("its record is too short"));
        }
        let layout = head[at::DENSE].load(Ordering::Relaxed);
        let bytes = schema_bytes(head, layout != 0)
            .ok_or_else(|| fail("its description is longer than its record"))?;
        let schema = Schema::decode(&bytes).map_err(|what| fail(&what))?;
        let groups = schema.check().map_err(|what| fail(&what))?;
        if is_dense(&schema, groups) != (layout != 0) {
            return Err(fail("the layout of its series contradicts its labels"));
        }
        let created = head[at::CREATED].load(Ordering::Relaxed);
        let layout = if layout == 0 {
            Series::Dynamic(DynamicSeries::open(segment, head, &schema, groups, created))
        } else {
            let marks = u32::try_from(head[at::MARKS].load(Ordering::Relaxed)).unwrap_or(0);
            let layout = Layout::unpack(layout);
            let dense = Dense::open(&segment.region, &schema, groups + 1, layout, marks);
            Series::Dense(dense.ok_or_else(|| fail("its series lie outside of the segment"))?)
        };
        let sets = schema.labels.iter().map(|label| {
            let texts: Vec<&str> = label.values.as_ref()?.iter().map(String::as_str).collect();
            // `decode` checked that no text occurs twice.
            StringSet::new(&texts).ok()
        });
        let sets = sets.collect();
        let (segment, head, id) = (segment.clone(), head.clone(), record.offset());
        let (sides, folding) = (Default::default(), Stuck::default());
        let inner = Inner {
            segment,
            head,
            schema,
            sets,
            groups,
            created,
            layout,
            clock,
            sides,
            folding,
            id,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The description of the family.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// The number of combinations of fixed label values.
    pub fn groups(&self) -> u32 {
        self.inner.groups
    }

    /// Whether its series are found by arithmetic. Then they always exist, and removing one resets
    /// it.
    pub fn is_dense(&self) -> bool {
        matches!(self.inner.layout, Series::Dense(_))
    }

    /// When it was made, in nanoseconds of Unix time.
    pub fn created(&self) -> u64 {
        self.inner.created
    }

    /// A number that no other family of the segment has.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The segment that contains it.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// The number of updates that went to the overflow series, because their labels were beyond the
    /// limit or not among the fixed values, or did not fit into the segment.
    pub fn overflowed(&self) -> u64 {
        self.inner.head[at::OVERFLOWED].load(Ordering::Relaxed)
    }

    /// The number of its series, including those that are idle for too long.
    pub fn len(&self) -> u64 {
        match &self.inner.layout {
            Series::Dense(dense) => {
                let floats = self.inner.schema.floats;
                let is_there =
                    |slot: &u32| dense.is_marked(*slot) || !dense.place(*slot).is_zero(floats);
                (0..dense.slots()).filter(is_there).count() as u64
            }
            Series::Dynamic(keyed) => keyed.len(),
        }
    }

    /// Whether it has no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `n` to a cell of the series with the labels that `labels` writes.
    #[inline]
    pub fn add(&self, labels: impl Fn(&mut KeyWriter<'_>), cell: usize, n: u64) {
        self.update(labels, |place| place.add(cell, n));
    }

    /// Changes the cells of the series with the labels that `labels` writes; the series is made if
    /// there is none. Takes no lock, except to make a series.
    ///
    /// `act` changes only that series, however long it takes. If the series is removed meanwhile,
    /// the change may be lost with it.
    #[inline]
    pub fn update(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(SeriesCells<'_>)) {
        let inner = &*self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => act(dense.place(inner.slot(&writer, dense))),
            Series::Dynamic(keyed) => {
                // The writer is moved nowhere, so that it stays in registers.
                let key = writer.finish(keyed.secrets(), keyed.texts);
                if let Some(key) = &key
                    && let Some(claim) = keyed.claim_at_hand()
                    && let Some(found) = keyed.find_live(key, |at| claim.set(at))
                {
                    act(keyed.place(found.at));
                    return;
                }
                let _ = self.update_slowly(keyed, key, &act);
            }
        }
    }

    /// As [`Family::update`], for values that are to be shown even if they are zero.
    #[inline]
    pub fn update_shown(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(SeriesCells<'_>)) {
        let inner = &*self.inner;
        if let Series::Dense(dense) = &inner.layout {
            let mut writer = KeyWriter::new(&inner.sets);
            labels(&mut writer);
            let slot = inner.slot(&writer, dense);
            dense.mark(slot);
            act(dense.place(slot));
        } else {
            self.update(labels, act);
        }
    }

    /// Binds a handle to the series with the labels that `labels` writes. The series is made if
    /// there is none, and is shown from now on.
    pub fn bind(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> SeriesHandle {
        let inner = &self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        let (place, record, slot, claim) = match &inner.layout {
            Series::Dense(dense) => {
                let slot = inner.slot(&writer, dense);
                dense.mark(slot);
                (dense.place(slot), None, slot, None)
            }
            Series::Dynamic(keyed) => {
                let mut claim = keyed.claim_for_handle();
                let found = claim.and_then(|claim| {
                    let key = writer.finish(keyed.secrets(), keyed.texts);
                    self.find_or_make(keyed, key, &|at| keyed.hold(claim, at))
                });
                let found = found.unwrap_or_else(|| {
                    // The overflow series is never removed.
                    claim.take().into_iter().for_each(|claim| keyed.give_back(claim));
                    inner.overflow_of(keyed)
                });
                let record = (found.at, meta::generation_of(found.meta));
                (keyed.place(found.at), Some(record), 0, claim)
            }
        };
        let held = held(fork::generation(), claim);
        SeriesHandle::new(self, place, (record, slot), held)
    }

    /// Reads the cells of the series with the labels that `labels` writes. Returns `None`, and
    /// makes no series, if there is none. Takes a lock only while the family's index is changing,
    /// and never waits for it: also returns `None` if it cannot be told whether the series is
    /// there.
    pub fn look<R>(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        read: impl Fn(SeriesCells<'_>) -> R,
    ) -> Option<R> {
        let inner = &*self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < inner.groups)?;
                inner.view(dense, slot).map(|view| read(view.place))
            }
            Series::Dynamic(keyed) => {
                let key = writer.finish(keyed.secrets(), keyed.texts)?;
                let Some(claim) = keyed.claim() else {
                    return keyed.look_locked(&key, read);
                };
                let found = keyed.find_surely(&key, |at| claim.set(at)).ok()??;
                keyed.is_shown(found).then(|| read(keyed.place(found.at)))
            }
        }
    }

    /// Removes the series with the labels that `labels` writes. Returns false if there is none. A
    /// later update makes a new series, which starts at zero.
    ///
    /// # Errors
    /// Those of the lock, if the segment lies in a file: [`ErrorKind::Held`](crate::ErrorKind::Held) if
    /// another process, which may be stopped, holds it for a second.
    pub fn remove(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<bool, Error> {
        self.remove_within(labels, lock::REMOVAL)
    }

    /// As [`Family::remove`], unless another thread has the family's lock: then it returns
    /// [`ErrorKind::Held`](crate::ErrorKind::Held) at once. This is for scrapes, which never wait.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn try_remove(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<bool, Error> {
        self.remove_within(labels, lock::SCRAPE)
    }

    fn remove_within(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        wait: Duration,
    ) -> Result<bool, Error> {
        let inner = &*self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => {
                let Some(slot) = writer.group().filter(|&group| group < inner.groups) else {
                    return Ok(false);
                };
                let floats = inner.schema.floats;
                let was_there = dense.is_marked(slot) || !dense.place(slot).is_zero(floats);
                dense.begin_anew(slot, floats, inner.now().unix);
                Ok(was_there)
            }
            Series::Dynamic(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => keyed.remove(&key, wait),
                None => Ok(false),
            },
        }
    }

    /// Removes all series for which `keep` returns false, and returns their number. Series may come
    /// and go meanwhile; a series that comes may stay without a call of `keep`.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn retain(&self, mut keep: impl FnMut(&View<'_>) -> bool) -> Result<u64, Error> {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(dense) => {
                let mut removed = 0;
                for slot in 0..inner.groups {
                    let Some(view) = inner.view(dense, slot) else { continue };
                    if !keep(&view) {
                        dense.begin_anew(slot, inner.schema.floats, inner.now().unix);
                        removed += 1;
                    }
                }
                Ok(removed)
            }
            Series::Dynamic(keyed) => keyed.retain(|seen| keep(&keyed_view(keyed, seen))),
        }
    }

    /// Removes all series.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn clear(&self) -> Result<u64, Error> {
        self.retain(|_| false)
    }

    /// Resets all series. Those that handles are bound to stay, at zero; others with dynamic labels
    /// are removed. What other threads add at the same time may be lost, or stay. Cells for which
    /// `keep` returns true stay as they are: those that hold the offset of an
    /// [`SideAllocation`](super::SideAllocation), which the caller empties.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn reset(&self, keep: impl Fn(usize) -> bool) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.head[at::OVERFLOWED].store(0, Ordering::Relaxed);
        match &inner.layout {
            Series::Dense(dense) => {
                for slot in 0..dense.slots() {
                    let is_marked = dense.is_marked(slot) && slot < inner.groups;
                    dense.begin_anew(slot, inner.schema.floats, inner.now().unix);
                    if is_marked {
                        dense.mark(slot);
                    }
                }
                Ok(())
            }
            Series::Dynamic(keyed) => keyed.reset(inner.now(), keep),
        }
    }

    /// Hides the series that were idle for longer than the family's description allows; those with
    /// cells that are not sums are removed. A hidden series that changes is shown again, and
    /// continues from its last total.
    ///
    /// It never waits: series that it skips, because another thread has the family's lock, are left
    /// to the next sweep.
    ///
    /// # Errors
    /// Those of [`Family::remove`].
    pub fn sweep(&self) -> Result<(), Error> {
        match &self.inner.layout {
            Series::Dense(_) => Ok(()),
            Series::Dynamic(keyed) => keyed.sweep(self.inner.now()),
        }
    }

    /// Calls `visit` with one series after the other, from the cursor's position on, until `visit`
    /// breaks or there are no more series; then it returns `Continue`. `buffer` is memory for their
    /// texts.
    ///
    /// It takes no lock, and holds nothing between two calls: series may come and go meanwhile. A
    /// series that is there from the beginning to the end is shown once; one that is removed and
    /// made again in between may be shown as both.
    pub fn walk(
        &self,
        cursor: &mut Cursor,
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&View<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(dense) => {
                while cursor.slot < dense.slots() {
                    let slot = cursor.slot;
                    cursor.slot += 1;
                    if let Some(view) = inner.view(dense, slot) {
                        visit(&view)?;
                    }
                }
            }
            Series::Dynamic(keyed) => {
                let claim = keyed.claim();
                while !cursor.done {
                    let Some(at) = keyed.next_record(&mut cursor.record) else {
                        cursor.done = true;
                        break;
                    };
                    if let Some(seen) = keyed.see(at, claim.as_ref(), buffer, false) {
                        visit(&keyed_view(keyed, &seen))?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Family {
    /// Sets, once, which side allocations the series have. Then the side allocations of a removed
    /// series are emptied for the next series in its record, instead of being allocated again.
    pub fn set_side_allocations(&self, sides: Arc<dyn SideAllocations>) {
        let _ = self.inner.sides.set(sides);
    }

    /// Finds the series of a key, and claims it by `hold`; makes it if there is none. `None` if the
    /// update counts in the overflow series.
    pub(super) fn find_or_make(
        &self,
        keyed: &DynamicSeries,
        key: Option<Key<'_>>,
        hold: &dyn Fn(u32),
    ) -> Option<Found> {
        let key = key?;
        keyed
            .find_live(&key, hold)
            .or_else(|| keyed.find_or_make(&key, hold, || self.inner.now(), self.sides()))
    }

    /// Changes the cells of a series as [`Family::update`] does, if it was not found at once.
    /// Returns the series, unless it was the overflow series.
    #[cold]
    pub(super) fn update_slowly(
        &self,
        keyed: &DynamicSeries,
        key: Option<Key<'_>>,
        act: &dyn Fn(SeriesCells<'_>),
    ) -> Option<Found> {
        if let Some(claim) = keyed.claim() {
            if let Some(found) = self.find_or_make(keyed, key, &|at| claim.set(at)) {
                act(keyed.place(found.at));
                return Some(found);
            }
        } else if let Some(key) = key
            && keyed.update_locked(&key, self.inner.now(), self.sides(), act)
        {
            return None;
        }
        act(keyed.place(self.inner.overflow_of(keyed).at));
        // A reset may have hidden it meanwhile.
        keyed.find_overflow();
        None
    }

    fn sides(&self) -> Option<(&Self, &dyn SideAllocations)> {
        self.inner.sides.get().map(|sides| (self, &**sides))
    }
}

impl Inner {
    /// The slot of the labels that were written; the overflow's slot if they are unknown.
    #[inline]
    fn slot(&self, writer: &KeyWriter<'_>, dense: &Dense) -> u32 {
        match writer.group() {
            Some(group) if group < self.groups => group,
            _ => self.overflow_slot(dense),
        }
    }

    #[cold]
    fn overflow_slot(&self, dense: &Dense) -> u32 {
        self.head[at::OVERFLOWED].fetch_add(1, Ordering::Relaxed);
        dense.slots() - 1
    }

    /// The words of the lock of [`Family::try_folding`].
    pub(super) fn folding_words(&self) -> (&AtomicU64, &AtomicU64) {
        (&self.head[at::FOLDING], &self.head[at::FOLDING_BROKEN])
    }

    #[cold]
    fn overflow_of(&self, keyed: &DynamicSeries) -> Found {
        self.head[at::OVERFLOWED].fetch_add(1, Ordering::Relaxed);
        keyed.find_overflow()
    }

    fn view<'a>(&self, dense: &'a Dense, slot: u32) -> Option<View<'a>> {
        let place = dense.place(slot);
        if !dense.is_marked(slot) && place.is_zero(self.schema.floats) {
            return None;
        }
        let overflow = slot == self.groups;
        let start = match dense.start(slot) {
            0 => self.created,
            start => start,
        };
        Some(View { group: slot, texts: &[], plain: true, overflow, start, place })
    }

    fn now(&self) -> Moment {
        moment(&self.segment, self.clock.as_ref())
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.inner.schema.name).finish_non_exhaustive()
    }
}

impl SeriesHandle {
    fn new(
        family: &Family,
        place: SeriesCells<'_>,
        (record, slot): (Option<(u32, u32)>, u32),
        held: u64,
    ) -> Self {
        // SAFETY: the handle owns a share of the family, which keeps the region alive; `place`
        // gives it out for no longer than the handle lives.
        let place = unsafe { std::mem::transmute::<SeriesCells<'_>, SeriesCells<'static>>(place) };
        let (held, other) = (AtomicU64::new(held), AtomicPtr::new(ptr::null_mut()));
        Self { place, record, slot, held, other, family: family.clone() }
    }

    /// The cells of the series.
    #[inline]
    pub fn place(&self) -> &SeriesCells<'_> {
        // Acquire: another thread may have claimed the record before it stored this.
        let held = self.held.load(Ordering::Acquire);
        if held_by(held) == fork::generation() { &self.place } else { self.inherit() }
    }

    /// The family of the series.
    #[inline]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Notes that the series counts from zero as of now, after the caller has set it to zero.
    pub fn restart(&self) {
        let inner = &self.family.inner;
        match (self.record, &inner.layout) {
            (Some((at, generation)), Series::Dynamic(keyed)) => {
                keyed.restart_series(at, generation, inner.now());
            }
            (None, Series::Dense(dense)) => dense.restart(self.slot, inner.now().unix),
            _ => {}
        }
    }

    /// Whether the series was removed since: then counts through the handle are not shown.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match (self.record, &self.family.inner.layout) {
            (Some((at, generation)), Series::Dynamic(keyed)) => !keyed.is_series(at, generation),
            _ => false,
        }
    }

    /// In a child of a fork, where the claim is its parent's: claims the record for the child, if
    /// the series still has it.
    #[cold]
    fn inherit(&self) -> &SeriesCells<'_> {
        let inner = &*self.family.inner;
        let (before, generation) = (self.held.load(Ordering::Acquire), fork::generation());
        if held_by(before) == generation {
            return &self.place;
        }
        let Some((at, series)) = self.record else {
            self.held.store(held(generation, None), Ordering::Release);
            return &self.place;
        };
        let Series::Dynamic(keyed) = &inner.layout else { return &self.place };
        if keyed.is_overflow(at) {
            // It is never removed.
            self.held.store(held(generation, None), Ordering::Release);
            return &self.place;
        }
        if self.other.load(Ordering::Acquire).is_null() {
            let Some(claim) = keyed.claim_for_handle() else {
                let place = keyed.place(inner.overflow_of(keyed).at);
                // SAFETY: as in `new`.
                let place =
                    unsafe { std::mem::transmute::<SeriesCells<'_>, SeriesCells<'static>>(place) };
                return self.replace(OtherCells { place, _own: Box::default() });
            };
            keyed.hold(claim, at);
            if keyed.is_series(at, series) {
                let after = held(generation, Some(claim));
                // Release: a thread that finds it finds the claim. Acquire: another thread may be
                // faster.
                let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
                if self.held.compare_exchange(before, after, success, failure).is_err() {
                    keyed.give_back(claim);
                }
                return &self.place;
            }
            keyed.give_back(claim);
        }
        self.replace(OtherCells::new(self.place.len()))
    }

    /// Puts other cells in place of those of the series, unless there are some already.
    fn replace(&self, other: OtherCells) -> &SeriesCells<'_> {
        let null = ptr::null_mut();
        let own = Box::into_raw(Box::new(other));
        // Release: a thread that finds them finds all of them. Acquire: another thread may be
        // faster.
        let stored = self.other.compare_exchange(null, own, Ordering::AcqRel, Ordering::Acquire);
        let other = stored.map_or_else(
            |found| {
                // SAFETY: no other thread knows of these.
                drop(unsafe { Box::from_raw(own) });
                found
            },
            |_| own,
        );
        // SAFETY: they are freed with the handle.
        unsafe { &(*other).place }
    }
}

impl OtherCells {
    /// Cells that are never shown.
    fn new(count: usize) -> Self {
        let own: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let first = ptr::NonNull::from(&*own).cast();
        // At most 512.
        let count = count as u32;
        // SAFETY: there is one lane of that many cells, which are freed with this.
        Self { place: unsafe { SeriesCells::new(first, count, (0, 1), None) }, _own: own }
    }
}

/// The word of a handle for its claim.
fn held(generation: u32, claim: Option<HandleClaim>) -> u64 {
    u64::from(generation) << 32 | claim.map_or(0, |claim| claim.0.into())
}

/// The generation of the process that made a claim.
#[inline]
fn held_by(held: u64) -> u32 {
    // Truncation is meant: the upper half.
    (held >> 32) as u32
}

impl Clone for SeriesHandle {
    fn clone(&self) -> Self {
        let generation = fork::generation();
        let copy = |held| Self::new(&self.family, self.place, (self.record, self.slot), held);
        // Like an inherited one, it finds out by itself what it can claim.
        let inherited = held(!generation, None);
        let is_own = ptr::eq(self.place(), &self.place);
        let (Some((at, series)), Series::Dynamic(keyed)) = (self.record, &self.family.inner.layout)
        else {
            return copy(held(generation, None));
        };
        if !is_own || keyed.is_overflow(at) {
            return copy(inherited);
        }
        let Some(claim) = keyed.claim_for_handle() else { return copy(inherited) };
        keyed.hold(claim, at);
        if keyed.is_series(at, series) || keyed.hold_again(claim, at).is_ok() {
            return copy(held(generation, Some(claim)));
        }
        keyed.give_back(claim);
        copy(inherited)
    }
}

impl Drop for SeriesHandle {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        // Truncation is meant: the lower half.
        let claim = held as u32;
        // Only the parent gives back what the parent claimed.
        if claim != 0
            && held_by(held) == fork::generation()
            && let Series::Dynamic(keyed) = &self.family.inner.layout
        {
            keyed.give_back(HandleClaim(claim));
        }
        let other = *self.other.get_mut();
        if !other.is_null() {
            // SAFETY: `replace` made it from a box, and nothing uses it any more.
            drop(unsafe { Box::from_raw(other) });
        }
    }
}

impl fmt::Debug for SeriesHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeriesHandle")
            .field("family", &self.family.inner.schema.name)
            .finish_non_exhaustive()
    }
}

/// Validates all families, without changing any. If power was lost, what it may have destroyed is
/// cut off later, when the families are mended.
pub(crate) fn inspect(segment: &Segment) -> Result<(), Error> {
    let mut claims = Vec::new();
    if !segment.may_have_lost_power() {
        for block in segment.claim_blocks().iter() {
            let block = block.map_err(|at| {
                let at = at.saturating_mul(CELL_BYTES);
                let what = format!("its block of claims at {at} lies outside of the bytes in use");
                Error::damaged(segment, what)
            })?;
            claims.push(block.range());
        }
    }
    claims.push(0..HEADER_BYTES / CELL_BYTES);
    let mut slabs = Vec::new();
    for record in segment.records() {
        let record = record?;
        let end = record.offset() / CELL_BYTES + record.cells().len() as u64;
        let whole = (record.offset() - RECORD_BYTES) / CELL_BYTES..end;
        match Slab::of(&record) {
            Some(slab) => {
                let lane = slab.lane();
                claims.push(whole.start..lane.start);
                claims.push(lane.end..whole.end);
                slabs.push(slab);
            }
            None => claims.push(whole),
        }
    }
    for family in all_families(segment)? {
        match &family.inner.layout {
            Series::Dense(dense) => claims.extend(dense.claims(&slabs)),
            Series::Dynamic(keyed) => {
                keyed.inspect(segment.may_have_lost_power(), &mut claims).map_err(|what| {
                    let what = format!("its family {:?}: {what}", family.inner.schema.name);
                    Error::damaged(segment, what)
                })?;
            }
        }
    }
    let used = segment.used() / CELL_BYTES;
    if let Some(claim) = claims.iter().find(|claim| claim.end > used) {
        let what = format!(
            "a part of its families at {} ends outside of the bytes in use",
            claim.start.saturating_mul(CELL_BYTES)
        );
        return Err(Error::damaged(segment, what));
    }
    claims.sort_by_key(|claim| claim.start);
    for pair in claims.windows(2) {
        if pair[0].end > pair[1].start {
            let what = format!(
                "two parts of its families overlap at {}",
                pair[1].start.saturating_mul(CELL_BYTES)
            );
            return Err(Error::damaged(segment, what));
        }
    }
    Ok(())
}

/// Mends all families, in a file that no other process has open.
pub(crate) fn mend(segment: &Segment) -> Result<(), Error> {
    // All are opened before the first is changed.
    let families = all_families(segment)?;
    let blocks = segment.claim_blocks();
    if segment.may_have_lost_power() {
        // The words there may now belong to something else.
        blocks.root.store(0, Ordering::Relaxed);
    } else {
        blocks.free_all();
    }
    let (word, broken) = segment.making_words();
    word.store(0, Ordering::Relaxed);
    broken.store(0, Ordering::Relaxed);
    let slabs = segment.records().filter_map(|record| record.ok().as_ref().and_then(Slab::of));
    let slabs: Vec<Slab> = slabs.collect();
    for family in families {
        match &family.inner.layout {
            // A power loss may have set back the number of words in use of a slab.
            Series::Dense(dense) => slabs.iter().for_each(|slab| slab.keep(dense)),
            Series::Dynamic(keyed) => keyed.mend_alone(Moment::now(segment))?,
        }
    }
    Ok(())
}

/// The families, in the order in which they were made, whether mended or not.
fn all_families(segment: &Segment) -> Result<Vec<Family>, Error> {
    families_since(segment, 0).map(|(families, _)| families)
}

fn families_since(segment: &Segment, last: u64) -> Result<(Vec<Family>, u64), Error> {
    let (mut families, mut newest) = (Vec::new(), None);
    for record in segment.records() {
        let record = record?;
        let at = record.offset() - RECORD_BYTES;
        newest.get_or_insert(at);
        if at == last {
            break;
        }
        if record.kind().tag() == FAMILY.tag() {
            families.push(Family::open(segment, &record, None)?);
        }
    }
    families.reverse();
    Ok((families, newest.unwrap_or(0)))
}

fn keyed_view<'a>(keyed: &'a DynamicSeries, seen: &keyed::Seen<'a>) -> View<'a> {
    View {
        group: seen.group,
        texts: seen.texts,
        plain: seen.plain,
        overflow: seen.overflow,
        start: seen.start,
        place: keyed.place(seen.at),
    }
}

/// Whether the series of a family are found by arithmetic.
fn is_dense(schema: &Schema, groups: u32) -> bool {
    let words = (u64::from(groups) + 1) * u64::from(schema.cells);
    words <= MOST_DENSE_WORDS && schema.labels.iter().all(|label| label.values.is_some())
}

/// The most words, in one lane, of a family whose series are found by arithmetic.
const MOST_DENSE_WORDS: u64 = 1 << 16;

/// The time now, by the clock that is set by hand, if there is one, or else by the machine's.
fn moment(segment: &Segment, clock: Option<&Manual>) -> Moment {
    match clock {
        Some(clock) => Moment { unix: clock.unix(), time: clock.now() },
        None => Moment::now(segment),
    }
}

/// The bytes of the description in a family's head; `None` if they do not lie inside it.
fn schema_bytes(head: &Cells, is_dense: bool) -> Option<Vec<u8>> {
    let start = if is_dense { at::END } else { keyed::head::END };
    let length = usize::try_from(head[at::SCHEMA_BYTES].load(Ordering::Relaxed)).ok()?;
    let words = head.get(start..).filter(|words| length <= words.len() * 8)?;
    let bytes = words.iter().flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes());
    Some(bytes.take(length).collect())
}

/// The name by which the family in a record is found, if the record has one: the whole name if the
/// record can be read.
pub(crate) fn name_in(record: &Record) -> Option<String> {
    if record.kind().tag() != FAMILY.tag() {
        return None;
    }
    let head = record.cells();
    let is_ours = record.kind() == FAMILY && head.len() >= at::END;
    let is_dense = || head[at::DENSE].load(Ordering::Relaxed) != 0;
    let bytes = is_ours.then(|| schema_bytes(head, is_dense())).flatten();
    match bytes.and_then(|bytes| Schema::name_in(&bytes)) {
        Some((_, true)) => None,
        Some((name, false)) => Some(name),
        None => Some(record.name().to_owned()),
    }
}

/// The part of a name that fits into the name of a record.
fn record_name(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

const _: () = assert!(CELL_BYTES == 8);
