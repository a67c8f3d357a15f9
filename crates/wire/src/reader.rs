//! Bounds-checked reading of an input, from its start to its end.
//!
//! If a read fails, the reader stays at its position, which is the position of the fault.

use crate::error::Fault;
use crate::message::MetricType;

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'m> {
    rest: &'m [u8],
    whole: &'m [u8],
}

impl<'m> Reader<'m> {
    #[inline(always)]
    pub(crate) fn new(input: &'m [u8]) -> Reader<'m> {
        Reader { rest: input, whole: input }
    }

    /// Returns how many bytes were read.
    #[inline(always)]
    pub(crate) fn position(&self) -> usize {
        self.whole.len() - self.rest.len()
    }

    /// Returns the whole input, from the start of reading.
    #[inline(always)]
    pub(crate) fn whole(&self) -> &'m [u8] {
        self.whole
    }

    #[inline(always)]
    pub(crate) fn rest(&self) -> &'m [u8] {
        self.rest
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Calls an out-of-line function with a copy of this reader. The reader itself then never has
    /// an address, so it can stay in registers.
    #[inline(always)]
    pub(crate) fn apart<T>(&mut self, read: impl FnOnce(&mut Reader<'m>) -> T) -> T {
        let mut copy = *self;
        let result = read(&mut copy);
        *self = copy;
        result
    }

    /// Converts a number to the type of a metric. If it does not fit, the reader returns to
    /// `before`.
    #[inline(always)]
    pub(crate) fn metric_type(
        &mut self,
        number: impl TryInto<i8>,
        before: Reader<'m>,
    ) -> Result<MetricType, Fault> {
        number.try_into().map(MetricType).map_err(|_| {
            *self = before;
            Fault::malformed("a metric type that fits in 8 bits")
        })
    }

    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Skips bytes that were already examined.
    #[inline(always)]
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, expected: &'static str) -> Result<u8, Fault> {
        match self.rest.split_first() {
            Some((byte, rest)) => {
                self.rest = rest;
                Ok(*byte)
            }
            None => Err(Fault::incomplete(expected)),
        }
    }

    /// Reads exactly these bytes.
    #[inline(always)]
    pub(crate) fn literal(
        &mut self,
        bytes: &'static [u8],
        expected: &'static str,
    ) -> Result<(), Fault> {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None if bytes.starts_with(self.rest) => Err(Fault::incomplete(expected)),
            None => Err(Fault::malformed(expected)),
        }
    }

    /// Skips these bytes, if the input continues with all of them. Returns whether it did.
    #[inline(always)]
    pub(crate) fn skip_literal(&mut self, bytes: &[u8]) -> bool {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, len: usize, expected: &'static str) -> Result<&'m [u8], Fault> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(Fault::incomplete(expected)),
        }
    }

    /// Like [`take`](Reader::take), for an untrusted 64-bit length.
    #[inline(always)]
    pub(crate) fn take_long(
        &mut self,
        len: u64,
        expected: &'static str,
    ) -> Result<&'m [u8], Fault> {
        match usize::try_from(len) {
            Ok(len) => self.take(len, expected),
            Err(_) => Err(Fault::incomplete(expected)),
        }
    }

    /// Checks the number of items that follow: the rest must contain at least `size` bytes for
    /// each.
    #[inline(always)]
    pub(crate) fn count(
        &self,
        count: u64,
        size: usize,
        expected: &'static str,
    ) -> Result<usize, Fault> {
        if count <= (self.rest.len() / size) as u64 {
            Ok(count as usize)
        } else {
            Err(Fault::incomplete(expected))
        }
    }

    #[inline(always)]
    pub(crate) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], Fault> {
        match self.rest.split_first_chunk::<N>() {
            Some((array, rest)) => {
                self.rest = rest;
                Ok(*array)
            }
            None => Err(Fault::incomplete(expected)),
        }
    }

    /// Reads 1 to 8 bytes as a little-endian number. This takes a single load if the input contains
    /// 8 bytes.
    #[inline(always)]
    pub(crate) fn little_endian(
        &mut self,
        len: usize,
        expected: &'static str,
    ) -> Result<u64, Fault> {
        self.word(len, expected).map(|number| number & (u64::MAX >> (64 - 8 * len)))
    }

    /// Reads a word like [`little_endian`](Reader::little_endian), but the bits above the number
    /// can have any value.
    #[inline(always)]
    pub(crate) fn word(&mut self, len: usize, expected: &'static str) -> Result<u64, Fault> {
        debug_assert!((1..=8).contains(&len), "a number has 1 to 8 bytes");
        if len > self.rest.len() {
            return Err(Fault::incomplete(expected));
        }
        let word = if let Some(bytes) = self.rest.first_chunk::<8>() {
            u64::from_le_bytes(*bytes)
        } else if let Some(bytes) = self.whole.last_chunk::<8>() {
            // The last bytes are loaded together with some bytes before them.
            u64::from_le_bytes(*bytes) >> (64 - 8 * self.rest.len())
        } else {
            let mut bytes = [0; 8];
            bytes[..self.rest.len()].copy_from_slice(self.rest);
            u64::from_le_bytes(bytes)
        };
        self.rest = &self.rest[len..];
        Ok(word)
    }

    /// Reads a base-128 number of at most 10 bytes, least significant group first: LEB128, as in
    /// protobuf.
    #[inline(always)]
    pub(crate) fn varint(&mut self, expected: &'static str) -> Result<u64, Fault> {
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.apart(|input| input.long_varint(expected)),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self, expected: &'static str) -> Result<u64, Fault> {
        let mut number = 0;
        for (index, &byte) in self.rest.iter().enumerate() {
            if index == 9 && byte > 1 {
                return Err(Fault::malformed(expected));
            }
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(Fault::incomplete(expected))
    }
}

/// Maps the unsigned numbers 0, 1, 2, 3, ... to 0, -1, 1, -2, ...
#[inline(always)]
pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Reverses [`unzigzag`].
#[inline(always)]
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}
