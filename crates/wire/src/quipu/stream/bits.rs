//! Bit-packed columns of numbers: each group of numbers uses the width of its largest number.
//!
//! A column is split into groups of 32 numbers; the last group can be shorter. A group begins with
//! a byte for the width. Then this number of bits follows for each number, the first in the lowest
//! bits of the first byte. A group ends with a whole byte. A width above 31 is a multiple of 8, so
//! a number never spans more than 8 bytes.

use crate::error::Fault;
use crate::pieces::{Byte, Le64, Piece};
use crate::reader::Reader;

/// The maximum count of numbers in a group.
pub(super) const GROUP: usize = 32;
/// Up to here, any width is allowed.
pub(super) const NARROW: u32 = 31;

/// A column to write.
#[derive(Clone, Copy)]
pub(super) struct Column<'a>(pub(super) &'a [u64]);

// SAFETY: A group takes a byte for its width and at most 8 bytes for each number. Stores exceed the
// end of a number by less than 32 bytes.
unsafe impl Piece for Column<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len() * 8 + self.0.len().div_ceil(GROUP) + 32
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        for group in self.0.chunks(GROUP) {
            // SAFETY: `at` is valid for the bound.
            at = unsafe { put_group(group, at) };
        }
        at
    }
}

/// # Safety
///
/// `at` is valid for 8 bytes for each number, and 33 more.
#[inline(always)]
unsafe fn put_group(group: &[u64], at: *mut u8) -> *mut u8 {
    let width = width(group.iter().fold(0, |all, number| all | number));
    // SAFETY: `width` is at most 64, so a number takes at most 8 bytes. Eight numbers take less
    // than 32 bytes, which `put_eight` needs.
    unsafe {
        let mut at = Byte(width as u8).put(at);
        if width > NARROW {
            for number in group {
                Le64(*number).put(at);
                at = at.add(width as usize / 8);
            }
            return at;
        }
        let (eights, rest) = group.as_chunks::<8>();
        for eight in eights {
            put_eight(eight, width, at);
            at = at.add(width as usize);
        }
        if rest.is_empty() {
            return at;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        put_eight(&last, width, at);
        at.add((rest.len() * width as usize).div_ceil(8))
    }
}

/// Returns the width for numbers whose union of bits is `bits`.
#[inline(always)]
fn width(bits: u64) -> u32 {
    let width = 64 - bits.leading_zeros();
    if width > NARROW { width.next_multiple_of(8) } else { width }
}

/// Writes eight numbers of at most [`NARROW`] bits, without a branch that depends on the width.
///
/// # Safety
///
/// `at` is valid for 32 bytes. The numbers have at most `width` bits.
#[inline(always)]
pub(super) unsafe fn put_eight(numbers: &[u64; 8], width: u32, at: *mut u8) {
    debug_assert!(width <= NARROW, "wider numbers are not packed");
    let four = |four: &[u64]| {
        let pair = |low: u64, high: u64| u128::from(low | high << width);
        pair(four[0], four[1]) | pair(four[2], four[3]) << (2 * width)
    };
    // The second four begin in the byte where the first four end.
    let (bytes, bits) = (4 * width / 8, 4 * width % 8);
    let (low, high) = (four(&numbers[..4]), four(&numbers[4..]));
    // SAFETY: `bytes` is at most 15, so the second store ends within 31 bytes.
    unsafe {
        at.cast::<[u8; 16]>().write_unaligned(low.to_le_bytes());
        let both = high << bits | low >> (8 * bytes);
        at.add(bytes as usize).cast::<[u8; 16]>().write_unaligned(both.to_le_bytes());
    }
}

/// Reads a column into a slice of the same length.
#[inline(always)]
pub(super) fn read(
    input: &mut Reader<'_>,
    column: &mut [u64],
    expected: &'static str,
) -> Result<(), Fault> {
    for group in column.chunks_mut(GROUP) {
        let before = *input;
        let width = usize::from(input.byte(expected)?);
        if width > 64 || width > NARROW as usize && !width.is_multiple_of(8) {
            *input = before;
            return Err(Fault::malformed("a width of 0 to 31, 40, 48, 56 or 64 bits"));
        }
        let bytes = (group.len() * width).div_ceil(8);
        if let Some(ahead) = input.rest().get(..bytes + 8) {
            unpack(ahead, width, group);
            input.advance(bytes);
        } else {
            let mut padded = [0; GROUP * 8 + 8];
            let packed = input.take(bytes, expected)?;
            padded[..bytes].copy_from_slice(packed);
            unpack(&padded, width, group);
        }
    }
    Ok(())
}

/// Unpacks the numbers of a group. At least 8 more bytes must follow its bits.
#[inline(always)]
fn unpack(packed: &[u8], width: usize, group: &mut [u64]) {
    // A width of 0 makes every number 0.
    let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
    assert!(packed.len() >= (group.len() * width).div_ceil(8) + 8, "8 bytes follow the last bit");
    for (index, number) in group.iter_mut().enumerate() {
        let bit = index * width;
        // SAFETY: The number begins in one of the group's bytes or right after them, and 8 more
        // bytes follow.
        let word = unsafe { packed.as_ptr().add(bit / 8).cast::<[u8; 8]>().read_unaligned() };
        *number = u64::from_le_bytes(word) >> (bit % 8) & mask;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::pieces::append;

    fn packed(column: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, Column(column));
        out
    }

    #[test]
    fn columns_of_any_width_and_length_are_read_as_they_were_written() {
        for width in (0..=64u32).step_by(if cfg!(miri) { 7 } else { 1 }) {
            let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
            for len in [0, 1, 7, 8, 9, 31, 32, 33, 64, 255] {
                let mut number = 0x9e37_79b9_7f4a_7c15u64;
                let mut column: Vec<u64> = Vec::new();
                for _ in 0..len {
                    number = number.rotate_left(5).wrapping_mul(0xd129_0d3d_4f4a_7c15);
                    column.push(number & mask);
                }
                let mut out = packed(&column);
                let end = out.len();
                // With and without bytes after the column.
                for more in [0, 3, 20] {
                    out.resize(end + more, 0xff);
                    let mut input = Reader::new(&out);
                    let mut numbers = [7; 255];
                    read(&mut input, &mut numbers[..len], "").unwrap();
                    assert_eq!(numbers[..len], column, "{width} bits");
                    assert_eq!(input.position(), end);
                }
                for cut in (0..end).step_by(if cfg!(miri) { 50 } else { 1 }) {
                    let mut numbers = [0; 255];
                    let fault = read(&mut Reader::new(&out[..cut]), &mut numbers[..len], "");
                    assert!(fault.unwrap_err().is_incomplete());
                }
            }
        }
    }

    #[test]
    fn a_group_takes_the_bits_of_its_widest_number() {
        assert!(packed(&[]).is_empty());
        assert_eq!(packed(&[0; 40]), [0, 0]);
        assert_eq!(packed(&[1, 0, 1]), [1, 0b101]);
        assert_eq!(packed(&[5, 6, 7]), [3, 0b1111_0101, 0b1]);
        assert_eq!(packed(&[1 << 31]), [32, 0, 0, 0, 0x80]);
        assert_eq!(packed(&[1 << 32]).len(), 1 + 5);
        assert_eq!(packed(&[u64::MAX, 0]).len(), 1 + 16);
    }

    #[test]
    fn a_width_that_spans_nine_bytes_is_refused() {
        for width in [33, 39, 41, 63, 65, 255] {
            let mut bytes = [0; 300];
            bytes[0] = width;
            let mut input = Reader::new(&bytes);
            let fault = read(&mut input, &mut [0; 32], "").unwrap_err();
            assert!(!fault.is_incomplete());
            assert_eq!(input.position(), 0);
        }
    }
}
