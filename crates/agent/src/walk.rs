//! Passes the families of the page to a sink, in steps, because a large page would block the other
//! requests of a thread. A walk covers either the sources only, or the daemon and all sources.
//!
//! Each family is shown once: first the series of the daemon, with their current values, and then
//! the series of the sources. If two of them contain a series with the same name and labels (the
//! daemon and a source, or a target and a file), the first series is shown, and the other one is
//! omitted and counted.
//!
//! If the daemon registered a family after the merge, its name can conflict with families of
//! sources. This walk then shows the daemon's family, and omits the families of sources.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use quipu::Registry;
use quipu::exposition::ShownNames;
use quipu::snapshot::{self, FamilyHeader, Series, Sink, Value};
use quipu_segment::hash::SeededState;

use super::merged::{Filter, MergedFamilies, OwnFamily, Part};
use quipu_sources::labels::escaped;
use quipu_sources::recorded::Origin;
use quipu_sources::recorded::{Labels, RecordedFamily, Recorder, ShownMetadata, info};

/// A walk over the families of sources.
#[derive(Debug)]
pub(super) struct Walk {
    merged: Arc<MergedFamilies>,
    filter: Filter,
    name: usize,
    place: Place,
    /// The indices of the names that were already shown together with families of the daemon.
    done: HashSet<usize>,
    /// The names of families that the daemon registered after the merge.
    late: ShownNames,
}

/// The position of a walk within the families of a name.
#[derive(Debug, Default)]
struct Place {
    /// The index of the family in the shown group.
    part: usize,
    /// The index of the next series.
    series: usize,
    passed: PassedSeries,
}

/// The series that were already shown under the current name.
#[derive(Debug, Default)]
struct PassedSeries {
    hashes: HashSet<u64, SeededState>,
    /// The numbers of series omitted so far, under all names, from files and from targets.
    omitted: [usize; 2],
    /// The name and the source of the first omitted series.
    first: Option<(String, String)>,
}

impl Walk {
    /// Begins a walk.
    pub(super) fn over(merged: &Arc<MergedFamilies>, filter: Filter) -> Self {
        let (done, late) = (HashSet::new(), ShownNames::default());
        Self { merged: Arc::clone(merged), filter, name: 0, place: Place::default(), done, late }
    }

    /// Passes families to the sink until `is_full` returns true after a series or a family. Returns
    /// whether there are more.
    pub(super) fn step<S: Sink + ?Sized>(
        &mut self,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> bool {
        let mut looked_at = 0;
        while let Some(entry) = self.merged.names.get(self.name) {
            let is_free = || self.late.are_free(&entry.name, entry.groups[0].kind);
            looked_at += entry.groups.iter().map(|group| group.parts.len()).sum::<usize>();
            if !self.done.contains(&self.name) && is_free() {
                if self.pass(self.name, sink, &is_full) {
                    return true;
                }
                self.place.end();
            }
            self.name += 1;
            // Omitted families count too, because they take time.
            if looked_at > LOOKED_AT {
                return true;
            }
        }
        false
    }

    /// Passes the families of a name to the sink. Returns whether there are more series.
    fn pass<S: Sink + ?Sized>(
        &mut self,
        name: usize,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> bool {
        let Self { merged, filter, place: Place { part, series, passed }, .. } = self;
        let Some(entry) = merged.names.get(name) else { return false };
        let has = |part: &Part| {
            let snapshot = &merged.sources[part.source];
            filter.has_source(snapshot) && filter.has_family(&snapshot.families[part.family])
        };
        // If you select a single source, its family is shown even if it is omitted from the full
        // page.
        let mut groups = entry.groups.iter().filter(|group| group.is_shown || filter.is_part());
        let Some(group) = groups.find(|group| group.parts.iter().any(has)) else { return false };
        let is_mixed = group.may_repeat || entry.is_mixed && !filter.is_part();
        while let Some(one) = group.parts.get(*part) {
            if has(one) {
                let snapshot = &merged.sources[one.source];
                let shown = entry.shown(group, *one);
                let passed = is_mixed.then_some((&mut *passed, snapshot.origin, &*snapshot.name));
                let mut distinct = Distinct { sink: &mut *sink, passed };
                let is_full = |distinct: &Distinct<'_, S>| is_full(distinct.sink);
                let family = &snapshot.families[one.family];
                if let Some(next) =
                    family.pass(&snapshot.labels, shown, *series, &mut distinct, is_full)
                {
                    *series = next;
                    return true;
                }
            }
            (*part, *series) = (*part + 1, 0);
            if is_full(sink) {
                return true;
            }
        }
        false
    }
}

impl Place {
    /// Ends the current name.
    fn end(&mut self) {
        (self.part, self.series) = (0, 0);
        self.passed.hashes.clear();
    }
}

impl PassedSeries {
    /// Adds a series. Returns false for a duplicate.
    fn insert(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) -> bool {
        let hash = self.hashes.hasher().hash_one(identity(family, series));
        self.hashes.insert(hash)
    }
}

/// Returns the labels of a series, sorted and escaped for comparison. An empty value counts as a
/// missing label.
fn identity<'a>(family: &FamilyHeader<'a>, series: &Series<'a>) -> Vec<(Cow<'a, str>, &'a str)> {
    let all = series.labels(family).filter(|(_, value)| !value.is_empty());
    let mut labels: Vec<_> = all.map(|(name, value)| (escaped(name), value)).collect();
    labels.sort_unstable();
    labels
}

/// A sink that drops series which were already shown.
struct Distinct<'s, S: ?Sized> {
    sink: &'s mut S,
    /// The series shown so far, and the origin and name of the current source; `None` if duplicates
    /// are impossible.
    passed: Option<(&'s mut PassedSeries, Origin, &'s str)>,
}

impl<S: Sink + ?Sized> Sink for Distinct<'_, S> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.sink.family(family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if let Some((passed, origin, source)) = &mut self.passed
            && !passed.insert(family, series)
        {
            let of = usize::from(*origin == Origin::Target);
            passed.omitted[of] += 1;
            passed.first.get_or_insert_with(|| (family.name.to_owned(), (*source).to_owned()));
            return;
        }
        self.sink.series(family, series);
    }
}

/// A walk over the whole page.
#[derive(Debug)]
pub struct PageWalk {
    own: OwnFamilies,
    /// Whether the series of sources under the current family are next.
    is_joining: bool,
    current: CurrentFamily,
    walk: Walk,
}

/// How to show the current family of the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CurrentFamily {
    /// Unchanged.
    #[default]
    Alone,
    /// Unchanged, but sources may contain series under its name. The family has shown no series
    /// yet.
    Late,
    /// Together with the series of sources.
    Shared(OwnFamily),
}

/// The remaining families of the daemon.
#[derive(Debug)]
enum OwnFamilies {
    /// The families in its segment.
    InSegment(Box<snapshot::Walk>),
    /// Families from collectors, with the index of the current family, and of its next series.
    Collected(Vec<RecordedFamily>, usize, usize),
    Nothing,
}

impl PageWalk {
    /// Begins a walk over the families of a registry and of the sources. `names` selects families
    /// or samples; if it is empty, all are selected.
    ///
    /// # Errors
    /// Fails if the families of the registry are inconsistent.
    pub fn over(
        registry: &Registry,
        merged: &Arc<MergedFamilies>,
        names: &[String],
    ) -> Result<Self, quipu::Error> {
        let mut own = registry.walk()?;
        own.only((!names.is_empty()).then(|| names.into()));
        let filter = Filter { names: names.into(), ..Filter::default() };
        let walk = Walk::over(merged, filter);
        let (own, current) = (OwnFamilies::InSegment(Box::new(own)), CurrentFamily::default());
        Ok(Self { own, is_joining: false, current, walk })
    }

    /// Begins a walk over the families of sources only.
    pub fn of_sources(merged: &Arc<MergedFamilies>, filter: Filter) -> Self {
        let (own, current) = (OwnFamilies::Nothing, CurrentFamily::default());
        Self { own, is_joining: false, current, walk: Walk::over(merged, filter) }
    }

    /// Passes the families of the daemon to the sink, each followed by the series of sources under
    /// its name, until `is_full` returns true after a series or a family. Returns whether there are
    /// more.
    pub fn step_own<S: Sink>(&mut self, sink: &mut S, is_full: impl Fn(&S) -> bool) -> bool {
        loop {
            if self.is_joining
                && let CurrentFamily::Shared(own_family) = self.current
            {
                if self.walk.pass(own_family.name, sink, &is_full) {
                    return true;
                }
                self.walk.place.end();
                (self.is_joining, self.current) = (false, CurrentFamily::Alone);
            }
            let Self { own, is_joining, current, walk } = self;
            match own {
                // No copy is needed here, because there is no family of a source to join.
                OwnFamilies::InSegment(families) if walk.merged.names.is_empty() => {
                    let is_more = families.step(sink, is_full);
                    if !is_more {
                        *own = OwnFamilies::Nothing;
                    }
                    return is_more;
                }
                OwnFamilies::InSegment(families) => {
                    let mut shared = SharedFamilySink { sink, current, walk };
                    let is_more = families.families(
                        &mut shared,
                        |shared| is_full(shared.sink),
                        |shared, is_last| {
                            *is_joining = shared.is_shared() && is_last();
                            *is_joining
                        },
                    );
                    if !is_more {
                        // We copy these families, because they are few.
                        let mut recorder = Recorder::unchecked();
                        while families.step(&mut recorder, |_| false) {}
                        *own = OwnFamilies::Collected(recorder.finish().0, 0, 0);
                    }
                    if is_more && !*is_joining {
                        return true;
                    }
                }
                OwnFamilies::Collected(families, at, series) => {
                    let Some(family) = families.get(*at) else {
                        walk.place.end();
                        *own = OwnFamilies::Nothing;
                        return false;
                    };
                    let mut shared = SharedFamilySink { sink, current, walk };
                    let RecordedFamily { name, help, kind, bare, .. } = family;
                    let shown = ShownMetadata { name, help, kind: *kind, bare: *bare };
                    let is_full = |shared: &SharedFamilySink<'_, S>| is_full(shared.sink);
                    let next = family.pass(&Labels::new(), shown, *series, &mut shared, is_full);
                    if let Some(next) = next {
                        *series = next;
                        return true;
                    }
                    (*at, *series) = (*at + 1, 0);
                    let is_same = |next: &RecordedFamily| next.name == *name && next.bare == *bare;
                    *is_joining = !families.get(*at).is_some_and(is_same) && shared.is_shared();
                }
                OwnFamilies::Nothing => return false,
            }
        }
    }

    /// Passes the families that only sources contain to the sink. Call this after
    /// [`PageWalk::step_own`] has returned false. Returns whether there are more.
    pub fn step_rest<S: Sink + ?Sized>(
        &mut self,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> bool {
        let is_more = self.walk.step(sink, is_full);
        let Walk { merged, filter, place, .. } = &self.walk;
        if !is_more && filter.names.is_empty() && !filter.is_part() {
            merged.omitted.note(place.passed.omitted, place.passed.first.as_ref());
        }
        is_more
    }
}

/// A sink for families of the daemon. It shows them under the metadata that they share with
/// families of sources.
struct SharedFamilySink<'w, S: ?Sized> {
    sink: &'w mut S,
    current: &'w mut CurrentFamily,
    walk: &'w mut Walk,
}

impl<S: ?Sized> SharedFamilySink<'_, S> {
    /// Returns whether sources contain series under the current family.
    fn is_shared(&self) -> bool {
        let CurrentFamily::Shared(own_family) = *self.current else { return false };
        self.walk.merged.names[own_family.name].is_shared
    }
}

impl<S: Sink + ?Sized> Sink for SharedFamilySink<'_, S> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        let Walk { merged, place, done, .. } = &mut *self.walk;
        let current = match merged.may_share(family) {
            false => CurrentFamily::Alone,
            true => merged.own_family(family).map_or(CurrentFamily::Late, CurrentFamily::Shared),
        };
        if current != *self.current {
            place.end();
            *self.current = match current {
                // A repeated name is shown unchanged.
                CurrentFamily::Shared(own_family) if !done.insert(own_family.name) => {
                    CurrentFamily::Alone
                }
                current => current,
            };
        }
        match *self.current {
            CurrentFamily::Shared(own_family) => {
                self.sink.family(&merged.as_shown(own_family, family))
            }
            _ => self.sink.family(family),
        }
    }

    #[inline]
    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let Walk { merged, place, late, .. } = &mut *self.walk;
        let own_family = match *self.current {
            CurrentFamily::Alone => return self.sink.series(family, series),
            CurrentFamily::Late => {
                late.add(family.name, family.kind);
                *self.current = CurrentFamily::Alone;
                return self.sink.series(family, series);
            }
            CurrentFamily::Shared(own_family) => own_family,
        };
        let family = merged.as_shown(own_family, family);
        if merged.names[own_family.name].is_mixed {
            place.passed.insert(&family, series);
        }
        let mut series = *series;
        if let Value::Info = series.value {
            series.value = info(family.kind);
        }
        self.sink.series(&family, &series);
    }
}

/// The maximum number of families of sources to check in one step.
const LOOKED_AT: usize = 4096;

#[cfg(test)]
mod tests {
    use quipu::exposition::{Encoder, Escaping, Format};
    use quipu::{CounterFamily, Description, Gauge, GaugeFamily, Info};

    use super::super::merged::About;
    use super::*;
    use quipu_sources::recorded::SourceSnapshot;

    /// Creates the snapshot of a file, or of a target, with this number.
    fn snapshot(origin: Origin, number: u64, registry: &Registry) -> Arc<SourceSnapshot> {
        let mut recorder = Recorder::default();
        registry.visit(&mut recorder).unwrap();
        let (families, series) = recorder.finish();
        let name = format!("{number}");
        let label = |label: &str| (label.to_owned(), name.clone());
        let labels = match origin {
            Origin::File => vec![label("segment")],
            _ => vec![label("job"), label("instance")],
        };
        let path = Default::default();
        Arc::new(SourceSnapshot { origin, name, path, labels, families, series })
    }

    fn shown(
        own: &Registry,
        merged: &Arc<MergedFamilies>,
        names: &[&str],
        escaping: Escaping,
    ) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut all = PageWalk::over(own, merged, &names).unwrap();
        let mut encoder = Encoder::new(Format::Text, escaping);
        // A separate step for each series.
        while all.step_own(&mut encoder, |_| true) {}
        while all.step_rest(&mut encoder, |_| true) {}
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    }

    fn text(own: &Registry, merged: &Arc<MergedFamilies>) -> String {
        shown(own, merged, &[], Escaping::default())
    }

    fn conflicts(merged: &MergedFamilies) -> Vec<(&str, About)> {
        merged.conflicts.iter().map(|one| (&*one.name, one.about)).collect()
    }

    #[test]
    fn families_of_one_source_that_are_shown_alike_have_each_series_once() {
        let [own, file] = [(); 2].map(|()| Registry::new());
        let set = |name: &str, label: &str, text: &str, value: f64| {
            let about = Description::new(name, "").labels([label]).variant();
            let gauges: GaugeFamily<[&str; 1]> = file.register(about).unwrap();
            gauges.set(&[text], value);
        };
        set("x y", "a", "1", 1.0);
        set("x_y", "a", "1", 2.0);
        set("x_y", "a", "2", 3.0);
        // An empty value counts as a missing label.
        set("z", "a", "", 4.0);
        set("z", "b", "", 5.0);
        let expected = "# TYPE x_y gauge\nx_y{segment=\"1\",a=\"1\"} 1\n\
                        x_y{segment=\"1\",a=\"2\"} 3\n\
                        # TYPE z gauge\nz{segment=\"1\",a=\"\"} 4\n";
        let merged = Arc::new(MergedFamilies::merge(&own, vec![snapshot(Origin::File, 1, &file)]));
        assert_eq!(text(&own, &merged), expected);
        assert_eq!(merged.omitted.count(Origin::File), 2);
        let filter = Filter { source: Some("1".to_owned()), ..Filter::default() };
        let mut walk = Walk::over(&merged, filter);
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        while walk.step(&mut encoder, |_| true) {}
        assert_eq!(String::from_utf8_lossy(encoder.buffer()), expected);
    }

    #[test]
    fn series_of_the_daemon_come_first_and_are_shown_once() {
        let [own, file, target] = [(); 3].map(|()| Registry::new());
        let jobs = Description::new("jobs", "").labels(["job", "instance"]);
        let jobs: CounterFamily<[&str; 2]> = own.register(jobs).unwrap();
        jobs.inc_by(&["7", "7"], 1);
        jobs.inc_by(&["", "8"], 2);
        own.gauge("last", "Own.").unwrap().set(3.0);
        for (registry, n) in [(&file, 4), (&target, 5)] {
            registry.counter("jobs", "Jobs.").unwrap().inc_by(n);
            registry.gauge("alone", "").unwrap().set(6.0);
        }
        // A series that a target exposes too.
        let same = Description::new("alone", "").labels(["segment", "instance", "job"]);
        let other = Registry::new();
        let same: GaugeFamily<[&str; 3]> = other.register(same).unwrap();
        same.set(&["", "7", "7"], 9.0);
        let mut sources = vec![
            snapshot(Origin::Target, 7, &target),
            snapshot(Origin::Target, 8, &target),
            snapshot(Origin::File, 1, &file),
        ];
        let without_labels = snapshot(Origin::File, 2, &other);
        let without_labels = Arc::into_inner(without_labels).unwrap();
        sources.push(Arc::new(SourceSnapshot { labels: Vec::new(), ..without_labels }));
        let merged = Arc::new(MergedFamilies::merge(&own, sources));
        let jobs = "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
                    jobs_total{job=\"7\",instance=\"7\"} 1\njobs_total{job=\"\",instance=\"8\"} 2\n\
                    jobs_total{job=\"8\",instance=\"8\"} 5\njobs_total{segment=\"1\"} 4\n";
        let all = format!(
            "{jobs}# HELP last Own.\n# TYPE last gauge\nlast 3\n# TYPE alone gauge\n\
             alone{{job=\"7\",instance=\"7\"}} 6\nalone{{job=\"8\",instance=\"8\"}} 6\n\
             alone{{segment=\"1\"}} 6\n"
        );
        assert_eq!(text(&own, &merged), all);
        assert_eq!(
            [Origin::File, Origin::Target].map(|origin| merged.omitted.count(origin)),
            [1, 1]
        );
        assert_eq!(conflicts(&merged), []);
        assert_eq!(shown(&own, &merged, &["jobs_total"], Escaping::default()), jobs);
        assert!(shown(&own, &merged, &["alone"], Escaping::default()).starts_with("# TYPE alone"));
        assert_eq!(merged.omitted.count(Origin::Target), 1);
    }

    #[test]
    fn families_whose_names_or_types_collide_stay_readable() {
        let [own, file, target] = [(); 3].map(|()| Registry::new());
        own.gauge("a.b", "").unwrap().set(1.0);
        own.gauge("jobs", "").unwrap().set(2.0);
        own.counter("size", "").unwrap().inc();
        own.histogram("took", "").unwrap().observe(1.0);
        let count = Description::new("left_count", "").verbatim();
        own.register::<Gauge>(count).unwrap().set(3.0);
        own.register::<Info>(Description::new("build", "").values("v", ["1"])).unwrap();
        target.gauge("a_b", "").unwrap().set(4.0);
        target.counter("jobs", "").unwrap().inc();
        let build = Description::new("build_info", "").verbatim();
        target.register::<Gauge>(build).unwrap().set(1.0);
        target.histogram("left", "").unwrap().observe(1.0);
        file.gauge("size", "").unwrap().set(5.0);
        file.gauge("took", "").unwrap().set(6.0);
        let sources = vec![snapshot(Origin::Target, 1, &target), snapshot(Origin::File, 1, &file)];
        let merged = Arc::new(MergedFamilies::merge(&own, sources));
        let all = text(&own, &merged);
        let target = "{job=\"1\",instance=\"1\"}";
        for lines in [
            format!("# TYPE a_b gauge\na_b 1\na_b{target} 4\n"),
            "# TYPE jobs gauge\njobs 2\n# TYPE".to_owned(),
            format!("# TYPE jobs_total counter\njobs_total{target} 1\n"),
            "# TYPE size_total counter\nsize_total 1\n# TYPE".to_owned(),
            "# TYPE size gauge\nsize{segment=\"1\"} 5\n".to_owned(),
            format!("# TYPE build_info gauge\nbuild_info{{v=\"1\"}} 1\nbuild_info{target} 1\n"),
            "left_count 3\n".to_owned(),
        ] {
            assert!(all.contains(&lines), "no {lines} in {all}");
        }
        assert!(!all.contains("took{") && !all.contains("left_count{"), "{all}");
        assert_eq!(conflicts(&merged), [("left", About::Samples), ("took", About::Type)]);
        // The same for readers that accept any name.
        let utf8 = shown(&own, &merged, &[], Escaping::AllowUtf8);
        assert!(utf8.contains(&format!("# TYPE a_b gauge\na_b 1\na_b{target} 4\n")), "{utf8}");
    }

    #[test]
    fn a_family_that_the_daemon_gets_later_is_shown_alone_this_once() {
        let [own, target] = [(); 2].map(|()| Registry::new());
        target.counter("jobs", "").unwrap().inc();
        target.gauge("free", "").unwrap().set(1.0);
        let merge =
            || Arc::new(MergedFamilies::merge(&own, vec![snapshot(Origin::Target, 1, &target)]));
        // A family without series does not hide other families.
        let none = Description::new("free", "").labels(["a"]);
        let _: GaugeFamily<[&str; 1]> = own.register(none).unwrap();
        let before = merge();
        let total = Description::new("jobs_total", "").verbatim();
        own.register::<Gauge>(total).unwrap().set(2.0);
        let free = "# TYPE free gauge\nfree{job=\"1\",instance=\"1\"} 1\n";
        let jobs = "# TYPE jobs_total gauge\njobs_total 2\n";
        assert_eq!(text(&own, &before), format!("{jobs}{free}"));
        let joined = format!("{jobs}jobs_total{{job=\"1\",instance=\"1\"}} 1\n{free}");
        assert_eq!(text(&own, &merge()), joined);
        // The same applies to a family with a changed type.
        let other = Registry::new();
        let info = Description::new("jobs_total", "").values("v", ["1"]).verbatim();
        other.register::<Info>(info).unwrap();
        let info = "# TYPE jobs_total_info gauge\njobs_total_info{v=\"1\"} 1\n";
        assert_eq!(text(&other, &merge()), format!("{info}{free}"));
        // If the daemon no longer shows a family, the families of sources remain.
        let merged = merge();
        own.unregister("jobs_total");
        let alone =
            format!("{free}# TYPE jobs_total gauge\njobs_total{{job=\"1\",instance=\"1\"}} 1\n");
        assert_eq!(text(&own, &merged), alone);
    }
}
