//! The cells of a goal: its bound, the measured figure, whether this figure is within the bound,
//! and the figure of a peer.

use super::format;
use crate::record::Record;
use crate::{Error, Result};

/// A bound of a figure.
#[derive(Debug, PartialEq)]
pub(super) struct Bound {
    /// Whether it is an upper bound, not a lower one.
    most: bool,
    value: f64,
    unit: String,
}

impl Bound {
    /// Parses a bound, such as `at_most="0.15 us"`.
    pub(super) fn new(at_most: Option<&str>, at_least: Option<&str>) -> Result<Bound> {
        let (most, text) = match (at_most, at_least) {
            (Some(text), None) => (true, text),
            (None, Some(text)) => (false, text),
            _ => return Err(Error::report("a goal has at_most=... or at_least=...")),
        };
        let parsed = text.split_once(' ').and_then(|(value, unit)| {
            Some(Bound { most, value: value.parse().ok()?, unit: unit.into() })
        });
        parsed.ok_or_else(|| Error::report(format!("{text:?} is not a number and a unit")))
    }

    /// The four cells, without the bars at the ends. A missing record is shown as not measured.
    pub(super) fn cells(&self, ours: Option<&Record>, peer: Option<&Record>) -> Result<String> {
        let word = if self.most { "at most" } else { "at least" };
        let bound = format::quantity(self.value, &self.unit);
        let (value, verdict) = match ours {
            None => ("not measured".to_string(), "-"),
            Some(record) => {
                let value = format::quantity(record.median, &record.unit);
                let verdict = if self.holds(record)? { "reached" } else { "**not reached**" };
                (format!("**{value}**"), verdict)
            }
        };
        let peer = peer.map_or("-".into(), |record| {
            let value = format::quantity(record.median, &record.unit);
            format!("{value}, {}", record.subject)
        });
        Ok(format!("{word} {bound} | {value} | {verdict} | {peer}"))
    }

    fn holds(&self, record: &Record) -> Result<bool> {
        let in_nanos = |unit: &str| match unit {
            "ns" => Some(1.0),
            "us" => Some(1e3),
            "ms" => Some(1e6),
            "s" => Some(1e9),
            _ => None,
        };
        let factor = match (in_nanos(&self.unit), in_nanos(&record.unit)) {
            (Some(ours), Some(theirs)) => ours / theirs,
            _ if self.unit == record.unit => 1.0,
            _ => {
                let problem = format!("a goal in {}, and a figure in {}", self.unit, record.unit);
                return Err(Error::report(problem));
            }
        };
        let bound = self.value * factor;
        Ok(if self.most { record.median <= bound } else { record.median >= bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    #[test]
    fn bounds_hold_in_any_unit_of_time() {
        let time = |nanos: f64| Label::new("c", "quipu", "time", "ns").of(&[nanos]);
        let bound = Bound::new(Some("0.15 us"), None).unwrap();
        let peer = Label::new("c", "peer 1", "time", "ns").of(&[1640.0]);
        assert_eq!(
            bound.cells(Some(&time(150.0)), Some(&peer)).unwrap(),
            "at most 150 ns | **150 ns** | reached | 1.64 us, peer 1"
        );
        let beyond = bound.cells(Some(&time(151.0)), None).unwrap();
        assert_eq!(beyond, "at most 150 ns | **151 ns** | **not reached** | -");
        assert_eq!(bound.cells(None, None).unwrap(), "at most 150 ns | not measured | - | -");
        let rate = Label::new("c", "quipu", "increments/s", "1/s").of(&[2e6]);
        let least = Bound::new(None, Some("1000000 1/s")).unwrap();
        assert!(least.cells(Some(&rate), None).unwrap().contains("| reached |"));
        assert!(least.cells(Some(&time(1.0)), None).is_err());
    }

    #[test]
    fn a_bound_is_one_number_and_a_unit() {
        assert!(Bound::new(None, None).is_err());
        assert!(Bound::new(Some("1 ns"), Some("1 ns")).is_err());
        assert!(Bound::new(Some("fast"), None).is_err());
    }
}
