//! A service with the rate, the errors and the duration of its requests, by route.
//!
//! `cargo run --example axum --features tower`, then `curl http://127.0.0.1:3000/hello/ada` and
//! `curl http://127.0.0.1:3000/metrics`.

use std::error::Error;

use axum::extract::{MatchedPath, Path, Request};
use axum::middleware::{Next, from_fn};
use axum::{Router, response::Response, routing::get};
use quipu::{Registry, counter, timed};

#[timed("http_request_duration_seconds", "Duration.", native = 3, "route" => route.as_str())]
async fn observe(route: MatchedPath, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let response = next.run(request).await;
    let (route, status) = (route.as_str(), response.status());
    counter!("http_requests", "Requests.", "method" => method, "route" => route, "status" => status)
        .inc();
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/hello/{user}", get(async |user: Path<String>| format!("Hello, {}!\n", *user)))
        .route_layer(from_fn(observe))
        .route_service("/metrics", quipu::http::Service::new(Registry::global().clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
