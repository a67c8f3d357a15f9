//! The trait that each format implements: how to write and read each message, and the framing of
//! streams.

use alloc::vec::Vec;

use quipu_arena::{Scope, ScopeGuard};

use crate::error::Fault;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricUnion};
use crate::reader::Reader;

/// A message format: an uninhabited marker type, such as [`Protobuf`](crate::Protobuf).
///
/// You don't call its methods directly: use [`Metric`](crate::Metric) for single messages, and
/// [`Encoder`](crate::Encoder) and [`Decoder`](crate::Decoder) for streams. The trait is sealed.
pub trait Format: sealed::Sealed + 'static {
    /// The name, also used on the command line.
    const NAME: &'static str;

    /// Whether a message contains its own end. If not, a stream needs a length before each message.
    const DELIMITED: bool = true;

    /// Whether a stream can use the format's own framing. This can be a separator between messages,
    /// or no framing at all if messages are self-delimiting.
    const HAS_FRAMING: bool = Self::DELIMITED;

    /// Whether messages are text that a terminal can show.
    const IS_TEXT: bool = false;

    /// The state of a stream's writer between two messages.
    #[doc(hidden)]
    type WriterState: Default + Send;

    /// The state of a stream's reader between two messages.
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
    // incomplete, this can be any position after the start of the message. If the format is not
    // delimited, the reader takes the whole input.

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

    /// Appends the buffered messages. This is called before the stream's bytes are passed on, and
    /// at its end.
    #[doc(hidden)]
    #[inline(always)]
    fn flush(_: &mut Self::WriterState, _: &mut Vec<u8>) {}

    /// Skips insignificant bytes between messages, for example white space.
    #[doc(hidden)]
    #[inline(always)]
    fn skip_between(_: &mut Reader<'_>) {}

    /// Reads the next message of a stream in the format's own framing. Returns `None` if the rest
    /// of the input contains no message; the input is then consumed. An incomplete message is a
    /// fault that leaves the state unchanged, so you can retry with more input.
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

    /// Passes messages to a function until only `read_next` can continue. Returns the number of
    /// bytes read.
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

/// Implements the trait for each dialect `D` of a format, with the functions of `Codec<D>` in the
/// same file. Use this for formats that several libraries write differently.
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

/// Forwards the eight functions for single messages to another type.
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
