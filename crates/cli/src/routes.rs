//! The HTTP routes of the daemon, and the handler that dispatches to these routes. All responses
//! are served from memory.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use quipu_window::{PeakSearch, SlidingWindow};
use tracing::{debug, trace, warn};

use crate::exposing::ScrapeSteps;
use crate::landing;
use crate::metrics::Metrics;
use crate::state::State;
use crate::top::{MAX_KEYS, Page, PendingRequest, Top};
use quipu_agent::{AgentReadings, Filter};
use quipu_http::routing::Path;
use quipu_http::{Event, Handler, Query, Reply, Request, Response, Steps, text};
use quipu_intake::list;
use quipu_intake::refusal::{Refusal, Result};
use quipu_intake::refusals::Refusals;
use quipu_intake::{Inputs, LIST};
use quipu_process::log_limiter::LogLimiter;
use quipu_process::time::Time;

/// The route of a request.
#[derive(Clone, Copy)]
enum Route {
    /// Counts the request.
    Count,
    /// Returns the rate of [`Route::Count`].
    Rate,
    /// Returns the rate of a key.
    KeyRate,
    /// Counts events of a key.
    Hit,
    /// Returns the keys with the most events.
    Top,
    /// Returns all metrics: a scrape.
    Metrics,
    /// A route of an input.
    Input(&'static list::Route),
    /// Returns the last refusals.
    Refused,
    /// The health check.
    Health,
}

type Row = (Path, Route);

/// The daemon's own routes before the routes of the inputs. The most frequent routes are first,
/// because routes are compared in order.
static BEFORE: [Row; 6] = [
    (Path::new("/", "", READ), Route::Count),
    (Path::new("/rate", "", READ), Route::Rate),
    (Path::new("/rate/", "{key}", READ), Route::KeyRate),
    (Path::new("/hit/", "{key}", "POST"), Route::Hit),
    (Path::new("/top", "", READ), Route::Top),
    (Path::new("/metrics", "", READ), Route::Metrics),
];
/// The daemon's own routes after the routes of the inputs.
static AFTER: [Row; 3] = [
    (Path::new("/refused", "", READ), Route::Refused),
    (Path::new("/-/healthy", "", READ), Route::Health),
    (Path::new("/-/ready", "", READ), Route::Health),
];

const READ: &str = "GET, HEAD";

/// Returns all routes.
fn routes() -> impl Iterator<Item = (&'static Path, Route)> {
    let own = |rows: &'static [Row]| rows.iter().map(|(path, route)| (path, *route));
    let inputs = LIST.iter().flat_map(|input| input.routes);
    let inputs = inputs.map(|route| (&route.path, Route::Input(route)));
    own(&BEFORE).chain(inputs).chain(own(&AFTER))
}

/// Returns the route of a path, and the parameter in the path.
fn find(path: &str) -> Option<(&'static Path, Route, &str)> {
    routes().find_map(|(row, route)| Some((row, route, row.parameter_in(path)?)))
}

/// The request handler. Each server thread uses a clone; all clones share the same state.
#[derive(Clone)]
pub struct Routes {
    state: &'static State,
    metrics: &'static Metrics,
    top: &'static Top,
    inputs: Inputs,
    watched: Option<AgentReadings>,
    started: Instant,
}

impl Routes {
    /// Creates a handler over a state.
    pub fn new(
        state: &'static State,
        metrics: &'static Metrics,
        top: &'static Top,
        inputs: Inputs,
        watched: Option<AgentReadings>,
    ) -> Self {
        Self { state, metrics, top, inputs, watched, started: Instant::now() }
    }

    fn respond(&self, request: &Request) -> Result<Reply> {
        let path = request.path();
        if path == "*" && request.method() == Method::OPTIONS {
            return Ok(options().into());
        }
        let (row, route, rest) = self.find(path).ok_or_else(|| self.not_found(path))?;
        if !row.takes(request.method()) {
            return Err(Refusal::method(row.methods));
        }
        let inputs = &self.inputs;
        match route {
            Route::Count => Ok(self.count(request).into()),
            Route::Rate => self.rate(request),
            Route::KeyRate => self.key_rate(request, rest).map(Reply::Now),
            Route::Hit => self.hit(request, rest).map(Reply::Now),
            Route::Top => self.top(request),
            Route::Metrics => {
                let expiring = inputs.shared().push.expire(inputs);
                let filter = filter(request)?;
                if filter.is_part() && self.watched.is_none() {
                    let message = "no segments are watched; start the daemon with --segments";
                    return Err(Refusal::new(StatusCode::NOT_FOUND, message));
                }
                let exposing = ScrapeSteps::new(inputs, request, self.watched.as_ref(), filter);
                Ok(Reply::in_steps(Scrape { expiring, exposing }))
            }
            Route::Input(route) => Ok((route.respond)(inputs, request)),
            Route::Refused => Ok(json(&refusals_json(inputs.refusals())).into()),
            Route::Health => Ok(text(StatusCode::OK, "ok\n").into()),
        }
    }

    /// Returns the route of a path, if the settings enable this route.
    fn find<'p>(&self, path: &'p str) -> Option<(&'static Path, Route, &'p str)> {
        find(path).filter(|(_, route, _)| self.has(*route))
    }

    /// Returns whether the settings enable a route.
    fn has(&self, route: Route) -> bool {
        if let Route::Input(route) = route { (route.is_on)(self.inputs.shared()) } else { true }
    }

    /// Returns a 404 response that lists the routes.
    fn not_found(&self, path: &str) -> Box<Refusal> {
        let rows = routes().filter(|(_, route)| self.has(*route));
        let routes: Vec<_> = rows.map(|(row, _)| [row.start, row.parameter].concat()).collect();
        let routes = routes.join(", ");
        let message = format_args!("nothing at {path}; the routes are {routes}");
        Refusal::new(StatusCode::NOT_FOUND, message)
    }

    /// `GET /`: counts the request, and returns the count, or a page for a browser.
    fn count(&self, request: &Request) -> Response {
        let count = self.state.requests.add_and_count(1);
        let mut response = if landing::prefers_html(request.headers()) {
            landing::page(count, self.started.elapsed())
        } else {
            number(count)
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    /// `GET /rate?window=1s`: returns the number of events in a window that ends now. The request
    /// itself is not counted.
    fn rate(&self, request: &Request) -> Result<Reply> {
        let query = Query::only(request, &["window", "format"]).map_err(Refusal::bad)?;
        let requests = &self.state.requests;
        let window = window(&query)?.unwrap_or(requests.window());
        let count = requests.count_over(window).map_err(Refusal::bad)?;
        if !wants_json(&query)? {
            return Ok(number(count).into());
        }
        let rate = requests.rate_over(window).map_err(Refusal::bad)?;
        let search = requests.peak_over(window).map_err(Refusal::bad)?;
        Ok(Reply::in_steps(PeakSteps { state: self.state, window, count, rate, search }))
    }

    /// `GET /rate/{key}`: returns the number of events of a key; 0 for an unknown key.
    fn key_rate(&self, request: &Request, key: &str) -> Result<Response> {
        let query = Query::only(request, &["window", "format"]).map_err(Refusal::bad)?;
        let keys = &self.state.keys;
        let key = decode(key)?;
        let window = window(&query)?.unwrap_or(keys.window());
        let (count, rate) =
            keys.count_and_rate_over(&key, window).map_err(Refusal::bad)?.unwrap_or((0, 0.0));
        if !wants_json(&query)? {
            return Ok(number(count));
        }
        let object = serde_json::json!({
            "key": String::from_utf8_lossy(&key),
            "window": window.as_secs_f64(),
            "count": count,
            "rate": rate,
        });
        Ok(json(&object))
    }

    /// `POST /hit/{key}`: counts one event of a key, or `?n=` events.
    fn hit(&self, request: &Request, key: &str) -> Result<Response> {
        let query = Query::only(request, &["n"]).map_err(Refusal::bad)?;
        let n = whole(&query, "n")?.unwrap_or(1);
        let key = decode(key)?;
        Ok(number(self.state.keys.add_and_count(&key, n).map_err(Refusal::bad)?))
    }

    /// `GET /top?n=10`: returns the keys with the most events, one per line.
    fn top(&self, request: &Request) -> Result<Reply> {
        let query = Query::only(request, &["n"]).map_err(Refusal::bad)?;
        let most = whole(&query, "n")?.unwrap_or(10);
        let most = usize::try_from(most).ok().filter(|most| *most <= MAX_KEYS);
        let most =
            most.ok_or_else(|| Refusal::bad(format!("n is too large; give at most {MAX_KEYS}")))?;
        let pending = match self.top.ask(&self.state.keys, most) {
            Ok(page) => return Ok(ranking(&page, most).into()),
            Err(pending) => pending,
        };
        Ok(Reply::Steps(Box::new(RankingSteps {
            state: self.state,
            top: self.top,
            request: pending,
            most,
        })))
    }
}

/// `GET /refused`: returns the last refusals, by input and reason.
fn refusals_json(refusals: &Refusals) -> serde_json::Value {
    let last = refusals.last().into_iter().map(|refusal| {
        serde_json::json!({
            "time": humantime::format_rfc3339_millis(refusal.time).to_string(),
            "input": refusal.input.name(),
            "source": refusal.source,
            "reason": refusal.reason,
            "what": refusal.detail,
        })
    });
    last.collect()
}

/// The response to `/metrics`. Its first steps remove the expired groups.
struct Scrape<E> {
    expiring: Option<E>,
    exposing: ScrapeSteps,
}

impl<E: Steps> Steps for Scrape<E> {
    fn step(&mut self) -> Option<Response> {
        if let Some(expiring) = &mut self.expiring {
            expiring.step()?;
            self.expiring = None;
        }
        self.exposing.step()
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.expiring {
            Some(_) => Poll::Ready(()),
            None => self.exposing.poll_ready(cx),
        }
    }

    fn held(&self) -> usize {
        self.exposing.held()
    }

    fn is_waiting(&self) -> bool {
        self.expiring.as_ref().map_or_else(|| self.exposing.is_waiting(), Steps::is_waiting)
    }
}

/// The response to `/rate?format=json`, computed from every bucket of the window.
struct PeakSteps {
    state: &'static State,
    window: Duration,
    count: u64,
    rate: f64,
    search: PeakSearch,
}

impl Steps for PeakSteps {
    fn step(&mut self) -> Option<Response> {
        let requests = &self.state.requests;
        let most = requests.peak_step(&mut self.search, BUCKETS_PER_STEP)?;
        Some(json(&serde_json::json!({
            "window": self.window.as_secs_f64(),
            "count": self.count,
            "rate": self.rate,
            "max_rate": most as f64 / requests.accuracy().as_secs_f64(),
        })))
    }
}

/// The response to `/top`, computed from every key.
struct RankingSteps {
    state: &'static State,
    top: &'static Top,
    request: PendingRequest,
    most: usize,
}

impl Steps for RankingSteps {
    fn step(&mut self) -> Option<Response> {
        let page = self.top.step(&self.state.keys, &self.request)?;
        Some(ranking(&page, self.most))
    }
}

fn ranking(page: &Page, most: usize) -> Response {
    text(StatusCode::OK, page.first(most))
}

impl Handler for Routes {
    fn handle(&self, request: &Request) -> Reply {
        self.respond(request).unwrap_or_else(|refusal| {
            debug!(method = %request.method(), target = %request.uri(), why = ?refusal, "refused");
            refusal.respond().into()
        })
    }

    fn is_vital(&self, _method: &Method, path: &str) -> bool {
        matches!(find(path), Some((_, Route::Health, _)))
    }

    fn keeps_body(&self, method: &Method, path: &str) -> bool {
        let is_push = matches!(*method, Method::PUT | Method::POST);
        let found = self.find(path);
        is_push
            && found.is_some_and(|(row, route, _)| {
                matches!(route, Route::Input(route) if route.has_body) && row.takes(method)
            })
    }

    fn denied(&self, refusal: quipu_http::Refusal, name: &str) {
        static HOSTS: LogLimiter = LogLimiter::new();
        static ORIGINS: LogLimiter = LogLimiter::new();
        static HTTP2: LogLimiter = LogLimiter::new();
        match refusal {
            quipu_http::Refusal::Host if HOSTS.is_due(Instant::now()) => warn!(
                host = name,
                "refused a request for a host that is not known: if clients use this name, start \
                 the daemon with --allow-host and the name"
            ),
            quipu_http::Refusal::Origin if ORIGINS.is_due(Instant::now()) => warn!(
                origin = name,
                "refused a request that a web page sent to change something: if that is meant, \
                 start the daemon with --allow-origin and the origin"
            ),
            quipu_http::Refusal::Http2 if HTTP2.is_due(Instant::now()) => warn!(
                client = name,
                "refused a client that speaks HTTP/2, such as gRPC: if it sends OTLP, set \
                 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for it, or use the exporter otlphttp in \
                 a collector"
            ),
            _ => {}
        }
    }

    fn event(&self, event: Event) {
        log(event);
        self.metrics.event(event);
    }
}

/// Logs an event of the transport, at a level below `info`.
fn log(event: Event) {
    match event {
        Event::Accepted => debug!("a connection was opened"),
        Event::Closed(why) => debug!(?why, "a connection was closed"),
        Event::Answered { status, started } => {
            trace!(status = status.as_u16(), took = ?started.elapsed(), "answered");
        }
        Event::Refused(refusal) => {
            debug!(status = refusal.status().as_u16(), why = refusal.reason(), "refused");
        }
        Event::AcceptPaused => debug!("accepting is paused: file descriptors or memory ran out"),
    }
}

/// Parses the filter of a scrape. Other parameters are ignored, because scrapers can add their own.
fn filter(request: &Request) -> Result<Filter> {
    let mut filter = Filter::default();
    for (name, value) in Query::from_request(request).map_err(Refusal::bad)?.iter() {
        match name {
            "segment" => filter.source = Some(value.to_owned()),
            "directory" => {
                let message = "the directory is empty; give the path of a watched one";
                filter.directory =
                    Some(std::path::absolute(value).map_err(|_| Refusal::bad(message))?);
            }
            "name[]" => filter.names.push(value.to_owned()),
            _ => {}
        }
    }
    if filter.names.len() > MAX_NAMES {
        return Err(Refusal::bad(format!("there are too many names; give at most {MAX_NAMES}")));
    }
    Ok(filter)
}

fn window(query: &Query) -> Result<Option<Duration>> {
    let parse = |text: &str| text.parse::<Time>().map(|time| time.0);
    let parsed = query.one("window").map(parse).transpose();
    parsed.map_err(|error| Refusal::bad(format!("the window cannot be read: {error}")))
}

fn whole(query: &Query, name: &str) -> Result<Option<u64>> {
    let parsed = query.one(name).map(str::parse).transpose();
    parsed.map_err(|error| {
        Refusal::bad(format!("{name} cannot be read: {error}; give a whole number"))
    })
}

fn wants_json(query: &Query) -> Result<bool> {
    match query.one("format") {
        None | Some("text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => Err(Refusal::bad(format!("unknown format {other:?}; give text or json"))),
    }
}

fn decode(key: &str) -> Result<Vec<u8>> {
    if key.is_empty() {
        return Err(Refusal::bad("the key is empty; give one after the slash"));
    }
    // Reject malformed escapes, because clients interpret them in different ways: `%zz` could mean
    // two different keys.
    let is_escape =
        |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() >= 2;
    if key.split('%').skip(1).any(|rest| !is_escape(rest.as_bytes().get(..2).unwrap_or_default())) {
        let message = "a percent sign in the key must be followed by two hexadecimal digits; write \
                    %25 for the sign itself";
        return Err(Refusal::bad(message));
    }
    Ok(percent_decode_str(key).collect())
}

/// Returns the response to `OPTIONS *`: the methods of the whole daemon.
fn options() -> Response {
    let mut response = Response::default();
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD, PUT, POST, DELETE, OPTIONS"));
    response
}

/// Returns a count in the format of `derlaft/ratecounter`, whose contract the daemon keeps.
fn number(count: u64) -> Response {
    text(StatusCode::OK, digits(count).to_vec())
}

/// Returns the count in 20 decimal digits, enough for any `u64`.
pub(crate) fn digits(mut count: u64) -> [u8; 20] {
    let mut digits = [b'0'; 20];
    for digit in digits.iter_mut().rev() {
        *digit += (count % 10) as u8; // Below 10.
        count /= 10;
    }
    digits
}

fn json(value: &serde_json::Value) -> Response {
    let mut response = text(StatusCode::OK, format!("{value}\n"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The maximum number of metric names in a filter, because each family is compared with all of
/// them.
const MAX_NAMES: usize = 100;

/// The number of buckets that one step reads. This takes about 100 us.
const BUCKETS_PER_STEP: u64 = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_row_and_a_parameter() {
        for (path, expected) in [
            ("/", Some(("/", ""))),
            ("/rate", Some(("/rate", ""))),
            ("/rate/", Some(("/rate/", ""))),
            ("/rate/a/b", Some(("/rate/", "a/b"))),
            ("/metrics", Some(("/metrics", ""))),
            ("/metrics/job/a/b/c", Some(("/metrics/job/", "a/b/c"))),
            ("/metrics/job@base64/YQ", Some(("/metrics/job@base64/", "YQ"))),
            ("/metrics/job", None),
            ("/metrics/x", None),
            ("/rates", None),
            ("//", None),
            ("*", None),
            ("", None),
        ] {
            let found = find(path).map(|(row, _, rest)| (row.start, rest));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn counts_have_twenty_digits() {
        assert_eq!(&digits(17), b"00000000000000000017");
        assert_eq!(&digits(0), b"00000000000000000000");
        assert_eq!(&digits(u64::MAX), b"18446744073709551615");
    }
}
