//! [`rmp-serde`](https://docs.rs/rmp-serde): MessagePack for serde, with structures as arrays, or
//! as maps with the names of their fields.

use serde::{Deserialize, Serialize};

use super::{Library, Look, codecs, messages};
use crate::wire::contender::{Block, Stream};
use crate::wire::sink::Sink;

messages! {
    #[derive(Default, Serialize, Deserialize)]
    owned,
    id: #[serde(with = "serde_bytes")] [Vec<u8>],
    values: [Vec<f64>]
}

messages! {
    #[derive(Serialize, Deserialize)]
    lent<'m>,
    id: #[serde(with = "serde_bytes")] [&'m [u8]],
    values: [Vec<f64>]
}

/// Structures as arrays.
#[derive(Default)]
pub(in super::super) struct RmpSerde;

impl Library for RmpSerde {
    const PACKAGE: &'static str = "rmp-serde";
}

codecs!(RmpSerde, owned, lent);

impl RmpSerde {
    #[inline(always)]
    pub(super) fn write<'b>(
        &'b mut self,
        message: &impl Serialize,
        out: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        ::rmp_serde::encode::write(out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    pub(super) fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::rmp_serde::from_slice(input).expect("the input is a message")
    }
}

/// Structures as maps.
#[derive(Default)]
pub(in super::super) struct RmpSerdeNamed;

impl Library for RmpSerdeNamed {
    const PACKAGE: &'static str = "rmp-serde";
    const VARIANT: Option<&'static str> = Some("maps");
}

codecs!(RmpSerdeNamed, owned, lent);

impl RmpSerdeNamed {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Serialize, out: &'b mut Vec<u8>) -> &'b [u8] {
        ::rmp_serde::encode::write_named(out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::rmp_serde::from_slice(input).expect("the input is a message")
    }
}

messages! {
    metric:
    #[derive(Serialize, Deserialize)]
    lent<'m>,
    each: #[serde(borrow)]
}

/// rmp-serde, for streams: a block is one list of maps from the name of a kind to its message.
impl Stream for RmpSerde {
    type Messages<'m> = Vec<Metric<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Metric<'m>> {
        block.messages.iter().map(Metric::from).collect()
    }

    fn write(&mut self, messages: &Vec<Metric<'_>>, out: &mut Vec<u8>) {
        RmpSerde::write(self, messages, out);
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        let messages: Vec<Metric<'_>> = RmpSerde::read(self, input);
        messages.iter().for_each(|message| message.look(sink));
    }
}
