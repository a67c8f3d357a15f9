//! Checks all families when a file is opened, and mends families before they are used if necessary.
//!
//! The check lists the *extents* of records, families and claims: the words that they occupy.
//! Extents must not overlap, or end outside of the bytes in use. `all_families` opens each family,
//! which checks the kind and version of its record.

use std::ops::Range;

use super::dense::Slab;
use super::family::{Family, Series, all_families};
use super::freed;
use super::keyed::Moment;
use super::names;
use crate::error::Error;
use crate::layout::{HEADER_BYTES, RECORD_BYTES};
use crate::offset;
use crate::segment::{Job, Segment, ToDo};
use crate::sync::Ordering;

/// Validates all families, without changing any, and returns the jobs to do before they are used.
/// Parts that a power loss may have destroyed are cut off later, when the families are mended.
pub(super) fn inspect(segment: &Segment) -> Result<Vec<Job>, Error> {
    let mut jobs = Vec::new();
    let mut extents = Vec::new();
    if !segment.may_have_lost_power() {
        for block in segment.claim_blocks().iter() {
            let block = block.map_err(|at| {
                let at = offset::bytes(at);
                let reason =
                    format!("its block of claims at {at} lies outside of the bytes in use");
                Error::damaged(segment, reason)
            })?;
            extents.push(block.range());
        }
    }
    extents.push(0..offset::words(HEADER_BYTES));
    let mut slabs = Vec::new();
    for record in segment.records() {
        let record = record?;
        let first = record.offset().words();
        let end = first + record.cells().len() as u64;
        let whole = first - offset::words(RECORD_BYTES)..end;
        match Slab::from_record(&record) {
            Some(slab) => {
                let lane = slab.lane();
                extents.push(whole.start..lane.start);
                extents.push(lane.end..whole.end);
                slabs.push(slab);
            }
            None => extents.push(whole),
        }
    }
    for family in all_families(segment)? {
        let torn = segment.may_have_lost_power();
        let to_do = match &family.inner.layout {
            Series::Dense(dense) => {
                // After a power loss, the number of used words may be outdated: of its slab, or of
                // the segment where the slab earned lanes.
                let used = offset::words(segment.used());
                let is_lost = |words: &Range<u64>| torn && words.end > used;
                let has_lost_lanes = dense.earned_words().any(|words| is_lost(&words));
                extents.extend(dense.extents(&slabs));
                extents.extend(dense.earned_words().filter(|words| !is_lost(words)));
                let has_lost = slabs.iter().any(|slab| slab.has_lost(dense)) || has_lost_lanes;
                has_lost.then_some(ToDo::Mend)
            }
            Series::Dynamic(keyed) => keyed.inspect(torn, &mut extents).map_err(|reason| {
                let reason = format!("its family {:?}: {reason}", family.inner.schema.name);
                Error::damaged(segment, reason)
            })?,
        };
        jobs.extend(to_do.map(|to_do| Job { to_do, record: family.id() - RECORD_BYTES }));
    }
    if let Some(reason) = overlap(segment, &mut extents) {
        return Err(Error::damaged(segment, reason));
    }
    let freed = freed::inspect(segment, &slabs, &mut extents);
    match freed.filter(|_| overlap(segment, &mut extents).is_none()) {
        Some(freed) => jobs.extend(freed),
        None => jobs.push(freed::FORGET),
    }
    Ok(jobs)
}

/// Explains the first fault of the extents: they overlap, or end outside of the bytes in use. This
/// sorts them.
fn overlap(segment: &Segment, extents: &mut [Range<u64>]) -> Option<String> {
    let used = offset::words(segment.used());
    if let Some(extent) = extents.iter().find(|extent| extent.end > used) {
        return Some(format!(
            "a part of its families at {} ends outside of the bytes in use",
            offset::bytes(extent.start)
        ));
    }
    extents.sort_by_key(|extent| extent.start);
    let pair = extents.windows(2).find(|pair| pair[0].end > pair[1].start)?;
    Some(format!("two parts of its families overlap at {}", offset::bytes(pair[1].start)))
}

/// Does the jobs, in a file that no other process has open.
pub(super) fn mend(segment: &Segment, jobs: &[Job]) -> Result<(), Error> {
    if jobs.iter().any(|job| job.to_do == ToDo::Forget) {
        freed::forget(segment);
    }
    let jobs: Vec<Job> = jobs.iter().copied().filter(|job| job.to_do != ToDo::Forget).collect();
    // All families are opened before the first is changed.
    let open = |job: &Job| Family::open(segment, &names::record(segment, job.record)?, None);
    let families = jobs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let blocks = segment.claim_blocks();
    if segment.may_have_lost_power() {
        // After a power loss, the words there may belong to something else.
        blocks.root.store(0, Ordering::Relaxed);
    } else {
        blocks.free_all();
    }
    let (word, broken) = segment.registration_words();
    word.store(0, Ordering::Relaxed);
    broken.store(0, Ordering::Relaxed);
    let slabs =
        segment.records().filter_map(|record| record.ok().as_ref().and_then(Slab::from_record));
    let slabs: Vec<Slab> = slabs.collect();
    for (job, family) in jobs.iter().zip(families) {
        match (&family.inner.layout, job.to_do) {
            (Series::Dense(dense), _) => {
                let lost = dense.forget_lanes_beyond(offset::words(segment.used()));
                for slot in lost.into_iter().flatten() {
                    dense.cells_at(slot).reset_below_zero(family.inner.schema.floats);
                }
                slabs.iter().for_each(|slab| slab.mark_used(dense));
            }
            (Series::Dynamic(keyed), ToDo::Unclaim) => keyed.unclaim_alone(),
            (Series::Dynamic(keyed), ToDo::Mend | ToDo::Forget) => {
                keyed.mend_alone(Moment::now(segment))?
            }
        }
    }
    Ok(())
}
