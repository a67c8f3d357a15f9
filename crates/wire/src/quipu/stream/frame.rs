//! A frame: its header and its checksum.

use crate::error::Fault;
use crate::reader::Reader;

pub(super) const MAGIC: &[u8; 3] = b"\xfcqw";
pub(super) const VERSION: u8 = 1;
/// The flag of a frame that restarts the dictionary.
pub(super) const RESTART: u8 = 1;
/// The bytes of a header.
pub(super) const HEADER: usize = 24;
/// The most bytes of a frame's messages. An id, the values of a message, and the messages gathered
/// before it take fewer together.
pub(super) const MAX_FRAME: usize = 1 << 27;

/// The header of a frame whose checksum is right.
pub(super) struct Frame {
    pub(super) restarts: bool,
    pub(super) sequence: u32,
    pub(super) count: u32,
    pub(super) len: usize,
}

impl Frame {
    /// Reads a frame that is complete. An input that ends within it is left as it was.
    pub(super) fn read(input: &mut Reader<'_>) -> Result<Frame, Fault> {
        const HEAD: &str = "the header of a frame";
        let before = *input;
        let read = Frame::read_parts(input, HEAD);
        if read.as_ref().is_err_and(|fault| fault.is_incomplete()) {
            *input = before;
        }
        read
    }

    fn read_parts(input: &mut Reader<'_>, head: &'static str) -> Result<Frame, Fault> {
        input.literal(MAGIC, "fc 71 77, which begins a frame of a stream")?;
        if input.peek().is_some_and(|version| version != VERSION) {
            return Err(Fault::malformed("version 1; a later version needs a later quipu"));
        }
        input.byte(head)?;
        let start = *input;
        let [flags, zeros @ ..] = input.array::<4>(head)?;
        if flags & !RESTART != 0 || zeros != [0; 3] {
            *input = start;
            return Err(Fault::malformed("flags of version 1"));
        }
        let mut number = || input.array(head).map(u32::from_le_bytes);
        let (sequence, len, count, sum) = (number()?, number()?, number()?, number()?);
        if count == 0 {
            *input = start;
            return Err(Fault::malformed("a frame with at least one message"));
        }
        if len as usize > MAX_FRAME {
            *input = start;
            return Err(Fault::too_large("a frame of at most 128 MiB"));
        }
        let messages = input.take_long(u64::from(len), "the messages of a frame")?;
        if checksum(&start.rest()[..16], messages) != sum {
            *input = start;
            return Err(Fault::malformed("a frame whose checksum is right: this one is damaged"));
        }
        let len = messages.len();
        Ok(Frame { restarts: flags & RESTART != 0, sequence, count, len })
    }
}

pub(super) fn checksum(header: &[u8], messages: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(header);
    checksum.update(messages);
    checksum.finalize()
}
