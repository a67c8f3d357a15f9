//! [`opentelemetry_sdk`](https://docs.rs/opentelemetry_sdk) with its Prometheus exporter. Handles
//! are its bound instruments, also for two enums: a program keeps one for each pair. Other calls
//! prepare attributes in the order of their keys, because the SDK then finds them fastest.

use std::io::{self, Write};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, MeterProvider};
use opentelemetry_sdk::metrics::{Aggregation, Instrument, SdkMeterProvider, Stream};
use prometheus::{Encoder, Registry, TextEncoder};

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Handle, Observe, ObserveBy, Scrape,
};
use crate::counting::data::{BOUNDS, Kind, Route};
use crate::counting::version;

/// OpenTelemetry.
pub struct OpenTelemetry;

impl Contender for OpenTelemetry {
    const KEY: &'static str = "opentelemetry";

    fn subject() -> String {
        version::of("opentelemetry_sdk")
    }

    fn handle() -> Option<impl Handle> {
        let counters = Counters::new("http_request_errors");
        let counter = counters.counter.bind(&[]);
        Some(Kept { instrument: counter, _sdk: counters.sdk })
    }

    fn by_enums() -> Option<impl ByEnums> {
        let counters = Counters::new("http_request_errors");
        let bind = |kind: Kind| {
            Route::ALL.map(|route| counters.counter.bind(&attributes(kind, route.text())))
        };
        Some(Kept { instrument: Kind::ALL.map(bind), _sdk: counters.sdk })
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Counters::new("http_request_errors"))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Counters::new("http_request_errors"))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(Counters::new("counters"))
    }

    fn histogram() -> Option<impl Observe> {
        let sdk = Sdk::new(limited);
        Some(Kept { instrument: sdk.histogram().bind(&[]), _sdk: sdk })
    }

    fn histograms() -> Option<impl ObserveBy> {
        let sdk = Sdk::new(limited);
        Some(Kept { instrument: sdk.histogram(), _sdk: sdk })
    }

    fn native_histogram() -> Option<impl Observe> {
        let sdk = Sdk::new(|_| {
            let native = Aggregation::Base2ExponentialHistogram {
                max_size: 160,
                max_scale: 3,
                record_min_max: false,
            };
            Stream::builder().with_aggregation(native).build().ok()
        });
        Some(Kept { instrument: sdk.histogram().bind(&[]), _sdk: sdk })
    }
}

/// A provider, and the registry that is scraped for its exporter.
struct Sdk {
    provider: SdkMeterProvider,
    registry: Registry,
}

impl Sdk {
    fn new(view: fn(&Instrument) -> Option<Stream>) -> Sdk {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .build()
            .expect("the registry is new");
        let provider = SdkMeterProvider::builder().with_reader(exporter).with_view(view).build();
        Sdk { provider, registry }
    }

    fn histogram(&self) -> Histogram<f64> {
        let meter = self.provider.meter("counting");
        meter.f64_histogram("http_request_seconds").with_boundaries(BOUNDS.to_vec()).build()
    }
}

/// Makes room for more series than the default of 2,000. The SDK allocates all of them at once, so
/// it takes no part in the workloads that would measure this allocation.
fn limited(_: &Instrument) -> Option<Stream> {
    Stream::builder().with_cardinality_limit(2_000_000).build().ok()
}

/// A family in its own registry.
struct Counters {
    counter: Counter<u64>,
    sdk: Sdk,
}

impl Counters {
    fn new(name: &'static str) -> Counters {
        let sdk = Sdk::new(limited);
        Counters { counter: sdk.provider.meter("counting").u64_counter(name).build(), sdk }
    }
}

/// Instruments, with their provider. Without it, they would record no values.
struct Kept<T> {
    instrument: T,
    _sdk: Sdk,
}

fn attributes(kind: Kind, route: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("kind", kind.text()), KeyValue::new("route", route)]
}

impl Handle for Kept<BoundCounter<u64>> {
    fn inc(&self) {
        self.instrument.add(1);
    }
}

impl ByEnums for Kept<[[BoundCounter<u64>; 6]; 3]> {
    fn inc(&self, kind: Kind, route: Route) {
        self.instrument[kind as usize][route as usize].add(1);
    }
}

impl ByRoute for Counters {
    fn inc(&self, kind: Kind, route: &'static str) {
        self.counter.add(1, &attributes(kind, route));
    }
}

impl ByUser for Counters {
    fn inc(&self, kind: Kind, route: &'static str, user: &str) {
        let [kind, route] = attributes(kind, route);
        self.counter.add(1, &[kind, route, KeyValue::new("user", user.to_owned())]);
    }
}

impl ByText for Counters {
    fn inc(&self, text: &str) {
        self.counter.add(1, &[KeyValue::new("kind", text.to_owned())]);
    }
}

impl Observe for Kept<BoundHistogram<f64>> {
    fn observe(&self, value: f64) {
        self.instrument.record(value);
    }
}

impl ObserveBy for Kept<Histogram<f64>> {
    fn observe(&self, kind: Kind, route: &'static str, value: f64) {
        self.instrument.record(value, &attributes(kind, route));
    }
}

impl Scrape for Counters {
    type Page = String;

    fn scrape<'a>(&self, page: &'a mut String) -> &'a [u8] {
        page.clear();
        let encoded = TextEncoder::new().encode_utf8(&self.sdk.registry.gather(), page);
        encoded.expect("a string takes the text");
        page.as_bytes()
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        let encoded = TextEncoder::new().encode(&self.sdk.registry.gather(), writer);
        Some(encoded.map_err(io::Error::other))
    }
}
