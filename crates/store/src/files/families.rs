//! Turns the rows of tables into families, which an encoder takes.
//!
//! For the values of several processes, the result equals Python's `MultiProcessCollector` and
//! Ruby's `DirectFileStore`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quipu::Aggregation;
use quipu::exposition::{Escaping, ShownNames, counter_stem, escape_name, is_legacy_name};
use quipu::snapshot::Kind;

use super::key::{Labels, PythonKey, parse_query};
use super::name::{Content, Mode};
use super::table::{Fold, Reading, Row, RowTable};

/// The kind and the aggregation of a metric whose files do not contain them, such as the files of
/// Ruby's client.
///
/// ```
/// use quipu_store::files::{Directories, FileStore, Hint};
/// use quipu_store::{Aggregation, Kind, Spec, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// FileStore::open(directory)?.metric(&Spec::new("level", Kind::Gauge))?.set(&[], 2.0);
/// let hint = Hint::new(Kind::Gauge).aggregation(Aggregation::Max);
///
/// let registry = quipu::Registry::new();
/// registry.register_collector(Directories::new([directory]).hint("level", hint))?;
/// assert!(registry.text().contains("# TYPE level gauge"), "{}", registry.text());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "pass the hint to Directories::hint"]
pub struct Hint {
    /// The kind of the metric.
    pub kind: crate::Kind,
    /// How the values of several processes are combined; `None` is the sum. A live aggregation
    /// counts all files, because a file does not show whether its process lives. With
    /// [`Aggregation::All`] and [`Aggregation::LiveAll`], the values stay apart by the label `pid`,
    /// which the series in such files carry.
    pub aggregation: Option<Aggregation>,
}

impl Hint {
    /// Creates a hint without an aggregation.
    pub const fn new(kind: crate::Kind) -> Self {
        Self { kind, aggregation: None }
    }

    /// Sets how the values of several processes are combined.
    pub const fn aggregation(self, aggregation: Aggregation) -> Self {
        Self { aggregation: Some(aggregation), ..self }
    }
}

/// All families by name.
#[derive(Debug, Default)]
pub(super) struct Families {
    pub(super) by_name: BTreeMap<String, Family>,
}

#[derive(Debug)]
pub(super) struct Family {
    pub(super) help: String,
    pub(super) kind: Kind,
    fold: Fold,
    pub(super) series: Vec<FileSeries>,
    /// Labels that some series carry with an empty value, which is the same as omitting them.
    pub(super) empty: BTreeSet<String>,
    index: HashMap<Labels, usize>,
}

#[derive(Debug)]
pub(super) struct FileSeries {
    pub(super) labels: Labels,
    pub(super) value: Value,
    /// The number of a file that contains this series.
    file: u32,
}

#[derive(Debug)]
pub(super) enum Value {
    Number(Reading),
    /// The value of each process.
    Each(BTreeMap<String, f64>),
    Histogram(Histogram),
    Summary {
        count: f64,
        sum: f64,
    },
}

#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// The bound, its original spelling, and the count of this bucket only. In any order; a bound
    /// can occur more than once.
    buckets: Vec<(f64, String, f64)>,
    pub(super) sum: f64,
}

impl Histogram {
    /// Sorts the buckets by ascending bound and merges equal bounds; `+Inf` is last.
    pub(super) fn finish(&mut self) -> &[(f64, String, f64)] {
        if !self.buckets.iter().any(|bucket| bucket.0 == f64::INFINITY) {
            self.buckets.push((f64::INFINITY, "+Inf".into(), 0.0));
        }
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.buckets.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.2 += later.2;
            }
            is_same
        });
        &self.buckets
    }
}

/// The role of a row in its family.
enum RowRole {
    Number,
    Bucket(f64, String),
    Count,
    Sum,
}

/// The number of a file that contains an unusable row.
pub(super) type FileNumber = u32;

impl Families {
    /// Removes families and series whose escaped name equals the escaped name of another, because
    /// no series may appear twice. Calls `bad` for each removed series. `taken` are names that are
    /// already in use.
    ///
    /// A damaged key can contain anything. So a family of a known kind wins over a family without a
    /// kind, and a name that needs no escaping over a name that does, because damage tends to turn
    /// the former into the latter.
    pub(super) fn remove_duplicates<'t>(
        &mut self,
        taken: impl IntoIterator<Item = &'t str>,
        mut bad: impl FnMut(FileNumber),
    ) {
        let mut taken: ShownNames = taken.into_iter().collect();
        let mut order: Vec<_> = self.by_name.iter().map(|(name, f)| (name, f.kind)).collect();
        order.sort_by_key(|(name, kind)| (*kind == Kind::Unknown, !is_legacy_name(name)));
        let mut omitted = Vec::new();
        for (name, kind) in order {
            if !taken.take(name, kind) {
                omitted.push(name.clone());
            }
        }
        for name in omitted {
            let family = self.by_name.remove(&name);
            family.iter().flat_map(|family| &family.series).for_each(|series| bad(series.file));
        }
        for family in self.by_name.values_mut() {
            family.remove_duplicates(&mut bad);
        }
    }

    /// Adds all rows of a table, and calls `bad` for unusable rows. `pid` returns the process that
    /// wrote a file.
    pub(super) fn add_table<'f>(
        &mut self,
        content: Content<'_>,
        table: &RowTable<'_>,
        hints: &HashMap<String, Hint>,
        pid: impl Fn(u32) -> &'f str,
        mut bad: impl FnMut(FileNumber),
    ) {
        let mut values: Vec<(u32, &str, f64)> =
            table.process_values.iter().map(|one| (one.row, pid(one.file), one.value)).collect();
        // The sort is stable: of equal entries, the last one counts.
        values.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let mut values = values.into_iter().peekable();
        for (at, row) in (0_u32..).zip(&table.rows) {
            let mut each = Vec::new();
            while let Some((_, pid, value)) = values.next_if(|one| one.0 == at) {
                each.push((pid, value));
            }
            let taken = match content {
                Content::Ruby(metric) => self.ruby(metric, row, table.fold, hints.get(metric)),
                _ => self.python(content, row, table.fold, &each),
            };
            match taken {
                None => bad(row.file),
                Some(replaced) => replaced.into_iter().for_each(&mut bad),
            }
        }
    }

    fn python(
        &mut self,
        content: Content<'_>,
        row: &Row<'_>,
        fold: Fold,
        each: &[(&str, f64)],
    ) -> Option<Vec<FileNumber>> {
        let reading = row.reading;
        let PythonKey { metric, sample, mut labels, help } = PythonKey::parse(row.key)?;
        let suffix = sample.strip_prefix(&*metric);
        let (kind, part) = match (content, suffix) {
            (Content::Counters, Some("_total")) => (Kind::Counter, RowRole::Number),
            (Content::Counters, Some("")) if metric.ends_with("_total") => {
                (Kind::Counter, RowRole::Number)
            }
            (Content::Gauges(_), Some("")) => (Kind::Gauge, RowRole::Number),
            (Content::Histograms, _) if labels.contains_key("le") => {
                let le = labels.remove("le").unwrap_or_default();
                (Kind::Histogram, RowRole::Bucket(bound(&le)?, le))
            }
            (Content::Histograms, Some("_sum")) => (Kind::Histogram, RowRole::Sum),
            // The sum of all buckets takes its place.
            (Content::Histograms, Some("_count")) => return Some(Vec::new()),
            (Content::Summaries, Some("_sum")) => (Kind::Summary, RowRole::Sum),
            (Content::Summaries, Some("_count")) => (Kind::Summary, RowRole::Count),
            // The sample's name is not derived from the name of its metric.
            _ => (Kind::Unknown, RowRole::Number),
        };
        let name = match kind {
            Kind::Unknown => sample,
            Kind::Counter => counter_stem(&metric).to_owned(),
            _ => metric,
        };
        if let Content::Gauges(_) = content {
            // The label `pid` is reserved for the process, even if the aggregation does not add it.
            labels.remove("pid");
            if fold == Fold::MostRecent && reading.time == 0.0 {
                return Some(Vec::new());
            }
        }
        let (series, replaced) = self.series(name, help, kind, fold, labels, row.file)?;
        series.add(part, fold, reading, each)?;
        Some(replaced)
    }

    fn ruby(
        &mut self,
        metric: &str,
        row: &Row<'_>,
        fold: Fold,
        hint: Option<&Hint>,
    ) -> Option<Vec<FileNumber>> {
        let mut labels = parse_query(row.key)?;
        let hinted = hint.map(|hint| hint.kind);
        let quantile = labels.get("quantile").map(String::as_str);
        let (kind, part) = match (hinted, labels.get("le"), quantile) {
            (None | Some(crate::Kind::Histogram), Some(le), _) => match &**le {
                "sum" => (Kind::Histogram, RowRole::Sum),
                le => (Kind::Histogram, RowRole::Bucket(bound(le)?, le.to_owned())),
            },
            (Some(crate::Kind::Histogram), ..) => return None,
            (None | Some(crate::Kind::Summary), None, Some("count")) => {
                (Kind::Summary, RowRole::Count)
            }
            (None | Some(crate::Kind::Summary), None, Some("sum")) => (Kind::Summary, RowRole::Sum),
            (Some(crate::Kind::Summary), ..) => return None,
            (Some(crate::Kind::Gauge), ..) => (Kind::Gauge, RowRole::Number),
            (None, ..) if labels.contains_key("pid") => (Kind::Gauge, RowRole::Number),
            // All formats add this suffix to counters. A metric without it keeps its name, untyped.
            _ if metric.ends_with("_total") => (Kind::Counter, RowRole::Number),
            _ => (Kind::Unknown, RowRole::Number),
        };
        match kind {
            Kind::Histogram => labels.remove("le"),
            Kind::Summary => labels.remove("quantile"),
            _ => None,
        };
        let name = match kind {
            Kind::Counter => counter_stem(metric),
            _ => metric,
        };
        let name = name.to_owned();
        let (series, replaced) = self.series(name, String::new(), kind, fold, labels, row.file)?;
        series.add(part, fold, row.reading, &[])?;
        Some(replaced)
    }

    /// Returns the series of these labels, and creates it if it does not exist. Also returns the
    /// series that were removed for it, because they belonged to a family of the same name without
    /// a kind.
    ///
    /// Returns `None` if the existing family of this name is of another kind or aggregation, and
    /// for an empty metric name or invalid label names.
    fn series(
        &mut self,
        name: String,
        help: String,
        kind: Kind,
        fold: Fold,
        mut labels: Labels,
        file: u32,
    ) -> Option<(&mut FileSeries, Vec<FileNumber>)> {
        // A summary always uses the label `quantile`, which must be a number.
        let is_reserved = |label: &str| match label {
            "" | "__name__" => true,
            "quantile" => kind == Kind::Summary,
            _ => false,
        };
        if name.is_empty() || labels.keys().any(|label| is_reserved(label)) {
            return None;
        }
        let mut replaced = Vec::new();
        if kind != Kind::Unknown
            && let Entry::Occupied(entry) = self.by_name.entry(name.clone())
            && entry.get().kind == Kind::Unknown
        {
            replaced.extend(entry.remove().series.iter().map(|series| series.file));
        }
        let family = self.by_name.entry(name).or_insert_with(|| {
            let (series, empty, index) = (Vec::new(), BTreeSet::new(), HashMap::new());
            Family { help, kind, fold, series, empty, index }
        });
        if family.kind != kind || (kind == Kind::Gauge && family.fold != fold) {
            return None;
        }
        let Family { series, index, empty, .. } = family;
        labels.retain(|label, value| {
            if value.is_empty() && !empty.contains(label) {
                empty.insert(label.clone());
            }
            !value.is_empty()
        });
        let at = *index.entry(labels).or_insert_with_key(|labels| {
            let value = match kind {
                Kind::Histogram => Value::Histogram(Histogram::default()),
                Kind::Summary => Value::Summary { count: 0.0, sum: 0.0 },
                _ if fold == Fold::Each => Value::Each(BTreeMap::new()),
                _ => Value::Number(Reading { value: f64::NAN, time: -1.0 }),
            };
            series.push(FileSeries { labels: labels.clone(), value, file });
            series.len() - 1
        });
        Some((family.series.get_mut(at)?, replaced))
    }
}

impl Family {
    /// Returns the names of all labels, in order.
    pub(super) fn labels(&self) -> BTreeSet<&str> {
        let mut names: BTreeSet<&str> = self.empty.iter().map(String::as_str).collect();
        for series in &self.series {
            let own = series.labels.keys().map(String::as_str);
            if !own.clone().eq(names.iter().copied()) {
                names.extend(own);
            }
            if let Value::Each(_) = series.value {
                names.insert("pid");
            }
        }
        names
    }

    /// Removes series with a label whose escaped name equals the escaped name of another label.
    fn remove_duplicates(&mut self, bad: &mut impl FnMut(FileNumber)) {
        let names = self.labels();
        if names.iter().all(|name| is_legacy_label(name)) {
            return;
        }
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_by_key(|name| !is_legacy_label(name));
        let mut shown = HashSet::new();
        let is_taken = |name: &&str| !shown.insert(escaped(&name.replace(':', "_")));
        let taken: HashSet<String> =
            names.into_iter().filter(is_taken).map(str::to_owned).collect();
        self.empty.retain(|name| !taken.contains(name));
        self.series.retain(|series| {
            let is_kept = !series.labels.keys().any(|name| taken.contains(name));
            if !is_kept {
                bad(series.file);
            }
            is_kept
        });
    }
}

/// Returns whether all versions of Prometheus accept the label name without escaping.
fn is_legacy_label(name: &str) -> bool {
    is_legacy_name(name) && !name.contains(':')
}

fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    escape_name(name, Escaping::Underscores, &mut escaped);
    escaped
}

impl FileSeries {
    fn add(
        &mut self,
        part: RowRole,
        fold: Fold,
        reading: Reading,
        each: &[(&str, f64)],
    ) -> Option<()> {
        match (&mut self.value, part) {
            (Value::Number(number), RowRole::Number) if number.time < 0.0 => *number = reading,
            (Value::Number(number), RowRole::Number) => fold.add(number, reading),
            (Value::Each(values), RowRole::Number) => {
                values.extend(each.iter().map(|&(pid, value)| (pid.to_owned(), value)));
            }
            (Value::Histogram(histogram), RowRole::Bucket(bound, text)) => {
                histogram.buckets.push((bound, text, reading.value));
            }
            (Value::Histogram(histogram), RowRole::Sum) => histogram.sum += reading.value,
            (Value::Summary { sum, .. }, RowRole::Sum) => *sum += reading.value,
            (Value::Summary { count, .. }, RowRole::Count) => *count += reading.value,
            _ => return None,
        }
        Some(())
    }
}

fn bound(le: &str) -> Option<f64> {
    le.parse().ok().filter(|bound: &f64| !bound.is_nan())
}

/// Returns how the values in files of this content are combined.
pub(super) fn fold(content: Content<'_>, hints: &HashMap<String, Hint>) -> Fold {
    match content {
        Content::Gauges(mode) => gauge_fold(mode),
        Content::Ruby(metric) => {
            let aggregation = hints.get(metric).and_then(|hint| hint.aggregation);
            match aggregation.map(fold_for) {
                // In these files the pid is one of the labels, which keeps processes apart.
                None | Some(Fold::Each) => Fold::Sum,
                Some(fold) => fold,
            }
        }
        _ => Fold::Sum,
    }
}

fn gauge_fold(mode: Mode) -> Fold {
    fold_for(mode.aggregation())
}

pub(super) fn fold_for(aggregation: Aggregation) -> Fold {
    match aggregation {
        Aggregation::All | Aggregation::LiveAll => Fold::Each,
        Aggregation::Min | Aggregation::LiveMin => Fold::Min,
        Aggregation::Max | Aggregation::LiveMax => Fold::Max,
        Aggregation::Sum | Aggregation::LiveSum => Fold::Sum,
        Aggregation::MostRecent | Aggregation::LiveMostRecent => Fold::MostRecent,
        // An aggregation that this version does not know: we do not hide any value.
        _ => Fold::Each,
    }
}
