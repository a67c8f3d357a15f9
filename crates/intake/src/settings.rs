//! The settings of the inputs: [`InputFlags`] are the flags on the command line, and [`Options`]
//! are their checked values.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use quipu::intake::Limits;
use quipu_process::settings::{Unusable, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;
use quipu_process::{flags, join_flags};

use crate::{graphite, listeners, otlp, push, statsd};

/// Joins the flags of all inputs to one struct, and their options to another. Each row names a
/// field, its flags, and the options that `resolve` returns.
macro_rules! inputs {
    ($($(#[$meta:meta])* $name:ident: $flags:ty => $options:ty,)*) => {
        join_flags! {
            /// The settings of all inputs.
            pub struct InputFlags {
                $($(#[$meta])* $name: $flags,)*
            }
        }

        /// The options of all inputs.
        #[derive(Debug, Clone)]
        pub struct Options {
            $($(#[$meta])* pub $name: $options,)*
        }

        // `$meta` is the documentation of a field, which is ignored in expressions, and possibly a
        // `cfg`, which must apply here as well.
        #[allow(unused_doc_comments)]
        impl InputFlags {
            /// Checks all flags, and converts them to options.
            ///
            /// # Errors
            /// Fails for an unusable value.
            pub fn resolve(&self) -> Result<Options, Unusable> {
                Ok(Options { $($(#[$meta])* $name: self.$name.resolve()?,)* })
            }
        }
    };
}

inputs! {
    /// The settings that all inputs share.
    common: CommonFlags => CommonOptions,
    /// Pushes.
    push: push::PushFlags => push::Settings,
    /// The OTLP input.
    otlp: otlp::OtlpInputFlags => otlp::Options,
    /// StatsD.
    statsd: statsd::StatsdFlags => listeners::Options,
    /// Graphite.
    graphite: graphite::GraphiteFlags => listeners::Options,
    /// The input of a test.
    #[cfg(test)]
    echo: crate::echo::EchoFlags => usize,
}

flags! {
    /// The settings that all inputs share.
    #[command(next_help_heading = "Received metrics")]
    pub struct CommonFlags {
        /// Maximum bytes of the body of a request with metrics, 0 to 2^32, as received and
        /// expanded; larger ones get 413 [default: 33554432]
        #[arg(long, env = "QUIPU_INPUT_BODY_BYTES", value_name = "BYTES")]
        input_body_bytes: Size<usize> = Size(quipu_http::Limits::default().kept_body_bytes),

        /// Maximum bytes of the state file for received metrics. A file keeps the limit that it was
        /// created with [default: 1073741824]
        #[arg(long, env = "QUIPU_INPUT_BYTES", value_name = "BYTES")]
        input_bytes: Size<u64> = Size(1 << 30),

        /// Maximum number of received series [default: 1000000]
        #[arg(long, env = "QUIPU_SERIES", value_name = "COUNT")]
        series: Size<u64> = Size(Limits::default().series),

        /// Maximum number of series that one source may create while the daemon runs: an address,
        /// or a job of pushes and OTLP [default: none]
        #[arg(long, env = "QUIPU_SERIES_PER_SOURCE", value_name = "COUNT")]
        series_per_source: Size<u64>,

        /// Maximum number of samples a second of all sources together [default: none]
        #[arg(long, env = "QUIPU_SAMPLE_RATE", value_name = "COUNT")]
        sample_rate: Size<NonZeroU64>,

        /// Maximum number of samples a second that one source, which is an address, may send
        /// [default: none]
        #[arg(long, env = "QUIPU_SAMPLE_RATE_PER_SOURCE", value_name = "COUNT")]
        sample_rate_per_source: Size<NonZeroU64>,

        /// Maximum number of received families: sets of label names and types under all names
        /// [default: 20000]
        #[arg(long, env = "QUIPU_FAMILIES", value_name = "COUNT")]
        families: Size<u64> = Size(Limits::default().families),

        /// Maximum number of families that one source may create while the daemon runs, because
        /// other sources need room, too [default: three quarters of --families]
        #[arg(long, env = "QUIPU_FAMILIES_PER_SOURCE", value_name = "COUNT")]
        families_per_source: Size<u64>,

        /// Hide a received series without an update for this time. A counter that returns continues
        /// from its last total [default: none]
        #[arg(long, env = "QUIPU_EXPIRY", value_name = "TIME")]
        expiry: Time,

        /// Free a family when the daemon starts, if all its series expired and were not updated for
        /// this time. A counter of the family that returns starts at zero [default: 1day]
        #[arg(long, env = "QUIPU_FORGET_NAMES", value_name = "TIME")]
        forget_names: Time = Time(Duration::from_secs(24 * 60 * 60)),

        /// File with rules for received samples: Prometheus' metric_relabel_configs, and
        /// aggregations [default: none]
        #[arg(long, env = "QUIPU_RULES", value_name = "FILE")]
        rules: PathBuf,
    }
}

/// The options that all inputs share.
#[derive(Debug, Clone)]
pub struct CommonOptions {
    /// The maximum number of samples per second: of all sources together, and of each source.
    pub sample_rates: [Option<NonZeroU64>; 2],
    /// The time after which a series without an update is hidden, unless its input specifies
    /// another.
    pub expiry: Option<Duration>,
    /// The maximum number of bytes of a body after decompression.
    pub body_bytes: usize,
}

impl CommonFlags {
    /// Returns the maximum size of received metrics in the state file, in bytes.
    pub fn bytes(&self) -> u64 {
        set(self.input_bytes).0.clamp(1 << 20, 1 << 39)
    }

    /// Returns the maximum size of a body with metrics, in bytes.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn body_bytes(&self) -> Result<usize, Unusable> {
        in_range("input-body-bytes", self.input_body_bytes, 0, 1 << 32)
    }

    /// Returns the limits on received metrics. `reserved` is the prefix of the daemon's own
    /// metrics, which clients cannot use.
    pub fn limits(&mut self, reserved: &'static str) -> Limits {
        let Size(families) = set(self.families);
        Limits {
            series: set(self.series).0,
            series_per_source: self.series_per_source.map_or(u64::MAX, |series| series.0),
            families,
            families_per_source: self
                .families_per_source
                .get_or_insert(Size(families - families / 4))
                .0,
            reserved: Some(reserved),
            bytes_for_series: self.bytes() / 4,
            ..Limits::default()
        }
    }

    /// Returns the common options.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> Result<CommonOptions, Unusable> {
        Ok(CommonOptions {
            sample_rates: [self.sample_rate, self.sample_rate_per_source]
                .map(|rate| rate.map(|Size(rate)| rate)),
            expiry: self.expiry.map(|expiry| expiry.0),
            body_bytes: self.body_bytes()?,
        })
    }
}
