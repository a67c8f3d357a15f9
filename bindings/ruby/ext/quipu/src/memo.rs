//! A memo of the series that a metric counts in, by the identity of the label values.
//!
//! An application mostly passes the same objects again, for example small integers, symbols, or
//! frozen strings. Such an object never changes, and the memo prevents it from being freed, so the
//! same reference means the same string. This finds the series without reading a string. Other
//! values, such as strings that are not frozen, are not cached.
//!
//! The memo is a table of fixed size, where new values replace older ones in the same slot. It
//! holds no claim on a series. If the series was removed, or this process is a new child of a fork,
//! the series is looked up by its strings again.
//!
//! The GVL protects the memo, because Ruby does not let other Ractors call a library that does not
//! declare support for Ractors.

use std::cell::{Cell, OnceCell};

use quipu::binding::CachedSeries;
use rb_sys::{RBasic, RSTRING_LEN, SPECIAL_CONST_P, VALUE, rb_sym2str, ruby_fl_type};

use crate::labels::UNDEFINED;
use crate::ruby;

/// The number of slots: a power of two.
const PLACES: usize = 1 << PLACES_BITS;
const PLACES_BITS: u32 = 8;
/// The maximum length of a cached string, in bytes. Together with the number of slots, this bounds
/// the memory that the memo prevents from being freed.
const MAX_LENGTH: i64 = 256;
/// The table is allocated after this number of calls without it, because an application can make a
/// view for only a few calls.
const MISSES: u32 = 16;

/// The series by the identities of label values.
#[derive(Default)]
pub(crate) struct Memo {
    misses: Cell<u32>,
    table: OnceCell<Table>,
}

struct Table {
    /// The values of each slot, one after the other. At first, all are [`UNDEFINED`], which is a
    /// valid value, too, because it represents a preset.
    values: Box<[Cell<VALUE>]>,
    series: Box<[CachedSeries]>,
}

/// The values in a slot of a memo, and the record where their series was last found.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) values: &'a [Cell<VALUE>],
    pub(crate) series: &'a CachedSeries,
}

impl Memo {
    /// Finds values that are the same objects as in an earlier call.
    #[inline(always)]
    pub(crate) fn find(&self, values: &[VALUE]) -> Option<Known<'_>> {
        let known = self.table.get()?.place(values)?;
        known.values.iter().map(Cell::get).eq(values.iter().copied()).then_some(known)
    }

    /// Caches values that were not found, but whose strings were read in place, unless one of them
    /// can change.
    #[inline(always)]
    pub(crate) fn keep(&self, values: &[VALUE]) {
        if values.iter().all(|&value| is_constant(value)) {
            self.keep_constants(values);
        }
    }

    /// Caches values without their series. The first call that finds the values looks it up,
    /// because many values are never used again.
    #[inline(never)]
    fn keep_constants(&self, values: &[VALUE]) {
        if values.iter().any(|&value| is_long(value)) {
            return;
        }
        if self.misses.get() < MISSES {
            return self.misses.set(self.misses.get() + 1);
        }
        let table = self.table.get_or_init(|| Table {
            values: vec![Cell::new(UNDEFINED); PLACES * values.len()].into(),
            series: std::iter::repeat_with(CachedSeries::default).take(PLACES).collect(),
        });
        if let Some(known) = table.place(values) {
            known.series.forget();
            known.values.iter().zip(values).for_each(|(place, &value)| place.set(value));
        }
    }

    /// Marks the values. This also keeps compaction from moving them. The objects of metrics use no
    /// write barrier, so they are marked in every collection.
    pub(crate) fn mark(&self) {
        let values = self.table.get().into_iter().flat_map(|table| &table.values);
        values.map(Cell::get).filter(|&value| !SPECIAL_CONST_P(value)).for_each(ruby::mark);
    }
}

impl Table {
    /// Returns the slot of these values.
    #[inline(always)]
    fn place(&self, values: &[VALUE]) -> Option<Known<'_>> {
        // The multiplier is the one in rustc's FxHash. The high bits depend on all bits of the
        // values.
        let hash = values.iter().fold(0_u64, |hash, &value| {
            (hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
        });
        let place = (hash >> (64 - PLACES_BITS)) as usize;
        let kept = self.values.get(place * values.len()..)?.get(..values.len())?;
        Some(Known { values: kept, series: self.series.get(place)? })
    }
}

/// Returns whether the string of a value that was read in place never changes.
#[inline(always)]
fn is_constant(value: VALUE) -> bool {
    // SAFETY: it is an object.
    SPECIAL_CONST_P(value)
        || unsafe {
            // Symbols are frozen, too.
            (*(value as *const RBasic)).flags & ruby_fl_type::RUBY_FL_FREEZE as VALUE != 0
        }
}

/// Returns whether it is a string, or the name of a symbol, longer than [`MAX_LENGTH`].
fn is_long(value: VALUE) -> bool {
    if SPECIAL_CONST_P(value) {
        return false;
    }
    // SAFETY: the value is an object, and one that is not a string is a symbol.
    let text = if ruby::is_string(value) { value } else { unsafe { rb_sym2str(value) } };
    // SAFETY: it is a string.
    unsafe { RSTRING_LEN(text) as i64 > MAX_LENGTH }
}
