//! The arguments and inputs that `quipu messages convert` and `quipu messages compare` share:
//! formats, kinds and framings, and hints for unreadable inputs.
//!
//! The list of formats is [`AnyFormat::all`], so you can add a format without changing this code.

mod hint;
mod input;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use quipu_wire::{AnyFormat, Framing, Kind};

pub(crate) use hint::{Head, Reading, name};
pub(crate) use input::{CHUNK, Input};

/// Returns a clap parser for the names of formats.
pub(crate) fn formats() -> impl TypedValueParser<Value = AnyFormat> {
    PossibleValuesParser::new(AnyFormat::all().map(|format| format.as_str()))
        .try_map(|name| name.parse::<AnyFormat>())
}

/// The kind of all messages, as an argument.
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
    /// The format's own framing for streams; varint if it has none
    Own,
    /// Before each message, its length as 4 bytes, little-endian
    U32le,
    /// Before each message, its length as a base-128 varint, as in protobuf
    Varint,
    /// Nothing: messages follow one another directly, or there is only one
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

/// Formats a count with its noun in singular or plural, and commas between thousands.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(number), if number == 1 { one } else { many })
}

/// Formats a number of messages.
pub(crate) fn messages(number: u64) -> String {
    count(number, "message", "messages")
}

/// Creates a progress line on standard error, rewritten in place. It is hidden unless standard
/// error is a terminal.
pub(crate) fn progress_line() -> ProgressBar {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match ProgressStyle::with_template("{msg}") {
        Ok(style) => line.with_style(style),
        Err(_) => line,
    }
}
