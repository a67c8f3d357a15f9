//! The reader of a stream: its dictionary of series, and its place in a frame.

use alloc::vec::Vec;

use quipu_arena::{Scope, ScopeGuard};

use super::frame::{Frame, HEADER, MAGIC, RESTART};
use super::{MAX_IDS, MAX_SERIES};
use crate::error::Fault;
use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, MetricType, MetricUnion};
use crate::quipu::message::read_union_body;
use crate::quipu::number::{POWERS, read_bytes, read_middle, read_top_bytes, read_whole};
use crate::quipu::values;
use crate::reader::{Reader, unzigzag};

const OTHER_KIND: &str = "a message of the requested kind";

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
    /// Bytes that only look like frames cost time as well: this also returns `None` when it has
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

    /// Returns the next message. A frame is read only when all of it is there, so no message of a
    /// damaged frame is returned.
    #[inline(always)]
    pub(in crate::quipu) fn read<'m>(
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

    /// Passes messages to a function, up to one that needs [`read`](Self::read): the last of a
    /// frame, or one that defines a series. Returns the bytes that were read.
    ///
    /// Numbers of one or two bytes are read without branches that depend on them.
    #[inline(always)]
    pub(in crate::quipu) fn read_usual(
        &mut self,
        kind: Kind,
        input: &[u8],
        guard: &mut ScopeGuard<'_>,
        take: &mut impl FnMut(Message<'_>),
    ) -> usize {
        let Some(messages) = input.get(..self.bytes_left) else { return 0 };
        // The place in the frame is stored once. If the function panics, the reader is left at the
        // start of a stream, so it finds no frame where it was.
        let mut this = core::mem::take(self);
        let (series, ids) = (&mut this.series[..], &this.ids[..]);
        let mut rest = messages;
        while this.messages_left > 1 {
            let Some(len) = usual(series, ids, kind, rest, guard, take) else { break };
            rest = &rest[len..];
            this.messages_left -= 1;
        }
        this.bytes_left = rest.len();
        *self = this;
        messages.len() - rest.len()
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
                    "a frame that begins the dictionary: the stream was joined in its middle",
                ));
            }
            Some(sequence) if sequence != frame.sequence && !begins => {
                return Err(Fault::malformed("the next frame: one or more frames were lost"));
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

/// Passes a message of a known series to a function, and returns its length, if it is sound
/// and the number of the series takes at most two bytes. Otherwise only a gauge's places may have
/// changed.
#[inline(always)]
fn usual(
    series: &mut [Known],
    ids: &[u8],
    kind: Kind,
    messages: &[u8],
    guard: &mut ScopeGuard<'_>,
    take: &mut impl FnMut(Message<'_>),
) -> Option<usize> {
    let (number, start) = read_middle(*messages.first_chunk()?)?;
    let known = series.get_mut(number as usize)?;
    let id = ids.get(known.id_start as usize..)?.get(..known.id_len as usize)?;
    let as_union = kind == Kind::MetricUnion;
    if !as_union && kind != known.kind {
        return None;
    }
    let union = |metric_type| MetricUnion { metric_type, id, ..MetricUnion::ZERO };
    let body = messages.get(start..)?;
    match known.kind {
        Kind::Counter => {
            let (value, len) = match read_middle(*body.first_chunk()?) {
                Some((by, len)) => (known.last.wrapping_add(by as i64), len),
                None => known.long_counter(body)?,
            };
            known.last = value;
            if as_union {
                take(MetricUnion { counter: value, ..union(MetricType::COUNTER) }.into());
            } else {
                take(Counter { id, value }.into());
            }
            Some(start + len)
        }
        Kind::Gauge => {
            let (value, len) = match read_middle(*body.first_chunk()?) {
                Some((change, len)) => {
                    known.last = known.last.wrapping_add(unzigzag(change));
                    (known.decimal(), len)
                }
                None => known.long_gauge(body)?,
            };
            if as_union {
                take(MetricUnion { gauge: value, ..union(MetricType::GAUGE) }.into());
            } else {
                take(Gauge { id, value }.into());
            }
            Some(start + len)
        }
        Kind::BatchTimer => {
            let mut body = Reader::new(body);
            let values = values::read(&mut body, &guard.scope()).ok()?;
            let len = body.position();
            if as_union {
                take(MetricUnion { timer: values, ..union(MetricType::BATCH_TIMER) }.into());
            } else {
                take(BatchTimer { id, values }.into());
            }
            guard.reset();
            Some(start + len)
        }
        Kind::MetricUnion => None,
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
        Ok(self.decimal())
    }

    /// Reads a counter of any form, and the length of its body, for a loop that keeps its own
    /// place.
    #[inline(never)]
    fn long_counter(&mut self, body: &[u8]) -> Option<(i64, usize)> {
        let mut input = Reader::new(body);
        let value = self.counter(&mut input).ok()?;
        Some((value, input.position()))
    }

    /// As [`Known::long_counter`], for a gauge.
    #[inline(never)]
    fn long_gauge(&mut self, body: &[u8]) -> Option<(f64, usize)> {
        let mut input = Reader::new(body);
        let value = self.gauge(&mut input).ok()?;
        Some((value, input.position()))
    }

    /// A gauge's last value.
    #[inline(always)]
    fn decimal(&self) -> f64 {
        self.last as f64 / POWERS[usize::from(self.places)]
    }
}
