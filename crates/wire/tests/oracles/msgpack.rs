//! Compares our MessagePack formats with rmp-serde. Each format follows a Go library, and these
//! write numbers differently, so the bytes are equal only for some messages.

use quipu_wire::Kind;
use rmp_serde::{Deserializer, Serializer, to_vec_named};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::common::Owned;
use crate::{Oracle, always, blank, never};

#[test]
fn rmp_serde() {
    // rmp writes positive numbers as unsigned, tinylib as signed.
    let no_number: fn(&Owned) -> bool =
        |message| [Kind::BatchTimer, Kind::Gauge].contains(&message.kind);
    for (format, same_bytes) in [("tinylib-msgp", no_number), ("ugorji-msgpack", never)] {
        Oracle { format, write: &write, read: &read, same_bytes, knows: always }.check();
    }
    let (write, read) = (&write_bare, &read_bare);
    Oracle { format: "vmihailenco-msgpack", write, read, same_bytes: always, knows: always }
        .check();
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    #[serde(rename = "ID")]
    id: ByteBuf,
    #[serde(rename = "Value")]
    value: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchTimer {
    #[serde(rename = "ID")]
    id: ByteBuf,
    #[serde(rename = "Values")]
    values: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gauge {
    #[serde(rename = "ID")]
    id: ByteBuf,
    #[serde(rename = "Value")]
    value: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricUnion {
    #[serde(rename = "Type")]
    metric_type: i8,
    #[serde(rename = "ID")]
    id: ByteBuf,
    #[serde(rename = "CounterVal")]
    counter: i64,
    #[serde(rename = "BatchTimerVal")]
    timer: Vec<f64>,
    #[serde(rename = "GaugeVal")]
    gauge: f64,
}

fn write(message: &Owned) -> Vec<u8> {
    let Owned { kind, metric_type, id, counter, timer, gauge } = message.clone();
    let id = ByteBuf::from(id);
    match kind {
        Kind::Counter => to_vec_named(&Counter { id, value: counter }),
        Kind::BatchTimer => to_vec_named(&BatchTimer { id, values: timer }),
        Kind::Gauge => to_vec_named(&Gauge { id, value: gauge }),
        Kind::MetricUnion => to_vec_named(&MetricUnion { metric_type, id, counter, timer, gauge }),
    }
    .unwrap()
}

fn read(kind: Kind, bytes: &[u8]) -> Owned {
    fn of<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> T {
        rmp_serde::from_slice(bytes).unwrap()
    }
    let blank = blank(kind);
    match kind {
        Kind::Counter => {
            let Counter { id, value } = of(bytes);
            Owned { id: id.into_vec(), counter: value, ..blank }
        }
        Kind::BatchTimer => {
            let BatchTimer { id, values } = of(bytes);
            Owned { id: id.into_vec(), timer: values, ..blank }
        }
        Kind::Gauge => {
            let Gauge { id, value } = of(bytes);
            Owned { id: id.into_vec(), gauge: value, ..blank }
        }
        Kind::MetricUnion => {
            let MetricUnion { metric_type, id, counter, timer, gauge } = of(bytes);
            Owned { kind, metric_type, id: id.into_vec(), counter, timer, gauge }
        }
    }
}

/// Writes the fields in sequence, without a map or an array around them.
fn write_bare(message: &Owned) -> Vec<u8> {
    let mut out = vec![];
    let mut writer = Serializer::new(&mut out);
    let union = message.kind == Kind::MetricUnion;
    if union {
        message.metric_type.serialize(&mut writer).unwrap();
    }
    ByteBuf::from(message.id.clone()).serialize(&mut writer).unwrap();
    if union || message.kind == Kind::Counter {
        message.counter.serialize(&mut writer).unwrap();
    }
    if union || message.kind == Kind::BatchTimer {
        message.timer.serialize(&mut writer).unwrap();
    }
    if union || message.kind == Kind::Gauge {
        message.gauge.serialize(&mut writer).unwrap();
    }
    out
}

fn read_bare(kind: Kind, bytes: &[u8]) -> Owned {
    fn next<'b, T: Deserialize<'b>>(reader: &mut Deserializer<impl ReadSlice<'b>>) -> T {
        T::deserialize(reader).unwrap()
    }
    use rmp_serde::decode::ReadSlice;

    let mut reader = Deserializer::from_read_ref(bytes);
    let reader = &mut reader;
    let mut message = blank(kind);
    let union = kind == Kind::MetricUnion;
    if union {
        message.metric_type = next(reader);
    }
    message.id = next::<ByteBuf>(reader).into_vec();
    if union || kind == Kind::Counter {
        message.counter = next(reader);
    }
    if union || kind == Kind::BatchTimer {
        message.timer = next(reader);
    }
    if union || kind == Kind::Gauge {
        message.gauge = next(reader);
    }
    message
}
