//! [`prometheus`](https://docs.rs/prometheus), and its companion for labels of fixed cardinality,
//! which keeps a handle for each pair of enums.

use std::any::Any;
use std::io::{self, Write};

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Filled, Handle, Observe, ObserveBy, Scrape,
};
use crate::counting::data::{BOUNDS, Digit, Keys, Kind, Route};
use crate::counting::version;

/// prometheus.
pub struct Prometheus;

impl Contender for Prometheus {
    const KEY: &'static str = "prometheus";

    fn subject() -> String {
        version::of("prometheus")
    }

    fn handle() -> Option<impl Handle> {
        IntCounter::new("http_request_errors_total", HELP).ok()
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(Counters::new("http_request_errors_total", &["kind", "route"]))
    }

    fn filled_by_enums() -> Vec<Filled> {
        let labels = ["tens", "ones"];
        let errors = Counters::new("http_request_errors_total", &labels);
        let levels = IntGaugeVec::new(Opts::new("level", "A level."), &labels);
        let times = HistogramVec::new(seconds(), &labels);
        let (Ok(levels), Ok(times)) = (levels, times) else { return Vec::new() };
        for (tens, ones, number) in Digit::pairs() {
            let labels = [tens.text(), ones.text()];
            errors.family.with_label_values(&labels).inc_by(number.into());
            levels.with_label_values(&labels).set(number.into());
            times.with_label_values(&labels).observe(f64::from(number) / 10_000.0);
        }
        let (level, time) = (Registry::new(), Registry::new());
        level.register(Box::new(levels)).expect("the registry is new");
        time.register(Box::new(times)).expect("the registry is new");
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", level),
            Filled::new("histograms", time),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::new("http_request_errors_total", &["kind", "route"]))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::new("http_request_errors_total", &["kind", "route", "user"]))
    }

    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        let registry = Registry::new();
        for name in names {
            let labels = ["kind", "route", "user"];
            let family = IntCounterVec::new(Opts::new(*name, HELP), &labels).expect("a sound name");
            registry.register(Box::new(family.clone())).expect("the name is new");
            for (kind, route, user) in keys.iter() {
                family.with_label_values(&[kind.text(), route, user]).inc();
            }
        }
        Some(Box::new(registry))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(Counters::new("counters_total", &["kind"]))
    }

    fn histogram() -> Option<impl Observe> {
        Histogram::with_opts(seconds()).ok()
    }

    fn histograms() -> Option<impl ObserveBy> {
        HistogramVec::new(seconds(), &["kind", "route"]).ok()
    }
}

/// prometheus with prometheus-static-metric.
pub struct PrometheusStatic;

impl Contender for PrometheusStatic {
    const KEY: &'static str = "prometheus-static-metric";

    fn subject() -> String {
        version::of("prometheus-static-metric")
    }

    fn by_enums() -> Option<impl ByEnums> {
        let counters = Counters::new("http_request_errors_total", &["kind", "route"]);
        Some(fixed::Errors::from(&counters.family))
    }
}

const HELP: &str = "Errors of HTTP requests.";

/// A family in its own registry.
struct Counters {
    registry: Registry,
    family: IntCounterVec,
}

impl Counters {
    fn new(name: &str, labels: &[&str]) -> Counters {
        let family = IntCounterVec::new(Opts::new(name, HELP), labels).expect("a sound name");
        let registry = Registry::new();
        registry.register(Box::new(family.clone())).expect("the registry is new");
        Counters { registry, family }
    }
}

fn seconds() -> HistogramOpts {
    HistogramOpts::new("http_request_seconds", "Time to answer.").buckets(BOUNDS.to_vec())
}

impl Handle for IntCounter {
    fn inc(&self) {
        self.inc();
    }
}

impl ByEnums for Counters {
    fn inc(&self, kind: Kind, route: Route) {
        self.family.with_label_values(&[kind.text(), route.text()]).inc();
    }
}

impl ByRoute for Counters {
    fn inc(&self, kind: Kind, route: &'static str) {
        self.family.with_label_values(&[kind.text(), route]).inc();
    }
}

impl ByUser for Counters {
    fn inc(&self, kind: Kind, route: &'static str, user: &str) {
        self.family.with_label_values(&[kind.text(), route, user]).inc();
    }
}

impl ByText for Counters {
    fn inc(&self, text: &str) {
        self.family.with_label_values(&[text]).inc();
    }
}

impl Observe for Histogram {
    fn observe(&self, value: f64) {
        self.observe(value);
    }
}

impl ObserveBy for HistogramVec {
    fn observe(&self, kind: Kind, route: &'static str, value: f64) {
        self.with_label_values(&[kind.text(), route]).observe(value);
    }
}

impl Scrape for Counters {
    type Page = String;

    fn scrape<'a>(&self, page: &'a mut String) -> &'a [u8] {
        self.registry.scrape(page)
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        self.registry.stream(writer)
    }
}

impl Scrape for Registry {
    type Page = String;

    fn scrape<'a>(&self, page: &'a mut String) -> &'a [u8] {
        page.clear();
        let encoded = TextEncoder::new().encode_utf8(&self.gather(), page);
        encoded.expect("a string takes the text");
        page.as_bytes()
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        let encoded = TextEncoder::new().encode(&self.gather(), writer);
        Some(encoded.map_err(io::Error::other))
    }
}

/// The types that the macro generates.
mod fixed {
    #![allow(missing_docs, non_camel_case_types, unreachable_pub)]

    use prometheus_static_metric::make_static_metric;

    use crate::counting::data;

    make_static_metric! {
        pub label_enum Kind { user, internal, network }

        pub label_enum Route {
            users: "/api/v1/users",
            user: "/api/v1/users/:id",
            products: "/api/v1/products",
            product: "/api/v1/products/:id",
            owner: "/api/v1/products/:id/owner",
            purchase: "/api/v1/products/:id/purchase",
        }

        pub struct Errors: IntCounter {
            "kind" => Kind,
            "route" => Route,
        }
    }

    impl super::ByEnums for Errors {
        fn inc(&self, kind: data::Kind, route: data::Route) {
            let kind = match kind {
                data::Kind::User => Kind::user,
                data::Kind::Internal => Kind::internal,
                data::Kind::Network => Kind::network,
            };
            let route = match route {
                data::Route::Users => Route::users,
                data::Route::User => Route::user,
                data::Route::Products => Route::products,
                data::Route::Product => Route::product,
                data::Route::Owner => Route::owner,
                data::Route::Purchase => Route::purchase,
            };
            self.get(kind).get(route).inc();
        }
    }
}
