//! Reads OpenTelemetry's metrics, one data point after another.
//!
//! A sender can write the fields that describe points after these points. Because of this, each
//! level of the request is read twice: first the description, then the contents.

use alloc::vec::Vec;

use super::attributes::{self, Attribute};
use super::point::{Instrumentation, MetricDescription, Point, Resource, Temporality, known};
use super::points::{Data, Room};
use crate::error::{Error, Fault};
use crate::protobuf::{TAG, bytes};
use crate::reader::Reader;
use crate::remote::fields::{complete, each_field, nested, skip_unknown, text};

/// Reads an OTLP request, `ExportMetricsServiceRequest`, and calls the function with each data
/// point. If you want to ask for the points one by one, use [`MetricsReader`].
///
/// # Errors
///
/// When the bytes are not such a request. By then, the function was called with the points before
/// the fault.
pub fn read_metrics_request<'a>(
    request: &'a [u8],
    mut each: impl FnMut(&Point<'_, 'a>),
) -> Result<(), Error> {
    let mut reader = MetricsReader::new(request);
    while let Some(point) = reader.next_point()? {
        each(&point);
    }
    Ok(())
}

/// The result of [`MetricsReader::next_progress`]. The enum is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
#[doc(hidden)]
pub enum Progress<'r, 'a> {
    /// A data point.
    Point(Point<'r, 'a>),
    /// A thousand fields were read without a data point. More points may follow.
    Nothing,
    /// The end of the request.
    End,
}

/// Reads the data points of an OTLP request one by one. You can pause between two points for any
/// time.
#[derive(Debug)]
pub struct MetricsReader<'a> {
    /// The unread part of the message at each level. Levels beyond `depth` are unused.
    levels: [Level<'a>; LEVELS],
    depth: usize,
    resource: Vec<Attribute<'a>>,
    scope: Scope<'a>,
    metric: MetricDescription<'a>,
    /// The numbers of the resource, the scope and the metric.
    numbers: [usize; 3],
    data: Data,
    temporality: Temporality,
    monotonic: bool,
    room: Room<'a>,
}

#[derive(Debug, Default)]
struct Scope<'a> {
    name: &'a str,
    version: &'a str,
    schema_url: &'a str,
    attributes: Vec<Attribute<'a>>,
}

/// The unread part of a message.
#[derive(Clone, Copy, Debug)]
struct Level<'a> {
    input: Reader<'a>,
    /// The offset of the message in the request.
    base: usize,
}

/// The number of nested levels: the request, the metrics of a resource, the metrics of a scope, a
/// metric, and its data.
const LEVELS: usize = 5;

/// The maximum number of fields to read before a data point.
const FIELDS: usize = 1000;

/// The result of one step of the reader.
enum Step {
    Point,
    Nothing,
    End,
}

/// The known fields of each level, as bits.
const KNOWN: [u32; LEVELS] = [0b10, 0b1110, 0b1110, 0b1110_1010_1110, 0b10];

impl<'a> MetricsReader<'a> {
    /// Creates a reader at the start of a request.
    pub fn new(request: &'a [u8]) -> Self {
        Self {
            levels: [Level { input: Reader::new(request), base: 0 }; LEVELS],
            depth: 0,
            resource: Vec::new(),
            scope: Scope::default(),
            metric: MetricDescription::default(),
            numbers: [0; 3],
            data: Data::Gauge,
            temporality: Temporality::Unknown,
            monotonic: false,
            room: Room::default(),
        }
    }

    /// Reads the next data point. Returns `None` after the last one. Strings borrow from the
    /// request. Data of unknown kinds are skipped.
    ///
    /// # Errors
    ///
    /// When the request is malformed. You cannot read further points then.
    pub fn next_point(&mut self) -> Result<Option<Point<'_, 'a>>, Error> {
        loop {
            match self.step()? {
                Step::Point => return Ok(Some(self.point())),
                Step::Nothing => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Reads the next data point, but stops after a thousand fields without one. This allows you to
    /// do other work in between, because a request can contain millions of such fields.
    ///
    /// # Errors
    ///
    /// Fails like [`next_point`](Self::next_point).
    #[doc(hidden)]
    pub fn next_progress(&mut self) -> Result<Progress<'_, 'a>, Error> {
        Ok(match self.step()? {
            Step::Point => Progress::Point(self.point()),
            Step::Nothing => Progress::Nothing,
            Step::End => Progress::End,
        })
    }

    fn step(&mut self) -> Result<Step, Error> {
        self.advance().map_err(|(fault, offset)| {
            self.depth = 0;
            self.levels[0].input = Reader::new(&[]);
            Error::reading("otlp", offset as u64, fault)
        })
    }

    fn point(&self) -> Point<'_, 'a> {
        let Scope { name, version, schema_url, ref attributes } = self.scope;
        let [resource, scope, number] = self.numbers;
        Point {
            resource: Resource { number: resource, attributes: &self.resource },
            scope: Instrumentation { number: scope, name, version, schema_url, attributes },
            metric: MetricDescription { number, ..self.metric },
            attributes: &self.room.attributes,
            start_ns: known(self.room.start),
            time_ns: known(self.room.end),
            no_recorded_value: self.room.no_recorded_value(),
            value: self.room.value(self.temporality, self.monotonic),
            exemplars: &self.room.exemplars,
            exemplar_attributes: &self.room.exemplar_attributes,
        }
    }

    /// Reads to the end of the next data point. An error includes the offset in the request.
    fn advance(&mut self) -> Result<Step, (Fault, usize)> {
        let mut fields = FIELDS;
        loop {
            let depth = self.depth;
            let level = &mut self.levels[depth];
            let found = level.next(depth, &mut fields).map_err(|fault| {
                let fault = if depth > 0 { complete(fault) } else { fault };
                (fault, level.base + level.input.position())
            })?;
            let Some((tag, inner)) = found else {
                if !level.input.is_empty() {
                    return Ok(Step::Nothing);
                }
                if depth == 0 {
                    return Ok(Step::End);
                }
                self.depth -= 1;
                continue;
            };
            let mut input = inner.input;
            let described = match depth {
                0 => self.describe_resource(&mut input),
                1 => self.describe_scope(&mut input),
                2 => self.describe_metric(&mut input),
                3 => self.describe_data(tag, &mut input),
                _ => self.room.read(self.data, &mut input),
            };
            described.map_err(|fault| (complete(fault), inner.base + input.position()))?;
            if depth + 1 == LEVELS {
                return Ok(Step::Point);
            }
            self.depth += 1;
            self.levels[self.depth] = inner;
        }
    }

    fn describe_resource(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        let resource = &mut self.resource;
        resource.clear();
        self.numbers[0] += 1;
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| {
                each_field(input, |tag, input| match tag {
                    0x0a => attributes::push(resource, input),
                    tag => skip_unknown(input, tag, 0b10),
                })
            }),
            0x12 => bytes(input).map(drop),
            0x1a => text(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN[1]),
        })
    }

    fn describe_scope(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        let Scope { name, version, schema_url, attributes } = &mut self.scope;
        (*name, *version, *schema_url) = ("", "", "");
        attributes.clear();
        self.numbers[1] += 1;
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| {
                each_field(input, |tag, input| match tag {
                    0x0a => text(input).map(|text| *name = text),
                    0x12 => text(input).map(|text| *version = text),
                    0x1a => attributes::push(attributes, input),
                    tag => skip_unknown(input, tag, 0b1110),
                })
            }),
            0x12 => bytes(input).map(drop),
            0x1a => text(input).map(|text| *schema_url = text),
            tag => skip_unknown(input, tag, KNOWN[2]),
        })
    }

    fn describe_metric(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        let metric = &mut self.metric;
        *metric = MetricDescription::default();
        self.numbers[2] += 1;
        each_field(input, |tag, input| match tag {
            0x0a => text(input).map(|text| metric.name = text),
            0x12 => text(input).map(|text| metric.description = text),
            0x1a => text(input).map(|text| metric.unit = text),
            0x2a | 0x3a | 0x4a | 0x52 | 0x5a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, KNOWN[3]),
        })
    }

    fn describe_data(&mut self, tag: u64, input: &mut Reader<'a>) -> Result<(), Fault> {
        self.data = match tag {
            0x2a => Data::Gauge,
            0x3a => Data::Sum,
            0x4a => Data::Histogram,
            0x52 => Data::Exponential,
            _ => Data::Summary,
        };
        (self.temporality, self.monotonic) = (Temporality::Unknown, false);
        each_field(input, |tag, input| {
            match tag {
                0x0a => drop(bytes(input)?),
                0x10 => self.temporality = Temporality::from_number(input.varint("a temporality")?),
                0x18 => self.monotonic = input.varint("a boolean")? != 0,
                tag => skip_unknown(input, tag, KNOWN[4])?,
            }
            Ok(())
        })
    }
}

impl<'a> Level<'a> {
    /// Returns the tag and the body of the next field with contents. Fields that describe the
    /// contents are skipped. Returns `None` at the end of the message, or when the budget `fields`
    /// is used up; each field that was read reduces this budget.
    fn next(
        &mut self,
        depth: usize,
        fields: &mut usize,
    ) -> Result<Option<(u64, Level<'a>)>, Fault> {
        let mut found = None;
        while found.is_none() && *fields > 0 && !self.input.is_empty() {
            *fields -= 1;
            let before = self.input;
            let tag = self.input.varint(TAG)?;
            let field = self.input;
            let read = match (depth, tag) {
                (0 | 4, 0x0a) | (1 | 2, 0x12) | (3, 0x2a | 0x3a | 0x4a | 0x52 | 0x5a) => {
                    bytes(&mut self.input).map(|body| {
                        let base = self.base + self.input.position() - body.len();
                        found = Some((tag, Level { input: Reader::new(body), base }));
                    })
                }
                (1 | 2, 0x0a | 0x1a) | (3, 0x0a | 0x12 | 0x1a) => bytes(&mut self.input).map(drop),
                (4, 0x10 | 0x18) => self.input.varint("a number").map(drop),
                _ => skip_unknown(&mut self.input, tag, KNOWN[depth]),
            };
            if let Err(fault) = read {
                // The field itself is wrong, so the fault is at its tag.
                if self.input.position() == field.position() && !fault.is_incomplete() {
                    self.input = before;
                }
                return Err(fault);
            }
        }
        Ok(found)
    }
}
