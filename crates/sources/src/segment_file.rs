//! A segment file of another program, which is read without any effect on that program: for the
//! agent, and for `quipu scrape`.
//!
//! The file stays open. Each reading walks over a copy: no lock is taken that the program waits
//! for, and nothing is mapped, so that a file that is cut is an error, and ends no process.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use quipu::Registry;
use quipu::snapshot::Sink;
use quipu_segment::{Segment, inspect};
use quipu_store::files::open_below;
use rustix::fs::OFlags;

/// The device and the inode number of a file.
pub type FileId = (u64, u64);

/// An open segment file.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
    file: File,
    id: FileId,
}

/// What the header of a segment says, how much of it is in use, and what was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What tells the file from all others.
    pub instance: [u8; 16],
    /// Nanoseconds of Unix time at which it was made.
    pub created: u64,
    /// The bytes in use.
    pub used: u64,
    /// The series that the reading left out, since they changed again and again meanwhile.
    pub left_out: u64,
}

impl SegmentFile {
    /// Opens a regular file for reading, by a path whose symbolic links are followed. Does not
    /// block on a pipe without a writer.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_below(path, path)
    }

    /// As [`Self::open`], but symbolic links are followed up to `root` alone, which the path begins
    /// with.
    pub fn open_below(root: &Path, path: &Path) -> io::Result<Self> {
        let file = File::from(open_below(root, path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Self { path: path.to_owned(), file, id: file_id(&data) })
    }

    /// What tells the file from others, whatever its name is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Whether a process has the file open as a segment; `None` if that is not known.
    pub fn is_open(&self) -> Option<bool> {
        inspect::is_open(&self.file)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.len() == 0)
    }

    /// Whether it begins like a segment. One that is being created may still be empty.
    pub fn is_segment(&self) -> io::Result<bool> {
        begins_like_one(&self.file)
    }

    /// The open file.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Its length, and when the file was last changed, as far as the file system knows.
    pub fn stamp(&self) -> (u64, Option<SystemTime>) {
        let data = self.file.metadata();
        data.map_or((0, None), |data| (data.len(), data.modified().ok()))
    }

    /// The bytes of the file for which the file system has given it room.
    pub fn allocated(&self) -> u64 {
        self.file.metadata().map_or(0, |data| data.len().min(data.blocks().saturating_mul(512)))
    }

    /// The bytes that its header says are in use; 0 if it has none.
    pub fn used(&self) -> u64 {
        inspect::bytes_in_use(&self.file).unwrap_or(0)
    }

    /// Passes its families to a sink, as they are now.
    ///
    /// # Errors
    /// A file that is not a segment, is damaged, or has more than `most` bytes in use: as text.
    pub fn visit(&self, most: u64, sink: &mut impl Sink) -> Result<Header, String> {
        visit(&self.path, &self.file, most, sink)
    }
}

/// Does the work of [`SegmentFile::visit`] for an open file. `path` is its name, for messages.
///
/// # Errors
/// The errors of [`SegmentFile::visit`].
pub fn visit(path: &Path, file: &File, most: u64, sink: &mut impl Sink) -> Result<Header, String> {
    let copy = Segment::copy_of(path, file, most).map_err(|error| error.to_string())?;
    let (instance, created, used) = (copy.instance(), copy.created(), copy.used());
    Registry::from_segment(copy.clone()).visit(sink).map_err(|error| error.to_string())?;
    Ok(Header { instance, created, used, left_out: copy.left_out() })
}

/// The device and the inode number of a file.
pub fn file_id(data: &Metadata) -> FileId {
    (data.dev(), data.ino())
}

/// Whether a regular file begins like a segment. A segment that is being created may still be
/// empty.
pub fn is_segment(path: &Path) -> io::Result<bool> {
    begins_like_one(&inspect::open_regular(path)?)
}

/// Does the work of [`is_segment`] for an open file.
pub fn begins_like_one(file: &File) -> io::Result<bool> {
    let mut head = vec![0; quipu_segment::MAGIC.len()];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(head == quipu_segment::MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
