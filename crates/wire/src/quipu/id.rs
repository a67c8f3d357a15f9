//! Packed ids: 5 or 6 bits per character, if all characters are among the 32 or 64 most usual.
//!
//! ```text
//! 5 bits  a to z, then = , . _ - /
//! 6 bits  the same, then 0 to 9, then : ; { } " @ + ~ % # * & ? ! < > ( ) [ ] | and the space
//! ```
//!
//! The first character is in the lowest bits of the first byte. 8 characters take 5 or 6 bytes. The
//! last group takes only the bytes that it needs, and unused bits of the last byte are zero.

use core::mem::MaybeUninit;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::pieces::{Le64, Piece};
use crate::reader::Reader;
use crate::values;

const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz=,._-/0123456789:;{}\"@+~%#*&?!<>()[]| ";

/// Marks a byte without a code.
const NONE: u8 = 0xff;

static CODES: [u8; 256] = {
    let mut codes = [NONE; 256];
    let mut code = 0;
    while code < CHARACTERS.len() {
        codes[CHARACTERS[code] as usize] = code as u8;
        code += 1;
    }
    codes
};

/// Returns the bits per character of the id, or `None` if a character has no code.
#[inline(always)]
pub(super) fn width(id: &[u8]) -> Option<usize> {
    match id.iter().fold(0, |codes, byte| codes | CODES[usize::from(*byte)]) {
        0..32 => Some(5),
        32..64 => Some(6),
        _ => None,
    }
}

/// An id whose characters all have a code of `width` bits.
#[derive(Clone, Copy)]
pub(super) struct PackedId<'a> {
    pub(super) id: &'a [u8],
    pub(super) width: usize,
}

// SAFETY: 6 bits are less than a byte, and 8 bytes are written where the last group begins.
unsafe impl Piece for PackedId<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.id.len().saturating_add(8)
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        let (groups, rest) = self.id.as_chunks::<8>();
        // SAFETY: `at` is valid for the bound.
        unsafe {
            for group in groups {
                Le64(pack(group, self.width)).put(at);
                at = at.add(self.width);
            }
            let mut group = [CHARACTERS[0]; 8];
            group[..rest.len()].copy_from_slice(rest);
            Le64(pack(&group, self.width)).put(at);
            at.add((rest.len() * self.width).div_ceil(8))
        }
    }
}

#[inline(always)]
fn pack(group: &[u8; 8], width: usize) -> u64 {
    let mut bits = 0;
    for (index, byte) in group.iter().enumerate() {
        bits |= u64::from(CODES[usize::from(*byte)]) << (index * width);
    }
    bits
}

/// Reads an id of `len` characters of `width` bits.
#[inline(always)]
pub(super) fn read<'m>(
    input: &mut Reader<'m>,
    len: u64,
    width: usize,
    scope: &Scope<'m>,
) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "an id as long as its length says";
    // A character takes at least 5 bits, so the input cannot contain more than two per byte. Up to
    // this limit, the product with 6 does not overflow.
    let len = match usize::try_from(len) {
        Ok(len) if len / 2 <= input.len() => len,
        _ => return Err(Fault::incomplete(EXPECTED)),
    };
    let bytes = len / 8 * width + (len % 8 * width).div_ceil(8);
    let mut packed = Reader::new(input.take(bytes, EXPECTED)?);
    let room = values::room::<u8>(len, scope)?;
    let (groups, rest) = room.as_chunks_mut::<8>();
    for group in groups {
        unpack(packed.little_endian(width, EXPECTED)?, width, group);
    }
    if !rest.is_empty() {
        let bits = packed.little_endian(packed.len(), EXPECTED)?;
        if bits >> (rest.len() * width) != 0 {
            return Err(Fault::malformed("zeros after the last character"));
        }
        unpack(bits, width, rest);
    }
    // SAFETY: Both parts were written, and together they are the whole.
    Ok(unsafe { values::assume_init(room) })
}

#[inline(always)]
fn unpack(mut bits: u64, width: usize, characters: &mut [MaybeUninit<u8>]) {
    let mask = (1 << width) - 1;
    for character in characters {
        character.write(CHARACTERS[(bits & mask) as usize & 63]);
        bits >>= width;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::pieces::append;

    #[test]
    fn ids_of_any_length() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for (characters, bits) in [(32, 5), (64, 6)] {
            for len in (0..200).step_by(if cfg!(miri) { 13 } else { 1 }) {
                let id: Vec<u8> =
                    (0..len).map(|i| CHARACTERS[(i * 7 + len) % characters]).collect();
                let Some(width) = width(&id) else { panic!() };
                assert!(width <= bits);
                let mut out = Vec::new();
                append(&mut out, PackedId { id: &id, width });
                assert_eq!(out.len(), (len / 8) * width + (len % 8 * width).div_ceil(8));
                let mut input = Reader::new(&out);
                assert_eq!(read(&mut input, len as u64, width, &scope).unwrap(), id);
                assert!(input.is_empty());
            }
        }
        assert_eq!(width(b"Name"), None);
        assert!(read(&mut Reader::new(b"abc"), u64::MAX, 5, &scope).unwrap_err().is_incomplete());
    }
}
