//! The families of a segment that an intake puts values into, found by the name, labels and value
//! of a sender.
//!
//! A sender gives a name, a set of labels, and a value. The kind of the value, its settings (such
//! as bounds) and the names of the labels, sorted, select a family. Several intakes, each with a
//! table, can use one segment: if a table does not find a family, it adds the families that others
//! made.
//!
//! Counters and classic histograms use two kinds of family: one is added to, and one follows
//! totals. The first of both that was made takes the values for both, because a name is one metric,
//! whatever its senders send.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quipu_segment::series::{Family, Identity, KeyWriter, Label, Schema};
use quipu_segment::{RegistrationGuard, Segment};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use super::class::{ALONE, Class, Role};
use super::rejection::Rejection;
use super::senders::{PLACE, TIME};
use super::settings;
use crate::error::Error;
use crate::exposition::{ShownNames, counter_stem, is_legacy_label, underscored_label, unit_of};
use crate::kind::{AnyKind, InfoKind, MetricKind};
use crate::snapshot::Kind;

/// A family, with the meaning of its cells.
pub(super) struct FamilyEntry {
    pub(super) family: Family,
    pub(super) kind: AnyKind,
    pub(super) class: Class,
    /// The cell of the time of the last sample or increment, if the family stores this time and is
    /// not relayed.
    pub(super) time: Option<usize>,
    /// Whether the help of its name is kept, or cannot be kept.
    has_help: AtomicBool,
}

/// The needs of a value's family.
#[derive(Debug, Clone, Copy)]
pub(super) struct FamilyNeeds<'a> {
    pub(super) name: &'a str,
    /// The number of the kind.
    pub(super) kind: u8,
    /// The type that formats show.
    pub(super) shown: Kind,
    pub(super) cells: u16,
    pub(super) floats: u64,
    pub(super) class: Class,
    pub(super) settings: &'a [u8],
}

/// Labels sorted by name, without labels whose value is empty.
#[derive(Clone, Copy)]
pub(super) struct SortedLabels<'a> {
    labels: &'a [(&'a str, &'a str)],
    order: [u8; MAX_LABELS],
    count: usize,
}

/// The maximum number of labels that an intake can be set to take.
pub(super) const MAX_LABELS: usize = 64;

/// Finds the families by the needs of a value, and by role, name and label names only.
#[derive(Clone, Default)]
pub(super) struct Table {
    entries: Vec<Arc<FamilyEntry>>,
    by_wanted: HashMap<Box<[u8]>, u32, TableHash>,
    /// The family that was found last, because most senders put the series of a family together.
    last: usize,
    /// By role, name and label names.
    by_labels: HashMap<Box<[u8]>, Vec<u32>>,
    /// The shown families with a label whose name is escaped for readers without UTF-8 names, by
    /// role, name and escaped label names.
    escaped: HashMap<Box<[u8]>, Vec<u32>, TableHash>,
    /// The newest family of each name.
    by_name: HashMap<Box<str>, u32>,
    /// The families that applications registered, by name only.
    registered: HashMap<String, Arc<FamilyEntry>>,
    /// The numbers of all families.
    known: HashSet<u64>,
    /// The names with a help.
    helped: HashSet<Box<str>>,
    /// The number of families that only store a help.
    helps: usize,
    /// The names of all samples, each with the families that contain it.
    samples: HashMap<String, Vec<Arc<FamilyEntry>>>,
    /// Why the last series that cannot be shown was refused.
    collision: Option<Collision>,
    /// The newest record of the segment that the table knows.
    newest: u64,
    /// Scratch memory for the needs of a value, as bytes.
    bytes: Vec<u8>,
}

/// Why a series cannot be shown in every format.
#[derive(Clone)]
pub(super) enum Collision {
    /// Two metrics would have samples with the same name.
    Sample {
        /// The shown name of the sample.
        sample: String,
        /// The metric that already contains it.
        other: String,
        kind: Kind,
    },
    /// Two series of a metric could get the same labels.
    Labels {
        /// The label names of the shown series.
        others: String,
    },
    /// Two labels of the series would get the same name.
    Alike([String; 2]),
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: &str = "other characters than letters, digits, underscores and colons are \
                             underscores to readers without UTF-8 names";
        let (sample, other, kind) = match self {
            Self::Sample { sample, other, kind } => (sample, other, kind),
            Self::Labels { others } => {
                return write!(
                    f,
                    "the metric has series with the labels {others} already, which are the same \
                     labels once escaped, because {NAMES}: use one spelling"
                );
            }
            Self::Alike([one, other]) => {
                return write!(
                    f,
                    "the labels {one:?} and {other:?} are one label once escaped, because {NAMES}: \
                     rename one of the two"
                );
            }
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Info => "info",
            Kind::StateSet => "state set",
            Kind::Unknown => "one without a type",
        };
        write!(
            f,
            "another metric, {other:?} ({kind}), has samples named {sample:?}: rename one of the \
             two, or give both one type"
        )
    }
}

impl FamilyEntry {
    /// Returns `None` if this version does not know the kind of the family, or if its settings are
    /// damaged.
    fn new(family: Family) -> Option<Self> {
        let kind = AnyKind::decode(&family).ok()?;
        if let Some(sides) = kind.side_allocations() {
            family.set_side_allocations(sides);
        }
        let class = Class::from_schema(family.schema());
        let has_help = AtomicBool::new(!family.schema().help.is_empty());
        let time = settings::time_cell(&kind, family.schema().cells);
        Some(Self { family, kind, class, time, has_help })
    }

    /// Returns whether the family contains a shown series.
    pub(super) fn has_shown(&self) -> bool {
        self.family.len() > self.family.hidden()
    }

    /// Returns whether all of its series are hidden, so another metric can take its name.
    #[inline]
    pub(super) fn is_dormant(&self) -> bool {
        self.family.hidden() > 0 && self.class.role == Role::Shown && !self.has_shown()
    }

    /// Returns whether the help of its name is kept, or cannot be kept.
    #[inline]
    pub(super) fn has_help(&self) -> bool {
        self.has_help.load(Ordering::Relaxed)
    }

    /// Returns whether its series are places of senders, or times of increments.
    pub(super) fn has_places(&self) -> bool {
        let schema = self.family.schema();
        let is_place = |name: &str| [PLACE, TIME].contains(&name);
        self.class.role == Role::Apart && schema.labels.iter().any(|label| is_place(&label.name))
    }

    /// Records that the help of this name is kept or cannot be kept, so it is not checked again.
    pub(super) fn set_help(&self) {
        self.has_help.store(true, Ordering::Relaxed);
    }

    /// Returns whether the family matches `wanted`: then [`put_wanted`] writes the same bytes for
    /// both.
    #[inline]
    fn has(&self, wanted: &FamilyNeeds<'_>, labels: &SortedLabels<'_>) -> bool {
        let schema = self.family.schema();
        let count = if self.class.alone { 0 } else { schema.labels.len() };
        schema.kind == wanted.kind
            && count == labels.count
            && schema.name == wanted.name
            && Class { alone: wanted.class.alone, ..self.class } == wanted.class
            && settings::identity(schema.kind, &schema.settings)
                == settings::identity(wanted.kind, wanted.settings)
            && labels.iter().zip(&schema.labels).all(|((name, _), label)| name == label.name)
    }
}

impl<'a> SortedLabels<'a> {
    /// Sorts labels, and accepts at most `most` of them. Labels with an empty value are omitted,
    /// unless `keeps_empty`.
    pub(super) fn new(
        labels: &'a [(&'a str, &'a str)],
        most: usize,
        keeps_empty: bool,
    ) -> Result<Self, Rejection> {
        let mut sorted = Self { labels, order: [0; MAX_LABELS], count: 0 };
        let mut is_sorted = true;
        for (i, (name, value)) in labels.iter().enumerate() {
            if value.is_empty() && !keeps_empty {
                continue;
            }
            let i = u8::try_from(i).map_err(|_| Rejection::Labels)?;
            if sorted.count >= most.min(MAX_LABELS) {
                return Err(Rejection::Labels);
            }
            let last = sorted.count.checked_sub(1).map(|last| sorted.label(last).0);
            is_sorted &= last.is_none_or(|last| last < *name);
            sorted.order[sorted.count] = i;
            sorted.count += 1;
        }
        if !is_sorted {
            let order = &mut sorted.order[..sorted.count];
            order.sort_unstable_by_key(|&i| labels[usize::from(i)].0);
            if order
                .windows(2)
                .any(|two| labels[usize::from(two[0])].0 == labels[usize::from(two[1])].0)
            {
                return Err(Rejection::LabelName);
            }
        }
        Ok(sorted)
    }

    /// Returns the name and the value of a label, by its position.
    #[inline]
    fn label(&self, at: usize) -> (&'a str, &'a str) {
        self.labels[usize::from(self.order[at])]
    }

    /// Iterates over the labels by name.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        (0..self.count).map(|at| self.label(at))
    }

    /// Returns whether there are no labels.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes the values as the key of a series.
    #[inline]
    pub(super) fn write(&self, key: &mut KeyWriter<'_>) {
        if self.count == 0 {
            // The value of the label ALONE.
            key.text("");
        }
        self.iter().for_each(|(_, value)| key.text(value));
    }
}

impl Table {
    /// Returns the number of families.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.helps
    }

    /// Returns all families.
    pub(super) fn entries(&self) -> &[Arc<FamilyEntry>] {
        &self.entries
    }

    /// Returns the family that matches `wanted`, if the table contains it.
    #[inline]
    pub(super) fn find(
        &mut self,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
    ) -> Option<&Arc<FamilyEntry>> {
        if !self.entries.get(self.last).is_some_and(|entry| entry.has(wanted, labels)) {
            put_wanted(wanted, labels.iter().map(|(name, _)| name), &mut self.bytes);
            self.last = *self.by_wanted.get(&*self.bytes)? as usize;
        }
        self.entries.get(self.last)
    }

    /// Returns the newest family of this name.
    pub(super) fn newest_of(&self, name: &str) -> Option<&Arc<FamilyEntry>> {
        self.entries.get(*self.by_name.get(name)? as usize)
    }

    /// Returns the families of this role, name and labels, whatever their kind.
    pub(super) fn of_labels(
        &self,
        role: Role,
        name: &str,
        labels: &SortedLabels<'_>,
    ) -> Vec<Arc<FamilyEntry>> {
        let mut bytes = vec![role as u8];
        put_names(name, labels.iter().map(|(name, _)| name), &mut bytes);
        let found = self.by_labels.get(&*bytes).into_iter().flatten();
        found.map(|&at| Arc::clone(&self.entries[at as usize])).collect()
    }

    /// Returns the family that an application registered under a name, with or without the `_total`
    /// that formats add to counters.
    pub(super) fn registered_as(&self, name: &str) -> Option<Arc<FamilyEntry>> {
        let found = self.registered.get(name).or_else(|| {
            let counter = self.registered.get(name.strip_suffix("_total")?);
            counter.filter(|entry| entry.kind.snapshot_kind() == Kind::Counter)
        });
        found.cloned()
    }

    /// Returns the families of single series that are shown under a name, in the order of their
    /// creation.
    pub(super) fn variants_of(&self, name: &str) -> Vec<Arc<FamilyEntry>> {
        let is_of = |entry: &&Arc<FamilyEntry>| {
            let (schema, kind) = (entry.family.schema(), entry.kind.snapshot_kind());
            let class = Class::from_schema(schema);
            let is_suffixed = kind == Kind::Counter && !class.bare;
            let base = name.strip_suffix("_total").filter(|_| is_suffixed);
            let is_single = !class.grouped && class.role == Role::Shown;
            is_single && (schema.name == name || base == Some(&schema.name))
        };
        self.entries.iter().filter(is_of).cloned().collect()
    }

    /// Adds the families that others made.
    pub(super) fn refresh(&mut self, segment: &Segment) -> Result<(), Error> {
        if segment.newest() == self.newest {
            return Ok(());
        }
        let found = segment.families_since(self.newest);
        let (families, newest) = found.map_err(|error| Error::segment("", error))?;
        for family in families {
            match family.schema().identity {
                Identity::Variant => _ = self.put(family),
                Identity::Name => self.put_registered(family),
                Identity::Apart => {}
            }
        }
        self.newest = newest;
        Ok(())
    }

    /// Checks that a family of this name, type and label names can be shown: no shown metric
    /// contains samples of its names, or series with equal labels once names are escaped.
    pub(super) fn check_shown<'n>(
        &mut self,
        name: &str,
        kind: Kind,
        labels: impl Iterator<Item = &'n str>,
    ) -> Result<(), Rejection> {
        let base = base_of(name, kind);
        let is_other = |entry: &Arc<FamilyEntry>| {
            let schema = entry.family.schema();
            let is_there = schema.identity == Identity::Name || entry.has_shown();
            is_there && base_of(&schema.name, entry.kind.snapshot_kind()) != base
        };
        let taken = |sample: String| {
            let other = self.samples.get(&sample)?.iter().find(|entry| is_other(entry))?;
            let (other, kind) = (other.family.schema().name.clone(), other.kind.snapshot_kind());
            Some(Collision::Sample { sample, other, kind })
        };
        let mut collision = ShownNames::for_family(base, kind).find_map(taken);
        if collision.is_none() {
            collision = self.same_labels(name, &labels.collect::<Vec<_>>());
        }
        match collision {
            None => Ok(()),
            collision => {
                self.collision = collision;
                Err(Rejection::Collision)
            }
        }
    }

    /// Returns a shown family of this name with different labels that become equal once escaped.
    fn same_labels(&self, name: &str, labels: &[&str]) -> Option<Collision> {
        let is_plain = labels.iter().all(|label| is_legacy_label(label));
        if is_plain && self.escaped.is_empty() {
            return None;
        }
        let key = escaped_key(name, labels.iter().copied());
        let escaped = self.escaped.get(&*key).into_iter().flatten();
        // These families have no escaped label.
        let plain = self.by_labels.get(&*key).filter(|_| !is_plain).into_iter().flatten();
        let found = escaped.chain(plain).find_map(|&at| {
            let entry = self.entries.get(at as usize)?;
            let others = label_names(entry.family.schema());
            let is_other = entry.has_shown() && !others.clone().eq(labels.iter().copied());
            is_other.then(|| others.map(|label| format!("{label:?}")).collect::<Vec<_>>())
        });
        found.map(|others| Collision::Labels { others: others.join(", ") })
    }

    /// Records that two labels of a series collide, and returns the rejection.
    pub(super) fn refuse_alike(&mut self, labels: [&str; 2]) -> Rejection {
        self.collision = Some(Collision::Alike(labels.map(str::to_owned)));
        Rejection::LabelsAlike
    }

    /// Makes the family that matches `wanted`.
    pub(super) fn make(
        &mut self,
        registration: &RegistrationGuard<'_>,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
        about: &super::Metric<'_>,
    ) -> Result<(), Rejection> {
        let named = |name: &str| Label { name: name.to_owned(), values: None };
        let class = Class { alone: labels.is_empty(), ..wanted.class };
        let schema = Schema {
            name: wanted.name.to_owned(),
            help: about.help.to_owned(),
            unit: unit_of(wanted.name, wanted.shown, about.unit).to_owned(),
            kind: wanted.kind,
            cells: wanted.cells,
            floats: wanted.floats,
            pairs: 0,
            // Sums continue when they return; a value that was set does not.
            additive: !is_set(wanted.kind),
            labels: match labels.is_empty() {
                true => vec![named(ALONE)],
                false => labels.iter().map(|(name, _)| named(name)).collect(),
            },
            idle: about.expiry,
            settings: wanted.settings.to_vec(),
            identity: Identity::Variant,
            class: class.number(),
            limit: None,
        };
        let family = registration.family(&schema).map_err(|_| Rejection::Full)?;
        self.put(family).then_some(()).ok_or(Rejection::Full)
    }

    /// Returns why the last series that cannot be shown was refused.
    pub(super) fn collision(&self) -> Option<&Collision> {
        self.collision.as_ref()
    }

    /// Returns whether a family of this name contains a help.
    pub(super) fn has_help(&self, name: &str) -> bool {
        self.helped.contains(name)
    }

    /// Keeps the help of a name whose families were made without help, in a family without series,
    /// because the record of an existing family never changes. If there is no room, the help is not
    /// kept. Returns true if this call kept it.
    pub(super) fn keep_help(&mut self, segment: &Segment, about: &super::Metric<'_>) -> bool {
        if self.has_help(about.name) {
            return false;
        }
        let schema = Schema {
            name: about.name.to_owned(),
            help: about.help.to_owned(),
            kind: InfoKind::NUMBER,
            cells: 1,
            identity: Identity::Variant,
            class: Class { role: Role::Help, ..Class::default() }.number(),
            ..Schema::default()
        };
        segment.family(&schema).is_ok_and(|family| self.put(family))
    }

    /// Returns false if this version does not know the kind of the family, or if its settings are
    /// damaged.
    fn put(&mut self, family: Family) -> bool {
        // The next refresh returns a family that this table made, too.
        if self.known.contains(&family.id()) {
            return true;
        }
        let Some(entry) = FamilyEntry::new(family) else { return false };
        let (schema, class) = (entry.family.schema(), entry.class);
        self.known.insert(entry.family.id());
        if entry.has_help() && class.role != Role::Beside && class.role != Role::Apart {
            self.helped.insert(schema.name.as_str().into());
        }
        if class.role == Role::Help {
            self.helps += 1;
            return true;
        }
        if self.helped.contains(&*schema.name) {
            entry.set_help();
        }
        // The segment contains far fewer records than 2^32.
        let at = self.entries.len() as u32;
        let entry = Arc::new(entry);
        self.put_first(&entry, at);
        let name = schema_name(&entry);
        let mut by_labels = vec![class.role as u8];
        put_names(&name, label_names(entry.family.schema()), &mut by_labels);
        self.by_labels.entry(by_labels.into()).or_default().push(at);
        if class.role == Role::Shown {
            let labels = label_names(entry.family.schema());
            if !labels.clone().all(is_legacy_label) {
                self.escaped.entry(escaped_key(&name, labels)).or_default().push(at);
            }
            self.by_name.insert(name, at);
            self.take_samples(&entry);
        } else {
            self.by_name.entry(name).or_insert(at);
        }
        self.entries.push(entry);
        // The family that was found last may no longer be the first match.
        self.last = usize::MAX;
        true
    }

    /// Makes a family the match for its needs. This includes values of the other kind of its type,
    /// unless a family of that kind was made before it.
    fn put_first(&mut self, entry: &FamilyEntry, at: u32) {
        let (schema, class) = (entry.family.schema(), entry.class);
        let mut wanted = FamilyNeeds {
            name: &schema.name,
            kind: schema.kind,
            shown: entry.kind.snapshot_kind(),
            cells: schema.cells,
            floats: schema.floats,
            class,
            settings: &schema.settings,
        };
        let is_single = !class.grouped && class.role == Role::Shown;
        let other = settings::other_kind(&wanted).filter(|_| is_single);
        self.put_key(&wanted, entry, at);
        if let Some((kind, settings)) = &other {
            wanted.kind = *kind;
            wanted.settings = settings;
            self.put_key(&wanted, entry, at);
        }
    }

    fn put_key(&mut self, wanted: &FamilyNeeds<'_>, entry: &FamilyEntry, at: u32) {
        put_wanted(wanted, label_names(entry.family.schema()), &mut self.bytes);
        let before = self.by_wanted.get(&*self.bytes);
        let before = before.and_then(|&before| self.entries.get(before as usize));
        // All tables agree which one is the first. A reused record can lie before older ones.
        let age = |entry: &FamilyEntry| (entry.family.created(), entry.family.id());
        if before.is_none_or(|before| age(before) > age(entry)) {
            self.by_wanted.insert(self.bytes.as_slice().into(), at);
        }
    }

    fn put_registered(&mut self, family: Family) {
        // A family of a kind that this version does not know takes no change.
        let Some(entry) = FamilyEntry::new(family) else { return };
        let entry = Arc::new(entry);
        self.take_samples(&entry);
        self.registered.insert(entry.family.schema().name.clone(), entry);
    }

    /// Notes the names of the samples of a metric.
    fn take_samples(&mut self, entry: &Arc<FamilyEntry>) {
        let shown = entry.kind.snapshot_kind();
        for name in ShownNames::for_family(base_of(&entry.family.schema().name, shown), shown) {
            self.samples.entry(name).or_default().push(Arc::clone(entry));
        }
    }
}

/// Writes `wanted` as bytes. Different families give different bytes.
#[inline]
fn put_wanted<'n>(
    wanted: &FamilyNeeds<'_>,
    names: impl Iterator<Item = &'n str>,
    out: &mut Vec<u8>,
) {
    out.clear();
    out.extend_from_slice(&[wanted.kind, wanted.class.number() & !ALONE_IN_CLASS]);
    let settings = settings::identity(wanted.kind, wanted.settings);
    out.extend_from_slice(&settings.len().to_le_bytes());
    out.extend_from_slice(settings);
    put_names(wanted.name, names, out);
}

/// Returns a name and escaped label names, in the form of the keys of [`Table::by_labels`].
fn escaped_key<'n>(name: &str, labels: impl Iterator<Item = &'n str>) -> Box<[u8]> {
    let mut labels: Vec<_> = labels.map(underscored_label).collect();
    labels.sort_unstable();
    let mut bytes = vec![Role::Shown as u8];
    put_names(name, labels.iter().map(|label| &**label), &mut bytes);
    bytes.into()
}

/// Returns the names of the shown labels.
pub(super) fn label_names(schema: &Schema) -> impl Iterator<Item = &str> + Clone {
    let is_alone = Class::from_schema(schema).alone;
    let names = schema.labels.iter().map(|label| &*label.name);
    names.filter(move |name| !(is_alone && *name == ALONE))
}

fn schema_name(entry: &FamilyEntry) -> Box<str> {
    entry.family.schema().name.as_str().into()
}

/// Writes a name and label names, each with its length.
#[inline]
fn put_names<'n>(name: &str, names: impl Iterator<Item = &'n str>, out: &mut Vec<u8>) {
    let mut put = |text: &str| {
        out.extend_from_slice(&text.len().to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    put(name);
    names.for_each(put);
}

/// Returns the name of a metric without a suffix that the formats add.
fn base_of(name: &str, kind: Kind) -> &str {
    if kind == Kind::Counter { counter_stem(name) } else { name }
}

/// The bit of a class that the labels decide.
const ALONE_IN_CLASS: u8 =
    Class { bare: false, grouped: false, alone: true, role: Role::Shown }.number();

/// Returns whether values of the kind are set, not added up.
fn is_set(kind: u8) -> bool {
    use crate::kind::{GaugeKind, UnknownKind};
    kind == GaugeKind::NUMBER || kind == UnknownKind::NUMBER
}

/// Hashes the bytes of `wanted` with rapidhash and random secrets, so no sender can choose names
/// that collide. (The hash of the standard library takes twice as long.)
#[derive(Clone, Copy)]
pub(super) struct TableHash(RapidSecrets);

/// The hash so far.
pub(super) struct Hash(RapidSecrets, u64);

impl Default for TableHash {
    fn default() -> Self {
        // The standard library's hasher is a source of random numbers that is available on each
        // system.
        Self(RapidSecrets::seed(RandomState::new().hash_one(0_u8)))
    }
}

impl BuildHasher for TableHash {
    type Hasher = Hash;

    #[inline]
    fn build_hasher(&self) -> Hash {
        Hash(self.0, 0)
    }
}

impl Hasher for Hash {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.1 = self.1.rotate_left(32) ^ rapidhash_v3_seeded(bytes, &self.0);
    }

    /// The length of a slice, which the hash of its bytes covers.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.1
    }
}
