//! Declares the settings of pushes, checks them, and converts them to `Settings`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use quipu_process::flags;
use quipu_process::settings::{Switch, Unusable, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;

use super::options::{Gauges, Mode, Settings};

flags! {
    /// The settings of pushes.
    #[command(next_help_heading = "Pushes")]
    pub struct PushFlags {
        /// Accept pushes to Pushgateway's routes [default: on]
        #[arg(
            long, env = "QUIPU_PUSH", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        push: Switch = Switch::On,

        /// Refuse pushes that contradict other groups [default: on]
        #[arg(
            long, env = "QUIPU_PUSH_CONSISTENCY_CHECK", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        push_consistency_check: Switch = Switch::On,

        /// Accept PUT /api/v1/admin/wipe, which removes all groups [default: off]
        #[arg(
            long, env = "QUIPU_PUSH_ADMIN", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        push_admin: Switch = Switch::Off,

        /// Maximum number of groups of pushed metrics; pushes to more get 429 [default: 100000]
        #[arg(long, env = "QUIPU_PUSH_GROUPS", value_name = "COUNT")]
        push_groups: Size<usize> = Size(100_000),

        /// Default effect of a push on its group [default: replace]
        #[arg(long, env = "QUIPU_PUSH_MODE", value_name = "MODE")]
        push_mode: Mode = Mode::Replace,

        /// Job whose pushes are added up, with * for any string; may be given several times
        /// [default: none]
        #[arg(long, env = "QUIPU_PUSH_ADD_JOBS", value_name = "PATTERN", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        push_add_jobs: Vec<String>,

        /// Default effect of an added push on gauges [default: set]
        #[arg(long, env = "QUIPU_PUSH_GAUGES", value_name = "HOW")]
        push_gauges: Gauges = Gauges::Set,

        /// Hide a group that received no push for this time [default: none]
        #[arg(long, env = "QUIPU_PUSH_EXPIRY", value_name = "TIME")]
        push_expiry: Time,
    }
}

impl PushFlags {
    /// Returns the options of pushes.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> Result<Settings, Unusable> {
        Ok(Settings {
            enabled: set(self.push).is_on(),
            checks: set(self.push_consistency_check).is_on(),
            admin: set(self.push_admin).is_on(),
            groups: in_range("push-groups", self.push_groups, 1, 1 << 30)?,
            mode: set(self.push_mode),
            gauges: set(self.push_gauges),
            add_jobs: self.push_add_jobs.clone().unwrap_or_default(),
            expiry: self.push_expiry.map(|expiry| expiry.0),
        })
    }
}
