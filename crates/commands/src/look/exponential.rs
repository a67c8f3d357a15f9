//! Converts the exponential buckets of native histograms to upper bounds with counts.

/// The schemas whose bounds are powers of two.
const SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;

/// Appends buckets by their upper bounds. If a bucket does not begin at the previous bound, its
/// lower bound is added first, with an empty bucket. Bucket `i` contains the absolute values up to
/// `2^(i * 2^-schema)`, starting at the bound of bucket `i - 1`. `zero` contains the maximum
/// absolute value of the zero bucket, and its count. `sides` contains the indices and counts of the
/// negative and of the positive buckets, sorted by index. Returns false, without appending, if the
/// bounds are not powers of two.
pub(super) fn append<S>(
    schema: i32,
    zero: (f64, f64),
    sides: [S; 2],
    buckets: &mut Vec<(f64, f64)>,
) -> bool
where
    S: DoubleEndedIterator<Item = (i32, f64)>,
{
    if !SCHEMAS.contains(&schema) {
        return false;
    }
    let bound = |index: i32| (f64::from(index) * (-f64::from(schema)).exp2()).exp2();
    let mut push = |lower: f64, upper: f64, count: f64| {
        if count > 0.0 {
            if buckets.last().is_none_or(|(last, _)| *last < lower) {
                buckets.push((lower, 0.0));
            }
            buckets.push((upper, count));
        }
    };
    let [negative, positive] = sides;
    for (index, count) in negative.rev() {
        push(-bound(index), -bound(index.saturating_sub(1)), count);
    }
    let (threshold, count) = zero;
    push(-threshold, threshold, count);
    for (index, count) in positive {
        push(bound(index.saturating_sub(1)), bound(index), count);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_buckets_become_upper_bounds_with_counts() {
        let buckets = |schema, zero, negative: &[(i32, f64)], positive: &[(i32, f64)]| {
            let mut buckets = Vec::new();
            let sides = [negative, positive].map(|side| side.iter().copied());
            append(schema, zero, sides, &mut buckets).then_some(buckets)
        };
        let zero = (0.001, 3.0);
        let negative = [(1, 1.0), (2, 2.0)];
        let positive = [(1, 4.0), (2, 0.0), (3, 5.0), (4, 6.0)];
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
        assert_eq!(buckets(0, zero, &negative, &positive).unwrap(), expected);
        // With schema 3, a factor of two spans eight buckets.
        assert_eq!(buckets(3, (0.0, 0.0), &[], &[(8, 1.0)]).unwrap()[1], (2.0, 1.0));
        assert_eq!(buckets(0, (0.0, 0.0), &[], &[]), Some(Vec::new()));
        assert_eq!(buckets(-53, zero, &negative, &positive), None);
    }
}
