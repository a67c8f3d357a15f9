//! [`wincode`](https://docs.rs/wincode): the format of bincode.

use wincode::config::DefaultConfig;
use wincode::{SchemaRead, SchemaWrite};

use super::{Library, Look, codecs, messages};
use crate::wire::contender::{Block, Stream};
use crate::wire::sink::Sink;

messages! {
    #[derive(Default, SchemaWrite, SchemaRead)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

messages! {
    #[derive(SchemaWrite, SchemaRead)]
    lent<'m>,
    id: [&'m [u8]],
    values: [Vec<f64>]
}

/// wincode.
#[derive(Default)]
pub(in super::super) struct Wincode;

impl Library for Wincode {
    const PACKAGE: &'static str = "wincode";
}

codecs!(Wincode, owned, lent);

impl Wincode {
    #[inline(always)]
    pub(super) fn write<'b, M>(&'b mut self, message: &M, out: &'b mut Vec<u8>) -> &'b [u8]
    where
        M: SchemaWrite<DefaultConfig, Src = M>,
    {
        ::wincode::serialize_into(&mut *out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    pub(super) fn read<'m, M>(&mut self, input: &'m [u8]) -> M
    where
        M: SchemaRead<'m, DefaultConfig, Dst = M>,
    {
        ::wincode::deserialize(input).expect("the input is a message")
    }
}

messages! {
    metric:
    #[derive(SchemaWrite, SchemaRead)]
    lent<'m>
}

/// wincode, for streams: a block is one list.
impl Stream for Wincode {
    type Messages<'m> = Vec<Metric<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Metric<'m>> {
        block.messages.iter().map(Metric::from).collect()
    }

    fn write(&mut self, messages: &Vec<Metric<'_>>, out: &mut Vec<u8>) {
        Wincode::write(self, messages, out);
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        let messages: Vec<Metric<'_>> = Wincode::read(self, input);
        messages.iter().for_each(|message| message.look(sink));
    }
}
