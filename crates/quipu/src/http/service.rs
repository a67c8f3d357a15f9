//! A tower service that responds with the metrics of a registry.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::body::Body;
use crate::exposition::{Compression, Negotiation, negotiate, negotiate_compression};
use crate::registry::Registry;

/// Responds to `GET` and `HEAD` with the metrics of a registry, whatever the path.
///
/// You can use this with tower, hyper (`hyper_util::service::TowerToHyperService`) and axum,
/// because it is a `tower_service::Service` for requests with any type of body:
///
/// ```
/// let registry = quipu::Registry::new();
/// let metrics = quipu::http::Service::new(registry.clone());
/// let app: axum::Router = axum::Router::new().route_service("/metrics", metrics);
/// ```
#[derive(Debug, Clone)]
pub struct Service {
    registry: Registry,
}

impl Service {
    /// Creates a service for a registry.
    pub fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

impl<B> tower_service::Service<Request<B>> for Service {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(respond(&self.registry, request.method(), request.headers())))
    }
}

/// Returns the response to a request with this method and these headers. The body is encoded while
/// it is sent. Methods other than `GET` and `HEAD` get a 405.
pub fn respond(registry: &Registry, method: &Method, headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    if method != Method::GET && method != Method::HEAD {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Negotiation { format, escaping } = negotiate(&all(headers, &ACCEPT));
    let compression = negotiate_compression(&all(headers, &ACCEPT_ENCODING));
    let scrape = registry.scrape().format(format, escaping);
    let headers = response.headers_mut();
    let content_type = scrape.content_type();
    // Content types never contain characters that are invalid in a header.
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if compression != Compression::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(compression.as_str()));
    }
    if method == Method::GET {
        *response.body_mut() = Body::new(scrape, compression);
    }
    response
}

/// Returns all values of a header, joined into one list.
fn all(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}
