//! Compares our FlatBuffers with the crate flatbuffers.

use flatbuffers::{
    FlatBufferBuilder, Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector,
    Verifiable, Verifier, VerifierOptions,
};
use quipu_wire::Kind;

use crate::common::Owned;
use crate::{Oracle, always, blank, never};

#[test]
fn flatbuffers() {
    // Our builder, like Go's, aligns the end of the buffer; this one aligns the start.
    let format = "flatbuffers";
    Oracle { format, write: &write, read: &read, same_bytes: never, knows: always }.check();
}

/// Returns the position of each field in its table: type, id, counter, values, gauge.
fn slots(kind: Kind) -> [Option<VOffsetT>; 5] {
    match kind {
        Kind::Counter => [None, Some(4), Some(6), None, None],
        Kind::BatchTimer => [None, Some(4), None, Some(6), None],
        Kind::Gauge => [None, Some(4), None, None, Some(6)],
        Kind::MetricUnion => [Some(4), Some(6), Some(8), Some(10), Some(12)],
    }
}

fn write(message: &Owned) -> Vec<u8> {
    let [metric_type, id, counter, timer, gauge] = slots(message.kind);
    let mut builder = FlatBufferBuilder::new();
    let id_at = builder.create_vector(&message.id);
    let timer_at = timer.map(|slot| (slot, builder.create_vector(&message.timer)));
    let table = builder.start_table();
    if let Some(slot) = counter {
        builder.push_slot(slot, message.counter, 0);
    }
    if let Some(slot) = gauge {
        builder.push_slot(slot, message.gauge, 0.0);
    }
    builder.push_slot_always(id.unwrap(), id_at);
    if let Some((slot, at)) = timer_at {
        builder.push_slot_always(slot, at);
    }
    if let Some(slot) = metric_type {
        builder.push_slot(slot, message.metric_type, 0);
    }
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

fn read(kind: Kind, bytes: &[u8]) -> Owned {
    verify(kind, bytes);
    let [metric_type, id, counter, timer, gauge] = slots(kind);
    // SAFETY: The verifier accepted the bytes as such a table.
    unsafe {
        let table = <ForwardsUOffset<Table<'_>>>::follow(bytes, 0);
        let bytes_at = |slot| table.get::<ForwardsUOffset<Vector<'_, u8>>>(slot, None);
        let doubles_at = |slot| table.get::<ForwardsUOffset<Vector<'_, f64>>>(slot, None);
        Owned {
            metric_type: metric_type.map_or(0, |slot| table.get::<i8>(slot, Some(0)).unwrap()),
            id: id.and_then(bytes_at).map_or(vec![], |id| id.bytes().to_vec()),
            counter: counter.map_or(0, |slot| table.get::<i64>(slot, Some(0)).unwrap()),
            timer: timer.and_then(doubles_at).map_or(vec![], |list| list.iter().collect()),
            gauge: gauge.map_or(0.0, |slot| table.get::<f64>(slot, Some(0.0)).unwrap()),
            ..blank(kind)
        }
    }
}

/// Checks the bytes with the library's verifier. Zeros in front align their end to 8.
fn verify(kind: Kind, bytes: &[u8]) {
    let start = bytes.len().next_multiple_of(8) - bytes.len();
    let aligned = [&vec![0; start], bytes].concat();
    let options = VerifierOptions::default();
    let verifier = &mut Verifier::new(&options, &aligned);
    match kind {
        Kind::Counter => <ForwardsUOffset<Shape<0>>>::run_verifier(verifier, start),
        Kind::BatchTimer => <ForwardsUOffset<Shape<1>>>::run_verifier(verifier, start),
        Kind::Gauge => <ForwardsUOffset<Shape<2>>>::run_verifier(verifier, start),
        Kind::MetricUnion => <ForwardsUOffset<Shape<3>>>::run_verifier(verifier, start),
    }
    .unwrap();
}

/// The fields in the table of a kind.
struct Shape<const KIND: usize>;

impl<const KIND: usize> Verifiable for Shape<KIND> {
    fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
        let [metric_type, id, counter, timer, gauge] = slots(Kind::ALL[KIND]);
        let mut table = verifier.visit_table(at)?;
        if let Some(slot) = metric_type {
            table = table.visit_field::<i8>("type", slot, false)?;
        }
        if let Some(slot) = id {
            table = table.visit_field::<ForwardsUOffset<Vector<'_, u8>>>("id", slot, false)?;
        }
        if let Some(slot) = counter {
            table = table.visit_field::<i64>("counter", slot, false)?;
        }
        if let Some(slot) = timer {
            table = table.visit_field::<ForwardsUOffset<Vector<'_, f64>>>("timer", slot, false)?;
        }
        if let Some(slot) = gauge {
            table = table.visit_field::<f64>("gauge", slot, false)?;
        }
        table.finish();
        Ok(())
    }
}
