//! The format of a queue file: a header, and a sequence of records. Each record is a request with
//! its CRC-32. `docs/formats.md` draws both.
//!
//! A file ends after its last complete record. Bytes after it are an incomplete record, for example
//! because the disk was full or the machine lost power during a write. Damaged bytes before the
//! last record are skipped.

use std::io;

use crate::coding::Coding;

/// The format of a request body. The numbers are stored in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// A remote write request in version 1.0.
    Write1 = 1,
    /// A remote write request in version 2.0.
    Write2 = 2,
    /// An OTLP request.
    Points = 3,
    /// An OTLP request that is never sent: the totals after the pending requests.
    Totals = 4,
}

/// A record: a request with its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Whether the request is done, because it was accepted or refused.
    pub(super) is_done: bool,
    /// The timestamp of the samples in milliseconds since 1970; for totals, in nanoseconds.
    pub(super) time: i64,
    pub(super) samples: u32,
    pub(super) form: Form,
    pub(super) coding: Coding,
    /// The shard of the request, and the index of the last shard. Both are 0 for a single shard.
    pub(super) shard: u8,
    pub(super) last_shard: u8,
    /// The body to send, compressed with `coding`.
    pub(super) body: &'a [u8],
}

/// The kind of a file, according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A queue file.
    Queue,
    /// A file that is shorter than the header.
    Torn,
    /// A file of another program, or in an unsupported version of the format.
    Foreign,
}

/// An iterator over the records of a file, with their offsets. It ends at the first damaged record;
/// call [`Records::skip_damaged`] to continue after it.
#[derive(Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The remaining number of bytes that searches may read to verify checksums.
    search: usize,
}

/// A damaged part of a file, which was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SkippedPart {
    pub(super) bytes: usize,
    /// The number of pending samples in this part, if it can be read.
    pub(super) samples: u32,
}

/// The header of a file.
pub(super) const HEADER: [u8; 16] = header(4);
/// The size of a record without its body, in bytes.
pub(super) const PREFIX: usize = 28;
/// The maximum size of a body in bytes.
pub(super) const MOST_BODY: usize = 64 << 20;
/// The maximum number of bytes that the searches in a file may read to verify checksums. This is
/// limited because a hostile file can look like a record at every offset.
const MOST_SEARCHED: usize = 256 << 20;
/// The first bytes of a done record.
pub(super) const DONE: [u8; 4] = [1, 0, 0, 0];

/// Returns the header of a version. Version 3 contains no totals and no data points; in version 2,
/// the coding is zero, and in version 1, the shards are zero too.
pub(super) const fn header(version: u8) -> [u8; 16] {
    let mut header = *b"QUIPURWQ\0\0\0\0\0\0\0\0";
    header[8] = version;
    header
}

/// Returns the kind of a file with these bytes.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    let mut headers = (1..=4).map(header);
    match bytes.get(..HEADER.len()) {
        Some(begun) if headers.any(|known| begun == known) => Kind::Queue,
        None if headers.any(|known| known.starts_with(bytes)) => Kind::Torn,
        _ => Kind::Foreign,
    }
}

impl Record<'_> {
    /// Appends the encoded record.
    ///
    /// # Errors
    /// Fails if the body is empty or too long. `out` then stays unchanged.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> io::Result<()> {
        if !(1..=MOST_BODY).contains(&self.body.len()) {
            let reason = format!("a request has {} bytes", self.body.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        let start = out.len();
        out.extend(if self.is_done { DONE } else { [0; 4] });
        out.extend([0; 4]);
        out.extend((self.body.len() as u32).to_le_bytes());
        out.extend(self.samples.to_le_bytes());
        out.extend(self.time.to_le_bytes());
        out.extend([self.form as u8, self.coding as u8, self.shard, self.last_shard]);
        out.extend(self.body);
        let crc = crc32fast::hash(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}

impl<'a> Records<'a> {
    /// Creates an iterator over the records from an offset on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, search: MOST_SEARCHED }
    }

    /// Skips to the first complete record after a damaged one; `None` if there is none.
    pub(super) fn skip_damaged(&mut self) -> Option<SkippedPart> {
        let begun = self.at;
        let (mut samples, mut next) = (0, None);
        let prefix = self.bytes.get(begun..)?.first_chunk::<PREFIX>()?;
        // Try the stored length first, because it may be intact.
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
        Some(SkippedPart { bytes: self.at - begun, samples })
    }

    /// Returns whether a complete record begins at this offset.
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

    /// Returns the end of the last returned record.
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

/// Parses a record, if it is complete.
fn read(bytes: &[u8]) -> Option<Record<'_>> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let body = rest.get(..length(prefix)?)?;
    let (form, coding) = form(prefix)?;
    if crc32fast::hash(bytes.get(8..PREFIX + body.len())?) != word(prefix, 4) {
        return None;
    }
    let time = u64::from(word(prefix, 16)) | u64::from(word(prefix, 20)) << 32;
    Some(Record {
        is_done: word(prefix, 0) != 0,
        time: time.cast_signed(),
        samples: word(prefix, 12),
        form,
        coding,
        shard: prefix[26],
        last_shard: prefix[27],
        body,
    })
}

/// Returns the format and the coding of a request, if both are known.
fn form(prefix: &[u8; PREFIX]) -> Option<(Form, Coding)> {
    let forms = [Form::Write1, Form::Write2, Form::Points, Form::Totals];
    let codings = [Coding::Snappy, Coding::Zstd, Coding::Gzip, Coding::Plain];
    let form = forms.into_iter().find(|form| *form as u8 == prefix[24])?;
    Some((form, codings.into_iter().find(|coding| *coding as u8 == prefix[25])?))
}

/// Returns the length of a body, if it is plausible.
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
        let record = |is_done, time, (form, coding), [shard, last_shard]: [u8; 2], body| {
            let samples = 7;
            Record { is_done, time, samples, form, coding, shard, last_shard, body }
        };
        [
            record(false, 1_700_000_000_000, (Form::Write2, Coding::Snappy), [0, 0], b"abc"),
            record(true, -1, (Form::Write1, Coding::Zstd), [3, 63], b"d"),
            record(false, i64::MAX, (Form::Totals, Coding::Gzip), [255, 255], &[0; 100]),
        ]
    }

    #[test]
    fn records_come_back_and_what_is_cut_or_changed_does_not() {
        let mut bytes = HEADER.to_vec();
        let mut ends = vec![bytes.len()];
        for record in records() {
            record.encode(&mut bytes).unwrap();
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
            // The CRC does not cover the mark of a done record.
            let is_mark = at - ends[before] < 4;
            assert_eq!(read(&changed), if is_mark { 3 } else { before }, "{at}");
            // The search finds the records after the damaged one.
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
            // The second record is done, so it contains no pending samples.
            let is_length = (8..12).contains(&(at - begin));
            let is_known = before == 0 && !is_length && !(12..16).contains(&(at - begin));
            assert!(!is_known || skipped.unwrap().samples == 7, "{at}");
            assert!(before == 0 || skipped.unwrap().samples == 0, "{at}");
        }
    }

    #[test]
    fn files_of_earlier_versions_are_read() {
        // A version 1 record belongs to a single shard and uses Snappy.
        for header in [header(1), header(2), header(3)] {
            let mut bytes = header.to_vec();
            records()[0].encode(&mut bytes).unwrap();
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
    fn a_search_in_a_file_is_bounded() {
        // These bytes look like a record of 64 KiB every 12 bytes.
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
        assert!(Record { body: &[], ..record }.encode(&mut bytes).is_err());
        assert!(Record { body: &body, ..record }.encode(&mut bytes).is_err());
        assert!(bytes.is_empty());
        // A power loss can leave zeros at the tail.
        assert_eq!(Records::new(&[0; 4096], 0).count(), 0);
    }
}
