//! The layout of a segment, and the validation of everything that opening will trust.
//!
//! The validation only reads bytes, so a fuzz target can drive it. `docs/formats.md` draws the
//! layout; both must change together.

use crate::error::ErrorKind;
use crate::offset::{self, ByteOffset};

/// The first 8 bytes of a segment.
pub const MAGIC: [u8; 8] = *b"QUIPUSEG";
/// The layout version that this library writes, and the only version that it reads.
pub const LAYOUT_VERSION: u32 = 3;
/// The size of the header in bytes; the first record begins after it.
pub const HEADER_BYTES: u64 = 256;
/// The size of a cache line in bytes. Every record is aligned to a line.
pub const LINE_BYTES: u64 = 64;
/// The number of cells of a cache line.
pub const LINE_CELLS: usize = 8;
/// The maximum length of a record's name, in bytes.
pub const NAME_BYTES: usize = 31;

/// The maximum limit in a header: 1 TiB.
pub(crate) const MAX_LIMIT: u64 = 1 << 40;
/// The size of a record's header in bytes; its cells begin after it, on a cache line.
pub(crate) const RECORD_BYTES: u64 = 64;

/// The fields of the header.
pub(crate) mod at {
    use crate::offset::ByteOffset;

    pub(crate) const MAGIC: ByteOffset = ByteOffset::new(0);
    pub(crate) const VERSION: ByteOffset = ByteOffset::new(8);
    pub(crate) const HEADER_BYTES: ByteOffset = ByteOffset::new(12);
    pub(crate) const LIMIT: ByteOffset = ByteOffset::new(16);
    pub(crate) const CREATED: ByteOffset = ByteOffset::new(24);
    pub(crate) const INSTANCE: ByteOffset = ByteOffset::new(32);
    pub(crate) const CHECKSUM: ByteOffset = ByteOffset::new(48);
    pub(crate) const SIZE: ByteOffset = ByteOffset::new(64);
    pub(crate) const CURSOR: ByteOffset = ByteOffset::new(72);
    pub(crate) const ROOT: ByteOffset = ByteOffset::new(80);
    pub(crate) const CLEAN: ByteOffset = ByteOffset::new(88);
    pub(crate) const BOOT: ByteOffset = ByteOffset::new(128);
    pub(crate) const ANCHOR: ByteOffset = ByteOffset::new(144);
    pub(crate) const SEEN_TIME: ByteOffset = ByteOffset::new(152);
    pub(crate) const SEEN_WALL: ByteOffset = ByteOffset::new(160);
    pub(crate) const REGISTRATION: ByteOffset = ByteOffset::new(168);
    pub(crate) const REGISTRATION_BROKEN: ByteOffset = ByteOffset::new(176);
    pub(crate) const GROWING: ByteOffset = ByteOffset::new(184);
    pub(crate) const GROWING_BROKEN: ByteOffset = ByteOffset::new(192);
    pub(crate) const TOKENS: ByteOffset = ByteOffset::new(200);
    pub(crate) const SYNCED: ByteOffset = ByteOffset::new(208);
    pub(crate) const CLAIMS: ByteOffset = ByteOffset::new(216);
    pub(crate) const FREED: ByteOffset = ByteOffset::new(224);
    pub(crate) const LEFT: ByteOffset = ByteOffset::new(232);
}

/// The fields of a record, in bytes from its start.
pub(crate) mod record_at {
    pub(crate) const LENGTH: u64 = 0;
    pub(crate) const KIND: u64 = 8;
    pub(crate) const NEXT: u64 = 16;
    pub(crate) const NAME_LENGTH: u64 = 24;
    pub(crate) const CHECKSUM: u64 = 56;
}

/// The number of bytes of a record's header that contain the name and its length.
pub(crate) const TEXT_BYTES: usize = (record_at::CHECKSUM - record_at::NAME_LENGTH) as usize;
const _: () = assert!(TEXT_BYTES == NAME_BYTES + 1);

/// Returns the checksum of the immutable part of a record's header: everything but NEXT.
pub(crate) fn record_checksum(length: u64, kind: Kind, text: &[u8; TEXT_BYTES]) -> u64 {
    let mut bytes = [0; 16 + TEXT_BYTES];
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..16].copy_from_slice(&kind.to_bits().to_le_bytes());
    bytes[16..].copy_from_slice(text);
    checksum(&bytes)
}

/// The kind of a record: a tag of four ASCII letters, and the version of its cells.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    tag: [u8; 4],
    version: u32,
}

impl Kind {
    /// Creates a kind. Change `version` when the meaning of the kind's cells changes.
    pub const fn new(tag: [u8; 4], version: u32) -> Self {
        Self { tag, version }
    }

    /// Returns the four letters.
    pub const fn tag(self) -> [u8; 4] {
        self.tag
    }

    /// Returns the version of the kind's cells.
    pub const fn version(self) -> u32 {
        self.version
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(u32::from_le_bytes(self.tag)) | u64::from(self.version) << 32
    }

    fn from_bits(bits: u64) -> Self {
        // The truncation is intended: each cast keeps one half.
        Self { tag: (bits as u32).to_le_bytes(), version: (bits >> 32) as u32 }
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.tag.escape_ascii(), self.version)
    }
}

/// Reads aligned 64-bit words of a segment, in a mapping or in bytes.
pub(crate) trait Words {
    /// Returns the word at byte `offset`, a multiple of 8 inside the segment.
    fn word(&self, offset: ByteOffset) -> u64;

    /// Returns whether the first `end` bytes exist.
    fn has(&self, end: u64) -> bool;
}

impl Words for [u8] {
    fn word(&self, offset: ByteOffset) -> u64 {
        let at = offset.index();
        let bytes = self[at..at + 8].try_into().expect("a slice of 8 bytes is an array of 8");
        u64::from_le_bytes(bytes)
    }

    fn has(&self, end: u64) -> bool {
        end <= self.len() as u64
    }
}

/// The fields of a validated file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The bytes that the file should contain. After a power loss, it can be shorter.
    pub(crate) size: u64,
    /// The limit in bytes for the growth of the file.
    pub(crate) limit: u64,
    /// Whether the last process that used the file closed it.
    pub(crate) clean: bool,
    /// Whether the last process that used the file left it in order, without a sync.
    pub(crate) left: bool,
    /// The boot of the machine that the anchor belongs to.
    pub(crate) boot: [u8; 16],
}

impl Header {
    /// Returns whether power may have been lost since the file was last in use. `boot` is the
    /// current boot of the machine.
    pub(crate) fn is_torn(&self, boot: [u8; 16]) -> bool {
        !self.clean && (boot == [0; 16] || boot != self.boot)
    }
}

/// The offset of a record, and the fields of its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) next: u64,
}

impl RecordHeader {
    /// Returns the byte offset of its first cell.
    pub(crate) fn cells(&self) -> ByteOffset {
        ByteOffset::new(self.offset + RECORD_BYTES)
    }

    /// Returns the number of its cells.
    pub(crate) fn cell_count(&self) -> usize {
        offset::words(self.length - RECORD_BYTES) as usize
    }
}

/// Validates the fixed part of the header: the first [`HEADER_BYTES`] of a file of `length` bytes.
pub(crate) fn check_header(head: &[u8], length: u64) -> Result<Header, ErrorKind> {
    let magic = &head[..head.len().min(MAGIC.len())];
    // A file that was truncated inside its magic, or is empty, still counts as a truncated segment.
    if !MAGIC.starts_with(magic) {
        return Err(ErrorKind::NotASegment);
    }
    if (head.len() as u64) < HEADER_BYTES || length < HEADER_BYTES {
        return Err(ErrorKind::TooShort { length, expected: HEADER_BYTES });
    }
    let first = head.word(at::VERSION);
    let (version, header_bytes) = (first as u32, (first >> 32) as u32);
    // Version 0 was never written: it means a zeroed header, not an older layout.
    if version != 0 && version != LAYOUT_VERSION {
        return Err(ErrorKind::Version { found: version });
    }
    if head.word(at::CHECKSUM) != checksum(&head[..at::CHECKSUM.index()]) {
        return Err(ErrorKind::Damaged("the checksum of its header does not match".into()));
    }
    if version == 0 || u64::from(header_bytes) != HEADER_BYTES {
        return Err(ErrorKind::Damaged(format!(
            "its header states version {version} and {header_bytes} bytes"
        )));
    }
    let limit = head.word(at::LIMIT);
    let size = head.word(at::SIZE);
    let cursor = head.word(at::CURSOR);
    let clean = head.word(at::CLEAN);
    if limit > MAX_LIMIT {
        return Err(ErrorKind::Damaged(format!("its limit of {limit} bytes is over {MAX_LIMIT}")));
    }
    if size < HEADER_BYTES || size > limit || !size.is_multiple_of(LINE_BYTES) {
        return Err(ErrorKind::Damaged(format!("its size of {size} bytes is out of bounds")));
    }
    // A power loss can undo everything that no sync wrote to the disk, including the length.
    let least = if clean == 0 { size.min(head.word(at::SYNCED)) } else { size };
    if length < least {
        return Err(ErrorKind::TooShort { length, expected: size });
    }
    if length > limit {
        return Err(ErrorKind::TooLong { length, expected: size });
    }
    if cursor < HEADER_BYTES || cursor > size || !cursor.is_multiple_of(LINE_BYTES) {
        return Err(ErrorKind::Damaged(format!(
            "its allocation cursor {cursor} points outside of its {size} bytes"
        )));
    }
    if clean > 1 {
        return Err(ErrorKind::Damaged(format!("its clean mark is {clean}, neither 0 nor 1")));
    }
    let boot = head[at::BOOT.index()..][..16].try_into().expect("a slice of 16 bytes");
    let left = is_left(head.word(at::LEFT), head.word(at::TOKENS));
    Ok(Header { size, limit, clean: clean == 1, left, boot })
}

/// Returns the value of LEFT that the last process stores when it leaves the file in order. A
/// process of an older version does not clear it, but draws a token before it counts, so the value
/// does not match any more.
pub(crate) fn left_mark(tokens: u64) -> u64 {
    tokens.wrapping_add(1)
}

/// Returns whether LEFT shows that the last process left the file in order.
pub(crate) fn is_left(left: u64, tokens: u64) -> bool {
    left != 0 && left == left_mark(tokens)
}

/// Walks the list of records from the root, newest first, and validates each.
///
/// A circular list ends soon after a record is met again (Brent 1980, "An improved Monte Carlo
/// factorization algorithm", section 2). If another process changes the list in the meantime, the
/// walk ends after at most the number of records that fit before the cursor.
pub(crate) fn walk<W: Words + ?Sized>(
    words: &W,
) -> impl Iterator<Item = Result<RecordHeader, ErrorKind>> {
    // Load the root first: others can publish records in the meantime, and the root's record ends
    // before a later cursor.
    let mut next = words.word(at::ROOT);
    let cursor = words.word(at::CURSOR);
    let is_inside = cursor >= HEADER_BYTES && words.has(cursor);
    let mut left = cursor.saturating_sub(HEADER_BYTES) / RECORD_BYTES;
    // A record met earlier, the steps since then, and the number of steps until the next one
    // replaces it.
    let (mut met, mut steps, mut power) = (0, 0_u64, 1_u64);
    std::iter::from_fn(move || {
        if next == 0 {
            return None;
        }
        let offset = std::mem::take(&mut next);
        if !is_inside {
            let reason = format!("its allocation cursor {cursor} points outside of its bytes");
            return Some(Err(ErrorKind::Damaged(reason)));
        }
        if left == 0 || offset == met {
            return Some(Err(ErrorKind::Damaged("its list of records is circular".into())));
        }
        left -= 1;
        steps += 1;
        if steps == power {
            (met, steps, power) = (offset, 0, power.saturating_mul(2));
        }
        let found = check_record(words, offset, cursor);
        if let Ok(found) = &found {
            next = found.next;
        }
        Some(found)
    })
}

/// Returns the record at an offset that a walk returned. The record is validated again.
pub(crate) fn check_at(
    words: &(impl Words + ?Sized),
    offset: u64,
) -> Result<RecordHeader, ErrorKind> {
    check_record(words, offset, words.word(at::CURSOR))
}

/// Validates every record: it lies inside, names itself, and does not overlap another.
pub(crate) fn check_records(words: &(impl Words + ?Sized)) -> Result<Vec<RecordHeader>, ErrorKind> {
    let mut records = walk(words).collect::<Result<Vec<_>, _>>()?;
    records.sort_by_key(|record| record.offset);
    for pair in records.windows(2) {
        if pair[0].offset + pair[0].length > pair[1].offset {
            return Err(ErrorKind::Damaged(format!(
                "its records {:?} at {} and {:?} at {} overlap",
                pair[0].name, pair[0].offset, pair[1].name, pair[1].offset
            )));
        }
    }
    Ok(records)
}

fn check_record(
    words: &(impl Words + ?Sized),
    offset: u64,
    cursor: u64,
) -> Result<RecordHeader, ErrorKind> {
    let outside = |message: &str, value: u64| {
        ErrorKind::Damaged(format!(
            "its record at {offset} has {message} {value}, outside of the {cursor} bytes in use"
        ))
    };
    if offset < HEADER_BYTES
        || !offset.is_multiple_of(LINE_BYTES)
        || offset > cursor.saturating_sub(RECORD_BYTES)
    {
        return Err(ErrorKind::Damaged(format!(
            "an offset {offset} to a record points outside of the {cursor} bytes in use"
        )));
    }
    let field = |at: u64| words.word(ByteOffset::new(offset + at));
    let length = field(record_at::LENGTH);
    if length < RECORD_BYTES || !length.is_multiple_of(LINE_BYTES) || length > cursor - offset {
        return Err(outside("length", length));
    }
    let kind = Kind::from_bits(field(record_at::KIND));
    if !kind.tag.iter().all(u8::is_ascii_graphic) {
        return Err(ErrorKind::Damaged(format!("its record at {offset} has no kind ({kind:?})")));
    }
    let next = field(record_at::NEXT);
    let mut text = [0; TEXT_BYTES];
    for (i, chunk) in text.chunks_exact_mut(8).enumerate() {
        let word = field(record_at::NAME_LENGTH + offset::bytes(i as u64));
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    // A flipped bit in a kind or a name would make the record another one, which no reader looks
    // for.
    if field(record_at::CHECKSUM) != record_checksum(length, kind, &text) {
        let reason = format!("the checksum of its record at {offset} does not match");
        return Err(ErrorKind::Damaged(reason));
    }
    let name_length = usize::from(text[0]);
    let name =
        text.get(1..=name_length).and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(
            || ErrorKind::Damaged(format!("its record at {offset} has no readable name")),
        )?;
    Ok(RecordHeader { offset, length, kind, name: name.to_owned(), next })
}

/// Returns a checksum that protects the few bytes of headers that are written once.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crate::hash::fnv1a(bytes)
}
