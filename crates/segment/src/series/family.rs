//! A family: its description, and the ways to its series.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use super::dense::{Dense, Layout, Slab};
use super::extra::Beside;
use super::key::{Key, KeyWriter};
use super::keyed::{self, At, Found, Keyed};
use super::meta::{state, state_of};
use super::place::Place;
use super::schema::Schema;
use super::strings::StringSet;
use crate::cells::Cells;
use crate::clock::{Clock, Manual};
use crate::error::Error;
use crate::fork;
use crate::layout::{CELL_BYTES, HEADER_BYTES, Kind, NAME_BYTES, RECORD_BYTES};
use crate::readings;
use crate::segment::{Record, Segment};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The record of a family.
const FAMILY: Kind = Kind::new(*b"FMLY", 1);

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
    beside: OnceLock<Arc<dyn Beside>>,
    /// The offset of its record: what tells it from others.
    id: u64,
}

/// How its series lie.
pub(super) enum Series {
    Dense(Dense),
    Keyed(Keyed),
}

/// A series for as long as the handle lives, found once: what is added through it costs the
/// addition alone.
///
/// Removing the series does not harm the handle: what it counts then is not shown, unless all of
/// the family's labels are of fixed cardinality; then the series begins anew with it.
pub struct Bound {
    place: Place<'static>,
    /// The record that it holds, where the series is one.
    pinned: Option<u32>,
    /// The process that bound it, and how often that had forked: in a child, the record of a file is
    /// its parent's, and a child may count through it for longer than the parent.
    generation: u32,
    forks: u32,
    family: Family,
}

/// A series, as a scrape sees it.
#[derive(Debug)]
pub struct View<'a> {
    /// The number of its combination of fixed label values; the last label varies fastest.
    pub group: u32,
    /// Its dynamic label values, each behind its length: one byte below 255, else the byte 255 and
    /// four little-endian bytes.
    pub texts: &'a [u8],
    /// Whether no dynamic value has a quote, a backslash or a line feed.
    pub plain: bool,
    /// Whether it stands for all that is beyond the family's limit or values.
    pub overflow: bool,
    /// When it began to count from zero: nanoseconds of Unix time.
    pub start: u64,
    /// Its cells.
    pub place: Place<'a>,
}

/// Where a walk over a family's series is. The default is the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    slot: u32,
    record: At,
    /// Whether it is behind the last series.
    done: bool,
}

impl Segment {
    /// Opens the family of that name, or makes it.
    ///
    /// # Errors
    /// A description that no family can have, one that contradicts the family that is there, a
    /// full segment, and the disk's.
    pub fn family(&self, schema: &Schema) -> Result<Family, Error> {
        Family::open_or_make(self, schema, None)
    }

    /// As [`Segment::family`], with a clock that is set by hand, for tests.
    ///
    /// # Errors
    /// As there.
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

    /// How many records there are. It only grows: as long as it does not, there are no new
    /// families.
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
        let _making = segment.making()?;
        for record in segment.records() {
            let record = record?;
            let is_candidate =
                record.kind().tag() == FAMILY.tag() && record.name() == record_name(&schema.name);
            if !is_candidate {
                continue;
            }
            let family = Self::open(segment, &record, clock.clone())?;
            if family.inner.schema.name == schema.name {
                return match family.inner.schema.contradiction(schema) {
                    None => Ok(family),
                    Some(what) => {
                        let what = format!("the family {:?} is there, and {what}", schema.name);
                        Err(Error::mismatch(segment, what))
                    }
                };
            }
        }
        Self::make(segment, schema, groups, clock)
    }

    fn make(
        segment: &Segment,
        schema: &Schema,
        groups: u32,
        clock: Option<Manual>,
    ) -> Result<Self, Error> {
        let bytes = schema.encode();
        let is_dense = is_dense(schema, groups);
        let head = if is_dense { at::END } else { keyed::at::END };
        let name = record_name(&schema.name);
        let draft = segment.reserve(FAMILY, name, head + bytes.len().div_ceil(8))?;
        let cells = draft.cells();
        let now = clock.as_ref().map_or_else(readings::unix, Clock::unix);
        cells[at::SCHEMA_BYTES].store(bytes.len() as u64, Ordering::Relaxed);
        cells[at::CREATED].store(now, Ordering::Relaxed);
        for (cell, chunk) in cells[head..].iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        if is_dense {
            let slots = groups + 1;
            let layout = Dense::allocate(segment, schema, slots)?;
            let marks = segment.take(Dense::mark_words(slots, schema.cells))?;
            cells[at::DENSE].store(layout.pack(), Ordering::Relaxed);
            cells[at::MARKS].store(marks.into(), Ordering::Relaxed);
        } else {
            Keyed::open(segment, cells, schema, groups, now).begin(now)?;
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
        let start = if layout != 0 { at::END } else { keyed::at::END };
        let length = usize::try_from(head[at::SCHEMA_BYTES].load(Ordering::Relaxed));
        let length = length.ok().filter(|&length| {
            head.len().checked_sub(start).is_some_and(|cells| length <= cells * 8)
        });
        let length = length.ok_or_else(|| fail("its description is longer than its record"))?;
        let bytes: Vec<u8> = head[start..]
            .iter()
            .flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes())
            .take(length)
            .collect();
        let schema = Schema::decode(&bytes).map_err(|what| fail(&what))?;
        let groups = schema.check().map_err(|what| fail(&what))?;
        if is_dense(&schema, groups) != (layout != 0) {
            return Err(fail("its series do not lie as its labels say"));
        }
        let created = head[at::CREATED].load(Ordering::Relaxed);
        let layout = if layout == 0 {
            Series::Keyed(Keyed::open(segment, head, &schema, groups, created))
        } else {
            let marks = u32::try_from(head[at::MARKS].load(Ordering::Relaxed)).unwrap_or(0);
            let (slots, used) = (groups + 1, segment.used());
            let layout = Layout::unpack(layout);
            let dense = Dense::open(&segment.region, used, &schema, slots, layout, marks);
            Series::Dense(dense.ok_or_else(|| fail("its series lie outside of the bytes in use"))?)
        };
        let sets = schema.labels.iter().map(|label| {
            let texts: Vec<&str> = label.values.as_ref()?.iter().map(String::as_str).collect();
            // `decode` saw that no text is there twice.
            StringSet::new(&texts).ok()
        });
        let sets = sets.collect();
        let (segment, head, id) = (segment.clone(), head.clone(), record.offset());
        let beside = OnceLock::new();
        let inner =
            Inner { segment, head, schema, sets, groups, created, layout, clock, beside, id };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What the family says of itself.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// How many combinations of fixed label values there are.
    pub fn groups(&self) -> u32 {
        self.inner.groups
    }

    /// Whether its series are found by arithmetic: then they are always there, and to remove one is to
    /// begin it anew.
    pub fn is_dense(&self) -> bool {
        matches!(self.inner.layout, Series::Dense(_))
    }

    /// When it was made: nanoseconds of Unix time.
    pub fn created(&self) -> u64 {
        self.inner.created
    }

    /// A number that no other family of the segment has.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The segment that it lies in.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// How many updates went to the overflow's series, since they had labels that are beyond the
    /// limit, or none of the label's fixed values, or did not fit into the segment.
    pub fn overflowed(&self) -> u64 {
        self.inner.head[at::OVERFLOWED].load(Ordering::Relaxed)
    }

    /// How many series it has, those that are idle for too long included.
    pub fn len(&self) -> u64 {
        match &self.inner.layout {
            Series::Dense(dense) => {
                let floats = self.inner.schema.floats;
                let is_there =
                    |slot: &u32| dense.is_marked(*slot) || !dense.place(*slot).is_zero(floats);
                (0..dense.slots()).filter(is_there).count() as u64
            }
            Series::Keyed(keyed) => keyed.len(),
        }
    }

    /// Whether it has no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `n` to a cell of the series that has the labels which `labels` writes.
    #[inline]
    pub fn add(&self, labels: impl Fn(&mut KeyWriter<'_>), cell: usize, n: u64) {
        let undo = |place: Place<'_>| place.take_back(cell, n);
        self.update(labels, |place| place.add(cell, n), undo);
    }

    /// Adds to the cells of the series that has the labels which `labels` writes; the series is
    /// made where there is none. It takes no lock unless the series is to be made.
    ///
    /// `undo` takes back what `act` did, for when the series was removed in between and its record
    /// has become another series; then `act` is called again, for the right one.
    #[inline]
    pub fn update(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(Place<'_>),
        undo: impl Fn(Place<'_>),
    ) {
        let inner = &*self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => act(dense.place(inner.slot(&writer, dense))),
            Series::Keyed(keyed) => loop {
                let found = self.find_or_make(keyed, &mut writer);
                let place = keyed.place(found.at);
                act(place);
                if keyed.has_kept(found) {
                    return;
                }
                undo(place);
            },
        }
    }

    /// As [`Family::update`], for values that may be zero and are shown all the same.
    #[inline]
    pub fn update_shown(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        act: impl Fn(Place<'_>),
        undo: impl Fn(Place<'_>),
    ) {
        let inner = &*self.inner;
        if let Series::Dense(dense) = &inner.layout {
            let mut writer = KeyWriter::new(&inner.sets);
            labels(&mut writer);
            let slot = inner.slot(&writer, dense);
            dense.mark(slot);
            act(dense.place(slot));
        } else {
            self.update(labels, act, undo);
        }
    }

    /// As [`Family::update_shown`], for values that are set and not added: what was set in the very
    /// moment in which the series was removed and its record used again cannot be taken back.
    #[inline]
    pub fn set(&self, labels: impl Fn(&mut KeyWriter<'_>), act: impl Fn(Place<'_>)) {
        self.update_shown(labels, act, |_| ());
    }

    /// Binds a handle to the series that has the labels which `labels` writes. The series is made
    /// where there is none, and is shown from now on.
    pub fn bind(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Bound {
        let inner = &self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        let (place, pinned) = match &inner.layout {
            Series::Dense(dense) => {
                let slot = inner.slot(&writer, dense);
                dense.mark(slot);
                (dense.place(slot), None)
            }
            Series::Keyed(keyed) => loop {
                let found = self.find_or_make(keyed, &mut writer);
                if keyed.pin(found) {
                    break (keyed.place(found.at), Some(found.at));
                }
            },
        };
        // SAFETY: the handle owns a share of the family, which keeps the region alive; `place`
        // gives it out for no longer than the handle lives.
        let place = unsafe { std::mem::transmute::<Place<'_>, Place<'static>>(place) };
        Bound {
            place,
            pinned,
            generation: fork::generation(),
            forks: fork::forks(),
            family: self.clone(),
        }
    }

    /// Reads the cells of the series that has the labels which `labels` writes; `None` where there
    /// is none, which is not made. It takes a lock only where the family's index is changing;
    /// `None`, too, where the system does not give it.
    pub fn look<R>(
        &self,
        labels: impl Fn(&mut KeyWriter<'_>),
        read: impl Fn(Place<'_>) -> R,
    ) -> Option<R> {
        let inner = &*self.inner;
        let mut writer = KeyWriter::new(&inner.sets);
        labels(&mut writer);
        match &inner.layout {
            Series::Dense(dense) => {
                let slot = writer.group().filter(|&group| group < inner.groups)?;
                inner.view(dense, slot).map(|view| read(view.place))
            }
            Series::Keyed(keyed) => {
                let key = writer.finish(keyed.secrets(), keyed.texts)?;
                loop {
                    let found = keyed.find_surely(&key).ok()??;
                    if state_of(found.meta) != state::LIVE {
                        return None;
                    }
                    let result = read(keyed.place(found.at));
                    if keyed.is_still(found) {
                        return Some(result);
                    }
                }
            }
        }
    }

    /// Removes the series that has the labels which `labels` writes. False where there is none.
    /// What is added to it later makes a new one, which begins at zero.
    ///
    /// # Errors
    /// Those of the lock, where the segment lies in a file.
    pub fn remove(&self, labels: impl Fn(&mut KeyWriter<'_>)) -> Result<bool, Error> {
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
                dense.begin_anew(slot, floats, inner.now());
                Ok(was_there)
            }
            Series::Keyed(keyed) => match writer.finish(keyed.secrets(), keyed.texts) {
                Some(key) => keyed.remove(&key, inner.now()),
                None => Ok(false),
            },
        }
    }

    /// Removes all series that `keep` does not want, and answers how many those were. Series may
    /// come and go meanwhile; those that come may stay without being asked about.
    ///
    /// # Errors
    /// As [`Family::remove`].
    pub fn retain(&self, mut keep: impl FnMut(&View<'_>) -> bool) -> Result<u64, Error> {
        let inner = &*self.inner;
        match &inner.layout {
            Series::Dense(dense) => {
                let mut removed = 0;
                for slot in 0..inner.groups {
                    let Some(view) = inner.view(dense, slot) else { continue };
                    if !keep(&view) {
                        dense.begin_anew(slot, inner.schema.floats, inner.now());
                        removed += 1;
                    }
                }
                Ok(removed)
            }
            Series::Keyed(keyed) => {
                keyed.retain(inner.now(), |seen| keep(&keyed_view(keyed, seen)))
            }
        }
    }

    /// Removes all series.
    ///
    /// # Errors
    /// As [`Family::remove`].
    pub fn clear(&self) -> Result<u64, Error> {
        self.retain(|_| false)
    }

    /// Begins all series anew. Those that handles are bound to stay, at zero; others of dynamic
    /// labels are removed. What others add meanwhile may go with it, or stay. Cells that `keep` names
    /// stay as they are: those with the offset of an [`Extra`](super::Extra), which the caller
    /// empties.
    ///
    /// # Errors
    /// As [`Family::remove`].
    pub fn reset(&self, keep: impl Fn(usize) -> bool) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.head[at::OVERFLOWED].store(0, Ordering::Relaxed);
        match &inner.layout {
            Series::Dense(dense) => {
                for slot in 0..dense.slots() {
                    let is_marked = dense.is_marked(slot) && slot < inner.groups;
                    dense.begin_anew(slot, inner.schema.floats, inner.now());
                    if is_marked {
                        dense.mark(slot);
                    }
                }
                Ok(())
            }
            Series::Keyed(keyed) => keyed.reset(inner.now(), keep),
        }
    }

    /// Hides the series that are idle for longer than the family's description says; those whose
    /// cells are no sums are removed. A hidden series that changes is shown again, and goes on
    /// from its last total.
    ///
    /// # Errors
    /// As [`Family::remove`].
    pub fn sweep(&self) -> Result<(), Error> {
        match &self.inner.layout {
            Series::Dense(_) => Ok(()),
            Series::Keyed(keyed) => keyed.sweep(self.inner.now()),
        }
    }

    /// Shows the series one after the other, from where the cursor is, until `visit` breaks or
    /// there are no more; then it answers `Continue`. `buffer` is memory for their texts.
    ///
    /// It takes no lock, and holds nothing in between: series may come and go meanwhile. One that is
    /// there from the beginning to the end is shown once; one that is removed and made anew in
    /// between may be shown as both.
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
            Series::Keyed(keyed) => {
                while !cursor.done {
                    let Some(at) = keyed.next_record(&mut cursor.record) else {
                        cursor.done = true;
                        break;
                    };
                    if let Some(seen) = keyed.see(at, buffer, false) {
                        visit(&keyed_view(keyed, &seen))?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Family {
    /// Says what series have beside their cells, once: so that what a removed one had is emptied for
    /// the next that has its record, and not taken anew.
    pub fn set_beside(&self, beside: Arc<dyn Beside>) {
        let _ = self.inner.beside.set(beside);
    }

    #[inline]
    pub(super) fn find_or_make(&self, keyed: &Keyed, writer: &mut KeyWriter<'_>) -> Found {
        match writer.finish(keyed.secrets(), keyed.texts) {
            Some(key) => match keyed.find_live(&key) {
                Some(found) => found,
                None => self.make_series(keyed, &key),
            },
            None => self.inner.overflow_of(keyed),
        }
    }

    #[cold]
    fn make_series(&self, keyed: &Keyed, key: &Key<'_>) -> Found {
        let beside = self.inner.beside.get().map(|beside| (self, &**beside));
        let found = keyed.find_or_make(key, || self.inner.now(), beside);
        if keyed.is_overflow(found.at) { self.inner.overflow_of(keyed) } else { found }
    }
}

impl Inner {
    /// The slot of the labels that were written; the overflow's where they are unknown.
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

    /// The words of the lock of [`Family::folding`].
    pub(super) fn folding_words(&self) -> (&AtomicU64, &AtomicU64) {
        (&self.head[at::FOLDING], &self.head[at::FOLDING_BROKEN])
    }

    #[cold]
    fn overflow_of(&self, keyed: &Keyed) -> Found {
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

    fn now(&self) -> u64 {
        self.clock.as_ref().map_or_else(readings::unix, Clock::unix)
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.inner.schema.name).finish_non_exhaustive()
    }
}

impl Bound {
    /// The cells of the series.
    #[inline]
    pub fn place(&self) -> &Place<'_> {
        &self.place
    }

    /// The family of the series.
    #[inline]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Whether the series was removed since: then what is counted through the handle is not shown.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match (self.pinned, &self.family.inner.layout) {
            (Some(at), Series::Keyed(keyed)) => !keyed.is_series(at),
            _ => false,
        }
    }
}

impl Clone for Bound {
    fn clone(&self) -> Self {
        if let (Some(at), Series::Keyed(keyed)) = (self.pinned, &self.family.inner.layout) {
            keyed.pin_again(at);
        }
        let (place, pinned) = (self.place, self.pinned);
        Self {
            place,
            pinned,
            generation: fork::generation(),
            forks: fork::forks(),
            family: self.family.clone(),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // What a parent bound, only the parent releases: both see the same file. Private memory is
        // the child's own, and has a pin too many there.
        if self.generation != fork::generation() {
            return;
        }
        // What was inherited by a child, that may still count through: the record stays its own.
        if self.forks != fork::forks() && !self.family.inner.segment.is_private() {
            return;
        }
        if let (Some(at), Series::Keyed(keyed)) = (self.pinned, &self.family.inner.layout) {
            keyed.unpin(at, || self.family.inner.now());
        }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("family", &self.family.inner.schema.name)
            .finish_non_exhaustive()
    }
}

/// Checks all families, without changing any. Where power was lost, what it may have taken is cut
/// off when they are mended.
pub(crate) fn inspect(segment: &Segment) -> Result<(), Error> {
    let mut claims = Vec::new();
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
            Series::Keyed(keyed) => {
                keyed.inspect(segment.may_have_lost_power(), &mut claims).map_err(|what| {
                    let what = format!("its family {:?}: {what}", family.inner.schema.name);
                    Error::damaged(segment, what)
                })?;
            }
        }
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

/// Puts all families in order, in a file that nobody else has open.
pub(crate) fn mend(segment: &Segment) -> Result<(), Error> {
    // All are opened before the first is changed.
    let families = all_families(segment)?;
    let (word, broken) = segment.making_words();
    word.store(0, Ordering::Relaxed);
    broken.store(0, Ordering::Relaxed);
    let slabs = segment.records().filter_map(|record| record.ok().as_ref().and_then(Slab::of));
    let slabs: Vec<Slab> = slabs.collect();
    for family in families {
        match &family.inner.layout {
            // A power loss may have taken back how much of a slab is in use.
            Series::Dense(dense) => slabs.iter().for_each(|slab| slab.keep(dense)),
            Series::Keyed(keyed) => keyed.mend_alone(readings::unix())?,
        }
    }
    Ok(())
}

/// The families, in the order in which they were made, in order themselves or not.
fn all_families(segment: &Segment) -> Result<Vec<Family>, Error> {
    let mut families = Vec::new();
    for record in segment.records() {
        let record = record?;
        if record.kind().tag() == FAMILY.tag() {
            families.push(Family::open(segment, &record, None)?);
        }
    }
    families.reverse();
    Ok(families)
}

fn keyed_view<'a>(keyed: &'a Keyed, seen: &keyed::Seen<'a>) -> View<'a> {
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

/// The most words of a lane.
const MOST_DENSE_WORDS: u64 = 1 << 16;

/// As much of a name as a record's name holds.
fn record_name(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

const _: () = assert!(CELL_BYTES == 8);
