//! Reads lines of InfluxDB's line protocol, in the role of a server.
//!
//! ```text
//! measurement,tag=value,tag=value field=1.5,field=2i,field=t,field="text" time
//! ```
//!
//! A line ends with a line feed, an optional carriage return before it, or the end of the input.
//! Within a quoted field, a line feed is a part of the string, so a string without a closing quote
//! swallows the lines after it. Empty lines and lines that begin with `#` are skipped.
//!
//! Tags and time are optional. The unit of the time is not in the line, so you need to know it from
//! elsewhere. A backslash escapes a comma or a space, and in tags and field names also an equals
//! sign. Any other backslash is an ordinary character. The reader does not allocate, and an error
//! affects only its own line.
//!
//! ```
//! use quipu_wire::remote::influx::{InfluxLines, FieldValue};
//!
//! let input = b"disk\\ io,host=a reads=7i,busy=0.5,state=\"ok\" 1700000000000000000\nbad\n";
//! let mut lines = InfluxLines::new(input);
//! let point = lines.next().unwrap().unwrap();
//! assert_eq!(point.measurement.to_cow(), "disk io");
//! assert_eq!(point.time, Some(1_700_000_000_000_000_000));
//! let tags: Vec<_> = point.tags().map(|(name, value)| (name.to_cow(), value.to_cow())).collect();
//! assert_eq!(tags, [("host".into(), "a".into())]);
//! let fields: Vec<_> = point.fields().map(|(name, value)| (name.to_cow(), value)).collect();
//! let [reads, busy, state] = &fields[..] else { panic!() };
//! assert_eq!(*reads, ("reads".into(), FieldValue::Integer(7)));
//! assert_eq!((busy.1.number(), state.1.number()), (Some(0.5), None));
//!
//! let error = lines.next().unwrap().unwrap_err();
//! assert_eq!((error.line(), error.reason().as_str()), (2, "malformed_line"));
//! assert!(lines.next().is_none());
//! ```
//!
//! # Differences from InfluxDB
//!
//! | line | here | InfluxDB |
//! |---|---|---|
//! | a line feed after a backslash, but outside of quotes | ends the line | a part of the line |
//! | a float that is infinite or not a number | an error | an error |
//! | a tag that occurs twice | both | an error |

use alloc::borrow::Cow;
use alloc::string::String;
use core::str;

use memchr::memchr_iter;

use super::line_error::LineReason;
use super::lines::{find, float};

mod lines;

pub use lines::InfluxLineBuffer;

/// Reads complete lines of a request, or of a stream through an [`InfluxLineBuffer`].
#[derive(Clone, Debug)]
pub struct InfluxLines<'a> {
    rest: &'a [u8],
    /// The number of line feeds before the rest.
    before: u64,
}

/// The fields of one measurement at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InfluxPoint<'a> {
    /// The name of the measurement; not empty.
    pub measurement: InfluxText<'a>,
    /// The time since 1970. The client specifies its unit elsewhere, for example in the query of a
    /// request.
    pub time: Option<i64>,
    /// The tags and fields, already checked.
    tags: &'a str,
    fields: &'a str,
}

/// A string that may contain escapes, borrowed from a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfluxText<'a> {
    raw: &'a str,
    /// Whether a backslash can escape an equals sign.
    has_equals: bool,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A finite number.
    Float(f64),
    /// `7i`.
    Integer(i64),
    /// `7u`.
    Unsigned(u64),
    /// `t`, `true`, `f` or `false`, also in capitals.
    Boolean(bool),
    /// A quoted string. Its contents are not kept.
    Text,
}

/// The error for a line that could not be read.
pub type InfluxLineError = super::LineError<InfluxReason>;

/// The reason why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InfluxReason {
    /// The line is not UTF-8, or lacks a measurement or fields.
    MalformedLine,
    /// A tag lacks a name or a value.
    MalformedTag,
    /// A field lacks a name or a value.
    MalformedField,
    /// The value of a field is not a finite number, a boolean, or a quoted string.
    MalformedValue,
    /// The time is not a whole number.
    MalformedTime,
}

/// The offset of an error in its line, and the reason.
type InfluxFault = (usize, InfluxReason);

impl<'a> InfluxLines<'a> {
    /// Creates a reader of these lines.
    pub fn new(input: &'a [u8]) -> InfluxLines<'a> {
        InfluxLines { rest: input, before: 0 }
    }
}

impl<'a> Iterator for InfluxLines<'a> {
    type Item = Result<InfluxPoint<'a>, InfluxLineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let end = lines::Ends::default().next(self.rest).unwrap_or(self.rest.len());
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            let number = self.before + 1;
            self.before = number + memchr_iter(b'\n', line).count() as u64;
            let read = match str::from_utf8(line) {
                Ok(line) => {
                    let text = line.trim_ascii();
                    if text.is_empty() || text.starts_with('#') {
                        continue;
                    }
                    let before = line.len() - line.trim_ascii_start().len();
                    InfluxPoint::read(text).map_err(|(at, reason)| (before + at, reason))
                }
                Err(error) => Err((error.valid_up_to(), InfluxReason::MalformedLine)),
            };
            let error = |(offset, reason)| InfluxLineError { line: number, offset, reason };
            return Some(read.map_err(error));
        }
    }
}

impl<'a> InfluxPoint<'a> {
    fn read(line: &'a str) -> Result<Self, InfluxFault> {
        let bytes = line.as_bytes();
        let end = plain(bytes, 0, *b", ");
        if end == 0 {
            return Err((0, InfluxReason::MalformedLine));
        }
        let measurement = InfluxText { raw: &line[..end], has_equals: false };
        let mut at = end;
        while bytes.get(at) == Some(&b',') {
            at = tag(line, at + 1)?.1;
        }
        let tags = line.get(end + 1..at).unwrap_or_default();
        let start = at + spaces(bytes, at);
        if start == bytes.len() {
            return Err((start, InfluxReason::MalformedLine));
        }
        let mut at = field(line, start)?.1;
        while bytes.get(at) == Some(&b',') {
            at = field(line, at + 1)?.1;
        }
        let fields = &line[start..at];
        let rest = at + spaces(bytes, at);
        let time = match &line[rest..] {
            "" => None,
            time => Some(time.parse().map_err(|_| (rest, InfluxReason::MalformedTime))?),
        };
        Ok(Self { measurement, time, tags, fields })
    }

    /// Returns the tags, as name and value, in the order of the line. Neither is empty.
    pub fn tags(&self) -> impl Iterator<Item = (InfluxText<'a>, InfluxText<'a>)> + use<'a> {
        items(self.tags, tag)
    }

    /// Returns the fields, as name and value, in the order of the line. There is at least one.
    pub fn fields(&self) -> impl Iterator<Item = (InfluxText<'a>, FieldValue)> + use<'a> {
        items(self.fields, field)
    }
}

/// Reads the items of a checked string one after another.
fn items<'a, T>(
    text: &'a str,
    read: impl Fn(&'a str, usize) -> Result<(T, usize), InfluxFault>,
) -> impl Iterator<Item = T> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= text.len() {
            return None;
        }
        let (item, end) = read(text, at).ok()?;
        at = end + 1;
        Some(item)
    })
}

/// Reads a tag and returns its end.
fn tag(line: &str, at: usize) -> Result<((InfluxText<'_>, InfluxText<'_>), usize), InfluxFault> {
    let bytes = line.as_bytes();
    let equals = plain(bytes, at, *b"=, ");
    let end = match bytes.get(equals) {
        Some(b'=') => plain(bytes, equals + 1, *b", "),
        _ => return Err((equals, InfluxReason::MalformedTag)),
    };
    if equals == at || equals + 1 == end {
        return Err((at, InfluxReason::MalformedTag));
    }
    let text = |raw| InfluxText { raw, has_equals: true };
    Ok(((text(&line[at..equals]), text(&line[equals + 1..end])), end))
}

/// Reads a field and returns its end.
fn field(line: &str, at: usize) -> Result<((InfluxText<'_>, FieldValue), usize), InfluxFault> {
    let bytes = line.as_bytes();
    let equals = plain(bytes, at, *b"=, ");
    if equals == at || bytes.get(equals) != Some(&b'=') {
        return Err((equals, InfluxReason::MalformedField));
    }
    let start = equals + 1;
    let (value, end) = match bytes.get(start) {
        Some(b'"') => (Some(FieldValue::Text), quoted(bytes, start)),
        _ => {
            let end = find(bytes, start, *b", ");
            (FieldValue::read(&line[start..end]), Some(end))
        }
    };
    let (Some(value), Some(end)) = (value, end) else {
        return Err((start, InfluxReason::MalformedValue));
    };
    match bytes.get(end) {
        None | Some(b',' | b' ') => {
            Ok(((InfluxText { raw: &line[at..equals], has_equals: true }, value), end))
        }
        _ => Err((end, InfluxReason::MalformedValue)),
    }
}

/// Returns the end of the quoted string that begins at `at`.
fn quoted(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        // A backslash can be the last byte.
        at = find(bytes, (at + 1).min(bytes.len()), *b"\"\\");
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            // Skips the character after the backslash.
            _ => at += 1,
        }
    }
}

/// Returns the index of the first unescaped `stops` character at or after `at`, or the length.
fn plain<const N: usize>(bytes: &[u8], mut at: usize, stops: [u8; N]) -> usize {
    loop {
        at = find(bytes, at, stops);
        if at == bytes.len() || at == 0 || bytes[at - 1] != b'\\' {
            return at;
        }
        at += 1;
    }
}

/// Counts the spaces at this position.
fn spaces(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take_while(|byte| **byte == b' ').count()
}

impl FieldValue {
    fn read(text: &str) -> Option<Self> {
        if let Some(digits) = text.strip_suffix('i') {
            return digits.parse().ok().map(Self::Integer);
        }
        if let Some(digits) = text.strip_suffix('u') {
            return digits.parse().ok().map(Self::Unsigned);
        }
        match text {
            "t" | "T" | "true" | "True" | "TRUE" => Some(Self::Boolean(true)),
            "f" | "F" | "false" | "False" | "FALSE" => Some(Self::Boolean(false)),
            _ => float(text).filter(|number| number.is_finite()).map(Self::Float),
        }
    }

    /// Returns the value as a number: 1 for true, 0 for false, `None` for a string.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(number),
            Self::Integer(number) => Some(number as f64),
            Self::Unsigned(number) => Some(number as f64),
            Self::Boolean(is_true) => Some(f64::from(u8::from(is_true))),
            Self::Text => None,
        }
    }
}

impl<'a> InfluxText<'a> {
    /// Returns the string without escapes.
    pub fn to_cow(self) -> Cow<'a, str> {
        if !self.raw.contains('\\') {
            return Cow::Borrowed(self.raw);
        }
        let mut text = String::with_capacity(self.raw.len());
        let mut rest = self.raw.chars().peekable();
        while let Some(character) = rest.next() {
            let is_escaped =
                |next: &char| matches!(next, ',' | ' ') || self.has_equals && *next == '=';
            match character {
                '\\' => text.push(rest.next_if(is_escaped).unwrap_or('\\')),
                other => text.push(other),
            }
        }
        Cow::Owned(text)
    }
}

impl InfluxLineError {
    /// Returns the error with a line number that is this much larger. Use this if your input
    /// continues an earlier one.
    #[doc(hidden)]
    #[must_use]
    pub fn after(self, lines: u64) -> InfluxLineError {
        InfluxLineError { line: self.line + lines, ..self }
    }
}

impl LineReason for InfluxReason {
    const FORMAT: &'static str = "influx";

    fn problem(self) -> &'static str {
        match self {
            InfluxReason::MalformedLine => {
                "expected UTF-8 of the form `measurement,tag=value field=value time`"
            }
            InfluxReason::MalformedTag => "expected a tag of the form `name=value`",
            InfluxReason::MalformedField => "expected a field of the form `name=value`",
            InfluxReason::MalformedValue => {
                "expected a finite number, a truth value, or a text in quotes"
            }
            InfluxReason::MalformedTime => {
                "expected a time that is a whole number, or the end of the line"
            }
        }
    }
}

impl InfluxReason {
    /// Returns the name of the reason. You can use it as a label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            InfluxReason::MalformedLine => "malformed_line",
            InfluxReason::MalformedTag => "malformed_tag",
            InfluxReason::MalformedField => "malformed_field",
            InfluxReason::MalformedValue => "malformed_value",
            InfluxReason::MalformedTime => "malformed_time",
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use alloc::{format, vec};

    use super::*;

    fn only(line: &str) -> Result<InfluxPoint<'_>, InfluxLineError> {
        let mut lines = InfluxLines::new(line.as_bytes());
        let read = lines.next().expect("a line");
        assert_eq!(lines.next(), None, "{line}");
        read
    }

    /// Formats the tags and fields of a line with bars between them.
    fn shown(line: &str) -> String {
        let point = only(line).expect(line);
        let mut parts = vec![point.measurement.to_cow().into_owned()];
        let tags = point.tags();
        parts.extend(tags.map(|(name, value)| format!("{}:{}", name.to_cow(), value.to_cow())));
        let fields = point.fields();
        parts.extend(fields.map(|(name, value)| format!("{}>{value:?}", name.to_cow())));
        parts.extend(point.time.map(|time| time.to_string()));
        parts.join("|")
    }

    #[test]
    fn lines_of_clients_are_read() {
        for (line, expected) in [
            ("m f=1", "m|f>Float(1.0)"),
            (" m,a=b  f=1  5 \r", "m|a:b|f>Float(1.0)|5"),
            (
                "m,a=b,c=d f=-1.5e3,g=7i,h=8u -5",
                "m|a:b|c:d|f>Float(-1500.0)|g>Integer(7)|h>Unsigned(8)|-5",
            ),
            ("m f=t,g=FALSE,h=True", "m|f>Boolean(true)|g>Boolean(false)|h>Boolean(true)"),
            ("m f=\"a, \\\"b\\\\\",g=1 5", "m|f>Text|g>Float(1.0)|5"),
            ("m f=\"\"", "m|f>Text"),
            ("my\\ m\\,x\\=y,a\\=b=c\\ d\\,e\\f f\\ g=1", "my m,x\\=y|a=b:c d,e\\f|f g>Float(1.0)"),
            ("m=x,a=b=c f=1", "m=x|a:b=c|f>Float(1.0)"),
            ("\u{e9},\u{e8}=\u{e7} f\u{e0}=1", "\u{e9}|\u{e8}:\u{e7}|f\u{e0}>Float(1.0)"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
        let mut lines = InfluxLines::new(b"# a comment\n\n \r\nm f=1\n");
        assert!(lines.next().is_some_and(|read| read.is_ok()));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn errors_name_the_reason_and_the_offset() {
        for (line, offset, reason) in [
            ("m", 1, InfluxReason::MalformedLine),
            (",a=b f=1", 0, InfluxReason::MalformedLine),
            ("m,a=b", 5, InfluxReason::MalformedLine),
            (" m,a f=1", 4, InfluxReason::MalformedTag),
            ("m,a= f=1", 2, InfluxReason::MalformedTag),
            ("m,=b f=1", 2, InfluxReason::MalformedTag),
            ("m, f=1", 2, InfluxReason::MalformedTag),
            ("m f", 3, InfluxReason::MalformedField),
            ("m =1", 2, InfluxReason::MalformedField),
            ("m f=1,", 6, InfluxReason::MalformedField),
            ("m f=1,g 5", 7, InfluxReason::MalformedField),
            ("m f= 5", 4, InfluxReason::MalformedValue),
            ("m f=x", 4, InfluxReason::MalformedValue),
            ("m f=1.5i", 4, InfluxReason::MalformedValue),
            ("m f=-1u", 4, InfluxReason::MalformedValue),
            ("m f=9223372036854775808i", 4, InfluxReason::MalformedValue),
            ("m f=inf", 4, InfluxReason::MalformedValue),
            ("m f=nan", 4, InfluxReason::MalformedValue),
            ("m f=\"a", 4, InfluxReason::MalformedValue),
            ("m f=\"a\\", 4, InfluxReason::MalformedValue),
            ("m f=\u{e7}", 4, InfluxReason::MalformedValue),
            ("m f=1\u{e7} 5", 4, InfluxReason::MalformedValue),
            ("m f=\"a\\\"", 4, InfluxReason::MalformedValue),
            ("m f=\"a\"b", 7, InfluxReason::MalformedValue),
            ("m f=1 x", 6, InfluxReason::MalformedTime),
            ("m f=1 1 2", 6, InfluxReason::MalformedTime),
            ("m f=1 1.5", 6, InfluxReason::MalformedTime),
        ] {
            let error = only(line).expect_err(line);
            assert_eq!((error.offset(), error.reason()), (offset, reason), "{line}");
        }
        let mut lines = InfluxLines::new(b"m f=1\nm\xff f=1\nm f=2");
        assert!(lines.next().expect("a line").is_ok());
        let error = lines.next().expect("a line").expect_err("not UTF-8");
        assert_eq!((error.after(10).line(), error.offset()), (12, 1));
        assert!(lines.next().expect("a line").is_ok());
    }

    #[test]
    fn line_feeds_in_texts_end_no_line() {
        let mut lines =
            InfluxLines::new(b"m f=\"\xff\nm f=1\n\" 5\nm f=\"\nm\n\",g=1\nm\nm f=\"\nm f=1");
        let error = lines.next().expect("a line").expect_err("not UTF-8");
        assert_eq!((error.line(), error.offset()), (1, 5));
        let point = lines.next().expect("a line").expect("two fields");
        assert_eq!(point.fields().count(), 2);
        let error = lines.next().expect("a line").expect_err("no field");
        assert_eq!((error.line(), error.reason()), (7, InfluxReason::MalformedLine));
        let error = lines.next().expect("a line").expect_err("an open quote");
        assert_eq!((error.line(), error.reason()), (8, InfluxReason::MalformedValue));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn all_of_a_line_that_was_taken_is_read_again() {
        let line = "m,a=b,c\\,d=e f=1,g=\"x,y z\",h=2i 7";
        let point = only(line).expect("a point");
        assert_eq!((point.tags().count(), point.fields().count()), (2, 3));
        let names: Vec<_> = point.fields().map(|(name, _)| name.to_cow()).collect();
        assert_eq!(names, ["f", "g", "h"]);
    }
}
