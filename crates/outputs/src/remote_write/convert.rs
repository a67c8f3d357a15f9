//! Writes remote write requests in version 1.0 or 2.0, and converts a request from 2.0 to 1.0 for
//! receivers that only support 1.0.

use quipu_wire::Error;
use quipu_wire::remote::{
    Label,
    write::{
        Entry, ExemplarSample, FamilyMetadata, HistogramSample, Metadata, RemoteWrite1,
        RemoteWrite2, Sample, SeriesType, WriteReader, WriteVersion,
    },
};

use super::series::NAME;

/// A request under construction.
#[derive(Debug)]
pub(super) enum Request {
    One(Version1),
    Two(RemoteWrite2),
}

/// A 1.0 request. It contains no start times, because 1.0 does not support them.
#[derive(Debug, Default)]
pub(super) struct Version1 {
    request: RemoteWrite1,
    /// The last family whose metadata was written.
    family: String,
}

impl Request {
    /// Creates a request without samples.
    pub(super) fn new(version: WriteVersion) -> Self {
        match version {
            WriteVersion::One => Self::One(Version1::default()),
            _ => Self::Two(RemoteWrite2::new()),
        }
    }

    /// Returns the size in bytes; approximate in 2.0.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(one) => one.request.len(),
            Self::Two(two) => two.len(),
        }
    }

    /// Adds a sample. The labels must be sorted, with non-empty values.
    pub(super) fn push_sample(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        sample: &Sample,
    ) -> Result<(), Error> {
        match self {
            Self::One(one) => {
                one.describe(labels, metadata);
                one.request.push(labels, sample.value, sample.timestamp_ms)
            }
            Self::Two(two) => two.push_sample(labels, metadata, sample),
        }
    }

    /// Adds a native histogram.
    pub(super) fn push_histogram(
        &mut self,
        labels: &[Label<'_>],
        metadata: &Metadata<'_>,
        histogram: &HistogramSample<'_>,
    ) -> Result<(), Error> {
        match self {
            Self::One(one) => {
                one.describe(labels, metadata);
                one.request.push_histogram(labels, histogram)
            }
            Self::Two(two) => two.push_histogram(labels, metadata, histogram),
        }
    }

    /// Adds an exemplar to the next sample or histogram.
    pub(super) fn push_exemplar(&mut self, exemplar: &ExemplarSample<'_, '_>) {
        let pushed = match self {
            Self::One(one) => one.request.push_exemplar(exemplar),
            Self::Two(two) => two.push_exemplar(exemplar),
        };
        // This cannot fail, because the request is full long before its table of strings.
        pushed.unwrap_or_default();
    }

    /// Appends the encoded request to `out`, and begins the next one.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::One(one) => {
                one.request.finish(out);
                one.family.clear();
            }
            Self::Two(two) => two.finish(out),
        }
    }
}

impl Version1 {
    /// Writes the metadata of a family, unless the previous series belongs to the same family. An
    /// end mark has no metadata if its series is from a 1.0 request.
    fn describe(&mut self, labels: &[Label<'_>], metadata: &Metadata<'_>) {
        if *metadata == Metadata::default() {
            return;
        }
        let name = labels.iter().find(|(name, _)| *name == NAME).map_or("", |(_, name)| name);
        let family = family(name, metadata.series_type);
        if family != self.family {
            self.request.push_family(&FamilyMetadata::new(family, *metadata));
            self.family.clear();
            self.family.push_str(family);
        }
    }
}

/// Converts a request from 2.0 to 1.0, with the same samples and timestamps.
///
/// # Errors
/// Fails if the request is not in version 2.0.
pub(super) fn to_version_1(request: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Request::new(WriteVersion::One);
    let mut reader = WriteReader::new(WriteVersion::Two, request)?;
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry? else { continue };
        let has_value =
            !series.samples.is_empty() || series.histograms().flatten().next().is_some();
        if has_value {
            series.exemplars().for_each(|exemplar| out.push_exemplar(&exemplar));
        }
        for sample in series.samples {
            out.push_sample(series.labels, &series.metadata, sample)?;
        }
        // We skip invalid histograms, because they cannot be written either.
        for histogram in series.histograms().flatten() {
            out.push_histogram(series.labels, &series.metadata, &histogram)?;
        }
    }
    let mut bytes = Vec::new();
    out.finish(&mut bytes);
    Ok(bytes)
}

/// Returns the family name of a series: its name without the suffix of a classic histogram or
/// summary.
fn family(name: &str, series_type: SeriesType) -> &str {
    let suffixes: &[&str] = match series_type {
        SeriesType::Histogram => &["_bucket", "_sum", "_count"],
        SeriesType::Summary => &["_sum", "_count"],
        _ => &[],
    };
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}
