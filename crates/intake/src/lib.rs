//! The inputs of the daemon: Pushgateway's API, remote write, OTLP, StatsD, Graphite, InfluxDB
//! lines and more. Each folder is one input.
//!
//! Every input parses its format, and stores the samples in the daemon's segment through an
//! [`Intake`]. Refused samples are counted and recorded in [`Refusals`].

pub mod body;
#[cfg(test)]
mod echo;
pub mod expiry;
pub mod gate;
pub mod graphite;
pub mod import;
pub mod influx;
pub mod ingest;
pub mod list;
pub mod listeners;
pub mod otlp;
pub mod outcome;
pub mod permits;
pub mod push;
pub mod rate_limits;
pub mod refusal;
pub mod refusals;
pub mod requests;
mod series_cache;
pub mod settings;
pub mod statsd;
mod truncate;
pub mod types;
pub mod write;

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use quipu::intake::{InputExemplar, InputValue, Intake, Metric, Mode, Rejection};
use quipu::snapshot::Timestamp;

use gate::Gate;
use list::{Route, Row};
use permits::MemoryPermits;
use push::PushGateway;
use quipu_client::via::Via;
use quipu_http::Access;
use quipu_process::omitted::OmittedFamilies;
use quipu_translate::rules::Rules;
use rate_limits::RateLimits;
use refusals::Refusals;
use series_cache::SeriesCache;
pub use settings::Options;
use write::MetadataCache;

/// The inputs. A 404 response lists their routes in this order. To add an input, write a folder and
/// add a row here.
pub static LIST: &[Row] = &[
    Row::http("push", push::ROUTES),
    Row::http("remote_write", &[Route::post::<write::RemoteWriteRequest>("/api/v1/write")]),
    Row::http("import", &[Route::post::<import::ImportRequest>("/api/v1/import/prometheus")]),
    Row::http(
        "influx",
        &[
            Route::post::<influx::InfluxRequest>("/write"),
            Route::post::<influx::InfluxRequest>("/api/v2/write"),
        ],
    ),
    Row::http(
        "otlp",
        &[Route {
            is_on: |shared| shared.options.otlp.enabled,
            ..Route::post::<otlp::OtlpRequest>("/v1/metrics")
        }],
    ),
    Row::http("ingest", &[Route::post::<ingest::IngestRequest>("/ingest")]),
    Row::lines("statsd", statsd::LINES),
    Row::lines("graphite", graphite::LINES),
    #[cfg(test)]
    Row::http("echo", &[Route::post::<echo::EchoRequest>("/echo")]),
];

/// The state that all inputs and all threads share.
pub struct Shared {
    /// The options of the inputs.
    pub options: Options,
    /// Counts accepted and refused samples, and records the last refusals.
    pub refusals: Refusals,
    /// The metadata of families from remote write 1.0, which sends it separately from samples.
    metadata: MetadataCache,
    /// A lock that keeps scrapes and replacements of groups apart.
    pub gate: Gate,
    /// Permits for requests that need much memory.
    pub permits: MemoryPermits,
    /// The limits on the rate of samples.
    pub rate_limits: RateLimits,
    /// The state of Pushgateway's API.
    pub push: PushGateway,
    /// The rules for samples, if there are any.
    pub rules: Option<Rules>,
    /// The daemons that samples passed through, to detect loops.
    pub via: Via,
    /// The families whose omission from `/metrics` was logged.
    pub omitted: OmittedFamilies,
}

impl Shared {
    /// Creates the state, without samples. In Pushgateway's API, `access` determines which web
    /// pages may read groups, and `flags` contains the settings of the daemon by name, for
    /// `/api/v1/status`.
    pub fn new(
        options: Options,
        refusals: Refusals,
        rules: Option<Rules>,
        access: Access,
        flags: BTreeMap<String, String>,
    ) -> Self {
        Self {
            push: PushGateway::new(options.push.clone(), access, flags),
            rate_limits: RateLimits::new(options.common.sample_rates),
            options,
            rules,
            refusals,
            metadata: MetadataCache::default(),
            gate: Gate::default(),
            permits: MemoryPermits::default(),
            via: Via::default(),
            omitted: OmittedFamilies::default(),
        }
    }
}

/// These functions apply the rules, if any, before they store a sample. Only pushed groups bypass
/// the rules, and use the intake directly.
impl Shared {
    /// Applies the rules, and calls [`Intake::take`].
    ///
    /// # Errors
    /// Returns the errors of [`Intake::take`].
    #[inline]
    pub fn take(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        given: &InputValue<'_>,
        mode: Mode,
        start: Option<Timestamp>,
    ) -> Result<(), Rejection> {
        match &self.rules {
            None => intake.take(metric, labels, given, mode, start),
            Some(rules) => rules.take(intake, metric, labels, given, mode, start),
        }
    }

    /// Applies the rules, and stores an exemplar of an accepted series (see [`Intake::exemplify`]).
    /// Returns whether it was stored.
    pub fn exemplify(
        &self,
        intake: &mut Intake,
        name: &str,
        labels: &[(&str, &str)],
        exemplar: &InputExemplar<'_>,
    ) -> bool {
        let kept =
            self.relabelled(name, labels, |name, labels| intake.exemplify(name, labels, exemplar));
        // If the segment is unreadable, the exemplar is not stored.
        kept.is_some_and(|kept| kept.unwrap_or(false))
    }

    /// Applies the rules, and calls [`Intake::end`].
    ///
    /// # Errors
    /// Returns the errors of [`Intake::end`].
    pub fn end(
        &self,
        intake: &mut Intake,
        name: &str,
        labels: &[(&str, &str)],
        time: Option<Timestamp>,
    ) -> Result<u64, Rejection> {
        let ended = self.relabelled(name, labels, |name, labels| intake.end(name, labels, time));
        ended.unwrap_or(Ok(0))
    }

    /// Applies the rules to a series, and calls `act` with the resulting name and labels. Returns
    /// `None` if a rule drops the series.
    fn relabelled<R>(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        act: impl FnOnce(&str, &[(&str, &str)]) -> R,
    ) -> Option<R> {
        match &self.rules {
            None => Some(act(name, labels)),
            Some(rules) => rules.with_relabelled(name, labels, act),
        }
    }
}

/// The inputs of one server thread. Clones share the same intake and caches.
#[derive(Clone)]
pub struct Inputs {
    intake: Rc<RefCell<Intake>>,
    /// The cache of series for remote write.
    write_cache: Rc<RefCell<SeriesCache>>,
    /// The cache of series for imports.
    import_cache: Rc<RefCell<SeriesCache>>,
    shared: &'static Shared,
}

impl Inputs {
    /// Creates the inputs of one thread.
    pub fn new(intake: Intake, shared: &'static Shared) -> Self {
        let intake = Rc::new(RefCell::new(intake));
        Self { intake, write_cache: Rc::default(), import_cache: Rc::default(), shared }
    }

    /// Borrows the intake of this thread. Only hold it while you handle a short request, or during
    /// one step of a long one, because other requests of this thread use it too.
    pub fn intake(&self) -> RefMut<'_, Intake> {
        self.intake.borrow_mut()
    }

    fn write_cache(&self) -> RefMut<'_, SeriesCache> {
        self.write_cache.borrow_mut()
    }

    fn import_cache(&self) -> RefMut<'_, SeriesCache> {
        self.import_cache.borrow_mut()
    }

    /// Returns the state that all threads share.
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Returns the counts and records of refused samples.
    pub fn refusals(&self) -> &'static Refusals {
        &self.shared.refusals
    }

    /// Creates a metric with the default expiry from the settings.
    pub fn metric<'a>(&self, name: &'a str) -> Metric<'a> {
        Metric { expiry: self.shared.options.common.expiry, ..Metric::new(name) }
    }
}
