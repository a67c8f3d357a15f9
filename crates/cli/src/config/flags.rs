//! The settings of all parts, as flags, environment variables and keys of the TOML file.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
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
use quipu_intake::graphite::settings::GraphiteFlags;
use quipu_intake::otlp::settings::OtlpInputFlags;
use quipu_intake::push::settings::PushFlags;
use quipu_intake::settings::IntakeFlags;
use quipu_intake::statsd::settings::StatsdFlags;
use quipu_outputs::RemoteWriteFlags;
use quipu_outputs::otlp::settings::OtlpFlags;
use quipu_outputs::settings::LabelFlags;

/// Joins the settings of parts.
macro_rules! join {
    ($($(#[$meta:meta])* $part:ident: $type:ty,)*) => {
        /// Every setting. All fields are optional; [`Settings::resolve`](super::Settings::resolve)
        /// fills in the defaults.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
        pub struct Flags {
            $($(#[$meta])* #[command(flatten)] pub $part: $type,)*
        }

        impl Flags {
            /// Returns these settings, with those of `other` where these are absent.
            pub fn or(self, other: Self) -> Self {
                Self { $($part: self.$part.or(other.$part),)* }
            }

            /// The defaults that the help names, except for those that depend on other settings.
            pub fn defaults() -> Self {
                Self { $($part: <$type>::defaults(),)* }
            }

            /// Reads the text of a settings file.
            ///
            /// # Errors
            /// A text that is not TOML, or has an unknown setting or an unusable value.
            pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
                toml::from_str::<BTreeMap<Name, IgnoredAny>>(text)?;
                Ok(Self { $($part: toml::from_str(text)?,)* })
            }

            /// The settings, as a settings file.
            ///
            /// # Errors
            /// A path that is not UTF-8.
            pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
                Ok([$(toml::to_string(&self.$part)?),*].concat())
            }
        }

        /// The names of all fields, by part.
        const FIELDS: &[&[&str]] = &[$(<$type>::FIELDS),*];
    };
}

join! {
    /// The HTTP server.
    http: HttpFlags,
    /// The windows of requests.
    windows: WindowFlags,
    /// The state file.
    state: StateFlags,
    /// All inputs.
    intake: IntakeFlags,
    /// Pushes.
    push: PushFlags,
    /// OTLP that comes in.
    otlp_input: OtlpInputFlags,
    /// StatsD.
    statsd: StatsdFlags,
    /// Graphite.
    graphite: GraphiteFlags,
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

impl Flags {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or has an unknown setting.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::Read(path.into(), e))?;
        Self::from_toml(&text).map_err(|error| {
            let what = fault::describe(&text, &error, is_harmless);
            Error::Parse(path.into(), what)
        })
    }

    /// All that are set, as texts by name. URLs of receivers and targets are without their queries,
    /// which may have a secret.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut flags = self.clone();
        let (outputs, targets) = (&mut flags.remote_write.remote_write, &mut flags.targets.scrape);
        let urls = [outputs, targets, &mut flags.otlp.otlp];
        urls.into_iter().flatten().flatten().for_each(UrlText::hide_query);
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

/// Whether there is a setting of that name.
fn is_setting(name: &str) -> bool {
    names().any(|other| other == name)
}

/// The names of all settings in a file.
pub(super) fn names() -> impl Iterator<Item = String> {
    FIELDS.iter().copied().flatten().map(|field| field.replace('_', "-"))
}

/// Whether there is a setting of that name, whose value has no secret.
fn is_harmless(name: &str) -> bool {
    const SECRET: [&str; 5] =
        ["remote-write", "remote-write-header", "otlp", "otlp-header", "scrape"];
    is_setting(name) && !SECRET.contains(&name)
}
