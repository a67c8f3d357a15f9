//! The only source of atomics in this crate, because loom must be able to replace them in a model.

#[cfg(all(loom, feature = "alloc"))]
pub(crate) use loom::sync::atomic::AtomicPtr;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};

#[cfg(all(not(loom), feature = "alloc"))]
pub(crate) use core::sync::atomic::AtomicPtr;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicUsize, Ordering};

/// A function that is `const`, except in a model, because loom must register its atomics.
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* pub fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        pub const fn $($rest)*

        #[cfg(loom)]
        $(#[$attribute])*
        pub fn $($rest)*
    };
}
pub(crate) use const_unless_loom;
