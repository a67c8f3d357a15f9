//! Serving metrics over HTTP, and pushing them.
//!
//! | feature | gives |
//! |---|---|
//! | `tower` | [`Service`], for hyper, tower and whatever takes a `tower_service::Service` |
//! | `axum` | [`handler`], a route of axum's |
//! | `serve` | [`serve`], a server of its own on a thread of its own |
//! | `push` | [`Push`], to a Pushgateway |
//!
//! What is answered follows the request's headers `Accept` and `Accept-Encoding`.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tower")]
mod body;
#[cfg(feature = "push")]
mod push;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "tower")]
mod service;

#[cfg(feature = "axum")]
pub use axum::handler;
#[cfg(feature = "tower")]
pub use body::Body;
#[cfg(feature = "push")]
pub use push::Push;
#[cfg(feature = "serve")]
pub use serve::{Server, serve};
#[cfg(feature = "tower")]
pub use service::{Service, respond};
