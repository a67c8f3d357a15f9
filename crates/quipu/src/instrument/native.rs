//! Exponential buckets: the counts of a native histogram, in the segment.
//!
//! Bucket `i` of schema `s` holds what is above `2^((i-1) * 2^-s)` and at most `2^(i * 2^-s)`. The
//! buckets that are in use lie in an open-addressed table: one shared word each for its index, and
//! a cell for its count. When a table is full, another one is put before it: larger, or of the next
//! coarser schema once there are as many buckets as may be. Counts are never moved. A reader adds
//! all tables up, in the coarsest schema, which is exact: each bucket of a schema is two of the
//! next.
//!
//! The rules are those of Prometheus (`prometheus/docs`, "Native Histograms"); the bounds of
//! buckets agree with those of `client_golang`.

use quipu_segment::series::{Extra, Family, Place};
use quipu_segment::sync::Ordering;

/// The schemas that there are.
pub(crate) const SCHEMAS: std::ops::RangeInclusive<i8> = -4..=8;
const FINEST: i8 = 8;
/// A word of a bucket that is in use.
const USED: u64 = 1 << 63;
/// One for values below zero.
const NEGATIVE: u64 = 1 << 32;
/// The slots of the first table: of a series that is found by its labels, and of one that many
/// threads share.
const FIRST_SLOTS: u16 = 16;
const FIRST_SLOTS_IN_LANES: u16 = 64;

/// The limits of the buckets in one octave, from 1 to 2, in the finest schema; and for each 512th
/// of an octave the index of the first limit that is not below it.
struct Octave {
    limits: [u64; 1 << FINEST],
    guesses: [u16; GUESSES],
}

const GUESSES: usize = 1 << GUESS_BITS;
const GUESS_BITS: u32 = 9;
const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;

/// A part of the program: a child of a fork would wait for ever for a table that another thread of
/// its parent was making.
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
        let mut limits = [0; 1 << FINEST];
        let mut i = 0;
        while i < limits.len() {
            // The product of the roots whose bits `i` has. Eight roundings at the 63rd bit leave the
            // 52nd right: a test compares all of them.
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
            while limit < limits.len() && limits[limit] < mantissa {
                limit += 1;
            }
            guesses[guess] = limit as u16; // At most 256.
            guess += 1;
        }
        Self { limits, guesses }
    }
}

/// The index of the bucket of a value above zero in a schema.
#[inline]
pub(crate) fn index_of(value: f64, schema: i8) -> i32 {
    if value == f64::INFINITY {
        // One more than the greatest finite one, as in `client_golang`.
        return index_of(f64::MAX, schema) + 1;
    }
    let (value, shift) =
        if value < f64::MIN_POSITIVE { (value * 2_f64.powi(54), -54) } else { (value, 0) };
    let bits = value.to_bits();
    // 11 bits.
    let exponent = (bits >> MANTISSA_BITS) as i32 - 1023 + shift;
    let mantissa = bits & MANTISSA;
    if schema <= 0 {
        // The octave that the value ends: an exact power of two belongs to the one below.
        let octave = exponent + i32::from(mantissa != 0);
        let width = -i32::from(schema);
        return (octave + (1 << width) - 1) >> width;
    }
    let table = &OCTAVE;
    let mut index = table.guesses[(mantissa >> (MANTISSA_BITS - GUESS_BITS)) as usize] as usize;
    while index < table.limits.len() && table.limits[index] < mantissa {
        index += 1;
    }
    // At most 256: in the finest schema. A coarser one has every second limit.
    let fine = index as i32 + (exponent << FINEST);
    let width = FINEST - schema;
    (fine + (1 << width) - 1) >> width
}

/// The index, in the next coarser schema, of the bucket that has all of this one.
fn coarser(index: i32) -> i32 {
    (index + 1) >> 1
}

/// More than the index of any bucket: in the finest schema, that of infinity is 2^18 + 1, and that of
/// the least value above zero is -1074 * 2^8. A greater one is nonsense that another process wrote.
const MOST_INDEX: u32 = 1 << 20;

/// Counts a value that is not zero, in the buckets whose newest table is named by cell `table` of
/// the series. False where the segment has no room for a table.
#[inline]
pub(crate) fn observe(
    family: &Family,
    place: &Place<'_>,
    table: usize,
    value: f64,
    schema: i8,
    most: u16,
) -> bool {
    // Bounded, should another process write nonsense meanwhile.
    for _ in 0..MOST_TABLES {
        // Acquire: whoever sees a table sees its head.
        let newest = place.plain(table).load(Ordering::Acquire);
        let extra = u32::try_from(newest).ok().and_then(|at| family.extra(place, at));
        let Some(extra) = extra else {
            if !begin(family, place, table, newest, None, schema, most) {
                return false;
            }
            continue;
        };
        let (schema, sign) = (schema_of(&extra), u64::from(value < 0.0) * NEGATIVE);
        // The index is taken as its 32 bits.
        let key = USED | sign | u64::from(index_of(value.abs(), schema).cast_unsigned());
        match slot(&extra, key, most) {
            Some((cells, slot)) => {
                cells.add(slot, 1);
                return true;
            }
            None if begin(family, place, table, newest, Some(&extra), schema, most) => {}
            None => return false,
        }
    }
    false
}

/// The buckets of all tables, in the coarsest of their schemas or a coarser one, so that there are
/// at most `most`. Answers the schema.
pub(crate) fn gather(
    family: &Family,
    place: &Place<'_>,
    table: usize,
    finest: i8,
    most: u16,
    positive: &mut Vec<(i32, u64)>,
    negative: &mut Vec<(i32, u64)>,
) -> i8 {
    positive.clear();
    negative.clear();
    // Acquire: as in `observe`.
    let mut at = u32::try_from(place.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(newest) = family.extra(place, at) else { return finest };
    let mut schema = schema_of(&newest);
    // The newest is the coarsest, unless somebody slept between a look at the tables of a series and
    // the one that it put before them, until they were those of the next series.
    let mut below = newest.link();
    for _ in 0..MOST_TABLES {
        let Some(extra) = family.extra(place, below) else { break };
        (schema, below) = (schema.min(schema_of(&extra)), extra.link());
    }
    // Bounded: a damaged list may run in a circle.
    for _ in 0..MOST_TABLES {
        let Some(extra) = family.extra(place, at) else { break };
        let Some(cells) = extra.place() else { break };
        let steps = schema_of(&extra).saturating_sub(schema).clamp(0, 12);
        for (i, word) in extra.words().iter().enumerate().take(cells.len()) {
            let key = word.load(Ordering::Relaxed);
            let count = if key & USED != 0 { cells.sum(i) } else { 0 };
            if count == 0 {
                continue;
            }
            let mut index = (key as u32).cast_signed(); // The lower half is the index.
            if index.unsigned_abs() > MOST_INDEX {
                continue;
            }
            for _ in 0..steps {
                index = coarser(index);
            }
            let side = if key & NEGATIVE == 0 { &mut *positive } else { &mut *negative };
            side.push((index, count));
        }
        at = extra.link();
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

/// Empties all tables: what is counted meanwhile may go with it.
pub(crate) fn clear(family: &Family, place: &Place<'_>, table: usize) {
    let at = u32::try_from(place.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(extra) = family.extra(place, at) else { return };
    // The newest alone is used from now on: it is the largest, and has the coarsest schema.
    extra.set_link(0);
    empty(&extra);
}

fn empty(extra: &Extra<'_>) {
    extra.note().store(0, Ordering::Relaxed);
    for word in extra.words() {
        word.store(0, Ordering::Relaxed);
    }
    if let Some(cells) = extra.place() {
        (0..cells.len()).for_each(|cell| cells.clear(cell));
    }
}

/// As [`clear`], where nobody counts: in that schema from now on, and with the other tables kept for
/// when the newest is full.
pub(crate) fn renew(family: &Family, place: &Place<'_>, table: usize, schema: i8) {
    let at = u32::try_from(place.plain(table).load(Ordering::Acquire)).unwrap_or(0);
    let Some(newest) = family.extra(place, at) else { return };
    let others = newest.link();
    clear(family, place, table);
    set_schema(&newest, schema);
    // Taken, as `take_spare` does: somebody who slept since the last series may be about to.
    let spare = newest.spare().swap(0, Ordering::AcqRel);
    let mut last = None;
    let mut at = others;
    for _ in 0..MOST_TABLES {
        let Some(extra) = family.extra(place, at) else { break };
        (last, at) = (Some(extra), extra.link());
    }
    let kept = match last {
        Some(last) => {
            last.set_link(u32::try_from(spare).unwrap_or(0));
            others.into()
        }
        None => spare,
    };
    // Release: whoever takes them finds how they are linked.
    newest.spare().store(kept, Ordering::Release);
}

/// The bound of bucket `index`.
pub(crate) fn bound(index: i32, schema: i8) -> f64 {
    (f64::from(index) * (-f64::from(schema)).exp2()).exp2()
}

/// More tables than there ever are: two of each schema, and some that grew.
const MOST_TABLES: usize = 64;

/// Sorts buckets, and adds up those of the same index.
fn merge(buckets: &mut Vec<(i32, u64)>) {
    buckets.sort_unstable_by_key(|(index, _)| *index);
    buckets.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = kept.1.wrapping_add(later.1);
        }
        same
    });
}

/// The cells and the slot of a bucket, which is put in where it is not there. `None` where the
/// table has no room for one more.
#[inline]
fn slot<'a>(extra: &Extra<'a>, key: u64, most: u16) -> Option<(Place<'a>, usize)> {
    let cells = extra.place()?;
    // As many of both, but in a file that is damaged.
    let words = extra.words().get(..cells.len()).unwrap_or_default();
    let mask = words.len().checked_sub(1)?;
    let mut slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & mask;
    for _ in 0..=mask {
        let mut found = words[slot].load(Ordering::Relaxed);
        if found == 0 {
            let room = (words.len() * 7 / 8).min(usize::from(most));
            if extra.note().load(Ordering::Relaxed) >= room as u64 {
                return None;
            }
            let put = words[slot].compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            found = put.err().unwrap_or(key);
            if put.is_ok() {
                extra.note().fetch_add(1, Ordering::Relaxed);
            }
        }
        if found == key {
            return Some((cells, slot));
        }
        slot = (slot + 1) & mask;
    }
    None
}

/// Puts a table before `full`, unless another thread did: larger, or coarser.
#[cold]
fn begin(
    family: &Family,
    place: &Place<'_>,
    table: usize,
    newest: u64,
    full: Option<&Extra<'_>>,
    schema: i8,
    most: u16,
) -> bool {
    let most_slots = (u32::from(most) * 8 / 7 + 1).next_power_of_two().min(512) as u16;
    let first = if place.is_striped() { FIRST_SLOTS_IN_LANES } else { FIRST_SLOTS };
    let (slots, schema) = match full.map(|full| full.words().len()) {
        None => (first.min(most_slots), schema),
        Some(slots) if slots < usize::from(most_slots) => {
            // Below 512. A table whose page a power loss took has none.
            ((slots as u16 * 4).clamp(first.min(most_slots), most_slots), schema)
        }
        Some(_) if schema > *SCHEMAS.start() => (most_slots, schema - 1),
        Some(_) => (most_slots, schema),
    };
    let spare = full.and_then(|full| take_spare(family, place, full, slots));
    let Ok(at) = spare.map_or_else(|| family.take_extra(place, slots, slots), Ok) else {
        return false;
    };
    let Some(extra) = family.extra(place, at) else { return false };
    set_schema(&extra, schema);
    extra.set_link(u32::try_from(newest).unwrap_or(0));
    // Release: whoever sees the table sees its head. Who comes second loses what it took.
    let _ =
        place.plain(table).compare_exchange(newest, at.into(), Ordering::AcqRel, Ordering::Acquire);
    true
}

/// Takes the first table that is kept, if it has so many slots, and empties it. It keeps the others.
fn take_spare(family: &Family, place: &Place<'_>, full: &Extra<'_>, slots: u16) -> Option<u32> {
    // Whoever takes one has them all: nobody else comes by them.
    let first = full.spare().swap(0, Ordering::AcqRel);
    let at = u32::try_from(first).ok()?;
    let extra = family.extra(place, at)?;
    if extra.words().len() != usize::from(slots) {
        full.spare().store(first, Ordering::Release);
        return None;
    }
    extra.spare().store(extra.link().into(), Ordering::Relaxed);
    empty(&extra);
    Some(at)
}

fn set_schema(extra: &Extra<'_>, schema: i8) {
    // Never below zero.
    extra.tag().store((i64::from(schema) + 128).cast_unsigned(), Ordering::Relaxed);
}

fn schema_of(extra: &Extra<'_>) -> i8 {
    let tag = extra.tag().load(Ordering::Relaxed) as i64 - 128;
    i8::try_from(tag).unwrap_or(0).clamp(*SCHEMAS.start(), *SCHEMAS.end())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::Segment;
    use quipu_segment::series::{Label, Schema};

    use super::*;

    /// A family of which a cell names the tables.
    fn family() -> (Segment, Family) {
        let segment = Segment::private(1 << 20).unwrap();
        let labels = vec![Label { name: "k".into(), values: None }];
        let schema = Schema { name: "n".into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        (segment, family)
    }

    #[test]
    fn indices_are_those_of_the_definition() {
        // (value, schema, index): by hand, from the definition of the bounds.
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
        for (i, &limit) in OCTAVE.limits.iter().enumerate() {
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
    }

    #[test]
    fn every_bound_belongs_to_its_bucket_and_the_next_value_to_the_next() {
        for schema in 0..=8_i8 {
            for index in -300..300 {
                let bound = bound(index, schema);
                let found = index_of(bound, schema);
                // `exp2` is right to the last bit but for a few: then the bound is a neighbour's.
                let (below, above) = (bound.next_down(), bound.next_up());
                assert!(index_of(below.next_down(), schema) <= index, "{schema} {index}");
                assert!(index_of(above.next_up(), schema) > index, "{schema} {index}");
                assert!(found == index || found == index + 1);
            }
        }
    }

    /// A power loss may take the page of a table, and leave the cell that names it.
    #[test]
    fn a_table_without_slots_is_replaced_by_one_with_some() {
        let (segment, family) = family();
        let bound = family.bind(|key| key.text("a"));
        let place = bound.place();
        let none = family.take_extra(place, 0, 0).unwrap();
        place.plain(0).store(none.into(), Ordering::Relaxed);
        let before = segment.used();
        assert!(observe(&family, place, 0, 1.0, 3, 20));
        assert!(segment.used() < before + 4096, "{} bytes", segment.used() - before);
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        gather(&family, place, 0, 3, 20, &mut positive, &mut negative);
        assert_eq!((positive, negative), (vec![(0, 1)], vec![]));
    }

    /// A power loss may leave an offset whose memory is another's by now.
    #[test]
    fn no_series_counts_in_the_table_of_another() {
        let (_, family) = family();
        let [a, b] = ["a", "b"].map(|text| family.bind(|key| key.text(text)));
        assert!(observe(&family, a.place(), 0, 1.0, 3, 20));
        let table = a.place().plain(0).load(Ordering::Relaxed);
        b.place().plain(0).store(table, Ordering::Relaxed);
        renew(&family, b.place(), 0, 3);
        assert!(observe(&family, b.place(), 0, 2.0, 3, 20));
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        for (bound, expected) in [(&a, (0, 1)), (&b, (8, 1))] {
            gather(&family, bound.place(), 0, 3, 20, &mut positive, &mut negative);
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
