//! A memo of the series that a metric has counted in, by the identity of the label values.
//!
//! An application mostly passes the same objects again: small integers, symbols, frozen strings.
//! Such an object never changes, and the memo keeps it alive, so the same reference means the same
//! text. Then the series is found without reading a text. Other values, such as strings that are
//! not frozen, are not kept.
//!
//! The memo is a table of fixed size, in which values replace those that have the same place. It
//! holds no claim on a series. If the series was removed, or this process is a new child of a fork,
//! the series is found by its texts again.
//!
//! The GVL protects it: Ruby does not let other Ractors call a library that does not say that it
//! supports them.

use std::cell::{Cell, OnceCell};

use quipu::binding::CachedSeries;
use rb_sys::{RBasic, RSTRING_LEN, SPECIAL_CONST_P, VALUE, rb_sym2str, ruby_fl_type};

use crate::labels::UNDEFINED;
use crate::ruby;

/// The number of places: a power of two.
const PLACES: usize = 1 << PLACES_BITS;
const PLACES_BITS: u32 = 8;
/// The longest text that is kept, in bytes. With the number of places, it bounds the texts that the
/// memo keeps from being freed.
const MAX_LENGTH: i64 = 256;
/// The table is allocated after this number of calls without it: a view that an application makes
/// for a few calls gets none.
const MISSES: u32 = 16;

/// The series by the identities of label values.
#[derive(Default)]
pub(crate) struct Memo {
    misses: Cell<u32>,
    table: OnceCell<Table>,
}

struct Table {
    /// The values of each place, one after the other. At first, all are [`UNDEFINED`]: these are
    /// values, too, which stand for presets.
    values: Box<[Cell<VALUE>]>,
    series: Box<[CachedSeries]>,
}

/// Values that a memo has kept, and where their series was last found.
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

    /// Keeps values that were not found, and whose texts were read in place, unless one of them
    /// may change.
    #[inline(always)]
    pub(crate) fn keep(&self, values: &[VALUE]) {
        if values.iter().all(|&value| is_constant(value)) {
            self.keep_constants(values);
        }
    }

    /// Keeps values without their series, which the first call that finds the values looks up: many
    /// values never come again.
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

    /// Marks the values, which also keeps compaction from moving them. The objects of metrics have
    /// no write barrier, so they are marked in every collection.
    pub(crate) fn mark(&self) {
        let values = self.table.get().into_iter().flat_map(|table| &table.values);
        values.map(Cell::get).filter(|&value| !SPECIAL_CONST_P(value)).for_each(ruby::mark);
    }
}

impl Table {
    /// The place of these values.
    #[inline(always)]
    fn place(&self, values: &[VALUE]) -> Option<Known<'_>> {
        // The multiplier is that of rustc's FxHash. The high bits depend on all bits of the values.
        let hash = values.iter().fold(0_u64, |hash, &value| {
            (hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
        });
        let place = (hash >> (64 - PLACES_BITS)) as usize;
        let kept = self.values.get(place * values.len()..)?.get(..values.len())?;
        Some(Known { values: kept, series: self.series.get(place)? })
    }
}

/// Whether the text of a value that was read in place never changes.
#[inline(always)]
fn is_constant(value: VALUE) -> bool {
    // SAFETY: it is an object.
    SPECIAL_CONST_P(value)
        || unsafe {
            // Symbols are frozen, too.
            (*(value as *const RBasic)).flags & ruby_fl_type::RUBY_FL_FREEZE as VALUE != 0
        }
}

/// Whether it is a string, or the name of a symbol, longer than [`MAX_LENGTH`].
fn is_long(value: VALUE) -> bool {
    if SPECIAL_CONST_P(value) {
        return false;
    }
    // SAFETY: the value is an object, and one that is not a string is a symbol.
    let text = if ruby::is_string(value) { value } else { unsafe { rb_sym2str(value) } };
    // SAFETY: it is a string.
    unsafe { RSTRING_LEN(text) as i64 > MAX_LENGTH }
}
