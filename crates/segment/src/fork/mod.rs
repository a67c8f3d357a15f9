//! Code that stays correct across a fork. The child gets its parent's memory and open files, but is
//! another process, with only the forking thread.
//!
//! [`generation`] distinguishes a child from its parent. Use [`ForkSafeMutex`] and [`ForkSafeCell`]
//! for state that threads share, because a child then finds the lock free and the value whole.

mod cell;
mod generation;
mod mutex;

pub use self::cell::ForkSafeCell;
#[cfg(unix)]
pub(crate) use self::generation::forks;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::generation::{ClosedInChildren, calm, close_in_children};
pub use self::generation::{generation, watch};
pub(crate) use self::mutex::ForkSafeMutex;
