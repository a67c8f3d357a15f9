//! [`metrics-lib`](https://docs.rs/metrics-lib), with the limit on series raised. For adding on
//! many threads, it recommends its sharded counter, which is a separate contender.

use metrics_lib::exporters::prometheus::render_into;
use metrics_lib::{Counter, Histogram, LabelSet, Registry, ShardedCounter};
use std::sync::Arc;

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Handle, Observe, ObserveBy, Scrape,
};
use crate::counting::data::{BOUNDS, Kind, Route};
use crate::counting::version;

/// metrics-lib.
pub struct MetricsLib;

impl Contender for MetricsLib {
    const KEY: &'static str = "metrics-lib";

    fn subject() -> String {
        version::of("metrics-lib")
    }

    fn handle() -> Option<impl Handle> {
        Some(registry().counter("http_request_errors_total"))
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(registry())
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(registry())
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(registry())
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(registry())
    }

    fn histogram() -> Option<impl Observe> {
        Some(registry().histogram("http_request_seconds"))
    }

    fn histograms() -> Option<impl ObserveBy> {
        Some(registry())
    }
}

/// metrics-lib's sharded counter.
pub struct MetricsLibSharded;

impl Contender for MetricsLibSharded {
    const KEY: &'static str = "metrics-lib-sharded";

    fn subject() -> String {
        format!("{} (sharded)", version::of("metrics-lib"))
    }

    fn handle() -> Option<impl Handle> {
        Some(registry().sharded_counter("http_request_errors_total"))
    }
}

fn registry() -> Registry {
    let registry = Registry::with_cardinality_cap(usize::MAX);
    let configured = registry.configure_histogram("http_request_seconds", BOUNDS);
    configured.expect("the bounds rise");
    registry
}

impl Handle for Arc<Counter> {
    fn inc(&self) {
        Counter::inc(self);
    }
}

impl Handle for Arc<ShardedCounter> {
    fn inc(&self) {
        ShardedCounter::inc(self);
    }
}

impl ByEnums for Registry {
    fn inc(&self, kind: Kind, route: Route) {
        ByRoute::inc(self, kind, route.text());
    }
}

impl ByRoute for Registry {
    fn inc(&self, kind: Kind, route: &'static str) {
        let labels = LabelSet::from([("kind", kind.text()), ("route", route)]);
        self.counter_with("http_request_errors_total", &labels).inc();
    }
}

impl ByUser for Registry {
    fn inc(&self, kind: Kind, route: &'static str, user: &str) {
        let mut labels = LabelSet::from([("kind", kind.text()), ("route", route)]);
        labels.add("user", user.to_owned());
        self.counter_with("http_request_errors_total", &labels).inc();
    }
}

impl ByText for Registry {
    fn inc(&self, text: &str) {
        let labels = LabelSet::new().with("kind", text.to_owned());
        self.counter_with("counters_total", &labels).inc();
    }
}

impl Observe for Arc<Histogram> {
    fn observe(&self, value: f64) {
        Histogram::observe(self, value);
    }
}

impl ObserveBy for Registry {
    fn observe(&self, kind: Kind, route: &'static str, value: f64) {
        let labels = LabelSet::from([("kind", kind.text()), ("route", route)]);
        self.histogram_with("http_request_seconds", &labels).observe(value);
    }
}

impl Scrape for Registry {
    type Page = String;

    fn scrape<'a>(&self, page: &'a mut String) -> &'a [u8] {
        page.clear();
        render_into(page, self);
        page.as_bytes()
    }
}
