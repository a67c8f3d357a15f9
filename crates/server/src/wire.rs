//! What `quipu convert` and `quipu compare` share: formats, kinds and framings as arguments, inputs,
//! and what to say when one cannot be read.
//!
//! Every format comes from [`AnyFormat::all`]: nothing here knows one by name.

mod hint;
mod input;

use std::fmt;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use quipu_wire::{AnyFormat, Framing, Kind};

pub(crate) use hint::{Head, Reading, name};
pub(crate) use input::{CHUNK, Input};

/// The names of formats, for clap.
pub(crate) fn formats() -> impl TypedValueParser<Value = AnyFormat> {
    PossibleValuesParser::new(AnyFormat::all().map(|format| format.name()))
        .try_map(|name| AnyFormat::named(&name).ok_or("no such format"))
}

/// A kind of messages, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MessageKind {
    /// Counters
    Counter,
    /// Batch timers
    BatchTimer,
    /// Gauges
    Gauge,
    /// Unions of the three
    Union,
}

impl MessageKind {
    pub(crate) fn kind(self) -> Kind {
        match self {
            MessageKind::Counter => Kind::Counter,
            MessageKind::BatchTimer => Kind::BatchTimer,
            MessageKind::Gauge => Kind::Gauge,
            MessageKind::Union => Kind::MetricUnion,
        }
    }
}

/// A framing, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FramingName {
    /// What the format has for streams; varint where it has nothing
    Own,
    /// The length as 4 bytes, least significant first, before each message
    U32le,
    /// The length in base 128, as in protobuf, before each message
    Varint,
    /// Nothing: one message behind the other, or a single one
    None,
}

impl FramingName {
    pub(crate) fn framing(self) -> Framing {
        match self {
            FramingName::Own => Framing::Own,
            FramingName::U32le => Framing::U32Le,
            FramingName::Varint => Framing::Varint,
            FramingName::None => Framing::None,
        }
    }
}

/// Why a command ends early, as it is said to people.
#[derive(Debug)]
pub struct Error {
    text: String,
    code: u8,
}

impl Error {
    pub(crate) fn new(text: impl fmt::Display) -> Error {
        Error { text: text.to_string(), code: 1 }
    }

    /// The same, of a command that a signal ended.
    pub(crate) fn signal(number: i32, text: impl fmt::Display) -> Error {
        Error { text: text.to_string(), code: 128u8.saturating_add(number as u8) }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// A number of things, with commas between its thousands.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(number), if number == 1 { one } else { many })
}

/// A number of messages.
pub(crate) fn messages(number: u64) -> String {
    count(number, "message", "messages")
}

/// A line of text on standard error that is rewritten in place; hidden where that is no terminal.
pub(crate) fn progress_line() -> ProgressBar {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match ProgressStyle::with_template("{msg}") {
        Ok(style) => line.with_style(style),
        Err(_) => line,
    }
}
