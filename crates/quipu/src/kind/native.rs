//! Exponential buckets: the counts of a native histogram, in the segment.
//!
//! Bucket `i` of schema `s` counts values above `2^((i-1) * 2^-s)` and up to `2^(i * 2^-s)`. The
//! buckets in use are in an open-addressed hash table: each consists of a shared word for its
//! index, and a cell for its count. When a table is full, a new one is put in front of it: a larger
//! one or, at the maximum size, a table of the next coarser schema. Counts are never moved. A
//! reader adds up all tables in their coarsest schema. This is exact, because each bucket of a
//! schema is the union of two buckets of the next finer one.
//!
//! The rules are specified by Prometheus (`prometheus/docs`, "Native Histograms"). The bounds of
//! the buckets agree with `client_golang`.

use quipu_segment::series::{Family, SeriesCells, SeriesHandle, SideAllocation};
use quipu_segment::sync::{AtomicU64, Ordering};

use super::metric_kind::add_count;

/// The valid schemas.
pub(crate) const SCHEMAS: std::ops::RangeInclusive<i8> = -4..=8;
pub(crate) const FINEST: i8 = 8;
/// The bit of a word that is set if the bucket is in use.
const USED: u64 = 1 << 63;
/// The bit for buckets of values below zero.
const NEGATIVE: u64 = 1 << 32;
/// The number of slots of the first table: for a series with a separate record, and for a series in
/// lanes, which many threads share.
const FIRST_SLOTS: u16 = 16;
const FIRST_SLOTS_IN_LANES: u16 = 64;

/// The limits of the buckets in the octave from 1 to 2, in the finest schema; and for each 512th of
/// the octave, the index of the first limit that is not below it.
struct Octave {
    /// After the last one, a limit that no value reaches.
    limits: [u64; LIMITS + 1],
    guesses: [u16; GUESSES],
}

const LIMITS: usize = 1 << FINEST;
const GUESSES: usize = 1 << GUESS_BITS;
const GUESS_BITS: u32 = 9;
const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
const BIAS: i32 = 1023;
/// The exponent of infinity, with the bias.
const INFINITE: i32 = 0x7ff;

/// Computed at compile time, because a child of a fork could wait forever for a table that another
/// thread of its parent was initializing.
static OCTAVE: Octave = Octave::new();

/// `2^(1/2)`, `2^(1/4)` and so on to `2^(1/256)`, times 2^63, to the nearest.
const ROOTS: [u64; FINEST as usize] = [
    0xb504_f333_f9de_6484,
    0x9837_f051_8db8_a96f,
    0x8b95_c1e3_ea8b_d6e7,
    0x85aa_c367_cc48_7b15,
    0x82cd_8698_ac2b_a1d7,
    0x8164_d1f3_bc03_0773,
    0x80b1_ed4f_d999_ab6c,
    0x8058_d7d2_d5e5_f6b1,
];

impl Octave {
    const fn new() -> Self {
        let mut limits = [u64::MAX; LIMITS + 1];
        let mut i = 0;
        while i < LIMITS {
            // The product of the roots whose bits are set in `i`. After eight roundings at the 63rd
            // bit, the 52nd is still right: a test compares all limits.
            let (mut power, mut bit) = (1_u128 << 63, 0);
            while bit < ROOTS.len() {
                if i >> (ROOTS.len() - 1 - bit) & 1 == 1 {
                    power = (power * ROOTS[bit] as u128 + (1 << 62)) >> 63;
                }
                bit += 1;
            }
            // Below 2^64: it is a power of 2 between 1 and 2, times 2^63.
            limits[i] = ((power as u64 + (1 << 10)) >> 11) & MANTISSA;
            i += 1;
        }
        let (mut guesses, mut guess, mut limit) = ([0; GUESSES], 0, 0);
        while guess < GUESSES {
            let mantissa = (guess as u64) << (MANTISSA_BITS - GUESS_BITS);
            while limits[limit] < mantissa {
                limit += 1;
            }
            guesses[guess] = limit as u16; // At most 256.
            guess += 1;
        }
        Self { limits, guesses }
    }
}

/// Returns the index of the bucket of a value above zero, in a schema.
#[inline]
pub(crate) fn index_of(value: f64, schema: i8) -> i32 {
    let bits = value.to_bits();
    // 11 bits, because the sign is zero.
    let exponent = (bits >> MANTISSA_BITS) as i32;
    if !(1..INFINITE).contains(&exponent) {
        return extreme_index_of(value, schema);
    }
    index(exponent - BIAS, bits & MANTISSA, schema)
}

/// Like [`index_of`], for values that are infinite or too small to be normal.
#[cold]
fn extreme_index_of(value: f64, schema: i8) -> i32 {
    if value == f64::INFINITY {
        // One more than the index of the greatest finite value, as in `client_golang`.
        return index(INFINITE - 1 - BIAS, MANTISSA, schema) + 1;
    }
    let bits = (value * 2_f64.powi(54)).to_bits();
    index((bits >> MANTISSA_BITS) as i32 - BIAS - 54, bits & MANTISSA, schema)
}

/// Returns the index of the bucket of a value, given by its exponent and mantissa.
#[inline]
fn index(exponent: i32, mantissa: u64, schema: i8) -> i32 {
    if schema <= 0 {
        // Bounds are inclusive: an exact power of two belongs to the octave below.
        let octave = exponent + i32::from(mantissa != 0);
        let width = -i32::from(schema);
        return (octave + (1 << width) - 1) >> width;
    }
    let guess = OCTAVE.guesses[(mantissa >> (MANTISSA_BITS - GUESS_BITS)) as usize];
    // No 512th of the octave contains two limits. There is no branch, because values are
    // unpredictable.
    let index = i32::from(guess) + i32::from(OCTAVE.limits[usize::from(guess)] < mantissa);
    // In the finest schema, at most 256. Each coarser schema contains every second limit.
    let fine = index + (exponent << FINEST);
    let width = FINEST - schema;
    (fine + (1 << width) - 1) >> width
}

/// Returns the buckets of `given` in a coarser schema.
pub(crate) fn coarsened(given: &[(i32, u64)], from: i8, to: i8) -> Vec<(i32, u64)> {
    let mut buckets = given.to_vec();
    for _ in 0..from.saturating_sub(to).clamp(0, 12) {
        buckets.iter_mut().for_each(|(index, _)| *index = coarser(*index));
    }
    merge(&mut buckets);
    buckets
}

/// Returns the counts that are missing in `have` up to `given`; `None` if a bucket of `have` is
/// greater. Both are sorted.
pub(crate) fn missing(given: &[(i32, u64)], have: &[(i32, u64)]) -> Option<Vec<(i32, u64)>> {
    let in_given = |index: &i32| given.binary_search_by_key(index, |(index, _)| *index).is_ok();
    if !have.iter().all(|(index, count)| *count == 0 || in_given(index)) {
        return None;
    }
    let difference = |&(index, count): &(i32, u64)| {
        let found = have.binary_search_by_key(&index, |(index, _)| *index);
        let old = found.map_or(0, |at| have[at].1);
        count.checked_sub(old).map(|missing| (index, missing))
    };
    given.iter().map(difference).collect()
}

/// The growth of the native buckets and the zero bucket.
#[derive(Debug)]
pub(crate) struct NativeGrowth {
    pub(crate) schema: i8,
    pub(crate) zero_count: u64,
    pub(crate) positive: Vec<(i32, u64)>,
    pub(crate) negative: Vec<(i32, u64)>,
}

/// Returns how much each bucket of `given` has grown since `have`. The total growth is at most
/// `most`, and is subtracted from `most`. Both are sorted.
pub(crate) fn grown(given: &[(i32, u64)], have: &[(i32, u64)], most: &mut u64) -> Vec<(i32, u64)> {
    let grown = given.iter().map(|&(index, count)| {
        let found = have.binary_search_by_key(&index, |(index, _)| *index);
        let old = found.map_or(0, |at| have[at].1);
        let grown = count.saturating_sub(old).min(*most);
        *most -= grown;
        (index, grown)
    });
    grown.filter(|(_, grown)| *grown > 0).collect()
}

/// Returns the index of the bucket of the next coarser schema that contains this one.
pub(crate) fn coarser(index: i32) -> i32 {
    (index + 1) >> 1
}

/// Greater than the index of any bucket: in the finest schema, the index of infinity is 2^18 + 1,
/// and the index of the least value above zero is -1074 * 2^8. A greater index is damage done by
/// another process.
const MAX_INDEX: u32 = 1 << 20;

/// Finds the side allocations of a series: a handle caches one of them, and a family can look up
/// all.
pub(crate) trait Sides {
    /// Returns the side allocation at an offset, if it is cached.
    #[inline]
    fn at_hand(&self, cells: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        self.find(cells, at)
    }

    /// Like [`Family::side`].
    fn find(&self, cells: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>>;

    /// Returns the family.
    fn family(&self) -> &Family;
}

impl Sides for SeriesHandle {
    #[inline]
    fn at_hand(&self, cells: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        self.side_at_hand(cells, at)
    }

    fn find(&self, cells: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        self.side(cells, at)
    }

    fn family(&self) -> &Family {
        self.family()
    }
}

impl Sides for Family {
    #[inline]
    fn find(&self, cells: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        self.side(cells, at)
    }

    fn family(&self) -> &Family {
        self
    }
}

/// Counts a nonzero value in the buckets of the series. Cell `table` holds the offset of their
/// newest table. Returns false if the segment is too full for a table.
#[inline]
pub(crate) fn observe(
    sides: &impl Sides,
    cells: &SeriesCells<'_>,
    table: usize,
    value: f64,
    schema: i8,
    most: u16,
) -> bool {
    // Acquire: pairs with the release in `begin`; a thread that sees a table sees its head.
    let newest = cells.plain(table).load(Ordering::Acquire);
    if let Some(side) = u32::try_from(newest).ok().and_then(|at| sides.at_hand(cells, at))
        && let Some((counts, words)) = buckets(&side)
        && let Some(slot) = search(words, key_of(value, schema_of(&side)))
    {
        counts.add(slot, 1);
        return true;
    }
    let key = |schema| key_of(value, schema);
    add_first(sides, cells, table, key, 1, (schema, FINEST), most)
}

/// Counts a nonzero value `n` times, like [`observe`].
pub(crate) fn observe_many(
    family: &Family,
    cells: &SeriesCells<'_>,
    table: usize,
    value: f64,
    n: u64,
    schema: i8,
    most: u16,
) -> bool {
    add_first(family, cells, table, |schema| key_of(value, schema), n, (schema, FINEST), most)
}

/// Adds `n` to a bucket, which is given by its index in `schema`. If the newest table is finer, a
/// table of this schema is put in front.
pub(crate) fn add(
    family: &Family,
    cells: &SeriesCells<'_>,
    table: usize,
    (index, is_negative): (i32, bool),
    n: u64,
    schema: i8,
    most: u16,
) -> bool {
    let key = |table: i8| {
        let steps = schema.saturating_sub(table).clamp(0, 12);
        let index = (0..steps).fold(index, |index, _| coarser(index));
        USED | (u64::from(is_negative) * NEGATIVE) | u64::from(index.cast_unsigned())
    };
    add_first(family, cells, table, key, n, (schema, schema), most)
}

/// Adds `n` to the bucket that `key` returns for the schema of the newest table. Called if the
/// table is not cached, or the bucket not in use. The first table gets the schema `first`. A table
/// that is finer than `finest` is not added to.
#[cold]
fn add_first(
    sides: &impl Sides,
    cells: &SeriesCells<'_>,
    table: usize,
    key: impl Fn(i8) -> u64,
    n: u64,
    (first, finest): (i8, i8),
    most: u16,
) -> bool {
    let family = sides.family();
    // Bounded, in case another process writes damaged offsets.
    for _ in 0..MAX_TABLES {
        // Acquire: as in `observe`.
        let newest = cells.plain(table).load(Ordering::Acquire);
        let side = u32::try_from(newest).ok().and_then(|at| sides.find(cells, at));
        let Some(side) = side else {
            if !begin(family, cells, table, newest, None, first, most) {
                return false;
            }
            continue;
        };
        let schema = schema_of(&side);
        if schema > finest {
            if !begin_coarser(family, cells, table, newest, finest, most) {
                return false;
            }
            continue;
        }
        match slot(&side, key(schema), most) {
            Some((counts, slot)) => {
                add_count(&counts, slot, n);
                return true;
            }
            None if begin(family, cells, table, newest, Some(&side), schema, most) => {}
            None => return false,
        }
    }
    false
}

/// Returns the word of a value's bucket.
#[inline]
fn key_of(value: f64, schema: i8) -> u64 {
    // Zero is in no bucket, so the sign bit is enough.
    let sign = value.to_bits() >> 31 & NEGATIVE;
    // The lower 32 bits are the index.
    USED | sign | u64::from(index_of(value.abs(), schema).cast_unsigned())
}

/// Gathers the buckets of all tables in their coarsest schema, or in a coarser one if there would
/// be more than `most` buckets. Returns the schema; without any table, that is `finest`.
pub(crate) fn gather(
    family: &Family,
    cells: &SeriesCells<'_>,
    table: usize,
    finest: i8,
    most: u16,
    positive: &mut Vec<(i32, u64)>,
    negative: &mut Vec<(i32, u64)>,
) -> i8 {
    positive.clear();
    negative.clear();
    // Acquire: as in `observe`.
    let first = u32::try_from(cells.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(newest) = family.side(cells, first) else { return finest };
    let mut schema = schema_of(&newest);
    // The newest table is the coarsest, with one exception: a thread reads the tables of a series,
    // is delayed until they belong to the next series, and then puts its table in front.
    let mut below = newest.link();
    // Bounded, here and below: a damaged list may be circular.
    for _ in 0..MAX_TABLES {
        let Some(side) = family.side(cells, below).filter(|_| below != first) else { break };
        (schema, below) = (schema.min(schema_of(&side)), side.link());
    }
    let mut at = first;
    for _ in 0..MAX_TABLES {
        let Some(side) = family.side(cells, at) else { break };
        let Some(cells) = side.cells() else { break };
        let steps = schema_of(&side).saturating_sub(schema).clamp(0, 12);
        for (i, word) in side.words().iter().enumerate().take(cells.len()) {
            let key = word.load(Ordering::Relaxed);
            let count = if key & USED != 0 { cells.sum(i) } else { 0 };
            if count == 0 {
                continue;
            }
            let mut index = (key as u32).cast_signed(); // The lower half.
            if index.unsigned_abs() > MAX_INDEX {
                continue;
            }
            for _ in 0..steps {
                index = coarser(index);
            }
            let side = if key & NEGATIVE == 0 { &mut *positive } else { &mut *negative };
            side.push((index, count));
        }
        at = side.link();
        if at == first {
            break;
        }
    }
    merge(positive);
    merge(negative);
    while positive.len() + negative.len() > usize::from(most) && schema > *SCHEMAS.start() {
        schema -= 1;
        for side in [&mut *positive, &mut *negative] {
            side.iter_mut().for_each(|(index, _)| *index = coarser(*index));
            merge(side);
        }
    }
    schema
}

/// Clears all tables. Concurrent updates may be lost.
pub(crate) fn clear(family: &Family, cells: &SeriesCells<'_>, table: usize) {
    let at = u32::try_from(cells.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(side) = family.side(cells, at) else { return };
    // Only the newest stays in use, because it is the largest, with the coarsest schema.
    side.set_link(0);
    empty(&side);
}

fn empty(side: &SideAllocation<'_>) {
    used(side).store(0, Ordering::Relaxed);
    for word in side.words() {
        word.store(0, Ordering::Relaxed);
    }
    if let Some(cells) = side.cells() {
        (0..cells.len()).for_each(|cell| cells.clear(cell));
    }
}

/// Like [`clear`], for a series that no thread updates: the newest table gets the schema, and the
/// others are kept as spares until it is full.
pub(crate) fn renew(family: &Family, cells: &SeriesCells<'_>, table: usize, schema: i8) {
    let at = u32::try_from(cells.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(newest) = family.side(cells, at) else { return };
    let others = newest.link();
    clear(family, cells, table);
    set_schema(&newest, schema);
    // Taken by a swap, like in `take_spare`: a thread that was delayed since the previous series
    // may be about to call that.
    let spare = newest.spare().swap(0, Ordering::AcqRel);
    let mut last = None;
    let mut at = others;
    for _ in 0..MAX_TABLES {
        let Some(side) = family.side(cells, at) else { break };
        (last, at) = (Some(side), side.link());
    }
    let kept = match last {
        Some(last) => {
            last.set_link(u32::try_from(spare).unwrap_or(0));
            others.into()
        }
        None => spare,
    };
    // Release: pairs with the swap in `take_spare`; a thread that takes the spares sees their
    // links.
    newest.spare().store(kept, Ordering::Release);
}

/// Returns the bound of bucket `index`.
pub(crate) fn bound(index: i32, schema: i8) -> f64 {
    (f64::from(index) * (-f64::from(schema)).exp2()).exp2()
}

/// More tables than a series ever needs: two of each schema, and some smaller ones.
const MAX_TABLES: usize = 64;

/// Sorts buckets, and adds up those with the same index.
fn merge(buckets: &mut Vec<(i32, u64)>) {
    buckets.sort_unstable_by_key(|(index, _)| *index);
    buckets.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(later.1);
        }
        same
    });
}

/// Returns the cells and words of a table. There is one word for each cell, except in a damaged
/// file.
#[inline]
fn buckets<'a>(side: &SideAllocation<'a>) -> Option<(SeriesCells<'a>, &'a [AtomicU64])> {
    let cells = side.cells()?;
    Some((cells, side.words().get(..cells.len()).unwrap_or_default()))
}

/// Returns the slot where the search for a bucket starts.
#[inline]
fn first_slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

/// Finds the slot of a bucket that is in use.
#[inline]
fn search(words: &[AtomicU64], key: u64) -> Option<usize> {
    let mask = words.len().checked_sub(1)?;
    let mut slot = first_slot(key) & mask;
    for _ in words {
        match words[slot].load(Ordering::Relaxed) {
            found if found == key => return Some(slot),
            0 => return None,
            _ => slot = (slot + 1) & mask,
        }
    }
    None
}

/// Finds the slot of a bucket, or inserts the bucket. Returns the table's cells and the slot, or
/// `None` if the table is full.
fn slot<'a>(side: &SideAllocation<'a>, key: u64, most: u16) -> Option<(SeriesCells<'a>, usize)> {
    let (cells, words) = buckets(side)?;
    let mask = words.len().checked_sub(1)?;
    let mut slot = first_slot(key) & mask;
    for _ in 0..=mask {
        let mut found = words[slot].load(Ordering::Relaxed);
        if found == 0 {
            let room = (words.len() * 7 / 8).min(usize::from(most));
            if used(side).load(Ordering::Relaxed) >= room as u64 {
                return None;
            }
            let put = words[slot].compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            found = put.err().unwrap_or(key);
            if put.is_ok() {
                used(side).fetch_add(1, Ordering::Relaxed);
            }
        }
        if found == key {
            return Some((cells, slot));
        }
        slot = (slot + 1) & mask;
    }
    None
}

/// Puts a larger or coarser table in front of `full`, unless another thread did so. Returns false
/// if the segment is too full.
#[cold]
fn begin(
    family: &Family,
    cells: &SeriesCells<'_>,
    table: usize,
    newest: u64,
    full: Option<&SideAllocation<'_>>,
    schema: i8,
    most: u16,
) -> bool {
    let most_slots = (u32::from(most) * 8 / 7 + 1).next_power_of_two().min(512) as u16;
    let first = if cells.has_sides_in_lanes() { FIRST_SLOTS_IN_LANES } else { FIRST_SLOTS };
    let (slots, schema) = match full.map(|full| full.words().len()) {
        None => (first.min(most_slots), schema),
        Some(slots) if slots < usize::from(most_slots) => {
            // Below 512. After a power loss that took its page, a table contains no slots.
            ((slots as u16 * 4).clamp(first.min(most_slots), most_slots), schema)
        }
        Some(_) if schema > *SCHEMAS.start() => (most_slots, schema - 1),
        // All floats fall into fewer buckets of the coarsest schema than fit.
        Some(_) => return false,
    };
    let spare = full.and_then(|full| take_spare(family, cells, full, slots));
    let Ok(at) = spare.map_or_else(|| family.allocate_side(cells, slots, slots), Ok) else {
        return false;
    };
    let Some(side) = family.side(cells, at) else { return false };
    set_schema(&side, schema);
    side.set_link(u32::try_from(newest).unwrap_or(0));
    // Release: pairs with the acquire in `observe`; a thread that sees the table sees its head. Of
    // two threads, the second leaks its table.
    let _ =
        cells.plain(table).compare_exchange(newest, at.into(), Ordering::AcqRel, Ordering::Acquire);
    true
}

/// Puts a table of a coarser schema in front of the newest one, unless another thread replaced it.
/// Returns false if the segment is too full.
fn begin_coarser(
    family: &Family,
    cells: &SeriesCells<'_>,
    table: usize,
    newest: u64,
    schema: i8,
    most: u16,
) -> bool {
    let slots = (u32::from(most) * 8 / 7 + 1).next_power_of_two().min(512) as u16;
    let Ok(at) = family.allocate_side(cells, slots, slots) else { return false };
    let Some(side) = family.side(cells, at) else { return false };
    set_schema(&side, schema);
    side.set_link(u32::try_from(newest).unwrap_or(0));
    // Release: as in `begin`.
    let _ =
        cells.plain(table).compare_exchange(newest, at.into(), Ordering::AcqRel, Ordering::Acquire);
    true
}

/// Returns the greatest distance from zero of the index of a bucket that a float falls into.
pub(crate) fn last_index(schema: i8) -> u32 {
    // 2^-1074 to 2^1024.
    match u32::try_from(schema) {
        Ok(fine) => (1075 << fine) + 1,
        Err(_) => (1075 >> schema.unsigned_abs()) + 2,
    }
}

/// Takes the first spare table of `full`, if it contains `slots` slots, and clears it. The other
/// spares become spares of the taken table.
fn take_spare(
    family: &Family,
    cells: &SeriesCells<'_>,
    full: &SideAllocation<'_>,
    slots: u16,
) -> Option<u32> {
    // The swap takes all spares: no other thread can reach them.
    let first = full.spare().swap(0, Ordering::AcqRel);
    let at = u32::try_from(first).ok()?;
    let side = family.side(cells, at)?;
    if side.words().len() != usize::from(slots) {
        full.spare().store(first, Ordering::Release);
        return None;
    }
    side.spare().store(side.link().into(), Ordering::Relaxed);
    empty(&side);
    Some(at)
}

/// Returns the number of slots in use.
fn used<'a>(side: &SideAllocation<'a>) -> &'a AtomicU64 {
    let [_, used] = side.user_data();
    used
}

fn set_schema(side: &SideAllocation<'_>, schema: i8) {
    let [word, _] = side.user_data();
    // The sum is never negative.
    word.store((i64::from(schema) + 128).cast_unsigned(), Ordering::Relaxed);
}

#[inline]
fn schema_of(side: &SideAllocation<'_>) -> i8 {
    let [word, _] = side.user_data();
    let schema = word.load(Ordering::Relaxed) as i64 - 128;
    i8::try_from(schema).unwrap_or(0).clamp(*SCHEMAS.start(), *SCHEMAS.end())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::Segment;
    use quipu_segment::series::{Label, Schema};

    use super::*;

    /// Returns a family with one cell, for the offset of the newest table.
    fn family() -> (Segment, Family) {
        let segment = Segment::private(1 << 20).unwrap();
        let labels = vec![Label { name: "k".into(), values: None }];
        let schema = Schema { name: "n".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        (segment, family)
    }

    #[test]
    fn indices_follow_the_definition() {
        // (value, schema, index), computed by hand from the definition of the bounds.
        let cases = [
            (1.0, 0, 0),
            (1.000_000_1, 0, 1),
            (2.0, 0, 1),
            (2.1, 0, 2),
            (0.5, 0, -1),
            (0.6, 0, 0),
            (4.0, -1, 1),
            (4.1, -1, 2),
            (16.0, -2, 1),
            (16.1, -2, 2),
            (0.25, -1, -1),
            (1.0, 3, 0),
            (1.09, 3, 1),
            (1.1, 3, 2),
            (2.0, 3, 8),
            (f64::MAX, 0, 1024),
            (f64::INFINITY, 0, 1025),
            (f64::MIN_POSITIVE, 0, -1022),
            (5e-324, 0, -1074),
        ];
        for (value, schema, index) in cases {
            assert_eq!(index_of(value, schema), index, "{value} in schema {schema}");
        }
    }

    #[test]
    fn the_limits_of_an_octave_are_powers_of_two() {
        for (i, &limit) in OCTAVE.limits[..LIMITS].iter().enumerate() {
            let exact = (i as f64 / 256.0).exp2();
            // The system's `exp2` may be off by its last bit.
            let near = [exact.next_down(), exact, exact.next_up()].map(|n| n.to_bits() & MANTISSA);
            assert!(i == 0 && limit == 0 || near.contains(&limit), "2^({i}/256): {limit:#x}");
        }
        assert!(OCTAVE.limits.is_sorted() && OCTAVE.guesses.is_sorted());
        for (guess, &found) in OCTAVE.guesses.iter().enumerate() {
            let mantissa = (guess as u64) << (MANTISSA_BITS - GUESS_BITS);
            let first = OCTAVE.limits.partition_point(|&limit| limit < mantissa);
            assert_eq!(usize::from(found), first);
        }
        // `index` compares with one limit.
        assert!(OCTAVE.guesses.windows(2).all(|pair| pair[1] - pair[0] <= 1));
        assert!(OCTAVE.guesses[GUESSES - 1] as usize >= LIMITS - 1);
    }

    #[test]
    fn every_bound_belongs_to_its_bucket_and_the_next_value_to_the_next() {
        for schema in 0..=8_i8 {
            for index in -300..300 {
                let bound = bound(index, schema);
                let found = index_of(bound, schema);
                // A few results of `exp2` are off by one bit: then the bound is a neighbour's.
                let (below, above) = (bound.next_down(), bound.next_up());
                assert!(index_of(below.next_down(), schema) <= index, "{schema} {index}");
                assert!(index_of(above.next_up(), schema) > index, "{schema} {index}");
                assert!(found == index || found == index + 1);
            }
        }
    }

    /// A power loss may take the page of a table, and leave the cell with its offset.
    #[test]
    fn a_table_without_slots_is_replaced_by_one_with_some() {
        let (segment, family) = family();
        let bound = family.bind(|key| key.text("a"));
        let cells = bound.cells();
        let none = family.allocate_side(cells, 0, 0).unwrap();
        cells.plain(0).store(none.into(), Ordering::Relaxed);
        let before = segment.used();
        assert!(observe(&family, cells, 0, 1.0, 3, 20));
        assert!(segment.used() < before + 4096, "{} bytes", segment.used() - before);
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        gather(&family, cells, 0, 3, 20, &mut positive, &mut negative);
        assert_eq!((positive, negative), (vec![(0, 1)], vec![]));
    }

    #[test]
    fn tables_that_name_each_other_are_read_once() {
        let (_segment, family) = family();
        let bound = family.bind(|key| key.text("a"));
        let cells = bound.cells();
        let tables = [(), ()].map(|()| family.allocate_side(cells, 8, 8).unwrap());
        for (at, other) in [(tables[0], tables[1]), (tables[1], tables[0])] {
            let side = family.side(cells, at).unwrap();
            set_schema(&side, 3);
            side.set_link(other);
            cells.plain(0).store(at.into(), Ordering::Relaxed);
            assert!(observe(&family, cells, 0, 1.0, 3, 20));
        }
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        gather(&family, cells, 0, 3, 20, &mut positive, &mut negative);
        assert_eq!((positive, negative), (vec![(0, 2)], vec![]));
    }

    /// A power loss may leave an offset to memory that now belongs to another series.
    #[test]
    fn no_series_counts_in_the_table_of_another() {
        let (_, family) = family();
        let [a, b] = ["a", "b"].map(|text| family.bind(|key| key.text(text)));
        assert!(observe(&family, a.cells(), 0, 1.0, 3, 20));
        let table = a.cells().plain(0).load(Ordering::Relaxed);
        b.cells().plain(0).store(table, Ordering::Relaxed);
        renew(&family, b.cells(), 0, 3);
        assert!(observe(&family, b.cells(), 0, 2.0, 3, 20));
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        for (bound, expected) in [(&a, (0, 1)), (&b, (8, 1))] {
            gather(&family, bound.cells(), 0, 3, 20, &mut positive, &mut negative);
            assert_eq!(positive, [expected]);
        }
    }

    #[test]
    fn a_coarser_bucket_has_two_of_the_next_finer_one() {
        let mut value = 1e-9;
        while value < 1e9 {
            for schema in -3..=8_i8 {
                assert_eq!(coarser(index_of(value, schema)), index_of(value, schema - 1));
            }
            value *= 1.01;
        }
    }
}
