//! The files of a queue as bytes: a header, then records. A record is a request with its CRC-32.
//! `docs/formats.md` draws both.
//!
//! A file ends with its last whole record. The bytes after it were being written when the
//! machine lost its power or the disk was full. Bytes before it that are damaged are skipped.

use std::io;

use crate::coding::Coding;

/// The form of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Samples in version 1.0 of remote write, and in 2.0.
    Write1 = 1,
    Write2 = 2,
    /// Data points of OTLP.
    Points = 3,
    /// Data points that are not sent: the totals that the points that wait lead to.
    Totals = 4,
}

/// A request that waits, or that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Whether it was taken or refused.
    pub(super) is_done: bool,
    /// The time of its samples since 1970: in milliseconds; for totals, in nanoseconds.
    pub(super) time: i64,
    pub(super) samples: u32,
    pub(super) form: Form,
    pub(super) coding: Coding,
    /// The shard that it is of, and the last of all shards. Both are 0 if there was one.
    pub(super) shard: u8,
    pub(super) last_shard: u8,
    /// The body as it is sent, compressed with this coding.
    pub(super) body: &'a [u8],
}

/// The kind of a file, by its beginning.
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

/// A damaged part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SkippedPart {
    pub(super) bytes: usize,
    /// The pending samples in it, as far as their number is known.
    pub(super) samples: u32,
}

/// The bytes of a file's header.
pub(super) const HEADER: [u8; 16] = header(4);
/// The bytes of a record before the body.
pub(super) const PREFIX: usize = 28;
/// The most bytes of a body.
pub(super) const MOST_BODY: usize = 64 << 20;
/// The most bytes that are read for checksums in the searches in a file: what was made up for it
/// may look like a record everywhere.
const MOST_SEARCHED: usize = 256 << 20;
/// The mark at the beginning of a record that is done.
pub(super) const DONE: [u8; 4] = [1, 0, 0, 0];

/// The header of files of a version. Version 3 has no totals and no data points, the records of
/// version 2 have a zero for the coding, and records of version 1 also for the shards.
pub(super) const fn header(version: u8) -> [u8; 16] {
    let mut header = *b"QUIPURWQ\0\0\0\0\0\0\0\0";
    header[8] = version;
    header
}

/// Judges the beginning of a file.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    let mut headers = (1..=4).map(header);
    match bytes.get(..HEADER.len()) {
        Some(begun) if headers.any(|known| begun == known) => Kind::Queue,
        None if headers.any(|known| known.starts_with(bytes)) => Kind::Torn,
        _ => Kind::Foreign,
    }
}

impl Record<'_> {
    /// Appends the bytes of the record.
    ///
    /// # Errors
    /// If the body is too long or empty. Nothing is appended then.
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
    /// The records from a place on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, search: MOST_SEARCHED }
    }

    /// Goes to the first whole record after one that is not; `None` if there is none.
    pub(super) fn skip_damaged(&mut self) -> Option<SkippedPart> {
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
        Some(SkippedPart { bytes: self.at - begun, samples })
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

/// The form of a request and its coding, if both are known.
fn form(prefix: &[u8; PREFIX]) -> Option<(Form, Coding)> {
    let forms = [Form::Write1, Form::Write2, Form::Points, Form::Totals];
    let codings = [Coding::Snappy, Coding::Zstd, Coding::Gzip, Coding::Plain];
    let form = forms.into_iter().find(|form| *form as u8 == prefix[24])?;
    Some((form, codings.into_iter().find(|coding| *coding as u8 == prefix[25])?))
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
    fn files_of_earlier_versions_are_read() {
        // The records of version 1 are those of one shard with Snappy.
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
        assert!(Record { body: &[], ..record }.encode(&mut bytes).is_err());
        assert!(Record { body: &body, ..record }.encode(&mut bytes).is_err());
        assert!(bytes.is_empty());
        // Zeros are what a power loss leaves of a tail.
        assert_eq!(Records::new(&[0; 4096], 0).count(), 0);
    }
}
