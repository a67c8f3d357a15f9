//! Sends requests to a receiver, over one connection that stays open.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use quipu_segment::printable;
use quipu_wire::remote::WriteVersion;
use ureq::Agent;

use super::snapshot::Body;
use crate::config::ReceiverUrl;
use crate::outputs::{Credentials, Options};
use crate::tls;

/// The connection to a receiver.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
    credentials: Option<Credentials>,
}

/// What a receiver responds.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// How many samples were written, which receivers of 2.0 say.
    pub(super) written: Option<u64>,
    pub(super) retry_after: Option<Duration>,
    /// The beginning of the text.
    pub(super) text: String,
}

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes of a response are read, and how many are kept.
const MOST_READ: u64 = 64 << 10;
const MOST_KEPT: usize = 256;
/// The most bytes of the file of a secret.
const MOST_SECRET: u64 = 64 << 10;

impl Client {
    /// A client that connects when it first sends. It uses no proxy and follows no
    /// redirect.
    ///
    /// # Errors
    /// If the connection is to be encrypted, and the system has no certificates.
    pub(crate) fn new(receiver: &ReceiverUrl, options: &Options) -> Result<Self, String> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_age(options.interval.saturating_mul(2).max(TIMEOUT))
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .user_agent(concat!("quipu/", env!("CARGO_PKG_VERSION")));
        if receiver.is_encrypted() {
            let why = |why| format!("cannot verify {}: {why}", receiver.name());
            config = config.tls_config(tls::of_system().map_err(why)?);
        }
        Ok(Self {
            agent: config.build().into(),
            url: receiver.as_str().to_owned(),
            credentials: options.credentials.clone(),
        })
    }

    /// Sends a request, and reads the response.
    ///
    /// # Errors
    /// A text that says why there is no response.
    pub(super) fn post(&self, body: &Body, timeout: Option<Duration>) -> Result<Answer, String> {
        let (content_type, version) = match body.version {
            WriteVersion::One => ("application/x-protobuf", "0.1.0"),
            WriteVersion::Two => {
                ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0")
            }
        };
        let mut request = self.agent.post(&self.url);
        if let Some(timeout) = timeout {
            request = request.config().timeout_global(Some(timeout)).build();
        }
        request = request
            .header(CONTENT_ENCODING, "snappy")
            .header(CONTENT_TYPE, content_type)
            .header("X-Prometheus-Remote-Write-Version", version);
        if let Some(credentials) = &self.credentials {
            request = request.header(AUTHORIZATION, authorization(credentials)?);
        }
        let mut response = request.send(&body.bytes[..]).map_err(|error| error.to_string())?;
        // A connection whose response was not read cannot be used again.
        let mut text = Vec::new();
        let _ = response.body_mut().as_reader().take(MOST_READ).read_to_end(&mut text);
        text.truncate(MOST_KEPT);
        let headers = response.headers();
        Ok(Answer {
            status: response.status().as_u16(),
            written: written(headers),
            retry_after: retry_after(headers),
            text: printable(String::from_utf8_lossy(&text).trim()).to_string(),
        })
    }
}

/// The header field, from the file.
fn authorization(credentials: &Credentials) -> Result<String, String> {
    let read = |path: &Path| {
        let mut text = String::new();
        let file = fs::File::open(path);
        let read = file.and_then(|file| file.take(MOST_SECRET).read_to_string(&mut text));
        let text = text.trim().to_owned();
        match read {
            Err(error) => Err(format!("cannot read {}: {error}", printable(path))),
            Ok(_) if text.is_empty() => Err(format!("{} is empty", printable(path))),
            Ok(_) => Ok(text),
        }
    };
    match credentials {
        Credentials::Bearer(path) => Ok(format!("Bearer {}", read(path)?)),
        Credentials::Basic(path) => Ok(format!("Basic {}", BASE64_STANDARD.encode(read(path)?))),
    }
}

/// How many samples and histograms the receiver has written, if it says so.
fn written(headers: &HeaderMap) -> Option<u64> {
    let count = |what: &str| {
        let value = headers.get(format!("x-prometheus-remote-write-{what}-written"))?;
        Some(value.to_str().ok()?.trim().parse::<u64>().unwrap_or(0))
    };
    let counts = ["samples", "histograms", "exemplars"].map(count);
    let sum = counts[..2].iter().flatten().fold(0_u64, |sum, count| sum.saturating_add(*count));
    counts.iter().any(Option::is_some).then_some(sum)
}

/// The time that a receiver asks to wait for: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_of_2_0_say_how_much_they_wrote() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let name = format!("X-Prometheus-Remote-Write-{name}-Written");
                (name.parse().unwrap(), value.parse().unwrap())
            });
            written(&fields.collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("Exemplars", "0")]), Some(0));
        assert_eq!(of(&[("Samples", "3"), ("Histograms", "4"), ("Exemplars", "5")]), Some(7));
        assert_eq!(of(&[("Samples", "many")]), Some(0));
    }

    #[test]
    fn receivers_say_how_long_to_wait() {
        let after = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(after(&date).is_some_and(|time| (90..=100).contains(&time.as_secs())));
        assert_eq!((after("soon"), after("-1")), (None, None));
    }
}
