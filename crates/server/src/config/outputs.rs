//! The settings of what the daemon sends to others.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use hyper::Uri;
use quipu::exposition::is_legacy_name;
use serde::{Deserialize, Serialize};

use super::{Error, Flags, at_least, set};
use crate::outputs::{Credentials, Options, QueueOptions};

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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
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

/// The settings of the outputs.
pub(super) fn resolve(flags: &Flags) -> Result<Options, Error> {
    let receivers = flags.remote_write.clone().unwrap_or_default();
    let refused = |name, what: String| Err(Error::Value(name, what));
    for (at, receiver) in receivers.iter().enumerate() {
        if receivers[..at].iter().any(|other| other.name() == receiver.name()) {
            return refused("remote-write", format!("{} is given twice", receiver.name()));
        }
    }
    let labels = flags.external_label.clone().unwrap_or_default();
    for (at, label) in labels.iter().enumerate() {
        if labels[..at].iter().any(|other| other.name == label.name) {
            return refused("external-label", format!("the label {} has two values", label.name));
        }
    }
    let files = (flags.remote_write_bearer_file.clone(), flags.remote_write_basic_file.clone());
    let (name, credentials) = match files {
        (None, None) => ("", None),
        (Some(file), None) => ("remote-write-bearer-file", Some(Credentials::Bearer(file))),
        (None, Some(file)) => ("remote-write-basic-file", Some(Credentials::Basic(file))),
        (Some(_), Some(_)) => {
            let what = "there is --remote-write-basic-file, too; give one of them";
            return refused("remote-write-bearer-file", what.into());
        }
    };
    if credentials.is_some() && receivers.len() != 1 {
        let what = format!(
            "it is for one receiver, and there are {}: each of them would see the secret of the \
             others; run a daemon for each, or have a proxy add the secrets",
            receivers.len()
        );
        return refused(name, what);
    }
    Ok(Options {
        receivers,
        interval: at_least("remote-write-interval", flags.remote_write_interval, MIN_INTERVAL)?,
        labels,
        queue: queue(flags)?,
        credentials,
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
    let directory = flags.remote_write_queue_directory.clone().unwrap_or_else(|| {
        let mut path = set(flags.state.clone()).into_os_string();
        path.push(".queue");
        path.into()
    });
    Ok(Some(QueueOptions { directory, bytes }))
}

/// The fewest bytes of a queue: enough for a request or two of the largest that are usual.
const MIN_QUEUE_BYTES: u64 = 4 << 20;

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

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}; write {EXAMPLE}"))?;
        // The scheme is compared as it is written, since it is also looked for in the text.
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(format!("it does not begin with http:// or https://; write {EXAMPLE}"));
        }
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => Err(
                "it has a password, which others can see in the list of processes; write it to a \
                 file, and name that with --remote-write-basic-file"
                    .into(),
            ),
            Some(authority) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(format!("it has no host; write {EXAMPLE}")),
        }
    }
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

texts!(ReceiverUrl, ExternalLabel);

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ExternalLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

const EXAMPLE: &str = "http://HOST:PORT/PATH, such as http://prometheus:9090/api/v1/write";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn urls_and_labels_are_checked() {
        for text in ["http://a:1/api/v1/write", "https://a/w?token=x", "http://[::1]:9/"] {
            assert_eq!(text.parse::<ReceiverUrl>().unwrap().to_string(), text);
        }
        assert_eq!("https://a/w?token=x".parse::<ReceiverUrl>().unwrap().name(), "https://a/w");
        for (text, part) in [
            ("", "such as http://prometheus:9090"),
            ("localhost:9090", "http://"),
            ("ftp://a/", "does not begin with"),
            ("http://u:p@a/", "--remote-write-basic-file"),
            ("http:///w", "such as http://prometheus:9090"),
        ] {
            let error = text.parse::<ReceiverUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!("a=b=c".parse::<ExternalLabel>().unwrap().value, "b=c");
        for text in ["a", "=b", "a=", "__a=b", "a:b=c", "1a=b", "a b=c"] {
            let error = text.parse::<ExternalLabel>().unwrap_err();
            assert!(error.contains("NAME=VALUE"), "{text}: {error}");
        }
    }

    #[test]
    fn outputs_that_contradict_each_other_are_refused() {
        const URL: &str = "remote-write = [\"http://a/w\"";
        for (toml, part) in [
            (format!("{URL}, \"http://a/w?x\"]"), "given twice"),
            ("external-label = [\"a=1\", \"a=2\"]".into(), "two values"),
            ("remote-write-bearer-file = \"f\"".into(), "there are 0"),
            (
                format!(
                    "{URL}]\nremote-write-bearer-file = \"f\"\nremote-write-basic-file = \"f\""
                ),
                "give one of them",
            ),
            ("remote-write-interval = \"1ms\"".into(), "give at least 100ms"),
            ("remote-write-queue-bytes = 1".into(), "give at least 4194304"),
        ] {
            let flags: Flags = toml::from_str(&toml).unwrap();
            let error = resolve(&flags.or(Flags::defaults())).unwrap_err().to_string();
            assert!(error.contains(part), "{toml}: {error}");
        }
    }

    #[test]
    fn queues_are_beside_the_state() {
        let queue = |toml: &str| {
            let flags: Flags = toml::from_str(toml).unwrap();
            resolve(&flags.or(Flags::defaults())).unwrap().queue.map(|queue| queue.directory)
        };
        assert_eq!(queue("remote-write-queue = \"latest\""), None);
        let of_state = queue("remote-write-queue = \"disk\"\nstate = \"a/b.quipu\"");
        assert_eq!(of_state.unwrap(), PathBuf::from("a/b.quipu.queue"));
        let named = queue("remote-write-queue = \"disk\"\nremote-write-queue-directory = \"q\"");
        assert_eq!(named.unwrap(), PathBuf::from("q"));
    }
}
