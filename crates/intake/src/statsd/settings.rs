//! Declares the settings of the StatsD input, and converts them to options of its listeners.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::PathBuf;

use quipu_process::flags;
use quipu_process::settings::{Switch, Unusable, set};
use quipu_process::size::Size;

use crate::listeners::{Address, Options, receive_buffer};

flags! {
    /// The settings of StatsD.
    #[command(next_help_heading = "StatsD and Graphite")]
    pub struct StatsdFlags {
        /// Address to receive lines of StatsD and DogStatsD: udp://HOST:PORT, tcp://HOST:PORT,
        /// unixgram:PATH, or unix:PATH; may be given several times [default: none]
        #[arg(long, env = "QUIPU_STATSD", value_name = "ADDRESS", value_delimiter = ',')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        statsd: Vec<Address>,

        /// Mapping file of statsd_exporter, which gives names and labels to metrics of StatsD
        /// [default: none]
        #[arg(long, env = "QUIPU_STATSD_MAPPING", value_name = "FILE")]
        statsd_mapping: PathBuf,

        /// Add _total to the names of all counters of StatsD, because OpenMetrics 1.0 shows a
        /// counter without it as a metric of an unknown type [default: off]
        #[arg(
            long, env = "QUIPU_STATSD_SUFFIXES", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        statsd_suffixes: Switch = Switch::Off,

        /// Bytes of the receive buffer of each UDP socket for StatsD to ask the kernel for
        /// [default: 4194304]
        #[arg(long, env = "QUIPU_STATSD_RECEIVE_BUFFER", value_name = "BYTES")]
        statsd_receive_buffer: Size<usize> = Size(4 << 20),
    }
}

impl StatsdFlags {
    /// Returns the options of the listeners.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> Result<Options, Unusable> {
        Ok(Options {
            addresses: self.statsd.clone().unwrap_or_default(),
            mapping: self.statsd_mapping.clone(),
            suffixes: set(self.statsd_suffixes).is_on(),
            receive_buffer: receive_buffer("statsd-receive-buffer", self.statsd_receive_buffer)?,
        })
    }
}
