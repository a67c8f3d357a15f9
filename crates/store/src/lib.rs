//! Stores: where the processes of an application keep the numbers that they share.
//!
//! One interface, [`Store`], and several places behind it. A store knows metrics by a [`Spec`]; a
//! [`Metric`] is what counts, by label values in the order of the spec's labels.

mod error;
mod fork;
mod interface;
mod lock;
mod memory;
mod table;

pub use error::Error;
pub use interface::{Kind, Metric, Spec, Store};
pub use memory::{Local, Synchronized};
pub use quipu::Aggregation;
