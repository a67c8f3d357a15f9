//! Freed families: their records wait, with their blocks and tables, for new families with the same
//! layout in memory.
//!
//! A freed family contains no series. One store removes it from the list of records, so no walk or
//! lookup reaches it. Then it is added to a separate list, which begins in the header of the
//! segment. A new family of the same *shape* takes its record from this list, writes its
//! description there, and is published like any other. If a process dies at any moment, at most one
//! family is on neither list, and its memory is lost.
//!
//! Other processes may have handles to a family, and would count in the family that reused its
//! record. Only a process that has the segment to itself can therefore free families, and reuse
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::ops::Range;
use std::time::Duration;

use super::dense::Slab;
use super::family::{FAMILY, Family, Series, at};
use super::keyed::Moment;
use super::names::{self, Names};
use super::schema::{Label, Schema};
use crate::error::Error;
use crate::layout::{RECORD_BYTES, record_at, walk};
use crate::offset::{self, ByteOffset};
use crate::segment::{Draft, Job, Segment, ToDo};
use crate::sync::{AtomicU64, Ordering};

/// The freed families, cached in this process.
#[derive(Debug, Default)]
pub(super) struct FreedFamilies {
    /// The offsets of their records, by shape and by length.
    by_shape: BTreeMap<(Vec<u8>, u64), Vec<u64>>,
    /// The neighbours of each record on the list, before and after it; 0 at the ends.
    neighbours: HashMap<u64, [u64; 2]>,
}

impl Segment {
    /// Frees unused families. This removes all of their series, including hidden ones, and gives
    /// their memory to new families whose series have the same kind, cells and settings. Their
    /// names are free at once. Returns the number of freed families. A family stays if one of its
    /// labels has fixed values, if its overflow series was used, or if a handle to one of its
    /// series exists.
    ///
    /// After this, you must not use any handle to one of these families, because it would count in
    /// another family. Call this when your program has just opened its segment. The flight
    /// recorder's ticks of a freed family are shown under the name of the family that reuses its
    /// record.
    ///
    /// # Errors
    /// If other processes, or children of a fork, may have the segment open. Also returns the
    /// errors of the disk.
    #[doc(hidden)]
    pub fn free_families(&self, unused: &[Family]) -> Result<u64, Error> {
        if unused.is_empty() {
            return Ok(0);
        }
        if !self.is_alone() {
            let reason = "families are freed in a segment of one process alone: open it without \
                        sharing it, and before any fork";
            return Err(Error::request(self, reason.into()));
        }
        self.ensure_marked_open()?;
        let _registration = self.lock_registration()?;
        let mut records = HashSet::new();
        for family in unused {
            if family.become_free()? {
                records.insert(family.id() - RECORD_BYTES);
            }
        }
        if records.is_empty() {
            return Ok(0);
        }
        let unlinked = self.unlink(&records);
        self.note_unlinked();
        Names::in_segment(self).forget(self)?;
        // Before one of them is reused, the disk must know that they are unused.
        self.sync()?;
        unlinked
    }

    /// Moves records from the list to the list of freed families. Returns their number; the others
    /// are still on the list.
    fn unlink(&self, records: &HashSet<u64>) -> Result<u64, Error> {
        let fail = |kind| Error::new(self.path(), kind);
        let root = self.region.cell(crate::layout::at::ROOT);
        let mut freed = 0;
        'walks: for _ in 0..UNLINK_ATTEMPTS {
            let found = walk(&*self.region).collect::<Result<Vec<_>, _>>().map_err(fail)?;
            let mut link = None;
            for record in found {
                let next = ByteOffset::new(record.offset + record_at::NEXT);
                if !records.contains(&record.offset) {
                    link = Some(next);
                    continue;
                }
                // Release, here and below: like for a record that is published.
                match link {
                    Some(link) => self.region.cell(link).store(record.next, Ordering::Release),
                    None => {
                        let (old, new) = (record.offset, record.next);
                        let swapped =
                            root.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
                        if swapped.is_err() {
                            // Another thread has just published a record that links here.
                            continue 'walks;
                        }
                    }
                }
                // The record is unlinked from here on, while its own link is still valid.
                let first = self.freed_word();
                let next = next_word(self, record.offset);
                next.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
                first.store(record.offset, Ordering::Release);
                freed += 1;
            }
            break;
        }
        Ok(freed)
    }

    /// Returns the number of [freed](Segment::free_families) families that were not reused yet.
    ///
    /// # Errors
    /// If the list of records is damaged.
    #[doc(hidden)]
    pub fn freed_families(&self) -> Result<u64, Error> {
        if self.freed_word().load(Ordering::Relaxed) == 0 {
            return Ok(0);
        }
        Names::in_segment(self).freed(self, |freed| freed.neighbours.len() as u64)
    }
}

/// The maximum number of walks, because other threads may publish records in the meantime.
const UNLINK_ATTEMPTS: usize = 16;

impl Family {
    /// Returns whether all series were hidden for at least this long: sweeps hid them, and none has
    /// changed since. If a family's series do not expire, they are never unused. After a reboot,
    /// only the time up to the last sync counts, because the wall clock may be wrong, and no
    /// program could count while the machine was off.
    pub fn is_unused(&self, least: Duration) -> bool {
        match &self.inner.layout {
            Series::Dense(_) => self.is_empty(),
            Series::Dynamic(keyed) => {
                let now = self.inner.now();
                let time = now.time.min(self.inner.segment.last_seen());
                keyed.is_unused(Moment { time, ..now }, least)
            }
        }
    }

    /// Removes all series. Returns whether another family can then use its memory.
    fn become_free(&self) -> Result<bool, Error> {
        if shape(&self.inner.schema).is_none() {
            return Ok(false);
        }
        match &self.inner.layout {
            Series::Dense(_) => Ok(self.is_empty()),
            Series::Dynamic(keyed) => {
                if !keyed.has_unused_overflow() {
                    return Ok(false);
                }
                self.clear()?;
                keyed.become_ready()
            }
        }
    }
}

impl FreedFamilies {
    /// Reads the list up to the first error.
    pub(super) fn read(segment: &Segment) -> Self {
        let mut freed = Self::default();
        let mut before = 0;
        for family in list(segment).map_while(Result::ok) {
            let at = family.id() - RECORD_BYTES;
            let Some(shape) = shape(&family.inner.schema) else { break };
            if let Some([_, after]) = freed.neighbours.get_mut(&before) {
                *after = at;
            }
            freed.neighbours.insert(at, [before, 0]);
            let length = Segment::record_bytes(family.inner.head.len());
            freed.by_shape.entry((shape, length)).or_default().push(at);
            before = at;
        }
        freed
    }

    /// Removes a record of at least `length` bytes from the list, the shortest of this shape.
    fn take(&mut self, segment: &Segment, shape: Vec<u8>, length: u64) -> Option<u64> {
        let longest = (shape.clone(), u64::MAX);
        let mut fitting = self.by_shape.range_mut((shape, length)..=longest);
        let at = fitting.find_map(|(_, records)| records.pop())?;
        let [before, after] = self.neighbours.remove(&at)?;
        let link = if before == 0 { segment.freed_word() } else { next_word(segment, before) };
        if link.load(Ordering::Relaxed) != at {
            // This happens only if something else wrote into the segment. Clear the cache then.
            *self = Self::default();
            return None;
        }
        link.store(after, Ordering::Release);
        next_word(segment, at).store(0, Ordering::Release);
        if let Some([_, next]) = self.neighbours.get_mut(&before) {
            *next = after;
        }
        if let Some([previous, _]) = self.neighbours.get_mut(&after) {
            *previous = before;
        }
        Some(at)
    }
}

/// Reuses the record of a freed family for a new one, whose head and description are `words` words
/// long. Returns `None` if none fits, or if the unlinkings may not be on the disk yet. The caller
/// must hold the registration lock.
pub(super) fn reuse(segment: &Segment, schema: &Schema, name: &str, words: usize) -> Option<Draft> {
    if segment.freed_word().load(Ordering::Relaxed) == 0 || !segment.is_alone() {
        return None;
    }
    let (shape, length) = (shape(schema)?, Segment::record_bytes(words));
    segment.write_unlinked().ok().filter(|is_written| *is_written)?;
    let taken =
        Names::in_segment(segment).freed(segment, |freed| freed.take(segment, shape, length));
    let draft = segment.reuse(taken.ok()??, FAMILY, name).ok()?;
    Some(draft).filter(|draft| draft.cells().len() >= words)
}

/// Validates the freed families like the ones in use, whose words are `extents`. Returns `None` if
/// something contradicts the layout; the list is then not used.
pub(super) fn inspect(
    segment: &Segment,
    slabs: &[Slab],
    extents: &mut Vec<Range<u64>>,
) -> Option<Vec<Job>> {
    let mut jobs = Vec::new();
    if segment.freed_word().load(Ordering::Relaxed) == 0 {
        return Some(jobs);
    }
    if segment.may_have_lost_power() {
        // Some of them may be in use, too.
        return None;
    }
    for family in list(segment) {
        let family = family.ok().filter(|family| shape(&family.inner.schema).is_some())?;
        let first = offset::words(family.id());
        let words = family.inner.head.len() as u64;
        extents.push(first - offset::words(RECORD_BYTES)..first + words);
        match &family.inner.layout {
            Series::Dense(dense) => {
                extents.extend(dense.extents(slabs).chain(dense.earned_words()));
            }
            Series::Dynamic(keyed) => {
                let to_do = keyed.inspect(false, extents).ok()?;
                let record = family.id() - RECORD_BYTES;
                jobs.extend(to_do.map(|to_do| Job { to_do, record }));
            }
        }
        if !family.is_empty() {
            return None;
        }
    }
    Some(jobs)
}

/// The job that drops an unusable list.
pub(super) const FORGET: Job = Job { to_do: ToDo::Forget, record: 0 };

/// Drops the list. The memory of its families is lost.
pub(super) fn forget(segment: &Segment) {
    segment.freed_word().store(0, Ordering::Release);
}

/// Returns the freed families. The last item may be an error.
fn list(segment: &Segment) -> impl Iterator<Item = Result<Family, Error>> {
    let mut next = segment.freed_word().load(Ordering::Acquire);
    let mut seen = HashSet::new();
    iter::from_fn(move || {
        let at = std::mem::take(&mut next);
        if at == 0 {
            return None;
        }
        if !seen.insert(at) {
            return Some(Err(Error::damaged(segment, "its list of freed families is circular")));
        }
        let family = names::record(segment, at).and_then(|record| {
            let family = Family::open(segment, &record, None)?;
            next = next_word(segment, at).load(Ordering::Acquire);
            Ok(family)
        });
        Some(family)
    })
}

/// Returns the link of a freed family, in a word of its head that it does not use.
fn next_word(segment: &Segment, record: u64) -> &AtomicU64 {
    let head = ByteOffset::new(record.saturating_add(RECORD_BYTES));
    segment.region.cell(head.plus(offset::bytes(at::NEXT_FREED as u64)))
}

/// Returns the settings that two families must share if one is to reuse the memory of the other;
/// `None` if the memory cannot be reused.
fn shape(schema: &Schema) -> Option<Vec<u8>> {
    if schema.labels.iter().any(|label| label.values.is_some()) {
        return None;
    }
    // Families without labels are dense, and all others use keys of dynamic values.
    let any = schema.labels.first().map(|_| Label { name: String::new(), values: None });
    let shape = Schema {
        kind: schema.kind,
        cells: schema.cells,
        floats: schema.floats,
        pairs: schema.pairs,
        additive: schema.additive,
        settings: schema.settings.clone(),
        // With an idle time, each record is a word longer.
        idle: schema.idle.map(|_| Duration::ZERO),
        labels: any.into_iter().collect(),
        ..Schema::default()
    };
    Some(shape.encode())
}
