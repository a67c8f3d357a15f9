//! One bad family or series does not make a page unreadable: the encoder omits it, counts it, and
//! Prometheus' own parsers read the rest in every format.
#![allow(clippy::unwrap_used, reason = "a failed test prints the place")]

#[path = "judges/textparse.rs"]
mod textparse;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use quipu::exposition::{Encoder, Escaping, Format, Rule};
use quipu::snapshot::{
    Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Label, Native, Number,
    Series, Sink, SummaryValue, Texts, Timestamp, Value,
};
use quipu::{Description, Registry};
use textparse::textparse;

const FORMATS: [Format; 5] =
    [Format::Text, Format::TextUtf8, Format::OpenMetrics, Format::OpenMetrics2, Format::Protobuf];
const ESCAPINGS: [Escaping; 4] =
    [Escaping::Underscores, Escaping::Dots, Escaping::Values, Escaping::AllowUtf8];

const ONE: Value<'_> = Value::Gauge(Number::Unsigned(1));
const QUANTILES: Value<'_> = Value::Summary(SummaryValue::new(0, 0.0));
const NO_BUCKETS: HistogramValue<'_> = HistogramValue::new(2, 1.5);

fn total() -> Value<'static> {
    Value::counter(1)
}

fn family<'f>(name: &'f str, kind: Kind) -> FamilyHeader<'f> {
    FamilyHeader::new(kind, name, "")
}

fn put(encoder: &mut Encoder, family: &FamilyHeader<'_>, value: Value<'_>) {
    let mut texts = Vec::new();
    family.labels().iter().for_each(|_| Texts::push(&mut texts, "v"));
    encoder.family(family);
    encoder.series(family, &Series::new(Texts::new(&texts), value));
}

/// Writes a page with valid families before, between and after the given ones. Returns the broken
/// rules, after Prometheus' parser read the page.
fn broken(
    format: Format,
    escaping: Escaping,
    families: &[(FamilyHeader<'_>, Value<'_>)],
) -> Vec<Rule> {
    let mut encoder = Encoder::new(format, escaping);
    for (number, (family, value)) in families.iter().enumerate() {
        put(&mut encoder, &self::family(&format!("good{number}"), Kind::Gauge), ONE);
        put(&mut encoder, family, *value);
    }
    put(&mut encoder, &family("last", Kind::Gauge), ONE);
    let omissions = encoder.omissions();
    let rules: Vec<Rule> = omissions.families().map(|(_, rule)| rule).collect();
    assert_eq!(omissions.counts().map(|(_, count)| count).sum::<u64>(), rules.len() as u64);
    encoder.finish();
    let samples = textparse(&format.content_type(escaping), encoder.buffer());
    let has = |name: &str| samples.iter().any(|sample| sample["name"] == name);
    for number in 0..families.len() {
        assert!(has(&format!("good{number}")), "{format:?} {escaping:?} {samples:?}");
    }
    assert!(has("last"), "{format:?} {escaping:?} {samples:?}");
    let count = escaped("quipu_series_omitted", escaping);
    assert_eq!(has(&count), !rules.is_empty(), "{format:?} {escaping:?}");
    rules
}

fn escaped(name: &str, escaping: Escaping) -> String {
    let mut out = String::new();
    quipu::exposition::escape_name(name, escaping, &mut out);
    out
}

/// In all formats, with names that are escaped to underscores.
fn assert_broken(families: &[(FamilyHeader<'_>, Value<'_>)], expected: &[Rule]) {
    for format in FORMATS {
        let found = broken(format, Escaping::Underscores, families);
        assert_eq!(found, expected, "{format:?} {families:?}");
        ESCAPINGS.iter().for_each(|escaping| drop(broken(format, *escaping, families)));
    }
}

#[test]
fn a_family_without_a_name_is_omitted() {
    assert_broken(&[(family("", Kind::Counter), total())], &[Rule::Name]);
}

#[test]
fn a_name_is_shown_once() {
    let gauge = |name| (family(name, Kind::Gauge), ONE);
    let counter = |name| (family(name, Kind::Counter), total());
    let taken = [Rule::UniqueNames];
    assert_broken(&[gauge("x y"), gauge("x_y")], &taken);
    assert_broken(&[gauge("x"), counter("z"), gauge("x")], &taken);
    assert_broken(&[counter("x"), gauge("x_total")], &taken);
    assert_broken(&[gauge("x_sum"), (family("x", Kind::Summary), QUANTILES)], &taken);
    let histogram = (family("x", Kind::Histogram), Value::Histogram(NO_BUCKETS));
    assert_broken(&[histogram, gauge("x_bucket")], &taken);
    assert_broken(&[(family("x", Kind::Info), Value::Info), gauge("x_info")], &taken);
    // Names that differ in quotes are not the same.
    let both = [gauge("x y"), gauge("x_y")];
    assert_eq!(broken(Format::TextUtf8, Escaping::AllowUtf8, &both), []);
    // The name of a counter and of a gauge differ, except in the headers of OpenMetrics 1.0.
    let both = [gauge("x"), counter("x")];
    assert_eq!(broken(Format::Text, Escaping::default(), &both), []);
    assert_eq!(broken(Format::OpenMetrics, Escaping::default(), &both), taken);
}

#[test]
fn label_names_differ_and_are_not_reserved() {
    const SAME: &[Label<'_>] = &[Label::new("a b"), Label::new("a_b")];
    const EMPTY: &[Label<'_>] = &[Label::new("")];
    const NAME: &[Label<'_>] = &[Label::new("__name__")];
    const BOUND: &[Label<'_>] = &[Label::new("le")];
    const QUANTILE: &[Label<'_>] = &[Label::new("quantile")];
    const STATE: &[Label<'_>] = &[Label::new("x")];
    let of = |kind, labels| family("x", kind).with_labels(labels);
    let histogram = Value::Histogram(NO_BUCKETS);
    let states = Value::StateSet(&[("on", true)]);
    let broken_labels = [Rule::LabelNames];
    assert_broken(&[(of(Kind::Gauge, SAME), ONE)], &broken_labels);
    assert_broken(&[(of(Kind::Gauge, EMPTY), ONE)], &broken_labels);
    assert_broken(&[(of(Kind::Gauge, NAME), ONE)], &broken_labels);
    assert_broken(&[(of(Kind::Histogram, BOUND), histogram)], &broken_labels);
    assert_broken(&[(of(Kind::Summary, QUANTILE), QUANTILES)], &broken_labels);
    assert_broken(&[(of(Kind::StateSet, STATE), states)], &broken_labels);
    let fine = [(of(Kind::Gauge, BOUND), ONE)];
    assert_broken(&fine, &[]);
    assert_eq!(
        broken(Format::OpenMetrics2, Escaping::AllowUtf8, &[(of(Kind::Gauge, SAME), ONE)]),
        []
    );
}

#[test]
fn families_of_a_name_have_no_label_names_that_escaping_makes_the_same() {
    let mut encoder = Encoder::new(Format::Text, Escaping::Underscores);
    let labels = |name| [Label::new(name)];
    for name in ["a b", "c", "a_b", "a b"] {
        put(&mut encoder, &family("x", Kind::Gauge).with_labels(&labels(name)), ONE);
    }
    let text = String::from_utf8(encoder.buffer().to_vec()).unwrap();
    let expected = "# TYPE x gauge\nx{a_b=\"v\"} 1\nx{c=\"v\"} 1\nx{a_b=\"v\"} 1\n";
    assert_eq!(text, expected);
    assert_eq!(encoder.omissions().families().collect::<Vec<_>>(), [("x", Rule::LabelNames)]);
}

/// In OpenMetrics 1.0, `x_total` of two counters is one name, and the label `quipu_name`
/// distinguishes their series.
#[test]
fn no_series_has_the_label_that_a_second_counter_gets() {
    const NAMED: &[Label<'_>] = &[Label::new("quipu_name")];
    let first = family("x", Kind::Counter);
    let (named, second) = (first.with_labels(NAMED), first.bare(true));
    for families in [&[named, second][..], &[first, second, named]] {
        let mut encoder = Encoder::new(Format::OpenMetrics, Escaping::Underscores);
        families.iter().for_each(|family| put(&mut encoder, family, total()));
        let broken: Vec<_> = encoder.omissions().families().collect();
        assert_eq!(broken, [("x", Rule::LabelNames)], "{families:?}");
    }
}

#[test]
fn bounds_ascend_up_to_infinity() {
    let bucket = |bound| Bucket::new(bound, 1);
    let inf = f64::INFINITY;
    for bounds in [
        &[2.0, 1.0, inf][..],
        &[1.0, 1.0, inf],
        &[f64::NAN, inf],
        &[1.0, f64::NAN],
        &[1.0],
        &[inf, inf],
    ] {
        let buckets: Vec<_> = bounds.iter().copied().map(bucket).collect();
        let histogram = Value::Histogram(NO_BUCKETS.buckets(&buckets));
        assert_broken(&[(family("x", Kind::Histogram), histogram)], &[Rule::Buckets]);
    }
    let buckets = [bucket(f64::NEG_INFINITY), bucket(0.5), bucket(inf)];
    let histogram = Value::Histogram(NO_BUCKETS.buckets(&buckets));
    assert_broken(&[(family("x", Kind::Histogram), histogram)], &[]);
    // Neither classic nor exponential buckets: there is still one up to infinity.
    assert_broken(&[(family("x", Kind::Histogram), Value::Histogram(NO_BUCKETS))], &[]);
}

#[test]
fn a_family_has_its_header_if_the_first_series_is_omitted() {
    let bucket = |bound| Bucket::new(bound, 1);
    let (bad, good) = ([bucket(f64::NAN)], [bucket(f64::INFINITY)]);
    let of = |buckets| Value::Histogram(NO_BUCKETS.buckets(buckets));
    let family = |labels| family("h", Kind::Histogram).with_labels(labels);
    let labels = [Label::new("a")];
    for format in [Format::Text, Format::OpenMetrics, Format::OpenMetrics2] {
        let mut encoder = Encoder::new(format, Escaping::default());
        put(&mut encoder, &family(&[]), of(&bad));
        put(&mut encoder, &family(&labels), of(&good));
        let text = String::from_utf8_lossy(encoder.buffer()).into_owned();
        assert!(text.starts_with("# TYPE h histogram\nh"), "{text}");
        assert_eq!(text.matches("# TYPE").count(), 1, "{text}");
    }
}

#[test]
fn buckets_of_both_kinds_add_up_while_a_thread_observes() {
    let registry = Registry::new();
    let description = Description::new("h", "").native(3).buckets([0.5, 1.0]);
    let histogram: quipu::Histogram = registry.register(description).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u32.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                histogram.observe(f64::from(number % 100) / 50.0);
            }
        });
        for _ in 0..2000 {
            let scrape = registry.scrape().format(Format::Protobuf, Escaping::default());
            let mut page = Vec::new();
            scrape.append_to(&mut page);
            let omitted = b"quipu_series_omitted";
            if page.windows(omitted.len()).any(|bytes| bytes == omitted) {
                is_over.store(true, Ordering::Relaxed);
                panic!("the histogram is omitted");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn exponential_buckets_add_up() {
    let native = Native::new(0).zero(0.0, 1).positive(&[(1, 1)]);
    let good = NO_BUCKETS.native(native);
    let of = |native| NO_BUCKETS.native(native);
    let bad = [
        HistogramValue::new(3, 1.5).native(native),
        of(Native::new(9).zero(0.0, 1).positive(&[(1, 1)])),
        of(native.zero(f64::NAN, 1)),
        of(native.zero(f64::INFINITY, 1)),
        of(native.zero(0.0, 0).positive(&[(2, 1), (1, 1)])),
        of(native.zero(0.0, 0).positive(&[(1, 1), (1, 1)])),
        HistogramValue::new(u64::MAX, 1.5).native(native.zero(0.0, u64::MAX - 1)),
    ];
    let not_numbers = HistogramValue::new(3, f64::NAN).native(native);
    for format in [Format::OpenMetrics2, Format::Protobuf] {
        let broken = |histogram| {
            let family = family("x", Kind::Histogram);
            broken(format, Escaping::default(), &[(family, Value::Histogram(histogram))])
        };
        assert_eq!([broken(good), broken(not_numbers)], [[], []]);
        for histogram in bad {
            assert_eq!(broken(histogram), [Rule::Buckets], "{format:?} {histogram:?}");
        }
    }
}

#[test]
fn quantiles_ascend_from_0_to_1() {
    for quantiles in
        [&[(0.5, 1.0), (0.5, 1.0)][..], &[(f64::NAN, 1.0)], &[(1.5, 1.0)], &[(-0.5, 1.0)]]
    {
        let summary = Value::Summary(SummaryValue::new(1, 1.0).quantiles(quantiles));
        assert_broken(&[(family("x", Kind::Summary), summary)], &[Rule::Quantiles]);
    }
}

#[test]
fn a_unit_that_does_not_end_the_name_is_not_shown() {
    let bare = family("y_seconds_total", Kind::Counter).unit("seconds").bare(true);
    let families = [
        (bare, total()),
        (family("y", Kind::Gauge).unit("s"), ONE),
        (family("seconds", Kind::Gauge).unit("seconds"), ONE),
        (family("v_m/s", Kind::Gauge).unit("m/s"), ONE),
        (family("w_a\"b", Kind::Gauge).unit("a\"b"), ONE),
        (family("w_a\\", Kind::Gauge).unit("a\\"), ONE),
        (family("z_bytes", Kind::Info).unit("bytes"), Value::Info),
    ];
    assert_broken(&families, &[]);
    let unit = family("t_seconds", Kind::Counter).unit("seconds");
    for (format, line) in [
        (Format::OpenMetrics, "# UNIT t_seconds seconds\n"),
        (Format::OpenMetrics2, "# UNIT t_seconds_total seconds\n"),
    ] {
        let mut encoder = Encoder::new(format, Escaping::default());
        put(&mut encoder, &unit, total());
        assert!(String::from_utf8_lossy(encoder.buffer()).contains(line));
    }
}

#[test]
fn exemplar_labels_have_names_that_differ() {
    for texts in [&["", "v"][..], &["a b", "1", "a_b", "2"]] {
        let mut labels = Vec::new();
        texts.iter().for_each(|text| Texts::push(&mut labels, text));
        let (labels, time) = (Texts::new(&labels), Some(Timestamp::from_nanos(1_000_000_000)));
        let exemplar = Exemplar::new(labels, 1.0).time(time);
        let total = Value::Counter(CounterValue::new(Number::Unsigned(1)).exemplar(exemplar));
        assert_broken(&[(family("x", Kind::Counter), total)], &[]);
        let mut encoder = Encoder::new(Format::OpenMetrics, Escaping::Underscores);
        put(&mut encoder, &family("x", Kind::Counter), total);
        assert_eq!(encoder.buffer(), b"# TYPE x counter\nx_total 1\n");
    }
}

#[test]
fn omitted_series_are_counted_by_reason() {
    let mut encoder = Encoder::new(Format::Text, Escaping::default());
    put(&mut encoder, &family("x", Kind::Gauge), ONE);
    for name in ["x", "x", "x.", "x_"] {
        put(&mut encoder, &family(name, Kind::Unknown), Value::Unknown(Number::Unsigned(1)));
    }
    put(&mut encoder, &family("", Kind::Gauge), ONE);
    let names: Vec<_> = encoder.omissions().families().collect();
    let taken = Rule::UniqueNames;
    assert_eq!(names, [("x", taken), ("x_", taken), ("", Rule::Name)]);
    encoder.finish();
    let text = String::from_utf8(encoder.buffer().to_vec()).unwrap();
    let counts = "quipu_series_omitted{reason=\"empty_name\"} 1\n\
                  quipu_series_omitted{reason=\"name_taken\"} 3\n";
    assert!(text.ends_with(counts), "{text}");
    encoder.reset(Format::Text, Escaping::default());
    assert!(encoder.omissions().is_empty());
    encoder.finish();
    assert_eq!(encoder.buffer(), b"");
}
