//! An HTTP client that posts requests to one receiver over a persistent connection.

use std::io::Read;
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderMap, HeaderName, RETRY_AFTER};
use quipu_segment::printable;
use ureq::Agent;

use super::headers::Headers;
use crate::ReceiverUrl;
pub use crate::exchange::NoResponse;
use crate::tls;

/// The connection to a receiver.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    headers: Headers,
}

/// The response of a receiver.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The time to wait before the next request, if the receiver asks for this.
    pub retry_after: Option<Duration>,
    /// The body, truncated to 64 KiB.
    pub body: Vec<u8>,
}

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes that are read from the body of a response.
const MOST_READ: u64 = 64 << 10;
/// The maximum number of bytes of a body that a log shows.
const MOST_SHOWN: usize = 256;

impl Client {
    /// Creates a client, which connects only when it sends its first request. The client uses no
    /// proxy and follows no redirect.
    ///
    /// # Errors
    /// Fails if the URL is https and the system provides no certificates.
    pub fn new(
        receiver: &ReceiverUrl,
        interval: Duration,
        headers: &Headers,
    ) -> Result<Self, String> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_age(interval.saturating_mul(2).max(TIMEOUT))
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
            headers: headers.clone(),
        })
    }

    /// Creates a client with a separate connection to the same receiver.
    pub fn another(&self) -> Self {
        Self {
            agent: self.agent.config().new_agent(),
            url: self.url.clone(),
            headers: self.headers.clone(),
        }
    }

    /// Posts a body with these header fields and the header fields of the settings, and reads the
    /// response. The time limit is 30 seconds unless you pass `timeout`.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub fn post(
        &self,
        fields: &[(HeaderName, &str)],
        body: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Answer, NoResponse> {
        let mut request = self.agent.post(&self.url);
        if let Some(timeout) = timeout {
            // Less than the whole, so that the error tells whether there was a connection.
            let connect = timeout - timeout / 10;
            let config = request.config().timeout_global(Some(timeout));
            request = config.timeout_connect(Some(connect)).build();
        }
        for (name, value) in fields {
            request = request.header(name, *value);
        }
        for header in self.headers.read().map_err(NoResponse::unsent)? {
            request = request.header(header.name, header.value);
        }
        let mut response = request.send(body).map_err(|error| NoResponse::new(&error))?;
        // Read the body, because the connection cannot be reused before.
        let mut body = Vec::new();
        let _ = response.body_mut().as_reader().take(MOST_READ).read_to_end(&mut body);
        let (head, _) = response.into_parts();
        let retry_after = retry_after(&head.headers);
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, retry_after, body })
    }
}

impl Answer {
    /// Returns the beginning of the body for logs.
    pub fn text(&self) -> String {
        self.text_up_to(MOST_SHOWN)
    }

    /// Returns at most this many bytes of the body, as one line.
    pub fn text_up_to(&self, bytes: usize) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(bytes)]);
        printable(text.trim()).to_string()
    }
}

/// Returns the time to wait that a receiver asks for: in seconds, or until a date.
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
