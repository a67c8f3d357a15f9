//! A route for axum that serves metrics.

use axum::routing::{MethodRouter, get_service};

use super::service::Service;
use crate::registry::Registry;

/// Creates a route that responds with the metrics of a registry.
///
/// ```
/// let registry = quipu::Registry::new();
/// let app: axum::Router = axum::Router::new().route("/metrics", quipu::http::handler(&registry));
/// ```
pub fn handler<S: Clone + Send + Sync + 'static>(registry: &Registry) -> MethodRouter<S> {
    get_service(Service::new(registry.clone()))
}
