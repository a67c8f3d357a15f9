//! The type of a series that comes alone: a sample with a name, and perhaps the type of its family.

use quipu::intake::{Given, Intake, Mode};
use quipu::snapshot::{Kind, Timestamp};
use quipu_wire::remote::SeriesType;
use quipu_wire::remote::exposition;

/// The type that a value is taken as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A total.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A value of unknown type.
    Unknown,
}

/// Finds out the type that a value is taken as.
///
/// | type of the family | taken as |
/// |---|---|
/// | counter | a counter |
/// | histogram, summary | a counter if the name ends in `_bucket`, `_count` or `_sum`, else a gauge |
/// | gauge, info, state set, histogram of gauges | a gauge |
/// | unknown | a counter if the name ends in `_total`, or in `_bucket` with a label `le`; else unknown |
///
/// What is a counter by its name alone is not one if it is negative, infinite or not a number. The
/// ends `_count` and `_sum` alone are not enough: a gauge that was followed would only grow.
pub fn class(family: SeriesType, name: &str, has_bound: bool, value: f64) -> Class {
    match family {
        SeriesType::Counter => Class::Counter,
        SeriesType::Histogram | SeriesType::Summary => {
            let is_total = ["_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
            if is_total { Class::Counter } else { Class::Gauge }
        }
        SeriesType::Unknown => {
            let is_counter = name.ends_with("_total") || has_bound && name.ends_with("_bucket");
            let can_be = value >= 0.0 && value.is_finite();
            if is_counter && can_be { Class::Counter } else { Class::Unknown }
        }
        _ => Class::Gauge,
    }
}

/// The type that a value is taken as, if it is that of a zero: then all values of the series that a
/// counter can have are taken as that type.
pub fn lasting_class(
    family: SeriesType,
    name: &str,
    labels: &[(&str, &str)],
    value: f64,
) -> Option<Class> {
    let has_bound = labels.iter().any(|label| label.0 == "le");
    let found = class(family, name, has_bound, value);
    (found == class(family, name, has_bound, 0.0)).then_some(found)
}

/// A single value of a type, and how it is taken: totals are followed, and other values replace
/// what is there.
#[inline]
pub fn given(class: Class, value: f64) -> (Given<'static>, Mode) {
    match class {
        Class::Counter => (Given::Counter(value), Mode::Follow),
        Class::Gauge => (Given::Gauge(value), Mode::Set),
        _ => (Given::Unknown(value), Mode::Set),
    }
}

/// The same type in the words of remote write.
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

/// The type that values without a type get: that of the daemon's family of that name, if it has
/// one. What ends in `_count` or `_sum` is of a histogram if the daemon has its buckets.
pub fn kept(intake: &mut Intake, name: &str) -> SeriesType {
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

/// The name of the family that a series of this name may belong to.
pub fn family_name(name: &str) -> Option<&str> {
    let suffixes = ["_total", "_bucket", "_count", "_sum", "_created", "_info", "_gcount", "_gsum"];
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|base| !base.is_empty())
}

/// The time of a sample, in milliseconds since 1970. All times before that become that one: such a
/// sample is earlier than any whose time a series keeps.
pub(super) fn sample_time(ms: i64) -> Timestamp {
    Timestamp(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000))
}

/// A time in milliseconds since 1970; `None` if it is not after that.
pub(super) fn timestamp(ms: i64) -> Option<Timestamp> {
    let ns = u64::try_from(ms).ok()?.checked_mul(1_000_000)?;
    (ns > 0).then_some(Timestamp(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_family_first_and_the_name_second() {
        for (family, name, has_bound, value, expected) in [
            (SeriesType::Counter, "x", false, 1.0, Class::Counter),
            (SeriesType::Gauge, "x_total", false, 1.0, Class::Gauge),
            (SeriesType::Info, "x_info", false, 1.0, Class::Gauge),
            (SeriesType::Histogram, "x_bucket", true, 1.0, Class::Counter),
            (SeriesType::Histogram, "x_created", false, 1.0, Class::Gauge),
            (SeriesType::Summary, "x_sum", false, 1.0, Class::Counter),
            (SeriesType::Summary, "x", false, 1.0, Class::Gauge),
            (SeriesType::GaugeHistogram, "x_bucket", true, 1.0, Class::Gauge),
            (SeriesType::Unknown, "x_total", false, 1.0, Class::Counter),
            (SeriesType::Unknown, "x_total", false, -1.0, Class::Unknown),
            (SeriesType::Unknown, "x_sum", false, f64::NAN, Class::Unknown),
            (SeriesType::Unknown, "x_count", false, 0.0, Class::Unknown),
            (SeriesType::Unknown, "x_bucket", true, 0.0, Class::Counter),
            (SeriesType::Unknown, "x_bucket", false, 0.0, Class::Unknown),
            (SeriesType::Unknown, "x", false, 0.0, Class::Unknown),
        ] {
            assert_eq!(class(family, name, has_bound, value), expected, "{family:?} {name}");
        }
    }

    #[test]
    fn families_are_parts_of_names() {
        assert_eq!(family_name("x_total"), Some("x"));
        assert_eq!(family_name("x_bucket"), Some("x"));
        assert_eq!(family_name("_total"), None);
        assert_eq!(family_name("x"), None);
    }
}
