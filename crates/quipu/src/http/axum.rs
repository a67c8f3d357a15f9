//! A route of axum's.

use axum::routing::{MethodRouter, get_service};

use super::service::Service;
use crate::registry::Registry;

/// A route that answers with the metrics of a registry.
///
/// ```
/// let registry = quipu::Registry::new();
/// let app: axum::Router = axum::Router::new().route("/metrics", quipu::http::handler(&registry));
/// ```
pub fn handler<S: Clone + Send + Sync + 'static>(registry: &Registry) -> MethodRouter<S> {
    get_service(Service::new(registry.clone()))
}
