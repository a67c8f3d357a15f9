//! Exemplars that other programs send: which of them are kept, where you can see them, and when
//! they are dropped.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use quipu::Registry;
use quipu::intake::{InputExemplar, InputValue, Metric, Mode};
use quipu::snapshot::{Exemplar, FamilyHeader, Series, Sink, Timestamp, Value};

use super::{intake, metric, open_metrics};

/// A second of Unix time, before now. We cannot use older times than 49 days, because they are not
/// kept.
static BEGIN: LazyLock<u64> =
    LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1000);

/// The exemplars in a snapshot, outside of values: name, labels, value, and seconds since `BEGIN`.
#[derive(Default)]
struct Seen(Vec<String>);

impl Sink for Seen {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let Some(Exemplar { labels, value, time, .. }) = series.exemplar else { return };
        assert!(matches!(series.value, Value::Gauge(_) | Value::Unknown(_)));
        let (name, time) = (family.name, time.unwrap().as_nanos() / 1_000_000_000 - *BEGIN);
        let texts = series.texts.chain(labels).filter(|text| !text.is_empty());
        let texts: Vec<&str> = texts.collect();
        self.0.push(format!("{name} {} {value} {time}", texts.join(",")));
    }
}

fn seen(registry: &Registry) -> Vec<String> {
    let mut seen = Seen::default();
    registry.visit(&mut seen).unwrap();
    seen.0
}

fn exemplar<'a>(labels: &'a [(&'a str, &'a str)], value: f64, second: u64) -> InputExemplar<'a> {
    let time = Some(Timestamp::from_secs(*BEGIN + second));
    InputExemplar { labels, value, time }
}

#[test]
fn exemplars_of_gauges_and_of_values_without_a_type_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let open = || Registry::open(&path).unwrap();
    let registry = open();
    let mut kept = intake(&registry);
    let with = |name| Metric { exemplars: true, ..metric(name) };
    let room = [("room", "a")];
    kept.take(with("level"), &room, &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
    kept.take(with("odd"), &[], &InputValue::Unknown(2.0), Mode::Set, None).unwrap();
    kept.take(metric("plain"), &[], &InputValue::Gauge(3.0), Mode::Set, None).unwrap();
    let summary = InputValue::Summary { quantiles: &[], count: 1.0, sum: 1.0 };
    kept.take(with("took"), &[], &summary, Mode::Follow, None).unwrap();
    let ada = [("user", "ada")];
    for (name, labels, exemplar, is_kept) in [
        ("level", &room[..], exemplar(&ada, 1.5, 50), true),
        // This exemplar is late.
        ("level", &room, exemplar(&[("user", "eve")], 9.0, 40), true),
        ("odd", &[], exemplar(&ada, f64::NAN, 60), true),
        // The family was made without room for exemplars, and summaries keep none.
        ("plain", &[], exemplar(&ada, 1.0, 60), false),
        ("took", &[], exemplar(&ada, 1.0, 60), false),
        ("level", &[("room", "b")], exemplar(&ada, 1.0, 60), false),
    ] {
        assert_eq!(kept.exemplify(name, labels, &exemplar).unwrap(), is_kept, "{name}");
    }
    let both = ["level a,user,ada 1.5 50", "odd user,ada NaN 60"];
    assert_eq!(seen(&registry), both);
    // Strict parsers refuse them in OpenMetrics.
    let text = open_metrics(&registry);
    assert!(!text.contains("ada"), "{text}");
    drop((kept, registry));
    let registry = open();
    assert_eq!(seen(&registry), both);
    // An exemplar without labels.
    let mut kept = intake(&registry);
    assert!(kept.exemplify("odd", &[], &exemplar(&[], f64::INFINITY, 61)).unwrap());
    assert_eq!(seen(&registry), [both[0], "odd  inf 61"]);
}

#[test]
fn a_new_series_has_no_exemplar_of_a_removed_one() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let level = Metric { exemplars: true, ..metric("level") };
    let mut used = 0;
    for round in 0..1000 {
        let value = format!("{round:04}");
        let pair = [("room", value.as_str())];
        intake.take(level, &pair, &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
        assert_eq!(seen(&registry), [""; 0]);
        assert!(intake.exemplify("level", &pair, &exemplar(&pair, 1.0, 9)).unwrap());
        assert_eq!(seen(&registry), [format!("level {value},room,{value} 1 9")]);
        assert_eq!(intake.remove("level", &pair).unwrap(), 1);
        // Records are reused some at a time.
        if round == 500 {
            used = registry.segment().used();
        }
    }
    assert_eq!(registry.segment().used(), used);
}

#[test]
fn exemplars_of_counters_may_have_no_labels_and_are_numbers() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let hits = Metric { exemplars: true, ..metric("hits_total") };
    intake.take(hits, &[], &InputValue::Counter(3.0), Mode::Follow, None).unwrap();
    assert!(!intake.exemplify("hits_total", &[], &exemplar(&[], f64::NAN, 9)).unwrap());
    assert!(intake.exemplify("hits_total", &[], &exemplar(&[], 2.0, 9)).unwrap());
    let text = open_metrics(&registry);
    assert!(text.contains(" # {} 2"), "{text}");
    assert_eq!(seen(&registry), [""; 0]);
}
