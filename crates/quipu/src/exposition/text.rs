//! The line-based formats: Prometheus' text formats, and OpenMetrics.
//!
//! A line is a head (the name with its suffix), the labels, and a value. The parts that lines share
//! are rendered once, see [`super::parts`]. A line then costs a few copies and a number.

use super::escape;
use super::line::{append, join};
use super::number;
use super::page::{FamilyCheck, Relation, is_exemplar};
use super::parts::{Parts, close_head};
use super::style::{Dialect, Style};
use crate::snapshot::{
    CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Native, Number, Series,
    SummaryValue, Timestamp, Value,
};

/// The suffix of a sample's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Suffix {
    #[default]
    None,
    Total,
    Bucket,
    Sum,
    Count,
    Info,
}

impl Suffix {
    /// Returns the suffixes of the samples of a value.
    #[inline]
    fn for_value(value: &Value<'_>, bare: bool) -> &'static [Self] {
        match value {
            Value::Counter(_) if bare => &[Self::None],
            Value::Counter(_) => &[Self::Total],
            Value::Gauge(_) | Value::Unknown(_) | Value::StateSet(_) => &[Self::None],
            Value::Info => &[Self::Info],
            Value::Histogram(_) => &[Self::None, Self::Bucket, Self::Sum, Self::Count],
            Value::Summary(_) => &[Self::None, Self::Sum, Self::Count],
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Total => "_total",
            Self::Bucket => "_bucket",
            Self::Sum => "_sum",
            Self::Count => "_count",
            Self::Info => "_info",
        }
    }
}

/// Writes a family.
#[derive(Debug, Default)]
pub(super) struct Text {
    style: Style,
    parts: Parts,
    /// Whether the family's header was written. It is written with the first series.
    is_begun: bool,
    /// Whether a line of a counter ends in its total.
    is_plain_total: bool,
    /// Whether a series of the family was written on this page, and [`Self::is_plain_total`].
    is_ready: bool,
    /// The labels of the current series, if it takes several lines.
    labels: Vec<u8>,
}

impl Text {
    /// Forgets the family.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.is_ready = false;
    }

    /// Returns the memory for the family, in bytes.
    pub(super) fn size(&self) -> usize {
        self.parts.size() + self.labels.capacity()
    }

    fn dialect(&self) -> Dialect {
        self.style.dialect
    }

    /// Takes another family.
    pub(super) fn start(
        &mut self,
        style: Style,
        family: &FamilyHeader<'_>,
        relation: Relation,
        checked: &FamilyCheck,
    ) {
        self.style = style;
        self.parts.start(style, family, relation, checked);
        self.is_plain_total =
            family.kind == Kind::Counter && style.dialect != Dialect::OpenMetrics2;
    }

    /// Starts the family on a page. The header is written with the first series, or on demand.
    pub(super) fn begin(&mut self, is_begun: bool) {
        self.is_begun = is_begun;
        self.is_ready = false;
    }

    /// Writes the line of a counter whose group is rendered, see [`Parts::put_line`]. Returns false
    /// for any other series, without writing it. The first series of a family on a page is such a
    /// series, because it needs checks and a header.
    #[inline(always)]
    pub(super) fn rendered_counter(&self, series: &Series<'_>, out: &mut Vec<u8>) -> bool {
        let Value::Counter(CounterValue { total: Number::Unsigned(total), exemplar: None }) =
            series.value
        else {
            return false;
        };
        if !self.is_ready {
            return false;
        }
        self.parts.put_line(series, total, out)
    }

    /// Like [`Text::rendered_counter`], for a series of any kind with a single number.
    #[inline(never)]
    fn put_number(&self, series: &Series<'_>, out: &mut Vec<u8>) -> bool {
        let value = match series.value {
            // OpenMetrics does not allow a counter of NaN, see [`Text::series`].
            Value::Counter(CounterValue { total: Number::Float(total), .. }) if total.is_nan() => {
                return false;
            }
            Value::Counter(CounterValue { total, exemplar: None }) if self.is_plain_total => total,
            Value::Gauge(value) | Value::Unknown(value) if self.parts.main == Suffix::None => value,
            _ => return false,
        };
        self.parts.put_line(series, value, out)
    }

    #[inline]
    pub(super) fn series(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.header(family, out);
        self.is_ready = self.is_plain_total;
        self.parts.render_group(family, series.group);
        if self.put_number(series, out) {
            return;
        }
        let bare = self.parts.is_bare(family);
        for &suffix in Suffix::for_value(&series.value, bare) {
            self.parts.render_head(family, suffix);
        }
        match &series.value {
            // OpenMetrics does not allow NaN here: a scraper would reject the whole exposition.
            Value::Counter(CounterValue { total: Number::Float(total), .. })
                if total.is_nan() && self.dialect() != Dialect::Text => {}
            Value::Counter(CounterValue { total, exemplar }) => {
                let suffix = if bare { Suffix::None } else { Suffix::Total };
                self.put_line_head(suffix, family, series, out);
                number::put(*total, out);
                self.put_start(series, out);
                if !self.parts.is_unknown(family) {
                    self.put_exemplar(exemplar.as_ref(), out);
                }
                out.push(b'\n');
            }
            Value::Gauge(value) | Value::Unknown(value) => {
                self.put_line_head(Suffix::None, family, series, out);
                number::put(*value, out);
                out.push(b'\n');
            }
            Value::Info => {
                self.put_line_head(Suffix::Info, family, series, out);
                out.extend_from_slice(b"1\n");
            }
            Value::StateSet(states) => self.put_states(states, family, series, out),
            Value::Histogram(histogram) if self.dialect() == Dialect::OpenMetrics2 => {
                self.put_composite(histogram, family, series, out);
            }
            Value::Histogram(histogram) => self.put_histogram(histogram, family, series, out),
            Value::Summary(SummaryValue { quantiles, count, sum }) => {
                self.put_summary(quantiles, *count, *sum, family, series, out);
            }
        }
    }

    /// Writes the header of the family, unless it was already written.
    #[inline]
    pub(super) fn header(&mut self, family: &FamilyHeader<'_>, out: &mut Vec<u8>) {
        if !self.is_begun {
            self.is_begun = true;
            self.parts.put_header(family, out);
        }
    }

    /// Writes the part of a line before its value.
    fn put_line_head(
        &self,
        suffix: Suffix,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        if series.overflow || self.parts.has_labels {
            append(self.parts.head(suffix), out);
            self.parts.put_labels(family, series, out);
            append(b"} ", out);
        } else {
            self.put_bare_head(suffix, out);
        }
    }

    /// Renders the labels of a series, without braces and with a trailing comma, to be written
    /// several times.
    fn render_labels(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.labels.clear();
        if series.overflow || self.parts.has_labels {
            self.parts.put_labels(family, series, &mut self.labels);
            self.labels.push(b',');
        }
    }

    /// Writes a head, the rendered labels, and a bucket's or a quantile's label, with its closing
    /// brace. `name` is the start of the label, such as `le="`, and `at` is its place among the
    /// bounds of the series.
    fn put_bounded(
        &mut self,
        suffix: Suffix,
        name: &[u8],
        (at, bound, le): (usize, f64, Option<&str>),
        out: &mut Vec<u8>,
    ) {
        let known = if le.is_none() { self.parts.render_bound(at, bound) } else { None };
        let start = [self.parts.head(suffix), &self.labels, name];
        match (known, le) {
            (Some(known), _) => {
                let [head, labels, name] = start;
                join([head, labels, name, self.parts.text(known)], out);
            }
            (None, le) => {
                join(start, out);
                match le {
                    Some(le) => put_foreign_bound(le, self.dialect() != Dialect::Text, out),
                    None => self.style.put_bound(bound, out),
                }
                out.extend_from_slice(b"\"} ");
            }
        }
    }

    /// Writes a head and the rendered labels.
    fn put_rendered(&self, suffix: Suffix, out: &mut Vec<u8>) {
        if let Some(labels) = self.labels.strip_suffix(b",") {
            join([self.parts.head(suffix), labels, b"} "], out);
        } else {
            self.put_bare_head(suffix, out);
        }
    }

    /// Writes a head without labels.
    fn put_bare_head(&self, suffix: Suffix, out: &mut Vec<u8>) {
        append(self.parts.head(suffix), out);
        close_head(out);
    }

    fn put_states(
        &mut self,
        states: &[(&str, bool)],
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.render_labels(family, series);
        for (state, is_on) in states {
            // The label of the state is named like the metric.
            join([self.parts.head(Suffix::None), &self.labels], out);
            self.style.put_label_name(family.name, out);
            out.extend_from_slice(b"=\"");
            escape::put_quoted(state, out);
            out.extend_from_slice(if *is_on { b"\"} 1\n" } else { b"\"} 0\n" });
        }
    }

    fn put_histogram(
        &mut self,
        histogram: &HistogramValue<'_>,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.render_labels(family, series);
        let mut count = 0_u64;
        for (at, bucket) in histogram.buckets.iter().enumerate() {
            count = count.saturating_add(bucket.count);
            let bound = (at, bucket.bound, bucket.le);
            self.put_bounded(Suffix::Bucket, b"le=\"", bound, out);
            number::put_unsigned(count, out);
            self.put_exemplar(bucket.exemplar.as_ref(), out);
            out.push(b'\n');
        }
        if histogram.buckets.is_empty() {
            self.put_bounded(Suffix::Bucket, b"le=\"", (0, f64::INFINITY, None), out);
            number::put_unsigned(histogram.count, out);
            out.push(b'\n');
        }
        // OpenMetrics allows no sum if a bound is negative, because the sum could decrease, and no
        // count without a sum.
        let has_sum = histogram.buckets.first().is_none_or(|bucket| bucket.bound >= 0.0);
        if has_sum || self.dialect() == Dialect::Text {
            self.put_sum_and_count(histogram.sum, histogram.count, out);
        }
    }

    fn put_summary(
        &mut self,
        quantiles: &[(f64, f64)],
        count: u64,
        sum: f64,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        if self.dialect() == Dialect::OpenMetrics2 {
            self.put_line_head(Suffix::None, family, series, out);
            put_count_and_sum(count, sum, out);
            out.extend_from_slice(b",quantile:[");
            put_list(quantiles, out, |(quantile, value), out| {
                number::put_bound(*quantile, true, out);
                out.push(b':');
                number::put_float(*value, out);
            });
            out.extend_from_slice(b"]}");
            self.put_start(series, out);
            out.push(b'\n');
            return;
        }
        self.render_labels(family, series);
        for (at, (quantile, value)) in quantiles.iter().enumerate() {
            self.put_bounded(Suffix::None, b"quantile=\"", (at, *quantile, None), out);
            number::put_float(*value, out);
            out.push(b'\n');
        }
        self.put_sum_and_count(sum, count, out);
    }

    fn put_sum_and_count(&self, sum: f64, count: u64, out: &mut Vec<u8>) {
        self.put_rendered(Suffix::Sum, out);
        number::put_float(sum, out);
        out.push(b'\n');
        self.put_rendered(Suffix::Count, out);
        number::put_unsigned(count, out);
        out.push(b'\n');
    }

    /// Writes a histogram as one composite value (OpenMetrics 2.0, draft).
    fn put_composite(
        &mut self,
        histogram: &HistogramValue<'_>,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.put_line_head(Suffix::None, family, series, out);
        put_count_and_sum(histogram.count, histogram.sum, out);
        if let Some(native) = &histogram.native {
            put_native(native, out);
        }
        if histogram.buckets.is_empty() && histogram.native.is_none() {
            out.extend_from_slice(b",bucket:[+Inf:");
            number::put_unsigned(histogram.count, out);
            out.push(b']');
        } else if !histogram.buckets.is_empty() {
            out.extend_from_slice(b",bucket:[");
            let mut count = 0_u64;
            put_list(histogram.buckets, out, |bucket, out| {
                count = count.saturating_add(bucket.count);
                number::put_bound(bucket.bound, true, out);
                out.push(b':');
                number::put_unsigned(count, out);
            });
            out.push(b']');
        }
        out.push(b'}');
        self.put_start(series, out);
        // A reader finds the bucket of each exemplar by its value.
        let native = histogram.native.map_or(&[][..], |native| native.exemplars);
        let of_buckets = histogram.buckets.iter().filter_map(|bucket| bucket.exemplar.as_ref());
        for exemplar in native.iter().chain(of_buckets.filter(|_| native.is_empty())) {
            self.put_exemplar(Some(exemplar), out);
        }
        out.push(b'\n');
    }

    /// Writes the start time, if the format can represent it.
    fn put_start(&self, series: &Series<'_>, out: &mut Vec<u8>) {
        if let (Dialect::OpenMetrics2, Some(start)) = (self.dialect(), series.start) {
            out.extend_from_slice(b" st@");
            put_time(start, out);
        }
    }

    #[inline]
    fn put_exemplar(&self, exemplar: Option<&Exemplar<'_>>, out: &mut Vec<u8>) {
        if let (Some(exemplar), true) = (exemplar, self.dialect() != Dialect::Text) {
            self.put_some_exemplar(exemplar, out);
        }
    }

    #[cold]
    fn put_some_exemplar(&self, exemplar: &Exemplar<'_>, out: &mut Vec<u8>) {
        let is_allowed = match self.dialect() {
            Dialect::Text => false,
            Dialect::OpenMetrics => {
                let characters: usize = exemplar.labels.map(|text| text.chars().count()).sum();
                characters <= MAX_EXEMPLAR_CHARACTERS
            }
            Dialect::OpenMetrics2 => exemplar.time.is_some(),
        };
        if !is_allowed || !is_exemplar(exemplar, self.style.escaping) {
            return;
        }
        out.extend_from_slice(b" # {");
        let mut texts = exemplar.labels;
        let mut is_first = true;
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            self.style.put_label_name(name, out);
            out.extend_from_slice(b"=\"");
            escape::put_quoted(value, out);
            out.push(b'"');
        }
        out.extend_from_slice(b"} ");
        number::put_float(exemplar.value, out);
        if let Some(time) = exemplar.time {
            out.push(b' ');
            put_time(time, out);
        }
    }
}

const MAX_EXEMPLAR_CHARACTERS: usize = 128;

/// Writes a bound in another program's spelling; OpenMetrics requires a decimal point.
fn put_foreign_bound(le: &str, open_metrics: bool, out: &mut Vec<u8>) {
    escape::put_quoted(le, out);
    if open_metrics && number::is_spelled_whole(le) {
        out.extend_from_slice(b".0");
    }
}

/// Writes seconds, with up to nine decimals and without trailing zeros.
fn put_time(time: Timestamp, out: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    number::put(Number::Unsigned(time.as_nanos() / SECOND), out);
    let nanos = time.as_nanos() % SECOND;
    if nanos != 0 {
        let mut digits = *b".000000000";
        let mut rest = nanos;
        for digit in digits[1..].iter_mut().rev() {
            // Below 10: the digit is a byte.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let length = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |at| at + 1);
        out.extend_from_slice(&digits[..length]);
    }
}

fn put_count_and_sum(count: u64, sum: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{count:");
    number::put_unsigned(count, out);
    out.extend_from_slice(b",sum:");
    number::put_float(sum, out);
}

/// Writes the exponential buckets of a composite value.
fn put_native(native: &Native<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",schema:");
    number::put(Number::Signed(native.schema.into()), out);
    out.extend_from_slice(b",zero_threshold:");
    number::put_float(native.zero_threshold, out);
    out.extend_from_slice(b",zero_count:");
    number::put_unsigned(native.zero_count, out);
    for (side, buckets) in [("negative", native.negative), ("positive", native.positive)] {
        if buckets.is_empty() {
            continue;
        }
        for part in [",", side, "_spans:["] {
            out.extend_from_slice(part.as_bytes());
        }
        let mut spans = super::protobuf::spans(buckets).peekable();
        while let Some((offset, length)) = spans.next() {
            number::put(Number::Signed(offset.into()), out);
            out.push(b':');
            number::put_unsigned(length.into(), out);
            if spans.peek().is_some() {
                out.push(b',');
            }
        }
        for part in ["],", side, "_buckets:["] {
            out.extend_from_slice(part.as_bytes());
        }
        put_list(buckets, out, |(_, count), out| number::put_unsigned(*count, out));
        out.push(b']');
    }
}

fn put_list<T>(items: &[T], out: &mut Vec<u8>, mut put: impl FnMut(&T, &mut Vec<u8>)) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        put(item, out);
    }
}
