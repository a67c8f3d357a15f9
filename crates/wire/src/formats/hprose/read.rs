//! Reads objects of any class, with values in any form that Hprose supports.

use quipu_arena::Scope;

use crate::error::Fault;
use crate::message::{MetricType, MetricUnion};
use crate::number;
use crate::reader::Reader;
use crate::values;

/// The fields of a message, with their names.
pub(super) type ObjectFields = &'static [(&'static str, ObjectField)];

#[derive(Clone, Copy)]
pub(super) enum ObjectField {
    Type,
    Id,
    Counter,
    Timer,
    Gauge,
}

pub(super) const COUNTER: ObjectFields =
    &[("iD", ObjectField::Id), ("value", ObjectField::Counter)];
pub(super) const BATCH_TIMER: ObjectFields =
    &[("iD", ObjectField::Id), ("values", ObjectField::Timer)];
pub(super) const GAUGE: ObjectFields = &[("iD", ObjectField::Id), ("value", ObjectField::Gauge)];
pub(super) const METRIC_UNION: ObjectFields = &[
    ("type", ObjectField::Type),
    ("iD", ObjectField::Id),
    ("counterVal", ObjectField::Counter),
    ("batchTimerVal", ObjectField::Timer),
    ("gaugeVal", ObjectField::Gauge),
];

/// The classes defined so far. A writer of our four messages defines at most four.
#[derive(Debug, Default)]
pub struct Classes {
    first: [Class; 16],
    /// The number of classes, including those beyond the array.
    pub(super) len: usize,
}

/// The positions of the message's fields in the class.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// The position of each of the message's fields, in their order, counted from 1; 0 if absent.
    places: [usize; 5],
    len: usize,
}

impl Classes {
    /// Reads an object of a message's class and the definitions before.
    #[inline(never)]
    pub(super) fn object<'m>(
        &mut self,
        fields: ObjectFields,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<MetricUnion<'m>, Fault> {
        while input.peek() == Some(b'c') {
            self.define(fields, input)?;
        }
        let before = *input;
        input.literal(b"o", "a class, or an object")?;
        let number = count(input, b'{')?;
        let class = usize::try_from(number).ok().filter(|number| *number < self.len);
        let class = class.and_then(|number| self.first.get(number)).copied().ok_or_else(|| {
            *input = before;
            Fault::malformed("an object of one of the first 16 classes, which come before it")
        })?;
        let mut message = MetricUnion::ZERO;
        for place in 1..=class.len {
            let field = class.places.iter().position(|other| *other == place);
            match field.and_then(|index| fields.get(index)) {
                Some((_, ObjectField::Type)) => message.metric_type = metric_type(input)?,
                Some((_, ObjectField::Id)) => message.id = id(input, scope)?,
                Some((_, ObjectField::Counter)) => message.counter = integer(input)?,
                Some((_, ObjectField::Timer)) => message.timer = list(input, scope)?,
                Some((_, ObjectField::Gauge)) => message.gauge = float(input)?,
                None => self.skip(fields, input)?,
            }
        }
        end(input, message)
    }

    /// Reads the definition of a class.
    fn define(&mut self, fields: ObjectFields, input: &mut Reader<'_>) -> Result<(), Fault> {
        input.literal(b"c", "a class")?;
        text(input)?;
        let len = count(input, b'{')?;
        // Each field takes a tag and two quotes.
        let len = input.count(len, 3, "the announced number of fields")?;
        let mut class = Class { places: [0; 5], len };
        for place in 1..=class.len {
            input.literal(b"s", "the name of a field")?;
            let name = text(input)?;
            for ((field, _), known) in fields.iter().zip(&mut class.places) {
                if name.eq_ignore_ascii_case(field.as_bytes()) {
                    *known = place;
                }
            }
        }
        input.literal(b"}", "the end of a class")?;
        if let Some(free) = self.first.get_mut(self.len) {
            *free = class;
        }
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// Skips a value. Nested values need no stack, because every open value ends with a brace.
    #[cold]
    #[inline(never)]
    fn skip(&mut self, fields: ObjectFields, input: &mut Reader<'_>) -> Result<(), Fault> {
        let mut depth = 0u64;
        loop {
            let before = *input;
            let done = match input.byte(VALUE)? {
                b'0'..=b'9' | b'n' | b'e' | b't' | b'f' | b'N' => Ok(()),
                b'I' => input.byte(SIGN).map(drop),
                b'i' | b'l' | b'd' | b'r' => until(input, |byte| byte == b';'),
                b'D' | b'T' => until(input, |byte| matches!(byte, b';' | b'Z')),
                b'u' => character(input).map(drop),
                b's' => text(input).map(drop),
                b'b' => bytes(input).map(drop),
                b'g' => input.take(38, "an identifier of 38 bytes").map(drop),
                b'a' | b'm' | b'o' => {
                    depth += 1;
                    count(input, b'{').map(drop)
                }
                b'c' => {
                    *input = before;
                    self.define(fields, input)?;
                    // An object of this class follows.
                    continue;
                }
                b'}' if depth > 0 => {
                    depth -= 1;
                    Ok(())
                }
                _ => {
                    *input = before;
                    return Err(Fault::malformed(VALUE));
                }
            };
            done?;
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

const VALUE: &str = "the tag of a value";

/// Reads digits up to the byte `end`. No digits mean 0.
#[inline(always)]
fn count(input: &mut Reader<'_>, end: u8) -> Result<u64, Fault> {
    const EXPECTED: &str = "a number of items, or a length";
    let before = *input;
    let mut number = 0u64;
    loop {
        let byte = input.byte(EXPECTED)?;
        let next = match byte {
            b'0'..=b'9' => {
                let digit = u64::from(byte - b'0');
                number.checked_mul(10).and_then(|number| number.checked_add(digit))
            }
            _ if byte == end => return Ok(number),
            _ => None,
        };
        number = next.ok_or_else(|| {
            *input = before;
            Fault::malformed(EXPECTED)
        })?;
    }
}

/// Skips the rest of a number, a time or a reference.
fn until(input: &mut Reader<'_>, end: impl Fn(u8) -> bool) -> Result<(), Fault> {
    const EXPECTED: &str = "the end of a number";
    loop {
        let before = *input;
        match input.byte(EXPECTED)? {
            byte if end(byte) => return Ok(()),
            b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' | b'T' => {}
            _ => {
                *input = before;
                return Err(Fault::malformed(EXPECTED));
            }
        }
    }
}

/// Reads bytes after their tag.
fn bytes<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let len = count(input, b'"')?;
    let bytes = input.take_long(len, "bytes as long as their length says")?;
    input.literal(b"\"", "the quote at the end of bytes")?;
    Ok(bytes)
}

/// Reads a string after its tag, as UTF-8. Its length counts UTF-16 code units.
fn text<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    let mut units = count(input, b'"')?;
    let before = *input;
    while units > 0 {
        let start = *input;
        let len = character(input)?.len();
        let pair = if len == 4 { 2 } else { 1 };
        units = units.checked_sub(pair).ok_or_else(|| {
            *input = start;
            Fault::malformed("text that ends with a whole character")
        })?;
    }
    let len = input.position() - before.position();
    input.literal(b"\"", "the quote at the end of text")?;
    Ok(&before.rest()[..len])
}

/// Reads one UTF-8 character.
#[inline(always)]
fn character<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "a character in UTF-8";
    let len = match input.peek() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        Some(0x80..) => return Err(Fault::malformed(EXPECTED)),
        _ => 1,
    };
    input.take(len, EXPECTED)
}

/// Reads a value that begins with a tag. If the value is malformed, the input stays before its tag.
#[inline(always)]
fn tagged<'m, T>(
    input: &mut Reader<'m>,
    expected: &'static str,
    read: impl FnOnce(u8, &mut Reader<'m>) -> Option<Result<T, Fault>>,
) -> Result<T, Fault> {
    let before = *input;
    let tag = input.byte(expected)?;
    let value = read(tag, input).unwrap_or(Err(Fault::malformed(expected)));
    value.inspect_err(|fault| {
        // If a value is incomplete, the input stays after the examined bytes.
        if !fault.is_incomplete() {
            *input = before;
        }
    })
}

#[inline(always)]
pub(super) fn integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    tagged(input, "an integer", |tag, input| match tag {
        b'0'..=b'9' => Some(Ok(i64::from(tag - b'0'))),
        b'i' | b'l' => Some(number::integer(input).and_then(|number| semicolon(input, number))),
        b'e' | b'n' => Some(Ok(0)),
        _ => None,
    })
}

#[inline(always)]
pub(super) fn metric_type(input: &mut Reader<'_>) -> Result<MetricType, Fault> {
    let before = *input;
    let number = integer(input)?;
    input.metric_type(number, before)
}

#[inline(always)]
pub(super) fn float(input: &mut Reader<'_>) -> Result<f64, Fault> {
    tagged(input, "a double", |tag, input| match tag {
        b'd' | b'i' | b'l' => {
            Some(number::double(input).and_then(|number| semicolon(input, number)))
        }
        b'0'..=b'9' => Some(Ok(f64::from(tag - b'0'))),
        b'N' => Some(Ok(f64::NAN)),
        b'I' => match input.byte(SIGN) {
            Ok(b'+') => Some(Ok(f64::INFINITY)),
            Ok(b'-') => Some(Ok(f64::NEG_INFINITY)),
            Ok(_) => None,
            Err(fault) => Some(Err(fault)),
        },
        b'e' | b'n' => Some(Ok(0.0)),
        _ => None,
    })
}

const SIGN: &str = "the sign of an infinity";

#[inline(always)]
fn semicolon<T>(input: &mut Reader<'_>, number: T) -> Result<T, Fault> {
    input.literal(b";", "the semicolon after a number").map(|()| number)
}

#[inline(always)]
pub(super) fn list<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "a list of doubles";
    match input.peek() {
        Some(b'a') => items(input, scope, float),
        _ => tagged(input, EXPECTED, |tag, _| matches!(tag, b'e' | b'n').then_some(Ok(&[][..]))),
    }
}

/// Reads an id: a list of integers, as the library writes it, or bytes, or a string.
#[inline(always)]
pub(super) fn id<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
    match input.peek() {
        Some(b'a') => items(input, scope, byte),
        _ => other_id(input),
    }
}

#[cold]
#[inline(never)]
fn other_id<'m>(input: &mut Reader<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "an id: a list of integers, bytes or text";
    tagged(input, EXPECTED, |tag, input| match tag {
        b'b' => Some(bytes(input)),
        b's' => Some(text(input)),
        b'u' => Some(character(input)),
        b'e' | b'n' => Some(Ok(&[])),
        _ => None,
    })
}

/// Reads the items of a list, after its tag.
#[inline(always)]
fn items<'m, T: Copy>(
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
    item: impl Fn(&mut Reader<'m>) -> Result<T, Fault>,
) -> Result<&'m [T], Fault> {
    input.literal(b"a", "a list")?;
    let len = count(input, b'{')?;
    let len = input.count(len, 1, "the announced number of items")?;
    let items = values::fill(len, scope, || item(input))?;
    input.literal(b"}", "the end of a list")?;
    Ok(items)
}

/// Reads an integer from 0 to 255. Two and three digits are read without a branch, because they
/// alternate within an id and a mispredicted branch costs more than both cases.
#[inline(always)]
fn byte(input: &mut Reader<'_>) -> Result<u8, Fault> {
    if let Some(bytes) = input.rest().first_chunk::<8>() {
        let word = u64::from_le_bytes(*bytes);
        let integer = word as u8 == b'i';
        let three = (word >> 32) as u8 == b';';
        let two = (word >> 24) as u8 == b';';
        // The lowest byte contains the hundreds.
        let shift = if three { 8 } else { 0 };
        let digits = (word as u32 >> shift & 0xff_ffff) ^ if three { 0x30_3030 } else { 0x30_3069 };
        let value = (digits & 0xff) * 100 + (digits >> 8 & 0xff) * 10 + (digits >> 16);
        let decimal = (digits | (digits + 0x76_7676)) & 0x80_8080 == 0;
        // As everywhere, leading zeros are not allowed.
        let range = value <= 255 && value >= if three { 100 } else { 10 };
        if integer & (three | two) & decimal & range {
            input.take(4 + usize::from(three), BYTE)?;
            return Ok(value as u8);
        }
    }
    slow_byte(input)
}

const BYTE: &str = "an integer from 0 to 255";

#[cold]
#[inline(never)]
fn slow_byte(input: &mut Reader<'_>) -> Result<u8, Fault> {
    let before = *input;
    let number = integer(input)?;
    u8::try_from(number).map_err(|_| {
        *input = before;
        Fault::malformed(BYTE)
    })
}

#[inline(always)]
pub(super) fn end<T>(input: &mut Reader<'_>, message: T) -> Result<T, Fault> {
    input.literal(b"}", "the end of an object").map(|()| message)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use std::format;

    use quipu_arena::Arena;

    use super::*;
    use crate::{Counter, Error, Gauge, Hprose, Metric};

    fn counter(text: impl AsRef<[u8]>) -> Result<(Vec<u8>, i64), Error> {
        let mut arena = Arena::new();
        let counter = Counter::decode::<Hprose>(text.as_ref(), &arena.as_scope())?;
        Ok((counter.id.to_vec(), counter.value))
    }

    /// Returns a counter with the class definition that the library writes.
    fn counter_of(id: &str, value: &str) -> Result<(Vec<u8>, i64), Error> {
        counter(format!(r#"c7"Counter"2{{s2"iD"s5"value"}}o0{{{id}{value}}}"#))
    }

    fn gauge_of(value: &str) -> Result<f64, Error> {
        let mut arena = Arena::new();
        let text = format!(r#"c5"Gauge"2{{s2"iD"s5"value"}}o0{{a{{}}{value}}}"#);
        Gauge::decode::<Hprose>(text.as_bytes(), &arena.as_scope()).map(|gauge| gauge.value)
    }

    #[test]
    fn all_forms_of_integers() {
        for (text, value) in [
            ("7", 7),
            ("i7;", 7),
            ("l7;", 7),
            ("i-7;", -7),
            ("l9223372036854775807;", i64::MAX),
            ("l-9223372036854775808;", i64::MIN),
            ("i9223372036854775807;", i64::MAX),
            ("e", 0),
            ("n", 0),
        ] {
            assert_eq!(counter_of("a{}", text).unwrap().1, value, "{text}");
        }
        for text in
            ["i;", "i-;", "i7", "i7.5;", "i+7;", "d7;", "l9223372036854775808;", "N", "t", "}"]
        {
            let error = counter_of("a{}", text).unwrap_err();
            assert!(!error.is_incomplete(), "{text}: {error}");
        }
    }

    #[test]
    fn all_forms_of_doubles() {
        for (text, value) in [
            ("d1.5;", 1.5),
            ("d-1.0E-10;", -1e-10),
            ("d1e+06;", 1e6),
            ("d1E5;", 1e5),
            ("I+", f64::INFINITY),
            ("I-", f64::NEG_INFINITY),
            ("7", 7.0),
            ("i-70;", -70.0),
            ("l123456789012345678901234567890;", 123456789012345678901234567890.0),
            ("e", 0.0),
            ("n", 0.0),
        ] {
            assert_eq!(gauge_of(text).unwrap().to_bits(), value.to_bits(), "{text}");
        }
        assert!(gauge_of("N").unwrap().is_nan());
        for text in ["d;", "dNaN;", "dinf;", "d1e400;", "I*", "d1.5", "d1.5 ;", "t", "s1\"1\""] {
            let error = gauge_of(text).unwrap_err();
            assert!(!error.is_incomplete(), "{text}: {error}");
        }
    }

    #[test]
    fn all_forms_of_ids() {
        for (text, id) in [
            ("a2{i97;i120;}", &b"ax"[..]),
            ("a10{0123456789}", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            ("a5{i0;i255;l97;i100;i99;}", &[0, 255, 97, 100, 99]),
            ("a{}", b""),
            ("a0{}", b""),
            ("b3\"a\"b\"", b"a\"b"),
            ("b\"\"", b""),
            ("s2\"ax\"", b"ax"),
            ("s\"\"", b""),
            // UTF-16 code units: 1, 1, 1 and 2.
            ("s5\"a\u{e9}\u{20ac}\u{1f600}\"", "a\u{e9}\u{20ac}\u{1f600}".as_bytes()),
            ("ua", b"a"),
            ("u\u{20ac}", "\u{20ac}".as_bytes()),
            ("e", b""),
            ("n", b""),
        ] {
            assert_eq!(counter_of(text, "7").unwrap(), (id.to_vec(), 7), "{text}");
        }
        for text in [
            "a1{i256;}",
            "a1{i-1;}",
            "a1{d1;}",
            "a2{i97;}",
            "a1{i97;i97;}",
            "a1{i1x0;}",
            "a1{i;97;}",
            "a2{i007;i7;}",
            "a2{i07;i7;}",
            "a-1{}",
            "a1",
            "ax{}",
            "b2\"abc\"",
            "s3\"ax\"",
            "s1\"\u{1f600}\"",
            "s99999999999999999999\"a\"",
            "r0;",
            "i97;",
            "t",
        ] {
            let error = counter_of(text, "7").unwrap_err();
            assert!(!error.is_incomplete() || text == "s3\"ax\"", "{text}: {error}");
        }
    }

    #[test]
    fn fields_in_other_orders_and_others_between_them() {
        for text in [
            r#"c7"Counter"2{s5"value"s2"iD"}o0{7a1{i97;}}"#,
            r#"c5"Other"3{s2"iD"s2"ID"s5"Value"}o0{ea1{i97;}7}"#,
            r#"c1"X"4{s1"A"s2"iD"s1"B"s5"value"}o0{nb1"a"i-5;7}"#,
            // Two classes; the object belongs to the second.
            r#"c1"X"1{s1"A"}c7"Counter"2{s5"value"s2"iD"}o1{7a1{i97;}}"#,
            // A class that is defined within a value is numbered too.
            r#"c1"X"3{s1"x"s5"value"s2"iD"}o0{a2{c1"Y"1{s1"A"}o1{m1{s2"ab"o1{d1;}}}r0;}7a1{i97;}}"#,
        ] {
            assert_eq!(counter(text).unwrap(), (b"a".to_vec(), 7), "{text}");
        }
        let skipped = [
            "0",
            "i10;",
            "l-10;",
            "d1.5e+06;",
            "n",
            "e",
            "t",
            "f",
            "N",
            "I-",
            "u\u{20ac}",
            "s2\"a\"\"",
            "b1\"\"\"",
            "g{AFA7F4B1-A64D-46FA-886F-ED7FBCE569B6}",
            "D20121229;",
            "D20121229T123456.789Z",
            "T123456;",
            "a{}",
            "a3{1a1{2}3}",
            "m2{s1\"a\"1ub2}",
            "r123;",
        ];
        for value in skipped {
            let text = format!(r#"c1"X"3{{s1"A"s2"iD"s5"value"}}o0{{{value}a1{{i97;}}7}}"#);
            assert_eq!(counter(&text).unwrap(), (b"a".to_vec(), 7), "{text}");
        }
        for value in ["x", "}", "I", "ix;", "g{", "s1\"ab\"", "a{", "o{}"] {
            let text = format!(r#"c1"X"3{{s1"A"s2"iD"s5"value"}}o0{{{value}a1{{i97;}}7}}"#);
            // An object without a class number belongs to the first class.
            assert_eq!(counter(&text).is_err(), value != "o{}", "{text}");
        }
    }

    #[test]
    fn hostile_inputs() {
        for text in ["a99999999999999999999{", "a1000000000{}", "b1000000000\"", "s1000000000\""] {
            assert!(counter_of(text, "7").is_err(), "{text}");
        }
        for text in [r#"c7"Counter"1000000000{s2"iD""#, r#"c1000000000"Counter"2{"#] {
            assert!(counter(text).unwrap_err().is_incomplete(), "{text}");
        }
        for text in [
            "o0{}",
            r#"c1"A"{}o1{}"#,
            r#"c1"A"{}o99999999999999999999{}"#,
            r#"c1"A"{}c"#,
            "7",
            "n",
            "z",
        ] {
            assert!(counter(text).is_err(), "{text}");
        }
        // Nesting needs no stack.
        let deep = "a1{".repeat(100_000);
        let text = format!(r#"c1"X"3{{s1"A"s2"iD"s5"value"}}o0{{{deep}"#);
        assert!(counter(&text).unwrap_err().is_incomplete());
        let text = format!("{text}{}a1{{i97;}}7}}", "}".repeat(100_000));
        assert_eq!(counter(&text).unwrap(), (b"a".to_vec(), 7));
        // More classes than the array can hold.
        let many = r#"c1"A"1{s2"iD"}"#.repeat(17);
        assert!(counter(format!("{many}o0{{b1\"a\"}}")).is_ok());
        assert!(counter(format!("{many}o16{{b1\"a\"}}")).is_err());
    }

    #[test]
    fn every_truncation_is_incomplete() {
        let union = MetricUnion {
            metric_type: MetricType(-2),
            id: b"\x00az\xff",
            counter: i64::MIN,
            timer: &[1.0, -2.5, 1e6, f64::NEG_INFINITY, f64::NAN],
            gauge: 0.25,
        };
        let mut out = Vec::new();
        union.encode::<Hprose>(&mut out).unwrap();
        let other = r#"c1"X"5{s1"A"s1"B"s1"C"s2"iD"s7"gaugeVal"}"#.replace("s7", "s8")
            + r#"o0{m1{s1"a"D20121229T123456Z}g{AFA7F4B1-A64D-46FA-886F-ED7FBCE569B6}"#
            + "u\u{20ac}s3\"\u{1f600}x\"i-5;}";
        for text in [&out[..], other.as_bytes()] {
            let mut arena = Arena::new();
            let scope = arena.as_scope();
            MetricUnion::decode::<Hprose>(text, &scope).unwrap();
            for len in 0..text.len() {
                let error = MetricUnion::decode::<Hprose>(&text[..len], &scope).unwrap_err();
                assert!(error.is_incomplete(), "{len}: {error}");
            }
        }
    }
}
