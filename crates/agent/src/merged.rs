//! Merges the families of the daemon and of all sources by name, for one page without
//! contradictions.
//!
//! Families with the same name and type become one family. The series of the daemon come first, and
//! the series of a source carry the source's labels. If the types differ, the page shows the
//! daemon's family, or else the family of the source that was found first. The other families are
//! omitted from the page, but you can request them with the name of their source. If only the help
//! differs, the families are merged, and the first help is shown.
//!
//! The rules for targets are more generous. You cannot request a single target, Prometheus would
//! separate the metrics of different targets regardless of their types, and no client of the daemon
//! may hide the series of a source. Two families of single numbers are therefore both shown, unless
//! both are from files:
//!
//! - If their samples have the same name, both are shown with the type of the first.
//! - If there is a counter `x` (with samples `x_total`) or an info `x` (`x_info`), and another
//!   family is named `x` or has the full name, the counter or info is shown under the full name: as
//!   the family `x_total` or `x_info`.
//!
//! Some clients need escaped names. If two names are equal after escaping, they count as one name,
//! and all of their families use the escaped name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quipu::Registry;
use quipu::exposition::{ShownNames, is_legacy_name};
use quipu::snapshot::{FamilyHeader, Kind, Series, Sink};
use quipu_segment::printable;
use tracing::warn;

use quipu_sources::labels::{escaped_metric, suffix};
use quipu_sources::recorded::{Origin, RecordedFamily, Recorder, ShownMetadata, SourceSnapshot};

/// The merged families of the daemon and of all sources, at one moment.
#[derive(Debug, Default)]
pub struct MergedFamilies {
    /// The sources; the daemon is the first one.
    pub(super) sources: Vec<Arc<SourceSnapshot>>,
    /// The names, sorted by their escaped forms.
    pub(super) names: Vec<NameEntry>,
    /// The families of the daemon that sources may contain as well, by name. The second element is
    /// for a counter whose samples lack the suffix `_total`.
    own: HashMap<String, [Option<OwnFamily>; 2]>,
    /// The escaped names that sources use. A family of the daemon with another name needs no
    /// comparison.
    stems: HashSet<String>,
    /// The conflicts between sources.
    pub conflicts: Vec<Conflict>,
    /// The directories that are watched, with absolute paths.
    pub directories: Vec<PathBuf>,
    /// Whether files are missing, because their last reading is too old.
    pub is_part: bool,
    /// The newest family of the daemon at the time of the merge, to detect later ones.
    newest: u64,
    /// The number of series that were omitted when all families were last shown.
    pub omitted: Arc<OmittedSeries>,
}

/// All families with the same name.
#[derive(Debug)]
pub(super) struct NameEntry {
    pub(super) name: String,
    /// The families by type, in the order of their first sources. The first group is shown.
    pub(super) groups: Vec<Group>,
    /// Whether the first group contains families of the daemon and of a source.
    pub(super) is_shared: bool,
    /// Whether two sources in the first group may contain series with the same labels. This is
    /// possible between the daemon and any source, and between targets and files. Two targets never
    /// share labels, and neither do two files.
    pub(super) is_mixed: bool,
}

/// All families with the same name and type.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: Kind,
    help: String,
    /// Whether the group appears on the page of all sources.
    pub(super) is_shown: bool,
    pub(super) parts: Vec<Part>,
    /// Whether two families of the same source can contain a series with the same labels.
    pub(super) may_repeat: bool,
}

/// A family of a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The index of the source.
    pub(super) source: usize,
    /// The index of the family in its source.
    pub(super) family: usize,
    /// Whether the samples have the name of the family, without the suffix `_total`.
    pub(super) bare: bool,
}

/// The way to show a family of the daemon that sources contain as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnFamily {
    /// The index in [`MergedFamilies::names`].
    pub(super) name: usize,
    bare: bool,
    /// The type at the time of the merge.
    kind: Kind,
}

/// A conflict between two sources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The name of the second family, as shown, with the suffix of its samples.
    pub name: String,
    /// The kind of the conflict.
    pub about: About,
    /// The names of the earlier source and of the second source.
    pub sources: [String; 2],
    /// The kind of the second source.
    pub origin: Origin,
    /// Whether the second family is omitted from the page of all sources.
    pub is_omitted: bool,
}

impl Conflict {
    /// Returns a description of the consequence, with a remedy, for the log.
    pub fn result(&self) -> &'static str {
        match (self.is_omitted, self.origin) {
            (true, Origin::File) => OMITTED_FROM_FILE,
            (true, _) => "that of the second is omitted; rename one of the two",
            (false, _) if self.about == About::Help => "both are shown, with the help of the first",
            (false, _) => "both are shown, with the type of the first",
        }
    }
}

const OMITTED_FROM_FILE: &str = "that of the second is omitted; /metrics?segment= with its name \
                                shows it, and renaming one of the two shows both";

/// The kind of a conflict between two sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The types differ.
    Type,
    /// The help strings differ.
    Help,
    /// The names of samples collide, for example of a counter `x` and a gauge `x_total`.
    Samples,
    /// Both sources contain a series with the same name and labels. These conflicts are counted
    /// when the series are shown: see [`OmittedSeries`].
    Series,
}

impl About {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Type, Self::Help, Self::Samples, Self::Series];

    /// Returns the value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Help => "help",
            Self::Samples => "samples",
            Self::Series => "series",
        }
    }

    /// Returns the noun for log messages.
    pub(crate) fn subject(self) -> &'static str {
        match self {
            Self::Type => "metric types",
            Self::Help => "help of a metric",
            Self::Samples => "names of samples",
            Self::Series => "values of a series",
        }
    }
}

/// The numbers of series, of files and of targets, that were omitted when all families were last
/// shown, because another series already has their name and labels.
#[derive(Debug, Default)]
pub struct OmittedSeries([AtomicUsize; 2]);

impl OmittedSeries {
    /// Stores the numbers of the last page, and logs the first omitted series.
    pub(super) fn note(&self, counts: [usize; 2], first: Option<&(String, String)>) {
        // Relaxed: each number is independent.
        let before: usize =
            self.0.iter().zip(counts).map(|(all, now)| all.swap(now, Ordering::Relaxed)).sum();
        if let (0, Some((name, source))) = (before, first) {
            warn!(
                name = %printable(name),
                source = %printable(source),
                "a series has the name and labels of another one, and is omitted"
            );
        }
    }

    /// Returns the number of omitted series from files or targets.
    pub(super) fn count(&self, origin: Origin) -> usize {
        self.0.get(origin as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// A selection of sources and families.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The name of a source, or of a directory with sources; all sources if `None`.
    pub source: Option<String>,
    /// The absolute path of a directory with sources; all sources if `None`.
    pub directory: Option<PathBuf>,
    /// The names of families or samples; all families if empty.
    pub names: Vec<String>,
}

impl Filter {
    /// Returns whether the filter excludes any source.
    pub fn is_part(&self) -> bool {
        self.source.is_some() || self.directory.is_some()
    }

    pub(super) fn has_source(&self, snapshot: &SourceSnapshot) -> bool {
        let is_inside = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let has_name = |wanted: &String| {
            snapshot.name.strip_prefix(wanted.trim_end_matches('/')).is_some_and(is_inside)
        };
        let is_below = |wanted: &PathBuf| snapshot.path.starts_with(wanted);
        let is_one = self.source.as_ref().is_none_or(has_name)
            && self.directory.as_ref().is_none_or(is_below);
        is_one && (!self.is_part() || snapshot.origin == Origin::File)
    }

    pub(super) fn has_family(&self, family: &RecordedFamily) -> bool {
        self.names.is_empty() || family.is_one_of(&self.names)
    }
}

impl MergedFamilies {
    /// Merges the families of a registry with the sources. The sources must be in the order in
    /// which they were first found, because the first one wins a conflict.
    pub fn merge(registry: &Registry, sources: Vec<Arc<SourceSnapshot>>) -> Self {
        let stems = stems(&sources);
        // We read this number first: a family that is created in the meantime must count as newer.
        let newest = registry.segment().newest();
        let families = Heads::record(registry, &stems);
        let (origin, name) = (Origin::Daemon, "the daemon".to_owned());
        let own = Arc::new(SourceSnapshot { origin, name, families, ..SourceSnapshot::default() });
        let sources: Vec<Arc<SourceSnapshot>> = std::iter::once(own).chain(sources).collect();
        let mut conflicts = Vec::new();
        let mut names = by_name(&sources, &mut conflicts);
        hide_samples(&mut names, &sources, &mut conflicts);
        let mut own: HashMap<String, [Option<OwnFamily>; 2]> = HashMap::new();
        for (at, entry) in names.iter_mut().enumerate() {
            let first = &entry.groups[0];
            let has = |origin| first.parts.iter().any(|part| sources[part.source].origin == origin);
            let of = [Origin::Daemon, Origin::Target, Origin::File].map(has);
            entry.is_shared = of[0] && (of[1] || of[2]);
            entry.is_mixed = of.into_iter().filter(|has| *has).count() > 1;
            for part in first.parts.iter().filter(|part| part.source == OWN) {
                let family = &sources[OWN].families[part.family];
                let bare = part.bare && family.kind == Kind::Counter;
                let kinds = own.entry(family.name.clone()).or_default();
                kinds[usize::from(family.bare)] =
                    Some(OwnFamily { name: at, bare, kind: family.kind });
            }
            for group in &mut entry.groups {
                // Sort the parts, because the text formats show counters with the same kind of name
                // together.
                group.parts.sort_by_key(|part| part.bare);
                group.may_repeat = group.parts.windows(2).any(|two| {
                    let [one, other] = [two[0], two[1]];
                    let family = |part: Part| &sources[part.source].families[part.family];
                    // The daemon repeats no series, because names are unique in its segment.
                    (one.source, one.bare) == (other.source, other.bare)
                        && one.source != OWN
                        && family(one).may_repeat(family(other))
                });
            }
        }
        conflicts.sort();
        conflicts.dedup();
        Self { sources, names, own, stems, conflicts, newest, ..Self::default() }
    }

    /// Returns whether the daemon registered a family since the merge. The page shows such a family
    /// without the series of sources under its name.
    pub fn is_behind(&self, registry: &Registry) -> bool {
        registry.segment().newest() != self.newest
    }

    /// Returns whether the filter selects an existing source, or a watched directory where a source
    /// can appear later.
    pub fn has(&self, filter: &Filter) -> bool {
        let is_watched = |wanted: &PathBuf| self.directories.contains(wanted);
        !filter.is_part()
            || self.sources.iter().any(|snapshot| filter.has_source(snapshot))
            || filter.source.is_none() && filter.directory.as_ref().is_some_and(is_watched)
    }

    /// Returns whether any source may contain a family with the same name.
    pub(super) fn may_share(&self, family: &FamilyHeader<'_>) -> bool {
        !self.stems.is_empty() && self.stems.contains(&*escaped_metric(family.name))
    }

    /// Returns how to show a family of the daemon, if it existed at the merge with the same type.
    pub(super) fn own_family(&self, family: &FamilyHeader<'_>) -> Option<OwnFamily> {
        let own_family = self.own.get(family.name)?[usize::from(family.bare)];
        own_family.filter(|own_family| own_family.kind == family.kind)
    }

    /// Returns the metadata under which to show a family of the daemon.
    pub(super) fn as_shown<'a>(
        &'a self,
        own_family: OwnFamily,
        family: &FamilyHeader<'a>,
    ) -> FamilyHeader<'a> {
        let entry = &self.names[own_family.name];
        let Group { kind, help, .. } = &entry.groups[0];
        let mut shown = *family;
        (shown.name, shown.help) = (&entry.name, help);
        (shown.kind, shown.bare) = (*kind, own_family.bare);
        shown
    }
}

impl NameEntry {
    /// Returns the metadata under which to show a family of a group.
    pub(super) fn shown<'a>(&'a self, group: &'a Group, part: Part) -> ShownMetadata<'a> {
        let bare = part.bare && group.kind == Kind::Counter;
        ShownMetadata { name: &self.name, help: &group.help, kind: group.kind, bare }
    }
}

impl Group {
    /// Returns whether a family of another type can join this group.
    fn accepts(&self, kind: Kind, part: Part, sources: &[Arc<SourceSnapshot>]) -> bool {
        let is_of_file = |part: &Part| sources[part.source].origin == Origin::File;
        is_plain(self.kind)
            && is_plain(kind)
            && part.bare
            && self.parts.iter().all(|part| part.bare)
            && !(is_of_file(&part) && self.parts.iter().all(is_of_file))
    }
}

/// Returns whether the values of this kind are single numbers.
fn is_plain(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::Gauge | Kind::Unknown)
}

/// Groups the families of all sources by name, and then by type.
fn by_name(sources: &[Arc<SourceSnapshot>], conflicts: &mut Vec<Conflict>) -> Vec<NameEntry> {
    let spelled_out = spelled_out(sources);
    let mut by_name: BTreeMap<String, NameEntry> = BTreeMap::new();
    for (number, source) in sources.iter().enumerate() {
        for (at, family) in source.families.iter().enumerate() {
            let suffix = suffix(family.kind, family.bare);
            let is_spelled_out = !suffix.is_empty()
                && !spelled_out.is_empty()
                && spelled_out.contains(&(escaped_metric(&family.name), suffix));
            let bare = is_spelled_out || family.kind != Kind::Counter || family.bare;
            let kind = match family.kind {
                Kind::Info if is_spelled_out => Kind::Gauge,
                kind => kind,
            };
            let name = match is_spelled_out {
                true => Cow::Owned(format!("{}{suffix}", family.name)),
                false => Cow::Borrowed(&*family.name),
            };
            let escaped = escaped_metric(&name);
            let entry = match by_name.get_mut(&*escaped) {
                Some(entry) => entry,
                None => by_name
                    .entry(escaped.clone().into_owned())
                    .or_insert_with(|| NameEntry::new(&name)),
            };
            if entry.name != name {
                if number == OWN {
                    // Sources can share only one of the daemon's names; the other names stay
                    // separate.
                    continue;
                }
                entry.name.clear();
                entry.name.push_str(&escaped);
            }
            let part = Part { source: number, family: at, bare };
            entry.add(kind, &family.help, part, sources, |about, with, is_omitted| {
                let sources = [&sources[with].name, &source.name].map(String::clone);
                let (name, origin) = (format!("{}{suffix}", family.name), source.origin);
                // The daemon is first, so its families conflict with no earlier ones.
                if origin != Origin::Daemon {
                    conflicts.push(Conflict { name, about, sources, origin, is_omitted });
                }
            });
        }
    }
    by_name.into_values().collect()
}

impl NameEntry {
    fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, groups: Vec::new(), is_shared: false, is_mixed: false }
    }

    /// Adds a family. If it conflicts with an earlier one, calls `conflict` with the kind of the
    /// conflict, the index of the earlier source, and whether the family is omitted.
    fn add(
        &mut self,
        kind: Kind,
        help: &str,
        part: Part,
        sources: &[Arc<SourceSnapshot>],
        mut conflict: impl FnMut(About, usize, bool),
    ) {
        let groups = &mut self.groups;
        let first = groups.first().map(|group| group.parts[0].source);
        let mut same = groups.iter().position(|group| group.kind == kind);
        if let (None, Some(first)) = (same, first) {
            same = groups[0].accepts(kind, part, sources).then_some(0);
            conflict(About::Type, first, same.is_none());
        }
        match same.map(|same| &mut groups[same]) {
            Some(group) => {
                if group.help.is_empty() {
                    group.help.push_str(help);
                } else if !help.is_empty() && help != group.help {
                    conflict(About::Help, group.parts[0].source, !group.is_shown);
                }
                group.parts.push(part);
            }
            None => groups.push(Group {
                kind,
                help: help.to_owned(),
                is_shown: first.is_none(),
                parts: vec![part],
                may_repeat: false,
            }),
        }
    }
}

/// Returns the escaped names and suffixes of all counters and infos to be shown under their full
/// name. This is necessary if another family uses the name with or without the suffix, unless both
/// are from files or both are from the daemon.
fn spelled_out(sources: &[Arc<SourceSnapshot>]) -> HashSet<(Cow<'_, str>, &'static str)> {
    #[derive(Debug, Clone, Copy, Default)]
    struct Of {
        daemon: bool,
        target: bool,
        file: bool,
    }
    let mut spelled_out = HashSet::new();
    let is_alone = |snapshot: &Arc<SourceSnapshot>| {
        snapshot.origin == Origin::File || snapshot.families.is_empty()
    };
    if sources.iter().all(is_alone) {
        return spelled_out;
    }
    let (mut suffixed, mut others) = (HashMap::new(), HashMap::new());
    for source in sources {
        for family in &source.families {
            let name = escaped_metric(&family.name);
            let of: &mut Of = match suffix(family.kind, family.bare) {
                "" => others.entry(name).or_default(),
                suffix => suffixed.entry((name, suffix)).or_default(),
            };
            match source.origin {
                Origin::Daemon => of.daemon = true,
                Origin::Target => of.target = true,
                Origin::File => of.file = true,
            }
        }
    }
    for ((name, suffix), of) in suffixed {
        let others = [others.get(&name), others.get(&*format!("{name}{suffix}"))];
        let is_other = |other: &Of| {
            let target = of.target || other.target;
            target || of.daemon && other.file || of.file && other.daemon
        };
        if others.into_iter().flatten().any(is_other) {
            spelled_out.insert((name, suffix));
        }
    }
    spelled_out
}

/// Omits each family whose samples have the same name as samples of an earlier family, because a
/// client would reject the whole page.
fn hide_samples(
    names: &mut [NameEntry],
    sources: &[Arc<SourceSnapshot>],
    conflicts: &mut Vec<Conflict>,
) {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&at| (names[at].groups[0].parts[0].source, at));
    // The first source that uses each name.
    let mut shown: HashMap<String, usize> = HashMap::new();
    for at in order {
        let NameEntry { name, groups, .. } = &mut names[at];
        let group = &mut groups[0];
        let source = group.parts[0].source;
        let taken =
            ShownNames::for_family(name, group.kind).find_map(|name| shown.get(&name).copied());
        if let (Some(first), true) = (taken, source != OWN) {
            group.is_shown = false;
            let bare = group.parts.iter().all(|part| part.bare);
            let name = format!("{name}{}", suffix(group.kind, bare));
            let (about, origin) = (About::Samples, sources[source].origin);
            let sources = [first, source].map(|number| sources[number].name.clone());
            conflicts.push(Conflict { name, about, sources, origin, is_omitted: true });
        } else {
            for name in ShownNames::for_family(name, group.kind) {
                shown.entry(name).or_insert(source);
            }
        }
    }
}

/// Returns all escaped names that sources use, with and without the suffixes of samples.
fn stems(sources: &[Arc<SourceSnapshot>]) -> HashSet<String> {
    const SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_info"];
    let families = sources.iter().flat_map(|source| &source.families);
    let shown: HashSet<(&str, Kind)> = families.map(|one| (&*one.name, one.kind)).collect();
    let mut stems = HashSet::new();
    for name in shown.into_iter().flat_map(|(name, kind)| ShownNames::for_family(name, kind)) {
        let stem = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix));
        stems.extend(stem.map(str::to_owned));
        stems.insert(name);
    }
    stems
}

/// A sink that records the metadata of the daemon's families whose names sources also use.
struct Heads<'s> {
    stems: &'s HashSet<String>,
    recorder: Recorder,
}

impl<'s> Heads<'s> {
    fn record(registry: &Registry, stems: &'s HashSet<String>) -> Vec<RecordedFamily> {
        let mut heads = Self { stems, recorder: Recorder::unchecked() };
        // This cannot fail: an invalid segment is already rejected when it is opened.
        if let (false, Ok(walk)) = (stems.is_empty(), registry.walk()) {
            walk.heads(&mut heads);
        }
        let mut families = heads.recorder.heads();
        families.sort_by_key(|family| !is_legacy_name(&family.name));
        families
    }
}

impl Sink for Heads<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        if self.stems.contains(&*escaped_metric(family.name)) {
            self.recorder.family(family);
        }
    }

    fn series(&mut self, _: &FamilyHeader<'_>, _: &Series<'_>) {}
}

/// The index of the daemon among the sources.
const OWN: usize = 0;

#[cfg(test)]
mod tests {
    use quipu::exposition::{Encoder, Escaping, Format};
    use quipu::snapshot::{Texts, Value};

    use super::super::walk::Walk;
    use super::*;

    fn snapshot(name: &str, registry: &Registry) -> Arc<SourceSnapshot> {
        let mut recorder = Recorder::default();
        registry.visit(&mut recorder).unwrap();
        let (families, series) = recorder.finish();
        let labels = vec![("segment".to_owned(), name.to_owned())];
        let path = PathBuf::from("/run").join(name);
        Arc::new(SourceSnapshot {
            origin: Origin::File,
            name: name.into(),
            path,
            labels,
            families,
            series,
        })
    }

    fn text(merged: &Arc<MergedFamilies>, filter: Filter) -> String {
        let mut walk = Walk::over(merged, filter);
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        // A separate step for each series.
        while walk.step(&mut encoder, |_| true) {}
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    }

    #[test]
    fn families_of_one_name_are_together_and_contradictions_apart() {
        let registries = [(); 3].map(|()| Registry::new());
        for registry in &registries[..2] {
            registry.counter("jobs", "Jobs.").unwrap().inc();
        }
        registries[1].gauge("size", "Bytes.").unwrap().set(2.0);
        registries[2].gauge("jobs", "Something else.").unwrap().set(3.0);
        registries[2].gauge("size", "Lines.").unwrap().set(4.0);
        registries[2].gauge("jobs.total", "").unwrap().set(5.0);
        let names = ["web/1", "web/2", "mail"];
        let sources =
            names.iter().zip(&registries).map(|(name, registry)| snapshot(name, registry));
        let merged = Arc::new(MergedFamilies::merge(&Registry::new(), sources.collect()));
        let all = "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
                   jobs_total{segment=\"web/1\"} 1\njobs_total{segment=\"web/2\"} 1\n\
                   # HELP size Bytes.\n# TYPE size gauge\n\
                   size{segment=\"web/2\"} 2\nsize{segment=\"mail\"} 4\n";
        assert_eq!(text(&merged, Filter::default()), all);
        let conflicts = merged.conflicts.iter().map(|one| (&*one.name, one.about));
        let expected =
            [("jobs", About::Type), ("jobs.total", About::Samples), ("size", About::Help)];
        assert_eq!(conflicts.collect::<Vec<_>>(), expected);
        let sources = |at: usize| merged.conflicts[at].sources.each_ref().map(|name| &**name);
        assert_eq!(sources(0), ["web/1", "mail"]);
        assert_eq!(sources(1), ["web/1", "mail"]);
        assert_eq!(sources(2), ["web/2", "mail"]);
        let results = merged.conflicts.iter().map(Conflict::result);
        let both = "both are shown, with the help of the first";
        assert_eq!(results.collect::<Vec<_>>(), [OMITTED_FROM_FILE, OMITTED_FROM_FILE, both]);
        let of = |source: &str, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            text(&merged, Filter { source: Some(source.into()), names, ..Filter::default() })
        };
        assert!(of("mail", &["jobs"]).ends_with("jobs{segment=\"mail\"} 3\n"));
        assert!(of("mail", &["jobs_total"]).ends_with("jobs_total{segment=\"mail\"} 5\n"));
        assert_eq!(of("web", &["jobs_total"]).lines().count(), 4);
        assert_eq!(of("web/2", &["jobs_total"]).lines().count(), 3);
        assert_eq!(of("we", &[]), "");
        let directory = |path: &str| Filter { directory: Some(path.into()), ..Filter::default() };
        assert_eq!(text(&merged, directory("/run/web")), of("web", &[]));
        assert_eq!(text(&merged, directory("/run/we")), "");
        assert!(merged.has(&directory("/run/web")) && !merged.has(&directory("/run/we")));
    }

    #[test]
    fn a_conflict_names_the_omitted_family_and_both_sources() {
        let registries = [(); 2].map(|()| Registry::new());
        registries[0].gauge("a.total", "").unwrap().set(1.0);
        registries[1].counter("a", "").unwrap().inc();
        let names = ["first", "my.app"];
        let sources =
            names.iter().zip(&registries).map(|(name, registry)| snapshot(name, registry));
        let merged = MergedFamilies::merge(&Registry::new(), sources.collect());
        let sources = names.map(str::to_owned);
        let (name, about, origin) = ("a_total".to_owned(), About::Samples, Origin::File);
        let expected = Conflict { name, about, sources, origin, is_omitted: true };
        assert_eq!(merged.conflicts, [expected]);
    }

    #[test]
    fn numbers_of_targets_are_shown_whatever_their_types() {
        let of = |kind, value| {
            move |name: &'static str| {
                let family = FamilyHeader::new(kind, name, "");
                let mut recorder = Recorder::default();
                recorder.family(&family);
                recorder.series(&family, &Series::new(Texts::default(), value));
                recorder.finish().0
            }
        };
        let counter = of(Kind::Counter, Value::counter(1));
        let gauge = of(Kind::Gauge, Value::gauge(2));
        let merge = |of_target: usize, families: [Vec<RecordedFamily>; 2]| {
            let sources = families.into_iter().enumerate().map(|(number, families)| {
                let origin = if number == of_target { Origin::Target } else { Origin::File };
                let labels = vec![("segment".to_owned(), number.to_string())];
                let (name, path) = (number.to_string(), PathBuf::new());
                Arc::new(SourceSnapshot { origin, name, path, labels, families, series: 1 })
            });
            let merged = Arc::new(MergedFamilies::merge(&Registry::new(), sources.collect()));
            let lines = text(&merged, Filter::default());
            let lines = lines.lines().map(|line| line.trim_start_matches("# TYPE ").to_owned());
            (lines.collect::<Vec<_>>().join(", "), merged.conflicts.len())
        };
        let beside = "x gauge, x{segment=\"0\"} 2, x_total counter, x_total{segment=\"1\"} 1";
        assert_eq!(merge(1, [gauge("x"), counter("x")]), (beside.to_owned(), 0));
        assert_eq!(merge(0, [gauge("x"), counter("x")]), (beside.to_owned(), 0));
        // If both families are from files, one of them stays separate.
        let alone = "x gauge, x{segment=\"0\"} 2";
        assert_eq!(merge(9, [gauge("x"), counter("x")]), (alone.to_owned(), 1));
        let together = "x_total counter, x_total{segment=\"0\"} 1, x_total{segment=\"1\"} 2";
        assert_eq!(merge(1, [counter("x"), gauge("x_total")]), (together.to_owned(), 1));
        assert_eq!(merge(0, [counter("x"), gauge("x_total")]), (together.to_owned(), 1));
        let together = "x_total gauge, x_total{segment=\"0\"} 2, x_total{segment=\"1\"} 1";
        assert_eq!(merge(1, [gauge("x_total"), counter("x")]), (together.to_owned(), 1));
    }
}
