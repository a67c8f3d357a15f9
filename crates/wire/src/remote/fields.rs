//! Reads nested protobuf fields, and computes the lengths of fields.

use core::str;

use crate::error::{Error, Fault};
use crate::protobuf::{TAG, bytes, skip};
use crate::reader::Reader;

/// Returns the number of bytes of a base-128 number.
pub(super) fn varint_len(number: u64) -> usize {
    // Divides the number of bits by seven, rounding up. This formula is right for up to 64 bits and
    // needs no division.
    let bits = 64 - (number | 1).leading_zeros() as usize;
    (9 * bits + 64) / 64
}

/// Returns the number of bytes of a field with a one-byte tag and a body of this length.
pub(super) fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Calls `read` with the tag of each field. The function must read the field's body.
pub(super) fn each_field<'a>(
    input: &mut Reader<'a>,
    mut read: impl FnMut(u64, &mut Reader<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while !input.is_empty() {
        one_field(input, &mut read)?;
    }
    Ok(())
}

/// Calls `read` for the next field only.
pub(super) fn one_field<'a, T>(
    input: &mut Reader<'a>,
    read: impl FnOnce(u64, &mut Reader<'a>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let before = *input;
    let tag = input.varint(TAG)?;
    let field = *input;
    read(tag, input).inspect_err(|fault| {
        // The field itself is wrong, so the fault is at its tag.
        if input.position() == field.position() && !fault.is_incomplete() {
            *input = before;
        }
    })
}

/// Reads a message in a field. On a fault, the input stays at the fault. The fault is never
/// reported as incomplete input, because more bytes after the field cannot repair it.
pub(super) fn nested<'a, T>(
    input: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let before = *input;
    let body = bytes(input)?;
    let mut inner = Reader::new(body);
    read(&mut inner).map_err(|fault| {
        let header = input.position() - before.position() - body.len();
        *input = before;
        let moved = input.take(header + inner.position(), "").map(drop);
        debug_assert!(moved.is_ok(), "the fault lies in the body");
        complete(fault)
    })
}

/// Turns a fault of incomplete input into a final one.
#[cold]
pub(super) fn complete(fault: Fault) -> Fault {
    if !fault.is_incomplete() {
        return fault;
    }
    Fault::malformed(Error::writing("", fault).expected())
}

/// Reads a string in a field.
pub(super) fn text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Fault> {
    let before = *input;
    let bytes = bytes(input)?;
    str::from_utf8(bytes).map_err(|_| {
        *input = before;
        Fault::malformed("text in UTF-8")
    })
}

/// Skips an unknown field. `known` contains a bit for each field of the message. Such a field is a
/// fault here, because its wire type differs.
pub(super) fn skip_unknown(input: &mut Reader<'_>, tag: u64, known: u32) -> Result<(), Fault> {
    if tag >> 3 < 32 && known >> (tag >> 3) & 1 == 1 {
        return Err(Fault::malformed("a field with the wire type that it has in the message"));
    }
    skip(input, tag, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_groups_of_seven_bits() {
        assert_eq!(varint_len(0), 1);
        for bit in 0..64 {
            let number = 1_u64 << bit;
            for number in [number, number | (number - 1)] {
                assert_eq!(varint_len(number), bit / 7 + 1, "{number}");
            }
        }
    }
}
