//! [`metrics`](https://docs.rs/metrics) with
//! [`metrics-exporter-prometheus`](https://docs.rs/metrics-exporter-prometheus).
//!
//! The recorder is local, not the global one, because each case must start empty. Its histograms
//! hold every value until an upkeep task runs. A thread runs this task.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use metrics::{Counter, Histogram, SharedString, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    Matcher, NativeHistogramConfig, PrometheusBuilder, PrometheusRecorder,
};

use crate::counting::contender::{
    ByEnums, ByRoute, ByText, ByUser, Contender, Filled, Handle, Observe, ObserveBy, Scrape,
};
use crate::counting::data::{BOUNDS, Digit, Kind, Route};
use crate::counting::version;

/// metrics with its exporter.
pub struct Metrics;

impl Contender for Metrics {
    const KEY: &'static str = "metrics";

    fn subject() -> String {
        version::of("metrics")
    }

    fn handle() -> Option<impl Handle> {
        let recorder = PrometheusBuilder::new().build_recorder();
        Some(with_local_recorder(&recorder, || counter!("http_request_errors_total")))
    }

    fn by_enums() -> Option<impl ByEnums> {
        Some(Local(PrometheusBuilder::new().build_recorder()))
    }

    fn filled_by_enums() -> Vec<Filled> {
        let Ok(buckets) = PrometheusBuilder::new().set_buckets(&BOUNDS) else { return Vec::new() };
        let recorder = || Local(PrometheusBuilder::new().build_recorder());
        let (errors, levels, times) = (recorder(), recorder(), Local(buckets.build_recorder()));
        for (tens, ones, number) in Digit::pairs() {
            let labels = [("tens", tens.text()), ("ones", ones.text())];
            with_local_recorder(&errors.0, || {
                counter!("http_request_errors_total", &labels).increment(number.into());
            });
            with_local_recorder(&levels.0, || gauge!("level", &labels).set(f64::from(number)));
            with_local_recorder(&times.0, || {
                histogram!("http_request_seconds", &labels).record(f64::from(number) / 10_000.0);
            });
        }
        times.0.handle().run_upkeep();
        vec![
            Filled::new("counters", errors),
            Filled::new("gauges", levels),
            Filled::new("histograms", times),
        ]
    }

    fn by_route() -> Option<impl ByRoute + Scrape> {
        Some(Local(PrometheusBuilder::new().build_recorder()))
    }

    fn by_user() -> Option<impl ByUser + Scrape> {
        Some(Local(PrometheusBuilder::new().build_recorder()))
    }

    fn by_text() -> Option<impl ByText + Scrape> {
        Some(Local(PrometheusBuilder::new().build_recorder()))
    }

    fn histogram() -> Option<impl Observe> {
        let builder = PrometheusBuilder::new().set_buckets(&BOUNDS).ok()?;
        Some(Histograms::new(builder))
    }

    fn histograms() -> Option<impl ObserveBy> {
        let builder = PrometheusBuilder::new().set_buckets(&BOUNDS).ok()?;
        Some(Histograms::new(builder))
    }

    fn native_histogram() -> Option<impl Observe> {
        let name = Matcher::Full("http_request_seconds".into());
        let config = NativeHistogramConfig::new(1.1, 160, 1e-9).ok()?;
        Some(Histograms::new(
            PrometheusBuilder::new().set_native_histogram_for_metric(name, config),
        ))
    }
}

/// Counters in their own recorder.
struct Local(PrometheusRecorder);

impl Handle for Counter {
    fn inc(&self) {
        self.increment(1);
    }
}

impl ByEnums for Local {
    fn inc(&self, kind: Kind, route: Route) {
        ByRoute::inc(self, kind, route.text());
    }
}

impl ByRoute for Local {
    fn inc(&self, kind: Kind, route: &'static str) {
        with_local_recorder(&self.0, || {
            let labels = [("kind", kind.text()), ("route", route)];
            counter!("http_request_errors_total", &labels).increment(1);
        });
    }
}

impl ByUser for Local {
    fn inc(&self, kind: Kind, route: &'static str, user: &str) {
        with_local_recorder(&self.0, || {
            let labels = [
                ("kind", SharedString::const_str(kind.text())),
                ("route", SharedString::const_str(route)),
                ("user", SharedString::from_owned(user.to_owned())),
            ];
            counter!("http_request_errors_total", &labels).increment(1);
        });
    }
}

impl ByText for Local {
    fn inc(&self, text: &str) {
        with_local_recorder(&self.0, || {
            counter!("counters_total", "kind" => text.to_owned()).increment(1);
        });
    }
}

impl Scrape for Local {
    type Page = String;

    fn scrape<'a>(&self, page: &'a mut String) -> &'a [u8] {
        *page = self.0.handle().render();
        page.as_bytes()
    }

    fn stream(&self, writer: &mut impl Write) -> Option<io::Result<()>> {
        Some(self.0.handle().render_to_write(writer))
    }
}

/// Histograms in their own recorder, with its upkeep thread.
struct Histograms {
    recorder: PrometheusRecorder,
    histogram: Histogram,
    /// Dropping this ends the thread.
    _upkeep: Sender<()>,
}

impl Histograms {
    fn new(builder: PrometheusBuilder) -> Histograms {
        let recorder = builder.build_recorder();
        let histogram = with_local_recorder(&recorder, || histogram!("http_request_seconds"));
        let handle = recorder.handle();
        let (upkeep, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let pause = Duration::from_millis(200);
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                handle.run_upkeep();
            }
        });
        Histograms { recorder, histogram, _upkeep: upkeep }
    }
}

impl Observe for Histograms {
    fn observe(&self, value: f64) {
        self.histogram.record(value);
    }
}

impl ObserveBy for Histograms {
    fn observe(&self, kind: Kind, route: &'static str, value: f64) {
        with_local_recorder(&self.recorder, || {
            let labels = [("kind", kind.text()), ("route", route)];
            histogram!("http_request_seconds", &labels).record(value);
        });
    }
}
