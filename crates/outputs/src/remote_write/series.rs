//! Converts families to the series of remote write. Each series is one number: a histogram or
//! summary becomes several series, with suffixes of the name and with the labels `le` or
//! `quantile`. A native histogram is a single series.
//!
//! Characters that Prometheus 2 does not allow in names are escaped like in its text format. We do
//! this for all receivers, because names would otherwise depend on the version of remote write.

use std::borrow::Cow;
use std::mem;

use quipu::exposition::{Escaping, bound_label, escape_name, is_legacy_name};
use quipu::snapshot::{
    CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Series, Sink, SummaryValue,
    Timestamp, Value,
};
use quipu_wire::remote::{
    Label,
    write::{Metadata, SeriesType},
};

use super::samples::{self, Value::Number};
use super::shard_writer::ShardWriter;
use crate::labels::ExternalLabel;

/// A sink that adds each series to the requests of its shard.
#[derive(Debug)]
pub(super) struct SeriesSink<'r, 'p> {
    writer: &'r mut ShardWriter<'p>,
    external: &'r [ExternalLabel],
    names: Names,
    plan: Plan,
    /// A reused buffer for the labels of a series.
    room: Vec<Label<'static>>,
    /// The bounds of the last series' buckets or quantiles, with their formatted strings.
    bounds: Vec<(Option<u64>, String)>,
}

/// The names of a family's samples, and the escaped names of its labels.
#[derive(Debug, Default)]
struct Names {
    main: String,
    bucket: String,
    sum: String,
    count: String,
    escaped: Vec<(String, String)>,
}

/// The sorted order of a family's labels. It is computed once, and applies to all series with a
/// value for each label.
#[derive(Debug, Default)]
struct Plan {
    columns: Vec<Column>,
    /// The position of each label of fixed cardinality, and of each dynamic label.
    fixed: Vec<usize>,
    dynamic: Vec<usize>,
    name_at: usize,
    /// Whether all label names differ.
    is_valid: bool,
}

/// The source of a label: an index of the family's labels, an index of the external labels, or the
/// metric name.
#[derive(Debug, Clone, Copy)]
enum Column {
    Own(usize),
    External(usize),
    Name,
}

/// The sorted labels of a sample, including the metric name as `__name__`.
#[derive(Debug, Clone)]
struct Row<'a> {
    labels: Vec<Label<'a>>,
    /// The index of `__name__`.
    name_at: usize,
}

impl<'r, 'p> SeriesSink<'r, 'p> {
    /// Creates a sink that adds all series, together with the `external` labels.
    pub(super) fn new(writer: &'r mut ShardWriter<'p>, external: &'r [ExternalLabel]) -> Self {
        let (names, plan) = (Names::default(), Plan::default());
        Self { writer, external, names, plan, room: Vec::new(), bounds: Vec::new() }
    }

    fn histogram(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        histogram: &HistogramValue<'_>,
    ) {
        let metadata = metadata(family);
        let Self { writer, external, names, plan, room, bounds } = self;
        let mut row = Row::new(family, series, names, plan, external, mem::take(room));
        if let Some(native) = &histogram.native {
            // We send only the newest exemplar, because receivers refuse an exemplar that is older
            // than the previous one.
            let newest = native.exemplars.iter().max_by_key(|exemplar| exemplar.time);
            let value = samples::Value::Native(native, histogram.count, histogram.sum);
            writer.add(row.named(&names.main), &metadata, value, series.start, newest);
            if histogram.buckets.is_empty() {
                *room = row.into_room();
                return;
            }
        }
        spell(bounds, histogram.buckets.iter().map(|bucket| (bucket.bound, bucket.le)));
        let mut count = 0_u64;
        let (mut with_bound, at) = row.with("le");
        with_bound.named(&names.bucket);
        for (bucket, (_, text)) in histogram.buckets.iter().zip(bounds.iter()) {
            count = count.wrapping_add(bucket.count);
            with_bound.labels[at].1 = text;
            let exemplar = bucket.exemplar.as_ref();
            writer.add(&with_bound.labels, &metadata, Number(count as f64), series.start, exemplar);
        }
        if histogram.buckets.is_empty() {
            with_bound.labels[at].1 = "+Inf";
            let count = histogram.count as f64;
            writer.add(&with_bound.labels, &metadata, Number(count), series.start, None);
        }
        let value = (histogram.sum, histogram.count);
        sum_and_count(writer, &mut row, names, &metadata, value, series.start);
        *room = row.into_room();
    }

    fn summary(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        (quantiles, count, sum): (&[(f64, f64)], u64, f64),
    ) {
        let metadata = metadata(family);
        let Self { writer, external, names, plan, room, bounds } = self;
        let mut row = Row::new(family, series, names, plan, external, mem::take(room));
        spell(bounds, quantiles.iter().map(|(quantile, _)| (*quantile, None)));
        let (mut with_quantile, at) = row.with("quantile");
        with_quantile.named(&names.main);
        for ((_, value), (_, text)) in quantiles.iter().zip(bounds.iter()) {
            with_quantile.labels[at].1 = text;
            writer.add(&with_quantile.labels, &metadata, Number(*value), None, None);
        }
        sum_and_count(writer, &mut row, names, &metadata, (sum, count), series.start);
        *room = row.into_room();
    }

    /// Adds a number for each state of a state set. The label named like the metric contains the
    /// state.
    fn states(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>, states: &[(&str, bool)]) {
        let metadata = metadata(family);
        let Self { writer, external, names, plan, room, .. } = self;
        let row = Row::new(family, series, names, plan, external, mem::take(room));
        let (mut with_state, at) = row.with(names.label(family.name));
        with_state.named(&names.main);
        for (state, is_on) in states {
            with_state.labels[at].1 = state;
            let value = f64::from(u8::from(*is_on));
            writer.add(&with_state.labels, &metadata, Number(value), None, None);
        }
        *room = row.into_room();
    }

    fn number(
        &mut self,
        family: &FamilyHeader<'_>,
        series: &Series<'_>,
        (value, start): (f64, Option<Timestamp>),
        exemplar: Option<&Exemplar<'_>>,
    ) {
        let Self { writer, external, names, plan, room, .. } = self;
        let mut row = Row::new(family, series, names, plan, external, mem::take(room));
        writer.add(row.named(&names.main), &metadata(family), Number(value), start, exemplar);
        *room = row.into_room();
    }
}

impl Sink for SeriesSink<'_, '_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.names.set(family);
        self.plan.set(family, &self.names, self.external);
        self.bounds.clear();
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        match &series.value {
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                self.number(family, series, (total.as_f64(), series.start), exemplar.as_ref());
            }
            Value::Gauge(value) | Value::Unknown(value) => {
                self.number(family, series, (value.as_f64(), None), series.exemplar.as_ref());
            }
            Value::Info => self.number(family, series, (1.0, None), None),
            Value::StateSet(states) => self.states(family, series, states),
            Value::Histogram(histogram) => self.histogram(family, series, histogram),
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                self.summary(family, series, (quantiles, *count, *sum));
            }
            // A kind of value from a later version of the library.
            _ => {}
        }
    }
}

fn sum_and_count<'a>(
    writer: &mut ShardWriter<'_>,
    row: &mut Row<'a>,
    names: &'a Names,
    metadata: &Metadata<'_>,
    (sum, count): (f64, u64),
    start: Option<Timestamp>,
) {
    writer.add(row.named(&names.sum), metadata, Number(sum), start, None);
    writer.add(row.named(&names.count), metadata, Number(count as f64), start, None);
}

/// Formats bounds. This caches the strings, because most series of a family share the same bounds.
fn spell<'b>(
    known: &mut Vec<(Option<u64>, String)>,
    bounds: impl Iterator<Item = (f64, Option<&'b str>)>,
) {
    for (at, (bound, spelled)) in bounds.enumerate() {
        // Another program can write the same bound in several ways.
        let bits = spelled.is_none().then(|| bound.to_bits());
        match known.get_mut(at) {
            Some(known) if known.0 == bits && bits.is_some() => {}
            Some(known) => *known = (bits, bound_label(bound, spelled)),
            None => known.push((bits, bound_label(bound, spelled))),
        }
    }
}

fn metadata<'a>(family: &FamilyHeader<'a>) -> Metadata<'a> {
    let series_type = match family.kind {
        Kind::Counter => SeriesType::Counter,
        Kind::Gauge => SeriesType::Gauge,
        Kind::Histogram => SeriesType::Histogram,
        Kind::Summary => SeriesType::Summary,
        Kind::Info => SeriesType::Info,
        Kind::StateSet => SeriesType::StateSet,
        _ => SeriesType::Unknown,
    };
    Metadata::new(series_type, family.help, family.unit)
}

impl Names {
    fn set(&mut self, family: &FamilyHeader<'_>) {
        let suffix = match family.kind {
            Kind::Counter if !family.bare => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        let put = |name: &mut String, suffix| {
            name.clear();
            escape_name(family.name, Escaping::Underscores, name);
            name.push_str(suffix);
        };
        put(&mut self.main, suffix);
        put(&mut self.bucket, "_bucket");
        put(&mut self.sum, "_sum");
        put(&mut self.count, "_count");
        self.escaped.clear();
        let state = (family.kind == Kind::StateSet).then_some(family.name);
        for name in family.labels().iter().map(|label| label.name).chain(state) {
            if let Cow::Owned(escaped) = label_name(name) {
                self.escaped.push((name.to_owned(), escaped));
            }
        }
    }

    /// Returns the escaped name of a label.
    fn label<'a>(&'a self, name: &'a str) -> &'a str {
        let mut escaped = self.escaped.iter();
        escaped.find(|known| known.0 == name).map_or(name, |known| known.1.as_str())
    }
}

/// Escapes the name of a label.
pub(super) fn label_name(name: &str) -> Cow<'_, str> {
    if is_legacy_name(name) && !name.contains(':') {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::new();
    escape_name(name, Escaping::Underscores, &mut escaped);
    // We replace colons as well, because only metric names can contain a colon.
    Cow::Owned(escaped.replace(':', "_"))
}

impl Plan {
    fn set(&mut self, family: &FamilyHeader<'_>, names: &Names, external: &[ExternalLabel]) {
        let own = family.labels().iter().map(|label| names.label(label.name));
        let mut all: Vec<(&str, Column)> =
            own.enumerate().map(|(at, name)| (name, Column::Own(at))).collect();
        for (at, label) in external.iter().enumerate() {
            if !all.iter().any(|(name, _)| *name == label.name) {
                all.push((&label.name, Column::External(at)));
            }
        }
        all.push((NAME, Column::Name));
        all.sort_by_key(|(name, _)| *name);
        self.is_valid = all.windows(2).all(|two| two[0].0 != two[1].0);
        self.columns.clear();
        self.columns.extend(all.iter().map(|(_, column)| *column));
        let mut places = vec![0; family.labels().len()];
        for (place, column) in self.columns.iter().enumerate() {
            match *column {
                Column::Own(at) => places[at] = place,
                Column::Name => self.name_at = place,
                Column::External(_) => {}
            }
        }
        let Self { fixed, dynamic, .. } = self;
        fixed.clear();
        dynamic.clear();
        for (label, place) in family.labels().iter().zip(places) {
            let places = if label.values.is_some() { &mut *fixed } else { &mut *dynamic };
            places.push(place);
        }
    }

    /// Fills in the labels of a series in sorted order. Returns false if any label is missing.
    fn fill<'a>(
        &self,
        family: &FamilyHeader<'a>,
        series: &Series<'a>,
        names: &'a Names,
        external: &'a [ExternalLabel],
        labels: &mut Vec<Label<'a>>,
    ) -> bool {
        let own = self.fixed.len() + self.dynamic.len();
        if !self.is_valid || series.overflow || own != family.labels().len() {
            return false;
        }
        labels.extend(self.columns.iter().map(|column| match *column {
            Column::Own(at) => (names.label(family.labels()[at].name), ""),
            Column::External(at) => (external[at].name.as_str(), external[at].value.as_str()),
            Column::Name => (NAME, ""),
        }));
        for ((_, value), place) in family.fixed(series.group).zip(&self.fixed) {
            labels[*place].1 = value;
        }
        let mut texts = series.texts;
        for place in &self.dynamic {
            labels[*place].1 = texts.next().unwrap_or("");
        }
        let mut own = self.fixed.iter().chain(&self.dynamic);
        own.all(|place| !labels[*place].1.is_empty())
    }
}

impl<'a> Row<'a> {
    /// Returns the sorted labels of a series, with the external labels that the series does not
    /// define.
    fn new(
        family: &FamilyHeader<'a>,
        series: &Series<'a>,
        names: &'a Names,
        plan: &Plan,
        external: &'a [ExternalLabel],
        mut labels: Vec<Label<'a>>,
    ) -> Self {
        if plan.fill(family, series, names, external, &mut labels) {
            return Self { labels, name_at: plan.name_at };
        }
        labels.clear();
        Self::of_any(family, series, names, external, labels)
    }

    /// Works like [`Row::new`], for a series without some labels.
    fn of_any(
        family: &FamilyHeader<'a>,
        series: &Series<'a>,
        names: &'a Names,
        external: &'a [ExternalLabel],
        mut labels: Vec<Label<'a>>,
    ) -> Self {
        let all = series.labels(family).filter(|(_, value)| !value.is_empty());
        labels.extend(all.map(|(name, value)| (names.label(name), value)));
        for label in external {
            if !labels.iter().any(|(name, _)| *name == label.name) {
                labels.push((label.name.as_str(), label.value.as_str()));
            }
        }
        labels.push((NAME, ""));
        labels.sort_unstable();
        let name_at = position(&labels, NAME);
        Self { labels, name_at }
    }

    /// Returns the emptied buffer, for the labels of the next series.
    fn into_room(mut self) -> Vec<Label<'static>> {
        self.labels.clear();
        // The standard library collects in place, so this neither loops nor allocates.
        self.labels.into_iter().map(|_| ("", "")).collect()
    }

    /// Returns the labels with this metric name.
    fn named(&mut self, name: &'a str) -> &[Label<'a>] {
        self.labels[self.name_at].1 = name;
        &self.labels
    }

    /// Returns a copy with an additional label, and the index where you set its value.
    fn with(&self, label: &'a str) -> (Self, usize) {
        let at = self.labels.partition_point(|(name, _)| *name < label);
        let mut labels = Vec::with_capacity(self.labels.len() + 1);
        labels.extend_from_slice(&self.labels);
        labels.insert(at, (label, ""));
        let name_at = self.name_at + usize::from(at <= self.name_at);
        (Self { labels, name_at }, at)
    }
}

/// Returns the index of a label that exists.
fn position(labels: &[Label<'_>], name: &str) -> usize {
    labels.iter().position(|label| label.0 == name).unwrap_or_default()
}

/// The label that contains the metric name.
pub(super) const NAME: &str = "__name__";

#[cfg(test)]
mod tests {
    use quipu::snapshot::{self, Bucket, Native, Number, Texts};
    use quipu_segment::hash::SeededState;
    use quipu_wire::remote::write::{Entry, WriteReader, WriteVersion};

    use super::*;
    use crate::coding::Coding;
    use crate::remote_write::version;
    use crate::snapshot::{Requests, Snapshot};
    use samples::{Samples, each_series, in_version_1};

    /// Returns the samples of a snapshot as strings: labels, value, start.
    fn rows(snapshot: &Snapshot) -> Vec<String> {
        let mut rows = Vec::new();
        for body in &snapshot.bodies {
            let request = body.expand().unwrap();
            let mut reader = WriteReader::new(version(body.form), &request).unwrap();
            while let Some(entry) = reader.next() {
                let Entry::Series(series) = entry.unwrap() else { continue };
                let labels = series.labels.iter().map(|(name, value)| format!("{name}={value}"));
                let labels = labels.collect::<Vec<_>>().join(",");
                for sample in series.samples {
                    rows.push(format!("{labels} {} {:?}", sample.value, sample.start_ms));
                }
                for histogram in series.histograms().map(Result::unwrap) {
                    let (sum, positive) = (histogram.sum, histogram.positive);
                    rows.push(format!("{labels} {} {sum} {positive:?}", histogram.count));
                }
            }
        }
        rows
    }

    /// Returns the families that a snapshot in version 1.0 describes, except one whose series are
    /// all invalid.
    fn families(snapshot: &Snapshot) -> String {
        let mut names = Vec::new();
        for body in &snapshot.bodies {
            let request = body.expand().unwrap();
            let mut reader = WriteReader::new(version(body.form), &request).unwrap();
            while let Some(entry) = reader.next() {
                let Entry::Family(family) = entry.unwrap() else { continue };
                assert_ne!(family.metadata, Metadata::default());
                names.push(family.name.to_owned());
            }
        }
        names.retain(|name| name != "c");
        names.join(",")
    }

    fn requests(version: WriteVersion, hash: &SeededState) -> Requests<Samples> {
        Requests::new(Samples::new(version), 1000, Coding::Snappy, hash)
    }

    /// Creates the writer of a receiver without shards.
    fn shard_writer(version: WriteVersion, hash: &SeededState) -> ShardWriter<'static> {
        ShardWriter::new(vec![requests(version, hash)], None, true)
    }

    /// Returns the only part.
    fn only(mut writer: ShardWriter<'_>) -> Requests<Samples> {
        writer.requests.remove(0)
    }

    fn add(sink: &mut impl Sink, family: &FamilyHeader<'_>, text: Option<&str>, value: Value<'_>) {
        let mut texts = Vec::new();
        text.iter().for_each(|text| Texts::push(&mut texts, text));
        let series = Series::new(Texts::new(&texts), value).start(Timestamp::from_nanos(5_000_000));
        sink.family(family);
        sink.series(family, &series);
    }

    /// Creates a snapshot with series of all kinds, in a request of this version.
    fn all_kinds(version: WriteVersion) -> Snapshot {
        let external: [ExternalLabel; 1] = ["region=eu".parse().unwrap()];
        let mut writer = shard_writer(version, &SeededState::default());
        let mut sink = SeriesSink::new(&mut writer, &external);
        let plain = |kind, name| FamilyHeader::new(kind, name, "");
        let labels = [snapshot::Label::new("zone.a")];
        let region = [snapshot::Label::new("region")];
        let total = Value::counter(3);
        let hits = plain(Kind::Counter, "hits").with_labels(&labels);
        add(&mut sink, &hits, Some("a"), total);
        add(&mut sink, &hits, Some(""), total);
        add(&mut sink, &plain(Kind::Counter, "raw").bare(true), None, total);
        let gauge = Value::Gauge(Number::Float(f64::NAN));
        add(&mut sink, &plain(Kind::Gauge, "a.b").with_labels(&region), Some("us"), gauge);
        // A repeated series, and a metric name that is also the name of a label.
        add(&mut sink, &plain(Kind::Gauge, "a_b").with_labels(&region), Some("us"), gauge);
        let twice = [snapshot::Label::new("__name__")];
        add(&mut sink, &plain(Kind::Gauge, "c").with_labels(&twice), Some("d"), gauge);
        add(&mut sink, &plain(Kind::Info, "build"), None, Value::Info);
        let states = [("on", true), ("off", false)];
        add(&mut sink, &plain(Kind::StateSet, "mode"), None, Value::StateSet(&states));
        let summary = Value::Summary(SummaryValue::new(4, 8.0).quantiles(&[(0.5, 2.0)]));
        add(&mut sink, &plain(Kind::Summary, "size"), None, summary);
        let bucket = |bound, le, count| Bucket::new(bound, count).le(le);
        let buckets = [bucket(1.0, Some("1"), 1), bucket(f64::INFINITY, None, 2)];
        let native = Native::new(3).zero(0.0, 1).positive(&[(4, 2), (5, 1)]);
        let histogram = HistogramValue::new(3, 4.5).buckets(&buckets);
        add(&mut sink, &plain(Kind::Histogram, "took"), None, Value::Histogram(histogram));
        let histogram = HistogramValue::new(4, 4.5).native(native);
        add(&mut sink, &plain(Kind::Histogram, "big"), None, Value::Histogram(histogram));
        only(writer).finish()
    }

    #[test]
    fn families_become_series() {
        let snapshot = all_kinds(WriteVersion::Two);
        assert_eq!(snapshot.invalid, 2);
        let expected = "\
            __name__=hits_total,region=eu,zone_a=a 3 Some(5)\n\
            __name__=hits_total,region=eu 3 Some(5)\n\
            __name__=raw,region=eu 3 Some(5)\n\
            __name__=a_b,region=us NaN None\n\
            __name__=build_info,region=eu 1 None\n\
            __name__=mode,mode=on,region=eu 1 None\n\
            __name__=mode,mode=off,region=eu 0 None\n\
            __name__=size,quantile=0.5,region=eu 2 None\n\
            __name__=size_sum,region=eu 8 Some(5)\n\
            __name__=size_count,region=eu 4 Some(5)\n\
            __name__=took_bucket,le=1.0,region=eu 1 Some(5)\n\
            __name__=took_bucket,le=+Inf,region=eu 3 Some(5)\n\
            __name__=took_sum,region=eu 4.5 Some(5)\n\
            __name__=took_count,region=eu 3 Some(5)\n\
            __name__=big,region=eu 4 4.5 [(4, 2.0), (5, 1.0)]";
        assert_eq!(rows(&snapshot), expected.lines().collect::<Vec<_>>());
        // Version 1.0 contains the same samples, without their starts.
        let without = expected.replace("Some(5)", "None");
        let mut converted = requests(WriteVersion::One, &SeededState::default()).finish();
        let in_version_1 = snapshot.bodies.iter().map(in_version_1);
        converted.bodies.extend(in_version_1.map(Result::unwrap));
        let one = all_kinds(WriteVersion::One);
        assert_eq!(one.invalid, 2);
        for snapshot in [&one, &converted] {
            assert_eq!(rows(snapshot), without.lines().collect::<Vec<_>>());
            let described = "raw,a_b,build_info,mode,size,took,big";
            assert_eq!(families(snapshot), format!("hits_total,{described}"));
        }
    }

    #[test]
    fn planned_labels_fit_any_series() {
        let external: [ExternalLabel; 3] =
            ["region=eu", "b=x", "z=y"].map(|label| label.parse().unwrap());
        let values: [&str; 2] = ["on", ""];
        let label = |name, is_fixed: bool| {
            snapshot::Label::from_values(name, is_fixed.then_some(&values[..]))
        };
        for labels in [
            &[][..],
            &[label("b", false)],
            &[label("x", false), label("a", true), label("region", false), label("c", true)],
            &[label("z.z", false), label("Z", false), label("a:b", true)],
            &[label("a.b", false), label("a_b", false)],
            &[label("__name__", true), label("a", false)],
        ] {
            let dynamic = labels.iter().filter(|label| label.values.is_none()).count();
            let family = FamilyHeader::new(Kind::Gauge, "level", "").with_labels(labels);
            let (mut names, mut plan) = (Names::default(), Plan::default());
            names.set(&family);
            plan.set(&family, &names, &external);
            for group in 0..family.groups() {
                for given in [&["v", "w", "u"][..], &["v", ""], &["", "w"], &["v"]] {
                    let mut texts = Vec::new();
                    given.iter().take(dynamic).for_each(|text| Texts::push(&mut texts, text));
                    for overflow in [false, true] {
                        let mut series = Series::new(Texts::new(&texts), Value::Info).group(group);
                        series.overflow = overflow;
                        let new = Vec::new;
                        let row = Row::new(&family, &series, &names, &plan, &external, new());
                        let any = Row::of_any(&family, &series, &names, &external, new());
                        assert_eq!((row.labels, row.name_at), (any.labels, any.name_at));
                    }
                }
            }
        }
    }

    /// Creates a snapshot of gauges with these numbers, after another snapshot.
    fn take(
        numbers: std::ops::Range<usize>,
        before: Option<&Snapshot>,
        hash: &SeededState,
    ) -> Snapshot {
        let mut writer = shard_writer(WriteVersion::Two, hash);
        let mut sink = SeriesSink::new(&mut writer, &[]);
        let labels = [snapshot::Label::new("n")];
        let family = FamilyHeader::new(Kind::Gauge, "level", "").with_labels(&labels);
        for n in numbers {
            add(&mut sink, &family, Some(&n.to_string()), Value::Gauge(Number::Unsigned(n as u64)));
        }
        let mut requests = only(writer);
        if let Some(before) = before {
            requests.end_missing(before);
        }
        requests.finish()
    }

    /// Returns the number of end marks in a snapshot.
    fn ends(snapshot: &Snapshot) -> usize {
        rows(snapshot).iter().filter(|row| row.ends_with("NaN None")).count()
    }

    /// Returns the exemplars of a snapshot as strings.
    fn exemplars(snapshot: &Snapshot) -> Vec<String> {
        let mut rows = Vec::new();
        for body in &snapshot.bodies {
            each_series(body.form, &body.expand().unwrap(), |series| {
                let labels = series.labels;
                assert!(series.samples.len() == 1 || series.histograms().next().is_some());
                rows.extend(series.exemplars().map(|exemplar| {
                    let quipu_wire::remote::write::ExemplarSample { value, timestamp_ms, .. } =
                        exemplar;
                    format!("{labels:?} {:?} {value} {timestamp_ms}", exemplar.labels)
                }));
            });
        }
        rows
    }

    /// Returns the encoded labels of an exemplar.
    fn encoded(texts: &[&str]) -> Vec<u8> {
        let mut encoded = Vec::new();
        texts.iter().for_each(|text| Texts::push(&mut encoded, text));
        encoded
    }

    #[test]
    fn exemplars_are_sent_in_both_versions() {
        let texts = encoded(&["user", "ada", "id", "7"]);
        let (labels, time) = (Texts::new(&texts), Some(Timestamp::from_nanos(9_000_000)));
        let one = Exemplar::new(labels, 0.5).time(time);
        let of = |texts| Some(Exemplar::new(Texts::new(texts), 0.5).time(time));
        let long = ["\u{e9}".repeat(124), "e".repeat(125)];
        let [dotted, twice, longest, longer] = [
            encoded(&["trace.id", "a:b", "user", "ada"]),
            encoded(&["a.b", "1", "a_b", "2"]),
            encoded(&["name", &long[0]]),
            encoded(&["name", &long[1]]),
        ];
        let bare = Exemplar::new(Texts::default(), 0.0).time(time);
        let later = bare.time(Timestamp::from_nanos(10_000_000));
        let timeless = one.time(None);
        let bucket = |bound, exemplar| Bucket::new(bound, 1).exemplar(exemplar);
        let buckets = [bucket(1.0, Some(one)), bucket(f64::INFINITY, None)];
        let of_native = [one, later, bare];
        let native = Native::new(3).zero(0.0, 1).exemplars(&of_native);
        let total =
            |exemplar| Value::Counter(CounterValue::new(Number::Unsigned(3)).exemplar(exemplar));
        let gauge = Value::Gauge(Number::Float(1.0));
        let histogram = |count, buckets, native| {
            Value::Histogram(HistogramValue::new(count, 1.0).buckets(buckets).native(native))
        };
        for version in [WriteVersion::One, WriteVersion::Two] {
            let mut writer = shard_writer(version, &SeededState::default());
            let mut sink = SeriesSink::new(&mut writer, &[]);
            for (name, kind, value, exemplar) in [
                ("a", Kind::Counter, total(Some(one)), None),
                ("b", Kind::Counter, total(Some(timeless)), None),
                ("c", Kind::Gauge, gauge, Some(one)),
                ("d", Kind::Gauge, gauge, None),
                ("d_dotted", Kind::Gauge, gauge, of(&dotted)),
                ("d_twice", Kind::Gauge, gauge, of(&twice)),
                ("d_longest", Kind::Gauge, gauge, of(&longest)),
                ("d_longer", Kind::Gauge, gauge, of(&longer)),
                ("e", Kind::Histogram, histogram(2, &buckets[..], None), None),
                ("f", Kind::Histogram, histogram(1, &[], Some(native)), None),
            ] {
                let family = FamilyHeader::new(kind, name, "");
                sink.family(&family);
                sink.series(&family, &Series::new(Texts::default(), value).exemplar(exemplar));
            }
            let ada = r#"[("id", "7"), ("user", "ada")] 0.5 9"#;
            let expected = [
                format!(r#"[("__name__", "a_total")] {ada}"#),
                format!(r#"[("__name__", "c")] {ada}"#),
                r#"[("__name__", "d_dotted")] [("trace_id", "a:b"), ("user", "ada")] 0.5 9"#
                    .to_owned(),
                format!(r#"[("__name__", "d_longest")] [("name", "{}")] 0.5 9"#, long[0]),
                format!(r#"[("__name__", "e_bucket"), ("le", "1.0")] {ada}"#),
                r#"[("__name__", "f")] [] 0 10"#.to_owned(),
            ];
            assert_eq!(exemplars(&only(writer).finish()), expected, "{version:?}");
        }
    }

    #[test]
    fn requests_are_bounded_and_ends_are_marked_once() {
        let hash = SeededState::default();
        let take = |count: usize, before: Option<&Snapshot>| take(0..count, before, &hash);
        let all = take(25_001, None);
        let samples: Vec<u64> = all.bodies.iter().map(|body| body.samples).collect();
        assert_eq!(samples, [10_000, 10_000, 5001]);
        let fewer = take(20_000, Some(&all));
        assert_eq!((ends(&fewer), rows(&fewer).len()), (5001, 25_001));
        assert_eq!(ends(&take(20_000, Some(&fewer))), 0);
        assert_eq!(ends(&take(0, Some(&fewer))), 20_000);
    }

    #[test]
    fn marks_are_kept_until_their_request_is_done() {
        let hash = SeededState::default();
        let take = |range, before: Option<&Snapshot>| take(range, before, &hash);
        let rest = || requests(WriteVersion::Two, &hash);
        // Of three requests, two are done, and the third was not sent.
        let merged = take(0..30_000, None).merge(None, 2, 2, rest()).unwrap();
        assert_eq!(ends(&take(0..0, Some(&merged))), 20_000);
        // The third request may have been accepted.
        let merged = take(0..30_000, None).merge(None, 2, 3, rest()).unwrap();
        assert_eq!(ends(&take(0..0, Some(&merged))), 30_000);
        // 5000 series are new, and 15,000 are gone. Of the two requests with their end marks, one
        // is done.
        let next = take(15_000..35_000, Some(&merged));
        assert_eq!((next.bodies.len(), ends(&next)), (4, 15_000));
        let merged = next.merge(Some(merged), 3, 4, rest()).unwrap();
        let after = take(15_000..35_000, Some(&merged));
        assert_eq!((after.bodies.len(), ends(&after)), (3, 5000));
        // All series except the last ones end while no request is accepted.
        let merged = after.merge(Some(merged), 0, 0, rest()).unwrap();
        let last = take(34_999..35_000, Some(&merged));
        assert_eq!(ends(&last), 5000 + 19_999);
        let merged = last.merge(Some(merged), 3, 3, rest()).unwrap();
        assert_eq!(ends(&take(34_999..35_000, Some(&merged))), 0);
    }
}
