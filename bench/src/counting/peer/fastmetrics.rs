//! [`fastmetrics`](https://docs.rs/fastmetrics): series are found by a struct of labels that owns
//! its strings, so a user's name is copied for each call.

use std::any::Any;
use std::hash::Hash;
use std::io::{self, Write};

use fastmetrics::derive::{EncodeLabelValue, LabelSet};
use fastmetrics::encoder::{EncodeLabelSet, EncodeLabelValue, LabelEncoder};
use fastmetrics::format::text::{self, TextProfile};
use fastmetrics::metrics::counter::Counter;
use fastmetrics::metrics::family::Family;
use fastmetrics::metrics::gauge::Gauge;
use fastmetrics::metrics::histogram::Histogram;
use fastmetrics::raw::LabelSetSchema;
use fastmetrics::registry::Registry;

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Characters, Contender, Filled, Handle, Observe, ObserveBy,
    Scrape,
};
use crate::counting::data::{self, BOUNDS, Digit, Keys};
use crate::counting::version;

/// fastmetrics.
pub struct Fastmetrics;

impl Contender for Fastmetrics {
    const KEY: &'static str = "fastmetrics";

    fn subject() -> String {
        version::of("fastmetrics")
    }

    fn handle() -> Option<impl Handle> {
        Some(Counter::<u64>::default())
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(Family::<Enums, Counter>::default())
    }

    fn filled_by_enums() -> Vec<Filled> {
        let errors = Counters::<Digits>::new("http_request_errors_total");
        let levels = Family::<Digits, Gauge>::default();
        let times = Family::<Digits, Histogram>::new(|| Histogram::new(BOUNDS));
        for (tens, ones, number) in Digit::pairs() {
            let labels = Digits { tens, ones };
            errors.family.with_or_new(&labels, |counter| counter.inc_by(number.into()));
            levels.with_or_new(&labels, |gauge| gauge.set(number.into()));
            times.with_or_new(&labels, |times| times.observe(f64::from(number) / 10_000.0));
        }
        let (mut level, mut time) = (Registry::default(), Registry::default());
        level.register("level", "A level", levels).expect("a new registry");
        time.register("http_request_seconds", "Time to answer", times).expect("a new registry");
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", level),
            Filled::new("histograms", time),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::<Routes>::new("http_request_errors_total"))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::<Users>::new("http_request_errors_total"))
    }

    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        let mut registry = Registry::default();
        for name in names {
            let family = Family::<Users, Counter>::default();
            let registered = registry.register(*name, "Errors of HTTP requests", family.clone());
            registered.expect("a sound name that is new");
            for (kind, route, user) in keys.iter() {
                let labels = Users { kind: kind.into(), route, user: user.to_owned() };
                family.with_or_new(&labels, |counter| counter.inc());
            }
        }
        Some(Box::new(registry))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(Counters::<Texts>::new("counters_total"))
    }

    fn histogram() -> Option<impl Observe> {
        Some(Histogram::new(BOUNDS))
    }

    fn histograms() -> Option<impl ObserveBy> {
        Some(Family::<Routes, Histogram>::new(|| Histogram::new(BOUNDS)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    User,
    Internal,
    Network,
}

/// Not derived, because the derived implementation writes the names of the variants unchanged.
impl EncodeLabelValue for Kind {
    fn encode(&self, encoder: &mut dyn LabelEncoder) -> fastmetrics::error::Result<()> {
        encoder.encode_str_value(match self {
            Kind::User => "user",
            Kind::Internal => "internal",
            Kind::Network => "network",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Route {
    Users,
    User,
    Products,
    Product,
    Owner,
    Purchase,
}

#[derive(Clone, PartialEq, Eq, Hash, LabelSet)]
struct Enums {
    kind: Kind,
    route: Route,
}

#[derive(Clone, PartialEq, Eq, Hash, LabelSet)]
struct Digits {
    tens: Digit,
    ones: Digit,
}

#[derive(Clone, PartialEq, Eq, Hash, LabelSet)]
struct Routes {
    kind: Kind,
    route: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, LabelSet)]
struct Users {
    kind: Kind,
    route: &'static str,
    user: String,
}

#[derive(Clone, PartialEq, Eq, Hash, LabelSet)]
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
    L: Clone + Eq + Hash + EncodeLabelSet + LabelSetSchema + Send + Sync + 'static,
{
    fn new(name: &'static str) -> Self {
        let mut registry = Registry::default();
        let family = Family::default();
        let registered = registry.register(name, "Errors of HTTP requests", family.clone());
        registered.expect("a sound name in a new registry");
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
        let labels = Enums { kind: kind.into(), route: route.into() };
        self.with_or_new(&labels, |counter| counter.inc());
    }
}

impl ByRoute for Counters<Routes> {
    fn inc(&self, kind: data::Kind, route: &'static str) {
        let labels = Routes { kind: kind.into(), route };
        self.family.with_or_new(&labels, |counter| counter.inc());
    }
}

impl ByUser for Counters<Users> {
    fn inc(&self, kind: data::Kind, route: &'static str, user: &str) {
        let labels = Users { kind: kind.into(), route, user: user.to_owned() };
        self.family.with_or_new(&labels, |counter| counter.inc());
    }
}

impl ByText for Counters<Texts> {
    fn inc(&self, text: &str) {
        let labels = Texts { kind: text.to_owned() };
        self.family.with_or_new(&labels, |counter| counter.inc());
    }
}

impl Observe for Histogram {
    fn observe(&self, value: f64) {
        self.observe(value);
    }
}

impl ObserveBy for Family<Routes, Histogram> {
    fn observe(&self, kind: data::Kind, route: &'static str, value: f64) {
        let labels = Routes { kind: kind.into(), route };
        self.with_or_new(&labels, |histogram| histogram.observe(value));
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
        let encoded = text::encode(page, self, TextProfile::PrometheusV0_0_4);
        encoded.expect("a string takes the text");
        page.as_bytes()
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        let mut characters = Characters::new(writer);
        let encoded = text::encode(&mut characters, self, TextProfile::PrometheusV0_0_4);
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
