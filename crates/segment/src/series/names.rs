//! Finds a family by its name, without a walk over all records.
//!
//! Each handle to a segment keeps a table of names, separately in each process. The first lookup
//! reads all records, and a later one only adds the records published since. This is cheap, because
//! new records are always pushed at the front of the list.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::fmt;

use super::dense::Slab;
use super::freed::FreedFamilies;
#[cfg(unix)]
use super::settle;
use super::{check, family};
use crate::error::{Error, ErrorKind};
use crate::fork::ForkSafeMutex;
use crate::hash::SeededState;
use crate::layout::{RECORD_BYTES, check_at, walk};
use crate::lock::BusyReason;
use crate::segment::{Contents, Job, Record, Segment};

/// A cache of this process: the records of families by name, and the newest slabs.
#[derive(Default)]
pub(crate) struct Names {
    mutex: ForkSafeMutex,
    known: UnsafeCell<NewestRecords>,
}

#[derive(Default)]
struct NewestRecords {
    /// The offset of the newest record in the table; 0 before the first.
    newest: u64,
    /// The offset of the newest record of each name.
    families: HashMap<Box<str>, u64, SeededState>,
    /// The offsets of the newest slabs' records, oldest first.
    slabs: Vec<u64>,
    /// The freed families; loaded when they are first used.
    freed: Option<FreedFamilies>,
    /// The number of records that were read.
    #[cfg(test)]
    steps: usize,
}

// SAFETY: only the thread that holds the mutex accesses the table.
unsafe impl Sync for Names {}

/// The number of slabs, newest first, that are searched for room for a new family.
const SLABS_SEARCHED: usize = 4;

impl Contents for Names {
    fn inspect(&self, segment: &Segment) -> Result<Vec<Job>, Error> {
        check::inspect(segment)
    }

    #[cfg(unix)]
    fn indexes(&self, segment: &Segment) -> Vec<std::ops::Range<u64>> {
        settle::indexes(segment)
    }

    #[cfg(unix)]
    fn settle(&self, segment: &Segment) -> Result<(), Error> {
        settle::settle(segment)
    }

    fn mend(&self, segment: &Segment, jobs: &[Job]) -> Result<(), Error> {
        check::mend(segment, jobs)
    }
}

impl Names {
    /// Returns the table of a handle to a segment.
    pub(crate) fn in_segment(segment: &Segment) -> &Self {
        segment.contents().expect("`opening.rs` gives every segment its names")
    }

    /// Returns the newest record of a family of that name. A record of another version, or one that
    /// cannot be read, is found by `short`, the part of the name that fits into a record.
    pub(crate) fn family(
        &self,
        segment: &Segment,
        name: &str,
        short: &str,
    ) -> Result<Option<Record>, Error> {
        let at = self.with(segment, |known| {
            let mut found = known.families.get(name);
            if found.is_none() && short != name {
                found = known.families.get(short);
            }
            found.copied()
        })?;
        at.map(|at| record(segment, at)).transpose()
    }

    /// Adds a family that this thread published, because a lookup then need not read its record.
    /// `name` is its name for lookups, if there is one.
    pub(super) fn note_family(&self, segment: &Segment, record: &Record, name: Option<&str>) {
        self.note(segment, record, |known, at| {
            name.map(|name| known.families.insert(name.into(), at));
        });
    }

    /// Adds a slab that this thread published.
    pub(super) fn note_slab(&self, segment: &Segment, record: &Record) {
        self.note(segment, record, NewestRecords::add_slab);
    }

    /// Returns the newest slabs, newest first.
    pub(crate) fn slabs<'s>(
        &self,
        segment: &'s Segment,
    ) -> Result<impl Iterator<Item = Result<Record, Error>> + use<'s>, Error> {
        let slabs = self.with(segment, |known| known.slabs.clone())?;
        Ok(slabs.into_iter().rev().map(|at| record(segment, at)))
    }

    /// Calls `look` with the freed families.
    pub(super) fn freed<R>(
        &self,
        segment: &Segment,
        look: impl FnOnce(&mut FreedFamilies) -> R,
    ) -> Result<R, Error> {
        self.with(segment, |known| {
            look(known.freed.get_or_insert_with(|| FreedFamilies::read(segment)))
        })
    }

    /// Clears the table, because families were freed.
    pub(super) fn forget(&self, segment: &Segment) -> Result<(), Error> {
        self.with(segment, |known| *known = NewestRecords::default())
    }

    /// Calls `look` with the table, brought up to date.
    fn with<R>(
        &self,
        segment: &Segment,
        look: impl FnOnce(&mut NewestRecords) -> R,
    ) -> Result<R, Error> {
        self.with_earlier(segment, |known| {
            known.catch_up(segment)?;
            Ok(look(known))
        })?
    }

    /// Adds a record that this thread published, if the table contains all records before it.
    /// Otherwise the next lookup reads the record.
    fn note(&self, segment: &Segment, record: &Record, add: impl FnOnce(&mut NewestRecords, u64)) {
        let at = record.offset().get() - RECORD_BYTES;
        let _ = self.with_earlier(segment, |known| {
            if record.next() == known.newest {
                add(known, at);
                known.newest = at;
            }
        });
    }

    /// Calls `look` with the table, which may lack the records published since the last lookup.
    fn with_earlier<R>(
        &self,
        segment: &Segment,
        look: impl FnOnce(&mut NewestRecords) -> R,
    ) -> Result<R, Error> {
        let interrupted = || Error::held(segment, "the names of families", BusyReason::Interrupted);
        let (_locked, was_left) = self.mutex.lock_or_take_over().ok_or_else(interrupted)?;
        // SAFETY: the mutex is held until the end.
        let known = unsafe { &mut *self.known.get() };
        if was_left {
            // A thread of the parent was changing the table, and does not exist in this child of a
            // fork. The table may be half changed, so we must not even drop it.
            std::mem::forget(std::mem::take(known));
            self.mutex.mended();
        }
        Ok(look(known))
    }
}

impl NewestRecords {
    /// Adds the records published since the last call.
    fn catch_up(&mut self, segment: &Segment) -> Result<(), Error> {
        let root = segment.root();
        if root == self.newest {
            return Ok(());
        }
        let (mut new, mut is_met) = (Vec::new(), false);
        for found in walk(&*segment.region) {
            let found = found.map_err(|kind| Error::new(segment.path(), kind))?;
            if found.offset == self.newest {
                is_met = true;
                break;
            }
            new.push(found);
        }
        if !is_met {
            // This is the first call, or something else wrote into the segment. `new` contains all
            // records of the list, and the others are dropped.
            *self = Self { freed: self.freed.take(), ..Self::default() };
        }
        #[cfg(test)]
        {
            self.steps += new.len();
        }
        let Some(newest) = new.first().map(|found| found.offset) else { return Ok(()) };
        // Oldest first, because a newer record must replace an older one of the same name.
        for found in new.into_iter().rev() {
            let offset = found.offset;
            let record = segment.record(found).map_err(|kind| Error::new(segment.path(), kind))?;
            if let Some(name) = family::name_in(&record) {
                self.families.insert(name.into(), offset);
            } else if Slab::from_record(&record).is_some() {
                self.add_slab(offset);
            }
        }
        self.newest = newest;
        Ok(())
    }

    fn add_slab(&mut self, at: u64) {
        // Keep only the slabs that are ever searched.
        if self.slabs.len() == SLABS_SEARCHED {
            self.slabs.remove(0);
        }
        self.slabs.push(at);
    }
}

/// Returns the record at an offset. The record is validated again, because other processes can
/// change its words.
pub(super) fn record(segment: &Segment, offset: u64) -> Result<Record, Error> {
    let fail = |kind: ErrorKind| Error::new(segment.path(), kind);
    let found = check_at(&*segment.region, offset).map_err(fail)?;
    segment.record(found).map_err(fail)
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Schema;

    #[test]
    fn records_of_this_thread_are_not_read_and_others_are_read_once() {
        let count = if cfg!(miri) { 20 } else { 1000 };
        let segment = Segment::private(16 << 20).unwrap();
        // The table of another handle to the same segment.
        let mut other = NewestRecords::default();
        for _ in 0..2 {
            for i in 0..count {
                let name = format!("family {i}");
                segment
                    .family(&Schema { name, cells: 1, additive: true, ..Schema::default() })
                    .unwrap();
                other.catch_up(&segment).unwrap();
            }
        }
        let records = segment.records().count();
        assert!(records > count);
        assert_eq!(other.steps, records);
        Names::in_segment(&segment)
            .with(&segment, |own| {
                assert_eq!(own.steps, 0);
                assert_eq!((own.newest, &own.slabs), (other.newest, &other.slabs));
                assert_eq!(own.families, other.families);
            })
            .unwrap();
    }

    #[test]
    fn a_record_of_this_thread_after_an_unknown_one_is_read_as_well() {
        let segment = Segment::private(1 << 20).unwrap();
        let schema = |name: &str| Schema { name: name.into(), cells: 1, ..Schema::default() };
        let names = Names::in_segment(&segment);
        segment.family(&schema("first")).unwrap();
        let unknown = segment.reserve(crate::layout::Kind::new(*b"TEST", 1), "unknown", 8).unwrap();
        unknown.publish().unwrap();
        let record = segment.reserve(family::FAMILY, "second", 8).unwrap();
        let record = record.publish().unwrap();
        names.note_family(&segment, &record, Some("another name"));
        names
            .with(&segment, |known| {
                assert_eq!(known.steps, 2);
                assert_eq!(known.newest, segment.root());
                assert!(known.families.contains_key("second"));
                assert!(!known.families.contains_key("another name"));
            })
            .unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks what is half changed, as it should")]
    fn a_half_changed_table_is_rebuilt() {
        let segment = Segment::private(1 << 20).unwrap();
        let schema = Schema { name: "requests".into(), cells: 1, ..Schema::default() };
        let id = segment.family(&schema).unwrap().id();
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Names::in_segment(&segment).with(&segment, |_| panic!("a thread that is gone"))
        }));
        assert!(broken.is_err());
        assert_eq!(segment.family(&schema).unwrap().id(), id);
        let known =
            Names::in_segment(&segment).with(&segment, |known| known.families.len()).unwrap();
        assert_eq!((known, segment.families().unwrap().len()), (1, 1));
    }
}
