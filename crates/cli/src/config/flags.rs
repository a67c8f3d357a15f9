//! Joins the settings of all parts, as flags, environment variables and keys of the TOML file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Error, fault};
use crate::logs::LogFlags;
use crate::recording::RecordingFlags;
use crate::state::StateFlags;
use crate::windows::WindowFlags;
use quipu_agent::SegmentFlags;
use quipu_agent::targets::settings::TargetFlags;
use quipu_client::url_text::UrlText;
use quipu_http::HttpFlags;
use quipu_intake::settings::InputFlags;
use quipu_outputs::RemoteWriteFlags;
use quipu_outputs::otlp::settings::OtlpFlags;
use quipu_outputs::settings::LabelFlags;
use quipu_process::join_flags;

join_flags! {
    /// Every setting. All fields are optional; [`Settings::resolve`](super::Settings::resolve)
    /// fills in the defaults.
    pub struct Flags {
        /// The HTTP server.
        http: HttpFlags,
        /// The windows of requests.
        windows: WindowFlags,
        /// The state file.
        state: StateFlags,
        /// The inputs.
        inputs: InputFlags,
        /// Segments that are watched.
        segments: SegmentFlags,
        /// Segments that are recorded.
        recording: RecordingFlags,
        /// Targets that are scraped.
        targets: TargetFlags,
        /// Remote write.
        remote_write: RemoteWriteFlags,
        /// OTLP that is sent.
        otlp: OtlpFlags,
        /// Labels of all that is sent.
        labels: LabelFlags,
        /// The log.
        log: LogFlags,
    }
}

impl Flags {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// Fails if the file is unreadable, is not TOML, or contains an unknown setting.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::Read(path.into(), e))?;
        Self::from_settings(&text)
            .map_err(|error| Error::Parse(path.into(), fault::describe(&text, &error, is_harmless)))
    }

    /// Parses the contents of a settings file.
    ///
    /// # Errors
    /// Fails if this is not TOML, or if a setting is unknown or its value is unusable.
    pub fn from_settings(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str::<BTreeMap<Name, IgnoredAny>>(text)?;
        Self::from_toml(text)
    }

    /// Returns the settings without secrets as a settings file. A placeholder replaces the query of
    /// each URL, because a query can contain a secret.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_shown_toml(&self) -> Result<String, toml::ser::Error> {
        let mut flags = self.clone();
        flags.urls().for_each(UrlText::redact_query);
        flags.to_toml()
    }

    /// Returns the URLs of receivers and targets.
    fn urls(&mut self) -> impl Iterator<Item = &mut UrlText> {
        let outputs = &mut self.remote_write.remote_write;
        let urls = [outputs, &mut self.targets.scrape, &mut self.otlp.otlp];
        urls.into_iter().flatten().flatten()
    }

    /// Returns all settings as strings by name, to be shown. The URLs of receivers and targets lack
    /// their queries, because a query can contain a secret.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut flags = self.clone();
        flags.urls().for_each(UrlText::hide_query);
        let text = flags.to_toml().unwrap_or_default();
        let table: toml::Table = toml::from_str(&text).unwrap_or_default();
        let shown = |value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        table.into_iter().map(|(name, value)| (name, shown(value))).collect()
    }
}

/// The name of a setting.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match is_setting(&name) {
            true => Ok(Self(name)),
            false => Err(format!("unknown field `{name}`")),
        }
    }
}

/// Returns whether there is a setting with this name.
fn is_setting(name: &str) -> bool {
    Flags::names().iter().any(|other| other == name)
}

/// Returns whether there is a setting with this name whose value is never secret.
fn is_harmless(name: &str) -> bool {
    const SECRET: [&str; 5] =
        ["remote-write", "remote-write-header", "otlp", "otlp-header", "scrape"];
    is_setting(name) && !SECRET.contains(&name)
}
