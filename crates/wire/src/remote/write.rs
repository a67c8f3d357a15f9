//! Writes Prometheus remote write: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.
//!
//! ```text
//! message WriteRequest { repeated TimeSeries timeseries = 1; }               // 1.0
//! message TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
//! message Label        { string name = 1; string value = 2; }
//! message Sample       { double value = 1; int64 timestamp = 2; }
//!
//! message Request      { repeated string symbols = 4; repeated TimeSeries timeseries = 5; } // 2.0
//! message TimeSeries   { repeated uint32 labels_refs = 1; repeated Sample samples = 2;
//!                        Metadata metadata = 5; }
//! message Metadata     { MetricType type = 1; uint32 help_ref = 3; uint32 unit_ref = 4; }
//! ```
//!
//! Each sample is a series of its own in the request; servers merge them.

use alloc::format;
use alloc::vec::Vec;

use super::fields::{field_len, varint_len};
use super::labels::{self, Label, NAME};
use super::symbols::Symbols;
use super::write_reader::SeriesType;
use crate::error::{Error, Fault};
use crate::message::{BatchTimer, Counter, Gauge, Message};
use crate::pieces::{Byte, Bytes, LeDouble, Piece, Varint, append};

/// A remote write 1.0 request, `prometheus.WriteRequest`. Send it as `application/x-protobuf`,
/// compressed with Snappy, with the header `X-Prometheus-Remote-Write-Version: 0.1.0`.
#[derive(Debug, Default)]
pub struct RemoteWrite1 {
    series: Vec<u8>,
}

/// A remote write 2.0 request, `io.prometheus.write.v2.Request`, which contains each text once.
/// Send it as `application/x-protobuf;proto=io.prometheus.write.v2.Request`, compressed with
/// Snappy, with the header `X-Prometheus-Remote-Write-Version: 2.0.0`.
#[derive(Debug, Default)]
pub struct RemoteWrite2 {
    symbols: Symbols,
    series: Vec<u8>,
    /// The encoded numbers of the labels of one series.
    numbers: Vec<u8>,
}

impl RemoteWrite1 {
    const NAME: &str = "remote-write-1";

    /// A request without samples.
    pub fn new() -> RemoteWrite1 {
        RemoteWrite1::default()
    }

    /// Adds a sample. The labels may be in any order; `__name__` is the metric's name, and labels
    /// without a value are left out. The time is in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// Without a label, and when a label has no name or appears twice. The request is then
    /// unchanged.
    pub fn push(
        &mut self,
        labels: &[Label<'_>],
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.add(labels, value, timestamp_ms).map_err(|fault| Error::writing(Self::NAME, fault))
    }

    fn add(&mut self, labels: &[Label<'_>], value: f64, timestamp_ms: i64) -> Result<(), Fault> {
        let mut room = Vec::new();
        let labels = labels::canonical(labels, &mut room)?;
        let label_len = |(name, value): &Label<'_>| field_len(name.len()) + field_len(value.len());
        let labels_len: usize = labels.iter().map(|label| field_len(label_len(label))).sum();
        let len = labels_len + field_len(sample_len(value, timestamp_ms));
        append(&mut self.series, (Byte(0x0a), Varint(len as u64)));
        for label in labels {
            let (name, value) = *label;
            let len = Varint(label_len(label) as u64);
            append(&mut self.series, (Byte(0x0a), len, text(0x0a, name), text(0x12, value)));
        }
        append(&mut self.series, sample(value, timestamp_ms));
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

    /// How many bytes the request has.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Appends the request, and begins the next.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.series);
        self.series.clear();
    }
}

impl RemoteWrite2 {
    const NAME: &str = "remote-write-2";

    /// A request without samples.
    pub fn new() -> RemoteWrite2 {
        RemoteWrite2::default()
    }

    /// Adds a sample of a series whose type is not known; see [`RemoteWrite1::push`].
    ///
    /// # Errors
    ///
    /// As [`RemoteWrite1::push`].
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
    /// As [`RemoteWrite1::push`].
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

    fn add_metric(
        &mut self,
        labels: &[Label<'_>],
        series_type: SeriesType,
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        let mut room = Vec::new();
        let labels = labels::canonical(labels, &mut room)?;
        self.numbers.clear();
        for (name, value) in labels {
            let (name, value) = (self.symbols.number(name)?, self.symbols.number(value)?);
            append(&mut self.numbers, (Varint(name.into()), Varint(value.into())));
        }
        let metadata = (series_type != SeriesType::Unknown).then_some((
            Byte(0x2a),
            Byte(2),
            Byte(0x08),
            Byte(series_type as u8),
        ));
        let len = field_len(self.numbers.len())
            + field_len(sample_len(value, timestamp_ms))
            + metadata.map_or(0, |_| 4);
        let numbers = (Byte(0x0a), Varint(self.numbers.len() as u64), Bytes(&self.numbers));
        let series = (Byte(0x2a), Varint(len as u64), numbers, sample(value, timestamp_ms));
        append(&mut self.series, (series, metadata));
        Ok(())
    }

    /// Approximately how many bytes the request has.
    pub fn len(&self) -> usize {
        self.symbols.len() + self.series.len()
    }

    /// Appends the request, and begins the next.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.symbols.write(out);
        out.extend_from_slice(&self.series);
        self.symbols.clear();
        self.series.clear();
    }
}

macro_rules! messages {
    ($($request:ident),*) => {$(
        impl $request {
            /// Adds the samples of a message; see [`remote`](super).
            ///
            /// # Errors
            ///
            /// When the id is empty or not UTF-8, and for a union that is not a single metric. The
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

            /// Whether it has no samples.
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

fn sample_len(value: f64, timestamp_ms: i64) -> usize {
    let value = if value.to_bits() == 0 { 0 } else { 9 };
    let timestamp = if timestamp_ms == 0 { 0 } else { 1 + varint_len(timestamp_ms as u64) };
    value + timestamp
}

fn sample(value: f64, timestamp_ms: i64) -> impl Piece {
    (
        Byte(0x12),
        Byte(sample_len(value, timestamp_ms) as u8),
        (value.to_bits() != 0).then_some((Byte(0x09), LeDouble(value))),
        (timestamp_ms != 0).then_some((Byte(0x10), Varint(timestamp_ms as u64))),
    )
}
