//! [`onc-xdr`](https://docs.rs/onc-xdr): XDR. It supports no arrays of floats of variable length,
//! so floats are written and read one by one. The messages that it reads own their data.

use onc_xdr::{Opaque, Pack, Unpack};

use super::{Id, Library, codecs, messages};

messages! {
    #[derive(Default)]
    owned,
    id: [Bytes],
    values: [Vec<f64>]
}

/// Bytes of variable length.
#[derive(Default)]
pub(in super::super) struct Bytes(Vec<u8>);

impl Id<'_> for Bytes {
    fn of(bytes: &[u8]) -> Self {
        Bytes(bytes.to_vec())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// onc-xdr.
#[derive(Default)]
pub(in super::super) struct OncXdr;

impl Library for OncXdr {
    const PACKAGE: &'static str = "onc-xdr";
}

codecs!(OncXdr, owned);

type Result<T> = std::result::Result<T, ::onc_xdr::Error>;

/// A message, written and read like by the crate's derive.
trait Structure: Sized {
    fn pack(&self, out: &mut Vec<u8>) -> Result<()>;
    fn unpack(input: &mut &[u8]) -> Result<Self>;
}

impl OncXdr {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Structure, out: &'b mut Vec<u8>) -> &'b [u8] {
        message.pack(out).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<M: Structure>(&mut self, mut input: &[u8]) -> M {
        M::unpack(&mut input).expect("the input is a message")
    }
}

impl Structure for owned::Counter {
    fn pack(&self, out: &mut Vec<u8>) -> Result<()> {
        Opaque::borrowed(&self.id.0).pack(out)?;
        self.value.pack(out)?;
        Ok(())
    }

    fn unpack(input: &mut &[u8]) -> Result<Self> {
        Ok(Self { id: id(input)?, value: i64::unpack(input)?.0 })
    }
}

impl Structure for owned::BatchTimer {
    fn pack(&self, out: &mut Vec<u8>) -> Result<()> {
        Opaque::borrowed(&self.id.0).pack(out)?;
        pack_values(&self.values, out)
    }

    fn unpack(input: &mut &[u8]) -> Result<Self> {
        Ok(Self { id: id(input)?, values: unpack_values(input)? })
    }
}

impl Structure for owned::Gauge {
    fn pack(&self, out: &mut Vec<u8>) -> Result<()> {
        Opaque::borrowed(&self.id.0).pack(out)?;
        self.value.pack(out)?;
        Ok(())
    }

    fn unpack(input: &mut &[u8]) -> Result<Self> {
        Ok(Self { id: id(input)?, value: f64::unpack(input)?.0 })
    }
}

impl Structure for owned::MetricUnion {
    fn pack(&self, out: &mut Vec<u8>) -> Result<()> {
        i32::from(self.metric_type).pack(out)?;
        Opaque::borrowed(&self.id.0).pack(out)?;
        self.counter.pack(out)?;
        pack_values(&self.timer, out)?;
        self.gauge.pack(out)?;
        Ok(())
    }

    fn unpack(input: &mut &[u8]) -> Result<Self> {
        Ok(Self {
            metric_type: i32::unpack(input)?.0 as i8,
            id: id(input)?,
            counter: i64::unpack(input)?.0,
            timer: unpack_values(input)?,
            gauge: f64::unpack(input)?.0,
        })
    }
}

fn id(input: &mut &[u8]) -> Result<Bytes> {
    Ok(Bytes(Opaque::unpack(input)?.0.into_owned()))
}

fn pack_values(values: &[f64], out: &mut Vec<u8>) -> Result<()> {
    (values.len() as u32).pack(out)?;
    for value in values {
        value.pack(out)?;
    }
    Ok(())
}

fn unpack_values(input: &mut &[u8]) -> Result<Vec<f64>> {
    let count = u32::unpack(input)?.0;
    let mut values = ::onc_xdr::vec_with_capacity(count as usize);
    for _ in 0..count {
        values.push(f64::unpack(input)?.0);
    }
    Ok(values)
}
