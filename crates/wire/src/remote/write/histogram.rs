//! Native histograms in Prometheus remote write, the same in 1.0 and 2.0:
//!
//! ```text
//! message Histogram  { uint64 count_int = 1 or double count_float = 2; double sum = 3;
//!                      sint32 schema = 4; double zero_threshold = 5;
//!                      uint64 zero_count_int = 6 or double zero_count_float = 7;
//!                      repeated BucketSpan negative_spans = 8, positive_spans = 11;
//!                      repeated sint64 negative_deltas = 9, positive_deltas = 12;
//!                      repeated double negative_counts = 10, positive_counts = 13;
//!                      ResetHint reset_hint = 14; int64 timestamp = 15;
//!                      repeated double custom_values = 16; int64 start_timestamp = 17; }
//! message BucketSpan { sint32 offset = 1; uint32 length = 2; }
//! ```
//!
//! An inconsistent histogram is reported in its place, and you can continue with the rest of the
//! request.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::reader::STALE;
use crate::error::Fault;
use crate::pieces::{Byte, LeDouble, LeDoubles, Varint, append};
use crate::protobuf::double;
use crate::reader::{Reader, zigzag};
use crate::remote::buckets::{Side, signed};
use crate::remote::fields::{each_field, nested, skip_unknown, varint_len};

/// A native histogram with its time. Counts are doubles, so a count beyond 2^53 is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistogramSample<'r> {
    /// The time in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The time when counting began, in milliseconds since 1970, if it is known.
    pub start_ms: Option<i64>,
    /// The number of observed values.
    pub count: f64,
    /// The sum of the values. The NaN with the bits 0x7ff0000000000002 marks the end of the series.
    pub sum: f64,
    /// The resolution: the bounds of the buckets are powers of `2^(2^-schema)`. With
    /// [`CUSTOM`](Self::CUSTOM), they are in [`custom_bounds`](Self::custom_bounds) instead.
    pub schema: i32,
    /// The greatest absolute value of the zero bucket.
    pub zero_threshold: f64,
    /// The number of values in the zero bucket.
    pub zero_count: f64,
    /// The buckets of negative values: index and count, by index.
    pub negative: &'r [(i32, f64)],
    /// The buckets of positive values: index and count, by index.
    pub positive: &'r [(i32, f64)],
    /// The upper bounds of the buckets, in ascending order, without the infinite one.
    pub custom_bounds: &'r [f64],
    /// Whether the histogram continues the previous sample.
    pub reset_hint: ResetHint,
}

/// Whether a histogram continues the previous sample. The numbers are the same as in the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetHint {
    /// Unknown.
    #[default]
    Unknown = 0,
    /// The counts restarted from zero.
    Yes = 1,
    /// The counts continue.
    No = 2,
    /// The histogram consists of gauges, which rise and fall.
    Gauge = 3,
}

/// The expectation that an inconsistent histogram violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistogramFault(&'static str);

impl fmt::Display for HistogramFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl core::error::Error for HistogramFault {}

impl HistogramSample<'_> {
    /// The schema of a histogram with custom bounds.
    pub const CUSTOM: i32 = -53;

    /// Creates a histogram without buckets.
    pub fn new(timestamp_ms: i64, count: f64, sum: f64, schema: i32) -> Self {
        Self {
            timestamp_ms,
            start_ms: None,
            count,
            sum,
            schema,
            zero_threshold: 0.0,
            zero_count: 0.0,
            negative: &[],
            positive: &[],
            custom_bounds: &[],
            reset_hint: ResetHint::Unknown,
        }
    }

    /// Creates a stale marker: it ends a series at this time.
    pub fn stale(timestamp_ms: i64) -> Self {
        Self::new(timestamp_ms, 0.0, f64::from_bits(STALE), 0)
    }

    /// Returns whether this marks the end of its series.
    pub fn is_stale(&self) -> bool {
        self.sum.to_bits() == STALE
    }

    /// Appends the encoded message.
    pub(super) fn encode(&self, with_start: bool, out: &mut Vec<u8>) {
        let sides = || self.negative.iter().chain(self.positive).map(|bucket| bucket.1);
        // Integer counts must be exact, because receivers compare the count with the sum of the
        // buckets. Floats are not compared.
        let mut counts = sides().chain([self.count, self.zero_count]);
        let is_whole =
            counts.all(|count| (0.0..WHOLE).contains(&count) && (count as u64) as f64 == count);
        let number = |tag, number: f64| match is_whole {
            // Exact, because the number is whole and below 2^53.
            true => (Byte(tag), Some(Varint(number as u64)), None),
            false => (Byte(tag + 9), None, Some(LeDouble(number))),
        };
        append(out, number(0x08, self.count));
        append(out, (Byte(0x19), LeDouble(self.sum)));
        append(out, (Byte(0x20), Varint(zigzag(self.schema.into()))));
        append(out, (Byte(0x29), LeDouble(self.zero_threshold)));
        append(out, number(0x30, self.zero_count));
        for (tag, buckets) in [(0x42, self.negative), (0x5a, self.positive)] {
            encode_side(tag, buckets, is_whole, out);
        }
        append(out, (Byte(0x70), Byte(self.reset_hint as u8)));
        append(out, (Byte(0x78), Varint(self.timestamp_ms.cast_unsigned())));
        if !self.custom_bounds.is_empty() {
            let bounds = LeDoubles(self.custom_bounds);
            append(out, (Varint(0x82), Varint(8 * self.custom_bounds.len() as u64), bounds));
        }
        if let (true, Some(start_ms)) = (with_start, self.start_ms) {
            append(out, (Varint(0x88), Varint(start_ms.cast_unsigned())));
        }
    }

    /// Checks the same rules as Prometheus: the schema, the bounds, and that the counts agree.
    fn check(&self, is_float: bool) -> Result<(), &'static str> {
        match self.schema {
            -4..=8 if !self.custom_bounds.is_empty() => return Err("bounds with schema -53 alone"),
            -4..=8 => {}
            Self::CUSTOM => self.check_custom()?,
            _ => return Err("a schema of -4 to 8, or -53"),
        }
        if !(self.zero_threshold >= 0.0 && self.zero_threshold.is_finite()) {
            return Err("a width of the zero bucket that is not negative");
        }
        let sides = self.negative.iter().chain(self.positive);
        let mut counts = sides.map(|bucket| bucket.1).chain([self.zero_count, self.count]);
        if counts.any(|count| !(count >= 0.0 && count.is_finite())) {
            return Err("counts that are not negative");
        }
        let sides = self.negative.iter().chain(self.positive);
        let total = sides.fold(self.zero_count, |total, bucket| total + bucket.1);
        // Observations of NaN are in no bucket. Sums of floats are rounded.
        let agrees =
            is_float || if self.sum.is_nan() { self.count >= total } else { self.count == total };
        if agrees { Ok(()) } else { Err("a count that is the sum of the buckets") }
    }

    fn check_custom(&self) -> Result<(), &'static str> {
        let bounds = self.custom_bounds;
        if !bounds.windows(2).all(|pair| pair[0] < pair[1])
            || !bounds.iter().all(|bound| bound.is_finite())
        {
            return Err("bounds in ascending order, without the infinite one");
        }
        if !self.negative.is_empty() || self.zero_count != 0.0 || self.zero_threshold != 0.0 {
            return Err("no negative buckets and no zero bucket with schema -53");
        }
        let last = self.positive.last().map_or(0, |bucket| i64::from(bucket.0));
        let first = self.positive.first().map_or(0, |bucket| bucket.0);
        match first >= 0 && last <= bounds.len() as i64 {
            true => Ok(()),
            false => Err("buckets that have bounds"),
        }
    }
}

/// Appends the spans of the buckets under this tag, and their counts under the following tags.
fn encode_side(tag: u8, buckets: &[(i32, f64)], is_whole: bool, out: &mut Vec<u8>) {
    let mut rest = buckets;
    let mut end = 0;
    while let Some((first, _)) = rest.first() {
        let first = i64::from(*first);
        let follows = |pair: &&[(i32, f64)]| pair[0].0.checked_add(1) == Some(pair[1].0);
        let length = rest.windows(2).take_while(follows).count() + 1;
        rest = &rest[length..];
        let (offset, length) = (zigzag(first - end), length as u64);
        end = first + length.cast_signed();
        let len = 2 + varint_len(offset) + varint_len(length);
        let (offset, length) = ((Byte(0x08), Varint(offset)), (Byte(0x10), Varint(length)));
        append(out, (Byte(tag), Varint(len as u64), offset, length));
    }
    if buckets.is_empty() {
        return;
    }
    if !is_whole {
        append(out, (Byte(tag + 16), Varint(8 * buckets.len() as u64)));
        buckets.iter().for_each(|bucket| append(out, LeDouble(bucket.1)));
        return;
    }
    let deltas = || {
        let before = [0.0].into_iter().chain(buckets.iter().map(|bucket| bucket.1));
        // Exact, because the numbers are whole and below 2^53.
        before.zip(buckets).map(|(before, bucket)| zigzag(bucket.1 as i64 - before as i64))
    };
    let len: usize = deltas().map(varint_len).sum();
    append(out, (Byte(tag + 8), Varint(len as u64)));
    deltas().for_each(|delta| append(out, Varint(delta)));
}

/// 2^53.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// The histograms of a series, in vectors that the next series reuses.
#[derive(Debug, Default)]
pub(super) struct Histograms {
    slots: Vec<Slot>,
    buckets: Vec<(i32, f64)>,
    bounds: Vec<f64>,
    negative: Side,
    positive: Side,
}

#[derive(Debug, Default)]
struct Slot {
    numbers: Numbers,
    negative: Range<usize>,
    positive: Range<usize>,
    bounds: Range<usize>,
    fault: Option<&'static str>,
}

/// The numeric fields of a histogram.
#[derive(Debug, Default)]
struct Numbers {
    timestamp_ms: i64,
    start_ms: i64,
    count: f64,
    is_float: bool,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count: f64,
    reset_hint: ResetHint,
}

/// The maximum number of buckets in all histograms of a series, and of bounds.
const MOST_BUCKETS: usize = 1 << 20;
/// The maximum number of histograms of a series.
const MOST_HISTOGRAMS: usize = 1 << 16;

impl Histograms {
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.buckets.clear();
        self.bounds.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Sets the start time of each histogram that lacks one.
    pub(super) fn set_start(&mut self, start_ms: i64) {
        for slot in self.slots.iter_mut().filter(|slot| slot.numbers.start_ms == 0) {
            slot.numbers.start_ms = start_ms;
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Result<HistogramSample<'_>, HistogramFault>> {
        let slot = self.slots.get(index)?;
        Some(match slot.fault {
            Some(fault) => Err(HistogramFault(fault)),
            None => Ok(self.sample(slot)),
        })
    }

    fn sample(&self, slot: &Slot) -> HistogramSample<'_> {
        let numbers = &slot.numbers;
        let buckets = |range: &Range<usize>| self.buckets.get(range.clone()).unwrap_or_default();
        HistogramSample {
            timestamp_ms: numbers.timestamp_ms,
            start_ms: (numbers.start_ms != 0).then_some(numbers.start_ms),
            count: numbers.count,
            sum: numbers.sum,
            schema: numbers.schema,
            zero_threshold: numbers.zero_threshold,
            zero_count: numbers.zero_count,
            negative: buckets(&slot.negative),
            positive: buckets(&slot.positive),
            custom_bounds: self.bounds.get(slot.bounds.clone()).unwrap_or_default(),
            reset_hint: numbers.reset_hint,
        }
    }

    /// Reads a histogram. An inconsistent histogram is kept together with its fault.
    pub(super) fn read(&mut self, input: &mut Reader<'_>) -> Result<(), Fault> {
        if self.slots.len() >= MOST_HISTOGRAMS {
            return Err(Fault::too_large("a series with fewer histograms"));
        }
        let numbers = self.read_numbers(input)?;
        let mut slot = Slot { numbers, ..Slot::default() };
        slot.bounds = self.slots.last().map_or(0, |last| last.bounds.end)..self.bounds.len();
        let sides = [&self.negative, &self.positive].map(|side| {
            let start = self.buckets.len();
            let fault = side.expand(&mut self.buckets).err();
            (start..self.buckets.len(), fault)
        });
        let [(negative, negative_fault), (positive, positive_fault)] = sides;
        (slot.negative, slot.positive) = (negative, positive);
        slot.fault = match negative_fault.or(positive_fault) {
            Some(fault) => Some(fault.expected()),
            None => self.sample(&slot).check(slot.numbers.is_float).err(),
        };
        self.slots.push(slot);
        Ok(())
    }

    fn read_numbers(&mut self, input: &mut Reader<'_>) -> Result<Numbers, Fault> {
        self.negative.clear();
        self.positive.clear();
        let mut numbers = Numbers::default();
        let left = MOST_BUCKETS - self.buckets.len().min(MOST_BUCKETS);
        let bounds = &mut self.bounds;
        let mut bound = |input: &mut Reader<'_>| match bounds.len() < MOST_BUCKETS {
            true => double(input).map(|bound| bounds.push(bound)),
            false => Err(Fault::too_large("a histogram with fewer bounds")),
        };
        each_field(input, |tag, input| match tag {
            0x08 => input.varint("a count").map(|count| numbers.count = count as f64),
            0x11 => {
                numbers.is_float = true;
                double(input).map(|count| numbers.count = count)
            }
            0x19 => double(input).map(|sum| numbers.sum = sum),
            0x20 => signed(input).map(|schema| numbers.schema = schema),
            0x29 => double(input).map(|threshold| numbers.zero_threshold = threshold),
            0x30 => input.varint("a count").map(|count| numbers.zero_count = count as f64),
            0x39 => double(input).map(|count| numbers.zero_count = count),
            0x42 | 0x48 | 0x4a | 0x51 | 0x52 => self.negative.field(tag - 0x40, input, left),
            0x5a | 0x60 | 0x62 | 0x69 | 0x6a => {
                let left = left.saturating_sub(self.negative.len());
                self.positive.field(tag - 0x58, input, left)
            }
            0x70 => {
                input.varint("a hint").map(|hint| numbers.reset_hint = ResetHint::from_number(hint))
            }
            0x78 => input.varint("a time").map(|time| numbers.timestamp_ms = time.cast_signed()),
            0x81 => bound(input),
            0x82 => nested(input, |input| {
                while !input.is_empty() {
                    bound(input)?;
                }
                Ok(())
            }),
            0x88 => input.varint("a time").map(|time| numbers.start_ms = time.cast_signed()),
            tag => skip_unknown(input, tag, 0b11_1111_1111_1111_1110),
        })?;
        Ok(numbers)
    }
}

impl ResetHint {
    fn from_number(number: u64) -> ResetHint {
        match number {
            1 => ResetHint::Yes,
            2 => ResetHint::No,
            3 => ResetHint::Gauge,
            _ => ResetHint::Unknown,
        }
    }
}
