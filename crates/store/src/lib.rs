#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// These can block a forked child forever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod accept;
#[cfg(all(feature = "lmdb", target_os = "linux"))]
mod embedded;
mod error;
#[cfg(all(feature = "files", unix))]
pub mod files;
mod interface;
mod lock;
mod memory;
mod pool;
#[cfg(all(feature = "redis", unix))]
pub mod redis;
mod segment;
mod table;

#[cfg(all(feature = "lmdb", target_os = "linux"))]
pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use error::Error;
pub use interface::{Kind, Metric, Spec, Store};
pub use memory::{LocalStore, SynchronizedStore};
pub use quipu::Aggregation;
pub use segment::{SegmentOptions, SegmentStore};
