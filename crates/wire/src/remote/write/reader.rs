//! Reads Prometheus remote write; `requests.rs` shows the layout. These fields are read as well:
//!
//! ```text
//! message WriteRequest   { repeated MetricMetadata metadata = 3; }                        // 1.0
//! message MetricMetadata { MetricType type = 1; string metric_family_name = 2; string help = 4;
//!                          string unit = 5; }
//! message TimeSeries     { repeated Exemplar exemplars = 3; repeated Histogram histograms = 4; }
//! message Exemplar       { repeated Label labels = 1; double value = 2; int64 timestamp = 3; }
//!
//! message TimeSeries     { repeated Histogram histograms = 3; repeated Exemplar exemplars = 4;
//!                          int64 created_timestamp = 6; }                                 // 2.0
//! message Sample         { int64 start_timestamp = 3; }
//! message Exemplar       { repeated uint32 labels_refs = 1; double value = 2; int64 timestamp = 3; }
//! ```
//!
//! The field 6 is from before the release of 2.0, whose samples each have their own start.

use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ops::Range;

use super::histogram::{HistogramFault, HistogramSample, Histograms};
use crate::error::{Error, Fault};
use crate::protobuf::{bytes, double};
use crate::reader::Reader;
use crate::remote::fields::{each_field, nested, one_field, skip_unknown, text};
use crate::remote::labels::Label;

/// The version of a remote write request. The enum is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteVersion {
    /// 1.0, `prometheus.WriteRequest`.
    One,
    /// 2.0, `io.prometheus.write.v2.Request`.
    Two,
}

/// Reads an uncompressed remote write request, one series after the other. Texts borrow from the
/// request.
///
/// A request may have at most 2^20 texts in its table, and a series at most 2^12 labels, 2^16
/// samples, histograms and exemplars, and 2^20 buckets and bounds: what is read takes memory in
/// proportion to the request, but many times as much.
#[derive(Debug)]
pub struct WriteReader<'a> {
    version: WriteVersion,
    input: Reader<'a>,
    symbols: Vec<&'a str>,
    room: Room<'a>,
    /// The input before the series that [`WriteReader::next_known`] returned last.
    known: Option<Reader<'a>>,
    has_ended: bool,
}

/// What a request has.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Entry<'r, 'a> {
    /// A series, with its samples.
    Series(Series<'r, 'a>),
    /// The samples of a series whose labels the caller knows: see [`WriteReader::next_known`].
    Known {
        /// The caller's number of the series.
        series: u32,
        /// Its samples, in the order of the request.
        samples: &'r [Sample],
        /// Its metadata, which only remote write 2.0 has.
        metadata: Metadata<'a>,
    },
    /// What is known of all series of a family, in remote write 1.0.
    Family(FamilyMetadata<'a>),
    /// Fields that are skipped, a thousand of them: a chance to do something else before the next
    /// ones. A request can have millions.
    Skipped,
}

/// A series of a request, with its samples.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Series<'r, 'a> {
    /// Its labels in the order of their names. `__name__` is the metric's name.
    pub labels: &'r [Label<'a>],
    /// What is wrong with the labels, if anything is.
    pub fault: Option<LabelFault>,
    /// Its samples, in the order of the request.
    pub samples: &'r [Sample],
    /// Its metadata, which only remote write 2.0 has.
    pub metadata: Metadata<'a>,
    /// The bytes of its labels, if it is of remote write 1.0 and its labels come before all else.
    /// Senders write the labels of a series in the same way again and again. For 2.0,
    /// [`encode_labels`] makes the same bytes.
    pub encoded: Option<&'a [u8]>,
    room: &'r Room<'a>,
}

/// Why labels do not name a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LabelFault {
    /// There are none.
    Missing,
    /// A label has no name.
    Unnamed,
    /// A name appears twice.
    Duplicate,
}

/// A value at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The value. The NaN with the bits 0x7ff0000000000002 marks the end of the series.
    pub value: f64,
    /// In milliseconds since 1970.
    pub timestamp_ms: i64,
    /// When counting began, in milliseconds since 1970, if that is known.
    pub start_ms: Option<i64>,
}

/// An example of the events that a series counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExemplarSample<'r, 'a> {
    /// Its labels, in the order of the request.
    pub labels: &'r [Label<'a>],
    /// The value of the event.
    pub value: f64,
    /// Its time in milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// The metadata of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyMetadata<'a> {
    /// The name of the family, which series may have with a suffix such as `_bucket`.
    pub name: &'a str,
    /// The metadata.
    pub metadata: Metadata<'a>,
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

/// The bits of the NaN that marks the end of a series.
pub(super) const STALE: u64 = 0x7ff0_0000_0000_0002;

const UNPAIRED: Fault = Fault::malformed("a value after the name of a label");

const MOST_SYMBOLS: usize = 1 << 20;
const MOST_LABELS: usize = 1 << 12;
const MOST_SAMPLES: usize = 1 << 16;
const MOST_EXEMPLARS: usize = 1 << 16;
/// The most fields that are skipped at a time.
const MOST_SKIPPED: usize = 1000;

impl<'a> WriteReader<'a> {
    /// A reader at the beginning of a request. The texts of a request in version 2.0 are read now.
    ///
    /// # Errors
    ///
    /// When these cannot be read.
    pub fn new(version: WriteVersion, request: &'a [u8]) -> Result<WriteReader<'a>, Error> {
        let mut reader = WriteReader {
            version,
            input: Reader::new(request),
            symbols: Vec::new(),
            room: Room::default(),
            known: None,
            has_ended: false,
        };
        if version == WriteVersion::Two {
            let mut input = reader.input;
            reader.read_symbols(&mut input).map_err(|fault| version.error(&input, fault))?;
        }
        Ok(reader)
    }

    /// The next series or family. After an error, there are no more.
    ///
    /// # Errors
    ///
    /// When the request is not one of its version. Labels that do not name a series, and histograms
    /// that contradict themselves, are not such errors: they are reported in their places.
    #[allow(clippy::should_implement_trait, reason = "an entry borrows from the reader")]
    pub fn next(&mut self) -> Option<Result<Entry<'_, 'a>, Error>> {
        for _ in 0..MOST_SKIPPED {
            if self.has_ended || self.input.is_empty() {
                return None;
            }
            let mut input = self.input;
            let read = self.read(&mut input);
            self.input = input;
            match read {
                Ok(FoundField::Nothing) => {}
                Ok(FoundField::Series(metadata)) => {
                    return Some(Ok(Entry::Series(self.room.series(metadata))));
                }
                Ok(FoundField::Family(family)) => return Some(Ok(Entry::Family(family))),
                Err(fault) => {
                    self.has_ended = true;
                    return Some(Err(self.version.error(&self.input, fault)));
                }
            }
        }
        Some(Ok(Entry::Skipped))
    }

    /// As [`WriteReader::next`], for a caller that knows series by the bytes of their labels, which
    /// are then not read. `find` gets the bytes of a series of remote write 1.0, or those that it
    /// would have there. If these begin with the labels of a series that the caller knows, as
    /// [`Series::encoded`] has them, it returns their number and the caller's number of the series.
    /// A series that has other labels as well, or anything but samples and metadata, is read in the
    /// usual way.
    ///
    /// # Errors
    ///
    /// As [`WriteReader::next`].
    pub fn next_known(
        &mut self,
        find: impl FnOnce(&[u8]) -> Option<(usize, u32)>,
    ) -> Option<Result<Entry<'_, 'a>, Error>> {
        if !self.has_ended {
            let (mut input, room) = (self.input, &mut self.room);
            let found = match self.version {
                WriteVersion::One => room.read_known_1(&mut input, find),
                WriteVersion::Two => room.read_known_2(&mut input, &self.symbols, find),
            };
            if let Some((series, metadata)) = found {
                self.known = Some(mem::replace(&mut self.input, input));
                let samples = &*self.room.samples;
                return Some(Ok(Entry::Known { series, samples, metadata }));
            }
        }
        self.next()
    }

    /// Reads the series that [`WriteReader::next_known`] returned last once more, with its labels.
    ///
    /// # Errors
    ///
    /// As [`WriteReader::next`].
    pub fn again(&mut self) -> Option<Result<Entry<'_, 'a>, Error>> {
        if let Some(before) = self.known.take() {
            self.input = before;
        }
        self.next()
    }

    /// How many bytes of the request were read.
    pub fn position(&self) -> usize {
        self.input.position()
    }

    /// Reads the table, which may come after the series.
    fn read_symbols(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        let start = *input;
        let symbols = &mut self.symbols;
        each_field(input, |tag, input| match tag {
            0x22 if symbols.len() >= MOST_SYMBOLS => {
                Err(Fault::too_large("a request with fewer texts"))
            }
            0x22 => text(input).map(|text| symbols.push(text)),
            0x2a => bytes(input).map(drop),
            tag => skip_unknown(input, tag, 0b110000),
        })?;
        if self.symbols.first().is_some_and(|first| !first.is_empty()) {
            *input = start;
            return Err(Fault::malformed("a table of texts that begins with the empty one"));
        }
        Ok(())
    }

    fn read(&mut self, input: &mut Reader<'a>) -> Result<FoundField<'a>, Fault> {
        let WriteReader { version, symbols, room, .. } = self;
        one_field(input, |tag, input| match (*version, tag) {
            (WriteVersion::One, 0x0a) => {
                nested(input, |input| room.read_1(input))?;
                Ok(FoundField::Series(Metadata::default()))
            }
            (WriteVersion::One, 0x1a) => nested(input, family).map(FoundField::Family),
            (WriteVersion::One, tag) => {
                skip_unknown(input, tag, 0b1010).map(|()| FoundField::Nothing)
            }
            (WriteVersion::Two, 0x2a) => {
                nested(input, |input| room.read_2(input, symbols)).map(FoundField::Series)
            }
            (WriteVersion::Two, 0x22) => bytes(input).map(|_| FoundField::Nothing),
            (WriteVersion::Two, tag) => {
                skip_unknown(input, tag, 0b110000).map(|()| FoundField::Nothing)
            }
        })
    }
}

enum FoundField<'a> {
    Nothing,
    /// A series, which is in the room.
    Series(Metadata<'a>),
    Family(FamilyMetadata<'a>),
}

impl WriteVersion {
    fn error(self, input: &Reader<'_>, fault: Fault) -> Error {
        let name = match self {
            WriteVersion::One => "remote-write-1",
            WriteVersion::Two => "remote-write-2",
        };
        Error::reading(name, input.position() as u64, fault)
    }
}

impl<'r, 'a> Series<'r, 'a> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1)
    }

    /// Its native histograms, in the order of the request.
    pub fn histograms(
        &self,
    ) -> impl Iterator<Item = Result<HistogramSample<'r>, HistogramFault>> + use<'r, 'a> {
        let histograms = &self.room.histograms;
        (0..histograms.len()).filter_map(|index| histograms.get(index))
    }

    /// Its exemplars, in the order of the request.
    pub fn exemplars(&self) -> impl ExactSizeIterator<Item = ExemplarSample<'r, 'a>> + use<'r, 'a> {
        let room = self.room;
        room.exemplars.iter().map(|slot| ExemplarSample {
            labels: room.exemplar_labels.get(slot.labels.clone()).unwrap_or_default(),
            value: slot.value,
            timestamp_ms: slot.timestamp_ms,
        })
    }
}

impl<'a> Metadata<'a> {
    /// The metadata of a series. Texts may be empty.
    pub fn new(series_type: SeriesType, help: &'a str, unit: &'a str) -> Self {
        Self { series_type, help, unit }
    }
}

impl<'a> FamilyMetadata<'a> {
    /// The metadata of a family.
    pub fn new(name: &'a str, metadata: Metadata<'a>) -> Self {
        Self { name, metadata }
    }
}

impl<'r, 'a> ExemplarSample<'r, 'a> {
    /// An exemplar with these labels.
    pub fn new(labels: &'r [Label<'a>], value: f64, timestamp_ms: i64) -> Self {
        Self { labels, value, timestamp_ms }
    }
}

impl Sample {
    /// A value at a time.
    pub fn new(value: f64, timestamp_ms: i64, start_ms: Option<i64>) -> Self {
        Self { value, timestamp_ms, start_ms }
    }

    /// A mark of the end of a series.
    pub fn stale(timestamp_ms: i64) -> Self {
        Self::new(f64::from_bits(STALE), timestamp_ms, None)
    }

    /// Whether it marks the end of its series.
    pub fn is_stale(&self) -> bool {
        self.value.to_bits() == STALE
    }
}

impl fmt::Display for LabelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LabelFault::Missing => "a series needs labels",
            LabelFault::Unnamed => "a label has no name",
            LabelFault::Duplicate => "a name of a label appears twice",
        })
    }
}

impl core::error::Error for LabelFault {}

/// What was read of a series. Its vectors are reused for the next one.
#[derive(Debug, Default)]
struct Room<'a> {
    labels: Vec<Label<'a>>,
    encoded: Option<&'a [u8]>,
    /// Labels of remote write 2.0 as 1.0 has them.
    bytes: Vec<u8>,
    fault: Option<LabelFault>,
    samples: Vec<Sample>,
    histograms: Histograms,
    exemplars: Vec<ExemplarSlot>,
    exemplar_labels: Vec<Label<'a>>,
}

#[derive(Debug, Default)]
struct ExemplarSlot {
    labels: Range<usize>,
    value: f64,
    timestamp_ms: i64,
}

impl<'a> Room<'a> {
    fn clear(&mut self) {
        self.labels.clear();
        self.samples.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.exemplar_labels.clear();
    }

    fn series(&self, metadata: Metadata<'a>) -> Series<'_, 'a> {
        let Room { labels, encoded, fault, samples, .. } = self;
        Series { labels, fault: *fault, samples, metadata, encoded: *encoded, room: self }
    }

    fn read_1(&mut self, input: &mut Reader<'a>) -> Result<(), Fault> {
        self.clear();
        let bytes = input.rest();
        // Where the labels at the beginning end; `None` if some come later.
        let (mut labels_end, mut has_others) = (Some(0), false);
        each_field(input, |tag, input| {
            has_others |= tag != 0x0a;
            match tag {
                0x0a => {
                    let label = nested(input, label)?;
                    labels_end = (!has_others).then(|| bytes.len() - input.len());
                    push(&mut self.labels, label, MOST_LABELS)
                }
                0x12 => self.read_sample(input),
                0x1a => self.read_exemplar(input, |labels, tag, input| match tag {
                    0x0a => {
                        let label = nested(input, label)?;
                        push(labels, label, MOST_EXEMPLARS)
                    }
                    tag => skip_unknown(input, tag, 0b1110),
                }),
                0x22 => nested(input, |input| self.histograms.read(input)),
                tag => skip_unknown(input, tag, 0b11110),
            }
        })?;
        self.encoded = labels_end.and_then(|end| bytes.get(..end));
        self.sort_labels();
        Ok(())
    }

    /// Reads the samples of a series whose labels the caller knows. `None` if it does not, or if
    /// the series has anything else: then the whole of it is to be read.
    fn read_known_1(
        &mut self,
        input: &mut Reader<'a>,
        find: impl FnOnce(&[u8]) -> Option<(usize, u32)>,
    ) -> Option<(u32, Metadata<'a>)> {
        if !input.skip_literal(&[0x0a]) {
            return None;
        }
        let body = bytes(input).ok()?;
        let (labels, series) = find(body)?;
        let mut rest = Reader::new(body.get(labels..)?);
        self.clear();
        while !rest.is_empty() {
            if !rest.skip_literal(&[0x12]) {
                return None;
            }
            self.read_sample(&mut rest).ok()?;
        }
        Some((series, Metadata::default()))
    }

    /// As [`Room::read_known_1`], with the metadata.
    fn read_known_2(
        &mut self,
        input: &mut Reader<'a>,
        symbols: &[&'a str],
        find: impl FnOnce(&[u8]) -> Option<(usize, u32)>,
    ) -> Option<(u32, Metadata<'a>)> {
        if !input.skip_literal(&[0x2a]) {
            return None;
        }
        let mut rest = Reader::new(bytes(input).ok()?);
        if !rest.skip_literal(&[0x0a]) {
            return None;
        }
        let mut numbers = Reader::new(bytes(&mut rest).ok()?);
        self.bytes.clear();
        while !numbers.is_empty() {
            let name = symbol(&mut numbers, symbols).ok()?;
            encode_label((name, symbol(&mut numbers, symbols).ok()?), &mut self.bytes)?;
        }
        let (_, series) = find(&self.bytes).filter(|(labels, _)| *labels == self.bytes.len())?;
        self.clear();
        let mut metadata = Metadata::default();
        while !rest.is_empty() {
            if rest.skip_literal(&[0x12]) {
                self.read_sample(&mut rest).ok()?;
            } else if rest.skip_literal(&[0x2a]) {
                let read = |input: &mut Reader<'a>| read_metadata(&mut metadata, input, symbols);
                nested(&mut rest, read).ok()?;
            } else {
                return None;
            }
        }
        Some((series, metadata))
    }

    fn read_2(
        &mut self,
        input: &mut Reader<'a>,
        symbols: &[&'a str],
    ) -> Result<Metadata<'a>, Fault> {
        self.clear();
        self.encoded = None;
        let mut metadata = Metadata::default();
        let mut created_ms = 0;
        let mut name = None;
        each_field(input, |tag, input| match tag {
            0x08 => add_number(&mut self.labels, &mut name, input, symbols),
            0x0a => nested(input, |input| {
                while !input.is_empty() {
                    add_number(&mut self.labels, &mut name, input, symbols)?;
                }
                Ok(())
            }),
            0x12 => self.read_sample(input),
            0x1a => nested(input, |input| self.histograms.read(input)),
            0x22 => {
                let mut name = None;
                self.read_exemplar(input, |labels, tag, input| match tag {
                    0x08 => add_number(labels, &mut name, input, symbols),
                    0x0a => nested(input, |input| {
                        while !input.is_empty() {
                            add_number(labels, &mut name, input, symbols)?;
                        }
                        Ok(())
                    }),
                    tag => skip_unknown(input, tag, 0b1110),
                })?;
                match name {
                    Some(_) => Err(UNPAIRED),
                    None => Ok(()),
                }
            }
            0x2a => nested(input, |input| read_metadata(&mut metadata, input, symbols)),
            0x30 => input.varint("a time").map(|time| created_ms = time.cast_signed()),
            tag => skip_unknown(input, tag, 0b1111110),
        })?;
        if name.is_some() {
            return Err(UNPAIRED);
        }
        if created_ms != 0 {
            for sample in &mut self.samples {
                sample.start_ms = sample.start_ms.or(Some(created_ms));
            }
            self.histograms.set_start(created_ms);
        }
        self.sort_labels();
        Ok(metadata)
    }

    fn read_sample(&mut self, input: &mut Reader<'_>) -> Result<(), Fault> {
        let sample = nested(input, sample)?;
        push(&mut self.samples, sample, MOST_SAMPLES)
    }

    /// Reads an exemplar. The function reads its fields of labels.
    fn read_exemplar(
        &mut self,
        input: &mut Reader<'a>,
        mut labels: impl FnMut(&mut Vec<Label<'a>>, u64, &mut Reader<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.exemplar_labels.len();
        let mut slot = ExemplarSlot::default();
        nested(input, |input| {
            each_field(input, |tag, input| match tag {
                0x11 => double(input).map(|value| slot.value = value),
                0x18 => input.varint("a time").map(|time| slot.timestamp_ms = time.cast_signed()),
                tag => labels(&mut self.exemplar_labels, tag, input),
            })
        })?;
        slot.labels = start..self.exemplar_labels.len();
        push(&mut self.exemplars, slot, MOST_EXEMPLARS)
    }

    fn sort_labels(&mut self) {
        let is_sorted = |labels: &[Label<'_>]| labels.windows(2).all(|pair| pair[0].0 < pair[1].0);
        self.fault = None;
        let mut has_all = is_sorted(&self.labels);
        if !has_all {
            self.labels.sort_unstable();
            has_all = is_sorted(&self.labels);
        }
        if !has_all {
            self.fault = Some(LabelFault::Duplicate);
        }
        match self.labels.first() {
            None => self.fault = Some(LabelFault::Missing),
            Some(("", _)) => self.fault = Some(LabelFault::Unnamed),
            Some(_) => {}
        }
    }
}

/// Appends labels as series of remote write 1.0 have them. `None` if one has more than 123 bytes.
pub fn encode_labels(labels: &[Label<'_>], out: &mut Vec<u8>) -> Option<()> {
    labels.iter().try_for_each(|label| encode_label(*label, out))
}

fn encode_label((name, value): Label<'_>, out: &mut Vec<u8>) -> Option<()> {
    let length = u8::try_from(4 + name.len() + value.len()).ok().filter(|len| *len < 0x80)?;
    // Both are shorter.
    out.extend_from_slice(&[0x0a, length, 0x0a, name.len() as u8]);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&[0x12, value.len() as u8]);
    out.extend_from_slice(value.as_bytes());
    Some(())
}

fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> Result<(), Fault> {
    if list.len() >= most {
        return Err(Fault::too_large("a series with fewer labels, samples or exemplars"));
    }
    list.push(item);
    Ok(())
}

/// Adds the number of a name, or that of the value after it.
fn add_number<'a>(
    labels: &mut Vec<Label<'a>>,
    name: &mut Option<&'a str>,
    input: &mut Reader<'a>,
    symbols: &[&'a str],
) -> Result<(), Fault> {
    let text = symbol(input, symbols)?;
    match mem::take(name) {
        Some(name) => push(labels, (name, text), MOST_LABELS),
        None => {
            *name = Some(text);
            Ok(())
        }
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
    let before = *input;
    if let Some(sample) = plain_sample(input) {
        return Ok(sample);
    }
    *input = before;
    let mut sample = Sample::default();
    each_field(input, |tag, input| {
        match tag {
            0x09 => sample.value = double(input)?,
            0x10 => sample.timestamp_ms = input.varint("a time")?.cast_signed(),
            0x18 => {
                let start = input.varint("a time")?.cast_signed();
                sample.start_ms = (start != 0).then_some(start);
            }
            tag => skip_unknown(input, tag, 0b1110)?,
        }
        Ok(())
    })?;
    Ok(sample)
}

/// Reads a sample that is a value and a time, as most are.
#[inline(always)]
fn plain_sample(input: &mut Reader<'_>) -> Option<Sample> {
    let value = if input.skip_literal(&[0x09]) { double(input).ok()? } else { return None };
    let time =
        if input.skip_literal(&[0x10]) { input.varint("a time").ok()? } else { return None };
    let sample = Sample { value, timestamp_ms: time.cast_signed(), start_ms: None };
    input.is_empty().then_some(sample)
}

/// Reads a `MetricMetadata` of remote write 1.0.
fn family<'a>(input: &mut Reader<'a>) -> Result<FamilyMetadata<'a>, Fault> {
    let mut family = FamilyMetadata { name: "", metadata: Metadata::default() };
    each_field(input, |tag, input| {
        match tag {
            0x08 => family.metadata.series_type = SeriesType::from_number(input.varint("a type")?),
            0x12 => family.name = text(input)?,
            0x22 => family.metadata.help = text(input)?,
            0x2a => family.metadata.unit = text(input)?,
            tag => skip_unknown(input, tag, 0b110110)?,
        }
        Ok(())
    })?;
    Ok(family)
}

fn read_metadata<'a>(
    metadata: &mut Metadata<'a>,
    input: &mut Reader<'a>,
    symbols: &[&'a str],
) -> Result<(), Fault> {
    each_field(input, |tag, input| {
        match tag {
            0x08 => metadata.series_type = SeriesType::from_number(input.varint("a type")?),
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
    fn from_number(number: u64) -> SeriesType {
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
