//! Snapshots: families, their series, and fixed values, as a scrape reads them.
//!
//! Instruments, collectors and callbacks produce these types; encoders consume them through a
//! [`Sink`]. Neither side knows the other. Nothing here owns memory: a snapshot borrows from the
//! segment, or from buffers of the scrape that the next one reuses.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[doc(hidden)]
pub use crate::intake::class::ALONE;
use crate::label::Indices;
#[doc(hidden)]
#[cfg(unix)]
pub use crate::scrape::{Decoder, each_series, visit_inspected};
#[doc(hidden)]
pub use crate::scrape::{Source, Walk};

/// The kind of a family's values.
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
    /// Unspecified.
    Unknown,
}

impl Kind {
    /// The name in OpenMetrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Unknown => "unknown",
        }
    }

    /// The kind in a sentence.
    pub(crate) fn with_article(self) -> &'static str {
        match self {
            Self::Counter => "a counter",
            Self::Gauge => "a gauge",
            Self::Histogram => "a histogram",
            Self::Summary => "a summary",
            Self::Info => "an info",
            Self::StateSet => "a state set",
            Self::Unknown => "a value of unknown type",
        }
    }
}

/// A label of a family: its name and, if it is of fixed cardinality, its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    /// The name.
    pub name: &'a str,
    /// The values in the order of their indices; `None` for a dynamic label.
    pub values: Option<&'a [&'a str]>,
}

/// The header of a family: the name, the metadata and the labels that all of its series share.
#[derive(Debug, Clone, Copy)]
pub struct FamilyHeader<'a> {
    /// The name, without any suffix that a format adds (`_total`, `_bucket`, `_info`).
    pub name: &'a str,
    /// The help; may be empty.
    pub help: &'a str,
    /// The unit, in which the name ends (`seconds`); may be empty.
    pub unit: &'a str,
    /// The kind of the family's values.
    pub kind: Kind,
    /// The labels. A series has one number, its *group*, for all labels that have values here, and
    /// a text for each other label.
    pub labels: &'a [Label<'a>],
    /// The number of groups: the product of the labels' numbers of values, or 1 if none has any.
    pub groups: u32,
    /// Whether the name of a counter is shown without `_total`, because its program follows another
    /// convention. OpenMetrics 1.0 requires the suffix of counters, so it shows such a counter as a
    /// metric of an unknown type.
    pub bare: bool,
}

impl<'a> FamilyHeader<'a> {
    /// Returns the names and values of the labels of fixed cardinality, for a group. The last label
    /// varies fastest.
    pub fn fixed(&self, group: u32) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut indices = Indices::new(group, self.groups);
        self.labels.iter().filter_map(move |label| {
            let values = label.values?;
            Some((label.name, values.get(indices.next(values.len())).copied().unwrap_or("")))
        })
    }

    /// Returns the name in Prometheus' text format.
    pub fn text_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter if !self.bare => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        format!("{}{suffix}", self.name)
    }

    /// Returns the names of the dynamic labels, in order. Each series has a text for each of them.
    pub fn dynamic(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.labels.iter().filter(|label| label.values.is_none()).map(|label| label.name)
    }
}

/// The texts of a series' dynamic labels, in the order of [`FamilyHeader::dynamic`].
///
/// The encoding is the same as in the segment: each text follows its length in bytes, which is one
/// byte if below 255, else the byte 255 and four bytes, little-endian.
#[derive(Clone, Copy, Default)]
pub struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// Wraps encoded texts.
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Appends a text to encoded ones.
    ///
    /// # Panics
    /// If the text is 4 GiB or longer.
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
    /// The encoded texts.
    #[inline]
    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.0
    }

    /// The texts of a file that nothing vouches for: as UTF-8, with a replacement character for
    /// what is not, and whether no character is one that text formats escape.
    pub(crate) fn checked(self) -> (Cow<'a, [u8]>, bool) {
        let (mut texts, mut is_utf8, mut escape_free) = (self, true, true);
        while let Some(text) = texts.next_bytes() {
            is_utf8 = is_utf8 && (is_ascii(text) || std::str::from_utf8(text).is_ok());
            let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
            // Without an early end, which would keep the compiler from looking at many bytes at
            // once.
            escape_free &= !text.iter().fold(false, |any, byte| any | is_escaped(byte));
        }
        if is_utf8 {
            return (Cow::Borrowed(self.0), escape_free);
        }
        let (mut texts, mut encoded) = (self, Vec::new());
        while let Some(text) = texts.next_bytes() {
            Self::push(&mut encoded, &String::from_utf8_lossy(text));
        }
        (Cow::Owned(encoded), escape_free)
    }

    /// The next text as bytes, for callers that only copy it: UTF-8 is not validated again.
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
        let bytes = self.next_bytes()?;
        if is_ascii(bytes) {
            // SAFETY: ASCII is UTF-8.
            return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        std::str::from_utf8(bytes).ok()
    }
}

/// Whether there are only bytes of ASCII. Most texts are short: the standard library looks at each
/// byte of those. Five labels of 3 to 19 bytes take 91 instructions here, and 399 in
/// [`std::str::from_utf8`].
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().fold(0, |all, byte| all | byte) < 0x80;
    };
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.iter().chain([last]).map(|word| u64::from_le_bytes(*word));
    words.fold(0, |all, word| all | word) & HIGH == 0
}

impl fmt::Debug for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// A point in time: nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// One series at the time of the scrape.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// The number of its combination of fixed label values; 0 if the family has none.
    pub group: u32,
    /// Its dynamic label values.
    pub texts: Texts<'a>,
    /// Whether no dynamic value contains a character that text formats escape: `"`, `\`, line feed.
    pub escape_free: bool,
    /// Whether this is the overflow series, which counts for all series beyond the family's limit.
    /// It has none of the family's labels: formats show the single label `quipu_overflow`, with
    /// [`Series::overflow_value`].
    pub overflow: bool,
    /// When it started counting from zero, if known.
    pub start: Option<Timestamp>,
    /// Its value.
    pub value: Value<'a>,
    /// The last exemplar of a gauge or of a value of unknown type, if any: counters and histograms
    /// have theirs in the value. No format that scrapers read has a place for it.
    pub exemplar: Option<Exemplar<'a>>,
}

impl<'a> Series<'a> {
    /// The names and values of its labels, in the family's order; the label `quipu_overflow` alone
    /// of an overflow series.
    pub fn labels(
        &self,
        family: &FamilyHeader<'a>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let (mut fixed, mut texts) = (family.fixed(self.group), self.texts);
        let overflow = self.overflow.then(|| ("quipu_overflow", self.overflow_value()));
        let own = if self.overflow { &[] } else { family.labels };
        let own = own.iter().map(move |label| match label.values {
            None => (label.name, texts.next().unwrap_or("")),
            Some(_) => fixed.next().unwrap_or((label.name, "")),
        });
        overflow.into_iter().chain(own)
    }

    /// The value of the label `quipu_overflow` of an overflow series: its text, which distinguishes
    /// the variants of a name, or `true`.
    pub fn overflow_value(&self) -> &'a str {
        self.texts.clone().next().unwrap_or("true")
    }
}

/// The number of a sample. The enum is complete: the cells of a series are integers or floats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// Any other number.
    Float(f64),
}

impl From<u64> for Number {
    #[inline]
    fn from(n: u64) -> Self {
        Self::Unsigned(n)
    }
}

impl Number {
    /// The number as a float, rounded if it is an integer beyond 2^53.
    #[inline]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(n) => n as f64,
            Self::Signed(n) => n as f64,
            Self::Float(n) => n,
        }
    }
}

/// An exemplar: one observation with labels of its own, such as the ID of a trace.
#[derive(Debug, Clone, Copy)]
pub struct Exemplar<'a> {
    /// Alternating names and values, encoded as [`Texts`].
    pub labels: Texts<'a>,
    /// The observed value.
    pub value: f64,
    /// When it was observed, if known.
    pub time: Option<Timestamp>,
}

/// The value of a series.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A counter's total.
    Counter {
        /// The sum of all increments.
        total: Number,
        /// The last exemplar, if any.
        exemplar: Option<Exemplar<'a>>,
    },
    /// A gauge's value.
    Gauge(Number),
    /// A value of unknown kind.
    Unknown(Number),
    /// A histogram.
    Histogram(HistogramValue<'a>),
    /// A summary.
    Summary {
        /// Pairs of quantile (0 to 1) and value, by ascending quantile; NaN without observations.
        quantiles: &'a [(f64, f64)],
        /// The number of observations.
        count: u64,
        /// Their sum.
        sum: f64,
    },
    /// An info: its text is in the labels.
    Info,
    /// The states: the name of each, and whether it is on.
    StateSet(&'a [(&'a str, bool)]),
}

/// The value of a histogram: classic buckets, exponential buckets, or both.
#[derive(Debug, Clone, Copy)]
pub struct HistogramValue<'a> {
    /// The number of observations: the sum over all buckets.
    pub count: u64,
    /// The sum of the observations.
    pub sum: f64,
    /// The classic buckets by ascending bound, `+Inf` last; empty if there are none.
    pub buckets: &'a [Bucket<'a>],
    /// The exponential buckets, if the histogram has any.
    pub native: Option<Native<'a>>,
}

/// A classic bucket.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    /// The upper bound, inclusive.
    pub bound: f64,
    /// The bound as another program spelled it, which the text formats then copy: the same bound in
    /// another spelling would be another series. `None` if the bound is not from another program.
    pub le: Option<&'a str>,
    /// The number of observations in this bucket alone, not in those below.
    pub count: u64,
    /// The last exemplar in this bucket, if any.
    pub exemplar: Option<Exemplar<'a>>,
}

/// Exponential buckets, as in Prometheus' native histograms. Bucket `i` of schema `s` counts values
/// above `2^((i-1) * 2^-s)` and up to `2^(i * 2^-s)`; negative buckets mirror the positive ones.
#[derive(Debug, Clone, Copy)]
pub struct Native<'a> {
    /// The resolution, -4 to 8.
    pub schema: i8,
    /// The width of the zero bucket: it counts values at most this far from zero.
    pub zero_threshold: f64,
    /// The number of observations in the zero bucket.
    pub zero_count: u64,
    /// Pairs of index and count, by ascending index, without empty buckets.
    pub positive: &'a [(i32, u64)],
    /// Like `positive`, for values below zero.
    pub negative: &'a [(i32, u64)],
    /// Exemplars, in no particular order.
    pub exemplars: &'a [Exemplar<'a>],
}

impl Native<'_> {
    /// The number of observations.
    pub(crate) fn count(&self) -> u64 {
        let sides = self.positive.iter().chain(self.negative);
        sides.fold(self.zero_count, |all, (_, count)| all.saturating_add(*count))
    }
}

/// Identifies a family that never changes, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyKey(u64);

impl FamilyKey {
    /// A key that is unique to a family, and never used again.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Receives families and their series: an encoder, a test, a sender.
///
/// Every series belongs to the family passed last.
pub trait Sink {
    /// Starts a family.
    fn family(&mut self, family: &FamilyHeader<'_>);
    /// Starts a family that is equal in all calls with this key. A sink can cache results under the
    /// key. By default, this calls [`Sink::family`].
    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        let _ = key;
        self.family(family);
    }
    /// Receives one series of the family. `family` is the same as in the last call of
    /// [`Sink::family`].
    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>);
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        (**self).family(family);
    }

    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        (**self).known_family(key, family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        (**self).series(family, series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_found_at_any_place() {
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert!(is_ascii(&bytes), "{len}");
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_ascii(&bytes), "{at} of {len}");
                bytes[at] = 0x7f;
            }
            assert!(is_ascii(&bytes), "{len}");
        }
    }

    #[test]
    fn texts_are_utf_8() {
        let mut encoded = Vec::new();
        let texts = ["", "a", "caf\u{e9}", "a longer text, of ASCII alone", "\u{2192} and more"];
        texts.iter().for_each(|text| Texts::push(&mut encoded, text));
        assert_eq!(Texts::new(&encoded).collect::<Vec<_>>(), texts);
        assert_eq!(Texts::new(b"\x02a\xff\x01b").next(), None);
    }
}
