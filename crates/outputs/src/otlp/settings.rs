//! Declares the settings of the OTLP output, checks them, and converts them to `Options`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_client::header_text::{HeaderFlags, HeaderText};
use quipu_client::url_text::UrlText;
use quipu_client::{EXAMPLE, ReceiverUrl};
use quipu_process::flags;
use quipu_process::settings::{Unusable, at_least, set};
use quipu_process::time::Time;

use super::{Compression, Options, Temporality};
use crate::labels::ResourceAttribute;
use crate::settings::{MIN_INTERVAL, receivers};

flags! {
    /// The flags of the OTLP output.
    #[command(next_help_heading = "Sending")]
    pub struct OtlpFlags {
        /// Receiver of all metrics by OTLP over HTTP, such as http://collector:4318; a URL without
        /// a path gets /v1/metrics; may be given several times [default: none]
        #[arg(
            long,
            env = "QUIPU_OTLP",
            value_name = "URL",
            value_delimiter = '\n',
            hide_env_values = true
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        otlp: Vec<UrlText>,

        /// How often metrics are sent by OTLP, at least 100ms [default: 60s]
        #[arg(long, env = "QUIPU_OTLP_INTERVAL", value_name = "TIME")]
        otlp_interval: Time = Time(Duration::from_secs(60)),

        /// Start of the sums and histograms that are sent by OTLP [default: cumulative]
        #[arg(long, env = "QUIPU_OTLP_TEMPORALITY", value_name = "TEMPORALITY")]
        otlp_temporality: Temporality = Temporality::Cumulative,

        /// Compression of OTLP requests [default: gzip]
        #[arg(long, env = "QUIPU_OTLP_COMPRESSION", value_name = "HOW")]
        otlp_compression: Compression = Compression::Gzip,

        /// Attribute of all resources that are sent by OTLP, such as
        /// deployment.environment.name=production; labels job and instance of series precede
        /// service.name, service.namespace and service.instance.id; may be given several times
        /// [default: none]
        #[arg(long, env = "QUIPU_OTLP_RESOURCE", value_name = "KEY=VALUE", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        otlp_resource: Vec<ResourceAttribute>,

        /// Header field of all requests of OTLP, such as 'X-Tenant: a'; may be given several times.
        /// Others can see it in the list of processes [default: none]
        #[arg(
            long,
            env = "QUIPU_OTLP_HEADER",
            value_name = "NAME: VALUE",
            value_delimiter = '\n',
            hide_env_values = true
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        otlp_header: Vec<HeaderText>,

        /// File with secret header fields for the receiver of OTLP, such as API keys: NAME: VALUE
        /// on each line [default: none]
        #[arg(long, env = "QUIPU_OTLP_HEADER_FILE", value_name = "FILE")]
        otlp_header_file: PathBuf,

        /// File with the token of the receiver of OTLP, for the header Authorization: Bearer
        /// [default: none]
        #[arg(long, env = "QUIPU_OTLP_BEARER_FILE", value_name = "FILE")]
        otlp_bearer_file: PathBuf,

        /// File with USER:PASSWORD for the receiver of OTLP, for the header Authorization: Basic
        /// [default: none]
        #[arg(long, env = "QUIPU_OTLP_BASIC_FILE", value_name = "FILE")]
        otlp_basic_file: PathBuf,
    }
}

impl OtlpFlags {
    /// Checks the flags, completes the URLs, and returns the options. The files of the output are
    /// next to the `state` file.
    ///
    /// # Errors
    /// Fails for an invalid URL, a URL with a password or a repeated URL, for a setting without a
    /// receiver, for an interval that is too short, and for attributes that are too long or
    /// contradict each other.
    pub fn resolve(&mut self, state: &Path) -> Result<Options, Unusable> {
        let receivers = receivers("otlp", self.otlp.as_ref(), otlp_url)?;
        // We store the completed URLs, because users see the settings.
        let effective = receivers.iter().map(|url| UrlText::from(url.as_str().to_owned()));
        self.otlp = self.otlp.as_ref().map(|_| effective.collect());
        let headers = HeaderFlags {
            receivers: ("otlp", receivers.len()),
            header: ("otlp-header", self.otlp_header.as_ref()),
            file: ("otlp-header-file", self.otlp_header_file.as_ref()),
            bearer: ("otlp-bearer-file", self.otlp_bearer_file.as_ref()),
            basic: ("otlp-basic-file", self.otlp_basic_file.as_ref()),
        };
        let headers = headers.resolve()?;
        Ok(Options {
            receivers,
            interval: at_least("otlp-interval", self.otlp_interval, MIN_INTERVAL)?,
            temporality: set(self.otlp_temporality),
            compression: set(self.otlp_compression),
            resource: resource(self)?,
            headers,
            state: state.to_owned(),
        })
    }
}

/// Returns the attributes of all resources. Each key may occur only once.
fn resource(flags: &OtlpFlags) -> Result<Vec<ResourceAttribute>, Unusable> {
    let attributes = flags.otlp_resource.clone().unwrap_or_default();
    let mut bytes = 0_usize;
    for (at, ResourceAttribute { key, value }) in attributes.iter().enumerate() {
        if attributes[..at].iter().any(|other| other.key == *key) {
            let reason = format!("the key {key} has two values; give one of them");
            return Err(Unusable::new("otlp-resource", reason));
        }
        bytes += key.len() + value.len();
    }
    if bytes > MOST_RESOURCE {
        let reason = format!(
            "the attributes have {bytes} bytes, and each resource has them all; give at most \
             {MOST_RESOURCE}"
        );
        return Err(Unusable::new("otlp-resource", reason));
    }
    Ok(attributes)
}

/// The maximum size of the attributes of all resources, in bytes.
const MOST_RESOURCE: usize = 64 << 10;

/// Parses the URL of a receiver. Adds the path `/v1/metrics` to a URL without a path.
fn otlp_url(text: &str) -> Result<ReceiverUrl, String> {
    if matches!(text, "on" | "off") {
        return Err("it is to be the URL of a receiver; whether metrics are taken by OTLP is \
                    --otlp-input"
            .into());
    }
    let url: ReceiverUrl =
        text.parse().map_err(|error: String| error.replace(EXAMPLE, OTLP_EXAMPLE))?;
    // The authority follows the two slashes of the scheme.
    let authority = text.find("://").map_or(0, |at| at + 3);
    let end = text[authority..].find(['/', '?']).map_or(text.len(), |at| authority + at);
    let (base, rest) = text.split_at(end);
    let query = rest.strip_prefix('/').unwrap_or(rest);
    if query.is_empty() || query.starts_with('?') {
        return format!("{base}/v1/metrics{query}").parse();
    }
    Ok(url)
}

const OTLP_EXAMPLE: &str = "http://HOST:PORT, such as http://collector:4318";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_otlp_are_completed() {
        for (text, url) in [
            ("http://a:4318", "http://a:4318/v1/metrics"),
            ("https://a/", "https://a/v1/metrics"),
            ("http://[::1]:4318/?k=v", "http://[::1]:4318/v1/metrics?k=v"),
            ("http://a?k=v/w", "http://a/v1/metrics?k=v/w"),
            ("http://a/otlp", "http://a/otlp"),
            ("http://a/v1/metrics", "http://a/v1/metrics"),
        ] {
            assert_eq!(otlp_url(text).unwrap().as_str(), url);
        }
        assert!(otlp_url("collector:4318").unwrap_err().contains("http://collector:4318"));
        assert!(otlp_url("off").unwrap_err().contains("--otlp-input"));
    }
}
