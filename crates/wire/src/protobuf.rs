//! The protobuf reader that metric messages and the requests of `remote` share.

use crate::error::Fault;
use crate::reader::Reader;

pub(crate) const TAG: &str = "the tag of a field";

#[inline(always)]
pub(crate) fn bytes<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = input.varint("the length of bytes")?;
    input.take_long(len, "bytes as long as their length says")
}

#[inline(always)]
pub(crate) fn double(input: &mut Reader<'_>) -> Result<f64, Fault> {
    Ok(f64::from_le_bytes(input.array("a double")?))
}

/// Skips an unknown field. Fields up to the number `known` belong to the message. Such a field is a
/// fault here, because its wire type differs.
#[cold]
#[inline(never)]
pub(crate) fn skip(input: &mut Reader<'_>, tag: u64, known: u64) -> Result<(), Fault> {
    const EXPECTED: &str = "a field with a valid number and wire type";
    let field = tag >> 3;
    if field == 0 || field <= known || field >= 1 << 29 {
        return Err(Fault::malformed(EXPECTED));
    }
    match tag & 7 {
        0 => input.varint("a number").map(drop),
        1 => input.array::<8>("8 bytes").map(drop),
        2 => bytes(input).map(drop),
        3 => skip_group(input, field),
        5 => input.array::<4>("4 bytes").map(drop),
        _ => Err(Fault::malformed(EXPECTED)),
    }
}

/// Skips a group, the old form of a nested message, including nested groups.
fn skip_group(input: &mut Reader<'_>, field: u64) -> Result<(), Fault> {
    const DEPTH: usize = 100;
    let mut open = [0; DEPTH];
    open[0] = field;
    let mut depth = 1;
    while depth > 0 {
        let tag = input.varint(TAG)?;
        match tag & 7 {
            3 if depth == DEPTH => return Err(Fault::too_large("at most 100 nested groups")),
            3 => {
                open[depth] = tag >> 3;
                depth += 1;
            }
            4 if open[depth - 1] == tag >> 3 => depth -= 1,
            0 => drop(input.varint("a number")?),
            1 => drop(input.array::<8>("8 bytes")?),
            2 => drop(bytes(input)?),
            5 => drop(input.array::<4>("4 bytes")?),
            _ => return Err(Fault::malformed("a field within a group, or its end")),
        }
    }
    Ok(())
}
