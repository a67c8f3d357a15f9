//! Compares our Thrift, in the binary and the compact protocol, with the crate thrift.

use quipu_wire::Kind;
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TOutputProtocol, TStructIdentifier, TType,
};

use crate::common::Owned;
use crate::{Oracle, always, blank};

#[test]
fn thrift() {
    let write_binary = |message: &Owned| {
        let mut out = vec![];
        write(message, &mut TBinaryOutputProtocol::new(&mut out, true)).unwrap();
        out
    };
    let read_binary =
        |kind, bytes: &[u8]| read(kind, &mut TBinaryInputProtocol::new(bytes, true)).unwrap();
    let write_compact = |message: &Owned| {
        let mut out = vec![];
        write(message, &mut TCompactOutputProtocol::new(&mut out)).unwrap();
        out
    };
    let read_compact =
        |kind, bytes: &[u8]| read(kind, &mut TCompactInputProtocol::new(bytes)).unwrap();
    let (same_bytes, knows) = (always, always);
    Oracle { format: "thrift", write: &write_binary, read: &read_binary, same_bytes, knows }
        .check();
    Oracle {
        format: "thrift-compact",
        write: &write_compact,
        read: &read_compact,
        same_bytes,
        knows,
    }
    .check();
}

fn write(message: &Owned, out: &mut dyn TOutputProtocol) -> thrift::Result<()> {
    let union = message.kind == Kind::MetricUnion;
    let mut number = 0;
    let mut field = |form| {
        number += 1;
        TFieldIdentifier::new("", form, number)
    };
    out.write_struct_begin(&TStructIdentifier::new(""))?;
    if union {
        out.write_field_begin(&field(TType::I08))?;
        out.write_i8(message.metric_type)?;
    }
    out.write_field_begin(&field(TType::String))?;
    out.write_bytes(&message.id)?;
    if union || message.kind == Kind::Counter {
        out.write_field_begin(&field(TType::I64))?;
        out.write_i64(message.counter)?;
    }
    if union || message.kind == Kind::BatchTimer {
        out.write_field_begin(&field(TType::List))?;
        let len = message.timer.len().try_into().unwrap();
        out.write_list_begin(&TListIdentifier::new(TType::Double, len))?;
        message.timer.iter().try_for_each(|value| out.write_double(*value))?;
    }
    if union || message.kind == Kind::Gauge {
        out.write_field_begin(&field(TType::Double))?;
        out.write_double(message.gauge)?;
    }
    out.write_field_stop()?;
    out.write_struct_end()
}

fn read(kind: Kind, input: &mut dyn TInputProtocol) -> thrift::Result<Owned> {
    let mut message = blank(kind);
    input.read_struct_begin()?;
    loop {
        let field = input.read_field_begin()?;
        match field.field_type {
            TType::Stop => break,
            TType::I08 => message.metric_type = input.read_i8()?,
            TType::String => message.id = input.read_bytes()?,
            TType::I64 => message.counter = input.read_i64()?,
            TType::List => {
                let len = input.read_list_begin()?.size;
                message.timer = (0..len).map(|_| input.read_double()).collect::<Result<_, _>>()?;
            }
            TType::Double => message.gauge = input.read_double()?,
            other => panic!("{other:?}"),
        }
    }
    input.read_struct_end()?;
    Ok(message)
}
