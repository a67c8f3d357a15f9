//! The outputs of aggregation rules, such as `sum` or `quantiles(0.5, 0.9)`. The names are the same
//! as in vmagent's stream aggregation, where it offers the same output.

use std::fmt;
use std::str::FromStr;

/// An output of an aggregation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Output {
    Sum,
    Count,
    Last,
    Min,
    Max,
    Avg,
    /// A histogram with these upper bounds, in ascending order.
    Histogram(Vec<f64>),
    /// A summary with these quantiles, in ascending order.
    Quantiles(Vec<f64>),
}

/// The maximum number of bounds or quantiles of an output.
const MOST: usize = 100;
const KNOWN: &str =
    "sum, count, last, min, max, avg, histogram(BOUND, ...) and quantiles(QUANTILE, ...)";

impl Output {
    /// Returns the name, which most outputs append to the metric name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Last => "last",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::Histogram(_) => "histogram",
            Self::Quantiles(_) => "quantiles",
        }
    }
}

/// The error of an invalid output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong(String);

impl FromStr for Output {
    type Err = Wrong;

    /// Reads an output such as `sum` or `quantiles(0.5, 0.9)`.
    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = |reason: &str| Wrong(format!("{text:?} {reason}"));
        let (name, numbers) = match text.trim().split_once('(') {
            None => (text.trim(), None),
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| wrong("has no `)` at its end"))?;
                (name.trim_end(), Some(inner))
            }
        };
        let plain = match name {
            "sum" => Self::Sum,
            "count" => Self::Count,
            "last" => Self::Last,
            "min" => Self::Min,
            "max" => Self::Max,
            "avg" => Self::Avg,
            "histogram" => {
                let bounds = ascending(numbers, f64::is_finite);
                let bounds = bounds.ok_or_else(|| {
                    wrong("needs its upper bounds, each once, such as histogram(0.1, 1, 10)")
                })?;
                return Ok(Self::Histogram(bounds));
            }
            "quantiles" => {
                let quantiles = ascending(numbers, |number| (0.0..=1.0).contains(&number));
                let quantiles = quantiles.ok_or_else(|| {
                    wrong("needs quantiles from 0 to 1, each once, such as quantiles(0.5, 0.99)")
                })?;
                return Ok(Self::Quantiles(quantiles));
            }
            _ => return Err(wrong(&format!("is unknown; give some of {KNOWN}"))),
        };
        match numbers {
            None => Ok(plain),
            Some(_) => Err(wrong("has no numbers: remove them")),
        }
    }
}

/// Parses numbers between commas, and sorts them. Returns `None` if there are none or too many, or
/// if a number is invalid or occurs twice.
fn ascending(numbers: Option<&str>, is_good: impl Fn(f64) -> bool) -> Option<Vec<f64>> {
    let numbers = numbers?.split(',').take(MOST + 1);
    let mut numbers: Vec<f64> =
        numbers.map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
    let is_good = numbers.len() <= MOST && numbers.iter().all(|number| is_good(*number));
    if !is_good {
        return None;
    }
    numbers.sort_by(f64::total_cmp);
    numbers.windows(2).all(|two| two[0] < two[1]).then_some(numbers)
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_read_with_their_numbers() {
        let read = |text: &str| text.parse::<Output>().map_err(|wrong| wrong.to_string());
        assert_eq!(read("sum"), Ok(Output::Sum));
        assert_eq!(read(" avg "), Ok(Output::Avg));
        assert_eq!(read("histogram(1, 0.1)"), Ok(Output::Histogram(vec![0.1, 1.0])));
        assert_eq!(read("quantiles (0, 1,0.5)"), Ok(Output::Quantiles(vec![0.0, 0.5, 1.0])));
        let many =
            format!("histogram({})", (0..=MOST).map(|n| format!("{n},")).collect::<String>());
        for (text, part) in [
            ("median", "\"median\" is unknown; give some of sum,"),
            ("Sum", "is unknown"),
            ("sum(1)", "has no numbers"),
            ("histogram", "needs its upper bounds"),
            ("histogram()", "needs its upper bounds"),
            ("histogram(1, 1)", "needs its upper bounds"),
            ("histogram(1, inf)", "needs its upper bounds"),
            ("quantiles(0.5", "has no `)`"),
            ("quantiles(99)", "needs quantiles from 0 to 1"),
            ("quantiles(NaN)", "needs quantiles from 0 to 1"),
            (&many, "needs its upper bounds"),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(wrong.contains(part), "{text}: {wrong}");
        }
    }
}
