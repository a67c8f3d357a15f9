//! The settings of the daemon. Flags override the environment, which overrides the TOML file.
//!
//! One table, [`Flags`], declares every setting: clap reads it from flags and `QUIPU_*` variables,
//! serde from the TOML file, whose keys are the names of the flags.

mod time;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use quipu::intake;
use quipu_segment::printable;
use quipu_window::{Bucketed, BucketedOptions, KeyedOptions, KeyedWindows};
use serde::{Deserialize, Serialize};
pub use time::Time;
pub use values::{Damaged, LogFormat, LogLevel, Switch};

use crate::http;
use crate::inputs::rules::{self, Rules};
use crate::inputs::statsd::mapping::{self, Mapping};
use crate::inputs::{otlp, push, statsd};
use crate::metrics::PREFIX;

/// Every setting. All fields are optional; [`Settings::resolve`] fills in the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flags {
    /// Address to listen on; may be given several times [default: 127.0.0.1:8081]
    #[arg(long, env = "QUIPU_LISTEN", value_name = "HOST:PORT", value_delimiter = ',')]
    pub listen: Option<Vec<String>>,

    /// Sliding window of GET / and of each key [default: 60s]
    #[arg(long, env = "QUIPU_WINDOW", value_name = "TIME")]
    pub window: Option<Time>,

    /// Bucket width of the window [default: 200ms]
    #[arg(long, env = "QUIPU_ACCURACY", value_name = "TIME")]
    pub accuracy: Option<Time>,

    /// Longest window that GET /rate?window= accepts [default: 1h; more if the window is longer,
    /// less if 1h takes over 2^18 buckets]
    #[arg(long, env = "QUIPU_SPAN", value_name = "TIME")]
    pub span: Option<Time>,

    /// File that keeps the counts [default: state.quipu]
    #[arg(long, env = "QUIPU_STATE", value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// What to do with a damaged state file [default: refuse]
    #[arg(long, env = "QUIPU_DAMAGED_STATE", value_name = "WHAT")]
    pub damaged_state: Option<Damaged>,

    /// How often the state is synced to disk: what a power loss may cost [default: 500ms]
    #[arg(long, env = "QUIPU_CHECKPOINT", value_name = "TIME")]
    pub checkpoint: Option<Time>,

    /// Maximum number of keys of POST /hit/{key}; the least recently hit are evicted first
    /// [default: 10000]
    #[arg(long, env = "QUIPU_KEYS", value_name = "COUNT")]
    pub keys: Option<usize>,

    /// Bucket width of each key's window [default: 1/60 of the window, or the accuracy]
    #[arg(long, env = "QUIPU_KEY_ACCURACY", value_name = "TIME")]
    pub key_accuracy: Option<Time>,

    /// Maximum length of a key in bytes [default: 128]
    #[arg(long, env = "QUIPU_KEY_BYTES", value_name = "BYTES")]
    pub key_bytes: Option<usize>,

    /// Server threads; one serves about 100,000 requests per second [default: 1]
    #[arg(long, env = "QUIPU_THREADS", value_name = "COUNT")]
    pub threads: Option<usize>,

    /// Maximum number of open connections; more get 503 [default: 10000]
    #[arg(long, env = "QUIPU_CONNECTIONS", value_name = "COUNT")]
    pub connections: Option<usize>,

    /// Maximum bytes of a request line and headers; longer ones get 431 or 414 [default: 16384]
    #[arg(long, env = "QUIPU_HEADER_BYTES", value_name = "BYTES")]
    pub header_bytes: Option<usize>,

    /// Maximum bytes of a request body; larger ones get 413 [default: 1048576]
    #[arg(long, env = "QUIPU_BODY_BYTES", value_name = "BYTES")]
    pub body_bytes: Option<usize>,

    /// Maximum bytes of the body of a request that brings metrics; larger ones get 413
    /// [default: 33554432]
    #[arg(long, env = "QUIPU_INPUT_BODY_BYTES", value_name = "BYTES")]
    pub input_body_bytes: Option<usize>,

    /// Maximum bytes of the state file for metrics that come in. A file keeps the limit that it was
    /// created with [default: 1073741824]
    #[arg(long, env = "QUIPU_INPUT_BYTES", value_name = "BYTES")]
    pub input_bytes: Option<u64>,

    /// Maximum number of series that come in [default: 1000000]
    #[arg(long, env = "QUIPU_SERIES", value_name = "COUNT")]
    pub series: Option<u64>,

    /// Maximum number of series that one source may make while the daemon runs: an address, a job,
    /// or a credential [default: none]
    #[arg(long, env = "QUIPU_SERIES_PER_SOURCE", value_name = "COUNT")]
    pub series_per_source: Option<u64>,

    /// Maximum number of samples a second that come in [default: none]
    #[arg(long, env = "QUIPU_SAMPLE_RATE", value_name = "COUNT")]
    pub sample_rate: Option<NonZeroU64>,

    /// Maximum number of samples a second that one source may bring: an address [default: none]
    #[arg(long, env = "QUIPU_SAMPLE_RATE_PER_SOURCE", value_name = "COUNT")]
    pub sample_rate_per_source: Option<NonZeroU64>,

    /// Maximum number of families that come in: sets of label names and types under all names
    /// [default: 20000]
    #[arg(long, env = "QUIPU_FAMILIES", value_name = "COUNT")]
    pub families: Option<u64>,

    /// Hides a series that came in and was not updated for this time. A counter that comes back goes
    /// on from its last total [default: none]
    #[arg(long, env = "QUIPU_EXPIRY", value_name = "TIME")]
    pub expiry: Option<Time>,

    /// Takes pushes to Pushgateway's routes [default: on]
    #[arg(long, env = "QUIPU_PUSH", value_name = "SWITCH")]
    pub push: Option<Switch>,

    /// Refuses pushes that contradict other groups [default: on]
    #[arg(long, env = "QUIPU_PUSH_CONSISTENCY_CHECK", value_name = "SWITCH")]
    pub push_consistency_check: Option<Switch>,

    /// Takes PUT /api/v1/admin/wipe, which removes all groups [default: off]
    #[arg(
        long, env = "QUIPU_PUSH_ADMIN", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub push_admin: Option<Switch>,

    /// Maximum number of groups of pushed metrics; pushes to more get 429 [default: 100000]
    #[arg(long, env = "QUIPU_PUSH_GROUPS", value_name = "COUNT")]
    pub push_groups: Option<usize>,

    /// What a push does to its group, unless it says so itself: replace it as in Pushgateway, or add
    /// to it [default: replace]
    #[arg(long, env = "QUIPU_PUSH_MODE", value_name = "MODE")]
    pub push_mode: Option<push::Mode>,

    /// Jobs whose pushes are added up; * stands for any text [default: none]
    #[arg(long, env = "QUIPU_PUSH_ADD_JOBS", value_name = "PATTERN", value_delimiter = ',')]
    pub push_add_jobs: Option<Vec<String>>,

    /// What a push that is added does to gauges [default: set]
    #[arg(long, env = "QUIPU_PUSH_GAUGES", value_name = "HOW")]
    pub push_gauges: Option<push::Gauges>,

    /// Hides a group that was not pushed to for this time [default: none]
    #[arg(long, env = "QUIPU_PUSH_EXPIRY", value_name = "TIME")]
    pub push_expiry: Option<Time>,

    /// Rules for samples that come in: Prometheus' metric_relabel_configs, and aggregations
    /// [default: none]
    #[arg(long, env = "QUIPU_RULES", value_name = "FILE")]
    pub rules: Option<PathBuf>,

    /// Takes metrics by OTLP over HTTP, at /v1/metrics [default: on]
    #[arg(long, env = "QUIPU_OTLP", value_name = "SWITCH")]
    pub otlp: Option<Switch>,

    /// How names that come in by OTLP are translated, as in Prometheus' setting
    /// translation_strategy [default: UnderscoreEscapingWithSuffixes]
    #[arg(
        long,
        env = "QUIPU_OTLP_TRANSLATION",
        value_name = "STRATEGY",
        hide_possible_values = true
    )]
    pub otlp_translation: Option<otlp::Translation>,

    /// Attribute of resources that becomes a label of all their series that come in by OTLP; may be
    /// given several times [default: none]
    #[arg(long, env = "QUIPU_OTLP_PROMOTE", value_name = "KEY", value_delimiter = ',')]
    pub otlp_promote: Option<Vec<String>>,

    /// Time limit for a client to send a request; a slower one gets 408 [default: 10s]
    #[arg(long, env = "QUIPU_READ_TIMEOUT", value_name = "TIME")]
    pub read_timeout: Option<Time>,

    /// Time limit for a client to read a response; a slower one is disconnected [default: 30s]
    #[arg(long, env = "QUIPU_WRITE_TIMEOUT", value_name = "TIME")]
    pub write_timeout: Option<Time>,

    /// Time that a connection may stay open without a request [default: 60s]
    #[arg(long, env = "QUIPU_IDLE_TIMEOUT", value_name = "TIME")]
    pub idle_timeout: Option<Time>,

    /// Time that running requests get to finish at shutdown [default: 10s]
    #[arg(long, env = "QUIPU_DRAIN_TIMEOUT", value_name = "TIME")]
    pub drain_timeout: Option<Time>,

    /// Where lines of StatsD and DogStatsD come in: udp://HOST:PORT, tcp://HOST:PORT, unixgram:PATH,
    /// or unix:PATH; may be given several times [default: none]
    #[arg(long, env = "QUIPU_STATSD", value_name = "ADDRESS", value_delimiter = ',')]
    pub statsd: Option<Vec<statsd::Address>>,

    /// Mapping file of statsd_exporter, which gives names and labels to metrics of StatsD
    /// [default: none]
    #[arg(long, env = "QUIPU_STATSD_MAPPING", value_name = "FILE")]
    pub statsd_mapping: Option<PathBuf>,

    /// Whether the names of all counters of StatsD end in _total: true or false [default: false]
    #[arg(
        long,
        env = "QUIPU_STATSD_SUFFIXES",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub statsd_suffixes: Option<bool>,

    /// Receive buffer of UDP listeners for StatsD to ask the kernel for [default: 4194304]
    #[arg(long, env = "QUIPU_STATSD_RECEIVE_BUFFER", value_name = "BYTES")]
    pub statsd_receive_buffer: Option<usize>,

    /// Format of the log [default: text]
    #[arg(long, env = "QUIPU_LOG_FORMAT", value_name = "FORM")]
    pub log_format: Option<LogFormat>,

    /// Lowest severity that is logged: error, warn, info, debug, trace [default: info]
    #[arg(long, env = "QUIPU_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

/// The effective settings, checked and converted.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The window of all requests.
    pub window: BucketedOptions,
    /// The windows of keys.
    pub keys: KeyedOptions,
    /// The state file.
    pub state: PathBuf,
    /// What to do with a damaged state file.
    pub damaged_state: Damaged,
    /// The interval between syncs of the state file.
    pub checkpoint: Duration,
    /// The most bytes that the state file may have for metrics that come in.
    pub input_bytes: u64,
    /// What comes in at most.
    pub intake: intake::Limits,
    /// How many samples a second may come in: of all sources, and of each.
    pub sample_rates: [Option<NonZeroU64>; 2],
    /// The time after which a series that came in and was not updated is hidden.
    pub expiry: Option<Duration>,
    /// How pushed metrics are treated.
    pub push: push::Settings,
    /// The file of rules for samples that come in.
    pub rules: Option<PathBuf>,
    /// How points of OTLP become series.
    pub otlp: otlp::Options,
    /// The addresses to listen on.
    pub listen: Vec<String>,
    /// Options of the HTTP server.
    pub http: http::Options,
    /// Listeners for StatsD.
    pub statsd: statsd::Options,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The lowest severity that is logged.
    pub log_level: LogLevel,
    /// All of the above as flags.
    pub flags: Flags,
}

/// Unusable settings. Each message names the setting and the remedy.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(PathBuf, std::io::Error),
    /// The file is not TOML, or has an unknown setting.
    Parse(PathBuf, toml::de::Error),
    /// A setting has an unusable value, or values contradict each other.
    Value(&'static str, String),
    /// The mapping file of StatsD cannot be used.
    Mapping(mapping::Error),
    /// The rules cannot be used.
    Rules(rules::Error),
}

impl Flags {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or has an unknown setting.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::Read(path.into(), e))?;
        toml::from_str(&text).map_err(|e| Error::Parse(path.into(), e))
    }

    /// Returns these settings, with those of `other` where these are absent.
    pub fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            window: self.window.or(other.window),
            accuracy: self.accuracy.or(other.accuracy),
            span: self.span.or(other.span),
            state: self.state.or(other.state),
            damaged_state: self.damaged_state.or(other.damaged_state),
            checkpoint: self.checkpoint.or(other.checkpoint),
            keys: self.keys.or(other.keys),
            key_accuracy: self.key_accuracy.or(other.key_accuracy),
            key_bytes: self.key_bytes.or(other.key_bytes),
            threads: self.threads.or(other.threads),
            connections: self.connections.or(other.connections),
            header_bytes: self.header_bytes.or(other.header_bytes),
            body_bytes: self.body_bytes.or(other.body_bytes),
            input_body_bytes: self.input_body_bytes.or(other.input_body_bytes),
            input_bytes: self.input_bytes.or(other.input_bytes),
            series: self.series.or(other.series),
            series_per_source: self.series_per_source.or(other.series_per_source),
            sample_rate: self.sample_rate.or(other.sample_rate),
            sample_rate_per_source: self.sample_rate_per_source.or(other.sample_rate_per_source),
            families: self.families.or(other.families),
            expiry: self.expiry.or(other.expiry),
            push: self.push.or(other.push),
            push_consistency_check: self.push_consistency_check.or(other.push_consistency_check),
            push_admin: self.push_admin.or(other.push_admin),
            push_groups: self.push_groups.or(other.push_groups),
            push_mode: self.push_mode.or(other.push_mode),
            push_add_jobs: self.push_add_jobs.or(other.push_add_jobs),
            push_gauges: self.push_gauges.or(other.push_gauges),
            push_expiry: self.push_expiry.or(other.push_expiry),
            rules: self.rules.or(other.rules),
            otlp: self.otlp.or(other.otlp),
            otlp_translation: self.otlp_translation.or(other.otlp_translation),
            otlp_promote: self.otlp_promote.or(other.otlp_promote),
            read_timeout: self.read_timeout.or(other.read_timeout),
            write_timeout: self.write_timeout.or(other.write_timeout),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
            statsd: self.statsd.or(other.statsd),
            statsd_mapping: self.statsd_mapping.or(other.statsd_mapping),
            statsd_suffixes: self.statsd_suffixes.or(other.statsd_suffixes),
            statsd_receive_buffer: self.statsd_receive_buffer.or(other.statsd_receive_buffer),
            log_format: self.log_format.or(other.log_format),
            log_level: self.log_level.or(other.log_level),
        }
    }

    /// The defaults that the help names, except for those that are derived from other settings.
    pub fn defaults() -> Self {
        let (limits, intake) = (http::Limits::default(), intake::Limits::default());
        let time = |duration| Some(Time(duration));
        Self {
            listen: Some(vec!["127.0.0.1:8081".to_owned()]),
            window: time(Duration::from_secs(60)),
            accuracy: time(Duration::from_millis(200)),
            span: None,
            state: Some("state.quipu".into()),
            damaged_state: Some(Damaged::Refuse),
            checkpoint: time(Duration::from_millis(500)),
            keys: Some(10_000),
            key_accuracy: None,
            key_bytes: Some(128),
            threads: Some(1),
            connections: Some(limits.connections),
            header_bytes: Some(limits.header_bytes),
            body_bytes: Some(limits.body_bytes),
            input_body_bytes: Some(limits.kept_body_bytes),
            input_bytes: Some(1 << 30),
            series: Some(intake.series),
            series_per_source: None,
            sample_rate: None,
            sample_rate_per_source: None,
            families: Some(intake.families),
            expiry: None,
            push: Some(Switch::On),
            push_consistency_check: Some(Switch::On),
            push_admin: Some(Switch::Off),
            push_groups: Some(100_000),
            push_mode: Some(push::Mode::Replace),
            push_add_jobs: None,
            push_gauges: Some(push::Gauges::Set),
            push_expiry: None,
            rules: None,
            otlp: Some(Switch::On),
            otlp_translation: Some(otlp::Translation::UnderscoreEscapingWithSuffixes),
            otlp_promote: None,
            read_timeout: time(limits.read_timeout),
            write_timeout: time(limits.write_timeout),
            idle_timeout: time(limits.idle_timeout),
            drain_timeout: time(limits.drain_timeout),
            statsd: None,
            statsd_mapping: None,
            statsd_suffixes: Some(false),
            statsd_receive_buffer: Some(4 << 20),
            log_format: Some(LogFormat::Text),
            log_level: Some(LogLevel::Info),
        }
    }
}

/// An address to listen on. A port alone is completed with the loopback address.
pub fn with_host(address: &str) -> String {
    match address.parse::<u16>() {
        Ok(port) if address.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("127.0.0.1:{port}")
        }
        _ => address.to_owned(),
    }
}

/// The environment variables that begin with `QUIPU_` and are not settings, sorted. Omits those
/// that the libraries read, and those that Kubernetes sets for a service named quipu.
pub fn strange<'n>(
    environment: impl IntoIterator<Item = &'n OsStr>,
    known: &[&OsStr],
) -> Vec<&'n OsStr> {
    let is_service = |name: &[u8]| {
        name.starts_with(b"QUIPU_SERVICE_")
            || name == b"QUIPU_PORT"
            || name.starts_with(b"QUIPU_PORT_")
    };
    let is_strange = |name: &&OsStr| {
        let bytes = name.as_encoded_bytes();
        let is_ours = bytes.starts_with(b"QUIPU_") && !is_service(bytes);
        is_ours && !known.contains(name) && !OTHERS.iter().any(|other| name == other)
    };
    let mut strange: Vec<_> = environment.into_iter().filter(is_strange).collect();
    strange.sort();
    strange
}

/// Variables that the Python and Ruby libraries read.
const OTHERS: [&str; 2] = ["QUIPU_DIR", crate::count::FILE_VARIABLE];

impl Settings {
    /// Fills in the defaults and validates the settings together.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn resolve(flags: Flags) -> Result<Self, Error> {
        let mut flags = flags.or(Flags::defaults());
        let window = set(flags.window).0;
        let accuracy = set(flags.accuracy).0;
        let span = flags.span.get_or_insert(Time(longest(window, accuracy))).0;
        let key_accuracy = window / 60;
        let key_accuracy = if key_accuracy * 60 == window && key_accuracy >= accuracy {
            key_accuracy
        } else {
            accuracy
        };
        let key_accuracy = flags.key_accuracy.get_or_insert(Time(key_accuracy)).0;

        let value = |name| move |error: quipu_window::Error| Error::Value(name, error.to_string());
        let bucketed = Bucketed::options(window, accuracy).tickets();
        bucketed.bytes().map_err(|error| match error {
            quipu_window::Error::Zero("accuracy") => value("accuracy")(error),
            other => value("window")(other),
        })?;
        if span < window {
            let window = Time(window);
            let what = format!("it is shorter than the window; give at least {window}");
            return Err(Error::Value("span", what));
        }
        let bucketed = bucketed.span(span);
        bucketed.bytes().map_err(value("span"))?;
        let key_bytes = number("key-bytes", flags.key_bytes, 1, 4096)?;
        let keyed =
            KeyedWindows::options(window, key_accuracy, set(flags.keys)).key_bytes(key_bytes);
        keyed.bytes().map_err(|error| match error {
            quipu_window::Error::NoCapacity => value("keys")(error),
            quipu_window::Error::NotMultiple { window, accuracy } => {
                let what = format!(
                    "the window of {window:?} is not a whole number of buckets of {accuracy:?}; \
                     give one that divides it"
                );
                Error::Value("key-accuracy", what)
            }
            other => value("key-accuracy")(other),
        })?;

        let listen = set(flags.listen.as_mut().map(|listen| {
            listen.iter_mut().for_each(|address| *address = with_host(address));
            listen.clone()
        }));
        if listen.is_empty() {
            let what = "there is no address; give at least one, such as 127.0.0.1:8081";
            return Err(Error::Value("listen", what.into()));
        }
        let checkpoint = at_least("checkpoint", flags.checkpoint, Duration::from_millis(1))?;
        let limits = http::Limits {
            header_bytes: number("header-bytes", flags.header_bytes, 256, 1 << 30)?,
            body_bytes: number("body-bytes", flags.body_bytes, 0, 1 << 40)?,
            kept_body_bytes: number("input-body-bytes", flags.input_body_bytes, 0, 1 << 32)?,
            connections: number("connections", flags.connections, 1, 1 << 30)?,
            read_timeout: at_least("read-timeout", flags.read_timeout, MIN_TIMEOUT)?,
            write_timeout: at_least("write-timeout", flags.write_timeout, MIN_TIMEOUT)?,
            idle_timeout: at_least("idle-timeout", flags.idle_timeout, MIN_TIMEOUT)?,
            drain_timeout: set(flags.drain_timeout).0,
            ..http::Limits::default()
        };
        let http = http::Options {
            threads: number("threads", flags.threads, 1, 1024)?,
            limits,
            ..http::Options::default()
        };
        Ok(Self {
            window: bucketed,
            keys: keyed,
            state: set(flags.state.clone()),
            damaged_state: set(flags.damaged_state),
            checkpoint,
            input_bytes: set(flags.input_bytes).clamp(1 << 20, 1 << 39),
            intake: intake::Limits {
                series: set(flags.series),
                series_per_source: flags.series_per_source.unwrap_or(u64::MAX),
                families: set(flags.families),
                reserved: Some(PREFIX),
                ..intake::Limits::default()
            },
            sample_rates: [flags.sample_rate, flags.sample_rate_per_source],
            expiry: flags.expiry.map(|expiry| expiry.0),
            push: push::Settings {
                enabled: set(flags.push) == Switch::On,
                checks: set(flags.push_consistency_check) == Switch::On,
                admin: set(flags.push_admin) == Switch::On,
                groups: number("push-groups", flags.push_groups, 1, 1 << 30)?,
                mode: set(flags.push_mode),
                gauges: set(flags.push_gauges),
                add_jobs: flags.push_add_jobs.clone().unwrap_or_default(),
                expiry: flags.push_expiry.map(|expiry| expiry.0),
            },
            rules: flags.rules.clone(),
            otlp: otlp::Options {
                enabled: set(flags.otlp) == Switch::On,
                translation: set(flags.otlp_translation),
                promote: flags.otlp_promote.clone().unwrap_or_default(),
            },
            listen,
            http,
            statsd: statsd::Options {
                addresses: flags.statsd.clone().unwrap_or_default(),
                mapping: flags.statsd_mapping.clone(),
                suffixes: set(flags.statsd_suffixes),
                receive_buffer: number(
                    "statsd-receive-buffer",
                    flags.statsd_receive_buffer,
                    4096,
                    1 << 30,
                )?,
            },
            log_format: set(flags.log_format),
            log_level: set(flags.log_level),
            flags,
        })
    }

    /// Reads the files that the settings name, as the daemon does when it starts.
    ///
    /// # Errors
    /// Those of the files, which name the line and the remedy.
    pub fn check_files(&self) -> Result<(), Error> {
        let mapping = self.statsd.mapping.as_deref().map(Mapping::read);
        mapping.transpose().map_err(Error::Mapping)?;
        let rules = self.rules.as_deref().map(Rules::read);
        rules.transpose().map(drop).map_err(Error::Rules)
    }

    /// The effective settings as texts, by name.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let table = toml::Table::try_from(&self.flags).unwrap_or_default();
        let shown = |value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        table.into_iter().map(|(name, value)| (name, shown(value))).collect()
    }

    /// The effective settings, as a TOML file.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.flags).expect("flags are a flat table of plain values")
    }
}

/// A setting after the defaults were filled in.
fn set<T>(value: Option<T>) -> T {
    value.expect("the defaults have a value for it")
}

/// The default span: an hour, or less if that would take more than [`MAX_BUCKETS`]; but at least
/// the window.
fn longest(window: Duration, accuracy: Duration) -> Duration {
    // Invalid durations only must not panic here: `resolve` reports them.
    let buckets = HOUR.as_nanos() / accuracy.as_nanos().max(1);
    let buckets = u32::try_from(buckets).unwrap_or(u32::MAX).min(MAX_BUCKETS);
    accuracy.checked_mul(buckets).unwrap_or(window).max(window)
}

fn at_least(name: &'static str, value: Option<Time>, least: Duration) -> Result<Duration, Error> {
    let value = set(value);
    if value.0 < least {
        let least = Time(least);
        return Err(Error::Value(name, format!("{value} is too short; give at least {least}")));
    }
    Ok(value.0)
}

fn number(
    name: &'static str,
    value: Option<usize>,
    least: usize,
    most: usize,
) -> Result<usize, Error> {
    let value = set(value);
    if !(least..=most).contains(&value) {
        let what = format!("{value} is out of range; give {least} to {most}");
        return Err(Error::Value(name, what));
    }
    Ok(value)
}

const HOUR: Duration = Duration::from_secs(3600);
/// The maximum number of buckets of a default span; they take 2 MiB.
const MAX_BUCKETS: u32 = 1 << 18;
/// The shortest timeout accepted; a shorter one is most likely a mistake.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(
                f,
                "cannot read the settings in {}: {error}; name a TOML file that this user may read",
                printable(path)
            ),
            Self::Parse(path, error) => {
                write!(f, "cannot use the settings in {}: {error}", printable(path))
            }
            Self::Value(name, what) => write!(f, "cannot use --{name}: {what}"),
            Self::Mapping(error) => write!(f, "{error}"),
            Self::Rules(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Parse(_, error) => Some(error),
            Self::Value(..) | Self::Mapping(_) | Self::Rules(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory, FromArgMatches, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn resolve(toml: &str) -> Result<Settings, Error> {
        Settings::resolve(toml::from_str(toml).unwrap())
    }

    #[test]
    fn the_help_names_the_defaults_that_hold() {
        let defaults = toml::Table::try_from(Settings::resolve(Flags::default()).unwrap().flags);
        let defaults = defaults.unwrap();
        let command: Command = Line::command();
        for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
            let name = argument.get_long().unwrap();
            let help = argument.get_help().unwrap().to_string();
            let env = argument.get_env().unwrap().to_str().unwrap();
            assert_eq!(env, format!("QUIPU_{}", name.to_uppercase().replace('-', "_")));
            let shown = match defaults.get(name) {
                None => "none".to_owned(),
                Some(toml::Value::String(text)) => text.replace("1m", "60s"),
                Some(toml::Value::Array(list)) => list[0].as_str().unwrap().to_owned(),
                Some(other) => other.to_string(),
            };
            let derived = ["span", "key-accuracy"].contains(&name);
            assert!(derived || help.contains(&format!("[default: {shown}]")), "{name}: {help}");
        }
    }

    #[test]
    fn flags_weigh_more_than_the_file() {
        let line = ["quipu", "--window", "10s", "--keys", "5"];
        let flags = Line::from_arg_matches(&Line::command().get_matches_from(line)).unwrap().flags;
        let file: Flags = toml::from_str("window = \"20s\"\naccuracy = \"1s\"").unwrap();
        let settings = Settings::resolve(flags.or(file)).unwrap();
        let shown = settings.to_toml();
        for part in ["window = \"10s\"", "accuracy = \"1s\"", "keys = 5", "span = \"1h\""] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        // The output works as a settings file.
        let again = resolve(&shown).unwrap();
        assert_eq!(again.flags, settings.flags);
    }

    #[test]
    fn senseless_values_name_the_flag_and_the_way_out() {
        for (toml, flag, way) in [
            ("window = \"0s\"", "--window", "at least a nanosecond"),
            ("window = \"1s\"\naccuracy = \"300ms\"", "--window", "take 900ms or 1.2s"),
            ("accuracy = \"2m\"", "--window", "take 120s, or a finer accuracy"),
            ("span = \"30s\"", "--span", "give at least 1m"),
            ("key-bytes = 0", "--key-bytes", "give 1 to 4096"),
            ("checkpoint = \"0s\"", "--checkpoint", "give at least 1ms"),
            ("keys = 0", "--keys", "room for 1 to 2^28 keys"),
            ("threads = 0", "--threads", "give 1 to 1024"),
            ("connections = 0", "--connections", "give 1 to"),
            ("read-timeout = \"1ms\"", "--read-timeout", "give at least 10ms"),
            ("accuracy = \"1ns\"", "--window", "a coarser accuracy"),
            ("statsd-receive-buffer = 1", "--statsd-receive-buffer", "give 4096 to"),
        ] {
            let message = resolve(toml).unwrap_err().to_string();
            assert!(message.contains(flag) && message.contains(way), "{toml}: {message}");
        }
        assert!("tomorrow".parse::<Time>().unwrap_err().contains("such as 200ms"));
        assert!("-1s".parse::<Time>().is_err());
        assert!("99999999999999999999s".parse::<Time>().is_err());
    }

    #[test]
    fn a_file_with_what_is_no_setting_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("quipu.toml");
        for (text, part) in [
            ("windw = \"60s\"", "unknown field `windw`"),
            ("window = 60", "invalid type"),
            ("window = \"60 parsecs\"", "such as 200ms"),
            ("statsd = [\"localhost:9125\"]", "udp://127.0.0.1:9125"),
            ("window", "quipu.toml"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = Flags::read(&path).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("quipu.toml"), "{message}");
        }
        let missing = Flags::read(&directory.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("name a TOML file"), "{missing}");
    }
}
