//! What the daemon counts of itself, and its exposition as Prometheus text.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quipu_window::Window;

use crate::http::{Event, Refusal};
use crate::state::State;

/// The daemon's own counters.
#[derive(Debug)]
pub struct Metrics {
    answers: [AtomicU64; CODES.len()],
    refusals: [AtomicU64; Refusal::ALL.len()],
    accepted: AtomicU64,
    closed: AtomicU64,
    pauses: AtomicU64,
    latency: Histogram<{ LATENCIES.len() }>,
    checkpoints: Histogram<{ CHECKPOINTS.len() }>,
    checkpoint_errors: AtomicU64,
    last_checkpoint: AtomicU64,
    started: SystemTime,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        Self {
            answers: [const { AtomicU64::new(0) }; _],
            refusals: [const { AtomicU64::new(0) }; _],
            accepted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            latency: Histogram::new(LATENCIES),
            checkpoints: Histogram::new(CHECKPOINTS),
            checkpoint_errors: AtomicU64::new(0),
            last_checkpoint: AtomicU64::new(0),
            started: SystemTime::now(),
        }
    }

    /// Counts what the transport did.
    pub fn event(&self, event: Event) {
        match event {
            Event::Accepted => add(&self.accepted, 1),
            Event::Closed(_) => add(&self.closed, 1),
            Event::AcceptPaused => add(&self.pauses, 1),
            Event::Answered { status, started } => {
                let code = CODES.iter().position(|code| *code == status.as_u16());
                add(&self.answers[code.unwrap_or(CODES.len() - 1)], 1);
                self.latency.observe(Instant::now().saturating_duration_since(started));
            }
            Event::Refused(refusal) => {
                if let Some(i) = Refusal::ALL.iter().position(|other| *other == refusal) {
                    add(&self.refusals[i], 1);
                }
            }
        }
    }

    /// Counts a sync of the state.
    pub fn checkpointed(&self, took: Duration, succeeded: bool) {
        self.checkpoints.observe(took);
        if succeeded {
            self.checkpoint_spared();
        } else {
            add(&self.checkpoint_errors, 1);
        }
    }

    /// Notes that the disk has everything.
    pub fn checkpoint_spared(&self) {
        self.last_checkpoint.store(unix(SystemTime::now()), Ordering::Relaxed);
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    pub fn expose(&self, state: &State) -> String {
        let mut out = Exposition(String::with_capacity(8 << 10));
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);

        out.family("quipu_build_info", "gauge", "The version of this daemon.");
        out.sample("quipu_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        out.one(
            "process_start_time_seconds",
            "gauge",
            "When the daemon started.",
            unix(self.started) as f64,
        );

        let name = "quipu_http_responses_total";
        out.family(name, "counter", "Requests that were answered, by status code.");
        for (code, cell) in CODES.iter().zip(&self.answers) {
            let code = if *code == 0 { "other".to_owned() } else { code.to_string() };
            out.sample(name, &[("code", &code)], get(cell) as f64);
        }
        let name = "quipu_http_refused_total";
        out.family(name, "counter", "Requests that were refused before they were complete.");
        for (refusal, cell) in Refusal::ALL.iter().zip(&self.refusals) {
            let code = refusal.status().as_u16().to_string();
            let labels = [("code", code.as_str()), ("reason", refusal.reason())];
            out.sample(name, &labels, get(cell) as f64);
        }
        out.histogram(
            "quipu_http_request_duration_seconds",
            "From a request's head to its answer, for all answered requests.",
            &self.latency,
        );
        let (closed, accepted) = (get(&self.closed), get(&self.accepted));
        out.one(
            "quipu_http_connections_accepted_total",
            "counter",
            "Connections that were accepted.",
            accepted as f64,
        );
        out.one(
            "quipu_http_connections_open",
            "gauge",
            "Connections that are open.",
            accepted.saturating_sub(closed) as f64,
        );
        out.one(
            "quipu_http_accept_pauses_total",
            "counter",
            "Times that the system had no room for a new connection.",
            get(&self.pauses) as f64,
        );

        out.one(
            "quipu_events_total",
            "counter",
            "Requests that were counted since the state was made.",
            state.requests.total() as f64,
        );
        let window = humantime::format_duration(state.requests.window()).to_string();
        let name = "quipu_window_events";
        out.family(name, "gauge", "Requests of the window.");
        out.sample(name, &[("window", &window)], state.requests.count() as f64);
        out.one("quipu_keys", "gauge", "Keys that have a window.", state.keys.len() as f64);
        out.one(
            "quipu_keys_capacity",
            "gauge",
            "Keys that there is room for.",
            state.keys.capacity() as f64,
        );
        out.one(
            "quipu_key_hits_total",
            "counter",
            "Hits of keys since the state was made.",
            state.keys.hits() as f64,
        );
        out.one(
            "quipu_keys_evicted_total",
            "counter",
            "Keys that left for others to come, since the state was made.",
            state.keys.evicted() as f64,
        );

        out.one(
            "quipu_state_bytes",
            "gauge",
            "Size of the state file.",
            state.segment.size() as f64,
        );
        out.histogram(
            "quipu_checkpoint_duration_seconds",
            "Time that a sync of the state to the disk took.",
            &self.checkpoints,
        );
        out.one(
            "quipu_checkpoint_errors_total",
            "counter",
            "Syncs of the state to the disk that failed.",
            get(&self.checkpoint_errors) as f64,
        );
        let last = get(&self.last_checkpoint);
        if last > 0 {
            out.one(
                "quipu_checkpoint_last_success_timestamp_seconds",
                "gauge",
                "When the disk last had the whole state.",
                last as f64,
            );
        }
        out.0
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts of durations by upper bounds.
#[derive(Debug)]
struct Histogram<const N: usize> {
    bounds: [Duration; N],
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    nanos: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: [Duration; N]) -> Self {
        let counts = [const { AtomicU64::new(0) }; N];
        Self { bounds, counts, beyond: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }

    fn observe(&self, took: Duration) {
        let bucket = self.bounds.iter().position(|bound| took <= *bound);
        add(bucket.map_or(&self.beyond, |bucket| &self.counts[bucket]), 1);
        add(&self.nanos, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Text that is being exposed.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Label values are this file's own: none needs escaping.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{text}\""));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn histogram<const N: usize>(&mut self, name: &str, help: &str, histogram: &Histogram<N>) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, cell) in histogram.bounds.iter().zip(&histogram.counts) {
            count += cell.load(Ordering::Relaxed);
            let bound = bound.as_secs_f64().to_string();
            self.sample(&bucket, &[("le", &bound)], count as f64);
        }
        count += histogram.beyond.load(Ordering::Relaxed);
        self.sample(&bucket, &[("le", "+Inf")], count as f64);
        let sum = Duration::from_nanos(histogram.nanos.load(Ordering::Relaxed)).as_secs_f64();
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], count as f64);
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.write(text);
        self.0.push('\n');
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes whatever fits into memory");
    }
}

fn add(cell: &AtomicU64, n: u64) {
    cell.fetch_add(n, Ordering::Relaxed);
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The status codes that a route answers with; 0 stands for all others.
const CODES: [u16; 5] = [200, 400, 404, 405, 0];

const LATENCIES: [Duration; 8] = [
    Duration::from_micros(5),
    Duration::from_micros(10),
    Duration::from_micros(25),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

const CHECKPOINTS: [Duration; 6] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
