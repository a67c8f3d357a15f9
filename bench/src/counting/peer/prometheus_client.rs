//! [`prometheus-client`](https://docs.rs/prometheus-client): series are found by a struct of labels
//! that owns its strings, so a user's name is copied for each call.

use std::any::Any;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};
use prometheus_client::registry::Registry;

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Characters, Contender, Filled, Handle, Observe, ObserveBy,
    Scrape,
};
use crate::counting::data::{self, BOUNDS, Digit, Keys};
use crate::counting::version;

/// prometheus-client.
pub struct PrometheusClient;

impl Contender for PrometheusClient {
    const KEY: &'static str = "prometheus-client";

    fn subject() -> String {
        version::of("prometheus-client")
    }

    fn handle() -> Option<impl Handle> {
        Some(Counter::<u64>::default())
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(Family::<Enums, Counter>::default())
    }

    fn filled_by_enums() -> Vec<Filled> {
        let errors = Counters::<Digits>::new("http_request_errors");
        let levels = Family::<Digits, Gauge>::default();
        let new: fn() -> Histogram = || Histogram::new(BOUNDS);
        let times = Family::<Digits, Histogram>::new_with_constructor(new);
        for (tens, ones, number) in Digit::pairs() {
            let labels = Digits { tens, ones };
            errors.family.get_or_create(&labels).inc_by(number.into());
            levels.get_or_create(&labels).set(number.into());
            times.get_or_create(&labels).observe(f64::from(number) / 10_000.0);
        }
        let (mut level, mut time) = (Registry::default(), Registry::default());
        level.register("level", "A level", levels);
        time.register("http_request_seconds", "Time to answer", times);
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", level),
            Filled::new("histograms", time),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::<Routes>::new("http_request_errors"))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::<Users>::new("http_request_errors"))
    }

    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        let mut registry = Registry::default();
        for name in names {
            let family = Family::<Users, Counter>::default();
            registry.register(*name, "Errors of HTTP requests", family.clone());
            for (kind, route, user) in keys.iter() {
                let labels = Users { kind: kind.into(), route, user: user.to_owned() };
                family.get_or_create(&labels).inc();
            }
        }
        Some(Box::new(registry))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(Counters::<Texts>::new("counters"))
    }

    fn histogram() -> Option<impl Observe> {
        Some(Histogram::new(BOUNDS))
    }

    fn histograms() -> Option<impl ObserveBy> {
        let new: fn() -> Histogram = || Histogram::new(BOUNDS);
        Some(Family::<Routes, Histogram>::new_with_constructor(new))
    }

    fn native_histogram() -> Option<impl Observe> {
        Some(Histogram::new_native(NativeHistogramConfig::new(1.1)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    User,
    Internal,
    Network,
}

/// Not derived, because the derived implementation writes the names of the variants unchanged.
impl EncodeLabelValue for Kind {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        encoder.write_str(match self {
            Kind::User => "user",
            Kind::Internal => "internal",
            Kind::Network => "network",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Route {
    Users,
    User,
    Products,
    Product,
    Owner,
    Purchase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Enums {
    kind: Kind,
    route: Route,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Digits {
    tens: Digit,
    ones: Digit,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Routes {
    kind: Kind,
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Users {
    kind: Kind,
    route: &'static str,
    user: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Texts {
    kind: String,
}

/// A family in its own registry.
struct Counters<L> {
    registry: Registry,
    family: Family<L, Counter>,
}

impl<L> Counters<L>
where
    L: Clone + fmt::Debug + Eq + std::hash::Hash + EncodeLabelSet + Send + Sync + 'static,
{
    fn new(name: &str) -> Self {
        let mut registry = Registry::default();
        let family = Family::default();
        registry.register(name, "Errors of HTTP requests", family.clone());
        Counters { registry, family }
    }
}

impl Handle for Counter<u64> {
    fn inc(&self) {
        self.inc();
    }
}

impl ByEnums for Family<Enums, Counter> {
    fn inc(&self, kind: data::Kind, route: data::Route) {
        self.get_or_create(&Enums { kind: kind.into(), route: route.into() }).inc();
    }
}

impl ByRoute for Counters<Routes> {
    fn inc(&self, kind: data::Kind, route: &'static str) {
        self.family.get_or_create(&Routes { kind: kind.into(), route }).inc();
    }
}

impl ByUser for Counters<Users> {
    fn inc(&self, kind: data::Kind, route: &'static str, user: &str) {
        let labels = Users { kind: kind.into(), route, user: user.to_owned() };
        self.family.get_or_create(&labels).inc();
    }
}

impl ByText for Counters<Texts> {
    fn inc(&self, text: &str) {
        self.family.get_or_create(&Texts { kind: text.to_owned() }).inc();
    }
}

impl Observe for Histogram {
    fn observe(&self, value: f64) {
        self.observe(value);
    }
}

impl ObserveBy for Family<Routes, Histogram> {
    fn observe(&self, kind: data::Kind, route: &'static str, value: f64) {
        self.get_or_create(&Routes { kind: kind.into(), route }).observe(value);
    }
}

impl<L: Send + Sync> Scrape for Counters<L> {
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
        text::encode(page, self).expect("a string takes the text");
        page.as_bytes()
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        let mut characters = Characters::new(writer);
        let encoded = text::encode(&mut characters, self);
        Some(characters.result().and(encoded.map_err(io::Error::other)))
    }
}

impl From<data::Kind> for Kind {
    fn from(kind: data::Kind) -> Kind {
        match kind {
            data::Kind::User => Kind::User,
            data::Kind::Internal => Kind::Internal,
            data::Kind::Network => Kind::Network,
        }
    }
}

impl From<data::Route> for Route {
    fn from(route: data::Route) -> Route {
        match route {
            data::Route::Users => Route::Users,
            data::Route::User => Route::User,
            data::Route::Products => Route::Products,
            data::Route::Product => Route::Product,
            data::Route::Owner => Route::Owner,
            data::Route::Purchase => Route::Purchase,
        }
    }
}
