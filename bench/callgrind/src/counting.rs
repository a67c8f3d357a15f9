//! The cells that count the instructions of quipu's hottest operations. They are built with the
//! default release profile, because most programs use it.
//!
//! Each entry function runs one operation on prepared inputs, in a loop of three or four
//! instructions. The first runs are not counted, because they register threads and fill caches.

use std::hint::black_box;
use std::time::Duration;

use quipu::{
    Counter, CounterFamily, Description, FloatCounter, GaugeFamily, Histogram, HistogramFamily,
    LabelGroup, LabelValue, Registry,
};
use quipu_arena::Arena;
use quipu_window::{BucketedWindow, ExactWindow, SlidingWindow};
use quipu_wire::{Decoder, Framing, Kind as MessageKind, Quipu, StreamSeries, StreamWriter};

use crate::Cell;

/// The number of operations of an entry function, unless its comment states another one.
const TURN: usize = 4096;

/// The number of series of the family with many series.
const SERIES: usize = 18_000;

/// The number of families that are created in the warm-up, and then counted.
const FAMILIES: usize = 1000;

/// The number of series of a family of two enums of ten values each.
const ENUMS: usize = 100;

macro_rules! cells {
    ($($name:ident: $operations:expr;)*) => {
        /// Returns all operations.
        pub fn cells() -> Vec<Cell> {
            vec![$(Cell {
                name: stringify!($name).to_owned(),
                operations: $operations as u64,
                run: $name::run,
            }),*]
        }
    };
}

cells! {
    counter: TURN;
    float_counter: TURN;
    two_enums: TURN;
    two_enums_in_earned_lanes: TURN;
    enum_and_known_text: TURN;
    one_text_of_1000: TURN;
    three_labels_of_18000: TURN;
    classic_histogram: TURN;
    histogram_by_two_enums: TURN;
    native_histogram: TURN;
    histogram_by_enum_and_known_text: TURN;
    encode_a_series_of_18000: SERIES;
    encode_a_family_of_1000: 1000;
    encode_enums: ENUMS;
    encode_gauge_enums: ENUMS;
    encode_histogram_enums: ENUMS;
    create_a_family: FAMILIES;
    create_a_series_of_10: FAMILIES * 10;
    stream_write: TURN;
    stream_read: TURN;
    bucketed_window: TURN;
    exact_window: TURN;
}

/// Defines a module with the entry function and `run`. This function sets up, runs the entry
/// function once on a few inputs as `warm_up`, and once to be counted.
macro_rules! cell {
    ($name:ident($subject:ident: $type:ty, $input:ident: $of:ty) $body:block $set_up:block) => {
        mod $name {
            use super::*;

            #[inline(never)]
            #[unsafe(export_name = concat!("entry_", stringify!($name)))]
            fn entry($subject: &mut $type, inputs: &[$of]) {
                for $input in inputs.iter().copied() {
                    $body
                }
            }

            #[inline(never)]
            fn warm_up($subject: &mut $type, inputs: &[$of]) {
                for $input in inputs.iter().copied() {
                    $body
                }
            }

            pub(super) fn run() {
                let (mut subject, inputs) = $set_up;
                warm_up(black_box(&mut subject), black_box(&inputs));
                entry(black_box(&mut subject), black_box(&inputs));
            }
        }
    };
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

const ROUTES: [&str; 6] = [
    "/api/v1/users",
    "/api/v1/users/:id",
    "/api/v1/products",
    "/api/v1/products/:id",
    "/api/v1/products/:id/owner",
    "/api/v1/products/:id/purchase",
];

#[derive(Clone, Copy, LabelGroup)]
struct Enums {
    kind: Kind,
    route: Route,
}

#[derive(Clone, Copy, LabelValue)]
enum Shard {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Seventh,
    Eighth,
    Ninth,
    Tenth,
}

const SHARDS: [Shard; 10] = [
    Shard::First,
    Shard::Second,
    Shard::Third,
    Shard::Fourth,
    Shard::Fifth,
    Shard::Sixth,
    Shard::Seventh,
    Shard::Eighth,
    Shard::Ninth,
    Shard::Tenth,
];

#[derive(Clone, Copy, LabelGroup)]
struct Shards {
    from: Shard,
    to: Shard,
}

#[derive(Clone, Copy, LabelGroup)]
struct Routes<'a> {
    kind: Kind,
    route: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
struct Users<'a> {
    kind: Kind,
    route: &'a str,
    user: &'a str,
}

#[derive(Clone, Copy, LabelGroup)]
struct Text<'a> {
    text: &'a str,
}

/// A xorshift generator, always with the same seed.
struct Random(u64);

impl Random {
    fn new() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(number) * end as u128) >> 64) as usize
    }

    fn kind(&mut self) -> Kind {
        [Kind::User, Kind::Internal, Kind::Network][self.below(3)]
    }

    fn route(&mut self) -> Route {
        let routes = [
            Route::Users,
            Route::User,
            Route::Products,
            Route::Product,
            Route::Owner,
            Route::Purchase,
        ];
        routes[self.below(6)]
    }

    /// Returns a number from 0.0005 to 0.256.
    fn seconds(&mut self) -> f64 {
        0.0005 * 2_f64.powf(9.0 * self.below(1 << 20) as f64 / f64::from(1 << 20))
    }
}

/// Returns `TURN` inputs.
fn inputs<T>(mut input: impl FnMut(&mut Random) -> T) -> Vec<T> {
    let mut random = Random::new();
    (0..TURN).map(|_| input(&mut random)).collect()
}

/// Returns strings like in a request: at different addresses than the library's copies.
fn routes() -> [&'static str; 6] {
    ROUTES.map(|route| &*route.to_owned().leak())
}

/// Returns the name of a user, which is 14 to 26 bytes long.
fn user(number: usize) -> &'static str {
    let padding = &"Rosalind Zimmerman"[..8 + number * 7919 % 11];
    format!("{padding} {number:05}").leak()
}

/// Returns a family of `SERIES` series, and random labels of them.
fn users(registry: &Registry) -> (CounterFamily<Users<'static>>, Vec<Users<'static>>) {
    let description = errors().values("route", ROUTES);
    let family = registry.register::<CounterFamily<Users>>(description).expect("a new registry");
    let labels = labels(SERIES);
    labels.iter().for_each(|labels| family.inc(labels));
    (family, inputs(|random| labels[random.below(SERIES)]))
}

/// Returns the labels of `count` different series.
fn labels(count: usize) -> Vec<Users<'static>> {
    let (mut random, routes) = (Random::new(), routes());
    let labels = (0..count).map(|number| Users {
        kind: random.kind(),
        route: routes[random.below(6)],
        user: user(number),
    });
    labels.collect()
}

fn errors() -> Description {
    Description::new("http_request_errors", "Errors of HTTP requests.")
}

fn seconds() -> Description {
    Description::new("http_request", "Time to respond.").unit("seconds")
}

/// The bounds of the buckets: 1 ms to 128 ms.
const BOUNDS: [f64; 8] = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128];

cell! { counter(counter: Counter, _input: ()) { counter.inc() } {
    (Registry::new().register::<Counter>(errors()).expect("a new registry"), [(); TURN])
} }

cell! { float_counter(counter: FloatCounter, input: f64) { counter.inc_by(input) } {
    (
        Registry::new().register::<FloatCounter>(errors()).expect("a new registry"),
        inputs(Random::seconds),
    )
} }

cell! { two_enums(family: CounterFamily<Enums>, input: Enums) { family.inc(&input) } {
    (
        Registry::new().register::<CounterFamily<Enums>>(errors()).expect("a new registry"),
        inputs(|random| Enums { kind: random.kind(), route: random.route() }),
    )
} }

cell! {
    two_enums_in_earned_lanes(family: CounterFamily<Enums>, input: Enums) { family.inc(&input) } {
        quipu_segment::pretend_cpus(128);
        let registry = Registry::new();
        let family = registry.register::<CounterFamily<Enums>>(errors()).expect("a new registry");
        let families = registry.segment().families().expect("a sound segment");
        families.iter().for_each(quipu_segment::series::Family::stripe);
        (family, inputs(|random| Enums { kind: random.kind(), route: random.route() }))
    }
}

cell! {
    enum_and_known_text(family: CounterFamily<Routes<'static>>, input: Routes<'static>) {
        family.inc(&input)
    } {
        let description = errors().values("route", ROUTES);
        let family = Registry::new().register::<CounterFamily<Routes>>(description);
        let routes = routes();
        (
            family.expect("a new registry"),
            inputs(|random| Routes { kind: random.kind(), route: routes[random.below(6)] }),
        )
    }
}

cell! {
    one_text_of_1000(family: CounterFamily<Text<'static>>, input: Text<'static>) {
        family.inc(&input)
    } {
        let family = Registry::new().register::<CounterFamily<Text>>(errors());
        let users: Vec<&str> = (0..1000).map(user).collect();
        let family = family.expect("a new registry");
        users.iter().for_each(|text| family.inc(&Text { text }));
        (family, inputs(|random| Text { text: users[random.below(1000)] }))
    }
}

cell! {
    three_labels_of_18000(family: CounterFamily<Users<'static>>, input: Users<'static>) {
        family.inc(&input)
    } { users(&Registry::new()) }
}

cell! { classic_histogram(histogram: Histogram, input: f64) { histogram.observe(input) } {
    let histogram = Registry::new().register::<Histogram>(seconds().buckets(BOUNDS));
    (histogram.expect("a new registry"), inputs(Random::seconds))
} }

cell! {
    histogram_by_two_enums(family: HistogramFamily<Enums>, input: (Enums, f64)) {
        family.observe(&input.0, input.1)
    } {
        let description = seconds().buckets(BOUNDS);
        let family = Registry::new().register::<HistogramFamily<Enums>>(description);
        let input = |random: &mut Random| {
            (Enums { kind: random.kind(), route: random.route() }, random.seconds())
        };
        (family.expect("a new registry"), inputs(input))
    }
}

cell! { native_histogram(histogram: Histogram, input: f64) { histogram.observe(input) } {
    let histogram = Registry::new().register::<Histogram>(seconds().native(3));
    (histogram.expect("a new registry"), inputs(Random::seconds))
} }

cell! {
    histogram_by_enum_and_known_text(
        family: HistogramFamily<Routes<'static>>,
        input: (Routes<'static>, f64)
    ) {
        family.observe(&input.0, input.1)
    } {
        let description = seconds().buckets(BOUNDS).values("route", ROUTES);
        let family = Registry::new().register::<HistogramFamily<Routes>>(description);
        let routes = routes();
        let input = |random: &mut Random| {
            let labels = Routes { kind: random.kind(), route: routes[random.below(6)] };
            (labels, random.seconds())
        };
        (family.expect("a new registry"), inputs(input))
    }
}

cell! {
    encode_a_series_of_18000(registry: Registry, _input: ()) {
        let mut page = Vec::with_capacity(SERIES * 128);
        registry.scrape().append_to(&mut page);
        black_box(page);
    } {
        let registry = Registry::new();
        users(&registry);
        (registry, [()])
    }
}

cell! {
    encode_a_family_of_1000(registry: (Registry, Vec<Counter>), _input: ()) {
        let mut page = Vec::with_capacity(1000 * 256);
        registry.0.scrape().append_to(&mut page);
        black_box(page);
    } {
        let registry = Registry::new();
        let counter = |number| {
            let help = "Something that is counted under a name of its own.";
            registry.counter(&format!("things_{number}"), help).expect("a new name")
        };
        let counters = (0..1000).map(counter).collect();
        ((registry, counters), [()])
    }
}

/// A registry and its families.
struct Created<T> {
    registry: Registry,
    families: Vec<T>,
    /// The names of the families that are still to be created.
    names: Vec<&'static str>,
}

impl<T> Created<T> {
    /// Makes names for the families of the warm-up and for the counted ones.
    fn new() -> Self {
        let names = (0..2 * FAMILIES).map(|number| &*format!("things_{number:05}").leak());
        let families = Vec::with_capacity(2 * FAMILIES);
        Self { registry: Registry::new(), families, names: names.collect() }
    }

    /// Returns the description of the next family.
    #[inline(always)]
    fn next(&mut self) -> Description {
        let name = self.names.pop().expect("a name for each family");
        Description::new(name, "Something that is counted under a name of its own.")
    }
}

cell! {
    create_a_family(created: Created<Counter>, _input: ()) {
        let description = created.next();
        let counter = created.registry.register::<Counter>(description).expect("a new name");
        created.families.push(counter);
    } { (Created::new(), [(); FAMILIES]) }
}

cell! {
    create_a_series_of_10(
        created: (Created<CounterFamily<Users<'static>>>, Vec<Users<'static>>),
        _input: ()
    ) {
        let description = created.0.next().values("route", ROUTES);
        let family = created.0.registry.register::<CounterFamily<Users>>(description);
        let family = family.expect("a new name");
        created.1.iter().for_each(|labels| family.inc(labels));
        created.0.families.push(family);
    } { ((Created::new(), labels(10)), [(); FAMILIES]) }
}

/// Encodes all series of a family of two enums.
fn encode((registry, page): &mut (Registry, Vec<u8>)) {
    page.clear();
    registry.scrape().append_to(page);
}

/// Returns a registry and the buffer of a page. The only family of the registry contains a series
/// for each pair of values. `record` adds a number from 0 to 99,999 to a series.
fn enums<F>(
    registry: Registry,
    family: Result<F, quipu::Error>,
    record: impl Fn(&F, Shards, usize),
) -> (Registry, Vec<u8>) {
    let (family, mut random) = (family.expect("a new registry"), Random::new());
    for from in SHARDS {
        for to in SHARDS {
            record(&family, Shards { from, to }, random.below(100_000));
        }
    }
    (registry, Vec::with_capacity(64 << 10))
}

cell! { encode_enums(page: (Registry, Vec<u8>), _input: ()) { encode(page) } {
    let registry = Registry::new();
    let family = registry.register::<CounterFamily<Shards>>(errors());
    let inc = |family: &CounterFamily<Shards>, labels, number| family.inc_by(&labels, number as u64);
    (enums(registry, family, inc), [()])
} }

cell! { encode_gauge_enums(page: (Registry, Vec<u8>), _input: ()) { encode(page) } {
    let registry = Registry::new();
    let family = registry.register::<GaugeFamily<Shards>>(seconds());
    let set = |family: &GaugeFamily<Shards>, labels, number| {
        family.set(&labels, number as f64 / 1000.0);
    };
    (enums(registry, family, set), [()])
} }

cell! { encode_histogram_enums(page: (Registry, Vec<u8>), _input: ()) { encode(page) } {
    let registry = Registry::new();
    let family = registry.register::<HistogramFamily<Shards>>(seconds().buckets(BOUNDS));
    let observe = |family: &HistogramFamily<Shards>, labels, number| {
        (0..100).for_each(|turn| family.observe(&labels, (number * turn % 1000) as f64 / 5000.0));
    };
    (enums(registry, family, observe), [()])
} }

/// Returns a writer, and its series of `SERIES` ids.
fn writer() -> (StreamWriter, Vec<StreamSeries>) {
    let mut writer = StreamWriter::default();
    let mut series = |number| writer.series(MessageKind::Counter, user(number).as_bytes());
    let series = (0..SERIES).map(|number| series(number).expect("the id is short")).collect();
    (writer, series)
}

cell! {
    stream_write(stream: (StreamWriter, Vec<u8>), input: (StreamSeries, i64)) {
        stream.0.counter(input.0, input.1, &mut stream.1).expect("the series is of the writer")
    } {
        let (mut writer, series) = writer();
        let mut out = Vec::with_capacity(16 << 20);
        for &series in &series {
            writer.counter(series, 0, &mut out).expect("the series is of the writer");
        }
        let inputs = inputs(|random| (series[random.below(SERIES)], random.below(100_000) as i64));
        ((writer, out), inputs)
    }
}

/// Reads the last of the streams.
#[inline(always)]
fn read((decoder, arena, streams): &mut (Decoder<Quipu>, Arena, Vec<Vec<u8>>)) {
    decoder.push(&streams.pop().unwrap_or_default());
    let read = decoder.for_each(arena, |message| {
        black_box(message);
    });
    read.expect("the stream is sound");
}

cell! {
    stream_read(stream: (Decoder<Quipu>, Arena, Vec<Vec<u8>>), _input: ()) { read(stream) } {
        let (mut writer, series) = writer();
        let mut random = Random::new();
        let mut turn = |number: &mut dyn FnMut() -> (usize, i64), count| {
            let mut out = Vec::new();
            for _ in 0..count {
                let (index, value) = number();
                let written = writer.counter(series[index], value, &mut out);
                written.expect("the series is of the writer");
            }
            writer.flush(&mut out);
            out
        };
        // The definitions, then one stream to warm up and one to be counted.
        let mut next = 0..SERIES;
        let definitions = turn(&mut || (next.next().unwrap_or_default(), 0), SERIES);
        let mut any = || (random.below(SERIES), random.below(100_000) as i64);
        let streams = vec![turn(&mut any, TURN), turn(&mut any, TURN), definitions];
        let decoder = Decoder::new(MessageKind::Counter, Framing::Own);
        let mut subject = (decoder, Arena::with_capacity(4096), streams);
        subject.2.swap(0, 1);
        read(&mut subject);
        (subject, [()])
    }
}

cell! { bucketed_window(window: BucketedWindow, _input: ()) { window.add(1) } {
    let window = BucketedWindow::new(Duration::from_secs(10), Duration::from_millis(100));
    (window.expect("a sound window"), [(); TURN])
} }

cell! { exact_window(window: ExactWindow, _input: ()) { window.add(1) } {
    (ExactWindow::new(Duration::from_secs(10)).expect("a sound window"), [(); TURN])
} }
