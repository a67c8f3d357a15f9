//! Lines of StatsD and of its dialects, as a server receives them from its clients.
//!
//! Unlike the formats [`Statsd`](crate::Statsd) and [`DogStatsd`](crate::DogStatsd), which read
//! messages, this reader keeps what a server needs: values that are not whole, changes of gauges,
//! sample rates, and tags apart from the name. It allocates nothing, and a line that is wrong is
//! an error that leaves the other lines as they are.
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
//! A line ends with a line feed, which a carriage return may precede, or with the input. Empty
//! lines are skipped. Of the fields after the type, the container, the external data, the
//! cardinality and any other of the form `word:text` are skipped, as Datadog's agent does; so is a
//! time that is not a number.
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
//! The reasons of errors are those of `statsd_exporter`. Where the two differ:
//!
//! | line | here | statsd_exporter |
//! |---|---|---|
//! | several values of a counter or gauge | all of them | an error |
//! | a value that is infinite or not a number | an error | taken |
//! | a rate that is not a number, or beyond 0 to 1 | an error | an error, and a sample |
//! | an unknown field, more than four fields | skipped, if of the form `word:text` | an error |
//! | tags in two fields | an error | all of them |
//! | a sample that is wrong, among several in a line | the line ends there | it is skipped |
//! | a name that has nothing but tags | an error | an empty name |
//! | brackets in the wrong order, `a][b` | a part of the name | it panics |

use core::fmt;

use memchr::memmem;

use super::line_error::LineReason;
use super::lines::{self, find, float};

/// Which forms of tags a reader knows. Those of another form are a part of the name or, if
/// Datadog's, skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "to be made by literals")]
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

/// Reads the lines of a packet, or whole lines of a stream ([`LineBuffer`](super::LineBuffer)).
#[derive(Clone, Debug)]
pub struct StatsdLines<'a> {
    lines: lines::Lines<'a>,
    number: u64,
    tags: Tags,
    /// Whether the current line has more samples.
    more: Option<More<'a>>,
}

/// The samples of a line that were not read yet.
#[derive(Clone, Copy, Debug)]
struct More<'a> {
    line: &'a str,
    /// Where the next one begins.
    at: usize,
    name: Name<'a>,
    name_tags: &'a str,
    /// Whether none was read yet.
    is_first: bool,
}

/// A line that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum StatsdLine<'a> {
    /// One or more values of a metric.
    Sample(StatsdSample<'a>),
    /// An event of Datadog: the line as it is. It is not checked.
    Event(&'a str),
    /// A service check of Datadog: the line as it is. It is not checked.
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
    /// Which part of the events was sent: more than 0, and at most 1.
    pub rate: f64,
    /// The time in seconds since 1970, if the client gave one.
    pub timestamp: Option<i64>,
    values: &'a str,
    /// The length of the first value.
    first: usize,
    /// Where the values are.
    line: u64,
    offset: usize,
    tags: &'a str,
    separator: u8,
}

/// The name of a metric. SignalFx's tags may be within it, and it then has two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a name has these parts")]
pub struct Name<'a> {
    /// All of it, or what comes before the tags.
    pub head: &'a str,
    /// What comes after SignalFx's tags; empty for most names.
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
    /// `m`: events are counted, and their rate is shown.
    Meter,
    /// `s`: different values are counted; see [`StatsdSample::text`].
    Set,
    /// `ms`: durations in milliseconds.
    Timer,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a value has nothing else")]
pub struct StatsdValue {
    /// A finite number, as it was sent: not divided by the rate.
    pub number: f64,
    /// Whether it was sent with a sign: in StatsD, a gauge then changes by the number.
    pub is_signed: bool,
}

/// Why a line, or a value of it, could not be read.
pub type StatsdLineError = super::LineError<StatsdReason>;

/// What is wrong with a line, with the names that `statsd_exporter` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatsdReason {
    /// The type is not known.
    IllegalEvent,
    /// The sample rate is not a number more than 0 and at most 1.
    InvalidSampleFactor,
    /// A field after the type is empty, not known, or repeated.
    MalformedComponent,
    /// The line is not UTF-8, or not a name, a colon, a value, a bar, and a type.
    MalformedLine,
    /// A value is not a finite number.
    MalformedValue,
    /// The name has tags, and so has the sample; or a line of several samples has Datadog's tags.
    MixedTaggingStyles,
}

impl Tags {
    /// All forms.
    pub const ALL: Tags = Tags { datadog: true, influxdb: true, librato: true, signalfx: true };
    /// Datadog's tags alone.
    pub const DATADOG: Tags = Tags { datadog: true, ..Tags::NONE };
    /// No tags, as in StatsD.
    pub const NONE: Tags =
        Tags { datadog: false, influxdb: false, librato: false, signalfx: false };

    fn are_in_names(self) -> bool {
        self.influxdb || self.librato || self.signalfx
    }
}

impl<'a> StatsdLines<'a> {
    /// Reads lines with tags of these forms.
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

    /// Reads a line whose name has a character that may begin tags, or is not a name.
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
                // One bracket alone is a part of the name.
                _ => (whole, ""),
            };
        }
        let begins = |c| c == '#' && self.tags.librato || c == ',' && self.tags.influxdb;
        match name.find(begins) {
            Some(at) => (Name { head: &name[..at], tail: "" }, &name[at + 1..]),
            None => (whole, ""),
        }
    }

    /// Reads another sample of the line.
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
            timestamp: None,
            values: &line[at..bar],
            first: first - at,
            line: self.number,
            offset: at,
            tags: name_tags,
            separator: b'=',
        };
        let end = self.fields(line, end, &mut sample)?;
        if end < bytes.len() {
            // After the colon, there is another sample of the same name.
            let has_tags = || memmem::find(&bytes[end..], b"|#").is_some();
            if self.tags.datadog && from.is_first && has_tags() {
                return Err(self.error(end, StatsdReason::MixedTaggingStyles));
            }
            self.more = Some(More { at: end + 1, is_first: false, ..from });
        }
        Ok(StatsdLine::Sample(sample))
    }

    /// Reads the fields after the type, up to the end of the line or the colon before the next
    /// sample. Returns where that is.
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
                    sample.timestamp = line[start + 1..at].parse().ok();
                    let is_word = sample.timestamp.is_none() && at > start + 1;
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
    /// The values, in the order of the line. Most lines have one. Of a set, they are those that are
    /// numbers; see [`text`](StatsdSample::text).
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

    /// The values as text: that of a set may be any text.
    pub fn text(&self) -> &'a str {
        self.values
    }

    /// The tags, as name and value, in the order of the line. One that has no name, no value, or no
    /// separator between them is an error with its text.
    ///
    /// Datadog's clients may send tags without a value, which other systems have no use for.
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
            // A client for PHP repeats the mark before each tag.
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
    /// Where a field ends that begins at `at`. A colon begins another sample, except after
    /// Datadog's tags.
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
    /// Its name, as in the label `reason` of `statsd_exporter`.
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
