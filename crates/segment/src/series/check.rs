//! Checks all families when a file is opened, and mends them before they are used.
//!
//! The check lists the *extents* of records, families and claims, which are the words that they
//! occupy: none may overlap, or end outside of the bytes in use. `all_families` opens each family,
//! which checks the kind and version of its record.

use super::dense::Slab;
use super::family::{Series, all_families};
use super::keyed::Moment;
use crate::error::Error;
use crate::layout::{HEADER_BYTES, RECORD_BYTES};
use crate::offset;
use crate::segment::Segment;
use crate::sync::Ordering;

/// Validates all families, without changing any. If power was lost, what it may have destroyed is
/// cut off later, when the families are mended.
pub(super) fn inspect(segment: &Segment) -> Result<(), Error> {
    let mut extents = Vec::new();
    if !segment.may_have_lost_power() {
        for block in segment.claim_blocks().iter() {
            let block = block.map_err(|at| {
                let at = offset::bytes(at);
                let what = format!("its block of claims at {at} lies outside of the bytes in use");
                Error::damaged(segment, what)
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
        match Slab::of(&record) {
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
        match &family.inner.layout {
            Series::Dense(dense) => extents.extend(dense.extents(&slabs)),
            Series::Dynamic(keyed) => {
                keyed.inspect(segment.may_have_lost_power(), &mut extents).map_err(|what| {
                    let what = format!("its family {:?}: {what}", family.inner.schema.name);
                    Error::damaged(segment, what)
                })?;
            }
        }
    }
    let used = offset::words(segment.used());
    if let Some(extent) = extents.iter().find(|extent| extent.end > used) {
        let what = format!(
            "a part of its families at {} ends outside of the bytes in use",
            offset::bytes(extent.start)
        );
        return Err(Error::damaged(segment, what));
    }
    extents.sort_by_key(|extent| extent.start);
    for pair in extents.windows(2) {
        if pair[0].end > pair[1].start {
            let what =
                format!("two parts of its families overlap at {}", offset::bytes(pair[1].start));
            return Err(Error::damaged(segment, what));
        }
    }
    Ok(())
}

/// Mends all families, in a file that no other process has open.
pub(super) fn mend(segment: &Segment) -> Result<(), Error> {
    // All are opened before the first is changed.
    let families = all_families(segment)?;
    let blocks = segment.claim_blocks();
    if segment.may_have_lost_power() {
        // The words there may now belong to something else.
        blocks.root.store(0, Ordering::Relaxed);
    } else {
        blocks.free_all();
    }
    let (word, broken) = segment.registration_words();
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
