//! The input of a command: a file, or standard input.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use quipu_segment::printable;

use crate::output::{Error, announce_input};

/// The number of bytes to read at a time.
pub(crate) const CHUNK: usize = 64 << 10;

/// An open file and its name in messages.
pub(crate) struct Input {
    file: File,
    name: String,
    total: Option<u64>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Input, Error> {
        let is_standard = path == Path::new("-");
        let name = match is_standard {
            true => String::from("standard input"),
            false => printable(path).to_string(),
        };
        if is_standard {
            announce_input();
        }
        let opened = match is_standard {
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let mut file = opened.map_err(|error| Error::new(format_args!("{name}: {error}")))?;
        let total = match file.metadata() {
            // Standard input can be a file that was partly read already.
            Ok(metadata) if metadata.is_file() => {
                let position = file.stream_position().unwrap_or(0);
                Some(metadata.len().saturating_sub(position))
            }
            _ => None,
        };
        Ok(Input { file, name, total })
    }

    /// Returns the name of the input in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes left to read, if it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the descriptor, for polling.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns whether the input is the same file as `other`.
    pub(crate) fn is_same(&self, other: &File) -> bool {
        match (rustix::fs::fstat(&self.file), rustix::fs::fstat(other)) {
            (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        }
    }

    /// Reads the available bytes, at most `buffer.len()`. Returns 0 at the end of the input.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.file.read(buffer) {
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut wait =
                        [rustix::event::PollFd::new(&self.file, rustix::event::PollFlags::IN)];
                    // We ignore the result, because the next read reports the error.
                    let _ = rustix::event::poll(&mut wait, None);
                }
                Err(error) => return Err(Error::new(format_args!("{}: {error}", self.name))),
            }
        }
    }
}
