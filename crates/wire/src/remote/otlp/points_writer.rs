//! Writes data points of every kind, and reads the server's response.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::attributes::{Attribute, AttributeValue};
use super::point::{
    ExponentialBuckets, ExponentialPoint, HistogramPoint, Number, PointValue, SummaryPoint,
    Temporality,
};
use crate::error::Error;
use crate::pieces::{Byte, Bytes, Each, Le64, LeDouble, LeDoubles, Varint, append};
use crate::reader::{Reader, zigzag};
use crate::remote::fields::{each_field, field_len, nested, skip_unknown, text, varint_len};

/// A data point to write.
///
/// ```
/// use quipu_wire::remote::otlp::{AttributeValue, NewPoint, Number, PointValue};
///
/// let attributes = [("region", AttributeValue::Text("eu"))];
/// let value = PointValue::Gauge(Some(Number::Int(17)));
/// let point = NewPoint::new(1_700_000_000_000_000_000, value).attributes(&attributes);
/// assert_eq!(point.attributes.len(), 1);
/// assert!(point.start_ns.is_none() && point.exemplars.is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewPoint<'p> {
    /// The attributes. Each key may occur once.
    pub attributes: &'p [Attribute<'p>],
    /// The time when a sum or a histogram began, in nanoseconds since 1970, if known.
    pub start_ns: Option<u64>,
    /// The time of the measurement in nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether the point marks the end of its series. If so, no value was recorded.
    pub no_recorded_value: bool,
    /// The value.
    pub value: PointValue<'p>,
    /// The exemplars. A summary supports none.
    pub exemplars: &'p [NewExemplar<'p>],
}

impl<'p> NewPoint<'p> {
    /// Creates a point without attributes, a start time and exemplars.
    pub const fn new(time_ns: u64, value: PointValue<'p>) -> Self {
        Self {
            attributes: &[],
            start_ns: None,
            time_ns,
            no_recorded_value: false,
            value,
            exemplars: &[],
        }
    }

    /// Returns this point with these attributes.
    #[must_use]
    pub const fn attributes(self, attributes: &'p [Attribute<'p>]) -> Self {
        Self { attributes, ..self }
    }

    /// Returns this point with this start time.
    #[must_use]
    pub const fn start_ns(self, start_ns: Option<u64>) -> Self {
        Self { start_ns, ..self }
    }

    /// Returns this point with this time of the measurement.
    #[must_use]
    pub const fn time_ns(self, time_ns: u64) -> Self {
        Self { time_ns, ..self }
    }

    /// Returns this point as the end of its series, or not.
    #[must_use]
    pub const fn no_recorded_value(self, no_recorded_value: bool) -> Self {
        Self { no_recorded_value, ..self }
    }

    /// Returns this point with this value.
    #[must_use]
    pub const fn value(self, value: PointValue<'p>) -> Self {
        Self { value, ..self }
    }

    /// Returns this point with these exemplars.
    #[must_use]
    pub const fn exemplars(self, exemplars: &'p [NewExemplar<'p>]) -> Self {
        Self { exemplars, ..self }
    }
}

/// An exemplar to write.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NewExemplar<'p> {
    /// The time of the measurement in nanoseconds since 1970, if known.
    pub time_ns: Option<u64>,
    /// The value.
    pub value: Option<Number>,
    /// The id of the trace: 16 bytes, or empty.
    pub trace_id: &'p [u8],
    /// The id of the span: 8 bytes, or empty.
    pub span_id: &'p [u8],
    /// The attributes that the point itself does not contain.
    pub attributes: &'p [Attribute<'p>],
}

impl<'p> NewExemplar<'p> {
    /// Creates an exemplar with this value, without a time, ids and attributes.
    pub const fn new(value: Number) -> Self {
        Self { time_ns: None, value: Some(value), trace_id: &[], span_id: &[], attributes: &[] }
    }

    /// Returns this exemplar with this time of the measurement.
    #[must_use]
    pub const fn time_ns(self, time_ns: Option<u64>) -> Self {
        Self { time_ns, ..self }
    }

    /// Returns this exemplar with these ids of a trace and of a span: 16 and 8 bytes, or empty.
    #[must_use]
    pub const fn ids(self, trace_id: &'p [u8], span_id: &'p [u8]) -> Self {
        Self { trace_id, span_id, ..self }
    }

    /// Returns this exemplar with these attributes, which the point itself does not contain.
    #[must_use]
    pub const fn attributes(self, attributes: &'p [Attribute<'p>]) -> Self {
        Self { attributes, ..self }
    }
}

/// An OTLP request, `ExportMetricsServiceRequest`, with any number of data points for each metric.
/// Send this as `application/x-protobuf`.
///
/// All points belong to one scope without a name. You can switch between resources freely, because
/// the request groups points by resource: each resource occurs once.
#[derive(Debug, Default)]
pub struct MetricsWriter {
    /// The resources of the request, and the current one; `None` before the first.
    resources: Vec<WrittenResource>,
    resource: Option<usize>,
    /// The encoded attributes of all resources.
    attributes: Vec<u8>,
    /// The range of the encoded description of each metric with points in this request.
    metrics: Vec<Range<usize>>,
    descriptions: Vec<u8>,
    /// The index of the current metric, once it has a point in this request. Then its name and its
    /// encoded description.
    metric: Option<usize>,
    name: String,
    described: Vec<u8>,
    /// All encoded points, and an entry for each point.
    points: Vec<u8>,
    written: Vec<WrittenPoint>,
    /// The number of bytes that describe metrics and resources.
    heads: usize,
    /// Buffers.
    point: Vec<u8>,
    inner: Vec<u8>,
    pair: Vec<u8>,
}

/// A resource of a request.
#[derive(Clone, Debug)]
struct WrittenResource {
    /// The range of the encoded attributes.
    attributes: Range<usize>,
    /// The metric and the form of the resource's last point.
    last: Option<(usize, MetricForm)>,
}

/// A point of a request.
#[derive(Clone, Debug)]
struct WrittenPoint {
    resource: usize,
    metric: usize,
    kind: MetricForm,
    /// The range of the point in the encoded points.
    place: Range<usize>,
}

/// The properties that all points of a metric share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MetricForm {
    /// The protobuf tag of the data.
    tag: u8,
    temporality: Temporality,
    monotonic: bool,
}

impl MetricsWriter {
    /// Creates a request without points.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the resource of the points that follow, in this request and all later ones. Each key
    /// may occur once. If you don't call this, the resource is empty.
    ///
    /// Returns the number of the resource. You can pass this number to
    /// [`resume_resource`](Self::resume_resource).
    pub fn set_resource(&mut self, attributes: &[Attribute<'_>]) -> usize {
        let start = self.attributes.len();
        for attribute in attributes {
            self.pair.clear();
            attribute_to(&mut self.pair, attribute);
            field(&mut self.attributes, 0x0a, &self.pair);
        }
        self.add_resource(start..self.attributes.len())
    }

    /// Returns to an earlier resource of this request, for the points that follow. An unknown
    /// number is ignored.
    #[doc(hidden)]
    pub fn resume_resource(&mut self, number: usize) {
        if number < self.resources.len() {
            self.resource = Some(number);
        }
    }

    fn add_resource(&mut self, attributes: Range<usize>) -> usize {
        let number = self.resources.len();
        self.resources.push(WrittenResource { attributes, last: None });
        self.resource = Some(number);
        number
    }

    /// Begins a metric: the points that follow belong to this metric. The unit is a UCUM code, for
    /// example `s`. The unit and the description can be empty.
    pub fn begin(&mut self, name: &str, description: &str, unit: &str) {
        self.metric = None;
        self.name.clear();
        self.name.push_str(name);
        self.described.clear();
        for (tag, text) in [(0x0a, name), (0x12, description), (0x1a, unit)] {
            if !text.is_empty() {
                field(&mut self.described, tag, text.as_bytes());
            }
        }
    }

    /// Returns the name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a point to the metric. If its kind or temporality differs from the previous point of
    /// the same resource, this begins another metric with the same name.
    pub fn push(&mut self, point: &NewPoint<'_>) {
        let kind = MetricForm::from_value(&point.value);
        self.point.clear();
        match &point.value {
            PointValue::Gauge(value) | PointValue::Sum { value, .. } => self.number(point, *value),
            PointValue::Histogram { point: values, .. } => self.histogram(point, values),
            PointValue::Exponential { point: values, .. } => self.exponential(point, values),
            PointValue::Summary(values) => self.summary(point, values),
        }
        let start = self.points.len();
        field(&mut self.points, 0x0a, &self.point);
        let (resource, metric) = self.place(kind);
        let place = start..self.points.len();
        self.written.push(WrittenPoint { resource, metric, kind, place });
    }

    /// Returns the numbers of the resource and the metric. Describes them first if they differ from
    /// the previous point's.
    fn place(&mut self, kind: MetricForm) -> (usize, usize) {
        let number = match self.resource {
            Some(number) => number,
            None => self.add_resource(0..0),
        };
        let metric = self.metric.unwrap_or_else(|| {
            let start = self.descriptions.len();
            self.descriptions.extend_from_slice(&self.described);
            self.metrics.push(start..self.descriptions.len());
            self.metrics.len() - 1
        });
        self.metric = Some(metric);
        let resource = &mut self.resources[number];
        let last = resource.last.replace((metric, kind));
        if last.is_none() {
            self.heads += HEAD + resource.attributes.len();
        }
        if last != resource.last {
            self.heads += HEAD + self.metrics[metric].len();
        }
        (number, metric)
    }

    fn number(&mut self, point: &NewPoint<'_>, value: Option<Number>) {
        self.times(point);
        match value {
            Some(Number::Double(value)) => append(&mut self.point, (Byte(0x21), LeDouble(value))),
            Some(Number::Int(value)) => append(&mut self.point, (Byte(0x31), Le64(value as u64))),
            None => {}
        }
        self.exemplars(0x2a, point.exemplars);
        self.attributes(0x3a, point.attributes);
        self.flags(0x40, point);
    }

    fn histogram(&mut self, point: &NewPoint<'_>, values: &HistogramPoint<'_>) {
        self.times(point);
        fixed(&mut self.point, 0x21, values.count);
        self.double(0x29, values.sum);
        let HistogramPoint { buckets, bounds, .. } = *values;
        if !buckets.is_empty() {
            let length = Varint(8 * buckets.len() as u64);
            append(&mut self.point, (Byte(0x32), length, Each(buckets, Le64)));
        }
        if !bounds.is_empty() {
            let length = Varint(8 * bounds.len() as u64);
            append(&mut self.point, (Byte(0x3a), length, LeDoubles(bounds)));
        }
        self.exemplars(0x42, point.exemplars);
        self.attributes(0x4a, point.attributes);
        self.flags(0x50, point);
        self.double(0x59, values.min);
        self.double(0x61, values.max);
    }

    fn exponential(&mut self, point: &NewPoint<'_>, values: &ExponentialPoint<'_>) {
        self.attributes(0x0a, point.attributes);
        self.times(point);
        fixed(&mut self.point, 0x21, values.count);
        self.double(0x29, values.sum);
        if values.scale != 0 {
            append(&mut self.point, (Byte(0x30), signed(values.scale)));
        }
        fixed(&mut self.point, 0x39, values.zero_count);
        for (tag, buckets) in [(0x42, &values.positive), (0x4a, &values.negative)] {
            self.inner.clear();
            buckets_to(&mut self.inner, buckets);
            if !self.inner.is_empty() {
                field(&mut self.point, tag, &self.inner);
            }
        }
        self.flags(0x50, point);
        self.exemplars(0x5a, point.exemplars);
        self.double(0x61, values.min);
        self.double(0x69, values.max);
        fixed(&mut self.point, 0x71, values.zero_threshold.to_bits());
    }

    fn summary(&mut self, point: &NewPoint<'_>, values: &SummaryPoint<'_>) {
        self.times(point);
        fixed(&mut self.point, 0x21, values.count);
        fixed(&mut self.point, 0x29, values.sum.to_bits());
        for (quantile, value) in values.quantiles {
            self.inner.clear();
            fixed(&mut self.inner, 0x09, quantile.to_bits());
            fixed(&mut self.inner, 0x11, value.to_bits());
            field(&mut self.point, 0x32, &self.inner);
        }
        self.attributes(0x3a, point.attributes);
        self.flags(0x40, point);
    }

    fn times(&mut self, point: &NewPoint<'_>) {
        fixed(&mut self.point, 0x11, point.start_ns.unwrap_or(0));
        fixed(&mut self.point, 0x19, point.time_ns);
    }

    fn double(&mut self, tag: u8, value: Option<f64>) {
        append(&mut self.point, value.map(|value| (Byte(tag), LeDouble(value))));
    }

    fn flags(&mut self, tag: u8, point: &NewPoint<'_>) {
        append(&mut self.point, point.no_recorded_value.then_some((Byte(tag), Byte(1))));
    }

    fn attributes(&mut self, tag: u8, attributes: &[Attribute<'_>]) {
        for attribute in attributes {
            self.pair.clear();
            attribute_to(&mut self.pair, attribute);
            field(&mut self.point, tag, &self.pair);
        }
    }

    fn exemplars(&mut self, tag: u8, exemplars: &[NewExemplar<'_>]) {
        for exemplar in exemplars {
            let inner = &mut self.inner;
            inner.clear();
            fixed(inner, 0x11, exemplar.time_ns.unwrap_or(0));
            match exemplar.value {
                Some(Number::Double(value)) => append(inner, (Byte(0x19), LeDouble(value))),
                Some(Number::Int(value)) => append(inner, (Byte(0x31), Le64(value as u64))),
                None => {}
            }
            for (tag, id) in [(0x22, exemplar.span_id), (0x2a, exemplar.trace_id)] {
                if !id.is_empty() {
                    field(inner, tag, id);
                }
            }
            for attribute in exemplar.attributes {
                self.pair.clear();
                attribute_to(&mut self.pair, attribute);
                field(inner, 0x3a, &self.pair);
            }
            field(&mut self.point, tag, inner);
        }
    }

    /// Returns the approximate number of bytes in the request.
    pub fn len(&self) -> usize {
        self.points.len() + self.heads
    }

    /// Returns whether the request contains no points.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Returns the number of points.
    pub fn points(&self) -> usize {
        self.written.len()
    }

    /// Appends the request to `out` and begins the next one. The next request continues with the
    /// same metric and the same resource, which now has the number 0.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.resources.len() > 1 {
            // The sort is stable, so the points of a metric stay together.
            self.written.sort_by_key(|point| point.resource);
        }
        for points in self.written.chunk_by(|one, next| one.resource == next.resource) {
            self.resource_to(out, points);
        }
        self.points.clear();
        self.written.clear();
        self.heads = 0;
        self.metrics.clear();
        self.descriptions.clear();
        self.metric = None;
        if let Some(number) = self.resource {
            let attributes = self.resources[number].attributes.clone();
            let length = attributes.len();
            self.attributes.copy_within(attributes, 0);
            self.attributes.truncate(length);
            self.resources.clear();
            self.add_resource(0..length);
        }
    }

    /// Writes a resource with all its points.
    fn resource_to(&self, out: &mut Vec<u8>, points: &[WrittenPoint]) {
        let Some(first) = points.first() else { return };
        let attributes = &self.attributes[self.resources[first.resource].attributes.clone()];
        let metrics =
            || points.chunk_by(|one, next| one.metric_and_kind() == next.metric_and_kind());
        let scope = metrics().map(|points| field_len(self.metric_len(points).1)).sum();
        let described = (!attributes.is_empty()).then_some((
            Byte(0x0a),
            Varint(attributes.len() as u64),
            Bytes(attributes),
        ));
        let head = described.as_ref().map_or(0, |_| field_len(attributes.len()));
        let length = field_len(scope) + head;
        append(out, (Byte(0x0a), Varint(length as u64), described));
        append(out, (Byte(0x12), Varint(scope as u64)));
        metrics().for_each(|points| self.metric_to(out, points));
    }

    /// Writes a metric with its points, all of the same kind.
    fn metric_to(&self, out: &mut Vec<u8>, points: &[WrittenPoint]) {
        let Some(WrittenPoint { metric, kind, .. }) = points.first() else { return };
        let (data, length) = self.metric_len(points);
        let description = &self.descriptions[self.metrics[*metric].clone()];
        append(out, (Byte(0x12), Varint(length as u64), Bytes(description)));
        append(out, (Byte(kind.tag), Varint(data as u64)));
        for point in points {
            out.extend_from_slice(&self.points[point.place.clone()]);
        }
        append(out, (kind.temporality(), kind.monotonic()));
    }

    /// Returns the length of a metric with these points: of its data, and in total.
    fn metric_len(&self, points: &[WrittenPoint]) -> (usize, usize) {
        let Some(WrittenPoint { metric, kind, .. }) = points.first() else { return (0, 0) };
        let after = 2 * usize::from(kind.temporality().is_some()) + 2 * usize::from(kind.monotonic);
        let data = after + points.iter().map(|point| point.place.len()).sum::<usize>();
        (data, self.metrics[*metric].len() + field_len(data))
    }
}

/// The approximate size of a resource without its attributes, or of a metric without its
/// description.
const HEAD: usize = 8;

impl WrittenPoint {
    fn metric_and_kind(&self) -> (usize, MetricForm) {
        (self.metric, self.kind)
    }
}

impl MetricForm {
    fn from_value(value: &PointValue<'_>) -> Self {
        let (tag, temporality, monotonic) = match *value {
            PointValue::Gauge(_) => (0x2a, Temporality::Unknown, false),
            PointValue::Sum { monotonic, temporality, .. } => (0x3a, temporality, monotonic),
            PointValue::Histogram { temporality, .. } => (0x4a, temporality, false),
            PointValue::Exponential { temporality, .. } => (0x52, temporality, false),
            PointValue::Summary(_) => (0x5a, Temporality::Unknown, false),
        };
        Self { tag, temporality, monotonic }
    }

    fn temporality(self) -> Option<(Byte, Byte)> {
        let number = match self.temporality {
            Temporality::Delta => 1,
            Temporality::Cumulative => 2,
            Temporality::Unknown => return None,
        };
        Some((Byte(0x10), Byte(number)))
    }

    fn monotonic(self) -> Option<(Byte, Byte)> {
        self.monotonic.then_some((Byte(0x18), Byte(1)))
    }
}

fn field(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    append(out, (Byte(tag), Varint(body.len() as u64), Bytes(body)));
}

/// Writes an 8-byte field. 0 is omitted, because this is the default.
fn fixed(out: &mut Vec<u8>, tag: u8, number: u64) {
    append(out, (number != 0).then_some((Byte(tag), Le64(number))));
}

fn signed(number: i32) -> Varint {
    Varint(zigzag(number.into()))
}

fn buckets_to(out: &mut Vec<u8>, buckets: &ExponentialBuckets<'_>) {
    if buckets.offset != 0 {
        append(out, (Byte(0x08), signed(buckets.offset)));
    }
    if !buckets.counts.is_empty() {
        let len: usize = buckets.counts.iter().map(|count| varint_len(*count)).sum();
        append(out, (Byte(0x12), Varint(len as u64), Each(buckets.counts, Varint)));
    }
}

/// Writes a key and a value.
fn attribute_to(out: &mut Vec<u8>, (key, value): &Attribute<'_>) {
    let (tag, len) = match value {
        AttributeValue::Empty => return field(out, 0x0a, key.as_bytes()),
        AttributeValue::Text(text) => (Some(0x0a), field_len(text.len())),
        AttributeValue::Bytes(bytes) => (Some(0x3a), field_len(bytes.len())),
        AttributeValue::Bool(_) => (None, 2),
        AttributeValue::Int(number) => (None, 1 + varint_len(*number as u64)),
        AttributeValue::Double(_) => (None, 9),
        AttributeValue::Nested(encoded) => (None, encoded.len()),
    };
    let key = (Byte(0x0a), Varint(key.len() as u64), Bytes(key.as_bytes()));
    append(out, (key, Byte(0x12), Varint(len as u64)));
    match (tag, value) {
        (Some(tag), AttributeValue::Text(text)) => field(out, tag, text.as_bytes()),
        (Some(tag), AttributeValue::Bytes(bytes)) => field(out, tag, bytes),
        (_, AttributeValue::Bool(value)) => append(out, (Byte(0x10), Byte(u8::from(*value)))),
        (_, AttributeValue::Int(number)) => append(out, (Byte(0x18), Varint(*number as u64))),
        (_, AttributeValue::Double(number)) => append(out, (Byte(0x21), LeDouble(*number))),
        (_, AttributeValue::Nested(encoded)) => append(out, Bytes(encoded)),
        _ => {}
    }
}

/// A server's response to an accepted request, `ExportMetricsServiceResponse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricsResponse<'a> {
    /// The number of points that the server rejected.
    pub rejected: u64,
    /// The reason, or a warning; can be empty.
    pub message: &'a str,
}

impl<'a> MetricsResponse<'a> {
    /// Creates a response of a server that rejected this number of points.
    pub const fn new(rejected: u64, message: &'a str) -> Self {
        Self { rejected, message }
    }
}

/// Reads a response.
///
/// # Errors
///
/// When the bytes are not an `ExportMetricsServiceResponse`.
pub fn read_metrics_response(response: &[u8]) -> Result<MetricsResponse<'_>, Error> {
    let mut read = MetricsResponse::default();
    let mut input = Reader::new(response);
    let fields = each_field(&mut input, |tag, input| match tag {
        0x0a => nested(input, |input| {
            each_field(input, |tag, input| match tag {
                // The field is signed.
                0x08 => input.varint("a number").map(|number| {
                    read.rejected = u64::try_from(number as i64).unwrap_or(0);
                }),
                0x12 => text(input).map(|message| read.message = message),
                tag => skip_unknown(input, tag, 0b110),
            })
        }),
        tag => skip_unknown(input, tag, 0b10),
    });
    fields.map_err(|fault| Error::reading("otlp", input.position() as u64, fault))?;
    Ok(read)
}
