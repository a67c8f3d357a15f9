//! The table of all settings, as flags, environment variables and keys of the TOML file.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use quipu::intake;
use serde::{Deserialize, Serialize};

use super::{
    Damaged, Error, ExternalLabel, HeaderText, LogFormat, LogLevel, Queue, ResourceAttribute,
    Switch, Time, UrlText, fault, given, headings,
};
use quipu_agent as agent;
use quipu_agent::targets::TargetFile;
use quipu_commands::record;
use quipu_http as http;
use quipu_intake::{listeners, push};
use quipu_outputs::Coding;
use quipu_outputs::otlp::{Compression, Temporality};
use quipu_translate::otlp::Translation;

/// Every setting. All fields are optional; [`Settings::resolve`](super::Settings::resolve) fills in
/// the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(mut_args(headings::put))]
pub struct Flags {
    /// Address to listen on: HOST:PORT, or unix:PATH for a unix socket; may be given several times
    /// [default: 127.0.0.1:8081]
    #[arg(long, env = "QUIPU_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(deserialize_with = "given::list")]
    pub listen: Option<Vec<String>>,

    /// Name under which clients reach the daemon, such as metrics.example.com, or *.example.com for
    /// all names of a domain: a request for another name is refused if a web page may have sent it.
    /// Addresses, names without a dot and this machine's name are always served, and * serves all;
    /// may be given several times [default: none]
    #[arg(long, env = "QUIPU_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
    #[serde(deserialize_with = "given::list")]
    pub allow_host: Option<Vec<String>>,

    /// Origin of web pages that may send requests that change something, and read pushed metrics,
    /// such as https://console:3000, or * for all; may be given several times
    /// [default: none]
    #[arg(long, env = "QUIPU_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    #[serde(deserialize_with = "given::list")]
    pub allow_origin: Option<Vec<String>>,

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

    /// Maximum bytes of all responses that a thread holds until clients have read them; more get
    /// 503, or end the connections of slow readers [default: 268435456]
    #[arg(long, env = "QUIPU_RESPONSE_BYTES", value_name = "BYTES")]
    pub response_bytes: Option<usize>,

    /// Maximum bytes of the state file for metrics that come in. A file keeps the limit that it was
    /// created with [default: 1073741824]
    #[arg(long, env = "QUIPU_INPUT_BYTES", value_name = "BYTES")]
    pub input_bytes: Option<u64>,

    /// Maximum number of series that come in [default: 1000000]
    #[arg(long, env = "QUIPU_SERIES", value_name = "COUNT")]
    pub series: Option<u64>,

    /// Maximum number of series that one source may make while the daemon runs: an address, or a
    /// job of pushes and OTLP [default: none]
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

    /// Maximum number of families that one source may make while the daemon runs, so that others
    /// find room [default: three quarters of --families]
    #[arg(long, env = "QUIPU_FAMILIES_PER_SOURCE", value_name = "COUNT")]
    pub families_per_source: Option<u64>,

    /// Hides a series that came in and was not updated for this time. A counter that comes back
    /// goes on from its last total [default: none]
    #[arg(long, env = "QUIPU_EXPIRY", value_name = "TIME")]
    pub expiry: Option<Time>,

    /// Frees a family when the daemon starts, if its series all expired and were not updated for
    /// this time. A counter of it that comes back starts at zero [default: 1day]
    #[arg(long, env = "QUIPU_FORGET_NAMES", value_name = "TIME")]
    pub forget_names: Option<Time>,

    /// Takes pushes to Pushgateway's routes [default: on]
    #[arg(
        long, env = "QUIPU_PUSH", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub push: Option<Switch>,

    /// Refuses pushes that contradict other groups [default: on]
    #[arg(
        long, env = "QUIPU_PUSH_CONSISTENCY_CHECK", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
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

    /// What a push does to its group, unless it says so itself: replace it as in Pushgateway, or
    /// add to it [default: replace]
    #[arg(long, env = "QUIPU_PUSH_MODE", value_name = "MODE")]
    pub push_mode: Option<push::Mode>,

    /// Job whose pushes are added up, with * for any text; may be repeated [default: none]
    #[arg(long, env = "QUIPU_PUSH_ADD_JOBS", value_name = "PATTERN", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
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
    #[arg(
        long, env = "QUIPU_OTLP_INPUT", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub otlp_input: Option<Switch>,

    /// How names that come in by OTLP are translated, as in Prometheus' setting
    /// translation_strategy [default: UnderscoreEscapingWithSuffixes]
    #[arg(
        long,
        env = "QUIPU_OTLP_TRANSLATION",
        value_name = "STRATEGY",
        hide_possible_values = true
    )]
    pub otlp_translation: Option<Translation>,

    /// Attribute of resources that becomes a label of all their series that come in by OTLP; may be
    /// given several times [default: none]
    #[arg(long, env = "QUIPU_OTLP_PROMOTE", value_name = "KEY", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
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

    /// Where lines of StatsD and DogStatsD come in: udp://HOST:PORT, tcp://HOST:PORT,
    /// unixgram:PATH, or unix:PATH; may be given several times [default: none]
    #[arg(long, env = "QUIPU_STATSD", value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(deserialize_with = "given::list")]
    pub statsd: Option<Vec<listeners::Address>>,

    /// Mapping file of statsd_exporter, which gives names and labels to metrics of StatsD
    /// [default: none]
    #[arg(long, env = "QUIPU_STATSD_MAPPING", value_name = "FILE")]
    pub statsd_mapping: Option<PathBuf>,

    /// Whether the names of all counters of StatsD end in _total [default: off]
    #[arg(
        long, env = "QUIPU_STATSD_SUFFIXES", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub statsd_suffixes: Option<Switch>,

    /// Receive buffer of UDP listeners for StatsD to ask the kernel for [default: 4194304]
    #[arg(long, env = "QUIPU_STATSD_RECEIVE_BUFFER", value_name = "BYTES")]
    pub statsd_receive_buffer: Option<usize>,

    /// Where lines of Graphite's plaintext protocol come in: tcp://HOST:PORT, udp://HOST:PORT,
    /// unix:PATH, or unixgram:PATH; may be given several times [default: none]
    #[arg(long, env = "QUIPU_GRAPHITE", value_name = "ADDRESS", value_delimiter = ',')]
    #[serde(deserialize_with = "given::list")]
    pub graphite: Option<Vec<listeners::Address>>,

    /// Mapping file of graphite_exporter, which gives names and labels to metrics of Graphite
    /// [default: none]
    #[arg(long, env = "QUIPU_GRAPHITE_MAPPING", value_name = "FILE")]
    pub graphite_mapping: Option<PathBuf>,

    /// Receive buffer of UDP listeners for Graphite to ask the kernel for [default: 4194304]
    #[arg(long, env = "QUIPU_GRAPHITE_RECEIVE_BUFFER", value_name = "BYTES")]
    pub graphite_receive_buffer: Option<usize>,

    /// Segment file, directory with such files, or pattern of paths, whose metrics are shown; may
    /// be given several times [default: none]
    #[arg(long, env = "QUIPU_SEGMENTS", value_name = "PATH", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
    pub segments: Option<Vec<String>>,

    /// Pattern of paths that gives labels to the metrics of a file, such as
    /// /run/quipu/{app}/{instance}.quipu; may be given several times [default: none]
    #[arg(long, env = "QUIPU_SEGMENTS_LABELS", value_name = "PATTERN", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
    pub segments_labels: Option<Vec<agent::Pattern>>,

    /// How long the last values of a segment are shown that no process has open, or that was
    /// removed; without it, as long as the file is there [default: none]
    #[arg(long, env = "QUIPU_SEGMENTS_KEEP", value_name = "TIME")]
    pub segments_keep: Option<Time>,

    /// Maximum number of segment files and directories that are watched [default: 1000]
    #[arg(long, env = "QUIPU_SEGMENTS_COUNT", value_name = "COUNT")]
    pub segments_count: Option<usize>,

    /// Maximum bytes that all watched segments together may have in use; the largest, for which no
    /// room is left, are left out [default: 1073741824]
    #[arg(long, env = "QUIPU_SEGMENTS_BYTES", value_name = "BYTES")]
    pub segments_bytes: Option<u64>,

    /// Records the segments that programs have open, second by second: what led to a crash is shown
    /// by quipu inspect --history FILE. A process beside the daemon takes up to 4 MiB of each
    /// segment [default: off]
    #[arg(
        long, env = "QUIPU_SEGMENTS_RECORD", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub segments_record: Option<Switch>,

    /// Maximum number of segments that are recorded [default: 100]
    #[arg(long, env = "QUIPU_SEGMENTS_RECORD_COUNT", value_name = "COUNT")]
    pub segments_record_count: Option<usize>,

    /// Target whose metrics are scraped and shown: [JOB=]URL, where URL is http://HOST:PORT/PATH,
    /// https://..., or unix:SOCKET:/PATH; may be given several times [default: none]
    #[arg(
        long,
        env = "QUIPU_SCRAPE",
        value_name = "[JOB=]URL",
        value_delimiter = '\n',
        hide_env_values = true
    )]
    #[serde(deserialize_with = "given::list")]
    pub scrape: Option<Vec<UrlText>>,

    /// How often each target is scraped [default: 15s]
    #[arg(long, env = "QUIPU_SCRAPE_INTERVAL", value_name = "TIME")]
    pub scrape_interval: Option<Time>,

    /// Time limit of a scrape [default: 10s, or the interval if that is shorter]
    #[arg(long, env = "QUIPU_SCRAPE_TIMEOUT", value_name = "TIME")]
    pub scrape_timeout: Option<Time>,

    /// Maximum bytes of what a target exposes, expanded; the scrape of a larger one fails
    /// [default: 67108864]
    #[arg(long, env = "QUIPU_SCRAPE_BODY_BYTES", value_name = "BYTES")]
    pub scrape_body_bytes: Option<u64>,

    /// Maximum number of samples that a target exposes; the scrape of more fails [default: 500000]
    #[arg(long, env = "QUIPU_SCRAPE_SAMPLES", value_name = "COUNT")]
    pub scrape_samples: Option<usize>,

    /// File with the token of targets, for the header Authorization: Bearer: of those of the job,
    /// or of all that have no other; may be given several times [default: none]
    #[arg(
        long,
        env = "QUIPU_SCRAPE_BEARER_FILE",
        value_name = "[JOB=]FILE",
        value_delimiter = '\n'
    )]
    #[serde(deserialize_with = "given::list")]
    pub scrape_bearer_file: Option<Vec<TargetFile>>,

    /// File with USER:PASSWORD, for the header Authorization: Basic, as --scrape-bearer-file; may
    /// be given several times [default: none]
    #[arg(
        long,
        env = "QUIPU_SCRAPE_BASIC_FILE",
        value_name = "[JOB=]FILE",
        value_delimiter = '\n'
    )]
    #[serde(deserialize_with = "given::list")]
    pub scrape_basic_file: Option<Vec<TargetFile>>,

    /// Where all metrics are sent by Prometheus' remote write, such as
    /// http://prometheus:9090/api/v1/write; may be given several times [default: none]
    #[arg(
        long,
        env = "QUIPU_REMOTE_WRITE",
        value_name = "URL",
        value_delimiter = '\n',
        hide_env_values = true
    )]
    #[serde(deserialize_with = "given::list")]
    pub remote_write: Option<Vec<UrlText>>,

    /// What is kept for a receiver that takes nothing at the moment: the latest totals, or all
    /// requests on the disk [default: latest]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE", value_name = "QUEUE")]
    pub remote_write_queue: Option<Queue>,

    /// Maximum bytes of the queue of each receiver on the disk; the oldest requests make room
    /// [default: 536870912]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE_BYTES", value_name = "BYTES")]
    pub remote_write_queue_bytes: Option<u64>,

    /// Directory of the queues on the disk [default: that of the state file, such as
    /// state.quipu.queue]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE_DIRECTORY", value_name = "DIRECTORY")]
    pub remote_write_queue_directory: Option<PathBuf>,

    /// Rules for all series that are sent: Prometheus' write_relabel_configs [default: none]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_RELABEL", value_name = "FILE")]
    pub remote_write_relabel: Option<PathBuf>,

    /// How often metrics are sent [default: 15s]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_INTERVAL", value_name = "TIME")]
    pub remote_write_interval: Option<Time>,

    /// How many requests are sent to a receiver at once, 1 to 64: the series are divided into this
    /// number of shards [default: 1]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_SHARDS", value_name = "COUNT")]
    pub remote_write_shards: Option<u8>,

    /// How requests of remote write are compressed: zstd takes a fraction of the bytes, but only
    /// VictoriaMetrics and other daemons take it [default: snappy]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_COMPRESSION", value_name = "HOW")]
    pub remote_write_compression: Option<Coding>,

    /// Header field of all requests of remote write, such as 'X-Scope-OrgID: tenant-1'; may be
    /// given several times. Others can see it in the list of processes [default: none]
    #[arg(
        long,
        env = "QUIPU_REMOTE_WRITE_HEADER",
        value_name = "NAME: VALUE",
        value_delimiter = '\n',
        hide_env_values = true
    )]
    #[serde(deserialize_with = "given::list")]
    pub remote_write_header: Option<Vec<HeaderText>>,

    /// File with secret header fields for the receiver, NAME: VALUE on each line [default: none]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_HEADER_FILE", value_name = "FILE")]
    pub remote_write_header_file: Option<PathBuf>,

    /// Whether the last exemplars of series are sent [default: off]
    #[arg(
        long, env = "QUIPU_REMOTE_WRITE_EXEMPLARS", value_name = "SWITCH",
        num_args = 0..=1, default_missing_value = "on",
    )]
    pub remote_write_exemplars: Option<Switch>,

    /// File with the token of the receiver, for the header Authorization: Bearer [default: none]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_BEARER_FILE", value_name = "FILE")]
    pub remote_write_bearer_file: Option<PathBuf>,

    /// File with USER:PASSWORD, for the header Authorization: Basic [default: none]
    #[arg(long, env = "QUIPU_REMOTE_WRITE_BASIC_FILE", value_name = "FILE")]
    pub remote_write_basic_file: Option<PathBuf>,

    /// Where all metrics are sent by OTLP over HTTP, such as http://collector:4318; a URL without a
    /// path gets /v1/metrics; may be given several times [default: none]
    #[arg(
        long,
        env = "QUIPU_OTLP",
        value_name = "URL",
        value_delimiter = '\n',
        hide_env_values = true
    )]
    #[serde(deserialize_with = "given::list")]
    pub otlp: Option<Vec<UrlText>>,

    /// How often metrics are sent by OTLP [default: 60s]
    #[arg(long, env = "QUIPU_OTLP_INTERVAL", value_name = "TIME")]
    pub otlp_interval: Option<Time>,

    /// What sums and histograms that are sent by OTLP count from: their start, or what was sent
    /// before [default: cumulative]
    #[arg(long, env = "QUIPU_OTLP_TEMPORALITY", value_name = "TEMPORALITY")]
    pub otlp_temporality: Option<Temporality>,

    /// How requests of OTLP are compressed [default: gzip]
    #[arg(long, env = "QUIPU_OTLP_COMPRESSION", value_name = "HOW")]
    pub otlp_compression: Option<Compression>,

    /// Attribute of all resources that are sent by OTLP, such as
    /// deployment.environment.name=production; labels job and instance of series precede
    /// service.name, service.namespace and service.instance.id; may be given several times
    /// [default: none]
    #[arg(long, env = "QUIPU_OTLP_RESOURCE", value_name = "KEY=VALUE", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
    pub otlp_resource: Option<Vec<ResourceAttribute>>,

    /// Header field of all requests of OTLP, such as 'X-Tenant: a'; may be given several times.
    /// Others can see it in the list of processes [default: none]
    #[arg(
        long,
        env = "QUIPU_OTLP_HEADER",
        value_name = "NAME: VALUE",
        value_delimiter = '\n',
        hide_env_values = true
    )]
    #[serde(deserialize_with = "given::list")]
    pub otlp_header: Option<Vec<HeaderText>>,

    /// File with secret header fields for the receiver of OTLP, such as API keys: NAME: VALUE on
    /// each line [default: none]
    #[arg(long, env = "QUIPU_OTLP_HEADER_FILE", value_name = "FILE")]
    pub otlp_header_file: Option<PathBuf>,

    /// File with the token of the receiver of OTLP, for the header Authorization: Bearer
    /// [default: none]
    #[arg(long, env = "QUIPU_OTLP_BEARER_FILE", value_name = "FILE")]
    pub otlp_bearer_file: Option<PathBuf>,

    /// File with USER:PASSWORD for the receiver of OTLP, for the header Authorization: Basic
    /// [default: none]
    #[arg(long, env = "QUIPU_OTLP_BASIC_FILE", value_name = "FILE")]
    pub otlp_basic_file: Option<PathBuf>,

    /// Label of all series that are sent, unless they have it; may be given several times
    /// [default: none]
    #[arg(long, env = "QUIPU_EXTERNAL_LABEL", value_name = "NAME=VALUE", value_delimiter = '\n')]
    #[serde(deserialize_with = "given::list")]
    pub external_label: Option<Vec<ExternalLabel>>,

    /// Format of the log [default: text]
    #[arg(long, env = "QUIPU_LOG_FORMAT", value_name = "FORM")]
    pub log_format: Option<LogFormat>,

    /// Lowest severity that is logged: error, warn, info, debug, trace [default: info]
    #[arg(long, env = "QUIPU_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

impl Flags {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or has an unknown setting.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::Read(path.into(), e))?;
        toml::from_str(&text).map_err(|error| {
            let what = fault::describe(&text, &error, is_harmless);
            Error::Parse(path.into(), what)
        })
    }

    /// Returns these settings, with those of `other` where these are absent.
    pub fn or(self, other: Self) -> Self {
        // It has to name all fields, or it does not compile.
        macro_rules! first_of {
            ($one:ident $other:ident: $($field:ident)*) => {
                Self { $($field: $one.$field.or($other.$field)),* }
            };
        }
        first_of! { self other:
            listen allow_host allow_origin window accuracy span state damaged_state checkpoint keys key_accuracy
            key_bytes threads connections header_bytes body_bytes response_bytes input_body_bytes
            input_bytes series series_per_source sample_rate sample_rate_per_source families
            families_per_source expiry forget_names push push_consistency_check push_admin
            push_groups push_mode push_add_jobs push_gauges push_expiry rules otlp_input
            otlp_translation otlp_promote read_timeout write_timeout idle_timeout
            drain_timeout statsd statsd_mapping statsd_suffixes statsd_receive_buffer
            graphite graphite_mapping graphite_receive_buffer segments segments_labels
            segments_keep segments_count segments_bytes
            segments_record segments_record_count scrape scrape_interval scrape_timeout
            scrape_body_bytes scrape_samples scrape_bearer_file scrape_basic_file
            remote_write remote_write_queue remote_write_queue_bytes
            remote_write_queue_directory remote_write_relabel remote_write_interval
            remote_write_shards remote_write_exemplars
            remote_write_compression remote_write_header remote_write_header_file remote_write_bearer_file
            remote_write_basic_file otlp otlp_interval otlp_temporality otlp_compression
            otlp_resource otlp_header otlp_header_file otlp_bearer_file otlp_basic_file
            external_label log_format log_level
        }
    }

    /// All that are set, as texts by name. URLs of receivers and targets are without their queries,
    /// which may have a secret.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut flags = self.clone();
        let urls = [&mut flags.remote_write, &mut flags.otlp, &mut flags.scrape];
        urls.into_iter().flatten().flatten().for_each(UrlText::hide_query);
        let table = toml::Table::try_from(&flags).unwrap_or_default();
        let shown = |value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        table.into_iter().map(|(name, value)| (name, shown(value))).collect()
    }

    /// The defaults that the help names, except for those that are derived from other settings.
    pub fn defaults() -> Self {
        let (limits, intake) = (http::Limits::default(), intake::Limits::default());
        let time = |duration| Some(Time(duration));
        Self {
            listen: Some(vec!["127.0.0.1:8081".to_owned()]),
            window: time(Duration::from_secs(60)),
            accuracy: time(Duration::from_millis(200)),
            state: Some("state.quipu".into()),
            damaged_state: Some(Damaged::Refuse),
            checkpoint: time(Duration::from_millis(500)),
            keys: Some(10_000),
            key_bytes: Some(128),
            threads: Some(1),
            connections: Some(limits.connections),
            header_bytes: Some(limits.header_bytes),
            body_bytes: Some(limits.body_bytes),
            response_bytes: Some(limits.response_bytes),
            input_body_bytes: Some(limits.kept_body_bytes),
            input_bytes: Some(1 << 30),
            series: Some(intake.series),
            families: Some(intake.families),
            forget_names: time(Duration::from_secs(24 * 60 * 60)),
            push: Some(Switch::On),
            push_consistency_check: Some(Switch::On),
            push_admin: Some(Switch::Off),
            push_groups: Some(100_000),
            push_mode: Some(push::Mode::Replace),
            push_gauges: Some(push::Gauges::Set),
            otlp_input: Some(Switch::On),
            otlp_translation: Some(Translation::UnderscoreEscapingWithSuffixes),
            read_timeout: time(limits.read_timeout),
            write_timeout: time(limits.write_timeout),
            idle_timeout: time(limits.idle_timeout),
            drain_timeout: time(limits.drain_timeout),
            statsd_suffixes: Some(Switch::Off),
            statsd_receive_buffer: Some(4 << 20),
            graphite_receive_buffer: Some(4 << 20),
            segments_count: Some(1000),
            segments_bytes: Some(1 << 30),
            segments_record: Some(Switch::Off),
            segments_record_count: Some(record::DEFAULT_COUNT.into()),
            scrape_interval: time(Duration::from_secs(15)),
            scrape_body_bytes: Some(64 << 20),
            scrape_samples: Some(500_000),
            remote_write_queue: Some(Queue::Latest),
            remote_write_queue_bytes: Some(512 << 20),
            remote_write_interval: time(Duration::from_secs(15)),
            remote_write_shards: Some(1),
            remote_write_exemplars: Some(Switch::Off),
            remote_write_compression: Some(Coding::Snappy),
            otlp_interval: time(Duration::from_secs(60)),
            otlp_temporality: Some(Temporality::Cumulative),
            otlp_compression: Some(Compression::Gzip),
            log_format: Some(LogFormat::Text),
            log_level: Some(LogLevel::Info),
            ..Self::default()
        }
    }
}

/// Whether there is a setting of that name, whose value has no secret.
fn is_harmless(name: &str) -> bool {
    const SECRET: [&str; 5] =
        ["remote-write", "remote-write-header", "otlp", "otlp-header", "scrape"];
    let command = Flags::augment_args(clap::Command::new("quipu"));
    let mut known = command.get_arguments().filter_map(clap::Arg::get_long);
    known.any(|known| known == name) && !SECRET.contains(&name)
}
