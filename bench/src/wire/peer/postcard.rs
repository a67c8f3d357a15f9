//! [`postcard`](https://docs.rs/postcard): a compact format for serde.

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

/// postcard.
#[derive(Default)]
pub(in super::super) struct Postcard;

impl Library for Postcard {
    const PACKAGE: &'static str = "postcard";
}

codecs!(Postcard, owned, lent);

impl Postcard {
    #[inline(always)]
    pub(super) fn write<'b>(
        &'b mut self,
        message: &impl Serialize,
        out: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        *out = ::postcard::to_extend(message, std::mem::take(out)).expect("it can be written");
        out
    }

    #[inline(always)]
    pub(super) fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::postcard::from_bytes(input).expect("the input is a message")
    }
}

messages! {
    metric:
    #[derive(Serialize, Deserialize)]
    lent<'m>,
    each: #[serde(borrow)]
}

/// postcard, for streams: messages one after the other, without lengths.
impl Stream for Postcard {
    type Messages<'m> = Vec<Metric<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Metric<'m>> {
        block.messages.iter().map(Metric::from).collect()
    }

    fn write(&mut self, messages: &Vec<Metric<'_>>, out: &mut Vec<u8>) {
        for message in messages {
            Postcard::write(self, message, out);
        }
    }

    fn read(&mut self, mut input: &[u8], sink: &mut impl Sink) {
        while !input.is_empty() {
            let (message, rest): (Metric<'_>, _) =
                ::postcard::take_from_bytes(input).expect("the input is a message");
            message.look(sink);
            input = rest;
        }
    }
}
