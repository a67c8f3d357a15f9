//! A family: all series of one metric, for example `http_requests_total` for each method and
//! status.
//!
//! You open or create a family with [`Segment::family`]. An update first looks up the series
//! without a lock. If it does not find the series, `update_slowly` creates it or counts in the
//! overflow series.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::time::Duration;

use super::cells::SeriesCells;
use super::dense::Dense;
use super::handle::{SeriesHandle, pack_claim};
use super::key::{Key, KeyWriter, PackedValues, Secrets};
use super::keyed::{self, DynamicSeries, FoundRecord, Moment};
use super::lanes::Layout;
use super::meta;
use super::names::Names;
use super::schema::{Identity, Schema};
use super::side::SideAllocations;
use super::strings::StringSet;
use super::walk::{View, keyed_view};
use crate::cells::Cells;
use crate::clock::{Clock, TestClock};
use crate::error::Error;
use crate::fork;
use crate::layout::{Kind, NAME_BYTES, RECORD_BYTES};
use crate::lock::{self, StuckLock};
use crate::offset::WordOffset;
use crate::segment::{Record, RegistrationGuard, Segment};
use crate::slots::Claim;
use crate::sync::{Arc, AtomicU64, Ordering};

/// The kind of a family's record.
pub(crate) const FAMILY: Kind = Kind::new(*b"FMLY", 5);

/// The indexes of the words in a family's head, which is the start of its record.
pub(crate) mod at {
    pub(crate) const SCHEMA_BYTES: usize = 0;
    pub(crate) const DENSE: usize = 1;
    pub(crate) const MARKS: usize = 2;
    pub(crate) const CREATED: usize = 3;
    pub(crate) const FOLDING: usize = 5;
    pub(crate) const OVERFLOWED: usize = 14;
    pub(crate) const FOLDING_BROKEN: usize = 15;
    /// In a freed family: the offset of the next freed family's record.
    pub(crate) const NEXT_FREED: usize = FOLDING_BROKEN;
    pub(crate) const END: usize = 16;
}

/// A handle to a family. Clones refer to the same family.
#[derive(Clone)]
pub struct Family {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) segment: Segment,
    pub(super) head: Cells,
    pub(super) schema: Schema,
    pub(super) sets: Vec<Option<StringSet>>,
    pub(super) groups: u32,
    pub(super) created: u64,
    pub(super) layout: Series,
    clock: Option<TestClock>,
    /// Set by the thread that creates the handle, before any other thread can use the handle. So no
    /// thread waits here.
    #[allow(
        clippy::disallowed_types,
        reason = "no child of a fork has a handle in which it is being set"
    )]
    sides: std::sync::OnceLock<Arc<dyn SideAllocations>>,
    /// The tracker for the lock of [`Family::try_folding`].
    pub(super) folding: StuckLock,
    /// The offset of the family's record, which is unique.
    id: u64,
}

/// The storage of the series.
pub(super) enum Series {
    Dense(Dense),
    Dynamic(DynamicSeries),
}

/// The cells of a series that was found. As long as this value lives, no other series can use the
/// cells, even if the series is removed.
pub struct ClaimedCells<'f> {
    cells: SeriesCells<'f>,
    _by: ClaimOrLock<'f>,
}

impl fmt::Debug for ClaimedCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedCells").finish_non_exhaustive()
    }
}

/// A reason why the record of a series cannot be reused now.
#[expect(dead_code, reason = "they are held until they are dropped")]
pub(super) enum ClaimOrLock<'f> {
    Claim(Claim<'f>),
    /// The family's lock, for a thread that cannot get a claim.
    Lock(lock::Guard<'f>),
    /// A dense series is not stored in a record, and always exists.
    Arithmetic,
}

impl<'f> ClaimedCells<'f> {
    pub(super) fn new(cells: SeriesCells<'f>, by: ClaimOrLock<'f>) -> Self {
        Self { cells, _by: by }
    }
}

impl<'f> std::ops::Deref for ClaimedCells<'f> {
    type Target = SeriesCells<'f>;

    fn deref(&self) -> &SeriesCells<'f> {
        &self.cells
    }
}

impl Segment {
    /// Opens the family with the name in `schema`, or creates it. A family with [`Identity::Apart`]
    /// is always created, because lookups never find one.
    ///
    /// # Errors
    /// If the description is invalid or contradicts the existing family, or if the segment is full.
    /// Also returns the errors of the disk.
    #[doc(hidden)]
    pub fn family(&self, schema: &Schema) -> Result<Family, Error> {
        Family::open_or_make(self, Cow::Borrowed(schema), None)
    }

    /// Like [`Segment::family`], but consumes the description. Use this if you do not need the
    /// description afterwards, because a new family then stores it without a copy.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::family`].
    #[doc(hidden)]
    pub fn family_of(&self, schema: Schema) -> Result<Family, Error> {
        Family::open_or_make(self, Cow::Owned(schema), None)
    }

    /// Like [`Segment::family`], with a clock that your test sets.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::family`].
    #[doc(hidden)]
    pub fn family_at(&self, schema: &Schema, clock: TestClock) -> Result<Family, Error> {
        Family::open_or_make(self, Cow::Borrowed(schema), Some(clock))
    }

    /// Returns the families, oldest first.
    ///
    /// # Errors
    /// If the record of a family contradicts itself.
    #[doc(hidden)]
    pub fn families(&self) -> Result<Vec<Family>, Error> {
        self.ensure_marked_open()?;
        all_families(self)
    }

    /// Returns the families created after the record with this number, oldest first, and the number
    /// of the newest record. Pass 0 for all families.
    ///
    /// # Errors
    /// If the record of a family contradicts itself.
    #[doc(hidden)]
    pub fn families_since(&self, newest: u64) -> Result<(Vec<Family>, u64), Error> {
        self.ensure_marked_open()?;
        families_since(self, newest)
    }

    /// Returns the number of the newest record. While this number stays the same, there are no new
    /// families. It can decrease, because a record can be reserved before another one, and
    /// published after it.
    #[doc(hidden)]
    pub fn newest(&self) -> u64 {
        self.root()
    }
}

impl RegistrationGuard<'_> {
    /// Like [`Segment::family`], for a caller that looked at other families while it held this
    /// guard.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::family`].
    pub fn family(&self, schema: &Schema) -> Result<Family, Error> {
        FamilyRequest::new(self.segment(), Cow::Borrowed(schema), None)?.find_or_make(self)
    }
}

/// A request to open or create a family. Its description was checked.
pub(super) struct FamilyRequest<'s> {
    pub(super) schema: Cow<'s, Schema>,
    /// The number of combinations of its fixed label values.
    pub(super) groups: u32,
    /// The name for looking up a variant.
    variant: Option<String>,
    pub(super) clock: Option<TestClock>,
}

impl<'s> FamilyRequest<'s> {
    fn new(
        segment: &Segment,
        schema: Cow<'s, Schema>,
        clock: Option<TestClock>,
    ) -> Result<Self, Error> {
        let fail = |message: String| {
            Error::request(segment, format!("the family {:?}: {message}", schema.name))
        };
        let groups = schema.check().map_err(fail)?;
        let is_variant = schema.identity == Identity::Variant;
        let variant = is_variant.then(|| schema.lookup_name().into_owned());
        Ok(Self { schema, groups, variant, clock })
    }

    /// Returns the name for lookups; `None` for [`Identity::Apart`].
    pub(super) fn name(&self) -> Option<&str> {
        match self.schema.identity {
            Identity::Name => Some(&self.schema.name),
            Identity::Variant => self.variant.as_deref(),
            Identity::Apart => None,
        }
    }

    fn find_or_make(self, registration: &RegistrationGuard<'_>) -> Result<Family, Error> {
        let segment = registration.segment();
        match self.find(segment)? {
            Some(family) => Ok(family),
            None => Family::make(segment, self),
        }
    }

    /// Returns the family of this name, if others can find it. This takes no lock that other
    /// processes hold, and its cost does not depend on the number of families.
    fn find(&self, segment: &Segment) -> Result<Option<Family>, Error> {
        let Some(name) = self.name() else { return Ok(None) };
        let short = record_name(&self.schema.name);
        let Some(record) = Names::in_segment(segment).family(segment, name, short)? else {
            return Ok(None);
        };
        let family = Family::open(segment, &record, self.clock.clone())?;
        if family.inner.schema.lookup_name() != name {
            // The record is another family's: only the truncated names are equal.
            return Ok(None);
        }
        match family.inner.schema.contradiction(&self.schema) {
            None => Ok(Some(family)),
            Some(difference) => {
                let message = format!("family {:?}: {difference}", self.schema.name);
                Err(Error::mismatch(segment, message))
            }
        }
    }
}

impl Family {
    fn open_or_make(
        segment: &Segment,
        schema: Cow<'_, Schema>,
        clock: Option<TestClock>,
    ) -> Result<Self, Error> {
        let wanted = FamilyRequest::new(segment, schema, clock)?;
        segment.ensure_marked_open()?;
        match wanted.find(segment)? {
            Some(family) => Ok(family),
            None => wanted.find_or_make(&segment.lock_registration()?),
        }
    }

    pub(super) fn open(
        segment: &Segment,
        record: &Record,
        clock: Option<TestClock>,
    ) -> Result<Self, Error> {
        let fail = |message: &str| {
            Error::damaged(segment, format!("its family {:?}: {message}", record.name()))
        };
        if record.kind() != FAMILY {
            return Err(Error::record_version(segment, record, FAMILY));
        }
        let head = record.cells();
        if head.len() < at::END {
            return Err(fail("its record is too short"));
        }
        let layout = head[at::DENSE].load(Ordering::Relaxed);
        let bytes = schema_bytes(head, layout != 0)
            .ok_or_else(|| fail("its description is longer than its record"))?;
        let (schema, groups) =
            Schema::decode_with_groups(&bytes).map_err(|reason| fail(&reason))?;
        if is_dense(&schema, groups) != (layout != 0) {
            return Err(fail("the layout of its series contradicts its labels"));
        }
        let series = if layout == 0 {
            let created = head[at::CREATED].load(Ordering::Relaxed);
            Series::Dynamic(DynamicSeries::open(segment, head, &schema, groups, created))
        } else {
            let dense = open_dense(segment, head, &schema, groups);
            Series::Dense(dense.ok_or_else(|| fail("its series lie outside of the segment"))?)
        };
        Ok(Self::with_series(segment, record, (schema, groups), series, clock))
    }

    /// Returns a handle to the family in a record. Its description was checked, and `layout`
    /// describes the storage of its series.
    pub(super) fn with_series(
        segment: &Segment,
        record: &Record,
        (schema, groups): (Schema, u32),
        layout: Series,
        clock: Option<TestClock>,
    ) -> Self {
        let sets = schema.labels.iter().map(|label| {
            let texts: Vec<&str> = label.values.as_ref()?.iter().map(String::as_str).collect();
            // `check` ensured that no value occurs twice.
            StringSet::new(&texts).ok()
        });
        let sets = sets.collect();
        let head = record.cells().clone();
        let created = head[at::CREATED].load(Ordering::Relaxed);
        let (segment, id) = (segment.clone(), record.offset().get());
        let (sides, folding) = (Default::default(), StuckLock::default());
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
        Self { inner: Arc::new(inner) }
    }

    /// Returns the description of the family.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// Returns the number of combinations of fixed label values.
    pub fn groups(&self) -> u32 {
        self.inner.groups
    }

    /// Returns whether the storage of each series is computed from its labels, without an index.
    /// All series then always exist, and removing one only resets it.
    pub fn is_dense(&self) -> bool {
        matches!(self.inner.layout, Series::Dense(_))
    }

    /// Gives each CPU a separate copy of the cells now. Without this call, a family on a machine
    /// with many CPUs gets the copies once threads contend for its cells, or add often. For tests
    /// and benchmarks.
    #[doc(hidden)]
    pub fn stripe(&self) {
        if let Series::Dense(dense) = &self.inner.layout {
            dense.earn();
        }
    }

    /// Returns the Unix time in nanoseconds of its creation.
    pub fn created(&self) -> u64 {
        self.inner.created
    }

    /// Returns a number that no other family of the segment shares.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Returns the segment of the family.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Returns the number of updates that counted in the overflow series, because there were too
    /// many series, a value was not among the fixed ones, or the segment was full.
    pub fn overflowed(&self) -> u64 {
        self.inner.head[at::OVERFLOWED].load(Ordering::Relaxed)
    }

    /// Returns the number of its series, including idle ones that are hidden.
    pub fn len(&self) -> u64 {
        match &self.inner.layout {
            Series::Dense(dense) => {
                let floats = self.inner.schema.floats;
                let is_there =
                    |slot: &u32| dense.is_marked(*slot) || !dense.cells_at(*slot).is_zero(floats);
                (0..dense.slots()).filter(is_there).count() as u64
            }
            Series::Dynamic(keyed) => keyed.len(),
        }
    }

    /// Returns whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `n` to a cell of the series with these labels.
    #[inline(always)]
    pub fn add(&self, labels: impl Fn(&mut KeyWriter<'_>), cell: usize, n: u64) {
        self.update(labels, move |cells| cells.add(cell, n));
    }

    /// Calls `act` on the cells of the series with these labels, and creates the series if
    /// necessary. This takes no lock, except to create a series.
    ///
    /// `act` changes only this series, even if it takes long. If the series is removed in the
    /// meantime, the change may be lost.
    ///
    /// This function is always inlined, so that the labels stay in registers. Everything except
    /// arithmetic and additions is in separate functions.
    #[inline(always)]
    pub fn update(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(SeriesCells<'_>)) {
        match &self.inner.layout {
            Series::Dense(dense) => self.update_slot(dense, labels, act),
            Series::Dynamic(keyed) => self.update_dynamic(keyed, labels, act),
        }
    }

    /// Like [`Family::update`], but ignores a family with a dynamic label. You can use this to
    /// inline less code.
    #[inline(always)]
    pub fn update_dense(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(SeriesCells<'_>)) {
        if let Series::Dense(dense) = &self.inner.layout {
            self.update_slot(dense, labels, act);
        }
    }

    #[inline(always)]
    fn update_slot(
        &self,
        dense: &Dense,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(SeriesCells<'_>),
    ) {
        let mut writer = KeyWriter::of_group(&self.inner.sets);
        labels(&mut writer);
        let group = writer.group();
        match group.and_then(|group| dense.cells_near(group)) {
            Some(cells) => act(cells),
            None => self.update_far(dense, group, act),
        }
    }

    /// [`Family::update`] for a slot beyond the first slab, or for one that does not exist.
    #[cold]
    #[inline(never)]
    fn update_far(&self, dense: &Dense, group: Option<u32>, act: impl Fn(SeriesCells<'_>)) {
        act(dense.cells_at(self.inner.slot(group, dense)));
    }

    /// [`Family::update`] if a label is dynamic. Out of line, because this keeps `update` small
    /// enough for inlining.
    #[inline(never)]
    fn update_dynamic(
        &self,
        keyed: &DynamicSeries,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(SeriesCells<'_>),
    ) {
        let mut texts = PackedValues::new(keyed.secrets());
        let mut writer = KeyWriter::new(&self.inner.sets, &mut texts);
        labels(&mut writer);
        let group = writer.group();
        if let Some(group) = group
            && let Some(claim) = keyed.claim_at_hand()
            && let Some(cells) = keyed.find_cells(group, &mut texts, claim.hold())
        {
            act(cells);
            // The short key is only on the stack, so skip the check for a spilled one.
            mem::forget(texts);
            return;
        }
        self.update_unfound(keyed, group, &mut texts, act);
    }

    /// Updates a series that was not found at once. All arguments are passed by value, because they
    /// then stay in registers until this call.
    #[cold]
    #[inline(never)]
    fn update_unfound(
        &self,
        keyed: &DynamicSeries,
        group: Option<u32>,
        texts: &mut PackedValues,
        act: impl Fn(SeriesCells<'_>),
    ) {
        let key = group.and_then(|group| texts.finish(group, keyed.secrets(), keyed.texts));
        let _ = self.update_slowly(keyed, key, &act);
    }

    /// Like [`Family::update`], for values that must be shown even if they are zero.
    #[inline]
    pub fn update_shown(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(SeriesCells<'_>)) {
        let inner = &*self.inner;
        if let Series::Dense(dense) = &inner.layout {
            let mut writer = KeyWriter::of_group(&inner.sets);
            labels(&mut writer);
            let slot = inner.slot(writer.group(), dense);
            dense.mark(slot);
            act(dense.cells_at(slot));
        } else {
            self.update(labels, act);
        }
    }

    /// Returns a handle to the series with these labels. Creates the series if necessary, and shows
    /// it from now on.
    pub fn bind(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> SeriesHandle {
        let inner = &self.inner;
        let mut texts = PackedValues::new(inner.secrets());
        let mut writer = KeyWriter::new(&inner.sets, &mut texts);
        labels(&mut writer);
        let (cells, record, slot, claim) = match &inner.layout {
            Series::Dense(dense) => {
                let slot = inner.slot(writer.group(), dense);
                dense.mark(slot);
                (dense.cells_at(slot), None, slot, None)
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
                (keyed.cells_at(found.at), Some(record), 0, claim)
            }
        };
        let claim = pack_claim(fork::generation(), claim);
        SeriesHandle::new(self, cells, (record, slot), claim)
    }

    /// Reads the cells of the series with these labels. Returns `None` if there is no such series,
    /// and does not create it. This takes a lock only while the family's index is changing, and
    /// never waits for the lock. It returns `None`, too, if the lock would be needed to find out.
    pub fn read<R>(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        read: impl Fn(SeriesCells<'_>) -> R,
    ) -> Option<R> {
        let inner = &*self.inner;
        let mut texts = PackedValues::new(inner.secrets());
        let mut writer = KeyWriter::new(&inner.sets, &mut texts);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < inner.groups)?;
                inner.view(dense, slot).map(|view| read(view.cells))
            }
            Series::Dynamic(keyed) => {
                let key = writer.finish(keyed.secrets(), keyed.texts)?;
                let Some(claim) = keyed.claim() else {
                    return keyed.read_locked(&key, read);
                };
                let found = keyed.find_surely(&key, |at| claim.set(at)).ok()??;
                keyed.is_shown(found).then(|| read(keyed.cells_at(found.at)))
            }
        }
    }

    /// Removes the series with these labels. Returns false if there is no such series. A later
    /// update creates a new series, which starts at zero.
    ///
    /// # Errors
    /// [`ErrorKind::Held`](crate::ErrorKind::Held) if another process holds the lock of a file for
    /// a second, for example because it is stopped. Also returns other errors of the lock.
    pub fn remove(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<bool, Error> {
        self.remove_within(labels, lock::REMOVAL)
    }

    /// Like [`Family::remove`], but returns [`ErrorKind::Held`](crate::ErrorKind::Held) at once if
    /// another thread holds the family's lock. Use this in scrapes, because they never wait.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn try_remove(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<bool, Error> {
        self.remove_within(labels, lock::SCRAPE)
    }

    fn remove_within(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        wait: Duration,
    ) -> Result<bool, Error> {
        let inner = &*self.inner;
        let mut texts = PackedValues::new(inner.secrets());
        let mut writer = KeyWriter::new(&inner.sets, &mut texts);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => {
                let Some(slot) = writer.group().filter(|&group| group < inner.groups) else {
                    return Ok(false);
                };
                let is_zero = dense.cells_at(slot).is_zero(inner.schema.floats);
                let was_there = dense.is_marked(slot) || !is_zero;
                self.reset_slot(dense, slot);
                Ok(was_there)
            }
            Series::Dynamic(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => keyed.remove(&key, wait),
                None => Ok(false),
            },
        }
    }

    /// Removes all series where `keep` returns false, and returns their number. Other threads can
    /// add and remove series at the same time; an added series may stay without a call of `keep`.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn retain(&self, mut keep: impl FnMut(&View<'_>) -> bool) -> Result<u64, Error> {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(dense) => {
                let mut removed = 0;
                for slot in 0..inner.groups {
                    let Some(view) = inner.view(dense, slot) else { continue };
                    if !keep(&view) {
                        self.reset_slot(dense, slot);
                        removed += 1;
                    }
                }
                Ok(removed)
            }
            Series::Dynamic(keyed) => keyed.retain(|seen| keep(&keyed_view(*seen))),
        }
    }

    /// Removes all series.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn clear(&self) -> Result<u64, Error> {
        self.retain(|_| false)
    }

    /// Resets all series. A series with a handle, or without a dynamic label, stays at zero, and
    /// the others are removed. Additions of other threads at the same time may be lost, or stay.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn reset(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.head[at::OVERFLOWED].store(0, Ordering::Relaxed);
        match &inner.layout {
            Series::Dense(dense) => {
                for slot in 0..dense.slots() {
                    let is_marked = dense.is_marked(slot) && slot < inner.groups;
                    self.reset_slot(dense, slot);
                    if is_marked {
                        dense.mark(slot);
                    }
                }
                Ok(())
            }
            Series::Dynamic(keyed) => keyed.reset(inner.now(), self.sides()),
        }
    }

    /// Hides the series that were idle for longer than the description allows. Series with cells
    /// that are not sums are removed instead. If a hidden series changes, it is shown again, and
    /// continues from its last total.
    ///
    /// This never waits. If another thread holds the family's lock, the skipped series are left to
    /// the next sweep.
    ///
    /// # Errors
    /// Returns the errors of [`Family::remove`].
    pub fn sweep(&self) -> Result<(), Error> {
        match &self.inner.layout {
            Series::Dense(_) => Ok(()),
            Series::Dynamic(keyed) => keyed.sweep(self.inner.now()),
        }
    }
}

impl Family {
    /// Sets, once, the kinds of side allocations that the series use. The side allocations of a
    /// removed series are then emptied for the next series in its record, instead of being
    /// allocated again. If a series is reset, its side allocations are emptied, too.
    pub fn set_side_allocations(&self, sides: Arc<dyn SideAllocations>) {
        let _ = self.inner.sides.set(sides);
    }

    /// Finds or creates the series of a key, and claims it with `hold`. Returns `None` if the
    /// update counts in the overflow series.
    pub(super) fn find_or_make(
        &self,
        keyed: &DynamicSeries,
        key: Option<Key<'_>>,
        hold: &dyn Fn(WordOffset),
    ) -> Option<FoundRecord> {
        let key = key?;
        keyed
            .find_live(&key, hold)
            .or_else(|| keyed.find_or_make(&key, hold, || self.inner.now(), self.sides()))
    }

    /// Changes the cells of a series that [`Family::update`] did not find at once. Returns the
    /// series, unless it was the overflow series.
    #[cold]
    pub(super) fn update_slowly(
        &self,
        keyed: &DynamicSeries,
        key: Option<Key<'_>>,
        act: &dyn Fn(SeriesCells<'_>),
    ) -> Option<FoundRecord> {
        if let Some(claim) = keyed.claim() {
            if let Some(found) = self.find_or_make(keyed, key, &|at| claim.set(at)) {
                act(keyed.cells_at(found.at));
                return Some(found);
            }
        } else if let Some(key) = key
            && keyed.update_locked(&key, self.inner.now(), self.sides(), act)
        {
            return None;
        }
        act(keyed.cells_at(self.inner.overflow_of(keyed).at));
        // A reset may have hidden the overflow series in the meantime.
        keyed.find_overflow();
        None
    }

    fn reset_slot(&self, dense: &Dense, slot: u32) {
        let sides = self.inner.sides.get();
        if let Some(sides) = sides {
            sides.clear(self, &dense.cells_at(slot));
        }
        let is_offset = |cell| sides.is_some_and(|sides| sides.is_offset(cell));
        dense.reset(slot, self.inner.schema.floats, self.inner.now().unix, is_offset);
    }

    pub(super) fn sides(&self) -> Option<(&Self, &dyn SideAllocations)> {
        self.inner.sides.get().map(|sides| (self, &**sides))
    }
}

impl Inner {
    /// Returns the secrets of the hash of keys, for families with keys.
    pub(super) fn secrets(&self) -> &Secrets {
        match &self.layout {
            Series::Dense(_) => &Secrets::NONE,
            Series::Dynamic(keyed) => keyed.secrets(),
        }
    }

    /// Returns the slot of the written labels; the overflow's slot if they are unknown.
    #[inline]
    fn slot(&self, group: Option<u32>, dense: &Dense) -> u32 {
        match group {
            Some(group) if group < self.groups => group,
            _ => self.overflow_slot(dense),
        }
    }

    #[cold]
    fn overflow_slot(&self, dense: &Dense) -> u32 {
        self.head[at::OVERFLOWED].fetch_add(1, Ordering::Relaxed);
        dense.slots() - 1
    }

    /// Returns the words of the lock of [`Family::try_folding`].
    pub(super) fn folding_words(&self) -> (&AtomicU64, &AtomicU64) {
        (&self.head[at::FOLDING], &self.head[at::FOLDING_BROKEN])
    }

    #[cold]
    pub(super) fn overflow_of(&self, keyed: &DynamicSeries) -> FoundRecord {
        self.head[at::OVERFLOWED].fetch_add(1, Ordering::Relaxed);
        keyed.find_overflow()
    }

    pub(super) fn now(&self) -> Moment {
        moment(&self.segment, self.clock.as_ref())
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.inner.schema.name).finish_non_exhaustive()
    }
}

/// Returns all families, oldest first, including families that still need mending.
pub(super) fn all_families(segment: &Segment) -> Result<Vec<Family>, Error> {
    families_since(segment, 0).map(|(families, _)| families)
}

fn families_since(segment: &Segment, last: u64) -> Result<(Vec<Family>, u64), Error> {
    let (mut families, mut newest) = (Vec::new(), None);
    for record in segment.records() {
        let record = record?;
        let at = record.offset().get() - RECORD_BYTES;
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

/// Returns whether the storage of each series is computed from its labels.
pub(crate) fn is_dense(schema: &Schema, groups: u32) -> bool {
    let words = (u64::from(groups) + 1) * u64::from(schema.cells);
    words <= MAX_DENSE_WORDS && schema.labels.iter().all(|label| label.values.is_some())
}

/// The maximum size of a dense family, in words of one lane.
const MAX_DENSE_WORDS: u64 = 1 << 16;

/// Returns the current time of the family's test clock, if there is one, or of the segment.
pub(super) fn moment(segment: &Segment, clock: Option<&TestClock>) -> Moment {
    match clock {
        Some(clock) => Moment { unix: clock.unix(), time: clock.now() },
        None => Moment::now(segment),
    }
}

/// Returns the slots in the head of a family; `None` if they lie outside of the segment.
pub(super) fn open_dense(
    segment: &Segment,
    head: &Cells,
    schema: &Schema,
    groups: u32,
) -> Option<Dense> {
    let layout = Layout::unpack(head[at::DENSE].load(Ordering::Relaxed));
    let marks = u32::try_from(head[at::MARKS].load(Ordering::Relaxed));
    let marks = marks.map_or(WordOffset::NONE, WordOffset::new);
    Dense::open(segment, schema, groups + 1, layout, marks)
}

/// Returns the bytes of the description in a family's head; `None` if they lie outside of the head.
fn schema_bytes(head: &Cells, is_dense: bool) -> Option<Vec<u8>> {
    let start = if is_dense { at::END } else { keyed::head::END };
    let length = usize::try_from(head[at::SCHEMA_BYTES].load(Ordering::Relaxed)).ok()?;
    let words = head.get(start..).filter(|words| length <= size_of_val(*words))?;
    let words = &words[..length.div_ceil(size_of::<u64>())];
    let mut bytes = Vec::with_capacity(size_of_val(words));
    for word in words {
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes.truncate(length);
    Some(bytes)
}

/// Returns the lookup name of the family in a record. If its description is unreadable, this is the
/// name in the record's header, which may be truncated. Returns `None` for other records.
pub(crate) fn name_in(record: &Record) -> Option<String> {
    if record.kind().tag() != FAMILY.tag() {
        return None;
    }
    let head = record.cells();
    let is_ours = record.kind() == FAMILY && head.len() >= at::END;
    let is_dense = || head[at::DENSE].load(Ordering::Relaxed) != 0;
    let bytes = is_ours.then(|| schema_bytes(head, is_dense())).flatten();
    match bytes.and_then(|bytes| Schema::decode_lookup_name(&bytes)) {
        Some(name) => name,
        None => Some(record.name().to_owned()),
    }
}

/// Returns the part of a name that fits into a record's header.
pub(super) fn record_name(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
