//! The trait of a format: how it writes and reads each message, and what frames its streams.

use alloc::vec::Vec;

use quipu_arena::{Scope, ScopeGuard};

use crate::error::Fault;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricUnion};
use crate::reader::Reader;

/// A message format: an uninhabited marker type, such as [`Protobuf`](crate::Protobuf).
///
/// [`Metric`](crate::Metric) writes and reads messages; [`Encoder`](crate::Encoder) and
/// [`Decoder`](crate::Decoder) write and read streams of them. The trait is sealed.
pub trait Format: sealed::Sealed + 'static {
    /// The format's name, as on the command line.
    const NAME: &'static str;

    /// Whether messages are self-delimiting: a reader sees where each one ends. If not, a stream
    /// needs a length before each message.
    const DELIMITED: bool = true;

    /// Whether the format has its own framing for streams, such as a separator between messages, or
    /// needs none, since messages are self-delimiting.
    const HAS_FRAMING: bool = Self::DELIMITED;

    /// What a writer of a stream remembers between messages.
    #[doc(hidden)]
    type WriterState: Default + Send;

    /// What a reader of a stream remembers between messages.
    #[doc(hidden)]
    type ReaderState: Default + Send;

    #[doc(hidden)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    // A reader leaves the input at the end of the message, or at the fault. If the input is
    // incomplete, that can be anywhere after the message's start. A reader of a format that is not
    // delimited takes the whole input.

    #[doc(hidden)]
    fn read_counter<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Counter<'m>, Fault>;

    #[doc(hidden)]
    fn read_batch_timer<'m>(
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<BatchTimer<'m>, Fault>;

    #[doc(hidden)]
    fn read_gauge<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Gauge<'m>, Fault>;

    #[doc(hidden)]
    fn read_union<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<MetricUnion<'m>, Fault>;

    /// Appends the next message of a stream in the format's own framing.
    #[doc(hidden)]
    #[inline(always)]
    fn write_next(
        _: &mut Self::WriterState,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        message.write::<Self>(out)
    }

    /// Appends the messages that were buffered; called before the stream's bytes are handed on,
    /// and at its end.
    #[doc(hidden)]
    #[inline(always)]
    fn flush(_: &mut Self::WriterState, _: &mut Vec<u8>) {}

    /// Skips insignificant bytes between messages, such as white space.
    #[doc(hidden)]
    #[inline(always)]
    fn skip_between(_: &mut Reader<'_>) {}

    /// Reads the next message of a stream in the format's own framing. Returns `None` when the
    /// rest of the input has no message; the input is then consumed. An incomplete message is a
    /// fault that leaves the state unchanged, so it can be read again when more input arrives.
    #[doc(hidden)]
    #[inline(always)]
    fn read_next<'m>(
        _: &'m mut Self::ReaderState,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        Message::read::<Self>(kind, input, scope).map(Some)
    }

    /// Passes messages to a function, up to one that only `read_next` can read, and returns the
    /// bytes that were read.
    #[doc(hidden)]
    #[inline(always)]
    fn read_usual(
        _: &mut Self::ReaderState,
        _: Kind,
        _: &[u8],
        _: &mut ScopeGuard<'_>,
        _: &mut impl FnMut(Message<'_>),
    ) -> usize {
        0
    }
}

pub(crate) mod sealed {
    pub trait Sealed: Sized {}
}

/// Implements the trait for each dialect `D` of a format that several libraries write differently,
/// with the functions of the file's `Codec<D>`.
macro_rules! dialects {
    (delimited: $delimited:literal, $($dialect:ident),*) => {$(
        impl $crate::format::sealed::Sealed for $dialect {}

        impl $crate::Format for $dialect {
            const NAME: &'static str = <$dialect as Dialect>::NAME;
            const DELIMITED: bool = $delimited;
            type WriterState = ();
            type ReaderState = ();

            $crate::format::forward!(Codec::<$dialect>);
        }
    )*};
}
pub(crate) use dialects;

/// The eight functions for single messages, forwarded to another type.
macro_rules! forward {
    ($codec:ty) => {
        $crate::format::forward!(write $codec, write_counter, Counter);
        $crate::format::forward!(write $codec, write_batch_timer, BatchTimer);
        $crate::format::forward!(write $codec, write_gauge, Gauge);
        $crate::format::forward!(write $codec, write_union, MetricUnion);
        $crate::format::forward!(read $codec, read_counter, Counter);
        $crate::format::forward!(read $codec, read_batch_timer, BatchTimer);
        $crate::format::forward!(read $codec, read_gauge, Gauge);
        $crate::format::forward!(read $codec, read_union, MetricUnion);
    };
    (write $codec:ty, $function:ident, $message:ident) => {
        #[inline(always)]
        fn $function(
            message: &$crate::$message<'_>,
            out: &mut alloc::vec::Vec<u8>,
        ) -> Result<(), $crate::error::Fault> {
            <$codec>::$function(message, out)
        }
    };
    (read $codec:ty, $function:ident, $message:ident) => {
        #[inline(always)]
        fn $function<'m>(
            input: &mut $crate::reader::Reader<'m>,
            scope: &quipu_arena::Scope<'m>,
        ) -> Result<$crate::$message<'m>, $crate::error::Fault> {
            <$codec>::$function(input, scope)
        }
    };
}
pub(crate) use forward;
