//! The limits of an intake.

/// What an intake makes at most. Values of series that exist are always taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most series, in all families that the intake can put a value into.
    pub series: u64,
    /// The most series that one source may make; see
    /// [`Intake::set_source`](super::Intake::set_source). A source may exceed it by one for each
    /// clone that makes a series at the same time.
    pub series_per_source: u64,
    /// The most families: sets of label names, types and settings under all names.
    pub families: u64,
    /// The most families that one source may make, in the same way: families are not removed while
    /// intakes work, so a source that makes up names would leave no room for those of others.
    pub families_per_source: u64,
    /// The most labels of a series.
    pub labels: usize,
    /// The most bytes of the name of a metric or a label.
    pub name_bytes: usize,
    /// The most bytes of a label's value.
    pub value_bytes: usize,
    /// Names of metrics that begin with this are refused: those of a program that shows metrics of
    /// another registry beside what the intake holds.
    pub reserved: Option<&'static str>,
    /// The bytes of the segment that exemplars leave to series, but at most a quarter of those up
    /// to which it may grow; see [`Intake::exemplify`](super::Intake::exemplify).
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

/// What has been used of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Series.
    pub series: u64,
    /// Families.
    pub families: u64,
    /// Those of them that have no series but hidden ones: see
    /// [`Intake::free_unused`](super::Intake::free_unused).
    pub unused: u64,
    /// Exemplars that were omitted since there was no room for them: see
    /// [`Intake::exemplify`](super::Intake::exemplify).
    pub exemplars: u64,
}
