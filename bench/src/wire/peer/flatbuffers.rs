//! [`flatbuffers`](https://docs.rs/flatbuffers): tables that are read in place, after validation,
//! with the calls that FlatBuffers' compiler generates. The input can be unaligned, so a vector's
//! values are read one by one. Fields are written in the order that needs the least padding.

use flatbuffers::{
    FlatBufferBuilder, Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector,
    Verifiable, Verifier, WIPOffset,
};

use super::{Library, Look, messages};
use crate::wire::contender::{BatchTimers, Codec, Counters, Gauges, Unions};
use crate::wire::sink::Sink;

messages! {
    #[derive(Default)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

/// flatbuffers.
#[derive(Default)]
pub(in super::super) struct Flatbuffers(FlatBufferBuilder<'static>);

impl Library for Flatbuffers {
    const PACKAGE: &'static str = "flatbuffers";
    const OWN_BUFFER: bool = true;
}

/// The position of a field's entry in the vtable.
const fn slot(field: VOffsetT) -> VOffsetT {
    4 + 2 * field
}

/// Accesses the fields of any table by number, with defaults for omitted ones.
#[derive(Clone, Copy)]
struct Fields<'m>(Table<'m>);

impl<'m> Fields<'m> {
    #[inline(always)]
    fn number<T: Follow<'m, Inner = T> + 'm>(self, field: VOffsetT, default: T) -> T {
        // SAFETY: The verifier has seen a value of this type in the field, or none.
        unsafe { self.0.get::<T>(slot(field), None) }.unwrap_or(default)
    }

    #[inline(always)]
    fn list<T: Follow<'m> + 'm>(self, field: VOffsetT) -> Option<Vector<'m, T>> {
        // SAFETY: The verifier has seen a vector of this type in the field, or none.
        unsafe { self.0.get::<ForwardsUOffset<Vector<'m, T>>>(slot(field), None) }
    }

    #[inline(always)]
    fn id(self, field: VOffsetT) -> &'m [u8] {
        self.list::<u8>(field).map_or(&[], |id| id.bytes())
    }

    #[inline(always)]
    fn values(self, field: VOffsetT) -> Values<'m> {
        Values { list: self.list(field), next: 0 }
    }
}

/// The values of a vector.
struct Values<'m> {
    list: Option<Vector<'m, f64>>,
    next: usize,
}

impl Iterator for Values<'_> {
    type Item = f64;

    #[inline(always)]
    fn next(&mut self) -> Option<f64> {
        let list = self.list.filter(|list| self.next < list.len())?;
        self.next += 1;
        Some(list.get(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.list.map_or(0, |list| list.len()) - self.next;
        (len, Some(len))
    }
}

impl ExactSizeIterator for Values<'_> {}

macro_rules! codec {
    (
        $shape:ident, $name:ident, $table:ident,
        check: { $($field:literal: $type:ty),* },
        write: |$to:ident, $message:ident| $write:block,
        look: |$from:ident, $sink:ident| $look:expr,
        keep: |$kept_from:ident| $keep:expr
    ) => {
        struct $table<'m>(Fields<'m>);

        impl<'m> Follow<'m> for $table<'m> {
            type Inner = $table<'m>;

            #[inline]
            unsafe fn follow(buffer: &'m [u8], at: usize) -> $table<'m> {
                // SAFETY: The caller promises that there is a table.
                $table(Fields(unsafe { Table::new(buffer, at) }))
            }
        }

        impl Verifiable for $table<'_> {
            #[inline]
            fn run_verifier(from: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
                from.visit_table(at)?
                    $(.visit_field::<$type>(stringify!($field), slot($field), false)?)*
                    .finish();
                Ok(())
            }
        }

        impl Codec<$shape> for Flatbuffers {
            fn subject() -> String {
                <Flatbuffers as Library>::subject()
            }

            type Message = owned::$name;
            type Kept = owned::$name;
            const OWN_BUFFER: bool = true;

            fn message(message: quipu_wire::$name<'static>) -> owned::$name {
                message.into()
            }

            #[inline(always)]
            fn marshal<'b>(
                &'b mut self,
                $message: &owned::$name,
                _: &'b mut Vec<u8>,
            ) -> &'b [u8] {
                let $to = &mut self.0;
                $to.reset();
                let root: WIPOffset<_> = $write;
                $to.finish_minimal(root);
                $to.finished_data()
            }

            #[inline(always)]
            fn unmarshal(&mut self, input: &[u8], kept: &mut owned::$name) {
                let $kept_from = root::<$table>(input).0;
                *kept = $keep;
            }

            fn look(kept: &owned::$name, sink: &mut impl Sink) {
                Look::look(kept, sink);
            }

            #[inline(always)]
            fn borrow(&mut self, input: &[u8], $sink: &mut impl Sink) {
                let $from = root::<$table>(input).0;
                $look;
            }
        }
    };
}

#[inline(always)]
fn root<'m, T: Follow<'m, Inner = T> + Verifiable + 'm>(input: &'m [u8]) -> T {
    ::flatbuffers::root::<T>(input).expect("the input is a message")
}

codec!(
    Counters, Counter, CounterTable,
    check: { 0: ForwardsUOffset<Vector<'_, u8>>, 1: i64 },
    write: |to, message| {
        let id = to.create_vector(&message.id);
        let table = to.start_table();
        to.push_slot_always(slot(0), id);
        to.push_slot::<i64>(slot(1), message.value, 0);
        to.end_table(table)
    },
    look: |from, sink| sink.counter(from.id(0), from.number(1, 0)),
    keep: |from| owned::Counter { id: from.id(0).to_vec(), value: from.number(1, 0) }
);

codec!(
    BatchTimers, BatchTimer, BatchTimerTable,
    check: { 0: ForwardsUOffset<Vector<'_, u8>>, 1: ForwardsUOffset<Vector<'_, f64>> },
    write: |to, message| {
        let id = to.create_vector(&message.id);
        let values = to.create_vector(&message.values);
        let table = to.start_table();
        to.push_slot_always(slot(1), values);
        to.push_slot_always(slot(0), id);
        to.end_table(table)
    },
    look: |from, sink| sink.batch_timer(from.id(0), from.values(1)),
    keep: |from| owned::BatchTimer { id: from.id(0).to_vec(), values: from.values(1).collect() }
);

codec!(
    Gauges, Gauge, GaugeTable,
    check: { 0: ForwardsUOffset<Vector<'_, u8>>, 1: f64 },
    write: |to, message| {
        let id = to.create_vector(&message.id);
        let table = to.start_table();
        to.push_slot_always(slot(0), id);
        to.push_slot::<f64>(slot(1), message.value, 0.0);
        to.end_table(table)
    },
    look: |from, sink| sink.gauge(from.id(0), from.number(1, 0.0)),
    keep: |from| owned::Gauge { id: from.id(0).to_vec(), value: from.number(1, 0.0) }
);

codec!(
    Unions, MetricUnion, UnionTable,
    check: {
        0: i8,
        1: ForwardsUOffset<Vector<'_, u8>>,
        2: i64,
        3: ForwardsUOffset<Vector<'_, f64>>,
        4: f64
    },
    write: |to, message| {
        let id = to.create_vector(&message.id);
        let timer = to.create_vector(&message.timer);
        let table = to.start_table();
        to.push_slot::<f64>(slot(4), message.gauge, 0.0);
        to.push_slot::<i64>(slot(2), message.counter, 0);
        to.push_slot_always(slot(3), timer);
        to.push_slot_always(slot(1), id);
        to.push_slot::<i8>(slot(0), message.metric_type, 0);
        to.end_table(table)
    },
    look: |from, sink| sink.union(
        from.number(0, 0),
        from.id(1),
        from.number(2, 0),
        from.values(3),
        from.number(4, 0.0),
    ),
    keep: |from| owned::MetricUnion {
        metric_type: from.number(0, 0),
        id: from.id(1).to_vec(),
        counter: from.number(2, 0),
        timer: from.values(3).collect(),
        gauge: from.number(4, 0.0),
    }
);
