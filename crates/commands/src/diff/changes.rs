//! Computes the changes between two looks (readings of all series), for `quipu diff`.

use std::collections::{BTreeMap, HashMap, HashSet};

use quipu::snapshot::{Kind, Number};

use crate::filter::Filter;
use crate::look::{Look, Points, Series, Value, began_again, growth};

/// The changes, with the numbers of unchanged families and series.
#[derive(Debug, Default)]
pub(super) struct Changes<'l> {
    /// Sorted by name.
    pub(super) families: Vec<FamilyChange<'l>>,
    /// The seconds between the looks, if they are known.
    pub(super) seconds: Option<f64>,
    pub(super) same_families: usize,
    pub(super) same_series: usize,
}

/// A family with changes.
#[derive(Debug)]
pub(super) struct FamilyChange<'l> {
    pub(super) name: &'l str,
    pub(super) kind: Kind,
    pub(super) change: ChangeKind,
    /// Sorted by labels.
    pub(super) series: Vec<SeriesChange<'l>>,
    /// The growth of all series together.
    pub(super) growth: Option<f64>,
    /// The number of unchanged series.
    pub(super) same: usize,
}

/// A series that changed.
#[derive(Debug)]
pub(super) struct SeriesChange<'l> {
    pub(super) labels: &'l str,
    pub(super) change: ChangeKind,
    pub(super) before: Option<Value<Points<'l>>>,
    pub(super) after: Option<Value<Points<'l>>>,
    /// The growth of a sum. For a new series, this is the whole sum.
    pub(super) growth: Option<f64>,
    /// The difference of a value that can also decrease, if both looks contain the series.
    pub(super) delta: Option<f64>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    New,
    Gone,
    /// The series began again from zero.
    Reset,
    Changed,
}

impl ChangeKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Reset => "reset",
            Self::Changed => "changed",
        }
    }
}

/// The series of a family in both looks.
#[derive(Default)]
struct Both<'l> {
    before: Vec<Series<'l>>,
    after: Vec<Series<'l>>,
}

impl<'l> Changes<'l> {
    /// Compares the series of two looks that match the filter. If several series have the same name
    /// and labels, the first one counts.
    pub(super) fn between(
        before: &'l Look,
        after: &'l Look,
        seconds: Option<f64>,
        filter: &Filter,
    ) -> Self {
        let mut families: BTreeMap<&str, Vec<(Kind, Both<'_>)>> = BTreeMap::new();
        for (look, is_after) in [(before, false), (after, true)] {
            for series in look.series() {
                let family = &look.families()[series.family as usize];
                if !filter.matches(&family.name, series.labels) {
                    continue;
                }
                let variants = families.entry(&family.name).or_default();
                let at = variants.iter().position(|(kind, _)| *kind == family.kind).unwrap_or_else(
                    || {
                        variants.push((family.kind, Both::default()));
                        variants.len() - 1
                    },
                );
                let both = &mut variants[at].1;
                if is_after { &mut both.after } else { &mut both.before }.push(series);
            }
        }
        for variants in families.values_mut() {
            join(variants);
            variants.sort_by_key(|(kind, _)| kind.as_str());
        }
        let mut changes = Self { seconds, ..Self::default() };
        for (name, variants) in &families {
            if are_starts(name, &families) {
                continue;
            }
            for (kind, both) in variants {
                let family = FamilyChange::compare(name, *kind, both);
                changes.same_series += family.same;
                match family.series.is_empty() {
                    true => changes.same_families += 1,
                    false => changes.families.push(family),
                }
            }
        }
        changes
    }
}

/// Joins two types of a family, one from each look, if they can be the same family in two formats.
fn join(variants: &mut Vec<(Kind, Both<'_>)>) {
    let mut at = 0;
    while at < variants.len() {
        let (kind, both) = &variants[at];
        let other = variants.iter().position(|(other, more)| {
            both.after.is_empty() && more.before.is_empty() && common(*kind, *other).is_some()
        });
        let Some(other) = other else {
            at += 1;
            continue;
        };
        if let Some(kind) = common(*kind, variants[other].0) {
            variants[at].0 = kind;
        }
        variants[at].1.after = std::mem::take(&mut variants[other].1.after);
        variants.remove(other);
        at = 0;
    }
}

/// Returns the common type of a family that two formats show with different types. For example,
/// Prometheus' format shows an info or a state set as gauges, and OpenMetrics shows a counter
/// as unknown if its name does not end in `_total`.
fn common(one: Kind, other: Kind) -> Option<Kind> {
    match (one, other) {
        (Kind::Gauge, kind @ (Kind::Info | Kind::StateSet))
        | (kind @ (Kind::Info | Kind::StateSet), Kind::Gauge)
        | (Kind::Unknown, kind @ (Kind::Counter | Kind::Gauge | Kind::Info | Kind::StateSet))
        | (kind @ (Kind::Counter | Kind::Gauge | Kind::Info | Kind::StateSet), Kind::Unknown) => {
            Some(kind)
        }
        _ => None,
    }
}

/// Returns whether a family `x_created` contains the start times of a family `x`. Some clients
/// write it in Prometheus' format. In OpenMetrics, the times are part of `x`, so only `x` is
/// in both looks.
fn are_starts(name: &str, families: &BTreeMap<&str, Vec<(Kind, Both<'_>)>>) -> bool {
    let Some(base) = name.strip_suffix("_created") else { return false };
    let is_in_both = |name: &str| {
        families.get(name).is_some_and(|variants| {
            variants.iter().any(|(kind, both)| {
                matches!(kind, Kind::Counter | Kind::Histogram | Kind::Summary)
                    && !both.before.is_empty()
                    && !both.after.is_empty()
            })
        })
    };
    let is_in_one = |both: &Both<'_>| both.before.is_empty() || both.after.is_empty();
    families.get(name).is_some_and(|variants| {
        variants
            .iter()
            .all(|(kind, both)| matches!(kind, Kind::Gauge | Kind::Unknown) && is_in_one(both))
    }) && (is_in_both(base) || is_in_both(&format!("{base}_total")))
}

impl<'l> FamilyChange<'l> {
    /// Compares the series of a family in both looks.
    fn compare(name: &'l str, kind: Kind, both: &Both<'l>) -> Self {
        let change = match (both.before.is_empty(), both.after.is_empty()) {
            (true, _) => ChangeKind::New,
            (_, true) => ChangeKind::Gone,
            _ => ChangeKind::Changed,
        };
        let mut family = Self { name, kind, change, series: Vec::new(), growth: None, same: 0 };
        // Each series of the first look, and whether the second look contains it as well.
        let mut before: HashMap<&str, (&Series<'l>, bool)> = HashMap::new();
        for series in &both.before {
            before.entry(series.labels).or_insert((series, false));
        }
        let mut seen = HashSet::new();
        for series in both.after.iter().filter(|series| seen.insert(series.labels)) {
            let old = before.get_mut(series.labels).map(|(old, is_seen)| {
                *is_seen = true;
                *old
            });
            match SeriesChange::compare(kind, old, series) {
                Some(change) => family.add(change),
                None => family.same += 1,
            }
        }
        for series in &both.before {
            if let Some((old, false)) = before.remove(series.labels) {
                family.add(SeriesChange {
                    labels: old.labels,
                    change: ChangeKind::Gone,
                    before: Some(old.value),
                    after: None,
                    growth: None,
                    delta: None,
                });
            }
        }
        family.series.sort_by_key(|series| series.labels);
        family
    }

    fn add(&mut self, series: SeriesChange<'l>) {
        if let Some(growth) = series.growth {
            *self.growth.get_or_insert(0.0) += growth;
        }
        self.series.push(series);
    }
}

impl<'l> SeriesChange<'l> {
    /// Compares a series with the same series in the first look, if any. Returns `None` if it is
    /// unchanged.
    fn compare(kind: Kind, before: Option<&Series<'l>>, after: &Series<'l>) -> Option<Self> {
        let Some(before) = before else {
            return Some(Self {
                labels: after.labels,
                change: ChangeKind::New,
                before: None,
                after: Some(after.value),
                growth: count(kind, &after.value).map(Number::as_f64),
                delta: None,
            });
        };
        let is_new = began_again(before.start, after.start);
        if !is_new && is_same(&before.value, &after.value) {
            return None;
        }
        let counts = count(kind, &before.value).zip(count(kind, &after.value));
        let grown = counts.map(|(before, after)| growth(before, after, is_new));
        let delta = match (&before.value, &after.value) {
            (Value::Number(before), Value::Number(after)) if counts.is_none() => {
                Some(after.as_f64() - before.as_f64()).filter(|delta| !delta.is_nan())
            }
            _ => None,
        };
        Some(Self {
            labels: after.labels,
            change: if grown.is_some_and(|(_, is_reset)| is_reset) {
                ChangeKind::Reset
            } else {
                ChangeKind::Changed
            },
            before: Some(before.value),
            after: Some(after.value),
            growth: grown.map(|(growth, _)| growth),
            delta,
        })
    }
}

/// Returns the part of a value that only grows: a counter, or a number of observations.
fn count(kind: Kind, value: &Value<Points<'_>>) -> Option<Number> {
    match value {
        Value::Number(number) => (kind == Kind::Counter).then_some(*number),
        // The count can be unknown.
        Value::Histogram { count, .. } | Value::Summary { count, .. } => {
            (!count.is_nan()).then_some(Number::Float(*count))
        }
    }
}

/// Returns whether two values are equal; two NaNs count as equal. Buckets and quantiles are
/// compared only if both formats show them.
fn is_same(a: &Value<Points<'_>>, b: &Value<Points<'_>>) -> bool {
    let float = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
    let points = |a: &[(f64, f64)], b: &[(f64, f64)]| {
        let mut pairs = a.iter().zip(b);
        a.len() == b.len() && pairs.all(|(a, b)| float(a.0, b.0) && float(a.1, b.1))
    };
    match (*a, *b) {
        (Value::Number(Number::Unsigned(a)), Value::Number(Number::Unsigned(b))) => a == b,
        (Value::Number(a), Value::Number(b)) => float(a.as_f64(), b.as_f64()),
        (
            Value::Histogram { count, sum, buckets, is_exponential },
            Value::Histogram {
                count: other,
                sum: other_sum,
                buckets: others,
                is_exponential: is_other_exponential,
            },
        ) => {
            // Exponential buckets are comparable only within protobuf, because the text formats
            // show none of them, or only the bucket without a bound.
            let is_comparable =
                is_exponential == is_other_exponential && has_bounds(buckets) == has_bounds(others);
            let are_same = !is_comparable || points(buckets, others);
            float(count, other) && float(sum, other_sum) && are_same
        }
        (
            Value::Summary { count, sum, quantiles },
            Value::Summary { count: other, sum: other_sum, quantiles: others },
        ) => {
            let is_comparable = !quantiles.is_empty() && !others.is_empty();
            let are_same = !is_comparable || points(quantiles, others);
            float(count, other) && float(sum, other_sum) && are_same
        }
        _ => false,
    }
}

fn has_bounds(buckets: &[(f64, f64)]) -> bool {
    buckets.iter().any(|(bound, _)| bound.is_finite())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use quipu::exposition::{Escaping, Format};
    use quipu::label::Values;
    use quipu::{Counter, Description, Gauge, Histogram, Info, Registry, StateSet, Summary};

    use super::*;
    use crate::look::read_text;
    use quipu_client::Text;

    type InfoFamily<L> = quipu::Family<Info, L>;

    fn look(text: &str) -> Look {
        read_text(&Text::of_bytes(text.into())).unwrap()
    }

    fn between<'l>(before: &'l Look, after: &'l Look, seconds: Option<f64>) -> Changes<'l> {
        Changes::between(before, after, seconds, &Filter::default())
    }

    #[test]
    fn a_gauge_has_a_difference_and_a_filter_chooses_series() {
        let before = look("# TYPE level gauge\nlevel{x=\"1\"} 5\nlevel{x=\"2\"} 1\n");
        let after = look("# TYPE level gauge\nlevel{x=\"1\"} 3\nlevel{x=\"2\"} 8\n");
        let changes = between(&before, &after, None);
        let deltas: Vec<_> = changes.families[0].series.iter().map(|one| one.delta).collect();
        assert_eq!(deltas, [Some(-2.0), Some(7.0)]);
        let filter = Filter::parse("level -x=\"2\"");
        let changes = Changes::between(&before, &after, None, &filter);
        assert_eq!(changes.families[0].series.len(), 1);
        assert_eq!(changes.same_series, 0);
    }

    #[test]
    fn all_kinds_of_changes_are_found() {
        let before = look(
            "# TYPE a counter\na{x=\"1\"} 5\na{x=\"2\"} 7\na{x=\"3\"} 1\na{x=\"4\"} 9\n\
             # TYPE b gauge\nb NaN\n# TYPE gone gauge\ngone 1\n# TYPE t gauge\nt 1\n",
        );
        let after = look(
            "# TYPE a counter\na{x=\"5\"} 4\na{x=\"1\"} 8\na{x=\"2\"} 2\na{x=\"3\"} 1\n\
             # TYPE b gauge\nb NaN\n# TYPE t counter\nt 1\n# TYPE h histogram\n\
             h_bucket{le=\"+Inf\"} 3\nh_sum 1.5\nh_count 3\n",
        );
        let changes = between(&before, &after, Some(2.0));
        let families =
            changes.families.iter().map(|family| (family.name, family.change, family.growth));
        let expected = [
            ("a", ChangeKind::Changed, Some(9.0)),
            ("gone", ChangeKind::Gone, None),
            ("h", ChangeKind::New, Some(3.0)),
            // The type changed.
            ("t", ChangeKind::New, Some(1.0)),
            ("t", ChangeKind::Gone, None),
        ];
        assert_eq!(families.collect::<Vec<_>>(), expected);
        assert_eq!((changes.same_families, changes.same_series), (1, 2));
        let series = changes.families[0].series.iter();
        let series = series.map(|series| (series.labels, series.change, series.growth));
        let expected = [
            ("x=\"1\"", ChangeKind::Changed, Some(3.0)),
            ("x=\"2\"", ChangeKind::Reset, Some(2.0)),
            ("x=\"4\"", ChangeKind::Gone, None),
            ("x=\"5\"", ChangeKind::New, Some(4.0)),
        ];
        assert_eq!(series.collect::<Vec<_>>(), expected);
        assert!(between(&after, &after, None).families.is_empty());
    }

    #[test]
    fn a_family_is_the_same_in_all_formats() {
        let registry = Registry::new();
        let named = |name: &str| Description::new(name, "");
        registry.register::<Counter>(named("hits")).unwrap().inc_by(3);
        registry.register::<Gauge>(named("level")).unwrap().set(1.5);
        let build: InfoFamily<Values> =
            registry.register(named("build").labels(["version"])).unwrap();
        let _build = build.bind(&Values(&["1.2"]));
        let mode: StateSet<&str> = registry.register(named("mode").states(["on", "off"])).unwrap();
        mode.set_index(1);
        registry.register::<Histogram>(named("took").buckets([0.5])).unwrap().observe(0.25);
        registry.register::<Histogram>(named("native").native(5)).unwrap().observe(0.25);
        registry.register::<Summary>(named("size")).unwrap().observe(7.0);
        let shown = |format| {
            let mut bytes = Vec::new();
            registry.scrape().format(format, Escaping::default()).append_to(&mut bytes);
            bytes
        };
        let text = read_text(&Text::of_bytes(shown(Format::Text))).unwrap();
        let open = read_text(&Text::of_bytes(shown(Format::OpenMetrics))).unwrap();
        let binary = crate::look::read_protobuf(&shown(Format::Protobuf)).unwrap();
        let looks = [text, open, binary];
        for (before, after) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            let changes = between(&looks[before], &looks[after], None);
            assert!(changes.families.is_empty(), "{before} {after}: {:?}", changes.families);
            assert_eq!(changes.same_families, 7);
        }
    }

    #[test]
    fn start_times_in_one_format_are_not_a_family() {
        let text = "# TYPE a_total counter\na_total 5\n# TYPE a_created gauge\na_created 7\n\
                    # TYPE b counter\nb 1\n# TYPE c_created gauge\nc_created 1\n";
        let open = "# TYPE a counter\na_total 5\na_created 7\n# TYPE b unknown\nb 3\n# EOF\n";
        let (text, open) = (look(text), look(open));
        let changes = between(&text, &open, None);
        let families =
            changes.families.iter().map(|family| (family.name, family.kind, family.change));
        let expected = [
            ("b", Kind::Counter, ChangeKind::Changed),
            ("c_created", Kind::Gauge, ChangeKind::Gone),
        ];
        assert_eq!(families.collect::<Vec<_>>(), expected);
        assert_eq!(changes.families[0].growth, Some(2.0));
        assert_eq!(changes.same_families, 1);
    }
}
