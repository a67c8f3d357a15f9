//! Reads Prometheus' text format 0.0.4 and OpenMetrics 1.0, line by line.
//!
//! - <https://prometheus.io/docs/instrumenting/exposition_formats/>
//! - <https://prometheus.io/docs/specs/om/open_metrics_spec/>
//!
//! ```
//! use quipu_wire::remote::exposition::text::{TextFormat, Item, Options, TextReader};
//!
//! let input = b"# TYPE hits counter\nhits{path=\"/\",code=\"200\"} 7 1700000000123\nbad{\n";
//! let mut reader = TextReader::new(input, Options::new(TextFormat::Prometheus));
//! assert!(matches!(reader.next(), Some(Ok(Item::Type { .. }))));
//!
//! let Some(Ok(Item::Sample(sample))) = reader.next() else { panic!() };
//! assert_eq!((sample.name.as_str(), sample.value), (Some("hits"), 7.0));
//! assert_eq!(sample.timestamp_ms, Some(1_700_000_000_123));
//! let labels = sample.labels.iter().map(|label| (label.name.to_cow(), label.value.to_cow()));
//! assert!(labels.eq([("path".into(), "/".into()), ("code".into(), "200".into())]));
//!
//! // A line that is wrong is an error; the next line is read as if it were not there.
//! let error = reader.next().unwrap().unwrap_err();
//! assert_eq!((error.line(), error.offset()), (3, 4));
//! assert!(reader.next().is_none());
//! ```
//!
//! All strings borrow from the input. The only allocation is the list of labels of one line. UTF-8
//! is checked once for many lines, because this is faster than checking each line. If your input
//! arrives in pieces, use [`Stream`].
//!
//! The reader accepts the same input as Prometheus' server, in both formats, with these exceptions:
//!
//! - A line feed within quotes is an error, as in the specifications.
//! - Labels need a comma between them, and a label name can appear only once.
//! - The label `__name__` is an error. Write the name before the braces, or as the first item
//!   within.
//! - A timestamp in Prometheus' format can have a sign.
//! - A unit need not be the end of its family's name.
//! - A name needs a space or a brace after it, and in a comment a space.
//! - In Prometheus' format, spaces can surround the type of a family.
//! - A time in milliseconds must fit in 64 bits.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

use super::FamilyType;
use crate::remote::line_error::LineReason;
use crate::remote::lines::{self, Cut, LineBuffer, find};

mod line;
mod template;

pub use template::Template;

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextFormat {
    /// Prometheus' text format, 0.0.4 and 1.0.0: `text/plain`.
    Prometheus,
    /// OpenMetrics 1.0: `application/openmetrics-text`.
    OpenMetrics,
}

/// The format of an input and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The format.
    pub format: TextFormat,
    /// The maximum length of a line in bytes.
    pub max_line: usize,
    /// The maximum number of labels of a sample, and of an exemplar. Keep this small, because each
    /// name is compared with all others: the time grows with the square of the number of labels.
    pub max_labels: usize,
}

/// Reads the lines of a complete input.
#[derive(Clone, Debug)]
pub struct TextReader<'a> {
    lines: lines::Lines<'a>,
    state: State,
    labels: Vec<TextLabel<'a>>,
    exemplar_labels: Vec<TextLabel<'a>>,
}

/// Reads the lines of an input that arrives in pieces of any size.
///
/// ```
/// use quipu_wire::remote::exposition::text::{TextFormat, Item, Options, Stream};
///
/// let mut stream = Stream::new(Options::new(TextFormat::OpenMetrics));
/// let mut values = Vec::new();
/// for piece in ["a 1", "2\nb", " 3\n# E", "OF"] {
///     stream.push(piece.as_bytes(), |item| {
///         if let Ok(Item::Sample(sample)) = item {
///             values.push(sample.value);
///         }
///     });
/// }
/// stream.finish(|item| assert!(matches!(item, Ok(Item::End))));
/// assert_eq!(values, [12.0, 3.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    buffer: LineBuffer,
    state: State,
    /// Empty vectors, kept for their allocations.
    room: [Vec<TextLabel<'static>>; 2],
}

/// The state after the previous lines.
#[derive(Clone, Copy, Debug)]
struct State {
    options: Options,
    /// The number of lines read.
    lines: u64,
    /// Whether the end mark of OpenMetrics was read, or reported as missing.
    is_ended: bool,
}

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Item<'r, 'a> {
    /// `# HELP`: the description of a family.
    Help {
        /// The family.
        name: Text<'a>,
        /// The description.
        text: Text<'a>,
    },
    /// `# TYPE`: the type of a family.
    Type {
        /// The family.
        name: Text<'a>,
        /// The type.
        kind: FamilyType,
    },
    /// `# UNIT`: the unit of a family, only in OpenMetrics.
    Unit {
        /// The family.
        name: Text<'a>,
        /// The unit.
        unit: &'a str,
    },
    /// A value.
    Sample(TextSample<'r, 'a>),
    /// A comment, only in Prometheus' format: the rest of the line after `#`.
    Comment(&'a str),
    /// The end mark of OpenMetrics, `# EOF`.
    End,
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TextSample<'r, 'a> {
    /// The name of the series.
    pub name: Text<'a>,
    /// The labels in the order of the line. Each name occurs once.
    pub labels: &'r [TextLabel<'a>],
    /// The value.
    pub value: f64,
    /// The time in milliseconds since 1970. OpenMetrics uses seconds, which are rounded.
    pub timestamp_ms: Option<i64>,
    /// An exemplar, only in OpenMetrics.
    pub exemplar: Option<LineExemplar<'r, 'a>>,
    /// The line number in the input, from 1.
    pub line: u64,
    /// The line up to the end of the name and the labels. You can use this as the key of a cache,
    /// because most programs write a series the same way each time.
    pub encoded: &'a str,
}

/// Receives the lines of an input from a [`Stream`].
#[doc(hidden)]
pub trait Visitor {
    /// Handles a line of Prometheus' format without parsing, and returns true if it recognized the
    /// line. For example, the line can begin like [`TextSample::encoded`] of an earlier line; then
    /// call [`value_and_time`] for the rest. If this returns false, the line is parsed and passed
    /// to [`item`](Self::item). `number` counts lines like [`TextSample::line`].
    fn known(&mut self, line: &str, number: u64) -> bool;

    /// Receives a parsed line or its error.
    fn item(&mut self, item: Result<Item<'_, '_>, TextLineError>);
}

/// A visitor that parses every line.
struct Each<F>(F);

impl<F: FnMut(Result<Item<'_, '_>, TextLineError>)> Visitor for Each<F> {
    fn known(&mut self, _: &str, _: u64) -> bool {
        false
    }

    fn item(&mut self, item: Result<Item<'_, '_>, TextLineError>) {
        self.0(item);
    }
}

/// An example of the events that a sample counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LineExemplar<'r, 'a> {
    /// The labels in the order of the line. Each name occurs once.
    pub labels: &'r [TextLabel<'a>],
    /// The value of the event.
    pub value: f64,
    /// The time of the event in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// A label of a sample or exemplar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a label has nothing else")]
pub struct TextLabel<'a> {
    /// The name of the label.
    pub name: Text<'a>,
    /// The value of the label.
    pub value: Text<'a>,
}

/// A string that may contain escapes, borrowed from a line. Two of them are equal if they are equal
/// without escapes.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    raw: &'a str,
    escapes: Escapes,
}

/// The characters that a backslash can escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escapes {
    /// The string contains no backslash.
    None,
    /// `n` and a backslash, used by `# HELP` in Prometheus' format.
    Help,
    /// `n`, a backslash and a quote.
    All,
}

/// The error for a line that could not be read.
pub type TextLineError = crate::remote::LineError<TextReason>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextFault {
    offset: usize,
    reason: TextReason,
}

/// The reason why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextReason {
    /// The input continues after `# EOF`.
    AfterEnd,
    /// A label name appears twice.
    DuplicateLabel,
    /// The exemplar lacks labels in braces or a value, or its time is not a number.
    MalformedExemplar,
    /// The labels are not of the form `{name="value",name="value"}`.
    MalformedLabels,
    /// The name of a metric is missing or not valid, or appears twice.
    MalformedName,
    /// The time is not a number, or more characters follow it.
    MalformedTimestamp,
    /// The value is missing, or is not a number.
    MalformedValue,
    /// OpenMetrics: `# EOF` is missing. The error names the last line.
    MissingEnd,
    /// The line exceeds the limit.
    TooLong,
    /// The labels exceed the limit.
    TooManyLabels,
    /// OpenMetrics: a line begins with `#` but is none of the known comments.
    UnknownComment,
    /// The format does not define this type.
    UnknownType,
    /// The line is not UTF-8.
    Utf8,
}

impl Options {
    /// Returns options for this format, with lines of up to 64 KiB and up to 64 labels.
    pub const fn new(format: TextFormat) -> Options {
        Options { format, max_line: 64 << 10, max_labels: 64 }
    }

    /// Sets the most bytes in a line.
    #[must_use]
    pub const fn max_line(self, max_line: usize) -> Options {
        Options { max_line, ..self }
    }

    /// Sets the most labels of a sample or exemplar.
    #[must_use]
    pub const fn max_labels(self, max_labels: usize) -> Options {
        Options { max_labels, ..self }
    }
}

impl<'a> TextReader<'a> {
    /// Creates a reader of a complete input.
    pub fn new(input: &'a [u8], options: Options) -> TextReader<'a> {
        let state = State { options, lines: 0, is_ended: false };
        TextReader::with(input, state, Default::default())
    }

    fn with(input: &'a [u8], state: State, room: [Vec<TextLabel<'static>>; 2]) -> TextReader<'a> {
        let [labels, exemplar_labels] = room.map(emptied);
        TextReader { lines: lines::Lines::new(input), state, labels, exemplar_labels }
    }

    /// Returns the next line that is not empty, or `None` after the last one.
    #[allow(clippy::should_implement_trait, reason = "an item borrows from the reader")]
    pub fn next(&mut self) -> Option<Result<Item<'_, 'a>, TextLineError>> {
        let line = self.next_line()?;
        Some(line.and_then(|line| self.read(line)))
    }

    /// Returns the next line that is not empty. At the end of OpenMetrics, returns an error if the
    /// end mark is missing.
    #[inline(always)]
    fn next_line(&mut self) -> Option<Result<&'a str, TextLineError>> {
        let max_line = self.state.options.max_line;
        loop {
            let Some(line) = self.lines.next() else {
                return self.state.finish().map(Err);
            };
            self.state.lines += 1;
            return Some(match line {
                Ok(line) if line.len() > max_line => {
                    Err(self.state.error(max_line, TextReason::TooLong))
                }
                Ok(_) if self.state.is_ended => Err(self.state.error(0, TextReason::AfterEnd)),
                Ok(line) => match self.state.options.format {
                    TextFormat::Prometheus if line.trim_start_matches([' ', '\t']).is_empty() => {
                        continue;
                    }
                    _ => Ok(line),
                },
                Err(offset) => Err(self.state.error(offset, TextReason::Utf8)),
            });
        }
    }
}

impl Stream {
    /// Creates a stream for input in this format.
    pub fn new(options: Options) -> Stream {
        let state = State { options, lines: 0, is_ended: false };
        Stream { buffer: LineBuffer::new(options.max_line), state, room: Default::default() }
    }

    /// Adds a piece of the input and calls `each` for every line that is now complete.
    pub fn push(&mut self, piece: &[u8], each: impl FnMut(Result<Item<'_, '_>, TextLineError>)) {
        self.visit(piece, &mut Each(each));
    }

    /// Works like [`Stream::push`], with a visitor.
    #[doc(hidden)]
    pub fn visit(&mut self, piece: &[u8], visitor: &mut impl Visitor) {
        let Stream { buffer, state, room } = self;
        buffer.push(piece, |cut| read_cut(cut, state, room, visitor));
    }

    /// Ends the input. Calls `each` with the last line if it lacks a line feed, and with an error
    /// if `# EOF` is missing in OpenMetrics.
    pub fn finish(mut self, each: impl FnMut(Result<Item<'_, '_>, TextLineError>)) {
        let Stream { buffer, state, room } = &mut self;
        let mut visitor = Each(each);
        buffer.finish(|cut| read_cut(cut, state, room, &mut visitor));
        if let Some(error) = state.finish() {
            visitor.item(Err(error));
        }
    }
}

fn read_cut(
    cut: Cut<'_>,
    state: &mut State,
    room: &mut [Vec<TextLabel<'static>>; 2],
    visitor: &mut impl Visitor,
) {
    match cut {
        Cut::Lines(lines) => {
            let mut reader = TextReader::with(lines, *state, mem::take(room));
            let may_know = state.options.format == TextFormat::Prometheus;
            // More pieces may follow, so this does not report a missing end mark.
            while !reader.lines.is_empty() {
                match reader.next_line() {
                    Some(Ok(line)) if may_know && visitor.known(line, reader.state.lines) => {}
                    Some(line) => visitor.item(line.and_then(|line| reader.read(line))),
                    None => {}
                }
            }
            *state = reader.state;
            *room = [emptied(reader.labels), emptied(reader.exemplar_labels)];
        }
        Cut::TooLong => {
            state.lines += 1;
            visitor.item(Err(state.error(state.options.max_line, TextReason::TooLong)));
        }
    }
}

/// Reads the rest of a sample after its labels in Prometheus' format: a space, a value, and
/// optionally a space and a time in milliseconds since 1970. Returns `None` for anything else. This
/// includes valid but rare input such as several spaces, which only [`TextReader`] can read.
#[inline]
#[doc(hidden)]
pub fn value_and_time(text: &str) -> Option<(f64, Option<i64>)> {
    let text = text.strip_prefix(' ')?;
    let end = find(text.as_bytes(), 0, *b" \t");
    let value = lines::float(&text[..end])?;
    let time = match text[end..].strip_prefix(' ') {
        Some(time) => Some(time.parse().ok()?),
        None if end == text.len() => None,
        None => return None,
    };
    Some((value, time))
}

/// Reads the value of a sample. This accepts the same numbers as a line of either format, for
/// callers that parsed the beginning of the line themselves.
///
/// ```
/// use quipu_wire::remote::exposition::text::number;
///
/// assert_eq!((number("1e3"), number("+Inf")), (Some(1000.0), Some(f64::INFINITY)));
/// assert_eq!((number(""), number("1 "), number("0x1")), (None, None, None));
/// ```
#[inline]
#[doc(hidden)]
pub fn number(text: &str) -> Option<f64> {
    lines::float(text)
}

/// Reuses the allocation of these labels for another input.
fn emptied<'b>(mut labels: Vec<TextLabel<'_>>) -> Vec<TextLabel<'b>> {
    labels.clear();
    labels.into_iter().map(|_| unreachable!("it is empty")).collect()
}

impl State {
    fn finish(&mut self) -> Option<TextLineError> {
        let is_missing = self.options.format == TextFormat::OpenMetrics && !self.is_ended;
        self.is_ended |= is_missing;
        is_missing.then(|| self.error(0, TextReason::MissingEnd))
    }

    #[cold]
    fn error(&self, offset: usize, reason: TextReason) -> TextLineError {
        TextLineError { line: self.lines, offset, reason }
    }
}

impl<'a> Text<'a> {
    /// Returns the string, if it contains no escapes.
    pub fn as_str(self) -> Option<&'a str> {
        (self.escapes == Escapes::None).then_some(self.raw)
    }

    /// Returns the string with its backslashes.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// Returns the string without escapes. This borrows if there are none.
    pub fn to_cow(self) -> Cow<'a, str> {
        match self.as_str() {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.parts().collect()),
        }
    }

    /// Appends the string without escapes.
    pub fn append_to(self, text: &mut String) {
        text.extend(self.parts());
    }

    /// Returns the string in parts: the runs between escapes, and the meaning of each escape. A
    /// backslash before any other character means itself.
    pub(super) fn parts(self) -> impl Iterator<Item = &'a str> {
        let mut rest = self.raw;
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = match self.escapes {
                Escapes::None => rest.len(),
                Escapes::Help | Escapes::All => find(rest.as_bytes(), 0, [b'\\']),
            };
            let (part, len) = match rest.as_bytes().get(end + 1) {
                _ if end > 0 => (&rest[..end], end),
                Some(b'n') => ("\n", 2),
                Some(b'\\') => ("\\", 2),
                Some(b'"') if self.escapes == Escapes::All => ("\"", 2),
                _ => ("\\", 1),
            };
            rest = &rest[len..];
            Some(part)
        })
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Text<'_>) -> bool {
        match (self.as_str(), other.as_str()) {
            (Some(text), Some(other)) => text == other,
            _ => self.parts().flat_map(str::bytes).eq(other.parts().flat_map(str::bytes)),
        }
    }
}

impl Eq for Text<'_> {}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        *self == Text { raw: other, escapes: Escapes::None }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().try_for_each(|part| f.write_str(part))
    }
}

impl LineReason for TextReason {
    const FORMAT: &'static str = "text";

    fn problem(self) -> &'static str {
        match self {
            TextReason::AfterEnd => "expected nothing after `# EOF`",
            TextReason::DuplicateLabel => {
                "a label that was already there: each name may appear once"
            }
            TextReason::MalformedExemplar => {
                "expected an exemplar of the form ` # {name=\"value\"} value time`"
            }
            TextReason::MalformedLabels => {
                "expected labels of the form `{name=\"value\",name=\"value\"}`"
            }
            TextReason::MalformedName => {
                "expected the name of a metric, or the name in quotes within braces"
            }
            TextReason::MalformedTimestamp => "expected a timestamp, or the end of the line",
            TextReason::MalformedValue => "expected a value: a number, `NaN`, `+Inf` or `-Inf`",
            TextReason::MissingEnd => "expected `# EOF` at the end",
            TextReason::TooLong => "the line is longer than `Options::max_line`",
            TextReason::TooManyLabels => "more labels than `Options::max_labels`",
            TextReason::UnknownComment => {
                "expected `# HELP`, `# TYPE`, `# UNIT`, `# EOF` or a sample"
            }
            TextReason::UnknownType => "expected the type of a family",
            TextReason::Utf8 => "expected UTF-8",
        }
    }
}

impl TextReason {
    /// Returns the name of the reason, such as `malformed_labels`. You can use it as a label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            TextReason::AfterEnd => "after_end",
            TextReason::DuplicateLabel => "duplicate_label",
            TextReason::MalformedExemplar => "malformed_exemplar",
            TextReason::MalformedLabels => "malformed_labels",
            TextReason::MalformedName => "malformed_name",
            TextReason::MalformedTimestamp => "malformed_timestamp",
            TextReason::MalformedValue => "malformed_value",
            TextReason::MissingEnd => "missing_end",
            TextReason::TooLong => "too_long",
            TextReason::TooManyLabels => "too_many_labels",
            TextReason::UnknownComment => "unknown_comment",
            TextReason::UnknownType => "unknown_type",
            TextReason::Utf8 => "utf8",
        }
    }
}

#[cfg(test)]
mod tests;
