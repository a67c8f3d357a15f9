//! Writes Prometheus remote write: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! ```text
//! message WriteRequest   { repeated TimeSeries timeseries = 1;
//!                          repeated MetricMetadata metadata = 3; }                        // 1.0
//! message TimeSeries     { repeated Label labels = 1; repeated Sample samples = 2;
//!                          repeated Exemplar exemplars = 3; repeated Histogram histograms = 4; }
//! message Label          { string name = 1; string value = 2; }
//! message Sample         { double value = 1; int64 timestamp = 2; }
//! message Exemplar       { repeated Label labels = 1; double value = 2; int64 timestamp = 3; }
//! message MetricMetadata { MetricType type = 1; string metric_family_name = 2; string help = 4;
//!                          string unit = 5; }
//!
//! message Request        { repeated string symbols = 4;
//!                          repeated TimeSeries timeseries = 5; }                          // 2.0
//! message TimeSeries     { repeated uint32 labels_refs = 1; repeated Sample samples = 2;
//!                          repeated Histogram histograms = 3; repeated Exemplar exemplars = 4;
//!                          Metadata metadata = 5; int64 created_timestamp = 6; }
//! message Sample         { double value = 1; int64 timestamp = 2; int64 start_timestamp = 3; }
//! message Exemplar       { repeated uint32 labels_refs = 1; double value = 2; int64 timestamp = 3; }
//! message Metadata       { MetricType type = 1; uint32 help_ref = 3; uint32 unit_ref = 4; }
//! ```
//!
//! In a request, each sample is written as a separate series, because servers merge them anyway. A
//! start time is written in the sample, and again in field 6 for receivers that are older than the
//! release of 2.0.

use alloc::format;
use alloc::vec::Vec;
use core::mem;

use super::histogram::HistogramSample;
use super::reader::{ExemplarSample, FamilyMetadata, Metadata, Sample, SeriesType};
use super::symbols::Symbols;
use crate::error::{Error, Fault};
use crate::message::{BatchTimer, Counter, Gauge, Message};
use crate::pieces::{Byte, Bytes, Each, LeDouble, Piece, Varint, append};
use crate::remote::fields::{field_len, varint_len};
use crate::remote::labels::{self, Label, NAME};

/// A remote write 1.0 request, `prometheus.WriteRequest`. Compress it with Snappy and send it as
/// `application/x-protobuf`, with the header `X-Prometheus-Remote-Write-Version: 0.1.0`.
#[derive(Debug, Default)]
pub struct RemoteWrite1 {
    series: Vec<u8>,
    /// An encoded histogram.
    histogram: Vec<u8>,
    /// The encoded exemplars of the next series.
    exemplars: Vec<u8>,
}

/// A remote write 2.0 request, `io.prometheus.write.v2.Request`, which contains each string once.
/// Compress it with Snappy and send it as
/// `application/x-protobuf;proto=io.prometheus.write.v2.Request`, with the header
/// `X-Prometheus-Remote-Write-Version: 2.0.0`.
#[derive(Debug, Default)]
pub struct RemoteWrite2 {
    symbols: Symbols,
    series: Vec<u8>,
    /// The symbol numbers of the last series' labels, by position. They are kept because the next
    /// series often uses the same names.
    labels: Vec<[u32; 2]>,
    /// How many of these labels the last series in the request used; 0 before the first.
    count: usize,
    /// The symbol numbers of the last description and unit.
    known: [u32; 2],
    /// An encoded histogram.
    histogram: Vec<u8>,
    /// The encoded exemplars of the next series.
    exemplars: Vec<u8>,
}

impl RemoteWrite1 {
    const NAME: &str = "remote-write-1";

    /// Creates a request without samples.
    pub fn new() -> RemoteWrite1 {
        RemoteWrite1::default()
    }

    /// Adds a sample. The label `__name__` contains the metric's name. You can pass the labels in
    /// any order; labels with an empty value are omitted. The time is in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// When there are no labels, or when a label lacks a name or appears twice. The request is then
    /// unchanged.
    pub fn push(
        &mut self,
        labels: &[Label<'_>],
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.add(labels, value, timestamp_ms).map_err(|fault| Error::writing(Self::NAME, fault))
    }

    /// Adds a native histogram. Its start time is omitted, because version 1.0 cannot express it.
    ///
    /// # Errors
    ///
    /// Fails like [`RemoteWrite1::push`].
    pub fn push_histogram(
        &mut self,
        labels: &[Label<'_>],
        histogram: &HistogramSample<'_>,
    ) -> Result<(), Error> {
        let mut bytes = mem::take(&mut self.histogram);
        bytes.clear();
        histogram.encode(false, &mut bytes);
        let exemplars = mem::take(&mut self.exemplars);
        let field = (Byte(0x22), Varint(bytes.len() as u64), Bytes(&bytes));
        let len = exemplars.len() + field_len(bytes.len());
        let added = self.add_series(labels, (Bytes(&exemplars), field), len);
        (self.histogram, self.exemplars) = (bytes, emptied(exemplars));
        added.map_err(|fault| Error::writing(Self::NAME, fault))
    }

    /// Attaches an exemplar to the next sample or histogram, and only to this one. If adding that
    /// sample fails, the exemplar is dropped.
    ///
    /// # Errors
    ///
    /// None. The signature is the same as in version 2.0, whose requests can be full.
    pub fn push_exemplar(&mut self, exemplar: &ExemplarSample<'_, '_>) -> Result<(), Error> {
        let ExemplarSample { labels, value, timestamp_ms } = *exemplar;
        let labels_len: usize = labels.iter().map(|label| field_len(label_len(label))).sum();
        let len = labels_len + sample_len(value, timestamp_ms, 0);
        append(&mut self.exemplars, (Byte(0x1a), Varint(len as u64)));
        labels.iter().for_each(|label| put_label(&mut self.exemplars, label));
        append(&mut self.exemplars, observed(value, timestamp_ms));
        Ok(())
    }

    /// Adds the metadata of a family.
    pub fn push_family(&mut self, family: &FamilyMetadata<'_>) {
        let Metadata { series_type, help, unit } = family.metadata;
        let optional = |tag, value| (!str::is_empty(value)).then(|| text(tag, value));
        let optional_len = |value: &str| if value.is_empty() { 0 } else { field_len(value.len()) };
        let len = 2 + field_len(family.name.len()) + optional_len(help) + optional_len(unit);
        append(
            &mut self.series,
            (
                Byte(0x1a),
                Varint(len as u64),
                Byte(0x08),
                Byte(series_type as u8),
                text(0x12, family.name),
                optional(0x22, help),
                optional(0x2a, unit),
            ),
        );
    }

    fn add(&mut self, labels: &[Label<'_>], value: f64, timestamp_ms: i64) -> Result<(), Fault> {
        let exemplars = mem::take(&mut self.exemplars);
        let len = field_len(sample_len(value, timestamp_ms, 0)) + exemplars.len();
        let field = (sample(value, timestamp_ms, 0), Bytes(&exemplars));
        let added = self.add_series(labels, field, len);
        self.exemplars = emptied(exemplars);
        added
    }

    /// Adds a series that contains a field of this length.
    fn add_series(
        &mut self,
        labels: &[Label<'_>],
        field: impl Piece,
        len: usize,
    ) -> Result<(), Fault> {
        let mut room = Vec::new();
        let labels = labels::canonical(labels, &mut room)?;
        let labels_len: usize = labels.iter().map(|label| field_len(label_len(label))).sum();
        append(&mut self.series, (Byte(0x0a), Varint((labels_len + len) as u64)));
        labels.iter().for_each(|label| put_label(&mut self.series, label));
        append(&mut self.series, field);
        Ok(())
    }

    fn add_metric(
        &mut self,
        labels: &[Label<'_>],
        _: SeriesType,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        self.add(labels, value, timestamp_ms)
    }

    /// Returns the number of bytes in the request.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Appends the request to `out` and begins the next one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.series);
        self.series.clear();
        self.exemplars.clear();
    }
}

impl RemoteWrite2 {
    const NAME: &str = "remote-write-2";

    /// Creates a request without samples.
    pub fn new() -> RemoteWrite2 {
        RemoteWrite2::default()
    }

    /// Adds a sample of a series of unknown type; see [`RemoteWrite1::push`].
    ///
    /// # Errors
    ///
    /// Fails like [`RemoteWrite1::push`].
    pub fn push(
        &mut self,
        labels: &[Label<'_>],
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.push_typed(labels, SeriesType::Unknown, value, timestamp_ms)
    }

    /// Adds a sample with the type of its series.
    ///
    /// # Errors
    ///
    /// Fails like [`RemoteWrite1::push`].
    pub fn push_typed(
        &mut self,
        labels: &[Label<'_>],
        series_type: SeriesType,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.add_metric(labels, series_type, value, timestamp_ms)
            .map_err(|fault| Error::writing(Self::NAME, fault))
    }

    /// Adds a sample with the metadata of its series; see [`RemoteWrite1::push`].
    ///
    /// # Errors
    ///
    /// Fails like [`RemoteWrite1::push`].
    pub fn push_sample(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        sample: &Sample,
    ) -> Result<(), Error> {
        self.add(labels, metadata, sample).map_err(|fault| Error::writing(Self::NAME, fault))
    }

    /// Adds a native histogram with the metadata of its series.
    ///
    /// # Errors
    ///
    /// Fails like [`RemoteWrite1::push`].
    pub fn push_histogram(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        histogram: &HistogramSample<'_>,
    ) -> Result<(), Error> {
        let mut bytes = mem::take(&mut self.histogram);
        bytes.clear();
        histogram.encode(true, &mut bytes);
        let exemplars = mem::take(&mut self.exemplars);
        let field = (Byte(0x1a), Varint(bytes.len() as u64), Bytes(&bytes));
        let len = field_len(bytes.len()) + exemplars.len();
        let field = (field, Bytes(&exemplars));
        let added = self.add_series(labels, metadata, histogram.start_ms, field, len);
        (self.histogram, self.exemplars) = (bytes, emptied(exemplars));
        added.map_err(|fault| Error::writing(Self::NAME, fault))
    }

    /// Attaches an exemplar to the next sample or histogram, and only to this one. If adding that
    /// sample fails, the exemplar is dropped.
    ///
    /// # Errors
    ///
    /// When the request already contains 2^32 strings. Then no exemplar is attached.
    pub fn push_exemplar(&mut self, exemplar: &ExemplarSample<'_, '_>) -> Result<(), Error> {
        let ExemplarSample { labels, value, timestamp_ms } = *exemplar;
        let mut numbers = Vec::new();
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            let number = self.symbols.number(text, &mut 0);
            let number = number.map_err(|fault| Error::writing(Self::NAME, fault))?;
            append(&mut numbers, Varint(number.into()));
        }
        let numbers_len = if numbers.is_empty() { 0 } else { field_len(numbers.len()) };
        let numbers = (numbers_len > 0).then_some((
            Byte(0x0a),
            Varint(numbers.len() as u64),
            Bytes(&numbers),
        ));
        let len = numbers_len + sample_len(value, timestamp_ms, 0);
        let exemplar = (Byte(0x22), Varint(len as u64), numbers, observed(value, timestamp_ms));
        append(&mut self.exemplars, exemplar);
        Ok(())
    }

    fn add_metric(
        &mut self,
        labels: &[Label<'_>],
        series_type: SeriesType,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        let metadata = Metadata { series_type, ..Metadata::default() };
        self.add(labels, &metadata, &Sample { value, timestamp_ms, start_ms: None })
    }

    fn add(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        of: &Sample,
    ) -> Result<(), Fault> {
        let start_ms = of.start_ms.unwrap_or(0);
        let exemplars = mem::take(&mut self.exemplars);
        let len = field_len(sample_len(of.value, of.timestamp_ms, start_ms)) + exemplars.len();
        let field = (sample(of.value, of.timestamp_ms, start_ms), Bytes(&exemplars));
        let added = self.add_series(labels, metadata, of.start_ms, field, len);
        self.exemplars = emptied(exemplars);
        added
    }

    /// Adds a series that contains a field of this length.
    fn add_series(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        start_ms: Option<i64>,
        field: impl Piece,
        len: usize,
    ) -> Result<(), Fault> {
        let mut room = Vec::new();
        let is_like_last = self.has_names_of_last(labels);
        let labels = if is_like_last { labels } else { labels::canonical(labels, &mut room)? };
        let RemoteWrite2 { symbols, series, labels: numbers, count, known, .. } = self;
        *count = 0;
        if numbers.len() < labels.len() {
            numbers.resize(labels.len(), [0; 2]);
        }
        let numbers = &mut numbers[..labels.len()];
        let mut numbers_len = 0;
        for ((name, value), [name_number, value_number]) in labels.iter().zip(&mut *numbers) {
            if !is_like_last {
                symbols.number(name, name_number)?;
            }
            symbols.number(value, value_number)?;
            numbers_len += varint_len((*name_number).into()) + varint_len((*value_number).into());
        }
        // Numbers that are 0 are omitted.
        let number = |tag, number: u64| (number != 0).then_some((Byte(tag), Varint(number)));
        let number_len = |number: u64| if number == 0 { 0 } else { 1 + varint_len(number) };
        let [help, unit] = known;
        let known = [
            metadata.series_type as u64,
            symbols.number(metadata.help, help)?.into(),
            symbols.number(metadata.unit, unit)?.into(),
        ];
        let known_len: usize = known.iter().map(|known| number_len(*known)).sum();
        let [series_type, help, unit] = known;
        let metadata = (known_len > 0).then_some((
            Byte(0x2a),
            // Fits into a byte: three 32-bit numbers take less than 128 bytes.
            Byte(known_len as u8),
            number(0x08, series_type),
            number(0x18, help),
            number(0x20, unit),
        ));
        let metadata_len = if known_len > 0 { 2 + known_len } else { 0 };
        // A time before 1970 is written as well.
        let start = start_ms.unwrap_or(0).cast_unsigned();
        let len = field_len(numbers_len) + len + metadata_len + number_len(start);
        let pair = |[name, value]: [u32; 2]| (Varint(name.into()), Varint(value.into()));
        let numbers = (Byte(0x0a), Varint(numbers_len as u64), Each(numbers, pair));
        append(
            series,
            (Byte(0x2a), Varint(len as u64), numbers, field, metadata, number(0x30, start)),
        );
        *count = labels.len();
        Ok(())
    }

    /// Returns whether the labels have the same names as the last series, which are sorted, and no
    /// value is empty.
    fn has_names_of_last(&self, labels: &[Label<'_>]) -> bool {
        let mut both = labels.iter().zip(&self.labels);
        labels.len() == self.count
            && self.count > 0
            && both.all(|((name, value), number)| {
                !value.is_empty() && self.symbols.is(number[0], name)
            })
    }

    /// Returns the approximate number of bytes in the request.
    pub fn len(&self) -> usize {
        self.symbols.len() + self.series.len()
    }

    /// Appends the request to `out` and begins the next one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.symbols.write(out);
        out.extend_from_slice(&self.series);
        self.symbols.clear();
        self.series.clear();
        self.count = 0;
        self.exemplars.clear();
    }
}

macro_rules! messages {
    ($($request:ident),*) => {$(
        impl $request {
            /// Adds the samples of a message, converted as in the table of [`remote`](super).
            ///
            /// # Errors
            ///
            /// When the id is empty or not UTF-8, or when a union is not a single metric. The
            /// request is then unchanged.
            pub fn append(
                &mut self,
                message: &Message<'_>,
                timestamp_ms: i64,
            ) -> Result<(), Error> {
                let start = self.series.len();
                self.add_message(message, timestamp_ms).map_err(|fault| {
                    self.series.truncate(start);
                    Error::writing(Self::NAME, fault)
                })
            }

            fn add_message(
                &mut self,
                message: &Message<'_>,
                timestamp_ms: i64,
            ) -> Result<(), Fault> {
                let message = labels::metric(message)?;
                let mut labels = labels::of_id(message.id())?;
                match message {
                    Message::Counter(Counter { value, .. }) => {
                        self.add_metric(&labels, SeriesType::Counter, value as f64, timestamp_ms)
                    }
                    Message::Gauge(Gauge { value, .. }) => {
                        self.add_metric(&labels, SeriesType::Gauge, value, timestamp_ms)
                    }
                    Message::BatchTimer(BatchTimer { values, .. }) => {
                        let name = labels.iter().position(|label| label.0 == NAME).unwrap_or(0);
                        let metric = labels[name].1;
                        let sum = format!("{metric}_sum");
                        labels[name].1 = &sum;
                        let total = labels::sum(values);
                        self.add_metric(&labels, SeriesType::Gauge, total, timestamp_ms)?;
                        let count = format!("{metric}_count");
                        let mut labels = labels.clone();
                        labels[name].1 = &count;
                        let count = values.len() as f64;
                        self.add_metric(&labels, SeriesType::Gauge, count, timestamp_ms)
                    }
                    Message::MetricUnion(_) => Ok(()),
                }
            }

            /// Returns whether the request contains no samples.
            pub fn is_empty(&self) -> bool {
                self.series.is_empty()
            }
        }
    )*};
}

messages!(RemoteWrite1, RemoteWrite2);

fn text(field: u8, text: &str) -> impl Piece + '_ {
    (Byte(field), Varint(text.len() as u64), Bytes(text.as_bytes()))
}

fn label_len((name, value): &Label<'_>) -> usize {
    field_len(name.len()) + field_len(value.len())
}

/// Appends a label with the encoding of remote write 1.0.
fn put_label(out: &mut Vec<u8>, label: &Label<'_>) {
    let (name, value) = *label;
    let len = Varint(label_len(label) as u64);
    append(out, (Byte(0x0a), len, text(0x0a, name), text(0x12, value)));
}

/// Returns the allocation of these bytes, emptied.
fn emptied(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

/// Returns the value and the time of an exemplar. They are as long as a sample without a start.
fn observed(value: f64, timestamp_ms: i64) -> impl Piece {
    (
        (value.to_bits() != 0).then_some((Byte(0x11), LeDouble(value))),
        (timestamp_ms != 0).then_some((Byte(0x18), Varint(timestamp_ms.cast_unsigned()))),
    )
}

fn sample_len(value: f64, timestamp_ms: i64, start_ms: i64) -> usize {
    let value = if value.to_bits() == 0 { 0 } else { 9 };
    let time = |time: i64| if time == 0 { 0 } else { 1 + varint_len(time.cast_unsigned()) };
    value + time(timestamp_ms) + time(start_ms)
}

fn sample(value: f64, timestamp_ms: i64, start_ms: i64) -> impl Piece {
    let time = |tag, time: i64| (time != 0).then_some((Byte(tag), Varint(time.cast_unsigned())));
    (
        Byte(0x12),
        Byte(sample_len(value, timestamp_ms, start_ms) as u8),
        (value.to_bits() != 0).then_some((Byte(0x09), LeDouble(value))),
        time(0x10, timestamp_ms),
        time(0x18, start_ms),
    )
}
