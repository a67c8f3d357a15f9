//! The families of all watched sources, by name, and the walk over them.
//!
//! Families of several sources that have the same name and type are one family, whose series differ
//! in the labels of their sources. If the types differ, the family of the source that was seen
//! first is shown, and the others are *apart*: they are shown when their own source is asked for. A
//! different help keeps nothing apart: the first one is shown.
//!
//! A target is not asked for alone, and Prometheus tells its metrics from those of other targets,
//! whatever their types. So, if one of two families is of a target, and both have single numbers,
//! both are shown: with the type of the first if their samples have the same name; and a counter
//! `x_total` beside another `x` as it is, as a family `x_total`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use quipu::exposition::{Escaping, ShownNames, escape_name};
use quipu::snapshot::{Kind, Sink};

use super::recorded::{Labels, Recorded, Shown, is_plain};

/// What a source is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A segment file, or a directory with files of several processes.
    #[default]
    File,
    /// A target that is scraped, or what is known of all targets.
    Target,
}

/// What was last read of a source.
#[derive(Debug, Default)]
pub struct Seen {
    /// What it is.
    pub origin: Origin,
    /// Its name: of a file, the label `segment` of all its series.
    pub name: String,
    /// Its absolute path; empty if it is not in a file.
    pub path: PathBuf,
    /// The labels of all its series.
    pub labels: Labels,
    /// Its families, with at least one series each.
    pub families: Vec<Recorded>,
    /// The number of all series.
    pub series: usize,
}

/// The families of all sources at one moment.
#[derive(Debug, Default)]
pub struct Merged {
    sources: Vec<Arc<Seen>>,
    /// Sorted by name.
    names: Vec<Named>,
    /// What contradicts each other.
    pub conflicts: Vec<Conflict>,
    /// The directories that are watched, with absolute paths.
    pub directories: Vec<PathBuf>,
    /// Whether files are missing, since what is known of them is too old.
    pub is_part: bool,
}

/// Families of one name.
#[derive(Debug)]
struct Named {
    name: String,
    /// One for each type, in the order of their first sources.
    groups: Vec<Group>,
}

/// Families of one name and type.
#[derive(Debug)]
struct Group {
    kind: Kind,
    help: String,
    /// Whether it is shown with all sources together.
    is_shown: bool,
    parts: Vec<Part>,
}

/// A family of a source.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The numbers of the source and of its family.
    source: usize,
    family: usize,
    /// Whether the name of the group is that of its samples.
    bare: bool,
}

/// Two sources that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The name of the family.
    pub name: String,
    /// What they contradict each other in.
    pub about: About,
    /// The names of a source that was seen earlier, and of this one.
    pub sources: [String; 2],
    /// What this one is.
    pub origin: Origin,
}

impl Conflict {
    /// One of a source with what is not another source.
    fn alone(name: &str, about: About, source: &Seen) -> Self {
        let sources = [String::new(), source.name.clone()];
        Self { name: name.to_owned(), about, sources, origin: source.origin }
    }
}

/// What two sources contradict each other in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The type.
    Type,
    /// The help.
    Help,
    /// The names of samples: a counter `x` and a gauge `x_total`.
    Samples,
    /// The name, which a metric has that the daemon takes in.
    Daemon,
}

impl About {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Type, Self::Help, Self::Samples, Self::Daemon];

    /// The name in a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Help => "help",
            Self::Samples => "samples",
            Self::Daemon => "daemon",
        }
    }
}

/// Which families are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The name of a source, or of a directory with sources; all if there is none.
    pub source: Option<String>,
    /// The absolute path of a directory with sources; all if there is none.
    pub directory: Option<PathBuf>,
    /// The names of families or of samples; all if there are none.
    pub names: Vec<String>,
}

impl Filter {
    /// Whether some sources are wanted, and not all.
    pub fn is_part(&self) -> bool {
        self.source.is_some() || self.directory.is_some()
    }

    fn has_source(&self, seen: &Seen) -> bool {
        let is_inside = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let has_name = |wanted: &String| {
            seen.name.strip_prefix(wanted.trim_end_matches('/')).is_some_and(is_inside)
        };
        let is_below = |wanted: &PathBuf| seen.path.starts_with(wanted);
        let is_one = self.source.as_ref().is_none_or(has_name)
            && self.directory.as_ref().is_none_or(is_below);
        is_one && (!self.is_part() || seen.origin == Origin::File)
    }

    fn has_family(&self, family: &Recorded) -> bool {
        self.names.is_empty() || family.is_one_of(&self.names)
    }
}

impl Merged {
    /// Merges sources, in the order in which they were seen first. `is_taken` says whether the
    /// daemon itself shows a family of that name, which is escaped for readers that need it.
    pub fn of(sources: Vec<Arc<Seen>>, is_taken: impl Fn(&str) -> bool) -> Self {
        let spelled_out = spelled_out(&sources);
        let mut by_name: BTreeMap<String, Vec<Group>> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            for (at, family) in source.families.iter().enumerate() {
                let is_total = is_total(family);
                let is_spelled_out = is_total && spelled_out.contains(&*family.name);
                let suffix = if is_spelled_out { "_total" } else { "" };
                let bare = !is_total || is_spelled_out;
                let part = Part { source: number, family: at, bare };
                let groups = by_name.entry(format!("{}{suffix}", family.name)).or_default();
                let mut conflict = |about, with: usize| {
                    let sources = [&sources[with].name, &source.name].map(String::clone);
                    let (name, origin) = (family.name.clone(), source.origin);
                    conflicts.push(Conflict { name, about, sources, origin });
                };
                let first = groups.first().map(|group| group.parts[0].source);
                let mut same = groups.iter().position(|group| group.kind == family.kind);
                if let (None, Some(first)) = (same, first) {
                    conflict(About::Type, first);
                    same = groups[0].takes(family, source.origin, bare, &sources).then_some(0);
                }
                match same.map(|same| &mut groups[same]) {
                    Some(group) => {
                        if group.help.is_empty() {
                            group.help.clone_from(&family.help);
                        } else if !family.help.is_empty() && family.help != group.help {
                            conflict(About::Help, group.parts[0].source);
                        }
                        group.parts.push(part);
                    }
                    None => groups.push(Group {
                        kind: family.kind,
                        help: family.help.clone(),
                        is_shown: first.is_none(),
                        parts: vec![part],
                    }),
                }
            }
        }
        let names = by_name.into_iter();
        let mut names: Vec<Named> = names.map(|(name, groups)| Named { name, groups }).collect();
        hide_samples(&mut names, &sources, &mut conflicts);
        hide_taken(&mut names, &sources, &mut conflicts, is_taken);
        for group in names.iter_mut().flat_map(|named| &mut named.groups) {
            // Formats show the counters of each kind of name together.
            group.parts.sort_by_key(|part| part.bare);
        }
        conflicts.sort();
        conflicts.dedup();
        Self { sources, names, conflicts, directories: Vec::new(), is_part: false }
    }

    /// Whether there is a source that is wanted, or the directory is watched and may have one
    /// later.
    pub fn has(&self, filter: &Filter) -> bool {
        let is_watched = |wanted: &PathBuf| self.directories.contains(wanted);
        !filter.is_part()
            || self.sources.iter().any(|seen| filter.has_source(seen))
            || filter.source.is_none() && filter.directory.as_ref().is_some_and(is_watched)
    }

    /// The sources, in the order in which they were seen first.
    pub fn sources(&self) -> &[Arc<Seen>] {
        &self.sources
    }

    /// Passes all families to a sink: those that are shown with all sources together.
    pub fn visit<S: Sink + ?Sized>(self: &Arc<Self>, sink: &mut S) {
        let mut walk = Walk::over(self, Filter::default());
        while walk.step(sink, |_| false) {}
    }
}

impl Group {
    /// Whether a family of another type is shown with this one.
    fn takes(&self, family: &Recorded, origin: Origin, bare: bool, sources: &[Arc<Seen>]) -> bool {
        let mut origins = self.parts.iter().map(|part| sources[part.source].origin);
        is_plain(self.kind)
            && family.is_plain()
            && bare
            && self.parts.iter().all(|part| part.bare)
            && (origin == Origin::Target || origins.any(|origin| origin == Origin::Target))
    }
}

/// Whether the samples of a family have the suffix of a counter, which its name has not.
fn is_total(family: &Recorded) -> bool {
    family.kind == Kind::Counter && !family.bare
}

/// The names of counters that are shown with their suffix, since another family has the name
/// without it, or the name with it; and one of both is of a target.
fn spelled_out(sources: &[Arc<Seen>]) -> HashSet<String> {
    let mut spelled_out = HashSet::new();
    if sources.iter().all(|source| source.origin == Origin::File) {
        return spelled_out;
    }
    // The names of all counters, and of all other families, and whether a target has one.
    let (mut totals, mut others) = (HashMap::new(), HashMap::<&str, bool>::new());
    for source in sources {
        for family in &source.families {
            let map = if is_total(family) { &mut totals } else { &mut others };
            *map.entry(&*family.name).or_default() |= source.origin == Origin::Target;
        }
    }
    for (name, is_of_target) in totals {
        let others = [others.get(name), others.get(&*format!("{name}_total"))];
        if others.into_iter().flatten().any(|other| *other || is_of_target) {
            spelled_out.insert(name.to_owned());
        }
    }
    spelled_out
}

/// Keeps a family apart whose samples have names that those of another one have: a reader would
/// refuse the whole exposition.
fn hide_samples(names: &mut [Named], sources: &[Arc<Seen>], conflicts: &mut Vec<Conflict>) {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&at| (names[at].groups[0].parts[0].source, at));
    let mut shown = ShownNames::default();
    for at in order {
        let Named { name, groups } = &mut names[at];
        let group = &mut groups[0];
        if !shown.take(name, group.kind) {
            group.is_shown = false;
            let source = &sources[group.parts[0].source];
            conflicts.push(Conflict::alone(name, About::Samples, source));
        }
    }
}

/// Keeps a family apart if the daemon itself shows one that has its name, or samples with such
/// names.
fn hide_taken(
    names: &mut [Named],
    sources: &[Arc<Seen>],
    conflicts: &mut Vec<Conflict>,
    is_taken: impl Fn(&str) -> bool,
) {
    const SUFFIXES: [&str; 6] = ["", "_total", "_bucket", "_sum", "_count", "_info"];
    let mut escaped = String::new();
    for Named { name, groups } in names {
        escaped.clear();
        escape_name(name, Escaping::Underscores, &mut escaped);
        let is_one = |suffix: &str| {
            let without = escaped.strip_suffix(suffix);
            is_taken(&format!("{escaped}{suffix}")) || without.is_some_and(&is_taken)
        };
        if SUFFIXES.into_iter().any(is_one) {
            groups[0].is_shown = false;
            let source = &sources[groups[0].parts[0].source];
            conflicts.push(Conflict::alone(name, About::Daemon, source));
        }
    }
}

/// A walk over the families, in steps.
#[derive(Debug)]
pub struct Walk {
    merged: Arc<Merged>,
    filter: Filter,
    name: usize,
    /// The number of the part, in the group that is shown.
    part: usize,
    /// The number of the next series.
    series: usize,
}

impl Walk {
    /// Begins a walk.
    pub fn over(merged: &Arc<Merged>, filter: Filter) -> Self {
        Self { merged: Arc::clone(merged), filter, name: 0, part: 0, series: 0 }
    }

    /// Passes on families until `is_full` returns true after a series or a family. Returns whether
    /// there is more.
    pub fn step<S: Sink + ?Sized>(&mut self, sink: &mut S, is_full: impl Fn(&S) -> bool) -> bool {
        let Self { merged, filter, name, part, series } = self;
        let has = |part: &Part| {
            let seen = &merged.sources[part.source];
            filter.has_source(seen) && filter.has_family(&seen.families[part.family])
        };
        let mut looked_at = 0;
        while let Some(named) = merged.names.get(*name) {
            // With a source of its own, a family that is apart is shown.
            let is_apart = |group: &&Group| !group.is_shown && !filter.is_part();
            let mut groups = named.groups.iter().filter(|group| !is_apart(group));
            let group = groups.find(|group| group.parts.iter().any(has));
            while let Some((group, one)) = group.and_then(|it| Some((it, it.parts.get(*part)?))) {
                if has(one) {
                    let seen = &merged.sources[one.source];
                    let family = &seen.families[one.family];
                    let bare = one.bare && group.kind == Kind::Counter;
                    let Group { kind, help, .. } = group;
                    let shown = Shown { name: &named.name, help, kind: *kind, bare };
                    if let Some(next) = family.pass(&seen.labels, shown, *series, sink, &is_full) {
                        *series = next;
                        return true;
                    }
                }
                (*part, *series) = (*part + 1, 0);
                if is_full(sink) {
                    return true;
                }
            }
            (*name, *part, *series) = (*name + 1, 0, 0);
            // Those that are left out take time, too.
            looked_at += named.groups.iter().map(|group| group.parts.len()).sum::<usize>();
            if looked_at > LOOKED_AT {
                return true;
            }
        }
        false
    }
}

/// The number of families of sources that one step looks at.
const LOOKED_AT: usize = 4096;

#[cfg(test)]
mod tests {
    use quipu::Registry;
    use quipu::exposition::{Encoder, Escaping, Format};
    use quipu::snapshot::{Family, Number, Series, Texts, Value};

    use super::super::recorded::Recorder;
    use super::*;

    fn seen(name: &str, registry: &Registry) -> Arc<Seen> {
        let mut recorder = Recorder::default();
        registry.visit(&mut recorder).unwrap();
        let (families, series) = recorder.finish();
        let labels = vec![("segment".to_owned(), name.to_owned())];
        let path = PathBuf::from("/run").join(name);
        Arc::new(Seen { origin: Origin::File, name: name.into(), path, labels, families, series })
    }

    fn text(merged: &Arc<Merged>, filter: Filter) -> String {
        let mut walk = Walk::over(merged, filter);
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        // Each series in a step of its own.
        while walk.step(&mut encoder, |_| true) {}
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    }

    #[test]
    fn families_of_one_name_are_together_and_contradictions_apart() {
        let registries = [(); 3].map(|()| Registry::new());
        for registry in &registries[..2] {
            registry.counter("jobs", "Jobs.").unwrap().inc();
            registry.gauge("daemon", "").unwrap().set(1.0);
        }
        registries[0].gauge("da.emon", "").unwrap().set(1.0);
        registries[1].gauge("size", "Bytes.").unwrap().set(2.0);
        registries[2].gauge("jobs", "Something else.").unwrap().set(3.0);
        registries[2].gauge("size", "Lines.").unwrap().set(4.0);
        registries[2].gauge("jobs.total", "").unwrap().set(5.0);
        let names = ["web/1", "web/2", "mail"];
        let sources = names.iter().zip(&registries).map(|(name, registry)| seen(name, registry));
        let merged =
            Arc::new(Merged::of(sources.collect(), |name| ["daemon", "da_emon"].contains(&name)));
        let all = "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
                   jobs_total{segment=\"web/1\"} 1\njobs_total{segment=\"web/2\"} 1\n\
                   # HELP size Bytes.\n# TYPE size gauge\n\
                   size{segment=\"web/2\"} 2\nsize{segment=\"mail\"} 4\n";
        assert_eq!(text(&merged, Filter::default()), all);
        let conflicts = merged.conflicts.iter().map(|one| (&*one.name, one.about));
        let expected = [
            ("da.emon", About::Daemon),
            ("daemon", About::Daemon),
            ("jobs", About::Type),
            ("jobs.total", About::Samples),
            ("size", About::Help),
        ];
        assert_eq!(conflicts.collect::<Vec<_>>(), expected);
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
    fn numbers_of_targets_are_shown_whatever_their_types() {
        let of = |kind, value| {
            move |name: &'static str| {
                let family =
                    Family { name, help: "", unit: "", kind, labels: &[], groups: 1, bare: false };
                let (texts, start) = (Texts::new(&[]), None);
                let mut recorder = Recorder::default();
                recorder.family(&family);
                let (escape_free, overflow) = (true, false);
                let series = Series { group: 0, texts, escape_free, overflow, start, value };
                recorder.series(&family, &series);
                recorder.finish().0
            }
        };
        let total = Value::Counter { total: Number::Unsigned(1), exemplar: None };
        let counter = of(Kind::Counter, total);
        let gauge = of(Kind::Gauge, Value::Gauge(Number::Unsigned(2)));
        let merge = |of_target: usize, families: [Vec<Recorded>; 2]| {
            let sources = families.into_iter().enumerate().map(|(number, families)| {
                let origin = if number == of_target { Origin::Target } else { Origin::File };
                let labels = vec![("segment".to_owned(), number.to_string())];
                let (name, path) = (number.to_string(), PathBuf::new());
                Arc::new(Seen { origin, name, path, labels, families, series: 1 })
            });
            let merged = Arc::new(Merged::of(sources.collect(), |_| false));
            let lines = text(&merged, Filter::default());
            let lines = lines.lines().map(|line| line.trim_start_matches("# TYPE ").to_owned());
            (lines.collect::<Vec<_>>().join(", "), merged.conflicts.len())
        };
        let beside = "x gauge, x{segment=\"0\"} 2, x_total counter, x_total{segment=\"1\"} 1";
        assert_eq!(merge(1, [gauge("x"), counter("x")]), (beside.to_owned(), 0));
        assert_eq!(merge(0, [gauge("x"), counter("x")]), (beside.to_owned(), 0));
        // Of files alone, one is kept apart.
        let alone = "x gauge, x{segment=\"0\"} 2";
        assert_eq!(merge(9, [gauge("x"), counter("x")]), (alone.to_owned(), 1));
        let together = "x_total counter, x_total{segment=\"0\"} 1, x_total{segment=\"1\"} 2";
        assert_eq!(merge(1, [counter("x"), gauge("x_total")]), (together.to_owned(), 1));
        assert_eq!(merge(0, [counter("x"), gauge("x_total")]), (together.to_owned(), 1));
        let together = "x_total gauge, x_total{segment=\"0\"} 2, x_total{segment=\"1\"} 1";
        assert_eq!(merge(1, [gauge("x_total"), counter("x")]), (together.to_owned(), 1));
    }
}
