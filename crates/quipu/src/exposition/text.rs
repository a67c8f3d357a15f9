//! The text formats: Prometheus' own, and OpenMetrics.
//!
//! A line is a head (the name with its suffix), the labels, and a value. Heads are rendered once
//! per family. Labels of fixed cardinality are rendered once for each combination of their values,
//! up to the name of the first dynamic label. A line then costs a few copies and a number.

use super::escape::{self, Escaping, is_legacy_label, is_legacy_name};
use super::line::{Line, NOT_YET, Range, Rendered, append};
use super::number;
use super::page::{Relation, Start, is_exemplar};
use crate::snapshot::{
    Exemplar, Family, Histogram, Kind, Native, Number, Series, Timestamp, Value,
};

/// The dialect, whose rules the text follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Dialect {
    #[default]
    Text,
    OpenMetrics,
    OpenMetrics2,
}

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
    /// Those of the samples of a value.
    #[inline]
    fn of(value: &Value<'_>, bare: bool) -> &'static [Self] {
        match value {
            Value::Counter { .. } if bare => &[Self::None],
            Value::Counter { .. } => &[Self::Total],
            Value::Gauge(_) | Value::Unknown(_) | Value::StateSet(_) => &[Self::None],
            Value::Info => &[Self::Info],
            Value::Histogram(_) => &[Self::None, Self::Bucket, Self::Sum, Self::Count],
            Value::Summary { .. } => &[Self::None, Self::Sum, Self::Count],
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

/// Appends a bound as text.
pub(super) type PutBound = fn(f64, &mut Vec<u8>);

/// Writes families one after the other.
#[derive(Debug, Default)]
pub(super) struct Text {
    dialect: Dialect,
    escaping: Escaping,
    /// Writes bounds of buckets and quantiles, if not in Go's format.
    bounds: Option<PutBound>,
    /// Whether the family's header was written. It is written with the first series.
    is_begun: bool,
    /// Whether the family is a counter whose name another one has before its suffix, in OpenMetrics
    /// 1.0, where names of families have none: both are one family, and a label tells them apart.
    is_second: bool,
    /// Whether the header contains the unit.
    has_unit: bool,
    /// Whether the name is written as it is, without escapes and quotes.
    is_plain: bool,
    /// The rendered names and labels of the family.
    rendered: Rendered,
    /// The heads of lines with labels, by suffix: the name and an opening brace; or an opening
    /// brace, the quoted name, and a comma. [`NOT_YET`] until a series needs it.
    heads: [Range; 6],
    /// The suffix of most of the family's samples.
    main: Suffix,
    /// For each group, the head of a line with the main suffix, and the labels up to the opening
    /// quote of the first dynamic value; [`NOT_YET`] until it is rendered.
    groups: Vec<Range>,
    /// The texts between dynamic values: a quote, a comma, the next name, `=`, and a quote.
    between: Vec<Range>,
    /// The length of all of them.
    between_length: usize,
    /// Whether the family has any label.
    has_labels: bool,
    /// Whether a line with [`Self::main`] is a head with labels and a total, and nothing else.
    is_plain_total: bool,
    /// The labels of the current series, if it has several lines.
    labels: Vec<u8>,
}

/// With more groups than this, rendered groups are not kept.
const MAX_GROUPS: usize = 1 << 12;
/// The most bytes of a line after the last label value: `"} `, 20 digits, and a line feed.
const MAX_TAIL: usize = 24;

impl Text {
    pub(super) fn reset(&mut self, dialect: Dialect, escaping: Escaping) {
        (self.dialect, self.escaping) = (dialect, escaping);
        self.groups.clear();
    }

    pub(super) fn bounds(&mut self, put: PutBound) {
        self.bounds = Some(put);
    }

    fn put_bound(&self, bound: f64, out: &mut Vec<u8>) {
        match self.bounds {
            Some(put) => put(bound, out),
            None => number::put_bound(bound, self.dialect != Dialect::Text, out),
        }
    }

    /// Starts a family. Nothing is written before its first series.
    pub(super) fn family(&mut self, family: &Family<'_>, start: Start) {
        self.is_begun = start.is_begun;
        self.is_second = start.relation == Relation::Second;
        self.has_unit = start.has_unit;
        self.is_plain = start.is_plain;
        self.rendered.clear();
        self.groups.clear();
        let groups = family.groups as usize;
        self.groups.resize(if groups <= MAX_GROUPS { groups } else { 0 }, NOT_YET);
        self.has_labels = !family.labels.is_empty();
        self.main = match family.kind {
            Kind::Counter if self.is_bare(family) => Suffix::None,
            Kind::Counter => Suffix::Total,
            Kind::Info => Suffix::Info,
            _ => Suffix::None,
        };
        self.is_plain_total = self.has_labels
            && family.kind == Kind::Counter
            && self.dialect != Dialect::OpenMetrics2;
        self.heads = [NOT_YET; 6];
        self.between.clear();
        self.between_length = 0;
        for name in family.dynamic().skip(1) {
            let range = self.render(|text, out| {
                out.extend_from_slice(b"\",");
                text.put_label_name(name, out);
                out.extend_from_slice(b"=\"");
            });
            self.between.push(range);
            self.between_length += (range.1 - range.0) as usize;
        }
    }

    #[inline]
    pub(super) fn series(&mut self, family: &Family<'_>, series: &Series<'_>, out: &mut Vec<u8>) {
        self.header(family, out);
        let bare = self.is_bare(family);
        for &suffix in Suffix::of(&series.value, bare) {
            if self.heads[suffix as usize] == NOT_YET {
                self.heads[suffix as usize] =
                    self.render(|text, out| text.put_head(family, suffix, out));
            }
        }
        match &series.value {
            // OpenMetrics does not allow NaN here: a scraper would reject the whole exposition.
            Value::Counter { total: Number::Float(total), .. }
                if total.is_nan() && self.dialect != Dialect::Text => {}
            Value::Counter { total, exemplar } => {
                let suffix = if bare { Suffix::None } else { Suffix::Total };
                self.put_line_head(suffix, family, series, out);
                number::put(*total, out);
                self.put_start(series, out);
                if !self.is_unknown(family) {
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
            Value::Histogram(histogram) if self.dialect == Dialect::OpenMetrics2 => {
                self.put_composite(histogram, family, series, out);
            }
            Value::Histogram(histogram) => self.put_histogram(histogram, family, series, out),
            Value::Summary { quantiles, count, sum } => {
                self.put_summary(quantiles, *count, *sum, family, series, out);
            }
        }
    }

    /// Writes the line of a counter whose group was rendered before and whose texts need no
    /// escapes, as in most lines of a large scrape. Returns false, and writes nothing, for any
    /// other series.
    #[inline(always)]
    pub(super) fn rendered_counter(&self, series: &Series<'_>, out: &mut Vec<u8>) -> bool {
        let Value::Counter { total: Number::Unsigned(total), exemplar: None } = series.value else {
            return false;
        };
        if !self.is_plain_total || !series.escape_free || series.overflow {
            return false;
        }
        let Some(&range) = self.groups.get(series.group as usize) else { return false };
        let Some(head) = self.rendered.padded(range) else { return false };
        let mut texts = series.texts;
        let room = head.len() + texts.encoded().len() + self.between_length + MAX_TAIL;
        let mut line = Line::begin(out, room);
        // SAFETY: the line has room for the head, all texts, all that is between them, and a total.
        unsafe {
            line.put_padded(head);
            if let Some(first) = texts.next_bytes() {
                line.put(first);
                for between in &self.between {
                    let Some(text) = texts.next_bytes() else { break };
                    let Some(between) = self.rendered.padded(*between) else { break };
                    line.put_padded(between);
                    line.put(text);
                }
                line.put_array(*b"\"");
            }
            if total < 10 {
                // Less than 10: the digit is a byte.
                line.put_array([b'}', b' ', b'0' + total as u8, b'\n']);
            } else {
                line.put_array(*b"} ");
                line.put(itoa::Buffer::new().format(total).as_bytes());
                line.put_array(*b"\n");
            }
        }
        line.end();
        true
    }

    /// Whether a counter's samples have a name without the suffix that OpenMetrics 1.0 requires of
    /// counters: there, they are values of an unknown kind, so that all formats have the same name.
    #[inline]
    fn is_unknown(&self, family: &Family<'_>) -> bool {
        let is_bare_counter = self.is_bare(family) && family.kind == Kind::Counter;
        is_bare_counter && self.dialect == Dialect::OpenMetrics
    }

    /// Whether a counter's samples have the name as it is.
    #[inline]
    fn is_bare(&self, family: &Family<'_>) -> bool {
        family.bare && !self.is_second
    }

    /// Writes the header of the family, unless it has been written.
    #[inline]
    pub(super) fn header(&mut self, family: &Family<'_>, out: &mut Vec<u8>) {
        if !self.is_begun {
            self.is_begun = true;
            self.put_header(family, out);
        }
    }

    fn put_header(&mut self, family: &Family<'_>, out: &mut Vec<u8>) {
        // In OpenMetrics 1.0, names of families have no suffix. In all other formats, those of
        // counters and infos have theirs.
        let suffix = match (family.kind, self.dialect) {
            (_, Dialect::OpenMetrics) => "",
            (Kind::Counter, _) if family.bare => "",
            (Kind::Counter, _) => "_total",
            (Kind::Info, _) => "_info",
            _ => "",
        };
        let dialect = match family.kind {
            // A state set has a label with the name of the metric. If that is not valid for a
            // label, for example because of a colon, OpenMetrics cannot express the state set.
            Kind::StateSet if !self.is_label(family.name) => Dialect::Text,
            _ => self.dialect,
        };
        let put_name = |keyword: &str, out: &mut Vec<u8>| {
            out.extend_from_slice(keyword.as_bytes());
            let quoted = self.is_quoted(family.name);
            if quoted {
                out.push(b'"');
            }
            self.put_name(family.name, suffix, out);
            if quoted {
                out.push(b'"');
            }
            out.push(b' ');
        };
        if !family.help.is_empty() {
            put_name("# HELP ", out);
            match self.dialect {
                Dialect::Text => escape::put_help(family.help, out),
                Dialect::OpenMetrics => escape::put_quoted(family.help, out),
                // No line may end in a carriage return, which cannot be escaped.
                Dialect::OpenMetrics2 => {
                    escape::put_quoted(family.help.trim_end_matches('\r'), out);
                }
            }
            out.push(b'\n');
        }
        put_name("# TYPE ", out);
        let kind = match (family.kind, dialect) {
            (Kind::Counter, _) if self.is_unknown(family) => "unknown",
            (Kind::Counter, _) => "counter",
            (Kind::Gauge, _) | (Kind::Info | Kind::StateSet, Dialect::Text) => "gauge",
            (Kind::Histogram, _) => "histogram",
            (Kind::Summary, _) => "summary",
            (Kind::Info, _) => "info",
            (Kind::StateSet, _) => "stateset",
            (Kind::Unknown, Dialect::Text) => "untyped",
            (Kind::Unknown, _) => "unknown",
        };
        out.extend_from_slice(kind.as_bytes());
        out.push(b'\n');
        // In OpenMetrics, infos and state sets have no unit.
        let has_unit = self.has_unit && !matches!(kind, "info" | "stateset");
        if has_unit && self.dialect != Dialect::Text {
            put_name("# UNIT ", out);
            out.extend_from_slice(family.unit.as_bytes());
            out.push(b'\n');
        }
    }

    /// Writes everything of a line before its value.
    #[inline]
    fn put_line_head(
        &mut self,
        suffix: Suffix,
        family: &Family<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        if series.overflow {
            self.put(self.heads[suffix as usize], out);
            put_overflow(series, out);
            out.extend_from_slice(b"} ");
            return;
        }
        if !self.has_labels {
            return self.put_bare_head(suffix, out);
        }
        let known = if suffix == self.main { self.group(family, series.group) } else { None };
        if let Some(known) = known {
            self.put(known, out);
        } else {
            self.put(self.heads[suffix as usize], out);
            self.put_group(family, series.group, out);
        }
        self.put_texts(series, out);
        append(b"} ", out);
    }

    /// Renders the labels of a series, without braces and with a trailing comma, to be written
    /// several times.
    fn render_labels(&mut self, family: &Family<'_>, series: &Series<'_>) {
        let mut labels = std::mem::take(&mut self.labels);
        labels.clear();
        if series.overflow {
            put_overflow(series, &mut labels);
        } else if self.has_labels {
            self.put_group(family, series.group, &mut labels);
            self.put_texts(series, &mut labels);
        }
        if !labels.is_empty() {
            labels.push(b',');
        }
        self.labels = labels;
    }

    /// Writes a head, the rendered labels, and the start of one more, such as `le="`, to which the
    /// caller appends the value.
    fn put_labelled(&self, suffix: Suffix, name: &[u8], out: &mut Vec<u8>) {
        self.put(self.heads[suffix as usize], out);
        out.extend_from_slice(&self.labels);
        out.extend_from_slice(name);
    }

    /// Writes a head and the rendered labels.
    fn put_rendered(&self, suffix: Suffix, out: &mut Vec<u8>) {
        if let Some(labels) = self.labels.strip_suffix(b",") {
            self.put(self.heads[suffix as usize], out);
            out.extend_from_slice(labels);
            out.extend_from_slice(b"} ");
        } else {
            self.put_bare_head(suffix, out);
        }
    }

    /// Writes a head without labels, and drops the brace or comma in which it ends.
    fn put_bare_head(&self, suffix: Suffix, out: &mut Vec<u8>) {
        self.put(self.heads[suffix as usize], out);
        let is_quoted = out.pop() == Some(b',');
        out.extend_from_slice(if is_quoted { b"} " } else { b" " });
    }

    #[inline]
    fn put_texts(&self, series: &Series<'_>, out: &mut Vec<u8>) {
        let mut texts = series.texts;
        let Some(first) = texts.next_bytes() else { return };
        put_text(first, series.escape_free, out);
        for between in &self.between {
            let Some(text) = texts.next_bytes() else { break };
            self.put(*between, out);
            put_text(text, series.escape_free, out);
        }
        out.push(b'"');
    }

    fn put_states(
        &mut self,
        states: &[(&str, bool)],
        family: &Family<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.render_labels(family, series);
        for (state, is_on) in states {
            // The label of the state has the name of the metric.
            self.put_labelled(Suffix::None, b"", out);
            self.put_label_name(family.name, out);
            out.extend_from_slice(b"=\"");
            escape::put_quoted(state, out);
            out.extend_from_slice(if *is_on { b"\"} 1\n" } else { b"\"} 0\n" });
        }
    }

    fn put_histogram(
        &mut self,
        histogram: &Histogram<'_>,
        family: &Family<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        self.render_labels(family, series);
        let mut count = 0_u64;
        for bucket in histogram.buckets {
            count = count.saturating_add(bucket.count);
            self.put_labelled(Suffix::Bucket, b"le=\"", out);
            match bucket.le {
                Some(le) => put_foreign_bound(le, self.dialect != Dialect::Text, out),
                None => self.put_bound(bucket.bound, out),
            }
            out.extend_from_slice(b"\"} ");
            number::put_unsigned(count, out);
            self.put_exemplar(bucket.exemplar.as_ref(), out);
            out.push(b'\n');
        }
        if histogram.buckets.is_empty() {
            self.put_labelled(Suffix::Bucket, b"le=\"+Inf\"} ", out);
            number::put_unsigned(histogram.count, out);
            out.push(b'\n');
        }
        // OpenMetrics allows no sum if a bound is negative, since the sum may decrease, and no
        // count without a sum.
        let has_sum = histogram.buckets.first().is_none_or(|bucket| bucket.bound >= 0.0);
        if has_sum || self.dialect == Dialect::Text {
            self.put_sum_and_count(histogram.sum, histogram.count, out);
        }
    }

    fn put_summary(
        &mut self,
        quantiles: &[(f64, f64)],
        count: u64,
        sum: f64,
        family: &Family<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        if self.dialect == Dialect::OpenMetrics2 {
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
        for (quantile, value) in quantiles {
            self.put_labelled(Suffix::None, b"quantile=\"", out);
            self.put_bound(*quantile, out);
            out.extend_from_slice(b"\"} ");
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
        histogram: &Histogram<'_>,
        family: &Family<'_>,
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

    /// Writes the start time, if the format has one.
    fn put_start(&self, series: &Series<'_>, out: &mut Vec<u8>) {
        if let (Dialect::OpenMetrics2, Some(start)) = (self.dialect, series.start) {
            out.extend_from_slice(b" st@");
            put_time(start, out);
        }
    }

    #[inline]
    fn put_exemplar(&self, exemplar: Option<&Exemplar<'_>>, out: &mut Vec<u8>) {
        if let (Some(exemplar), true) = (exemplar, self.dialect != Dialect::Text) {
            self.put_some_exemplar(exemplar, out);
        }
    }

    #[cold]
    fn put_some_exemplar(&self, exemplar: &Exemplar<'_>, out: &mut Vec<u8>) {
        let is_allowed = match self.dialect {
            Dialect::Text => false,
            Dialect::OpenMetrics => {
                let characters: usize = exemplar.labels.map(|text| text.chars().count()).sum();
                characters <= MAX_EXEMPLAR_CHARACTERS
            }
            Dialect::OpenMetrics2 => exemplar.time.is_some(),
        };
        if !is_allowed || !is_exemplar(exemplar, self.escaping) {
            return;
        }
        out.extend_from_slice(b" # {");
        let mut texts = exemplar.labels;
        let mut is_first = true;
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            self.put_label_name(name, out);
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

    fn put_head(&self, family: &Family<'_>, suffix: Suffix, out: &mut Vec<u8>) {
        if self.is_quoted(family.name) {
            out.extend_from_slice(b"{\"");
            self.put_name(family.name, suffix.text(), out);
            out.extend_from_slice(b"\",");
        } else {
            self.put_name(family.name, suffix.text(), out);
            out.push(b'{');
        }
        if self.is_second {
            out.extend_from_slice(b"quipu_name=\"");
            escape::put_quoted(family.name, out);
            out.extend_from_slice(b"\",");
        }
    }

    /// Whether the name of a metric is written unescaped, in quotes.
    fn is_quoted(&self, name: &str) -> bool {
        !self.is_plain && self.escaping == Escaping::AllowUtf8 && !is_legacy_name(name)
    }

    /// Whether the name of a metric is also valid for a label.
    fn is_label(&self, name: &str) -> bool {
        let (mut metric, mut label) = (Vec::new(), Vec::new());
        escape::put_metric_name(name, "", self.escaping, &mut metric);
        escape::put_label_name(name, self.escaping, &mut label);
        metric == label
    }

    fn put_name(&self, name: &str, suffix: &str, out: &mut Vec<u8>) {
        if self.is_plain {
            append(name.as_bytes(), out);
            append(suffix.as_bytes(), out);
        } else if self.is_quoted(name) {
            escape::put_quoted(name, out);
            out.extend_from_slice(suffix.as_bytes());
        } else {
            escape::put_metric_name(name, suffix, self.escaping, out);
        }
    }

    /// Returns the head of a line with the labels of a group, and renders them on first use; `None`
    /// if there are too many groups.
    #[inline]
    fn group(&mut self, family: &Family<'_>, group: u32) -> Option<Range> {
        let known = *self.groups.get(group as usize)?;
        if known != NOT_YET {
            return Some(known);
        }
        let head = self.heads[self.main as usize];
        let range = self.render(|text, out| {
            out.extend_from_within(head.0 as usize..head.1 as usize);
            text.put_group(family, group, out);
        });
        self.groups[group as usize] = range;
        Some(range)
    }

    /// Writes the labels of a group, and the first dynamic label up to its value.
    fn put_group(&self, family: &Family<'_>, group: u32, out: &mut Vec<u8>) {
        let mut is_first = true;
        let mut comma = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
        };
        for (name, value) in family.fixed(group) {
            comma(out);
            self.put_label_name(name, out);
            out.extend_from_slice(b"=\"");
            escape::put_quoted(value, out);
            out.push(b'"');
        }
        if let Some(name) = family.dynamic().next() {
            comma(out);
            self.put_label_name(name, out);
            out.extend_from_slice(b"=\"");
        }
    }

    fn put_label_name(&self, name: &str, out: &mut Vec<u8>) {
        if self.escaping == Escaping::AllowUtf8 && !is_legacy_label(name) {
            out.push(b'"');
            escape::put_quoted(name, out);
            out.push(b'"');
        } else {
            escape::put_label_name(name, self.escaping, out);
        }
    }

    fn render(&mut self, put: impl FnOnce(&Self, &mut Vec<u8>)) -> Range {
        let mut rendered = std::mem::take(&mut self.rendered);
        let range = rendered.render(|out| put(self, out));
        self.rendered = rendered;
        range
    }

    #[inline]
    fn put(&self, range: Range, out: &mut Vec<u8>) {
        append(self.rendered.text(range), out);
    }
}

const MAX_EXEMPLAR_CHARACTERS: usize = 128;

/// Writes the label of an overflow series.
#[cold]
fn put_overflow(series: &Series<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"quipu_overflow=\"");
    escape::put_quoted_bytes(series.overflow_value().as_bytes(), out);
    out.push(b'"');
}

#[inline]
fn put_text(text: &[u8], escape_free: bool, out: &mut Vec<u8>) {
    if escape_free {
        append(text, out);
    } else {
        escape::put_quoted_bytes(text, out);
    }
}

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
    number::put(Number::Unsigned(time.0 / SECOND), out);
    let nanos = time.0 % SECOND;
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
