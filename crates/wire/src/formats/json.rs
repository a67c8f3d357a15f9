//! JSON: [RFC 8259](https://www.rfc-editor.org/rfc/rfc8259), with ids in base64
//! ([RFC 4648](https://www.rfc-editor.org/rfc/rfc4648#section-4)), and numbers in the shortest
//! form, with an exponent from 1e+06 and up to 1e-05.
//!
//! ```text
//! {"ID":"cmVxdWVzdHM=","Value":100}                              a counter or a gauge
//! {"ID":"cmVxdWVzdHM=","Values":[1,2.5,1e+06]}                   a batch timer
//! {"Type":2,"ID":"","CounterVal":0,"BatchTimerVal":[1],"GaugeVal":0}      a union
//! ```
//!
//! A stream contains one message per line. The fast reader expects exactly the form above.
//! `serde_json` reads everything else: members in any order, repeated (the last one wins), missing
//! or null (zero), or unknown (skipped); names in upper or lower case; escapes; white space before,
//! within and after a message. An object that contains only unknown members is refused, because
//! this is not a message.

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::{ArenaVec, Scope};

use crate::base64::{self, Base64};
use crate::error::Fault;
use crate::format::{Format, forward, sealed::Sealed};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::number::{self, Decimal, Double};
use crate::pieces::{Byte, Each, FixedPiece, Literal, Piece, append};
use crate::reader::Reader;

mod any_form;

use any_form::{BATCH_TIMER, COUNTER, GAUGE, METRIC_UNION, Members, any_form};

/// JSON as written by Go's encoding/json for types with generated easyjson functions. NaN and the
/// infinities are refused.
///
/// ```
/// use quipu_wire::{Counter, Metric, Json};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Json>(&mut out)?;
/// assert_eq!(out, b"{\"ID\":\"aGl0cw==\",\"Value\":7}");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Json(());

/// JSON as written by easyjson's functions on their own. NaN and the infinities are written as
/// `NaN`, `+Inf` and `-Inf`, which no other JSON reader accepts.
///
/// ```
/// use quipu_wire::{Counter, Metric, Easyjson};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Easyjson>(&mut out)?;
/// assert_eq!(out, b"{\"ID\":\"aGl0cw==\",\"Value\":7}");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Easyjson(());

/// The differences between the dialects.
trait Dialect {
    /// Whether NaN and the infinities are written as words.
    const WORDS: bool;
}

impl Dialect for Json {
    const WORDS: bool = false;
}

impl Dialect for Easyjson {
    const WORDS: bool = true;
}

macro_rules! lines {
    ($dialect:ident, $name:literal) => {
        impl Sealed for $dialect {}

        impl Format for $dialect {
            const NAME: &'static str = $name;
            const IS_TEXT: bool = true;
            type WriterState = ();
            type ReaderState = ();

            forward!(Codec::<$dialect>);

            #[inline(always)]
            fn write_next(
                (): &mut (),
                message: &Message<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), Fault> {
                message.write::<Self>(out)?;
                out.push(b'\n');
                Ok(())
            }

            #[inline(always)]
            fn skip_between(input: &mut Reader<'_>) {
                skip_space(input);
            }

            #[inline(always)]
            fn read_next<'m>(
                (): &'m mut (),
                kind: Kind,
                input: &mut Reader<'m>,
                scope: &Scope<'m>,
            ) -> Result<Option<Message<'m>>, Fault> {
                skip_space(input);
                if input.is_empty() {
                    return Ok(None);
                }
                Message::read::<Self>(kind, input, scope).map(Some)
            }
        }
    };
}

lines!(Json, "json");
lines!(Easyjson, "easyjson");

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    #[inline(always)]
    fn check(values: &[f64]) -> Result<(), Fault> {
        if D::WORDS || values.iter().all(|value| value.is_finite()) {
            Ok(())
        } else {
            Err(Fault::unwritable("JSON has no form for a float that is NaN or an infinity"))
        }
    }

    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        append(
            out,
            (
                Literal(b"{\"ID\":\""),
                Base64(id),
                Literal(b"\",\"Value\":"),
                Decimal(value),
                Byte(b'}'),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        Self::check(values)?;
        append(
            out,
            (
                Literal(b"{\"ID\":\""),
                Base64(id),
                Literal(b"\",\"Values\":"),
                List(values),
                Byte(b'}'),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        Self::check(&[value])?;
        append(
            out,
            (
                Literal(b"{\"ID\":\""),
                Base64(id),
                Literal(b"\",\"Value\":"),
                Double(value),
                Byte(b'}'),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge } =
            *message;
        Self::check(timer)?;
        Self::check(&[gauge])?;
        append(
            out,
            (
                (Literal(b"{\"Type\":"), Decimal(i64::from(metric_type))),
                (Literal(b",\"ID\":\""), Base64(id)),
                (Literal(b"\",\"CounterVal\":"), Decimal(counter)),
                (Literal(b",\"BatchTimerVal\":"), List(timer)),
                (Literal(b",\"GaugeVal\":"), Double(gauge), Byte(b'}')),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        read(input, scope, COUNTER, Self::counter, |any| Counter { id: any.id, value: any.counter })
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        read(input, scope, BATCH_TIMER, Self::batch_timer, |any| BatchTimer {
            id: any.id,
            values: any.timer,
        })
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        read(input, scope, GAUGE, Self::gauge, |any| Gauge { id: any.id, value: any.gauge })
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        read(input, scope, METRIC_UNION, Self::union, |any| any)
    }

    // Reads exactly the form that the libraries write.

    #[inline(always)]
    fn counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        input.literal(b"{\"ID\":\"", MEMBER)?;
        let id = id(input, scope)?;
        input.literal(b",\"Value\":", MEMBER)?;
        let value = number::integer(input)?;
        input.literal(b"}", END)?;
        Ok(Counter { id, value })
    }

    #[inline(always)]
    fn batch_timer<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<BatchTimer<'m>, Fault> {
        input.literal(b"{\"ID\":\"", MEMBER)?;
        let id = id(input, scope)?;
        input.literal(b",\"Values\":", MEMBER)?;
        let values = Self::list(input, scope)?;
        input.literal(b"}", END)?;
        Ok(BatchTimer { id, values })
    }

    #[inline(always)]
    fn gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        input.literal(b"{\"ID\":\"", MEMBER)?;
        let id = id(input, scope)?;
        input.literal(b",\"Value\":", MEMBER)?;
        let value = Self::double(input)?;
        input.literal(b"}", END)?;
        Ok(Gauge { id, value })
    }

    #[inline(always)]
    fn union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        input.literal(b"{\"Type\":", MEMBER)?;
        let metric_type = number::integer(input)?;
        let metric_type = i8::try_from(metric_type).map_err(|_| Fault::malformed(TYPE))?;
        input.literal(b",\"ID\":\"", MEMBER)?;
        let id = id(input, scope)?;
        input.literal(b",\"CounterVal\":", MEMBER)?;
        let counter = number::integer(input)?;
        input.literal(b",\"BatchTimerVal\":", MEMBER)?;
        let timer = Self::list(input, scope)?;
        input.literal(b",\"GaugeVal\":", MEMBER)?;
        let gauge = Self::double(input)?;
        input.literal(b"}", END)?;
        Ok(MetricUnion { metric_type: MetricType(metric_type), id, counter, timer, gauge })
    }

    #[inline(always)]
    fn list<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
        input.literal(b"[", LIST)?;
        if input.skip_literal(b"]") {
            return Ok(&[]);
        }
        let mut list = ArenaVec::new_in(scope);
        loop {
            list.try_push(Self::double(input)?).map_err(|_| Fault::memory())?;
            if !input.skip_literal(b",") {
                break;
            }
        }
        input.literal(b"]", LIST)?;
        Ok(list.into_slice())
    }

    #[inline(always)]
    fn double(input: &mut Reader<'_>) -> Result<f64, Fault> {
        match input.rest() {
            [b'N' | b'+', ..] | [b'-', b'I', ..] if D::WORDS => word(input),
            _ => number::double(input),
        }
    }
}

const MEMBER: &str = "a member of the message's object";
const END: &str = "a comma, or the end of the object";
const LIST: &str = "a list of numbers";
const TYPE: &str = "a metric type that fits in 8 bits";

/// Reads a message, first in the form that the libraries write, then in any form. If the first
/// attempt fails, it fails early. Input that ends within the first form would also be incomplete in
/// any other.
#[inline(always)]
fn read<'m, T>(
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
    members: Members,
    canonical: impl FnOnce(&mut Reader<'m>, &Scope<'m>) -> Result<T, Fault>,
    pick: impl FnOnce(MetricUnion<'m>) -> T,
) -> Result<T, Fault> {
    skip_space(input);
    let start = *input;
    let message = match canonical(input, scope) {
        Ok(message) => message,
        Err(fault) if fault.is_incomplete() => return Err(fault),
        Err(_) => {
            *input = start;
            pick(any_form(input, scope, members)?)
        }
    };
    skip_space(input);
    Ok(message)
}

#[inline(always)]
fn skip_space(input: &mut Reader<'_>) {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = input.peek() {
        let _ = input.byte("");
    }
}

#[cold]
#[inline(never)]
fn word(input: &mut Reader<'_>) -> Result<f64, Fault> {
    const EXPECTED: &str = "a number, or one of the words NaN, +Inf and -Inf";
    match input.peek() {
        Some(b'N') => input.literal(b"NaN", EXPECTED).map(|()| f64::NAN),
        Some(b'+') => input.literal(b"+Inf", EXPECTED).map(|()| f64::INFINITY),
        _ => input.literal(b"-Inf", EXPECTED).map(|()| f64::NEG_INFINITY),
    }
}

/// Reads an id up to its closing quote.
#[inline(always)]
fn id<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "the quote at the end of an id";
    let Some(len) = quote(input.rest()) else {
        // The whole rest was examined.
        input.advance(input.len());
        return Err(Fault::incomplete(EXPECTED));
    };
    let text = input.take(len, EXPECTED)?;
    input.literal(b"\"", EXPECTED)?;
    base64::decode(text, scope)
}

/// Returns the position of the first quote. This compares 8 bytes at once; the lowest match is
/// exact.
#[inline(always)]
fn quote(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let other = u64::from_le_bytes(*word) ^ (ONES * b'"' as u64);
        let equal = other.wrapping_sub(ONES) & !other & (ONES << 7);
        if equal != 0 {
            return Some(8 * index + equal.trailing_zeros() as usize / 8);
        }
    }
    let index = rest.iter().position(|byte| *byte == b'"')?;
    Some(8 * words.len() + index)
}

/// Floats between brackets.
#[derive(Clone, Copy)]
struct List<'a>(&'a [f64]);

// SAFETY: This writes a bracket, each float with a byte after it, and at most one more byte.
unsafe impl Piece for List<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().saturating_mul(Double::BOUND + 1).saturating_add(2)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for the floats, a comma after each, and the brackets. The last
        // comma is overwritten.
        unsafe {
            let at = (Byte(b'['), Each(self.0, |value| (Double(value), Byte(b',')))).put(at);
            Byte(b']').put(at.sub(usize::from(!self.0.is_empty())))
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use quipu_arena::Arena;

    use super::*;
    use crate::{Decoder, Encoder, Error, Framing, Metric};

    fn counter(text: &str) -> Result<(Vec<u8>, i64), Error> {
        let mut arena = Arena::new();
        let counter = Counter::decode::<Json>(text.as_bytes(), &arena.as_scope())?;
        Ok((counter.id.to_vec(), counter.value))
    }

    fn values<F: Format>(list: &str) -> Result<Vec<f64>, Error> {
        let mut arena = Arena::new();
        let text = format!("{{\"ID\":\"\",\"Values\":{list}}}");
        let timer = BatchTimer::decode::<F>(text.as_bytes(), &arena.as_scope())?;
        Ok(timer.values.to_vec())
    }

    fn gauge(number: &str) -> Result<f64, Error> {
        let mut arena = Arena::new();
        // The space prevents the fast path.
        let text = format!("{{\"Value\" : {number}}}");
        Gauge::decode::<Json>(text.as_bytes(), &arena.as_scope()).map(|gauge| gauge.value)
    }

    #[test]
    fn other_spellings_of_a_message() {
        for text in [
            r#"{"ID":"YQ==","Value":7}"#,
            r#" { "ID" : "YQ==" , "Value" : 7 } "#,
            "\n\r\t{\"ID\":\"YQ==\",\"Value\":7}\r\n",
            r#"{"Value":7,"ID":"YQ=="}"#,
            r#"{"id":"YQ==","vALUE":7}"#,
            r#"{"\u0049D":"\u0059Q=\u003d","Value":7}"#,
            r#"{"ID":"Y\r\nQ=\n=","Value":7}"#,
            r#"{"ID":"Yg==","Value":9,"ID":"YQ==","Value":7}"#,
            r#"{"Values":[{"a":[[]]},null,1e999,"\ud83d"],"ID":"YQ==","":{},"Value":7,"x":1}"#,
        ] {
            assert_eq!(counter(text).unwrap(), (b"a".to_vec(), 7), "{text}");
        }
    }

    #[test]
    fn an_object_of_other_members_is_no_message() {
        for (text, expected) in [
            (r#"{"a":1}"#, "json: at byte 6: expected a member of a union: Type, ID, CounterVal"),
            (r#"{"Value":1,"Values":[]}"#, "json: at byte 22: expected a member of a union"),
        ] {
            let mut arena: Arena = Arena::new();
            let error = MetricUnion::decode::<Json>(text.as_bytes(), &arena.as_scope());
            let error = alloc::format!("{}", error.unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn missing_fields_are_zero() {
        for text in ["{}", "null", " null ", r#"{"ID":null,"Value":null}"#, r#"{"Value":-0}"#] {
            assert_eq!(counter(text).unwrap(), (Vec::new(), 0), "{text}");
        }
        assert!(values::<Json>("null").unwrap().is_empty());
        assert_eq!(values::<Json>("[null, 1]").unwrap(), [0.0, 1.0]);
    }

    #[test]
    fn invalid_messages_are_refused() {
        for text in [
            "[]",
            "7",
            "\"\"",
            "true",
            "{]",
            "{,}",
            r#"{"ID":"YQ==","Value":7,}"#,
            r#"{"ID":"YQ==" "Value":7}"#,
            r#"{"ID":"YQ","Value":7}"#,
            r#"{"ID":"Y?==","Value":7}"#,
            r#"{"ID":["YQ=="],"Value":7}"#,
            r#"{"ID":7,"Value":7}"#,
            "{\"ID\":\"YQ=\n=\",\"Value\":7}",
            r#"{"ID":"YQ==","Value":"7"}"#,
            r#"{"ID":"YQ==","Value":7.0}"#,
            r#"{"ID":"YQ==","Value":1e2}"#,
            r#"{"ID":"YQ==","Value":07}"#,
            r#"{"ID":"YQ==","Value":+7}"#,
            r#"{"ID":"YQ==","Value":9223372036854775808}"#,
            r#"{"ID":"YQ==","Value":-9223372036854775809}"#,
            r#"{"ID":"YQ==","Value":7}}"#,
            r#"{"ID":"YQ==","Value":7} {"#,
        ] {
            let error = counter(text).unwrap_err();
            assert!(!error.is_incomplete(), "{text}: {error}");
            assert!(error.offset().unwrap() <= text.len() as u64, "{text}: {error}");
        }
        let error = counter(r#"{"ID":"YQ==", "Value":7.5}"#).unwrap_err();
        assert_eq!(format!("{error}"), "json: at byte 24: expected a whole number of 64 bits");
        let error = counter("\n{\n\"ID\":\"YQ==\",\n \"Value\" : truth}").unwrap_err();
        assert_eq!(format!("{error}"), "json: at byte 30: expected a whole number of 64 bits");
        let error = counter(r#"{"ID":"YQ==", "Other":truth}"#).unwrap_err();
        assert_eq!(format!("{error}"), "json: at byte 25: expected the value of a member");
        assert!(gauge("1e400").is_err());
        assert!(gauge("NaN").is_err());
    }

    #[test]
    fn the_type_has_8_bits() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let read = |text: &'static str| MetricUnion::decode::<Json>(text.as_bytes(), &scope);
        assert_eq!(read(r#"{"type":-128}"#).unwrap().metric_type, MetricType(-128));
        assert_eq!(read(r#"{"Type":127}"#).unwrap().metric_type, MetricType(127));
        assert!(read(r#"{"Type":128}"#).is_err());
        let text = r#"{"Type":128,"ID":"","CounterVal":0,"BatchTimerVal":[],"GaugeVal":0}"#;
        assert!(read(text).is_err());
    }

    #[test]
    fn floats_are_rounded_once() {
        for text in [
            "0.30000000000000004",
            "9007199254740993",
            "9007199254740993.0000000001",
            "18446744073709551617",
            "-9223372036854775809",
            "1.7976931348623157E+308",
            "2.2250738585072011e-308",
            "4.9e-324",
            "123456789012345678901234567890e-10",
            "-0.0",
        ] {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(gauge(text).unwrap().to_bits(), expected.to_bits(), "{text}");
            let list = values::<Json>(&format!("[{text}]")).unwrap();
            assert_eq!(list[0].to_bits(), expected.to_bits(), "{text}");
        }
    }

    #[test]
    fn words_are_of_easyjson_alone() {
        let list = &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0];
        let timer = BatchTimer { id: b"", values: list };
        let mut out = b"before".to_vec();
        let error = timer.encode::<Json>(&mut out).unwrap_err();
        assert_eq!(out, b"before");
        assert!(format!("{error}").contains("NaN or an infinity"), "{error}");
        let gauge = Gauge { id: b"", value: f64::NAN };
        assert!(Message::Gauge(gauge).to_union().encode::<Json>(&mut out).is_err());
        assert!(Gauge { id: b"", value: f64::INFINITY }.encode::<Json>(&mut out).is_err());

        out.clear();
        timer.encode::<Easyjson>(&mut out).unwrap();
        assert_eq!(out, br#"{"ID":"","Values":[NaN,+Inf,-Inf,-1]}"#);
        let list = values::<Easyjson>("[NaN,+Inf,-Inf,-1]").unwrap();
        assert!(list[0].is_nan());
        assert_eq!(list[1..], [f64::INFINITY, f64::NEG_INFINITY, -1.0]);
        assert!(values::<Json>("[NaN]").is_err());
        assert!(values::<Easyjson>("[Nan]").is_err());
        assert!(values::<Easyjson>("[+1]").is_err());
    }

    #[test]
    fn every_truncation_is_incomplete() {
        for text in [
            r#"{"Type":2,"ID":"YWI=","CounterVal":-10,"BatchTimerVal":[1,-2.5e+06],"GaugeVal":5}"#,
            r#"{"Type":2,"ID":"","CounterVal":0,"BatchTimerVal":[NaN,+Inf,-Inf],"GaugeVal":-Inf}"#,
            r#" { "GaugeVal" : -1.5e-3 , "x" : [ true, "\u00e9\ud83d\ude00", -1.5e+6 ] ,
                "ID": "\u0059Q==" , "BatchTimerVal" : [ 1 , null ] ,
                "CounterVal" : -0 , "Type" : null }"#,
        ] {
            let mut arena = Arena::new();
            let scope = arena.as_scope();
            MetricUnion::decode::<Easyjson>(text.as_bytes(), &scope).unwrap();
            for len in 0..text.len() {
                let error =
                    MetricUnion::decode::<Easyjson>(&text.as_bytes()[..len], &scope).unwrap_err();
                assert!(error.is_incomplete(), "{}: {error}", &text[..len]);
            }
        }
    }

    #[test]
    fn deep_and_long_inputs() {
        let deep = "[".repeat(100_000);
        assert!(counter(&format!("{{\"x\":{deep}")).unwrap_err().is_incomplete());
        let deep = format!("{{\"ID\":\"\",\"x\":{deep}{}}}", "]".repeat(100_000));
        assert_eq!(counter(&deep).unwrap(), (Vec::new(), 0));
        assert!(counter(&format!("{{\"Value\":{}}}", "[".repeat(1000))).is_err());
        let list: String = "1,".repeat(10_000);
        assert_eq!(values::<Json>(&format!("[{list}1]")).unwrap().len(), 10_001);
    }

    #[test]
    fn a_stream_has_a_message_a_line() {
        let mut encoder = Encoder::<Json>::new(Framing::Own);
        let mut out = Vec::new();
        for value in [1, 2] {
            encoder.append(&Counter { id: b"a", value }.into(), &mut out).unwrap();
        }
        assert_eq!(out, b"{\"ID\":\"YQ==\",\"Value\":1}\n{\"ID\":\"YQ==\",\"Value\":2}\n");
        out.extend_from_slice(b"\r\n{ \"Value\": 3 }{\"Value\":4}\n\n");

        for size in 1..out.len() {
            let mut decoder = Decoder::<Json>::new(Kind::Counter, Framing::Own);
            let mut arena = Arena::new();
            let mut seen = Vec::new();
            for piece in out.chunks(size) {
                decoder.push(piece);
                loop {
                    let mut guard = arena.guard();
                    let Some(message) = decoder.next(&guard.scope()).unwrap() else { break };
                    seen.push(message.to_union().counter);
                }
            }
            decoder.finish().unwrap();
            assert_eq!(seen, [1, 2, 3, 4], "{size}");
        }
    }
}
