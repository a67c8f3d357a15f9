#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(quipu_nightly, feature(allocator_api))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod allocate;
mod allocator;
mod arena;
#[doc(hidden)]
pub mod arithmetic;
mod base;
mod boxed;
mod chunk;
mod macros;
mod policy;
#[cfg(feature = "std")]
mod pool;
mod scope;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "alloc")]
mod shared;
mod stats;
mod string;
mod sync;
mod vec;

#[cfg(feature = "serde")]
pub use self::serde::{ArenaSeed, DeserializeIn};
pub use arena::Arena;
#[cfg(feature = "alloc")]
pub use base::Global;
pub use base::{AllocError, BaseAllocator, InBuffer, LimitedAllocator};
pub use boxed::ArenaBox;
pub use policy::{Down, Keep, Pieces, Policy, Reclaim, Up};
#[cfg(feature = "std")]
pub use pool::{Pool, PoolGuard};
pub use scope::{Checkpoint, Scope, ScopeGuard};
#[cfg(feature = "alloc")]
pub use shared::{Batch, SharedArena};
pub use stats::Stats;
pub use string::{ArenaString, StringDrain};
pub use vec::{ArenaVec, Drain, IntoIter, Within};
