//! The files of a queue as bytes: a header, then records. A record is a request with its CRC-32.
//! `docs/formats.md` draws both.
//!
//! What a file has ends with its last whole record. The bytes after it were being written when the
//! machine lost its power or the disk was full.

use quipu_wire::remote::WriteVersion;

/// A request that waits, or that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Whether it was taken or refused.
    pub(super) is_done: bool,
    /// The time of its samples, in milliseconds since 1970.
    pub(super) timestamp_ms: i64,
    pub(super) samples: u32,
    pub(super) version: WriteVersion,
    /// As it is sent: compressed.
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

/// The records of a file, in order, each with where it begins. Ends at the first that is not whole.
#[derive(Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The bytes of a file's header.
pub(super) const HEADER: [u8; 16] = *b"QUIPURWQ\x01\0\0\0\0\0\0\0";
/// The bytes of a record before the body.
pub(super) const PREFIX: usize = 28;
/// The most bytes of a body.
pub(super) const MOST_BODY: usize = 64 << 20;
/// What marks a record as done, at its beginning.
pub(super) const DONE: [u8; 4] = [1, 0, 0, 0];

/// Judges the beginning of a file.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    match bytes.get(..HEADER.len()) {
        Some(header) if header == HEADER => Kind::Queue,
        None if HEADER.starts_with(bytes) => Kind::Torn,
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
        let version: u32 = match self.version {
            WriteVersion::One => 1,
            WriteVersion::Two => 2,
        };
        let start = out.len();
        out.extend(if self.is_done { DONE } else { [0; 4] });
        out.extend([0; 4]);
        out.extend(length.to_le_bytes());
        out.extend(self.samples.to_le_bytes());
        out.extend(self.timestamp_ms.to_le_bytes());
        out.extend(version.to_le_bytes());
        out.extend(self.body);
        let crc = crc32fast::hash(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        true
    }
}

impl<'a> Records<'a> {
    /// The records from a place on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the last record that was returned ends.
    pub(super) fn end(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.bytes.get(self.at..)?;
        let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
        let word = |at: usize| {
            let word = prefix.get(at..at + 4).and_then(|word| word.try_into().ok());
            u32::from_le_bytes(word.unwrap_or_default())
        };
        let length = usize::try_from(word(8)).ok().filter(|length| *length <= MOST_BODY)?;
        let body = rest.get(..length)?;
        let version = match word(24) {
            1 => WriteVersion::One,
            2 => WriteVersion::Two,
            _ => return None,
        };
        let checked = bytes.get(8..PREFIX + length)?;
        if length == 0 || crc32fast::hash(checked) != word(4) {
            return None;
        }
        let time = u64::from(word(16)) | u64::from(word(20)) << 32;
        let record = Record {
            is_done: word(0) != 0,
            timestamp_ms: time.cast_signed(),
            samples: word(12),
            version,
            body,
        };
        let at = self.at;
        self.at += PREFIX + length;
        Some((at, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> [Record<'static>; 3] {
        let record = |is_done, timestamp_ms, version, body| {
            let samples = 7;
            Record { is_done, timestamp_ms, samples, version, body }
        };
        [
            record(false, 1_700_000_000_000, WriteVersion::Two, b"abc"),
            record(true, -1, WriteVersion::One, b"d"),
            record(false, i64::MAX, WriteVersion::Two, &[0; 100]),
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
        }
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
