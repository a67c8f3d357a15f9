//! Lines of StatsD: <https://github.com/statsd/statsd/blob/master/docs/metric_types.md>, and of
//! DogStatsD: <https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/>.
//!
//! ```text
//! Counter     id:value|c
//! Gauge       id:value|g
//! BatchTimer  id:value|ms        a line for each value; DogStatsD: id:value:value:value|ms
//! MetricUnion as the metric that its type says, when nothing else is in it
//! ```
//!
//! A single message is a datagram: one line, or several lines of one id, separated by line feeds.
//! In a stream, each line ends with a line feed.
//!
//! An id is UTF-8 without colon, bar or line feed. It cannot be empty and cannot begin like an
//! event (`_e{`). Tags belong to the id. For example, the line `hits:1|c|#region:eu` has the id
//! `hits|#region:eu`, and DogStatsD writes this id back as tags.
//!
//! In StatsD, a gauge with a sign is a change. Because of this, a negative gauge is first set to
//! zero, as documented: `id:0|g`, then `id:-5|g`. A change is only valid directly after its gauge.
//! The sign of -0 is lost. DogStatsD does not support changes: there, a sign is just a sign.
//!
//! You can also read:
//!
//! - Histograms (`h`) and distributions (`d`), as batch timers.
//! - Several values in a line: a counter's values are added, and a gauge is set to the last value.
//! - A sample rate: a counter is divided by the rate, as in servers, and rounded. A timer loses
//!   it, because a batch cannot represent the values that were not sent.
//! - In DogStatsD, further fields after the tags of a line (such as a container or a time), which
//!   are skipped.
//!
//! Sets, events and service checks are faults, because no message can represent them.

use alloc::vec::Vec;
use core::marker::PhantomData;

use quipu_arena::{ArenaVec, Scope};

use self::line::{EVENT, MessageLine, MessageType, not_at};
use crate::error::Fault;
use crate::format::{Format, forward, sealed};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricUnion};
use crate::pieces::{Byte, Bytes, Literal, append};
use crate::reader::Reader;

mod line;

/// StatsD as written by its clients: a line for each value. In a stream, each line is a message.
///
/// ```
/// use quipu_wire::{Counter, Metric, Statsd};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Statsd>(&mut out)?;
/// assert_eq!(out, b"hits:7|c");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Statsd(());

/// DogStatsD as written by clients of Datadog's agent since version 1.1 of the protocol: all values
/// of a timer in a line, and tags.
///
/// ```
/// use quipu_wire::{Counter, Metric, DogStatsd};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<DogStatsd>(&mut out)?;
/// assert_eq!(out, b"hits:7|c");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct DogStatsd(());

/// The differences between the dialects.
trait Dialect: Sized + 'static {
    const NAME: &'static str;
    /// Whether the dialect supports tags, several values in a line, and fields that older readers
    /// skip.
    const DOG: bool;
}

impl Dialect for Statsd {
    const NAME: &'static str = "statsd";
    const DOG: bool = false;
}

impl Dialect for DogStatsd {
    const NAME: &'static str = "dogstatsd";
    const DOG: bool = true;
}

macro_rules! format {
    ($($dialect:ident),*) => {$(
        impl sealed::Sealed for $dialect {}

        impl Format for $dialect {
            const NAME: &'static str = <$dialect as Dialect>::NAME;
            const IS_TEXT: bool = true;
            // The end of the input also ends a line.
            const DELIMITED: bool = false;
            const HAS_FRAMING: bool = true;
            type WriterState = ();
            type ReaderState = LastGauge;

            forward!(Codec::<$dialect>);

            fn write_next(
                _: &mut (),
                message: &Message<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), Fault> {
                message.write::<Self>(out)?;
                out.push(b'\n');
                Ok(())
            }

            fn read_next<'m>(
                last: &'m mut LastGauge,
                kind: Kind,
                input: &mut Reader<'m>,
                scope: &Scope<'m>,
            ) -> Result<Option<Message<'m>>, Fault> {
                Codec::<$dialect>::read_next(last, kind, input, scope)
            }
        }
    )*};
}

format!(Statsd, DogStatsd);

/// The last gauge of a stream. A change may follow it.
#[derive(Debug, Default)]
pub struct LastGauge {
    id: Vec<u8>,
    value: f64,
}

/// The code that the dialects share.
struct Codec<D>(PhantomData<D>);

impl<D: Dialect> Codec<D> {
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (name, tags) = name_and_tags::<D>(message.id)?;
        let mut buffer = itoa::Buffer::new();
        let value = Bytes(buffer.format(message.value).as_bytes());
        append(out, (Bytes(name), Byte(b':'), value, Literal(b"|c"), Bytes(tags)));
        Ok(())
    }

    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (name, tags) = name_and_tags::<D>(message.id)?;
        let [first, rest @ ..] = message.values else {
            return Err(Fault::unwritable("a batch timer needs at least one value"));
        };
        let mut buffer = zmij::Buffer::new();
        append(out, (Bytes(name), Byte(b':'), Bytes(text(*first, &mut buffer)?)));
        for value in rest {
            if D::DOG {
                append(out, (Byte(b':'), Bytes(text(*value, &mut buffer)?)));
            } else {
                let value = Bytes(text(*value, &mut buffer)?);
                append(out, (Literal(b"|ms\n"), Bytes(name), Byte(b':'), value));
            }
        }
        append(out, (Literal(b"|ms"), Bytes(tags)));
        Ok(())
    }

    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (name, tags) = name_and_tags::<D>(message.id)?;
        let negative_zero = !D::DOG && message.value == 0.0;
        let value = if negative_zero { 0.0 } else { message.value };
        let mut buffer = zmij::Buffer::new();
        let text = Bytes(text(value, &mut buffer)?);
        let zero = (!D::DOG && value < 0.0).then_some((Bytes(name), Literal(b":0|g\n")));
        append(out, (zero, Bytes(name), Byte(b':'), text, Literal(b"|g"), Bytes(tags)));
        Ok(())
    }

    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match message.to_metric() {
            Some(Message::Counter(message)) => Self::write_counter(&message, out),
            Some(Message::BatchTimer(message)) => Self::write_batch_timer(&message, out),
            Some(Message::Gauge(message)) => Self::write_gauge(&message, out),
            _ => Err(Fault::unwritable(
                "a union needs the type of a metric, and no value of another type",
            )),
        }
    }

    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        let before = *input;
        match Self::read_datagram(input, scope)? {
            Message::Counter(message) => Ok(message),
            _ => Err(not_at(input, before, "a counter, `id:value|c`")),
        }
    }

    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        let before = *input;
        match Self::read_datagram(input, scope)? {
            Message::BatchTimer(message) => Ok(message),
            _ => Err(not_at(input, before, "a timer, `id:value|ms`, with `h` or `d` as well")),
        }
    }

    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        let before = *input;
        match Self::read_datagram(input, scope)? {
            Message::Gauge(message) => Ok(message),
            _ => Err(not_at(input, before, "a gauge, `id:value|g`")),
        }
    }

    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        Self::read_datagram(input, scope).map(Message::to_union)
    }

    /// Reads lines of one id up to the end of the input. Anything else remains in the input.
    fn read_datagram<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Message<'m>, Fault> {
        skip_empty_lines(input);
        let first = MessageLine::read::<D>(input)?;
        let message = match first.metric {
            MessageType::Counter => {
                Message::Counter(Counter { value: first.sum(input)?, id: first.id(scope)? })
            }
            MessageType::Gauge => {
                let mut value = first.gauge::<D>(None, input)?;
                while let Some(next) = Self::next_of(&first, input)? {
                    value = next.gauge::<D>(Some(value), input)?;
                }
                Message::Gauge(Gauge { id: first.id(scope)?, value })
            }
            MessageType::Timer => {
                let mut values = ArenaVec::new_in(scope);
                first.timed(&mut values, input)?;
                while let Some(next) = Self::next_of(&first, input)? {
                    next.timed(&mut values, input)?;
                }
                Message::BatchTimer(BatchTimer {
                    id: first.id(scope)?,
                    values: values.into_slice(),
                })
            }
        };
        skip_empty_lines(input);
        Ok(message)
    }

    /// Reads the next line, if it continues the first one with the same id, tags and type.
    fn next_of<'m>(
        first: &MessageLine<'m>,
        input: &mut Reader<'m>,
    ) -> Result<Option<MessageLine<'m>>, Fault> {
        let before = *input;
        skip_empty_lines(input);
        if input.is_empty() {
            return Ok(None);
        }
        let next = MessageLine::read::<D>(input)?;
        let same = (next.name, next.tags, next.metric) == (first.name, first.tags, first.metric);
        if !same {
            *input = before;
        }
        Ok(same.then_some(next))
    }

    /// Reads one line, including its line feed.
    fn read_next<'m>(
        last: &mut LastGauge,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        skip_empty_lines(input);
        if input.is_empty() {
            return Ok(None);
        }
        if !input.rest().contains(&b'\n') {
            // The whole rest was examined.
            input.take(input.len(), LINE_FEED)?;
            return Err(Fault::incomplete(LINE_FEED));
        }
        let before = *input;
        let line = MessageLine::read::<D>(input)?;
        let id = line.id(scope)?;
        let message = match line.metric {
            MessageType::Counter => Message::Counter(Counter { id, value: line.sum(input)? }),
            MessageType::Gauge => {
                let known = (last.id == id).then_some(last.value);
                Message::Gauge(Gauge { id, value: line.gauge::<D>(known, input)? })
            }
            MessageType::Timer => {
                let mut values = ArenaVec::new_in(scope);
                line.timed(&mut values, input)?;
                Message::BatchTimer(BatchTimer { id, values: values.into_slice() })
            }
        };
        input.byte(LINE_FEED)?;
        let Some(wanted) = message.to_kind(kind) else {
            return Err(not_at(input, before, "a line of the requested type of message"));
        };
        if let (false, Message::Gauge(Gauge { id, value })) = (D::DOG, message) {
            last.id.clear();
            last.id.extend_from_slice(id);
            last.value = value;
        }
        Ok(Some(wanted))
    }
}

const LINE_FEED: &str = "a line feed after the line";

/// Splits an id into the name and the bytes that are written as tags.
fn name_and_tags<D: Dialect>(id: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let reserved = |byte: &u8| matches!(byte, b':' | b'|' | b'\n');
    let (name, tags) = id.split_at(id.iter().position(reserved).unwrap_or(id.len()));
    let tags_fit = match tags {
        [] => true,
        [b'|', b'#', tags @ ..] => {
            D::DOG && !tags.is_empty() && !tags.iter().any(|byte| matches!(byte, b'|' | b'\n'))
        }
        _ => false,
    };
    let fits = !name.is_empty()
        && !name.starts_with(EVENT)
        && tags_fit
        && core::str::from_utf8(id).is_ok();
    fits.then_some((name, tags)).ok_or(Fault::unwritable(if D::DOG {
        "an id must be UTF-8 without colon, bar or line feed, not empty, not `_e{`; tags may follow, \
         as in `id|#key:value,tag`"
    } else {
        "an id must be UTF-8 without colon, bar or line feed, not empty, not `_e{`"
    }))
}

/// Formats a number in the shortest way.
fn text(value: f64, buffer: &mut zmij::Buffer) -> Result<&[u8], Fault> {
    if !value.is_finite() {
        return Err(Fault::unwritable("a value must be a number, neither NaN nor infinite"));
    }
    let text = buffer.format_finite(value).as_bytes();
    Ok(text.strip_suffix(b".0").unwrap_or(text))
}

fn skip_empty_lines(input: &mut Reader<'_>) {
    while input.skip_literal(b"\n") {}
}

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;
    use std::string::String;
    use std::vec;

    use super::*;
    use crate::error::Error;
    use crate::message::{Metric, MetricType};
    use crate::stream::{Decoder, Encoder, Framing};

    fn written<F: Format>(message: impl Into<Message<'static>>) -> Result<String, Error> {
        let mut out = b"before ".to_vec();
        let result = message.into().encode::<F>(&mut out);
        let text = String::from_utf8(out.split_off(7)).unwrap();
        assert!(result.is_ok() || text.is_empty());
        result.map(|()| text)
    }

    fn counter(id: &'static str, value: i64) -> Counter<'static> {
        Counter { id: id.as_bytes(), value }
    }

    fn gauge(id: &'static str, value: f64) -> Gauge<'static> {
        Gauge { id: id.as_bytes(), value }
    }

    fn timer(id: &'static str, values: &'static [f64]) -> BatchTimer<'static> {
        BatchTimer { id: id.as_bytes(), values }
    }

    #[track_caller]
    fn reads<F: Format>(text: &str, expected: impl Into<Message<'static>>) {
        let expected = expected.into();
        for kind in [expected.kind(), Kind::MetricUnion] {
            let mut arena = Arena::new();
            let scope = arena.as_scope();
            let read = Message::decode::<F>(kind, text.as_bytes(), &scope);
            assert_eq!(read, Ok(expected.to_kind(kind).unwrap()), "{} {text}", F::NAME);
        }
    }

    #[track_caller]
    fn both(text: &str, expected: impl Into<Message<'static>>) {
        let expected = expected.into();
        reads::<Statsd>(text, expected);
        reads::<DogStatsd>(text, expected);
    }

    #[track_caller]
    fn fault<F: Format>(text: &str, offset: u64, expected: &str) {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let error = MetricUnion::decode::<F>(text.as_bytes(), &scope).unwrap_err();
        assert!(!error.is_incomplete(), "{text}: {error}");
        assert!(error.expected().contains(expected), "{text}: {error}");
        assert_eq!(error.offset(), Some(offset), "{text}: {error}");
    }

    #[test]
    fn writes_the_lines_that_servers_take() {
        let both = |message: Message<'static>, text: &str| {
            assert_eq!(written::<Statsd>(message).unwrap(), text);
            assert_eq!(written::<DogStatsd>(message).unwrap(), text);
        };
        both(counter("hits", 1).into(), "hits:1|c");
        both(counter("hits", i64::MIN).into(), "hits:-9223372036854775808|c");
        both(gauge("level", 333.0).into(), "level:333|g");
        both(gauge("level", 0.1).into(), "level:0.1|g");
        both(gauge("level", 1e300).into(), "level:1e+300|g");
        both(timer("took", &[320.5]).into(), "took:320.5|ms");
        let values = &[1.0, -2.0, 0.5];
        let lines = "took:1|ms\ntook:-2|ms\ntook:0.5|ms";
        assert_eq!(written::<Statsd>(timer("took", values)).unwrap(), lines);
        assert_eq!(written::<DogStatsd>(timer("took", values)).unwrap(), "took:1:-2:0.5|ms");
        let union = Message::from(counter("hits", 5)).to_union();
        both(union.into(), "hits:5|c");
    }

    #[test]
    fn a_sign_makes_a_gauge_a_change_in_statsd() {
        assert_eq!(written::<Statsd>(gauge("level", -5.0)).unwrap(), "level:0|g\nlevel:-5|g");
        assert_eq!(written::<Statsd>(gauge("level", -0.0)).unwrap(), "level:0|g");
        assert_eq!(written::<DogStatsd>(gauge("level", -5.0)).unwrap(), "level:-5|g");
        reads::<Statsd>("level:0|g\nlevel:-5|g", gauge("level", -5.0));
        reads::<Statsd>("level:333|g\nlevel:-10|g\nlevel:+4|g\n", gauge("level", 327.0));
        fault::<Statsd>("level:-5|g", 6, "without a sign");
        fault::<Statsd>("level:+5|g", 6, "without a sign");
        reads::<DogStatsd>("level:-5|g", gauge("level", -5.0));
        reads::<DogStatsd>("level:+5|g", gauge("level", 5.0));
    }

    #[test]
    fn tags_belong_to_the_id() {
        for (line, message) in [
            ("hits:1|c|#region:eu,up", counter("hits|#region:eu,up", 1).into()),
            ("level:-2|g|#a", gauge("level|#a", -2.0).into()),
            ("took:1:2|ms|#a:b:c", Message::from(timer("took|#a:b:c", &[1.0, 2.0]))),
        ] {
            assert_eq!(written::<DogStatsd>(message).unwrap(), line);
            assert!(written::<Statsd>(message).is_err());
            reads::<DogStatsd>(line, message);
        }
        both("hits:1|c|@0.5|#a:b", counter("hits|#a:b", 2));
        both("hits:1|c|#a:b|@0.5", counter("hits|#a:b", 2));
        both("hits:1|c|#", counter("hits", 1));
        reads::<Statsd>("took:1|ms|#a\ntook:2|ms|#a", timer("took|#a", &[1.0, 2.0]));
        fault::<Statsd>("took:1|ms|#a\ntook:2|ms|#b", 13, "the end of the message");
    }

    #[test]
    fn ids_that_a_line_cannot_have_are_refused() {
        let bad =
            ["", "a:b", "a|b", "a\nb", "_e{1,1}", "a|#", "a|#b|c", "a|#b\nc", "|#a", "a|b|#c"];
        for id in bad {
            assert!(written::<Statsd>(counter(id, 1)).is_err(), "{id:?}");
            assert!(written::<DogStatsd>(gauge(id, 1.0)).is_err(), "{id:?}");
            assert!(written::<DogStatsd>(timer(id, &[1.0])).is_err(), "{id:?}");
        }
        let error = written::<Statsd>(Counter { id: b"\xff", value: 1 }).unwrap_err();
        assert!(error.expected().contains("UTF-8"), "{error}");
        for id in ["a@b", "a#b", "name=x,trainer=ash", "_sc", "\u{e9}\u{82b1}", "a b\r"] {
            let text = written::<Statsd>(counter(id, 1)).unwrap();
            both(&text, counter(id, 1));
        }
    }

    #[test]
    fn values_that_a_line_cannot_have_are_refused() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(written::<Statsd>(gauge("a", value)).is_err());
            let values = [1.0, value];
            let mut out = Vec::new();
            let message = BatchTimer { id: b"a", values: &values };
            assert!(message.encode::<DogStatsd>(&mut out).is_err());
            assert!(out.is_empty());
        }
        assert!(written::<Statsd>(timer("a", &[])).is_err());
        let union = Message::from(counter("a", 1)).to_union();
        for union in [
            MetricUnion { metric_type: MetricType::UNKNOWN, ..union },
            MetricUnion { metric_type: MetricType(9), ..union },
            MetricUnion { gauge: 1.0, ..union },
        ] {
            assert!(written::<DogStatsd>(union).unwrap_err().expected().contains("union"));
        }
    }

    #[test]
    fn reads_what_other_clients_write() {
        both("took:1.5|h", timer("took", &[1.5]));
        both("took:1.5:2e3:-.5|d|@0.25", timer("took", &[1.5, 2000.0, -0.5]));
        both("\nhits:1|c\n\n", counter("hits", 1));
        both("hits:1:2:3|c", counter("hits", 6));
        both("hits:9007199254740993|c", counter("hits", (1 << 53) + 1));
        both("hits:+3|c", counter("hits", 3));
        both("hits:3.0|c", counter("hits", 3));
        both("hits:3|c|@0.1", counter("hits", 30));
        both("hits:1|c|@0.3", counter("hits", 3));
        both("hits:-5|c|@1", counter("hits", -5));
        both("hits:-1|c|@0.4", counter("hits", -3));
        both("level:1:2|g", gauge("level", 2.0));
        reads::<DogStatsd>("hits:1|c|#a|c:ci-1|T1656581400", counter("hits|#a", 1));
        fault::<Statsd>("hits:1|c|T1656581400", 9, "a sample rate or tags");
    }

    #[test]
    fn lines_without_a_message_are_faults() {
        for fault in [fault::<Statsd>, fault::<DogStatsd>] {
            fault("users:1234|s", 11, "sets");
            fault("_e{2,3}:ab|cde", 0, "events");
            fault("_sc|disk|0", 0, "service checks");
            fault("hits:1|x", 7, "type of a metric");
            fault("hits:1|m|", 7, "type of a metric");
            fault(":1|c", 0, "an id");
            fault("hits|c", 4, "a colon");
            fault("hits\n", 4, "a colon");
            fault("hits:1\n", 6, "a bar");
            fault("hits:|c", 5, "a finite number");
            fault("hits:1:|c", 5, "a finite number");
            fault("hits:inf|c", 5, "a finite number");
            fault("hits:1e999|c", 5, "a finite number");
            fault("level:nan|g", 6, "a finite number");
            fault("took:0x1|ms", 5, "a finite number");
            fault("hits:1.5|c", 5, "a whole number");
            fault("hits:9223372036854775808|c", 5, "a whole number");
            fault("hits:9223372036854775807:1|c", 5, "a whole number");
            fault("hits:9223372036854775807|c|@0.5", 5, "a whole number");
            for rate in ["", "0", "-1", "1.1", "x", "inf"] {
                fault(&std::format!("hits:1|c|@{rate}\n"), 9, "a sample rate");
            }
            fault("hits:1|c||#a", 9, "a sample rate or tags");
            fault("hits:1|c\nhits:2|c", 9, "the end of the message");
        }
        let mut arena = Arena::new();
        let error = Gauge::decode::<Statsd>(b"hits:1|c", &arena.as_scope()).unwrap_err();
        assert!(error.expected().contains("gauge") && error.offset() == Some(0));
    }

    #[test]
    fn a_truncated_line_is_a_message_or_incomplete() {
        for text in ["took:1.5e3|ms|@0.25|#a:b", "took:1|ms\ntook:2:3|ms|@1\n"] {
            for len in 0..text.len() {
                let mut arena = Arena::new();
                let text = &text.as_bytes()[..len];
                let read = MetricUnion::decode::<Statsd>(text, &arena.as_scope());
                assert!(read.is_ok() || read.is_err_and(|error| error.is_incomplete()), "{len}");
            }
        }
    }

    /// Returns the messages of a stream that arrives in pieces of any length, and the final result.
    fn stream<F: Format>(kind: Kind, text: &str) -> (Vec<String>, Result<(), Error>) {
        let results = [1, 2, 5, text.len()].map(|len| {
            let mut decoder = Decoder::<F>::new(kind, Framing::Own);
            let mut all = vec![];
            let mut pieces = text.as_bytes().chunks(len);
            let mut ended = false;
            loop {
                let mut arena = Arena::new();
                match decoder.next(&arena.as_scope()) {
                    Ok(Some(message)) => {
                        all.push(std::format!("{message:?}"));
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) => return (all, Err(error)),
                }
                match pieces.next() {
                    Some(piece) => decoder.push(piece),
                    None if ended => return (all, decoder.finish()),
                    None => {
                        decoder.end();
                        ended = true;
                    }
                }
            }
        });
        let [first, others @ ..] = &results;
        assert!(others.iter().all(|other| other == first), "{first:?} {others:?}");
        results.into_iter().next().unwrap()
    }

    fn debug(messages: &[Message<'_>]) -> Vec<String> {
        messages.iter().map(|message| std::format!("{message:?}")).collect()
    }

    #[test]
    fn each_line_of_a_stream_is_a_message() {
        let mut out = Vec::new();
        let mut encoder = Encoder::<Statsd>::new(Framing::Own);
        let messages =
            [gauge("level", 2.0).into(), gauge("level", -5.0).into(), gauge("other", 1.0).into()];
        for message in &messages {
            encoder.append(message, &mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "level:2|g\nlevel:0|g\nlevel:-5|g\nother:1|g\n");
        let zero = gauge("level", 0.0).into();
        let expected = debug(&[messages[0], zero, messages[1], messages[2]]);
        assert_eq!(stream::<Statsd>(Kind::Gauge, &text), (expected, Ok(())));
        let (read, ended) = stream::<Statsd>(Kind::Gauge, "level:0|g\nother:-5|g\n");
        assert_eq!(read, debug(&[zero]));
        assert!(!ended.unwrap_err().is_incomplete());

        let mixed = "hits:1|c\n\ntook:1|ms\ntook:2:3|ms\nlevel:4|g\n";
        let expected: [Message<'_>; 4] = [
            counter("hits", 1).into(),
            timer("took", &[1.0]).into(),
            timer("took", &[2.0, 3.0]).into(),
            gauge("level", 4.0).into(),
        ];
        let unions = expected.map(|message| message.to_union().into());
        assert_eq!(stream::<DogStatsd>(Kind::MetricUnion, mixed), (debug(&unions), Ok(())));
        let (read, ended) = stream::<DogStatsd>(Kind::Counter, mixed);
        assert_eq!(read, debug(&expected[..1]));
        assert!(!ended.unwrap_err().is_incomplete());
    }

    #[test]
    fn a_line_of_a_stream_is_incomplete_without_its_line_feed() {
        let (read, ended) = stream::<Statsd>(Kind::Counter, "hits:1|c\nhits:2|c");
        assert_eq!(read, debug(&[counter("hits", 1).into()]));
        assert!(ended.unwrap_err().is_incomplete());
    }
}
