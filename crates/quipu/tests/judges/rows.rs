//! The samples that a parser must find in an exposition. They are made from the same families and
//! series as the exposition, but independently of its code.

use std::collections::BTreeMap;

use quipu::exposition::{Escaping, Format, escape_name};
use quipu::snapshot::{self, Exemplar, FamilyHeader, Kind, Native, Number, Series, Sink, Texts};
use serde_json::Value;

/// A sample with the metadata of its family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Row {
    name: String,
    labels: BTreeMap<String, String>,
    /// A number, or the buckets of a native histogram.
    value: String,
    kind: String,
    help: String,
    unit: String,
    /// The start time in milliseconds; 0 if there is none.
    pub start: u64,
    exemplars: Vec<(BTreeMap<String, String>, String, u64)>,
}

/// A sink that collects the expected rows of a format.
pub(crate) struct Rows {
    format: Format,
    escaping: Escaping,
    pub(crate) rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(format: Format, escaping: Escaping) -> Self {
        Self { format, escaping, rows: Vec::new() }
    }

    /// The rows that the parsers found.
    pub(crate) fn parsed(samples: &[Value]) -> Vec<Row> {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let labels = |value: &Value| -> BTreeMap<String, String> {
            let pairs = value.as_object().into_iter().flatten();
            pairs.map(|(name, value)| canonical(name, &text(value))).collect()
        };
        let number = |value: &Value| format!("{:?}", text(value).parse::<f64>().unwrap());
        let row = |sample: &Value| Row {
            name: text(&sample["name"]),
            labels: labels(&sample["labels"]),
            value: match &sample["native"] {
                Value::Null => number(&sample["value"]),
                native => {
                    let field = |name: &str| number(&native[name]);
                    let buckets = native["buckets"].as_array().unwrap().iter();
                    // "(1,2]:3".
                    let counts = buckets.map(|bucket| {
                        let bucket = text(bucket);
                        bucket.rsplit(':').next().unwrap().parse().unwrap()
                    });
                    let schema = &native["schema"];
                    native_text(schema, &field("count"), &field("sum"), &field("zero"), counts)
                }
            },
            kind: text(&sample["type"]),
            help: text(&sample["help"]),
            unit: text(&sample["unit"]),
            start: sample["start"].as_u64().unwrap_or(0),
            exemplars: sample["exemplars"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|exemplar| {
                    let time = exemplar["time"].as_u64().unwrap_or(0);
                    (labels(&exemplar["labels"]), number(&exemplar["value"]), time)
                })
                .collect(),
        };
        let mut rows: Vec<Row> = samples.iter().map(row).collect();
        rows.sort();
        rows
    }

    fn name(&self, family: &FamilyHeader<'_>, suffix: &str) -> String {
        let mut name = String::new();
        // The parser splits a composite value into samples, and adds these suffixes itself.
        let is_whole = matches!(self.format, Format::OpenMetrics2 | Format::Protobuf);
        if is_whole && matches!(suffix, "_bucket" | "_count" | "_sum") {
            escape_name(family.name, self.escaping, &mut name);
            return name + suffix;
        }
        escape_name(&format!("{}{suffix}", family.name), self.escaping, &mut name);
        name
    }

    fn label(&self, name: &str, value: &str) -> (String, String) {
        let mut escaped = String::new();
        if self.escaping == Escaping::AllowUtf8 {
            return canonical(name, value);
        }
        // A colon is legal in names of metrics, but not of labels: replace it by a character that
        // is escaped.
        escape_name(&name.replace(':', "\u{e000}"), self.escaping, &mut escaped);
        canonical(&escaped.replace("_e000_", "_3a_"), value)
    }

    fn exemplars<'a>(
        &self,
        exemplars: impl IntoIterator<Item = Exemplar<'a>>,
    ) -> Vec<(BTreeMap<String, String>, String, u64)> {
        if matches!(self.format, Format::Text | Format::TextUtf8) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for exemplar in exemplars {
            let mut texts = exemplar.labels;
            let length: usize = texts.map(|text| text.chars().count()).sum();
            // OpenMetrics 1.0 forbids longer exemplars; 2.0 forbids those without a time.
            if self.format == Format::OpenMetrics && length > 128
                || self.format == Format::OpenMetrics2 && exemplar.time.is_none()
            {
                continue;
            }
            let mut labels = BTreeMap::new();
            while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                // The parser of version 1.0 leaves the escapes of exemplars as they are.
                let value = match self.format {
                    Format::OpenMetrics => {
                        value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
                    }
                    _ => value.to_owned(),
                };
                labels.extend([self.label(name, &value)]);
            }
            let time = exemplar.time.map_or(0, |time| time.as_nanos() / 1_000_000);
            all.push((labels, format!("{:?}", exemplar.value), time));
        }
        all
    }

    fn histogram(
        &mut self,
        row: &Row,
        family: &FamilyHeader<'_>,
        histogram: &snapshot::HistogramValue<'_>,
    ) {
        let has_native = matches!(self.format, Format::OpenMetrics2 | Format::Protobuf);
        if let (true, Some(native)) = (has_native, &histogram.native) {
            let Native { schema, zero_count, positive, negative, .. } = *native;
            let counts = negative.iter().rev().map(|pair| pair.1);
            // The parser's iterator yields the zero bucket between the two sides.
            let zero = (zero_count > 0).then_some(zero_count);
            let counts = counts.chain(zero).chain(positive.iter().map(|pair| pair.1));
            let text = |number: f64| format!("{number:?}");
            let (count, zero) = (text(histogram.count as f64), text(zero_count as f64));
            let value = native_text(&schema.into(), &count, &text(histogram.sum), &zero, counts);
            let in_buckets = histogram.buckets.iter().filter_map(|bucket| bucket.exemplar);
            let of_native = native.exemplars.iter().copied();
            let exemplars = if native.exemplars.is_empty() {
                self.exemplars(in_buckets)
            } else {
                self.exemplars(of_native)
            };
            self.rows.push(Row { name: self.name(family, ""), value, exemplars, ..row.clone() });
            if histogram.buckets.is_empty() {
                return;
            }
        }
        let mut count = 0;
        let add = |rows: &mut Self, le: f64, count: u64, exemplar: Option<Exemplar<'_>>| {
            let mut one = Row {
                name: rows.name(family, "_bucket"),
                value: format!("{:?}", count as f64),
                exemplars: rows.exemplars(exemplar),
                ..row.clone()
            };
            one.labels.extend([canonical("le", &le.to_string())]);
            rows.rows.push(one);
        };
        for bucket in histogram.buckets {
            count += bucket.count;
            add(self, bucket.bound, count, bucket.exemplar);
        }
        if histogram.buckets.is_empty() {
            add(self, f64::INFINITY, histogram.count, None);
        }
        let is_below_zero = histogram.buckets.first().is_some_and(|bucket| bucket.bound < 0.0);
        // OpenMetrics 1.0 allows no sum that can decrease.
        if !is_below_zero || self.format != Format::OpenMetrics {
            self.sum_and_count(row, family, histogram.sum, histogram.count);
        }
    }

    fn sum_and_count(&mut self, row: &Row, family: &FamilyHeader<'_>, sum: f64, count: u64) {
        for (suffix, value) in [("_sum", sum), ("_count", count as f64)] {
            let (name, value) = (self.name(family, suffix), format!("{value:?}"));
            self.rows.push(Row { name, value, ..row.clone() });
        }
    }
}

impl Sink for Rows {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let is_open_metrics = matches!(self.format, Format::OpenMetrics | Format::OpenMetrics2);
        let has_start = matches!(self.format, Format::OpenMetrics2 | Format::Protobuf);
        let counts = matches!(family.kind, Kind::Counter | Kind::Histogram | Kind::Summary);
        let is_text = matches!(family.kind, Kind::Info | Kind::StateSet);
        let has_utf8 = self.escaping == Escaping::AllowUtf8;
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Info if is_open_metrics => "info",
            // Names of labels must not contain a colon, but the state set's label would.
            Kind::StateSet if is_open_metrics && (has_utf8 || !family.name.contains(':')) => {
                "stateset"
            }
            Kind::Info | Kind::StateSet => "gauge",
            _ => "unknown",
        };
        let has_unit = is_open_metrics && !is_text || self.format == Format::Protobuf;
        let mut row = Row {
            kind: kind.to_owned(),
            help: match self.format {
                Format::OpenMetrics2 => family.help.trim_end_matches('\r').to_owned(),
                _ => family.help.to_owned(),
            },
            unit: if has_unit { family.unit.to_owned() } else { String::new() },
            ..Row::default()
        };
        if has_start && counts {
            row.start = series.start.map_or(0, |start| start.as_nanos() / 1_000_000);
        }
        if series.overflow {
            row.labels.insert("quipu_overflow".to_owned(), "true".to_owned());
        } else {
            let fixed = family.fixed(series.group).map(|(name, value)| self.label(name, value));
            let mut labels: BTreeMap<_, _> = fixed.collect();
            let texts: Texts<'_> = series.texts;
            labels.extend(family.dynamic().zip(texts).map(|(name, text)| self.label(name, text)));
            row.labels = labels;
        }
        let number = |number: Number| match number {
            Number::Unsigned(n) => format!("{:?}", n as f64),
            Number::Signed(n) => format!("{:?}", n as f64),
            Number::Float(n) => format!("{n:?}"),
        };
        match &series.value {
            snapshot::Value::Counter(snapshot::CounterValue { total, exemplar, .. }) => {
                if is_open_metrics && matches!(total, Number::Float(total) if total.is_nan()) {
                    return;
                }
                let exemplars = self.exemplars(*exemplar);
                let name = self.name(family, "_total");
                self.rows.push(Row { name, value: number(*total), exemplars, ..row });
            }
            snapshot::Value::Gauge(value) | snapshot::Value::Unknown(value) => {
                self.rows.push(Row { name: self.name(family, ""), value: number(*value), ..row });
            }
            snapshot::Value::Info => {
                let name = self.name(family, "_info");
                self.rows.push(Row { name, value: "1.0".to_owned(), ..row });
            }
            snapshot::Value::StateSet(states) => {
                for (state, is_on) in *states {
                    let name = self.name(family, "");
                    let value = format!("{:?}", f64::from(u8::from(*is_on)));
                    let mut one = Row { name, value, ..row.clone() };
                    one.labels.extend([self.label(family.name, state)]);
                    self.rows.push(one);
                }
            }
            snapshot::Value::Summary(snapshot::SummaryValue { quantiles, count, sum, .. }) => {
                for (quantile, value) in *quantiles {
                    let value = format!("{value:?}");
                    let mut one = Row { name: self.name(family, ""), value, ..row.clone() };
                    one.labels.extend([canonical("quantile", &quantile.to_string())]);
                    self.rows.push(one);
                }
                self.sum_and_count(&row, family, *sum, *count);
            }
            snapshot::Value::Histogram(histogram) => self.histogram(&row, family, histogram),
            other => panic!("{other:?} is of a kind that is not here yet"),
        }
    }
}

/// Normalizes the spelling of bounds and quantiles.
fn canonical(name: &str, value: &str) -> (String, String) {
    let value = match (name, value.parse::<f64>()) {
        ("le" | "quantile", Ok(number)) => format!("{number:?}"),
        _ => value.to_owned(),
    };
    (name.to_owned(), value)
}

fn native_text(
    schema: &Value,
    count: &str,
    sum: &str,
    zero: &str,
    counts: impl Iterator<Item = u64>,
) -> String {
    let counts: Vec<u64> = counts.collect();
    format!("schema {schema}, count {count}, sum {sum}, zero {zero}, buckets {counts:?}")
}
