//! Writes the standard output and the standard error of the commands, and defines their exit codes.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::LazyLock;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use clap::builder::styling::Style;
use quipu_segment::printable;

/// Standard output, with a buffer.
pub type BufferedStdout = BufWriter<StdoutLock<'static>>;

/// The error of a command: a message with the remedy for people, and an exit code for scripts.
#[derive(Debug)]
pub struct Error {
    text: String,
    code: u8,
}

impl Error {
    /// Creates the error for a failure, with exit code 1.
    pub fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), code: 1 }
    }

    /// Creates an error for arguments that conflict, with clap's exit code.
    pub(crate) fn usage(text: &str) -> Self {
        Self { text: text.to_owned(), code: 2 }
    }

    /// Returns this error with another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Creates an error for a signal that ended the command. The exit code is 128 plus its number.
    pub(crate) fn signal(number: i32, text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), code: 128u8.saturating_add(number as u8) }
    }

    /// Returns the exit code of the process.
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

/// Whether a command could read all of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Coverage {
    /// All sources.
    Whole,
    /// Some sources were unreadable, or only partly readable. Standard error names them.
    Part,
}

impl Coverage {
    /// Returns `Part` if `is_part`.
    pub(crate) fn part_if(is_part: bool) -> Self {
        if is_part { Self::Part } else { Self::Whole }
    }

    /// Returns the exit code of the process. `docs/cli/index.md` lists all codes.
    pub fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::Part => 3,
        }
    }
}

/// The format of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// For programs: one object
    Json,
}

/// Applies a style if standard output shows colors: if it is a terminal, unless `NO_COLOR` is set
/// or `TERM` is `dumb`. `--color` takes precedence over these.
pub(crate) fn painted<T: fmt::Display>(style: Style, text: T) -> StyledText<T> {
    StyledText(if is_colored(Stream::Output) { style } else { Style::new() }, text)
}

/// A value with a style.
pub(crate) struct StyledText<T>(Style, T);

impl<T: fmt::Display> fmt::Display for StyledText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(style, text) = self;
        write!(f, "{style}{text}{style:#}")
    }
}

/// A standard stream of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Returns whether a stream shows colors. The result stays the same after the first call.
pub fn is_colored(stream: Stream) -> bool {
    static ARE_COLORED: LazyLock<[bool; 2]> = LazyLock::new(|| {
        [AutoStream::choice(&io::stdout()), AutoStream::choice(&io::stderr())]
            .map(|choice| choice != ColorChoice::Never)
    });
    ARE_COLORED[stream as usize]
}

/// Sets whether all streams show colors.
pub fn choose_color(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

/// Writes a line to standard error, and escapes characters that control a terminal. Ignores errors,
/// because there is nowhere else to report them.
pub fn warn(message: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{} {}", sender(), printable(&message.to_string()));
}

/// Writes several lines, each like [`warn`].
pub fn warn_lines(message: &dyn fmt::Display) {
    let text = message.to_string();
    let lines: Vec<_> = text.lines().map(|line| printable(line).to_string()).collect();
    let _ = writeln!(io::stderr(), "{} {}", sender(), lines.join("\n"));
}

/// Returns the prefix of each message.
fn sender() -> &'static str {
    if is_colored(Stream::Error) { "\x1b[1;31mquipu:\x1b[0m" } else { "quipu:" }
}

/// Prints a hint that the command reads standard input, if this is a terminal, because the command
/// would otherwise seem to hang.
pub(crate) fn announce_input() {
    if io::stdin().is_terminal() {
        warn(&"reading standard input, which is a terminal: name a file, or end it with Ctrl-D");
    }
}

/// Fails if standard output is a terminal, for output that people cannot read.
pub(crate) fn refuse_terminal(reason: &str) -> Result<(), Error> {
    if !io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::new(format_args!(
        "standard output is a terminal: {reason}: name a file, or redirect the output"
    )))
}

/// Writes a line about a result to standard error, if this is a terminal. Scripts get no line.
pub(crate) fn report(message: &dyn fmt::Display) {
    if io::stderr().is_terminal() {
        warn(message);
    }
}

/// Writes to standard output, flushes it, and returns the result of `write`. Returns `None` if the
/// reader closed the pipe. This is not an error, because for example `head` may have read enough.
///
/// # Errors
/// Fails if the output cannot be written, for example to a full disk.
pub fn print<T>(
    write: impl FnOnce(&mut BufferedStdout) -> io::Result<T>,
) -> Result<Option<T>, Error> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&mut out).and_then(|written| out.flush().map(|()| written)) {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(Error::new(format_args!("standard output: {error}"))),
    }
}
