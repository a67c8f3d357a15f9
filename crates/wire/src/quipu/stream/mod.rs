//! Streams in quipu's own format: blocks of columns that contain each id only once.
//!
//! A block contains up to 255 messages, sorted by kind. Each part of the messages of a kind is a
//! column: the numbers of their series, the changes of counters, the changes of gauges, and so on.
//! Columns are efficient because small numbers take few bits, and because a reader runs one loop
//! over all messages of a kind, whose branches a processor can predict.
//!
//! ```text
//! block     0  fc 71 77      begins a block
//!           3  version       2
//!           4  checksum      u32, CRC-32 (IEEE) of all bytes that follow
//!           8  length        u32, of the body in bytes
//!          12  sequence      u32, one more than in the block before; 0 begins a stream
//!          16  flags         1: the dictionary restarts; a reader can join here. Others are 0.
//!          17  counts        1 byte each: counters, batch timers, gauges, unions
//!          21  definitions   1 byte, the number of new series
//!          22  exceptions    1 byte, the number of gauges that need more than a change
//!          23  00
//!          24  body
//!
//! body      definitions
//!           numbers of the series of counters, of batch timers, of gauges, and of unions
//!           changes of the counters, changes of the gauges
//!           shapes of the batch timers
//!           exceptions of the gauges
//!           lists of the batch timers
//!           unions
//! ```
//!
//! `docs/formats.md` draws each part. The messages of a series keep their order, and all messages
//! of a kind do too. Messages of different kinds lose their order within a block, because this
//! order would cost a quarter of a byte and a mispredicted branch for each message.
//!
//! A dictionary contains at most 2^20 series and 64 MiB of ids. A writer restarts it before it is
//! full.

mod bits;
mod block;
mod columns;
mod dictionary;
mod header;
mod index;
mod lists;
mod reader;
mod writer;

pub use reader::StreamReader;
pub use writer::{StreamSeries, StreamWriter};

use crate::message::Kind;

/// The maximum number of series in a dictionary.
const MAX_SERIES: usize = 1 << 20;
/// The maximum length of all ids in a dictionary, in bytes.
const MAX_IDS: usize = 64 << 20;
/// The maximum number of messages in a block, because their number must fit into a byte.
const MAX_MESSAGES: usize = 255;
/// The maximum number of values in a list, and in all lists of a block that are not short.
const MAX_VALUES: usize = 1 << 22;

/// The kinds, in the order of their codes. This is also their order in a block.
const KINDS: [Kind; 4] = [Kind::Counter, Kind::BatchTimer, Kind::Gauge, Kind::MetricUnion];
const COUNTER: usize = 0;
const BATCH_TIMER: usize = 1;
const GAUGE: usize = 2;
const UNION: usize = 3;

/// Returns the code of a kind.
#[inline(always)]
fn code(kind: Kind) -> usize {
    match kind {
        Kind::Counter => COUNTER,
        Kind::BatchTimer => BATCH_TIMER,
        Kind::Gauge => GAUGE,
        Kind::MetricUnion => UNION,
    }
}
