//! The writer of a stream: its dictionary of series, and the frames that it gathers.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashTable;

use super::body::{CounterBody, GaugeBody};
use super::frame::{HEADER, MAGIC, MAX_FRAME, RESTART, VERSION, checksum};
use super::{MAX_IDS, MAX_SERIES};
use crate::error::{Error, Fault};
use crate::hash::Secrets;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message};
use crate::pieces::{Byte, Bytes, Le32, Literal, Piece, Varint, append};
use crate::quipu::message::union_body;
use crate::quipu::number::{Whole, decimal, mantissa, top_bytes, whole_len};
use crate::quipu::values::Values;
use crate::reader::zigzag;

const NAME: &str = "quipu";
const MAX_VALUES: usize = 1 << 22;
/// The most bytes that an id shares with the one before.
const MAX_SHARED: usize = 255;

const DEFAULT_FRAME: usize = 32 << 10;
const DEFAULT_RESTART: usize = 8 << 20;
/// The dictionary restarts only after this many times the bytes of its definitions were sent, so
/// restarts cost at most a sixteenth, however many series there are.
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
    number: Number,
    last: i64,
    places: u8,
    kind: Kind,
}

/// The number of a series as it is written before a message, or nothing.
#[derive(Clone, Copy, Default)]
struct Number {
    bytes: [u8; 4],
    len: u8,
}

impl Number {
    fn new(number: u32) -> Number {
        let mut bytes = Vec::new();
        append(&mut bytes, Whole(i64::from(number)));
        let mut all = Number { bytes: [0; 4], len: bytes.len() as u8 };
        // A number below 2^20 has at most 3 bytes after its lead.
        all.bytes[..bytes.len()].copy_from_slice(&bytes);
        all
    }
}

// SAFETY: It writes 4 bytes, and its length is at most that.
unsafe impl Piece for Number {
    #[inline(always)]
    fn bound(&self) -> usize {
        4
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 4 bytes.
        unsafe {
            at.cast::<[u8; 4]>().write_unaligned(self.bytes);
            at.add(usize::from(self.len))
        }
    }
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

    /// Sets the number of bytes after which the dictionary restarts, 8 MiB by default; readers can
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
            number: Number::default(),
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
        message: impl FnOnce(&mut Sent, Number, &mut Vec<u8>),
    ) {
        let mut sent = &mut self.series[index as usize];
        let mut number = sent.number;
        if self.restart_next || sent.epoch != self.epoch {
            self.define(index, out);
            sent = &mut self.series[index as usize];
            number = Number::default();
        }
        message(sent, number, &mut self.payload);
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
        (sent.epoch, sent.number, sent.last, sent.places) = (self.epoch, Number::new(number), 0, 0);
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

/// The first generation of a writer. Writers begin at different generations, so the handles of
/// another writer are treated as forgotten ones.
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
