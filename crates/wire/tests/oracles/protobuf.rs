//! Compares our protobuf formats with prost.

use prost::Message;
use quipu_wire::Kind;

use crate::common::Owned;
use crate::{Oracle, always, blank, never};

#[test]
fn prost() {
    // prost omits a gauge of -0, like gogo's generated code.
    let no_sign: fn(&Owned) -> bool = |m| m.gauge.to_bits() != (-0.0_f64).to_bits();
    for (format, same_bytes, knows) in [
        ("gogo-protobuf", always as fn(&Owned) -> bool, always as fn(&Owned) -> bool),
        ("protobuf", always, no_sign),
        ("protobuf-via-gogo", never, no_sign),
    ] {
        Oracle { format, write: &write, read: &read, same_bytes, knows }.check();
    }
    let (write, read) = (&write_zigzag, &read_zigzag);
    Oracle { format: "dedis-protobuf", write, read, same_bytes: never, knows: no_sign }.check();
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(int64, tag = "2")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct BatchTimer {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(double, repeated, tag = "2")]
    values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct MetricUnion {
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

/// The two messages with integers, in the zigzag form.
#[derive(Clone, PartialEq, Message)]
struct ZigzagCounter {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(sint64, tag = "2")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ZigzagUnion {
    #[prost(sint32, tag = "1")]
    metric_type: i32,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(sint64, tag = "3")]
    counter: i64,
    #[prost(double, repeated, tag = "4")]
    timer: Vec<f64>,
    #[prost(double, tag = "5")]
    gauge: f64,
}

fn write(message: &Owned) -> Vec<u8> {
    let Owned { kind, metric_type, id, counter, timer, gauge } = message.clone();
    match kind {
        Kind::Counter => Counter { id, value: counter }.encode_to_vec(),
        Kind::BatchTimer => BatchTimer { id, values: timer }.encode_to_vec(),
        Kind::Gauge => Gauge { id, value: gauge }.encode_to_vec(),
        Kind::MetricUnion => {
            let metric_type = metric_type.into();
            MetricUnion { metric_type, id, counter, timer, gauge }.encode_to_vec()
        }
    }
}

fn write_zigzag(message: &Owned) -> Vec<u8> {
    let Owned { kind, metric_type, id, counter, timer, gauge } = message.clone();
    match kind {
        Kind::Counter => ZigzagCounter { id, value: counter }.encode_to_vec(),
        Kind::MetricUnion => {
            let metric_type = metric_type.into();
            ZigzagUnion { metric_type, id, counter, timer, gauge }.encode_to_vec()
        }
        Kind::BatchTimer | Kind::Gauge => write(message),
    }
}

fn read(kind: Kind, bytes: &[u8]) -> Owned {
    let blank = blank(kind);
    match kind {
        Kind::Counter => {
            let Counter { id, value } = Message::decode(bytes).unwrap();
            Owned { id, counter: value, ..blank }
        }
        Kind::BatchTimer => {
            let BatchTimer { id, values } = Message::decode(bytes).unwrap();
            Owned { id, timer: values, ..blank }
        }
        Kind::Gauge => {
            let Gauge { id, value } = Message::decode(bytes).unwrap();
            Owned { id, gauge: value, ..blank }
        }
        Kind::MetricUnion => {
            let MetricUnion { metric_type, id, counter, timer, gauge } =
                Message::decode(bytes).unwrap();
            Owned { kind, metric_type: metric_type.try_into().unwrap(), id, counter, timer, gauge }
        }
    }
}

fn read_zigzag(kind: Kind, bytes: &[u8]) -> Owned {
    match kind {
        Kind::Counter => {
            let ZigzagCounter { id, value } = Message::decode(bytes).unwrap();
            Owned { id, counter: value, ..blank(kind) }
        }
        Kind::MetricUnion => {
            let ZigzagUnion { metric_type, id, counter, timer, gauge } =
                Message::decode(bytes).unwrap();
            Owned { kind, metric_type: metric_type.try_into().unwrap(), id, counter, timer, gauge }
        }
        Kind::BatchTimer | Kind::Gauge => read(kind, bytes),
    }
}
