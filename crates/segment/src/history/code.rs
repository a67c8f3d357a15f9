//! The codes of a frame: bytes that encode the change of each cell since the last tick.
//!
//! An integer (a whole cell) usually grows at a steady rate. We therefore encode how much its
//! difference from the last tick has changed (a delta of deltas), which is often zero. A run of
//! zeros is encoded by its length.
//!
//! | bytes | mean |
//! |---|---|
//! | `b`, up to 14 | `b + 1` zeros |
//! | 15, then a number `k` | `16 + k` zeros |
//! | a number `15 + n` | a whole cell: `n` is its delta of deltas in zigzag encoding, and not 0 |
//! | `16 + 8 * (n - 1) + s`, then `n` bytes | a float cell: the XOR with its bits at the last tick, without the `s` lowest bytes, which are zero |
//!
//! A number is split into groups of 7 bits, lowest group first. Bit 7 is set in all bytes but the
//! last (LEB128).

/// Encodes the changes of a tick.
#[derive(Debug, Default)]
pub(super) struct Coder {
    bytes: Vec<u8>,
    /// The number of zeros that are not written yet.
    zeros: u64,
}

/// The maximum length of a cell's code in bytes.
pub(super) const MAX_CODE: usize = 10;
/// The first byte of a long run of zeros, whose length follows. A smaller byte encodes a short run.
const MANY: u8 = 15;

impl Coder {
    /// Drops all codes, so the buffer can be used for the next tick.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.zeros = 0;
    }

    /// Writes a number that does not belong to a cell, such as an index in the list of series.
    pub(super) fn number(&mut self, n: u64) {
        self.flush();
        self.varint(n.into());
    }

    /// Writes the delta of deltas of a whole cell, modulo 2^64.
    #[inline]
    pub(super) fn whole(&mut self, change: u64) {
        let change = change.cast_signed();
        match (change << 1 ^ change >> 63).cast_unsigned() {
            0 => self.zeros += 1,
            n => {
                self.flush();
                self.varint(u128::from(MANY) + u128::from(n));
            }
        }
    }

    /// Writes the XOR of a float's bits and the bits of the last tick.
    pub(super) fn float(&mut self, bits: u64) {
        if bits == 0 {
            self.zeros += 1;
            return;
        }
        self.flush();
        let low = bits.trailing_zeros() / 8;
        let bits = bits >> (8 * low);
        let count = 8 - bits.leading_zeros() / 8;
        // The byte is at most 15 + 1 + 56 + 7.
        self.bytes.push(MANY + 1 + (8 * (count - 1) + low) as u8);
        self.bytes.extend_from_slice(&bits.to_le_bytes()[..count as usize]);
    }

    /// Flushes the zeros, and returns the encoded bytes.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.flush();
        &self.bytes
    }

    #[inline]
    fn flush(&mut self) {
        match std::mem::take(&mut self.zeros) {
            0 => {}
            // The cast is safe, because a short run is at most 15 long.
            few if few <= MANY.into() => self.bytes.push(few as u8 - 1),
            many => {
                self.bytes.push(MANY);
                self.varint(u128::from(many) - u128::from(MANY) - 1);
            }
        }
    }

    fn varint(&mut self, mut n: u128) {
        while n >= 0x80 {
            // The cast keeps the lowest 8 bits.
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }
}

/// Decodes changes from untrusted bytes.
#[derive(Debug)]
pub(super) struct Decoder<'b> {
    rest: &'b [u8],
    zeros: u64,
}

impl<'b> Decoder<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, zeros: 0 }
    }

    /// Reads a number that does not belong to a cell.
    pub(super) fn number(&mut self) -> Option<u64> {
        self.varint().and_then(|n| n.try_into().ok())
    }

    /// Reads a number of at most 70 bits.
    #[inline]
    fn varint(&mut self) -> Option<u128> {
        let mut n = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            n |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// Reads the delta of deltas of a whole cell.
    #[inline]
    pub(super) fn whole(&mut self) -> Option<u64> {
        if self.is_zero()? {
            return Some(0);
        }
        let n = self.varint()?.checked_sub(MANY.into())?;
        let n = u64::try_from(n).ok()?;
        Some(n >> 1 ^ (n & 1).wrapping_neg())
    }

    /// Reads the XOR of a float's bits and the bits of the last tick.
    pub(super) fn float(&mut self) -> Option<u64> {
        if self.is_zero()? {
            return Some(0);
        }
        let code = self.byte()?.checked_sub(MANY + 1)?;
        let (count, low) = (usize::from(code / 8) + 1, usize::from(code % 8));
        if count + low > 8 {
            return None;
        }
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        let mut word = [0; 8];
        word[low..low + count].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    /// Returns whether the rest is only padding: zeros that fill the last word.
    pub(super) fn is_at_end(&self) -> bool {
        self.zeros == 0 && self.rest.len() < 8 && self.rest.iter().all(|byte| *byte == 0)
    }

    /// Returns whether the next cell is zero. Otherwise a code follows, which begins with a byte
    /// above 15.
    #[inline]
    fn is_zero(&mut self) -> Option<bool> {
        if self.zeros == 0 {
            let (&first, rest) = self.rest.split_first()?;
            if first > MANY {
                return Some(false);
            }
            self.rest = rest;
            self.zeros = u64::from(first) + 1;
            if first == MANY {
                self.zeros = self.number()?.checked_add(self.zeros)?;
            }
        }
        self.zeros -= 1;
        Some(true)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn written_numbers_are_read() {
        let mut values = vec![0, 1, 2, 63, 64, 127, 128, 1 << 31, u64::MAX, u64::MAX - 1, 1 << 63];
        values.extend((0..64).map(|bit| 1 << bit));
        values.extend([0; 200]);
        values.extend((0..8).map(|byte| 0xff << (8 * byte)));
        let mut coder = Coder::default();
        coder.number(300);
        for &value in &values {
            coder.whole(value);
            coder.float(value);
        }
        let bytes = coder.finish();
        let most = 2 + values.len() * (MAX_CODE + 9);
        assert!(bytes.len() < most);
        let mut decoder = Decoder::new(bytes);
        assert_eq!(decoder.number(), Some(300));
        for &value in &values {
            assert_eq!((decoder.whole(), decoder.float()), (Some(value), Some(value)));
        }
        assert!(decoder.is_at_end());
        for end in 0..bytes.len() {
            let mut decoder = Decoder::new(&bytes[..end]);
            let _ = decoder.number();
            let read = (0..values.len()).map_while(|_| decoder.whole().zip(decoder.float()));
            assert!(read.count() < values.len() || end + 2 >= bytes.len());
        }
    }

    #[test]
    fn small_changes_take_a_byte() {
        let length = |write: &dyn Fn(&mut Coder)| {
            let mut coder = Coder::default();
            write(&mut coder);
            coder.finish().len()
        };
        assert_eq!(length(&|coder| (0..50).for_each(|n| coder.whole(n))), 50);
        assert_eq!(length(&|coder| (0..15).for_each(|_| coder.whole(0))), 1);
        assert_eq!(length(&|coder| (0..1000).for_each(|_| coder.whole(0))), 3);
        let bits = |n: f64| n.to_bits();
        assert_eq!(length(&|coder| coder.float(bits(3.0) ^ bits(5.0))), 2);
        assert_eq!(length(&|coder| coder.float(u64::MAX)), 9);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Decoder::new(&[0xff; 20]).number(), None);
        assert_eq!(Decoder::new(&[0xff; 20]).whole(), None);
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(Decoder::new(&most).whole(), None);
        // `n` is 8 and `s` is 1: 8 bytes above the lowest one do not fit into a word.
        assert_eq!(Decoder::new(&[16 + 8 * 7 + 1, 1, 1, 1, 1, 1, 1, 1, 1]).float(), None);
        assert_eq!(Decoder::new(&[255, 1]).float(), None);
        assert_eq!(Decoder::new(&[15]).whole(), None);
        let most = [15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Decoder::new(&most).whole(), None);
        assert!(!Decoder::new(&[1]).is_at_end());
    }
}
