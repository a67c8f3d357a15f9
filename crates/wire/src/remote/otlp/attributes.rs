//! Attributes: keys with values of any type.

use alloc::vec::Vec;

use crate::error::Fault;
use crate::protobuf::{bytes, double};
use crate::reader::Reader;
use crate::remote::fields::{each_field, nested, skip_unknown, text};

/// A key and its value.
pub type Attribute<'a> = (&'a str, AttributeValue<'a>);

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttributeValue<'a> {
    /// No value.
    Empty,
    /// A string.
    Text(&'a str),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list or a map: the encoded `AnyValue`.
    Nested(&'a [u8]),
}

impl<'a> AttributeValue<'a> {
    /// Reads an encoded `AnyValue`, such as the bytes in [`AttributeValue::Nested`].
    fn read(input: &mut Reader<'a>) -> Result<Self, Fault> {
        let whole = input.rest();
        let mut value = AttributeValue::Empty;
        each_field(input, |tag, input| {
            match tag {
                0x0a => value = AttributeValue::Text(text(input)?),
                0x10 => value = AttributeValue::Bool(input.varint("a boolean")? != 0),
                0x18 => value = AttributeValue::Int(input.varint("an integer")? as i64),
                0x21 => value = AttributeValue::Double(double(input)?),
                0x2a | 0x32 => {
                    bytes(input)?;
                    value = AttributeValue::Nested(whole);
                }
                0x3a => value = AttributeValue::Bytes(bytes(input)?),
                tag => skip_unknown(input, tag, 0b1111_1110)?,
            }
            Ok(())
        })?;
        Ok(value)
    }

    /// Decodes a list or a map, and calls the function with each item or entry. An item of a list
    /// has no key. Returns true for a map, false for a list, and `None` if `encoded` is neither or
    /// is malformed.
    pub fn each_nested(
        encoded: &'a [u8],
        mut each: impl FnMut(Option<&'a str>, AttributeValue<'a>),
    ) -> Option<bool> {
        let mut is_map = None;
        let read = each_field(&mut Reader::new(encoded), |tag, input| match tag {
            0x2a => {
                is_map = Some(false);
                nested(input, |input| {
                    each_field(input, |tag, input| match tag {
                        0x0a => nested(input, AttributeValue::read).map(|value| each(None, value)),
                        tag => skip_unknown(input, tag, 0b10),
                    })
                })
            }
            0x32 => {
                is_map = Some(true);
                nested(input, |input| {
                    each_field(input, |tag, input| match tag {
                        0x0a => nested(input, attribute).map(|(key, value)| each(Some(key), value)),
                        tag => skip_unknown(input, tag, 0b10),
                    })
                })
            }
            tag => skip_unknown(input, tag, 0),
        });
        read.ok().and(is_map)
    }
}

/// Reads an attribute in a field and appends it.
pub(super) fn push<'a>(
    attributes: &mut Vec<Attribute<'a>>,
    input: &mut Reader<'a>,
) -> Result<(), Fault> {
    if attributes.len() == MOST {
        return Err(Fault::too_large("at most 4,096 attributes"));
    }
    attributes.push(nested(input, attribute)?);
    Ok(())
}

/// Reads an attribute.
pub(super) fn attribute<'a>(input: &mut Reader<'a>) -> Result<Attribute<'a>, Fault> {
    let mut attribute = ("", AttributeValue::Empty);
    each_field(input, |tag, input| {
        match tag {
            0x0a => attribute.0 = text(input)?,
            0x12 => attribute.1 = nested(input, AttributeValue::read)?,
            tag => skip_unknown(input, tag, 0b110)?,
        }
        Ok(())
    })?;
    Ok(attribute)
}

/// Limits the number of attributes, because an empty one has two bytes but takes 40 in memory.
const MOST: usize = 4096;
