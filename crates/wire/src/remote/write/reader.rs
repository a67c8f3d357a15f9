//! Reads Prometheus remote write. `requests.rs` shows the layout. The reader also supports these
//! fields:
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
//! Field 6 is older than the release of 2.0. In the released version, each sample contains its own
//! start.

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

/// The version of a remote write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteVersion {
    /// 1.0, `prometheus.WriteRequest`.
    One,
    /// 2.0, `io.prometheus.write.v2.Request`.
    Two,
}

/// Reads an uncompressed remote write request, one series after another. Strings borrow from the
/// request.
///
/// The memory is proportional to the request, but can be many times as large. These limits hold: at
/// most 2^20 strings in the symbol table, and in a series at most 2^12 labels, 2^16 samples,
/// histograms and exemplars, and 2^20 buckets and bounds.
#[derive(Debug)]
pub struct WriteReader<'a> {
    version: WriteVersion,
    input: Reader<'a>,
    symbols: Vec<&'a str>,
    room: Room<'a>,
    /// The input before the series that the last [`WriteReader::next_known`] returned.
    known: Option<Reader<'a>>,
    has_ended: bool,
}

/// An item of a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Entry<'r, 'a> {
    /// A series with its samples.
    Series(Series<'r, 'a>),
    /// The samples of a series that the caller recognized; see [`WriteReader::next_known`].
    #[doc(hidden)]
    Known {
        /// The caller's number of the series.
        series: u32,
        /// The samples in the order of the request.
        samples: &'r [Sample],
        /// The metadata, present only in remote write 2.0.
        metadata: Metadata<'a>,
    },
    /// The metadata of a family, in remote write 1.0.
    Family(FamilyMetadata<'a>),
    /// A thousand fields were skipped. You can do other work before the next call, because a
    /// request can contain millions of such fields.
    #[doc(hidden)]
    Skipped,
}

/// A series of a request with its samples.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Series<'r, 'a> {
    /// The labels sorted by name. `__name__` contains the metric's name.
    pub labels: &'r [Label<'a>],
    /// The fault in the labels, if they do not identify a series.
    pub fault: Option<LabelFault>,
    /// The samples in the order of the request.
    pub samples: &'r [Sample],
    /// The metadata, present only in remote write 2.0.
    pub metadata: Metadata<'a>,
    /// The bytes of the labels, if this is remote write 1.0 and all labels precede the other
    /// fields. You can use this as the key of a cache, because a sender writes a series the same
    /// way each time. For 2.0, [`encode_labels`] returns the same bytes.
    pub encoded: Option<&'a [u8]>,
    room: &'r Room<'a>,
}

/// The reason why labels do not identify a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LabelFault {
    /// The series has no labels.
    Missing,
    /// A label lacks a name.
    Unnamed,
    /// A label name appears twice.
    Duplicate,
}

/// A value with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The value. The NaN with the bits 0x7ff0000000000002 marks the end of the series.
    pub value: f64,
    /// The time in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The time when counting began, in milliseconds since 1970, if it is known.
    pub start_ms: Option<i64>,
}

/// An example of the events that a series counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExemplarSample<'r, 'a> {
    /// The labels in the order of the request.
    pub labels: &'r [Label<'a>],
    /// The value of the event.
    pub value: f64,
    /// The time of the event in milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// The metadata of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyMetadata<'a> {
    /// The name of the family. The names of its series can add a suffix such as `_bucket`.
    pub name: &'a str,
    /// The metadata.
    pub metadata: Metadata<'a>,
}

/// The metadata of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata<'a> {
    /// The type.
    pub series_type: SeriesType,
    /// The description.
    pub help: &'a str,
    /// The unit of the values.
    pub unit: &'a str,
}

/// The type of a series. The numbers are defined by remote write 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SeriesType {
    /// Unknown.
    #[default]
    Unknown = 0,
    /// A value that only grows.
    Counter = 1,
    /// A value that rises and falls.
    Gauge = 2,
    /// A part of a histogram.
    Histogram = 3,
    /// A part of a gauge histogram.
    GaugeHistogram = 4,
    /// A part of a summary.
    Summary = 5,
    /// Facts in labels.
    Info = 6,
    /// A choice among several states.
    StateSet = 7,
}

/// The bits of the NaN that marks the end of a series.
pub(super) const STALE: u64 = 0x7ff0_0000_0000_0002;

const UNPAIRED: Fault = Fault::malformed("a value after the name of a label");

const MOST_SYMBOLS: usize = 1 << 20;
const MOST_LABELS: usize = 1 << 12;
const MOST_SAMPLES: usize = 1 << 16;
const MOST_EXEMPLARS: usize = 1 << 16;
/// The maximum number of fields to skip in one call.
const MOST_SKIPPED: usize = 1000;

impl<'a> WriteReader<'a> {
    /// Creates a reader at the beginning of a request. In version 2.0, this reads the symbol table.
    ///
    /// # Errors
    ///
    /// When the symbol table cannot be read.
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

    /// Returns the next series or family. After an error, there are no more.
    ///
    /// # Errors
    ///
    /// When the request is malformed. This does not include labels that do not identify a series
    /// and inconsistent histograms: these are reported in their places.
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

    /// Works like [`WriteReader::next`], but skips the parsing of labels for series that the caller
    /// recognizes.
    ///
    /// `find` receives the encoded bytes of a series in remote write 1.0; for 2.0, the labels are
    /// converted to this form first. If the bytes begin with the labels of a known series, as in
    /// [`Series::encoded`], return the length of these labels in bytes, and your number of the
    /// series. If the series contains further labels, or anything but samples and metadata, it is
    /// parsed as usual.
    ///
    /// # Errors
    ///
    /// Fails like [`WriteReader::next`].
    #[doc(hidden)]
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

    /// Reads the series of the last [`WriteReader::next_known`] again, this time with its labels.
    ///
    /// # Errors
    ///
    /// Fails like [`WriteReader::next`].
    #[doc(hidden)]
    pub fn reread(&mut self) -> Option<Result<Entry<'_, 'a>, Error>> {
        if let Some(before) = self.known.take() {
            self.input = before;
        }
        self.next()
    }

    /// Returns how many bytes of the request were read.
    pub fn position(&self) -> usize {
        self.input.position()
    }

    /// Reads the symbol table, which may follow the series.
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
    /// A series. Its contents are in the room.
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
    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1)
    }

    /// Returns the native histograms in the order of the request.
    pub fn histograms(
        &self,
    ) -> impl Iterator<Item = Result<HistogramSample<'r>, HistogramFault>> + use<'r, 'a> {
        let histograms = &self.room.histograms;
        (0..histograms.len()).filter_map(|index| histograms.get(index))
    }

    /// Returns the exemplars in the order of the request.
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
    /// Creates the metadata of a series. The strings can be empty.
    pub fn new(series_type: SeriesType, help: &'a str, unit: &'a str) -> Self {
        Self { series_type, help, unit }
    }
}

impl<'a> FamilyMetadata<'a> {
    /// Creates the metadata of a family.
    pub fn new(name: &'a str, metadata: Metadata<'a>) -> Self {
        Self { name, metadata }
    }
}

impl<'r, 'a> ExemplarSample<'r, 'a> {
    /// Creates an exemplar with these labels.
    pub fn new(labels: &'r [Label<'a>], value: f64, timestamp_ms: i64) -> Self {
        Self { labels, value, timestamp_ms }
    }
}

impl Sample {
    /// Creates a sample.
    pub fn new(value: f64, timestamp_ms: i64, start_ms: Option<i64>) -> Self {
        Self { value, timestamp_ms, start_ms }
    }

    /// Creates a stale marker: it ends a series at this time.
    pub fn stale(timestamp_ms: i64) -> Self {
        Self::new(f64::from_bits(STALE), timestamp_ms, None)
    }

    /// Returns whether this marks the end of its series.
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

/// The contents of a series, in vectors that the next series reuses.
#[derive(Debug, Default)]
struct Room<'a> {
    labels: Vec<Label<'a>>,
    encoded: Option<&'a [u8]>,
    /// The labels of remote write 2.0, encoded as in 1.0.
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
        // The end of the labels at the beginning; `None` if more labels follow other fields.
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

    /// Reads the samples of a series that the caller recognizes. Returns `None` if it does not, or
    /// if the series contains any other field. Then the caller parses the complete series.
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

    /// Works like [`Room::read_known_1`], and also reads the metadata.
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
            0x08 | 0x0a => {
                let labels = (&mut self.labels, MOST_LABELS);
                add_numbers(tag, labels, &mut name, input, symbols)
            }
            0x12 => self.read_sample(input),
            0x1a => nested(input, |input| self.histograms.read(input)),
            0x22 => {
                let mut name = None;
                self.read_exemplar(input, |labels, tag, input| match tag {
                    // The labels of all exemplars of a series.
                    0x08 | 0x0a => {
                        add_numbers(tag, (labels, MOST_EXEMPLARS), &mut name, input, symbols)
                    }
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

    /// Reads an exemplar. `read_labels` reads the fields that contain labels.
    fn read_exemplar(
        &mut self,
        input: &mut Reader<'a>,
        mut read_labels: impl FnMut(&mut Vec<Label<'a>>, u64, &mut Reader<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.exemplar_labels.len();
        let mut slot = ExemplarSlot::default();
        nested(input, |input| {
            each_field(input, |tag, input| match tag {
                0x11 => double(input).map(|value| slot.value = value),
                0x18 => input.varint("a time").map(|time| slot.timestamp_ms = time.cast_signed()),
                tag => read_labels(&mut self.exemplar_labels, tag, input),
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

/// Appends labels with the encoding of remote write 1.0. Returns `None` if one is longer than 123
/// bytes.
#[doc(hidden)]
pub fn encode_labels(labels: &[Label<'_>], out: &mut Vec<u8>) -> Option<()> {
    labels.iter().try_for_each(|label| encode_label(*label, out))
}

fn encode_label((name, value): Label<'_>, out: &mut Vec<u8>) -> Option<()> {
    let length = u8::try_from(4 + name.len() + value.len()).ok().filter(|len| *len < 0x80)?;
    // Both lengths fit into one byte.
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

/// Adds the symbol numbers of a field to at most this number of labels: a single number, or several
/// in a packed field. They are the names and the values of labels by turns.
fn add_numbers<'a>(
    tag: u64,
    (labels, most): (&mut Vec<Label<'a>>, usize),
    name: &mut Option<&'a str>,
    input: &mut Reader<'a>,
    symbols: &[&'a str],
) -> Result<(), Fault> {
    let mut add = |input: &mut Reader<'a>| {
        let text = symbol(input, symbols)?;
        match mem::take(name) {
            Some(name) => push(labels, (name, text), most),
            None => {
                *name = Some(text);
                Ok(())
            }
        }
    };
    if tag == 0x08 {
        return add(input);
    }
    nested(input, |input| {
        while !input.is_empty() {
            add(input)?;
        }
        Ok(())
    })
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

/// Reads a sample that consists of a value and a time, like most samples.
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
