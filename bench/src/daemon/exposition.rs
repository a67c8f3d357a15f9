//! Reads the exposition of a subject: Prometheus' format, in one pass, whatever its size.

use std::collections::BTreeMap;

/// The part of an exposition that the load caused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// The sum of the load's counters and of the numbers of observations of its timers. This is the
    /// number of countable lines that arrived.
    pub(super) countable: f64,
    /// The number of the load's series.
    pub(super) series: usize,
}

impl Shown {
    /// Reads the exposition after a load of StatsD lines.
    pub(super) fn of(text: &[u8]) -> Shown {
        let mut shown = Shown::default();
        for line in text.split(|byte| *byte == b'\n') {
            let is_counted = line.starts_with(b"checkout_requests_")
                || line
                    .strip_prefix(b"checkout_took_")
                    .and_then(|rest| rest.get(3..))
                    .is_some_and(|rest| rest.starts_with(b"_count"));
            if let Some(value) = is_counted.then(|| value(line)).flatten() {
                shown.countable += value;
                shown.series += 1;
            }
        }
        shown
    }
}

/// Returns the sum of the samples with a prefix: the name and the first labels.
pub(super) fn sum(text: &[u8], prefix: &str) -> f64 {
    samples(text, prefix).sum()
}

/// Returns the values of the samples with a prefix.
pub(super) fn samples<'a>(text: &'a [u8], prefix: &'a str) -> impl Iterator<Item = f64> + 'a {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter(move |line| line.starts_with(prefix.as_bytes())).filter_map(value)
}

/// Returns the samples with a prefix, with their names and labels.
pub(super) fn keyed(text: &[u8], prefix: &str) -> BTreeMap<String, f64> {
    let lines = text.split(|byte| *byte == b'\n');
    let chosen = lines.filter(|line| line.starts_with(prefix.as_bytes()));
    let sample = |line: &[u8]| {
        let space = line.iter().rposition(|byte| *byte == b' ')?;
        Some((String::from_utf8_lossy(&line[..space]).into_owned(), value(line)?))
    };
    chosen.filter_map(sample).collect()
}

/// Returns the value at the end of a line. None of the subjects writes timestamps.
fn value(line: &[u8]) -> Option<f64> {
    let space = line.iter().rposition(|byte| *byte == b' ')?;
    std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"# TYPE checkout_requests_042 counter\n\
        checkout_requests_042{code=\"200\",route=\"/a b\"} 1.5e+06\n\
        checkout_requests_042{code=\"201\"} 2\n\
        checkout_level_007{code=\"200\"} 9\n\
        checkout_took_008_bucket{code=\"200\",le=\"0.1\"} 3\n\
        checkout_took_008_sum{code=\"200\"} 0.5\n\
        checkout_took_008_count{code=\"200\"} 4\n\
        drops_total{reason=\"a\"} 7\n\
        drops_total{reason=\"b\"} 1\n";

    #[test]
    fn counters_and_observations_are_summed() {
        assert_eq!(Shown::of(TEXT), Shown { countable: 1_500_006.0, series: 3 });
    }

    #[test]
    fn samples_are_found_by_their_beginning() {
        assert_eq!(sum(TEXT, "drops_total"), 8.0);
        assert_eq!(sum(TEXT, "drops_total{reason=\"b\"}"), 1.0);
        assert_eq!(sum(TEXT, "none"), 0.0);
        let drops = keyed(TEXT, "drops_total");
        assert_eq!((drops.len(), drops["drops_total{reason=\"a\"}"]), (2, 7.0));
    }
}
