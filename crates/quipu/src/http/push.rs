//! Pushing to a Pushgateway. Use this for jobs that end before they can be scraped.

use std::time::Duration;

use crate::error::Error;
use crate::exposition::{Escaping, Format};
use crate::registry::Registry;

/// A group of metrics on a Pushgateway. You can push to it, or delete it.
///
/// ```no_run
/// # let registry = quipu::Registry::new();
/// let push = quipu::http::Push::new("http://localhost:9091", "backup").group("instance", "db 1");
/// push.replace(&registry)?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "call replace, add or delete"]
pub struct Push {
    url: String,
    agent: ureq::Agent,
    authorization: Option<String>,
}

/// The timeout for a whole push.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Push {
    /// Creates a client for the gateway at `url`, such as `http://localhost:9091`, which pushes as
    /// this job. A push times out after 10 seconds.
    pub fn new(url: &str, job: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .into();
        let mut url = format!("{}/metrics", url.trim_end_matches('/'));
        push_pair(&mut url, "job", job);
        Self { url, agent, authorization: None }
    }

    /// Adds a label to the group. Pushing does not change the metrics of other groups.
    pub fn group(mut self, name: &str, value: &str) -> Self {
        push_pair(&mut self.url, name, value);
        self
    }

    /// Returns the URL of the group.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets the header `Authorization`, for example to `Bearer ...`.
    pub fn authorization(mut self, value: impl Into<String>) -> Self {
        self.authorization = Some(value.into());
        self
    }

    /// Replaces all metrics of the group with the metrics of the registry.
    ///
    /// # Errors
    /// If the gateway cannot be reached, or refuses; the message then contains its response.
    pub fn replace(&self, registry: &Registry) -> Result<(), Error> {
        self.send(self.agent.put(&self.url), registry)
    }

    /// Replaces the metrics of the group whose names also occur in the registry, and keeps the
    /// others.
    ///
    /// # Errors
    /// The errors of [`Push::replace`].
    pub fn add(&self, registry: &Registry) -> Result<(), Error> {
        self.send(self.agent.post(&self.url), registry)
    }

    /// Deletes all metrics of the group.
    ///
    /// # Errors
    /// The errors of [`Push::replace`].
    pub fn delete(&self) -> Result<(), Error> {
        let mut request = self.agent.delete(&self.url);
        if let Some(value) = &self.authorization {
            request = request.header("Authorization", value);
        }
        self.check(request.call())
    }

    fn send(
        &self,
        mut request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        registry: &Registry,
    ) -> Result<(), Error> {
        let scrape = registry.scrape().format(Format::Text, Escaping::Underscores);
        request = request.header("Content-Type", scrape.content_type());
        if let Some(value) = &self.authorization {
            request = request.header("Authorization", value);
        }
        let mut body = Vec::new();
        scrape.append_to(&mut body);
        self.check(request.send(&body[..]))
    }

    fn check(&self, result: Result<http::Response<ureq::Body>, ureq::Error>) -> Result<(), Error> {
        let fail = |reason: String| {
            Error::from(std::io::Error::other(format!("pushing to {}: {reason}", self.url)))
        };
        let mut response = result.map_err(|error| fail(error.to_string()))?;
        if response.status().is_success() {
            return Ok(());
        }
        // The response is untrusted: read only as much as an error message needs.
        let text = response.body_mut().with_config().limit(4096).read_to_string();
        let status = response.status();
        Err(fail(format!("the gateway returned {status}: {}", text.unwrap_or_default().trim())))
    }
}

/// Appends a pair to the path in the Pushgateway's encoding: base64 if the value is empty, contains
/// a slash, or begins with a dot, because servers and proxies resolve `.` and `..`; else
/// percent-encoded.
fn push_pair(url: &mut String, name: &str, value: &str) {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    // RFC 3986, section 2.3, lists these characters as unreserved.
    const ENCODED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

    if value.is_empty() || value.contains('/') || value.starts_with('.') {
        use base64::Engine;
        // An empty value is a single `=`, because a path cannot contain empty segments.
        let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value);
        let encoded = if encoded.is_empty() { "=" } else { &encoded };
        url.push_str(&format!("/{name}@base64/{encoded}"));
    } else {
        url.push_str(&format!("/{name}/{}", utf8_percent_encode(value, ENCODED)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_contains_no_part_that_servers_resolve() {
        let url = |job: &str, value: &str| {
            Push::new("http://a:9/", job).group("x", value).url().to_owned()
        };
        assert_eq!(url("a-b_c~1", "db1.lan"), "http://a:9/metrics/job/a-b_c~1/x/db1.lan");
        assert_eq!(url("a/b", ""), "http://a:9/metrics/job@base64/YS9i/x@base64/=");
        assert_eq!(url("..", "db 1"), "http://a:9/metrics/job@base64/Li4/x/db%201");
    }
}
