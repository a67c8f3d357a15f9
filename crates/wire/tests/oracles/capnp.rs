//! Compares our Cap'n Proto, plain and packed, with the crate capnp.

use capnp::message::{Builder, HeapAllocator, ReaderOptions};
use capnp::private::layout::{
    PointerBuilder, PointerReader, StructBuilder, StructReader, StructSize,
};
use capnp::traits::{FromPointerBuilder, FromPointerReader};
use capnp::{Word, data, primitive_list, serialize, serialize_packed};
use quipu_wire::Kind;

use crate::common::Owned;
use crate::{Oracle, always, blank};

#[test]
fn capnp() {
    let write_plain = |message: &Owned| serialize::write_message_to_words(&build(message));
    let read_plain = |kind, mut bytes: &[u8]| {
        read(kind, serialize::read_message_from_flat_slice(&mut bytes, LIMITS).unwrap())
    };
    let write_packed = |message: &Owned| {
        let mut out = vec![];
        serialize_packed::write_message(&mut out, &build(message)).unwrap();
        out
    };
    let read_packed =
        |kind, bytes: &[u8]| read(kind, serialize_packed::read_message(bytes, LIMITS).unwrap());
    let (same_bytes, knows) = (always, always);
    Oracle { format: "capnp", write: &write_plain, read: &read_plain, same_bytes, knows }.check();
    Oracle { format: "capnp-packed", write: &write_packed, read: &read_packed, same_bytes, knows }
        .check();
}

const LIMITS: ReaderOptions = ReaderOptions { traversal_limit_in_words: None, nesting_limit: 64 };

/// A struct without generated code. For this reason, each access to a field repeats a part of the
/// schema.
struct Struct<'a>(StructReader<'a>);

impl<'a> FromPointerReader<'a> for Struct<'a> {
    fn get_from_pointer(
        pointer: &PointerReader<'a>,
        default: Option<&'a [Word]>,
    ) -> capnp::Result<Struct<'a>> {
        pointer.get_struct(default).map(Struct)
    }
}

/// A struct of 3 words and 2 pointers, of 1 and 1, or of 0 and 2.
struct Making<'a, const WORDS: u16, const POINTERS: u16>(StructBuilder<'a>);

impl<'a, const WORDS: u16, const POINTERS: u16> FromPointerBuilder<'a>
    for Making<'a, WORDS, POINTERS>
{
    fn init_pointer(builder: PointerBuilder<'a>, _: u32) -> Self {
        Making(builder.init_struct(StructSize { data: WORDS, pointers: POINTERS }))
    }

    fn get_from_pointer(
        builder: PointerBuilder<'a>,
        default: Option<&'a [Word]>,
    ) -> capnp::Result<Self> {
        let size = StructSize { data: WORDS, pointers: POINTERS };
        builder.get_struct(size, default).map(Making)
    }
}

/// Builds a message in one segment, like Go's library.
fn build(message: &Owned) -> Builder<HeapAllocator> {
    let words = message.id.len() / 8 + message.timer.len() + 16;
    let mut builder =
        Builder::new(HeapAllocator::new().first_segment_words(words.try_into().unwrap()));
    match message.kind {
        Kind::Counter => {
            let mut root = builder.init_root::<Making<'_, 1, 1>>().0;
            root.set_data_field(0, message.counter);
            set_id(&mut root, message);
        }
        Kind::BatchTimer => {
            let mut root = builder.init_root::<Making<'_, 0, 2>>().0;
            set_id(&mut root, message);
            set_timer(&mut root, message);
        }
        Kind::Gauge => {
            let mut root = builder.init_root::<Making<'_, 1, 1>>().0;
            root.set_data_field(0, message.gauge);
            set_id(&mut root, message);
        }
        Kind::MetricUnion => {
            let mut root = builder.init_root::<Making<'_, 3, 2>>().0;
            root.set_data_field(0, i16::from(message.metric_type));
            root.set_data_field(1, message.counter);
            root.set_data_field(2, message.gauge);
            set_id(&mut root, message);
            set_timer(&mut root, message);
        }
    }
    builder
}

fn set_id(root: &mut StructBuilder<'_>, message: &Owned) {
    let pointer = root.reborrow().get_pointer_field(0);
    let id: data::Builder<'_> =
        FromPointerBuilder::init_pointer(pointer, message.id.len().try_into().unwrap());
    id.copy_from_slice(&message.id);
}

fn set_timer(root: &mut StructBuilder<'_>, message: &Owned) {
    let pointer = root.reborrow().get_pointer_field(1);
    let mut list: primitive_list::Builder<'_, f64> =
        FromPointerBuilder::init_pointer(pointer, message.timer.len().try_into().unwrap());
    for (index, value) in (0..).zip(&message.timer) {
        list.set(index, *value);
    }
}

fn read<S: capnp::message::ReaderSegments>(
    kind: Kind,
    message: capnp::message::Reader<S>,
) -> Owned {
    let Struct(root) = message.get_root().unwrap();
    let id = || {
        let pointer = root.get_pointer_field(0);
        data::Reader::get_from_pointer(&pointer, None).unwrap().to_vec()
    };
    let timer = || {
        let pointer = root.get_pointer_field(1);
        let list = primitive_list::Reader::<f64>::get_from_pointer(&pointer, None).unwrap();
        list.iter().collect()
    };
    let blank = Owned { id: id(), ..blank(kind) };
    match kind {
        Kind::Counter => Owned { counter: root.get_data_field(0), ..blank },
        Kind::BatchTimer => Owned { timer: timer(), ..blank },
        Kind::Gauge => Owned { gauge: root.get_data_field(0), ..blank },
        Kind::MetricUnion => Owned {
            metric_type: root.get_data_field::<i16>(0).try_into().unwrap(),
            counter: root.get_data_field(1),
            timer: timer(),
            gauge: root.get_data_field(2),
            ..blank
        },
    }
}
