//! The context that a process publishes in its memory for programs beside it, by OpenTelemetry's
//! proposal 4719. This is its payload; the header is not part of any message.
//!
//! ```text
//! message ProcessContext     { Resource resource = 1; repeated KeyValue attributes = 2; }
//! ```
//!
//! Programs that follow the first text of the proposal publish a `Resource` alone. Nothing in the
//! header tells which one it is.

use alloc::vec::Vec;

use super::attributes::{self, Attribute};
use crate::error::{Error, Fault};
use crate::protobuf::bytes;
use crate::reader::Reader;
use crate::remote::fields::{each_field, nested, skip_unknown};

/// Reads the attributes of the resource in the payload of a process context: a `ProcessContext`, or
/// a `Resource` alone.
///
/// # Errors
///
/// When it is neither, or has more than 4,096 attributes.
pub fn read_process_context(payload: &[u8]) -> Result<Vec<Attribute<'_>>, Error> {
    let mut attributes = Vec::new();
    let mut input = Reader::new(payload);
    let read = if is_wrapped(payload) {
        each_field(&mut input, |tag, input| match tag {
            0x0a => nested(input, |input| resource(&mut attributes, input)),
            tag => skip_unknown(input, tag, 0b10),
        })
    } else {
        resource(&mut attributes, &mut input)
    };
    read.map_err(|fault| Error::reading("otlp", input.position() as u64, fault))?;
    Ok(attributes)
}

fn resource<'a>(attributes: &mut Vec<Attribute<'a>>, input: &mut Reader<'a>) -> Result<(), Fault> {
    each_field(input, |tag, input| match tag {
        0x0a => attributes::push(attributes, input),
        tag => skip_unknown(input, tag, 0b10),
    })
}

/// Whether the payload is a `ProcessContext`: then its field 1 is a resource, whose field 1 is an
/// attribute. In a resource alone, field 1 is an attribute, whose field 1 is its key: a text, which
/// is not an attribute with a key unless it has a line feed.
fn is_wrapped(payload: &[u8]) -> bool {
    let inner = first(payload).and_then(first);
    let attribute = inner.map(|inner| attributes::attribute(&mut Reader::new(inner)));
    matches!(attribute, Some(Ok((key, _))) if !key.is_empty())
}

/// The body of the first field 1 that has any contents.
fn first(message: &[u8]) -> Option<&[u8]> {
    let mut found: Option<&[u8]> = None;
    let read = each_field(&mut Reader::new(message), |tag, input| match tag {
        0x0a if found.is_none() => {
            found = Some(bytes(input)?).filter(|body| !body.is_empty());
            Ok(())
        }
        tag => skip_unknown(input, tag, 0),
    });
    read.ok().and(found)
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;

    /// A field with a body.
    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat()
    }

    fn attribute(key: &str, text: &str) -> Vec<u8> {
        [field(1, key.as_bytes()), field(2, &field(1, text.as_bytes()))].concat()
    }

    #[test]
    fn both_forms_are_told_apart() {
        let resource = [
            field(1, &attribute("service.name", "cart")),
            b"\x10\x01".to_vec(),
            field(1, &attribute("a", "b")),
            field(3, b"\x0a\x00"),
        ];
        let resource = resource.concat();
        let expected = [("service.name", Value::Text("cart")), ("a", Value::Text("b"))];
        assert_eq!(read_process_context(&resource).unwrap(), expected);
        let wrapped = [field(2, &attribute("x", "y")), field(1, &resource), field(3, b"?")];
        assert_eq!(read_process_context(&wrapped.concat()).unwrap(), expected);
        // Nothing, an empty resource, and keys without values.
        assert!(read_process_context(b"").unwrap().is_empty());
        assert_eq!(read_process_context(b"\x0a\x00\x12\x00").unwrap(), [("", Value::Empty)]);
        for key in ["k", "z\x02ab", "*"] {
            let alone = field(1, &field(1, key.as_bytes()));
            assert_eq!(read_process_context(&alone).unwrap(), [(key, Value::Empty)], "{key:?}");
            let wrapped = field(1, &alone);
            assert_eq!(read_process_context(&wrapped).unwrap(), [(key, Value::Empty)], "{key:?}");
        }
    }

    #[test]
    fn every_truncation_is_an_error_or_has_fewer_attributes() {
        let resource = [("service.name", "cart"), ("service.instance.id", "i-1")];
        let fields = resource.map(|(key, text)| field(1, &attribute(key, text)));
        for payload in [fields.concat(), field(1, &fields.concat())] {
            assert_eq!(read_process_context(&payload).unwrap().len(), 2);
            for end in 0..payload.len() {
                match read_process_context(&payload[..end]) {
                    Ok(attributes) => assert!(attributes.len() < 2),
                    Err(error) => assert!(error.offset().unwrap() <= end as u64, "{error}"),
                }
            }
        }
        let many = field(1, b"").repeat(4097);
        assert!(read_process_context(&many).unwrap_err().is_too_large());
    }
}
