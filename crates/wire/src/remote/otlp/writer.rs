//! Writes OpenTelemetry's metrics. Each data point becomes a separate metric, in one scope without
//! a name.

use alloc::vec::Vec;

use crate::error::{Error, Fault};
use crate::message::{BatchTimer, Counter, Gauge, Message};
use crate::pieces::{Byte, Bytes, Le64, LeDouble, Piece, Varint, append};
use crate::remote::fields::field_len;
use crate::remote::labels::{self, Label, NAME};

/// An OTLP request, `ExportMetricsServiceRequest`. Send this as `application/x-protobuf`.
#[derive(Debug, Default)]
pub struct Otlp {
    resource: Vec<u8>,
    start: u64,
    metrics: Vec<u8>,
    /// The encoded attributes of a metric.
    attributes: Vec<u8>,
}

const FORMAT: &str = "otlp";

impl Otlp {
    /// Creates a request without metrics.
    pub fn new() -> Otlp {
        Otlp::default()
    }

    /// Sets the resource, in this request and all later ones. You should include `service.name`.
    pub fn set_resource(&mut self, attributes: &[Label<'_>]) {
        self.resource.clear();
        for attribute in attributes {
            attribute_to(&mut self.resource, 0x0a, attribute);
        }
    }

    /// Sets the time when counters and timer batches began, in milliseconds since 1970, for all
    /// metrics that you add afterwards. The default 0 means unknown.
    ///
    /// # Errors
    ///
    /// When the time is before 1970 or after 2554.
    pub fn set_start(&mut self, timestamp_ms: i64) -> Result<(), Error> {
        self.start = nanos(timestamp_ms).map_err(|fault| Error::writing(FORMAT, fault))?;
        Ok(())
    }

    /// Adds a gauge. The label `__name__` contains the metric's name. The other labels become
    /// attributes and can be in any order; labels with an empty value are omitted. The time is in
    /// milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// When there is no name, when a label lacks a name or appears twice, or when the time is
    /// before 1970 or after 2554. The request is then unchanged.
    pub fn push(
        &mut self,
        labels: &[Label<'_>],
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.add_gauge(labels, value, timestamp_ms).map_err(|fault| Error::writing(FORMAT, fault))
    }

    /// Adds a message, converted as in the table of [`remote`](crate::remote).
    ///
    /// # Errors
    ///
    /// When the id is empty or not UTF-8, when a union is not a single metric, or when the time is
    /// before 1970 or after 2554. The request is then unchanged.
    pub fn append(&mut self, message: &Message<'_>, timestamp_ms: i64) -> Result<(), Error> {
        self.add_message(message, timestamp_ms).map_err(|fault| Error::writing(FORMAT, fault))
    }

    fn add_message(&mut self, message: &Message<'_>, timestamp_ms: i64) -> Result<(), Fault> {
        let message = labels::metric(message)?;
        let labels = labels::of_id(message.id())?;
        match message {
            Message::Counter(Counter { value, .. }) => {
                self.add_counter(&labels, value, timestamp_ms)
            }
            Message::Gauge(Gauge { value, .. }) => self.add_gauge(&labels, value, timestamp_ms),
            Message::BatchTimer(BatchTimer { values, .. }) => {
                self.add_timer(&labels, values, timestamp_ms)
            }
            Message::MetricUnion(_) => Ok(()),
        }
    }

    fn add_gauge(
        &mut self,
        labels: &[Label<'_>],
        value: f64,
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        let time = nanos(timestamp_ms)?;
        let point = (Byte(0x19), Le64(time), Byte(0x21), LeDouble(value));
        self.add(labels, 0x2a, 0x3a, 18, point, b"")
    }

    fn add_counter(
        &mut self,
        labels: &[Label<'_>],
        value: i64,
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        let time = nanos(timestamp_ms)?;
        let start = self.start_piece();
        let len = 18 + if start.is_some() { 9 } else { 0 };
        let point = (start, Byte(0x19), Le64(time), Byte(0x31), Le64(value as u64));
        // The bytes mean cumulative and monotonic.
        self.add(labels, 0x3a, 0x3a, len, point, b"\x10\x02\x18\x01")
    }

    fn add_timer(
        &mut self,
        labels: &[Label<'_>],
        values: &[f64],
        timestamp_ms: i64,
    ) -> Result<(), Fault> {
        let time = nanos(timestamp_ms)?;
        let start = self.start_piece();
        let count = values.len() as u64;
        let sum = labels::sum(values);
        let bounds =
            values.iter().copied().reduce(f64::min).zip(values.iter().copied().reduce(f64::max));
        let bounds =
            bounds.map(|(min, max)| (Byte(0x59), LeDouble(min), Byte(0x61), LeDouble(max)));
        let len = 27 + if start.is_some() { 9 } else { 0 } + if bounds.is_some() { 18 } else { 0 };
        let summed = (Byte(0x21), Le64(count), Byte(0x29), LeDouble(sum));
        let point = (start, Byte(0x19), Le64(time), summed, bounds);
        // The bytes mean delta.
        self.add(labels, 0x4a, 0x4a, len, point, b"\x10\x01")
    }

    /// Adds a metric with one data point. The arguments are the labels, the tag of the metric's
    /// data, the tag of the point's attributes, the length of the rest of the point, this rest, and
    /// the bytes after the point.
    fn add(
        &mut self,
        labels: &[Label<'_>],
        data: u8,
        attributes: u8,
        point_len: usize,
        point: impl Piece,
        behind: &[u8],
    ) -> Result<(), Fault> {
        let mut room = Vec::new();
        let labels = labels::canonical(labels, &mut room)?;
        let Some((_, name)) = labels.iter().find(|label| label.0 == NAME) else {
            return Err(Fault::unwritable("a metric needs a name, the label `__name__`"));
        };
        self.attributes.clear();
        for label in labels.iter().filter(|label| label.0 != NAME) {
            attribute_to(&mut self.attributes, attributes, label);
        }
        let point_len = self.attributes.len() + point_len;
        let data_len = field_len(point_len) + behind.len();
        let len = field_len(name.len()) + field_len(data_len);
        append(
            &mut self.metrics,
            (
                (Byte(0x12), Varint(len as u64)),
                (Byte(0x0a), Varint(name.len() as u64), Bytes(name.as_bytes())),
                (Byte(data), Varint(data_len as u64)),
                (Byte(0x0a), Varint(point_len as u64)),
                point,
                Bytes(&self.attributes),
                Bytes(behind),
            ),
        );
        Ok(())
    }

    fn start_piece(&self) -> Option<(Byte, Le64)> {
        (self.start != 0).then_some((Byte(0x11), Le64(self.start)))
    }

    /// Returns the approximate number of bytes in the request.
    pub fn len(&self) -> usize {
        self.resource.len() + self.metrics.len()
    }

    /// Returns whether the request contains no metrics.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Appends the request to `out` and begins the next one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let Otlp { resource, metrics, .. } = self;
        if metrics.is_empty() {
            return;
        }
        let scope_len = metrics.len();
        let resource_len = if resource.is_empty() { 0 } else { field_len(resource.len()) };
        let len = resource_len + field_len(scope_len);
        let resource_field = (!resource.is_empty())
            .then(|| (Byte(0x0a), Varint(resource.len() as u64), Bytes(resource)));
        let scope = (Byte(0x12), Varint(scope_len as u64), Bytes(metrics));
        append(out, (Byte(0x0a), Varint(len as u64), resource_field, scope));
        metrics.clear();
    }
}

fn attribute_to(out: &mut Vec<u8>, field: u8, (key, value): &Label<'_>) {
    let value_len = field_len(value.len());
    let len = field_len(key.len()) + field_len(value_len);
    append(
        out,
        (
            (Byte(field), Varint(len as u64)),
            (Byte(0x0a), Varint(key.len() as u64), Bytes(key.as_bytes())),
            (Byte(0x12), Varint(value_len as u64)),
            (Byte(0x0a), Varint(value.len() as u64), Bytes(value.as_bytes())),
        ),
    );
}

fn nanos(timestamp_ms: i64) -> Result<u64, Fault> {
    u64::try_from(timestamp_ms)
        .ok()
        .and_then(|milliseconds| milliseconds.checked_mul(1_000_000))
        .ok_or(Fault::unwritable("a time must be from 1970 to 2554"))
}
