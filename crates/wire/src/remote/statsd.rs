//! Reads lines of StatsD and its dialects, in the role of a server.
//!
//! Use the formats [`Statsd`](crate::Statsd) and [`DogStatsd`](crate::DogStatsd) to read messages.
//! This reader keeps more, because a server needs it: fractional values, changes of gauges, sample
//! rates, and tags separate from the name. The reader does not allocate, and an error affects only
//! its own line.
//!
//! ```
//! use quipu_wire::remote::statsd::{StatsdLine, StatsdLines, Tags, StatsdType};
//!
//! let packet = b"checkout.total:12.5|h|@0.5|#region:eu,code:200\nqueue:-3|g\nbad\n";
//! let mut lines = StatsdLines::new(packet, Tags::ALL);
//! let Some(Ok(StatsdLine::Sample(sample))) = lines.next() else { panic!() };
//! assert_eq!((sample.name.head, sample.kind, sample.rate), ("checkout.total", StatsdType::Histogram, 0.5));
//! assert_eq!(sample.values().next().unwrap().unwrap().number, 12.5);
//! assert!(sample.tags().eq([Ok(("region", "eu")), Ok(("code", "200"))]));
//!
//! let Some(Ok(StatsdLine::Sample(sample))) = lines.next() else { panic!() };
//! let change = sample.values().next().unwrap().unwrap();
//! assert_eq!((change.number, change.is_signed), (-3.0, true));
//!
//! let error = lines.next().unwrap().unwrap_err();
//! assert_eq!((error.line(), error.reason().as_str()), (3, "malformed_line"));
//! assert!(lines.next().is_none());
//! ```
//!
//! # Lines
//!
//! ```text
//! name:value|type             type: c g ms h d s m
//!     |@rate                  |#tag:value,tag:value      |Tseconds
//!     |c:container            |e:external-data           |card:cardinality
//! name:value:value:value|ms   several values (not of a set)
//! name:1|c:2|g|@0.5           several samples, without Datadog's tags
//! ```
//!
//! A line ends with a line feed, an optional carriage return before it, or the end of the input.
//! Empty lines are skipped. After the type, the reader skips the same fields as Datadog's agent:
//! the container, the external data, the cardinality, and any other field of the form `word:text`.
//! A time that is not a number is skipped too.
//!
//! | tags | example | in [`Tags`] |
//! |---|---|---|
//! | Datadog | `name:1\|c\|#a:b,c:d` | `datadog` |
//! | InfluxDB | `name,a=b,c=d:1\|c` | `influxdb` |
//! | Librato | `name#a=b,c=d:1\|c` | `librato` |
//! | SignalFx | `na[a=b,c=d]me:1\|c` | `signalfx` |
//!
//! # Differences from statsd_exporter
//!
//! The reasons of errors have the names from `statsd_exporter`. These lines are handled
//! differently:
//!
//! | line | here | statsd_exporter |
//! |---|---|---|
//! | several values of a counter or gauge | all of them | an error |
//! | a value that is infinite or not a number | an error | accepted |
//! | a rate that is not a number, or beyond 0 to 1 | an error | an error and a sample |
//! | an unknown field, more than four fields | skipped, if of the form `word:text` | an error |
//! | tags in two fields | an error | all of them |
//! | a malformed sample, among several in a line | the line ends there | it is skipped |
//! | a name that consists only of tags | an error | an empty name |
//! | brackets in the wrong order, `a][b` | a part of the name | it panics |

use core::fmt;

use memchr::memmem;

use super::line_error::LineReason;
use super::lines::{self, find, float};

/// The forms of tags that a reader recognizes. Tags of any other form are a part of the name;
/// Datadog's are skipped.
///
/// ```
/// use quipu_wire::remote::statsd::Tags;
///
/// let tags = Tags::NONE.datadog(true).librato(true);
/// assert!(tags.datadog && !tags.signalfx);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each form is independent of the others")]
pub struct Tags {
    /// `name:1|c|#a:b`.
    pub datadog: bool,
    /// `name,a=b:1|c`.
    pub influxdb: bool,
    /// `name#a=b:1|c`.
    pub librato: bool,
    /// `name[a=b]:1|c`.
    pub signalfx: bool,
}

/// Reads the lines of a packet, or complete lines of a stream through a
/// [`LineBuffer`](super::LineBuffer).
#[derive(Clone, Debug)]
pub struct StatsdLines<'a> {
    lines: lines::Lines<'a>,
    number: u64,
    tags: Tags,
    /// The rest of the current line, if it contains more samples.
    more: Option<More<'a>>,
}

/// The unread samples of a line.
#[derive(Clone, Copy, Debug)]
struct More<'a> {
    line: &'a str,
    /// The offset of the next sample.
    at: usize,
    name: Name<'a>,
    name_tags: &'a str,
    /// Whether the next sample is the first one.
    is_first: bool,
}

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum StatsdLine<'a> {
    /// One or more values of a metric.
    Sample(StatsdSample<'a>),
    /// An event of Datadog: the unchanged line, without any check.
    Event(&'a str),
    /// A service check of Datadog: the unchanged line, without any check.
    ServiceCheck(&'a str),
}

/// One or more values of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StatsdSample<'a> {
    /// The name, without tags.
    pub name: Name<'a>,
    /// The type.
    pub kind: StatsdType,
    /// The sample rate: the part of the events that was sent, above 0 and at most 1.
    pub rate: f64,
    /// The time in seconds since 1970, if the client sent one.
    pub timestamp_s: Option<i64>,
    values: &'a str,
    /// The length of the first value.
    first: usize,
    /// The position of the values.
    line: u64,
    offset: usize,
    tags: &'a str,
    separator: u8,
}

/// The name of a metric. It can consist of two parts, because SignalFx writes tags within the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a name has these parts")]
pub struct Name<'a> {
    /// The complete name, or the part before the tags.
    pub head: &'a str,
    /// The part after SignalFx's tags; empty for most names.
    pub tail: &'a str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatsdType {
    /// `c`: values are added.
    Counter,
    /// `d`: values of a distribution, aggregated by the server.
    Distribution,
    /// `g`: the last value is kept.
    Gauge,
    /// `h`: values of a histogram.
    Histogram,
    /// `m`: events are counted and reported as a rate.
    Meter,
    /// `s`: distinct values are counted; see [`StatsdSample::text`].
    Set,
    /// `ms`: durations in milliseconds.
    Timer,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a value has nothing else")]
pub struct StatsdValue {
    /// A finite number, not divided by the sample rate.
    pub number: f64,
    /// Whether the number begins with a sign. In StatsD, a sign means that a gauge changes by this
    /// number.
    pub is_signed: bool,
}

/// The error for a line or a value that could not be read.
pub type StatsdLineError = super::LineError<StatsdReason>;

/// The reason why a line could not be read, with the names from `statsd_exporter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatsdReason {
    /// The type is unknown.
    IllegalEvent,
    /// The sample rate is not a number above 0 and up to 1.
    InvalidSampleFactor,
    /// A field after the type is empty, unknown or repeated.
    MalformedComponent,
    /// The line is not UTF-8, or not a name, a colon, a value, a bar, and a type.
    MalformedLine,
    /// A value is not a finite number.
    MalformedValue,
    /// Both the name and the sample contain tags, or a line of several samples contains Datadog's
    /// tags.
    MixedTaggingStyles,
}

impl Tags {
    /// All forms.
    pub const ALL: Tags = Tags { datadog: true, influxdb: true, librato: true, signalfx: true };
    /// Only Datadog's tags.
    pub const DATADOG: Tags = Tags { datadog: true, ..Tags::NONE };
    /// No tags, as in the original StatsD.
    pub const NONE: Tags =
        Tags { datadog: false, influxdb: false, librato: false, signalfx: false };

    /// Returns these forms with or without `name:1|c|#a:b`.
    #[must_use]
    pub const fn datadog(self, datadog: bool) -> Tags {
        Tags { datadog, ..self }
    }

    /// Returns these forms with or without `name,a=b:1|c`.
    #[must_use]
    pub const fn influxdb(self, influxdb: bool) -> Tags {
        Tags { influxdb, ..self }
    }

    /// Returns these forms with or without `name#a=b:1|c`.
    #[must_use]
    pub const fn librato(self, librato: bool) -> Tags {
        Tags { librato, ..self }
    }

    /// Returns these forms with or without `name[a=b]:1|c`.
    #[must_use]
    pub const fn signalfx(self, signalfx: bool) -> Tags {
        Tags { signalfx, ..self }
    }

    fn are_in_names(self) -> bool {
        self.influxdb || self.librato || self.signalfx
    }
}

impl<'a> StatsdLines<'a> {
    /// Creates a reader of lines with tags of these forms.
    pub fn new(input: &'a [u8], tags: Tags) -> StatsdLines<'a> {
        StatsdLines { lines: lines::Lines::new(input), number: 0, tags, more: None }
    }

    #[inline(always)]
    fn read(&mut self, line: &'a str) -> Result<StatsdLine<'a>, StatsdLineError> {
        let bytes = line.as_bytes();
        if bytes.first() == Some(&b'_') {
            if bytes.starts_with(b"_e{") {
                return Ok(StatsdLine::Event(line));
            }
            if bytes.starts_with(b"_sc|") {
                return Ok(StatsdLine::ServiceCheck(line));
            }
        }
        let colon = match self.tags.are_in_names() {
            true => find(bytes, 0, *b":#,["),
            false => find(bytes, 0, [b':']),
        };
        if bytes.get(colon) == Some(&b':') && colon > 0 {
            let name = Name { head: &line[..colon], tail: "" };
            return self.sample(More { line, at: colon + 1, name, name_tags: "", is_first: true });
        }
        self.tagged_name(line)
    }

    /// Reads a line whose name contains a character that can begin tags, or is malformed.
    #[inline(never)]
    fn tagged_name(&mut self, line: &'a str) -> Result<StatsdLine<'a>, StatsdLineError> {
        let colon = find(line.as_bytes(), 0, [b':']);
        if colon == 0 || colon == line.len() {
            return Err(self.error(colon, StatsdReason::MalformedLine));
        }
        let (name, name_tags) = self.name_and_tags(&line[..colon]);
        if name.head.is_empty() && name.tail.is_empty() {
            return Err(self.error(0, StatsdReason::MalformedLine));
        }
        self.sample(More { line, at: colon + 1, name, name_tags, is_first: true })
    }

    fn name_and_tags(&self, name: &'a str) -> (Name<'a>, &'a str) {
        let whole = Name { head: name, tail: "" };
        if self.tags.signalfx
            && let brackets @ (Some(_), _) | brackets @ (_, Some(_)) =
                (name.find('['), name.find(']'))
        {
            return match brackets {
                (Some(open), Some(close)) if open < close => {
                    let name = Name { head: &name[..open], tail: &name[close + 1..] };
                    (name, &whole.head[open + 1..close])
                }
                // A single bracket is a part of the name.
                _ => (whole, ""),
            };
        }
        let begins = |c| c == '#' && self.tags.librato || c == ',' && self.tags.influxdb;
        match name.find(begins) {
            Some(at) => (Name { head: &name[..at], tail: "" }, &name[at + 1..]),
            None => (whole, ""),
        }
    }

    /// Reads the next sample of the line.
    #[cold]
    fn next_sample(&mut self) -> Option<Result<StatsdLine<'a>, StatsdLineError>> {
        let more = self.more.take()?;
        Some(self.sample(more))
    }

    /// Reads the values, the type and the fields of a sample.
    #[inline(always)]
    fn sample(&mut self, from: More<'a>) -> Result<StatsdLine<'a>, StatsdLineError> {
        let More { line, at, name, name_tags, .. } = from;
        let bytes = line.as_bytes();
        let first = find(bytes, at, *b":|");
        let bar = match bytes.get(first) {
            Some(b':') => find(bytes, first, [b'|']),
            _ => first,
        };
        if bar == bytes.len() {
            return Err(self.error(bar, StatsdReason::MalformedLine));
        }
        if bar == at {
            return Err(self.error(at, StatsdReason::MalformedValue));
        }
        let (kind, end) = match bytes[bar + 1..] {
            [b'c', ..] => (StatsdType::Counter, bar + 2),
            [b'd', ..] => (StatsdType::Distribution, bar + 2),
            [b'g', ..] => (StatsdType::Gauge, bar + 2),
            [b'h', ..] => (StatsdType::Histogram, bar + 2),
            [b'm', b's', ..] => (StatsdType::Timer, bar + 3),
            [b'm', ..] => (StatsdType::Meter, bar + 2),
            [b's', ..] => (StatsdType::Set, bar + 2),
            _ => return Err(self.error(bar + 1, StatsdReason::IllegalEvent)),
        };
        if !matches!(bytes.get(end), None | Some(b'|' | b':')) {
            return Err(self.error(bar + 1, StatsdReason::IllegalEvent));
        }
        let mut sample = StatsdSample {
            name,
            kind,
            rate: 1.0,
            timestamp_s: None,
            values: &line[at..bar],
            first: first - at,
            line: self.number,
            offset: at,
            tags: name_tags,
            separator: b'=',
        };
        let end = self.fields(line, end, &mut sample)?;
        if end < bytes.len() {
            // A colon begins another sample of the same name.
            let has_tags = || memmem::find(&bytes[end..], b"|#").is_some();
            if self.tags.datadog && from.is_first && has_tags() {
                return Err(self.error(end, StatsdReason::MixedTaggingStyles));
            }
            self.more = Some(More { at: end + 1, is_first: false, ..from });
        }
        Ok(StatsdLine::Sample(sample))
    }

    /// Reads the fields after the type, up to the end of the line or the colon before the next
    /// sample. Returns this position.
    #[inline(always)]
    fn fields(
        &self,
        line: &'a str,
        mut at: usize,
        sample: &mut StatsdSample<'a>,
    ) -> Result<usize, StatsdLineError> {
        let bytes = line.as_bytes();
        while bytes.get(at) == Some(&b'|') {
            let start = at + 1;
            match bytes.get(start) {
                Some(b'#') => {
                    at = self.datadog_tags(line, start, sample)?;
                }
                Some(b'@') => {
                    at = sample.field_end(bytes, start);
                    sample.rate = float(&line[start + 1..at])
                        .filter(|rate| 0.0 < *rate && *rate <= 1.0)
                        .ok_or_else(|| self.error(start, StatsdReason::InvalidSampleFactor))?;
                }
                Some(b'T') => {
                    at = sample.field_end(bytes, start);
                    sample.timestamp_s = line[start + 1..at].parse().ok();
                    let is_word = sample.timestamp_s.is_none() && at > start + 1;
                    if is_word && bytes.get(at) == Some(&b':') {
                        at = find(bytes, at, [b'|']);
                    }
                }
                Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                    let colon = find(bytes, start, *b":|");
                    let word = &bytes[start..colon];
                    if !word.is_ascii() || bytes.get(colon) != Some(&b':') {
                        return Err(self.error(start, StatsdReason::MalformedComponent));
                    }
                    at = find(bytes, colon, [b'|']);
                }
                _ => return Err(self.error(start, StatsdReason::MalformedComponent)),
            }
        }
        Ok(at)
    }

    #[inline(always)]
    fn datadog_tags(
        &self,
        line: &'a str,
        hash: usize,
        sample: &mut StatsdSample<'a>,
    ) -> Result<usize, StatsdLineError> {
        let end = find(line.as_bytes(), hash, [b'|']);
        if !self.tags.datadog {
            return Ok(end);
        }
        if !sample.tags.is_empty() {
            let reason = match sample.separator {
                b'=' => StatsdReason::MixedTaggingStyles,
                _ => StatsdReason::MalformedComponent,
            };
            return Err(self.error(hash, reason));
        }
        sample.tags = &line[hash + 1..end];
        sample.separator = b':';
        Ok(end)
    }

    #[cold]
    fn error(&self, offset: usize, reason: StatsdReason) -> StatsdLineError {
        StatsdLineError { line: self.number, offset, reason }
    }
}

impl<'a> Iterator for StatsdLines<'a> {
    type Item = Result<StatsdLine<'a>, StatsdLineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.more.is_some() {
            return self.next_sample();
        }
        loop {
            let line = self.lines.next()?;
            self.number += 1;
            match line {
                Ok(line) => {
                    let line = line.strip_suffix('\r').unwrap_or(line);
                    if !line.is_empty() {
                        return Some(self.read(line));
                    }
                }
                Err(offset) => return Some(Err(self.error(offset, StatsdReason::MalformedLine))),
            }
        }
    }
}

impl<'a> StatsdSample<'a> {
    /// Returns the values in the order of the line. Most lines contain one value. For a set, this
    /// returns the members that are numbers; use [`text`](StatsdSample::text) to get all.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = Result<StatsdValue, StatsdLineError>> + use<'a> {
        let (line, mut offset) = (self.line, self.offset);
        let mut rest = Some(self.values);
        let mut end = self.first;
        core::iter::from_fn(move || {
            let text = rest?;
            rest = text.get(end + 1..);
            let text = &text[..end];
            if let Some(rest) = rest {
                end = find(rest.as_bytes(), 0, [b':']);
            }
            let place = offset;
            offset += text.len() + 1;
            Some(match float(text).filter(|number| number.is_finite()) {
                Some(number) => {
                    let is_signed = matches!(text.as_bytes()[0], b'+' | b'-');
                    Ok(StatsdValue { number, is_signed })
                }
                None => Err(StatsdLineError {
                    line,
                    offset: place,
                    reason: StatsdReason::MalformedValue,
                }),
            })
        })
    }

    /// Returns the unparsed values. Use this for a set, because its members can be any string.
    pub fn text(&self) -> &'a str {
        self.values
    }

    /// Returns the tags, as name and value, in the order of the line. A tag without a name, a value
    /// or a separator is an error that contains the tag.
    ///
    /// Datadog's clients can send tags without a value. Other systems cannot use these.
    #[inline]
    pub fn tags(&self) -> impl Iterator<Item = Result<(&'a str, &'a str), &'a str>> + use<'a> {
        let separator = self.separator;
        let mut rest = self.tags;
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let bytes = rest.as_bytes();
            let split = find(bytes, 0, [separator, b',']);
            let end = find(bytes, split, [b',']);
            // A PHP client repeats the mark before each tag.
            let begin = usize::from(separator == b':' && bytes[0] == b'#');
            let tag = rest;
            rest = rest.get(end + 1..).unwrap_or_default();
            if begin < split && split + 1 < end {
                Some(Ok((&tag[begin..split], &tag[split + 1..end])))
            } else {
                Some(Err(&tag[begin..end]))
            }
        })
    }
}

impl StatsdSample<'_> {
    /// Returns the end of the field that begins at `at`. A colon begins another sample, except
    /// after Datadog's tags.
    fn field_end(&self, bytes: &[u8], at: usize) -> usize {
        match self.separator {
            b':' => find(bytes, at, [b'|']),
            _ => find(bytes, at, *b"|:"),
        }
    }
}

impl PartialEq<str> for Name<'_> {
    fn eq(&self, text: &str) -> bool {
        text.strip_prefix(self.head) == Some(self.tail)
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.head)?;
        f.write_str(self.tail)
    }
}

impl LineReason for StatsdReason {
    const FORMAT: &'static str = "statsd";

    fn problem(self) -> &'static str {
        match self {
            StatsdReason::IllegalEvent => "expected a type: `c`, `d`, `g`, `h`, `m`, `ms` or `s`",
            StatsdReason::InvalidSampleFactor => "expected a sample rate more than 0 and at most 1",
            StatsdReason::MalformedComponent => {
                "expected a sample rate, tags, a time or a container"
            }
            StatsdReason::MalformedLine => "expected UTF-8 of the form `name:value|type`",
            StatsdReason::MalformedValue => "expected a finite number",
            StatsdReason::MixedTaggingStyles => "expected tags of one form, of one sample",
        }
    }
}

impl StatsdReason {
    /// Returns the value of `statsd_exporter`'s label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            StatsdReason::IllegalEvent => "illegal_event",
            StatsdReason::InvalidSampleFactor => "invalid_sample_factor",
            StatsdReason::MalformedComponent => "malformed_component",
            StatsdReason::MalformedLine => "malformed_line",
            StatsdReason::MalformedValue => "malformed_value",
            StatsdReason::MixedTaggingStyles => "mixed_tagging_styles",
        }
    }
}

#[cfg(test)]
mod tests;
