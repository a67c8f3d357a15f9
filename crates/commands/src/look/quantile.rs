//! Estimates quantiles from buckets, like `histogram_quantile` in Prometheus.

/// Returns the quantile `q` of observations in buckets. The buckets are upper bounds with
/// non-cumulative counts, sorted by bound. Returns `None` if there are no observations.
///
/// We assume that the observations are evenly distributed within a bucket; within an exponential
/// bucket, that their logarithms are. The first bucket begins at zero if its bound is positive. If
/// all other buckets are on one side of zero, the bucket around zero ends at zero. Observations
/// above the last finite bound count as this bound.
pub(crate) fn quantile(
    q: f64,
    buckets: impl Iterator<Item = (f64, f64)> + Clone,
    is_exponential: bool,
) -> Option<f64> {
    let positive = |count: f64| if count > 0.0 { count } else { 0.0 };
    let total: f64 = buckets.clone().map(|(_, count)| positive(count)).sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let rank = q * total;
    let (mut below, mut lower, mut last) = (0.0, None, None);
    for (bound, count) in buckets.clone() {
        let count = positive(count);
        if bound.is_finite() {
            if below + count >= rank && count > 0.0 {
                let lower = lower.unwrap_or(if bound > 0.0 { 0.0 } else { bound });
                let (lower, bound) = match is_exponential && lower < 0.0 && bound > 0.0 {
                    true => zero_bucket(lower, bound, below > 0.0, buckets.clone()),
                    false => (lower, bound),
                };
                let share = ((rank - below) / count).clamp(0.0, 1.0);
                // A bucket around zero contains no logarithms.
                return Some(match is_exponential && lower * bound > 0.0 {
                    true => lower * (bound / lower).powf(share),
                    false => lower + (bound - lower) * share,
                });
            }
            last = Some(bound);
        }
        below += count;
        lower = Some(bound);
    }
    last
}

/// Returns the bounds of a bucket around zero, if there are other buckets. If these are all on one
/// side, we assume that the observations in the bucket are on this side too.
fn zero_bucket(
    lower: f64,
    bound: f64,
    has_negative: bool,
    mut buckets: impl Iterator<Item = (f64, f64)>,
) -> (f64, f64) {
    let has_positive = buckets.any(|(other, count)| other > bound && count > 0.0);
    match (has_negative, has_positive) {
        (false, true) => (0.0, bound),
        (true, false) => (lower, 0.0),
        _ => (lower, bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_the_estimates_of_prometheus() {
        let classic = |q, buckets: &[(f64, f64)]| quantile(q, buckets.iter().copied(), false);
        let inf = f64::INFINITY;
        let buckets = [(1.0, 10.0), (2.0, 10.0), (4.0, 0.0), (inf, 0.0)];
        assert_eq!(classic(0.5, &buckets), Some(1.0));
        assert_eq!(classic(0.75, &buckets), Some(1.5));
        assert_eq!(classic(0.0, &buckets), Some(0.0));
        assert_eq!(classic(1.0, &buckets), Some(2.0));
        // Beyond the last finite bound.
        assert_eq!(classic(0.99, &[(1.0, 1.0), (inf, 9.0)]), Some(1.0));
        assert_eq!(classic(0.99, &[(inf, 9.0)]), None);
        assert_eq!(classic(0.5, &[(-1.0, 4.0), (1.0, 4.0), (inf, 0.0)]), Some(-1.0));
        let native = |q, buckets: &[(f64, f64)]| quantile(q, buckets.iter().copied(), true);
        // The middle of 1 to 4, and of -4 to -1, by their logarithms.
        assert_eq!(native(0.5, &[(1.0, 0.0), (4.0, 10.0)]), Some(2.0));
        assert_eq!(native(0.5, &[(-4.0, 0.0), (-1.0, 10.0)]), Some(-2.0));
        assert_eq!(native(0.5, &[(-0.5, 0.0), (0.5, 10.0)]), Some(0.0));
        // The bucket around zero, with other buckets above it, below it, and on both sides.
        let (below, zero, above) =
            ([(-2.0, 0.0), (-1.0, 2.0)], [(-0.5, 0.0), (0.5, 8.0)], (2.0, 2.0));
        let gap = (1.0, 0.0);
        assert_eq!(native(0.25, &[zero[0], zero[1], gap, above]), Some(0.15625));
        assert_eq!(native(0.25, &[zero[0], zero[1], (f64::INFINITY, 2.0)]), Some(0.15625));
        assert_eq!(native(0.6, &[below[0], below[1], zero[0], zero[1]]), Some(-0.25));
        let both = [below[0], below[1], zero[0], zero[1], gap, above];
        assert_eq!(native(0.5, &both), Some(0.0));
        assert_eq!(classic(0.5, &[]), None);
        assert_eq!(classic(0.5, &[(1.0, 0.0), (inf, 0.0)]), None);
        assert_eq!(classic(0.5, &[(1.0, f64::NAN), (inf, -1.0)]), None);
    }
}
