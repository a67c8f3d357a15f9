//! [`speedy`](https://docs.rs/speedy): a format of fixed widths.

use speedy::{LittleEndian, Readable, Writable};

use super::{Library, codecs, messages};

messages! {
    #[derive(Default, Readable, Writable)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

messages! {
    #[derive(Readable, Writable)]
    lent<'m>,
    id: [&'m [u8]],
    values: [Vec<f64>]
}

/// speedy.
#[derive(Default)]
pub(in super::super) struct Speedy;

impl Library for Speedy {
    const PACKAGE: &'static str = "speedy";
}

codecs!(Speedy, owned, lent);

impl Speedy {
    #[inline(always)]
    fn write<'b>(
        &'b mut self,
        message: &impl Writable<LittleEndian>,
        out: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        let len = message.bytes_needed().expect("it has a length");
        out.resize(len, 0);
        message.write_to_buffer_with_ctx(LittleEndian::default(), out).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<'m, M: Readable<'m, LittleEndian>>(&mut self, input: &'m [u8]) -> M {
        M::read_from_buffer_with_ctx(LittleEndian::default(), input)
            .expect("the input is a message")
    }
}
