//! A *look* is one reading of all series of a target: a segment, files of other clients, or an
//! exposition. `quipu top` shows looks, and `quipu diff` compares them.
//!
//! The data is flat: families, series that refer to their family by number, and one allocation each
//! for the labels and the buckets of all series. For example, 100,000 series need only a few
//! allocations.

mod client_files;
mod exponential;
mod exposition;
pub(crate) mod foreign;
mod growth;
mod labels;
mod processes;
mod quantile;
mod recording;
pub(crate) mod segment;
mod sink;
mod source;

use std::collections::HashMap;
use std::ops::Range;

use quipu::snapshot::{Kind, Number};

use crate::inspect::names::append_label;
pub(crate) use crate::inspect::names::series_name;

pub(crate) use growth::{began_again, growth};
pub(crate) use labels::labels;
pub(crate) use quantile::quantile;
pub(crate) use recording::{Moment, Recording, Writer};
pub(crate) use source::{Source, Target};

/// All series of a target at one moment.
#[derive(Debug, Default)]
pub(crate) struct Look {
    families: Vec<Family>,
    series: Vec<SeriesEntry>,
    /// The labels of all series, formatted like [`Series::labels`].
    texts: String,
    /// The buckets and quantiles of all series.
    points: Vec<(f64, f64)>,
    /// The number of each family, by name and type.
    numbers: HashMap<(String, Kind), u32>,
    /// The value of the label `segment`, which distinguishes the sources of a directory.
    source: Option<String>,
    /// The name of the target, for its own problems; can be empty.
    name: String,
    problems: Vec<String>,
    more_problems: usize,
    omitted: usize,
}

/// A family of series.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// The name in Prometheus' format.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    pub(crate) unit: String,
}

/// A series with its value at the time of the look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series<'l> {
    /// The number of the series' family.
    pub(crate) family: u32,
    /// The labels as `name="value",name="value"`, escaped like in an exposition.
    pub(crate) labels: &'l str,
    /// The start time in nanoseconds of Unix time, if it is known.
    pub(crate) start: Option<u64>,
    pub(crate) value: Value<Points<'l>>,
}

/// The value of a series. Its points are a slice, or a range of the look's points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<P> {
    /// The value of a counter, a gauge, an info, a state, or a series of an unknown type.
    Number(Number),
    /// The upper bounds, each with the number of observations in only this bucket. For a native
    /// histogram, these are only the exponential buckets in use, so two series can have different
    /// bounds.
    Histogram { count: f64, sum: f64, buckets: P, is_exponential: bool },
    /// Quantiles with their values.
    Summary { count: f64, sum: f64, quantiles: P },
}

impl<P> Value<P> {
    /// Returns the value with converted points.
    fn with_points<Q>(self, points: impl FnOnce(P) -> Q) -> Value<Q> {
        match self {
            Self::Number(number) => Value::Number(number),
            Self::Histogram { count, sum, buckets, is_exponential } => {
                Value::Histogram { count, sum, buckets: points(buckets), is_exponential }
            }
            Self::Summary { count, sum, quantiles } => {
                Value::Summary { count, sum, quantiles: points(quantiles) }
            }
        }
    }
}

/// Bounds with counts, or quantiles with values.
pub(crate) type Points<'l> = &'l [(f64, f64)];

/// A series as a look stores it.
#[derive(Debug)]
struct SeriesEntry {
    family: u32,
    labels: Range<u32>,
    start: Option<u64>,
    value: Value<PointRange>,
}

/// The first index of a series' points, and the index after the last one.
type PointRange = (u32, u32);

/// The maximum number of series in a look. Further series are omitted and counted.
const MAX_SERIES: usize = 4 << 20;
/// The maximum size of all labels in bytes.
const MAX_TEXTS: usize = 1 << 30;
/// The maximum number of buckets and quantiles.
const MAX_POINTS: usize = 64 << 20;
/// The maximum number of problems to store as strings.
const MAX_PROBLEMS: usize = 100;

impl Look {
    /// Creates an empty look at the target with this name.
    fn at(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }

    pub(crate) fn series(&self) -> impl ExactSizeIterator<Item = Series<'_>> {
        self.series.iter().map(|entry| Series {
            family: entry.family,
            labels: &self.texts[entry.labels.start as usize..entry.labels.end as usize],
            start: entry.start,
            value: entry.value.with_points(|range| self.points(range)),
        })
    }

    fn points(&self, (begin, end): PointRange) -> Points<'_> {
        &self.points[begin as usize..end as usize]
    }

    /// Returns whether any histogram contains no bucket with a bound.
    fn has_boundless_histograms(&self) -> bool {
        self.histograms().any(|(buckets, _)| buckets.iter().all(|(bound, _)| bound.is_infinite()))
    }

    fn has_exponential_histograms(&self) -> bool {
        self.histograms().any(|(_, is_exponential)| is_exponential)
    }

    /// Returns the buckets of all histograms, and whether they are exponential.
    fn histograms(&self) -> impl Iterator<Item = (&[(f64, f64)], bool)> {
        self.series().filter_map(|series| match series.value {
            Value::Histogram { buckets, is_exponential, .. } => Some((buckets, is_exponential)),
            _ => None,
        })
    }

    /// Returns the unreadable files and lines, a sentence for each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        if self.omitted > 0 {
            let message = format!("{} series are omitted: there are too many", self.omitted);
            problems.push(self.with_target(&message));
        }
        if self.more_problems > 0 {
            problems.push(self.with_target(&format!("{} more problems", self.more_problems)));
        }
        problems
    }

    /// Adds a problem of the target itself.
    fn add_target_problem(&mut self, message: &str) {
        let message = self.with_target(message);
        self.add_problem(message);
    }

    /// Returns a message that begins with the name of the target.
    fn with_target(&self, message: &str) -> String {
        if self.name.is_empty() { message.to_owned() } else { format!("{}: {message}", self.name) }
    }

    /// Adds a problem, or only counts it if there are too many.
    fn add_problem(&mut self, message: impl Into<String>) {
        match self.problems.len() < MAX_PROBLEMS {
            true => self.problems.push(message.into()),
            false => self.more_problems += 1,
        }
    }

    /// Adds the label `segment` with this value to all later series.
    fn set_source(&mut self, name: Option<String>) {
        self.source = name;
    }

    /// Returns the number of a family, and adds the family if it is new.
    pub(crate) fn family(&mut self, family: Family) -> u32 {
        let key = (family.name.clone(), family.kind);
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        // This fits, because each family needs a series, a record or a line in the input.
        let number =
            u32::try_from(self.families.len()).expect("there are fewer than 2^32 families");
        self.numbers.insert(key, number);
        self.families.push(family);
        number
    }

    /// Adds a series.
    pub(crate) fn add<'a, V: AsRef<str>>(
        &mut self,
        family: u32,
        labels: impl Iterator<Item = (&'a str, V)>,
        start: Option<u64>,
        value: Value<Points<'_>>,
    ) {
        let is_full = self.series.len() >= MAX_SERIES
            || self.texts.len() >= MAX_TEXTS
            || self.points.len() >= MAX_POINTS;
        if is_full {
            self.omitted += 1;
            return;
        }
        let begin = self.texts.len();
        if let Some(source) = &self.source {
            append_label(&mut self.texts, SOURCE, source);
        }
        for (name, value) in labels {
            if self.texts.len() > begin {
                self.texts.push(',');
            }
            append_label(&mut self.texts, name, value.as_ref());
        }
        let value = value.with_points(|points| self.keep(points));
        let labels = u32::try_from(begin).ok().zip(u32::try_from(self.texts.len()).ok());
        match labels {
            Some((begin, end)) => {
                self.series.push(SeriesEntry { family, labels: begin..end, start, value });
            }
            None => {
                self.texts.truncate(begin);
                self.omitted += 1;
            }
        }
    }

    fn keep(&mut self, points: Points<'_>) -> PointRange {
        // This fits, because a look is full long before, and a series contains at most some
        // thousands.
        let end = |points: &[_]| u32::try_from(points.len()).expect("there are fewer than 2^32");
        let begin = end(&self.points);
        self.points.extend_from_slice(points);
        (begin, end(&self.points))
    }
}

/// Reads an exposition in Prometheus' format or OpenMetrics.
///
/// # Errors
/// Fails if no line is readable.
#[cfg(test)]
pub(crate) fn read_text(text: &quipu_client::Text) -> Result<Look, String> {
    let mut look = Look::default();
    exposition::read(text, &mut look)?;
    Ok(look)
}

/// Reads an exposition in protobuf.
///
/// # Errors
/// Fails if a message is unreadable.
#[cfg(test)]
pub(crate) fn read_protobuf(bytes: &[u8]) -> Result<Look, String> {
    let mut look = Look::default();
    exposition::read_protobuf(bytes, &mut look)?;
    Ok(look)
}

/// The label for the segment of a series, in a look at several segments.
const SOURCE: &str = "segment";

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Family {
        Family { name: name.into(), kind: Kind::Counter, help: String::new(), unit: String::new() }
    }

    #[test]
    fn a_look_keeps_series_by_family_and_labels() {
        let mut look = Look::default();
        let (a, b) = (look.family(family("a")), look.family(family("b")));
        assert_eq!(look.family(family("a")), a);
        let one = Value::Number(Number::Unsigned(1));
        look.add(a, [("path", "/\"x")].into_iter(), None, one);
        look.set_source(Some("app".into()));
        let buckets = &[(0.5, 1.0), (f64::INFINITY, 2.0)][..];
        let is_exponential = false;
        let took = Value::Histogram { count: 3.0, sum: 2.5, buckets, is_exponential };
        look.add(b, [("my label", "x"), ("y", "z")].into_iter(), Some(7), took);
        let series: Vec<_> = look.series().collect();
        assert_eq!(
            (series[0].family, series[0].labels, series[0].value),
            (a, "path=\"/\\\"x\"", one)
        );
        let labels = "segment=\"app\",\"my label\"=\"x\",y=\"z\"";
        assert_eq!((series[1].labels, series[1].value, series[1].start), (labels, took, Some(7)));
        assert_eq!(series_name("a.b", labels), format!("{{\"a.b\",{labels}}}"));
        assert_eq!(series_name("a", ""), "a");
    }
}
