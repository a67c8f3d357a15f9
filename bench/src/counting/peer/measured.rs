//! [`measured`](https://docs.rs/measured): labels as integers, the names of routes and users in
//! `lasso`'s interners, like its documentation recommends, hashed by `ahash` like in its
//! benchmarks. Its later benchmarks keep the names of users in an interner of `paracord`, so this
//! is a separate contender.

use std::any::Any;
use std::io::{self, Write};

use measured::label::StaticLabelSet;
use measured::lasso::{Rodeo, RodeoReader, Spur, ThreadedRodeo};
use measured::metric::histogram::Thresholds;
use measured::text::TextEncoder;
use measured::{
    Counter, CounterVec, FixedCardinalityLabel, GaugeVec, Histogram, HistogramVec, LabelGroup,
    MetricGroup,
};
use paracord::ParaCord;

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Filled, Handle, Observe, ObserveBy, Scrape,
};
use crate::counting::data::{self, BOUNDS, Digit, Keys};
use crate::counting::version;

/// measured.
pub struct Measured;

impl Contender for Measured {
    const KEY: &'static str = "measured";

    fn subject() -> String {
        version::of("measured")
    }

    fn handle() -> Option<impl Handle> {
        Some(Counter::new())
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(CounterVec::<EnumsSet>::new())
    }

    fn filled_by_enums() -> Vec<Filled> {
        let (errors, levels) = (DigitErrors::new(), DigitLevels::new());
        let times = DigitTimes::new(Thresholds::with_buckets(BOUNDS));
        for (tens, ones, number) in Digit::pairs() {
            let labels = Digits { tens, ones };
            errors.http_request_errors_total.inc_by(labels, number.into());
            levels.level.set(labels, number.into());
            times.http_request_seconds.observe(labels, f64::from(number) / 10_000.0);
        }
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", levels),
            Filled::new("histograms", times),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(ByRouteMetrics::new(RoutesSet::new(routes())))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        let labels = UsersSet { kind: StaticLabelSet::new(), route: routes(), user: texts() };
        Some(ByUserMetrics::new(labels))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(ByTextMetrics::new(TextsSet::new(texts())))
    }

    fn histogram() -> Option<impl Observe> {
        Some(Histogram::with_metadata(Thresholds::with_buckets(BOUNDS)))
    }

    fn histograms() -> Option<impl ObserveBy> {
        let thresholds = Thresholds::with_buckets(BOUNDS);
        Some(HistogramVec::with_label_set_and_metadata(RoutesSet::new(routes()), thresholds))
    }
}

/// measured with paracord.
pub struct MeasuredParacord;

impl Contender for MeasuredParacord {
    const KEY: &'static str = "measured-paracord";

    fn subject() -> String {
        format!("{} (paracord)", version::of("measured"))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        let user = ParaCord::default();
        let labels = CordUsersSet { kind: StaticLabelSet::new(), route: routes(), user };
        Some(ByCordUserMetrics::new(labels))
    }

    /// Without a registry, because a family is a field of a struct.
    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        let family = |_| {
            let user = ParaCord::default();
            let labels = CordUsersSet { kind: StaticLabelSet::new(), route: routes(), user };
            let family = CounterVec::with_label_set(labels);
            for (kind, route, user) in keys.iter() {
                family.inc(CordUsers { kind: kind.into(), route, user });
            }
            family
        };
        Some(Box::new(names.iter().map(family).collect::<Vec<_>>()))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(ByCordTextMetrics::new(CordTextsSet::new(ParaCord::default())))
    }
}

#[derive(Clone, Copy, FixedCardinalityLabel)]
enum Kind {
    User,
    Internal,
    Network,
}

#[derive(Clone, Copy, FixedCardinalityLabel)]
enum Route {
    Users,
    User,
    Products,
    Product,
    Owner,
    Purchase,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = EnumsSet)]
struct Enums {
    kind: Kind,
    route: Route,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = DigitsSet)]
struct Digits {
    tens: Digit,
    ones: Digit,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = RoutesSet)]
struct Routes<'a> {
    kind: Kind,
    #[label(fixed_with = RodeoReader<Spur, ahash::RandomState>)]
    route: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = UsersSet)]
struct Users<'a> {
    kind: Kind,
    #[label(fixed_with = RodeoReader<Spur, ahash::RandomState>)]
    route: &'a str,
    #[label(dynamic_with = ThreadedRodeo<Spur, ahash::RandomState>)]
    user: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = TextsSet)]
struct Texts<'a> {
    #[label(dynamic_with = ThreadedRodeo<Spur, ahash::RandomState>)]
    kind: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = CordUsersSet)]
struct CordUsers<'a> {
    kind: Kind,
    #[label(fixed_with = RodeoReader<Spur, ahash::RandomState>)]
    route: &'a str,
    #[label(dynamic_with = ParaCord)]
    user: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
#[label(set = CordTextsSet)]
struct CordTexts<'a> {
    #[label(dynamic_with = ParaCord)]
    kind: &'a str,
}

#[derive(MetricGroup)]
#[metric(new())]
struct DigitErrors {
    /// Errors of HTTP requests.
    http_request_errors_total: CounterVec<DigitsSet>,
}

#[derive(MetricGroup)]
#[metric(new())]
struct DigitLevels {
    /// A level.
    level: GaugeVec<DigitsSet>,
}

#[derive(MetricGroup)]
#[metric(new(thresholds: Thresholds<8>))]
struct DigitTimes {
    /// Time to answer.
    #[metric(metadata = thresholds)]
    http_request_seconds: HistogramVec<DigitsSet, 8>,
}

#[derive(MetricGroup)]
#[metric(new(labels: RoutesSet))]
struct ByRouteMetrics {
    /// Errors of HTTP requests.
    #[metric(label_set = labels)]
    http_request_errors_total: CounterVec<RoutesSet>,
}

#[derive(MetricGroup)]
#[metric(new(labels: UsersSet))]
struct ByUserMetrics {
    /// Errors of HTTP requests.
    #[metric(label_set = labels)]
    http_request_errors_total: CounterVec<UsersSet>,
}

#[derive(MetricGroup)]
#[metric(new(labels: TextsSet))]
struct ByTextMetrics {
    /// Things that were counted.
    #[metric(label_set = labels)]
    counters_total: CounterVec<TextsSet>,
}

#[derive(MetricGroup)]
#[metric(new(labels: CordUsersSet))]
struct ByCordUserMetrics {
    /// Errors of HTTP requests.
    #[metric(label_set = labels)]
    http_request_errors_total: CounterVec<CordUsersSet>,
}

#[derive(MetricGroup)]
#[metric(new(labels: CordTextsSet))]
struct ByCordTextMetrics {
    /// Things that were counted.
    #[metric(label_set = labels)]
    counters_total: CounterVec<CordTextsSet>,
}

fn routes() -> RodeoReader<Spur, ahash::RandomState> {
    let mut routes = Rodeo::with_hasher(ahash::RandomState::new());
    for route in data::routes() {
        routes.get_or_intern_static(route);
    }
    routes.into_reader()
}

fn texts() -> ThreadedRodeo<Spur, ahash::RandomState> {
    ThreadedRodeo::with_hasher(ahash::RandomState::new())
}

impl Handle for Counter {
    fn inc(&self) {
        self.inc();
    }
}

impl ByEnums for CounterVec<EnumsSet> {
    fn inc(&self, kind: data::Kind, route: data::Route) {
        self.inc(Enums { kind: kind.into(), route: route.into() });
    }
}

impl ByRoute for ByRouteMetrics {
    fn inc(&self, kind: data::Kind, route: &'static str) {
        self.http_request_errors_total.inc(Routes { kind: kind.into(), route });
    }
}

impl ByUser for ByUserMetrics {
    fn inc(&self, kind: data::Kind, route: &'static str, user: &str) {
        self.http_request_errors_total.inc(Users { kind: kind.into(), route, user });
    }
}

impl ByUser for ByCordUserMetrics {
    fn inc(&self, kind: data::Kind, route: &'static str, user: &str) {
        self.http_request_errors_total.inc(CordUsers { kind: kind.into(), route, user });
    }
}

impl ByText for ByTextMetrics {
    fn inc(&self, text: &str) {
        self.counters_total.inc(Texts { kind: text });
    }
}

impl ByText for ByCordTextMetrics {
    fn inc(&self, text: &str) {
        self.counters_total.inc(CordTexts { kind: text });
    }
}

impl Observe for Histogram<8> {
    fn observe(&self, value: f64) {
        self.observe(value);
    }
}

impl ObserveBy for HistogramVec<RoutesSet, 8> {
    fn observe(&self, kind: data::Kind, route: &'static str, value: f64) {
        self.observe(Routes { kind: kind.into(), route }, value);
    }
}

macro_rules! scrape {
    ($($metrics:ty)*) => {$(
        impl Scrape for $metrics {
            type Page = Vec<u8>;

            /// Into a vector that keeps its memory. `BufferedTextEncoder`, which its documentation
            /// shows, takes 161 ns for one of 18,000 series, and this takes 89 ns.
            fn scrape<'a>(&self, page: &'a mut Vec<u8>) -> &'a [u8] {
                page.clear();
                let mut encoder = TextEncoder::new(&mut *page);
                let collected = self.collect_group_into(&mut encoder);
                collected.and_then(|()| encoder.flush()).expect("a vector takes all bytes");
                page
            }

            fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
                let mut encoder = TextEncoder::new(writer);
                let collected = self.collect_group_into(&mut encoder);
                Some(collected.and_then(|()| encoder.flush()))
            }
        }
    )*};
}

scrape!(DigitErrors DigitLevels DigitTimes);
scrape!(ByRouteMetrics ByUserMetrics ByTextMetrics ByCordUserMetrics ByCordTextMetrics);

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
