//! The four messages, an enum of them, and their common trait.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use quipu_arena::Scope;

use crate::any::UnknownName;
use crate::error::{Error, Fault};
use crate::format::Format;
use crate::reader::Reader;

/// A value that only grows, or an increment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter<'m> {
    /// The id of the series, any bytes.
    pub id: &'m [u8],
    /// The count.
    pub value: i64,
}

impl<'m> Counter<'m> {
    /// Creates a counter. The id can be a string or bytes.
    pub fn new(id: &'m (impl AsRef<[u8]> + ?Sized), value: i64) -> Counter<'m> {
        Counter { id: id.as_ref(), value }
    }
}

/// Durations or sizes that were measured individually and are sent together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTimer<'m> {
    /// The id of the series, any bytes.
    pub id: &'m [u8],
    /// The measured values, in a unit known to sender and receiver.
    pub values: &'m [f64],
}

impl<'m> BatchTimer<'m> {
    /// Creates a batch timer. The id can be a string or bytes.
    pub fn new(id: &'m (impl AsRef<[u8]> + ?Sized), values: &'m [f64]) -> BatchTimer<'m> {
        BatchTimer { id: id.as_ref(), values }
    }
}

/// A value that rises and falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge<'m> {
    /// The id of the series, any bytes.
    pub id: &'m [u8],
    /// The value.
    pub value: f64,
}

impl<'m> Gauge<'m> {
    /// Creates a gauge. The id can be a string or bytes.
    pub fn new(id: &'m (impl AsRef<[u8]> + ?Sized), value: f64) -> Gauge<'m> {
        Gauge { id: id.as_ref(), value }
    }
}

/// A counter, a batch timer or a gauge, depending on [`metric_type`](MetricUnion::metric_type). All
/// three values are sent, even though you normally use only one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricUnion<'m> {
    /// The type of the metric.
    pub metric_type: MetricType,
    /// The id of the series, any bytes.
    pub id: &'m [u8],
    /// The value of a counter.
    pub counter: i64,
    /// The values of a batch timer.
    pub timer: &'m [f64],
    /// The value of a gauge.
    pub gauge: f64,
}

/// The type of the metric in a [`MetricUnion`]. You can receive any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricType(pub i8);

impl MetricType {
    /// Unknown.
    pub const UNKNOWN: MetricType = MetricType(0);
    /// A counter.
    pub const COUNTER: MetricType = MetricType(1);
    /// A batch timer.
    pub const BATCH_TIMER: MetricType = MetricType(2);
    /// A gauge.
    pub const GAUGE: MetricType = MetricType(3);
}

/// The kind of a message. The enum is complete: each format describes these four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A [`Counter`].
    Counter,
    /// A [`BatchTimer`].
    BatchTimer,
    /// A [`Gauge`].
    Gauge,
    /// A [`MetricUnion`].
    MetricUnion,
}

impl Kind {
    /// All kinds, in the order of declaration.
    pub const ALL: &'static [Kind] =
        &[Kind::Counter, Kind::BatchTimer, Kind::Gauge, Kind::MetricUnion];

    /// Returns the name of the message's type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "Counter",
            Kind::BatchTimer => "BatchTimer",
            Kind::Gauge => "Gauge",
            Kind::MetricUnion => "MetricUnion",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Kind::ALL.iter().copied().find(|kind| kind.as_str() == name);
        let names = || Kind::ALL.iter().map(|kind| kind.as_str());
        found.ok_or_else(|| UnknownName::new("kind of message", name, names()))
    }
}

/// A message of any kind. The enum is complete: each format describes these four.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'m> {
    /// A counter.
    Counter(Counter<'m>),
    /// A batch timer.
    BatchTimer(BatchTimer<'m>),
    /// A gauge.
    Gauge(Gauge<'m>),
    /// A union.
    MetricUnion(MetricUnion<'m>),
}

/// The operations that the four messages share.
///
/// ```
/// # #[cfg(feature = "protobuf")] {
/// use quipu_wire::arena::Arena;
/// use quipu_wire::{Counter, Metric, Protobuf};
///
/// let out = Counter::new("requests", 100).encode_to_vec::<Protobuf>().unwrap();
/// assert_eq!(out, b"\x0a\x08requests\x10\x64");
///
/// let mut arena = Arena::new();
/// let counter = Counter::decode::<Protobuf>(&out, &arena.as_scope()).unwrap();
/// assert_eq!(counter.value, 100);
/// # }
/// ```
pub trait Metric<'m>: sealed::Codec<'m> + Copy + Into<Message<'m>> {
    /// The kind of the message.
    const KIND: Kind;

    /// Appends the message to a buffer.
    ///
    /// # Errors
    ///
    /// When the format cannot represent the message, for example a float that is not finite in
    /// JSON, or a length beyond the format's range. The buffer is then unchanged.
    #[inline(always)]
    fn encode<F: Format>(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        self.write::<F>(out).map_err(|fault| {
            out.truncate(start);
            Error::writing(F::NAME, fault)
        })
    }

    /// Encodes the message into a new buffer.
    ///
    /// # Errors
    ///
    /// Fails like [`encode`](Metric::encode).
    fn encode_to_vec<F: Format>(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.encode::<F>(&mut out)?;
        Ok(out)
    }

    /// Reads a message that takes up the whole input. The id borrows from the input if it is
    /// contiguous there. Otherwise the id is in the scope, like the values.
    ///
    /// # Errors
    ///
    /// When the input is not this message in this format, or when it continues after the message.
    #[inline(always)]
    fn decode<F: Format>(input: &'m [u8], scope: &Scope<'m>) -> Result<Self, Error> {
        let mut reader = Reader::new(input);
        match Self::read::<F>(&mut reader, scope) {
            Ok(message) if reader.is_empty() => Ok(message),
            Ok(_) => Err(Error::reading(F::NAME, reader.position() as u64, Fault::trailing())),
            Err(fault) => Err(Error::reading(F::NAME, reader.position() as u64, fault)),
        }
    }
}

pub(crate) mod sealed {
    use super::{Fault, Format, Reader, Scope, Vec};

    pub trait Codec<'m>: Sized {
        fn write<F: Format>(&self, out: &mut Vec<u8>) -> Result<(), Fault>;
        fn read<F: Format>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Self, Fault>;
    }
}

macro_rules! metric {
    ($name:ident, $write:ident, $read:ident) => {
        impl<'m> Metric<'m> for $name<'m> {
            const KIND: Kind = Kind::$name;
        }

        impl<'m> sealed::Codec<'m> for $name<'m> {
            #[inline(always)]
            fn write<F: Format>(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
                F::$write(self, out)
            }

            #[inline(always)]
            fn read<F: Format>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<Self, Fault> {
                F::$read(input, scope)
            }
        }

        impl<'m> From<$name<'m>> for Message<'m> {
            #[inline(always)]
            fn from(message: $name<'m>) -> Message<'m> {
                Message::$name(message)
            }
        }
    };
}

metric!(Counter, write_counter, read_counter);
metric!(BatchTimer, write_batch_timer, read_batch_timer);
metric!(Gauge, write_gauge, read_gauge);
metric!(MetricUnion, write_union, read_union);

impl<'m> Message<'m> {
    /// Returns the kind of the message.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Counter(_) => Kind::Counter,
            Message::BatchTimer(_) => Kind::BatchTimer,
            Message::Gauge(_) => Kind::Gauge,
            Message::MetricUnion(_) => Kind::MetricUnion,
        }
    }

    /// Returns the id of the series.
    pub fn id(&self) -> &'m [u8] {
        match self {
            Message::Counter(message) => message.id,
            Message::BatchTimer(message) => message.id,
            Message::Gauge(message) => message.id,
            Message::MetricUnion(message) => message.id,
        }
    }

    /// Converts the message to another kind, if possible. You can convert any metric to a union,
    /// and a union to the metric of its type if the other values are all zero.
    pub fn to_kind(self, kind: Kind) -> Option<Message<'m>> {
        if self.kind() == kind {
            return Some(self);
        }
        match (self, kind) {
            (_, Kind::MetricUnion) => Some(Message::MetricUnion(self.to_union())),
            (Message::MetricUnion(union), _) => {
                let metric = union.to_metric()?;
                (metric.kind() == kind).then_some(metric)
            }
            _ => None,
        }
    }

    /// Converts any message to a union.
    #[inline]
    pub fn to_union(self) -> MetricUnion<'m> {
        let zero = MetricUnion { id: self.id(), ..MetricUnion::ZERO };
        match self {
            Message::Counter(Counter { value, .. }) => {
                MetricUnion { metric_type: MetricType::COUNTER, counter: value, ..zero }
            }
            Message::BatchTimer(BatchTimer { values, .. }) => {
                MetricUnion { metric_type: MetricType::BATCH_TIMER, timer: values, ..zero }
            }
            Message::Gauge(Gauge { value, .. }) => {
                MetricUnion { metric_type: MetricType::GAUGE, gauge: value, ..zero }
            }
            Message::MetricUnion(union) => union,
        }
    }

    /// Appends the message to a buffer.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::encode`].
    pub fn encode<F: Format>(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Message::Counter(message) => message.encode::<F>(out),
            Message::BatchTimer(message) => message.encode::<F>(out),
            Message::Gauge(message) => message.encode::<F>(out),
            Message::MetricUnion(message) => message.encode::<F>(out),
        }
    }

    /// Encodes the message into a new buffer.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::encode`].
    pub fn encode_to_vec<F: Format>(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.encode::<F>(&mut out)?;
        Ok(out)
    }

    /// Reads a message of this kind that takes up the whole input.
    ///
    /// # Errors
    ///
    /// Fails like [`Metric::decode`].
    pub fn decode<F: Format>(
        kind: Kind,
        input: &'m [u8],
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Error> {
        match kind {
            Kind::Counter => Counter::decode::<F>(input, scope).map(Message::from),
            Kind::BatchTimer => BatchTimer::decode::<F>(input, scope).map(Message::from),
            Kind::Gauge => Gauge::decode::<F>(input, scope).map(Message::from),
            Kind::MetricUnion => MetricUnion::decode::<F>(input, scope).map(Message::from),
        }
    }

    #[inline(always)]
    pub(crate) fn write<F: Format>(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Message::Counter(message) => F::write_counter(message, out),
            Message::BatchTimer(message) => F::write_batch_timer(message, out),
            Message::Gauge(message) => F::write_gauge(message, out),
            Message::MetricUnion(message) => F::write_union(message, out),
        }
    }

    #[inline(always)]
    pub(crate) fn read<F: Format>(
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Fault> {
        match kind {
            Kind::Counter => F::read_counter(input, scope).map(Message::Counter),
            Kind::BatchTimer => F::read_batch_timer(input, scope).map(Message::BatchTimer),
            Kind::Gauge => F::read_gauge(input, scope).map(Message::Gauge),
            Kind::MetricUnion => F::read_union(input, scope).map(Message::MetricUnion),
        }
    }
}

impl<'m> MetricUnion<'m> {
    pub(crate) const ZERO: MetricUnion<'m> = MetricUnion {
        metric_type: MetricType::UNKNOWN,
        id: &[],
        counter: 0,
        timer: &[],
        gauge: 0.0,
    };

    /// Returns the metric of this type, if the other values are all zero.
    #[inline]
    pub fn to_metric(self) -> Option<Message<'m>> {
        let MetricUnion { metric_type, id, counter, timer, gauge } = self;
        let no_counter = counter == 0;
        let no_timer = timer.is_empty();
        let no_gauge = gauge.to_bits() == 0;
        match metric_type {
            MetricType::COUNTER if no_timer && no_gauge => {
                Some(Message::Counter(Counter { id, value: counter }))
            }
            MetricType::BATCH_TIMER if no_counter && no_gauge => {
                Some(Message::BatchTimer(BatchTimer { id, values: timer }))
            }
            MetricType::GAUGE if no_counter && no_timer => {
                Some(Message::Gauge(Gauge { id, value: gauge }))
            }
            _ => None,
        }
    }
}
