//! OpenTelemetry's metrics, OTLP: <https://opentelemetry.io/docs/specs/otlp/>. The schema is
//! `opentelemetry/proto/metrics/v1` of <https://github.com/open-telemetry/opentelemetry-proto>.
//!
//! ```text
//! message ExportMetricsServiceRequest { repeated ResourceMetrics resource_metrics = 1; }
//! message ResourceMetrics    { Resource resource = 1; repeated ScopeMetrics scope_metrics = 2;
//!                              string schema_url = 3; }
//! message Resource           { repeated KeyValue attributes = 1; }
//! message ScopeMetrics       { InstrumentationScope scope = 1; repeated Metric metrics = 2;
//!                              string schema_url = 3; }
//! message InstrumentationScope { string name = 1; string version = 2;
//!                              repeated KeyValue attributes = 3; }
//! message Metric             { string name = 1; string description = 2; string unit = 3;
//!                              oneof data { Gauge gauge = 5; Sum sum = 7; Histogram histogram = 9;
//!                                           ExponentialHistogram exponential_histogram = 10;
//!                                           Summary summary = 11; } }
//! message Gauge              { repeated NumberDataPoint data_points = 1; }
//! message Sum                { repeated NumberDataPoint data_points = 1;
//!                              AggregationTemporality aggregation_temporality = 2;
//!                              bool is_monotonic = 3; }
//! message Histogram          { repeated HistogramDataPoint data_points = 1;
//!                              AggregationTemporality aggregation_temporality = 2; }
//! message ExponentialHistogram { repeated ExponentialHistogramDataPoint data_points = 1;
//!                              AggregationTemporality aggregation_temporality = 2; }
//! message Summary            { repeated SummaryDataPoint data_points = 1; }
//! message NumberDataPoint    { fixed64 start_time_unix_nano = 2; fixed64 time_unix_nano = 3;
//!                              oneof value { double as_double = 4; sfixed64 as_int = 6; }
//!                              repeated Exemplar exemplars = 5; repeated KeyValue attributes = 7;
//!                              uint32 flags = 8; }
//! message HistogramDataPoint { fixed64 start_time_unix_nano = 2; fixed64 time_unix_nano = 3;
//!                              fixed64 count = 4; optional double sum = 5;
//!                              repeated fixed64 bucket_counts = 6;
//!                              repeated double explicit_bounds = 7;
//!                              repeated Exemplar exemplars = 8; repeated KeyValue attributes = 9;
//!                              uint32 flags = 10;
//!                              optional double min = 11; optional double max = 12; }
//! message ExponentialHistogramDataPoint {
//!                              repeated KeyValue attributes = 1;
//!                              fixed64 start_time_unix_nano = 2; fixed64 time_unix_nano = 3;
//!                              fixed64 count = 4; optional double sum = 5; sint32 scale = 6;
//!                              fixed64 zero_count = 7; Buckets positive = 8; Buckets negative = 9;
//!                              uint32 flags = 10; repeated Exemplar exemplars = 11;
//!                              optional double min = 12; optional double max = 13;
//!                              double zero_threshold = 14; }
//! message Buckets            { sint32 offset = 1; repeated uint64 bucket_counts = 2; }
//! message SummaryDataPoint   { fixed64 start_time_unix_nano = 2; fixed64 time_unix_nano = 3;
//!                              fixed64 count = 4; double sum = 5;
//!                              repeated ValueAtQuantile quantile_values = 6;
//!                              repeated KeyValue attributes = 7; uint32 flags = 8; }
//! message ValueAtQuantile    { double quantile = 1; double value = 2; }
//! message Exemplar           { fixed64 time_unix_nano = 2;
//!                              oneof value { double as_double = 3; sfixed64 as_int = 6; }
//!                              bytes span_id = 4; bytes trace_id = 5;
//!                              repeated KeyValue filtered_attributes = 7; }
//! message KeyValue           { string key = 1; AnyValue value = 2; }
//! message AnyValue           { oneof value { string string_value = 1; bool bool_value = 2;
//!                              int64 int_value = 3; double double_value = 4;
//!                              ArrayValue array_value = 5; KeyValueList kvlist_value = 6;
//!                              bytes bytes_value = 7; } }
//! ```
//!
//! Flags: bit 0 means that no value was recorded. The response:
//!
//! ```text
//! message ExportMetricsServiceResponse { PartialSuccess partial_success = 1; }
//! message PartialSuccess     { int64 rejected_data_points = 1; string error_message = 2; }
//! ```

mod attributes;
#[cfg(feature = "json")]
mod json;
mod point;
mod points;
mod points_writer;
mod reader;
#[cfg(feature = "json")]
mod schema;
mod writer;

pub use attributes::{Attribute, AttributeValue};
#[cfg(feature = "json")]
pub use json::{JsonError, metrics_request_from_json};
pub use point::{
    ExponentialBuckets, ExponentialPoint, HistogramPoint, Instrumentation, MetricDescription,
    MetricsExemplar, Number, Point, PointValue, Resource, SummaryPoint, Temporality,
};
pub use points_writer::{
    MetricsResponse, MetricsWriter, NewExemplar, NewPoint, read_metrics_response,
};
pub use reader::{MetricsReader, Progress, read_metrics_request};
pub use writer::Otlp;
