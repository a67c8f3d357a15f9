//! Streams of messages: [`Encoder`], [`Decoder`], and the framing between two messages.

use alloc::vec::Vec;

use quipu_arena::{Arena, Scope};

use crate::error::{Error, Fault};
use crate::format::Format;
use crate::message::{Kind, Message};
use crate::pieces::{Le32, Varint, append};
use crate::reader::Reader;

/// The separator between messages of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// The format's own framing, such as JSON lines, a gob stream, or quipu's blocks. A format
    /// without framing uses [`Varint`](Framing::Varint) instead.
    #[default]
    Own,
    /// The length as 4 bytes, least significant first, and then a single message.
    U32Le,
    /// The length as a base-128 number, like protobuf's delimited messages, and then a single
    /// message.
    Varint,
    /// No framing: single messages directly follow each other. If a message of this format does not
    /// contain its own end, the stream can only contain a single message, which ends with the
    /// input.
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
    state: F::WriterState,
    /// A buffer for a message whose length must precede it.
    message: Vec<u8>,
    /// Whether the stream contains a message.
    begun: bool,
}

impl<F: Format> Encoder<F> {
    /// Creates a writer at the start of a stream.
    pub fn new(framing: Framing) -> Encoder<F> {
        Encoder {
            framing: own::<F>(framing),
            state: F::WriterState::default(),
            message: Vec::new(),
            begun: false,
        }
    }

    /// Appends the next message. Some formats gather messages and append them later together. In
    /// this case, call [`flush`](Encoder::flush) when you want to send them. A block of a quipu
    /// stream is sorted by kind, but keeps the order within each kind.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::encode`](crate::Metric::encode). The buffer and the stream are then
    /// unchanged.
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

    /// Appends the gathered messages. You can continue the stream afterwards.
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

/// Reads a stream of messages that arrives in pieces of any size.
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
    state: F::ReaderState,
    /// Bytes of the stream. The bytes before `start` were already read.
    buffer: Vec<u8>,
    /// The offset of the unread bytes in the buffer.
    start: usize,
    /// The offset of the buffer in the stream.
    offset: u64,
    /// How many bytes may be read again before more arrive. Below 0, this is the number of bytes
    /// read in excess. See [`RETRIES`].
    credit: i64,
    /// Whether the whole stream has arrived.
    ended: bool,
    /// Whether a message was returned. This matters because a stream without framing can consist of
    /// a single, empty message.
    given: bool,
    /// The error that ended the stream early.
    failed: Option<Error>,
}

/// Limits the work for incomplete messages, which are read again when more bytes have arrived. Each
/// new byte pays for reading this number of bytes again, and each message begins with a credit of
/// [`GRACE`] bytes. So the time is linear, however small the pieces are. Only a long message that
/// arrives in more than 16 pieces may have to wait, for at most a sixteenth of its length, or for
/// [`Decoder::end`].
const RETRIES: i64 = 16;
const GRACE: i64 = 256 << 10;

/// 64 MiB.
const DEFAULT_LIMIT: usize = 64 << 20;

impl<F: Format> Decoder<F> {
    /// Creates a reader at the start of a stream of messages of one kind. In a quipu stream and in
    /// tsv, each message contains its own kind. The decoder converts it to the given kind if
    /// possible.
    pub fn new(kind: Kind, framing: Framing) -> Decoder<F> {
        Decoder {
            kind,
            framing: own::<F>(framing),
            limit: DEFAULT_LIMIT,
            state: F::ReaderState::default(),
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            credit: GRACE,
            ended: false,
            given: false,
            failed: None,
        }
    }

    /// Sets the largest size of a message in bytes, 64 MiB by default. The decoder refuses to hold
    /// a longer message in memory. In a quipu stream, this limit applies to blocks, because a block
    /// is held as a whole.
    pub fn limit(mut self, bytes: usize) -> Decoder<F> {
        self.set_limit(bytes);
        self
    }

    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Adds the next bytes of the stream.
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

    /// Announces a pause in the input: the decoder then reads the available bytes, whatever the
    /// cost. If you don't call this, a long message that arrived in many small pieces can wait for
    /// the next bytes.
    pub fn pause(&mut self) {
        self.credit = self.credit.max(1);
    }

    /// Announces the end of the input. Messages can still be available: call
    /// [`next`](Decoder::next) until it returns `None`.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns how many bytes of the stream were read.
    pub fn position(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// Returns the next message, or `None` if more bytes are needed first. Ids and values are valid
    /// until you use the decoder again.
    ///
    /// # Errors
    ///
    /// When the stream is not in this format. If a length precedes each message, you can continue
    /// after the faulty message, unless the length itself is faulty. Otherwise each further call
    /// returns the same error.
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

    /// Passes all available messages to a function. For a quipu stream, this is faster than
    /// [`next`](Decoder::next).
    ///
    /// Ids and values are valid during the call. The arena can hold the values, and is reset after
    /// each message. If the function panics, you cannot continue the stream.
    ///
    /// ```
    /// # #[cfg(feature = "quipu")] {
    /// use quipu_arena::Arena;
    /// use quipu_wire::{Counter, Decoder, Encoder, Framing, Kind, Message, Quipu};
    ///
    /// let mut encoder = Encoder::<Quipu>::new(Framing::Own);
    /// let mut out = Vec::new();
    /// for value in 1..=3 {
    ///     encoder.append(&Counter { id: b"requests", value }.into(), &mut out).unwrap();
    /// }
    /// encoder.flush(&mut out);
    ///
    /// let mut decoder = Decoder::<Quipu>::new(Kind::Counter, Framing::Own);
    /// decoder.push(&out);
    /// let mut values = Vec::new();
    /// let mut take = |message: Message<'_>| {
    ///     let Message::Counter(counter) = message else { unreachable!() };
    ///     values.push(counter.value);
    /// };
    /// decoder.for_each(&mut Arena::new(), &mut take).unwrap();
    /// assert_eq!(values, [1, 2, 3]);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`next`](Decoder::next), after passing on all messages before the error.
    #[inline]
    pub fn for_each(
        &mut self,
        arena: &mut Arena,
        mut take: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        let mut guard = arena.guard();
        loop {
            if self.framing == Framing::Own && self.failed.is_none() {
                let rest = &self.buffer[self.start..];
                let rest = &rest[..rest.len().min(self.limit)];
                let state = &mut self.state;
                self.start += F::read_usual(state, self.kind, rest, &mut guard, &mut take);
            }
            let Some(message) = self.next(&guard.scope())? else { return Ok(()) };
            take(message);
            guard.reset();
        }
    }

    /// Ends the stream and checks that all messages were complete and were read.
    ///
    /// # Errors
    ///
    /// When the stream ends within a message, or when you did not take all messages. If you push
    /// long messages in small pieces, first call [`end`](Decoder::end), then
    /// [`next`](Decoder::next) until it returns `None`.
    pub fn finish(mut self) -> Result<(), Error> {
        self.ended = true;
        if self.position() == 0 && self.buffer.is_empty() {
            return Ok(());
        }
        let mut arena = Arena::new();
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
            // The message takes all bytes that will arrive.
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

    /// Decides about a fault. Returns an error, or `None` to wait for more bytes.
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
            // Readers leave the input after all examined bytes.
            *credit = credit.saturating_sub(seen as i64 + 1);
            None
        }
    }
}

const NO_END: Fault = Fault::unwritable(
    "a message of this format does not say where it ends: use a framing with lengths",
);
const NOT_TAKEN: Fault = Fault::malformed("the end of the stream: a message was not taken");
const TOO_LARGE: Fault = Fault::too_large("a message within the limit of the decoder");

/// Returns the unread bytes of the buffer, or `None` if reading must wait for more.
#[inline]
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
