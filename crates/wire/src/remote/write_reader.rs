//! Reads Prometheus remote write; `write.rs` shows the layout.

use alloc::vec::Vec;
use core::mem;

use super::fields::{each_field, nested, skip_unknown, text};
use super::labels::{self, Label};
use crate::error::{Error, Fault};
use crate::protobuf::{bytes, double};
use crate::reader::Reader;

/// A series of a request, with its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Series<'r, 'a> {
    /// Its labels in the order of their names, each once. `__name__` is the metric's name.
    pub labels: &'r [Label<'a>],
    /// Its samples, in the order of the request.
    pub samples: &'r [Sample],
    /// How many histogram samples it has; they are skipped.
    pub histograms: usize,
    /// How many exemplars it has; they are skipped.
    pub exemplars: usize,
    /// Its metadata, which only remote write 2.0 has.
    pub metadata: Metadata<'a>,
}

/// A value at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The value. The NaN with the bits 0x7ff0000000000002 marks the end of the series.
    pub value: f64,
    /// In milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// The metadata of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata<'a> {
    /// Its type.
    pub series_type: SeriesType,
    /// Its help text.
    pub help: &'a str,
    /// The unit of its values.
    pub unit: &'a str,
}

/// The type of a series, with the numbers of remote write 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SeriesType {
    /// Not known.
    #[default]
    Unknown = 0,
    /// A value that only grows.
    Counter = 1,
    /// A value that goes up and down.
    Gauge = 2,
    /// A part of a histogram.
    Histogram = 3,
    /// A part of a histogram of gauges.
    GaugeHistogram = 4,
    /// A part of a summary.
    Summary = 5,
    /// Facts in labels.
    Info = 6,
    /// One of several states.
    StateSet = 7,
}

/// Reads an uncompressed remote write 1.0 request, `prometheus.WriteRequest`, and calls the
/// function with each series. Texts borrow from the request. Histograms, exemplars and metadata
/// are skipped.
///
/// # Errors
///
/// When it is not such a request. The function was called with the series before the fault.
pub fn read_write_request<'a>(
    request: &'a [u8],
    mut each: impl FnMut(&Series<'_, 'a>),
) -> Result<(), Error> {
    let mut input = Reader::new(request);
    let mut room = Room::default();
    each_field(&mut input, |tag, input| match tag {
        0x0a => {
            room.clear();
            nested(input, |input| {
                each_field(input, |tag, input| match tag {
                    0x0a => nested(input, label).map(|label| room.labels.push(label)),
                    0x12 => nested(input, sample).map(|sample| room.samples.push(sample)),
                    0x1a => room.skip_exemplar(input),
                    0x22 => room.skip_histogram(input),
                    tag => skip_unknown(input, tag, 0b11110),
                })?;
                room.finish(Metadata::default(), &mut each)
            })
        }
        tag => skip_unknown(input, tag, 0b10),
    })
    .map_err(|fault| Error::reading("remote-write-1", input.position() as u64, fault))
}

/// Reads an uncompressed remote write 2.0 request, `io.prometheus.write.v2.Request`, and calls the
/// function with each series. Texts borrow from the request. Histograms and exemplars are skipped.
///
/// # Errors
///
/// When it is not such a request. The function was called with the series before the fault.
pub fn read_write_request_2<'a>(
    request: &'a [u8],
    mut each: impl FnMut(&Series<'_, 'a>),
) -> Result<(), Error> {
    let mut input = Reader::new(request);
    read_2(&mut input, &mut each)
        .map_err(|fault| Error::reading("remote-write-2", input.position() as u64, fault))
}

fn read_2<'a>(input: &mut Reader<'a>, each: &mut impl FnMut(&Series<'_, 'a>)) -> Result<(), Fault> {
    // The table may come after the series.
    let start = *input;
    let mut symbols = Vec::new();
    each_field(input, |tag, input| match tag {
        0x22 => text(input).map(|text| symbols.push(text)),
        0x2a => bytes(input).map(drop),
        tag => skip_unknown(input, tag, 0b110000),
    })?;
    if symbols.first().is_some_and(|first| !first.is_empty()) {
        *input = start;
        return Err(Fault::malformed("a table of texts that begins with the empty one"));
    }
    *input = start;
    let mut room = Room::default();
    each_field(input, |tag, input| match tag {
        0x2a => {
            room.clear();
            nested(input, |input| {
                let mut metadata = Metadata::default();
                let mut name = None;
                each_field(input, |tag, input| match tag {
                    0x08 => room.add_number(&mut name, input, &symbols),
                    0x0a => nested(input, |input| {
                        while !input.is_empty() {
                            room.add_number(&mut name, input, &symbols)?;
                        }
                        Ok(())
                    }),
                    0x12 => nested(input, sample).map(|sample| room.samples.push(sample)),
                    0x1a => room.skip_histogram(input),
                    0x22 => room.skip_exemplar(input),
                    0x2a => nested(input, |input| read_metadata(&mut metadata, input, &symbols)),
                    tag => skip_unknown(input, tag, 0b111110),
                })?;
                if name.is_some() {
                    return Err(Fault::malformed("a value after the name of a label"));
                }
                room.finish(metadata, each)
            })
        }
        0x22 => bytes(input).map(drop),
        tag => skip_unknown(input, tag, 0b110000),
    })
}

/// What was read of a series. Its vectors are reused for the next one.
#[derive(Default)]
struct Room<'a> {
    labels: Vec<Label<'a>>,
    samples: Vec<Sample>,
    histograms: usize,
    exemplars: usize,
}

impl<'a> Room<'a> {
    fn clear(&mut self) {
        self.labels.clear();
        self.samples.clear();
        self.histograms = 0;
        self.exemplars = 0;
    }

    /// Adds the number of a name, or that of the value after it.
    fn add_number(
        &mut self,
        name: &mut Option<&'a str>,
        input: &mut Reader<'a>,
        symbols: &[&'a str],
    ) -> Result<(), Fault> {
        let text = symbol(input, symbols)?;
        match mem::take(name) {
            Some(name) => self.labels.push((name, text)),
            None => *name = Some(text),
        }
        Ok(())
    }

    fn skip_histogram(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        self.histograms += 1;
        bytes(input).map(drop)
    }

    fn skip_exemplar(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        self.exemplars += 1;
        bytes(input).map(drop)
    }

    fn finish(
        &mut self,
        metadata: Metadata<'a>,
        each: &mut impl FnMut(&Series<'_, 'a>),
    ) -> Result<(), Fault> {
        labels::sort(&mut self.labels)
            .map_err(|()| Fault::malformed("a series that has each label once"))?;
        if self.labels.first().is_none_or(|label| label.0.is_empty()) {
            return Err(Fault::malformed("a series with labels, and a name for each"));
        }
        each(&Series {
            labels: &self.labels,
            samples: &self.samples,
            histograms: self.histograms,
            exemplars: self.exemplars,
            metadata,
        });
        Ok(())
    }
}

fn label<'a>(input: &mut Reader<'a>) -> Result<Label<'a>, Fault> {
    let mut label = ("", "");
    each_field(input, |tag, input| {
        match tag {
            0x0a => label.0 = text(input)?,
            0x12 => label.1 = text(input)?,
            tag => skip_unknown(input, tag, 0b110)?,
        }
        Ok(())
    })?;
    Ok(label)
}

fn sample(input: &mut Reader<'_>) -> Result<Sample, Fault> {
    let mut sample = Sample::default();
    each_field(input, |tag, input| {
        match tag {
            0x09 => sample.value = double(input)?,
            0x10 => sample.timestamp_ms = input.varint("a time")? as i64,
            tag => skip_unknown(input, tag, 0b110)?,
        }
        Ok(())
    })?;
    Ok(sample)
}

fn read_metadata<'a>(
    metadata: &mut Metadata<'a>,
    input: &mut Reader<'a>,
    symbols: &[&'a str],
) -> Result<(), Fault> {
    each_field(input, |tag, input| {
        match tag {
            0x08 => metadata.series_type = SeriesType::of(input.varint("a type")?),
            0x18 => metadata.help = symbol(input, symbols)?,
            0x20 => metadata.unit = symbol(input, symbols)?,
            tag => skip_unknown(input, tag, 0b11010)?,
        }
        Ok(())
    })
}

fn symbol<'a>(input: &mut Reader<'_>, symbols: &[&'a str]) -> Result<&'a str, Fault> {
    let before = *input;
    let number = input.varint("the number of a text")?;
    let found = usize::try_from(number).ok().and_then(|number| symbols.get(number));
    match found {
        Some(text) => Ok(text),
        None => {
            *input = before;
            Err(Fault::malformed("the number of a text that is in the table"))
        }
    }
}

impl SeriesType {
    fn of(number: u64) -> SeriesType {
        match number {
            1 => SeriesType::Counter,
            2 => SeriesType::Gauge,
            3 => SeriesType::Histogram,
            4 => SeriesType::GaugeHistogram,
            5 => SeriesType::Summary,
            6 => SeriesType::Info,
            7 => SeriesType::StateSet,
            _ => SeriesType::Unknown,
        }
    }
}
