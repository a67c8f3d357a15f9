//! Totals: which values add up, for every kind, on one server and on a cluster.

use std::time::Duration;

use quipu::{Aggregation, Description, Registry};
use quipu_store::{Kind, Metric, Spec, Store};

use crate::server::{Server, cluster};
use crate::{eventually, flush, machine, options, total};

fn values(metric: &dyn Metric) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    metric.for_each(&mut |labels, value| all.push((labels.join("|"), value))).unwrap();
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all
}

#[test]
fn two_machines_add_up() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let two = machine(options(&server.url()), &directory.path().join("two"));
    assert_ne!(one.instance(), two.instance());
    let spec = Spec::new("requests", Kind::Counter).labels(["code", "path"]).help("Requests.");
    let (a, b) = (one.metric(&spec).unwrap(), two.metric(&spec).unwrap());
    for _ in 0..1000 {
        a.add(&["200", "/x"], 1.0);
        b.add(&["200", "/x"], 2.0);
    }
    b.add(&["500", "a\"b\\c\nd}@e"], 0.1);
    b.add(&["500", "a\"b\\c\nd}@e"], 0.2);
    a.add(&["200"], 1.0);
    a.add(&["200", "/x"], -1.0);
    a.add(&["200", "/x"], f64::NAN);
    assert_eq!((one.dropped(), two.dropped()), (3, 0));
    // Reading a value does not create its series.
    assert_eq!((a.get(&["404", "/x"]), b.get(&["404", "/x"])), (None, None));
    flush(&one);
    flush(&two);
    let odd = "500|a\"b\\c\nd}@e".to_owned();
    let expected = vec![("200|/x".to_owned(), 3000.0), (odd, 0.1 + 0.2)];
    assert_eq!(values(&*a), expected);
    assert_eq!(values(&*b), expected);
    assert_eq!(a.get(&["200", "/x"]), Some(1000.0));
    let totals = Registry::new();
    totals.register_collector(one.totals()).unwrap();
    let text = totals.text();
    assert!(text.contains("# HELP requests_total Requests.\n"), "{text}");
    assert!(text.contains("requests_total{code=\"200\",path=\"/x\"} 3000\n"), "{text}");
    assert!(!text.contains("quipu_redis"), "{text}");
    eventually("the lag is small", || one.registry().text().contains("quipu_redis_lag_seconds 0"));
    let text = one.registry().text();
    assert!(text.contains("quipu_redis_errors_total{cause=\"timeout\"} 0"), "{text}");
}

#[test]
fn numbers_are_exact() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let big = one.registry().counter("big", "").unwrap();
    big.inc_by((1 << 53) + 1);
    let small = one.metric(&Spec::new("small", Kind::Counter)).unwrap();
    small.add(&[], 1.23e-45);
    let tenths = one.metric(&Spec::new("tenths", Kind::Counter)).unwrap();
    (0..10_000).for_each(|_| tenths.add(&[], 0.1));
    flush(&one);
    // Equal to the local sum in every bit. This sum depends on the CPUs that the thread ran on.
    let sum = tenths.get(&[]).unwrap();
    assert!((sum - 1000.0).abs() < 1e-6, "{sum}");
    assert_eq!(values(&*small), [(String::new(), 1.23e-45)]);
    assert_eq!(values(&*tenths), [(String::new(), sum)]);
    // Folding the values of a dead machine into the archive does not change them.
    let id = one.instance().to_owned();
    drop((big, small, tenths, one));
    let options = options(&server.url()).dead_after(Duration::from_millis(200));
    let two = machine(options, &directory.path().join("two"));
    eventually("it is folded", || {
        server.run(&format!("EXISTS {{quipu:tenths}}:{id}")).unwrap() == redis::Value::Int(0)
    });
    flush(&two);
    assert_eq!(total(&two, "small"), 1.23e-45);
    assert_eq!(total(&two, "tenths"), sum);
    let totals = Registry::new();
    totals.register_collector(two.totals()).unwrap();
    assert!(totals.text().contains("big_total 9007199254740993\n"), "{}", totals.text());
}

#[test]
fn histograms_and_gauges_of_two_machines_are_combined() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let two = machine(options(&server.url()), &directory.path().join("two"));
    for (store, value) in [(&one, 0.5), (&two, 3.0)] {
        // This way, the values that we set below get a later time than the values of the other
        // store.
        flush(store);
        let description = Description::new("took", "").buckets([1.0, 2.0]);
        let took: quipu::Histogram = store.registry().register(description).unwrap();
        took.observe(value);
        took.observe(0.25);
        for &aggregation in Aggregation::ALL {
            let spec = Spec::new(format!("g_{aggregation}"), Kind::Gauge).aggregation(aggregation);
            store.metric(&spec).unwrap().set(&[], value);
        }
        flush(store);
    }
    let value = |name: &str| {
        let spec = Spec::new(format!("g_{name}"), Kind::Gauge).aggregation(name.parse().unwrap());
        values(&*one.metric(&spec).unwrap()).iter().map(|(_, v)| *v).collect::<Vec<_>>()
    };
    for prefix in ["", "live"] {
        let value = |name: &str| value(&format!("{prefix}{name}"));
        assert_eq!(value("sum"), [3.5]);
        assert_eq!(value("min"), [0.5]);
        assert_eq!(value("max"), [3.0]);
        assert_eq!(value("mostrecent"), [3.0]);
        let mut all = value("all");
        all.sort_by(f64::total_cmp);
        assert_eq!(all, [0.5, 3.0]);
    }
    let totals = Registry::new();
    totals.register_collector(one.totals()).unwrap();
    let text = totals.text();
    for line in [
        "took_bucket{le=\"1\"} 3\n",
        "took_bucket{le=\"2\"} 3\n",
        "took_bucket{le=\"+Inf\"} 4\n",
        "took_sum 4\n",
        "took_count 4\n",
        "g_livesum 3.5\n",
    ] {
        assert!(text.contains(line), "{line} {text}");
    }
    assert!(text.contains(&format!("g_all{{instance_id=\"{}\"}} 0.5", one.instance())), "{text}");
}

#[test]
fn a_removed_series_stays_in_the_total() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let spec = Spec::new("jobs", Kind::Counter).labels(["name"]);
    let jobs = one.metric(&spec).unwrap();
    for round in 1..=5 {
        jobs.add(&["a"], 10.0);
        jobs.add(&["b"], 1.0);
        flush(&one);
        assert_eq!(values(&*jobs)[0], ("a".into(), f64::from(round) * 10.0));
        assert!(jobs.remove(&["a"]).unwrap());
        flush(&one);
    }
    let key = format!("HLEN {{quipu:jobs}}:{}", one.instance());
    // The two remaining fields: the number of the write, and `b`.
    eventually("fields of removed series go", || {
        flush(&one);
        server.run(&key).unwrap() == redis::Value::Int(2)
    });
    assert_eq!(values(&*jobs), [("a".into(), 50.0), ("b".into(), 5.0)]);
}

#[test]
fn a_restart_continues_as_the_same_instance() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let mut id = None;
    for round in 1..=3 {
        let one = machine(options(&server.url()), &path);
        let jobs = one.metric(&Spec::new("jobs", Kind::Counter)).unwrap();
        jobs.add(&[], 1.0);
        assert_eq!(id.get_or_insert(one.instance().to_owned()), one.instance());
        flush(&one);
        assert_eq!(total(&one, "jobs"), f64::from(round));
    }
}

#[test]
fn three_servers_of_a_cluster_count_together() {
    let servers = cluster();
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        quipu_store::redis::RedisOptions::cluster([servers[0].url()])
            .interval(Duration::from_millis(20))
            .dead_after(Duration::from_secs(2))
            .timeout(crate::PATIENCE)
    };
    let one = machine(options(), &directory.path().join("one"));
    let two = machine(options(), &directory.path().join("two"));
    for i in 0..40 {
        let spec = Spec::new(format!("metric_{i}"), Kind::Counter).labels(["n"]);
        let (a, b) = (one.metric(&spec).unwrap(), two.metric(&spec).unwrap());
        for n in 0..10 {
            a.add(&[&n.to_string()], 1.0);
            b.add(&[&n.to_string()], 0.5);
        }
    }
    flush(&one);
    flush(&two);
    let is_right = |store: &quipu_store::redis::RedisStore| {
        (0..40).all(|i| total(store, &format!("metric_{i}")) == 15.0)
    };
    assert!(is_right(&one));
    let used = servers.iter().filter(|s| s.run("DBSIZE").unwrap() != redis::Value::Int(0));
    assert_eq!(used.count(), 3);
    // A node loses everything.
    servers[1].run("FLUSHALL").unwrap();
    eventually("what was lost is written again", || {
        one.metric(&Spec::new("other", Kind::Counter)).unwrap().add(&[], 1.0);
        for i in 0..40 {
            let spec = Spec::new(format!("metric_{i}"), Kind::Counter).labels(["n"]);
            for store in [&one, &two] {
                store.metric(&spec).unwrap().add(&["0"], 0.0);
            }
        }
        let _ = one.flush(Duration::from_secs(1));
        let _ = two.flush(Duration::from_secs(1));
        is_right(&two)
    });
    // On a busy machine, an instance may have been folded before, and have returned.
    let folded = || {
        let text = two.registry().text();
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix("quipu_redis_instances_folded_total "));
        found.unwrap().parse::<u64>().unwrap()
    };
    let before = folded();
    drop(one);
    eventually("it is folded", || folded() > before);
    assert!(is_right(&two));
}

#[test]
fn thousands_of_series_and_observations_below_zero_are_flushed() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let many = one.metric(&Spec::new("many", Kind::Counter).labels(["n"])).unwrap();
    (0..40_000).for_each(|n| many.add(&[&n.to_string()], f64::from(n)));
    let below: quipu::Histogram =
        one.registry().register(Description::new("below", "").buckets([0.0])).unwrap();
    for _ in 0..3 {
        below.observe(-1.5);
        flush(&one);
    }
    assert_eq!(total(&one, "many"), 40_000.0 * 39_999.0 / 2.0);
    let below = one.totals().read_one("below").unwrap().unwrap();
    let sum = below.samples.iter().find(|part| part.part == "sum").unwrap();
    assert_eq!(sum.value, quipu::snapshot::Number::Float(-4.5));
}
