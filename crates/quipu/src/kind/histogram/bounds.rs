//! The bounds of classic buckets, and the bucket of a value.

use std::ops::Deref;

/// The bounds of classic buckets, in ascending order, without `+Inf`. It dereferences to a slice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bounds {
    all: Box<[f64]>,
    /// All bounds, and then `+Inf`; only `+Inf` if there are too many bounds.
    few: [f64; FEW],
}

/// A power of two. Up to one bound less is searched without a loop.
const FEW: usize = 16;

impl Bounds {
    pub(super) fn new(all: Box<[f64]>) -> Self {
        let mut few = [f64::INFINITY; FEW];
        if all.len() < FEW {
            few[..all.len()].copy_from_slice(&all);
        }
        Self { all, few }
    }

    /// The bucket of a value: the first whose bound is not below it. NaN is in the last one, that
    /// of `+Inf`.
    #[inline]
    pub(super) fn bucket(&self, value: f64) -> usize {
        if self.all.len() >= FEW {
            return self.bucket_of_many(value);
        }
        // A binary search with one step for each bit of the result, without a branch, since buckets
        // are unpredictable. Comparing with all bounds takes twice the instructions.
        let (mut bucket, mut step) = (0, FEW / 2);
        while step > 0 {
            let is_up_to = value <= self.few[(bucket + step - 1) % FEW];
            bucket += step * usize::from(!is_up_to);
            step /= 2;
        }
        // More only for NaN, which is not up to any bound.
        bucket.min(self.all.len())
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
    fn the_bucket_is_that_of_a_search() {
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
