//! Declares the settings of the OTLP input, and converts them to `Options`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use quipu_process::flags;
use quipu_process::settings::{Switch, Unusable, set};
use quipu_translate::otlp::Translation;

use super::Options;

flags! {
    /// The flags of the OTLP input.
    #[command(next_help_heading = "OTLP input")]
    pub struct OtlpInputFlags {
        /// Accept metrics by OTLP over HTTP, at /v1/metrics [default: on]
        #[arg(
            long, env = "QUIPU_OTLP_INPUT", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        otlp_input: Switch = Switch::On,

        /// Translation of names from OTLP, like Prometheus' setting translation_strategy [default:
        /// UnderscoreEscapingWithSuffixes]
        #[arg(
            long,
            env = "QUIPU_OTLP_TRANSLATION",
            value_name = "STRATEGY",
            hide_possible_values = true
        )]
        otlp_translation: Translation = Translation::UnderscoreEscapingWithSuffixes,

        /// Key of a resource attribute in OTLP that becomes a label of all series of its resource;
        /// may be given several times [default: none]
        #[arg(long, env = "QUIPU_OTLP_PROMOTE", value_name = "KEY", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        otlp_promote: Vec<String>,
    }
}

impl OtlpInputFlags {
    /// Returns the options of the input.
    ///
    /// # Errors
    /// Never fails, because every value is valid.
    pub fn resolve(&self) -> Result<Options, Unusable> {
        Ok(Options {
            enabled: set(self.otlp_input).is_on(),
            translation: set(self.otlp_translation),
            promote: self.otlp_promote.clone().unwrap_or_default(),
        })
    }
}
