//! The files of a queue as bytes: a header, then records. A record is a request with its CRC-32.
//! `docs/formats.md` draws both.
//!
//! What a file has ends with its last whole record. The bytes after it were being written when the
//! machine lost its power or the disk was full. Bytes before it that are damaged are skipped.

use quipu_wire::remote::WriteVersion;

use crate::remote_write::coding::Coding;

/// A request that waits, or that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Whether it was taken or refused.
    pub(super) is_done: bool,
    /// The time of its samples, in milliseconds since 1970.
    pub(super) timestamp_ms: i64,
    pub(super) samples: u32,
    pub(super) version: WriteVersion,
    pub(super) coding: Coding,
    /// The shard that it is of, and the last of all shards. Both are 0 if there was one.
    pub(super) shard: u8,
    pub(super) last_shard: u8,
    /// As it is sent: compressed with this coding.
    pub(super) body: &'a [u8],
}

/// What the beginning of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records follow.
    Queue,
    /// It is shorter than the header, and has its beginning.
    Torn,
    /// It is of something else, or has another version of the layout.
    Foreign,
}

/// The records of a file, in order, each with where it begins. Ends at the first that is not whole;
/// [`Records::skip_damaged`] goes on after it.
#[derive(Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many bytes may still be read for checksums in a search.
    search: usize,
}

/// What was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) bytes: usize,
    /// The samples that wait in it, as far as that is known.
    pub(super) samples: u32,
}

/// The bytes of a file's header.
pub(super) const HEADER: [u8; 16] = *b"QUIPURWQ\x03\0\0\0\0\0\0\0";
/// That of version 2, whose records have a zero for the coding.
const HEADER_2: [u8; 16] = *b"QUIPURWQ\x02\0\0\0\0\0\0\0";
/// That of version 1, whose records have zeros for the shards, too.
pub(super) const HEADER_1: [u8; 16] = *b"QUIPURWQ\x01\0\0\0\0\0\0\0";
/// The bytes of a record before the body.
pub(super) const PREFIX: usize = 28;
/// The most bytes of a body.
pub(super) const MOST_BODY: usize = 64 << 20;
/// The most bytes that are read for checksums in the searches in a file: what was made up for it
/// may look like a record everywhere.
const MOST_SEARCHED: usize = 256 << 20;
/// What marks a record as done, at its beginning.
pub(super) const DONE: [u8; 4] = [1, 0, 0, 0];

/// Judges the beginning of a file.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    let mut headers = [HEADER, HEADER_2, HEADER_1].into_iter();
    match bytes.get(..HEADER.len()) {
        Some(header) if headers.any(|known| header == known) => Kind::Queue,
        None if headers.any(|known| known.starts_with(bytes)) => Kind::Torn,
        _ => Kind::Foreign,
    }
}

impl Record<'_> {
    /// Appends the bytes of the record. Returns false, and appends nothing, if the body is too long
    /// or empty.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> bool {
        let length = match u32::try_from(self.body.len()) {
            Ok(length) if (1..=MOST_BODY).contains(&self.body.len()) => length,
            _ => return false,
        };
        let version = match self.version {
            WriteVersion::One => 1,
            WriteVersion::Two => 2,
        };
        let coding = match self.coding {
            Coding::Snappy => 0,
            Coding::Zstd => 1,
        };
        let start = out.len();
        out.extend(if self.is_done { DONE } else { [0; 4] });
        out.extend([0; 4]);
        out.extend(length.to_le_bytes());
        out.extend(self.samples.to_le_bytes());
        out.extend(self.timestamp_ms.to_le_bytes());
        out.extend([version, coding, self.shard, self.last_shard]);
        out.extend(self.body);
        let crc = crc32fast::hash(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        true
    }
}

impl<'a> Records<'a> {
    /// The records from a place on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, search: MOST_SEARCHED }
    }

    /// Goes to the first whole record after one that is not; `None` if there is none.
    pub(super) fn skip_damaged(&mut self) -> Option<Skipped> {
        let begun = self.at;
        let (mut samples, mut next) = (0, None);
        let prefix = self.bytes.get(begun..)?.first_chunk::<PREFIX>()?;
        // The length may be right.
        if let Some(length) = length(prefix) {
            let end = begun + PREFIX + length;
            if self.is_whole(end) {
                let is_done = word(prefix, 0) != 0;
                samples = if is_done { 0 } else { word(prefix, 12) };
                next = Some(end);
            }
        }
        if next.is_none() {
            let last = self.bytes.len().saturating_sub(PREFIX);
            next = (begun + 1..last).find(|at| self.is_whole(*at));
        }
        self.at = next?;
        Some(Skipped { bytes: self.at - begun, samples })
    }

    /// Whether there is a whole record at a place.
    fn is_whole(&mut self, at: usize) -> bool {
        let Some(bytes) = self.bytes.get(at..) else { return false };
        let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return false };
        let is_likely = word(prefix, 0) <= 1 && form(prefix).is_some();
        let length = length(prefix).filter(|length| is_likely && PREFIX + length <= bytes.len());
        let Some(length) = length else { return false };
        let Some(left) = self.search.checked_sub(PREFIX + length) else { return false };
        self.search = left;
        read(bytes).is_some()
    }

    /// Where the last record that was returned ends.
    pub(super) fn end(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let record = read(self.bytes.get(self.at..)?)?;
        let at = self.at;
        self.at += PREFIX + record.body.len();
        Some((at, record))
    }
}

/// The record at the beginning of these bytes, if it is whole.
fn read(bytes: &[u8]) -> Option<Record<'_>> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let body = rest.get(..length(prefix)?)?;
    let (version, coding) = form(prefix)?;
    if crc32fast::hash(bytes.get(8..PREFIX + body.len())?) != word(prefix, 4) {
        return None;
    }
    let time = u64::from(word(prefix, 16)) | u64::from(word(prefix, 20)) << 32;
    Some(Record {
        is_done: word(prefix, 0) != 0,
        timestamp_ms: time.cast_signed(),
        samples: word(prefix, 12),
        version,
        coding,
        shard: prefix[26],
        last_shard: prefix[27],
        body,
    })
}

/// The version of remote write and the coding, if both are known.
fn form(prefix: &[u8; PREFIX]) -> Option<(WriteVersion, Coding)> {
    let version = match prefix[24] {
        1 => WriteVersion::One,
        2 => WriteVersion::Two,
        _ => return None,
    };
    let coding = match prefix[25] {
        0 => Coding::Snappy,
        1 => Coding::Zstd,
        _ => return None,
    };
    Some((version, coding))
}

/// The length of a body, if there may be such a one.
fn length(prefix: &[u8; PREFIX]) -> Option<usize> {
    usize::try_from(word(prefix, 8)).ok().filter(|length| (1..=MOST_BODY).contains(length))
}

fn word(prefix: &[u8; PREFIX], at: usize) -> u32 {
    let word = prefix.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_le_bytes(word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> [Record<'static>; 3] {
        let record =
            |is_done, timestamp_ms, (version, coding), [shard, last_shard]: [u8; 2], body| {
                let samples = 7;
                Record { is_done, timestamp_ms, samples, version, coding, shard, last_shard, body }
            };
        [
            record(false, 1_700_000_000_000, (WriteVersion::Two, Coding::Snappy), [0, 0], b"abc"),
            record(true, -1, (WriteVersion::One, Coding::Zstd), [3, 63], b"d"),
            record(false, i64::MAX, (WriteVersion::Two, Coding::Zstd), [255, 255], &[0; 100]),
        ]
    }

    #[test]
    fn records_come_back_and_what_is_cut_or_changed_does_not() {
        let mut bytes = HEADER.to_vec();
        let mut ends = vec![bytes.len()];
        for record in records() {
            assert!(record.encode(&mut bytes));
            ends.push(bytes.len());
        }
        let read = |bytes: &[u8]| Records::new(bytes, HEADER.len()).count();
        let all: Vec<_> = Records::new(&bytes, HEADER.len()).collect();
        assert!(all.iter().map(|(_, record)| *record).eq(records()));
        assert!(all.iter().map(|(at, _)| at).eq(&ends[..3]));
        for end in 0..bytes.len() {
            let whole = ends[1..].iter().filter(|other| **other <= end).count();
            let mut cut = Records::new(&bytes[..end], HEADER.len());
            assert_eq!(cut.by_ref().count(), whole, "{end}");
            assert_eq!(cut.end(), ends[whole]);
            let kind = kind(&bytes[..end]);
            assert_eq!(kind, if end < HEADER.len() { Kind::Torn } else { Kind::Queue });
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            if at < HEADER.len() {
                assert_eq!(kind(&changed), Kind::Foreign);
                continue;
            }
            let before = ends[1..].iter().filter(|end| **end <= at).count();
            // The mark of what is done is not under the CRC.
            let is_mark = at - ends[before] < 4;
            assert_eq!(read(&changed), if is_mark { 3 } else { before }, "{at}");
            // Those after it are found.
            let mut records = Records::new(&changed, HEADER.len());
            assert_eq!(records.by_ref().count(), read(&changed));
            let skipped = records.skip_damaged();
            if is_mark || before == 2 {
                assert_eq!((skipped, records.end()), (None, ends[if is_mark { 3 } else { 2 }]));
                continue;
            }
            let (begin, end) = (ends[before], ends[before + 1]);
            assert_eq!(skipped.unwrap().bytes, end - begin, "{at}");
            assert_eq!((records.by_ref().count(), records.end()), (2 - before, bytes.len()));
            // Nothing waited in the second one.
            let is_length = (8..12).contains(&(at - begin));
            let is_known = before == 0 && !is_length && !(12..16).contains(&(at - begin));
            assert!(!is_known || skipped.unwrap().samples == 7, "{at}");
            assert!(before == 0 || skipped.unwrap().samples == 0, "{at}");
        }
    }

    #[test]
    fn files_of_versions_1_and_2_are_read() {
        // The records of version 1 are those of one shard with Snappy.
        for header in [HEADER_1, HEADER_2] {
            let mut bytes = header.to_vec();
            assert!(records()[0].encode(&mut bytes));
            assert_eq!(bytes[HEADER.len() + 24..][..4], [2, 0, 0, 0]);
            assert_eq!(kind(&bytes), Kind::Queue);
            for end in 0..header.len() {
                assert_eq!(kind(&header[..end]), Kind::Torn);
            }
        }
        let mut next = HEADER;
        next[8] += 1;
        assert_eq!(kind(&next), Kind::Foreign);
    }

    #[test]
    fn a_search_ends() {
        // Looks like a record of 64 KiB every 12 bytes.
        let mut bytes = HEADER.to_vec();
        while bytes.len() < 4 << 20 {
            bytes.extend([1, 0, 0, 0, 7, 7, 7, 7, 0, 0, 1, 0]);
        }
        let mut records = Records::new(&bytes, HEADER.len());
        assert_eq!((records.next(), records.skip_damaged()), (None, None));
    }

    #[test]
    fn bodies_that_cannot_be_read_again_are_not_written() {
        let mut bytes = Vec::new();
        let body = vec![1; MOST_BODY + 1];
        let record = records()[0];
        assert!(!Record { body: &[], ..record }.encode(&mut bytes));
        assert!(!Record { body: &body, ..record }.encode(&mut bytes));
        assert!(bytes.is_empty());
        // Zeros are what a power loss leaves of a tail.
        assert_eq!(Records::new(&[0; 4096], 0).count(), 0);
    }
}
