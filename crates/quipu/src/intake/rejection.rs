//! The reasons why an intake rejects a value.

use std::fmt;

use super::Intake;

/// The reason why an intake rejected a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// The name is empty, too long, or contains an invalid character.
    Name,
    /// The name is reserved.
    Reserved,
    /// A sample would get the same name as another metric's sample, such as `x_sum` of a histogram
    /// `x`, or the labels of the series would be equal to other labels once escaped.
    Collision,
    /// The name of a label is empty, too long, reserved, or used twice. `le` is reserved in
    /// histograms, and `quantile` in summaries.
    LabelName,
    /// Two labels would have the same name in formats without UTF-8 names, such as `a.b` and `a_b`.
    LabelsAlike,
    /// The value of a label is too long.
    LabelValue,
    /// There are too many labels.
    Labels,
    /// An increment of a counter is negative, or a number is not a number.
    Value,
    /// The buckets or the quantiles are out of order, or too many.
    Buckets,
    /// A sample repeats the time of the last sample of its series with another value (see
    /// [`Order`](super::Order)), or an increment is not later than the last increment (see
    /// [`Metric::streams`](super::Metric::streams)).
    Duplicate,
    /// A sample is more than two hours older than the last sample of its series: see
    /// [`Order`](super::Order).
    OutOfOrder,
    /// A sample is more than ten minutes in the future: see [`Order`](super::Order).
    TooNew,
    /// Too many senders with the same labels send at once: see
    /// [`Metric::streams`](super::Metric::streams).
    Senders,
    /// The limit on families is reached.
    Families,
    /// The limit on series is reached.
    Series,
    /// The limit on the series of the source is reached.
    SourceSeries,
    /// The limit on the families of the source is reached.
    SourceFamilies,
    /// The segment is full, or cannot be locked in time.
    Full,
}

impl Rejection {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::Name,
        Self::Reserved,
        Self::Collision,
        Self::LabelName,
        Self::LabelsAlike,
        Self::LabelValue,
        Self::Labels,
        Self::Value,
        Self::Buckets,
        Self::Duplicate,
        Self::OutOfOrder,
        Self::TooNew,
        Self::Senders,
        Self::Families,
        Self::Series,
        Self::SourceSeries,
        Self::SourceFamilies,
        Self::Full,
    ];

    /// Returns the reason as one word, for the value of a label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Reserved => "reserved",
            Self::Collision => "collision",
            Self::LabelName => "label_name",
            Self::LabelsAlike => "labels_alike",
            Self::LabelValue => "label_value",
            Self::Labels => "labels",
            Self::Value => "value",
            Self::Buckets => "buckets",
            Self::Duplicate => "duplicate",
            Self::OutOfOrder => "out_of_order",
            Self::TooNew => "too_new",
            Self::Senders => "senders",
            Self::Families => "families_limit",
            Self::Series => "series_limit",
            Self::SourceSeries => "source_series_limit",
            Self::SourceFamilies => "source_families_limit",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name of the metric is empty, too long, or has a NUL",
            Self::Reserved => "the name begins with a prefix that is reserved: choose another name",
            Self::Collision => {
                "another metric has samples of that name, such as x_sum of a histogram x: choose \
                 another name"
            }
            Self::LabelName => {
                "the name of a label is empty, too long, reserved (as le is in a histogram), or \
                 there twice"
            }
            Self::LabelsAlike => {
                "two labels have one name once escaped, such as a.b and a_b: rename one of the two"
            }
            Self::LabelValue => "the value of a label is too long",
            Self::Labels => "there are too many labels",
            Self::Value => "the value is negative where it cannot be, or is not a number",
            Self::Buckets => "buckets or quantiles are out of order, invalid, or too many",
            Self::Duplicate => {
                "a duplicate: the last one of its series has the same time and another value, or is \
                 a later increment"
            }
            Self::OutOfOrder => {
                "out of order: it is more than two hours older than the last one of its series"
            }
            Self::TooNew => {
                "too new: its time is more than ten minutes in the future; correct the clock"
            }
            Self::Senders => {
                "too many senders have the same labels: give each sender a label that tells it apart"
            }
            Self::Families => {
                "the limit on families is reached: raise it, send fewer names, or free those that \
                 are no longer used"
            }
            Self::Series => "the limit on series is reached: raise it, or send fewer label sets",
            Self::SourceSeries => {
                "the limit on the series of one source is reached: raise it, or send fewer label \
                 sets"
            }
            Self::SourceFamilies => {
                "the limit on the families of one source is reached: raise it, or send fewer names"
            }
            Self::Full => {
                "the state has no room, because its disk or its limit is full, or another process \
                 holds its lock"
            },
        })
    }
}

impl std::error::Error for Rejection {}

/// The message of a [`Rejection`] with the names that matter: see [`Intake::explain`].
#[derive(Clone, Copy)]
pub struct Explanation<'i> {
    pub(super) intake: &'i Intake,
    pub(super) rejection: Rejection,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { intake, rejection } = self;
        match (rejection, intake.limits.reserved, intake.table.collision()) {
            (Rejection::Reserved, Some(prefix), _) => write!(
                f,
                "the name begins with {prefix:?}, a prefix that is reserved: choose another name, \
                 which does not begin with it once escaped either"
            ),
            (Rejection::Collision | Rejection::LabelsAlike, _, Some(collision)) => collision.fmt(f),
            (rejection, ..) => rejection.fmt(f),
        }
    }
}

impl fmt::Debug for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
