//! `quipu snapshot` and `quipu restore`: copy the whole state of a daemon to a stream, and create a
//! state file from such a stream.
//!
//! A snapshot is a copy of the state file, regardless of whether the daemon is running, stopped or
//! killed. The stream is in quipu's own format, whose blocks contain checksums, and consists of
//! these messages:
//!
//! | message | id | value |
//! |---|---|---|
//! | counter | `quipu-snapshot` | the version, 2 |
//! | counter | `bytes` | the length of the file |
//! | counter | `end` | the sum of the FNV-1a hashes of offsets and words, as a signed word |
//! | batch timer | `words` | an offset in words, and the words from there |
//!
//! Offsets and words are 64 bits long, and are stored as the doubles with these bits. Blocks of
//! zero words are omitted. A stream preserves the order of messages only within a kind, so `end`
//! can precede the last words.
//!
//! Like after a power loss, the pages in a copy of a file in use are from different times. We
//! therefore mark the copy as the copy of another boot, because the daemon that opens it then
//! repairs torn words. Before the copy is written to the stream, we open it once, and copy again if
//! it is damaged.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::iter;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{BinaryBytes, ProgressBar};
use quipu_arena::Arena;
use quipu_segment::hash::fnv1a;
use quipu_segment::inspect::open_regular;
use quipu_segment::{ErrorKind, MAGIC, Options, Segment, printable};
use quipu_wire::{Decoder, Framing, Kind, Message, Quipu, StreamWriter};

use crate::look::foreign;
use crate::output::{Error, announce_input, print, refuse_terminal, report};
use crate::wire::progress_line;
use quipu_process::temporary::{Temporary, sync_directory};

/// Arguments of `quipu snapshot`.
#[derive(Args, Clone, Debug)]
pub struct Snapshot {
    /// The state file; the daemon may be using it
    #[arg(long, env = "QUIPU_STATE", value_name = "FILE", default_value = "state.quipu")]
    pub state: PathBuf,

    /// Where to write the snapshot; `-` is standard output. A file that is there is replaced if it
    /// is a snapshot, or empty
    #[arg(value_name = "OUT", default_value = "-")]
    pub out: PathBuf,
}

/// Arguments of `quipu restore`.
#[derive(Args, Clone, Debug)]
pub struct Restore {
    /// The state file to create; it must not exist
    #[arg(long, env = "QUIPU_STATE", value_name = "FILE", default_value = "state.quipu")]
    pub state: PathBuf,

    /// The snapshot; `-` is standard input
    #[arg(value_name = "IN", default_value = "-")]
    pub input: PathBuf,
}

/// The number of words in a block. A block of zeros is omitted.
const BLOCK: usize = 4096;
/// The size of a word in bytes.
const WORD: usize = 8;
/// The size of a segment's header in bytes. `docs/formats.md` draws its fields.
const HEADER: usize = 256;
/// The offset of SIZE in the header, the size of the file.
const SIZE: usize = 64;
/// The offset of CURSOR in the header, the end of the bytes in use.
const CURSOR: usize = 72;
/// The offset of CLEAN in the header, which is 1 if the file was closed cleanly.
const CLEAN: usize = 88;
/// The range of BOOT in the header, the boot id of the machine.
const BOOT: std::ops::Range<usize> = 128..144;
/// The maximum size of a segment in bytes.
const MAX_BYTES: u64 = 1 << 40;
/// A file is sparse if its holes contain at least this number of bytes.
const MANY_BYTES: u64 = 64 << 20;
/// The number of attempts to copy a file in use until the copy is consistent.
const TRIES: usize = 5;
/// The version of the stream.
const VERSION: i64 = 2;
/// The first bytes of a snapshot, which contain its name.
const HEAD: usize = 64;
/// The id of the message with the version, which also names the format.
const NAME: &[u8] = b"quipu-snapshot";
/// The id of the message with the size of the file.
const BYTES: &[u8] = b"bytes";
/// The id of the messages with words.
const WORDS: &[u8] = b"words";
/// The id of the message with the checksum.
const END: &[u8] = b"end";

/// Writes a snapshot.
///
/// # Errors
/// Returns an [`Error`] that names the file and the remedy.
pub fn snapshot(arguments: &Snapshot) -> Result<(), Error> {
    // We check this before the work, and again before the rename.
    let out = target(&arguments.out)?;
    if arguments.out.as_os_str() == "-" {
        refuse_terminal("a snapshot is not text")?;
    }
    let file = copy_whole(&arguments.state)?;
    let progress = progress_line();
    if arguments.out.as_os_str() == "-" {
        let written = print(|out| write(&file, ProgressStream::new(out, &progress)));
        progress.finish_and_clear();
        let written = written?;
        // A truncated stream is not a snapshot.
        let gone = || failed("standard output", &"its reader has gone: the snapshot is cut off");
        return written.ok_or_else(gone);
    }
    let name = printable(&arguments.out).to_string();
    // We replace an existing snapshot only after the new one is complete.
    let (unfinished, new) = Temporary::next_to(&out).map_err(|error| failed(&name, &error))?;
    let written = write(&file, ProgressStream::new(&new, &progress)).and_then(|()| new.sync_all());
    progress.finish_and_clear();
    written.map_err(|error| failed(&name, &error))?;
    target(&arguments.out)?;
    let renamed = fs::rename(unfinished.path(), &out).and_then(|()| sync_directory(&out));
    renamed.map_err(|error| failed(&name, &error))?;
    let length = new.metadata().map_or(0, |data| data.len());
    report(&format_args!("wrote {}: {}", arguments.out.display(), BinaryBytes(length)));
    Ok(())
}

/// Returns the path of the file to write, after following a symbolic link. An existing file must be
/// a snapshot, because a user could name a state file by mistake.
fn target(out: &Path) -> Result<PathBuf, Error> {
    let name = printable(out).to_string();
    let found = match fs::symlink_metadata(out) {
        _ if out.as_os_str() == "-" => return Ok(out.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(out.to_owned()),
        metadata => metadata.and_then(|_| fs::canonicalize(out)),
    };
    let path = found.map_err(|error| failed(&name, &error))?;
    let metadata = fs::metadata(&path).map_err(|error| failed(&name, &error))?;
    if !metadata.is_file() {
        return Err(Error::new(format_args!(
            "{name}: it is not a regular file; name a file, or - for standard output"
        )));
    }
    let mut head = [0; HEAD];
    // Do not replace an unreadable file, because it may be important.
    let read = File::open(&path).and_then(|file| read_up_to(&file, &mut head, 0));
    let read = read.map_err(|error| failed(&name, &error))?;
    if read == 0 || is_snapshot(&head[..read]) {
        return Ok(path);
    }
    let message = match head.starts_with(&quipu_segment::MAGIC) {
        true => {
            "it is a state file, or another segment: give it by --state FILE, and the snapshot \
                 another name"
        }
        false => "the file exists, and is not a snapshot: move it away, or name another one",
    };
    Err(Error::new(format_args!("{name}: {message}")))
}

/// Returns whether a file begins like a snapshot.
pub(crate) fn is_snapshot(head: &[u8]) -> bool {
    head[..head.len().min(HEAD)].windows(NAME.len()).any(|bytes| bytes == NAME)
}

/// Creates a state file from a snapshot.
///
/// # Errors
/// Returns an [`Error`] that names the file and the remedy.
pub fn restore(arguments: &Restore) -> Result<(), Error> {
    let state = &arguments.state;
    let exists = || {
        Error::new(format_args!(
            "{}: the file exists; move it away, or name another one with --state",
            printable(state)
        ))
    };
    if state.exists() {
        return Err(exists());
    }
    let state_name = printable(state).to_string();
    let created = Temporary::next_to(state);
    let (unfinished, target) = created.map_err(|error| failed(&state_name, &error))?;
    let is_standard = arguments.input.as_os_str() == "-";
    let name = match is_standard {
        true => "standard input".to_owned(),
        false => printable(&arguments.input).to_string(),
    };
    let progress = progress_line();
    let result = if is_standard {
        announce_input();
        read(ProgressStream::new(io::stdin().lock(), &progress), &target)
    } else {
        let input = File::open(&arguments.input).map_err(|error| failed(&name, &error))?;
        read(ProgressStream::new(input, &progress), &target)
    };
    progress.finish_and_clear();
    result.map_err(|message| failed(&name, &message))?;
    let opened = Options::new().unmarked().open(unfinished.path());
    let unusable = |error: quipu_segment::Error| {
        failed(&name, &format_args!("its state cannot be used: {}", fault(&error)))
    };
    drop(opened.map_err(unusable)?);
    target.sync_all().map_err(|error| failed(&state_name, &error))?;
    // We link instead of renaming, because linking fails if the file exists by now.
    let linked = fs::hard_link(unfinished.path(), state).and_then(|()| sync_directory(state));
    linked.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(),
        _ => failed(&state_name, &error),
    })?;
    let length = target.metadata().map_or(0, |data| data.len());
    report(&format_args!("created {}: {}", state.display(), BinaryBytes(length)));
    Ok(())
}

/// A reader or writer that shows the number of bytes on a progress line.
struct ProgressStream<'p, S> {
    stream: S,
    bytes: u64,
    progress: &'p ProgressBar,
}

impl<'p, S> ProgressStream<'p, S> {
    fn new(stream: S, progress: &'p ProgressBar) -> Self {
        Self { stream, bytes: 0, progress }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if !self.progress.is_hidden() {
            self.progress.set_message(BinaryBytes(self.bytes).to_string());
        }
    }
}

impl<S: Read> Read for ProgressStream<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.add(read);
        Ok(read)
    }
}

impl<S: Write> Write for ProgressStream<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.add(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn failed(name: &str, message: &dyn fmt::Display) -> Error {
    Error::new(format_args!("{name}: {message}"))
}

/// Copies a segment, and opens the copy to check that it is consistent. Repeats the copy if the
/// file changed in the meantime. The copy has no name at the end.
fn copy_whole(from: &Path) -> Result<File, Error> {
    let name = printable(from).to_string();
    let source = open_regular(from).map_err(|error| {
        failed(&name, &format_args!("{error}; name the daemon's state file with --state"))
    })?;
    let mut magic = Vec::new();
    let result = (&source).take(MAGIC.len() as u64).read_to_end(&mut magic);
    result.map_err(|error| failed(&name, &error))?;
    if magic != MAGIC {
        let message = foreign::describe(from).unwrap_or_else(|| "it is not a segment".into());
        return Err(failed(&name, &format_args!("{message}; name the daemon's state file")));
    }
    let mut last = None;
    for _ in 0..TRIES {
        let created = Temporary::next_to(from);
        let (copied, target) = created.map_err(|error| {
            failed(&name, &format_args!("a copy cannot be made in its directory: {error}"))
        })?;
        copy(&source, &target).map_err(|error| failed(&name, &error))?;
        let is_sparse = is_sparse(&source).map_err(|error| failed(&name, &error))?;
        // We check another copy of a sparse file, because opening a file allocates its holes on the
        // disk.
        let checked = if is_sparse {
            Segment::copy_of(copied.path(), &target, u64::MAX)
        } else {
            Options::new().unmarked().open(copied.path())
        };
        match checked {
            Ok(_) => return Ok(target),
            Err(error) => last = Some(error),
        }
    }
    let fault = last.map(|error| fault(&error)).unwrap_or_default();
    Err(Error::new(format_args!("{name}: a copy of it cannot be used: {fault}")))
}

/// Describes an error in a file with a temporary name, without this name.
fn fault(error: &quipu_segment::Error) -> String {
    match error.kind() {
        // We suggest no other remedy, because the file is deleted and cannot be moved or restored.
        ErrorKind::Damaged(message) => format!("it is damaged: {message}"),
        kind => kind.to_string(),
    }
}

/// Returns whether a file contains large holes. A state file contains none, because opening it
/// allocates all bytes.
fn is_sparse(file: &File) -> io::Result<bool> {
    let data = file.metadata()?;
    Ok(data.blocks().saturating_mul(512).saturating_add(MANY_BYTES) < data.len())
}

/// Copies a segment from its beginning to its end. Records are only appended to a segment, so
/// everything that the copied part refers to either follows it, or was copied before the reference
/// was written.
fn copy(source: &File, target: &File) -> io::Result<()> {
    let mut header = [0; HEADER];
    source.read_exact_at(&mut header, 0)?;
    let length = each_block(source, |block, at| target.write_all_at(block, at))?;
    target.set_len(length)?;
    // We use the size at the end of the copy, but the list of records at its beginning.
    let mut later = [0; HEADER];
    source.read_exact_at(&mut later, 0)?;
    for word in [SIZE, CURSOR] {
        header[word..word + WORD].copy_from_slice(&later[word..word + WORD]);
    }
    let size = u64::from_le_bytes(header[SIZE..][..WORD].try_into().unwrap_or_default());
    header[SIZE..][..WORD].copy_from_slice(&size.min(length).to_le_bytes());
    // If the file was in use at either time, its pages can be from different times.
    let is_clean = |header: &[u8; HEADER]| header[CLEAN] == 1;
    if !is_clean(&header) || !is_clean(&later) || header[BOOT] != later[BOOT] {
        header[CLEAN..][..WORD].fill(0);
        header[BOOT].fill(0);
    }
    target.write_all_at(&header, 0)
}

/// Calls `take` with each block that contains a non-zero byte, and with its offset. Does not read
/// the holes of a sparse file. Returns the size of the file.
fn each_block(file: &File, mut take: impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<u64> {
    let mut block = vec![0; BLOCK * WORD];
    let bytes = block.len() as u64;
    let mut at = 0;
    loop {
        // We read the length before the search, because bytes added later are not part of the copy.
        let length = file.metadata()?.len();
        let Some(data) = next_data(file, at)? else { return Ok(length.max(at)) };
        // We align the offset, because the blocks must be the same as in a file without holes.
        at = at.max(data / bytes * bytes);
        let read = read_up_to(file, &mut block, at)?;
        if read == 0 {
            return Ok(at);
        }
        if block[..read].iter().any(|byte| *byte != 0) {
            take(&block[..read], at)?;
        }
        at += read as u64;
    }
}

/// Returns the offset of the first byte from `at` on that is not in a hole; `None` if there is
/// none.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => return Ok(Some(data)),
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // The file system does not support holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    Ok((at < file.metadata()?.len()).then_some(at))
}

/// Fills the buffer from offset `at` on, up to the end of the file.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes the file as a stream.
fn write(file: &File, mut out: impl Write) -> io::Result<()> {
    let mut stream = StreamWriter::default();
    let series = |stream: &mut StreamWriter, kind, id| stream.series(kind, id);
    let invalid = |error: quipu_wire::Error| io::Error::other(error.to_string());
    let mut bytes = Vec::new();
    let name = series(&mut stream, Kind::Counter, NAME).map_err(invalid)?;
    let length = series(&mut stream, Kind::Counter, BYTES).map_err(invalid)?;
    let words = series(&mut stream, Kind::BatchTimer, WORDS).map_err(invalid)?;
    let end = series(&mut stream, Kind::Counter, END).map_err(invalid)?;
    stream.counter(name, VERSION, &mut bytes).map_err(invalid)?;
    let size = file.metadata()?.len();
    stream.counter(length, size.cast_signed(), &mut bytes).map_err(invalid)?;
    let mut sum = 0;
    each_block(file, |block, at| {
        // This is exact, because a segment's length is a multiple of 64.
        let (chunks, _) = block.as_chunks::<WORD>();
        let first = at / WORD as u64;
        let values = chunks.iter().map(|word| f64::from_le_bytes(*word));
        let values: Vec<f64> = iter::once(f64::from_bits(first)).chain(values).collect();
        sum = add(sum, first, &block[..chunks.len() * WORD]);
        stream.batch_timer(words, &values, &mut bytes).map_err(invalid)?;
        out.write_all(&bytes)?;
        bytes.clear();
        Ok(())
    })?;
    stream.counter(end, sum.cast_signed(), &mut bytes).map_err(invalid)?;
    stream.flush(&mut bytes);
    out.write_all(&bytes)?;
    out.flush()
}

/// Updates the checksum over all blocks with the hash of a block.
fn add(sum: u64, at: u64, block: &[u8]) -> u64 {
    sum.rotate_left(1) ^ fnv1a(block) ^ fnv1a(&at.to_le_bytes())
}

/// The state of reading a snapshot.
#[derive(Default)]
struct SnapshotReader {
    is_named: bool,
    bytes: Option<u64>,
    sum: u64,
    end: Option<i64>,
}

/// Reads a stream, and writes the words into a file.
fn read(mut input: impl Read, target: &File) -> Result<(), String> {
    let mut decoder = Decoder::<Quipu>::new(Kind::MetricUnion, Framing::Own);
    let (mut arena, mut buffer) = (Arena::new(), vec![0; 64 << 10]);
    let mut reader = SnapshotReader::default();
    loop {
        let read = match input.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.to_string()),
        };
        if read == 0 {
            break;
        }
        decoder.push(&buffer[..read]);
        let mut fault = None;
        let messages = decoder.for_each(&mut arena, |message| {
            if fault.is_none() {
                fault = reader.take(&message, target).err();
            }
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        messages.map_err(|error| format!("{error}; it is not a snapshot, or damaged"))?;
    }
    decoder.finish().map_err(|error| format!("{error}; it is damaged or not complete"))?;
    match (reader.end, reader.is_named) {
        (Some(end), true) if end == reader.sum.cast_signed() => Ok(()),
        (Some(_), true) => Err("its check does not fit: it is damaged".into()),
        (None, true) => Err("it is not complete: its end is missing".into()),
        (_, false) => Err("it is not a snapshot: name a file that quipu snapshot wrote".into()),
    }
}

impl SnapshotReader {
    /// Checks a message, and writes its words into the file.
    fn take(&mut self, message: &Message<'_>, target: &File) -> Result<(), String> {
        let strange = || Err("it has messages that no snapshot has".to_owned());
        let message = match message {
            Message::MetricUnion(union) => union.to_metric(),
            other => Some(*other),
        };
        let Some(message) = message else { return strange() };
        match (message, message.id()) {
            (Message::Counter(counter), NAME) if counter.value == VERSION => self.is_named = true,
            (Message::Counter(counter), NAME) => {
                let version = counter.value;
                return Err(format!(
                    "it is a snapshot of version {version}, and this program reads version \
                     {VERSION}; use the version of quipu that wrote it"
                ));
            }
            _ if !self.is_named => {
                return Err("it is not a snapshot: name a file that quipu snapshot wrote".into());
            }
            (Message::Counter(counter), BYTES) => {
                let bytes = counter.value.cast_unsigned();
                if bytes > MAX_BYTES {
                    return Err(format!("it states {bytes} bytes; no state is that large"));
                }
                target.set_len(bytes).map_err(|error| error.to_string())?;
                self.bytes = Some(bytes);
            }
            (Message::BatchTimer(timer), WORDS) => {
                let (Some(bytes), Some((at, words))) = (self.bytes, timer.values.split_first())
                else {
                    return strange();
                };
                let at = at.to_bits();
                let block: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let offset = at.checked_mul(WORD as u64);
                let end = offset.and_then(|offset| offset.checked_add(block.len() as u64));
                let (Some(offset), Some(true)) = (offset, end.map(|end| end <= bytes)) else {
                    return Err("it has words beyond its end: it is damaged".into());
                };
                self.sum = add(self.sum, at, &block);
                target.write_all_at(&block, offset).map_err(|error| error.to_string())?;
            }
            (Message::Counter(counter), END) => self.end = Some(counter.value),
            _ => return strange(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holes_of_a_sparse_file_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            options.open(home.path().join(name)).unwrap()
        };
        let [source, copied, restored] = ["source", "copied", "restored"].map(file);
        // Reading a terabyte of zeros would take minutes.
        let length = MAX_BYTES;
        source.set_len(length).unwrap();
        let mut header = [7; HEADER];
        header[SIZE..][..WORD].copy_from_slice(&length.to_le_bytes());
        source.write_all_at(&header, 0).unwrap();
        let words = [(1_u64 << 30) + 40, 1 << 39, length - 8];
        for at in words {
            source.write_all_at(&at.to_le_bytes(), at).unwrap();
        }
        copy(&source, &copied).unwrap();
        let mut stream = Vec::new();
        write(&copied, &mut stream).unwrap();
        assert!(stream.len() < 1 << 20, "{} bytes", stream.len());
        read(&stream[..], &restored).unwrap();
        for file in [&copied, &restored] {
            assert_eq!(file.metadata().unwrap().len(), length);
            for at in words {
                let mut word = [0; WORD];
                file.read_exact_at(&mut word, at).unwrap();
                assert_eq!(u64::from_le_bytes(word), at);
            }
        }
        assert!(is_sparse(&source).unwrap() && is_sparse(&copied).unwrap());
        // A file that ends in a hole keeps its length, and a file without holes is read as a whole.
        let [short, whole] = ["short", "whole"].map(file);
        short.write_all_at(&[1; 100], 0).unwrap();
        short.set_len(1 << 20).unwrap();
        whole.write_all_at(&[1; 100_000], 0).unwrap();
        let blocks = |file: &File| {
            let mut blocks = Vec::new();
            let length = each_block(file, |block, at| {
                blocks.push((at, block.len()));
                Ok(())
            });
            (blocks, length.unwrap())
        };
        let block = BLOCK * WORD;
        assert_eq!(blocks(&short), (vec![(0, block)], 1 << 20));
        let last = 100_000 - 3 * block;
        assert!(!is_sparse(&whole).unwrap());
        let all = [(0, block), (32_768, block), (65_536, block), (98_304, last)];
        assert_eq!(blocks(&whole), (all.into(), 100_000));
    }
}
