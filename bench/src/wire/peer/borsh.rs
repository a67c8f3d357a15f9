//! [`borsh`](https://docs.rs/borsh): a canonical format. The messages that it reads own their data.

use borsh::{BorshDeserialize, BorshSerialize};

use super::{Library, codecs, messages};

messages! {
    #[derive(Default, BorshSerialize, BorshDeserialize)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

/// borsh.
#[derive(Default)]
pub(in super::super) struct Borsh;

impl Library for Borsh {
    const PACKAGE: &'static str = "borsh";
}

codecs!(Borsh, owned);

impl Borsh {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl BorshSerialize, out: &'b mut Vec<u8>) -> &'b [u8] {
        ::borsh::to_writer(&mut *out, message).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<M: BorshDeserialize>(&mut self, input: &[u8]) -> M {
        ::borsh::from_slice(input).expect("the input is a message")
    }
}
