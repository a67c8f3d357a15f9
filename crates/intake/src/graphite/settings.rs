//! Declares the settings of the Graphite input, and converts them to options of its listeners.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::PathBuf;

use quipu_process::flags;
use quipu_process::settings::Unusable;
use quipu_process::size::Size;

use crate::listeners::{Address, Options, receive_buffer};

flags! {
    /// The settings of Graphite.
    #[command(next_help_heading = "StatsD and Graphite")]
    pub struct GraphiteFlags {
        /// Address to receive lines of Graphite's plaintext protocol: tcp://HOST:PORT,
        /// udp://HOST:PORT, unix:PATH, or unixgram:PATH; may be given several times [default: none]
        #[arg(long, env = "QUIPU_GRAPHITE", value_name = "ADDRESS", value_delimiter = ',')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        graphite: Vec<Address>,

        /// Mapping file of graphite_exporter, which gives names and labels to metrics of Graphite
        /// [default: none]
        #[arg(long, env = "QUIPU_GRAPHITE_MAPPING", value_name = "FILE")]
        graphite_mapping: PathBuf,

        /// Bytes of the receive buffer of each UDP socket for Graphite to ask the kernel for
        /// [default: 4194304]
        #[arg(long, env = "QUIPU_GRAPHITE_RECEIVE_BUFFER", value_name = "BYTES")]
        graphite_receive_buffer: Size<usize> = Size(4 << 20),
    }
}

impl GraphiteFlags {
    /// Returns the options of the listeners.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> Result<Options, Unusable> {
        Ok(Options {
            addresses: self.graphite.clone().unwrap_or_default(),
            mapping: self.graphite_mapping.clone(),
            suffixes: false,
            receive_buffer: receive_buffer(
                "graphite-receive-buffer",
                self.graphite_receive_buffer,
            )?,
        })
    }
}
