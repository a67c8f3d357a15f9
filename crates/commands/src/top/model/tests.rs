//! Tests of the model of `quipu top`: rates, resets, gaps and recent observations.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::look::{Source, Target};

/// A model that is updated with expositions, a second apart.
struct Watch {
    file: tempfile::NamedTempFile,
    source: Source,
    model: Model,
    at: u64,
}

impl Watch {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = Source::new(Target::File(file.path().into()));
        Self { file, source, model: Model::default(), at: 0 }
    }

    fn look(&mut self, text: &str) {
        std::fs::write(self.file.path(), text).unwrap();
        self.model.update(&self.source.look().unwrap(), Duration::from_secs(self.at));
        self.at += 1;
    }

    fn row(&self, name: &str, labels: &str) -> Option<&Row> {
        let families = self.model.families();
        let number = families.iter().position(|family| family.name == name)?;
        self.model.find(number as u32, labels).map(|row| &self.model.rows()[row as usize])
    }

    fn rate(&self, name: &str, labels: &str) -> Option<f64> {
        self.row(name, labels).unwrap().rate
    }
}

#[test]
fn rates_are_growth_by_the_second_also_after_resets() {
    let mut watch = Watch::new();
    watch.look("# TYPE a counter\na{x=\"1\"} 10\na{x=\"2\"} 5\n# TYPE b gauge\nb 3\n");
    assert_eq!(watch.rate("a", "x=\"1\""), None);
    watch.look("# TYPE a counter\na{x=\"1\"} 30\na{x=\"2\"} 5\n# TYPE b gauge\nb 1\n");
    assert_eq!((watch.rate("a", "x=\"1\""), watch.rate("a", "x=\"2\"")), (Some(20.0), Some(0.0)));
    assert_eq!(watch.rate("b", ""), None);
    watch.look("# TYPE a counter\na{x=\"1\"} 4\n# TYPE b gauge\nb 7\n");
    let row = watch.row("a", "x=\"1\"").unwrap();
    assert_eq!((row.rate, row.resets, row.points()), (Some(4.0), 1, vec![20.0, 4.0]));
    assert_eq!(watch.row("b", "").unwrap().points(), [3.0, 1.0, 7.0]);
    // A missing series loses its row, and begins again when it returns.
    assert!(watch.row("a", "x=\"2\"").is_none());
    watch.look("# TYPE a counter\na{x=\"2\"} 500\n");
    assert_eq!((watch.rate("a", "x=\"2\""), watch.model.rows().len()), (None, 1));
}

#[test]
fn looks_without_a_point_are_gaps() {
    let mut watch = Watch::new();
    let look = |a: &str, b: &str| format!("# TYPE a summary\na_count {a}\n# TYPE b gauge\nb {b}\n");
    for (a, b) in [("1", "5"), ("2", "5"), ("3", "5"), ("NaN", "5"), ("9", "5"), ("12", "7")] {
        watch.look(&look(a, b));
    }
    let points = watch.row("a", "").unwrap().points();
    let is_gap: Vec<bool> = points.iter().map(|point| point.is_nan()).collect();
    // The first rate is unknown at the first look, and the fourth look cannot be compared with the
    // two before.
    assert_eq!(is_gap, [false, false, true, true, false], "{points:?}");
    assert_eq!(watch.row("b", "").unwrap().points(), [5.0, 5.0, 5.0, 5.0, 5.0, 7.0]);
    let trend = watch.model.trend(watch.model.number(&("a".into(), Kind::Summary)).unwrap());
    assert_eq!(trend.iter().map(|point| point.is_nan()).collect::<Vec<_>>(), is_gap);
    // A family that is missing in a look shows a gap there.
    watch.look("# TYPE b gauge\nb 7\n");
    watch.look("# TYPE a summary\na_count 15\n# TYPE b gauge\nb 7\n");
    watch.look("# TYPE a summary\na_count 18\n# TYPE b gauge\nb 7\n");
    let trend = watch.model.trend(watch.model.number(&("a".into(), Kind::Summary)).unwrap());
    assert_eq!((trend.len(), trend.last()), (8, Some(&3.0)), "{trend:?}");
}

#[test]
fn a_start_time_that_moves_is_a_reset() {
    let mut watch = Watch::new();
    let text = |value: u32, start: u32| {
        format!("# TYPE a counter\na_total {value}\na_created {start}\n# EOF\n")
    };
    watch.look(&text(10, 100));
    watch.look(&text(12, 100));
    assert_eq!(watch.rate("a_total", ""), Some(2.0));
    watch.look(&text(15, 101));
    let row = watch.row("a_total", "").unwrap();
    assert_eq!((row.rate, row.resets), (Some(15.0), 1));
}

#[test]
fn histograms_know_their_recent_observations() {
    let mut watch = Watch::new();
    let text = |one: u32, all: u32| {
        format!(
            "# TYPE h histogram\nh_bucket{{le=\"1\"}} {one}\nh_bucket{{le=\"+Inf\"}} {all}\n\
             h_sum 1\nh_count {all}\n"
        )
    };
    let latest = |watch: &Watch| {
        let RowValue::Histogram(buckets) = &watch.row("h", "").unwrap().value else { panic!() };
        let (counts, is_recent) = buckets.latest();
        (counts.map(|(_, count)| count).collect::<Vec<_>>(), is_recent)
    };
    watch.look(&text(3, 5));
    assert_eq!(latest(&watch), (vec![3.0, 2.0], false));
    watch.look(&text(4, 9));
    assert_eq!(latest(&watch), (vec![1.0, 3.0], true));
    assert_eq!(watch.rate("h", ""), Some(4.0));
    watch.look(&text(4, 9));
    assert_eq!(latest(&watch), (vec![4.0, 5.0], false));
    watch.look(&text(1, 2));
    assert_eq!((latest(&watch), watch.rate("h", "")), ((vec![1.0, 1.0], true), Some(2.0)));
}

#[test]
fn new_exponential_buckets_begin_empty() {
    let number = |look: &mut Look| {
        let (name, kind) = ("h".into(), Kind::Histogram);
        look.family(Family { name, kind, help: String::new(), unit: String::new() })
    };
    let mut model = Model::default();
    let mut look = |second: u64, labels: &[(&str, &str)], buckets: &[(f64, f64)]| {
        let mut look = Look::default();
        let number = number(&mut look);
        let count = buckets.iter().map(|(_, count)| count).sum();
        let value = Value::Histogram { count, sum: 1.0, buckets, is_exponential: true };
        look.add(number, labels.iter().copied(), None, value);
        model.update(&look, Duration::from_secs(second));
        let RowValue::Histogram(buckets) = &model.rows()[0].value else { panic!() };
        (**buckets).clone()
    };
    look(0, &[], &[(1.0, 0.0), (2.0, 5.0)]);
    // All observations of a bucket below and of a bucket above are new.
    let buckets = look(1, &[], &[(0.5, 0.0), (1.0, 3.0), (2.0, 6.0), (4.0, 7.0)]);
    assert_eq!(buckets.recent, [0.0, 3.0, 1.0, 7.0]);
    let rows = [(0.5, 0.0), (1.0, 3.0), (2.0, 6.0), (4.0, 7.0)];
    assert_eq!(buckets.now, rows);
    // The buckets become coarser, so the recent observations are unknown.
    let coarser = look(2, &[], &[(0.25, 0.0), (1.0, 4.0), (4.0, 14.0)]);
    assert_eq!((coarser.recent.len(), coarser.count), (0, 18.0));
    // Two series with different buckets can have common quantiles.
    let mut all = buckets;
    all.merge(&coarser);
    let sum = [(0.25, 0.0), (0.5, 0.0), (1.0, 7.0), (2.0, 6.0), (4.0, 21.0)];
    assert_eq!((&all.now[..], all.count), (&sum[..], 34.0));
    assert_eq!(all.recent, [0.0, 0.0, 3.0, 1.0, 7.0]);
}

#[test]
fn series_of_the_same_name_and_labels_count_once() {
    let mut look = Look::default();
    let text = |n: f64| Value::Number(Number::Float(n));
    let family =
        Family { name: "a".into(), kind: Kind::Gauge, help: String::new(), unit: String::new() };
    let number = look.family(family);
    look.add(number, [("x", "1")].into_iter(), None, text(1.0));
    look.add(number, [("x", "1")].into_iter(), None, text(2.0));
    let mut model = Model::default();
    model.update(&look, Duration::ZERO);
    model.update(&look, Duration::from_secs(1));
    assert_eq!((model.rows().len(), model.duplicates()), (1, 1));
    assert_eq!(model.rows()[0].total(), 1.0);
}

#[test]
fn families_without_series_are_dropped_beyond_a_bound() {
    let mut watch = Watch::new();
    for round in 0..3 {
        let mut text = String::from("# TYPE kept counter\nkept 1\n");
        for i in 0..MAX_EMPTY {
            text.push_str(&format!("n{round}_{i} 1\n"));
        }
        watch.look(&text);
    }
    assert!(watch.model.families().len() <= 2 * MAX_EMPTY + 2);
    assert_eq!(watch.rate("kept", ""), Some(0.0));
}
