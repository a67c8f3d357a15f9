//! The quipu daemon. It counts requests over sliding windows, and loses no request that it has
//! answered.
//!
//! `quipu serve` runs straight through, see [`serve`]: parse, open the state, listen, serve, and
//! stop in reverse order. The program is the product: this library only names its parts, and its
//! API is not stable.

// The examples of the repository's README are tested, too: packages of the crate quipu lack it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub mod checkpoint;
pub mod config;
pub mod exposing;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod logs;
pub mod metrics;
pub mod recording;
pub mod routes;
pub mod serve;
pub mod source;
pub mod state;
pub mod top;
pub mod windows;
