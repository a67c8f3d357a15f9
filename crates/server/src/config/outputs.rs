//! The settings of what the daemon sends to others.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use hyper::Uri;
use quipu::exposition::is_legacy_name;
use serde::{Deserialize, Serialize};

use super::headers::{self, Given};
use super::urls::{self, UrlText};
use super::{Error, Flags, Switch, at_least, set};
use crate::outputs::{Options, QueueOptions, otlp};

/// What is kept for a receiver that takes nothing at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Nothing: the current totals are sent when it takes samples again.
    Latest,
    /// The requests that were not sent, on the disk.
    Disk,
}

/// The URL of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverUrl(String);

/// A label of all series that are sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalLabel {
    /// The name.
    pub name: String,
    /// The value, which is not empty.
    pub value: String,
}

/// An attribute of all resources that are sent by OTLP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceAttribute {
    /// The key, which is not empty.
    pub key: String,
    /// The value, which is not empty.
    pub value: String,
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
    let effective = receivers.iter().map(|url| UrlText::from(url.0.clone()));
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

impl ReceiverUrl {
    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL without the query, which may have a secret: for logs and labels.
    pub fn name(&self) -> &str {
        self.0.split_once('?').map_or(&self.0, |(name, _)| name)
    }

    /// Whether the URL has no path, or that of the root alone.
    fn is_without_path(&self) -> bool {
        let name = self.name();
        // The authority follows the two slashes of the scheme.
        let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
        rest.split_once('/').is_none_or(|(_, path)| path.is_empty())
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The scheme is compared as it is written, since it is also looked for in the text. Without
        // one, the error of the parser says nothing of use.
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(format!("it does not begin with http:// or https://; write {EXAMPLE}"));
        }
        let uri: Uri = text.parse().map_err(|error| format!("{error}; write {EXAMPLE}"))?;
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(format!("it has no host; write {EXAMPLE}")),
        }
    }
}

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
        return Ok(ReceiverUrl(format!("{base}/v1/metrics{query}")));
    }
    Ok(url)
}

impl FromStr for ExternalLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "NAME=VALUE, such as instance=web-1";
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("it has no value; write {EXAMPLE}"));
        };
        if !is_legacy_name(name) || name.contains(':') || name.starts_with("__") {
            return Err(format!(
                "{name:?} is not the name of a label: it has letters, digits and underscores, and \
                 neither begins with a digit nor with two underscores; write {EXAMPLE}"
            ));
        }
        if matches!(name, "le" | "quantile") {
            return Err(format!("{name:?} has a meaning in metrics; give the label another name"));
        }
        if value.is_empty() {
            return Err(format!(
                "the value is empty, which means that there is none; write {EXAMPLE}"
            ));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl FromStr for ResourceAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "KEY=VALUE, such as deployment.environment.name=production";
        match text.split_once('=') {
            None => Err(format!("it has no value; write {EXAMPLE}")),
            Some(("", _)) => Err(format!("it has no key; write {EXAMPLE}")),
            Some((_, "")) => Err(format!("the value is empty; write {EXAMPLE}")),
            Some((key, value)) => Ok(Self { key: key.to_owned(), value: value.to_owned() }),
        }
    }
}

macro_rules! texts {
    ($($type:ident),*) => {$(
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}

texts!(ExternalLabel, ResourceAttribute);

impl fmt::Display for ExternalLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl fmt::Display for ResourceAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

const EXAMPLE: &str = "http://HOST:PORT/PATH, such as http://prometheus:9090/api/v1/write";
const OTLP_EXAMPLE: &str = "http://HOST:PORT, such as http://collector:4318";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_labels_are_checked() {
        for text in ["http://a:1/api/v1/write", "https://a/w?token=x", "http://[::1]:9/"] {
            assert_eq!(text.parse::<ReceiverUrl>().unwrap().as_str(), text);
        }
        assert_eq!("https://a/w?token=x".parse::<ReceiverUrl>().unwrap().name(), "https://a/w");
        for (text, part) in [
            ("", "such as http://prometheus:9090"),
            ("localhost:9090", "does not begin with http://"),
            ("localhost:9090/api/v1/write", "does not begin with http://"),
            ("ftp://a/", "does not begin with"),
            ("http:///w", "such as http://prometheus:9090"),
        ] {
            let error = text.parse::<ReceiverUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
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
        for (text, is_without) in [
            ("http://a", true),
            ("http://[::1]:9090/", true),
            ("https://a?x=/w", true),
            ("http://a/w", false),
            ("http://a/w/", false),
        ] {
            assert_eq!(
                text.parse::<ReceiverUrl>().unwrap().is_without_path(),
                is_without,
                "{text}"
            );
        }
        assert!(otlp_url("collector:4318").unwrap_err().contains("http://collector:4318"));
        assert!(otlp_url("off").unwrap_err().contains("--otlp-input"));
        assert_eq!("a=b=c".parse::<ExternalLabel>().unwrap().value, "b=c");
        for text in ["a", "=b", "a=", "__a=b", "a:b=c", "1a=b", "a b=c"] {
            let error = text.parse::<ExternalLabel>().unwrap_err();
            assert!(error.contains("NAME=VALUE"), "{text}: {error}");
        }
        let attribute: ResourceAttribute = "a.b=c=d, e".parse().unwrap();
        assert_eq!((&*attribute.key, &*attribute.value), ("a.b", "c=d, e"));
        for text in ["a", "=b", "a="] {
            let error = text.parse::<ResourceAttribute>().unwrap_err();
            assert!(error.contains("KEY=VALUE"), "{text}: {error}");
        }
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
