//! Reads the totals over all instances from the server.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ::redis::Value;
use quipu::Aggregation;
use quipu::collector::Collector;
use quipu::snapshot::{
    Bucket, FamilyHeader, HistogramValue, Kind, Label, Number, Series, Sink, SummaryValue, Texts,
    Value as Shown,
};

use super::key::{MetricKeys, NamespaceKeys, is_note, read_field};
use super::link::{Call, Failure, Link, items, text};
use super::meta::{How, Meta};
use super::number::Sum;
use super::options::RedisOptions;
use super::script::{LIST, READ};
use crate::error::Error;

/// The label of gauges with a separate series for each instance.
pub(super) const INSTANCE: &str = "instance_id";
/// The maximum number of metrics that are read in one pipeline.
const MAX_CALLS: usize = 16;

/// The totals over all instances: the archive, and the instances on the server. You can use this as
/// a collector: it reads the server at every scrape, and returns no metrics if the server fails.
///
/// ```no_run
/// // Not run, because it needs a server.
/// use quipu_store::redis::RedisOptions;
///
/// let totals = RedisOptions::new("redis://127.0.0.1/").namespace("shop").open()?.totals();
/// let registry = quipu::Registry::new();
/// registry.register_collector(totals)?;
/// assert!(registry.text().contains("requests_total"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Totals {
    options: RedisOptions,
}

/// A metric, combined over all instances.
///
/// ```no_run
/// // Not run, because it needs a server.
/// use quipu_store::redis::RedisOptions;
///
/// let store = RedisOptions::new("redis://127.0.0.1/").namespace("shop").open()?;
/// for total in store.totals().read()? {
///     println!("{}: {} samples with the labels {:?}", total.name, total.samples.len(), total.labels);
/// }
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Total {
    /// The name.
    pub name: String,
    /// The help.
    pub help: String,
    /// The unit.
    pub unit: String,
    /// The kind.
    pub kind: Kind,
    /// The label names.
    pub labels: Vec<String>,
    /// The series, in order.
    pub samples: Vec<Sample>,
}

/// A series of a metric, or one of the numbers of a histogram or summary.
///
/// ```no_run
/// // Not run, because it needs a server.
/// use quipu_store::redis::RedisOptions;
///
/// let store = RedisOptions::new("redis://127.0.0.1/").namespace("shop").open()?;
/// let requests = store.totals().read_one("requests")?.expect("an instance has written it");
/// let failed = requests.samples.iter().filter(|sample| sample.label("code") == Some("500"));
/// failed.for_each(|sample| println!("{:?} at {:?}", sample.value, sample.label("path")));
/// # Ok::<(), quipu_store::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample {
    /// The part of a histogram or summary: `bucket` (the count of a single bucket, whose upper
    /// bound is the label `le`), `sum` or `count`. Empty for other kinds.
    pub part: String,
    /// The label names and values.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: Number,
}

type LabelPairs = Vec<(String, String)>;

impl Totals {
    pub(super) fn new(options: RedisOptions) -> Self {
        Self { options }
    }

    /// Reads all metrics.
    ///
    /// # Errors
    /// The errors of the server.
    pub fn read(&self) -> Result<Vec<Total>, Error> {
        self.try_read(None).map_err(|failure| self.error(failure))
    }

    /// Reads one metric. Returns `None` if no instance ever wrote it.
    ///
    /// # Errors
    /// The errors of the server.
    pub fn read_one(&self, name: &str) -> Result<Option<Total>, Error> {
        let mut all = self.try_read(Some(name)).map_err(|failure| self.error(failure))?;
        Ok(all.pop())
    }

    fn error(&self, failure: Failure) -> Error {
        let reason = format!("the totals cannot be read ({})", failure.cause.name());
        Error::because("redis", reason, failure.error)
    }

    fn try_read(&self, only: Option<&str>) -> Result<Vec<Total>, Failure> {
        let mut link = Link::connect(&self.options)?;
        let global = NamespaceKeys::new(&self.options.namespace);
        let mut head = Call::new(&LIST, &[&global.instances, &global.metrics]);
        head.arg(&self.options.dead_after.as_millis().to_string());
        let replies = link.run(&[head])?;
        let reply = replies.first().map(items).unwrap_or_default();
        let list = |at: usize| reply.get(at).map(items).unwrap_or_default().iter();
        let live: HashSet<&str> = list(0).filter_map(text).collect();
        let mut names: Vec<&str> =
            list(1).filter_map(text).filter(|name| only.is_none_or(|only| only == *name)).collect();
        names.sort_unstable();
        let mut totals = Vec::new();
        for names in names.chunks(MAX_CALLS) {
            let calls = names.iter().map(|name| {
                let keys = MetricKeys::new(&self.options.namespace, name);
                let mut call = Call::new(&READ, &[&keys.meta, &keys.archive, &keys.instances]);
                call.arg(&keys.prefix);
                call
            });
            let replies = link.run(&calls.collect::<Vec<_>>())?;
            totals.extend(
                names.iter().zip(&replies).map(|(name, reply)| total(name, items(reply), &live)),
            );
        }
        Ok(totals)
    }
}

/// Combines a metric from its description, its archive, and pairs of an instance and its hash.
fn total(name: &str, reply: &[Value], live: &HashSet<&str>) -> Total {
    let hash = |at: usize| pairs(reply.get(at));
    let meta = Meta::read(hash(0));
    let mut all: BTreeMap<(LabelPairs, String), CombinedValues> = BTreeMap::new();
    let mut add = |field: &str, value: &str, instance: Option<&str>| {
        let Some(mut field) = read_field(field) else { return };
        if let Some(id) = instance {
            field.labels.push((INSTANCE.into(), id.into()));
        }
        all.entry((field.labels, field.part)).or_default().add(meta.how, value);
    };
    if meta.how.counts_dead() {
        // Numbers other than integers are in separate fields, marked by `~`.
        hash(1).for_each(|(field, value)| add(field.trim_start_matches('~'), value, None));
    }
    let is_each = matches!(meta.how, How::Gauge(Aggregation::All | Aggregation::LiveAll));
    for instance in reply.get(2..).unwrap_or_default().chunks_exact(2) {
        let Some(id) = text(&instance[0]) else { continue };
        if !meta.how.counts_dead() && !live.contains(id) {
            continue;
        }
        for (field, value) in pairs(Some(&instance[1])) {
            if !is_note(field) {
                add(field, value, is_each.then_some(id));
            }
        }
    }
    let Meta { kind, help, unit, mut labels, .. } = meta;
    if is_each {
        labels.push(INSTANCE.into());
    }
    let samples = all.into_iter().map(|((labels, part), combined)| {
        let value = combined.number();
        Sample { part, labels, value }
    });
    Total { name: name.into(), help, unit, kind, labels, samples: samples.collect() }
}

/// The values of several instances.
#[derive(Default)]
struct CombinedValues {
    sum: Sum,
    /// The value that counts and its time, for aggregations that pick one value.
    one: Option<(u64, Number)>,
}

impl CombinedValues {
    fn add(&mut self, how: How, text: &str) {
        use Aggregation as A;

        let How::Gauge(aggregation) = how else { return self.sum.add(text) };
        let (time, value) = match text.split_once(':') {
            Some((time, value)) => (time.parse().unwrap_or(0), value),
            None => (0, text),
        };
        let mut number = Sum::default();
        number.add(value);
        let number = number.number();
        let is_better = |old: &(u64, Number)| match aggregation {
            A::Min | A::LiveMin => number.as_f64() < old.1.as_f64(),
            A::Max | A::LiveMax => number.as_f64() > old.1.as_f64(),
            _ => time >= old.0,
        };
        match aggregation {
            A::Sum | A::LiveSum => self.sum.add(value),
            _ if self.one.as_ref().is_none_or(is_better) => self.one = Some((time, number)),
            _ => {}
        }
    }

    fn number(self) -> Number {
        self.one.map_or_else(|| self.sum.number(), |(_, number)| number)
    }
}

/// Returns the fields and values of a hash.
fn pairs(value: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    let flat = value.map(items).unwrap_or_default();
    flat.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
}

impl Collector for Totals {
    fn names(&self) -> Vec<String> {
        // The names are known only after a read from the server.
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let Ok(totals) = self.read() else { return };
        totals.iter().for_each(|total| total.show(sink));
    }
}

impl Total {
    /// Passes the metric to a sink.
    fn show(&self, sink: &mut dyn Sink) {
        let mut names: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        let is_buckets = self.kind == Kind::Histogram;
        // Instances that run another version of the application can use other labels.
        for (name, _) in self.samples.iter().flat_map(|sample| &sample.labels) {
            let is_bound = is_buckets && name == "le";
            if !is_bound && !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let labels: Vec<Label<'_>> = names.iter().map(|name| Label::new(name)).collect();
        let family = FamilyHeader::new(self.kind, &self.name, &self.help)
            .unit(&self.unit)
            .with_labels(&labels);
        sink.family(&family);
        let mut series: BTreeMap<Vec<&str>, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            let values = names.iter().map(|name| sample.label(name).unwrap_or("")).collect();
            series.entry(values).or_default().push(sample);
        }
        let mut texts = Vec::new();
        for (values, samples) in &series {
            let texts = Texts::encode(values, &mut texts);
            let mut emit = |value: Shown<'_>| sink.series(&family, &Series::new(texts, value));
            let number = |part: &str| {
                samples.iter().find(|sample| sample.part == part).map(|sample| sample.value)
            };
            let sum = number("sum").map_or(0.0, Number::as_f64);
            let count = number("count").map_or(0, unsigned);
            match self.kind {
                Kind::Histogram => {
                    let mut buckets: Vec<Bucket<'_>> =
                        samples.iter().filter_map(|sample| sample.bucket()).collect();
                    buckets.sort_by(|a, b| a.bound.total_cmp(&b.bound));
                    let count = buckets.iter().fold(count, |all, b| all.wrapping_add(b.count));
                    emit(Shown::Histogram(HistogramValue::new(count, sum).buckets(&buckets)));
                }
                Kind::Summary => emit(Shown::Summary(SummaryValue::new(count, sum))),
                Kind::Counter => {
                    let total = samples.first().map_or(Number::Unsigned(0), |sample| sample.value);
                    emit(Shown::counter(total));
                }
                Kind::Gauge => samples.iter().for_each(|sample| emit(Shown::Gauge(sample.value))),
                _ => samples.iter().for_each(|sample| emit(Shown::Unknown(sample.value))),
            }
        }
    }
}

impl Sample {
    /// Returns the value of a label, or `None` if the series lacks it.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    fn bucket(&self) -> Option<Bucket<'static>> {
        let bound = self.label("le").filter(|_| self.part == "bucket")?.parse().ok()?;
        Some(Bucket::new(bound, unsigned(self.value)))
    }
}

fn unsigned(number: Number) -> u64 {
    match number {
        Number::Unsigned(n) => n,
        Number::Signed(n) => n.max(0).unsigned_abs(),
        Number::Float(n) => n as u64,
    }
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totals").field("namespace", &self.options.namespace).finish_non_exhaustive()
    }
}
