//! The output of a conversion: standard output, or a file that gets its final name only when it is
//! complete.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use quipu_segment::printable;
use rustix::event::{PollFd, PollFlags, poll};

use crate::output::Error;
use crate::wire::Input;

/// An open output.
pub(super) struct Output {
    file: File,
    name: String,
    /// The temporary path and the final path, if this is a file.
    paths: Option<(PathBuf, PathBuf)>,
}

impl Output {
    /// Opens an output that is a stream: standard output (`-`), a device or a pipe. Such an output
    /// contains no data to protect, and must not be replaced by a file. Waits for the reader of a
    /// FIFO. Returns `None` if the path names a file.
    pub(super) fn open_stream(path: &Path) -> Result<Option<Output>, Error> {
        let (name, file) = if path == Path::new("-") {
            let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            (String::from("standard output"), file)
        } else if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            (printable(path).to_string(), OpenOptions::new().write(true).open(path))
        } else {
            return Ok(None);
        };
        let file = file.map_err(|error| Error::new(format_args!("{name}: {error}")))?;
        Ok(Some(Output { file, name, paths: None }))
    }

    /// Creates an output file under its temporary path.
    pub(super) fn create(path: &Path, force: bool, input: &Input) -> Result<Output, Error> {
        let name = printable(path).to_string();
        let failed = |error: io::Error| Error::new(format_args!("{name}: {error}"));
        let permissions = match fs::metadata(path) {
            Ok(_) if !force => {
                return Err(Error::new(format_args!("{name} exists already; --force replaces it")));
            }
            Ok(metadata) => Some(metadata.permissions()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        // We follow a symbolic link, because the link should stay and lead to the new file.
        let path =
            if permissions.is_some() { path.canonicalize().map_err(failed)? } else { path.into() };
        let mut temporary = OsString::from(&path);
        temporary.push(".part");
        let temporary = PathBuf::from(temporary);
        if File::open(&temporary).is_ok_and(|temporary| input.is_same(&temporary)) {
            return Err(Error::new(format_args!("{} is the input file", printable(&temporary))));
        }
        let mut options = OpenOptions::new();
        match force {
            true => options.write(true).create(true).truncate(true),
            false => options.write(true).create_new(true),
        };
        let file = options.open(&temporary).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Error::new(format_args!(
                "{} exists already: another conversion is writing it, or one was interrupted; \
                 --force replaces it",
                printable(&temporary)
            )),
            _ => failed(error),
        })?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).map_err(failed)?;
        }
        Ok(Output { file, name, paths: Some((temporary, path)) })
    }

    /// Returns the name of the output in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Writes all of the bytes.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // We ignore the result, because the next write reports the error.
                    let _ = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Syncs a complete file, and renames it to its final path.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.paths {
            Some((temporary, path)) => {
                self.file.sync_all().and_then(|()| fs::rename(&temporary, &path)).map_err(|error| {
                    Error::new(format_args!(
                        "{}: {error}; what was converted is in {}",
                        self.name,
                        printable(&temporary)
                    ))
                })
            }
            None => Ok(()),
        }
    }

    /// Keeps an incomplete file under its temporary path, and returns a phrase for the error
    /// message. Deletes an empty file.
    pub(super) fn keep_part(self) -> Result<String, Error> {
        let Some((temporary, _)) = self.paths else { return Ok(String::new()) };
        if self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let removed = fs::remove_file(&temporary);
            return removed
                .map(|()| String::new())
                .map_err(|error| Error::new(format_args!("{}: {error}", self.name)));
        }
        Ok(format!(", into {}", printable(&temporary)))
    }

    /// Closes the output after its reader closed it.
    pub(super) fn discard(self) -> Result<(), Error> {
        self.keep_part().map(drop)
    }
}
