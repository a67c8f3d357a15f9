//! The settings of what the daemon sends to others.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::headers::{self, Given};
use super::urls::{self, UrlText};
use super::{Error, Flags, ResourceAttribute, Switch, at_least, set};
use quipu_client::{EXAMPLE, ReceiverUrl};
use quipu_outputs::{Options, QueueOptions, otlp};

/// What is kept for a receiver that takes nothing at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Nothing: the current totals are sent when it takes samples again.
    Latest,
    /// The requests that were not sent, on the disk.
    Disk,
}

/// The settings of the outputs.
pub(super) fn resolve(flags: &mut Flags) -> Result<Options, Error> {
    let receivers = receivers("remote-write", flags.remote_write.as_ref(), str::parse)?;
    let labels = flags.external_label.clone().unwrap_or_default();
    for (at, label) in labels.iter().enumerate() {
        if labels[..at].iter().any(|other| other.name == label.name) {
            let what = format!("the label {} has two values", label.name);
            return Err(Error::Value("external-label", what));
        }
    }
    let headers = Given {
        receivers: ("remote-write", receivers.len()),
        header: ("remote-write-header", flags.remote_write_header.as_ref()),
        file: ("remote-write-header-file", flags.remote_write_header_file.as_ref()),
        bearer: ("remote-write-bearer-file", flags.remote_write_bearer_file.as_ref()),
        basic: ("remote-write-basic-file", flags.remote_write_basic_file.as_ref()),
    };
    let headers = headers.resolve()?;
    let shards = set(flags.remote_write_shards);
    if !(1..=MAX_SHARDS).contains(&shards) {
        let what = format!("{shards} is out of range; give 1 to {MAX_SHARDS}");
        return Err(Error::Value("remote-write-shards", what));
    }
    Ok(Options {
        receivers,
        interval: at_least("remote-write-interval", flags.remote_write_interval, MIN_INTERVAL)?,
        shards,
        exemplars: set(flags.remote_write_exemplars) == Switch::On,
        compression: set(flags.remote_write_compression),
        labels,
        relabel: flags.remote_write_relabel.clone(),
        queue: queue(flags)?,
        headers,
        otlp: otlp(flags)?,
    })
}

/// Reads the files with the secrets of receivers.
pub(super) fn check_secrets(options: &Options) -> Result<(), Error> {
    headers::check(
        &options.headers,
        ["remote-write-bearer-file", "remote-write-basic-file", "remote-write-header-file"],
    )?;
    headers::check(
        &options.otlp.headers,
        ["otlp-bearer-file", "otlp-basic-file", "otlp-header-file"],
    )
}

/// What is most likely a mistake in the settings of the outputs. A receiver may have its route at
/// the root: it is taken.
pub(super) fn warnings(options: &Options) -> impl Iterator<Item = String> {
    let without = options.receivers.iter().filter(|receiver| receiver.is_without_path());
    without.map(|receiver| {
        format!(
            "--remote-write: the URL {} has no path, and most receivers refuse what comes to /: \
             Prometheus and VictoriaMetrics take remote write at /api/v1/write",
            receiver.name()
        )
    })
}

/// The queues, if they are on the disk.
fn queue(flags: &Flags) -> Result<Option<QueueOptions>, Error> {
    let bytes = set(flags.remote_write_queue_bytes);
    if bytes < MIN_QUEUE_BYTES {
        let what = format!("{bytes} is too little; give at least {MIN_QUEUE_BYTES}");
        return Err(Error::Value("remote-write-queue-bytes", what));
    }
    if set(flags.remote_write_queue) == Queue::Latest {
        return Ok(None);
    }
    Ok(Some(QueueOptions { directory: queue_directory(flags), bytes }))
}

/// The directory of the queues: beside the state file, unless it is given.
pub(super) fn queue_directory(flags: &Flags) -> PathBuf {
    flags.remote_write_queue_directory.clone().unwrap_or_else(|| {
        let mut path = set(flags.state.clone()).into_os_string();
        path.push(".queue");
        path.into()
    })
}

/// The fewest bytes of a queue: enough for a request or two of the largest that are usual.
const MIN_QUEUE_BYTES: u64 = 4 << 20;

/// The settings of what is sent by OTLP.
fn otlp(flags: &mut Flags) -> Result<otlp::Options, Error> {
    let receivers = receivers("otlp", flags.otlp.as_ref(), otlp_url)?;
    // With the paths that were added.
    let effective = receivers.iter().map(|url| UrlText::from(url.as_str().to_owned()));
    flags.otlp = flags.otlp.as_ref().map(|_| effective.collect());
    let headers = Given {
        receivers: ("otlp", receivers.len()),
        header: ("otlp-header", flags.otlp_header.as_ref()),
        file: ("otlp-header-file", flags.otlp_header_file.as_ref()),
        bearer: ("otlp-bearer-file", flags.otlp_bearer_file.as_ref()),
        basic: ("otlp-basic-file", flags.otlp_basic_file.as_ref()),
    };
    let headers = headers.resolve()?;
    Ok(otlp::Options {
        receivers,
        interval: at_least("otlp-interval", flags.otlp_interval, MIN_INTERVAL)?,
        temporality: set(flags.otlp_temporality),
        compression: set(flags.otlp_compression),
        resource: resource(flags)?,
        headers,
        state: set(flags.state.clone()),
    })
}

/// The attributes of all resources, each key once.
fn resource(flags: &Flags) -> Result<Vec<ResourceAttribute>, Error> {
    let attributes = flags.otlp_resource.clone().unwrap_or_default();
    let mut bytes = 0_usize;
    for (at, ResourceAttribute { key, value }) in attributes.iter().enumerate() {
        if attributes[..at].iter().any(|other| other.key == *key) {
            let what = format!("the key {key} has two values; give one of them");
            return Err(Error::Value("otlp-resource", what));
        }
        bytes += key.len() + value.len();
    }
    if bytes > MOST_RESOURCE {
        let what = format!(
            "the attributes have {bytes} bytes, and each resource has them all; give at most \
             {MOST_RESOURCE}"
        );
        return Err(Error::Value("otlp-resource", what));
    }
    Ok(attributes)
}

/// The most bytes of the attributes that all resources have.
const MOST_RESOURCE: usize = 64 << 10;

/// Reads the URLs of receivers, each of which is to be given once.
fn receivers(
    flag: &'static str,
    given: Option<&Vec<UrlText>>,
    of: fn(&str) -> Result<ReceiverUrl, String>,
) -> Result<Vec<ReceiverUrl>, Error> {
    let receivers = urls::read(flag, given, of, ReceiverUrl::as_str)?;
    for (at, receiver) in receivers.iter().enumerate() {
        if receivers[..at].iter().any(|other| other.name() == receiver.name()) {
            return Err(Error::Value(flag, format!("{} is given twice", receiver.name())));
        }
    }
    Ok(receivers)
}

/// The most shards of a receiver. Each has a thread, a connection and a request in memory.
const MAX_SHARDS: u8 = 64;

/// The shortest interval; a shorter one is most likely a mistake.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The URL of a receiver of OTLP. One without a path has that of metrics.
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

    #[test]
    fn outputs_that_contradict_each_other_are_refused() {
        const URL: &str = "remote-write = [\"http://a/w\"";
        for (toml, part) in [
            (format!("{URL}, \"http://a/w?x\"]"), "given twice"),
            ("external-label = [\"a=1\", \"a=2\"]".into(), "two values"),
            (
                "remote-write-bearer-file = \"f\"".into(),
                "no receiver; give one with --remote-write",
            ),
            (
                format!(
                    "{URL}]\nremote-write-bearer-file = \"f\"\nremote-write-basic-file = \"f\""
                ),
                "give one of them",
            ),
            ("remote-write-interval = \"1ms\"".into(), "give at least 100ms"),
            ("remote-write-queue-bytes = 1".into(), "give at least 4194304"),
            ("remote-write-shards = 0".into(), "0 is out of range; give 1 to 64"),
            ("remote-write-shards = 65".into(), "give 1 to 64"),
            ("otlp-interval = \"1ms\"".into(), "give at least 100ms"),
            ("otlp-resource = [\"a=1\", \"a=2\"]".into(), "the key a has two values"),
            (format!("otlp-resource = [\"a={}\"]", "x".repeat(65536)), "give at most 65536"),
            ("otlp = [\"http://a\", \"http://a/v1/metrics\"]".into(), "given twice"),
            (
                "otlp = [\"http://a\", \"http://b\"]\notlp-basic-file = \"f\"".into(),
                "--otlp-basic-file: it is for one receiver, and there are 2",
            ),
        ] {
            let flags: Flags = toml::from_str(&toml).unwrap();
            let error = resolve(&mut flags.or(Flags::defaults())).unwrap_err().to_string();
            assert!(error.contains(part), "{toml}: {error}");
        }
    }

    #[test]
    fn queues_are_beside_the_state() {
        let queue = |toml: &str| {
            let flags: Flags = toml::from_str(toml).unwrap();
            resolve(&mut flags.or(Flags::defaults())).unwrap().queue.map(|queue| queue.directory)
        };
        assert_eq!(queue("remote-write-queue = \"latest\""), None);
        let of_state = queue("remote-write-queue = \"disk\"\nstate = \"a/b.quipu\"");
        assert_eq!(of_state.unwrap(), PathBuf::from("a/b.quipu.queue"));
        let named = queue("remote-write-queue = \"disk\"\nremote-write-queue-directory = \"q\"");
        assert_eq!(named.unwrap(), PathBuf::from("q"));
    }
}
