//! The families of a segment as a scrape reads them, whichever process created them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::{ControlFlow, Deref, Range};
use std::sync::Arc;

use quipu_segment::series::{self, Cursor, Identity, Schema, View};
use quipu_segment::{ForkSafeCell, Segment};

use super::walk::Walk;
use crate::error::Error;
use crate::exposition::counter_stem;
use crate::intake::class::{self, Class, Role};
use crate::kind::{Aggregation, AnyKind, MetricKind, Scratch};
use crate::snapshot::{
    Exemplar, FamilyHeader, FamilyKey, Kind, Label, Series, Sink, Texts, Timestamp, Value,
};

/// The readers of a segment's families, cached until the segment gets a new family.
#[derive(Default)]
pub(crate) struct Readers {
    known: ForkSafeCell<ReadFamilies>,
}

#[derive(Default)]
struct ReadFamilies {
    newest: u64,
    readers: Arc<ReaderList>,
}

/// Readers of families, in the order they were read from the segment. The variants of a name follow
/// its first variant.
#[derive(Default)]
pub(crate) struct ReaderList {
    readers: Vec<Arc<Reader>>,
    /// Variants that are not shown because they contradict another family of their name, sorted by
    /// name.
    contradicting: Vec<Arc<Reader>>,
    /// The index of the first reader of each name, sorted by name.
    by_name: Vec<usize>,
    /// The help strings of names whose families were created without help.
    helps: HashMap<String, String>,
    /// The families that cannot be read: their settings are damaged, or their kind is unknown.
    unreadable: HashSet<u64>,
}

impl ReaderList {
    /// Returns the indices of the families of this name; empty if there are none.
    pub(crate) fn named(&self, name: &str) -> Range<usize> {
        let found = self.by_name.binary_search_by(|&at| self.readers[at].name().cmp(name));
        let start = found.map_or(self.readers.len(), |at| self.by_name[at]);
        let count = self.readers[start..].iter().take_while(|reader| reader.name() == name).count();
        start..start + count
    }

    /// Returns all readers, including those that are not shown.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Reader>> {
        self.readers.iter().chain(&self.contradicting)
    }

    /// Returns whether any variant is not shown.
    pub(crate) fn has_contradictions(&self) -> bool {
        !self.contradicting.is_empty()
    }

    /// Returns the number of families that cannot be read.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// Returns the variants of this name that are not shown.
    pub(crate) fn contradicting(&self, name: &str) -> &[Arc<Reader>] {
        let start = self.contradicting.partition_point(|reader| reader.name() < name);
        let rest = &self.contradicting[start..];
        &rest[..rest.partition_point(|reader| reader.name() == name)]
    }

    /// Creates a list of readers in this order, which cannot be found by name.
    pub(crate) fn from_readers(readers: impl IntoIterator<Item = Arc<Reader>>) -> Self {
        Self { readers: readers.into_iter().collect(), ..Self::default() }
    }

    fn with(&self, families: Vec<series::Family>) -> Self {
        // Known families are skipped: a damaged list of records may contain one twice.
        let known: HashSet<u64> = self.all().map(|reader| reader.family.id()).collect();
        let (helps, unreadable) = (self.helps.clone(), self.unreadable.clone());
        let mut list = Self { helps, unreadable, ..Self::default() };
        let is_new = |family: &series::Family| {
            family.schema().identity != Identity::Apart && !known.contains(&family.id())
        };
        let mut is_shown = |family: &series::Family| {
            let schema = family.schema();
            let role = Class::from_schema(schema).role;
            if role == Role::Help {
                list.helps.insert(schema.name.clone(), schema.help.clone());
            }
            role == Role::Shown
        };
        let mut all: Vec<Arc<Reader>> = self.all().cloned().collect();
        let mut unreadable = Vec::new();
        for family in families.into_iter().filter(|family| is_new(family) && is_shown(family)) {
            let id = family.id();
            // Other processes, or later versions, can write anything here.
            match Reader::new(family) {
                Ok(reader) => all.push(Arc::new(reader)),
                Err(_) => unreadable.push(id),
            }
        }
        list.unreadable.extend(unreadable);
        let mut by_name: Vec<usize> = (0..all.len()).collect();
        by_name.sort_by(|&one, &other| all[one].name().cmp(all[other].name()));
        let is_same = |one: &usize, other: &usize| all[*one].name() == all[*other].name();
        let mut names: Vec<&[usize]> = by_name.chunk_by(is_same).collect();
        names.sort_by_key(|variants| variants[0]);
        for variants in names {
            list.push(variants.iter().map(|&at| &all[at]).collect());
        }
        let Self { readers, contradicting, by_name, .. } = &mut list;
        by_name.sort_by(|&one, &other| readers[one].name().cmp(readers[other].name()));
        contradicting.sort_by(|one, other| one.name().cmp(other.name()));
        list
    }

    /// Adds the variants of one name, the oldest first.
    fn push(&mut self, mut variants: Vec<&Arc<Reader>>) {
        // A family that a program registered by name is shown, even if an outside sender created a
        // contradicting one first. Variants without a shown series do not hide others, and values
        // of unknown type do not hide typed ones. Each key is computed once, because senders change
        // it concurrently.
        variants.sort_by_cached_key(|reader| {
            let is_variant = reader.family.schema().identity != Identity::Name;
            let is_unknown = reader.kind.snapshot_kind() == Kind::Unknown;
            (is_variant, is_variant && !reader.has_shown(), is_variant && is_unknown)
        });
        let start = self.readers.len();
        let kind = variants.first().map(|first| first.kind.snapshot_kind());
        // The result of `shares_labels` for the first shown family with these labels. A counter
        // with the suffix `_total` and a counter without it can both have such a family.
        let mut label_sets: HashMap<(bool, Vec<&str>), Option<bool>> = HashMap::new();
        for &reader in &variants {
            let mut labels: Vec<&str> =
                reader.labels.all().iter().map(|label| label.name).collect();
            labels.sort_unstable();
            let shares = reader.shares_labels();
            let is_shown = kind == Some(reader.kind.snapshot_kind())
                && match label_sets.entry((reader.is_bare(), labels)) {
                    Entry::Occupied(first) => shares.is_some() && *first.get() == shares,
                    Entry::Vacant(none) => {
                        none.insert(shares);
                        true
                    }
                };
            let list = match is_shown {
                true => &mut self.readers,
                false => &mut self.contradicting,
            };
            list.push(Arc::clone(reader));
        }
        // Formats show the counters of each kind of name together.
        self.readers[start..].sort_by_key(|reader| reader.is_bare());
        self.by_name.push(start);
        // The help with the suffix, and the help without it.
        let mut helps = [None; 2];
        for reader in variants.iter().filter(|reader| !reader.family.schema().help.is_empty()) {
            helps[usize::from(reader.is_bare())].get_or_insert(&reader.family.schema().help);
        }
        let Self { readers, helps: late, .. } = self;
        for reader in &mut readers[start..] {
            let help = helps[usize::from(reader.is_bare())];
            if let Some(help) = help.or_else(|| late.get(&reader.family.schema().name)) {
                reader.take_help(help);
            }
        }
    }
}

impl Deref for ReaderList {
    type Target = [Arc<Reader>];

    fn deref(&self) -> &Self::Target {
        &self.readers
    }
}

impl Readers {
    /// Returns the readers of all families.
    pub(crate) fn list(&self, segment: &Segment) -> Result<Arc<ReaderList>, Error> {
        let (last, readers) = self.known.read(|known| (known.newest, Arc::clone(&known.readers)));
        // If variants contradict each other, the shown ones depend on which of them contain series.
        if segment.newest() == last && !readers.has_contradictions() {
            return Ok(readers);
        }
        // Other threads may do the same at the same time: the longer list is kept.
        let (families, newest) = segment.families_since(last).map_err(Error::from_segment)?;
        let readers = Arc::new(readers.with(families));
        self.known.replace(|known| {
            let next = ReadFamilies { newest, readers: Arc::clone(&readers) };
            // The offsets of records do not show which list is newer, because a family is reserved
            // before its slab and published after it.
            let is_longer = readers.all().count() >= known.readers.all().count();
            (is_longer.then_some(next), ())
        });
        Ok(readers)
    }
}

/// One family, for a scrape that reads it without its registry. Clones share this family.
#[derive(Clone)]
pub struct Source {
    reader: Arc<Reader>,
}

impl Source {
    pub(crate) fn new(family: &series::Family) -> Result<Self, Error> {
        Ok(Self { reader: Arc::new(Reader::new(family.clone())?) })
    }

    pub(crate) fn into_reader(self) -> Arc<Reader> {
        self.reader
    }

    /// Passes families to a sink, one after the other.
    pub fn visit(sources: impl IntoIterator<Item = Self>, sink: &mut impl Sink) {
        Walk::over(sources.into_iter().map(Self::into_reader)).step(sink, |_| false);
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.reader.name()).finish_non_exhaustive()
    }
}

/// Reads the series of one family.
pub(crate) struct Reader {
    key: FamilyKey,
    /// The length of the shown name, which is the start of the family's name.
    name: usize,
    /// Whether the name is shown unchanged, although it lacks the suffix of its kind.
    bare: bool,
    labels: Labels,
    family: series::Family,
    kind: AnyKind,
    /// The bytes that distinguish the overflow series of a variant from the overflow series of
    /// others: its label names. Empty for other families.
    overflow: Vec<u8>,
    /// The help of another variant, or a later help, if the family itself has none.
    late_help: String,
}

impl Reader {
    pub(crate) fn new(family: series::Family) -> Result<Self, Error> {
        let kind = AnyKind::decode(&family)?;
        if let Some(allocations) = kind.side_allocations() {
            family.set_side_allocations(allocations);
        }
        let class = Class::from_schema(family.schema());
        let hidden = if class.alone { Some(class::ALONE) } else { kind.hidden_label() };
        let labels = Labels::new(&family, hidden);
        let mut overflow = Vec::new();
        if family.schema().identity == Identity::Variant && !labels.all().is_empty() {
            Texts::push(&mut overflow, &list_of(labels.all()));
        }
        let (name, bare) = shown_name(family.schema());
        let name = name.len();
        let (key, late_help) = (FamilyKey::new(), String::new());
        Ok(Self { key, name, bare, labels, family, kind, overflow, late_help })
    }

    /// Takes over the help of another variant, or a later help. Scrapes in progress keep the old
    /// reader.
    fn take_help(self: &mut Arc<Self>, help: &str) {
        let is_variant = self.family.schema().identity == Identity::Variant;
        if is_variant
            && self.help().is_empty()
            && let Ok(reader) = Self::new(self.family.clone())
        {
            *self = Arc::new(Self { late_help: help.to_owned(), ..reader });
        }
    }

    /// Returns the help; empty if there is none.
    fn help(&self) -> &str {
        match &*self.family.schema().help {
            "" => &self.late_help,
            help => help,
        }
    }

    /// Returns how the series of several processes are combined, if each process owns one.
    /// [`Reader::walk`] does not visit such a family.
    pub(crate) fn aggregation(&self) -> Option<Aggregation> {
        self.kind.aggregation()
    }

    /// Returns the label strings of an overflow series, if there is one.
    pub(crate) fn overflow_texts(&self) -> Texts<'_> {
        Texts::new(&self.overflow)
    }

    /// Hides expired series, if the family's lock is free.
    pub(crate) fn sweep(&self) {
        if self.family.schema().idle.is_some() {
            // On an error, they are shown once more.
            let _ = self.family.sweep();
        }
    }

    /// Resets all series, including their memory outside the cells.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.family.reset().map_err(|error| Error::segment(self.name(), error))
    }

    /// Returns the name of the family, without a suffix that the formats add.
    pub(crate) fn name(&self) -> &str {
        &self.family.schema().name[..self.name]
    }

    /// Returns whether the family contains a shown series.
    pub(crate) fn has_shown(&self) -> bool {
        self.family.len() > self.family.hidden()
    }

    /// Returns whether another family with the same label names contains other series, because each
    /// series is in a single family. This is true of groups, and of values that replace others with
    /// different buckets or quantiles. Returns whether the family belongs to a group.
    fn shares_labels(&self) -> Option<bool> {
        let is_relayed = matches!(self.kind, AnyKind::RelayHistogram(_) | AnyKind::RelaySummary(_));
        let is_grouped = Class::from_schema(self.family.schema()).grouped;
        (is_relayed || is_grouped).then_some(is_grouped)
    }

    /// Returns whether the name is shown unchanged, although it lacks the suffix of its kind.
    pub(crate) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Returns the family in the segment.
    pub(crate) fn in_segment(&self) -> &series::Family {
        &self.family
    }

    /// Returns the key of [`Reader::family`]: a family with another help has another reader.
    pub(crate) fn key(&self) -> FamilyKey {
        self.key
    }

    /// Returns the family as a snapshot shows it.
    pub(crate) fn family(&self) -> FamilyHeader<'_> {
        let schema = self.family.schema();
        FamilyHeader {
            name: self.name(),
            help: self.help(),
            unit: &schema.unit,
            kind: self.kind.snapshot_kind(),
            labels: self.labels.all(),
            groups: self.family.groups(),
            bare: self.is_bare(),
        }
    }

    /// Passes the series of `family`, which is [`Reader::family`], from the cursor on to the sink,
    /// until `is_full` returns true or there are no more.
    pub(crate) fn walk<S: Sink>(
        &self,
        cursor: &mut Cursor,
        texts: &mut Vec<u8>,
        scratch: &mut Scratch,
        (family, sink): (&FamilyHeader<'_>, &mut S),
        is_full: impl Fn(&S) -> bool,
    ) -> ControlFlow<()> {
        macro_rules! walk {
            ($kind:ident) => {
                self.family.walk(cursor, texts, |view| {
                    $kind.read_all(&self.family, &view.cells, scratch, |value, exemplar| {
                        self.pass(family, view, value, exemplar, sink);
                    });
                    if is_full(sink) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
            };
        }
        match &self.kind {
            _ if self.family.is_copy() => {
                self.walk_copy(cursor, texts, scratch, (family, sink), is_full)
            }
            // Most series are counters. In a separate loop, a series can stay in registers.
            AnyKind::Counter(counter) => walk!(counter),
            kind => walk!(kind),
        }
    }

    /// Like [`Reader::walk`], in a copy of a file. This is a separate loop, because its checks cost
    /// the loop of other families a tenth. The strings in such a file are untrusted.
    #[inline(never)]
    fn walk_copy<S: Sink>(
        &self,
        cursor: &mut Cursor,
        texts: &mut Vec<u8>,
        scratch: &mut Scratch,
        (family, sink): (&FamilyHeader<'_>, &mut S),
        is_full: impl Fn(&S) -> bool,
    ) -> ControlFlow<()> {
        self.family.walk(cursor, texts, |view| {
            let readings = self.family.readings();
            let (texts, escape_free) = Texts::new(view.texts).checked();
            let view = &View { texts: &texts, escape_free, ..*view };
            self.kind.read_all(&self.family, &view.cells, scratch, |value, exemplar| {
                if is_whole(&self.family, view, readings) {
                    self.pass(family, view, value, exemplar, sink);
                }
            });
            if is_full(sink) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    #[inline(always)]
    fn pass<S: Sink>(
        &self,
        family: &FamilyHeader<'_>,
        view: &View<'_>,
        value: Value<'_>,
        exemplar: Option<Exemplar<'_>>,
        sink: &mut S,
    ) {
        if view.overflow {
            let series = series(view, self.overflow_texts(), value, exemplar);
            pass_overflow(sink, family, &series);
        } else {
            sink.series(family, &series(view, Texts::new(view.texts), value, exemplar));
        }
    }
}

/// Returns the name of a family without a suffix that the formats add, and whether the name of a
/// counter is shown unchanged.
pub(super) fn shown_name(schema: &Schema) -> (&str, bool) {
    let is_bare = Class::from_schema(schema).bare;
    let name = if is_bare { counter_stem(&schema.name) } else { &schema.name };
    (name, is_bare && name.len() == schema.name.len())
}

/// Returns whether the values read from a series of a copied file belong to this series: after the
/// walk found it, another series may have taken over its record. Counts the series that fail this
/// check.
fn is_whole(family: &series::Family, view: &View<'_>, readings: u64) -> bool {
    let is_whole = family.readings() == readings || family.is_there(view.id);
    if !is_whole {
        family.count_omitted();
    }
    is_whole
}

/// Passes on an overflow series. This is a separate function, so the parts of other series stay in
/// registers.
#[cold]
#[inline(never)]
fn pass_overflow<S: Sink>(sink: &mut S, family: &FamilyHeader<'_>, series: &Series<'_>) {
    sink.series(family, series);
}

#[inline(always)]
fn series<'v>(
    view: &View<'v>,
    texts: Texts<'v>,
    value: Value<'v>,
    exemplar: Option<Exemplar<'v>>,
) -> Series<'v> {
    Series {
        group: view.group,
        texts,
        escape_free: view.escape_free,
        overflow: view.overflow,
        start: Some(Timestamp::from_nanos(view.start)),
        value,
        exemplar,
    }
}

/// Joins the names of labels with commas. Names that contain a comma or a quote are quoted, so
/// different names never give the same list.
fn list_of(labels: &[Label<'_>]) -> String {
    let names = labels.iter().map(|label| match label.name.contains([',', '"']) {
        true => format!("{:?}", label.name),
        false => label.name.to_owned(),
    });
    names.collect::<Vec<_>>().join(",")
}

/// The labels of a family, as a snapshot shows them. They are built once, because a scrape must not
/// allocate.
struct Labels {
    /// Points into `values`, and to the strings of the family's schema.
    labels: Box<[Label<'static>]>,
    /// Points to the strings of the family's schema.
    values: Box<[Option<Box<[&'static str]>>]>,
    _family: series::Family,
}

impl Labels {
    fn new(family: &series::Family, hidden: Option<&str>) -> Self {
        let schema = family.schema();
        let shown = || schema.labels.iter().filter(|label| Some(&*label.name) != hidden);
        // SAFETY: the string belongs to the schema, which lives unchanged for as long as any handle
        // to the family. This struct owns a handle, and lends the string for its own lifetime only.
        let forever = |text: &str| unsafe { std::mem::transmute::<&str, &'static str>(text) };
        let values: Box<[Option<Box<[&'static str]>>]> = shown()
            .map(|label| Some(label.values.as_ref()?.iter().map(|text| forever(text)).collect()))
            .collect();
        let labels = shown().zip(&values).map(|(label, values)| {
            let values = values.as_deref();
            // SAFETY: the slice is on the heap, where it stays unchanged for as long as `values`
            // lives. This struct lends it for its own lifetime only, which is equally long.
            let values = unsafe {
                std::mem::transmute::<Option<&[&'static str]>, Option<&'static [&'static str]>>(
                    values,
                )
            };
            Label { name: forever(&label.name), values }
        });
        Self { labels: labels.collect(), values, _family: family.clone() }
    }

    fn all(&self) -> &[Label<'_>] {
        debug_assert_eq!(self.labels.len(), self.values.len());
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::Kind;

    use super::*;
    use crate::Registry;
    use crate::kind::{Relay, RelayHistogram, RelaySummary, SummaryLayout};

    /// Another process can write any record.
    #[test]
    fn a_family_with_other_cells_than_its_kind_has_is_not_shown() {
        let registry = Registry::new();
        for (kind, cells) in (0..=u8::MAX).flat_map(|kind| (1..=5).map(move |cells| (kind, cells)))
        {
            let name = format!("kind_{kind}_{cells}");
            let schema = Schema { name, kind, cells, ..Schema::default() };
            registry.segment().family(&schema).unwrap().add(|_| {}, 0, 1);
        }
        let text = registry.text();
        let is_shown = |kind: u8, cells: u16| text.contains(&format!("# TYPE kind_{kind}_{cells}"));
        // A counter uses one cell, and a mixed counter two; histograms and summaries need settings.
        assert!(is_shown(1, 1) && is_shown(10, 2));
        for (kind, cells) in
            [(0, 1), (1, 3), (3, 5), (5, 3), (6, 3), (9, 1), (10, 1), (10, 5), (11, 4)]
        {
            assert!(!is_shown(kind, cells), "{kind} with {cells} cells");
        }
    }

    /// Formats show bounds, quantiles and states as labels. Readers refuse duplicate labels, and
    /// buckets that are not sorted.
    #[test]
    fn a_family_whose_settings_readers_would_refuse_is_counted_and_not_shown() {
        let (registry, inf, nan) = (Registry::new(), f64::INFINITY, f64::NAN);
        let numbers = |head: &[u8], all: &[f64]| {
            let all = all.iter().flat_map(|number| number.to_le_bytes());
            head.iter().copied().chain(all).collect::<Vec<u8>>()
        };
        let native = |threshold: f64| {
            let head = [0, 1, 0, 0, 160, 0, 0, 0];
            (5, 4, numbers(&head, &[threshold]))
        };
        let classic =
            |bounds: &[f64]| (5, 2 + bounds.len(), numbers(&[0; 8], &[&[0.0], bounds].concat()));
        let relayed =
            |bounds: &[f64]| (13, RelayHistogram::exemplars(bounds.len()), numbers(&[], bounds));
        let minute = 60_000_000_000_u64.to_le_bytes();
        let summary = |all: &[f64]| (6, SummaryLayout::CELLS.into(), numbers(&minute, all));
        let relayed_summary =
            |all: &[f64]| (14, Relay::cells(RelaySummary::VALUES) + all.len(), numbers(&[], all));
        let states = |names: &str| (8, names.split('\0').count(), names.as_bytes().to_vec());
        let good = [
            classic(&[]),
            classic(&[-inf, 1.0, 2.0]),
            native(0.0),
            relayed(&[]),
            relayed(&[-inf, 1.0]),
            summary(&[0.0, 0.5, 1.0]),
            relayed_summary(&[0.0, 1.0]),
            states("a\0b"),
        ];
        let mut bad = vec![native(nan), native(-1.0), states("a\0b\0a")];
        for bounds in [&[2.0, 1.0][..], &[1.0, 1.0], &[nan], &[1.0, nan, 2.0], &[inf], &[-0.0, 0.0]]
        {
            bad.extend([classic(bounds), relayed(bounds)]);
        }
        for quantiles in [&[0.9, 0.5][..], &[0.5, 0.5], &[nan], &[1.5], &[-0.1]] {
            bad.extend([summary(quantiles), relayed_summary(quantiles)]);
        }
        let add = |name: String, (kind, cells, settings): &(u8, usize, Vec<u8>)| {
            let (kind, cells, settings) = (*kind, *cells as u16, settings.clone());
            let schema = Schema { name, kind, cells, settings, ..Schema::default() };
            registry.segment().family(&schema).unwrap().add(|_| {}, 0, 1);
        };
        bad.iter().enumerate().for_each(|(n, family)| add(format!("bad_{n}"), family));
        good.iter().enumerate().for_each(|(n, family)| add(format!("good_{n}"), family));
        for _ in 0..2 {
            let text = registry.text();
            assert!(!text.contains("bad_"), "{text}");
            for n in 0..good.len() {
                assert!(text.contains(&format!("# TYPE good_{n} ")), "{n}: {text}");
            }
            assert!(text.contains(&format!("quipu_families_unreadable {}\n", bad.len())), "{text}");
        }
    }

    /// A family is reserved before its slab, and published after it. A scrape between the two steps
    /// has seen a record with a higher offset.
    #[test]
    fn a_record_before_the_newest_is_noticed_and_kept() {
        let registry = Registry::new();
        let (segment, readers) = (registry.segment(), Readers::default());
        let kind = Kind::new(*b"TEST", 1);
        registry.counter("one", "").unwrap();
        let family = segment.reserve(kind, "reserved first", 8).unwrap();
        segment.reserve(kind, "published first", 8).unwrap().publish().unwrap();
        let between = readers.list(segment).unwrap();
        family.publish().unwrap();
        let after = readers.list(segment).unwrap();
        assert!(!Arc::ptr_eq(&between, &after));
        assert!(Arc::ptr_eq(&after, &readers.list(segment).unwrap()));
        registry.counter("two", "").unwrap();
        assert_eq!(readers.list(segment).unwrap().len(), 2);
    }
}
