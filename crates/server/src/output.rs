//! Standard output of the commands.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

/// Standard output, with a buffer.
pub type Output = BufWriter<StdoutLock<'static>>;

/// Why standard output was not written.
#[derive(Debug)]
pub struct Error(io::Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output: {}", self.0)
    }
}

impl std::error::Error for Error {}

/// Writes to standard output, all of which has arrived when this returns what `write` returned.
/// Returns `None` if the reader has gone: one that has seen enough, such as `head`, is not a
/// failure.
///
/// # Errors
/// Output that cannot be written, such as to a full disk.
pub fn print<T>(write: impl FnOnce(&mut Output) -> io::Result<T>) -> Result<Option<T>, Error> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&mut out).and_then(|written| out.flush().map(|()| written)) {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(Error(error)),
    }
}
