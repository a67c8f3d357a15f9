//! [`sonic-rs`](https://docs.rs/sonic-rs): JSON for serde, with SIMD instructions. Ids are strings.

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

/// sonic-rs.
#[derive(Default)]
pub(in super::super) struct SonicRs;

impl Library for SonicRs {
    const PACKAGE: &'static str = "sonic-rs";
}

codecs!(SonicRs, owned, lent);

impl SonicRs {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Serialize, out: &'b mut Vec<u8>) -> &'b [u8] {
        ::sonic_rs::to_writer(&mut *out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<'m, M: Deserialize<'m>>(&mut self, input: &'m [u8]) -> M {
        ::sonic_rs::from_slice(input).expect("the input is a message")
    }
}
