//! Records families and series in memory, to pass them on later in steps and with additional
//! labels.
//!
//! The families are from untrusted files, so their strings and properties are checked here. A
//! scraper rejects a whole page if a single series contains a label name twice. Families with such
//! labels are therefore omitted.

mod numbers;

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use quipu::exposition::{ShownNames, is_legacy_name};
use quipu::snapshot::{
    Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Label, Native, Number,
    Series, Sink, SummaryValue, Texts, Timestamp, Value,
};

use super::labels::{OVERFLOW, escaped, flaw};

/// The metadata under which to show a family. Its name, type and help can be from another source.
#[derive(Debug, Clone, Copy)]
pub struct ShownMetadata<'a> {
    /// The name, without the suffix that formats add.
    pub name: &'a str,
    /// The help string.
    pub help: &'a str,
    /// The type. You can exchange counter, gauge and unknown for each other.
    pub kind: Kind,
    /// Whether the samples of a counter lack the suffix `_total`.
    pub bare: bool,
}

/// The labels that all series of a source get: names and values.
pub type Labels = Vec<(String, String)>;

/// The kind of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A segment file, or a directory with files from several processes.
    #[default]
    File,
    /// A scrape target, or the report about all targets.
    Target,
    /// The daemon itself.
    Daemon,
}

/// The families of a source at its last reading.
#[derive(Debug, Default)]
pub struct SourceSnapshot {
    /// The kind of the source.
    pub origin: Origin,
    /// The name of the source. For a file, all series show this name as the label `segment`.
    pub name: String,
    /// The absolute path; empty if the source is not a file.
    pub path: PathBuf,
    /// The labels that all series get.
    pub labels: Labels,
    /// The families. Each contains at least one series, except families of the daemon.
    pub families: Vec<RecordedFamily>,
    /// The number of all series.
    pub series: usize,
}

/// A sink that stores the families and series that it receives.
#[derive(Debug)]
pub struct Recorder {
    families: Vec<RecordedFamily>,
    series: usize,
    /// The labels of the source. They are only set for files, because only families from files need
    /// checks.
    beside: Option<Labels>,
    /// Whether the series of the current family are omitted.
    is_skipping: bool,
    /// The previous recording of the same source, and the index of its next family. It predicts the
    /// sizes of allocations.
    before: Option<(Arc<SourceSnapshot>, usize)>,
    /// The reason why the first omitted family is invalid.
    flaw: Option<String>,
    /// The number of bytes that label names and fixed values take in each line of the current
    /// family.
    head: u64,
    /// The approximate size of all lines in bytes.
    text: u64,
    /// The maximum size of all lines in bytes.
    most: u64,
}

/// A family with its series.
#[derive(Debug)]
pub struct RecordedFamily {
    /// The name, without the suffix that formats add.
    pub name: String,
    /// The help string, which can be empty.
    pub help: String,
    /// The type.
    pub kind: Kind,
    /// Whether the samples of a counter lack the suffix `_total`.
    pub bare: bool,
    unit: String,
    /// The label names, each with its values if these are fixed.
    labels: Vec<(String, Option<Vec<String>>)>,
    /// The series, with the overflow series at the end.
    series: Vec<OneSeries>,
    /// The number of overflow series.
    overflows: usize,
    /// The label values of all series, encoded as [`Texts`].
    texts: Vec<u8>,
    /// Whether any label value can be empty, which means the same as a missing label.
    has_empty: bool,
}

#[derive(Debug)]
struct OneSeries {
    group: u32,
    texts: Range<u32>,
    escape_free: bool,
    start: Option<Timestamp>,
    value: OneValue,
}

#[derive(Debug)]
enum OneValue {
    /// The value of a counter, a gauge, or a family of unknown type.
    Number(Number, Option<Box<OneExemplar>>),
    Info,
    States(Box<[(String, bool)]>),
    Summary(Box<OneSummary>),
    Histogram(Box<OneHistogram>),
}

#[derive(Debug)]
struct OneSummary {
    quantiles: Vec<(f64, f64)>,
    count: u64,
    sum: f64,
}

#[derive(Debug)]
struct OneHistogram {
    count: u64,
    sum: f64,
    buckets: Vec<OneBucket>,
    native: Option<OneNative>,
}

#[derive(Debug)]
struct OneBucket {
    bound: f64,
    le: Option<Box<str>>,
    count: u64,
    exemplar: Option<Box<OneExemplar>>,
}

#[derive(Debug)]
struct OneNative {
    schema: i8,
    zero_threshold: f64,
    zero_count: u64,
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
    exemplars: Vec<OneExemplar>,
}

#[derive(Debug)]
struct OneExemplar {
    labels: Vec<u8>,
    value: f64,
    time: Option<Timestamp>,
}

fn has_empty(values: &[&str]) -> bool {
    values.iter().any(|value| value.is_empty())
}

/// The approximate size of a line in bytes, without its name and labels.
const LINE: u64 = 16;

impl Default for Recorder {
    fn default() -> Self {
        Self::of_file(&Vec::new(), u64::MAX)
    }
}

impl Recorder {
    /// Creates a recorder for a file whose series get these labels. If the lines exceed `most`
    /// bytes, no series is stored. This limit is necessary because a small file can contain a long
    /// label value that all of its series share.
    pub fn of_file(beside: &Labels, most: u64) -> Self {
        Self { beside: Some(beside.clone()), most, ..Self::unchecked() }
    }

    /// Creates a recorder for families whose labels need no checks.
    pub fn unchecked() -> Self {
        Self {
            families: Vec::new(),
            series: 0,
            beside: None,
            is_skipping: false,
            before: None,
            flaw: None,
            head: 0,
            text: 0,
            most: u64::MAX,
        }
    }

    /// Predicts the sizes of allocations from the previous recording of the same source.
    pub fn after(self, before: &Arc<SourceSnapshot>) -> Self {
        Self { before: Some((Arc::clone(before), 0)), ..self }
    }

    /// Returns the number of series, and the bytes of strings, that the family with this name
    /// contained before.
    fn sizes_before(&mut self, name: &str) -> (usize, usize) {
        let Some((before, next)) = &mut self.before else { return (0, 0) };
        let Some(family) = before.families.get(*next).filter(|family| family.name == name) else {
            return (0, 0);
        };
        *next += 1;
        (family.series.len(), family.texts.len())
    }

    /// Returns the approximate size of all series as lines of an exposition, in bytes.
    pub fn text(&self) -> u64 {
        self.text
    }

    /// Returns whether this size exceeds the limit.
    pub fn is_over(&self) -> bool {
        self.text > self.most
    }

    /// Returns the reason why the first omitted family is invalid, if any was omitted.
    pub fn flaw(&self) -> Option<&str> {
        self.flaw.as_deref()
    }

    /// Returns the families that contain a series, and the number of all series.
    pub fn finish(mut self) -> (Vec<RecordedFamily>, usize) {
        self.families.retain(|family| !family.series.is_empty());
        if self.beside.is_some() {
            self.remove_copies();
        }
        for family in &mut self.families {
            family.texts.shrink_to_fit();
            family.series.shrink_to_fit();
        }
        (self.families, self.series)
    }

    /// Returns the families recorded so far, including families without series.
    pub fn families(&self) -> &[RecordedFamily] {
        &self.families
    }

    /// Returns all families, including families without series.
    pub fn heads(self) -> Vec<RecordedFamily> {
        self.families
    }

    /// Removes repeated families, because each of their series would be shown twice.
    fn remove_copies(&mut self) {
        let is_first: Vec<bool> = {
            let mut known = HashSet::new();
            let identities = self.families.iter();
            let identities = identities.map(|one| (&one.name, one.kind, one.bare, &one.labels));
            identities.map(|identity| known.insert(identity)).collect()
        };
        let mut is_first = is_first.into_iter();
        let Self { families, series, .. } = self;
        families.retain(|family| {
            let is_kept = is_first.next().unwrap_or(true);
            *series -= if is_kept { 0 } else { family.series.len() };
            is_kept
        });
    }

    /// Computes the shared size of the current family's lines, and whether the family must be
    /// omitted.
    fn begin(&mut self, family: &FamilyHeader<'_>) {
        let Some(beside) = &self.beside else { return };
        let names = family.labels().iter().map(|label| label.name.len());
        let more = beside.iter().map(|(name, value)| name.len() + value.len());
        self.head = family.name.len() as u64 + names.chain(more).sum::<usize>() as u64 + LINE;
        let reason = flaw(family, beside);
        self.is_skipping = reason.is_some();
        if let (Some(reason), None) = (reason, &self.flaw) {
            self.flaw = Some(format!("the metric {:?} is omitted: {reason}", family.name));
        }
    }

    /// Adds the line size of a series whose own strings take this number of bytes. Returns whether
    /// the limit is now exceeded.
    fn count_text(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>, bytes: usize) -> bool {
        let fixed = family.fixed(series.group).map(|(_, value)| value.len() as u64).sum::<u64>();
        let lines = match &series.value {
            Value::Histogram(histogram) => {
                let native = histogram.native.as_ref();
                let native = native.map_or(0, |one| one.positive.len() + one.negative.len());
                histogram.buckets.len() + native + 2
            }
            Value::Summary(SummaryValue { quantiles, .. }) => quantiles.len() + 2,
            Value::StateSet(states) => {
                let names = states.iter().map(|(name, _)| name.len() as u64).sum();
                self.text = self.text.saturating_add(names);
                states.len()
            }
            _ => 1,
        };
        let line = (self.head + bytes as u64).saturating_add(fixed);
        self.text = self.text.saturating_add(line.saturating_mul(lines as u64));
        self.is_over()
    }
}

impl Sink for Recorder {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        if self.is_over() {
            return;
        }
        self.begin(family);
        if self.is_skipping {
            return;
        }
        // We drop the unit unless the name ends with the unit, because OpenMetrics requires this.
        let is_end =
            || family.name.strip_suffix(family.unit).is_some_and(|rest| rest.ends_with('_'));
        let is_shown = self.beside.is_none() || is_legacy_name(family.unit) && is_end();
        let unit = if is_shown { family.unit } else { "" };
        let values = |label: &Label<'_>| {
            let values = label.values?;
            Some(values.iter().map(|value| (*value).to_owned()).collect())
        };
        let labels = family.labels().iter().map(|label| (label.name.to_owned(), values(label)));
        let (series, texts) = self.sizes_before(family.name);
        self.families.push(RecordedFamily {
            name: family.name.to_owned(),
            help: family.help.to_owned(),
            kind: family.kind,
            bare: family.bare,
            unit: unit.to_owned(),
            labels: labels.collect(),
            series: Vec::with_capacity(series),
            overflows: 0,
            texts: Vec::with_capacity(texts),
            has_empty: family.labels().iter().any(|label| label.values.is_some_and(has_empty)),
        });
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if self.is_skipping || self.is_over() {
            return;
        }
        let Some(recorded) = self.families.last_mut().filter(|it| !it.name.is_empty()) else {
            return;
        };
        // Offsets in the strings are 32-bit numbers.
        let Ok(begin) = u32::try_from(recorded.texts.len()) else { return };
        // A flag in a file cannot be trusted.
        let is_checked = self.beside.is_none();
        let mut escape_free = !is_checked || series.escape_free;
        let mut push = |text: &str, texts: &mut Vec<u8>| {
            escape_free &= is_checked || is_escape_free(text);
            Texts::push(texts, text);
        };
        if series.overflow {
            push(series.overflow_value(), &mut recorded.texts);
        } else {
            let mut texts = series.texts;
            for _ in family.dynamic() {
                let text = texts.next().unwrap_or("");
                recorded.has_empty |= text.is_empty();
                push(text, &mut recorded.texts);
            }
        }
        let Ok(end) = u32::try_from(recorded.texts.len()) else {
            recorded.texts.truncate(begin as usize);
            return;
        };
        let one = OneSeries {
            group: series.group,
            texts: begin..end,
            escape_free,
            start: series.start,
            value: OneValue::from_series(series),
        };
        self.series += 1;
        if series.overflow {
            recorded.overflows += 1;
            recorded.series.push(one);
        } else {
            // A family usually contains one overflow series, which is the last one.
            match recorded.overflows {
                0 => recorded.series.push(one),
                after => recorded.series.insert(recorded.series.len() - after, one),
            }
        }
        if self.beside.is_some() && self.count_text(family, series, (end - begin) as usize) {
            self.families.clear();
        }
    }
}

impl RecordedFamily {
    /// Returns whether both families can contain a series with the same name and labels. Both must
    /// belong to the same source, and be shown under the same name.
    pub fn may_repeat(&self, other: &Self) -> bool {
        (&self.name, self.kind) != (&other.name, other.kind) || self.has_empty || other.has_empty
    }

    /// Returns whether the family, or one of its samples, has one of these names.
    pub fn is_one_of(&self, names: &[String]) -> bool {
        names.contains(&self.name)
            || ShownNames::for_family(&self.name, self.kind).any(|name| names.contains(&name))
    }

    /// Passes the series from index `from` on to a sink, until `is_full` returns true. Returns the
    /// index of the next series, or `None` after the last one. All series get the labels `more`. If
    /// the family already uses such a name, its own label is renamed like in a Prometheus scrape
    /// (for example, `job` becomes `exported_job`).
    pub fn pass<S: Sink + ?Sized>(
        &self,
        more: &Labels,
        shown: ShownMetadata<'_>,
        from: usize,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> Option<usize> {
        let first_overflow = self.series.len() - self.overflows;
        let mut next = from;
        while next < self.series.len() {
            let is_overflow = next >= first_overflow;
            let end = if is_overflow { self.series.len() } else { first_overflow };
            let mut is_done = true;
            self.with_family(more, shown, is_overflow, |family| {
                sink.family(family);
                for one in &self.series[next..end] {
                    one.pass(family, &self.texts, is_overflow, sink);
                    next += 1;
                    if is_full(sink) {
                        is_done = false;
                        return;
                    }
                }
            });
            if !is_done {
                break;
            }
        }
        (next < self.series.len()).then_some(next)
    }

    /// Calls `pass` with the family and the additional labels. For overflow series, the overflow
    /// label replaces the family's own labels.
    fn with_family(
        &self,
        more: &Labels,
        shown: ShownMetadata<'_>,
        is_overflow: bool,
        pass: impl FnOnce(&FamilyHeader<'_>),
    ) {
        let further: Vec<[&str; 1]> = more.iter().map(|(_, value)| [value.as_str()]).collect();
        let own: &[(String, Option<Vec<String>>)] = if is_overflow { &[] } else { &self.labels };
        let values: Vec<Option<Vec<&str>>> = own
            .iter()
            .map(|(_, values)| Some(values.as_ref()?.iter().map(String::as_str).collect()))
            .collect();
        let names: Vec<String> = own.iter().map(|(name, _)| exported(name, more, own)).collect();
        let mut labels: Vec<Label<'_>> = Vec::with_capacity(more.len() + own.len() + 1);
        let further = more.iter().zip(&further);
        labels.extend(further.map(|((name, _), value)| Label::new(name).values(value)));
        let own = names.iter().zip(&values);
        labels.extend(own.map(|(name, values)| Label::from_values(name, values.as_deref())));
        if is_overflow {
            labels.push(Label::new(OVERFLOW));
        }
        let family = FamilyHeader::new(shown.kind, shown.name, shown.help).unit(&self.unit);
        pass(&family.with_labels(&labels).bare(shown.bare));
    }
}

/// Returns whether a string needs no escapes, in any text format.
fn is_escape_free(text: &str) -> bool {
    // There is no early exit, because the compiler can then check many bytes at once.
    let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n');
    !text.as_bytes().iter().fold(false, |any, byte| any | is_escaped(byte))
}

/// Returns a single number as a value of this type.
fn plain<'a>(kind: Kind, number: Number, exemplar: Option<Exemplar<'a>>) -> Value<'a> {
    match kind {
        Kind::Counter => Value::Counter(CounterValue::new(number).exemplar(exemplar)),
        Kind::Gauge => Value::Gauge(number),
        _ => Value::Unknown(number),
    }
}

/// Returns the value of an info metric: 1 if it is shown as a gauge.
pub fn info(kind: Kind) -> Value<'static> {
    match kind {
        Kind::Info => Value::Info,
        kind => plain(kind, Number::Unsigned(1), None),
    }
}

/// Returns a new name for a label that conflicts with a label of its source. No other label of the
/// family uses this name.
fn exported(name: &str, more: &Labels, own: &[(String, Option<Vec<String>>)]) -> String {
    let mut shown = name.to_owned();
    let is_taken = |shown: &str| {
        let shown_as = escaped(shown);
        let is_it = |other: &str| escaped(other) == shown_as;
        let is_own = shown != name && own.iter().any(|(other, _)| is_it(other));
        is_own || more.iter().any(|(other, _)| is_it(other))
    };
    while is_taken(&shown) {
        shown.insert_str(0, "exported_");
    }
    shown
}

impl OneSeries {
    fn pass<S: Sink + ?Sized>(
        &self,
        family: &FamilyHeader<'_>,
        texts: &[u8],
        is_overflow: bool,
        sink: &mut S,
    ) {
        let texts = texts.get(self.texts.start as usize..self.texts.end as usize);
        let mut pass = |value: Value<'_>, exemplar| {
            let texts = Texts::new(texts.unwrap_or_default());
            let series = Series::checked(texts, self.escape_free, value)
                .group(if is_overflow { 0 } else { self.group })
                .start(self.start)
                .exemplar(exemplar);
            sink.series(family, &series);
        };
        match &self.value {
            OneValue::Number(number, exemplar) => {
                let exemplar = exemplar.as_deref().map(OneExemplar::shown);
                // Only a counter can carry this exemplar in its value.
                let beside = exemplar.filter(|_| family.kind != Kind::Counter);
                pass(plain(family.kind, *number, exemplar), beside);
            }
            OneValue::Info => pass(info(family.kind), None),
            OneValue::States(states) => {
                let states: Vec<(&str, bool)> =
                    states.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
                pass(Value::StateSet(&states), None);
            }
            OneValue::Summary(summary) => {
                let OneSummary { quantiles, count, sum } = &**summary;
                pass(Value::Summary(SummaryValue::new(*count, *sum).quantiles(quantiles)), None);
            }
            OneValue::Histogram(histogram) => histogram.pass(|value| pass(value, None)),
        }
    }
}

impl OneValue {
    fn from_series(series: &Series<'_>) -> Self {
        let number = |number: Number, exemplar: Option<&Exemplar<'_>>| {
            Self::Number(number, exemplar.map(|given| Box::new(OneExemplar::from_exemplar(given))))
        };
        match &series.value {
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                number(*total, exemplar.as_ref())
            }
            Value::Gauge(one) | Value::Unknown(one) => number(*one, series.exemplar.as_ref()),
            Value::Info => Self::Info,
            Value::StateSet(states) => {
                Self::States(states.iter().map(|(name, is_on)| ((*name).into(), *is_on)).collect())
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                Self::Summary(Box::new(OneSummary {
                    quantiles: quantiles.to_vec(),
                    count: *count,
                    sum: *sum,
                }))
            }
            Value::Histogram(histogram) => {
                Self::Histogram(Box::new(OneHistogram::from_histogram(histogram)))
            }
            // A type from a later version of the library.
            _ => number(Number::Float(f64::NAN), None),
        }
    }
}

impl OneHistogram {
    fn from_histogram(histogram: &HistogramValue<'_>) -> Self {
        let bucket = |bucket: &Bucket<'_>| OneBucket {
            bound: bucket.bound,
            le: bucket.le.map(Into::into),
            count: bucket.count,
            exemplar: bucket
                .exemplar
                .as_ref()
                .map(|given| Box::new(OneExemplar::from_exemplar(given))),
        };
        Self {
            count: histogram.count,
            sum: histogram.sum,
            buckets: histogram.buckets.iter().map(bucket).collect(),
            native: histogram.native.as_ref().map(|native| OneNative {
                schema: native.schema,
                zero_threshold: native.zero_threshold,
                zero_count: native.zero_count,
                positive: native.positive.to_vec(),
                negative: native.negative.to_vec(),
                exemplars: native.exemplars.iter().map(OneExemplar::from_exemplar).collect(),
            }),
        }
    }

    fn pass(&self, pass: impl FnOnce(Value<'_>)) {
        let buckets: Vec<Bucket<'_>> = self
            .buckets
            .iter()
            .map(|bucket| {
                Bucket::new(bucket.bound, bucket.count)
                    .le(bucket.le.as_deref())
                    .exemplar(bucket.exemplar.as_deref().map(OneExemplar::shown))
            })
            .collect();
        let exemplars: Vec<Exemplar<'_>> = self.native.as_ref().map_or_else(Vec::new, |native| {
            native.exemplars.iter().map(OneExemplar::shown).collect()
        });
        let native = self.native.as_ref().map(|native| {
            Native::new(native.schema)
                .zero(native.zero_threshold, native.zero_count)
                .positive(&native.positive)
                .negative(&native.negative)
                .exemplars(&exemplars)
        });
        let (count, sum) = (self.count, self.sum);
        pass(Value::Histogram(HistogramValue::new(count, sum).buckets(&buckets).native(native)));
    }
}

impl OneExemplar {
    fn from_exemplar(exemplar: &Exemplar<'_>) -> Self {
        let mut labels = Vec::new();
        exemplar.labels.for_each(|text| Texts::push(&mut labels, text));
        Self { labels, value: exemplar.value, time: exemplar.time }
    }

    fn shown(&self) -> Exemplar<'_> {
        Exemplar::new(Texts::new(&self.labels), self.value).time(self.time)
    }
}

#[cfg(test)]
mod tests {
    use quipu::exposition::{Encoder, Escaping, Format};
    use quipu::{Description, HistogramFamily, Registry};

    use super::*;

    /// Encodes the families with these labels.
    fn text(families: &[RecordedFamily], more: &[(&str, &str)]) -> String {
        let more = more.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        for family in families {
            let mut from = Some(0);
            while let Some(next) = from {
                // Passes one series at a time.
                let RecordedFamily { name, help, kind, bare, .. } = family;
                let shown = ShownMetadata { name, help, kind: *kind, bare: *bare };
                from = family.pass(&more, shown, next, &mut encoder, |_| true);
            }
        }
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    }

    fn recorded(registry: &Registry) -> Vec<RecordedFamily> {
        let mut recorder = Recorder::default();
        registry.visit(&mut recorder).unwrap();
        recorder.finish().0
    }

    #[test]
    fn recorded_families_are_shown_unchanged() {
        let registry = Registry::new();
        registry.counter("jobs", "Jobs.").unwrap().inc();
        registry.gauge("free", "").unwrap().set(0.5);
        let kinds = Description::new("kinds", "").labels(["kind", "exported_kind"]);
        let kinds: quipu::GaugeFamily<[&str; 2]> = registry.register(kinds).unwrap();
        kinds.set(&["d", "e"], 1.0);
        let sizes = Description::new("size", "Sizes.").labels(["kind"]).buckets([1.0, 2.0]);
        let sizes: HistogramFamily<[&str; 1]> = registry.register(sizes).unwrap();
        sizes.observe(&["a\"b"], 1.5);
        sizes.observe(&["c"], 3.0);
        let families = recorded(&registry);
        assert_eq!(text(&families, &[]), registry.text());
        let labelled = text(&families, &[("segment", "web/1"), ("kind", "x")]);
        for line in [
            "jobs_total{segment=\"web/1\",kind=\"x\"} 1",
            "size_count{segment=\"web/1\",kind=\"x\",exported_kind=\"c\"} 1",
            "kinds{segment=\"web/1\",kind=\"x\",exported_exported_kind=\"d\",exported_kind=\"e\"} 1",
        ] {
            assert!(labelled.contains(line), "no {line} in {labelled}");
        }
    }

    /// Encodes a file that contains a family with this kind and these labels.
    fn of_labels(kind: Kind, labels: &[&str], value: Value<'_>) -> (String, Option<String>) {
        let labels = labels.iter().map(|name| Label::new(name)).collect::<Vec<_>>();
        let family = FamilyHeader::new(kind, "mode", "").with_labels(&labels);
        let mut texts = Vec::new();
        let series = Series::new(Texts::encode(labels.iter().map(|_| "v"), &mut texts), value);
        let beside: Labels = vec![("segment".into(), "s".into()), ("my_app".into(), "a".into())];
        let mut recorder = Recorder::of_file(&beside, u64::MAX);
        // Recorded twice, because a copy must be omitted.
        for _ in 0..2 {
            recorder.family(&family);
            recorder.series(&family, &series);
        }
        let flaw = recorder.flaw().map(str::to_owned);
        let more: Vec<(&str, &str)> =
            beside.iter().map(|(name, value)| (&**name, &**value)).collect();
        (text(&recorder.finish().0, &more), flaw)
    }

    #[test]
    fn families_whose_labels_a_reader_refuses_are_omitted() {
        let one = Value::Gauge(Number::Unsigned(1));
        let summary = Value::Summary(SummaryValue::new(1, 1.0));
        let histogram = HistogramValue::new(0, 0.0);
        let histogram = Value::Histogram(histogram);
        let states = Value::StateSet(&[("on", true)]);
        for (kind, labels, value) in [
            (Kind::Histogram, &["le"][..], histogram),
            (Kind::Summary, &["quantile"], summary),
            (Kind::StateSet, &["mode"], states),
            (Kind::Gauge, &["a.b", "c", "a_b"], one),
            (Kind::Gauge, &["a", "a"], one),
            (Kind::Gauge, &["__name__"], one),
            (Kind::Gauge, &["quipu_overflow"], one),
            (Kind::Gauge, &["a\nb"], one),
            (Kind::Gauge, &[""], one),
        ] {
            let (text, flaw) = of_labels(kind, labels, value);
            assert_eq!(text, "", "{labels:?}");
            assert!(flaw.unwrap().contains("the metric \"mode\" is omitted"), "{labels:?}");
        }
        for (kind, labels, value, line) in [
            (Kind::Gauge, &["le", "quantile"][..], one, "le=\"v\",quantile=\"v\"} 1"),
            (Kind::Gauge, &["my.app"], one, "exported_my_app=\"v\"} 1"),
            (
                Kind::Gauge,
                &["segment", "exported.segment"],
                one,
                "exported_exported_segment=\"v\",",
            ),
            (Kind::Summary, &["le"], summary, "mode_count{segment=\"s\",my_app=\"a\",le=\"v\"} 1"),
        ] {
            let (text, flaw) = of_labels(kind, labels, value);
            assert!(text.matches(line).count() == 1 && flaw.is_none(), "{labels:?}: {text}");
        }
    }

    #[test]
    fn a_unit_is_the_end_of_a_name() {
        let unit = |name, unit| {
            let mut recorder = Recorder::default();
            recorder.family(&FamilyHeader::new(Kind::Gauge, name, "").unit(unit));
            recorder.families[0].unit.clone()
        };
        assert_eq!(unit("time_seconds", "seconds"), "seconds");
        assert_eq!((unit("time", "seconds"), unit("a_s\u{e9}", "s\u{e9}")), Default::default());
    }

    #[test]
    fn a_value_that_many_series_share_counts_for_each() {
        let value = "x".repeat(1000);
        let values: [&str; 1] = [&value];
        let labels = [Label::new("a").values(&values), Label::new("b")];
        let family = FamilyHeader::new(Kind::Gauge, "n", "").with_labels(&labels);
        let recorded = |most: u64| {
            let mut recorder = Recorder::of_file(&Vec::new(), most);
            recorder.family(&family);
            for n in 0..100_u64 {
                let mut texts = Vec::new();
                let texts = Texts::encode([n.to_string()], &mut texts);
                recorder.series(&family, &Series::new(texts, Value::gauge(n)));
            }
            (recorder.is_over(), recorder.finish().0.len())
        };
        assert_eq!(recorded(110_000), (false, 1));
        assert_eq!(recorded(90_000), (true, 0));
    }

    #[test]
    fn overflow_series_have_the_labels_of_their_source() {
        let registry = Registry::new();
        let hits = Description::new("hits", "").labels(["user"]).max_series(1);
        let hits: quipu::CounterFamily<[&str; 1]> = registry.register(hits).unwrap();
        hits.inc(&["a"]);
        hits.inc(&["b"]);
        let shown = text(&recorded(&registry), &[("segment", "s")]);
        for line in [
            "hits_total{segment=\"s\",user=\"a\"} 1",
            "hits_total{segment=\"s\",quipu_overflow=\"true\"} 1",
            "quipu_series_overflowed_total{segment=\"s\",family=\"hits\"} 1",
        ] {
            assert!(shown.contains(line), "no {line} in {shown}");
        }
        assert_eq!(shown.matches("# TYPE hits_total").count(), 1, "{shown}");
    }
}
