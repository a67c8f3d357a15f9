//! The daemon `quipu serve`: accepts metrics by many protocols, exposes them to Prometheus, and
//! forwards them by remote write and OTLP. It also counts requests over sliding windows, and never
//! loses a request after it has sent the response.
//!
//! `quipu serve` is a straight line (see [`serve`]): parse the settings, open the state, listen,
//! serve, and stop in reverse order. The product is the program. This library only names its parts,
//! so its API is not stable.

// Tests the examples of the repository's README here, because packages of the crate quipu don't
// contain it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub mod checkpoint;
pub mod config;
pub mod exposing;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod landing;
pub mod logs;
pub mod metrics;
pub mod recording;
pub mod routes;
pub mod serve;
pub mod source;
pub mod state;
pub mod top;
pub mod windows;
