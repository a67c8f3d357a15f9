//! [`zerompk`](https://docs.rs/zerompk): MessagePack without serde, with structures as arrays.

use zerompk::{FromMessagePack, ToMessagePack};

use super::{Library, codecs, messages};

messages! {
    #[derive(Default, FromMessagePack, ToMessagePack)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

messages! {
    #[derive(FromMessagePack, ToMessagePack)]
    lent<'m>,
    id: [&'m [u8]],
    values: [Vec<f64>]
}

/// Room for any message here, because it writes to slices, and cannot grow a vector.
const ROOM: usize = 512;

/// zerompk.
#[derive(Default)]
pub(in super::super) struct Zerompk;

impl Library for Zerompk {
    const PACKAGE: &'static str = "zerompk";
}

codecs!(Zerompk, owned, lent);

impl Zerompk {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl ToMessagePack, out: &'b mut Vec<u8>) -> &'b [u8] {
        let mut room = [0; ROOM];
        let len = ::zerompk::to_msgpack(message, &mut room).expect("it can be written");
        out.extend_from_slice(&room[..len]);
        out
    }

    #[inline(always)]
    fn read<'m, M: FromMessagePack<'m>>(&mut self, input: &'m [u8]) -> M {
        ::zerompk::from_msgpack(input).expect("the input is a message")
    }
}
