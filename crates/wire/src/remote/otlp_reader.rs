//! Reads OpenTelemetry's metrics, OTLP; `otlp.rs` shows the layout.
//!
//! The fields that describe points may come after them. So each level is read twice: first its
//! description, then its contents.

use alloc::vec::Vec;

use super::fields::{each_field, nested, skip_unknown, text};
use crate::error::{Error, Fault};
use crate::protobuf::{bytes, double};
use crate::reader::Reader;

/// A data point, with everything that describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Point<'r, 'a> {
    /// The attributes of the resource that it belongs to.
    pub resource: &'r [Attribute<'a>],
    /// The name of the library that measured it.
    pub scope: &'a str,
    /// The metric's name.
    pub name: &'a str,
    /// The metric's description.
    pub description: &'a str,
    /// The unit of its values.
    pub unit: &'a str,
    /// Its attributes.
    pub attributes: &'r [Attribute<'a>],
    /// When a sum or a histogram began, in nanoseconds since 1970; 0 when it is not known.
    pub start_ns: u64,
    /// When it was measured, in nanoseconds since 1970; 0 when it is not known.
    pub time_ns: u64,
    /// The value.
    pub value: PointValue<'r>,
}

/// A key and its value.
pub type Attribute<'a> = (&'a str, Value<'a>);

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value.
    Empty,
    /// A text.
    Text(&'a str),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list or a map: the encoded `AnyValue`.
    Nested(&'a [u8]),
}

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PointValue<'r> {
    /// A value that goes up and down. `None` if nothing was measured.
    Gauge(Option<Number>),
    /// A sum.
    Sum {
        /// The sum. `None` if nothing was measured.
        value: Option<Number>,
        /// Whether it only grows.
        monotonic: bool,
        /// What it counts from.
        temporality: Temporality,
    },
    /// A histogram.
    Histogram {
        /// The values.
        point: HistogramPoint<'r>,
        /// What it counts from.
        temporality: Temporality,
    },
}

/// An integer or a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
}

/// What a point counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Temporality {
    /// Not known.
    #[default]
    Unknown,
    /// The point before it.
    Delta,
    /// The start.
    Cumulative,
}

/// How many values were measured, and their distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistogramPoint<'r> {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The number of values in each bucket. Empty, or one more than there are bounds.
    pub buckets: &'r [u64],
    /// The inclusive upper bounds of the buckets; the last bucket has none.
    pub bounds: &'r [f64],
}

/// Reads an OTLP request, `ExportMetricsServiceRequest`, and calls the function with each data
/// point. Texts borrow from the request. Exemplars are skipped. Returns how many data points were
/// skipped: those of exponential histograms, of summaries, and of unknown kinds.
///
/// # Errors
///
/// When it is not such a request. The function was called with the points before the fault.
pub fn read_metrics_request<'a>(
    request: &'a [u8],
    mut each: impl FnMut(&Point<'_, 'a>),
) -> Result<u64, Error> {
    let mut input = Reader::new(request);
    let mut reading = Reading { each: &mut each, room: Room::default(), skipped: 0 };
    each_field(&mut input, |tag, input| match tag {
        0x0a => nested(input, |input| reading.resource_metrics(input)),
        tag => skip_unknown(input, tag, 0b10),
    })
    .map_err(|fault| Error::reading("otlp", input.position() as u64, fault))?;
    Ok(reading.skipped)
}

struct Reading<'a, 'f, F> {
    each: &'f mut F,
    room: Room<'a>,
    skipped: u64,
}

/// Vectors that are reused from one to the next.
#[derive(Default)]
struct Room<'a> {
    resource: Vec<Attribute<'a>>,
    attributes: Vec<Attribute<'a>>,
    buckets: Vec<u64>,
    bounds: Vec<f64>,
}

/// What describes all points of a metric.
#[derive(Clone, Copy, Default)]
struct Described<'a> {
    scope: &'a str,
    name: &'a str,
    description: &'a str,
    unit: &'a str,
    monotonic: bool,
    temporality: Temporality,
}

impl<'a, F: FnMut(&Point<'_, 'a>)> Reading<'a, '_, F> {
    fn resource_metrics(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        const KNOWN: u32 = 0b1110;
        let start = *input;
        let resource = &mut self.room.resource;
        resource.clear();
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| {
                each_field(input, |tag, input| match tag {
                    0x0a => nested(input, attribute).map(|attribute| resource.push(attribute)),
                    tag => skip_unknown(input, tag, 0b10),
                })
            }),
            0x12 => bytes(input).map(drop),
            0x1a => text(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })?;
        *input = start;
        each_field(input, |tag, input| match tag {
            0x12 => nested(input, |input| self.scope_metrics(input)),
            0x0a | 0x1a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })
    }

    fn scope_metrics(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        const KNOWN: u32 = 0b1110;
        let start = *input;
        let mut scope = "";
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| {
                each_field(input, |tag, input| match tag {
                    0x0a => text(input).map(|text| scope = text),
                    tag => skip_unknown(input, tag, 0b10),
                })
            }),
            0x12 => bytes(input).map(drop),
            0x1a => text(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })?;
        *input = start;
        each_field(input, |tag, input| match tag {
            0x12 => nested(input, |input| self.metric(scope, input)),
            0x0a | 0x1a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })
    }

    fn metric(&mut self, scope: &'a str, input: &mut Reader<'a>) -> Result<(), Fault> {
        const KNOWN: u32 = 0b1110_1010_1110;
        let start = *input;
        let mut described = Described { scope, ..Described::default() };
        each_field(input, |tag, input| match tag {
            0x0a => text(input).map(|text| described.name = text),
            0x12 => text(input).map(|text| described.description = text),
            0x1a => text(input).map(|text| described.unit = text),
            0x2a | 0x3a | 0x4a | 0x52 | 0x5a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })?;
        *input = start;
        each_field(input, |tag, input| match tag {
            0x2a => nested(input, |input| self.points(described, input, Self::gauge_point)),
            0x3a => nested(input, |input| self.points(described, input, Self::sum_point)),
            0x4a => nested(input, |input| self.points(described, input, Self::histogram_point)),
            0x52 | 0x5a => nested(input, |input| self.skip_points(input)),
            0x0a | 0x12 | 0x1a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN),
        })
    }

    fn points(
        &mut self,
        mut described: Described<'a>,
        input: &mut Reader<'a>,
        point: fn(&mut Self, &Described<'a>, &mut Reader<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        const KNOWN: u32 = 0b10;
        let start = *input;
        each_field(input, |tag, input| match tag {
            0x0a => bytes(input).map(drop),
            0x10 => {
                described.temporality = Temporality::of(input.varint("a temporality")?);
                Ok(())
            }
            0x18 => input.varint("a boolean").map(|number| described.monotonic = number != 0),
            tag => skip_unknown(input, tag, KNOWN),
        })?;
        *input = start;
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| point(self, &described, input)),
            tag => skip_unknown(input, tag, KNOWN),
        })
    }

    fn skip_points(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        each_field(input, |tag, input| match tag {
            0x0a => {
                self.skipped += 1;
                bytes(input).map(drop)
            }
            tag => skip_unknown(input, tag, 0b10),
        })
    }

    fn gauge_point(
        &mut self,
        described: &Described<'a>,
        input: &mut Reader<'a>,
    ) -> Result<(), Fault> {
        let (times, value) = self.number_point(input)?;
        self.give(described, times, PointValue::Gauge(value));
        Ok(())
    }

    fn sum_point(
        &mut self,
        described: &Described<'a>,
        input: &mut Reader<'a>,
    ) -> Result<(), Fault> {
        let (times, value) = self.number_point(input)?;
        let Described { monotonic, temporality, .. } = *described;
        self.give(described, times, PointValue::Sum { value, monotonic, temporality });
        Ok(())
    }

    fn number_point(&mut self, input: &mut Reader<'a>) -> Result<(Times, Option<Number>), Fault> {
        let attributes = &mut self.room.attributes;
        attributes.clear();
        let mut times = Times::default();
        let mut value = None;
        each_field(input, |tag, input| {
            match tag {
                0x11 => times.start = fixed(input)?,
                0x19 => times.end = fixed(input)?,
                0x21 => value = Some(Number::Double(double(input)?)),
                0x31 => value = Some(Number::Int(fixed(input)? as i64)),
                0x3a => attributes.push(nested(input, attribute)?),
                tag => skip_unknown(input, tag, 0b1101_1100)?,
            }
            Ok(())
        })?;
        Ok((times, value))
    }

    fn histogram_point(
        &mut self,
        described: &Described<'a>,
        input: &mut Reader<'a>,
    ) -> Result<(), Fault> {
        let start = *input;
        let Room { attributes, buckets, bounds, .. } = &mut self.room;
        attributes.clear();
        buckets.clear();
        bounds.clear();
        let mut times = Times::default();
        let mut point = HistogramPoint::default();
        each_field(input, |tag, input| {
            match tag {
                0x11 => times.start = fixed(input)?,
                0x19 => times.end = fixed(input)?,
                0x21 => point.count = fixed(input)?,
                0x29 => point.sum = Some(double(input)?),
                0x31 => buckets.push(fixed(input)?),
                0x32 => buckets.extend(packed(input)?.iter().map(|word| u64::from_le_bytes(*word))),
                0x39 => bounds.push(double(input)?),
                0x3a => bounds.extend(packed(input)?.iter().map(|word| f64::from_le_bytes(*word))),
                0x4a => attributes.push(nested(input, attribute)?),
                0x59 => point.min = Some(double(input)?),
                0x61 => point.max = Some(double(input)?),
                tag => skip_unknown(input, tag, 0b1_1010_1111_1100)?,
            }
            Ok(())
        })?;
        if !(buckets.is_empty() && bounds.is_empty() || buckets.len() == bounds.len() + 1) {
            *input = start;
            return Err(Fault::malformed("a histogram with one bucket more than bounds"));
        }
        let Room { resource, attributes, buckets, bounds } = &self.room;
        let point = HistogramPoint { buckets, bounds, ..point };
        let value = PointValue::Histogram { point, temporality: described.temporality };
        (self.each)(&described.point(resource, attributes, times, value));
        Ok(())
    }

    fn give(&mut self, described: &Described<'a>, times: Times, value: PointValue<'_>) {
        let Room { resource, attributes, .. } = &self.room;
        (self.each)(&described.point(resource, attributes, times, value));
    }
}

impl<'a> Described<'a> {
    fn point<'r>(
        &self,
        resource: &'r [Attribute<'a>],
        attributes: &'r [Attribute<'a>],
        times: Times,
        value: PointValue<'r>,
    ) -> Point<'r, 'a> {
        let Described { scope, name, description, unit, .. } = *self;
        let Times { start, end } = times;
        Point {
            resource,
            scope,
            name,
            description,
            unit,
            attributes,
            start_ns: start,
            time_ns: end,
            value,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Times {
    start: u64,
    end: u64,
}

impl Temporality {
    fn of(number: u64) -> Temporality {
        match number {
            1 => Temporality::Delta,
            2 => Temporality::Cumulative,
            _ => Temporality::Unknown,
        }
    }
}

fn attribute<'a>(input: &mut Reader<'a>) -> Result<Attribute<'a>, Fault> {
    let mut attribute = ("", Value::Empty);
    each_field(input, |tag, input| {
        match tag {
            0x0a => attribute.0 = text(input)?,
            0x12 => attribute.1 = nested(input, value)?,
            tag => skip_unknown(input, tag, 0b110)?,
        }
        Ok(())
    })?;
    Ok(attribute)
}

fn value<'a>(input: &mut Reader<'a>) -> Result<Value<'a>, Fault> {
    let whole = input.rest();
    let mut value = Value::Empty;
    each_field(input, |tag, input| {
        match tag {
            0x0a => value = Value::Text(text(input)?),
            0x10 => value = Value::Bool(input.varint("a boolean")? != 0),
            0x18 => value = Value::Int(input.varint("an integer")? as i64),
            0x21 => value = Value::Double(double(input)?),
            0x2a | 0x32 => {
                bytes(input)?;
                value = Value::Nested(whole);
            }
            0x3a => value = Value::Bytes(bytes(input)?),
            tag => skip_unknown(input, tag, 0b1111_1110)?,
        }
        Ok(())
    })?;
    Ok(value)
}

/// A packed list of words of 8 bytes.
fn packed<'a>(input: &mut Reader<'a>) -> Result<&'a [[u8; 8]], Fault> {
    let before = *input;
    let (words, odd) = bytes(input)?.as_chunks::<8>();
    if !odd.is_empty() {
        *input = before;
        return Err(Fault::malformed("a list of numbers of 8 bytes each"));
    }
    Ok(words)
}

/// A fixed number of 8 bytes.
fn fixed(input: &mut Reader<'_>) -> Result<u64, Fault> {
    input.array("8 bytes").map(u64::from_le_bytes)
}
