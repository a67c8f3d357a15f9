//! Measures streams: the bytes of a message, and the times to write and to read it.
//!
//! A stream is written in blocks of 1,000 messages, each to a buffer that is cleared before. Each
//! block is passed on whole, and read before the next one is written; the times are the sums over
//! all blocks. This way, a writer and its reader keep their state from block to block, and both
//! wait for memory only where a sender would.

use std::time::{Duration, Instant};

use super::contender::{Stream as Contender, kind_of, subject_of};
use super::ours::OurStream;
use super::peer::{Compressed, Compressor, Library};
use super::sink::{Seen, Sink, Used};
use super::stream::{Mix, Stream};
use super::{Format, Formats};
use crate::measure::black_box;
use crate::record::{Label, Record};

/// The number of messages that are compared with the written ones before a subject is measured.
const CHECKED: usize = 20_000;

/// A stream, and the records of the subjects so far.
pub(super) struct Streams {
    mix: Mix,
    stream: Stream,
    sample: Stream,
    records: Vec<Record>,
}

impl Streams {
    /// A stream of this number of messages, without records.
    pub(super) fn new(mix: Mix, messages: usize) -> Streams {
        let sample = Stream::new(mix, messages.min(CHECKED));
        Streams { mix, stream: Stream::new(mix, messages), sample, records: Vec::new() }
    }

    /// Measures one contender. `new` makes one for the kind of the messages.
    pub(super) fn contender<C: Contender>(
        &mut self,
        subject: &str,
        new: impl Fn(quipu_wire::Kind) -> C,
    ) {
        // The check also warms up the code.
        check(subject, &self.sample, &new);
        let Taken { bytes, writing, reading } = turn(&self.stream, &new, &mut Used::default());
        let messages = self.stream.len() as f64;
        let label = |metric, unit| Label::new(self.mix.name(), subject, metric, unit);
        let time =
            |metric, took: Duration| label(metric, "ns").of(&[took.as_nanos() as f64 / messages]);
        self.records.extend([
            label("bytes", "B").of(&[bytes as f64 / messages]),
            time("write", writing),
            time("read", reading),
        ]);
    }

    /// Measures a crate.
    pub(super) fn library<L: Library, C: Contender + Default>(&mut self) {
        self.contender(&L::subject(), |_| C::default());
    }

    /// Measures a format whose output is compressed.
    pub(super) fn compressed<F: Format, C: Compressor>(&mut self) {
        self.contender(&Compressed::<F, C>::subject(), Compressed::<F, C>::new);
    }

    /// All records.
    pub(super) fn finish(self) -> Vec<Record> {
        self.records
    }
}

impl Formats for Streams {
    fn add<F: Format>(&mut self) {
        self.contender(&subject_of::<F>(), OurStream::<F>::new);
    }
}

/// The bytes and times of a stream.
struct Taken {
    bytes: usize,
    writing: Duration,
    reading: Duration,
}

/// Writes and reads a stream.
fn turn<C: Contender>(
    stream: &Stream,
    new: impl Fn(quipu_wire::Kind) -> C,
    sink: &mut impl Sink,
) -> Taken {
    let mut taken = Taken { bytes: 0, writing: Duration::ZERO, reading: Duration::ZERO };
    let mut contender = None;
    let mut out = Vec::new();
    stream.each_block(|block| {
        let contender = contender.get_or_insert_with(|| new(kind_of(&block.messages)));
        let messages = contender.prepare(block);
        let start = Instant::now();
        out.clear();
        contender.write(black_box(&messages), &mut out);
        let written = Instant::now();
        contender.read(black_box(&out), sink);
        taken.reading += written.elapsed();
        taken.writing += written - start;
        taken.bytes += out.len();
    });
    black_box(&*sink);
    taken
}

/// # Panics
///
/// If the contender cannot read its own output, because then it must not be measured.
fn check<C: Contender>(subject: &str, stream: &Stream, new: impl Fn(quipu_wire::Kind) -> C) {
    let mut expected = Seen::default();
    stream.each_block(|block| block.messages.iter().for_each(|m| expected.message(*m)));
    let mut seen = Seen::default();
    turn(stream, new, &mut seen);
    assert_eq!(seen.finish(), expected.finish(), "{subject} reads what it did not write");
}
