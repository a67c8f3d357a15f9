//! Declares the settings of remote write, checks them, and converts them to `Options`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use quipu_client::header_text::{self, HeaderFlags, HeaderText};
use quipu_client::url_text::UrlText;
use quipu_process::flags;
use quipu_process::settings::{Switch, Unusable, at_least, set};
use quipu_process::size::Size;
use quipu_process::time::Time;
use serde::{Deserialize, Serialize};

use crate::labels::ExternalLabel;
use crate::settings::{MIN_INTERVAL, receivers};
use crate::{Coding, Options, QueueOptions, next_to, otlp};

/// The requests to keep while a receiver is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// No requests. The current totals are sent when the receiver is available again.
    Latest,
    /// The unsent requests, on the disk.
    Disk,
}

flags! {
    /// The flags of remote write.
    #[command(next_help_heading = "Sending")]
    pub struct RemoteWriteFlags {
        /// Receiver of all metrics by Prometheus' remote write, such as
        /// http://prometheus:9090/api/v1/write; may be given several times [default: none]
        #[arg(
            long,
            env = "QUIPU_REMOTE_WRITE",
            value_name = "URL",
            value_delimiter = '\n',
            hide_env_values = true
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        remote_write: Vec<UrlText>,

        /// Data to keep for a receiver that is unavailable [default: latest]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE", value_name = "QUEUE")]
        remote_write_queue: QueueMode = QueueMode::Latest,

        /// Maximum bytes of the queue of each receiver on the disk, at least 4194304; the oldest
        /// requests make room [default: 536870912]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE_BYTES", value_name = "BYTES")]
        remote_write_queue_bytes: Size<u64> = Size(512 << 20),

        /// Directory of the queues on the disk [default: next to the state file, such as
        /// state.quipu.queue]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_QUEUE_DIRECTORY", value_name = "DIRECTORY")]
        remote_write_queue_directory: PathBuf,

        /// Rules for all series that are sent: Prometheus' write_relabel_configs [default: none]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_RELABEL", value_name = "FILE")]
        remote_write_relabel: PathBuf,

        /// How often metrics are sent by remote write, at least 100ms [default: 15s]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_INTERVAL", value_name = "TIME")]
        remote_write_interval: Time = Time(Duration::from_secs(15)),

        /// Number of requests that are sent to a receiver at once, 1 to 64: the series are divided
        /// into this number of shards [default: 1]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_SHARDS", value_name = "COUNT")]
        remote_write_shards: Size<u8> = Size(1),

        /// Compression of remote write requests [default: snappy]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_COMPRESSION", value_name = "HOW")]
        remote_write_compression: Coding = Coding::Snappy,

        /// Header field of all requests of remote write, such as 'X-Scope-OrgID: tenant-1'; may be
        /// given several times. Others can see it in the list of processes [default: none]
        #[arg(
            long,
            env = "QUIPU_REMOTE_WRITE_HEADER",
            value_name = "NAME: VALUE",
            value_delimiter = '\n',
            hide_env_values = true
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        remote_write_header: Vec<HeaderText>,

        /// File with secret header fields for the receivers of remote write, NAME: VALUE on each
        /// line [default: none]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_HEADER_FILE", value_name = "FILE")]
        remote_write_header_file: PathBuf,

        /// Send the last exemplars of series [default: off]
        #[arg(
            long, env = "QUIPU_REMOTE_WRITE_EXEMPLARS", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        remote_write_exemplars: Switch = Switch::Off,

        /// File with the token of the receivers of remote write, for the header Authorization:
        /// Bearer [default: none]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_BEARER_FILE", value_name = "FILE")]
        remote_write_bearer_file: PathBuf,

        /// File with USER:PASSWORD for the receivers of remote write, for the header Authorization:
        /// Basic [default: none]
        #[arg(long, env = "QUIPU_REMOTE_WRITE_BASIC_FILE", value_name = "FILE")]
        remote_write_basic_file: PathBuf,
    }
}

impl RemoteWriteFlags {
    /// Checks the flags and returns the options of all outputs, with these labels and the options
    /// of OTLP. If the directory of the queues is not given, it is set to a directory next to the
    /// `state` file.
    ///
    /// # Errors
    /// Fails for an invalid URL, a URL with a password or a repeated URL, for a setting without a
    /// receiver, and for a number or a time out of its bounds.
    pub fn resolve(
        &mut self,
        labels: Vec<ExternalLabel>,
        otlp: otlp::Options,
        state: &Path,
    ) -> Result<Options, Unusable> {
        let directory = &mut self.remote_write_queue_directory;
        let directory = directory.get_or_insert_with(|| next_to(state, ".queue")).clone();
        let receivers = receivers("remote-write", self.remote_write.as_ref(), str::parse)?;
        let headers = HeaderFlags {
            receivers: ("remote-write", receivers.len()),
            header: ("remote-write-header", self.remote_write_header.as_ref()),
            file: ("remote-write-header-file", self.remote_write_header_file.as_ref()),
            bearer: ("remote-write-bearer-file", self.remote_write_bearer_file.as_ref()),
            basic: ("remote-write-basic-file", self.remote_write_basic_file.as_ref()),
        };
        let headers = headers.resolve()?;
        let Size(shards) = set(self.remote_write_shards);
        if !(1..=MAX_SHARDS).contains(&shards) {
            let reason = format!("{shards} is out of range; give 1 to {MAX_SHARDS}");
            return Err(Unusable::new("remote-write-shards", reason));
        }
        let Size(bytes) = set(self.remote_write_queue_bytes);
        if bytes < MIN_QUEUE_BYTES {
            let reason = format!("{bytes} is too little; give at least {MIN_QUEUE_BYTES}");
            return Err(Unusable::new("remote-write-queue-bytes", reason));
        }
        let is_on_disk = set(self.remote_write_queue) == QueueMode::Disk;
        Ok(Options {
            receivers,
            interval: at_least("remote-write-interval", self.remote_write_interval, MIN_INTERVAL)?,
            shards,
            exemplars: set(self.remote_write_exemplars).is_on(),
            compression: set(self.remote_write_compression),
            labels,
            relabel: self.remote_write_relabel.clone(),
            queue: is_on_disk.then_some(QueueOptions { directory, bytes }),
            headers,
            otlp,
        })
    }
}

impl Options {
    /// Reads the files with the secrets of receivers.
    ///
    /// # Errors
    /// Fails for a file that cannot be read or used.
    pub fn check_secrets(&self) -> Result<(), Unusable> {
        header_text::check(
            &self.headers,
            ["remote-write-bearer-file", "remote-write-basic-file", "remote-write-header-file"],
        )?;
        header_text::check(
            &self.otlp.headers,
            ["otlp-bearer-file", "otlp-basic-file", "otlp-header-file"],
        )
    }

    /// Returns warnings about likely mistakes, which can also be intended. For example, a receiver
    /// can use the root of a host as its path.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let without = self.receivers.iter().filter(|receiver| receiver.is_without_path());
        without.map(|receiver| {
            format!(
                "--remote-write: the URL {} has no path, and most receivers refuse what comes to \
                 /: Prometheus and VictoriaMetrics take remote write at /api/v1/write",
                receiver.name()
            )
        })
    }
}

/// The minimum size of a queue, which fits one or two of the largest usual requests.
const MIN_QUEUE_BYTES: u64 = 4 << 20;
/// The maximum number of shards of a receiver, because each shard costs a thread, a connection and
/// a request in memory.
const MAX_SHARDS: u8 = 64;
