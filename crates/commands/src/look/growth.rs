//! Computes the growth of sums between two looks.

use quipu::snapshot::Number;

/// Returns the growth of a sum, and whether the sum began again from zero. In this case, the growth
/// is the whole sum, like in Prometheus' `increase`.
pub(crate) fn growth(before: Number, now: Number, is_new: bool) -> (f64, bool) {
    let all = now.as_f64();
    if is_new {
        return (all, true);
    }
    // We subtract integers, because this is exact for large numbers.
    if let (Number::Unsigned(before), Number::Unsigned(now)) = (before, now) {
        return now.checked_sub(before).map_or((all, true), |growth| (growth as f64, false));
    }
    let growth = all - before.as_f64();
    if growth < 0.0 { (all, true) } else { (growth, false) }
}

/// Returns whether a series has a later start time than before, if both are known. The comparison
/// is tolerant, because some formats round times to milliseconds.
pub(crate) fn began_again(before: Option<u64>, now: Option<u64>) -> bool {
    const ROUNDED: u64 = 2_000_000;
    before.zip(now).is_some_and(|(before, now)| now > before.saturating_add(ROUNDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counts_keep_their_differences() {
        let unsigned = |n| Number::Unsigned(n);
        assert_eq!(growth(unsigned(u64::MAX - 1), unsigned(u64::MAX), false), (1.0, false));
        assert_eq!(growth(unsigned(5), unsigned(2), false), (2.0, true));
        assert_eq!(growth(unsigned(5), unsigned(9), true), (9.0, true));
        assert_eq!(growth(Number::Float(1.5), Number::Float(4.0), false), (2.5, false));
        let (nan, is_reset) = growth(Number::Float(1.5), Number::Float(f64::NAN), false);
        assert!(nan.is_nan() && !is_reset);
    }
}
