//! [`prometheus`](https://docs.rs/prometheus) with the local metrics of `prometheus-static-metric`,
//! like in TiKV: each thread counts locally, and adds its counts to the shared metric once a
//! second.
//!
//! A scrape misses the counts since then, and a thread that ends loses them.

use std::sync::LazyLock;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

use crate::counting::contender::{ByEnums, Contender, Handle, Observe};
use crate::counting::data::{BOUNDS, Kind, Route};
use crate::counting::version;

/// prometheus with local metrics.
pub struct PrometheusLocal;

impl Contender for PrometheusLocal {
    const KEY: &'static str = "prometheus-local";

    fn subject() -> String {
        format!("{} (local)", version::of("prometheus-static-metric"))
    }

    fn handle() -> Option<impl Handle> {
        Some(Local(&*local::COUNTER))
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(Local(&*local::ERRORS))
    }

    fn histogram() -> Option<impl Observe> {
        Some(Local(&*local::SECONDS))
    }
}

/// The macros make metrics for statics.
struct Local<T: 'static>(&'static T);

impl Handle for Local<local::Total> {
    fn inc(&self) {
        self.0.all.inc();
    }
}

impl ByEnums for Local<local::Errors> {
    fn inc(&self, kind: Kind, route: Route) {
        let kind = match kind {
            Kind::User => local::Kind::user,
            Kind::Internal => local::Kind::internal,
            Kind::Network => local::Kind::network,
        };
        let route = match route {
            Route::Users => local::Route::users,
            Route::User => local::Route::user,
            Route::Products => local::Route::products,
            Route::Product => local::Route::product,
            Route::Owner => local::Route::owner,
            Route::Purchase => local::Route::purchase,
        };
        self.0.get(kind).get(route).inc();
    }
}

impl Observe for Local<local::Seconds> {
    fn observe(&self, value: f64) {
        self.0.all.observe(value);
    }
}

static COUNTER: LazyLock<IntCounterVec> = LazyLock::new(|| counters(&["kind"]));
static ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| counters(&["kind", "route"]));
static SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    let options = HistogramOpts::new("http_request_seconds", "Time to answer.");
    HistogramVec::new(options.buckets(BOUNDS.to_vec()), &["kind"]).expect("a sound name")
});

fn counters(labels: &[&str]) -> IntCounterVec {
    let options = Opts::new("http_request_errors_total", "Errors of HTTP requests.");
    IntCounterVec::new(options, labels).expect("a sound name")
}

/// The types that the macros generate.
mod local {
    #![allow(
        clippy::all,
        missing_docs,
        non_camel_case_types,
        unreachable_pub,
        unused_imports,
        dead_code
    )]

    use std::sync::LazyLock;

    use prometheus::local::*;
    use prometheus::*;
    use prometheus_static_metric::{auto_flush_from, make_auto_flush_static_metric};

    make_auto_flush_static_metric! {
        pub label_enum Kind { user, internal, network }

        pub label_enum Route {
            users: "/api/v1/users",
            user: "/api/v1/users/:id",
            products: "/api/v1/products",
            product: "/api/v1/products/:id",
            owner: "/api/v1/products/:id/owner",
            purchase: "/api/v1/products/:id/purchase",
        }

        pub label_enum All { all }

        pub struct Total: LocalIntCounter {
            "kind" => All,
        }

        pub struct Errors: LocalIntCounter {
            "kind" => Kind,
            "route" => Route,
        }

        pub struct Seconds: LocalHistogram {
            "kind" => All,
        }
    }

    pub static COUNTER: LazyLock<Total> = LazyLock::new(|| auto_flush_from!(super::COUNTER, Total));
    pub static ERRORS: LazyLock<Errors> = LazyLock::new(|| auto_flush_from!(super::ERRORS, Errors));
    pub static SECONDS: LazyLock<Seconds> =
        LazyLock::new(|| auto_flush_from!(super::SECONDS, Seconds));
}
