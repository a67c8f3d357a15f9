//! Requests of remote write 2.0 as those of 1.0, with the same samples at the same times.

use quipu_wire::Error;
use quipu_wire::remote::{
    Entry, FamilyMetadata, RemoteWrite1, Series, SeriesType, WriteReader, WriteVersion,
};

/// The request in version 1.0. What that version does not have is left out: start times.
///
/// # Errors
/// If it is not a request in version 2.0.
pub(super) fn to_version_1(request: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = RemoteWrite1::new();
    let mut reader = WriteReader::new(WriteVersion::Two, request)?;
    let mut last = String::new();
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry? else { continue };
        let family = family(&series);
        if family != last {
            out.push_family(&FamilyMetadata::new(family, series.metadata));
            last.clear();
            last.push_str(family);
        }
        let has_value =
            !series.samples.is_empty() || series.histograms().flatten().next().is_some();
        if has_value {
            series.exemplars().for_each(|exemplar| out.exemplify(&exemplar));
        }
        for sample in series.samples {
            out.push(series.labels, sample.value, sample.timestamp_ms)?;
        }
        // Those that contradict themselves cannot be written either.
        for histogram in series.histograms().flatten() {
            out.push_histogram(series.labels, &histogram)?;
        }
    }
    let mut bytes = Vec::new();
    out.finish(&mut bytes);
    Ok(bytes)
}

/// The name of the family of a series, without the suffix of classic histograms and summaries.
fn family<'a>(series: &Series<'_, 'a>) -> &'a str {
    let name = series.label("__name__").unwrap_or_default();
    let suffixes: &[&str] = match series.metadata.series_type {
        SeriesType::Histogram => &["_bucket", "_sum", "_count"],
        SeriesType::Summary => &["_sum", "_count"],
        _ => &[],
    };
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}
