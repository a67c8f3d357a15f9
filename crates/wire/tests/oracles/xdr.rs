//! Compares our XDR with the crate onc-xdr.

use onc_xdr::{Opaque, Pack, Unpack};
use quipu_wire::Kind;

use crate::common::Owned;
use crate::{Oracle, always, blank};

#[test]
fn xdr() {
    let oracle =
        Oracle { format: "xdr", write: &write, read: &read, same_bytes: always, knows: always };
    oracle.check();
}

fn write(message: &Owned) -> Vec<u8> {
    let mut out = vec![];
    let union = message.kind == Kind::MetricUnion;
    if union {
        i32::from(message.metric_type).pack(&mut out).unwrap();
    }
    Opaque::borrowed(&message.id).pack(&mut out).unwrap();
    if union || message.kind == Kind::Counter {
        message.counter.pack(&mut out).unwrap();
    }
    if union || message.kind == Kind::BatchTimer {
        (message.timer.len() as u32).pack(&mut out).unwrap();
        for value in &message.timer {
            value.pack(&mut out).unwrap();
        }
    }
    if union || message.kind == Kind::Gauge {
        message.gauge.pack(&mut out).unwrap();
    }
    out
}

fn read(kind: Kind, mut bytes: &[u8]) -> Owned {
    fn next<T: Unpack>(input: &mut &[u8]) -> T {
        T::unpack(input).unwrap().0
    }
    let input = &mut bytes;
    let mut message = blank(kind);
    let union = kind == Kind::MetricUnion;
    if union {
        message.metric_type = i8::try_from(next::<i32>(input)).unwrap();
    }
    message.id = next::<Opaque<'static>>(input).into_owned();
    if union || kind == Kind::Counter {
        message.counter = next(input);
    }
    if union || kind == Kind::BatchTimer {
        let len = next::<u32>(input);
        message.timer = (0..len).map(|_| next(input)).collect();
    }
    if union || kind == Kind::Gauge {
        message.gauge = next(input);
    }
    assert!(input.is_empty());
    message
}
