//! Fetches an exposition from a URL, within bounds of time and size.

use std::time::Duration;

use super::Text;
use crate::tls;

/// The most bytes of a response.
const MAX_BYTES: u64 = 256 << 20;

/// What a scraper asks for.
const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// Fetches the exposition of a URL. The whole exchange takes at most the given time.
///
/// # Errors
/// What failed, and what to do about it, without the URL.
pub(crate) fn fetch(url: &str, timeout: Duration) -> Result<Text, String> {
    if !url.starts_with("http://") {
        return Err("only http:// is supported: name the address without TLS".into());
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(3)
        .proxy(None)
        .tls_config(tls::without_trust())
        .user_agent(concat!("quipu/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let failed = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => {
            format!("no complete response within {}", humantime::format_duration(timeout))
        }
        ureq::Error::BodyExceedsLimit(limit) => {
            format!("the response has more than {} MiB", limit >> 20)
        }
        error => error.to_string(),
    };
    let mut response = agent.get(url).header("accept", ACCEPT).call().map_err(failed)?;
    if !response.status().is_success() {
        return Err(format!("the response is {}: name the URL of the metrics", response.status()));
    }
    let given = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().to_owned();
    let body = response.body_mut().with_config().limit(MAX_BYTES).read_to_vec().map_err(failed)?;
    Ok(Text::of_type(body, given))
}
