//! Checks requests that a browser may be sending for a web page.
//!
//! The server does not authenticate clients: if your program reaches it, it can use it. A browser
//! reaches it for every page that its user opens, so two checks keep foreign pages out:
//!
//! * **Origin.** A page can send requests to any address without permission. Because of this, a
//!   request that may change state is refused if the browser marks it as foreign: by
//!   `Sec-Fetch-Site`, or by an `Origin` that differs from `Host`. This rule is the same as
//!   `CrossOriginProtection` in Go's `net/http`. Programs send neither field.
//! * **Host.** The owner of a page can let its name point to the address of this server after the
//!   page was loaded (DNS rebinding). The browser then sends requests as if the server were a part
//!   of the page, and only `Host` shows the name. A request is refused if this name is unknown and
//!   the sender can be a browser of another machine, or any program of this machine:
//!
//!   | connection | unknown host |
//!   |---|---|
//!   | a unix socket, which no browser can use | served |
//!   | from a loopback address | refused |
//!   | from another address, with a field that all browsers send | refused |
//!   | from another address, without such a field: a scraper, for example | served |
//!
//!   A host is known if no stranger can make a browser use it ([`is_own`]), or if the settings name
//!   it.

use std::net::{IpAddr, Ipv4Addr};

use hyper::header::{ACCEPT_LANGUAGE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use quipu_segment::printable;

use super::refusal::Refusal;

/// The hosts and origins that you allow in addition to the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Names of the server without a port: `name`, `*.domain` for all names in a domain, or `*`.
    pub hosts: Vec<String>,
    /// Origins of web pages that may send any request, such as `https://example.org`, or `*`.
    pub origins: Vec<String>,
}

/// The kind of address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// A unix socket.
    Socket,
    /// A loopback address: a process of this machine.
    Loopback,
    /// Any other address.
    Network,
}

impl Reach {
    /// Returns the reach of a client with this address.
    pub(super) fn from_address(address: Option<IpAddr>) -> Reach {
        match address.map(|address| address.to_canonical().is_loopback()) {
            None => Reach::Socket,
            Some(true) => Reach::Loopback,
            Some(false) => Reach::Network,
        }
    }
}

/// The reason why a request is not served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Denial<'r> {
    /// The host of the request is unknown.
    Host(&'r str),
    /// The request may change state, and a page of this origin sent it.
    Origin(Option<&'r HeaderValue>),
}

impl Access {
    /// Checks a request whose `Host` is valid.
    pub(super) fn check<'r>(&self, head: &'r Parts, reach: Reach) -> Result<(), Denial<'r>> {
        // The host of the target precedes the field (RFC 9112, 3.2.2).
        let field = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = name(head.uri.host().or(field).unwrap_or_default());
        let may_be_of_page = match reach {
            Reach::Socket => false,
            Reach::Loopback => true,
            Reach::Network => is_of_browser(&head.headers),
        };
        if may_be_of_page && !is_own(host) && !self.has_host(host) {
            return Err(Denial::Host(host));
        }
        if head.method.is_safe() { Ok(()) } else { self.check_origin(&head.headers) }
    }

    fn check_origin<'r>(&self, headers: &'r HeaderMap) -> Result<(), Denial<'r>> {
        let origin = headers.get(ORIGIN);
        let is_foreign = match (headers.get(SITE).map(HeaderValue::as_bytes), origin) {
            (Some(b"same-origin" | b"none"), _) | (None, None) => false,
            (Some(_), _) => true,
            (None, Some(origin)) => !is_of_host(origin, headers.get(HOST)),
        };
        if is_foreign && !origin.is_some_and(|origin| self.has_origin(origin)) {
            return Err(Denial::Origin(origin));
        }
        Ok(())
    }

    /// Returns the value of `Access-Control-Allow-Origin` in the response to a request with these
    /// header fields, if a foreign page may read the response.
    pub fn reader<'r>(&self, headers: &'r HeaderMap) -> Option<&'r HeaderValue> {
        headers.get(ORIGIN).filter(|origin| self.has_origin(origin))
    }

    fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| match known.strip_prefix('*') {
            Some(domain) => ends_with(host, domain),
            None => known.eq_ignore_ascii_case(host),
        })
    }

    fn has_origin(&self, origin: &HeaderValue) -> bool {
        let is_same = |known: &String| origin.as_bytes().eq_ignore_ascii_case(known.as_bytes());
        self.origins.iter().any(|known| known == "*" || is_same(known))
    }
}

impl Denial<'_> {
    /// Returns the refusal for the request.
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Denial::Host(_) => Refusal::Host,
            Denial::Origin(_) => Refusal::Origin,
        }
    }

    /// Returns the name that the settings need to contain.
    pub(super) fn name(&self) -> String {
        let name = match self {
            Denial::Host(host) => (*host).to_owned(),
            Denial::Origin(Some(origin)) => String::from_utf8_lossy(origin.as_bytes()).into_owned(),
            Denial::Origin(None) => "another origin".to_owned(),
        };
        printable(&name.chars().take(MAX_SHOWN).collect::<String>()).to_string()
    }

    /// Returns the body of the response.
    pub(super) fn text(&self) -> String {
        let name = self.name();
        match self {
            Denial::Host(_) => format!(
                "the host {name} is not known here, and a web page may have sent the request: use \
                 an IP address of the daemon, or start it with --allow-host {name}\n"
            ),
            Denial::Origin(Some(_)) => format!(
                "a web page of {name} sent this request, which may change something: to allow it, \
                 start the daemon with --allow-origin {name}\n"
            ),
            Denial::Origin(None) => "a web page of another origin sent this request, which may \
                                     change something: send it from a program instead\n"
                .to_owned(),
        }
    }
}

/// Returns the name in a valid `Host`: without the port and without the dot at the end. An IPv6
/// address keeps its brackets.
fn name(host: &str) -> &str {
    let end = match host.strip_prefix('[') {
        Some(_) => host.find(']').map_or(host.len(), |end| end + 1),
        None => host.find(':').unwrap_or(host.len()),
    };
    host[..end].strip_suffix('.').unwrap_or(&host[..end])
}

/// Returns whether a stranger cannot make a browser send this host to a chosen address. This is
/// true if the host is missing; if it is an IP address; if it is a name without a dot, such as
/// `localhost` or the name of a container, because public DNS does not serve these; or if it is in
/// a domain reserved for hosts of this machine (RFC 6761) or of a private network.
fn is_own(host: &str) -> bool {
    host.starts_with('[')
        || !host.contains('.')
        || host.parse::<Ipv4Addr>().is_ok()
        || ends_with(host, ".localhost")
        || ends_with(host, ".internal")
}

/// Returns whether a name ends with these characters, ignoring case, and begins with others.
fn ends_with(name: &str, end: &str) -> bool {
    let (name, end) = (name.as_bytes(), end.as_bytes());
    name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// Returns whether the sender of a request can be a browser. All browsers send `Accept-Language`,
/// and a page cannot prevent this, because it is a step of the Fetch standard. The other fields are
/// for browsers that deviate from this standard.
fn is_of_browser(headers: &HeaderMap) -> bool {
    [ACCEPT_LANGUAGE, ORIGIN, SITE].iter().any(|name| headers.contains_key(name))
}

/// Returns whether an origin is the server itself, by the name and port in the request. The scheme
/// is not compared, because a proxy may remove the encryption.
fn is_of_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.as_bytes();
    let start = origin.windows(3).position(|bytes| bytes == b"://").map(|start| start + 3);
    let (Some(start), Some(host)) = (start, host) else { return false };
    origin[start..].eq_ignore_ascii_case(host.as_bytes())
}

/// The header field where a browser describes the relation between a page and the host of its
/// request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The maximum number of characters that a response repeats of a host or an origin.
const MAX_SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use hyper::{Method, Request};

    use super::*;

    fn access() -> Access {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Access {
            hosts: of(&["metrics.example.com", "*.example.org"]),
            origins: of(&["https://console.example.com"]),
        }
    }

    fn check(
        access: &Access,
        method: Method,
        fields: &[(&str, &str)],
        reach: Reach,
    ) -> Option<Refusal> {
        let request = Request::builder().method(method).uri("/");
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        access.check(&head, reach).err().map(|denial| denial.refusal())
    }

    #[test]
    fn a_host_that_a_stranger_controls_is_unknown() {
        let is_known = |host: &str| {
            check(&access(), Method::GET, &[("host", host)], Reach::Loopback).is_none()
        };
        for host in [
            "",
            ":8081",
            "localhost:8081",
            "LOCALHOST",
            "a.localhost",
            "127.0.0.1:8081",
            "10.1.2.3",
            "[::1]:8081",
            "[fe80::1]",
            "quipu:8081",
            "quipu.:8081",
            "host.docker.internal:8081",
            "metrics.example.com",
            "Metrics.Example.com.:443",
            "a.example.org",
            "a.b.example.org:8081",
        ] {
            assert!(is_known(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8081",
            "evil.example.",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8081",
            "evillocalhost.x",
            "evilinternal.x",
            ".localhost",
            "example.org",
            "evilexample.org",
            "a.metrics.example.com",
            "metrics.example.com.evil",
            "127.1",
            "1.2.3.4.5",
        ] {
            assert!(!is_known(host), "{host}");
        }
    }

    #[test]
    fn an_unknown_host_is_refused_where_a_browser_may_send_it() {
        let host = ("host", "evil.example:8081");
        let of = |fields: &[(&str, &str)], reach| check(&access(), Method::GET, fields, reach);
        assert_eq!(of(&[host], Reach::Loopback), Some(Refusal::Host));
        assert_eq!(of(&[host], Reach::Network), None);
        for sign in [
            ("accept-language", "*"),
            ("origin", "http://evil.example:8081"),
            ("sec-fetch-site", "same-origin"),
        ] {
            assert_eq!(of(&[host, sign], Reach::Network), Some(Refusal::Host), "{sign:?}");
            assert_eq!(of(&[host, sign], Reach::Socket), None, "{sign:?}");
        }
        let any = Access { hosts: vec!["*".into()], ..Access::default() };
        assert_eq!(check(&any, Method::GET, &[host], Reach::Loopback), None);
        // HTTP/1.0 needs no host, and browsers do not speak it.
        assert_eq!(of(&[], Reach::Loopback), None);
    }

    #[test]
    fn the_host_of_the_target_precedes_the_field() {
        let request = Request::get("http://evil.example:1/").header("host", "localhost");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let denial = access().check(&head, Reach::Loopback).unwrap_err();
        assert_eq!(denial, Denial::Host("evil.example"));
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing() {
        let own = ("host", "localhost:8081");
        let (foreign, site) = (("origin", "http://evil.example"), "sec-fetch-site");
        let refused: [&[(&str, &str)]; 7] = [
            &[own, foreign],
            &[own, foreign, (site, "cross-site")],
            &[own, (site, "cross-site")],
            &[own, (site, "same-site")],
            &[own, ("origin", "null")],
            &[own, ("origin", "http://localhost:3000")],
            &[foreign],
        ];
        let served: [&[(&str, &str)]; 7] = [
            &[own],
            &[],
            &[own, ("origin", "http://localhost:8081")],
            &[own, ("origin", "HTTPS://LOCALHOST:8081")],
            &[own, foreign, (site, "same-origin")],
            &[own, (site, "none")],
            &[own, ("origin", "https://console.example.com"), (site, "cross-site")],
        ];
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            for fields in refused {
                let refusal = check(&access(), method.clone(), fields, Reach::Network);
                assert_eq!(refusal, Some(Refusal::Origin), "{method} {fields:?}");
            }
            for fields in served {
                let refusal = check(&access(), method.clone(), fields, Reach::Loopback);
                assert_eq!(refusal, None, "{method} {fields:?}");
            }
        }
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(check(&access(), method, &[own, foreign], Reach::Loopback), None);
        }
        let any = Access { origins: vec!["*".into()], ..Access::default() };
        assert_eq!(check(&any, Method::POST, &[own, ("origin", "null")], Reach::Loopback), None);
    }

    #[test]
    fn a_refusal_names_the_way_out_and_repeats_no_more_than_it_needs() {
        let text = Denial::Host("evil.example").text();
        assert!(text.contains("--allow-host evil.example\n"), "{text}");
        let origin = HeaderValue::from_bytes(b"http://a\xff\"").unwrap();
        let text = Denial::Origin(Some(&origin)).text();
        assert!(text.contains("--allow-origin http://a\u{fffd}"), "{text}");
        assert!(Denial::Host(&"a.".repeat(8000)).text().len() < 1000);
    }
}
