//! The limits of an intake. They are necessary because other programs choose names and labels, and
//! one of these programs could otherwise use up the memory of all.

/// The maximum number and size of everything that an intake creates. Values of existing series are
/// always accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of series, in all families that the intake can put a value into.
    pub series: u64,
    /// The maximum number of series that one source can make; see
    /// [`Intake::set_source`](super::Intake::set_source). A source can exceed this limit by one for
    /// each clone that makes a series at the same time.
    pub series_per_source: u64,
    /// The maximum number of families: sets of label names, types and settings under all names.
    pub families: u64,
    /// The maximum number of families that one source can make, in the same way. Families are not
    /// removed while intakes work, so without this limit, a source that invents names would use up
    /// the room for all others.
    pub families_per_source: u64,
    /// The maximum number of labels of a series.
    pub labels: usize,
    /// The maximum length of the name of a metric or a label, in bytes.
    pub name_bytes: usize,
    /// The maximum length of a label's value, in bytes.
    pub value_bytes: usize,
    /// The reserved prefix: names of metrics that begin with it are refused. You can use this in a
    /// program that shows metrics of another registry next to the intake's metrics.
    pub reserved: Option<&'static str>,
    /// The bytes of the segment that exemplars leave to series, but at most a quarter of the
    /// segment's maximum size; see [`Intake::exemplify`](super::Intake::exemplify).
    pub bytes_for_series: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            series: 1_000_000,
            series_per_source: u64::MAX,
            families: 20_000,
            families_per_source: 15_000,
            labels: 64,
            name_bytes: 512,
            value_bytes: 4096,
            reserved: None,
            bytes_for_series: u64::MAX,
        }
    }
}

/// The used part of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Series.
    pub series: u64,
    /// Families.
    pub families: u64,
    /// The families that only contain hidden series: see
    /// [`Intake::free_unused`](super::Intake::free_unused).
    pub unused: u64,
    /// The exemplars that were omitted because there was no room for them: see
    /// [`Intake::exemplify`](super::Intake::exemplify).
    pub exemplars: u64,
}
