//! Serving metrics over HTTP, and pushing them.
//!
//! | feature | gives |
//! |---|---|
//! | `tower` | `Service`, for axum, hyper, tower and anything that takes a `tower_service::Service` |
//! | `serve` | `serve`, a standalone server on its own thread; `serve_unix`, at a unix socket |
//! | `push` | `Push`, which pushes to a Pushgateway |
//!
//! The request headers `Accept` and `Accept-Encoding` select the format and the compression of a
//! response.

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
