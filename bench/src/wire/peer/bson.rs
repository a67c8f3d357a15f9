//! [`bson`](https://docs.rs/bson): the documents of MongoDB, for serde. It writes only to its own
//! buffers.

use serde::{Deserialize, Serialize};

use super::{Library, codecs, messages};

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

/// bson.
#[derive(Default)]
pub(in super::super) struct Bson;

impl Library for Bson {
    const PACKAGE: &'static str = "bson";
}

codecs!(Bson, owned, lent);

impl Bson {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Serialize, out: &'b mut Vec<u8>) -> &'b [u8] {
        *out = ::bson::serialize_to_vec(message).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::bson::deserialize_from_slice(input).expect("the input is a message")
    }
}
