//! The daemon's own metrics, kept with the library `quipu`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quipu::collector::{Collector, Process};
use quipu::snapshot::{FamilyHeader, Series, Sink};
use quipu::{
    Counter, CounterFamily, Description, GaugeFamily, Histogram, Info, IntGauge, LabelGroup,
    LabelValue, Metrics as Group, Registry, Scope,
};
use quipu_window::SlidingWindow;

use crate::state::State;
use quipu_http::{CloseReason, Event, Refusal};
use quipu_process::memory::take_room;

/// The daemon's own metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    events: EventMetrics,
    /// The counters for each of [`Code::ALL`], looked up once.
    responses: Vec<Counter>,
    /// The counters for each of [`Refusal::ALL`], looked up once.
    refused: Vec<Counter>,
    _build: Info,
}

/// Metrics that are updated as events happen.
#[derive(Debug, Group)]
#[metrics(prefix = "quipu")]
struct EventMetrics {
    /// Responses of the routes, by status code.
    http_responses: CounterFamily<ByCode>,
    /// Requests that the transport refused, by status code and reason.
    #[metric(labels = ["code", "reason"])]
    http_refused: CounterFamily<[&'static str; 2]>,
    /// Time from a request's head to its response.
    #[metric(unit = "seconds", buckets = LATENCIES)]
    http_request_duration: Histogram,
    /// Connections that were accepted.
    http_connections_accepted: Counter,
    /// Connections that are open.
    http_connections_open: IntGauge,
    /// Connections that were closed to make room for others.
    http_connections_gave_way: Counter,
    /// Times that accepting was paused because file descriptors or memory ran out.
    http_accept_pauses: Counter,
    /// Duration of a sync of the state to the disk.
    #[metric(unit = "seconds", buckets = CHECKPOINTS)]
    checkpoint_duration: Histogram,
    /// Syncs of the state to the disk that failed.
    checkpoint_errors: Counter,
    /// Time when the whole state was last on the disk.
    #[metric(unit = "seconds")]
    checkpoint_last_success_timestamp: GaugeFamily<()>,
}

/// The status codes of responses from routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LabelValue)]
enum Code {
    #[label(rename = "200")]
    Ok,
    #[label(rename = "400")]
    BadRequest,
    #[label(rename = "404")]
    NotFound,
    #[label(rename = "405")]
    MethodNotAllowed,
    Other,
}

impl Code {
    const ALL: [Self; 5] =
        [Self::Ok, Self::BadRequest, Self::NotFound, Self::MethodNotAllowed, Self::Other];

    /// Returns the code of a status.
    fn from_status(status: u16) -> Self {
        match status {
            200 => Self::Ok,
            400 => Self::BadRequest,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            _ => Self::Other,
        }
    }
}

/// The labels of responses.
#[derive(LabelGroup)]
struct ByCode {
    code: Code,
}

impl Metrics {
    /// Creates the metrics. All are zero, except the ones that report the state.
    ///
    /// # Errors
    /// Fails if the system provides no memory.
    pub fn new(state: &'static State) -> Result<Self, quipu::Error> {
        // We reserve space for the heap, because a failed allocation would end the process.
        let room = take_room(FOR_HEAP);
        let registry = Registry::options().max_bytes(MEMORY).build()?;
        drop(room);
        let build = Description::new("quipu_build", "The version of this daemon.")
            .values("version", [env!("CARGO_PKG_VERSION")]);
        let build = registry.register(build)?;
        let events: EventMetrics = registry.metrics()?;
        let responses = Code::ALL.map(|code| events.http_responses.bind(&ByCode { code })).into();
        let refused = Refusal::ALL.iter().map(|refusal| {
            let code = refusal.status().as_u16().to_string();
            events.http_refused.bind(&[&code, refusal.reason()])
        });
        let refused = refused.collect();
        watch(&registry.prefix("quipu"), state)?;
        #[cfg(target_os = "linux")]
        registry.register_collector(Process::new())?;
        Ok(Self { registry, events, responses, refused, _build: build })
    }

    /// Counts an event of the transport.
    pub fn event(&self, event: Event) {
        let events = &self.events;
        match event {
            Event::Accepted => {
                events.http_connections_accepted.inc();
                events.http_connections_open.inc();
            }
            Event::Closed(why) => {
                events.http_connections_open.dec();
                if why == CloseReason::GaveWay {
                    events.http_connections_gave_way.inc();
                }
            }
            Event::AcceptPaused => events.http_accept_pauses.inc(),
            Event::Answered { status, started } => {
                self.responses[Code::from_status(status.as_u16()) as usize].inc();
                let took = Instant::now().saturating_duration_since(started);
                events.http_request_duration.observe(took.as_secs_f64());
            }
            Event::Refused(refusal) => {
                if let Some(i) = Refusal::ALL.iter().position(|other| *other == refusal) {
                    self.refused[i].inc();
                }
            }
        }
    }

    /// Counts a sync of the state, successful or not.
    pub fn checkpointed(&self, took: Duration, succeeded: bool) {
        self.events.checkpoint_duration.observe(took.as_secs_f64());
        if succeeded {
            self.checkpoint_spared();
        } else {
            self.events.checkpoint_errors.inc();
        }
    }

    /// Records that the disk already contains the whole state, so no sync was needed.
    pub fn checkpoint_spared(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.events.checkpoint_last_success_timestamp.set(&(), now.as_secs_f64());
    }

    /// Returns the registry of the daemon's own metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// A collector that adds the daemon's own metrics to the metrics of the inputs.
pub struct OwnMetrics(Registry);

impl OwnMetrics {
    /// Creates a collector for this registry.
    pub fn new(registry: &Registry) -> Self {
        Self(registry.clone())
    }
}

impl Collector for OwnMetrics {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let mut sink = PrefixSink { sink, name: String::new() };
        // This cannot fail, because an invalid segment is already rejected when it is opened.
        let _ = self.0.visit(&mut sink);
    }
}

/// A sink that adds the prefix `quipu_` to the names that lack it, such as the metrics of the
/// process.
struct PrefixSink<'a> {
    sink: &'a mut dyn Sink,
    /// The name with the prefix; empty if the name is unchanged.
    name: String,
}

impl Sink for PrefixSink<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.name.clear();
        if !family.name.starts_with(PREFIX) {
            self.name.push_str(PREFIX);
            self.name.push_str(family.name);
        }
        self.sink.family(&with_name(family, &self.name));
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.sink.series(&with_name(family, &self.name), series);
    }
}

/// Returns the family with this name, or unchanged if the name is empty.
fn with_name<'f>(family: &FamilyHeader<'f>, name: &'f str) -> FamilyHeader<'f> {
    let mut family = *family;
    if !name.is_empty() {
        family.name = name;
    }
    family
}

/// The prefix of all metrics of the daemon itself.
pub const PREFIX: &str = "quipu_";

/// Registers the metrics whose values are read from the state at each scrape.
fn watch(scope: &Scope, state: &'static State) -> Result<(), quipu::Error> {
    let description = |name: &str, help: &str| Description::new(name, help);
    scope.counter_fn(
        description("events", "Requests that were counted since the state was created."),
        || state.requests.total() as f64,
    )?;
    let window = humantime::format_duration(state.requests.window()).to_string();
    let windows = scope.label("window", &window);
    windows.gauge_fn(description("window_events", "Requests in the window."), || {
        state.requests.count() as f64
    })?;
    scope.gauge_fn(description("keys", "Keys in the table."), || state.keys.len() as f64)?;
    scope.gauge_fn(description("keys_capacity", "The capacity for keys."), || {
        state.keys.capacity() as f64
    })?;
    scope
        .counter_fn(description("key_hits", "Hits of keys since the state was created."), || {
            state.keys.additions() as f64
        })?;
    let evicted = "Keys that were evicted to make room for others since the state was created.";
    scope.counter_fn(description("keys_evicted", evicted), || state.keys.evicted() as f64)?;
    let intake = &state.intake;
    scope.gauge_fn(
        description(
            "input_families",
            "Received families, of --families, as of the last 5 seconds.",
        ),
        || intake.swept_usage().families as f64,
    )?;
    let unused = "Received families whose series all have expired or were removed.";
    scope.gauge_fn(description("input_families_unused", unused), || {
        intake.swept_usage().unused as f64
    })?;
    let help = "Exemplars that were omitted, because less than a quarter of --input-bytes is left.";
    scope.counter_fn(description("input_exemplars_left_out", help), || {
        intake.swept_usage().exemplars as f64
    })?;
    let free = "Families that were freed, and whose memory waits for new names.";
    scope.gauge_fn(description("input_families_free", free), || {
        intake.freed().map_or(f64::NAN, |n| n as f64)
    })?;
    scope.gauge_fn(description("state_bytes", "Size of the state file."), || {
        state.segment.size() as f64
    })
}

/// The limit on memory for the daemon's own metrics in bytes, far more than they need.
const MEMORY: u64 = 16 << 20;
/// More bytes than the metrics need on the heap.
const FOR_HEAP: usize = 1 << 20;

/// The upper bounds of the buckets for request durations, in seconds.
const LATENCIES: [f64; 8] = [5e-6, 1e-5, 2.5e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0];
/// The upper bounds of the buckets for sync durations, in seconds.
const CHECKPOINTS: [f64; 6] = [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
