//! The interface of a library: for one message at a time, and for a stream of messages.

use quipu_wire::{
    BatchTimer, Counter, Format, Gauge, Kind, Message, Metric, MetricType, MetricUnion,
};

use super::sink::Sink;

/// A message of the original comparison, with its data.
pub(super) trait Shape: 'static {
    /// The message's name in the labels.
    const NAME: &'static str;

    /// The message in quipu's form.
    type Of<'m>: Metric<'m>;

    /// The message with the data of the original comparison.
    const SEED: Self::Of<'static>;

    /// Copies a message over the previous one, like Go's libraries.
    fn keep(message: &Self::Of<'_>, kept: &mut Kept);

    /// The message that was copied.
    fn kept(kept: &Kept) -> Self::Of<'_>;
}

/// A message that owns its id and its values.
#[derive(Default)]
pub(super) struct Kept {
    metric_type: MetricType,
    id: Vec<u8>,
    counter: i64,
    values: Vec<f64>,
    gauge: f64,
}

impl Kept {
    #[inline(always)]
    fn set_id(&mut self, id: &[u8]) {
        self.id.clear();
        self.id.extend_from_slice(id);
    }

    #[inline(always)]
    fn set_values(&mut self, values: &[f64]) {
        self.values.clear();
        self.values.extend_from_slice(values);
    }
}

const ID: &[u8] = b"name=bulbasaur,trainer=ash,type=grass";
const VALUES: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];

/// A counter with the value 100.
pub(super) struct Counters;

impl Shape for Counters {
    const NAME: &'static str = "counter";
    type Of<'m> = Counter<'m>;
    const SEED: Counter<'static> = Counter { id: ID, value: 100 };

    #[inline(always)]
    fn keep(message: &Counter<'_>, kept: &mut Kept) {
        kept.set_id(message.id);
        kept.counter = message.value;
    }

    fn kept(kept: &Kept) -> Counter<'_> {
        Counter { id: &kept.id, value: kept.counter }
    }
}

/// A batch timer with the values 1 to 5.
pub(super) struct BatchTimers;

impl Shape for BatchTimers {
    const NAME: &'static str = "batch-timer";
    type Of<'m> = BatchTimer<'m>;
    const SEED: BatchTimer<'static> = BatchTimer { id: ID, values: VALUES };

    #[inline(always)]
    fn keep(message: &BatchTimer<'_>, kept: &mut Kept) {
        kept.set_id(message.id);
        kept.set_values(message.values);
    }

    fn kept(kept: &Kept) -> BatchTimer<'_> {
        BatchTimer { id: &kept.id, values: &kept.values }
    }
}

/// A gauge with the value 100.
pub(super) struct Gauges;

impl Shape for Gauges {
    const NAME: &'static str = "gauge";
    type Of<'m> = Gauge<'m>;
    const SEED: Gauge<'static> = Gauge { id: ID, value: 100.0 };

    #[inline(always)]
    fn keep(message: &Gauge<'_>, kept: &mut Kept) {
        kept.set_id(message.id);
        kept.gauge = message.value;
    }

    fn kept(kept: &Kept) -> Gauge<'_> {
        Gauge { id: &kept.id, value: kept.gauge }
    }
}

/// A union that holds the batch timer.
pub(super) struct Unions;

impl Shape for Unions {
    const NAME: &'static str = "union";
    type Of<'m> = MetricUnion<'m>;
    const SEED: MetricUnion<'static> = MetricUnion {
        metric_type: MetricType::BATCH_TIMER,
        id: ID,
        counter: 0,
        timer: VALUES,
        gauge: 0.0,
    };

    #[inline(always)]
    fn keep(message: &MetricUnion<'_>, kept: &mut Kept) {
        kept.metric_type = message.metric_type;
        kept.set_id(message.id);
        kept.counter = message.counter;
        kept.set_values(message.timer);
        kept.gauge = message.gauge;
    }

    fn kept(kept: &Kept) -> MetricUnion<'_> {
        MetricUnion {
            metric_type: kept.metric_type,
            id: &kept.id,
            counter: kept.counter,
            timer: &kept.values,
            gauge: kept.gauge,
        }
    }
}

/// A library for one of the four messages. It reuses everything that you would reuse: buffers,
/// arenas.
pub(super) trait Codec<S: Shape>: Default + 'static {
    /// The subject of its records.
    fn subject() -> String;

    /// The message in the form of the library's user.
    type Message: 'static;

    /// The message that is overwritten by each read.
    type Kept: Default + 'static;

    /// Whether it can read a message whose id stays in the input.
    const BORROWS: bool = true;

    /// The message in the library's form.
    fn message(message: S::Of<'static>) -> Self::Message;

    /// Whether it writes to its own buffer, and not to a buffer of the caller.
    const OWN_BUFFER: bool = false;

    /// Writes a message to an empty buffer, or to its own, and returns the bytes.
    fn marshal<'b>(&'b mut self, message: &Self::Message, out: &'b mut Vec<u8>) -> &'b [u8];

    /// Writes a message to a new buffer.
    #[inline(always)]
    fn marshal_fresh(&mut self, message: &Self::Message) -> Vec<u8> {
        let mut out = Vec::new();
        if Self::OWN_BUFFER {
            return self.marshal(message, &mut out).to_vec();
        }
        self.marshal(message, &mut out);
        out
    }

    /// Reads a message that owns its data, over the previous one if the library can do this.
    fn unmarshal(&mut self, input: &[u8], kept: &mut Self::Kept);

    /// Passes the message that was read to a sink.
    fn look(kept: &Self::Kept, sink: &mut impl Sink);

    /// Reads a message whose id stays in the input, and passes it to a sink.
    fn borrow(&mut self, input: &[u8], sink: &mut impl Sink);
}

/// Some messages of a stream that are written together.
pub(super) struct Block<'m> {
    /// The messages; unions if the stream mixes kinds.
    pub(super) messages: Vec<Message<'m>>,
    /// The numbers of their ids.
    pub(super) numbers: Vec<u32>,
}

/// A library for a stream of messages: a writer and the reader of its output.
pub(super) trait Stream {
    /// A block's messages in the form of the library's user.
    type Messages<'m>;

    /// Converts the messages to the library's form. This is not timed.
    fn prepare<'m>(&mut self, block: &Block<'m>) -> Self::Messages<'m>;

    /// Writes a whole block to an empty buffer.
    fn write(&mut self, messages: &Self::Messages<'_>, out: &mut Vec<u8>);

    /// Reads a block.
    fn read(&mut self, input: &[u8], sink: &mut impl Sink);
}

/// The name of a format of quipu in the labels.
pub(super) fn subject_of<F: Format>() -> String {
    format!("quipu:{}", F::NAME)
}

/// Returns the kind for decoding a stream.
pub(super) fn kind_of(messages: &[Message<'_>]) -> Kind {
    messages.first().map_or(Kind::MetricUnion, Message::kind)
}
