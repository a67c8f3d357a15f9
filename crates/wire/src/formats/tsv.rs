//! Tab-separated values that you can read in a spreadsheet or with `awk`, exact for every bit.
//!
//! A message is a line of six columns, separated by tabs:
//!
//! ```text
//! column   Counter   BatchTimer      Gauge             MetricUnion
//! kind     Counter   BatchTimer      Gauge             MetricUnion
//! type     -         -               -                 1
//! id       61        61              61                61
//! counter  100       -               -                 100
//! timer    -         3ff0...,4000... -                 3ff0...,4000...
//! gauge    -         -               4059000000000000  0000000000000000
//! ```
//!
//! The id is in hex, two digits per byte. Floats are their IEEE-754 bits in 16 hex digits, and a
//! list separates them with commas. An empty id or list is an empty column; `-` marks a field that
//! the message lacks. Integers are decimal. A line ends with a line feed and an optional carriage
//! return before it; the last line can omit both. A line is read as soon as its last column is
//! complete, because the length of this column is known. Empty lines are skipped.
//!
//! Each line names the kind of its message. This name is written like above. When reading, upper or
//! lower case does not matter, and `batch-timer` and `union` are supported too. If you ask for
//! another kind, the message is converted where possible.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::format::forward;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::pieces::{Be16, Be64, Byte, Bytes, Each, FixedPiece, Literal, Piece, append};
use crate::reader::Reader;
use crate::{Format, values};

/// Lines of six columns.
///
/// ```
/// use quipu_wire::{Counter, Metric, Tsv};
///
/// let mut out = Vec::new();
/// Counter { id: b"hits", value: 7 }.encode::<Tsv>(&mut out)?;
/// assert_eq!(out, b"Counter\t-\t68697473\t7\t-\t-\n");
/// # Ok::<(), quipu_wire::Error>(())
/// ```
#[derive(Debug)]
pub struct Tsv(());

impl crate::format::sealed::Sealed for Tsv {}

impl Format for Tsv {
    const NAME: &'static str = "tsv";
    const IS_TEXT: bool = true;
    type WriterState = ();
    type ReaderState = OpenLine;

    forward!(Codec);

    #[inline(always)]
    fn skip_between(input: &mut Reader<'_>) {
        while input.skip_literal(b"\n") || input.skip_literal(b"\r\n") {}
    }

    #[inline(always)]
    fn read_next<'m>(
        line: &'m mut OpenLine,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if line.0 && !input.is_empty() && !matches!(input.peek(), Some(b'\n' | b'\r')) {
            return Err(Fault::malformed("the end of the line after six columns"));
        }
        let before = input.len();
        skip_empty_lines(input)?;
        line.0 &= input.len() == before;
        if input.is_empty() {
            return Ok(None);
        }
        let message = Message::read::<Tsv>(kind, input, scope)?;
        line.0 = !input.whole()[..input.position()].ends_with(b"\n");
        Ok(Some(message))
    }
}

/// Whether the last message was returned before its line ended.
#[derive(Debug, Default)]
pub struct OpenLine(bool);

/// The code for each kind.
struct Codec;

impl Codec {
    #[inline(always)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Counter { id, value } = *message;
        let value = Decimal::from_int(value);
        append(
            out,
            (Literal(b"Counter\t-\t"), hex(id), Byte(b'\t'), value.digits(), END_OF_COUNTER),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let BatchTimer { id, values } = *message;
        append(out, (Literal(b"BatchTimer\t-\t"), hex(id), Literal(b"\t-\t"), list(values)));
        append(out, Literal(b"\t-\n"));
        Ok(())
    }

    #[inline(always)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Gauge { id, value } = *message;
        append(
            out,
            (Literal(b"Gauge\t-\t"), hex(id), Literal(b"\t-\t-\t"), bits(value), Byte(b'\n')),
        );
        Ok(())
    }

    #[inline(always)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let MetricUnion { metric_type, id, counter, timer, gauge } = *message;
        let metric_type = Decimal::from_int(i64::from(metric_type.0));
        let counter = Decimal::from_int(counter);
        append(
            out,
            (
                Literal(b"MetricUnion\t"),
                metric_type.digits(),
                Byte(b'\t'),
                hex(id),
                Byte(b'\t'),
                counter.digits(),
                Byte(b'\t'),
                list(timer),
                Byte(b'\t'),
                bits(gauge),
                Byte(b'\n'),
            ),
        );
        Ok(())
    }

    #[inline(always)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault> {
        match read_as(Kind::Counter, input, scope)? {
            (Message::Counter(message), _) => Ok(message),
            (_, start) => {
                wrong_kind(input, start, "a line of a counter, or of a union that is one")
            }
        }
    }

    #[inline(always)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault> {
        match read_as(Kind::BatchTimer, input, scope)? {
            (Message::BatchTimer(message), _) => Ok(message),
            (_, start) => {
                wrong_kind(input, start, "a line of a batch timer, or of a union that is one")
            }
        }
    }

    #[inline(always)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault> {
        match read_as(Kind::Gauge, input, scope)? {
            (Message::Gauge(message), _) => Ok(message),
            (_, start) => wrong_kind(input, start, "a line of a gauge, or of a union that is one"),
        }
    }

    #[inline(always)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault> {
        skip_empty_lines(input)?;
        Ok(read_line(input, scope)?.to_union())
    }
}

const END_OF_COUNTER: Literal<5> = Literal(b"\t-\t-\n");

/// Writes bytes in hex.
#[inline(always)]
fn hex(bytes: &[u8]) -> impl Piece + '_ {
    Each(bytes, |byte| {
        let nibbles = u32::from(byte >> 4) << 8 | u32::from(byte & 0xf);
        Be16(ascii(u64::from(nibbles)) as u16)
    })
}

/// Writes the bits of a float in hex.
#[inline(always)]
fn bits(value: f64) -> impl FixedPiece {
    let bits = value.to_bits();
    (Be64(spread((bits >> 32) as u32)), Be64(spread(bits as u32)))
}

#[inline(always)]
fn list(values: &[f64]) -> impl Piece + '_ {
    values
        .split_first()
        .map(|(first, rest)| (bits(*first), Each(rest, |value| (Byte(b','), bits(value)))))
}

/// Spreads a number to 8 digits, the first one in the most significant byte.
#[inline(always)]
fn spread(number: u32) -> u64 {
    let mut nibbles = u64::from(number);
    nibbles = (nibbles << 16 | nibbles) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles << 8 | nibbles) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles << 4 | nibbles) & 0x0f0f_0f0f_0f0f_0f0f;
    ascii(nibbles)
}

/// Converts the nibble in each byte to its digit.
#[inline(always)]
fn ascii(nibbles: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let letters = ((nibbles + 6 * EACH) >> 4) & EACH;
    nibbles + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'9' - 1)
}

/// A number in decimal.
struct Decimal {
    text: [u8; 20],
    start: usize,
}

impl Decimal {
    #[inline(always)]
    fn from_int(value: i64) -> Decimal {
        let mut decimal = Decimal { text: [b'0'; 20], start: 20 };
        let mut rest = value.unsigned_abs();
        loop {
            decimal.start -= 1;
            decimal.text[decimal.start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            decimal.start -= 1;
            decimal.text[decimal.start] = b'-';
        }
        decimal
    }

    #[inline(always)]
    fn digits(&self) -> Bytes<'_> {
        Bytes(&self.text[self.start..])
    }
}

/// Reads a line as the given kind, if its message can be converted. Also returns the start of the
/// line.
#[inline(always)]
fn read_as<'m>(
    kind: Kind,
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
) -> Result<(Message<'m>, Reader<'m>), Fault> {
    skip_empty_lines(input)?;
    let start = *input;
    let message = read_line(input, scope)?;
    Ok((message.to_kind(kind).unwrap_or(message), start))
}

#[cold]
fn wrong_kind<'m, T>(
    input: &mut Reader<'m>,
    start: Reader<'m>,
    expected: &'static str,
) -> Result<T, Fault> {
    *input = start;
    Err(Fault::malformed(expected))
}

#[inline(always)]
fn skip_empty_lines(input: &mut Reader<'_>) -> Result<(), Fault> {
    match input.peek() {
        Some(b'\n' | b'\r') => skip_line_ends(input),
        _ => Ok(()),
    }
}

#[cold]
fn skip_line_ends(input: &mut Reader<'_>) -> Result<(), Fault> {
    loop {
        match input.peek() {
            Some(b'\n') => input.literal(b"\n", "a line feed")?,
            Some(b'\r') => input.literal(b"\r\n", "a line feed after a carriage return")?,
            _ => return Ok(()),
        }
    }
}

#[inline(always)]
fn read_line<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Message<'m>, Fault> {
    let kind = read_kind(input)?;
    let metric_type = match kind {
        Kind::MetricUnion => read_type(input)?,
        _ => none(input).map(|()| MetricType::UNKNOWN)?,
    };
    let id = read_id(input, scope)?;
    let counter = match kind {
        Kind::Counter | Kind::MetricUnion => read_integer(input)?,
        _ => none(input).map(|()| 0)?,
    };
    let timer = match kind {
        Kind::BatchTimer | Kind::MetricUnion => read_list(input, scope)?,
        _ => none(input).map(|()| &[][..])?,
    };
    let gauge = match kind {
        Kind::Gauge | Kind::MetricUnion => read_bits(input)?,
        _ => input.literal(b"-", NONE).map(|()| 0.0)?,
    };
    if let Some(byte) = input.peek()
        && !input.skip_literal(b"\n")
        && !input.skip_literal(b"\r\n")
        && (byte != b'\r' || input.len() > 1)
    {
        return Err(Fault::malformed("the end of the line after six columns"));
    }
    Ok(match kind {
        Kind::Counter => Message::Counter(Counter { id, value: counter }),
        Kind::BatchTimer => Message::BatchTimer(BatchTimer { id, values: timer }),
        Kind::Gauge => Message::Gauge(Gauge { id, value: gauge }),
        Kind::MetricUnion => {
            Message::MetricUnion(MetricUnion { metric_type, id, counter, timer, gauge })
        }
    })
}

const NAMES: [(&[u8], Kind); 6] = [
    (b"MetricUnion\t", Kind::MetricUnion),
    (b"Counter\t", Kind::Counter),
    (b"BatchTimer\t", Kind::BatchTimer),
    (b"Gauge\t", Kind::Gauge),
    (b"union\t", Kind::MetricUnion),
    (b"batch-timer\t", Kind::BatchTimer),
];

#[inline(always)]
fn read_kind(input: &mut Reader<'_>) -> Result<Kind, Fault> {
    for (name, kind) in NAMES {
        if input.skip_literal(name) {
            return Ok(kind);
        }
    }
    read_unusual_kind(input)
}

/// Reads the name of a kind in another case or spelling. Any other name is a fault.
#[cold]
fn read_unusual_kind(input: &mut Reader<'_>) -> Result<Kind, Fault> {
    const EXPECTED: &str = "a line that begins with Counter, BatchTimer, Gauge or MetricUnion \
                            and a tab";
    let rest = input.rest();
    for (name, kind) in NAMES {
        if rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)) {
            input.take(name.len(), EXPECTED)?;
            return Ok(kind);
        }
    }
    let begun =
        |name: &[u8]| name.get(..rest.len()).is_some_and(|start| start.eq_ignore_ascii_case(rest));
    match NAMES.iter().any(|(name, _)| begun(name)) {
        true => Err(Fault::incomplete(EXPECTED)),
        false => Err(Fault::malformed(EXPECTED)),
    }
}

const NONE: &str = "- in a column that the message does not have";

#[inline(always)]
fn none(input: &mut Reader<'_>) -> Result<(), Fault> {
    input.literal(b"-\t", NONE)
}

#[inline(always)]
fn read_type(input: &mut Reader<'_>) -> Result<MetricType, Fault> {
    const EXPECTED: &str = "the type of a union, from -128 to 127, and a tab";
    let before = *input;
    let number = decimal(input, EXPECTED)?;
    i8::try_from(number).map(MetricType).map_err(|_| {
        *input = before;
        Fault::malformed(EXPECTED)
    })
}

#[inline(always)]
fn read_integer(input: &mut Reader<'_>) -> Result<i64, Fault> {
    decimal(input, "an integer of 64 bits in decimal, and a tab")
}

/// Reads a number and the tab after it.
#[inline(always)]
fn decimal(input: &mut Reader<'_>, expected: &'static str) -> Result<i64, Fault> {
    let column = input.rest();
    let negative = column.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut magnitude = 0u64;
    for (index, &byte) in column.iter().enumerate().skip(start) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let limit = i64::MAX as u64 + u64::from(negative);
            if byte != b'\t' || index == start || magnitude > limit {
                return Err(Fault::malformed(expected));
            }
            input.take(index + 1, expected)?;
            let value = magnitude as i64;
            return Ok(if negative { value.wrapping_neg() } else { value });
        }
        // Saturates, so a number that is too large stays too large.
        magnitude = magnitude.saturating_mul(10).saturating_add(u64::from(digit));
    }
    // The whole rest was examined.
    input.advance(column.len());
    Err(Fault::incomplete(expected))
}

#[inline(always)]
fn read_id<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
    const EXPECTED: &str = "an id in hex, two digits per byte, and a tab";
    let column = input.rest();
    let len = column.iter().position(|byte| NIBBLES[usize::from(*byte)] > 15);
    let Some(len) = len else {
        // The whole rest was examined.
        input.advance(column.len());
        return Err(Fault::incomplete(EXPECTED));
    };
    if column.get(len) != Some(&b'\t') || len % 2 != 0 {
        return Err(Fault::malformed(EXPECTED));
    }
    let (pairs, _) = input.take(len, EXPECTED)?.as_chunks::<2>();
    input.take(1, EXPECTED)?;
    let mut pairs = pairs.iter();
    values::fill(len / 2, scope, || {
        let pair = pairs.next().map_or([0; 2], |pair| pair.map(|byte| NIBBLES[usize::from(byte)]));
        Ok(pair[0] << 4 | pair[1])
    })
}

const BITS: &str = "the 16 hex digits of a float";

#[inline(always)]
fn read_list<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    const EXPECTED: &str = "floats as 16 hex digits each with commas between them, and a tab";
    let column = *input;
    if input.skip_literal(b"\t") {
        return Ok(&[]);
    }
    // A comma follows each float except the last.
    let (items, _) = input.rest().as_chunks::<17>();
    let more = items.iter().take_while(|item| item[16] == b',').count();
    let result = values::fill(more + 1, scope, || {
        let value = read_bits(input)?;
        // The tab after the last float is consumed too.
        match input.byte(EXPECTED)? {
            b',' | b'\t' => Ok(value),
            _ => Err(Fault::malformed(EXPECTED)),
        }
    });
    result.map_err(|fault| {
        if fault.is_incomplete() {
            // The input stays here, after the examined bytes.
            return Fault::incomplete(EXPECTED);
        }
        *input = column;
        Fault::malformed(EXPECTED)
    })
}

#[inline(always)]
fn read_bits(input: &mut Reader<'_>) -> Result<f64, Fault> {
    match input.rest().first_chunk::<16>() {
        Some(digits) => match number(digits) {
            Some(bits) => {
                input.take(16, BITS)?;
                Ok(f64::from_bits(bits))
            }
            None => Err(Fault::malformed(BITS)),
        },
        None if input.rest().iter().all(|byte| NIBBLES[usize::from(*byte)] < 16) => {
            Err(Fault::incomplete(BITS))
        }
        None => Err(Fault::malformed(BITS)),
    }
}

#[inline(always)]
fn number(digits: &[u8; 16]) -> Option<u64> {
    let (mut number, mut all) = (0, 0);
    for digit in digits {
        let nibble = NIBBLES[usize::from(*digit)];
        number = number << 4 | u64::from(nibble);
        all |= nibble;
    }
    (all < 16).then_some(number)
}

/// The value of each hex digit; more than 15 for any other byte.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [0xf0; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value] as usize] = value as u8;
        nibbles[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    nibbles
};

#[cfg(test)]
mod tests {
    use quipu_arena::Arena;

    use super::*;
    use crate::{Decoder, Encoder, Error, Framing, Metric};

    const NAN: f64 = f64::from_bits(0xfff8_0000_00c0_ffee);

    fn written<'m>(message: impl Into<Message<'m>>) -> Vec<u8> {
        let mut out = Vec::new();
        message.into().encode::<Tsv>(&mut out).unwrap();
        out
    }

    fn error(kind: Kind, line: &str) -> Error {
        let mut arena = Arena::new();
        Message::decode::<Tsv>(kind, line.as_bytes(), &arena.as_scope()).unwrap_err()
    }

    const UNION: MetricUnion<'static> = MetricUnion {
        metric_type: MetricType(-128),
        id: b"a\t\n\xff",
        counter: i64::MIN,
        timer: &[1.0, -0.0, f64::INFINITY],
        gauge: 0.1,
    };

    #[test]
    fn lines_are_as_documented() {
        assert_eq!(written(Counter { id: b"a", value: 100 }), b"Counter\t-\t61\t100\t-\t-\n");
        assert_eq!(
            written(BatchTimer { id: b"", values: &[1.0, NAN] }),
            b"BatchTimer\t-\t\t-\t3ff0000000000000,fff8000000c0ffee\t-\n"
        );
        assert_eq!(written(BatchTimer { id: b"", values: &[] }), b"BatchTimer\t-\t\t-\t\t-\n");
        assert_eq!(
            written(Gauge { id: b"\x00\x9a", value: -0.0 }),
            b"Gauge\t-\t009a\t-\t-\t8000000000000000\n"
        );
        assert_eq!(
            written(UNION),
            b"MetricUnion\t-128\t61090aff\t-9223372036854775808\t\
              3ff0000000000000,8000000000000000,7ff0000000000000\t3fb999999999999a\n"
        );
    }

    #[test]
    fn written_values_are_read_bit_for_bit() {
        for bits in (0..64).flat_map(|shift| [1 << shift, !(1 << shift), u64::MAX >> shift]) {
            let value = f64::from_bits(bits);
            let timer = [value, 0.0, value];
            let counter = bits as i64;
            let union = MetricUnion { counter, timer: &timer, gauge: value, ..UNION };
            let mut out = Vec::new();
            union.encode::<Tsv>(&mut out).unwrap();
            let mut arena = Arena::new();
            let read = MetricUnion::decode::<Tsv>(&out, &arena.as_scope()).unwrap();
            assert_eq!(
                (read.id, read.counter, read.metric_type),
                (UNION.id, counter, MetricType(-128))
            );
            assert_eq!(read.gauge.to_bits(), bits);
            assert_eq!(read.timer.len(), 3);
            assert!(read.timer.iter().zip(timer).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn reads_kinds_and_digits_in_any_case_and_other_ends() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let gauge = Gauge { id: b"\xab", value: -0.1 };
        for line in [
            "Gauge\t-\tAB\t-\t-\tBFB999999999999A",
            "gauge\t-\tab\t-\t-\tbfb999999999999a\r\n",
            "GAUGE\t-\taB\t-\t-\tbfb999999999999A\n",
            "\n\r\nGauge\t-\tab\t-\t-\tbfb999999999999a\n",
            "union\t3\tab\t0\t\tbfb999999999999a\n",
        ] {
            assert_eq!(Gauge::decode::<Tsv>(line.as_bytes(), &scope).unwrap(), gauge, "{line}");
        }
        let line = b"Batch-Timer\t-\t\t-\t0000000000000000\t-";
        assert_eq!(BatchTimer::decode::<Tsv>(line, &scope).unwrap().values, [0.0]);
        let line = b"counter\t-\t\t-007\t-\t-";
        assert_eq!(Counter::decode::<Tsv>(line, &scope).unwrap().value, -7);
    }

    #[test]
    fn gives_a_message_in_the_form_of_another() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let counter = Counter { id: b"a", value: 100 };
        let line = written(counter);
        let union = MetricUnion::decode::<Tsv>(&line, &scope).unwrap();
        assert_eq!(union, Message::from(counter).to_union());
        let line_of_union = written(union);
        assert_eq!(Counter::decode::<Tsv>(&line_of_union, &scope).unwrap(), counter);

        let text = core::str::from_utf8(&line).unwrap();
        let error = error(Kind::Gauge, &alloc::format!("\n{text}"));
        assert_eq!(error.offset(), Some(1));
        assert!(!error.is_incomplete() && error.expected().contains("a gauge"), "{error}");
    }

    #[test]
    fn faults_stand_at_their_columns() {
        for (line, offset) in [
            ("Count\t-\t61\t100\t-\t-", 0),
            ("Counter 1", 0),
            ("Counter\t1\t61\t100\t-\t-", 8),
            ("Counter\t-\t6\t100\t-\t-", 10),
            ("Counter\t-\t6g\t100\t-\t-", 10),
            ("Counter\t-\t61 100", 10),
            ("Counter\t-\t61\t\t-\t-", 13),
            ("Counter\t-\t61\t-\t-\t-", 13),
            ("Counter\t-\t61\t1.5\t-\t-", 13),
            ("Counter\t-\t61\t9223372036854775808\t-\t-", 13),
            ("Counter\t-\t61\t-9223372036854775809\t-\t-", 13),
            ("Counter\t-\t61\t99999999999999999999999\t-\t-", 13),
            ("Counter\t-\t61\t100\t\t-", 17),
            ("Counter\t-\t61\t100\t-\t0", 19),
            ("Counter\t-\t61\t100\t-\t-\t", 20),
            ("Counter\t-\t61\t100\t-\t-\rx", 20),
            ("MetricUnion\t128\t", 12),
            ("MetricUnion\t0\t\t0\t-\t0000000000000000", 17),
            ("MetricUnion\t0\t\t0\t0000000000000000,\t", 17),
            ("MetricUnion\t0\t\t0\t0000000000000000,0000000000000000;", 17),
            ("MetricUnion\t0\t\t0\t\t000000000000000g", 18),
            ("MetricUnion\t0\t\t0\t\t00000000\n", 18),
        ] {
            let error = error(Kind::MetricUnion, line);
            assert_eq!((error.offset(), error.is_incomplete()), (Some(offset), false), "{line}");
        }
    }

    #[test]
    fn every_truncation_is_incomplete() {
        let lines = [
            written(UNION),
            written(Counter { id: b"ab", value: -1 }),
            written(BatchTimer { id: b"ab", values: &[1.0, 2.0] }),
            written(Gauge { id: b"ab", value: 1.0 }),
        ];
        for line in lines {
            // The line feed is optional.
            for len in 0..line.len() - 1 {
                let line = core::str::from_utf8(&line[..len]).unwrap();
                assert!(error(Kind::MetricUnion, line).is_incomplete(), "{line}");
            }
        }
    }

    #[test]
    fn streams_in_any_pieces_with_any_ends() {
        let mut encoder = Encoder::<Tsv>::new(Framing::Own);
        let mut out = Vec::new();
        for value in [1, 20, 300] {
            encoder.append(&Counter { id: b"a", value }.into(), &mut out).unwrap();
        }
        let text = core::str::from_utf8(&out).unwrap();
        for text in [
            text.into(),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r\n\r\n\n"),
            text.trim_end().into(),
            alloc::format!("\n{text}"),
        ] {
            for size in 1..text.len() {
                let mut decoder = Decoder::<Tsv>::new(Kind::Counter, Framing::Own);
                let mut values = Vec::new();
                let mut take = |decoder: &mut Decoder<Tsv>| {
                    let mut arena = Arena::new();
                    while let Some(message) = decoder.next(&arena.as_scope()).unwrap() {
                        let Message::Counter(counter) = message else { unreachable!() };
                        values.push(counter.value);
                    }
                };
                for piece in text.as_bytes().chunks(size) {
                    decoder.push(piece);
                    take(&mut decoder);
                }
                decoder.end();
                take(&mut decoder);
                decoder.finish().unwrap();
                assert_eq!(values, [1, 20, 300], "{size} {text:?}");
            }
        }
    }
}
