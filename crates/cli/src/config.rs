//! The settings of the daemon. Flags override the environment, which overrides the TOML file.
//!
//! One table, [`Flags`], declares every setting: clap reads it from flags and `QUIPU_*` variables,
//! serde from the TOML file, whose keys are the names of the flags. [`Settings`] has the effective
//! ones, checked together.

mod access;
mod fault;
mod flags;
mod given;
mod headers;
mod headings;
mod outputs;
mod targets;
#[cfg(test)]
mod tests;
mod urls;
mod values;

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use quipu::intake;
use quipu_segment::printable;
use quipu_window::{Bucketed, BucketedOptions, KeyedOptions, KeyedWindows};

pub use flags::Flags;
pub use headers::HeaderText;
pub use outputs::Queue;
pub use urls::UrlText;
pub use values::{Damaged, LogFormat, LogLevel, Switch};

use crate::metrics::PREFIX;
use quipu_agent as agent;
use quipu_commands::record;
use quipu_http as http;
use quipu_intake::listeners::mapping::{self, Mapping};
use quipu_intake::{self as inputs, graphite, listeners, otlp, push, statsd};
use quipu_outputs::labels::{ExternalLabel, ResourceAttribute};
use quipu_process::address::with_host;
use quipu_process::time::Time;
use quipu_translate::rules::{self, Relabelling, Rules};

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
    /// The options that all inputs share.
    pub inputs: inputs::Options,
    /// The time after which a family is freed, if all of its series have expired.
    pub forget_names: Duration,
    /// How pushed metrics are treated.
    pub push: push::Settings,
    /// The file of rules for samples that come in.
    pub rules: Option<PathBuf>,
    /// The addresses to listen on.
    pub listen: Vec<String>,
    /// Options of the HTTP server.
    pub http: http::Options,
    /// Listeners for StatsD.
    pub statsd: listeners::Options,
    /// Listeners for Graphite.
    pub graphite: listeners::Options,
    /// What the agent watches.
    pub segments: agent::Options,
    /// What is scraped.
    pub targets: agent::targets::Options,
    /// What is sent to others.
    pub outputs: quipu_outputs::Options,
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
    /// The file is not TOML, or has an unknown setting. The text has no secret of the file.
    Parse(PathBuf, String),
    /// A setting has an unusable value, or values contradict each other.
    Value(&'static str, String),
    /// The mapping file of StatsD or Graphite cannot be used.
    Mapping(mapping::Error),
    /// The rules cannot be used.
    Rules(rules::Error),
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

/// Variables that the Python and Ruby libraries read, and those of the commands that count.
const OTHERS: [&str; 3] =
    ["QUIPU_DIR", quipu_commands::count::FILE_VARIABLE, quipu_commands::count::MODE_VARIABLE];

impl Settings {
    /// Fills in the defaults and validates the settings together.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn resolve(flags: Flags) -> Result<Self, Error> {
        let mut flags = flags.or(Flags::defaults());
        let (window, keys) = windows(&mut flags)?;
        let families = set(flags.families);
        let families_per_source = *flags.families_per_source.get_or_insert(families - families / 4);
        flags.remote_write_queue_directory = Some(outputs::queue_directory(&flags));
        let listen = listen(&mut flags)?;
        let checkpoint = at_least("checkpoint", flags.checkpoint, Duration::from_millis(1))?;
        let http = http(&flags, &listen)?;
        let otlp = otlp::Options {
            enabled: set(flags.otlp_input) == Switch::On,
            translation: set(flags.otlp_translation),
            promote: flags.otlp_promote.clone().unwrap_or_default(),
        };
        let segments = segments(&flags)?;
        let input_bytes = set(flags.input_bytes).clamp(1 << 20, 1 << 39);
        Ok(Self {
            window,
            keys,
            state: set(flags.state.clone()),
            damaged_state: set(flags.damaged_state),
            checkpoint,
            input_bytes,
            intake: intake::Limits {
                series: set(flags.series),
                series_per_source: flags.series_per_source.unwrap_or(u64::MAX),
                families,
                families_per_source,
                reserved: Some(PREFIX),
                bytes_for_series: input_bytes / 4,
                ..intake::Limits::default()
            },
            inputs: inputs::Options {
                series: set(flags.series),
                sample_rates: [flags.sample_rate, flags.sample_rate_per_source],
                expiry: flags.expiry.map(|expiry| expiry.0),
                otlp,
                body_bytes: http.limits.kept_body_bytes,
            },
            forget_names: set(flags.forget_names).0,
            push: push(&flags, &http.access)?,
            rules: flags.rules.clone(),
            listen,
            http,
            statsd: listeners::Options {
                addresses: flags.statsd.clone().unwrap_or_default(),
                mapping: flags.statsd_mapping.clone(),
                suffixes: set(flags.statsd_suffixes) == Switch::On,
                receive_buffer: receive_buffer(
                    "statsd-receive-buffer",
                    flags.statsd_receive_buffer,
                )?,
            },
            graphite: listeners::Options {
                addresses: flags.graphite.clone().unwrap_or_default(),
                mapping: flags.graphite_mapping.clone(),
                suffixes: false,
                receive_buffer: receive_buffer(
                    "graphite-receive-buffer",
                    flags.graphite_receive_buffer,
                )?,
            },
            segments,
            targets: targets::resolve(&mut flags)?,
            outputs: outputs::resolve(&mut flags)?,
            log_format: set(flags.log_format),
            log_level: set(flags.log_level),
            flags,
        })
    }

    /// Reads the files that the settings name, as the daemon does when it starts, and those with
    /// secrets, as it does before each request.
    ///
    /// # Errors
    /// Those of the files, which name the line and the remedy, and have no secret.
    pub fn check_files(&self) -> Result<(), Error> {
        for (options, protocol) in
            [(&self.statsd, statsd::STATSD), (&self.graphite, graphite::GRAPHITE)]
        {
            let mapping = options.mapping.as_deref().map(|path| Mapping::read(path, protocol.flag));
            mapping.transpose().map_err(Error::Mapping)?;
        }
        let rules = self.rules.as_deref().map(Rules::read);
        rules.transpose().map_err(Error::Rules)?;
        let relabelling = self.outputs.relabel.as_deref().map(Relabelling::read);
        relabelling.transpose().map(drop).map_err(Error::Rules)?;
        outputs::check_secrets(&self.outputs)?;
        targets::check_secrets(&self.targets)
    }

    /// What is most likely a mistake, and may be meant: as text for people.
    pub fn warnings(&self) -> Vec<String> {
        let places = self.segments.places.iter().filter_map(|place| doubtful(place));
        places.chain(outputs::warnings(&self.outputs)).collect()
    }

    /// The effective settings, as a TOML file.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.flags).expect("flags are a flat table of plain values")
    }
}

/// The window of all requests, and those of keys. Fills in what depends on other settings.
fn windows(flags: &mut Flags) -> Result<(BucketedOptions, KeyedOptions), Error> {
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
    let keyed = KeyedWindows::options(window, key_accuracy, set(flags.keys)).key_bytes(key_bytes);
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
    Ok((bucketed, keyed))
}

/// The addresses to listen on, each with a host, in the flags as well.
fn listen(flags: &mut Flags) -> Result<Vec<String>, Error> {
    let listen = set(flags.listen.as_mut().map(|listen| {
        listen.iter_mut().for_each(|address| *address = with_host(address));
        listen.clone()
    }));
    if listen.is_empty() {
        let what = "there is no address; give at least one, such as 127.0.0.1:8081";
        return Err(Error::Value("listen", what.into()));
    }
    Ok(listen)
}

/// The HTTP server.
fn http(flags: &Flags, listen: &[String]) -> Result<http::Options, Error> {
    let limits = http::Limits {
        header_bytes: number("header-bytes", flags.header_bytes, 256, 1 << 30)?,
        body_bytes: number("body-bytes", flags.body_bytes, 0, 1 << 40)?,
        kept_body_bytes: number("input-body-bytes", flags.input_body_bytes, 0, 1 << 32)?,
        response_bytes: number("response-bytes", flags.response_bytes, 1 << 20, 1 << 40)?,
        connections: number("connections", flags.connections, 1, 1 << 30)?,
        read_timeout: at_least("read-timeout", flags.read_timeout, MIN_TIMEOUT)?,
        write_timeout: at_least("write-timeout", flags.write_timeout, MIN_TIMEOUT)?,
        idle_timeout: at_least("idle-timeout", flags.idle_timeout, MIN_TIMEOUT)?,
        drain_timeout: set(flags.drain_timeout).0,
        ..http::Limits::default()
    };
    Ok(http::Options {
        threads: number("threads", flags.threads, 1, 1024)?,
        limits,
        access: access::resolve(flags, listen)?,
        ..http::Options::default()
    })
}

/// How pushed metrics are treated.
fn push(flags: &Flags, access: &http::Access) -> Result<push::Settings, Error> {
    Ok(push::Settings {
        access: access.clone(),
        enabled: set(flags.push) == Switch::On,
        checks: set(flags.push_consistency_check) == Switch::On,
        admin: set(flags.push_admin) == Switch::On,
        groups: number("push-groups", flags.push_groups, 1, 1 << 30)?,
        mode: set(flags.push_mode),
        gauges: set(flags.push_gauges),
        add_jobs: flags.push_add_jobs.clone().unwrap_or_default(),
        expiry: flags.push_expiry.map(|expiry| expiry.0),
    })
}

/// The receive buffer of a listener for lines.
fn receive_buffer(name: &'static str, bytes: Option<usize>) -> Result<usize, Error> {
    number(name, bytes, 4096, 1 << 30)
}

/// What the agent watches.
fn segments(flags: &Flags) -> Result<agent::Options, Error> {
    let places = flags.segments.clone().unwrap_or_default();
    for place in &places {
        let what = match glob::Pattern::new(place) {
            Ok(_) if place.contains("**") => {
                format!("{place:?} has \"**\", of any depth; write a * for each directory")
            }
            Ok(_) if !place.is_empty() => continue,
            Ok(_) => "the path is empty; name a directory or a file".to_owned(),
            Err(error) => format!("{place:?} cannot be a pattern of paths: {error}"),
        };
        return Err(Error::Value("segments", what));
    }
    let (record, most) = (flags.segments_record_count, record::MOST_COUNT.into());
    let record = number("segments-record-count", record, 1, most)?;
    Ok(agent::Options {
        places,
        labels: flags.segments_labels.clone().unwrap_or_default(),
        keep: flags.segments_keep.map(|keep| keep.0),
        most: number("segments-count", flags.segments_count, 1, 1 << 20)?,
        bytes: set(flags.segments_bytes).min(1 << 40),
        record: (set(flags.segments_record) == Switch::On).then_some(record),
        own: set(flags.state.clone()),
    })
}

/// What is most likely wrong with a place of segments. Nothing looks whether it is there: its file
/// system may hang.
fn doubtful(place: &str) -> Option<String> {
    let shown = printable(place);
    if place.starts_with('~') {
        return Some(format!(
            "--segments: {shown} begins with ~, which only a shell expands: write the whole path"
        ));
    }
    (place.contains(":/") || place.contains(",/")).then(|| {
        format!(
            "--segments: {shown} is taken as one path: give each by a --segments of its own, on a \
             line of its own in QUIPU_SEGMENTS, or in an array of the settings file"
        )
    })
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
            Self::Parse(..) | Self::Value(..) | Self::Mapping(_) | Self::Rules(_) => None,
        }
    }
}
