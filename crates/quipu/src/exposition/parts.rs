//! The parts of a family's lines that many lines share. Each part is rendered once.
//!
//! In a family with dynamic labels, a line consists of a start for its group, the dynamic values
//! with separators between them, and the value of the series. In a family without dynamic labels, a
//! start would be used only once, because each group is one line. There, a line consists of a row
//! (the head, and all labels except the last one), a column (the last label with one of its
//! values), and the value: for example, a family of 10 by 10 values renders 20 parts for 100 lines.
//! A family without labels is one row and one column.

use super::escape::{self, Escaping, is_legacy_name};
use super::line::{Line, NOT_YET, PaddedText, Range, RenderedTexts, append};
use super::number;
use super::page::{FamilyCheck, Relation};
use super::style::{Dialect, Style};
use super::text::Suffix;
use crate::snapshot::{FamilyHeader, Kind, Number, Series};

/// The parts of one family.
#[derive(Debug, Default)]
pub(super) struct Parts {
    style: Style,
    /// Whether the family is a counter whose name plus a suffix is another counter's name. In
    /// OpenMetrics 1.0, names of families carry no suffix, so both are one family, and a label
    /// distinguishes them.
    is_second: bool,
    has_unit: bool,
    /// Whether the name is written without escapes and quotes.
    is_plain: bool,
    pub(super) has_labels: bool,
    /// The suffix of most of the family's samples.
    pub(super) main: Suffix,
    rendered: RenderedTexts,
    header: Range,
    /// The heads of lines with labels, by suffix: the name and an opening brace; or an opening
    /// brace, the quoted name, and a comma. [`NOT_YET`] until a series needs it, like all parts.
    heads: [Range; 6],
    /// For each group, the head with the main suffix, and the labels up to the opening quote of the
    /// first dynamic value. Empty in a family with columns.
    starts: Vec<Range>,
    /// For each row, the head with the main suffix, and the labels, each with a comma after it. For
    /// a family without labels, the whole line before its value.
    rows: Vec<Range>,
    /// The last label with each of its values, and [`CLOSE`]. Empty if a label is dynamic.
    columns: Vec<Range>,
    /// The separators between dynamic values: a quote, a comma, the next name, `=`, and a quote.
    between: Vec<Range>,
    /// The length of all separators in `between`.
    between_length: usize,
    /// The bounds or the quantiles of the first series, each with the rest of its label.
    bounds: Vec<(f64, Range)>,
}

/// With more starts, rows or columns than this, none are kept.
const MAX_KEPT: usize = 1 << 12;
/// The end of the labels.
const CLOSE: &[u8] = b"} ";
/// The maximum length of a line after the last label value: `"} `, a number, and a line feed.
const MAX_TAIL: usize = 4 + number::MAX_LENGTH;

impl Parts {
    /// Forgets all parts.
    pub(super) fn clear(&mut self) {
        self.rendered.clear();
        self.header = NOT_YET;
        self.heads = [NOT_YET; 6];
        self.starts.clear();
        self.rows.clear();
        self.columns.clear();
        self.between.clear();
        self.between_length = 0;
        self.bounds.clear();
    }

    /// Returns the memory of the parts, in bytes.
    pub(super) fn size(&self) -> usize {
        let ranges = [&self.starts, &self.rows, &self.columns, &self.between];
        let ranges: usize = ranges.iter().map(|ranges| ranges.capacity()).sum();
        let bounds = self.bounds.capacity() * size_of::<(f64, Range)>();
        self.rendered.size() + ranges * size_of::<Range>() + bounds
    }

    /// Starts a family.
    pub(super) fn start(
        &mut self,
        style: Style,
        family: &FamilyHeader<'_>,
        relation: Relation,
        checked: &FamilyCheck,
    ) {
        self.clear();
        self.style = style;
        self.is_second = relation == Relation::Second;
        self.has_unit = checked.has_unit;
        self.is_plain = checked.is_plain;
        self.has_labels = !family.labels.is_empty();
        self.main = match family.kind {
            Kind::Counter if self.is_bare(family) => Suffix::None,
            Kind::Counter => Suffix::Total,
            Kind::Info => Suffix::Info,
            _ => Suffix::None,
        };
        let (columns, groups) = (columns(family), family.groups as usize);
        let rows = groups.checked_div(columns).unwrap_or(groups);
        if rows <= MAX_KEPT && columns <= MAX_KEPT {
            let lines = if columns == 0 { &mut self.starts } else { &mut self.rows };
            lines.resize(rows, NOT_YET);
            self.columns.resize(columns, NOT_YET);
        }
        for name in family.dynamic().skip(1) {
            let range = self.render(|parts, out| {
                out.extend_from_slice(b"\",");
                parts.style.put_label_name(name, out);
                out.extend_from_slice(b"=\"");
            });
            self.between.push(range);
            self.between_length += (range.1 - range.0) as usize;
        }
    }

    /// Returns whether a counter's samples use the name without a suffix.
    #[inline]
    pub(super) fn is_bare(&self, family: &FamilyHeader<'_>) -> bool {
        family.bare && !self.is_second
    }

    /// Returns whether a counter's samples lack the suffix that OpenMetrics 1.0 requires of
    /// counters. There, they are values of an unknown kind, because the name must be the same in
    /// all formats.
    #[inline]
    pub(super) fn is_unknown(&self, family: &FamilyHeader<'_>) -> bool {
        let is_bare_counter = self.is_bare(family) && family.kind == Kind::Counter;
        is_bare_counter && self.style.dialect == Dialect::OpenMetrics
    }

    /// Returns the row and the column of a group, in a family with columns.
    #[inline]
    fn place(&self, group: u32) -> Option<(usize, usize)> {
        let (group, columns) = (group as usize, self.columns.len());
        Some((group.checked_div(columns)?, group.checked_rem(columns)?))
    }

    /// Renders the head of lines with this suffix.
    #[inline]
    pub(super) fn render_head(&mut self, family: &FamilyHeader<'_>, suffix: Suffix) {
        if self.heads[suffix as usize] == NOT_YET {
            self.heads[suffix as usize] =
                self.render(|parts, out| parts.put_new_head(family, suffix, out));
        }
    }

    /// Renders the start of a group's lines, or its row and its column.
    #[inline]
    pub(super) fn render_group(&mut self, family: &FamilyHeader<'_>, group: u32) {
        if let Some((row, column)) = self.place(group) {
            if self.rows.get(row) == Some(&NOT_YET) {
                self.rows[row] = self.render_start(family, |parts, out| {
                    if !parts.has_labels {
                        close_head(out);
                    }
                    for (name, value) in
                        family.fixed(group).take(family.labels.len().saturating_sub(1))
                    {
                        parts.style.put_label(name, value, out);
                        out.push(b',');
                    }
                });
            }
            if self.columns.get(column) == Some(&NOT_YET) {
                self.columns[column] = self.render(|parts, out| {
                    if let Some((name, value)) = family.fixed(group).last() {
                        parts.style.put_label(name, value, out);
                        out.extend_from_slice(CLOSE);
                    }
                });
            }
        } else if self.starts.get(group as usize) == Some(&NOT_YET) {
            self.starts[group as usize] =
                self.render_start(family, |parts, out| parts.put_group(family, group, out));
        }
    }

    /// Renders the head with the main suffix, and labels.
    fn render_start(
        &mut self,
        family: &FamilyHeader<'_>,
        put: impl FnOnce(&Self, &mut Vec<u8>),
    ) -> Range {
        self.render_head(family, self.main);
        let (start, end) = self.heads[self.main as usize];
        self.render(|parts, out| {
            out.extend_from_within(start as usize..end as usize);
            put(parts, out);
        })
    }

    /// Writes the line of a series whose group is rendered and whose label values need no escapes,
    /// like most lines of a large page. Returns false for any other series, without writing it.
    #[inline(always)]
    pub(super) fn put_line<V: Into<Number>>(
        &self,
        series: &Series<'_>,
        value: V,
        out: &mut Vec<u8>,
    ) -> bool {
        if !series.escape_free || series.overflow {
            return false;
        }
        let Some(start) = self.padded(&self.starts, series.group as usize) else {
            return self.put_cell(series.group, value, out);
        };
        let mut texts = series.texts;
        let room = start.len() + texts.encoded().len() + self.between_length + MAX_TAIL;
        let mut line = Line::begin(out, room);
        // SAFETY: the line was begun with room for the start, the values, the separators, and the
        // rest.
        unsafe {
            line.put_padded(start);
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
            line.put_array(*b"} ");
            put_value(&mut line, value.into());
        }
        line.end();
        true
    }

    /// Like [`Parts::put_line`], in a family with columns. This function is cold only for the
    /// compiler, because the loop over the series of other families then keeps its values in
    /// registers.
    #[cold]
    #[inline(never)]
    fn put_cell<V: Into<Number>>(&self, group: u32, value: V, out: &mut Vec<u8>) -> bool {
        let Some((row, column)) = self.place(group) else { return false };
        let Some(row) = self.padded(&self.rows, row) else { return false };
        let Some(column) = self.padded(&self.columns, column) else { return false };
        let mut line = Line::begin(out, row.len() + column.len() + MAX_TAIL);
        // SAFETY: the line was begun with room for the row, the column, and the rest of the line.
        unsafe {
            line.put_padded(row);
            line.put_padded(column);
            put_value(&mut line, value.into());
        }
        line.end();
        true
    }

    /// Returns the string at a place; `None` if it is not rendered or not kept.
    #[inline(always)]
    fn padded(&self, ranges: &[Range], at: usize) -> Option<PaddedText<'_>> {
        self.rendered.padded(*ranges.get(at)?)
    }

    /// Renders the value of a bucket's or a quantile's label, up to the closing brace. `at` is its
    /// place in the series. Returns `None` if the first series contained another value there.
    pub(super) fn render_bound(&mut self, at: usize, bound: f64) -> Option<Range> {
        if at == self.bounds.len() {
            let range = self.render(|parts, out| {
                parts.style.put_bound(bound, out);
                out.extend_from_slice(b"\"} ");
            });
            self.bounds.push((bound, range));
        }
        let &(known, range) = self.bounds.get(at)?;
        (known.to_bits() == bound.to_bits()).then_some(range)
    }

    /// Returns the head of lines with this suffix; empty until it is rendered.
    pub(super) fn head(&self, suffix: Suffix) -> &[u8] {
        self.text(self.heads[suffix as usize])
    }

    pub(super) fn text(&self, range: Range) -> &[u8] {
        self.rendered.text(range)
    }

    /// Writes the labels of a series, with commas between them.
    pub(super) fn put_labels(
        &self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        out: &mut Vec<u8>,
    ) {
        if series.overflow {
            return put_overflow(series, out);
        }
        let (start, column) = match self.place(series.group) {
            Some((row, column)) => {
                (self.padded(&self.rows, row), self.padded(&self.columns, column))
            }
            None => (self.padded(&self.starts, series.group as usize), None),
        };
        let head = self.head(self.main).len();
        match start.and_then(|start| start.text().get(head..)) {
            Some(labels) => {
                append(labels, out);
                let column = column.map_or(&[][..], PaddedText::text);
                append(column.strip_suffix(CLOSE).unwrap_or(column), out);
            }
            None => self.put_group(family, series.group, out),
        }
        let mut texts = series.texts;
        let Some(first) = texts.next_bytes() else { return };
        put_text(first, series.escape_free, out);
        for between in &self.between {
            let Some(text) = texts.next_bytes() else { break };
            append(self.text(*between), out);
            put_text(text, series.escape_free, out);
        }
        out.push(b'"');
    }

    /// Writes the labels of a group, and the first dynamic label up to its value.
    fn put_group(&self, family: &FamilyHeader<'_>, group: u32, out: &mut Vec<u8>) {
        let mut is_first = true;
        let mut comma = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
        };
        for (name, value) in family.fixed(group) {
            comma(out);
            self.style.put_label(name, value, out);
        }
        if let Some(name) = family.dynamic().next() {
            comma(out);
            self.style.put_label_name(name, out);
            out.extend_from_slice(b"=\"");
        }
    }

    fn put_new_head(&self, family: &FamilyHeader<'_>, suffix: Suffix, out: &mut Vec<u8>) {
        if self.is_quoted(family.name) {
            out.extend_from_slice(b"{\"");
            self.put_name(family.name, suffix.text(), out);
            out.extend_from_slice(b"\",");
        } else {
            self.put_name(family.name, suffix.text(), out);
            out.push(b'{');
        }
        if self.is_second {
            self.style.put_label("quipu_name", family.name, out);
            out.push(b',');
        }
    }

    /// Writes the header of the family.
    pub(super) fn put_header(&mut self, family: &FamilyHeader<'_>, out: &mut Vec<u8>) {
        if self.header == NOT_YET {
            self.header = self.render(|parts, out| parts.put_new_header(family, out));
        }
        append(self.text(self.header), out);
    }

    fn put_new_header(&self, family: &FamilyHeader<'_>, out: &mut Vec<u8>) {
        // In OpenMetrics 1.0, names of families carry no suffix. In all other formats, the names of
        // counters and infos carry one.
        let suffix = match (family.kind, self.style.dialect) {
            (_, Dialect::OpenMetrics) => "",
            (Kind::Counter, _) if family.bare => "",
            (Kind::Counter, _) => "_total",
            (Kind::Info, _) => "_info",
            _ => "",
        };
        let dialect = match family.kind {
            // A label of a state set is named like the metric. If this name is not valid for a
            // label, for example because of a colon, OpenMetrics cannot express the state set.
            Kind::StateSet if !self.style.is_label(family.name) => Dialect::Text,
            _ => self.style.dialect,
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
            match self.style.dialect {
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
            (Kind::Counter, _) if self.is_unknown(family) => Kind::Unknown.as_str(),
            (Kind::Info | Kind::StateSet, Dialect::Text) => Kind::Gauge.as_str(),
            (Kind::Unknown, Dialect::Text) => "untyped",
            (kind, _) => kind.as_str(),
        };
        out.extend_from_slice(kind.as_bytes());
        out.push(b'\n');
        // In OpenMetrics, infos and state sets never carry a unit.
        let has_unit = self.has_unit && !matches!(kind, "info" | "stateset");
        if has_unit && self.style.dialect != Dialect::Text {
            put_name("# UNIT ", out);
            out.extend_from_slice(family.unit.as_bytes());
            out.push(b'\n');
        }
    }

    /// Returns whether the name of a metric is written unescaped, in quotes.
    fn is_quoted(&self, name: &str) -> bool {
        !self.is_plain && self.style.escaping == Escaping::AllowUtf8 && !is_legacy_name(name)
    }

    fn put_name(&self, name: &str, suffix: &str, out: &mut Vec<u8>) {
        if self.is_plain {
            append(name.as_bytes(), out);
            append(suffix.as_bytes(), out);
        } else if self.is_quoted(name) {
            escape::put_quoted(name, out);
            out.extend_from_slice(suffix.as_bytes());
        } else {
            escape::put_metric_name(name, suffix, self.style.escaping, out);
        }
    }

    fn render(&mut self, put: impl FnOnce(&Self, &mut Vec<u8>)) -> Range {
        let mut rendered = std::mem::take(&mut self.rendered);
        let range = rendered.render(|out| put(self, out));
        self.rendered = rendered;
        range
    }
}

/// Returns the number of columns of a family: the number of values of its last label if all labels
/// are of fixed cardinality, else 0.
fn columns(family: &FamilyHeader<'_>) -> usize {
    let mut groups = 1_usize;
    let mut last = 1;
    for label in family.labels {
        let Some(values) = label.values else { return 0 };
        last = values.len();
        groups = groups.saturating_mul(last);
    }
    // A caller can pass any number of groups. If it is wrong, there are no columns.
    if groups == family.groups as usize { last } else { 0 }
}

/// Drops the brace or the comma at the end of a head, in a line without labels.
pub(super) fn close_head(out: &mut Vec<u8>) {
    let is_quoted = out.pop() == Some(b',');
    out.extend_from_slice(if is_quoted { CLOSE } else { b" " });
}

/// Writes the end of a line: the value, and a line feed.
///
/// # Safety
/// The line must be able to take a number and a byte.
#[inline(always)]
unsafe fn put_value(line: &mut Line<'_>, value: Number) {
    // SAFETY: as promised by the caller; a number is at most `MAX_LENGTH` bytes long.
    unsafe {
        match value {
            // Less than 10: the digit is a byte.
            Number::Unsigned(n @ 0..10) => line.put_array([b'0' + n as u8, b'\n']),
            value => {
                line.put(number::Digits::default().format(value));
                line.put_array(*b"\n");
            }
        }
    }
}

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
