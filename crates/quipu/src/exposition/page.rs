//! The rules of a page. A scraper refuses a whole page because of one bad family or series. So the
//! encoder checks the rules before it writes, and omits a family or series that breaks a rule.
//!
//! A rule is about the bytes that are written: names after escaping, and with the suffixes of the
//! format. So a family that one format cannot show can still appear in another one.
//!
//! An encoder keeps the result of the checks that concern a single family. On the next page, the
//! other checks take about 200 of the 1,160 instructions of a family with one counter (`make
//! test-counts`, `encode_a_family_of_1000`). Only series of histograms and summaries are checked
//! one by one.
//!
//! This module does not search for two series with the same labels in one family. A segment
//! contains each label set once, and code that merges segments compares the label sets.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use quipu_segment::hash::SeededState;

use super::Format;
use super::escape::{self, Escaping};
use super::text::Suffix;
use crate::error::named;
use crate::snapshot::{
    Exemplar, FamilyHeader, HistogramValue, Kind, Label, Native, Series, SummaryValue, Value,
};

/// A rule for the families and series of a page.
///
/// ```
/// use quipu::exposition::Rule;
///
/// assert_eq!(Rule::UniqueNames.as_str(), "name_taken");
/// assert_eq!("buckets".parse(), Ok(Rule::Buckets));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The name of a family is not empty.
    Name,
    /// No two families of a page share a name or the name of a sample.
    UniqueNames,
    /// The label names of a family differ, are not empty, and are not reserved for its kind (`le`,
    /// `quantile`, `__name__`).
    LabelNames,
    /// The bounds of a histogram ascend up to `+Inf`, and its exponential buckets add up to its
    /// count.
    Buckets,
    /// The quantiles of a summary ascend from 0 to 1.
    Quantiles,
}

impl Rule {
    const ALL: [Self; 5] =
        [Self::Name, Self::UniqueNames, Self::LabelNames, Self::Buckets, Self::Quantiles];

    /// Returns the value of the label `reason` of the metric `quipu_series_omitted`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "empty_name",
            Self::UniqueNames => "name_taken",
            Self::LabelNames => "label_names",
            Self::Buckets => "buckets",
            Self::Quantiles => "quantiles",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

named!(Rule, "rule", Rule::ALL);

/// The omitted series of a page: a scraper would refuse the page because of these series.
///
/// ```
/// use quipu::exposition::{Encoder, Escaping, Format, Rule};
/// use quipu::snapshot::Sink;
///
/// let mut encoder = Encoder::new(Format::Text, Escaping::default());
/// let sink: &mut dyn Sink = &mut encoder;
/// sink.gauge("", "A family without a name.", []).sample([], 1);
/// sink.gauge("level", "Level.", []).sample([], 2);
/// let omissions = encoder.omissions();
/// assert_eq!(omissions.families().collect::<Vec<_>>(), [("", Rule::Name)]);
/// assert_eq!(omissions.counts().next(), Some((Rule::Name, 1)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Omissions {
    /// The number of series, by rule.
    counts: [u64; Rule::ALL.len()],
    /// The families of the first omitted series, each once for each rule.
    families: Vec<(String, Rule)>,
}

/// The maximum number of families that [`Omissions`] names.
const MAX_NAMED: usize = 32;

impl Omissions {
    /// Returns whether no series is omitted.
    pub fn is_empty(&self) -> bool {
        self.counts == [0; Rule::ALL.len()]
    }

    /// Returns the number of omitted series for each rule that was broken.
    pub fn counts(&self) -> impl Iterator<Item = (Rule, u64)> + use<> {
        Rule::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// Returns the names of the first 32 families with omitted series, and the rule that each one
    /// breaks.
    pub fn families(&self) -> impl Iterator<Item = (&str, Rule)> {
        self.families.iter().map(|(name, rule)| (&**name, *rule))
    }

    fn clear(&mut self) {
        self.counts = [0; Rule::ALL.len()];
        self.families.clear();
    }

    #[cold]
    fn add(&mut self, family: &str, rule: Rule) {
        self.counts[rule as usize] += 1;
        let is_last = |(name, broken): &(String, Rule)| name == family && *broken == rule;
        if self.families.len() < MAX_NAMED && !self.families.last().is_some_and(is_last) {
            self.families.push((family.to_owned(), rule));
        }
    }
}

/// Whether a family continues the family that was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Relation {
    /// A different family, with a separate header.
    #[default]
    New,
    /// More series of the same family.
    Same,
    /// A counter without a suffix, whose name plus the suffix is the name of the previous
    /// counter. OpenMetrics 1.0 uses the same name for both, so they share a header, and a label
    /// distinguishes their series.
    Second,
}

/// How a family starts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    pub(super) relation: Relation,
    /// Whether the header was written that it shares with the last family.
    pub(super) is_begun: bool,
}

/// The result of the checks that concern a single family and its [`Relation`] to the family before.
#[derive(Debug)]
pub(super) struct FamilyCheck {
    /// Whether the name is written unchanged, without escapes and quotes.
    pub(super) is_plain: bool,
    /// Whether this family's unit is shown.
    pub(super) has_unit: bool,
    /// The label names, or the rule that these or the name break.
    labels: Result<LabelSet, Rule>,
    /// Whether it contains the label `quipu_name`.
    is_named: bool,
    /// Hashes of the names in the page, see [`hash_of`], and their number.
    names: [u64; 4],
    count: usize,
}

impl Default for FamilyCheck {
    fn default() -> Self {
        let labels = Err(Rule::Name);
        let (is_plain, has_unit, is_named) = (false, false, false);
        Self { is_plain, has_unit, labels, is_named, names: [0; 4], count: 0 }
    }
}

/// The families of a page so far, and the series that it omits.
#[derive(Debug, Default)]
pub(super) struct Page {
    rules: Rules,
    /// Hashes of the names that were written, see [`hash_of`]. Each encoder uses another seed, so
    /// no sender can choose a name whose hash is taken.
    names: HashSet<u64, SeededState>,
    /// The name in the header that was written last, its kind, and whether the name is bare.
    last: String,
    last_kind: Option<(Kind, bool)>,
    /// Whether that header was written: the first series of the family may break a rule.
    is_begun: bool,
    /// The label names of the first family with that name.
    first_labels: LabelSet,
    /// The label names of families that follow another one of their name.
    label_sets: HashMap<LabelSetKey, u64, SeededState>,
    /// Whether a family with this name uses the label `quipu_name`, and whether a
    /// [second](Relation::Second) counter gets it: only one of them can be shown.
    has_name_label: bool,
    has_second: bool,
    /// How the current family starts.
    start: Start,
    /// The result for the current family, once a series of it was checked.
    verdict: Option<Result<(), Rule>>,
    omissions: Omissions,
    buffer: Vec<u8>,
    state_label: Vec<u8>,
    label_hashes: Vec<u64>,
}

/// The part of the rules that differs between pages.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    format: Format,
    escaping: Escaping,
}

/// Hashes of all label names of a family, and of the values of labels with a single value, whatever
/// their order.
#[derive(Debug, Clone, Copy, Default)]
struct LabelSet {
    raw: u64,
    escaped: u64,
}

/// The name of a family, and its label names after escaping.
type LabelSetKey = (u64, u64);

impl Page {
    pub(super) fn reset(&mut self, format: Format, escaping: Escaping) {
        self.rules = Rules { format, escaping };
        self.names.clear();
        self.last.clear();
        self.last_kind = None;
        self.label_sets.clear();
        self.verdict = None;
        self.omissions.clear();
    }

    /// Starts a family. Its names are only taken when its first series is written.
    pub(super) fn family(&mut self, family: &FamilyHeader<'_>) -> Start {
        self.verdict = None;
        let relation = match self.last_kind {
            Some((kind, bare)) if kind == family.kind && self.last == family.name => {
                if bare == family.bare {
                    Relation::Same
                } else if family.bare && self.rules.format == Format::OpenMetrics {
                    Relation::Second
                } else {
                    Relation::New
                }
            }
            _ => Relation::New,
        };
        let is_begun = relation != Relation::New && self.is_begun;
        self.start = Start { relation, is_begun };
        self.start
    }

    /// Checks the current family.
    pub(super) fn check(&mut self, family: &FamilyHeader<'_>) -> FamilyCheck {
        let is_plain = escape::is_unchanged(family.name, self.rules.escaping);
        let labels = match (family.name, family.labels) {
            ("", _) => Err(Rule::Name),
            (_, []) => Ok(LabelSet::default()),
            _ => self.label_set(family),
        };
        let (names, count) = self.hashes(family, is_plain);
        FamilyCheck {
            is_plain,
            has_unit: !family.unit.is_empty() && self.has_unit(family),
            labels,
            is_named: family.labels.iter().any(|label| label.name == NAME_LABEL),
            names,
            count,
        }
    }

    /// Returns whether the header of the current family can be written.
    #[inline]
    pub(super) fn admits_family(
        &mut self,
        family: &FamilyHeader<'_>,
        checked: &FamilyCheck,
    ) -> bool {
        let is_admitted = self.admit(family, checked).is_ok();
        self.is_begun |= is_admitted;
        is_admitted
    }

    /// Returns whether a series of the current family can be written. Counts a series that cannot.
    #[inline]
    pub(super) fn admits(
        &mut self,
        family: &FamilyHeader<'_>,
        checked: &FamilyCheck,
        series: &Series<'_>,
    ) -> bool {
        let verdict = self.admit(family, checked).and_then(|()| match &series.value {
            Value::Histogram(histogram) => self.rules.check_histogram(histogram),
            Value::Summary(SummaryValue { quantiles, .. }) => check_quantiles(quantiles),
            _ => Ok(()),
        });
        match verdict {
            Ok(()) => self.is_begun = true,
            Err(rule) => self.omissions.add(family.name, rule),
        }
        verdict.is_ok()
    }

    /// Returns whether the current family does not continue the last one.
    pub(super) fn is_new_family(&self) -> bool {
        self.start.relation == Relation::New
    }

    pub(super) fn omissions(&self) -> &Omissions {
        &self.omissions
    }

    #[inline]
    fn admit(&mut self, family: &FamilyHeader<'_>, checked: &FamilyCheck) -> Result<(), Rule> {
        if let Some(verdict) = self.verdict {
            return verdict;
        }
        let verdict = self.enter(family, checked);
        self.verdict = Some(verdict);
        verdict
    }

    /// Takes the names of a family for this page.
    #[inline(never)]
    fn enter(&mut self, family: &FamilyHeader<'_>, checked: &FamilyCheck) -> Result<(), Rule> {
        let (labels, is_named) = (checked.labels?, checked.is_named);
        match self.start.relation {
            Relation::Same if is_named && self.has_second => return Err(Rule::LabelNames),
            Relation::Second if self.has_name_label => return Err(Rule::LabelNames),
            Relation::New => {}
            relation => {
                self.has_name_label |= is_named;
                self.has_second |= relation == Relation::Second;
                return self.take_labels(labels);
            }
        }
        self.take_names(&checked.names[..checked.count])?;
        self.last.clear();
        self.last.push_str(family.name);
        self.last_kind = Some((family.kind, family.bare));
        self.first_labels = labels;
        self.is_begun = false;
        (self.has_name_label, self.has_second) = (is_named, false);
        Ok(())
    }

    /// Reserves the names with these hashes. Fails if one of them is already reserved.
    fn take_names(&mut self, hashes: &[u64]) -> Result<(), Rule> {
        let is_taken = match hashes {
            [hash] => !self.names.insert(*hash),
            _ if hashes.iter().any(|hash| self.names.contains(hash)) => true,
            _ => {
                self.names.extend(hashes);
                false
            }
        };
        if is_taken { Err(Rule::UniqueNames) } else { Ok(()) }
    }

    /// Returns the hashes of the names of a family and of its samples, and their number.
    fn hashes(&mut self, family: &FamilyHeader<'_>, is_plain: bool) -> ([u64; 4], usize) {
        let suffixes = self.rules.suffixes(family);
        let mut hashes = [0; 4];
        if is_plain {
            let stem = match suffixes {
                [Suffix::None] => 0,
                _ => self.names.hasher().hash_one(family.name.as_bytes()),
            };
            for (hash, suffix) in hashes.iter_mut().zip(suffixes) {
                *hash = match suffix {
                    Suffix::None => hash_of(family.name.as_bytes(), self.names.hasher()),
                    suffix => stem.wrapping_add(suffix.salt()),
                };
            }
        } else {
            let escaping = self.rules.escaping;
            for (hash, suffix) in hashes.iter_mut().zip(suffixes) {
                self.buffer.clear();
                escape::put_metric_name(family.name, suffix.text(), escaping, &mut self.buffer);
                *hash = hash_of(&self.buffer, self.names.hasher());
            }
        }
        (hashes, suffixes.len())
    }

    /// Takes the label names of a family that follows another one of its name. Both can use the
    /// same names, but not different names that become the same by escaping.
    fn take_labels(&mut self, labels: LabelSet) -> Result<(), Rule> {
        let name = self.names.hasher().hash_one(&*self.last);
        let first = self.first_labels;
        self.label_sets.entry((name, first.escaped)).or_insert(first.raw);
        let raw = *self.label_sets.entry((name, labels.escaped)).or_insert(labels.raw);
        if raw == labels.raw { Ok(()) } else { Err(Rule::LabelNames) }
    }

    /// Checks the label names of a family.
    fn label_set(&mut self, family: &FamilyHeader<'_>) -> Result<LabelSet, Rule> {
        let mut set = LabelSet::default();
        self.state_label.clear();
        if family.kind == Kind::StateSet {
            escape::put_label_name(family.name, self.rules.escaping, &mut self.state_label);
        }
        self.label_hashes.clear();
        for label in family.labels {
            let name = label.name.as_bytes();
            self.buffer.clear();
            escape::put_label_name(label.name, self.rules.escaping, &mut self.buffer);
            if self.is_reserved(family.kind) {
                return Err(Rule::LabelNames);
            }
            let escaped = self.names.hasher().hash_one(&*self.buffer);
            let raw =
                if self.buffer == name { escaped } else { self.names.hasher().hash_one(name) };
            self.label_hashes.push(escaped);
            set.escaped = set.escaped.wrapping_add(self.with_value(escaped, label));
            set.raw = set.raw.wrapping_add(self.with_value(raw, label));
        }
        self.label_hashes.sort_unstable();
        if self.label_hashes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Rule::LabelNames);
        }
        Ok(set)
    }

    /// Returns whether the label name in the buffer is reserved in a family of this kind.
    fn is_reserved(&self, kind: Kind) -> bool {
        match &*self.buffer {
            b"" | b"__name__" => true,
            b"le" => kind == Kind::Histogram,
            b"quantile" => kind == Kind::Summary,
            name if name == NAME_LABEL.as_bytes() => self.start.relation == Relation::Second,
            name => kind == Kind::StateSet && name == &*self.state_label,
        }
    }

    /// Returns the hash of a label: of its name, and of its value if there is only one.
    fn with_value(&self, name: u64, label: &Label<'_>) -> u64 {
        match label.values {
            Some([value]) => self.names.hasher().hash_one((name, value)),
            _ => name,
        }
    }

    /// Returns whether the unit can be shown, because the written name ends in it (OpenMetrics 1.0,
    /// section "Unit"). A scraper refuses the page because of any other unit, so such a family is
    /// shown without its unit. The parser of Prometheus compares names before it unescapes them, so
    /// no unit can contain an escaped character.
    fn has_unit(&mut self, family: &FamilyHeader<'_>) -> bool {
        self.buffer.clear();
        escape::put_metric_name(family.name, "", self.rules.escaping, &mut self.buffer);
        let stem = self.buffer.strip_suffix(family.unit.as_bytes());
        let ends_in_unit = stem.is_some_and(|stem| stem.len() > 1 && stem.ends_with(b"_"));
        let is_escaped = |character: char| character.is_control() || "\"\\".contains(character);
        ends_in_unit && !family.unit.contains(is_escaped)
    }
}

/// Returns the hash of a written name: the hash of the part before a suffix, plus a number for the
/// suffix. With this, all names of a histogram take one hash.
fn hash_of(name: &[u8], hasher: &SeededState) -> u64 {
    let suffix = match name.last() {
        Some(b'l') => Suffix::Total,
        Some(b't') if name.ends_with(b"_bucket") => Suffix::Bucket,
        Some(b't') => Suffix::Count,
        Some(b'm') => Suffix::Sum,
        Some(b'o') => Suffix::Info,
        _ => return hasher.hash_one(name),
    };
    match name.strip_suffix(suffix.text().as_bytes()) {
        Some(stem) => hasher.hash_one(stem).wrapping_add(suffix.salt()),
        None => hasher.hash_one(name),
    }
}

impl Suffix {
    /// Returns the difference between the hash of a name with this suffix and the hash of its stem.
    fn salt(self) -> u64 {
        (self as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Rules {
    /// Returns the suffixes of the names that are written for a family.
    fn suffixes(self, family: &FamilyHeader<'_>) -> &'static [Suffix] {
        use Suffix::{Bucket, Count, Info, None, Sum, Total};
        // In OpenMetrics 1.0, the names of counters and infos in headers lack the suffix.
        let has_stem = self.format == Format::OpenMetrics;
        match family.kind {
            Kind::Counter if family.bare => &[None],
            Kind::Counter if has_stem => &[None, Total],
            Kind::Counter => &[Total],
            Kind::Info if has_stem => &[None, Info],
            Kind::Info => &[Info],
            Kind::Histogram => &[None, Bucket, Sum, Count],
            Kind::Summary => &[None, Sum, Count],
            Kind::Gauge | Kind::StateSet | Kind::Unknown => &[None],
        }
    }

    fn check_histogram(self, histogram: &HistogramValue<'_>) -> Result<(), Rule> {
        let mut bounds = histogram.buckets.iter().map(|bucket| bucket.bound);
        if let Some(first) = bounds.next() {
            let mut last = first;
            let ascend = bounds.all(|bound| bound > std::mem::replace(&mut last, bound));
            // A bound that is not a number is not greater than another, and is not infinite.
            if !ascend || last != f64::INFINITY {
                return Err(Rule::Buckets);
            }
        }
        // OpenMetrics 2.0 writes counts that readers parse as floats, protobuf signed differences.
        let limit = match self.format {
            Format::OpenMetrics2 => 1 << 53,
            Format::Protobuf => i64::MAX as u128,
            _ => return Ok(()),
        };
        match &histogram.native {
            Some(native) if !is_consistent(histogram, native, limit) => Err(Rule::Buckets),
            _ => Ok(()),
        }
    }
}

/// Returns whether a scraper would store the exponential buckets: they are sorted, and add up to
/// the count, which is at most `limit`.
fn is_consistent(histogram: &HistogramValue<'_>, native: &Native<'_>, limit: u128) -> bool {
    let is_sorted = |buckets: &[(i32, u64)]| buckets.is_sorted_by(|one, two| one.0 < two.0);
    let sides = native.negative.iter().chain(native.positive);
    let total = sides.fold(u128::from(native.zero_count), |sum, (_, n)| sum + u128::from(*n));
    let count = u128::from(histogram.count);
    // Observations that are not numbers are in no bucket.
    let adds_up = if histogram.sum.is_nan() { total <= count } else { total == count };
    adds_up
        && count <= limit
        && (-4..=8).contains(&native.schema)
        && (0.0..f64::INFINITY).contains(&native.zero_threshold)
        && is_sorted(native.negative)
        && is_sorted(native.positive)
}

fn check_quantiles(quantiles: &[(f64, f64)]) -> Result<(), Rule> {
    let are_within = quantiles.iter().all(|(quantile, _)| (0.0..=1.0).contains(quantile));
    let ascend = quantiles.is_sorted_by(|one, two| one.0 < two.0);
    if are_within && ascend { Ok(()) } else { Err(Rule::Quantiles) }
}

/// The label that distinguishes a [second](Relation::Second) counter from the first one.
const NAME_LABEL: &str = "quipu_name";

/// Returns whether an exemplar can be written: its label names are not empty, and differ once they
/// are escaped.
pub(super) fn is_exemplar(exemplar: &Exemplar<'_>, escaping: Escaping) -> bool {
    let names = || exemplar.labels.step_by(2);
    names().enumerate().all(|(at, name)| {
        let is_same = |other| escape::is_same_label(name, other, escaping);
        !name.is_empty() && !names().take(at).any(is_same)
    })
}
