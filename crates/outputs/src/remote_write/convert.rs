//! Writes a request in either version, and converts a request from version 2.0 to 1.0.

use quipu_wire::Error;
use quipu_wire::remote::{
    Label,
    write::{
        Entry, ExemplarSample, FamilyMetadata, HistogramSample, Metadata, RemoteWrite1,
        RemoteWrite2, Sample, SeriesType, WriteReader, WriteVersion,
    },
};

use super::series::NAME;

/// A request that is being written.
#[derive(Debug)]
pub(super) enum Request {
    One(Version1),
    Two(RemoteWrite2),
}

/// A request in version 1.0. Start times are omitted, because this version does not support them.
#[derive(Debug, Default)]
pub(super) struct Version1 {
    request: RemoteWrite1,
    /// The last described family.
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

    /// Returns the size in bytes. In version 2.0, this is approximate.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(one) => one.request.len(),
            Self::Two(two) => two.len(),
        }
    }

    /// Adds a sample. The labels are sorted, and their values are not empty.
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
        match self {
            Self::One(one) => one.request.push_exemplar(exemplar),
            // Cannot fail, because a request is full long before it has no place for more strings.
            Self::Two(two) => two.push_exemplar(exemplar).unwrap_or_default(),
        }
    }

    /// Appends the request to `out`, and begins the next one.
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
    /// Describes the family of a series, unless the previous series already did. End marks have no
    /// description if their series came from a request in version 1.0.
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

/// Converts a request from version 2.0 to 1.0, with the same samples and times.
///
/// # Errors
/// Fails if this is not a request in version 2.0.
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
        // Invalid histograms are skipped, because they cannot be written either.
        for histogram in series.histograms().flatten() {
            out.push_histogram(series.labels, &series.metadata, &histogram)?;
        }
    }
    let mut bytes = Vec::new();
    out.finish(&mut bytes);
    Ok(bytes)
}

/// Returns the family of a series: its name without the suffix of a classic histogram or summary.
fn family(name: &str, series_type: SeriesType) -> &str {
    let suffixes: &[&str] = match series_type {
        SeriesType::Histogram => &["_bucket", "_sum", "_count"],
        SeriesType::Summary => &["_sum", "_count"],
        _ => &[],
    };
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}
