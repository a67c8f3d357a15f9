//! Messages on the wire: quipu's formats, compared to the Go libraries with the same formats, and
//! to the crates that a Rust program would use.
//!
//! A format is a line of `formats`; a crate is a file of `peer`, and a line of `singles`, of
//! `streams`, or of both. Single messages use the same labels as the Go program `wirebench`,
//! because their records are compared.

mod contender;
mod ours;
mod peer;
mod single;
mod sink;
mod stream;
mod streaming;

use std::time::Duration;

use quipu_wire::{Format, Gencode, Protobuf};

use crate::measure::{Options, pin};
use crate::record::Record;
use contender::{BatchTimers, Counters, Gauges, Unions};
use ours::BySeries;
use single::Singles;
use streaming::Streams;

/// How much to measure in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The duration of a loop of single messages.
    pub run_time: Duration,
    /// The number of messages of a stream.
    pub messages: usize,
}

impl Plan {
    /// A full turn.
    pub fn full() -> Plan {
        Plan { run_time: Duration::from_millis(60), messages: 1_000_000 }
    }

    /// A turn of a few milliseconds, to try out the benchmark.
    pub fn quick() -> Plan {
        Plan { run_time: Duration::from_millis(2), messages: 20_000 }
    }

    fn options(self) -> Options {
        Options { runs: 1, run_time: self.run_time }
    }
}

/// A workload's name, and its turn, which returns the records of one run.
pub type Workload = (&'static str, fn(Plan) -> Vec<Record>);

/// All workloads. The Go program supports the first four, too.
pub const WORKLOADS: [Workload; 8] = [
    ("counter", |plan| singles!(Counters, plan)),
    ("batch-timer", |plan| singles!(BatchTimers, plan)),
    ("gauge", |plan| singles!(Gauges, plan)),
    ("union", |plan| singles!(Unions, plan)),
    ("stream-mixed", |plan| streams(stream::Mix::All, plan)),
    ("stream-counters", |plan| streams(stream::Mix::Counters, plan)),
    ("stream-gauges", |plan| streams(stream::Mix::Gauges, plan)),
    ("stream-timers", |plan| streams(stream::Mix::BatchTimers, plan)),
];

/// The workloads of the Go program.
pub const WITH_GO: [&str; 4] = ["counter", "batch-timer", "gauge", "union"];

/// A visitor of quipu's formats.
trait Formats {
    fn add<F: Format>(&mut self);
}

/// Passes every format of quipu to a visitor.
fn formats(to: &mut impl Formats) {
    to.add::<quipu_wire::Quipu>();
    to.add::<quipu_wire::QuipuCompact>();
    to.add::<quipu_wire::VmihailencoMsgpack>();
    to.add::<quipu_wire::TinylibMsgp>();
    to.add::<quipu_wire::UgorjiMsgpack>();
    to.add::<quipu_wire::Protobuf>();
    to.add::<quipu_wire::GogoProtobuf>();
    to.add::<quipu_wire::ProtobufViaGogo>();
    to.add::<quipu_wire::DedisProtobuf>();
    to.add::<quipu_wire::Thrift>();
    to.add::<quipu_wire::ThriftCompact>();
    to.add::<quipu_wire::Xdr>();
    to.add::<quipu_wire::Gencode>();
    to.add::<quipu_wire::Colfer>();
    to.add::<quipu_wire::Flatbuffers>();
    to.add::<quipu_wire::Capnp>();
    to.add::<quipu_wire::CapnpPacked>();
    to.add::<quipu_wire::Gob>();
    to.add::<quipu_wire::Json>();
    to.add::<quipu_wire::Easyjson>();
    to.add::<quipu_wire::Bson>();
    to.add::<quipu_wire::Sereal>();
    to.add::<quipu_wire::Hprose>();
    to.add::<quipu_wire::Postcard>();
}

/// Measures one message with every format and crate. This is a macro, because a crate provides
/// separate functions for each message.
macro_rules! singles {
    ($shape:ident, $plan:ident) => {{
        pin(0);
        let mut cases = Singles::<$shape>::new();
        formats(&mut cases);
        cases.library::<peer::Prost>();
        cases.library::<peer::RmpSerde>();
        cases.library::<peer::RmpSerdeNamed>();
        cases.library::<peer::Zerompk>();
        cases.library::<peer::SerdeJson>();
        cases.library::<peer::SonicRs>();
        cases.library::<peer::Bson>();
        cases.library::<peer::Thrift>();
        cases.library::<peer::Flatbuffers>();
        cases.library::<peer::OncXdr>();
        cases.library::<peer::Postcard>();
        cases.library::<peer::Bitcode>();
        cases.library::<peer::Rkyv>();
        cases.library::<peer::Borsh>();
        cases.library::<peer::Wincode>();
        cases.library::<peer::Speedy>();
        cases.run($plan.options())
    }};
}
use singles;

/// Measures a stream of messages with every format and crate.
fn streams(mix: stream::Mix, plan: Plan) -> Vec<Record> {
    pin(0);
    let mut all = Streams::new(mix, plan.messages);
    all.contender(&BySeries::subject(), |_| BySeries::default());
    formats(&mut all);
    all.compressed::<Protobuf, peer::Zstd>();
    all.compressed::<Protobuf, peer::ZstdStream>();
    all.compressed::<Protobuf, peer::Lz4>();
    all.compressed::<Protobuf, peer::Snappy>();
    all.compressed::<Gencode, peer::Zstd>();
    all.library::<peer::Prost, peer::ProstStream>();
    all.library::<peer::RmpSerde, peer::RmpSerde>();
    all.library::<peer::Postcard, peer::Postcard>();
    all.library::<peer::Bitcode, peer::Bitcode>();
    all.library::<peer::Rkyv, peer::Rkyv>();
    all.library::<peer::Wincode, peer::Wincode>();
    all.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_what_was_written() {
        let plan = Plan { run_time: Duration::from_micros(1), messages: 2_500 };
        for (name, workload) in WORKLOADS {
            let records = workload(plan);
            assert!(records.iter().all(|record| record.median > 0.0), "{name}");
        }
    }
}
