//! Determines the type of a single sample (a counter, a gauge or unknown), from its name and from
//! the type of its family, if this is known.

use quipu::intake::{InputValue, Intake, Mode};
use quipu::snapshot::{Kind, Timestamp};
use quipu_wire::remote::exposition;
use quipu_wire::remote::write::SeriesType;

/// The type of a single sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleType {
    /// A total that only increases, except at a restart.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A value of unknown type.
    Unknown,
}

/// Finds the type of a sample.
///
/// | type of the family | type of the sample |
/// |---|---|
/// | counter | a counter |
/// | histogram, summary | a counter if the name ends in `_bucket`, `_count` or `_sum`, else a gauge |
/// | gauge, info, state set, histogram of gauges | a gauge |
/// | unknown | a counter if the name ends in `_total`, or in `_bucket` with a label `le`; else unknown |
///
/// A sample that is a counter only by its name is not treated as a counter if its value is
/// negative, infinite or not a number. The suffixes `_count` and `_sum` are not sufficient, because
/// a gauge that is treated as a total would never decrease.
pub fn sample_type(family: SeriesType, name: &str, has_bound: bool, value: f64) -> SampleType {
    match family {
        SeriesType::Counter => SampleType::Counter,
        SeriesType::Histogram | SeriesType::Summary => {
            let is_total = ["_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
            if is_total { SampleType::Counter } else { SampleType::Gauge }
        }
        SeriesType::Unknown => {
            let is_counter = name.ends_with("_total") || has_bound && name.ends_with("_bucket");
            let can_be = value >= 0.0 && value.is_finite();
            if is_counter && can_be { SampleType::Counter } else { SampleType::Unknown }
        }
        _ => SampleType::Gauge,
    }
}

/// Returns the type of a sample if a zero has the same type. All possible counter values of its
/// series then have this type, so it can be cached.
pub fn lasting_type(
    family: SeriesType,
    name: &str,
    labels: &[(&str, &str)],
    value: f64,
) -> Option<SampleType> {
    let has_bound = labels.iter().any(|label| label.0 == "le");
    let found = sample_type(family, name, has_bound, value);
    (found == sample_type(family, name, has_bound, 0.0)).then_some(found)
}

/// Returns a sample's value for the intake, and the mode: the intake stores the increase of a
/// total, and replaces any other value.
#[inline]
pub fn given(sample_type: SampleType, value: f64) -> (InputValue<'static>, Mode) {
    match sample_type {
        SampleType::Counter => (InputValue::Counter(value), Mode::Follow),
        SampleType::Gauge => (InputValue::Gauge(value), Mode::Set),
        _ => (InputValue::Unknown(value), Mode::Set),
    }
}

/// Converts a type of the text format to a type of remote write.
pub fn series_type(kind: exposition::FamilyType) -> SeriesType {
    match kind {
        exposition::FamilyType::Counter => SeriesType::Counter,
        exposition::FamilyType::Gauge => SeriesType::Gauge,
        exposition::FamilyType::GaugeHistogram => SeriesType::GaugeHistogram,
        exposition::FamilyType::Histogram => SeriesType::Histogram,
        exposition::FamilyType::Info => SeriesType::Info,
        exposition::FamilyType::StateSet => SeriesType::StateSet,
        exposition::FamilyType::Summary => SeriesType::Summary,
        _ => SeriesType::Unknown,
    }
}

/// Returns the type of the daemon's family with this name, for samples whose sender declares no
/// type. A name that ends in `_count` or `_sum` belongs to a histogram if this histogram exists.
pub fn existing_type(intake: &mut Intake, name: &str) -> SeriesType {
    match intake.kind_of(name) {
        Ok(Some(Kind::Counter)) => return SeriesType::Counter,
        Ok(Some(Kind::Gauge)) => return SeriesType::Gauge,
        _ => {}
    }
    let base = name.strip_suffix("_count").or_else(|| name.strip_suffix("_sum"));
    match base.map(|base| intake.kind_of(&format!("{base}_bucket"))) {
        Some(Ok(Some(Kind::Counter))) => SeriesType::Histogram,
        _ => SeriesType::Unknown,
    }
}

/// Returns the name of the family, if this sample name contains the suffix of a family's part.
pub fn family_name(name: &str) -> Option<&str> {
    let suffixes = ["_total", "_bucket", "_count", "_sum", "_created", "_info", "_gcount", "_gsum"];
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|base| !base.is_empty())
}

/// Converts milliseconds since 1970 to a time. Earlier times become zero, because such a sample is
/// older than any stored one.
pub(super) fn sample_time(ms: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Converts milliseconds since 1970 to a time; `None` unless it is after 1970.
pub(super) fn timestamp(ms: i64) -> Option<Timestamp> {
    let ns = u64::try_from(ms).ok()?.checked_mul(1_000_000)?;
    (ns > 0).then_some(Timestamp::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_family_first_and_the_name_second() {
        for (family, name, has_bound, value, expected) in [
            (SeriesType::Counter, "x", false, 1.0, SampleType::Counter),
            (SeriesType::Gauge, "x_total", false, 1.0, SampleType::Gauge),
            (SeriesType::Info, "x_info", false, 1.0, SampleType::Gauge),
            (SeriesType::Histogram, "x_bucket", true, 1.0, SampleType::Counter),
            (SeriesType::Histogram, "x_created", false, 1.0, SampleType::Gauge),
            (SeriesType::Summary, "x_sum", false, 1.0, SampleType::Counter),
            (SeriesType::Summary, "x", false, 1.0, SampleType::Gauge),
            (SeriesType::GaugeHistogram, "x_bucket", true, 1.0, SampleType::Gauge),
            (SeriesType::Unknown, "x_total", false, 1.0, SampleType::Counter),
            (SeriesType::Unknown, "x_total", false, -1.0, SampleType::Unknown),
            (SeriesType::Unknown, "x_sum", false, f64::NAN, SampleType::Unknown),
            (SeriesType::Unknown, "x_count", false, 0.0, SampleType::Unknown),
            (SeriesType::Unknown, "x_bucket", true, 0.0, SampleType::Counter),
            (SeriesType::Unknown, "x_bucket", false, 0.0, SampleType::Unknown),
            (SeriesType::Unknown, "x", false, 0.0, SampleType::Unknown),
        ] {
            assert_eq!(sample_type(family, name, has_bound, value), expected, "{family:?} {name}");
        }
    }

    #[test]
    fn a_family_name_is_a_name_without_its_suffix() {
        assert_eq!(family_name("x_total"), Some("x"));
        assert_eq!(family_name("x_bucket"), Some("x"));
        assert_eq!(family_name("_total"), None);
        assert_eq!(family_name("x"), None);
    }
}
