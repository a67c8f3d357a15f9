//! [`bitcode`](https://docs.rs/bitcode): columns, packed into bits. It is made for many messages at
//! once, and borrows strings from the input.

use bitcode::{Buffer, Decode, Encode};

use super::{Library, Look, codecs, messages};
use crate::wire::contender::{Block, Stream};
use crate::wire::sink::Sink;

messages! {
    #[derive(Default, Encode, Decode)]
    owned,
    id: [String],
    values: [Vec<f64>]
}

messages! {
    #[derive(Encode, Decode)]
    lent<'m>,
    id: [&'m str],
    values: [Vec<f64>]
}

/// bitcode.
#[derive(Default)]
pub(in super::super) struct Bitcode(Buffer);

impl Library for Bitcode {
    const PACKAGE: &'static str = "bitcode";
    const OWN_BUFFER: bool = true;
}

codecs!(Bitcode, owned, lent);

impl Bitcode {
    #[inline(always)]
    pub(super) fn write<'b>(&'b mut self, message: &impl Encode, _: &'b mut Vec<u8>) -> &'b [u8] {
        self.0.encode(message)
    }

    #[inline(always)]
    pub(super) fn read<'m, M: Decode<'m>>(&mut self, input: &'m [u8]) -> M {
        self.0.decode(input).expect("the input is a message")
    }
}

messages! {
    metric:
    #[derive(Encode, Decode)]
    lent<'m>
}

/// bitcode, for streams: a block is one list, whose fields are columns.
impl Stream for Bitcode {
    type Messages<'m> = Vec<Metric<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Metric<'m>> {
        block.messages.iter().map(Metric::from).collect()
    }

    fn write(&mut self, messages: &Vec<Metric<'_>>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.encode(messages));
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        let messages: Vec<Metric<'_>> = self.0.decode(input).expect("the input is a block");
        messages.iter().for_each(|message| message.look(sink));
    }
}
