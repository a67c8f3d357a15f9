//! Serving metrics over HTTP, and pushing them.
//!
//! | feature | gives |
//! |---|---|
//! | `tower` | `Service`, for axum, hyper, tower and anything that takes a `tower_service::Service` |
//! | `serve` | `serve`, a standalone server on its own thread; `serve_unix`, at a unix socket |
//! | `push` | `Push`, which pushes to a Pushgateway |
//! | `http` | methods and status codes as label values |
//!
//! The request headers `Accept` and `Accept-Encoding` select the format and the compression of a
//! response.
//!
//! # The requests of an axum service
//!
//! This service shows the rate of its requests by method, route and status, their duration by
//! route, and the number of requests under way. You need the features of `cargo add quipu-metrics
//! --features tower,http`; `http` makes label values of methods and status codes.
//!
//! The layer applies to the routes above its line, so scrapes are not counted. A URL that matches
//! no route is counted as `unmatched`, because a scanner would otherwise create a series for each
//! URL that it tries. The guards also end if a client disconnects, because axum then drops the
//! future.
//!
#![cfg_attr(feature = "tower", doc = "```no_run")]
#![cfg_attr(not(feature = "tower"), doc = "```ignore")]
//! use axum::extract::{MatchedPath, Request};
//! use axum::middleware::{Next, from_fn};
//! use axum::{Router, response::Response, routing::get};
//! use quipu::{Registry, counter, histogram, int_gauge};
//!
//! async fn observe(route: Option<MatchedPath>, request: Request, next: Next) -> Response {
//!     let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
//!     let method = request.method().clone();
//!     let _running = int_gauge!("http_requests_running", "Requests under way.").in_progress();
//!     let _timer = histogram!("http_request_duration_seconds", "Duration.", "route" => route)
//!         .start_timer();
//!     let response = next.run(request).await;
//!     let status = response.status();
//!     let requests = counter!("http_requests", "Requests.",
//!         "method" => method, "route" => route, "status" => status);
//!     requests.inc();
//!     response
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let app = Router::new()
//!         .route("/hello/{user}", get(async || "Hello!\n"))
//!         .layer(from_fn(observe))
//!         .route_service("/metrics", quipu::http::Service::new(Registry::global().clone()));
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     Ok(axum::serve(listener, app).await?)
//! }
//! ```

#[cfg(feature = "tower")]
mod body;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod local_socket;
#[cfg(feature = "push")]
mod push;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "tower")]
mod service;

#[cfg(feature = "tower")]
pub use body::Body;
#[cfg(feature = "push")]
pub use push::Push;
#[cfg(feature = "serve")]
pub use serve::{Server, serve};
#[cfg(all(feature = "serve", target_os = "linux"))]
pub use serve::{UnixServer, serve_unix};
#[cfg(feature = "tower")]
pub use service::{Service, respond};
