//! What a format can do.

use alloc::vec::Vec;

use quipu_arena::Scope;

use crate::error::Fault;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricUnion};
use crate::reader::Reader;

/// A format of messages: a type without values that names it, as [`Protobuf`](crate::Protobuf).
///
/// Messages are written and read by [`Metric`](crate::Metric), streams of them by
/// [`Encoder`](crate::Encoder) and [`Decoder`](crate::Decoder). The trait is for this crate to
/// implement.
pub trait Format: sealed::Sealed + 'static {
    /// The format's name, as the command line takes it.
    const NAME: &'static str;

    /// Whether a reader sees where a message ends. Others need a length before each.
    const DELIMITED: bool = true;

    /// Whether a stream has a framing of the format's own: a reader sees where a message ends, at
    /// least where something separates it from the next.
    const HAS_FRAMING: bool = Self::DELIMITED;

    /// What a writer of a stream remembers from message to message.
    #[doc(hidden)]
    type Writing: Default + Send;

    /// What a reader of a stream remembers.
    #[doc(hidden)]
    type Reading: Default + Send;

    #[doc(hidden)]
    fn write_counter(message: &Counter<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_batch_timer(message: &BatchTimer<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_gauge(message: &Gauge<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    #[doc(hidden)]
    fn write_union(message: &MetricUnion<'_>, out: &mut Vec<u8>) -> Result<(), Fault>;

    // A reader leaves the input behind the message, or at the fault; where the input is incomplete, it
    // can be anywhere behind the message's start. One of a format that is not
    // delimited takes all of it.

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
        _: &mut Self::Writing,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        message.write::<Self>(out)
    }

    /// Appends what a stream still owes: called before it is handed on, and at its end.
    #[doc(hidden)]
    #[inline(always)]
    fn flush(_: &mut Self::Writing, _: &mut Vec<u8>) {}

    /// Skips what may stand between messages that follow each other, and means nothing.
    #[doc(hidden)]
    #[inline(always)]
    fn skip_between(_: &mut Reader<'_>) {}

    /// Reads the next message of a stream in the format's own framing; `None` when there is none
    /// up to the end of the input, all of which was read. An incomplete message is a fault that
    /// leaves the state as it was, so that it can be read again when more is there.
    #[doc(hidden)]
    #[inline(always)]
    fn read_next<'m>(
        _: &'m mut Self::Reading,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if input.is_empty() {
            return Ok(None);
        }
        Message::read::<Self>(kind, input, scope).map(Some)
    }
}

pub(crate) mod sealed {
    pub trait Sealed: Sized {}
}

/// Formats that several libraries write, each in its way: all functions of a `Codec<D>` of one
/// file, under the name of each dialect `D`.
macro_rules! dialects {
    (delimited: $delimited:literal, $($dialect:ident),*) => {$(
        impl $crate::format::sealed::Sealed for $dialect {}

        impl $crate::Format for $dialect {
            const NAME: &'static str = <$dialect as Dialect>::NAME;
            const DELIMITED: bool = $delimited;
            type Writing = ();
            type Reading = ();

            $crate::format::forward!(Codec::<$dialect>);
        }
    )*};
}
pub(crate) use dialects;

/// The eight functions for single messages, from another type.
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
