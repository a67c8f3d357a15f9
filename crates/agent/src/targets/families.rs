//! Parses the exposition of a scrape target into the families that the agent shows.
//!
//! The parser follows Prometheus: one invalid line fails the whole scrape, a repeated series counts
//! once, and the labels `job` and `instance` of the target's own series are renamed to
//! `exported_job` and so on, because the daemon adds these labels. A snapshot cannot represent
//! every family. Some are therefore shown as separate samples: infos, state sets, gauge histograms,
//! and incomplete histograms and summaries.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};

use quipu::exposition::{Escaping, escape_name};
use quipu::snapshot::{
    self, Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Label, Number,
    Series, Sink, SummaryValue, Texts, Timestamp, Value,
};
use quipu_segment::hash::SeededState;
use quipu_wire::remote::exposition::text::{
    Item, Options, TextFormat, TextLineError, TextReader, TextSample,
};
use quipu_wire::remote::exposition::{self as wire, Families, FamilyError, Limits};

use super::form::{Draft, Form, Shape};
use super::report;
use super::turns::{Late, Turn};
use quipu_client::Text;
use quipu_sources::labels::escaped;
use quipu_sources::recorded::{RecordedFamily, Recorder};

/// The parsed exposition of a target.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) families: Vec<RecordedFamily>,
    pub(super) series: usize,
    /// The number of all samples.
    pub(super) samples: usize,
    /// The number of samples to show.
    pub(super) kept: usize,
    /// The hash of each metric's name and labels, with the number of its samples. `None` if they
    /// are the same as in the previous scrape.
    pub(super) identities: Option<HashMap<u64, u32, SeededState>>,
    /// The hash of the exposition's shape. `None` if the shape did not change, or if no form is
    /// possible.
    pub(super) shape: Option<u64>,
    /// The form, to parse the next exposition faster.
    pub(super) form: Option<Form>,
}

/// The reason why an exposition is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A message about the first unreadable line, or about too many samples or families.
    Contents(String),
    /// The scrape exceeded its time limit.
    Late,
}

impl From<String> for Flaw {
    fn from(reason: String) -> Self {
        Self::Contents(reason)
    }
}

impl From<Late> for Flaw {
    fn from(Late: Late) -> Self {
        Self::Late
    }
}

/// Parses an exposition during this turn. `is_useful` determines whether to keep the form.
///
/// # Errors
/// Fails for an invalid exposition, and at the time limit.
pub(super) fn read(
    text: &Text,
    most: usize,
    hash: &SeededState,
    turn: &Turn<'_>,
    is_useful: impl FnOnce(&Shape) -> bool,
) -> Result<Body, Flaw> {
    let mut reading = ExpositionReader::new(text.format, hash, turn);
    // There is no limit here, because the length of the exposition already limits the strings of a
    // family.
    let limits = Limits::default().samples(most).bytes(usize::MAX);
    let mut families = Families::new(text.format, limits);
    reading.take(&text.bytes, &mut families, most, |_| false)?;
    let ExpositionReader { recorder, samples, dropped, identities, kinds, mut draft, .. } = reading;
    let kept = samples.saturating_sub(dropped);
    let shape = draft.shape(text, recorder.families(), &kinds, hash);
    let form = match shape.as_ref().is_some_and(is_useful) {
        true => draft.form(text, kinds, samples),
        false => None,
    };
    let (families, series) = recorder.finish();
    let (identities, shape) = (Some(identities), shape.map(|shape| shape.hash));
    Ok(Body { families, series, samples, kept, identities, shape, form })
}

/// A parser of the lines of an exposition.
pub(super) struct ExpositionReader<'h> {
    format: TextFormat,
    hash: &'h SeededState,
    turn: &'h Turn<'h>,
    pub(super) recorder: Recorder,
    samples: usize,
    pub(super) dropped: usize,
    identities: HashMap<u64, u32, SeededState>,
    /// The number of families, where each set of label names counts separately.
    sets: usize,
    /// The types of all families so far.
    pub(super) kinds: HashMap<String, wire::FamilyType>,
    /// The form of the lines so far.
    draft: Draft,
    /// The bounds of the current family's buckets as the target formats them. The flag is true if
    /// we format them in the same way.
    bounds: BTreeMap<u64, (Box<str>, bool)>,
    /// A reused buffer for label values.
    texts: Vec<u8>,
}

/// The metadata of a family, without its labels.
#[derive(Clone, Copy)]
struct Head<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
    kind: Kind,
    bare: bool,
}

/// A metric, or one of its samples.
struct Entry<'f> {
    metric: wire::FamilyMetric<'f>,
    sample: Option<FlatSample>,
}

/// One sample of a metric, shown separately.
struct FlatSample {
    /// The label that distinguishes this sample: a bound or a quantile.
    label: Option<OwnLabel>,
    value: f64,
}

type OwnLabel = (&'static str, Box<str>);

/// The metrics of a family with the same label names. A snapshot stores each set as a separate
/// family.
struct Set {
    /// The label names as shown.
    names: Vec<String>,
    /// The hash of the escaped names.
    hash: u64,
    /// The order of the names by their escaped forms.
    order: Vec<usize>,
    /// Whether all escaped names differ.
    is_valid: bool,
}

impl<'h> ExpositionReader<'h> {
    pub(super) fn new(format: TextFormat, hash: &'h SeededState, turn: &'h Turn<'h>) -> Self {
        Self {
            format,
            hash,
            turn,
            recorder: Recorder::unchecked(),
            samples: 0,
            dropped: 0,
            identities: HashMap::with_hasher(hash.clone()),
            sets: 0,
            kinds: HashMap::new(),
            draft: Draft::default(),
            bounds: BTreeMap::new(),
            texts: Vec::new(),
        }
    }

    /// Parses lines until the end, and ends the last family. If `is_end` returns true for the error
    /// of an invalid line, this line also ends the parsing without an error.
    ///
    /// # Errors
    /// Fails for any other invalid line, for too many samples or families, and at the time limit.
    pub(super) fn take(
        &mut self,
        lines: &[u8],
        families: &mut Families,
        most: usize,
        is_end: impl Fn(&TextLineError) -> bool,
    ) -> Result<(), Flaw> {
        let mut reader = TextReader::new(lines, Options::new(self.format));
        while let Some(item) = reader.next() {
            self.turn.line()?;
            let item = match item {
                Err(error) if is_end(&error) => break,
                item => item.map_err(|error| error.to_string())?,
            };
            if matches!(item, Item::Sample(_)) {
                self.samples += 1;
                if self.samples > most {
                    let reason =
                        format!("there are more than {most} samples; see --scrape-samples");
                    return Err(reason.into());
                }
            }
            self.draft.line(&item);
            match families.push(&item, |family| self.family(family)) {
                Err(error @ FamilyError::TooLarge) => return Err(error.to_string().into()),
                // A repeated help, type or unit can be ignored.
                Err(_) => {
                    self.dropped += usize::from(matches!(item, Item::Sample(_)));
                    self.draft.refuse();
                }
                Ok(()) => {}
            }
            if let Item::Sample(sample) = &item {
                self.draft.sample();
                // In OpenMetrics, a form parses only numbers, no timestamps.
                if self.format == TextFormat::OpenMetrics && sample.timestamp_ms.is_some() {
                    self.draft.refuse();
                }
                self.note_bound(sample);
            }
            self.check_sets()?;
        }
        self.draft.end();
        families.finish(|family| self.family(family));
        // We check the time limit here, because `family` cannot return an error.
        self.turn.check()?;
        Ok(self.check_sets()?)
    }

    /// Checks the number of sets, because the agent stores each set as a separate family.
    fn check_sets(&self) -> Result<(), String> {
        match self.sets > MAX_SETS {
            true => Err(format!(
                "there are more than {MAX_SETS} families and sets of label names: the names of \
                 labels must be the same in most series of a family"
            )),
            false => Ok(()),
        }
    }

    /// Stores how the target formats a bucket bound.
    fn note_bound(&mut self, sample: &TextSample<'_, '_>) {
        if !sample.name.raw().ends_with("_bucket") {
            return;
        }
        let Some(label) = sample.labels.iter().find(|label| label.name == *"le") else { return };
        let text = label.value.to_cow();
        let Ok(bound) = text.parse::<f64>() else { return };
        let is_openmetrics = self.format == TextFormat::OpenMetrics;
        self.bounds.entry(bound.to_bits()).or_insert_with(|| {
            let usual = spelled(bound);
            let is_usual = match text.strip_suffix(".0") {
                Some(whole) if is_openmetrics => whole == usual,
                _ => text == usual,
            };
            (text.into(), is_usual)
        });
    }

    fn family(&mut self, family: wire::Family<'_>) {
        let kind = self.kind(family);
        let (name, help) = (family.name(), family.help());
        let unit = family.unit();
        // The unit is dropped unless the name ends with it, because an OpenMetrics parser would
        // reject such a family.
        let is_end = name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        let unit = if is_end { unit } else { "" };
        let head = Head { name, help, unit, kind: Kind::Unknown, bare: false };
        let whole = || family.metrics().map(|metric| Entry { metric, sample: None });
        match kind {
            wire::FamilyType::Counter => {
                let stem = name.strip_suffix("_total").filter(|stem| !stem.is_empty());
                let bare = stem.is_none() && self.format == TextFormat::Prometheus;
                let name = stem.unwrap_or(name);
                self.put(Head { name, kind: Kind::Counter, bare, ..head }, whole());
            }
            wire::FamilyType::Gauge => self.put(Head { kind: Kind::Gauge, ..head }, whole()),
            // We show an info as a gauge, because it could otherwise conflict with another target's
            // gauge of the same name.
            wire::FamilyType::Info => {
                let is_openmetrics = self.format == TextFormat::OpenMetrics;
                let suffix = if is_openmetrics { "_info" } else { "" };
                let name = &[name, suffix].concat();
                self.put(Head { name, unit: "", kind: Kind::Gauge, ..head }, whole());
            }
            wire::FamilyType::StateSet => {
                self.put(Head { kind: Kind::Gauge, unit: "", ..head }, whole())
            }
            wire::FamilyType::Histogram if family.metrics().all(is_whole_histogram) => {
                self.put(Head { kind: Kind::Histogram, ..head }, whole());
            }
            wire::FamilyType::Summary if family.metrics().all(is_whole_summary) => {
                self.put(Head { kind: Kind::Summary, ..head }, whole());
            }
            wire::FamilyType::Histogram => self.flat(head, family, ["_sum", "_count"]),
            wire::FamilyType::GaugeHistogram => {
                self.flat(Head { kind: Kind::Gauge, ..head }, family, ["_gsum", "_gcount"]);
            }
            wire::FamilyType::Summary => self.flat(head, family, ["_sum", "_count"]),
            _ => self.put(head, whole()),
        }
        self.draft.family(family.metrics().len(), self.recorder.families());
        self.bounds.clear();
    }

    /// Returns the type of a family. If the family continues after others, it keeps its first type,
    /// provided that a single number can have this type.
    fn kind(&mut self, family: wire::Family<'_>) -> wire::FamilyType {
        let kind = family.kind();
        match self.kinds.get(family.name()) {
            Some(before @ (wire::FamilyType::Counter | wire::FamilyType::Gauge))
                if kind == wire::FamilyType::Unknown =>
            {
                // In OpenMetrics, the samples of a counter have another name than the family.
                let is_counter = *before == wire::FamilyType::Counter;
                let has_other_name = is_counter && self.format == TextFormat::OpenMetrics;
                if has_other_name { kind } else { *before }
            }
            Some(_) => kind,
            None => {
                self.kinds.insert(family.name().to_owned(), kind);
                kind
            }
        }
    }

    /// Adds the samples of a histogram or a summary as separate families.
    fn flat(&mut self, head: Head<'_>, family: wire::Family<'_>, suffixes: [&str; 2]) {
        let mut parts: [Vec<Entry<'_>>; 4] = Default::default();
        let mut add = |part: usize, metric, label: Option<OwnLabel>, value| {
            parts[part].push(Entry { metric, sample: Some(FlatSample { label, value }) });
        };
        for metric in family.metrics() {
            let (sum, count) = match metric.value() {
                wire::MetricValue::Histogram(histogram) => {
                    for bucket in histogram.buckets() {
                        let bound = bucket.upper_bound;
                        let known = self.bounds.get(&bound.to_bits());
                        let text = known.map_or_else(|| spelled(bound).into(), |it| it.0.clone());
                        add(1, metric, Some(("le", text)), bucket.cumulative_count);
                    }
                    (histogram.sum, histogram.count)
                }
                wire::MetricValue::Summary(summary) => {
                    for (quantile, value) in summary.quantiles() {
                        add(0, metric, Some(("quantile", spelled(quantile).into())), value);
                    }
                    (summary.sum, summary.count)
                }
                _ => continue,
            };
            sum.into_iter().for_each(|sum| add(2, metric, None, sum));
            count.into_iter().for_each(|count| add(3, metric, None, count));
        }
        for (entries, suffix) in parts.into_iter().zip(["", "_bucket", suffixes[0], suffixes[1]]) {
            if !entries.is_empty() {
                let name = &[head.name, suffix].concat();
                self.put(Head { name, unit: "", ..head }, entries.into_iter());
            }
        }
    }

    /// Adds a family to the recorder, once for each set of label names.
    fn put<'f>(&mut self, head: Head<'_>, entries: impl Iterator<Item = Entry<'f>>) {
        let mut sets: Vec<Set> = Vec::new();
        let mut numbers: HashMap<Vec<&str>, usize> = HashMap::new();
        let (mut last, mut names): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut number = 0;
        let mut numbered: Vec<(usize, Entry<'_>)> = Vec::new();
        for entry in entries {
            if self.turn.line().is_err() {
                return;
            }
            names.clear();
            names.extend(entry.metric.labels().map(|label| label.0));
            names.extend(entry.sample.iter().filter_map(|one| Some(one.label.as_ref()?.0)));
            if sets.is_empty() || names != last {
                number = *numbers.entry(names.clone()).or_insert_with(|| {
                    sets.push(Set::new(&names, self.hash));
                    sets.len() - 1
                });
                last.clone_from(&names);
            }
            numbered.push((number, entry));
        }
        self.sets += sets.len();
        if self.sets > MAX_SETS {
            return;
        }
        if sets.len() > 1 {
            numbered.sort_by_key(|(number, _)| *number);
        }
        let name_hash = {
            let mut name = String::new();
            escape_name(head.name, Escaping::Underscores, &mut name);
            if head.kind == Kind::Counter && !head.bare {
                name.push_str("_total");
            }
            self.hash.hash_one(name)
        };
        let mut head = head;
        for part in numbered.chunk_by(|one, other| one.0 == other.0) {
            let set = &sets[part[0].0];
            // The scrape report uses these names.
            let is_reserved = set.names.is_empty() && report::is_reserved(head.name);
            if is_reserved || !set.is_valid {
                self.dropped += part.iter().map(|(_, entry)| entry.samples()).sum::<usize>();
            } else {
                self.put_set(head, set, name_hash, part.iter().map(|(_, entry)| entry));
                // Store the help only once, because there can be many sets, and a help can be long.
                head.help = "";
            }
        }
    }

    fn put_set<'e, 'f: 'e>(
        &mut self,
        head: Head<'_>,
        set: &Set,
        name_hash: u64,
        entries: impl Iterator<Item = &'e Entry<'f>>,
    ) {
        let labels: Vec<Label<'_>> = set.names.iter().map(|name| Label::new(name)).collect();
        let Head { name, help, unit, kind, bare } = head;
        let family = FamilyHeader::new(kind, name, help).unit(unit).with_labels(&labels).bare(bare);
        self.recorder.family(&family);
        let mut values: Vec<&str> = Vec::with_capacity(labels.len());
        for entry in entries {
            if self.turn.line().is_err() {
                return;
            }
            values.clear();
            values.extend(entry.metric.labels().map(|label| label.1));
            let own = entry.sample.as_ref().and_then(|one| one.label.as_ref());
            values.extend(own.map(|label| &*label.1));
            let mut hasher = self.hash.build_hasher();
            hasher.write_u64(name_hash);
            hasher.write_u64(set.hash);
            for at in &set.order {
                hasher.write(values[*at].as_bytes());
                hasher.write_u8(0xff);
            }
            let samples = entry.samples();
            // A repeated series would make the whole page invalid.
            if self.identities.insert(hasher.finish(), samples as u32).is_some() {
                self.dropped += samples;
                continue;
            }
            let created = entry.metric.created_ms().and_then(|ms| u64::try_from(ms).ok());
            let texts = Texts::encode(&values, &mut self.texts);
            let series = Series::new(texts, Value::Info)
                .start(created.and_then(|ms| ms.checked_mul(1_000_000)).map(Timestamp::from_nanos));
            let Self { recorder, bounds, .. } = self;
            entry.with_value(kind, bounds, |value| {
                let mut series = series;
                series.value = value;
                recorder.series(&family, &series);
            });
        }
    }
}

impl Set {
    fn new(names: &[&str], hash: &SeededState) -> Self {
        let mut shown: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        for own in OWN {
            if let Some(at) = shown.iter().position(|name| name == own) {
                let mut name = own.to_owned();
                while OWN.contains(&&*name) || shown.contains(&name) {
                    name.insert_str(0, "exported_");
                }
                shown[at] = name;
            }
        }
        let escaped: Vec<Cow<'_, str>> = shown.iter().map(|name| escaped(name)).collect();
        let mut order: Vec<usize> = (0..shown.len()).collect();
        order.sort_by(|one, other| escaped[*one].cmp(&escaped[*other]));
        let is_valid = order.windows(2).all(|two| escaped[two[0]] != escaped[two[1]]);
        let hash = hash.hash_one(order.iter().map(|at| &*escaped[*at]).collect::<Vec<_>>());
        Self { names: shown, hash, order, is_valid }
    }
}

impl<'f> Entry<'f> {
    /// Returns the number of samples.
    fn samples(&self) -> usize {
        match (&self.sample, self.metric.value()) {
            (None, wire::MetricValue::Histogram(histogram)) => histogram.buckets().len() + 2,
            (None, wire::MetricValue::Summary(summary)) => summary.quantiles().len() + 2,
            _ => 1,
        }
    }

    fn with_value(
        &self,
        kind: Kind,
        bounds: &BTreeMap<u64, (Box<str>, bool)>,
        pass: impl FnOnce(Value<'_>),
    ) {
        let mut exemplar_labels = Vec::new();
        let mut total = None;
        let n = match (&self.sample, self.metric.value()) {
            (Some(one), _) => one.value,
            (None, wire::MetricValue::Counter { total: n, exemplar }) => {
                total = exemplar.as_ref().map(|given| shown(given, &mut exemplar_labels));
                n
            }
            (None, wire::MetricValue::Gauge(n) | wire::MetricValue::Unknown(n)) => n,
            (None, wire::MetricValue::Histogram(histogram)) => {
                return with_histogram(histogram, bounds, |histogram| {
                    pass(Value::Histogram(histogram));
                });
            }
            (None, wire::MetricValue::Summary(summary)) => {
                let quantiles: Vec<_> = summary.quantiles().collect();
                let count = summary.count.unwrap_or_default() as u64;
                let sum = summary.sum.unwrap_or_default();
                return pass(Value::Summary(SummaryValue::new(count, sum).quantiles(&quantiles)));
            }
            _ => return,
        };
        match kind {
            Kind::Counter => pass(Value::Counter(CounterValue::new(number(n)).exemplar(total))),
            Kind::Gauge => pass(Value::Gauge(number(n))),
            _ => pass(Value::Unknown(number(n))),
        }
    }
}

fn with_histogram(
    histogram: wire::Histogram<'_>,
    bounds: &BTreeMap<u64, (Box<str>, bool)>,
    pass: impl FnOnce(HistogramValue<'_>),
) {
    let given = histogram.buckets();
    let mut exemplar_labels = vec![Vec::new(); given.len()];
    let mut buckets = Vec::with_capacity(given.len() + 1);
    let mut before = 0;
    for (bucket, labels) in given.zip(&mut exemplar_labels) {
        // The conversion is exact, because the counts are whole and ascending.
        let cumulative = bucket.cumulative_count as u64;
        let bound = bucket.upper_bound;
        let spelled = bounds.get(&bound.to_bits()).filter(|(_, is_usual)| !is_usual);
        let exemplar = bucket.exemplar.as_ref().map(|given| shown(given, labels));
        let le = spelled.map(|(text, _)| &**text);
        let count = cumulative.saturating_sub(before);
        buckets.push(Bucket::new(bound, count).le(le).exemplar(exemplar));
        before = cumulative;
    }
    let count = histogram.count.unwrap_or_default() as u64;
    if buckets.last().is_some_and(|bucket| bucket.bound != f64::INFINITY) {
        buckets.push(Bucket::new(f64::INFINITY, count.saturating_sub(before)));
    }
    let sum = histogram.sum.unwrap_or_default();
    pass(HistogramValue::new(count, sum).buckets(&buckets));
}

fn shown<'l>(exemplar: &wire::Exemplar<'_>, labels: &'l mut Vec<u8>) -> Exemplar<'l> {
    for (name, value) in exemplar.labels() {
        Texts::push(labels, name);
        Texts::push(labels, value);
    }
    let time = exemplar.timestamp_ms.and_then(|ms| u64::try_from(ms).ok()?.checked_mul(1_000_000));
    let labels = snapshot::Texts::new(labels);
    Exemplar::new(labels, exemplar.value).time(time.map(Timestamp::from_nanos))
}

/// Returns whether a snapshot can represent the histogram: its counts are whole and ascending.
fn is_whole_histogram(metric: wire::FamilyMetric<'_>) -> bool {
    let wire::MetricValue::Histogram(histogram) = metric.value() else { return false };
    let Some(count) = histogram.count.filter(|count| is_whole(*count)) else { return false };
    let mut before = 0.0;
    let is_rising = histogram.buckets().all(|bucket| {
        let counted = bucket.cumulative_count;
        let is_next = is_whole(counted) && counted >= before && !bucket.upper_bound.is_nan();
        before = counted;
        is_next
    });
    let has_all = histogram
        .buckets()
        .last()
        .is_none_or(|last| last.upper_bound == f64::INFINITY || last.cumulative_count <= count);
    is_rising && has_all && histogram.sum.is_some() && has_no(metric, "le")
}

fn is_whole_summary(metric: wire::FamilyMetric<'_>) -> bool {
    let wire::MetricValue::Summary(summary) = metric.value() else { return false };
    let has_values = summary.count.is_some_and(is_whole) && summary.sum.is_some();
    has_values
        && summary.quantiles().all(|(quantile, _)| !quantile.is_nan())
        && has_no(metric, "quantile")
}

fn has_no(metric: wire::FamilyMetric<'_>, name: &str) -> bool {
    metric.labels().all(|label| label.0 != name)
}

fn is_whole(n: f64) -> bool {
    (0.0..WHOLE).contains(&n) && n.trunc() == n
}

/// Converts the value of a sample to a number of a snapshot.
pub(super) fn number(n: f64) -> Number {
    match is_whole(n) && n.is_sign_positive() {
        // The conversion is exact, because the value is below 2^53.
        true => Number::Unsigned(n as u64),
        false => Number::Float(n),
    }
}

/// Formats a bound like Prometheus.
fn spelled(bound: f64) -> String {
    match bound {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        bound => bound.to_string(),
    }
}

/// 2^53: above it, a float does not represent each whole number.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// The maximum number of families, where each set of label names counts separately.
const MAX_SETS: usize = 20_000;
/// The labels that the daemon adds to all series of a target.
const OWN: [&str; 2] = ["job", "instance"];

#[cfg(test)]
mod tests;
