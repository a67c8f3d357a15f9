//! Streams of messages: [`Encoder`] and [`Decoder`], and what stands between two messages.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::{Error, Fault};
use crate::format::Format;
use crate::message::{Kind, Message};
use crate::pieces::{Le32, Varint, append};
use crate::reader::Reader;

/// What stands between the messages of a stream. These are all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// What the format itself has for streams: lines of JSON, one gob stream, frames of quipu.
    /// Formats that have nothing take [`Varint`](Framing::Varint).
    #[default]
    Own,
    /// The length as 4 bytes, least significant first; then a message that stands alone.
    U32Le,
    /// The length as a base-128 number, as protobuf's delimited messages; then a message that
    /// stands alone.
    Varint,
    /// Nothing. Messages that stand alone, one behind the other; of a format that does not tell
    /// where a message ends, one message up to the end of the input.
    None,
}

/// Writes a stream of messages.
///
/// ```
/// # #[cfg(all(feature = "gob"))] {
/// use quipu_wire::{Counter, Encoder, Framing, Gob};
///
/// let mut encoder = Encoder::<Gob>::new(Framing::Own);
/// let mut out = Vec::new();
/// for value in 0..10 {
///     encoder.append(&Counter { id: b"requests", value }.into(), &mut out).unwrap();
/// }
/// encoder.flush(&mut out);
/// # }
/// ```
pub struct Encoder<F: Format> {
    framing: Framing,
    state: F::Writing,
    /// A message whose length has to stand before it.
    message: Vec<u8>,
    /// Whether there is a message already.
    begun: bool,
}

impl<F: Format> Encoder<F> {
    /// A writer at the start of a stream.
    pub fn new(framing: Framing) -> Encoder<F> {
        Encoder {
            framing: own::<F>(framing),
            state: F::Writing::default(),
            message: Vec::new(),
            begun: false,
        }
    }

    /// Appends the next message. Formats that gather messages append them together, later.
    ///
    /// # Errors
    ///
    /// As [`Metric::encode`](crate::Metric::encode). The buffer and the stream are as they were.
    pub fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        let written = match self.framing {
            Framing::Own => F::write_next(&mut self.state, message, out),
            Framing::None if self.begun && !F::DELIMITED => Err(NO_END),
            Framing::None => message.write::<F>(out),
            Framing::U32Le | Framing::Varint => {
                self.message.clear();
                message.write::<F>(&mut self.message).and_then(|()| self.frame(out))
            }
        };
        match written {
            Ok(()) => {
                self.begun = true;
                Ok(())
            }
            Err(fault) => {
                out.truncate(start);
                Err(Error::writing(F::NAME, fault))
            }
        }
    }

    /// Appends what was gathered. A stream can go on behind it.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.framing == Framing::Own {
            F::flush(&mut self.state, out);
        }
    }

    fn frame(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.framing == Framing::Varint {
            append(out, Varint(self.message.len() as u64));
        } else {
            let len = u32::try_from(self.message.len())
                .map_err(|_| Fault::unwritable("its length must fit in 32 bits"))?;
            append(out, Le32(len));
        }
        out.extend_from_slice(&self.message);
        Ok(())
    }
}

/// Reads a stream of messages that comes in any pieces.
///
/// ```
/// # #[cfg(feature = "msgpack")] {
/// use quipu_arena::Arena;
/// use quipu_wire::{Decoder, Framing, Kind, Message, TinylibMsgp};
///
/// let mut decoder = Decoder::<TinylibMsgp>::new(Kind::Counter, Framing::Own);
/// let mut arena = Arena::new();
/// let mut total = 0;
/// for piece in [&b"\x82\xa2ID\xc4\x01a\xa5Va"[..], b"lue\x07\x82\xa2ID\xc4\x01b\xa5Value\x08"] {
///     decoder.push(piece);
///     loop {
///         let mut guard = arena.guard();
///         let Some(message) = decoder.next(&guard.scope()).unwrap() else { break };
///         let Message::Counter(counter) = message else { unreachable!() };
///         total += counter.value;
///     }
/// }
/// decoder.finish().unwrap();
/// assert_eq!(total, 15);
/// # }
/// ```
pub struct Decoder<F: Format> {
    kind: Kind,
    framing: Framing,
    limit: usize,
    state: F::Reading,
    /// What came, and was not yet given back.
    buffer: Vec<u8>,
    /// Where the rest begins in the buffer.
    start: usize,
    /// Where the buffer begins in the stream.
    offset: u64,
    /// How many bytes may be read again before more has come, or, below 0, how many have been read
    /// too many; see [`RETRIES`].
    credit: i64,
    /// Whether all has come.
    ended: bool,
    /// Whether a message was given of a stream that may be a single one, and an empty one at that.
    given: bool,
    /// What ended the stream before its end.
    failed: Option<Error>,
}

/// A message that is incomplete is read again when more has come. A byte pays for reading so many
/// again, and each message for so many at its beginning: so the time is linear however small the
/// pieces are. Only a long message that comes in more than 16 pieces may have to wait, for a
/// sixteenth of its length at most, or for [`Decoder::end`].
const RETRIES: i64 = 16;
const GRACE: i64 = 256 << 10;

/// 64 MiB.
const DEFAULT_LIMIT: usize = 64 << 20;

impl<F: Format> Decoder<F> {
    /// A reader at the start of a stream of messages of one kind. A quipu stream and tsv say
    /// themselves which message is which; there, messages are given in the form of that kind where
    /// they have one.
    pub fn new(kind: Kind, framing: Framing) -> Decoder<F> {
        Decoder {
            kind,
            framing: own::<F>(framing),
            limit: DEFAULT_LIMIT,
            state: F::Reading::default(),
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            credit: GRACE,
            ended: false,
            given: false,
            failed: None,
        }
    }

    /// Sets how many bytes a message can have, 64 MiB otherwise: more is not held in memory. Of a
    /// quipu stream, a frame is held as a whole.
    pub fn limit(mut self, bytes: usize) -> Decoder<F> {
        self.set_limit(bytes);
        self
    }

    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.offset += self.start as u64;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
        self.credit = self.credit.saturating_add((bytes.len() as i64).saturating_mul(RETRIES));
    }

    /// Says that the input pauses: what is there is read now, whatever it costs. Without it, a long
    /// message that came in many small pieces can wait for the next bytes.
    pub fn pause(&mut self) {
        self.credit = self.credit.max(1);
    }

    /// Says that no more bytes come. Messages may still be there: call [`next`](Decoder::next)
    /// until it gives none.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// How many bytes of the stream were read.
    pub fn position(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// The next message, or `None` when more bytes are needed first. Ids and values are valid until
    /// the decoder is used again.
    ///
    /// # Errors
    ///
    /// When the stream is not in this format. Where lengths stand between messages, the next call
    /// goes on behind the faulty one, unless the length itself is; otherwise the error comes again.
    #[inline]
    pub fn next<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.framing {
            Framing::Own => self.next_own(scope),
            Framing::None => self.next_alone(scope),
            Framing::U32Le | Framing::Varint => self.next_framed(scope),
        }
    }

    /// Says that no more bytes come, and that all were messages that have been taken.
    ///
    /// # Errors
    ///
    /// When the stream ends within a message, and when a message is left. Who pushes long messages
    /// in small pieces calls [`end`](Decoder::end) first, and [`next`](Decoder::next) after it.
    pub fn finish(mut self) -> Result<(), Error> {
        self.ended = true;
        if self.position() == 0 && self.buffer.is_empty() {
            return Ok(());
        }
        let mut arena = quipu_arena::Arena::new();
        let position = self.position();
        match self.next(&arena.as_scope()) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Error::reading(F::NAME, position, NOT_TAKEN)),
            Err(error) => Err(error),
        }
    }

    #[inline(always)]
    fn next_own<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        let Some(rest) = ready(&self.buffer, self.start, self.credit, self.ended) else {
            return Ok(None);
        };
        let position = self.offset + self.start as u64;
        let mut reader = Reader::new(rest);
        let read = F::read_next(&mut self.state, self.kind, &mut reader, scope);
        let seen = reader.position();
        match read {
            Ok(_) if seen > self.limit => {
                let error = Error::reading(F::NAME, position, TOO_LARGE);
                Err(self.failed.insert(error).clone())
            }
            Ok(message) => {
                self.start += seen;
                self.credit = self.credit.max(GRACE);
                Ok(message)
            }
            Err(fault) => {
                let held = rest.len();
                Self::stop(fault, position, seen, held, self.limit, self.ended, &mut self.credit)
                    .map_or(Ok(None), |error| Err(self.failed.insert(error).clone()))
            }
        }
    }

    fn next_alone<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        let Some(rest) = ready(&self.buffer, self.start, self.credit, self.ended) else {
            return Ok(None);
        };
        if rest.is_empty() && (F::DELIMITED || self.given) {
            return Ok(None);
        }
        let position = self.offset + self.start as u64;
        let mut reader = Reader::new(rest);
        F::skip_between(&mut reader);
        if reader.is_empty() && !rest.is_empty() {
            self.start += rest.len();
            return Ok(None);
        }
        let held = rest.len();
        if !F::DELIMITED && !self.ended {
            // It takes all that will come.
            return match held > self.limit {
                false => Ok(None),
                true => {
                    let error = Error::reading(F::NAME, position, TOO_LARGE);
                    Err(self.failed.insert(error).clone())
                }
            };
        }
        match Message::read::<F>(self.kind, &mut reader, scope) {
            Ok(_) if reader.position() > self.limit => {
                let error = Error::reading(F::NAME, position, TOO_LARGE);
                Err(self.failed.insert(error).clone())
            }
            Ok(message) => {
                self.start += reader.position();
                self.credit = self.credit.max(GRACE);
                self.given = true;
                Ok(Some(message))
            }
            Err(fault) => {
                let seen = reader.position();
                Self::stop(fault, position, seen, held, self.limit, self.ended, &mut self.credit)
                    .map_or(Ok(None), |error| Err(self.failed.insert(error).clone()))
            }
        }
    }

    fn next_framed<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        let rest = &self.buffer[self.start..];
        if rest.is_empty() {
            return Ok(None);
        }
        let position = self.offset + self.start as u64;
        let mut reader = Reader::new(rest);
        let len = if self.framing == Framing::Varint {
            reader.varint("the length of a message")
        } else {
            reader
                .array("the length of a message")
                .map(|bytes| u64::from(u32::from_le_bytes(bytes)))
        };
        let message = len.and_then(|len| {
            if len > self.limit as u64 {
                return Err(TOO_LARGE);
            }
            reader.take_long(len, "a message as long as its length says")
        });
        let message = match message {
            Ok(message) => message,
            Err(fault) if fault.is_incomplete() && !self.ended => return Ok(None),
            Err(fault) => {
                let error = Error::reading(F::NAME, position + reader.position() as u64, fault);
                return Err(self.failed.insert(error).clone());
            }
        };
        let end = reader.position();
        self.start += end;
        Message::decode::<F>(self.kind, message, scope)
            .map(Some)
            .map_err(|error| error.moved_by(position + (end - message.len()) as u64))
    }

    /// What follows from a fault: to wait for more, or an error.
    #[cold]
    fn stop(
        fault: Fault,
        position: u64,
        seen: usize,
        held: usize,
        limit: usize,
        ended: bool,
        credit: &mut i64,
    ) -> Option<Error> {
        let position = position + seen as u64;
        if !fault.is_incomplete() || ended {
            Some(Error::reading(F::NAME, position, fault))
        } else if held > limit {
            Some(Error::reading(F::NAME, position, TOO_LARGE))
        } else {
            // Readers leave the input behind all that they looked at.
            *credit = credit.saturating_sub(seen as i64 + 1);
            None
        }
    }
}

const NO_END: Fault = Fault::unwritable(
    "a message does not say where it ends: lengths have to stand between several",
);
const NOT_TAKEN: Fault = Fault::malformed("no more messages: one was not taken");
const TOO_LARGE: Fault = Fault::too_large("a message within the limit of the decoder");

/// The rest of the buffer, when it is time to read it.
fn ready(buffer: &[u8], start: usize, credit: i64, ended: bool) -> Option<&[u8]> {
    (credit > 0 || ended).then(|| &buffer[start..])
}

fn own<F: Format>(framing: Framing) -> Framing {
    if framing == Framing::Own && !F::HAS_FRAMING { Framing::Varint } else { framing }
}

impl<F: Format> core::fmt::Debug for Encoder<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").field("format", &F::NAME).finish_non_exhaustive()
    }
}

impl<F: Format> core::fmt::Debug for Decoder<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let position = self.position();
        f.debug_struct("Decoder")
            .field("format", &F::NAME)
            .field("position", &position)
            .finish_non_exhaustive()
    }
}
