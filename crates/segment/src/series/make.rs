//! Creates a family: reserves its record, or reuses the record of a freed one, and allocates its
//! series.

use super::dense::Dense;
use super::family::{
    FAMILY, Family, FamilyRequest, Series, at, is_dense, moment, open_dense, record_name,
};
use super::freed;
use super::keyed::{self, DynamicSeries};
use super::names::Names;
use crate::error::Error;
use crate::lock;
use crate::segment::Segment;
use crate::sync::Ordering;

impl Family {
    /// Creates a family. The caller must hold the registration lock.
    pub(super) fn make(segment: &Segment, wanted: FamilyRequest<'_>) -> Result<Self, Error> {
        let (schema, groups) = (&*wanted.schema, wanted.groups);
        let bytes = schema.encode();
        let is_dense = is_dense(schema, groups);
        let head = if is_dense { at::END } else { keyed::head::END };
        let name = record_name(&schema.name);
        let words = head + bytes.len().div_ceil(8);
        let reused = freed::reuse(segment, schema, name, words);
        let is_new = reused.is_none();
        let draft = match reused {
            Some(draft) => draft,
            None => segment.reserve(FAMILY, name, words)?,
        };
        let cells = draft.cells();
        let now = moment(segment, wanted.clock.as_ref());
        cells[at::SCHEMA_BYTES].store(bytes.len() as u64, Ordering::Relaxed);
        cells[at::CREATED].store(now.unix, Ordering::Relaxed);
        cells[at::OVERFLOWED].store(0, Ordering::Relaxed);
        for (cell, chunk) in cells[head..].iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let series = if is_dense {
            if is_new {
                let slots = groups + 1;
                let layout = Dense::allocate(segment, schema, slots)?;
                let marks = Dense::mark_words(slots, schema.cells);
                let marks = segment.take(marks, lock::REGISTRATION)?;
                cells[at::DENSE].store(layout.pack(), Ordering::Relaxed);
                cells[at::MARKS].store(marks.pack(), Ordering::Relaxed);
            }
            let outside = || Error::damaged(segment, format!("the series of {name:?} lie outside"));
            let dense = open_dense(segment, cells, schema, groups).ok_or_else(outside)?;
            dense.make_room();
            Series::Dense(dense)
        } else {
            let series = DynamicSeries::open(segment, cells, schema, groups, now.unix);
            if is_new {
                series.make_overflow(now)?;
            } else {
                series.begin_again(now)?;
            }
            Series::Dynamic(series)
        };
        let record = draft.publish()?;
        Names::in_segment(segment).note_family(segment, &record, wanted.name());
        // The description was checked, so do not read it again from the record.
        let schema = (wanted.schema.into_owned(), groups);
        Ok(Self::with_series(segment, &record, schema, series, wanted.clock))
    }
}
