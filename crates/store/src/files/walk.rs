//! [`walk`] visits the entries of one file. A process can write to this file at the same time.
//!
//! Both clients use nearly the same format, little-endian throughout:
//!
//! ```text
//! 4 bytes      how many bytes of the file are used
//! 4 bytes      padding
//! then entries:
//!   4 bytes    length of the key (Python), or of key and padding (Ruby)
//!   n bytes    key, and padding up to a multiple of 8 bytes
//!   8 bytes    value
//!   8 bytes    time
//! ```
//!
//! A writer first appends an entry and then updates the used length, so the used part always
//! consists of whole entries.
//!
//! Files are read, not mapped, because the kernel kills a process that reads from a mapping of a
//! truncated file (`SIGBUS`). A window of fixed size moves over the file, whatever length the file
//! claims.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::table::Reading;

/// The layout of entries, by the client that writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Python's `prometheus_client`, 0.18 and later.
    Python,
    /// Python's client before 0.18, which stored no times with the values.
    Timeless,
    /// Ruby's `prometheus-client`.
    Ruby,
}

/// Why the rest of a file is not read.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The file is empty.
    Empty,
    /// The file is shorter than a header.
    Header,
    /// The used length in the header is not valid.
    Used(i32),
    /// The entry at this offset is not valid.
    Entry(u64),
    /// The file ends before its used length, in the entry at this offset.
    Cut(u64),
    /// The values carry no times.
    Old,
    /// The file cannot be read.
    Unreadable(io::Error),
}

impl Flaw {
    /// Returns the value of the label `reason`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Header | Self::Cut(_) => "truncated",
            Self::Used(_) | Self::Entry(_) => "damaged",
            Self::Old => "old_format",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(
                "it is empty: its process has just started, or was killed at that moment; remove \
                 it if that process is gone",
            ),
            Self::Header => {
                f.write_str("it is shorter than a header; remove it if its process is gone")
            }
            Self::Used(used) => write!(
                f,
                "its used length of {used} bytes is not valid; remove it if its process is gone"
            ),
            Self::Entry(at) => write!(
                f,
                "there is no valid entry at byte {at}; those before it are used; remove the \
                 file if its process is gone"
            ),
            Self::Cut(at) => write!(
                f,
                "it ends within the entry at byte {at}; those before it are used; remove the \
                 file if its process is gone"
            ),
            Self::Old => f.write_str(
                "its values have no times, as prometheus_client before 0.18 and \
                 prometheus-client-mmap write them; use a later prometheus_client, and empty the \
                 directory when the application starts",
            ),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// A source of bytes that can be read at any offset.
pub(crate) trait ByteSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ByteSource for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ByteSource for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// The buffer for reading a file; reused for the next file.
pub(crate) struct Window {
    bytes: Box<[u8]>,
    /// The used length of the last file: the next one is probably similar.
    guess: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: vec![0; WINDOW].into(), guess: FIRST }
    }
}

/// The size of the buffer: fits into the L2 cache.
const WINDOW: usize = 256 << 10;
/// The least number of bytes in the first read of a file.
const FIRST: usize = 16 << 10;
/// The longest key that is read. Keys contain labels, and in Python's client also a help string.
const MAX_KEY: usize = 128 << 10;
const HEADER: usize = 8;

/// An entry of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) reading: Reading,
    /// The offset of the value in the file.
    pub(crate) at: u64,
}

/// The result of parsing an entry at the start of some bytes.
enum Split<'a> {
    Entry {
        key: &'a [u8],
        value: f64,
        time: f64,
        size: usize,
    },
    /// An entry of this size, whose key is too long to read.
    Long(usize),
    /// This many bytes are needed, counted from the start of the entry.
    More(usize),
    Bad,
}

impl Layout {
    #[inline]
    fn split(self, bytes: &[u8]) -> Split<'_> {
        let Some((length, rest)) = bytes.split_first_chunk() else { return Split::More(4) };
        let Ok(length) = usize::try_from(i32::from_le_bytes(*length)) else { return Split::Bad };
        let padding = 8 - (length + 4) % 8;
        let (padded, number) = match self {
            Self::Python => (length + padding, 16),
            Self::Timeless => (length + padding, 8),
            Self::Ruby if padding == 8 => (length, 16),
            Self::Ruby => return Split::Bad,
        };
        let size = 4 + padded + number;
        if length > MAX_KEY {
            return match (self, rest.first()) {
                (Self::Python, Some(b'[')) | (Self::Ruby, Some(b'{')) => Split::Long(size),
                (_, Some(_)) => Split::Bad,
                (_, None) => Split::More(5),
            };
        }
        let Some((key, numbers)) = rest.split_at_checked(padded) else { return Split::More(size) };
        let Some((value, times)) = numbers.split_first_chunk() else { return Split::More(size) };
        let time = match (self, times.first_chunk()) {
            (Self::Timeless, _) => 0.0,
            (_, Some(time)) => f64::from_le_bytes(*time),
            (_, None) => return Split::More(size),
        };
        let key = match self {
            Self::Ruby => key.trim_ascii_end(),
            _ if key.first() == Some(&b'[') => &key[..length],
            _ => return Split::Bad,
        };
        Split::Entry { key, value: f64::from_le_bytes(*value), time, size }
    }
}

/// Calls `visit` with each entry, up to the first that is not valid. If the key of an entry is too
/// long, `visit` gets an empty key.
///
/// # Errors
/// The reason why the walk ended early. You can use the entries that were visited before, because
/// they are sound.
#[inline]
pub(crate) fn walk<S: ByteSource + ?Sized>(
    source: &S,
    layout: Layout,
    window: &mut Window,
    mut visit: impl FnMut(Entry<'_>),
) -> Result<(), Flaw> {
    let first = window.guess.clamp(FIRST, WINDOW);
    let mut filled = fill(source, &mut window.bytes[..first], 0)?;
    let bytes = &mut window.bytes;
    let Some(used) = bytes[..filled].first_chunk() else {
        return Err(if filled == 0 { Flaw::Empty } else { Flaw::Header });
    };
    let used = i32::from_le_bytes(*used);
    if used == 0 {
        // Its process only just created the file.
        return Ok(());
    }
    let end = match u64::try_from(used) {
        Ok(end) if end >= HEADER as u64 => end,
        _ => return Err(Flaw::Used(used)),
    };
    // At most WINDOW, so the cast is lossless.
    window.guess = end.min(WINDOW as u64) as usize;
    if window.guess > filled && filled == first {
        filled += fill(source, &mut bytes[filled..window.guess], filled as u64)?;
    }
    // The offset of the window in the file, and the position of the walk in the window.
    let (mut base, mut at) = (0_u64, HEADER);
    let have = within(filled, base, end);
    if layout == Layout::Python && is_timeless(&bytes[..have], have as u64 == end) {
        return Err(Flaw::Old);
    }
    loop {
        let place = base + at as u64;
        if place >= end {
            return Ok(());
        }
        let have = within(filled, base, end);
        let need = match layout.split(bytes.get(at..have).unwrap_or_default()) {
            Split::Entry { key, value, time, size } => {
                at += size;
                // An entry ends with its value and time.
                let end = base + at as u64;
                visit(Entry { key, reading: Reading { value, time }, at: end - 16 });
                continue;
            }
            Split::Long(size) => {
                let next = place + size as u64;
                if next > end {
                    return Err(Flaw::Entry(place));
                }
                visit(Entry {
                    key: &[],
                    reading: Reading { value: 0.0, time: 0.0 },
                    at: next - 16,
                });
                let room = (end - next).min(WINDOW as u64) as usize;
                filled = fill(source, &mut bytes[..room], next)?;
                (base, at) = (next, 0);
                continue;
            }
            Split::Bad => return Err(Flaw::Entry(place)),
            Split::More(need) => need,
        };
        if place + need as u64 > end {
            return Err(Flaw::Entry(place));
        }
        if at == 0 {
            // The window begins here and is large enough for any entry, so the file ends here.
            return Err(Flaw::Cut(place));
        }
        let room = (end - place).min(WINDOW as u64) as usize;
        filled = fill(source, &mut bytes[..room], place)?;
        (base, at) = (place, 0);
    }
}

/// Returns the number of bytes in the window that belong to the used part of the file.
#[inline]
fn within(filled: usize, base: u64, end: u64) -> usize {
    (end - base).min(filled as u64) as usize
}

/// Returns whether these are entries without times: if we read them with times, the first or the
/// second is not an entry, and if we read them without times, all are. `is_whole` is true if
/// `bytes` is the whole used part.
fn is_timeless(bytes: &[u8], is_whole: bool) -> bool {
    let entries = bytes.get(HEADER..).unwrap_or_default();
    let second = match Layout::Python.split(entries) {
        Split::Entry { size, .. } => &entries[size..],
        _ => entries,
    };
    if second.is_empty()
        || matches!(Layout::Python.split(second), Split::Entry { .. } | Split::Long(_))
    {
        return false;
    }
    let mut rest = entries;
    let mut count = 0;
    while let Split::Entry { key, size, .. } = Layout::Timeless.split(rest) {
        if key.last() != Some(&b']') {
            return false;
        }
        rest = &rest[size..];
        count += 1;
    }
    count > 1 || (count == 1 && is_whole && rest.is_empty())
}

/// Reads until the buffer is full or the file ends.
fn fill<S: ByteSource + ?Sized>(source: &S, buffer: &mut [u8], offset: u64) -> Result<usize, Flaw> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Flaw::Unreadable(error)),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(layout: Layout, entries: &[(&str, f64, f64)]) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        for (key, value, time) in entries {
            let padding = 8 - (key.len() + 4) % 8;
            let length = if layout == Layout::Ruby { key.len() + padding } else { key.len() };
            out.extend_from_slice(&i32::try_from(length).unwrap().to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.resize(out.len() + padding, b' ');
            out.extend_from_slice(&value.to_le_bytes());
            if layout != Layout::Timeless {
                out.extend_from_slice(&time.to_le_bytes());
            }
        }
        let used = i32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&used.to_le_bytes());
        out
    }

    type EntryList = Vec<(String, f64, f64)>;

    fn read(bytes: &[u8], layout: Layout) -> (EntryList, Result<(), Flaw>) {
        let mut found = Vec::new();
        let result = walk(bytes, layout, &mut Window::default(), |entry| {
            let Reading { value, time } = entry.reading;
            found.push((String::from_utf8_lossy(entry.key).into_owned(), value, time));
        });
        (found, result)
    }

    fn entries(count: usize) -> Vec<(String, f64, f64)> {
        let key = |i: usize| format!("[\"m\",\"m\",{{}},\"{}\"]", "x".repeat(i % 900));
        (0..count).map(|i| (key(i), i as f64, i as f64 / 2.0)).collect()
    }

    #[test]
    fn every_entry_is_found_across_windows() {
        for layout in [Layout::Python, Layout::Ruby] {
            for count in [0, 1, 2, 3, 100, 3000] {
                let expected: Vec<_> = entries(count);
                let list: Vec<_> = expected.iter().map(|(k, v, t)| (&**k, *v, *t)).collect();
                let (found, result) = read(&file(layout, &list), layout);
                result.unwrap();
                assert_eq!(found.len(), count);
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn a_cut_anywhere_gives_what_comes_before_it() {
        let list = [("[\"a\"]", 1.0, 2.0), ("[\"bb\"]", 3.0, 4.0), ("[\"ccc\"]", 5.0, 6.0)];
        for layout in [Layout::Python, Layout::Ruby] {
            let whole = file(layout, &list);
            for cut in 0..whole.len() {
                let (found, result) = read(&whole[..cut], layout);
                assert!(result.is_err(), "{cut}");
                assert!(found.len() < 3);
                for (found, expected) in found.iter().zip(&list) {
                    assert_eq!((&*found.0, found.1, found.2), *expected);
                }
            }
        }
    }

    #[test]
    fn files_without_times_are_refused_whole() {
        for count in [1, 2, 3, 50] {
            let expected = entries(count);
            let list: Vec<_> = expected.iter().map(|(k, v, t)| (&**k, *v, *t)).collect();
            let (found, result) = read(&file(Layout::Timeless, &list), Layout::Python);
            assert!(matches!(result, Err(Flaw::Old)), "{count}: {result:?}");
            assert!(found.is_empty());
        }
    }

    #[test]
    fn entries_after_a_key_that_is_too_long_are_found() {
        let long = format!("[\"{}\"]", "x".repeat(3 * WINDOW));
        let long_ruby = long.replacen('[', "{", 1);
        for (layout, long) in [(Layout::Python, &*long), (Layout::Ruby, &*long_ruby)] {
            let (a, b) = (("[\"a\"]", 1.0, 2.0), ("[\"b\"]", 3.0, 4.0));
            for list in [vec![a, (long, 5.0, 6.0), b], vec![(long, 5.0, 6.0), a, b]] {
                let whole = file(layout, &list);
                let (found, result) = read(&whole, layout);
                result.unwrap();
                let keys: Vec<_> = found.iter().map(|(key, ..)| key.as_str()).collect();
                let expected: Vec<_> =
                    list.iter().map(|e| if e.0.len() > 9 { "" } else { e.0 }).collect();
                assert_eq!(keys, expected);
                let (found, result) = read(&whole[..WINDOW], layout);
                assert!(matches!(result, Err(Flaw::Cut(_))), "{result:?}");
                assert!(found.len() < 3);
            }
        }
    }

    #[test]
    fn lengths_in_files_are_checked() {
        let mut bytes = file(Layout::Python, &[("[\"a\"]", 1.0, 2.0)]);
        for used in [i32::MIN, -1, 1, 7] {
            bytes[..4].copy_from_slice(&used.to_le_bytes());
            assert!(matches!(read(&bytes, Layout::Python).1, Err(Flaw::Used(_))));
        }
        bytes[..4].copy_from_slice(&i32::MAX.to_le_bytes());
        let (found, result) = read(&bytes, Layout::Python);
        assert_eq!(found.len(), 1);
        assert!(matches!(result, Err(Flaw::Cut(_))));
        bytes[8..12].copy_from_slice(&i32::MAX.to_le_bytes());
        assert!(matches!(read(&bytes, Layout::Python).1, Err(Flaw::Entry(8))));
    }
}
