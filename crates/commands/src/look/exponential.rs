//! Exponential buckets, those of native histograms, as upper bounds with counts.

use std::collections::BTreeMap;

use quipu_segment::inspect::{Inspection, SeriesSeen};

/// The buckets of a native histogram. Bucket `i` has the absolute values up to `2^(i * 2^-schema)`,
/// from the bound of bucket `i - 1` on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Exponential {
    pub(super) schema: i32,
    /// The greatest absolute value of the zero bucket, and its count.
    pub(super) zero: (f64, f64),
    /// Indexes and counts, by index.
    pub(super) negative: Vec<(i32, f64)>,
    pub(super) positive: Vec<(i32, f64)>,
}

/// The schemas whose bounds are powers.
const SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;
/// More tables than a series ever has: see `kind/native.rs` of `quipu`.
const MAX_TABLES: usize = 64;
/// Greater than the index of any bucket.
const MAX_INDEX: u32 = 1 << 20;
/// The bits of a table's word: the bucket is in use, and below zero.
const USED: u64 = 1 << 63;
const NEGATIVE: u64 = 1 << 32;

impl Exponential {
    /// Reads the buckets of a series of a segment from all of its tables, the newest of which is at
    /// this offset. If there are more than `most`, as between two tables, they become coarser.
    pub(super) fn read(
        inspection: &Inspection,
        series: &SeriesSeen<'_>,
        newest: u64,
        most: usize,
        zero: (f64, f64),
    ) -> Self {
        let (mut tables, mut next) = (Vec::new(), newest);
        // Bounded: a damaged list may be circular.
        while let Some(side) = inspection.side(series, next).filter(|_| tables.len() < MAX_TABLES) {
            next = side.link.into();
            tables.push(side);
        }
        // It is stored plus 128.
        let schema = |word: u64| word as i32 - 128;
        let schemas = tables.iter().map(|side| schema(side.user_data[0]));
        let coarsest = schemas.min().filter(|schema| SCHEMAS.contains(schema));
        let Some(coarsest) = coarsest else { return Self { zero, ..Self::default() } };
        let mut buckets = [BTreeMap::new(), BTreeMap::new()];
        for side in &tables {
            let steps = (schema(side.user_data[0]) - coarsest).min(12);
            for (word, count) in side.words.iter().zip(&side.sums) {
                // The lower half.
                let index = (*word as u32).cast_signed();
                if word & USED == 0 || *count == 0 || index.unsigned_abs() > MAX_INDEX {
                    continue;
                }
                let index = (0..steps).fold(index, |index, _| coarser(index));
                let side = usize::from(word & NEGATIVE == 0);
                *buckets[side].entry(index).or_insert(0.0) += *count as f64;
            }
        }
        let mut schema = coarsest;
        while buckets.iter().map(BTreeMap::len).sum::<usize>() > most
            && SCHEMAS.contains(&(schema - 1))
        {
            schema -= 1;
            buckets = buckets.map(|side| {
                let mut coarser_side = BTreeMap::new();
                for (index, count) in side {
                    *coarser_side.entry(coarser(index)).or_insert(0.0) += count;
                }
                coarser_side
            });
        }
        let [negative, positive] = buckets.map(|side| side.into_iter().collect());
        Self { schema, zero, negative, positive }
    }

    /// Appends upper bounds with the number of observations in each bucket alone, by bound. Where
    /// no bucket is next to another one, an empty one comes before it.
    ///
    /// Returns false if its bounds are not powers.
    pub(super) fn append_to(&self, buckets: &mut Vec<(f64, f64)>) -> bool {
        if !SCHEMAS.contains(&self.schema) {
            return false;
        }
        let bound = |index: i32| (f64::from(index) * (-f64::from(self.schema)).exp2()).exp2();
        let mut push = |lower: f64, upper: f64, count: f64| {
            if count > 0.0 {
                if buckets.last().is_none_or(|(last, _)| *last < lower) {
                    buckets.push((lower, 0.0));
                }
                buckets.push((upper, count));
            }
        };
        for &(index, count) in self.negative.iter().rev() {
            push(-bound(index), -bound(index.saturating_sub(1)), count);
        }
        let (threshold, count) = self.zero;
        push(-threshold, threshold, count);
        for &(index, count) in &self.positive {
            push(bound(index.saturating_sub(1)), bound(index), count);
        }
        true
    }
}

/// The index in the next coarser schema: each of its buckets is two of this one.
fn coarser(index: i32) -> i32 {
    (index + 1) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_their_bounds() {
        let buckets = |native: &Exponential| {
            let mut buckets = Vec::new();
            assert!(native.append_to(&mut buckets));
            buckets
        };
        let native = Exponential {
            schema: 0,
            zero: (0.001, 3.0),
            negative: vec![(1, 1.0), (2, 2.0)],
            positive: vec![(1, 4.0), (2, 0.0), (3, 5.0), (4, 6.0)],
        };
        let expected = [
            (-4.0, 0.0),
            (-2.0, 2.0),
            (-1.0, 1.0),
            (-0.001, 0.0),
            (0.001, 3.0),
            (1.0, 0.0),
            (2.0, 4.0),
            (4.0, 0.0),
            (8.0, 5.0),
            (16.0, 6.0),
        ];
        assert_eq!(buckets(&native), expected);
        // The same bounds in another schema.
        let finer = Exponential { schema: 3, positive: vec![(8, 1.0)], ..Exponential::default() };
        assert_eq!(buckets(&finer)[1], (2.0, 1.0));
        assert_eq!(buckets(&Exponential::default()), []);
        assert!(!Exponential { schema: -53, ..native }.append_to(&mut Vec::new()));
    }
}
