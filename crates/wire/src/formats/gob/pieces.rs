//! The building blocks of gob messages.

use crate::pieces::{Byte, Bytes, FixedPiece, Le64, Piece};

/// The number of the last written field, counted from 1.
pub(super) struct FieldCursor(pub(super) u8);

impl FieldCursor {
    /// Returns the byte that precedes a field.
    #[inline(always)]
    fn step(&mut self, number: u8) -> Byte {
        let step = number - self.0;
        self.0 = number;
        Byte(step)
    }

    #[inline(always)]
    pub(super) fn id<'a>(&mut self, number: u8, id: &'a [u8]) -> impl Piece + use<'a> {
        (!id.is_empty()).then(|| (self.step(number), Uint(id.len() as u64), Bytes(id)))
    }

    #[inline(always)]
    pub(super) fn int(&mut self, number: u8, value: i64) -> impl Piece + use<> {
        let uint = ((value << 1) ^ (value >> 63)) as u64;
        (value != 0).then(|| (self.step(number), Uint(uint)))
    }

    #[inline(always)]
    pub(super) fn double(&mut self, number: u8, value: f64) -> impl Piece + use<> {
        (value != 0.0).then(|| (self.step(number), Double(value)))
    }

    #[inline(always)]
    pub(super) fn doubles<'a>(&mut self, number: u8, values: &'a [f64]) -> impl Piece + use<'a> {
        (!values.is_empty())
            .then(|| (self.step(number), Uint(values.len() as u64), Doubles(values)))
    }
}

#[derive(Clone, Copy)]
struct Uint(u64);

// SAFETY: This writes at most 9 bytes without a gap, and its end is within them.
unsafe impl Piece for Uint {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let number = self.0;
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            if number < 128 {
                return Byte(number as u8).put(at);
            }
            let unused = number.leading_zeros() / 8;
            let bytes = Le64((number << (8 * unused)).swap_bytes());
            (Byte(unused.wrapping_sub(8) as u8), bytes).put(at).sub(unused as usize)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Uint {
    const BOUND: usize = 9;
}

#[derive(Clone, Copy)]
struct Double(f64);

// SAFETY: This writes at most 9 bytes without a gap, and its end is within them.
unsafe impl Piece for Double {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    /// Writes without a branch, because lengths differ from value to value.
    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        let bits = self.0.to_bits();
        // Counts the zero bytes that the wire format omits. At least one byte remains.
        let unused = (bits | 1 << 63).trailing_zeros() / 8;
        let bytes = bits >> (8 * unused);
        let long = usize::from(bits & !(0x7f << 56) != 0);
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            Byte(unused.wrapping_sub(8) as u8).put(at);
            Le64(bytes).put(at.add(long)).sub(unused as usize)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Double {
    const BOUND: usize = 9;
}

#[derive(Clone, Copy)]
struct Doubles<'a>(&'a [f64]);

// SAFETY: This writes at most 9 bytes for each value.
unsafe impl Piece for Doubles<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().saturating_mul(Double::BOUND)
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        for value in self.0 {
            // SAFETY: `at` is valid for 9 bytes for each remaining value.
            at = unsafe { Double(*value).put(at) };
        }
        at
    }
}

/// A message prefixed with its length.
pub(super) struct DelimitedMessage<P>(pub(super) P);

// SAFETY: The message is written a few bytes after the start, and is then moved to the end of its
// length. The length takes at most 9 bytes.
unsafe impl<P: Piece> Piece for DelimitedMessage<P> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.bound().saturating_add(Uint::BOUND)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // The likely size of the length. Few messages are close to their bound.
        let room = match self.0.bound() {
            0..192 => 1,
            bound => 1 + (usize::BITS - bound.leading_zeros()).div_ceil(8) as usize,
        };
        // SAFETY: `at` is valid for the bound of the message and 9 bytes.
        unsafe {
            let start = at.add(room);
            let end = self.0.put(start);
            let len = end.offset_from(start) as usize;
            if room == 1 && len < 128 {
                Byte(len as u8).put(at);
                return end;
            }
            close(at, start, len)
        }
    }
}

/// Moves a message from `start` to the end of its length, and writes the length.
///
/// # Safety
///
/// `at` is valid for writes of 9 + `len` bytes, and the message is within them.
#[inline(never)]
unsafe fn close(at: *mut u8, start: *const u8, len: usize) -> *mut u8 {
    let mut prefix = [0; Uint::BOUND];
    // SAFETY: The prefix is large enough for a uint, and `at` is valid for the uint and the
    // message.
    unsafe {
        let size = Uint(len as u64).put(prefix.as_mut_ptr()).offset_from(prefix.as_ptr()) as usize;
        let message = at.add(size);
        if start != message {
            core::ptr::copy(start, message, len);
        }
        core::ptr::copy_nonoverlapping(prefix.as_ptr(), at, size);
        message.add(len)
    }
}
