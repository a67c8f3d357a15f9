//! Prometheus' remote write 1.0 and 2.0. [`RemoteWrite1`] and [`RemoteWrite2`] write requests, and
//! [`WriteReader`] reads both versions without copying names and labels. You need to compress the
//! bodies of requests with [`snappy`](super::snappy).

mod histogram;
mod reader;
mod requests;
mod symbols;

pub use histogram::{HistogramFault, HistogramSample, ResetHint};
pub use reader::{
    Entry, ExemplarSample, FamilyMetadata, LabelFault, Metadata, Sample, Series, SeriesType,
    WriteReader, WriteVersion, encode_labels,
};
pub use requests::{RemoteWrite1, RemoteWrite2};
