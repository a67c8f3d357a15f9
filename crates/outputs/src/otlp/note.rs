//! The file with what a receiver of deltas is still owed: the last totals, the requests with what
//! was added up to them, and how many of these are settled. docs/formats.md draws it.
//!
//! It is written before the first of the requests is sent, under another name and then renamed.
//! Each request that is settled, taken or refused, adds a byte. So after a kill, all requests but
//! those are sent again with the same bytes: at most the one whose answer was on its way is sent
//! twice. The first requests add nothing as long as they are refused for what is not in them, since
//! the snapshot is kept if all are.
//!
//! Only this user may read it, and links are not followed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Crc;
use quipu_segment::hash::fnv1a;

use super::Compression;
use super::requests::Body;
use crate::files::{plain, writable};
use quipu_process::temporary::sync_directory;

/// The file of a receiver.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    receiver: String,
    /// The file since it was last written.
    file: Option<File>,
}

/// What a file has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// The time of the totals, in nanoseconds since 1970.
    pub(super) time_ns: u64,
    pub(super) totals: Vec<Body>,
    /// The requests to send, and how they are compressed.
    pub(super) compression: Compression,
    pub(super) owed: Vec<Body>,
    /// How many of them are settled.
    pub(super) settled: usize,
}

const MAGIC: &[u8; 8] = b"quipuOD1";
/// What each request that is settled adds.
const SETTLED: u8 = 1;

impl Note {
    /// The file beside the state.
    pub(super) fn new(state: &Path, receiver: &str) -> Self {
        let mut path = state.as_os_str().to_owned();
        path.push(format!(".otlp-{:016x}", fnv1a(receiver.as_bytes())));
        Self { path: path.into(), receiver: receiver.to_owned(), file: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub(super) fn read(&mut self) -> Result<Option<Noted>, String> {
        let mut file = match plain(OpenOptions::new().read(true).append(true), &self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        // Earlier versions left it open to others. This fails if it is the file of another user.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let noted = decode(&bytes, &self.receiver).ok_or("it is damaged")?;
        self.file = Some(file);
        Ok(Some(noted))
    }

    /// Replaces the file by one in which nothing is settled.
    ///
    /// # Errors
    /// If it cannot be written. It is the file before or the new one that is there then.
    pub(super) fn write(
        &mut self,
        time_ns: u64,
        totals: &[Body],
        compression: Compression,
        owed: &[Body],
    ) -> io::Result<()> {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".new");
        let path = PathBuf::from(path);
        let file = create(&path)?;
        let mut output = Summed { output: io::BufWriter::new(file), crc: Crc::new() };
        output.write_all(MAGIC)?;
        output.write_all(&time_ns.to_le_bytes())?;
        output.write_all(&[compression as u8])?;
        output.write_all(&length(self.receiver.len())?)?;
        output.write_all(self.receiver.as_bytes())?;
        for bodies in [totals, owed] {
            output.write_all(&length(bodies.len())?)?;
            for body in bodies {
                output.write_all(&body.points.to_le_bytes())?;
                output.write_all(&length(body.bytes.len())?)?;
                output.write_all(&body.bytes)?;
            }
        }
        let sum = output.crc.sum();
        output.write_all(&sum.to_le_bytes())?;
        let file = output.output.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&path, &self.path)?;
        // It is there, whether or not a loss of power would undo that.
        self.file = Some(file);
        sync_directory(&self.path)
    }

    /// Notes that the next requests are settled, that many.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(super) fn settle(&mut self, count: usize) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&vec![SETTLED; count]))
    }
}

/// Creates a file. What a kill has left over there is removed: others could have it open.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => plain(writable().create_new(true), path),
    }
}

/// What is written, and its checksum.
struct Summed {
    output: io::BufWriter<File>,
    crc: Crc,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.crc.update(bytes);
        self.output.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

fn length(length: usize) -> io::Result<[u8; 4]> {
    let length = u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(length.to_le_bytes())
}

/// Reads a file; `None` if it is damaged, or that of another receiver.
fn decode(bytes: &[u8], receiver: &str) -> Option<Noted> {
    let mut input = bytes.strip_prefix(MAGIC)?;
    let mut noted = Noted { time_ns: number(&mut input)?, ..Noted::default() };
    let (compression, rest) = input.split_first()?;
    input = rest;
    noted.compression = match compression {
        0 => Compression::None,
        1 => Compression::Gzip,
        _ => return None,
    };
    if text(&mut input)? != receiver.as_bytes() {
        return None;
    }
    for bodies in [&mut noted.totals, &mut noted.owed] {
        for _ in 0..count(&mut input)? {
            let points = number(&mut input)?;
            bodies.push(Body { points, bytes: text(&mut input)?.to_vec() });
        }
    }
    let mut crc = Crc::new();
    crc.update(&bytes[..bytes.len() - input.len()]);
    if count(&mut input)? != crc.sum() {
        return None;
    }
    noted.settled = input.len().min(noted.owed.len());
    Some(noted)
}

fn number(input: &mut &[u8]) -> Option<u64> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u64::from_le_bytes(*number))
}

fn count(input: &mut &[u8]) -> Option<u32> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u32::from_le_bytes(*number))
}

fn text<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = count(input)?;
    let (text, rest) = input.split_at_checked(length as usize)?;
    *input = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_noted_is_read_and_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state.quipu");
        let body = |text: &str, points| Body { bytes: text.into(), points };
        let (totals, owed) = (vec![body("a", 1), body("", 0)], vec![body("bc", 2), body("d", 1)]);
        let mut note = Note::new(&state, "http://a/v1/metrics");
        assert_eq!(note.read(), Ok(None));
        note.write(7, &totals, Compression::Gzip, &owed).unwrap();
        let read = || Note::new(&state, "http://a/v1/metrics").read();
        let expected = |settled| {
            let (totals, owed) = (totals.clone(), owed.clone());
            Noted { time_ns: 7, totals, compression: Compression::Gzip, owed, settled }
        };
        assert_eq!(read(), Ok(Some(expected(0))));
        note.settle(0).unwrap();
        note.settle(1).unwrap();
        assert_eq!(read(), Ok(Some(expected(1))));
        // Another process goes on.
        let mut other = Note::new(&state, "http://a/v1/metrics");
        other.read().unwrap();
        other.settle(1).unwrap();
        assert_eq!(read(), Ok(Some(expected(2))));
        assert_eq!(Note::new(&state, "http://b/v1/metrics").read(), Ok(None));
        note.write(7, &totals, Compression::Gzip, &owed).unwrap();
        note.settle(2).unwrap();
        assert_eq!(read(), Ok(Some(expected(2))));

        let bytes = fs::read(&note.path).unwrap();
        let whole = bytes.len() - 2;
        for at in 0..whole {
            assert_eq!(decode(&bytes[..at], "http://a/v1/metrics"), None, "{at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            assert_eq!(decode(&damaged, "http://a/v1/metrics"), None, "{at}");
        }
        assert_eq!(decode(&bytes, "http://b/v1/metrics"), None);
        note.write(8, &[], Compression::None, &[]).unwrap();
        let empty = Noted { time_ns: 8, ..Noted::default() };
        assert_eq!(read(), Ok(Some(empty)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn others_can_neither_read_the_file_nor_choose_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut note = Note::new(&directory.path().join("state.quipu"), "http://a/v1/metrics");
        let new = PathBuf::from(format!("{}.new", note.path.display()));
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        let open_to_all = |path: &Path| {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        };
        // What an earlier version has left over, and what others have open.
        fs::write(&new, "").unwrap();
        open_to_all(&new);
        let mut others = File::open(&new).unwrap();
        note.write(7, &[], Compression::None, &[]).unwrap();
        assert_eq!(mode(&note.path), 0o600);
        assert_eq!(others.read_to_end(&mut Vec::new()).unwrap(), 0);
        open_to_all(&note.path);
        assert!(note.read().unwrap().is_some());
        assert_eq!(mode(&note.path), 0o600);
        // Links are not followed.
        let other = directory.path().join("other");
        fs::rename(&note.path, &other).unwrap();
        let bytes = fs::read(&other).unwrap();
        symlink(&other, &new).unwrap();
        note.write(8, &[], Compression::None, &[]).unwrap();
        assert_eq!(fs::read(&other).unwrap(), bytes);
        fs::remove_file(&note.path).unwrap();
        symlink(&other, &note.path).unwrap();
        assert!(note.read().is_err());
        note.write(9, &[], Compression::None, &[]).unwrap();
        assert_eq!(fs::read(&other).unwrap(), bytes);
        assert_eq!(note.read().unwrap().unwrap().time_ns, 9);
    }
}
