//! Streams in quipu's own format: frames, in which an id is sent once, and then a number for it.
//!
//! ```text
//! frame    0  fc 71 77   begins a frame
//!          3  version    1
//!          4  flags      1: the dictionary restarts; a reader can join here. Others are 0.
//!          5  00 00 00
//!          8  sequence   u32, one more than in the frame before; 0 begins a stream
//!         12  length     u32, of the messages in bytes
//!         16  count      u32, of messages
//!         20  checksum   u32, CRC-32 (IEEE) of the bytes 4 to 19 and of the messages
//!         24  messages
//!
//! message  number of the series, a whole number; the next unused one defines a series:
//!            kind (1 byte), length of the prefix shared with the id defined before (1 byte),
//!            length of the rest of the id (varint), the rest
//!          body
//! ```
//!
//! A series has one kind, and remembers its last value: 0 with 0 places when it is defined.
//!
//! ```text
//! counter      00..bf, c0..cf  the difference from the last value, as a whole number
//!              e0..e7, e8..ef  the value itself, positive or negative, as c0..cf
//! gauge        00..bf, c0..c7  with the places of the last value: the difference of the whole
//!                              numbers, 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//!              d0..d8          0 to 8 places, and the whole number that follows
//!              f0..f8          the top bytes of the double; the last value stays
//! batch timer  values
//! union        as in a message that stands alone
//! ```
//!
//! A dictionary has at most 2^20 series and 64 MiB of ids; a writer restarts it before that.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashTable;
use quipu_arena::Scope;

use super::message::{read_union_body, union_body};
use super::number::{
    POWERS, Whole, decimal, mantissa, put_long, put_top_bytes, read_bytes, read_top_bytes,
    read_whole, top_bytes, whole_len,
};
use super::values::{self, Values};
use crate::error::{Error, Fault};
use crate::hash::Secrets;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::pieces::{Byte, Bytes, FixedPiece, Le32, Literal, Piece, Varint, append};
use crate::reader::{Reader, unzigzag, zigzag};

const NAME: &str = "quipu";
const OTHER_KIND: &str = "a message of the kind that is asked for";
const MAGIC: &[u8; 3] = b"\xfcqw";
const VERSION: u8 = 1;
const RESTART: u8 = 1;
const HEADER: usize = 24;

/// The most series of a dictionary.
const MAX_SERIES: usize = 1 << 20;
/// The most bytes of its ids.
const MAX_IDS: usize = 64 << 20;
/// The most bytes of a frame's messages. An id, the values of a message, and the messages gathered
/// before it take fewer together.
const MAX_FRAME: usize = 1 << 27;
const MAX_VALUES: usize = 1 << 22;
/// The most bytes that an id shares with the one before.
const MAX_SHARED: usize = 255;

const DEFAULT_FRAME: usize = 32 << 10;
const DEFAULT_RESTART: usize = 8 << 20;
/// The dictionary restarts only after this many times the bytes of its definitions were sent, so
/// that it costs at most a sixteenth, however many series there are.
const DEFINITIONS: usize = 16;

/// Writes a stream in quipu's own format.
///
/// A caller that sends the same ids again and again asks for the [`Series`] of each id once.
/// Otherwise the writer looks up the id of each message, as in
/// [`Encoder<Quipu>`](crate::Encoder).
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
/// // A header, the definition, and two bytes for each value.
/// assert_eq!(out.len(), 24 + (3 + 8) + 3 * 2);
/// ```
pub struct StreamWriter {
    series: Vec<Sent>,
    /// The concatenated ids.
    ids: Vec<u8>,
    index: HashTable<u32>,
    secrets: Secrets,
    /// Counts how often all series were forgotten.
    generation: u32,
    /// Counts the restarts of the dictionary; a series of another epoch has to be defined again.
    epoch: u32,
    next_number: u32,
    last_defined: Option<u32>,
    /// The messages of the next frame.
    payload: Vec<u8>,
    count: u32,
    sequence: u32,
    /// Whether the next frame restarts the dictionary.
    restarts: bool,
    /// Whether the dictionary restarts with the next message.
    restart_next: bool,
    since_restart: usize,
    /// How many bytes the definitions of the dictionary took.
    defined: usize,
    frame_size: usize,
    restart_after: usize,
}

/// What a writer knows of a series.
struct Sent {
    id_start: u32,
    id_len: u32,
    epoch: u32,
    number: u32,
    last: i64,
    places: u8,
    kind: Kind,
}

/// A series of a [`StreamWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    index: u32,
    generation: u32,
}

impl Default for StreamWriter {
    fn default() -> StreamWriter {
        StreamWriter {
            series: Vec::new(),
            ids: Vec::new(),
            index: HashTable::new(),
            secrets: Secrets::default(),
            generation: first_generation(),
            epoch: 1,
            next_number: 0,
            last_defined: None,
            payload: Vec::new(),
            count: 0,
            sequence: 0,
            restarts: true,
            restart_next: false,
            since_restart: 0,
            defined: 0,
            frame_size: DEFAULT_FRAME,
            restart_after: DEFAULT_RESTART,
        }
    }
}

impl core::fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StreamWriter")
            .field("series", &self.series.len())
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl StreamWriter {
    /// Sets how many bytes of messages make a frame: 32 KiB by default, at most 16 MiB.
    /// [`flush`](Self::flush) makes shorter frames.
    pub fn frame_size(mut self, bytes: usize) -> StreamWriter {
        self.frame_size = bytes.min(MAX_FRAME / 8);
        self
    }

    /// Sets after how many bytes the dictionary restarts, 8 MiB by default, so that readers can
    /// join there. A restart sends each id once more, so it waits for at least 16 times the bytes
    /// that the ids took.
    pub fn restart_after(mut self, bytes: usize) -> StreamWriter {
        self.restart_after = bytes;
        self
    }

    /// Makes the next message restart the dictionary, so that a reader can join there.
    pub fn restart(&mut self) {
        self.restart_next = true;
    }

    /// Returns the series of a kind and an id, and creates it if there is none. A full dictionary
    /// forgets all series, and the caller must ask for each [`Series`] again.
    ///
    /// # Errors
    ///
    /// When the id is longer than 64 MiB.
    #[inline]
    pub fn series(&mut self, kind: Kind, id: &[u8]) -> Result<Series, Error> {
        self.find(kind, id).map_err(|fault| Error::writing(NAME, fault))
    }

    /// Appends a counter's value.
    ///
    /// # Errors
    ///
    /// When the series is of another kind or of another writer, or was forgotten.
    #[inline]
    pub fn counter(&mut self, series: Series, value: i64, out: &mut Vec<u8>) -> Result<(), Error> {
        self.check(series, Kind::Counter)?;
        self.put_counter(series.index, value, out);
        Ok(())
    }

    /// Appends a gauge's value.
    ///
    /// # Errors
    ///
    /// When the series is of another kind or of another writer, or was forgotten.
    #[inline]
    pub fn gauge(&mut self, series: Series, value: f64, out: &mut Vec<u8>) -> Result<(), Error> {
        self.check(series, Kind::Gauge)?;
        self.put_gauge(series.index, value, out);
        Ok(())
    }

    /// Appends a batch timer's values.
    ///
    /// # Errors
    ///
    /// When the series is of another kind or of another writer, or was forgotten, and when there
    /// are more than 2^22 values.
    #[inline]
    pub fn batch_timer(
        &mut self,
        series: Series,
        values: &[f64],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.check(series, Kind::BatchTimer)?;
        check_values(values).map_err(|fault| Error::writing(NAME, fault))?;
        self.put_batch_timer(series.index, values, out);
        Ok(())
    }

    /// Appends a message of any kind, and looks up its series.
    ///
    /// # Errors
    ///
    /// When the id is longer than 64 MiB, and when there are more than 2^22 values.
    #[inline]
    pub fn append(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.write(message, out).map_err(|fault| Error::writing(NAME, fault))
    }

    /// Appends a frame with the messages that were gathered.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        let flags = if self.restarts { RESTART } else { 0 };
        let checked = (
            Literal(&[0; 3]),
            Le32(self.sequence),
            Le32(self.payload.len() as u32),
            Le32(self.count),
        );
        let start = out.len();
        append(out, (Literal(MAGIC), Byte(VERSION), Byte(flags), checked));
        let checksum = checksum(&out[start + 4..], &self.payload);
        append(out, (Le32(checksum), Bytes(&self.payload)));
        self.since_restart += HEADER + self.payload.len();
        let patience = self.restart_after.max(self.defined.saturating_mul(DEFINITIONS));
        self.restart_next |= self.since_restart >= patience;
        self.sequence = self.sequence.wrapping_add(1);
        self.restarts = false;
        self.count = 0;
        self.payload.clear();
    }

    #[inline]
    pub(super) fn write(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
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
                    let body = union_body(&union);
                    self.put(series.index, out, |_, number, payload| {
                        append(payload, (number, body));
                    });
                }
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn check(&self, series: Series, kind: Kind) -> Result<(), Error> {
        let sent = self.series.get(series.index as usize);
        if series.generation == self.generation && sent.is_some_and(|sent| sent.kind == kind) {
            return Ok(());
        }
        Err(Error::writing(NAME, Fault::unwritable("the series must be of this kind and stream")))
    }

    #[inline(always)]
    fn find(&mut self, kind: Kind, id: &[u8]) -> Result<Series, Fault> {
        let hash = hash(kind, id, &self.secrets);
        let (series, ids) = (&self.series, &self.ids);
        let found = self.index.find(hash, |index| {
            let sent = &series[*index as usize];
            sent.kind == kind && sent.id(ids) == id
        });
        match found {
            Some(index) => Ok(Series { index: *index, generation: self.generation }),
            None => self.insert(kind, id, hash),
        }
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, kind: Kind, id: &[u8], hash: u64) -> Result<Series, Fault> {
        if id.len() > MAX_IDS {
            return Err(Fault::unwritable("an id can have at most 64 MiB"));
        }
        if self.series.len() == MAX_SERIES || self.ids.len() + id.len() > MAX_IDS {
            self.series.clear();
            self.ids.clear();
            self.index.clear();
            self.last_defined = None;
            self.generation = self.generation.wrapping_add(1);
            self.restart_next = true;
        }
        let index = self.series.len() as u32;
        self.series.push(Sent {
            id_start: self.ids.len() as u32,
            id_len: id.len() as u32,
            epoch: 0,
            number: 0,
            last: 0,
            places: 0,
            kind,
        });
        self.ids.extend_from_slice(id);
        let (series, ids, secrets) = (&self.series, &self.ids, &self.secrets);
        self.index.insert_unique(hash, index, |index| {
            let sent = &series[*index as usize];
            self::hash(sent.kind, sent.id(ids), secrets)
        });
        Ok(Series { index, generation: self.generation })
    }

    #[inline(always)]
    fn put_counter(&mut self, index: u32, value: i64, out: &mut Vec<u8>) {
        self.put(index, out, |sent, number, payload| {
            let by = value.wrapping_sub(sent.last);
            sent.last = value;
            append(payload, (number, CounterBody { by, to: value }));
        });
    }

    #[inline(always)]
    fn put_gauge(&mut self, index: u32, value: f64, out: &mut Vec<u8>) {
        self.put(index, out, |sent, number, payload| {
            let body = match mantissa(value, usize::from(sent.places)) {
                Some(whole) => {
                    let change = zigzag(whole - sent.last) as i64;
                    sent.last = whole;
                    GaugeBody::Change { change, places: sent.places, whole }
                }
                None => sent.change_places(value),
            };
            append(payload, (number, body));
        });
    }

    #[inline(always)]
    fn put_batch_timer(&mut self, index: u32, values: &[f64], out: &mut Vec<u8>) {
        self.put(index, out, |sent, number, payload| {
            append(payload, (number, Values::with_hint(values, &mut sent.places)));
        });
    }

    /// Appends a message: the number of its series, unless the series was just defined, and its
    /// body.
    #[inline(always)]
    fn put(
        &mut self,
        index: u32,
        out: &mut Vec<u8>,
        message: impl FnOnce(&mut Sent, Option<Whole>, &mut Vec<u8>),
    ) {
        let mut number = None;
        if self.restart_next || self.series[index as usize].epoch != self.epoch {
            self.define(index, out);
        } else {
            number = Some(Whole(i64::from(self.series[index as usize].number)));
        }
        message(&mut self.series[index as usize], number, &mut self.payload);
        self.count += 1;
        if self.payload.len() >= self.frame_size {
            self.flush(out);
        }
    }

    /// Gives the series the next number and appends its definition. Restarts the dictionary first,
    /// if it is time.
    #[cold]
    #[inline(never)]
    fn define(&mut self, index: u32, out: &mut Vec<u8>) {
        if self.restart_next {
            self.flush(out);
            self.restart_next = false;
            self.restarts = true;
            self.since_restart = 0;
            self.epoch = self.epoch.checked_add(1).unwrap_or_else(|| {
                self.series.iter_mut().for_each(|sent| sent.epoch = 0);
                1
            });
            self.defined = 0;
            self.next_number = 0;
            self.last_defined = None;
        }
        let before = match self.last_defined {
            Some(before) => self.series[before as usize].id(&self.ids),
            None => &[],
        };
        let sent = &self.series[index as usize];
        let id = sent.id(&self.ids);
        let shared = before.iter().zip(id).take(MAX_SHARED).take_while(|(a, b)| a == b).count();
        let (number, kind) = (self.next_number, kind_code(sent.kind));
        let rest = &id[shared..];
        append(
            &mut self.payload,
            (
                Whole(i64::from(number)),
                Byte(kind),
                Byte(shared as u8),
                Varint(rest.len() as u64),
                Bytes(rest),
            ),
        );
        self.defined += rest.len() + 8;
        self.last_defined = Some(index);
        self.next_number += 1;
        let sent = &mut self.series[index as usize];
        (sent.epoch, sent.number, sent.last, sent.places) = (self.epoch, number, 0, 0);
    }
}

impl Sent {
    #[inline(always)]
    fn id<'a>(&self, ids: &'a [u8]) -> &'a [u8] {
        &ids[self.id_start as usize..][..self.id_len as usize]
    }

    /// A gauge's value that does not have the places of the last one.
    #[inline(never)]
    fn change_places(&mut self, value: f64) -> GaugeBody {
        let found = match mantissa(value, 0) {
            Some(whole) => Some((0, whole)),
            None => decimal(value),
        };
        match found {
            Some((places, whole)) if whole_len(whole) <= top_bytes(value) => {
                (self.places, self.last) = (places as u8, whole);
                GaugeBody::Decimal { places: places as u8, whole }
            }
            _ => GaugeBody::Double(value),
        }
    }
}

#[inline(always)]
fn hash(kind: Kind, id: &[u8], secrets: &Secrets) -> u64 {
    secrets.hash(id) ^ u64::from(kind_code(kind)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The first generation of a writer. Writers begin apart, so that the handles of another writer are
/// taken for forgotten ones.
fn first_generation() -> u32 {
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    WRITERS.fetch_add(1 << 8, Ordering::Relaxed)
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Counter => 0,
        Kind::BatchTimer => 1,
        Kind::Gauge => 2,
        Kind::MetricUnion => 3,
    }
}

/// A frame's length must fit in 32 bits.
#[inline(always)]
fn check_values(values: &[f64]) -> Result<(), Fault> {
    if values.len() > MAX_VALUES {
        return Err(Fault::unwritable("a message can have at most 2^22 values"));
    }
    Ok(())
}

fn checksum(header: &[u8], messages: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(header);
    checksum.update(messages);
    checksum.finalize()
}

/// A counter's change, or its value if that is shorter.
#[derive(Clone, Copy)]
struct CounterBody {
    by: i64,
    to: i64,
}

/// Says that the value itself follows.
const ABSOLUTE: u8 = 0xe0;

// SAFETY: That is its bound.
unsafe impl FixedPiece for CounterBody {
    const BOUND: usize = 9;
}

// SAFETY: Both forms have 9 bytes at most.
unsafe impl Piece for CounterBody {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            let len = whole_len(self.by);
            if len > 2 && long_len(self.to) < len {
                put_long(self.to, ABSOLUTE, at)
            } else {
                Whole(self.by).put(at)
            }
        }
    }
}

/// The length of a value with its lead.
#[inline(always)]
fn long_len(number: i64) -> usize {
    let bits = if number < 0 { !number } else { number };
    9 - (((bits | 1) as u64).leading_zeros() / 8) as usize
}

/// A gauge's change, or its value.
#[derive(Clone, Copy)]
enum GaugeBody {
    Change { change: i64, places: u8, whole: i64 },
    Decimal { places: u8, whole: i64 },
    Double(f64),
}

/// With the number of places added, says that the whole number follows.
const PLACES: u8 = 0xd0;

// SAFETY: A whole number after one byte is the longest form.
unsafe impl Piece for GaugeBody {
    #[inline(always)]
    fn bound(&self) -> usize {
        1 + Whole::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 10 bytes.
        unsafe {
            match *self {
                GaugeBody::Change { change, places, whole } => {
                    let len = whole_len(change);
                    if len > 2 && 1 + whole_len(whole) < len {
                        (Byte(PLACES | places), Whole(whole)).put(at)
                    } else {
                        Whole(change).put(at)
                    }
                }
                GaugeBody::Decimal { places, whole } => {
                    (Byte(PLACES | places), Whole(whole)).put(at)
                }
                GaugeBody::Double(value) => put_top_bytes(value, at),
            }
        }
    }
}

/// Reads a stream in quipu's own format: what a [`Decoder<Quipu>`](crate::Decoder) remembers.
#[derive(Debug, Default)]
pub struct StreamReader {
    series: Vec<Known>,
    /// The concatenated ids.
    ids: Vec<u8>,
    /// The next frame's sequence number, if it is known.
    sequence: Option<u32>,
    /// How many bytes and messages of the frame are left.
    bytes_left: usize,
    messages_left: u32,
}

/// What a reader knows of a series.
#[derive(Debug)]
struct Known {
    id_start: u32,
    id_len: u32,
    last: i64,
    places: u8,
    kind: Kind,
}

impl StreamReader {
    /// Finds where a reader can begin in a stream that it joined in its middle: the start of the
    /// first frame that restarts the dictionary, is complete, and is not damaged. Returns `None` if
    /// there is no such frame.
    ///
    /// Bytes that only look like frames cost time as well: it also returns `None` when it has
    /// computed checksums over 16 times the length of the stream.
    pub fn find_start(stream: &[u8]) -> Option<usize> {
        let mut left = stream.len().saturating_mul(16);
        let mut from = 0;
        while let Some(found) = stream[from..].windows(3).position(|bytes| bytes == MAGIC) {
            let at = from + found;
            let frame = &stream[at..];
            let len = frame.get(12..16).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
            let begins = frame.get(4) == Some(&RESTART);
            if let Some(len) = len.filter(|len| begins && *len as usize <= frame.len()) {
                left = left.checked_sub(len as usize)?;
                if Frame::read(&mut Reader::new(frame)).is_ok() {
                    return Some(at);
                }
            }
            from = at + 1;
        }
        None
    }

    /// Returns the next message. A frame is read only when all of it is there, so that no message
    /// of a damaged frame is returned.
    #[inline(always)]
    pub(super) fn read<'m>(
        &'m mut self,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if self.messages_left == 0 {
            if input.is_empty() {
                return Ok(None);
            }
            input.apart(|input| self.begin(input))?;
        }
        let Some(messages) = input.rest().get(..self.bytes_left) else {
            return Err(Fault::incomplete("the messages of a frame"));
        };
        let mut frame = Reader::new(messages);
        let message = self.message(kind, &mut frame, scope);
        input.advance(frame.position());
        message.map(Some).map_err(|fault| {
            if fault.is_incomplete() {
                Fault::malformed("a message within its frame")
            } else {
                fault
            }
        })
    }

    /// Reads the header of a frame.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, input: &mut Reader<'_>) -> Result<(), Fault> {
        let before = *input;
        let mut whole = *input;
        let frame = Frame::read(&mut whole).inspect_err(|fault| {
            if !fault.is_incomplete() {
                *input = whole;
            }
        })?;
        let begins = frame.restarts && frame.sequence == 0;
        match self.sequence {
            None if !frame.restarts => {
                return Err(Fault::malformed(
                    "a frame that begins the dictionary: the stream was joined before one",
                ));
            }
            Some(sequence) if sequence != frame.sequence && !begins => {
                return Err(Fault::malformed("the next frame: one or more were lost"));
            }
            _ => {}
        }
        if frame.restarts {
            self.series.clear();
            self.ids.clear();
        }
        self.sequence = Some(frame.sequence.wrapping_add(1));
        self.bytes_left = frame.len;
        self.messages_left = frame.count;
        *input = before;
        input.advance(HEADER);
        Ok(())
    }

    #[inline(always)]
    fn message<'m>(
        &'m mut self,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Message<'m>, Fault> {
        let before = *input;
        let number = read_whole(input, "the number of a series")?;
        if number as u64 >= self.series.len() as u64 {
            if number != self.series.len() as i64 {
                *input = before;
                return Err(Fault::malformed("the number of a series that was defined"));
            }
            input.apart(|input| self.define(input))?;
        }
        let Some(known) = self.series.get_mut(number as usize) else {
            return Err(Fault::malformed("the number of a series that was defined"));
        };
        let id = self
            .ids
            .get(known.id_start as usize..)
            .and_then(|ids| ids.get(..known.id_len as usize));
        let id = id.unwrap_or_default();
        let union = MetricUnion { id, ..MetricUnion::ZERO };
        let message = match (known.kind, kind) {
            (Kind::Counter, Kind::Counter) => {
                Message::Counter(Counter { id, value: known.counter(input)? })
            }
            (Kind::Counter, Kind::MetricUnion) => Message::MetricUnion(MetricUnion {
                metric_type: MetricType::COUNTER,
                counter: known.counter(input)?,
                ..union
            }),
            (Kind::Gauge, Kind::Gauge) => Message::Gauge(Gauge { id, value: known.gauge(input)? }),
            (Kind::Gauge, Kind::MetricUnion) => Message::MetricUnion(MetricUnion {
                metric_type: MetricType::GAUGE,
                gauge: known.gauge(input)?,
                ..union
            }),
            (Kind::BatchTimer, Kind::BatchTimer) => {
                Message::BatchTimer(BatchTimer { id, values: values::read(input, scope)? })
            }
            (Kind::BatchTimer, Kind::MetricUnion) => Message::MetricUnion(MetricUnion {
                metric_type: MetricType::BATCH_TIMER,
                timer: values::read(input, scope)?,
                ..union
            }),
            (Kind::MetricUnion, _) => {
                let union = input.apart(|input| read_union_body(input, id, scope))?;
                match Message::MetricUnion(union).to_kind(kind) {
                    Some(message) => message,
                    None => {
                        *input = before;
                        return Err(Fault::malformed(OTHER_KIND));
                    }
                }
            }
            _ => {
                *input = before;
                return Err(Fault::malformed(OTHER_KIND));
            }
        };
        self.messages_left -= 1;
        self.bytes_left -= input.position();
        if self.messages_left == 0 && self.bytes_left > 0 {
            return Err(Fault::malformed("the end of the frame after its last message"));
        }
        Ok(message)
    }

    #[cold]
    #[inline(never)]
    fn define(&mut self, input: &mut Reader<'_>) -> Result<(), Fault> {
        const KIND: &str = "the kind of a series";
        const SHARED: &str = "how many bytes an id shares with the one before";
        let before = *input;
        let kind = match input.byte(KIND)? {
            0 => Kind::Counter,
            1 => Kind::BatchTimer,
            2 => Kind::Gauge,
            3 => Kind::MetricUnion,
            _ => {
                *input = before;
                return Err(Fault::malformed(KIND));
            }
        };
        let before = *input;
        let shared = usize::from(input.byte(SHARED)?);
        let last = self.series.last().map_or(0..0, |last| {
            last.id_start as usize..last.id_start as usize + last.id_len as usize
        });
        if shared > last.len() {
            *input = before;
            return Err(Fault::malformed(SHARED));
        }
        let len = input.varint("the length of an id")?;
        let rest = input.take_long(len, "an id as long as its length says")?;
        let start = self.ids.len();
        if self.series.len() == MAX_SERIES || start + shared + rest.len() > MAX_IDS {
            return Err(Fault::too_large("a dictionary of 2^20 series and 64 MiB of ids"));
        }
        self.ids.extend_from_within(last.start..last.start + shared);
        self.ids.extend_from_slice(rest);
        let id_len = (shared + rest.len()) as u32;
        self.series.push(Known { id_start: start as u32, id_len, last: 0, places: 0, kind });
        Ok(())
    }
}

impl Known {
    #[inline(always)]
    fn counter(&mut self, input: &mut Reader<'_>) -> Result<i64, Fault> {
        const EXPECTED: &str = "a counter's value";
        self.last = match input.peek() {
            Some(lead @ 0xe0..=0xef) => {
                input.advance(1);
                read_bytes(input, lead, EXPECTED)?
            }
            _ => self.last.wrapping_add(read_whole(input, EXPECTED)?),
        };
        Ok(self.last)
    }

    #[inline(always)]
    fn gauge(&mut self, input: &mut Reader<'_>) -> Result<f64, Fault> {
        const EXPECTED: &str = "a gauge's value";
        match input.peek() {
            Some(lead @ 0xd0..=0xd8) => {
                input.advance(1);
                self.places = lead & 15;
                self.last = read_whole(input, EXPECTED)?;
            }
            Some(lead @ 0xf0..=0xf8) => {
                input.advance(1);
                return read_top_bytes(input, lead, EXPECTED);
            }
            _ => {
                let change = read_whole(input, EXPECTED)?;
                let Ok(change) = u64::try_from(change) else {
                    return Err(Fault::malformed(EXPECTED));
                };
                self.last = self.last.wrapping_add(unzigzag(change));
            }
        }
        let whole = self.last as f64;
        Ok(if self.places == 0 { whole } else { whole / POWERS[usize::from(self.places)] })
    }
}

/// The header of a frame whose checksum is right.
struct Frame {
    restarts: bool,
    sequence: u32,
    count: u32,
    len: usize,
}

impl Frame {
    /// Reads a frame that is complete. An input that ends within it is left as it was.
    fn read(input: &mut Reader<'_>) -> Result<Frame, Fault> {
        const HEAD: &str = "the header of a frame";
        let before = *input;
        let read = Frame::read_parts(input, HEAD);
        if read.as_ref().is_err_and(|fault| fault.is_incomplete()) {
            *input = before;
        }
        read
    }

    fn read_parts(input: &mut Reader<'_>, head: &'static str) -> Result<Frame, Fault> {
        input.literal(MAGIC, "fc 71 77, which begins a frame of a stream")?;
        if input.peek().is_some_and(|version| version != VERSION) {
            return Err(Fault::malformed("version 1; a later one needs a later quipu"));
        }
        input.byte(head)?;
        let start = *input;
        let [flags, zeros @ ..] = input.array::<4>(head)?;
        if flags & !RESTART != 0 || zeros != [0; 3] {
            *input = start;
            return Err(Fault::malformed("flags of version 1"));
        }
        let mut number = || input.array(head).map(u32::from_le_bytes);
        let (sequence, len, count, sum) = (number()?, number()?, number()?, number()?);
        if count == 0 {
            *input = start;
            return Err(Fault::malformed("a frame with at least one message"));
        }
        if len as usize > MAX_FRAME {
            *input = start;
            return Err(Fault::too_large("a frame of at most 128 MiB"));
        }
        let messages = input.take_long(u64::from(len), "the messages of a frame")?;
        if checksum(&start.rest()[..16], messages) != sum {
            *input = start;
            return Err(Fault::malformed("a frame whose checksum is right: this one is damaged"));
        }
        let len = messages.len();
        Ok(Frame { restarts: flags & RESTART != 0, sequence, count, len })
    }
}
