//! [`serde_json`](https://docs.rs/serde_json): JSON for serde. Ids are strings, like in a program's
//! JSON, not the base64 that Go makes of bytes.

use serde::{Deserialize, Serialize};

use super::{Library, codecs, messages};

messages! {
    #[derive(Default, Serialize, Deserialize)]
    owned,
    id: [String],
    values: [Vec<f64>]
}

messages! {
    #[derive(Serialize, Deserialize)]
    lent<'m>,
    id: [&'m str],
    values: [Vec<f64>]
}

/// serde_json.
#[derive(Default)]
pub(in super::super) struct SerdeJson;

impl Library for SerdeJson {
    const PACKAGE: &'static str = "serde_json";
}

codecs!(SerdeJson, owned, lent);

impl SerdeJson {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Serialize, out: &'b mut Vec<u8>) -> &'b [u8] {
        ::serde_json::to_writer(&mut *out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::serde_json::from_slice(input).expect("the input is a message")
    }
}
