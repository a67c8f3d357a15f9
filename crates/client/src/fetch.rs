//! Fetches a page with metrics from a URL or a unix socket, with limits on time and size.

use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;
use hyper::header::AUTHORIZATION;
use quipu_segment::printable;
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::tls::TlsConfig;

use super::Text;
use super::unix::{NoHost, UnixConnector};
use crate::credentials::Credentials;
use crate::exchange::explained;
use crate::tls;
use crate::url_text::check_port;
use crate::via::{Loop, Via};

/// The maximum size of a response for commands, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum number of redirects to follow.
const REDIRECTS: u32 = 3;

/// The error of a daemon that would scrape its own metrics.
const LOOP: &str = "it shows what this daemon shows, and each scrape would add it all once more: \
                    the --scrape flags of the daemons make a loop; remove one of them";

/// The remedy if a target refuses the daemon and no credentials are configured.
const REFUSED: &str = "name the file with its credentials by --scrape-bearer-file or \
                       --scrape-basic-file";
/// The remedy if a target refuses the configured credentials.
const REFUSED_THEM: &str = "check the credentials in the file of --scrape-bearer-file or \
                            --scrape-basic-file; they are sent to the URL of the target alone, and \
                            not after a redirect";

/// The remedy for a redirect to TLS. The client of a URL without TLS has no certificates.
const REDIRECTED: &str = "the server redirects to an https URL: use that URL";

/// The formats that a scraper accepts.
const TEXT: &str =
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
/// The format that a scraper accepts if it wants native histograms.
const PROTOBUF: &str = "application/vnd.google.protobuf;\
    proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// The default path of a URL, like in other scrapers.
const PATH: &str = "/metrics";

/// Returns the URL, with the default path if it contains none.
pub fn with_path(url: &str) -> String {
    // The authority follows the two slashes of the scheme.
    let authority = url.find("://").map_or(0, |at| at + 3);
    let rest = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
    let path = if rest == authority || url[rest..].starts_with('/') { "" } else { PATH };
    [&url[..rest], path, &url[rest..]].concat()
}

/// A client that fetches pages, each over a new connection.
#[derive(Debug)]
pub struct Fetcher {
    agent: Agent,
    timeout: Duration,
    most: u64,
    via: Option<&'static Via>,
    credentials: Option<Credentials>,
}

/// The reason why no page was fetched.
#[derive(Debug)]
pub struct Fault {
    /// The error and a remedy, without the URL.
    pub message: String,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// The kind of a [`Fault`]. Compare this instead of the message, because the server determines much
/// of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no connection, or the response is unreadable.
    Exchange,
    /// The response was not complete in time.
    Timeout,
    /// The status of the response is not a success.
    Status(u16),
    /// The exposition exceeds the size limit.
    TooLarge,
    /// The contents of the exposition are not accepted.
    Contents,
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self { message, kind: FaultKind::Contents }
    }
}

/// Fetches a page. The whole exchange takes at most `timeout`.
///
/// # Errors
/// Returns the error and a remedy, without the URL.
pub fn fetch(url: &str, timeout: Duration) -> Result<Text, String> {
    fetcher(url, timeout)?.fetch(url).map_err(|fault| fault.message)
}

/// Works like [`fetch`], for Prometheus' protobuf format. Returns `None` if the server does not
/// support it.
///
/// # Errors
/// Fails like [`fetch`].
pub fn fetch_protobuf(url: &str, timeout: Duration) -> Result<Option<Vec<u8>>, String> {
    let fetched = fetcher(url, timeout)?.fetch_as(url, PROTOBUF).map_err(|fault| fault.message);
    let is_protobuf = |of: &str| of.starts_with("application/vnd.google.protobuf");
    fetched.map(|(bytes, content_type)| is_protobuf(&content_type).then_some(bytes))
}

fn fetcher(url: &str, timeout: Duration) -> Result<Fetcher, String> {
    check_port(url)?;
    let is_encrypted = url.starts_with("https://");
    let tls = if is_encrypted { tls::of_system()? } else { tls::without_trust() };
    Ok(Fetcher::new(None, tls, timeout, MAX_BYTES))
}

impl Fetcher {
    /// Creates a client for a unix socket, or for the hosts in URLs. `timeout` limits a whole
    /// exchange, and `most` limits the size of a page in bytes, also after decompression.
    pub fn new(socket: Option<&Path>, tls: TlsConfig, timeout: Duration, most: u64) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            // Another port of the same host may belong to another server.
            .redirect_auth_headers(RedirectAuthHeaders::Never)
            // A server may close an idle connection just when it is used again.
            .max_idle_connections(0)
            .proxy(None)
            .tls_config(tls)
            .user_agent(concat!("quipu/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = match socket {
            // A redirect leads to the same socket.
            Some(path) => Agent::with_parts(config, UnixConnector(path.to_owned()), NoHost),
            None => config.into(),
        };
        Self { agent, timeout, most, via: None, credentials: None }
    }

    /// Sets the daemon's identity, so a page that contains its own samples is refused, and the
    /// credentials for the server.
    pub fn of_daemon(self, via: &'static Via, credentials: Option<Credentials>) -> Self {
        Self { via: Some(via), credentials, ..self }
    }

    /// Fetches an exposition.
    pub fn fetch(&self, url: &str) -> Result<Text, Fault> {
        let (bytes, content_type) = self.fetch_as(url, TEXT)?;
        Ok(Text::of_type(bytes, content_type))
    }

    /// Fetches a page of a type. Returns the bytes and the actual type.
    fn fetch_as(&self, url: &str, accept: &'static str) -> Result<(Vec<u8>, String), Fault> {
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => self.too_late(),
            ureq::Error::BodyExceedsLimit(_) => self.too_large(),
            error if is_redirected_to_tls(url, &error) => {
                Fault { message: REDIRECTED.to_owned(), kind: FaultKind::Exchange }
            }
            error => Fault { message: explained(&error), kind: FaultKind::Exchange },
        };
        let begun = Instant::now();
        let mut request =
            self.agent.get(url).header("accept", accept).header("accept-encoding", "gzip");
        if let Some(credentials) = &self.credentials {
            request = request.header(AUTHORIZATION, credentials.authorization()?);
        }
        let request = request
            .header("x-prometheus-scrape-timeout-seconds", self.timeout.as_secs_f64().to_string());
        let mut response = request.call().map_err(failed)?;
        if !response.status().is_success() {
            let status = response.status();
            let remedy = match status.as_u16() {
                401 | 403 if self.credentials.is_some() => REFUSED_THEM,
                401 | 403 if self.via.is_some() => REFUSED,
                _ => "name the URL of the metrics",
            };
            let reason = format!("the response is {status}: {remedy}");
            return Err(Fault { message: reason, kind: FaultKind::Status(status.as_u16()) });
        }
        if let Some(via) = self.via {
            let came = via.check(response.headers());
            via.note(&mut came.map_err(|Loop| LOOP.to_owned())?);
        }
        let given = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (content_type, encoding) = (given("content-type"), given("content-encoding"));
        // The limit also counts the final read.
        let body = response.body_mut().with_config().limit(self.most + 1).read_to_vec();
        let body = body.map_err(failed)?;
        let bytes = match &*encoding.to_ascii_lowercase() {
            _ if body.len() as u64 > self.most => return Err(self.too_large()),
            "" | "identity" => body,
            "gzip" | "x-gzip" => self.expand(&body, begun)?,
            _ => {
                let encoding = printable(&encoding);
                let reason =
                    format!("the response has the encoding {encoding}, which was not asked for");
                return Err(reason.into());
            }
        };
        Ok((bytes, content_type))
    }

    /// Decompresses the body of an exchange that began at `begun`.
    fn expand(&self, body: &[u8], begun: Instant) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let body = TimedBody { body, begun, timeout: self.timeout };
        let read = MultiGzDecoder::new(body).take(self.most + 1).read_to_end(&mut bytes);
        match read {
            Ok(_) if bytes.len() as u64 > self.most => Err(self.too_large()),
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(self.too_late()),
            Err(error) => Err(format!("the response cannot be expanded: {error}").into()),
        }
    }

    fn too_late(&self) -> Fault {
        let timeout = humantime::format_duration(self.timeout);
        let reason = format!("no complete response within {timeout}");
        Fault { message: reason, kind: FaultKind::Timeout }
    }

    fn too_large(&self) -> Fault {
        let limit = match self.most {
            most if most.is_multiple_of(1 << 20) => format!("{} MiB", most >> 20),
            most => format!("{most} bytes"),
        };
        Fault { message: format!("the response has more than {limit}"), kind: FaultKind::TooLarge }
    }
}

/// Returns whether a request without TLS failed because a server needs TLS. This happens only after
/// a redirect.
fn is_redirected_to_tls(url: &str, error: &ureq::Error) -> bool {
    let is_tls = match error {
        ureq::Error::Tls(_) | ureq::Error::TlsRequired | ureq::Error::Rustls(_) => true,
        ureq::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    };
    is_tls && !url.starts_with("https://")
}

/// A body that is read in blocks until the time limit. The time limit is necessary because a body
/// of many empty gzip members takes long to decompress, but produces no bytes that a size limit
/// could count.
struct TimedBody<'b> {
    body: &'b [u8],
    begun: Instant,
    timeout: Duration,
}

impl Read for TimedBody<'_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        if self.begun.elapsed() >= self.timeout {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.body.read(block)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_body_is_expanded_while_there_is_time() {
        let member = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let body = [member(b"").repeat(10_000), member(b"a 1\n")].concat();
        let expand = |timeout| {
            let fetcher = Fetcher::new(None, tls::without_trust(), timeout, 100);
            fetcher.expand(&body, Instant::now()).map_err(|fault| fault.message)
        };
        assert_eq!(expand(Duration::from_secs(600)).unwrap(), b"a 1\n");
        assert_eq!(expand(Duration::ZERO).unwrap_err(), "no complete response within 0s");
    }

    #[test]
    fn a_url_without_a_path_is_that_of_metrics() {
        for (url, expected) in [
            ("http://a:9100", "http://a:9100/metrics"),
            ("http://[::1]:9100", "http://[::1]:9100/metrics"),
            ("http://a?x=/y", "http://a/metrics?x=/y"),
            ("http://a#b", "http://a/metrics#b"),
            ("http://a:9100/", "http://a:9100/"),
            ("http://a/b?c", "http://a/b?c"),
            ("http://", "http://"),
            ("", ""),
        ] {
            assert_eq!(with_path(url), expected);
        }
    }
}
