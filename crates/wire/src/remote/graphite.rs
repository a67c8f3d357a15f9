//! Reads lines of Graphite's plaintext protocol, in the role of its server Carbon.
//!
//! ```text
//! path value time
//! path;tag=value;tag=value value time
//! ```
//!
//! Spaces or tabs separate the three fields. A line ends with a line feed, an optional carriage
//! return before it, or the end of the input. Empty lines are skipped. The time is in seconds since
//! 1970 and can have a fraction. If you send `-1` or `N`, the time of arrival is used. The reader
//! does not allocate, and an error affects only its own line.
//!
//! ```
//! use quipu_wire::remote::graphite::GraphiteLines;
//!
//! let input = b"servers.web1.load;region=eu;rack=a 0.75 1700000000\nidle 1 N\nbad\n";
//! let mut lines = GraphiteLines::new(input);
//! let sample = lines.next().unwrap().unwrap();
//! assert_eq!((sample.path, sample.value), ("servers.web1.load", 0.75));
//! assert_eq!(sample.timestamp_ms, Some(1_700_000_000_000));
//! assert!(sample.tags().eq([Ok(("region", "eu")), Ok(("rack", "a"))]));
//!
//! assert_eq!(lines.next().unwrap().unwrap().timestamp_ms, None);
//! let error = lines.next().unwrap().unwrap_err();
//! assert_eq!((error.line(), error.reason().as_str()), (3, "malformed_line"));
//! assert!(lines.next().is_none());
//! ```

use super::line_error::LineReason;
use super::lines::{self, float};

/// Reads complete lines, for example from a datagram, or from a stream through a
/// [`LineBuffer`](super::LineBuffer).
#[derive(Clone, Debug)]
pub struct GraphiteLines<'a> {
    lines: lines::Lines<'a>,
    number: u64,
}

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphiteSample<'a> {
    /// The path without tags, such as `servers.web1.load`; not empty.
    pub path: &'a str,
    /// A finite number.
    pub value: f64,
    /// Milliseconds since 1970, or `None` for the time of arrival.
    pub timestamp_ms: Option<i64>,
    tags: &'a str,
}

/// The error for a line that could not be read.
pub type GraphiteLineError = super::LineError<GraphiteReason>;

/// The reason why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphiteReason {
    /// The line is not UTF-8, or not a path, a value and a time.
    MalformedLine,
    /// The value is not a finite number.
    MalformedValue,
    /// The time is not a number of seconds since 1970, `-1` or `N`.
    MalformedTime,
}

impl<'a> GraphiteLines<'a> {
    /// Creates a reader of these lines.
    pub fn new(input: &'a [u8]) -> GraphiteLines<'a> {
        GraphiteLines { lines: lines::Lines::new(input), number: 0 }
    }

    fn read(&self, line: &'a str) -> Result<GraphiteSample<'a>, GraphiteLineError> {
        let mut fields = line.split_ascii_whitespace();
        let (Some(name), Some(value), Some(time), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(self.error(0, GraphiteReason::MalformedLine));
        };
        // The fields are slices of the line.
        let at = |field: &str| field.as_ptr() as usize - line.as_ptr() as usize;
        let (path, tags) = name.split_once(';').unwrap_or((name, ""));
        if path.is_empty() {
            return Err(self.error(at(name), GraphiteReason::MalformedLine));
        }
        let Some(number) = float(value).filter(|number| number.is_finite()) else {
            return Err(self.error(at(value), GraphiteReason::MalformedValue));
        };
        let Some(timestamp_ms) = timestamp_ms(time) else {
            return Err(self.error(at(time), GraphiteReason::MalformedTime));
        };
        Ok(GraphiteSample { path, value: number, timestamp_ms, tags })
    }

    #[cold]
    fn error(&self, offset: usize, reason: GraphiteReason) -> GraphiteLineError {
        GraphiteLineError { line: self.number, offset, reason }
    }
}

impl<'a> Iterator for GraphiteLines<'a> {
    type Item = Result<GraphiteSample<'a>, GraphiteLineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.lines.next()?;
            self.number += 1;
            match line {
                Ok(line) if line.trim_ascii().is_empty() => {}
                Ok(line) => return Some(self.read(line)),
                Err(offset) => return Some(Err(self.error(offset, GraphiteReason::MalformedLine))),
            }
        }
    }
}

/// Returns the time: the outer `None` is an error, the inner `None` means the time of arrival.
fn timestamp_ms(text: &str) -> Option<Option<i64>> {
    if matches!(text, "-1" | "N") {
        return Some(None);
    }
    let seconds = float(text).filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds))?;
    Some(Some((seconds * 1000.0 + 0.5) as i64))
}

/// The latest time. Up to here, milliseconds are exact in a double.
const MAX_SECONDS: f64 = 9e12;

impl<'a> GraphiteSample<'a> {
    /// Returns the tags, as name and value, in the order of the line. A tag without a name, a value
    /// or an `=` between them is an error that contains the tag.
    pub fn tags(&self) -> impl Iterator<Item = Result<(&'a str, &'a str), &'a str>> + use<'a> {
        let tags = (!self.tags.is_empty()).then(|| self.tags.split(';'));
        tags.into_iter().flatten().map(|tag| match tag.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name, value)),
            _ => Err(tag),
        })
    }
}

impl LineReason for GraphiteReason {
    const FORMAT: &'static str = "graphite";

    fn problem(self) -> &'static str {
        match self {
            GraphiteReason::MalformedLine => "expected UTF-8 of the form `path value time`",
            GraphiteReason::MalformedValue => "expected a finite number",
            GraphiteReason::MalformedTime => "expected a time in seconds since 1970, -1 or N",
        }
    }
}

impl GraphiteReason {
    /// Returns the name of the reason. You can use it as a label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            GraphiteReason::MalformedLine => "malformed_line",
            GraphiteReason::MalformedValue => "malformed_value",
            GraphiteReason::MalformedTime => "malformed_time",
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn only(line: &str) -> Result<GraphiteSample<'_>, GraphiteLineError> {
        let mut lines = GraphiteLines::new(line.as_bytes());
        let read = lines.next().expect("a line");
        assert_eq!(lines.next(), None, "{line}");
        read
    }

    #[test]
    fn lines_that_carbon_accepts_are_read() {
        for (line, path, value, time) in [
            ("a.b.c 1 1700000000", "a.b.c", 1.0, Some(1_700_000_000_000)),
            ("a 1.5e3 1700000000.25\r", "a", 1500.0, Some(1_700_000_000_250)),
            (" a\t-0.5  0 ", "a", -0.5, Some(0)),
            ("a 1 -1", "a", 1.0, None),
            ("a 1 N", "a", 1.0, None),
            ("\u{e9}:x/y 1 2", "\u{e9}:x/y", 1.0, Some(2000)),
        ] {
            let sample = only(line).expect(line);
            assert_eq!((sample.path, sample.value, sample.timestamp_ms), (path, value, time));
            assert_eq!(sample.tags().count(), 0);
        }
        let sample = only("disk;host=a;;b;=c;d=;e=f=g 1 2").expect("a sample");
        let tags: Vec<_> = sample.tags().collect();
        let expected =
            [Ok(("host", "a")), Err(""), Err("b"), Err("=c"), Err("d="), Ok(("e", "f=g"))];
        assert_eq!((sample.path, &tags[..]), ("disk", &expected[..]));
    }

    #[test]
    fn errors_name_the_reason_and_the_offset() {
        for (line, offset, reason) in [
            ("a", 0, GraphiteReason::MalformedLine),
            ("a 1", 0, GraphiteReason::MalformedLine),
            ("a 1 2 3", 0, GraphiteReason::MalformedLine),
            (" ;t=v 1 2", 1, GraphiteReason::MalformedLine),
            ("a x 2", 2, GraphiteReason::MalformedValue),
            ("a nan 2", 2, GraphiteReason::MalformedValue),
            ("a inf 2", 2, GraphiteReason::MalformedValue),
            ("a 1e999 2", 2, GraphiteReason::MalformedValue),
            ("a 1 -2", 4, GraphiteReason::MalformedTime),
            ("a 1 now", 4, GraphiteReason::MalformedTime),
            ("a 1 1e13", 4, GraphiteReason::MalformedTime),
            ("a 1 nan", 4, GraphiteReason::MalformedTime),
        ] {
            let error = only(line).expect_err(line);
            assert_eq!((error.offset(), error.reason()), (offset, reason), "{line}");
        }
        let mut lines = GraphiteLines::new(b"\n \r\nab\xff 1 2\na 1 2");
        let error = lines.next().expect("a line").expect_err("not UTF-8");
        assert_eq!((error.line(), error.offset()), (3, 2));
        assert_eq!(lines.next().expect("a line").expect("a sample").path, "a");
    }
}
