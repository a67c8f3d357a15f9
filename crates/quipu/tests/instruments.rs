//! Instruments and families: a scrape sees all updates.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use quipu::exposition::{Encoder, Escaping, Format};
use quipu::label::Values;
use quipu::snapshot::{
    CounterValue, FamilyHeader, Number, Series, Sink, Source, SummaryValue, Value,
};
use quipu::{
    Counter, CounterFamily, Description, FloatCounter, FloatCounterFamily, Gauge, GaugeFamily,
    Histogram, HistogramFamily, Info, IntGauge, IntGaugeFamily, LabelGroup, ProcessGaugeFamily,
    Registry, Summary, SummaryFamily, Window,
};

/// A sink that collects lines such as `name{label=value} value`.
#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let fixed = family.fixed(series.group).map(|(name, value)| format!("{name}={value}"));
        let dynamic = family.dynamic().zip(series.texts).map(|(name, v)| format!("{name}={v}"));
        let labels: Vec<_> = match series.overflow {
            true => vec!["overflow".to_owned()],
            false => fixed.chain(dynamic).collect(),
        };
        let number = |number: &Number| match number {
            Number::Unsigned(n) => n.to_string(),
            Number::Signed(n) => n.to_string(),
            Number::Float(n) => n.to_string(),
        };
        let value = match &series.value {
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                let exemplar = exemplar.map(|e| format!(" # {:?} {}", e.labels, e.value));
                format!("{}{}", number(total), exemplar.unwrap_or_default())
            }
            Value::Gauge(value) => number(value),
            Value::Histogram(h) => {
                let buckets: Vec<_> =
                    h.buckets.iter().map(|b| format!("{}:{}", b.bound, b.count)).collect();
                let native = h.native.map(|n| {
                    format!(
                        " schema {} zero {} {:?} {:?}",
                        n.schema, n.zero_count, n.positive, n.negative
                    )
                });
                let native = native.unwrap_or_default();
                format!("{} {} [{}]{native}", h.count, h.sum, buckets.join(" "))
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                format!("{count} {sum} {quantiles:?}")
            }
            Value::StateSet(states) => format!("{states:?}"),
            _ => "1".to_owned(),
        };
        self.0.push(format!("{}{{{}}} {value}", family.name, labels.join(",")));
    }
}

fn lines(registry: &Registry) -> Vec<String> {
    let mut lines = Lines::default();
    registry.visit(&mut lines).unwrap();
    lines.0
}

fn about(name: &str) -> Description {
    Description::new(name, "A help.")
}

#[test]
fn single_instruments_count() {
    let registry = Registry::new();
    let counter: Counter = registry.register(about("counter")).unwrap();
    let float: FloatCounter = registry.register(about("float")).unwrap();
    let gauge: Gauge = registry.register(about("gauge")).unwrap();
    let whole: IntGauge = registry.register(about("whole")).unwrap();
    assert_eq!(
        lines(&registry),
        ["counter{} 0", "float{} 0", "gauge{} 0", "whole{} 0"],
        "what is registered alone is shown at zero"
    );
    counter.inc();
    counter.inc_by(41);
    float.inc_by(0.25);
    float.inc_by(-1.0);
    float.inc_by(f64::NAN);
    gauge.set(3.5);
    gauge.add(-4.0);
    whole.set(7);
    {
        let _guard = whole.in_progress();
        assert_eq!(whole.get(), 8);
    }
    whole.sub(9);
    assert_eq!(lines(&registry), ["counter{} 42", "float{} 0.25", "gauge{} -0.5", "whole{} -2"]);
    assert_eq!((counter.get(), float.get(), gauge.get(), whole.get()), (42, 0.25, -0.5, -2));
}

#[test]
fn families_keep_label_sets_apart() {
    let registry = Registry::new();
    let names = |d: Description| d.labels(["a", "b"]);
    let counters: CounterFamily<[&str; 2]> = registry.register(names(about("c"))).unwrap();
    counters.inc(&["ab", "c"]);
    counters.inc_by(&["a", "bc"], 2);
    let handle = counters.bind(&["", ""]);
    assert_eq!(lines(&registry), ["c{a=ab,b=c} 1", "c{a=a,b=bc} 2", "c{a=,b=} 0"]);
    handle.inc();
    assert!(counters.remove(&["ab", "c"]).unwrap());
    assert!(!counters.remove(&["ab", "c"]).unwrap());
    assert_eq!(counters.retain(|pairs| pairs == [("a", ""), ("b", "")]).unwrap(), 1);
    assert_eq!(lines(&registry), ["c{a=,b=} 1"]);

    let gauges: GaugeFamily<[&str; 2]> = registry.register(names(about("g"))).unwrap();
    gauges.set(&["x", "y"], 0.0);
    let whole: IntGaugeFamily<[&str; 1]> =
        registry.register(about("w").labels(["kind"]).values("kind", ["up", "down"])).unwrap();
    whole.inc(&["up"]);
    whole.set(&["down"], 0);
    whole.inc(&["sideways"]);
    let floats: FloatCounterFamily<[&str; 1]> =
        registry.register(about("f").labels(["k"])).unwrap();
    floats.inc_by(&["k"], 0.5);
    assert_eq!(
        lines(&registry)[1..],
        [
            "g{a=x,b=y} 0",
            "w{kind=up} 1",
            "w{kind=down} 0",
            "w{overflow} 1",
            "f{k=k} 0.5",
            "quipu_series_overflowed{family=w} 1"
        ]
    );
}

#[test]
fn one_series_counts_all_updates_beyond_the_limit() {
    let registry = Registry::new();
    let counters: CounterFamily<[&str; 1]> =
        registry.register(about("c").labels(["k"]).max_series(3)).unwrap();
    for i in 0..1000 {
        counters.inc(&[&i.to_string()]);
    }
    counters.inc(&["1"]);
    assert_eq!(
        lines(&registry),
        [
            "c{overflow} 997",
            "c{k=0} 1",
            "c{k=1} 2",
            "c{k=2} 1",
            "quipu_series_overflowed{family=c} 997"
        ]
    );
}

#[test]
fn histograms_count_in_their_buckets() {
    let registry = Registry::new();
    let histogram: Histogram = registry.register(about("h").buckets([1.0, 2.0, 4.0])).unwrap();
    for value in [0.5, 1.0, 1.5, 4.0, 4.1, f64::INFINITY] {
        histogram.observe(value);
    }
    assert_eq!(lines(&registry), ["h{} 6 inf [1:2 2:1 4:1 inf:2]"]);
    histogram.observe(f64::NAN);
    assert_eq!(histogram.count(), 7);
    assert!(histogram.sum().is_nan());

    let family: HistogramFamily<[&str; 1]> =
        registry.register(about("f").labels(["k"]).buckets([1.0])).unwrap();
    family.observe(&["a"], 0.5);
    family.observe(&["a"], 2.0);
    family.bind(&["b"]).time(|| ());
    let lines = lines(&registry);
    assert_eq!(lines[1], "f{k=a} 2 2.5 [1:1 inf:1]");
    assert!(lines[2].starts_with("f{k=b} 1 "), "{}", lines[2]);
    for wrong in [vec![1.0, 1.0], vec![2.0, 1.0], vec![f64::NAN]] {
        let result: Result<Histogram, _> = registry.register(about("w").buckets(wrong));
        assert!(result.unwrap_err().to_string().starts_with("metric \"w\": "));
    }
}

#[test]
fn native_histograms_find_the_bucket_and_widen() {
    let registry = Registry::new();
    let histogram: Histogram =
        registry.register(about("h").native(0).zero_threshold(0.001)).unwrap();
    for value in [0.0, 0.0005, 1.0, 1.5, 2.0, 3.0, -3.0] {
        histogram.observe(value);
    }
    let expected = "h{} 7 4.5005 [] schema 0 zero 2 [(0, 1), (1, 2), (2, 1)] [(2, 1)]";
    assert_eq!(lines(&registry), [expected]);

    let wide: HistogramFamily<[&str; 1]> =
        registry.register(about("w").labels(["k"]).native(8).native_buckets(20)).unwrap();
    let mut value = 1e-6;
    let mut count = 0;
    let mut sum = 0.0;
    while value < 1e6 {
        wide.observe(&["k"], value);
        (value, count, sum) = (value * 1.001, count + 1, sum + value);
    }
    struct Check(u64, f64);
    impl Sink for Check {
        fn family(&mut self, _: &FamilyHeader<'_>) {}
        fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
            if family.name != "w" || series.overflow {
                return;
            }
            let Value::Histogram(h) = series.value else { panic!() };
            let native = h.native.unwrap();
            assert_eq!(h.count, self.0);
            assert_eq!(native.positive.iter().map(|(_, c)| c).sum::<u64>(), self.0);
            assert!((h.sum - self.1).abs() < self.1 * 1e-9);
            assert!(native.positive.len() <= 20, "{}", native.positive.len());
            assert!(native.positive.is_sorted_by(|a, b| a.0 < b.0));
            assert_eq!(native.schema, -1, "40 octaves fit 20 buckets of 2 each");
        }
    }
    registry.visit(&mut Check(count, sum)).unwrap();
    let both: Histogram = registry.register(about("b").native(3).buckets([1.0])).unwrap();
    both.observe(0.5);
    both.observe(5.0);
    let last = lines(&registry).pop().unwrap();
    assert_eq!(last, "b{} 2 5.5 [1:1 inf:1] schema 3 zero 0 [(-8, 1), (19, 1)] []");
}

#[test]
fn many_threads_observe_and_nothing_is_lost() {
    let registry = Registry::new();
    let native: Histogram = registry.register(about("n").native(8).native_buckets(40)).unwrap();
    let classic: Histogram = registry.register(about("c").buckets([100.0, 1000.0])).unwrap();
    let keyed: HistogramFamily<[&str; 1]> =
        registry.register(about("k").labels(["k"]).native(5)).unwrap();
    let each = if cfg!(miri) { 30 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (native, classic, keyed) = (&native, &classic, &keyed);
            scope.spawn(move || {
                for i in 0..each {
                    let value = f64::from((i * 7 + thread) % 5000);
                    native.observe(value);
                    classic.observe(value);
                    keyed.observe(&[["a", "b"][(i % 2) as usize]], value);
                }
            });
        }
    });
    let total = u64::from(each) * 4;
    assert_eq!(native.count(), total);
    assert_eq!(classic.count(), total);
    assert_eq!(keyed.bind(&["a"]).count() + keyed.bind(&["b"]).count(), total);
    assert_eq!(native.sum(), classic.sum());
}

#[test]
fn summaries_show_quantiles_within_their_error() {
    let registry = Registry::new();
    let summary: Summary = registry
        .register(about("s").quantiles([0.0, 0.5, 0.9, 1.0]).window(Duration::from_secs(3600)))
        .unwrap();
    assert!(summary.quantiles().iter().all(|(_, value)| value.is_nan()));
    for i in 1..=1000 {
        summary.observe(f64::from(i));
    }
    for ((quantile, value), expected) in
        summary.quantiles().into_iter().zip([1.0, 500.0, 900.0, 1000.0])
    {
        assert!((value / expected - 1.0).abs() < 0.012, "{quantile}: {value}, not {expected}");
    }
    assert_eq!((summary.count(), summary.sum()), (1000, 500_500.0));
    let family: SummaryFamily<[&str; 1]> = registry.register(about("f").labels(["k"])).unwrap();
    family.observe(&["a"], -2.0);
    family.observe(&["a"], 0.0);
    family.observe(&["a"], -2.0);
    let quantiles = family.bind(&["a"]).quantiles();
    assert!((quantiles[0].1 / -2.0 - 1.0).abs() < 0.012);
    assert_eq!(quantiles[2].1, 0.0);
}

#[test]
fn exemplars_are_kept_and_replaced() {
    let registry = Registry::new();
    let counter: Counter = registry.register(about("c").exemplars()).unwrap();
    counter.inc_with_exemplar(1, &[("trace_id", "abc")]);
    counter.inc_with_exemplar(2, &[("trace_id", "de"), ("span", "f")]);
    let too_long = "x".repeat(129);
    counter.inc_with_exemplar(3, &[("t", &too_long)]);
    assert_eq!(
        lines(&registry),
        [r#"c{} 6 # ["trace_id", "de", "span", "f"] 2"#],
        "an exemplar that is too long is omitted"
    );
    let none: Counter = registry.register(about("none")).unwrap();
    none.inc_with_exemplar(1, &[("trace_id", "abc")]);
    assert_eq!(lines(&registry)[1], "none{} 1");
    let histogram: HistogramFamily<[&str; 1]> =
        registry.register(about("h").labels(["k"]).buckets([1.0]).exemplars()).unwrap();
    let bound = histogram.bind(&["a"]);
    bound.observe_with_exemplar(0.5, &[("id", "1")]);
    bound.observe_with_exemplar(7.0, &[("id", "2")]);
    struct Check(usize);
    impl Sink for Check {
        fn family(&mut self, _: &FamilyHeader<'_>) {}
        fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
            if family.name == "h" && !series.overflow {
                let Value::Histogram(h) = series.value else { panic!() };
                let values: Vec<_> =
                    h.buckets.iter().map(|b| b.exemplar.map(|e| e.value)).collect();
                assert_eq!(values, [Some(0.5), Some(7.0)]);
                self.0 += 1;
            }
        }
    }
    let mut check = Check(0);
    registry.visit(&mut check).unwrap();
    assert_eq!(check.0, 1);
}

/// If label values appear and disappear, this takes no more memory than the values that exist at
/// once. This includes the memory outside their cells. No data of removed series is shown.
#[test]
#[cfg(not(miri))]
fn side_allocations_of_removed_series_are_reused() {
    let registry = Registry::new();
    let native = about("n").labels(["k"]).native(3).native_buckets(20).exemplars();
    let native: HistogramFamily<[&str; 1]> = registry.register(native).unwrap();
    // The window is so long that no age ends during the test, because the next age would take more
    // tables.
    let summary = about("s").labels(["k"]).quantiles([0.5]).window(Duration::from_secs(1 << 26));
    let summary: SummaryFamily<[&str; 1]> = registry.register(summary).unwrap();
    let counter: CounterFamily<[&str; 1]> =
        registry.register(about("c").labels(["k"]).exemplars()).unwrap();
    let mut used = Vec::new();
    for round in 0..4 {
        let names: Vec<String> = (100 * round..100 * round + 100).map(|i| i.to_string()).collect();
        for name in &names {
            let labels = [name.as_str()];
            // A range wide enough for tables of several sizes and schemas.
            for power in -20..20 {
                native.observe(&labels, 1.1 * 2_f64.powi(power));
                summary.observe(&labels, 2_f64.powi(power));
            }
            native.bind(&labels).observe_with_exemplar(1.1, &[("id", name)]);
            counter.bind(&labels).inc_with_exemplar(1, &[("id", name)]);
        }
        for name in &names {
            let labels = [name.as_str()];
            assert!(native.remove(&labels).unwrap() && summary.remove(&labels).unwrap());
            assert!(counter.remove(&labels).unwrap());
        }
        // Records are reused after a second.
        std::thread::sleep(Duration::from_millis(1200));
        used.push(registry.segment().used());
    }
    assert!(used[1..].windows(2).any(|pair| pair[0] == pair[1]), "{used:?}");
    // A reused table starts with the finest schema again, and without data of other series.
    native.observe(&["a"], 1.0);
    native.observe(&["a"], 1.1);
    summary.observe(&["a"], 3.0);
    counter.inc(&["a"]);
    let lines = lines(&registry);
    assert_eq!(lines[0], "n{k=a} 2 2.1 [] schema 3 zero 0 [(0, 1), (2, 1)] []");
    assert!(lines[1].starts_with("s{k=a} 1 3 [(0.5, 2.9"), "{lines:?}");
    assert_eq!(lines[2], "c{k=a} 1");
}

#[test]
fn infos_windows_and_callbacks_are_shown() {
    let registry = Registry::new();
    let _info: Info = registry
        .register(about("build").values("version", ["1.2"]).values("os", ["linux"]))
        .unwrap();
    let window: Window = registry.register(about("recent")).unwrap();
    window.add(5);
    let scope = registry.prefix("app").label("zone", "x\"y");
    scope.gauge_fn(about("answer"), || 42.0).unwrap();
    let counter: Counter = scope.register(about("inner").unit("bytes")).unwrap();
    counter.inc_by(3);
    let family: CounterFamily<[&str; 1]> = scope.register(about("by_k").labels(["k"])).unwrap();
    family.inc(&["v"]);
    assert_eq!(
        lines(&registry),
        [
            "build{version=1.2,os=linux} 1",
            "app_inner_bytes{zone=x\"y} 3",
            "app_by_k{zone=x\"y,k=v} 1",
            "recent{} 5",
            "app_answer{zone=x\"y} 42",
        ]
    );
}

#[test]
fn wrong_registrations_name_the_metric_and_the_way_out() {
    let registry = Registry::new();
    let _first = registry.counter("twice", "").unwrap();
    let message = |result: Result<Counter, quipu::Error>| result.unwrap_err().to_string();
    let twice = registry.counter("twice", "").unwrap_err();
    assert!(twice.is_duplicate());
    assert_eq!(twice.metric(), Some("twice"));
    assert_eq!(
        message(registry.counter("requests_total", "")),
        "metric \"requests_total\": the name ends in \"_total\", which the formats add: \
         leave it out"
    );
    assert!(message(registry.counter("", "")).contains("the name is empty"));
    type One = CounterFamily<[&'static str; 1]>;
    let family = |labels: &[&str]| -> Result<One, quipu::Error> {
        registry.register(about("f").labels(labels.iter().copied()))
    };
    assert!(family(&["le"]).unwrap_err().to_string().contains("\"le\""));
    assert!(family(&["__x"]).unwrap_err().to_string().contains("__"));
    let twice: Result<CounterFamily<[&str; 2]>, _> =
        registry.register(about("f").labels(["a", "a"]));
    assert!(twice.unwrap_err().to_string().contains("twice"));
    assert!(family(&["a", "b"]).unwrap_err().to_string().contains("2 labels"));
    assert!(family(&[]).is_err());
    let values: Result<One, _> = registry.register(about("f").labels(["a"]).values("b", ["x"]));
    assert!(values.unwrap_err().to_string().contains("not one of its labels"));
    assert!(family(&["a"]).is_ok(), "what failed took no name");
}

#[test]
fn a_reopened_file_counts_on_and_refuses_other_kinds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    {
        let registry = Registry::open(&path).unwrap();
        registry.counter("c", "").unwrap().inc_by(3);
        let family: CounterFamily<[&str; 1]> = registry.register(about("f").labels(["k"])).unwrap();
        family.inc(&["a"]);
        let other = Registry::open(&path).unwrap();
        other.counter("c", "").unwrap().inc();
        let error = other.gauge("f", "").unwrap_err();
        assert!(error.is_mismatch(), "{error}");
    }
    let registry = Registry::open(&path).unwrap();
    assert_eq!(lines(&registry), ["c{} 4", "f{k=a} 1"]);
}

/// Two metrics of the same name with separate counts, like in Python's registries.
#[test]
fn a_family_apart_is_shown_by_its_source_alone() {
    type Texts = quipu::Family<Counter, quipu::label::Values<'static>>;
    let registry = Registry::new();
    let of = |label: &str| Description::new("requests", "Requests.").labels([label]);
    let named: Texts = registry.register(of("a")).unwrap();
    let one: Texts = registry.register(of("a").apart()).unwrap();
    let two: Texts = registry.register(of("b").apart()).unwrap();
    for (n, family) in [(1, &named), (2, &one), (3, &two)] {
        family.bind(&quipu::label::Values(&["x"])).inc_by(n);
    }
    assert_eq!(registry.text().matches("requests_total{").count(), 1, "{}", registry.text());
    assert!(registry.register::<Texts>(of("a")).unwrap_err().is_duplicate());
    let mut encoder = Encoder::new(Format::Text, Escaping::default());
    let sources = || [one.source().unwrap(), two.source().unwrap()];
    registry.visit_with(|name| name != "requests", sources(), &mut encoder).unwrap();
    let expected = "# HELP requests_total Requests.\n# TYPE requests_total counter\n\
                    requests_total{a=\"x\"} 2\nrequests_total{b=\"x\"} 3\n";
    assert_eq!(std::str::from_utf8(encoder.buffer()).unwrap(), expected);
    encoder.reset(Format::Text, Escaping::default());
    Source::visit(sources(), &mut encoder);
    assert_eq!(std::str::from_utf8(encoder.buffer()).unwrap(), expected);
}

/// Metrics that other programs send: the series of one name can carry different labels.
#[test]
fn variants_of_a_name_are_one_metric() {
    type Texts<I> = quipu::Family<I, quipu::label::Values<'static>>;
    let of = |labels: &[&str]| {
        Description::new("hits", "Hits.").labels(labels.iter().copied()).max_series(1).variant()
    };
    let labels = quipu::label::Values;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    for round in 1..=2_u64 {
        let registry = Registry::open(&path).unwrap();
        registry.counter("before", "").unwrap().inc();
        let page: Texts<Counter> = registry.register(of(&["page"])).unwrap();
        registry.counter("after", "").unwrap().inc();
        let user: Texts<Counter> = registry.register(of(&["page", "user"])).unwrap();
        let none: Texts<Counter> = registry.register(of(&[])).unwrap();
        page.inc(&labels(&["/"]));
        user.inc(&labels(&["/", "ada"]));
        none.inc(&labels(&[]));
        // The same description returns the same family, even while the first one exists.
        let again: Texts<Counter> = registry.register(of(&["page"])).unwrap();
        again.inc(&labels(&["/"]));
        // Beyond the limit, each variant counts in an overflow series.
        page.inc(&labels(&["/x"]));
        user.inc(&labels(&["/x", "bert"]));
        // These contradict the first variant: one of another type, and one with equal labels.
        let gauge: Texts<quipu::Gauge> = registry.register(of(&["other"])).unwrap();
        gauge.set(&labels(&["o"]), 7.0);
        let swapped: Texts<Counter> = registry.register(of(&["user", "page"])).unwrap();
        swapped.inc(&labels(&["ada", "/"]));
        assert_eq!(swapped.bind(&labels(&["ada", "/"])).get(), round);
        let text = registry.text();
        let expected = format!(
            "# TYPE before_total counter\nbefore_total {round}\n\
             # HELP hits_total Hits.\n# TYPE hits_total counter\n\
             hits_total{{quipu_overflow=\"page\"}} {round}\nhits_total{{page=\"/\"}} {twice}\n\
             hits_total{{quipu_overflow=\"page,user\"}} {round}\n\
             hits_total{{page=\"/\",user=\"ada\"}} {round}\nhits_total {round}\n\
             # TYPE after_total counter\n",
            twice = 2 * round
        );
        assert!(text.starts_with(&expected), "{text}");
        let overflowed =
            format!("quipu_series_overflowed_total{{family=\"hits\"}} {}\n", 2 * round);
        assert!(text.contains(&overflowed), "{text}");
        assert!(text.contains("quipu_variants_not_shown{family=\"hits\"} 2\n"), "{text}");
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        assert!(registry.visit_family("hits", &mut encoder).unwrap());
        let one = String::from_utf8(encoder.buffer().to_vec()).unwrap();
        assert_eq!(one.lines().count(), 7, "{one}");
    }
}

/// A metric that other programs send cannot hide a metric of the program, whichever was first.
#[test]
fn a_registered_name_precedes_its_variants() {
    type Texts<I> = quipu::Family<I, quipu::label::Values<'static>>;
    let labels = quipu::label::Values;
    let registry = Registry::new();
    let of = |names: &[&str]| Description::new("hits", "").labels(names.iter().copied());
    let gauge: Texts<quipu::Gauge> = registry.register(of(&["page"]).variant()).unwrap();
    gauge.set(&labels(&["/"]), 7.0);
    let same: Texts<Counter> = registry.register(of(&["page"]).variant()).unwrap();
    same.inc(&labels(&["/"]));
    let other: Texts<Counter> = registry.register(of(&["user"]).variant().striped(false)).unwrap();
    other.inc(&labels(&["ada"]));
    let again: Texts<Counter> = registry.register(of(&["user"]).variant()).unwrap();
    again.inc(&labels(&["ada"]));
    registry.text();
    let named: Texts<Counter> = registry.register(of(&["page"])).unwrap();
    named.inc_by(&labels(&["/"]), 5);
    let text = registry.text();
    let expected =
        "# TYPE hits_total counter\nhits_total{page=\"/\"} 5\nhits_total{user=\"ada\"} 2\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("quipu_variants_not_shown{family=\"hits\"} 2\n"), "{text}");
    // In protobuf, too, the variants are one metric.
    let mut encoder = Encoder::new(Format::Protobuf, Escaping::default());
    registry.visit(&mut encoder).unwrap();
    encoder.finish();
    let name = b"hits_total";
    let names = encoder.buffer().windows(name.len()).filter(|bytes| bytes == name).count();
    assert_eq!(names, 1);
}

#[test]
fn no_two_metrics_have_one_name_for_readers_without_utf8_names() {
    let registry = Registry::new();
    let register = |name: &str| registry.counter(name, "").map(|_| ());
    register("x y").unwrap();
    for name in ["x_y", "x.y"] {
        let error = register(name).unwrap_err();
        assert!(!error.is_duplicate(), "{error}");
        assert!(error.to_string().contains("\"x_y\": rename one"), "{error}");
    }
    assert!(register("x y").unwrap_err().is_duplicate());
    register("z_z").unwrap();
    assert!(register("z.z").is_err());
    let text = registry.text();
    assert_eq!(text.matches("x_y_total 0\n").count(), 1, "{text}");
    // A name that was refused is not taken, and one that is given back is free.
    assert!(!registry.unregister("x.y"));
    assert!(registry.unregister("x y") && registry.unregister("z_z"));
    register("x_y").unwrap();
    register("z.z").unwrap();
    assert!(register("x y").is_err() && register("z_z").is_err());
    assert_eq!(registry.text().matches("x_y_total 0\n").count(), 1);
}

#[test]
fn no_two_labels_have_one_name_for_readers_without_utf8_names() {
    let registry = Registry::new();
    let labels = Description::new("x", "").labels(["a b", "a_b"]);
    let error = registry.register::<CounterFamily<Values>>(labels).unwrap_err().to_string();
    assert!(error.contains("\"a b\" and \"a_b\""), "{error}");
    let labels = Description::new("x", "").labels(["quipu.overflow"]);
    assert!(registry.register::<CounterFamily<Values>>(labels).is_err());
}

#[test]
fn a_metric_has_further_handles_if_they_are_asked_for() {
    let registry = Registry::new();
    let description = || Description::new("hits", "Hits.").labels(["page"]);
    let first: CounterFamily<[&str; 1]> = registry.register_or_get(description()).unwrap();
    let second: CounterFamily<[&str; 1]> = registry.register_or_get(description()).unwrap();
    first.inc(&["/"]);
    second.inc(&["/"]);
    assert_eq!(first.get(&["/"]), Some(2));
    assert_eq!(registry.value("hits_total", &[("page", "/")]), Some(2.0));

    let other = registry.register_or_get::<Gauge>(Description::new("hits", "Hits."));
    assert!(other.unwrap_err().is_mismatch());
    let labels = Description::new("hits", "Hits.").labels(["path"]);
    assert!(
        registry.register_or_get::<CounterFamily<[&str; 1]>>(labels).unwrap_err().is_mismatch()
    );
    registry.scope().gauge_fn(Description::new("load", ""), || 1.0).unwrap();
    let computed = registry.register_or_get::<Gauge>(Description::new("load", ""));
    assert!(computed.unwrap_err().is_duplicate());
    // An unregistered metric is registered again.
    registry.unregister("hits");
    let third: CounterFamily<[&str; 1]> = registry.register_or_get(description()).unwrap();
    assert_eq!(third.get(&["/"]), Some(2));
    assert!(
        registry.register::<CounterFamily<[&str; 1]>>(description()).unwrap_err().is_duplicate()
    );
}

#[test]
fn values_are_read_without_making_series() {
    let registry = Registry::new();
    let new = |name: &str| Description::new(name, "").labels(["a"]);
    let counter: CounterFamily<[&str; 1]> = registry.register(new("counter")).unwrap();
    let float: FloatCounterFamily<[&str; 1]> = registry.register(new("float")).unwrap();
    let whole: IntGaugeFamily<[&str; 1]> = registry.register(new("whole")).unwrap();
    let own: ProcessGaugeFamily<[&str; 1]> = registry.register(new("own")).unwrap();
    let histogram: HistogramFamily<[&str; 1]> = registry.register(new("histogram")).unwrap();
    let summary: SummaryFamily<[&str; 1]> = registry.register(new("summary")).unwrap();
    let key = &["x"];
    let values = || {
        let counts = [counter.get(key), histogram.count(key), summary.count(key)];
        let numbers = [float.get(key), own.get(key), histogram.sum(key), summary.sum(key)];
        (counts, whole.get(key), numbers)
    };
    assert_eq!(values(), ([None; 3], None, [None; 4]));
    assert_eq!(registry.text().lines().filter(|line| !line.starts_with('#')).count(), 0);
    counter.inc(key);
    float.inc(key);
    whole.dec(key);
    own.set(key, 4.0);
    histogram.observe_duration(key, Duration::from_millis(500));
    summary.observe_duration(key, Duration::from_millis(250));
    let numbers = [Some(1.0), Some(4.0), Some(0.5), Some(0.25)];
    assert_eq!(values(), ([Some(1); 3], Some(-1), numbers));
}

#[test]
fn a_timer_observes_once() {
    let registry = Registry::new();
    let summary: Summary = registry.register(Description::new("summary", "")).unwrap();
    let histogram: Histogram = registry.register(Description::new("histogram", "")).unwrap();
    drop(summary.start_timer());
    summary.start_timer_owned().discard();
    assert!(histogram.start_timer_owned().stop() < std::time::Duration::from_secs(60));
    // A future that is never ready, and is dropped after its first poll.
    let mut never = Box::pin(histogram.time_future(std::future::pending::<()>()));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(never.as_mut().poll(context).is_pending());
    assert_eq!((summary.count(), histogram.count()), (1, 1));
    drop(never);
    assert_eq!(histogram.count(), 2);
    let gauge: Gauge = registry.register(Description::new("gauge", "")).unwrap();
    let guards = (gauge.in_progress(), gauge.in_progress_owned());
    assert_eq!(gauge.get(), 2.0);
    drop(guards);
    assert_eq!(gauge.get(), 0.0);
}

#[test]
fn addresses_are_label_values() {
    let registry = Registry::new();
    let hosts: CounterFamily<Host> = registry.register(Description::new("hosts", "")).unwrap();
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    for address in ["127.0.0.1", "::1", longest] {
        hosts.inc(&Host { address: address.parse().unwrap() });
        assert_eq!(registry.value("hosts_total", &[("address", address)]), Some(1.0));
    }
}

#[derive(LabelGroup)]
struct Host {
    address: std::net::IpAddr,
}
