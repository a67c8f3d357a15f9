//! The header of a block in a stream: 24 bytes with a checksum of the block, the length of the
//! body, and the number of messages of each kind. `docs/formats.md` draws the layout.

use alloc::vec::Vec;

use super::MAX_MESSAGES;
use crate::error::Fault;
use crate::pieces::{Byte, Le32, Literal, append};
use crate::reader::Reader;

pub(super) const MAGIC: &[u8; 3] = b"\xfcqw";
const VERSION: u8 = 2;
/// The flag of a block that restarts the dictionary of series.
const RESTART: u8 = 1;
/// The length of a header in bytes.
pub(super) const HEADER: usize = 24;
/// The offset of the first byte that the checksum covers.
const CHECKED: usize = 8;
/// The maximum length of a body in bytes. No writer exceeds it, because an id, the values of one
/// message, and all messages that the writer collects before it closes a block are together
/// shorter.
const MAX_BODY: usize = 1 << 27;

/// The fields of a header, except for length and checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) sequence: u32,
    pub(super) restarts: bool,
    /// The number of messages of each kind.
    pub(super) counts: [u8; 4],
    pub(super) definitions: u8,
    pub(super) exceptions: u8,
}

impl Header {
    /// Appends a header whose length and checksum are zero. Call [`seal`] once the body is written.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let [counters, timers, gauges, unions] = self.counts;
        append(
            out,
            (
                (Literal(MAGIC), Byte(VERSION), Le32(0), Le32(0), Le32(self.sequence)),
                Byte(if self.restarts { RESTART } else { 0 }),
                (Byte(counters), Byte(timers), Byte(gauges), Byte(unions)),
                (Byte(self.definitions), Byte(self.exceptions), Byte(0)),
            ),
        );
    }

    /// Reads the header and the body of a complete block. If the input ends within the block, this
    /// returns an incomplete fault and leaves the input unchanged, because you can try again with
    /// more bytes.
    pub(super) fn read<'m>(input: &mut Reader<'m>) -> Result<(Header, &'m [u8]), Fault> {
        let before = *input;
        let read = Header::read_parts(input);
        if read.as_ref().is_err_and(|fault| fault.is_incomplete()) {
            *input = before;
        }
        read
    }

    fn read_parts<'m>(input: &mut Reader<'m>) -> Result<(Header, &'m [u8]), Fault> {
        const HEAD: &str = "the header of a block";
        input.literal(MAGIC, "fc 71 77, which begins a block of a stream")?;
        if input.peek().is_some_and(|version| version != VERSION) {
            return Err(Fault::malformed("version 2; another version needs another quipu"));
        }
        input.byte(HEAD)?;
        let mut start = *input;
        let sum = u32::from_le_bytes(input.array(HEAD)?);
        let checked = *input;
        let len = u32::from_le_bytes(input.array(HEAD)?);
        let sequence = u32::from_le_bytes(input.array(HEAD)?);
        let [flags, counters, timers, gauges, unions, definitions, exceptions, zero] =
            input.array(HEAD)?;
        if len as usize > MAX_BODY {
            *input = checked;
            return Err(Fault::too_large("a block of at most 128 MiB"));
        }
        let body = input.take_long(u64::from(len), "the body of a block")?;
        let checked = &checked.rest()[..HEADER - CHECKED + body.len()];
        if crc32fast::hash(checked) != sum {
            *input = start;
            return Err(Fault::malformed("a block whose checksum is right: this one is damaged"));
        }
        start.advance(HEADER - CHECKED - 4);
        let counts = [counters, timers, gauges, unions];
        let messages: usize = counts.iter().map(|count| usize::from(*count)).sum();
        let fault = if flags & !RESTART != 0 || zero != 0 {
            Some(Fault::malformed("flags of version 2"))
        } else if messages == 0 || messages > MAX_MESSAGES {
            Some(Fault::malformed("a block of 1 to 255 messages"))
        } else if exceptions > gauges {
            Some(Fault::malformed("at most one exception for each gauge"))
        } else {
            None
        };
        if let Some(fault) = fault {
            *input = start;
            return Err(fault);
        }
        let restarts = flags & RESTART != 0;
        Ok((Header { sequence, restarts, counts, definitions, exceptions }, body))
    }

    /// Returns the length of the body if these bytes look like a complete block that restarts
    /// the dictionary, otherwise `None`. The checksum is not verified.
    pub(super) fn restart_len(block: &[u8]) -> Option<usize> {
        let header = block.first_chunk::<HEADER>()?;
        let len = header[8..].first_chunk().map(|len| u32::from_le_bytes(*len))?;
        let restarts = header[..3] == MAGIC[..] && header[3] == VERSION && header[16] == RESTART;
        (restarts && len as usize <= block.len() - HEADER).then_some(len as usize)
    }
}

/// Fills in the length and the checksum of a block. The block is at the end of the buffer.
pub(super) fn seal(block: &mut [u8]) {
    debug_assert!(block.len() - HEADER <= MAX_BODY, "a block stays below its bound");
    let len = (block.len() - HEADER) as u32;
    block[8..12].copy_from_slice(&len.to_le_bytes());
    let sum = crc32fast::hash(&block[CHECKED..]);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
}
