//! A service that counts its requests by route, and times them.
//!
//! `cargo run --example axum --features tower`, then `curl http://127.0.0.1:3000/hello/ada` and
//! `curl http://127.0.0.1:3000/metrics`.

use std::error::Error;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use quipu::{CounterFamily, Histogram, LabelGroup, LabelValue, Metrics, Registry};

#[derive(Clone, Copy, LabelValue)]
enum Route {
    Hello,
    Root,
}

#[derive(LabelGroup)]
struct Request<'a> {
    route: Route,
    user: &'a str,
}

#[derive(Clone, Metrics)]
#[metrics(prefix = "http")]
struct Service {
    /// Handled requests.
    #[metric(limit = 10_000)]
    requests: CounterFamily<Request<'static>>,
    /// Time to handle a request.
    #[metric(unit = "seconds", native = 3, exemplars)]
    duration: Histogram,
}

async fn hello(State(service): State<Service>, Path(user): Path<String>) -> String {
    let _timer = service.duration.start_timer();
    service.requests.inc(&Request { route: Route::Hello, user: &user });
    format!("Hello, {user}!\n")
}

async fn root(State(service): State<Service>) -> &'static str {
    service.requests.inc(&Request { route: Route::Root, user: "" });
    "Ask for /hello/NAME.\n"
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let service: Service = registry.metrics()?;
    #[cfg(target_os = "linux")]
    registry.register_collector(quipu::collector::Process::new())?;
    let app = Router::new()
        .route("/", get(root))
        .route("/hello/{user}", get(hello))
        .with_state(service)
        .route_service("/metrics", quipu::http::Service::new(registry));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
