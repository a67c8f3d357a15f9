//! Reads a segment file of another program, without any effect on this program. The agent and
//! `quipu scrape` use this.
//!
//! The file stays open, and each reading works on a copy. Copying takes no lock, so the program
//! never waits. The file is not mapped, because truncating a mapped file would kill this process;
//! while reading, a truncated file is only an error.

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

/// The header of a segment, with the results of the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The random identity of the segment.
    pub instance: [u8; 16],
    /// The creation time in nanoseconds since 1970.
    pub created: u64,
    /// The number of bytes in use.
    pub used: u64,
    /// The number of series that were omitted, because they kept changing during the reading.
    pub omitted: u64,
}

impl SegmentFile {
    /// Opens a regular file for reading, and follows symbolic links. This does not block, even for
    /// a pipe without a writer.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_below(path, path)
    }

    /// Works like [`Self::open`], but follows symbolic links only within `root`, the beginning of
    /// the path.
    pub fn open_below(root: &Path, path: &Path) -> io::Result<Self> {
        let file = File::from(open_below(root, path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let data = file.metadata()?;
        if !data.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Self { path: path.to_owned(), file, id: file_id(&data) })
    }

    /// Returns the identity of the file, independent of its name.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns whether any process has this file open as a segment; `None` if this is unknown.
    pub fn is_open(&self) -> Option<bool> {
        inspect::is_open(&self.file)
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.len() == 0)
    }

    /// Returns whether the file begins like a segment. A file that is just being created can still
    /// be empty.
    pub fn is_segment(&self) -> io::Result<bool> {
        begins_like_one(&self.file)
    }

    /// Returns the open file.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns the length and the time of the last change, as far as the file system records it.
    pub fn stamp(&self) -> (u64, Option<SystemTime>) {
        let data = self.file.metadata();
        data.map_or((0, None), |data| (data.len(), data.modified().ok()))
    }

    /// Returns the bytes that the file system has allocated.
    pub fn allocated(&self) -> u64 {
        self.file.metadata().map_or(0, |data| data.len().min(data.blocks().saturating_mul(512)))
    }

    /// Returns the bytes in use according to the header; 0 if there is none.
    pub fn used(&self) -> u64 {
        inspect::bytes_in_use(&self.file).unwrap_or(0)
    }

    /// Passes the current families to a sink.
    ///
    /// # Errors
    /// Returns a message if the file is not a segment, is damaged, or uses more than `most` bytes.
    pub fn visit(&self, most: u64, sink: &mut impl Sink) -> Result<Header, String> {
        visit(&self.path, &self.file, most, sink)
    }
}

/// Works like [`SegmentFile::visit`], for an open file. `path` is only used in messages.
///
/// # Errors
/// Fails like [`SegmentFile::visit`].
pub fn visit(path: &Path, file: &File, most: u64, sink: &mut impl Sink) -> Result<Header, String> {
    let copy = Segment::copy_of(path, file, most).map_err(|error| error.to_string())?;
    let (instance, created, used) = (copy.instance(), copy.created_ns(), copy.used());
    Registry::from_segment(copy.clone()).visit(sink).map_err(|error| error.to_string())?;
    Ok(Header { instance, created, used, omitted: copy.omitted() })
}

/// Returns the device and the inode number of a file.
pub fn file_id(data: &Metadata) -> FileId {
    (data.dev(), data.ino())
}

/// Returns whether a file begins like a segment. A segment that is just being created can still be
/// empty.
pub fn begins_like_one(file: &File) -> io::Result<bool> {
    let mut head = vec![0; quipu_segment::MAGIC.len()];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(head == quipu_segment::MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
