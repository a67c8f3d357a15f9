//! The kinds of families in a segment. Their numbers are on disk: `docs/formats.md` lists them,
//! with the cells and settings of each.

/// What the cells of a family mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MetricKind {
    Counter = 1,
    FloatCounter = 2,
    Gauge = 3,
    IntGauge = 4,
    Histogram = 5,
    Summary = 6,
    Info = 7,
    StateSet = 8,
    MixedCounter = 10,
    ProcessGauge = 9,
}

impl MetricKind {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [
            Self::Counter,
            Self::FloatCounter,
            Self::Gauge,
            Self::IntGauge,
            Self::Histogram,
            Self::Summary,
            Self::Info,
            Self::StateSet,
            Self::MixedCounter,
            Self::ProcessGauge,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}
