//! The peers of the wire benchmark: crates that a Rust program would use, each like its
//! documentation recommends, with one file per crate.
//!
//! Buffers are reused if a crate supports that. A crate's messages own their ids and values, or
//! borrow the ids if it can read those from the input. They are created before the clock starts.

mod bitcode;
mod borsh;
mod bson;
mod compressed;
mod flatbuffers;
mod onc_xdr;
mod postcard;
mod prost;
mod rkyv;
mod rmp_serde;
mod serde_json;
mod sonic_rs;
mod speedy;
mod thrift;
mod wincode;
mod zerompk;

pub(super) use bitcode::Bitcode;
pub(super) use borsh::Borsh;
pub(super) use bson::Bson;
pub(super) use compressed::{Compressed, Compressor, Lz4, Snappy, Zstd, ZstdStream};
pub(super) use flatbuffers::Flatbuffers;
pub(super) use onc_xdr::OncXdr;
pub(super) use postcard::Postcard;
pub(super) use prost::{Prost, ProstStream};
pub(super) use rkyv::Rkyv;
pub(super) use rmp_serde::{RmpSerde, RmpSerdeNamed};
pub(super) use serde_json::SerdeJson;
pub(super) use sonic_rs::SonicRs;
pub(super) use speedy::Speedy;
pub(super) use thrift::Thrift;
pub(super) use wincode::Wincode;
pub(super) use zerompk::Zerompk;

use super::sink::Sink;
use crate::counting::version;

/// A crate, used in one way.
pub(super) trait Library {
    /// The package's name.
    const PACKAGE: &'static str;

    /// The variant, if a crate is used in several ways.
    const VARIANT: Option<&'static str> = None;

    /// Whether it writes to its own buffer.
    const OWN_BUFFER: bool = false;

    /// Returns the peer's name in the labels, such as `crate:rmp-serde 1.3.1 (maps)`.
    fn subject() -> String {
        let package = version::of(Self::PACKAGE);
        let variant = Self::VARIANT.map(|variant| format!(" ({variant})")).unwrap_or_default();
        format!("crate:{package}{variant}")
    }
}

/// An id in the form that a crate requires.
trait Id<'m> {
    fn of(bytes: &'m [u8]) -> Self;
    fn bytes(&self) -> &[u8];
}

impl<'m> Id<'m> for &'m [u8] {
    fn of(bytes: &'m [u8]) -> Self {
        bytes
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<'m> Id<'m> for Vec<u8> {
    fn of(bytes: &'m [u8]) -> Self {
        bytes.to_vec()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<'m> Id<'m> for &'m str {
    fn of(bytes: &'m [u8]) -> Self {
        std::str::from_utf8(bytes).expect("ids are texts here")
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<'m> Id<'m> for String {
    fn of(bytes: &'m [u8]) -> Self {
        <&str>::of(bytes).to_owned()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A message of a crate that can be passed to a sink.
trait Look {
    fn look(&self, sink: &mut impl Sink);
}

/// Defines the four messages in a module, with the attributes of a crate and its types of ids and
/// values; or the enum of the three metrics. Types are in brackets, because a derive must see their
/// tokens: some search for `Vec<u8>`.
macro_rules! messages {
    (
        $(#[$on:meta])*
        $module:ident $(<$m:lifetime>)?,
        id: $(#[$on_id:meta])* [$($id:tt)*],
        values: [$($values:tt)*]
    ) => {
        pub(in super::super) mod $module {
            // Derives and types, if a crate uses any.
            #[allow(unused_imports)]
            use super::*;
            use $crate::wire::peer::{Id, Look};
            use $crate::wire::sink::Sink;

            $(#[$on])*
            pub(in super::super::super) struct Counter $(<$m>)? {
                $(#[$on_id])*
                pub(in super::super) id: $($id)*,
                pub(in super::super) value: i64,
            }

            $(#[$on])*
            pub(in super::super::super) struct BatchTimer $(<$m>)? {
                $(#[$on_id])*
                pub(in super::super) id: $($id)*,
                pub(in super::super) values: $($values)*,
            }

            $(#[$on])*
            pub(in super::super::super) struct Gauge $(<$m>)? {
                $(#[$on_id])*
                pub(in super::super) id: $($id)*,
                pub(in super::super) value: f64,
            }

            $(#[$on])*
            pub(in super::super::super) struct MetricUnion $(<$m>)? {
                pub(in super::super) metric_type: i8,
                $(#[$on_id])*
                pub(in super::super) id: $($id)*,
                pub(in super::super) counter: i64,
                pub(in super::super) timer: $($values)*,
                pub(in super::super) gauge: f64,
            }

            $crate::wire::peer::messages!(@conversions $($m)?);
        }
    };
    // The enum of the three metrics: the message of a stream of several kinds.
    (metric: $(#[$on:meta])* $module:ident $(<$m:lifetime>)? $(, each: #[$each:meta])?) => {
        $(#[$on])*
        pub(in super::super) enum Metric $(<$m>)? {
            $(#[$each])?
            Counter($module::Counter $(<$m>)?),
            $(#[$each])?
            BatchTimer($module::BatchTimer $(<$m>)?),
            $(#[$each])?
            Gauge($module::Gauge $(<$m>)?),
        }

        $crate::wire::peer::messages!(@metric $($m)?);
    };
    (@metric) => { $crate::wire::peer::messages!(@metric 'm,); };
    (@metric $m:lifetime) => { $crate::wire::peer::messages!(@metric $m, <$m>); };
    (@metric $m:lifetime, $($lent:tt)*) => {
        impl<$m> From<&quipu_wire::Message<$m>> for Metric $($lent)* {
            fn from(message: &quipu_wire::Message<$m>) -> Self {
                use quipu_wire::Message;
                let metric = match *message {
                    Message::MetricUnion(union) => union.to_metric(),
                    metric => Some(metric),
                };
                match metric.expect("a stream has unions of one metric each") {
                    Message::Counter(counter) => Metric::Counter(counter.into()),
                    Message::BatchTimer(timer) => Metric::BatchTimer(timer.into()),
                    Message::Gauge(gauge) => Metric::Gauge(gauge.into()),
                    Message::MetricUnion(_) => unreachable!("a metric is not a union"),
                }
            }
        }

        impl<$m> $crate::wire::peer::Look for Metric $($lent)* {
            #[inline(always)]
            fn look(&self, sink: &mut impl $crate::wire::sink::Sink) {
                match self {
                    Metric::Counter(counter) => counter.look(sink),
                    Metric::BatchTimer(timer) => timer.look(sink),
                    Metric::Gauge(gauge) => gauge.look(sink),
                }
            }
        }
    };
    (@conversions) => { $crate::wire::peer::messages!(@for 'm,); };
    (@conversions $m:lifetime) => { $crate::wire::peer::messages!(@for $m, <$m>); };
    (@for $m:lifetime, $($lent:tt)*) => {
        impl<$m> From<quipu_wire::Counter<$m>> for Counter $($lent)* {
            fn from(message: quipu_wire::Counter<$m>) -> Self {
                Self { id: Id::of(message.id), value: message.value }
            }
        }

        impl<$m> From<quipu_wire::BatchTimer<$m>> for BatchTimer $($lent)* {
            fn from(message: quipu_wire::BatchTimer<$m>) -> Self {
                Self { id: Id::of(message.id), values: message.values.into() }
            }
        }

        impl<$m> From<quipu_wire::Gauge<$m>> for Gauge $($lent)* {
            fn from(message: quipu_wire::Gauge<$m>) -> Self {
                Self { id: Id::of(message.id), value: message.value }
            }
        }

        impl<$m> From<quipu_wire::MetricUnion<$m>> for MetricUnion $($lent)* {
            fn from(message: quipu_wire::MetricUnion<$m>) -> Self {
                Self {
                    metric_type: message.metric_type.0,
                    id: Id::of(message.id),
                    counter: message.counter,
                    timer: message.timer.into(),
                    gauge: message.gauge,
                }
            }
        }

        impl<$m> Look for Counter $($lent)* {
            #[inline(always)]
            fn look(&self, sink: &mut impl Sink) {
                sink.counter(Id::bytes(&self.id), self.value);
            }
        }

        impl<$m> Look for BatchTimer $($lent)* {
            #[inline(always)]
            fn look(&self, sink: &mut impl Sink) {
                sink.batch_timer(Id::bytes(&self.id), self.values.iter().copied());
            }
        }

        impl<$m> Look for Gauge $($lent)* {
            #[inline(always)]
            fn look(&self, sink: &mut impl Sink) {
                sink.gauge(Id::bytes(&self.id), self.value);
            }
        }

        impl<$m> Look for MetricUnion $($lent)* {
            #[inline(always)]
            fn look(&self, sink: &mut impl Sink) {
                sink.union(
                    self.metric_type,
                    Id::bytes(&self.id),
                    self.counter,
                    self.timer.iter().copied(),
                    self.gauge,
                );
            }
        }
    };
}
use messages;

/// Defines the codecs of the four messages for a library with the functions `write` and `read` for
/// all of them, and the modules `owned` and possibly `lent`, which `messages!` defines.
macro_rules! codecs {
    ($library:ident, $owned:ident $(, $lent:ident)?) => {
        codecs!(@one $library, Counters, Counter, $owned $(, $lent)?);
        codecs!(@one $library, BatchTimers, BatchTimer, $owned $(, $lent)?);
        codecs!(@one $library, Gauges, Gauge, $owned $(, $lent)?);
        codecs!(@one $library, Unions, MetricUnion, $owned $(, $lent)?);
    };
    (
        @one $library:ident, $shape:ident, $name:ident, $owned:ident $(, $lent:ident)?
    ) => {
        impl $crate::wire::contender::Codec<$crate::wire::contender::$shape> for $library {
            fn subject() -> String {
                <$library as $crate::wire::peer::Library>::subject()
            }

            const OWN_BUFFER: bool = <$library as $crate::wire::peer::Library>::OWN_BUFFER;

            type Message = $owned::$name;
            type Kept = $owned::$name;
            const BORROWS: bool = $crate::wire::peer::codecs!(@borrows $($lent)?);

            fn message(message: quipu_wire::$name<'static>) -> $owned::$name {
                message.into()
            }

            #[inline(always)]
            fn marshal<'b>(
                &'b mut self,
                message: &$owned::$name,
                out: &'b mut Vec<u8>,
            ) -> &'b [u8] {
                self.write(message, out)
            }

            #[inline(always)]
            fn unmarshal(&mut self, input: &[u8], kept: &mut $owned::$name) {
                *kept = self.read(input);
            }

            fn look(kept: &$owned::$name, sink: &mut impl $crate::wire::sink::Sink) {
                $crate::wire::peer::Look::look(kept, sink);
            }

            #[inline(always)]
            fn borrow(&mut self, input: &[u8], sink: &mut impl $crate::wire::sink::Sink) {
                $crate::wire::peer::codecs!(@borrow self, input, sink, $name $(, $lent)?);
            }
        }
    };
    (@borrows) => { false };
    (@borrows $lent:ident) => { true };
    (@borrow $codec:ident, $input:ident, $sink:ident, $name:ident) => {
        let _ = ($input, $sink);
        unreachable!("it has no messages that borrow");
    };
    (@borrow $codec:ident, $input:ident, $sink:ident, $name:ident, $lent:ident) => {
        let message: $lent::$name = $codec.read($input);
        $crate::wire::peer::Look::look(&message, $sink);
    };
}
use codecs;
