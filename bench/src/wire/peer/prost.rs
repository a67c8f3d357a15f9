//! [`prost`](https://docs.rs/prost): Protocol Buffers, by derive. It reads into a message that is
//! reused and owns its data.

use prost::Message;

use super::{Library, Look};
use crate::wire::contender::{BatchTimers, Block, Codec, Counters, Gauges, Stream, Unions};
use crate::wire::sink::Sink;

/// prost.
#[derive(Default)]
pub(in super::super) struct Prost;

impl Library for Prost {
    const PACKAGE: &'static str = "prost";
}

#[derive(Message)]
pub(in super::super) struct Counter {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(int64, tag = "2")]
    value: i64,
}

#[derive(Message)]
pub(in super::super) struct BatchTimer {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(double, repeated, tag = "2")]
    values: Vec<f64>,
}

#[derive(Message)]
pub(in super::super) struct Gauge {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Message)]
pub(in super::super) struct MetricUnion {
    #[prost(int32, tag = "1")]
    metric_type: i32,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(int64, tag = "3")]
    counter: i64,
    #[prost(double, repeated, tag = "4")]
    timer: Vec<f64>,
    #[prost(double, tag = "5")]
    gauge: f64,
}

/// Messages that are sent together.
#[derive(Message)]
pub(in super::super) struct Batch {
    #[prost(message, repeated, tag = "1")]
    pub(super) metrics: Vec<MetricUnion>,
}

macro_rules! codec {
    ($shape:ident, $name:ident) => {
        impl Codec<$shape> for Prost {
            fn subject() -> String {
                <Prost as Library>::subject()
            }

            type Message = $name;
            type Kept = $name;
            const BORROWS: bool = false;

            fn message(message: quipu_wire::$name<'static>) -> $name {
                message.into()
            }

            #[inline(always)]
            fn marshal<'b>(&'b mut self, message: &$name, out: &'b mut Vec<u8>) -> &'b [u8] {
                message.encode(out).expect("a vector has room");
                out
            }

            #[inline(always)]
            fn unmarshal(&mut self, input: &[u8], kept: &mut $name) {
                kept.clear();
                kept.merge(input).expect("the input is a message");
            }

            fn look(kept: &$name, sink: &mut impl Sink) {
                kept.look(sink);
            }

            fn borrow(&mut self, _: &[u8], _: &mut impl Sink) {
                unreachable!("it has no messages that borrow");
            }
        }
    };
}

codec!(Counters, Counter);
codec!(BatchTimers, BatchTimer);
codec!(Gauges, Gauge);
codec!(Unions, MetricUnion);

impl From<quipu_wire::Counter<'_>> for Counter {
    fn from(message: quipu_wire::Counter<'_>) -> Self {
        Counter { id: message.id.to_vec(), value: message.value }
    }
}

impl From<quipu_wire::BatchTimer<'_>> for BatchTimer {
    fn from(message: quipu_wire::BatchTimer<'_>) -> Self {
        BatchTimer { id: message.id.to_vec(), values: message.values.to_vec() }
    }
}

impl From<quipu_wire::Gauge<'_>> for Gauge {
    fn from(message: quipu_wire::Gauge<'_>) -> Self {
        Gauge { id: message.id.to_vec(), value: message.value }
    }
}

impl From<quipu_wire::MetricUnion<'_>> for MetricUnion {
    fn from(message: quipu_wire::MetricUnion<'_>) -> Self {
        MetricUnion {
            metric_type: message.metric_type.0.into(),
            id: message.id.to_vec(),
            counter: message.counter,
            timer: message.timer.to_vec(),
            gauge: message.gauge,
        }
    }
}

impl Look for Counter {
    fn look(&self, sink: &mut impl Sink) {
        sink.counter(&self.id, self.value);
    }
}

impl Look for BatchTimer {
    fn look(&self, sink: &mut impl Sink) {
        sink.batch_timer(&self.id, self.values.iter().copied());
    }
}

impl Look for Gauge {
    fn look(&self, sink: &mut impl Sink) {
        sink.gauge(&self.id, self.value);
    }
}

impl Look for MetricUnion {
    #[inline(always)]
    fn look(&self, sink: &mut impl Sink) {
        let timer = self.timer.iter().copied();
        sink.union(self.metric_type as i8, &self.id, self.counter, timer, self.gauge);
    }
}

/// prost, for streams: each block is one message with a list of unions.
#[derive(Default)]
pub(in super::super) struct ProstStream(Batch);

impl Stream for ProstStream {
    type Messages<'m> = Batch;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Batch {
        let union = |message: &quipu_wire::Message<'m>| message.to_union().into();
        Batch { metrics: block.messages.iter().map(union).collect() }
    }

    fn write(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        batch.encode(out).expect("a vector has room");
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        self.0.clear();
        self.0.merge(input).expect("the input is a batch");
        self.0.metrics.iter().for_each(|metric| metric.look(sink));
    }
}
