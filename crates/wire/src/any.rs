//! Formats by name. Use this if your program learns the format only at run time, for example from
//! an option.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use quipu_arena::{Arena, Scope};

use crate::error::Error;
use crate::format::Format;
use crate::message::{Kind, Message};
use crate::stream::{Decoder, Encoder, Framing};

/// A format, looked up by its name.
///
/// ```
/// use quipu_wire::AnyFormat;
///
/// for format in AnyFormat::all() {
///     assert_eq!(format.as_str().parse(), Ok(format));
/// }
/// let error = "soap".parse::<AnyFormat>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown format \"soap\": use one of "));
/// ```
#[derive(Clone, Copy)]
pub struct AnyFormat(&'static dyn ErasedFormat);

impl AnyFormat {
    /// Returns all formats of this build.
    pub fn all() -> impl Iterator<Item = AnyFormat> {
        crate::formats::ALL.iter().copied()
    }

    pub(crate) const fn for_format<F: Format>() -> AnyFormat {
        AnyFormat(&This::<F>(PhantomData))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &'static str {
        self.0.name()
    }

    /// Returns whether a reader can see where a message ends.
    pub fn is_delimited(&self) -> bool {
        self.0.is_delimited()
    }

    /// Returns whether messages are text that a terminal can show.
    pub fn is_text(&self) -> bool {
        self.0.is_text()
    }

    /// Appends a single message to a buffer.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::encode`](crate::Metric::encode).
    pub fn encode(&self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.0.encode(message, out)
    }

    /// Reads a message that takes up the whole input.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::decode`](crate::Metric::decode).
    pub fn decode<'m>(
        &self,
        kind: Kind,
        input: &'m [u8],
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Error> {
        self.0.decode(kind, input, scope)
    }

    /// Creates a writer at the start of a stream.
    pub fn encoder(&self, framing: Framing) -> AnyEncoder {
        AnyEncoder(self.0.encoder(framing))
    }

    /// Creates a reader at the start of a stream.
    pub fn decoder(&self, kind: Kind, framing: Framing) -> AnyDecoder {
        AnyDecoder(self.0.decoder(kind, framing))
    }
}

impl PartialEq for AnyFormat {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for AnyFormat {}

/// Writes the name.
impl fmt::Display for AnyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AnyFormat {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let mut all = AnyFormat::all();
        let found = all.find(|format| format.as_str() == name);
        found.ok_or_else(|| {
            UnknownName::new("format", name, AnyFormat::all().map(|format| format.as_str()))
        })
    }
}

/// The error of a name that no format of this build or no kind of message has. Its message contains
/// the possible names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The type of the value, in a message.
    noun: &'static str,
    /// The first characters of the name.
    name: String,
    names: Vec<&'static str>,
}

impl UnknownName {
    pub(crate) fn new(
        noun: &'static str,
        name: &str,
        names: impl Iterator<Item = &'static str>,
    ) -> Self {
        Self { noun, name: name.chars().take(40).collect(), names: names.collect() }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { noun, name, names } = self;
        write!(f, "unknown {noun} {name:?}: use one of {}", names.join(", "))
    }
}

impl core::error::Error for UnknownName {}

impl fmt::Debug for AnyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyFormat").field(&self.as_str()).finish()
    }
}

/// An [`Encoder`] whose format was looked up at run time.
pub struct AnyEncoder(Box<dyn ErasedEncoder>);

impl AnyEncoder {
    /// Appends the next message.
    ///
    /// # Errors
    ///
    /// Fails like [`Encoder::append`].
    pub fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.0.append(message, out)
    }

    /// Appends the gathered messages; see [`Encoder::flush`].
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.0.flush(out);
    }
}

impl fmt::Debug for AnyEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyEncoder").finish_non_exhaustive()
    }
}

/// A [`Decoder`] whose format was looked up at run time.
pub struct AnyDecoder(Box<dyn ErasedDecoder>);

impl AnyDecoder {
    /// Sets the largest size of a message in bytes; see [`Decoder::limit`].
    pub fn limit(mut self, bytes: usize) -> AnyDecoder {
        self.0.limit(bytes);
        self
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Announces a pause in the input; see [`Decoder::pause`].
    pub fn pause(&mut self) {
        self.0.pause();
    }

    /// Announces the end of the input; see [`Decoder::end`].
    pub fn end(&mut self) {
        self.0.end();
    }

    /// Returns how many bytes of the stream were read.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Ends the stream and checks that all messages were complete and were read.
    ///
    /// # Errors
    ///
    /// Fails like [`Decoder::finish`].
    pub fn finish(self) -> Result<(), Error> {
        self.0.finish()
    }

    /// Returns the next message, or `None` if more bytes are needed first.
    ///
    /// # Errors
    ///
    /// Fails like [`Decoder::next`].
    pub fn next<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        self.0.next(scope)
    }

    /// Passes all available messages to a function; see [`Decoder::for_each`].
    ///
    /// # Errors
    ///
    /// Fails like [`Decoder::for_each`].
    pub fn for_each(
        &mut self,
        arena: &mut Arena,
        mut take: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        self.0.for_each(arena, &mut take)
    }
}

impl fmt::Debug for AnyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyDecoder").finish_non_exhaustive()
    }
}

struct This<F>(PhantomData<fn() -> F>);

trait ErasedFormat: Sync {
    fn name(&self) -> &'static str;
    fn is_delimited(&self) -> bool;
    fn is_text(&self) -> bool;
    fn encode(&self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error>;
    fn decode<'m>(
        &self,
        kind: Kind,
        input: &'m [u8],
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Error>;
    fn encoder(&self, framing: Framing) -> Box<dyn ErasedEncoder>;
    fn decoder(&self, kind: Kind, framing: Framing) -> Box<dyn ErasedDecoder>;
}

impl<F: Format> ErasedFormat for This<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn is_delimited(&self) -> bool {
        F::DELIMITED
    }

    fn is_text(&self) -> bool {
        F::IS_TEXT
    }

    fn encode(&self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        message.encode::<F>(out)
    }

    fn decode<'m>(
        &self,
        kind: Kind,
        input: &'m [u8],
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Error> {
        Message::decode::<F>(kind, input, scope)
    }

    fn encoder(&self, framing: Framing) -> Box<dyn ErasedEncoder> {
        Box::new(Encoder::<F>::new(framing))
    }

    fn decoder(&self, kind: Kind, framing: Framing) -> Box<dyn ErasedDecoder> {
        Box::new(Decoder::<F>::new(kind, framing))
    }
}

trait ErasedEncoder: Send {
    fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error>;
    fn flush(&mut self, out: &mut Vec<u8>);
}

impl<F: Format> ErasedEncoder for Encoder<F> {
    fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        Encoder::append(self, message, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        Encoder::flush(self, out);
    }
}

trait ErasedDecoder: Send {
    fn finish(self: Box<Self>) -> Result<(), Error>;
    fn limit(&mut self, bytes: usize);
    fn push(&mut self, bytes: &[u8]);
    fn pause(&mut self);
    fn end(&mut self);
    fn position(&self) -> u64;
    fn next<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error>;
    fn for_each(
        &mut self,
        arena: &mut Arena,
        take: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Error>;
}

impl<F: Format> ErasedDecoder for Decoder<F> {
    fn finish(self: Box<Self>) -> Result<(), Error> {
        Decoder::finish(*self)
    }

    fn limit(&mut self, bytes: usize) {
        self.set_limit(bytes);
    }

    fn push(&mut self, bytes: &[u8]) {
        Decoder::push(self, bytes);
    }

    fn pause(&mut self) {
        Decoder::pause(self);
    }

    fn end(&mut self) {
        Decoder::end(self);
    }

    fn position(&self) -> u64 {
        Decoder::position(self)
    }

    fn next<'m>(&'m mut self, scope: &Scope<'m>) -> Result<Option<Message<'m>>, Error> {
        Decoder::next(self, scope)
    }

    fn for_each(
        &mut self,
        arena: &mut Arena,
        take: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), Error> {
        Decoder::for_each(self, arena, take)
    }
}
