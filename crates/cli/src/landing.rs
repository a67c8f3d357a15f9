//! The page at `/` for browsers: the daemon's name and version, and links to its routes. Other
//! clients only get the count.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue,
};
use quipu_http::{Response, text};

/// Returns whether a client prefers HTML to plain text, like a browser that opens a page.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut plain, mut other) = (0.0, None, 0.0_f32);
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            let weight: f32 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            match &*name {
                "text/html" => html = weight,
                "text/plain" => plain = Some(weight),
                "text/*" | "*/*" => other = other.max(weight),
                _ => {}
            }
        }
    }
    html > 0.0 && plain.map_or(html >= other, |plain| html > plain)
}

/// Returns the page, with the number of requests in the window and the time since the start.
pub(crate) fn page(count: u64, up: Duration) -> Response {
    let up = humantime::format_duration(Duration::from_secs(up.as_secs()));
    let version = env!("CARGO_PKG_VERSION");
    let docs = concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/docs");
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>quipu</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>quipu</h1>\n\
         <p>Version {version}, up {up}, {count} requests to this page in the window.</p>\n<ul>\n\
         <li><a href=\"/metrics\">/metrics</a>: all metrics</li>\n\
         <li><a href=\"/refused\">/refused</a>: the last refusals</li>\n\
         <li><a href=\"/top\">/top</a>: the keys with the most events</li>\n\
         <li><a href=\"/-/healthy\">/-/healthy</a>: the health check</li>\n\
         <li><a href=\"{docs}\" rel=\"noreferrer\">Documentation</a></li>\n\
         </ul>\n</body>\n</html>\n"
    );
    let mut response = text(StatusCode::OK, html);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The style of the page. If you change it, its hash in the policy changes as well.
const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em;\
     line-height:1.6;color-scheme:light dark}";

/// The content security policy: the page loads nothing, and uses only the style with this SHA-256
/// hash.
const POLICY: &str =
    "default-src 'none'; style-src 'sha256-P9M8/IenrBS9Q6xLl4udBSCtzhhfE7RyKcMxIDsFslw='";

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn only_browsers_prefer_html() {
        let prefers = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            prefers_html(&headers)
        };
        for accept in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
            "text/html",
            "TEXT/HTML; q=0.5, text/plain;q=0.4",
            "text/html, */*",
        ] {
            assert!(prefers(&[accept]), "{accept}");
        }
        for accept in [
            "*/*",
            "text/plain",
            "text/plain, text/html",
            "text/html;q=0.1, */*",
            "text/html;q=0",
            "text/html;q=x, text/plain",
            "application/json",
            "",
        ] {
            assert!(!prefers(&[accept]), "{accept}");
        }
        assert!(!prefers(&[]) && prefers(&["application/json", "text/html"]));
    }

    #[test]
    fn the_policy_allows_the_style_of_the_page() {
        let hash = STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes()));
        assert_eq!(POLICY, format!("default-src 'none'; style-src 'sha256-{hash}'"));
        let response = page(7, Duration::from_millis(90_500));
        let text = String::from_utf8(response.body().to_vec()).unwrap_or_default();
        assert!(text.contains(&format!("<style>{STYLE}</style>")), "{text}");
        assert!(text.contains("up 1m 30s, 7 requests"), "{text}");
    }
}
