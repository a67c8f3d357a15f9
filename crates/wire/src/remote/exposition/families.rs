//! Assembles samples into families, because a line contains only one sample of a histogram or a
//! summary.

use alloc::borrow::Cow;
use core::fmt;

use hashbrown::HashTable;

use super::family::Family;
use super::store::{ExemplarSlot, Full, Mark, MetricSlot, PointSlot, Span, Store, Twice};
use super::text::{Item, LineExemplar, Text, TextFormat, TextLabel, TextSample};
use super::{FamilyType, Limits};
use crate::hash::Secrets;
use crate::remote::lines::float;

/// Assembles samples, which a line contains one at a time, into families. In a family, each metric
/// is complete: a histogram with its buckets, a summary with its quantiles.
///
/// ```
/// use quipu_wire::remote::exposition::text::{TextFormat, Options, TextReader};
/// use quipu_wire::remote::exposition::{Families, FamilyType, Limits, MetricValue};
///
/// let text = b"# TYPE took histogram\n\
///     took_bucket{path=\"/\",le=\"0.5\"} 2\ntook_bucket{path=\"/\",le=\"+Inf\"} 3\n\
///     took_sum{path=\"/\"} 2.5\ntook_count{path=\"/\"} 3\n";
/// let mut reader = TextReader::new(text, Options::new(TextFormat::Prometheus));
/// let mut families = Families::new(TextFormat::Prometheus, Limits::default());
/// while let Some(item) = reader.next() {
///     // A family is complete when another one begins.
///     families.push(&item?, |family| println!("{family:?}"))?;
/// }
/// families.finish(|family| {
///     assert_eq!((family.name(), family.kind()), ("took", FamilyType::Histogram));
///     let metric = family.metrics().next().unwrap();
///     assert!(metric.labels().eq([("path", "/")]));
///     let MetricValue::Histogram(histogram) = metric.value() else { panic!() };
///     let buckets = histogram.buckets().map(|bucket| (bucket.upper_bound, bucket.cumulative_count));
///     assert!(buckets.eq([(0.5, 2.0), (f64::INFINITY, 3.0)]));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Both formats demand that the lines of a family are adjacent. If they arrive in two parts, you
/// get two families, and the second one is untyped. The order within a family does not matter. A
/// sample that belongs to no announced family forms a separate family of unknown type.
#[derive(Debug)]
pub struct Families {
    format: TextFormat,
    store: Store,
    /// The metrics of the current family, found by their labels.
    table: HashTable<u32>,
    secrets: Secrets,
    /// Whether a family has begun, and which of its metadata lines were read.
    is_begun: bool,
    has_type: bool,
    has_help: bool,
    has_unit: bool,
}

/// The reason why a line is not a part of its family. Only this line is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FamilyError {
    /// The metric already has this value, or the family already has this help text, type or unit.
    Duplicate,
    /// Two labels have the same name.
    DuplicateLabel,
    /// A bucket has no label `le` that is a number, or a quantile no label `quantile`.
    MalformedBound,
    /// The help text, the type or the unit follows samples of the family.
    Misplaced,
    /// A family of this type has no samples with this name.
    Unexpected,
    /// A limit is exceeded.
    TooLarge,
}

/// The part of a metric that a sample represents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Value,
    Bucket,
    Count,
    Created,
    Quantile,
    Sum,
}

impl Families {
    /// Creates an assembler for lines of this format. In OpenMetrics, the samples of a counter are
    /// called like the family plus a suffix, `_total` or `_created`. In Prometheus' format they are
    /// called exactly like the family, and a name with a suffix belongs to another family.
    pub fn new(format: TextFormat, limits: Limits) -> Families {
        Families {
            format,
            store: Store::new(limits),
            table: HashTable::new(),
            secrets: Secrets::default(),
            is_begun: false,
            has_type: false,
            has_help: false,
            has_unit: false,
        }
    }

    /// Adds a line. If this line begins another family, calls `each` with the family before.
    ///
    /// If two buckets of a metric share a bound, for example `le="1"` and `le="1.0"`, the first one
    /// wins and the other is dropped when the family is complete. This is not an error. The same
    /// holds for two equal quantiles. A creation time that is not a number is dropped too.
    ///
    /// # Errors
    ///
    /// When the line is not a part of its family. You can continue with the next line.
    pub fn push(
        &mut self,
        item: &Item<'_, '_>,
        each: impl FnMut(Family<'_>),
    ) -> Result<(), FamilyError> {
        match item {
            Item::Help { name, text } => {
                self.announce(*name, each)?;
                first(&mut self.has_help)?;
                self.store.help = self.store.add_text(*text)?;
            }
            Item::Type { name, kind } => {
                self.announce(*name, each)?;
                first(&mut self.has_type)?;
                self.store.kind = *kind;
            }
            Item::Unit { name, unit } => {
                self.announce(*name, each)?;
                first(&mut self.has_unit)?;
                self.store.unit = self.store.add_str(unit)?;
            }
            Item::Sample(sample) => return self.sample(sample, each),
            Item::Comment(_) => {}
            Item::End => self.finish(each),
        }
        Ok(())
    }

    /// Completes the last family and passes it to `each`. More lines may follow.
    pub fn finish(&mut self, mut each: impl FnMut(Family<'_>)) {
        self.store.complete();
        if !self.store.slots.is_empty() {
            each(Family { store: &self.store });
        }
        self.store.clear();
        self.table.clear();
        self.is_begun = false;
        (self.has_type, self.has_help, self.has_unit) = (false, false, false);
    }

    /// Begins a family of this name, unless it is already the current one.
    fn announce(
        &mut self,
        name: Text<'_>,
        each: impl FnMut(Family<'_>),
    ) -> Result<(), FamilyError> {
        if !self.is_begun || name != *self.store.text(self.store.name) {
            return self.begin(name, each);
        }
        match self.store.slots.is_empty() {
            true => Ok(()),
            false => Err(FamilyError::Misplaced),
        }
    }

    fn begin(&mut self, name: Text<'_>, each: impl FnMut(Family<'_>)) -> Result<(), FamilyError> {
        self.finish(each);
        self.store.name = self.store.add_text(name)?;
        self.is_begun = true;
        Ok(())
    }

    fn sample(
        &mut self,
        sample: &TextSample<'_, '_>,
        each: impl FnMut(Family<'_>),
    ) -> Result<(), FamilyError> {
        let name: Cow<'_, str> = sample.name.to_cow();
        let part = match self.part(&name) {
            Some(part) => part?,
            None => {
                self.begin(sample.name, each)?;
                Part::Value
            }
        };
        self.store.take(1)?;
        if part == Part::Created && sample.value.is_nan() {
            return Ok(());
        }
        let mark = self.store.mark();
        let added = self.add(part, sample);
        if added.is_err() {
            // Only a metric from before the mark can refuse a value. So no metric refers to labels
            // or an exemplar after the mark.
            self.store.back_to(mark);
        }
        added
    }

    /// Adds a sample to its metric. On an error, the store may keep the sample's labels and
    /// exemplar; the caller removes them.
    fn add(&mut self, part: Part, sample: &TextSample<'_, '_>) -> Result<(), FamilyError> {
        let (bound, except) = match part {
            Part::Bucket => (bound(sample.labels, "le")?, "le"),
            Part::Quantile => (bound(sample.labels, "quantile")?, "quantile"),
            _ => (0.0, ""),
        };
        let exemplar = match &sample.exemplar {
            Some(exemplar) if matches!(part, Part::Value | Part::Bucket) => {
                Some(self.exemplar(exemplar)?)
            }
            _ => None,
        };
        let mark = self.store.mark();
        let labels = self.labels(sample.labels, except, mark)?;
        let index = self.slot(labels, mark);
        self.put(index, part, bound, sample, exemplar)
    }

    /// Returns the part of the current family that a sample of this name represents, or `None` if
    /// the sample belongs to another family.
    fn part(&self, name: &str) -> Option<Result<Part, FamilyError>> {
        if !self.is_begun {
            return None;
        }
        let suffix = name.strip_prefix(self.store.text(self.store.name))?;
        let is_openmetrics = self.format == TextFormat::OpenMetrics;
        Some(Ok(match (self.store.kind, suffix) {
            (FamilyType::Counter, "_total" | "_created") if !is_openmetrics => return None,
            (FamilyType::GaugeHistogram | FamilyType::Histogram, "") => {
                return Some(Err(FamilyError::Unexpected));
            }
            (FamilyType::Summary, "") => Part::Quantile,
            (_, "") | (FamilyType::Counter, "_total") | (FamilyType::Info, "_info") => Part::Value,
            (FamilyType::Counter | FamilyType::Histogram | FamilyType::Summary, "_created") => {
                Part::Created
            }
            (FamilyType::GaugeHistogram | FamilyType::Histogram, "_bucket") => Part::Bucket,
            (FamilyType::Histogram | FamilyType::Summary, "_count") => Part::Count,
            (FamilyType::Histogram | FamilyType::Summary, "_sum") => Part::Sum,
            (FamilyType::GaugeHistogram, "_gcount") => Part::Count,
            (FamilyType::GaugeHistogram, "_gsum") => Part::Sum,
            _ => return None,
        }))
    }

    /// Adds the labels except `except` and empty ones.
    fn labels(
        &mut self,
        labels: &[TextLabel<'_>],
        except: &str,
        mark: Mark,
    ) -> Result<Span, FamilyError> {
        for label in labels {
            if !label.value.raw().is_empty() && label.name != *except {
                self.store.add_label(label.name, label.value)?;
            }
        }
        Ok(self.store.sort_labels(mark)?)
    }

    /// Returns the metric with these labels, which were added just now. If the metric already
    /// exists, the new copy of its labels is removed.
    fn slot(&mut self, labels: Span, mark: Mark) -> u32 {
        let Families { store, table, secrets, .. } = self;
        let is_same = |store: &Store, index: u32| {
            let other = store.slots[index as usize].labels.slice(&store.pairs);
            let labels = labels.slice(&store.pairs);
            let mut pairs = other.iter().zip(labels);
            other.len() == labels.len()
                && pairs.all(|(a, b)| a.0.len == b.0.len && store.pair(*a) == store.pair(*b))
        };
        // Most samples of a histogram follow another sample of the same metric.
        let last = (store.slots.len() as u32).checked_sub(1);
        if let Some(last) = last.filter(|last| is_same(store, *last)) {
            store.back_to(mark);
            return last;
        }
        let hash = hash(store, secrets, labels);
        if let Some(&index) = table.find(hash, |index| is_same(store, *index)) {
            store.back_to(mark);
            return index;
        }
        let index = store.slots.len() as u32;
        store.slots.push(MetricSlot::new(labels, store.kind.form()));
        let rehash = |index: &u32| self::hash(store, secrets, store.slots[*index as usize].labels);
        table.insert_unique(hash, index, rehash);
        index
    }

    /// Stores the value of a sample.
    fn put(
        &mut self,
        index: u32,
        part: Part,
        bound: f64,
        sample: &TextSample<'_, '_>,
        exemplar: Option<u32>,
    ) -> Result<(), FamilyError> {
        let store = &mut self.store;
        let slot = &mut store.slots[index as usize];
        match part {
            Part::Value => {
                first(&mut slot.has_value)?;
                (slot.value, slot.exemplar) = (sample.value, exemplar);
            }
            Part::Count => set(&mut slot.count, sample.value)?,
            Part::Sum => set(&mut slot.sum, sample.value)?,
            // A time beyond the range of milliseconds is clamped.
            Part::Created => set(&mut slot.created_ms, (sample.value * 1000.0) as i64)?,
            Part::Bucket | Part::Quantile => {
                store.points.push(PointSlot { slot: index, bound, value: sample.value, exemplar });
            }
        }
        slot.timestamp_ms = sample.timestamp_ms.or(slot.timestamp_ms);
        Ok(())
    }

    /// Adds an exemplar and returns its number.
    fn exemplar(&mut self, exemplar: &LineExemplar<'_, '_>) -> Result<u32, FamilyError> {
        let LineExemplar { value, timestamp_ms, .. } = *exemplar;
        let mark = self.store.mark();
        let labels = self.labels(exemplar.labels, "", mark)?;
        self.store.exemplars.push(ExemplarSlot { labels, value, timestamp_ms });
        Ok(self.store.exemplars.len() as u32 - 1)
    }
}

/// Hashes labels. Names and values are hashed separately, because the hash must depend on where a
/// name ends. Otherwise a sender could choose colliding labels, whatever the secrets are.
fn hash(store: &Store, secrets: &Secrets, labels: Span) -> u64 {
    let chain = |all: u64, text: Span| {
        let hash = secrets.hash(store.bytes(text));
        (all ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    let pairs = labels.slice(&store.pairs).iter();
    pairs.fold(0, |all, (name, value)| chain(chain(all, *name), *value))
}

/// Returns the number in the label that identifies a bucket or a quantile.
fn bound(labels: &[TextLabel<'_>], name: &str) -> Result<f64, FamilyError> {
    let label = labels.iter().find(|label| label.name == *name);
    label
        .and_then(|label| float(&label.value.to_cow()))
        .filter(|bound| !bound.is_nan())
        // Turns -0 into +0.
        .map(|bound| bound + 0.0)
        .ok_or(FamilyError::MalformedBound)
}

fn first(is_there: &mut bool) -> Result<(), FamilyError> {
    match core::mem::replace(is_there, true) {
        true => Err(FamilyError::Duplicate),
        false => Ok(()),
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), FamilyError> {
    match place.replace(value) {
        Some(before) => {
            *place = Some(before);
            Err(FamilyError::Duplicate)
        }
        None => Ok(()),
    }
}

impl From<Full> for FamilyError {
    fn from(_: Full) -> FamilyError {
        FamilyError::TooLarge
    }
}

impl From<Twice> for FamilyError {
    fn from(_: Twice) -> FamilyError {
        FamilyError::DuplicateLabel
    }
}

impl FamilyError {
    /// Returns the name of the reason, such as `malformed_bound`. You can use it as a label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            FamilyError::Duplicate => "duplicate",
            FamilyError::DuplicateLabel => "duplicate_label",
            FamilyError::MalformedBound => "malformed_bound",
            FamilyError::Misplaced => "misplaced",
            FamilyError::Unexpected => "unexpected",
            FamilyError::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for FamilyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FamilyError::Duplicate => "a family has each value, type, unit and help text once",
            FamilyError::DuplicateLabel => "two labels have the same name",
            FamilyError::MalformedBound => {
                "a bucket needs a number in its label `le`, a quantile in its label `quantile`"
            }
            FamilyError::Misplaced => {
                "the type, the unit and the help text come before the samples of a family"
            }
            FamilyError::Unexpected => {
                "a histogram has no sample without a suffix: use `_bucket`, `_count` or `_sum`"
            }
            FamilyError::TooLarge => "the family has more samples or text than the limit",
        })
    }
}

impl core::error::Error for FamilyError {}

#[cfg(test)]
mod tests;
