//! Streams of every format in every framing, in pieces of any size.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::hard::{self, as_kind, messages, small_messages};
use common::{Owned, carried, encoded, in_block_order, same};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, AnyFormat, Error, Framing, Kind, Message};

const FRAMINGS: [Framing; 4] = [Framing::Own, Framing::U32Le, Framing::Varint, Framing::None];

/// The framings with a length before each message.
const LENGTHS: [Framing; 2] = [Framing::U32Le, Framing::Varint];

/// Returns the formats with their framings. If a format is not delimited, its stream needs lengths.
fn streams() -> impl Iterator<Item = (AnyFormat, Framing)> {
    let framings = |format: AnyFormat| FRAMINGS.map(|framing| (format, framing));
    AnyFormat::all()
        .flat_map(framings)
        .filter(|(format, framing)| *framing != Framing::None || format.is_delimited())
}

/// A stream, and the messages that must be read from it.
struct Stream {
    format: AnyFormat,
    framing: Framing,
    kind: Kind,
    bytes: Vec<u8>,
    messages: Vec<Owned>,
    /// The length of the stream before each message and at its end, if no messages are held back.
    ends: Vec<usize>,
}

impl Stream {
    /// Makes a stream of those messages that the format can represent, as one kind. The encoder is
    /// flushed after every `flush_after` messages.
    fn of(
        (format, framing): (AnyFormat, Framing),
        kind: Kind,
        messages: &[Owned],
        flush_after: usize,
    ) -> Stream {
        let mut stream =
            Stream { format, framing, kind, bytes: vec![], messages: vec![], ends: vec![0] };
        let mut encoder = format.encoder(framing);
        // A quipu stream sorts the messages of a block by kind.
        let has_blocks = format.as_str().starts_with("quipu") && framing == Framing::Own;
        let mut block = 0;
        for message in messages {
            let message = as_kind(message, kind);
            let before = stream.bytes.len();
            let Some(carried) = carried(format.as_str(), &message) else {
                let before = stream.bytes.clone();
                encoder.append(&message.message(), &mut stream.bytes).unwrap_err();
                assert_eq!(stream.bytes, before);
                continue;
            };
            if is_split(format, framing, &message) {
                continue;
            }
            encoder.append(&message.message(), &mut stream.bytes).unwrap();
            stream.messages.push(carried);
            if stream.messages.len().is_multiple_of(flush_after) {
                encoder.flush(&mut stream.bytes);
            }
            stream.ends.push(stream.bytes.len());
            if has_blocks && stream.bytes.len() > before {
                in_block_order(&mut stream.messages[block..]);
                block = stream.messages.len();
            }
        }
        encoder.flush(&mut stream.bytes);
        if has_blocks {
            in_block_order(&mut stream.messages[block..]);
        }
        *stream.ends.last_mut().unwrap() = stream.bytes.len();
        stream
    }

    fn decoder(&self) -> AnyDecoder {
        self.format.decoder(self.kind, self.framing)
    }

    /// Reads the stream in pieces that end at the cuts. A quipu stream is also read by `for_each`,
    /// because it has a separate implementation there.
    fn check(&self, cuts: impl IntoIterator<Item = usize> + Clone) {
        self.read(cuts.clone(), Reading::drain);
        if self.format.as_str().starts_with("quipu") {
            self.read(cuts, Reading::drain_by_each);
        }
    }

    fn read<'s>(
        &'s self,
        cuts: impl IntoIterator<Item = usize>,
        drain: impl Fn(&mut Reading<'s>) -> Result<(), Error>,
    ) {
        let mut reader = Reading::of(self);
        let mut start = 0;
        for end in cuts.into_iter().chain([self.bytes.len()]) {
            reader.decoder.push(&self.bytes[start..end]);
            drain(&mut reader).unwrap_or_else(|error| panic!("{self}: {error}"));
            start = end;
        }
        reader.decoder.end();
        drain(&mut reader).unwrap_or_else(|error| panic!("{self}: {error}"));
        assert_eq!(reader.count, self.messages.len(), "{self}");
        assert_eq!(reader.decoder.position(), self.bytes.len() as u64, "{self}");
    }

    /// Checks the message with this number.
    fn expect(&self, number: usize, message: &Message<'_>) {
        let expected = self.messages.get(number);
        let expected = expected.unwrap_or_else(|| panic!("{self}: {message:?}"));
        let as_expected = same(message, &expected.message());
        assert!(as_expected, "{self}: message {number}: {expected:?}, {message:?}");
    }
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.format.as_str(), self.framing, self.kind)
    }
}

/// Returns whether a message becomes several messages in a stream. This happens if each line is a
/// message with one value.
fn is_split(format: AnyFormat, framing: Framing, message: &Owned) -> bool {
    let name = format.as_str();
    let has_lines = name == "statsd" && framing == Framing::Own;
    has_lines && encoded(format, &message.message()).contains(&b'\n')
}

/// A stream that is being read.
struct Reading<'s> {
    stream: &'s Stream,
    decoder: AnyDecoder,
    arena: Arena,
    /// The number of messages read so far. All of them were correct.
    count: usize,
}

impl<'s> Reading<'s> {
    fn of(stream: &'s Stream) -> Reading<'s> {
        Reading { stream, decoder: stream.decoder(), arena: Arena::new(), count: 0 }
    }

    /// Reads all available messages.
    fn drain(&mut self) -> Result<(), Error> {
        loop {
            let mut guard = self.arena.guard();
            let Some(message) = self.decoder.next(&guard.scope())? else { return Ok(()) };
            self.stream.expect(self.count, &message);
            self.count += 1;
        }
    }

    /// Reads all available messages in one call.
    fn drain_by_each(&mut self) -> Result<(), Error> {
        self.decoder.for_each(&mut self.arena, |message| {
            self.stream.expect(self.count, &message);
            self.count += 1;
        })
    }
}

#[test]
fn cut_in_two_anywhere() {
    let messages = hard::some(small_messages(), 12, 1);
    for (index, stream) in streams().enumerate() {
        let stream = Stream::of(stream, Kind::ALL[index % 4], &messages, 1 + index % 5);
        for cut in 0..=stream.bytes.len() {
            stream.check([cut]);
        }
    }
}

#[test]
fn fifty_messages_cut_in_two_anywhere() {
    let messages = hard::some(small_messages(), 50, 2);
    for (index, format) in AnyFormat::all().enumerate() {
        let kind = Kind::ALL[index % 4];
        let stream = Stream::of((format, Framing::Own), kind, &messages, 7);
        for cut in 0..=stream.bytes.len() {
            stream.check([cut]);
        }
    }
}

#[test]
fn any_pieces() {
    let messages = hard::some(messages(), 50, 3);
    for (index, stream) in streams().enumerate() {
        for &kind in Kind::ALL {
            let stream = Stream::of(stream, kind, &messages, 9);
            stream.check([]);
            for longest in [20, 1000, 100_000] {
                let steps = hard::some(1..longest, 2 * stream.bytes.len() / longest, index as u64);
                let ends = steps.iter().scan(0, |at, step| {
                    *at += step;
                    Some(*at)
                });
                stream.check(ends.take_while(|end| *end < stream.bytes.len()));
            }
        }
    }
}

#[test]
fn byte_by_byte() {
    let messages = hard::some(small_messages(), 50, 4);
    for stream in streams() {
        for &kind in Kind::ALL {
            let stream = Stream::of(stream, kind, &messages, 50);
            stream.check(1..stream.bytes.len());
        }
    }
}

/// If a stream ends too early, no message is read twice or lost.
#[test]
fn an_end_within_a_message_is_an_error_that_says_where() {
    let messages = hard::some(small_messages(), 6, 5);
    for (index, stream) in streams().enumerate() {
        let stream = Stream::of(stream, Kind::ALL[index % 4], &messages, 1);
        for cut in 0..stream.bytes.len() {
            let mut reader = Reading::of(&stream);
            reader.decoder.push(&stream.bytes[..cut]);
            reader.decoder.end();
            let end = reader.drain();
            // The line feed of the last line is optional.
            let line_feed = stream.bytes[cut] == b'\n' && stream.ends.contains(&(cut + 1));
            let cut = if line_feed && end.is_ok() { cut + 1 } else { cut };
            let whole = stream.ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(reader.count, whole, "{stream}: {cut} bytes: {end:?}");
            if stream.ends.contains(&cut) {
                end.unwrap();
            } else {
                let error = end.expect_err(&stream.to_string());
                let offset = error.offset().unwrap();
                let within = stream.ends[whole] as u64..=cut as u64;
                assert!(within.contains(&offset), "{stream}: {cut} bytes: {error}");
                assert!(error.is_incomplete(), "{stream}: {cut} bytes: {error}");
                assert_eq!(reader.drain(), Err(error), "{stream}");
            }
        }
    }
}

#[test]
fn one_message_up_to_the_end() {
    let messages = hard::some(messages(), 30, 6);
    for format in AnyFormat::all().filter(|format| !format.is_delimited()) {
        for message in &messages {
            let message = std::slice::from_ref(message);
            let stream = Stream::of((format, Framing::None), message[0].kind, message, 1);
            if stream.messages.is_empty() {
                continue;
            }
            let len = stream.bytes.len();
            let mut reader = Reading::of(&stream);
            for piece in stream.bytes.chunks(len / 3 + 1) {
                reader.decoder.push(piece);
                reader.drain().unwrap();
                assert_eq!(reader.count, 0, "{stream}: more may come");
            }
            reader.decoder.end();
            reader.drain().unwrap();
            reader.drain().unwrap();
            assert_eq!(reader.count, 1, "{stream}");
        }
    }
}

#[test]
fn a_faulty_message_between_lengths_does_not_lose_the_others() {
    let messages = hard::some(small_messages(), 3, 7);
    for format in AnyFormat::all() {
        for (framing, kind) in
            LENGTHS.into_iter().flat_map(|f| Kind::ALL.iter().map(move |&kind| (f, kind)))
        {
            let Some(fault) = fault(format, kind) else { continue };
            let stream = Stream::of((format, framing), kind, &messages, 1);
            let mut bytes = vec![];
            let mut faults = vec![];
            for ends in stream.ends.windows(2) {
                bytes.extend_from_slice(&stream.bytes[ends[0]..ends[1]]);
                match framing {
                    Framing::Varint => bytes.push(fault.len() as u8),
                    _ => bytes.extend_from_slice(&(fault.len() as u32).to_le_bytes()),
                }
                faults.push(bytes.len() as u64..=(bytes.len() + fault.len()) as u64);
                bytes.extend_from_slice(&fault);
            }
            let mut reader = Reading::of(&stream);
            reader.decoder.push(&bytes);
            for (index, fault) in faults.iter().enumerate() {
                let error = reader.drain().unwrap_err();
                assert_eq!(reader.count, index + 1, "{stream}: {error}");
                assert!(fault.contains(&error.offset().unwrap()), "{stream}: {error}");
            }
            reader.decoder.end();
            reader.drain().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A damaged stream yields the same messages and errors, whatever pieces it arrives in.
    #[test]
    fn damaged_streams_are_the_same_in_any_pieces(
        messages in vec(small_messages(), 1..6),
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
        cuts in vec(any::<Index>(), 0..6),
    ) {
        for (index, stream) in streams().enumerate() {
            let mut stream = Stream::of(stream, Kind::ALL[index % 4], &messages, 2);
            if stream.bytes.is_empty() {
                continue;
            }
            for (at, byte) in &damage {
                let at = at.index(stream.bytes.len());
                stream.bytes[at] = *byte;
            }
            let mut cuts: Vec<_> = cuts.iter().map(|at| at.index(stream.bytes.len())).collect();
            cuts.sort_unstable();
            let (whole, pieces) = (found(&stream, &[]), found(&stream, &cuts));
            // A line of columns is read before its line feed arrives. If another byte arrives
            // instead, the line was already read in one case and refused in the other.
            let early = stream.format.as_str() == "tsv";
            assert!(
                early || whole == pieces,
                "{stream} {}: {whole:?}, in pieces {pieces:?}",
                common::hex(&stream.bytes)
            );
        }
    }
}

/// Formats all messages and errors of a stream.
fn found(stream: &Stream, cuts: &[usize]) -> Vec<String> {
    let mut decoder = stream.decoder();
    let mut found = vec![];
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.bytes.len()]) {
        decoder.push(&stream.bytes[start..end]);
        start = end;
        gather(&mut decoder, &mut found);
    }
    decoder.end();
    gather(&mut decoder, &mut found);
    found
}

fn gather(decoder: &mut AnyDecoder, found: &mut Vec<String>) {
    let mut arena = Arena::new();
    loop {
        let mut guard = arena.guard();
        let before = decoder.position();
        match decoder.next(&guard.scope()) {
            Ok(Some(message)) => found.push(format!("{:?}", Owned::of(&message))),
            Ok(None) => return,
            Err(error) => {
                // A truncated JSON number is another number, with a fault elsewhere.
                let json = error.format().ends_with("json");
                let text = if json { "a fault".into() } else { error.to_string() };
                // Without a length, the reader cannot continue, so the same error repeats.
                if found.last() != Some(&text) {
                    found.push(text);
                }
                if decoder.position() == before {
                    return;
                }
            }
        }
    }
}

/// Returns fewer than 100 bytes that are not this message.
fn fault(format: AnyFormat, kind: Kind) -> Option<Vec<u8>> {
    let mut message = encoded(format, &common::seed_message(kind));
    message.truncate(10);
    [vec![0xff; 3], vec![7], vec![1; 20], message].into_iter().find(|bytes| {
        let mut arena = Arena::new();
        format.decode(kind, bytes, &arena.as_scope()).is_err()
    })
}

#[test]
fn no_message_is_longer_than_the_limit() {
    const LIMIT: usize = 1000;
    for (format, framing) in AnyFormat::all().flat_map(|f| FRAMINGS.map(|framing| (f, framing))) {
        for &kind in Kind::ALL {
            let long =
                Owned { id: vec![b'i'; 8 * LIMIT], ..Owned::of(&common::seed_message(kind)) };
            let stream = Stream::of((format, framing), kind, std::slice::from_ref(&long), 1);
            if stream.messages.is_empty() || stream.bytes.len() < 4 * LIMIT {
                continue;
            }
            let mut reader = Reading::of(&stream);
            reader.decoder = reader.decoder.limit(LIMIT);
            let refused = stream.bytes[..2 * LIMIT].chunks(100).find_map(|piece| {
                reader.decoder.push(piece);
                reader.drain().err()
            });
            let error = refused.unwrap_or_else(|| panic!("{stream}: {LIMIT} bytes and more"));
            assert!(error.to_string().contains("limit"), "{stream}: {error}");
            assert!(!error.is_incomplete(), "{stream}: {error}");
            // A message just below the limit is read.
            let short = Owned { id: vec![b'i'; LIMIT / 12], ..long };
            let stream = Stream::of((format, framing), kind, std::slice::from_ref(&short), 1);
            assert!(stream.bytes.len() <= LIMIT, "{stream}: {}", stream.bytes.len());
            let mut reader = Reading::of(&stream);
            reader.decoder = reader.decoder.limit(LIMIT);
            reader.decoder.push(&stream.bytes);
            reader.decoder.end();
            reader.drain().unwrap();
            assert_eq!(reader.count, 1, "{stream}");
        }
    }
}

/// Quadratic work would take minutes here.
#[test]
fn one_long_message_byte_by_byte() {
    for (format, framing) in AnyFormat::all().flat_map(|f| FRAMINGS.map(|framing| (f, framing))) {
        let message = Owned {
            kind: Kind::MetricUnion,
            metric_type: 2,
            id: hard::noise(1 << 15, 1),
            counter: 0,
            timer: (0..1 << 12).map(f64::from).collect(),
            gauge: 0.0,
        };
        let stream = Stream::of((format, framing), message.kind, &[message], 1);
        if stream.messages.is_empty() {
            continue;
        }
        let mut reader = Reading::of(&stream);
        let start = Instant::now();
        for byte in &stream.bytes {
            reader.decoder.push(&[*byte]);
            reader.drain().unwrap();
        }
        reader.decoder.end();
        reader.drain().unwrap();
        assert_eq!(reader.count, 1, "{stream}");
        let time = start.elapsed();
        assert!(time < Duration::from_secs(30), "{stream}: {time:?}, {} bytes", stream.bytes.len());
    }
}
