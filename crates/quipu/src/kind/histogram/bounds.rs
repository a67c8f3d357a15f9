//! The bounds of classic buckets, and the bucket of a value.

use std::ops::Deref;

/// The bounds of classic buckets, in ascending order, without `+Inf`. This type dereferences to a
/// slice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bounds {
    all: Box<[f64]>,
    /// All bounds, and then `+Inf`; only `+Inf` if there are too many bounds.
    few: Few,
}

/// Fewer bounds than this are searched without a loop.
pub(super) const FEW: usize = 16;
/// Up to this number of bounds, half of the comparisons are enough.
const FEWER: usize = 8;

/// Aligned, because a load of two bounds that crosses a cache line takes longer.
#[derive(Debug, Clone, PartialEq)]
#[repr(align(64))]
struct Few([f64; FEW]);

impl Bounds {
    pub(super) fn new(all: Box<[f64]>) -> Self {
        let mut few = Few([f64::INFINITY; FEW]);
        if all.len() < FEW {
            few.0[..all.len()].copy_from_slice(&all);
        }
        Self { all, few }
    }

    /// Returns the bucket of a value: the first whose bound is not below the value. NaN is in the
    /// last one, which is the `+Inf` bucket.
    #[inline]
    pub(super) fn bucket(&self, value: f64) -> usize {
        if self.all.len() >= FEW {
            return self.bucket_of_many(value);
        }
        // More only for NaN, because NaN is not less than or equal to any bound.
        self.rank(value, self.all.len()).min(self.all.len())
    }

    /// Returns the bucket of a value among `count` bounds, fewer than [`FEW`]; `count` or more for
    /// NaN.
    #[inline(always)]
    pub(super) fn rank(&self, value: f64, count: usize) -> usize {
        if count <= FEWER { self.rank_of::<FEWER>(value) } else { self.rank_of::<FEW>(value) }
    }

    /// Counts the bounds below a value among the first `N`; for NaN, all `N`. Compares two bounds
    /// at a time, and without a branch, because buckets are unpredictable. A binary search needs
    /// fewer comparisons, but each one waits for the result of the last one.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn rank_of<const N: usize>(&self, value: f64) -> usize {
        use std::arch::x86_64::{
            _mm_add_epi64, _mm_castpd_si128, _mm_cmpnle_pd, _mm_cvtsi128_si64, _mm_load_pd,
            _mm_set1_pd, _mm_setzero_si128, _mm_sub_epi64, _mm_unpackhi_epi64,
        };
        const { assert!(N <= FEW && N.is_multiple_of(4)) };
        // SAFETY: SSE2 is part of x86-64. `few` contains N bounds, aligned to a cache line.
        unsafe {
            let value = _mm_set1_pd(value);
            // Each comparison gives -1 or 0.
            let is_above = |i| {
                let bounds = _mm_load_pd(self.few.0.as_ptr().add(i));
                _mm_castpd_si128(_mm_cmpnle_pd(value, bounds))
            };
            let mut sums = _mm_setzero_si128();
            for i in (0..N).step_by(4) {
                sums = _mm_add_epi64(sums, _mm_add_epi64(is_above(i), is_above(i + 2)));
            }
            let sum = _mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums));
            _mm_cvtsi128_si64(_mm_sub_epi64(_mm_setzero_si128(), sum)) as usize
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn rank_of<const N: usize>(&self, value: f64) -> usize {
        self.few.0[..N].iter().map(|bound| usize::from(!(value <= *bound))).sum()
    }

    #[inline(never)]
    fn bucket_of_many(&self, value: f64) -> usize {
        if value.is_nan() {
            return self.all.len();
        }
        self.all.partition_point(|bound| *bound < value)
    }
}

impl Deref for Bounds {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_equals_the_result_of_a_search() {
        for count in 0..FEW + 3 {
            let all: Box<[f64]> = (0..count).map(|i| i as f64 - 3.0).collect();
            let bounds = Bounds::new(all.clone());
            let near = |bound: &f64| [bound - 0.5, *bound, bound + 0.5];
            let values = all.iter().flat_map(near).chain([f64::NEG_INFINITY, f64::INFINITY, 0.0]);
            for value in values {
                let expected = all.iter().take_while(|bound| **bound < value).count();
                assert_eq!(bounds.bucket(value), expected, "{value} of {count}");
            }
            assert_eq!(bounds.bucket(f64::NAN), count);
        }
    }
}
