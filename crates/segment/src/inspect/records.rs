//! Reads the header of a segment file, and the list of its records.

use std::fmt;

use super::source::{CHUNK, Source};
use super::{Damage, Report};
use crate::error::ErrorKind;
use crate::layout::{
    HEADER_BYTES, Kind, LAYOUT_VERSION, LINE_BYTES, RECORD_BYTES, RecordHeader, at, check_at,
    check_header, is_left, record_at, walk,
};
use crate::offset::ByteOffset;

/// The fields of a file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSeen {
    /// The version of the layout.
    pub version: u32,
    /// The limit on the bytes of the file.
    pub limit: u64,
    /// The length of the file according to the header, in bytes.
    pub size: u64,
    /// The bytes in use.
    pub used: u64,
    /// Unix time in nanoseconds of its creation.
    pub created: u64,
    /// The ID that distinguishes the file from all others.
    pub instance: [u8; 16],
    /// Whether the last process that used the file has closed it.
    pub is_clean: bool,
    /// Whether the last process left the file in order, but without a sync.
    pub is_left: bool,
    /// The boot ID of the machine at the last use.
    pub boot: [u8; 16],
    /// The wall clock's Unix time in nanoseconds at the last sync.
    pub synced: u64,
    /// The length of the file at the last sync, in bytes.
    pub synced_bytes: u64,
    /// The number of processes that ever used the file.
    pub tokens: u64,
}

/// A record that is not a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSeen {
    /// The kind of record.
    pub kind: Kind,
    /// The name of the record.
    pub name: String,
    /// The byte offset where it begins.
    pub at: u64,
    /// The length of the record in bytes.
    pub bytes: u64,
}

impl RecordSeen {
    pub(super) fn from_header(found: &RecordHeader) -> Self {
        let RecordHeader { offset, length, kind, name, .. } = found;
        Self { kind: *kind, name: name.clone(), at: *offset, bytes: *length }
    }
}

/// Displays an error.
pub(super) struct ErrorText(pub(super) ErrorKind);

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ErrorKind::Damaged(fault) => f.write_str(fault),
            other => write!(f, "{other}"),
        }
    }
}

/// Reads the header and lists the records, oldest first. Returns `None` if the file uses another
/// layout.
pub(super) fn read(source: &Source, report: &mut Report) -> Option<Vec<RecordHeader>> {
    let mut head = Vec::new();
    source.bytes(0, source.length().min(HEADER_BYTES) / 8, &mut head);
    if let Err(error) = check_header(&head, report.length) {
        let is_other = matches!(error, ErrorKind::NotASegment | ErrorKind::Version { .. });
        let is_truncation = matches!(error, ErrorKind::TooShort { .. });
        let message = ErrorText(error).to_string();
        report.damage.push(Damage { at: 0, message, is_truncation });
        if is_other {
            return None;
        }
    }
    if (head.len() as u64) < HEADER_BYTES {
        return None;
    }
    let word = |at: ByteOffset| source.at(at.words());
    let header = HeaderSeen {
        // The version is the lower half of the word.
        version: word(at::VERSION) as u32,
        limit: word(at::LIMIT),
        size: word(at::SIZE),
        used: word(at::CURSOR),
        created: word(at::CREATED),
        instance: sixteen(&head, at::INSTANCE),
        is_clean: word(at::CLEAN) == 1,
        is_left: is_left(word(at::LEFT), word(at::TOKENS)),
        boot: sixteen(&head, at::BOOT),
        synced: word(at::SEEN_WALL),
        synced_bytes: word(at::SYNCED),
        tokens: word(at::TOKENS),
    };
    report.header = Some(header);
    if header.version != LAYOUT_VERSION {
        return None;
    }
    Some(list(source, report))
}

fn sixteen(head: &[u8], at: ByteOffset) -> [u8; 16] {
    head.get(at.index()..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

/// Lists the records, oldest first. If the list is broken, every line is searched for more records.
fn list(source: &Source, report: &mut Report) -> Vec<RecordHeader> {
    let mut found = Vec::new();
    let mut is_broken = false;
    for record in walk(source) {
        match record {
            Ok(record) => found.push(record),
            Err(error) => {
                is_broken = true;
                let at = found.last().map_or(at::ROOT.get(), |last: &RecordHeader| last.offset);
                let error = ErrorText(error);
                report.add_damage(at, format!("{error}: the list of records ends here"));
            }
        }
    }
    found.reverse();
    if is_broken {
        let searched = search(source, &found);
        if !searched.is_empty() {
            let reason = format!(
                "{} older records were found by their checksums alone, and may have been replaced",
                searched.len()
            );
            report.add_damage(HEADER_BYTES, reason);
        }
        found.splice(0..0, searched);
    }
    let mut extents: Vec<_> = found.iter().map(|one| (one.offset, one.length)).collect();
    extents.sort_unstable();
    for pair in extents.windows(2) {
        if pair[0].0 + pair[0].1 > pair[1].0 {
            report.add_damage(pair[1].0, "a record begins inside of another one");
        }
    }
    if let Some(last) = found.iter().find(|one| one.offset + one.length > source.length()) {
        report.add_damage(last.offset, "a record ends after the end of the file, which was cut");
    }
    found
}

/// Searches all lines for records that are not in the list.
pub(super) fn search(source: &Source, listed: &[RecordHeader]) -> Vec<RecordHeader> {
    let known: std::collections::HashSet<u64> = listed.iter().map(|one| one.offset).collect();
    let mut found = Vec::new();
    let mut offset = HEADER_BYTES;
    // Up to here, every byte belongs to one stored extent.
    let mut next = offset;
    while offset + RECORD_BYTES <= source.length() {
        if offset >= next {
            let stored = source.next_stored(offset);
            // A hole contains no record.
            offset = offset.max(stored / LINE_BYTES * LINE_BYTES);
            next = offset + CHUNK;
            continue;
        }
        let length = source.at((offset + record_at::LENGTH) / 8);
        let kind = source.at((offset + record_at::KIND) / 8);
        let is_plausible = length >= RECORD_BYTES
            && length.is_multiple_of(LINE_BYTES)
            && kind.to_le_bytes()[..4].iter().all(u8::is_ascii_uppercase)
            && !known.contains(&offset);
        let record = is_plausible.then(|| check_at(source, offset).ok()).flatten();
        offset += match &record {
            // Skip its contents, because a record does not contain another one.
            Some(record) => record.length,
            None => LINE_BYTES,
        };
        found.extend(record);
    }
    found
}
