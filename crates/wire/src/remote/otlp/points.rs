//! Reads the protobuf messages of OTLP's data points.

use alloc::vec::Vec;

use super::attributes::{self, Attribute};
use super::point::{
    ExponentialBuckets, ExponentialPoint, HistogramPoint, MetricsExemplar, Number, PointValue,
    SummaryPoint, Temporality, known,
};
use crate::error::Fault;
use crate::protobuf::double;
use crate::reader::{Reader, unzigzag};
use crate::remote::fields::{each_field, nested, skip_unknown};

/// The fields of a data point, in vectors that the next point reuses.
#[derive(Debug, Default)]
pub(super) struct Room<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) start: u64,
    pub(super) end: u64,
    flags: u64,
    pub(super) exemplars: Vec<MetricsExemplar<'a>>,
    pub(super) exemplar_attributes: Vec<Attribute<'a>>,
    data: Data,
    number: Option<Number>,
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    buckets: Vec<u64>,
    bounds: Vec<f64>,
    scale: i32,
    zero_count: u64,
    zero_threshold: f64,
    offset: i32,
    negative: Vec<u64>,
    negative_offset: i32,
    quantiles: Vec<(f64, f64)>,
}

/// The kind of data in a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Data {
    #[default]
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

impl<'a> Room<'a> {
    /// Reads a data point.
    pub(super) fn read(&mut self, data: Data, input: &mut Reader<'a>) -> Result<(), Fault> {
        self.clear(data);
        each_field(input, |tag, input| match data {
            Data::Gauge | Data::Sum => self.number_field(tag, input),
            Data::Histogram => self.histogram_field(tag, input),
            Data::Exponential => self.exponential_field(tag, input),
            Data::Summary => self.summary_field(tag, input),
        })
    }

    /// Returns the value that was read, for a metric with this temporality.
    pub(super) fn value(&self, temporality: Temporality, monotonic: bool) -> PointValue<'_> {
        let Self { number, count, sum, min, max, .. } = *self;
        match self.data {
            Data::Gauge => PointValue::Gauge(number),
            Data::Sum => PointValue::Sum { value: number, monotonic, temporality },
            Data::Histogram => {
                let (buckets, bounds) = (&self.buckets[..], &self.bounds[..]);
                let point = HistogramPoint { count, sum, min, max, buckets, bounds };
                PointValue::Histogram { point, temporality }
            }
            Data::Exponential => {
                let Self { scale, zero_count, zero_threshold, .. } = *self;
                let positive = ExponentialBuckets { offset: self.offset, counts: &self.buckets };
                let negative =
                    ExponentialBuckets { offset: self.negative_offset, counts: &self.negative };
                let point = ExponentialPoint {
                    count,
                    sum,
                    min,
                    max,
                    scale,
                    zero_count,
                    zero_threshold,
                    positive,
                    negative,
                };
                PointValue::Exponential { point, temporality }
            }
            Data::Summary => PointValue::Summary(SummaryPoint {
                count,
                sum: sum.unwrap_or(0.0),
                quantiles: &self.quantiles,
            }),
        }
    }

    pub(super) fn no_recorded_value(&self) -> bool {
        self.flags & 1 == 1
    }

    fn clear(&mut self, data: Data) {
        let mut room = Room {
            attributes: core::mem::take(&mut self.attributes),
            exemplars: core::mem::take(&mut self.exemplars),
            exemplar_attributes: core::mem::take(&mut self.exemplar_attributes),
            buckets: core::mem::take(&mut self.buckets),
            bounds: core::mem::take(&mut self.bounds),
            negative: core::mem::take(&mut self.negative),
            quantiles: core::mem::take(&mut self.quantiles),
            data,
            ..Room::default()
        };
        room.attributes.clear();
        room.exemplars.clear();
        room.exemplar_attributes.clear();
        room.buckets.clear();
        room.bounds.clear();
        room.negative.clear();
        room.quantiles.clear();
        *self = room;
    }

    fn number_field(&mut self, tag: u64, input: &mut Reader<'a>) -> Result<(), Fault> {
        match tag {
            0x11 => self.start = fixed(input)?,
            0x19 => self.end = fixed(input)?,
            0x21 => self.number = Some(Number::Double(double(input)?)),
            0x2a => self.exemplar(input)?,
            0x31 => self.number = Some(Number::Int(fixed(input)? as i64)),
            0x3a => attributes::push(&mut self.attributes, input)?,
            0x40 => self.flags = input.varint("flags")?,
            tag => skip_unknown(input, tag, 0b1_1111_1100)?,
        }
        Ok(())
    }

    fn histogram_field(&mut self, tag: u64, input: &mut Reader<'a>) -> Result<(), Fault> {
        match tag {
            0x11 => self.start = fixed(input)?,
            0x19 => self.end = fixed(input)?,
            0x21 => self.count = fixed(input)?,
            0x29 => self.sum = Some(double(input)?),
            0x31 => self.buckets.push(fixed(input)?),
            0x32 => {
                self.buckets.extend(packed(input)?.iter().map(|word| u64::from_le_bytes(*word)));
            }
            0x39 => self.bounds.push(double(input)?),
            0x3a => {
                self.bounds.extend(packed(input)?.iter().map(|word| f64::from_le_bytes(*word)));
            }
            0x42 => self.exemplar(input)?,
            0x4a => attributes::push(&mut self.attributes, input)?,
            0x50 => self.flags = input.varint("flags")?,
            0x59 => self.min = Some(double(input)?),
            0x61 => self.max = Some(double(input)?),
            tag => skip_unknown(input, tag, 0b1_1111_1111_1100)?,
        }
        Ok(())
    }

    fn exponential_field(&mut self, tag: u64, input: &mut Reader<'a>) -> Result<(), Fault> {
        match tag {
            0x0a => attributes::push(&mut self.attributes, input)?,
            0x11 => self.start = fixed(input)?,
            0x19 => self.end = fixed(input)?,
            0x21 => self.count = fixed(input)?,
            0x29 => self.sum = Some(double(input)?),
            0x30 => self.scale = signed(input)?,
            0x39 => self.zero_count = fixed(input)?,
            0x42 => nested(input, |input| buckets(&mut self.offset, &mut self.buckets, input))?,
            0x4a => {
                nested(input, |input| {
                    buckets(&mut self.negative_offset, &mut self.negative, input)
                })?;
            }
            0x50 => self.flags = input.varint("flags")?,
            0x5a => self.exemplar(input)?,
            0x61 => self.min = Some(double(input)?),
            0x69 => self.max = Some(double(input)?),
            0x71 => self.zero_threshold = double(input)?,
            tag => skip_unknown(input, tag, 0b111_1111_1111_1110)?,
        }
        Ok(())
    }

    fn summary_field(&mut self, tag: u64, input: &mut Reader<'a>) -> Result<(), Fault> {
        match tag {
            0x11 => self.start = fixed(input)?,
            0x19 => self.end = fixed(input)?,
            0x21 => self.count = fixed(input)?,
            0x29 => self.sum = Some(double(input)?),
            0x32 => {
                if self.quantiles.len() == MOST {
                    return Err(Fault::too_large("at most 4,096 quantiles"));
                }
                let mut pair = (0.0, 0.0);
                nested(input, |input| {
                    each_field(input, |tag, input| match tag {
                        0x09 => double(input).map(|quantile| pair.0 = quantile),
                        0x11 => double(input).map(|value| pair.1 = value),
                        tag => skip_unknown(input, tag, 0b110),
                    })
                })?;
                self.quantiles.push(pair);
            }
            0x3a => attributes::push(&mut self.attributes, input)?,
            0x40 => self.flags = input.varint("flags")?,
            tag => skip_unknown(input, tag, 0b1_1111_1100)?,
        }
        Ok(())
    }

    fn exemplar(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        if self.exemplars.len() == MOST {
            return Err(Fault::too_large("at most 4,096 exemplars"));
        }
        let attributes = &mut self.exemplar_attributes;
        let start = attributes.len();
        let mut exemplar = MetricsExemplar::default();
        nested(input, |input| {
            each_field(input, |tag, input| {
                match tag {
                    0x11 => exemplar.time_ns = known(fixed(input)?),
                    0x19 => exemplar.value = Some(Number::Double(double(input)?)),
                    0x22 => exemplar.span_id = crate::protobuf::bytes(input)?,
                    0x2a => exemplar.trace_id = crate::protobuf::bytes(input)?,
                    0x31 => exemplar.value = Some(Number::Int(fixed(input)? as i64)),
                    0x3a => attributes::push(attributes, input)?,
                    tag => skip_unknown(input, tag, 0b1111_1100)?,
                }
                Ok(())
            })
        })?;
        exemplar.attributes = (start, attributes.len());
        self.exemplars.push(exemplar);
        Ok(())
    }
}

impl Temporality {
    pub(super) fn from_number(number: u64) -> Temporality {
        match number {
            1 => Temporality::Delta,
            2 => Temporality::Cumulative,
            _ => Temporality::Unknown,
        }
    }
}

/// Reads exponential buckets.
fn buckets(offset: &mut i32, counts: &mut Vec<u64>, input: &mut Reader<'_>) -> Result<(), Fault> {
    let mut push = |input: &mut Reader<'_>| {
        if counts.len() == MOST_BUCKETS {
            return Err(Fault::too_large("at most 65,536 exponential buckets"));
        }
        counts.push(input.varint("the count of a bucket")?);
        Ok(())
    };
    each_field(input, |tag, input| match tag {
        0x08 => signed(input).map(|number| *offset = number),
        0x10 => push(input),
        0x12 => nested(input, |input| {
            while !input.is_empty() {
                push(input)?;
            }
            Ok(())
        }),
        tag => skip_unknown(input, tag, 0b110),
    })
}

/// Reads a packed list of 8-byte words.
fn packed<'a>(input: &mut Reader<'a>) -> Result<&'a [[u8; 8]], Fault> {
    let before = *input;
    let (words, odd) = crate::protobuf::bytes(input)?.as_chunks::<8>();
    if !odd.is_empty() {
        *input = before;
        return Err(Fault::malformed("a list of numbers of 8 bytes each"));
    }
    Ok(words)
}

/// Reads a fixed 8-byte number.
fn fixed(input: &mut Reader<'_>) -> Result<u64, Fault> {
    input.array("8 bytes").map(u64::from_le_bytes)
}

/// Reads a signed 32-bit number from the low bits of a varint.
fn signed(input: &mut Reader<'_>) -> Result<i32, Fault> {
    let number = input.varint("a signed number")?;
    Ok(unzigzag(number & u64::from(u32::MAX)) as i32)
}

/// Limits the number of exemplars, because an empty one has two bytes but takes 80 in memory.
const MOST: usize = 4096;
/// Limits the number of buckets, because one byte of input takes 8 in memory.
const MOST_BUCKETS: usize = 1 << 16;
