//! What a fork means: the child has its parent's memory and open files, but is another process and
//! has none of its other threads.
//!
//! [`generation`] tells a child from its parent. [`ForkSafeMutex`] and [`ForkSafeCell`] are for
//! what threads share: a child finds the lock free, and the value whole.

mod cell;
mod generation;
mod mutex;

pub use self::cell::ForkSafeCell;
#[cfg(unix)]
pub(crate) use self::generation::forks;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::generation::{ClosedInChildren, calm, keep};
pub use self::generation::{generation, watch};
pub(crate) use self::mutex::ForkSafeMutex;
