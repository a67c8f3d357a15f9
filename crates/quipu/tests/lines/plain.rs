//! A renderer of the line-based formats. It writes each line from its start, because it must not
//! share the encoder's caches.

use std::fmt::Write;

use quipu::exposition::{Escaping, Format};
use quipu::snapshot::{
    CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Number, Series, SummaryValue, Value,
};

/// A page without the end.
pub(crate) struct Page {
    format: Format,
    escaping: Escaping,
    number: fn(Number) -> String,
    /// Whether the header of the current family is written.
    is_begun: bool,
    out: String,
}

impl Page {
    pub(crate) fn new(format: Format, escaping: Escaping, number: fn(Number) -> String) -> Self {
        Self { format, escaping, number, is_begun: false, out: String::new() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.out
    }

    pub(crate) fn family(&mut self) {
        self.is_begun = false;
    }

    fn is_open(&self) -> bool {
        matches!(self.format, Format::OpenMetrics | Format::OpenMetrics2)
    }

    fn is_second(&self) -> bool {
        self.format == Format::OpenMetrics2
    }

    /// The name of a metric, and whether it is quoted.
    fn name(&self, name: &str, suffix: &str) -> (String, bool) {
        if self.escaping == Escaping::AllowUtf8 && !is_legacy(name, true) {
            return (format!("{}{suffix}", quoted(name)), true);
        }
        (escaped(&format!("{name}{suffix}"), is_legacy(name, true), true, self.escaping), false)
    }

    fn label(&self, name: &str, value: &str) -> String {
        let name = match self.escaping {
            Escaping::AllowUtf8 if !is_legacy(name, false) => format!("\"{}\"", quoted(name)),
            _ => escaped(name, is_legacy(name, false), false, self.escaping),
        };
        format!("{name}=\"{}\"", quoted(value))
    }

    fn header(&mut self, family: &FamilyHeader<'_>) {
        let is_open = self.is_open();
        let suffix = match family.kind {
            _ if self.format == Format::OpenMetrics => "",
            Kind::Counter if !family.bare => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        let (name, is_quoted) = self.name(family.name, suffix);
        let shown = if is_quoted { format!("\"{name}\"") } else { name };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        let help = if is_open { help.replace('"', "\\\"") } else { help };
        if !help.is_empty() {
            writeln!(self.out, "# HELP {shown} {help}").unwrap();
        }
        // The label of a state set is named like the metric.
        let is_label = self.label(family.name, "")
            == format!("{}=\"\"", self.name(family.name, "").0)
            || self.escaping == Escaping::AllowUtf8;
        let kind = match family.kind {
            Kind::Counter if family.bare && self.format == Format::OpenMetrics => "unknown",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Unknown => {
                if is_open {
                    "unknown"
                } else {
                    "untyped"
                }
            }
            Kind::Info if is_open => "info",
            Kind::StateSet if is_open && is_label => "stateset",
            _ => "gauge",
        };
        writeln!(self.out, "# TYPE {shown} {kind}").unwrap();
        let stem = self.name(family.name, "").0;
        let ends = stem.ends_with(&format!("_{}", family.unit));
        if is_open && !family.unit.is_empty() && ends && !["info", "stateset"].contains(&kind) {
            writeln!(self.out, "# UNIT {shown} {}", family.unit).unwrap();
        }
    }

    /// The labels of a series.
    fn labels(&self, family: &FamilyHeader<'_>, series: &Series<'_>) -> Vec<String> {
        if series.overflow {
            return vec![format!("quipu_overflow=\"{}\"", series.overflow_value())];
        }
        // The last label varies fastest.
        let mut rest = series.group as usize;
        let mut fixed = Vec::new();
        for (name, values) in family.labels().iter().rev().filter_map(|l| Some((l.name, l.values?)))
        {
            fixed.insert(0, self.label(name, values[rest % values.len()]));
            rest /= values.len();
        }
        let dynamic = family.labels().iter().filter(|label| label.values.is_none());
        fixed.extend(dynamic.zip(series.texts).map(|(label, text)| self.label(label.name, text)));
        fixed
    }

    /// Writes the start of a line up to the value.
    fn start(&mut self, family: &FamilyHeader<'_>, suffix: &str, mut labels: Vec<String>) {
        let (name, is_quoted) = self.name(family.name, suffix);
        if is_quoted {
            labels.insert(0, format!("\"{name}\""));
        } else {
            self.out.push_str(&name);
        }
        if !labels.is_empty() {
            write!(self.out, "{{{}}}", labels.join(",")).unwrap();
        }
        self.out.push(' ');
    }

    fn line(
        &mut self,
        family: &FamilyHeader<'_>,
        suffix: &str,
        labels: &[String],
        (value, exemplar): (String, Option<Exemplar<'_>>),
    ) {
        self.start(family, suffix, labels.to_vec());
        self.out.push_str(&value);
        if exemplar.is_some() && self.is_open() {
            self.out.push_str(EXEMPLAR);
        }
        self.out.push('\n');
    }

    pub(crate) fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if matches!(&series.value, Value::Histogram(histogram) if !is_sound(histogram)) {
            return;
        }
        if !std::mem::replace(&mut self.is_begun, true) {
            self.header(family);
        }
        let labels = self.labels(family, series);
        let (number, st) = (self.number, if self.is_second() { " st@1.5" } else { "" });
        let float = |n: f64| number(Number::Float(n));
        let extra = |label: String| [&labels[..], &[label]].concat();
        let bound = |bound: f64| bound_text(bound, self.is_open());
        match series.value {
            Value::Counter(CounterValue { total: Number::Float(n), .. })
                if n.is_nan() && self.is_open() => {}
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                let is_unknown = family.bare && self.format == Format::OpenMetrics;
                let suffix = if family.bare { "" } else { "_total" };
                let value = format!("{}{st}", number(total));
                self.line(family, suffix, &labels, (value, exemplar.filter(|_| !is_unknown)));
            }
            Value::Gauge(value) | Value::Unknown(value) => {
                self.line(family, "", &labels, (number(value), None));
            }
            Value::Info => self.line(family, "_info", &labels, ("1".into(), None)),
            Value::StateSet(states) => {
                for (state, is_on) in states {
                    let value = if *is_on { "1" } else { "0" };
                    let labels = extra(self.label(family.name, state));
                    self.line(family, "", &labels, (value.into(), None));
                }
            }
            Value::Histogram(histogram) if self.is_second() => {
                let mut count = 0;
                let mut buckets: Vec<String> = Vec::new();
                for bucket in histogram.buckets {
                    count += bucket.count;
                    buckets.push(format!("{}:{count}", bound(bucket.bound)));
                }
                if buckets.is_empty() {
                    buckets.push(format!("+Inf:{}", histogram.count));
                }
                let (buckets, sum) = (buckets.join(","), float(histogram.sum));
                let exemplars = histogram.buckets.iter().filter(|b| b.exemplar.is_some()).count();
                let exemplars = EXEMPLAR.repeat(exemplars);
                let value = format!(
                    "{{count:{},sum:{sum},bucket:[{buckets}]}}{st}{exemplars}",
                    histogram.count
                );
                self.line(family, "", &labels, (value, None));
            }
            Value::Histogram(histogram) => {
                let mut count = 0;
                let mut lines = Vec::new();
                for bucket in histogram.buckets {
                    count += bucket.count;
                    let le = match bucket.le {
                        Some(le) if self.is_open() => format!("{le}.0"),
                        Some(le) => le.to_owned(),
                        None => bound(bucket.bound),
                    };
                    lines.push((
                        extra(format!("le=\"{le}\"")),
                        (count.to_string(), bucket.exemplar),
                    ));
                }
                if lines.is_empty() {
                    let count = histogram.count.to_string();
                    lines.push((extra("le=\"+Inf\"".into()), (count, None)));
                }
                for (labels, value) in lines {
                    self.line(family, "_bucket", &labels, value);
                }
                let is_negative = histogram.buckets.first().is_some_and(|first| first.bound < 0.0);
                if !is_negative || !self.is_open() {
                    self.line(family, "_sum", &labels, (float(histogram.sum), None));
                    self.line(family, "_count", &labels, (histogram.count.to_string(), None));
                }
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) if self.is_second() => {
                let quantiles =
                    quantiles.iter().map(|(at, n)| format!("{}:{}", bound(*at), float(*n)));
                let quantiles = quantiles.collect::<Vec<_>>().join(",");
                let sum = float(sum);
                let value = format!("{{count:{count},sum:{sum},quantile:[{quantiles}]}}{st}");
                self.line(family, "", &labels, (value, None));
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                let lines: Vec<_> = quantiles
                    .iter()
                    .map(|(at, n)| (extra(format!("quantile=\"{}\"", bound(*at))), float(*n)))
                    .collect();
                for (labels, value) in lines {
                    self.line(family, "", &labels, (value, None));
                }
                self.line(family, "_sum", &labels, (float(sum), None));
                self.line(family, "_count", &labels, (count.to_string(), None));
            }
            ref other => panic!("{other:?}"),
        }
    }
}

/// The only exemplar.
const EXEMPLAR: &str = " # {id=\"7\"} 0.5 2.000000001";

/// Returns whether a page can contain the histogram.
fn is_sound(histogram: &HistogramValue<'_>) -> bool {
    histogram.buckets.last().is_none_or(|last| last.bound == f64::INFINITY)
}

/// Writes a bound with the decimal point that OpenMetrics requires.
fn bound_text(bound: f64, is_open: bool) -> String {
    match bound {
        f64::INFINITY => "+Inf".to_owned(),
        whole if is_open && whole.fract() == 0.0 => format!("{whole}.0"),
        bound => bound.to_string(),
    }
}

/// Returns whether readers without UTF-8 accept the name. Only names of metrics may contain a
/// colon.
fn is_legacy(name: &str, colon: bool) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':');
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_fine)
}

/// Escapes a name by the scheme; `is_plain` if all characters are allowed.
fn escaped(name: &str, is_plain: bool, colon: bool, escaping: Escaping) -> String {
    if escaping == Escaping::AllowUtf8 || (is_plain && escaping != Escaping::Dots) {
        return name.to_owned();
    }
    let start = if escaping == Escaping::Values { "U__" } else { "" };
    let escape = |c: char| match escaping {
        Escaping::Dots | Escaping::Values if c == '_' => "__".to_owned(),
        Escaping::Dots if c == '.' => "_dot_".to_owned(),
        _ if is_legacy(&format!("a{c}"), colon) => c.to_string(),
        Escaping::Dots => "__".to_owned(),
        Escaping::Values => format!("_{:x}_", u32::from(c)),
        _ => "_".to_owned(),
    };
    name.chars().map(escape).fold(start.to_owned(), |name, part| name + &part)
}

/// Returns a string in quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
