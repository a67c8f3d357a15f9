//! What a scrape reads: families, their series, and values that nobody changes any more.
//!
//! Instruments, collectors and callbacks make these; encoders take them. Neither knows the other.
//! Nothing here owns memory: a snapshot lends what lies in the segment, or in buffers of the scrape
//! that are used again for the next one.

use std::fmt;

pub use crate::read::Source;

/// What kind of values a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of observations by upper bound, classic or exponential ("native").
    Histogram,
    /// Quantiles, a count and a sum of observations.
    Summary,
    /// Text about the target, as labels.
    Info,
    /// States, each of which is on or off.
    StateSet,
    /// Not said.
    Unknown,
}

/// A label of a family: its name and, where they are known beforehand, its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    /// The name.
    pub name: &'a str,
    /// The values, in the order of their indices, where the label is of fixed cardinality.
    pub values: Option<&'a [&'a str]>,
}

/// A family: all series of one name.
#[derive(Debug, Clone, Copy)]
pub struct Family<'a> {
    /// The name, without any suffix that a format adds (`_total`, `_bucket`, `_info`).
    pub name: &'a str,
    /// What it is about; empty where nothing was said.
    pub help: &'a str,
    /// The unit, in which the name ends (`seconds`); empty where there is none.
    pub unit: &'a str,
    /// The kind of its values.
    pub kind: Kind,
    /// Its labels. A series gives a *group* for all that have values here, and texts for the rest.
    pub labels: &'a [Label<'a>],
    /// How many groups there are: the product of the numbers of values, 1 where there are none.
    pub groups: u32,
}

impl<'a> Family<'a> {
    /// The pairs of fixed cardinality that make up a group. The last label varies fastest.
    pub fn fixed(&self, group: u32) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut rest = group;
        let mut radix = self.groups.max(1);
        self.labels.iter().filter_map(move |label| {
            let values = label.values?;
            radix /= u32::try_from(values.len()).unwrap_or(u32::MAX).max(1);
            let index = rest / radix.max(1);
            rest %= radix.max(1);
            Some((label.name, values.get(index as usize).copied().unwrap_or("")))
        })
    }

    /// The names of the labels whose values each series brings itself, in order.
    pub fn dynamic(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.labels.iter().filter(|label| label.values.is_none()).map(|label| label.name)
    }
}

/// The texts of a series' dynamic labels, in the order of [`Family::dynamic`].
///
/// They lie one behind the other, each behind its length, as the segment has them: one byte below
/// 255, else the byte 255 and four little-endian bytes.
#[derive(Clone, Copy, Default)]
pub struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// Takes over encoded texts.
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Adds a text to encoded ones.
    pub fn push(encoded: &mut Vec<u8>, text: &str) {
        match u8::try_from(text.len()) {
            Ok(length) if length < u8::MAX => encoded.push(length),
            _ => {
                encoded.push(u8::MAX);
                let length = u32::try_from(text.len()).expect("a label is shorter than 4 GiB");
                encoded.extend_from_slice(&length.to_le_bytes());
            }
        }
        encoded.extend_from_slice(text.as_bytes());
    }
}

impl<'a> Texts<'a> {
    /// The next text, for who copies it and no more: whether it is UTF-8 is not looked at again.
    #[inline]
    pub(crate) fn next_bytes(&mut self) -> Option<&'a [u8]> {
        let (&first, rest) = self.0.split_first()?;
        let (length, rest) = if first < u8::MAX {
            (usize::from(first), rest)
        } else {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        };
        let (text, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.next_bytes()?).ok()
    }
}

impl fmt::Debug for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// A moment: nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// One series at the time of the scrape.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// The number of its combination of fixed label values; 0 where the family has none.
    pub group: u32,
    /// Its dynamic label values.
    pub texts: Texts<'a>,
    /// Whether no dynamic value has a character that text formats escape: `"`, `\`, line feed.
    pub plain: bool,
    /// Whether it stands for all series beyond the family's limit. Then it has no labels of its
    /// own: formats show the one label `quipu_overflow="true"`.
    pub overflow: bool,
    /// When it began to count from zero, where that is known.
    pub start: Option<Timestamp>,
    /// What it counted.
    pub value: Value<'a>,
}

/// A number that a sample has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// Any other.
    Float(f64),
}

/// An observation that stands for others: its labels name, say, a trace.
#[derive(Debug, Clone, Copy)]
pub struct Exemplar<'a> {
    /// Names and values in turn, encoded as [`Texts`].
    pub labels: Texts<'a>,
    /// What was observed.
    pub value: f64,
    /// When.
    pub time: Option<Timestamp>,
}

/// What a series counted.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A counter's total.
    Counter {
        /// The sum of all increments.
        total: Number,
        /// The last exemplar, where there was one.
        exemplar: Option<Exemplar<'a>>,
    },
    /// A gauge's value.
    Gauge(Number),
    /// A value of no known kind.
    Unknown(Number),
    /// A histogram.
    Histogram(Histogram<'a>),
    /// A summary.
    Summary {
        /// Pairs of quantile (0 to 1) and value, by ascending quantile; NaN without observations.
        quantiles: &'a [(f64, f64)],
        /// How many observations there were.
        count: u64,
        /// Their sum.
        sum: f64,
    },
    /// An info: its text is in the labels.
    Info,
    /// The states by name, and whether each is on.
    StateSet(&'a [(&'a str, bool)]),
}

/// A histogram. It has classic buckets, exponential ones, or both.
#[derive(Debug, Clone, Copy)]
pub struct Histogram<'a> {
    /// How many observations there were: the sum over all buckets.
    pub count: u64,
    /// The sum of what was observed.
    pub sum: f64,
    /// The classic buckets by ascending bound, `+Inf` last; empty where there are none.
    pub buckets: &'a [Bucket<'a>],
    /// The exponential buckets, where it has them.
    pub native: Option<Native<'a>>,
}

/// A classic bucket.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    /// The upper bound, inclusive.
    pub bound: f64,
    /// The bound as another program wrote it, whose text formats shall show it so: a label that is
    /// written in another way is another series. `None` where there is no other program.
    pub le: Option<&'a str>,
    /// How many observations were in this bucket alone, not in those below.
    pub count: u64,
    /// The last exemplar in this bucket, where there was one.
    pub exemplar: Option<Exemplar<'a>>,
}

/// Exponential buckets, as Prometheus' native histograms have them. Bucket `i` of schema `s` holds
/// what is above `2^((i-1) * 2^-s)` and at most `2^(i * 2^-s)`; negative ones mirror that.
#[derive(Debug, Clone, Copy)]
pub struct Native<'a> {
    /// The resolution, -4 to 8.
    pub schema: i8,
    /// The width of the zero bucket: what is at most as far from zero is in there.
    pub zero_threshold: f64,
    /// How many observations the zero bucket has.
    pub zero_count: u64,
    /// Pairs of index and count, by ascending index, without empty ones.
    pub positive: &'a [(i32, u64)],
    /// As `positive`, for values below zero.
    pub negative: &'a [(i32, u64)],
    /// Exemplars, in no particular order.
    pub exemplars: &'a [Exemplar<'a>],
}

/// Takes families and series in turn: an encoder, a test, a sender.
///
/// Every series belongs to the family that was given last.
pub trait Sink {
    /// A family begins.
    fn family(&mut self, family: &Family<'_>);
    /// One of its series. `family` is the same as in the last call of [`Sink::family`].
    fn series(&mut self, family: &Family<'_>, series: &Series<'_>);
}
