//! The settings of the daemon: parses, joins and checks the flags, the environment and the TOML
//! file. Flags override the environment, which overrides the file.
//!
//! Each part of the daemon declares its settings in its own folder, and [`Flags`] joins them. You
//! can give each setting as a flag, as a `QUIPU_*` variable (clap parses both), or in the TOML file
//! under the name of the flag (serde parses it). [`Settings`] contains the effective settings,
//! checked together.

mod fault;
mod flags;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use quipu::intake;
use quipu_segment::printable;
use quipu_window::{BucketedOptions, KeyedOptions};

pub use flags::Flags;

use crate::logs::{LogFormat, LogLevel};
use crate::metrics::PREFIX;
use crate::state::DamagePolicy;
use quipu_agent as agent;
use quipu_http as http;
use quipu_intake as inputs;
use quipu_intake::listeners::{self, mapping};
use quipu_process::settings::{Unusable, at_least, set};
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
    /// The reaction to a damaged state file.
    pub damaged_state: DamagePolicy,
    /// The interval between syncs of the state file.
    pub checkpoint: Duration,
    /// The maximum size of received metrics in the state file, in bytes.
    pub input_bytes: u64,
    /// The limits on received samples.
    pub intake: intake::Limits,
    /// The options of the inputs.
    pub inputs: inputs::Options,
    /// The time after which a family is freed, if all of its series have expired.
    pub forget_names: Duration,
    /// The path of the rules for received samples.
    pub rules: Option<PathBuf>,
    /// The addresses to listen on.
    pub listen: Vec<String>,
    /// Options of the HTTP server.
    pub http: http::Options,
    /// The segments that the agent watches.
    pub segments: agent::Options,
    /// The targets that are scraped.
    pub targets: agent::targets::Options,
    /// The outputs.
    pub outputs: quipu_outputs::Options,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The lowest severity to log.
    pub log_level: LogLevel,
    /// All settings as flags, for display.
    pub flags: Flags,
}

/// Unusable settings. Each message names the setting and the remedy.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(PathBuf, std::io::Error),
    /// The file is not TOML, or contains an unknown setting. The message contains no secret of the
    /// file.
    Parse(PathBuf, String),
    /// TOML cannot represent the value of a setting.
    Write(toml::ser::Error),
    /// A setting is unusable, or settings conflict.
    Value(Unusable),
    /// The mapping file of StatsD or Graphite cannot be used.
    Mapping(mapping::Error),
    /// The rules cannot be used.
    Rules(rules::Error),
}

/// Returns the environment variables that begin with `QUIPU_` but are not settings, sorted. Omits
/// the variables that the libraries read, and the variables that Kubernetes sets for a service
/// named quipu.
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

/// The variables of the Python and Ruby libraries, and of the commands that count.
const OTHERS: [&str; 3] =
    ["QUIPU_DIR", quipu_commands::count::FILE_VARIABLE, quipu_commands::count::MODE_VARIABLE];

impl Settings {
    /// Adds the defaults, and checks all settings together.
    ///
    /// # Errors
    /// Returns [`Error::Value`] for a setting that is unusable or conflicts with another one.
    pub fn resolve(flags: Flags) -> Result<Self, Error> {
        let mut flags = flags.or(Flags::defaults());
        let (window, keys) = flags.windows.resolve()?;
        let state = set(flags.state.state.clone());
        let listen = flags.http.addresses()?;
        let http = flags.http.resolve(&listen, flags.inputs.common.body_bytes()?)?;
        let otlp = flags.otlp.resolve(&state)?;
        let labels = flags.labels.resolve()?;
        Ok(Self {
            window,
            keys,
            damaged_state: set(flags.state.damaged_state),
            checkpoint: at_least("checkpoint", flags.state.checkpoint, Duration::from_millis(1))?,
            input_bytes: flags.inputs.common.bytes(),
            intake: flags.inputs.common.limits(PREFIX),
            inputs: flags.inputs.resolve()?,
            forget_names: set(flags.inputs.common.forget_names).0,
            rules: flags.inputs.common.rules.clone(),
            listen,
            http,
            segments: flags.segments.resolve(&state, flags.recording.resolve()?)?,
            targets: flags.targets.resolve()?,
            outputs: flags.remote_write.resolve(labels, otlp, &state)?,
            log_format: set(flags.log.log_format),
            log_level: set(flags.log.log_level),
            state,
            flags,
        })
    }

    /// Reads all files that the settings name, including the files with secrets.
    ///
    /// # Errors
    /// Returns the errors of the files. They name the line and the remedy, but never contain a
    /// secret.
    pub fn check_files(&self) -> Result<(), Error> {
        listeners::check_mappings(&self.inputs).map_err(Error::Mapping)?;
        let rules = self.rules.as_deref().map(Rules::read);
        rules.transpose().map_err(Error::Rules)?;
        let relabelling = self.outputs.relabel.as_deref().map(Relabelling::read);
        relabelling.transpose().map(drop).map_err(Error::Rules)?;
        self.outputs.check_secrets()?;
        Ok(self.targets.check_secrets()?)
    }

    /// Returns warnings about settings that are valid but probably mistakes.
    pub fn warnings(&self) -> Vec<String> {
        self.segments.warnings().chain(self.outputs.warnings()).collect()
    }

    /// Returns the effective settings as a TOML file, without secrets.
    ///
    /// # Errors
    /// Returns [`Error::Write`] if a path is not UTF-8, because TOML cannot represent it.
    pub fn to_toml(&self) -> Result<String, Error> {
        self.flags.to_shown_toml().map_err(Error::Write)
    }
}

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
            Self::Write(error) => write!(f, "the settings can be used, but not shown: {error}"),
            Self::Value(unusable) => unusable.fmt(f),
            Self::Mapping(error) => write!(f, "{error}"),
            Self::Rules(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Parse(..) | Self::Value(_) | Self::Mapping(_) | Self::Rules(_) => None,
        }
    }
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        Self::Value(unusable)
    }
}
