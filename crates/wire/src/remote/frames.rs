//! Packets on a stream, each prefixed with its length.

use alloc::vec::Vec;
use core::mem;

use super::lines::Cut;

/// Reassembles StatsD packets from the pieces of a stream. Each packet is prefixed with its length
/// in four little-endian bytes. Datadog's clients use this framing on a unix socket
/// (`unixstream://`).
///
/// ```
/// use quipu_wire::remote::{Cut, FrameBuffer};
///
/// let mut buffer = FrameBuffer::new(100);
/// let mut seen = Vec::new();
/// for piece in [&b"\x05\0\0\0a:1|c\x05"[..], b"\0\0", b"\0b:2", b"|c"] {
///     buffer.push(piece, |cut| match cut {
///         Cut::Lines(lines) => seen.push(lines.to_vec()),
///         Cut::TooLong => unreachable!("all packets are short"),
///     });
/// }
/// assert_eq!(seen, [b"a:1|c", b"b:2|c"]);
/// ```
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct FrameBuffer {
    /// The beginning of a frame, including its length.
    held: Vec<u8>,
    max_frame: usize,
    /// The number of bytes still to skip, because their frame is too long.
    skipping: usize,
}

impl FrameBuffer {
    /// Creates a buffer for packets of at most this many bytes.
    pub fn new(max_frame: usize) -> FrameBuffer {
        FrameBuffer { held: Vec::new(), max_frame, skipping: 0 }
    }

    /// Adds a piece of the input and calls `each` for every packet that is now complete. Only a
    /// packet that spans two pieces is copied. A packet that is too long is skipped.
    pub fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(Cut<'_>)) {
        while !piece.is_empty() {
            if self.skipping > 0 {
                let skipped = self.skipping.min(piece.len());
                self.skipping -= skipped;
                piece = &piece[skipped..];
                continue;
            }
            if self.held.is_empty()
                && let Some((length, rest)) = split(piece)
                && length <= self.max_frame
                && let Some(packet) = rest.get(..length)
            {
                each(Cut::Lines(packet));
                piece = &rest[length..];
                continue;
            }
            piece = self.hold(piece, &mut each);
        }
    }

    /// Completes the held frame as far as the piece suffices, and returns the rest of the piece.
    fn hold<'a>(&mut self, piece: &'a [u8], each: &mut impl FnMut(Cut<'_>)) -> &'a [u8] {
        let missing = match split(&self.held) {
            Some((length, rest)) => length - rest.len(),
            None => HEAD - self.held.len(),
        };
        let (part, piece) = piece.split_at(missing.min(piece.len()));
        self.held.extend_from_slice(part);
        let Some((length, rest)) = split(&self.held) else { return piece };
        if length > self.max_frame {
            self.skipping = length;
            each(Cut::TooLong);
        } else if rest.len() == length {
            each(Cut::Lines(rest));
        } else {
            return piece;
        }
        drop(mem::take(&mut self.held));
        piece
    }
}

/// Splits off the length of a frame. The rest may be shorter than this length.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    Some((u32::from_le_bytes(*head) as usize, rest))
}

const HEAD: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_the_same_packets() {
        let mut input = Vec::new();
        let packets = [&b"a:1|c\nb:2|c\n"[..], b"", &[b'x'; 70_000], b"c:3|g", b"d"];
        let packets = if cfg!(miri) { &packets[..2] } else { &packets[..] };
        for packet in packets {
            input.extend_from_slice(&(packet.len() as u32).to_le_bytes());
            input.extend_from_slice(packet);
        }
        for size in [1, 2, 3, 4, 5, 7, 16, 69_999, 80_000] {
            let (mut frames, mut seen) = (FrameBuffer::new(65_535), Vec::new());
            for piece in input.chunks(size) {
                frames.push(piece, |cut| {
                    seen.push(match cut {
                        Cut::Lines(lines) => Some(lines.to_vec()),
                        Cut::TooLong => None,
                    });
                });
            }
            let expected =
                packets.iter().map(|packet| (packet.len() < 70_000).then(|| packet.to_vec()));
            assert_eq!(seen, expected.collect::<Vec<_>>(), "{size}");
        }
    }

    #[test]
    fn a_length_alone_allocates_nothing() {
        let mut frames = FrameBuffer::new(65_535);
        frames.push(&u32::MAX.to_le_bytes(), |cut| assert_eq!(cut, Cut::TooLong));
        for _ in 0..100 {
            frames.push(&[7; 1000], |cut| panic!("{cut:?}"));
        }
        assert_eq!(frames.held.capacity(), 0);
    }
}
