//! The JSON output of `quipu inspect`, a single object. `docs/cli/inspect.md` documents its fields.
//!
//! Families and series are serialized while the file is read, because only one series should be in
//! memory at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Not;
use std::path::Path;

use quipu::snapshot::{ALONE, CounterValue, Decoder, Number, SummaryValue, Value, each_series};
use quipu_segment::inspect::{Damage, FamilySeen, HeaderSeen, Inspection, SeriesSeen};
use quipu_segment::printable;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::names::number;
use super::processes;
use super::text::hex;
use quipu_process::json;

/// Writes the object. Returns whether the file is undamaged.
pub(super) fn write(
    inspection: &Inspection,
    file: &Path,
    out: &mut impl Write,
) -> io::Result<bool> {
    let damage = RefCell::new(inspection.report().damage.clone());
    let document = Document { inspection, file, damage };
    json::write(&document, out)?;
    writeln!(out)?;
    Ok(document.damage.into_inner().is_empty())
}

/// A float. It is serialized as a string if JSON cannot represent it.
pub(crate) struct JsonFloat(pub(crate) f64);

impl Serialize for JsonFloat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(&number(self.0))
        }
    }
}

/// A number with all of its digits. It is serialized as a string if JSON cannot represent it.
pub(crate) struct JsonNumber(pub(crate) Number);

impl Serialize for JsonNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Number::Unsigned(n) => serializer.serialize_u64(n),
            Number::Signed(n) => serializer.serialize_i64(n),
            Number::Float(n) => JsonFloat(n).serialize(serializer),
        }
    }
}

/// A damaged place in the file.
#[derive(Serialize)]
pub(super) struct DamageEntry<'d> {
    pub(super) at: u64,
    pub(super) what: &'d str,
}

/// The whole object.
struct Document<'a> {
    inspection: &'a Inspection,
    file: &'a Path,
    /// The damage so far. This is a cell, because serializing the series finds more damage.
    damage: RefCell<Vec<Damage>>,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let report = self.inspection.report();
        let records = report.records.iter().map(|record| Record {
            kind: format!("{:?}", record.kind),
            name: &record.name,
            at: record.at,
            bytes: record.bytes,
        });
        let mut object = serializer.serialize_struct("Document", 11)?;
        object.serialize_field("file", &printable(self.file).to_string())?;
        object.serialize_field("bytes", &report.length)?;
        object.serialize_field("header", &report.header.as_ref().map(Header::new))?;
        object.serialize_field("open", &report.is_open)?;
        object.serialize_field("processes", &Processes::find(self.inspection, self.file))?;
        object.serialize_field("records", &records.collect::<Vec<_>>())?;
        object.serialize_field("claim_bytes", &report.claim_bytes)?;
        object.serialize_field("other_bytes", &report.other_bytes())?;
        object.serialize_field("families", &Families(self))?;
        // Both are complete now, because all series were serialized.
        object.serialize_field("omitted", &self.inspection.omitted())?;
        let mut damage = self.damage.borrow_mut();
        damage.sort_by(|one, other| (one.at, &one.message).cmp(&(other.at, &other.message)));
        damage.dedup();
        let damage =
            damage.iter().map(|Damage { at, message, .. }| DamageEntry { at: *at, what: message });
        object.serialize_field("damage", &damage.collect::<Vec<_>>())?;
        object.end()
    }
}

#[derive(Serialize)]
struct Header {
    version: u32,
    limit: u64,
    size: u64,
    used: u64,
    created: f64,
    instance: String,
    clean: bool,
    left: bool,
    boot: String,
    synced: f64,
    synced_bytes: u64,
    tokens: u64,
}

impl Header {
    fn new(header: &HeaderSeen) -> Self {
        Self {
            version: header.version,
            limit: header.limit,
            size: header.size,
            used: header.used,
            created: seconds(header.created),
            instance: hex(&header.instance),
            clean: header.is_clean,
            left: header.is_left,
            boot: hex(&header.boot),
            synced: seconds(header.synced),
            synced_bytes: header.synced_bytes,
            tokens: header.tokens,
        }
    }
}

/// Converts nanoseconds of Unix time into seconds.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[derive(Serialize)]
struct Processes {
    open: Vec<OpenProcess>,
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct OpenProcess {
    pid: u32,
    name: String,
    state: char,
}

#[derive(Serialize)]
struct Token {
    token: u64,
    alive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    has: String,
}

impl Processes {
    fn find(inspection: &Inspection, file: &Path) -> Self {
        let open = processes::find_open(file).into_iter().map(|process| OpenProcess {
            pid: process.pid,
            name: process.name,
            state: process.state,
        });
        let owners = inspection.report().owners.iter().map(|owner| Token {
            token: owner.token,
            alive: owner.is_alive,
            pid: None,
            has: owner.holding.to_string(),
        });
        let gauges = processes::gauge_processes(inspection).into_iter();
        let gauges = gauges.map(|(token, (pid, alive))| Token {
            token,
            alive,
            pid: Some(pid),
            has: "gauges of processes".to_owned(),
        });
        Self { open: open.collect(), tokens: owners.chain(gauges).collect() }
    }
}

#[derive(Serialize)]
struct Record<'a> {
    kind: String,
    name: &'a str,
    at: u64,
    bytes: u64,
}

/// All families of a document.
struct Families<'a>(&'a Document<'a>);

impl Serialize for Families<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let families = self.0.inspection.report().families.iter();
        serializer.collect_seq(families.map(|family| Family::new(self.0, family)))
    }
}

#[derive(Serialize)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
    r#type: &'static str,
    kind: &'static str,
    identity: &'static str,
    labels: Vec<Label<'a>>,
    limit: Option<u64>,
    idle_seconds: Option<f64>,
    created: f64,
    dense: bool,
    lanes: u16,
    shown: u64,
    hidden: u64,
    overflowed: u64,
    bytes: FamilyBytes,
    series: SeriesList<'a>,
}

#[derive(Serialize)]
struct Label<'a> {
    name: &'a str,
    values: Option<&'a [String]>,
}

#[derive(Serialize)]
struct FamilyBytes {
    description: u64,
    series: u64,
    index: u64,
    free: u64,
}

impl<'a> Family<'a> {
    fn new(document: &'a Document<'a>, family: &'a FamilySeen) -> Self {
        let schema = &family.schema;
        let decoder = Decoder::new(schema);
        let labels = schema.labels.iter().filter(|label| label.name != ALONE);
        let labels =
            labels.map(|label| Label { name: &label.name, values: label.values.as_deref() });
        Self {
            name: &schema.name,
            help: &schema.help,
            unit: &schema.unit,
            r#type: decoder.kind().as_str(),
            kind: decoder.kind_name(),
            identity: decoder.identity(),
            labels: labels.collect(),
            limit: schema.limit,
            idle_seconds: schema.idle.map(|idle| idle.as_secs_f64()),
            created: seconds(family.created),
            dense: family.is_dense,
            lanes: family.lanes,
            shown: family.series,
            hidden: family.hidden,
            overflowed: family.overflowed,
            bytes: FamilyBytes {
                description: family.head_bytes,
                series: family.series_bytes,
                index: family.index_bytes,
                free: family.free_bytes,
            },
            series: SeriesList { document, family },
        }
    }
}

/// The series of a family. Serializing them can find more damage.
struct SeriesList<'a> {
    document: &'a Document<'a>,
    family: &'a FamilySeen,
}

impl Serialize for SeriesList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut decoder = Decoder::new(&self.family.schema);
        let mut list = serializer.serialize_seq(None)?;
        let mut result = Ok(());
        let damage = each_series(self.document.inspection, self.family, |series| {
            if result.is_ok() {
                result = list.serialize_element(&Series::new(&mut decoder, series));
            }
        });
        result?;
        self.document.damage.borrow_mut().extend(damage);
        list.end()
    }
}

#[derive(Serialize)]
struct Series<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    start: f64,
    #[serde(skip_serializing_if = "Not::not")]
    overflow: bool,
    #[serde(skip_serializing_if = "Not::not")]
    hidden: bool,
    value: Option<SeriesValue<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SeriesValue<'a> {
    Number(JsonNumber),
    Histogram {
        sum: JsonFloat,
        /// The upper bounds with counts; `None` if all buckets are exponential.
        buckets: Option<Vec<(JsonFloat, f64)>>,
    },
    Summary {
        sum: JsonFloat,
        count: f64,
    },
    StateSet(BTreeMap<String, bool>),
    /// Always 1.
    Info(u8),
    /// The raw cells, if the kind is from a later version.
    Cells {
        cells: &'a [u64],
    },
}

impl<'a> Series<'a> {
    fn new(decoder: &mut Decoder, series: &'a SeriesSeen<'_>) -> Self {
        let labels = series.labels.iter().copied().filter(|(name, _)| *name != ALONE);
        Self {
            labels: labels.collect(),
            start: seconds(series.start),
            overflow: series.is_overflow,
            hidden: series.is_hidden,
            value: SeriesValue::read(decoder, series.cells),
        }
    }
}

impl<'a> SeriesValue<'a> {
    /// Decodes a value from the cells of a series; `None` for a gauge that was never set.
    fn read(decoder: &mut Decoder, cells: &'a [u64]) -> Option<Self> {
        if !decoder.is_known() {
            return Some(Self::Cells { cells });
        }
        decoder.read(cells, |value| match value {
            Value::Counter(CounterValue { total: n, .. }) | Value::Gauge(n) | Value::Unknown(n) => {
                Self::Number(JsonNumber(n))
            }
            Value::Histogram(histogram) => {
                let buckets = histogram.buckets.iter();
                let buckets = buckets.map(|bucket| (JsonFloat(bucket.bound), bucket.count as f64));
                let buckets = (!histogram.buckets.is_empty()).then(|| buckets.collect());
                Self::Histogram { sum: JsonFloat(histogram.sum), buckets }
            }
            Value::Summary(SummaryValue { sum, count, .. }) => {
                Self::Summary { sum: JsonFloat(sum), count: count as f64 }
            }
            Value::StateSet(states) => {
                let states = states.iter().map(|(name, is_on)| ((*name).to_owned(), *is_on));
                Self::StateSet(states.collect())
            }
            _ => Self::Info(1),
        })
    }
}
