//! Protobuf fields, nested as in requests.

use core::str;

use crate::error::{Error, Fault};
use crate::protobuf::{TAG, bytes, skip};
use crate::reader::Reader;

/// How many bytes a base-128 number has.
pub(super) fn varint_len(number: u64) -> usize {
    // A seventh of the bits, rounded up, for up to 64 of them: without a division.
    let bits = 64 - (number | 1).leading_zeros() as usize;
    (9 * bits + 64) / 64
}

/// How many bytes a field with a tag of one byte and a body of this length has.
pub(super) fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Calls the function with the tag of each field; the function reads the body.
pub(super) fn each_field<'a>(
    input: &mut Reader<'a>,
    mut read: impl FnMut(u64, &mut Reader<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while !input.is_empty() {
        one_field(input, &mut read)?;
    }
    Ok(())
}

/// The same for the next field.
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

/// Reads a message in a field. A fault in it leaves the input at the fault, and is never that of an
/// incomplete input, since more bytes after the field cannot repair it.
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

/// The same fault, but not that of an incomplete input.
#[cold]
pub(super) fn complete(fault: Fault) -> Fault {
    if !fault.is_incomplete() {
        return fault;
    }
    Fault::malformed(Error::writing("", fault).expected())
}

/// Reads text in a field.
pub(super) fn text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Fault> {
    let before = *input;
    let bytes = bytes(input)?;
    str::from_utf8(bytes).map_err(|_| {
        *input = before;
        Fault::malformed("text in UTF-8")
    })
}

/// Skips a field that the message does not have. `known` has a bit for each field that it has; such
/// a field is a fault here, since it has another wire type.
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
