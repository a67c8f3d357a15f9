//! The macros that count in the global registry.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use quipu::{LabelValue, Registry, counter, gauge, histogram, int_gauge, timed};

fn value(sample: &str, labels: &[(&str, &str)]) -> Option<f64> {
    Registry::global().value(sample, labels)
}

/// Returns the sum of the registration errors of a metric whose error contains a string.
fn errors(metric: &str, part: &str) -> f64 {
    let text = Registry::global().text();
    let start = format!("quipu_registration_errors_total{{metric=\"{metric}\",error=\"");
    let mut lines = text.lines().filter(|line| line.starts_with(&start) && line.contains(part));
    let line = lines.next().unwrap_or_else(|| panic!("no error of {metric} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[derive(LabelValue)]
enum Method {
    Get,
    Post,
}

#[test]
fn macros_with_one_name_count_in_one_metric() {
    for _ in 0..3 {
        counter!("shared", "Shared.").inc();
    }
    counter!("shared", "Shared.",).inc_by(2);
    assert_eq!(value("shared_total", &[]), Some(5.0));
    let shared = counter!("shared", "Shared.");
    assert_eq!(shared.get(), 5);
    const NAME: &str = "named_by_a_constant";
    gauge!(NAME, "A gauge.").set(1.5);
    assert_eq!(value(NAME, &[]), Some(1.5));
}

#[test]
fn labels_have_values_of_any_type() {
    let count = |method: Method, path: &String, ok: bool| {
        counter!(
            "requests", "Requests.", max_series = 100,
            "method" => method, "status" => 200_u16, "path" => path, "ok" => ok,
        )
        .inc();
        path.len()
    };
    count(Method::Get, &"/".to_owned(), true);
    count(Method::Get, &"/".to_owned(), true);
    count(Method::Post, &"/".to_owned(), false);
    let get = [("method", "get"), ("status", "200"), ("path", "/"), ("ok", "true")];
    assert_eq!(value("requests_total", &get), Some(2.0));
    let post = [("method", "post"), ("status", "200"), ("path", "/"), ("ok", "false")];
    assert_eq!(value("requests_total", &post), Some(1.0));
    // Another macro uses other types, and temporary values.
    let n = 100;
    let status = counter!(
        "requests", "Requests.", max_series = 100,
        "method" => "get", "status" => &format!("{}", n * 2), "path" => *"/", "ok" => "true",
    )
    .bind();
    status.inc();
    assert_eq!(value("requests_total", &get), Some(3.0));
}

fn count<T: LabelValue>(label: T) {
    counter!("generic", "Labels of a generic function.", "label" => label).inc();
}

#[test]
fn a_generic_function_counts_in_one_family() {
    count(true);
    count("x");
    count("true");
    count(Method::Get);
    assert_eq!(value("generic_total", &[("label", "true")]), Some(2.0));
    assert_eq!(value("generic_total", &[("label", "x")]), Some(1.0));
    assert_eq!(value("generic_total", &[("label", "get")]), Some(1.0));
}

#[test]
fn values_are_evaluated_once_and_borrowed() {
    let mut evaluated = 0;
    let owned = String::from("x");
    let mut next = || {
        evaluated += 1;
        evaluated
    };
    gauge!("evaluated", "Evaluations.", "times" => next(), "owned" => owned).set(1.0);
    assert_eq!(value("evaluated", &[("times", "1"), ("owned", &owned)]), Some(1.0));
    assert_eq!(evaluated, 1);
}

#[test]
fn temporary_values_live_as_long_as_the_kept_metric() {
    let kept = counter!("kept", "Kept.", "owned" => String::from("x"), "number" => 1 + 1);
    kept.inc();
    kept.inc();
    assert_eq!(value("kept_total", &[("owned", "x"), ("number", "2")]), Some(2.0));
}

#[test]
fn gauges_and_histograms_have_their_methods() {
    let running = || int_gauge!("running", "Running jobs.", "queue" => "mail");
    {
        let _guard = running().in_progress();
        assert_eq!(running().get(), Some(1));
    }
    running().sub(3);
    assert_eq!(value("running", &[("queue", "mail")]), Some(-3.0));
    gauge!("level", "A level.", "of" => "water").raise(2.5);
    gauge!("level", "A level.", "of" => "water").raise(1.0);
    assert_eq!(value("level", &[("of", "water")]), Some(2.5));
    histogram!("sizes", "Sizes.", unit = "bytes", buckets = [1.0, 10.0]).observe(5.0);
    assert_eq!(value("sizes_bytes_bucket", &[("le", "1.0")]), Some(0.0));
    assert_eq!(value("sizes_bytes_bucket", &[("le", "10.0")]), Some(1.0));
    let seconds = || histogram!("seconds", "Durations.", native = 3, exemplars, "of" => "a");
    assert_eq!(seconds().time(|| 42), 42);
    seconds().start_timer().stop();
    assert_eq!(seconds().count(), Some(2));
}

#[test]
fn a_failed_registration_is_shown_and_counts_elsewhere() {
    counter!("failed", "Counter.").inc();
    let mut gauge = None;
    for _ in 0..3 {
        let failed = gauge!("failed", "Gauge.");
        failed.inc();
        gauge = Some(failed);
    }
    assert_eq!(gauge.unwrap().get(), 3.0);
    gauge!("failed", "Gauge.", "label" => 1).inc();
    assert_eq!(value("failed_total", &[]), Some(1.0));
    assert_eq!(value("failed", &[]), None);
    assert!(errors("failed", "") >= 1.0, "{}", Registry::global().text());

    for bounds in [[2.0, 1.0], [3.0, 1.0]] {
        histogram!("unordered", "Unordered.", buckets = bounds).observe(1.0);
        histogram!("unordered", "Unordered.", buckets = bounds, "label" => true).observe(1.0);
    }
    assert_eq!(errors("unordered", ""), 2.0);
    counter!("swapped", "Swapped.", "a" => 1, "b" => 2).inc();
    counter!("swapped", "Swapped.", "b" => 2, "a" => 1).inc();
    assert_eq!(value("swapped_total", &[("a", "1"), ("b", "2")]), Some(1.0));
    assert_eq!(errors("swapped", ""), 1.0);
}

#[test]
fn threads_that_race_share_a_metric() {
    let count = || counter!("raced", "Raced.", "label" => 1).inc();
    let wrong = || gauge!("raced", "Raced.").inc();
    count();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                count();
                wrong();
            });
        }
    });
    assert_eq!(value("raced_total", &[("label", "1")]), Some(9.0));
    assert_eq!(errors("raced", ""), 1.0);
}

#[timed("job_seconds", "Duration of a job.", buckets = [60.0])]
fn job(fails: bool) -> Result<u32, std::num::ParseIntError> {
    let timer: u32 = if fails { "x".parse()? } else { 1 };
    if timer == 1 {
        return Ok(2);
    }
    Ok(timer)
}

struct Queue {
    name: String,
}

impl Queue {
    #[timed("take_seconds", "Duration of a take.", "queue" => self.name)]
    fn take(&mut self, item: String) -> String {
        self.name.push('!');
        item
    }

    #[timed("wait_seconds", "Duration of a wait.", native = 3, "queue" => name, "ok" => true)]
    async fn wait<'a>(&self, name: &'a str, done: impl Future<Output = ()> + Send) -> &'a str {
        done.await;
        name
    }
}

#[test]
fn timed_functions_observe_each_return() {
    assert_eq!(job(false), Ok(2));
    job(true).unwrap_err();
    assert_eq!(value("job_seconds_count", &[]), Some(2.0));
    let mut queue = Queue { name: "mail".to_owned() };
    assert_eq!(queue.take("x".to_owned()), "x");
    assert_eq!(value("take_seconds_count", &[("queue", "mail")]), Some(1.0));
}

#[test]
fn timed_futures_observe_when_they_are_ready_or_dropped() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let queue = Queue { name: "mail".to_owned() };
    let count = || value("wait_seconds_count", &[("queue", "a"), ("ok", "true")]);
    let mut context = Context::from_waker(Waker::noop());
    let mut future = Box::pin(is_send(queue.wait("a", std::future::pending())));
    assert_eq!(count(), None);
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_eq!(count(), Some(0.0));
    drop(future);
    assert_eq!(count(), Some(1.0));
    let future = pin!(queue.wait("a", std::future::ready(())));
    assert_eq!(future.poll(&mut context), Poll::Ready("a"));
    assert_eq!(count(), Some(2.0));
}
