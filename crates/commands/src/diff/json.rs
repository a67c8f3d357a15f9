//! The output for programs: one JSON object. You can find its fields in `docs/cli/top-and-diff.md`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::changes::{Changes, FamilyChange, SeriesChange};
use crate::inspect::json::{JsonFloat, JsonNumber};
use crate::look::{Points, Value, labels};
use quipu_process::json;

/// Writes the object, one family after the other.
pub(super) fn write(changes: &Changes<'_>, out: &mut impl Write) -> io::Result<()> {
    let document = Document {
        seconds: changes.seconds,
        same: UnchangedCounts { families: changes.same_families, series: changes.same_series },
        families: Families(changes),
    };
    json::write(&document, out)?;
    writeln!(out)
}

/// The whole object.
#[derive(Serialize)]
struct Document<'c> {
    seconds: Option<f64>,
    same: UnchangedCounts,
    families: Families<'c>,
}

/// The numbers of unchanged families and series.
#[derive(Serialize)]
struct UnchangedCounts {
    families: usize,
    series: usize,
}

/// All changed families.
struct Families<'c>(&'c Changes<'c>);

impl Serialize for Families<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Changes { families, seconds, .. } = self.0;
        serializer.collect_seq(families.iter().map(|change| Family::new(change, *seconds)))
    }
}

#[derive(Serialize)]
struct Family<'c> {
    name: &'c str,
    r#type: &'static str,
    change: &'static str,
    growth: Option<JsonFloat>,
    same: usize,
    series: SeriesList<'c>,
}

impl<'c> Family<'c> {
    fn new(change: &'c FamilyChange<'c>, seconds: Option<f64>) -> Self {
        Self {
            name: change.name,
            r#type: change.kind.as_str(),
            change: change.change.name(),
            growth: change.growth.map(JsonFloat),
            same: change.same,
            series: SeriesList { changes: &change.series, seconds },
        }
    }
}

/// The changed series of a family.
struct SeriesList<'c> {
    changes: &'c [SeriesChange<'c>],
    seconds: Option<f64>,
}

impl Serialize for SeriesList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.changes.iter().map(|change| Series::new(change, self.seconds)))
    }
}

#[derive(Serialize)]
struct Series<'c> {
    labels: BTreeMap<Cow<'c, str>, Cow<'c, str>>,
    change: &'static str,
    before: Option<SeriesValue>,
    after: Option<SeriesValue>,
    growth: Option<JsonFloat>,
    rate: Option<JsonFloat>,
    delta: Option<JsonFloat>,
}

impl<'c> Series<'c> {
    fn new(change: &'c SeriesChange<'c>, seconds: Option<f64>) -> Self {
        let rate = change.growth.zip(seconds).map(|(growth, seconds)| growth / seconds);
        Self {
            labels: labels(change.labels).collect(),
            change: change.change.name(),
            before: change.before.as_ref().map(SeriesValue::new),
            after: change.after.as_ref().map(SeriesValue::new),
            growth: change.growth.map(JsonFloat),
            rate: rate.map(JsonFloat),
            delta: change.delta.map(JsonFloat),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum SeriesValue {
    Number(JsonNumber),
    Observations { count: JsonFloat, sum: JsonFloat },
}

impl SeriesValue {
    fn new(value: &Value<Points<'_>>) -> Self {
        match value {
            Value::Number(n) => Self::Number(JsonNumber(*n)),
            Value::Histogram { count, sum, .. } | Value::Summary { count, sum, .. } => {
                Self::Observations { count: JsonFloat(*count), sum: JsonFloat(*sum) }
            }
        }
    }
}
