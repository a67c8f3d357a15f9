//! The writer of a stream. It manages the series, and decides when blocks and dictionaries end.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::columns::Columns;
use super::index::Index;
use super::{BATCH_TIMER, COUNTER, GAUGE, MAX_IDS, MAX_VALUES, code};
use crate::error::{Error, Fault};
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricUnion};
use crate::pieces::{Byte, Bytes, FixedPiece, Piece, Varint, append};
use crate::quipu::number::{Whole, decimal, mantissa, put_top_bytes, top_bytes, whole_len};
use crate::reader::zigzag;

const NAME: &str = "quipu";
/// The maximum number of bytes that an id can share with the previous id.
const MAX_SHARED: usize = 255;

const DEFAULT_RESTART: usize = 8 << 20;
/// The dictionary restarts only after its definitions' size was sent this many times. So restarts
/// cost at most a sixteenth, however many series there are.
const DEFINITIONS: usize = 16;

/// Writes a stream in quipu's own format, for example to a file or a socket.
///
/// If you send the same ids again and again, call [`series`](Self::series) once for each id and
/// keep the [`StreamSeries`]. Otherwise the writer looks up the id of each message, like
/// [`Encoder<Quipu>`](crate::Encoder).
///
/// Messages are gathered in blocks of 255. Call [`flush`](Self::flush) to send the gathered
/// messages, for example once a second. Don't call it too often, because a small block takes more
/// bytes per message.
///
/// A stream keeps the order of messages of the same kind. Within a block, counters precede batch
/// timers, gauges and unions.
///
/// ```
/// use quipu_wire::{Kind, StreamWriter};
///
/// let mut stream = StreamWriter::default();
/// let requests = stream.series(Kind::Counter, b"requests").unwrap();
/// let mut out = Vec::new();
/// for total in [10, 25, 31] {
///     stream.counter(requests, total, &mut out).unwrap();
/// }
/// stream.flush(&mut out);
/// // A header, the definition with the first value, the numbers of the series in no bits at all,
/// // and three changes of 5 bits each.
/// assert_eq!(out.len(), 24 + (3 + 8 + 1) + 1 + (1 + 2));
/// ```
pub struct StreamWriter {
    /// The state of each series. Names are in the index, because only definitions need them.
    sent: Vec<SentSeries>,
    index: Index,
    /// How often all series were forgotten.
    generation: u32,
    /// How often the dictionary was restarted. A series from an earlier epoch must be defined
    /// again.
    epoch: u16,
    /// The next number of each kind.
    next_numbers: [u32; 4],
    last_defined: Option<u32>,
    /// The messages of the next block.
    block: Box<Columns>,
    sequence: u32,
    /// Whether the next block restarts the dictionary.
    restarts: bool,
    /// Whether the dictionary restarts with the next message.
    restart_next: bool,
    since_restart: usize,
    /// The bytes that the definitions of this dictionary took.
    defined: usize,
    restart_after: usize,
}

/// The state of a series. Only 16 bytes, because a writer accesses them at random.
struct SentSeries {
    /// The last value of a counter, or the last whole number of a gauge.
    last: i64,
    number: u32,
    epoch: u16,
    /// The places of a gauge or a batch timer.
    places: u8,
    kind: u8,
}

/// A series of a [`StreamWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamSeries {
    index: u32,
    generation: u32,
}

impl Default for StreamWriter {
    fn default() -> StreamWriter {
        StreamWriter {
            sent: Vec::new(),
            index: Index::default(),
            generation: first_generation(),
            epoch: 1,
            next_numbers: [0; 4],
            last_defined: None,
            block: Columns::new(),
            sequence: 0,
            restarts: true,
            restart_next: false,
            since_restart: 0,
            defined: 0,
            restart_after: DEFAULT_RESTART,
        }
    }
}

impl core::fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StreamWriter")
            .field("series", &self.index.len())
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl StreamWriter {
    /// Sets the number of bytes after which the dictionary restarts, 8 MiB by default. Readers can
    /// join the stream at a restart. A restart sends each id again, so it waits until at least 16
    /// times the bytes of the ids were sent.
    pub fn restart_after(mut self, bytes: usize) -> StreamWriter {
        self.restart_after = bytes;
        self
    }

    /// Makes the next message restart the dictionary. A reader can join the stream there.
    pub fn restart(&mut self) {
        if !core::mem::replace(&mut self.restart_next, true) {
            self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
                self.sent.iter_mut().for_each(|sent| sent.epoch = 0);
                1
            });
        }
    }

    /// Returns the series of a kind and an id, creating it if needed. If the dictionary is full,
    /// this forgets all series. Then you must get each [`StreamSeries`] again.
    ///
    /// # Errors
    ///
    /// When the id is longer than 64 MiB.
    #[inline]
    pub fn series(&mut self, kind: Kind, id: &[u8]) -> Result<StreamSeries, Error> {
        self.find(kind, id).map_err(|fault| Error::writing(NAME, fault))
    }

    /// Appends a counter's value.
    ///
    /// # Errors
    ///
    /// When the series belongs to another kind or another writer, or was forgotten.
    #[inline]
    pub fn counter(
        &mut self,
        series: StreamSeries,
        value: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.check(series, COUNTER)?;
        self.put_counter(series.index, value, out);
        Ok(())
    }

    /// Appends a gauge's value.
    ///
    /// # Errors
    ///
    /// When the series belongs to another kind or another writer, or was forgotten.
    #[inline]
    pub fn gauge(
        &mut self,
        series: StreamSeries,
        value: f64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.check(series, GAUGE)?;
        self.put_gauge(series.index, value, out);
        Ok(())
    }

    /// Appends a batch timer's values.
    ///
    /// # Errors
    ///
    /// When the series belongs to another kind or another writer, or was forgotten, or when there
    /// are more than 2^22 values.
    #[inline]
    pub fn batch_timer(
        &mut self,
        series: StreamSeries,
        values: &[f64],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.check(series, BATCH_TIMER)?;
        check_values(values).map_err(|fault| Error::writing(NAME, fault))?;
        self.put_batch_timer(series.index, values, out);
        Ok(())
    }

    /// Appends a message of any kind. This looks up the series.
    ///
    /// # Errors
    ///
    /// When the id is longer than 64 MiB, or when there are more than 2^22 values.
    #[inline]
    pub fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.write(message, out).map_err(|fault| Error::writing(NAME, fault))
    }

    /// Appends a block with the gathered messages.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.block.is_empty() {
            return;
        }
        self.since_restart += self.block.close(self.sequence, self.restarts, out);
        self.sequence = self.sequence.wrapping_add(1);
        self.restarts = false;
        let patience = self.restart_after.max(self.defined.saturating_mul(DEFINITIONS));
        if self.since_restart >= patience {
            self.restart();
        }
    }

    #[inline]
    pub(in crate::quipu) fn write(
        &mut self,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match *message {
            Message::Counter(Counter { id, value }) => {
                let series = self.find(Kind::Counter, id)?;
                self.put_counter(series.index, value, out);
            }
            Message::Gauge(Gauge { id, value }) => {
                let series = self.find(Kind::Gauge, id)?;
                self.put_gauge(series.index, value, out);
            }
            Message::BatchTimer(BatchTimer { id, values }) => {
                check_values(values)?;
                let series = self.find(Kind::BatchTimer, id)?;
                self.put_batch_timer(series.index, values, out);
            }
            Message::MetricUnion(union) => match union.to_metric() {
                Some(metric) => return self.write(&metric, out),
                None => {
                    check_values(union.timer)?;
                    let series = self.find(Kind::MetricUnion, union.id)?;
                    self.put_union(series.index, &union, out);
                }
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn check(&self, series: StreamSeries, kind: usize) -> Result<(), Error> {
        let sent = self.sent.get(series.index as usize);
        let is_known = sent.is_some_and(|sent| usize::from(sent.kind) == kind);
        if series.generation == self.generation && is_known {
            return Ok(());
        }
        Err(Error::writing(NAME, Fault::unwritable("the series must be of this kind and stream")))
    }

    #[inline(always)]
    fn find(&mut self, kind: Kind, id: &[u8]) -> Result<StreamSeries, Fault> {
        let hash = self.index.hash(kind, id);
        match self.index.find(kind, id, hash) {
            Some(index) => Ok(StreamSeries { index, generation: self.generation }),
            None => self.insert(kind, id, hash),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, kind: Kind, id: &[u8], hash: u64) -> Result<StreamSeries, Fault> {
        if id.len() > MAX_IDS {
            return Err(Fault::unwritable("an id can have at most 64 MiB"));
        }
        if self.index.is_full(id.len()) {
            self.index.clear();
            self.sent.clear();
            self.last_defined = None;
            self.generation = self.generation.wrapping_add(1);
            self.restart();
        }
        let index = self.index.insert(kind, id, hash);
        self.sent.push(SentSeries {
            last: 0,
            number: 0,
            epoch: 0,
            places: 0,
            kind: code(kind) as u8,
        });
        Ok(StreamSeries { index, generation: self.generation })
    }

    #[inline(always)]
    fn put_counter(&mut self, index: u32, value: i64, out: &mut Vec<u8>) {
        if self.sent[index as usize].epoch != self.epoch {
            self.define(index, (0, value), out);
        }
        let sent = &mut self.sent[index as usize];
        let change = zigzag(value.wrapping_sub(sent.last));
        sent.last = value;
        self.block.counter(sent.number, change);
        self.close_if_full(out);
    }

    #[inline(always)]
    fn put_gauge(&mut self, index: u32, value: f64, out: &mut Vec<u8>) {
        if self.sent[index as usize].epoch != self.epoch {
            self.define(index, decimal_of(value).unwrap_or_default(), out);
        }
        let sent = &mut self.sent[index as usize];
        match mantissa(value, usize::from(sent.places)) {
            Some(whole) => {
                let change = zigzag(whole - sent.last);
                sent.last = whole;
                self.block.gauge(sent.number, change);
            }
            None => self.put_exception(index, value),
        }
        self.close_if_full(out);
    }

    /// Appends a gauge's value whose places differ from the last one.
    #[inline(never)]
    fn put_exception(&mut self, index: u32, value: f64) {
        let sent = &mut self.sent[index as usize];
        match decimal_of(value) {
            Some((places, whole)) if whole_len(whole) <= top_bytes(value) => {
                (sent.places, sent.last) = (places, whole);
                self.block.exceptional_gauge(sent.number, Decimal { places, whole });
            }
            _ => self.block.exceptional_gauge(sent.number, TopBytes(value)),
        }
    }

    #[inline(always)]
    fn put_batch_timer(&mut self, index: u32, values: &[f64], out: &mut Vec<u8>) {
        if self.block.is_too_short_for(values.len()) {
            self.flush(out);
        }
        if self.sent[index as usize].epoch != self.epoch {
            self.define(index, (0, 0), out);
        }
        let sent = &mut self.sent[index as usize];
        self.block.batch_timer(sent.number, values, &mut sent.places);
        self.close_if_full(out);
    }

    fn put_union(&mut self, index: u32, union: &MetricUnion<'_>, out: &mut Vec<u8>) {
        if self.block.is_too_short_for(union.timer.len()) {
            self.flush(out);
        }
        if self.sent[index as usize].epoch != self.epoch {
            self.define(index, (0, 0), out);
        }
        self.block.union(self.sent[index as usize].number, union);
        self.close_if_full(out);
    }

    #[inline(always)]
    fn close_if_full(&mut self, out: &mut Vec<u8>) {
        if self.block.is_full() {
            self.flush(out);
        }
    }

    /// Gives the series the next number of its kind and appends its definition. This contains the
    /// base of its first change: places and a whole number. If a restart is due, it happens first.
    #[cold]
    #[inline(never)]
    fn define(&mut self, index: u32, (places, whole): (u8, i64), out: &mut Vec<u8>) {
        if self.restart_next {
            self.flush(out);
            // The flush can itself have made a restart due.
            self.restart_next = false;
            self.restarts = true;
            self.since_restart = 0;
            self.defined = 0;
            self.next_numbers = [0; 4];
            self.last_defined = None;
        }
        let before = self.last_defined.map_or(&[][..], |before| self.index.id(before));
        let id = self.index.id(index);
        let shared = before.iter().zip(id).take(MAX_SHARED).take_while(|(a, b)| a == b).count();
        let rest = &id[shared..];
        let sent = &mut self.sent[index as usize];
        let kind = usize::from(sent.kind);
        let first = match kind {
            COUNTER | GAUGE => Some(((places > 0).then_some(Byte(PLACES | places)), Whole(whole))),
            _ => None,
        };
        append(
            &mut self.block.definitions,
            (
                (Byte(sent.kind), Byte(shared as u8)),
                (Varint(rest.len() as u64), Bytes(rest)),
                first,
            ),
        );
        self.block.count_definition();
        self.defined += rest.len() + 8;
        self.last_defined = Some(index);
        let number = self.next_numbers[kind];
        self.next_numbers[kind] += 1;
        *sent = SentSeries { last: whole, number, epoch: self.epoch, places, kind: sent.kind };
    }
}

/// Announces a whole number. The number of places is added to this byte.
const PLACES: u8 = 0xd0;

/// A gauge's value as a decimal.
#[derive(Clone, Copy)]
struct Decimal {
    places: u8,
    whole: i64,
}

// SAFETY: This writes a byte and a whole number.
unsafe impl Piece for Decimal {
    #[inline(always)]
    fn bound(&self) -> usize {
        1 + Whole::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for the bound.
        unsafe { (Byte(PLACES | self.places), Whole(self.whole)).put(at) }
    }
}

/// A gauge's value as the highest bytes of the double.
#[derive(Clone, Copy)]
struct TopBytes(f64);

// SAFETY: `put_top_bytes` needs 9 bytes.
unsafe impl Piece for TopBytes {
    #[inline(always)]
    fn bound(&self) -> usize {
        9
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 9 bytes.
        unsafe { put_top_bytes(self.0, at) }
    }
}

/// Returns the smallest number of decimal places, 0 to 8, that represents the value exactly, and
/// the corresponding whole number.
fn decimal_of(value: f64) -> Option<(u8, i64)> {
    match mantissa(value, 0) {
        Some(whole) => Some((0, whole)),
        None => decimal(value).map(|(places, whole)| (places as u8, whole)),
    }
}

/// Returns the first generation of a writer. Each writer begins at a different generation, so
/// another writer's handles are treated like forgotten ones.
fn first_generation() -> u32 {
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    WRITERS.fetch_add(1 << 8, Ordering::Relaxed)
}

/// Checks the length of a list. This limit guarantees that a block's length fits into 32 bits.
#[inline(always)]
fn check_values(values: &[f64]) -> Result<(), Fault> {
    if values.len() > MAX_VALUES {
        return Err(Fault::unwritable("a message can have at most 2^22 values"));
    }
    Ok(())
}
