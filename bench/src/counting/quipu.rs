//! quipu itself: in private memory, and in a file that processes share.

use std::any::Any;
use std::io::{self, Write};
use std::path::Path;

use quipu::{
    Counter, CounterFamily, Description, GaugeFamily, Histogram, HistogramFamily, LabelGroup,
    LabelValue, Registry,
};

use quipu_segment::Segment;

use super::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Filled, Handle, Observe, ObserveBy, Scrape,
};
use super::data::{self, BOUNDS, Digit, Keys};

/// quipu.
pub struct Quipu;

impl Contender for Quipu {
    const KEY: &'static str = "quipu";

    fn subject() -> String {
        "quipu".into()
    }

    fn handle() -> Option<impl Handle> {
        Registry::new().register::<Counter>(errors()).ok()
    }

    fn by_enums() -> Option<impl ByEnums> {
        Registry::new().register::<CounterFamily<Enums>>(errors()).ok()
    }

    fn filled_by_enums() -> Vec<Filled> {
        let errors = Counters::<Digits>::new(Registry::new(), errors());
        let (levels, times) = (Registry::new(), Registry::new());
        let level = levels.register::<GaugeFamily<Digits>>(Description::new("level", "A level."));
        let time = times.register::<HistogramFamily<Digits>>(seconds().buckets(BOUNDS));
        let (Ok(level), Ok(time)) = (level, time) else { return Vec::new() };
        for (tens, ones, number) in Digit::pairs() {
            let labels = Digits { tens, ones };
            errors.family.inc_by(&labels, number.into());
            level.set(&labels, number.into());
            time.observe(&labels, f64::from(number) / 10_000.0);
        }
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", levels),
            Filled::new("histograms", times),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::<Routes>::new(Registry::new(), errors().values("route", data::routes())))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::<Users>::new(Registry::new(), errors().values("route", data::routes())))
    }

    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        Some(Box::new(families(Registry::new(), names, keys)))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        let description = Description::new("counters", "Things that were counted.");
        Some(Counters::<Texts>::new(Registry::new(), description))
    }

    fn histogram() -> Option<impl Observe> {
        Registry::new().register::<Histogram>(seconds().buckets(BOUNDS)).ok()
    }

    fn histograms() -> Option<impl ObserveBy> {
        let description = seconds().buckets(BOUNDS).values("route", data::routes());
        Registry::new().register::<HistogramFamily<Routes>>(description).ok()
    }

    fn native_histogram() -> Option<impl Observe> {
        Registry::new().register::<Histogram>(seconds().native(3)).ok()
    }
}

/// quipu in a file. All processes that open this file count in the same cells.
pub struct QuipuInFile;

impl Contender for QuipuInFile {
    const KEY: &'static str = "quipu-in-file";

    fn subject() -> String {
        "quipu (in a file)".into()
    }

    fn handle() -> Option<impl Handle> {
        in_file().register::<Counter>(errors()).ok()
    }

    fn by_enums() -> Option<impl ByEnums> {
        in_file().register::<CounterFamily<Enums>>(errors()).ok()
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::<Routes>::new(in_file(), errors().values("route", data::routes())))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::<Users>::new(in_file(), errors().values("route", data::routes())))
    }

    fn families(names: &[&'static str], keys: &Keys) -> Option<Box<dyn Any>> {
        Some(Box::new(families(in_file(), names, keys)))
    }

    fn histogram() -> Option<impl Observe> {
        in_file().register::<Histogram>(seconds().buckets(BOUNDS)).ok()
    }

    fn histograms() -> Option<impl ObserveBy> {
        let description = seconds().buckets(BOUNDS).values("route", data::routes());
        in_file().register::<HistogramFamily<Routes>>(description).ok()
    }

    fn native_histogram() -> Option<impl Observe> {
        in_file().register::<Histogram>(seconds().native(3)).ok()
    }
}

/// quipu in private memory of 4 GiB, because the default of 1 GiB is too little for ten million
/// series.
pub struct QuipuLarge;

impl Contender for QuipuLarge {
    const KEY: &'static str = "quipu-large";

    fn subject() -> String {
        "quipu".into()
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        let registry = Registry::from_segment(Segment::private(4 << 30).ok()?);
        Some(Counters::<Users>::new(registry, errors().values("route", data::routes())))
    }
}

/// Returns a registry on a file in memory, because the disk must not matter. The file is unlinked
/// immediately.
pub(crate) fn in_file() -> Registry {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(place).expect("a folder for temporary files takes one");
    Registry::open(folder.path().join("counting.quipu")).expect("the file is new")
}

fn errors() -> Description {
    Description::new("http_request_errors", "Errors of HTTP requests.")
}

fn seconds() -> Description {
    Description::new("http_request", "Time to answer.").unit("seconds")
}

#[derive(Clone, Copy, LabelValue)]
enum Kind {
    User,
    Internal,
    Network,
}

#[derive(Clone, Copy, LabelValue)]
enum Route {
    Users,
    User,
    Products,
    Product,
    Owner,
    Purchase,
}

#[derive(LabelGroup)]
struct Enums {
    kind: Kind,
    route: Route,
}

#[derive(LabelGroup)]
struct Digits {
    tens: Digit,
    ones: Digit,
}

#[derive(LabelGroup)]
struct Routes<'a> {
    kind: Kind,
    route: &'a str,
}

#[derive(LabelGroup)]
struct Users<'a> {
    kind: Kind,
    route: &'a str,
    user: &'a str,
}

#[derive(LabelGroup)]
struct Texts<'a> {
    kind: &'a str,
}

/// A family in its own registry.
struct Counters<L> {
    registry: Registry,
    family: CounterFamily<L>,
}

impl<L: LabelGroup> Counters<L> {
    fn new(registry: Registry, description: Description) -> Self {
        let family = registry.register(description).expect("a sound name in a new registry");
        Counters { registry, family }
    }
}

/// Makes families in a registry, each with a series for each key.
fn families(registry: Registry, names: &[&'static str], keys: &Keys) -> Registry {
    for name in names {
        let description = Description::new(*name, "Errors of HTTP requests.");
        let family = registry
            .register::<CounterFamily<Users>>(description.values("route", data::routes()))
            .expect("a sound name that is new");
        for (kind, route, user) in keys.iter() {
            family.inc(&Users { kind: kind.into(), route, user });
        }
    }
    registry
}

impl Handle for Counter {
    fn inc(&self) {
        self.inc();
    }
}

impl ByEnums for CounterFamily<Enums> {
    fn inc(&self, kind: data::Kind, route: data::Route) {
        self.inc(&Enums { kind: kind.into(), route: route.into() });
    }
}

impl ByRoute for Counters<Routes<'static>> {
    fn inc(&self, kind: data::Kind, route: &'static str) {
        self.family.inc(&Routes { kind: kind.into(), route });
    }
}

impl ByUser for Counters<Users<'static>> {
    fn inc(&self, kind: data::Kind, route: &'static str, user: &str) {
        self.family.inc(&Users { kind: kind.into(), route, user });
    }
}

impl ByText for Counters<Texts<'static>> {
    fn inc(&self, text: &str) {
        self.family.inc(&Texts { kind: text });
    }
}

impl Observe for Histogram {
    fn observe(&self, value: f64) {
        self.observe(value);
    }
}

impl ObserveBy for HistogramFamily<Routes<'static>> {
    fn observe(&self, kind: data::Kind, route: &'static str, value: f64) {
        self.observe(&Routes { kind: kind.into(), route }, value);
    }
}

impl<L: Send + Sync> Scrape for Counters<L> {
    type Page = Vec<u8>;

    fn scrape<'a>(&self, page: &'a mut Vec<u8>) -> &'a [u8] {
        Scrape::scrape(&self.registry, page)
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        self.registry.stream(writer)
    }
}

impl Scrape for Registry {
    type Page = Vec<u8>;

    fn scrape<'a>(&self, page: &'a mut Vec<u8>) -> &'a [u8] {
        page.clear();
        self.scrape().append_to(page);
        page
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        Some(self.scrape().write_to(writer))
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
