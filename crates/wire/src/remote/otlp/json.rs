//! Converts OTLP's JSON to protobuf, so you can read it with
//! [`MetricsReader`](super::MetricsReader).
//!
//! The mapping follows <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: keys are
//! in lowerCamelCase, 64-bit integers are numbers or strings, enumerations are numbers, trace and
//! span ids are hexadecimal, and unknown keys are ignored.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use quipu_arena::Arena;
use serde_core::Deserializer;
use serde_core::de::{
    DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::schema::{FieldType, REQUEST, SchemaField, SchemaMessage};
use crate::base64;
use crate::reader::zigzag;

/// Converts a JSON request to protobuf. The result is at most a few times as long as the input.
///
/// # Errors
///
/// When the input is not JSON, or not a request.
pub fn metrics_request_from_json(json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    let mut input = serde_json::Deserializer::from_slice(json);
    (&mut input)
        .deserialize_map(Fields { message: &REQUEST, out: &mut out })
        .and_then(|()| input.end())
        .map_err(|error| JsonError(error.to_string()))?;
    Ok(out)
}

/// The error for JSON that is not a request. The message contains the line and the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "otlp: {}", self.0)
    }
}

impl core::error::Error for JsonError {}

/// Reads the object of a message and appends its fields.
struct Fields<'o> {
    message: &'static SchemaMessage,
    out: &'o mut Vec<u8>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object, the message {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Key(self.message))? {
            match field {
                Some(field) => {
                    map.next_value_seed(Contents { field, out: self.out, in_list: false })?
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Looks up the field for a key.
struct Key(&'static SchemaMessage);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static SchemaField>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static SchemaField>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| field.name == key))
    }
}

/// Reads a value and appends its field. Null means the same as a missing key.
struct Contents<'o> {
    field: &'static SchemaField,
    out: &'o mut Vec<u8>,
    in_list: bool,
}

impl<'de> DeserializeSeed<'de> for Contents<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl Contents<'_> {
    fn is_one(&self) -> bool {
        self.in_list || !self.field.is_list
    }

    fn varint(&mut self, number: u64) {
        self.tag(0);
        push_varint(self.out, number);
    }

    fn fixed(&mut self, number: u64) {
        self.tag(1);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.tag(2);
        push_varint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn tag(&mut self, wire_type: u8) {
        // Field numbers are below 16.
        self.out.push(self.field.number << 3 | wire_type);
    }

    /// Appends an integer. Returns false if it does not fit the type of the field.
    fn integer(&mut self, number: i128) -> bool {
        let unsigned = u64::try_from(number);
        let signed = i64::try_from(number);
        match self.field.kind {
            FieldType::Unsigned => unsigned.map(|number| self.varint(number)).is_ok(),
            FieldType::Fixed => unsigned.map(|number| self.fixed(number)).is_ok(),
            FieldType::Int => signed.map(|number| self.varint(number as u64)).is_ok(),
            FieldType::SignedFixed => signed.map(|number| self.fixed(number as u64)).is_ok(),
            FieldType::Signed => {
                i32::try_from(number).map(|number| self.varint(zigzag(i64::from(number)))).is_ok()
            }
            FieldType::Double => {
                self.fixed((number as f64).to_bits());
                true
            }
            _ => false,
        }
    }

    fn double(&mut self, number: f64) -> bool {
        if self.field.kind == FieldType::Double {
            self.fixed(number.to_bits());
            return true;
        }
        // Any integer can be written with an exponent or a point. Casts saturate.
        let whole = number as i128;
        whole as f64 == number && self.integer(whole)
    }

    fn text(&mut self, text: &str) -> bool {
        match self.field.kind {
            FieldType::Text => self.bytes(text.as_bytes()),
            FieldType::Hex => match from_hex(text) {
                Some(bytes) => self.bytes(&bytes),
                None => return false,
            },
            FieldType::Base64 => {
                return Arena::new().scoped(|scope| {
                    let bytes = base64::decode(text.as_bytes(), &scope);
                    bytes.map(|bytes| self.bytes(bytes)).is_ok()
                });
            }
            FieldType::Double => {
                let number = match text {
                    "Infinity" => Ok(f64::INFINITY),
                    "-Infinity" => Ok(f64::NEG_INFINITY),
                    text => text.parse(),
                };
                return number.is_ok_and(|number| self.double(number));
            }
            FieldType::Unsigned if self.field.is_enum => return false,
            _ => {
                return text.parse().is_ok_and(|number: i64| self.integer(number.into()))
                    || text.parse().is_ok_and(|number: u64| self.integer(number.into()));
            }
        }
        true
    }
}

impl<'de> Visitor<'de> for Contents<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SchemaField { name, kind, .. } = self.field;
        match (self.is_one(), kind) {
            (false, _) => write!(f, "a list for {name}"),
            (true, FieldType::Message(message)) => {
                write!(f, "an object, the message {}", message.name)
            }
            (true, kind) => write!(f, "{} for {name}", kind.expected()),
        }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde_core::de::Error>(mut self, value: bool) -> Result<(), E> {
        if self.is_one() && self.field.kind == FieldType::Bool {
            self.varint(u64::from(value));
            return Ok(());
        }
        Err(E::invalid_type(Unexpected::Bool(value), &self))
    }

    fn visit_i64<E: serde_core::de::Error>(mut self, number: i64) -> Result<(), E> {
        if self.is_one() && self.integer(number.into()) {
            return Ok(());
        }
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: serde_core::de::Error>(mut self, number: u64) -> Result<(), E> {
        if self.is_one() && self.integer(number.into()) {
            return Ok(());
        }
        Err(E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: serde_core::de::Error>(mut self, number: f64) -> Result<(), E> {
        if self.is_one() && self.double(number) {
            return Ok(());
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: serde_core::de::Error>(mut self, text: &str) -> Result<(), E> {
        if self.is_one() && self.text(text) {
            return Ok(());
        }
        let shown = text.chars().take(40).collect::<String>();
        Err(E::invalid_value(Unexpected::Str(&shown), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_one() {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let field = self.field;
        while list.next_element_seed(Contents { field, out: self.out, in_list: true })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        let FieldType::Message(message) = self.field.kind else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        if !self.is_one() {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        self.tag(2);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH]);
        Fields { message, out: self.out }.visit_map(map)?;
        let mut len = self.out.len() - start - LENGTH;
        // The room for the length was reserved before the length was known, so it is padded.
        for (index, byte) in self.out[start..start + LENGTH].iter_mut().enumerate() {
            *byte = (len & 0x7f) as u8 | if index + 1 < LENGTH { 0x80 } else { 0 };
            len >>= 7;
        }
        Ok(())
    }
}

/// The number of bytes reserved for the length of a message. Five bytes hold 35 bits.
const LENGTH: usize = 5;

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
    if odd.is_empty() { pairs.iter().map(byte).collect() } else { None }
}
