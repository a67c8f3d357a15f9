//! [`rkyv`](https://docs.rs/rkyv): structures that are read in place, after validation.

use rkyv::api::high::HighValidator;
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Error;
use rkyv::vec::ArchivedVec;
use rkyv::{Archive, Deserialize, Portable, Serialize};

use super::{Library, messages};
use crate::wire::contender::{BatchTimers, Block, Codec, Counters, Gauges, Stream, Unions};
use crate::wire::sink::Sink;

messages! {
    #[derive(Default, Archive, Serialize, Deserialize)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

/// rkyv.
#[derive(Default)]
pub(in super::super) struct Rkyv;

impl Library for Rkyv {
    const PACKAGE: &'static str = "rkyv";
}

/// The message, in place.
#[inline(always)]
pub(super) fn access<T>(input: &[u8]) -> &T
where
    T: Portable + for<'a> CheckBytes<HighValidator<'a, Error>>,
{
    ::rkyv::access::<T, Error>(input).expect("the input is a message")
}

macro_rules! codec {
    ($shape:ident, $name:ident, $archived:ident, |$message:ident, $sink:ident| $look:expr) => {
        impl Codec<$shape> for Rkyv {
            fn subject() -> String {
                <Rkyv as Library>::subject()
            }

            type Message = owned::$name;
            type Kept = owned::$name;

            fn message(message: quipu_wire::$name<'static>) -> owned::$name {
                message.into()
            }

            #[inline(always)]
            fn marshal<'b>(&'b mut self, message: &owned::$name, out: &'b mut Vec<u8>) -> &'b [u8] {
                *out = ::rkyv::api::high::to_bytes_in::<_, Error>(message, std::mem::take(out))
                    .expect("it can be written");
                out
            }

            #[inline(always)]
            fn unmarshal(&mut self, input: &[u8], kept: &mut owned::$name) {
                *kept = ::rkyv::deserialize::<_, Error>(access::<owned::$archived>(input))
                    .expect("the input is a message");
            }

            fn look(kept: &owned::$name, sink: &mut impl Sink) {
                super::Look::look(kept, sink);
            }

            #[inline(always)]
            fn borrow(&mut self, input: &[u8], $sink: &mut impl Sink) {
                let $message = access::<owned::$archived>(input);
                $look;
            }
        }
    };
}

codec!(Counters, Counter, ArchivedCounter, |message, sink| {
    sink.counter(&message.id, message.value.to_native());
});
codec!(BatchTimers, BatchTimer, ArchivedBatchTimer, |message, sink| {
    sink.batch_timer(&message.id, message.values.iter().map(|value| value.to_native()));
});
codec!(Gauges, Gauge, ArchivedGauge, |message, sink| {
    sink.gauge(&message.id, message.value.to_native());
});
codec!(Unions, MetricUnion, ArchivedMetricUnion, |message, sink| {
    sink.union(
        message.metric_type,
        &message.id,
        message.counter.to_native(),
        message.timer.iter().map(|value| value.to_native()),
        message.gauge.to_native(),
    );
});

messages! {
    metric:
    #[derive(Archive, Serialize, Deserialize)]
    owned
}

/// rkyv, for streams: a block is one list, which is read in place.
impl Stream for Rkyv {
    type Messages<'m> = Vec<Metric>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Metric> {
        block.messages.iter().map(Metric::from).collect()
    }

    fn write(&mut self, messages: &Vec<Metric>, out: &mut Vec<u8>) {
        *out = ::rkyv::api::high::to_bytes_in::<_, Error>(messages, std::mem::take(out))
            .expect("it can be written");
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        for message in access::<ArchivedVec<ArchivedMetric>>(input).iter() {
            match message {
                ArchivedMetric::Counter(counter) => {
                    sink.counter(&counter.id, counter.value.to_native());
                }
                ArchivedMetric::BatchTimer(timer) => {
                    sink.batch_timer(&timer.id, timer.values.iter().map(|value| value.to_native()));
                }
                ArchivedMetric::Gauge(gauge) => sink.gauge(&gauge.id, gauge.value.to_native()),
            }
        }
    }
}
