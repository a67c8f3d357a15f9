//! Formats that carry samples of many series to a server. Use [`write`](mod@write) for Prometheus'
//! remote write 1.0 and 2.0, with bodies compressed by [`snappy`], and [`otlp`] for OpenTelemetry's
//! metrics. [`statsd`], [`graphite`] and [`influx`] read the lines that clients of these servers
//! send. [`exposition`] reads the formats that programs expose and push.
//!
//! ```
//! # #[cfg(all(feature = "remote-write", feature = "snappy"))] {
//! use quipu_wire::Counter;
//! use quipu_wire::remote::snappy;
//! use quipu_wire::remote::write::{Entry, RemoteWrite1, WriteReader, WriteVersion};
//!
//! let mut request = RemoteWrite1::new();
//! request.push(&[("__name__", "level"), ("room", "a")], 21.5, 1_700_000_000_000).unwrap();
//! let counter = Counter { id: b"name=hits,region=eu", value: 7 };
//! request.append(&counter.into(), 1_700_000_000_000).unwrap();
//!
//! let mut bytes = Vec::new();
//! request.finish(&mut bytes);
//! let mut body = Vec::new();
//! snappy::compress(&bytes, &mut body).unwrap();
//!
//! let mut names = Vec::new();
//! let mut request = Vec::new();
//! snappy::uncompress(&body, 1 << 20, &mut request).unwrap();
//! let mut reader = WriteReader::new(WriteVersion::One, &request).unwrap();
//! while let Some(entry) = reader.next() {
//!     let Entry::Series(series) = entry.unwrap() else { continue };
//!     names.push(series.labels[0].1);
//! }
//! assert_eq!(names, ["level", "hits"]);
//! # }
//! ```
//!
//! # From messages to series
//!
//! An id of the form `name=x,a=b` means the name `x` and the label `a` with the value `b`, in any
//! order. Any other id is used as the name. You need not sanitize an id, because names can be any
//! UTF-8. An id that is not UTF-8 cannot be written.
//!
//! | message | remote write | OTLP |
//! |---|---|---|
//! | [`Counter`](crate::Counter) | a sample, as a double | a monotonic, cumulative sum |
//! | [`Gauge`](crate::Gauge) | a sample | a gauge |
//! | [`BatchTimer`](crate::BatchTimer) | samples `name_sum` and `name_count` | a histogram: delta |
//! | [`MetricUnion`](crate::MetricUnion) | like the metric of its type | the same |
//!
//! The samples of a batch timer cover only that batch. This is also true for its histogram, which
//! contains the count, the sum, the smallest and the largest value, but no buckets. A counter's
//! value beyond 2^53 is rounded when it becomes a double.

#[cfg(any(feature = "exposition", feature = "remote-write"))]
mod buckets;
#[cfg(feature = "exposition")]
pub mod exposition;
#[cfg(any(feature = "exposition", feature = "remote-write", feature = "otlp"))]
mod fields;
#[cfg(feature = "statsd")]
mod frames;
#[cfg(feature = "graphite")]
pub mod graphite;
#[cfg(feature = "influx")]
pub mod influx;
#[cfg(any(feature = "remote-write", feature = "otlp"))]
mod labels;
#[cfg(any(feature = "exposition", feature = "graphite", feature = "influx", feature = "statsd"))]
mod line_error;
#[cfg(any(feature = "exposition", feature = "graphite", feature = "influx", feature = "statsd"))]
mod lines;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "snappy")]
pub mod snappy;
#[cfg(feature = "statsd")]
pub mod statsd;
#[cfg(feature = "remote-write")]
pub mod write;

#[cfg(feature = "statsd")]
pub use frames::FrameBuffer;
#[cfg(any(feature = "remote-write", feature = "otlp"))]
pub use labels::{Label, id_labels};
#[cfg(any(
    feature = "exposition",
    feature = "graphite",
    feature = "influx",
    feature = "statsd"
))]
pub use line_error::LineError;
#[cfg(any(
    feature = "exposition",
    feature = "graphite",
    feature = "influx",
    feature = "statsd"
))]
pub use lines::{Cut, LineBuffer};
