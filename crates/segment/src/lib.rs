//! A segment: a flat region of memory, without pointers, where counters live.
//!
//! This crate is the implementation of quipu, and makes no promise of stability. The exceptions are
//! the documented methods of [`Segment`], [`Options`] and [`Error`], and the module [`clock`]. If
//! you want to count, use the crate `quipu`.
//!
//! A segment is in private memory or in a file that is mapped and shared; the code that counts does
//! not need to know. It contains *records*, each with a kind and a name, and each record contains
//! *cells*, 64-bit atomics. A process that dies does not lose any counts in a file, because the
//! pages belong to the kernel. Call [`Segment::sync`] if they must survive a power loss, too.
//!
//! ```
//! use quipu_segment::{Kind, Segment};
//! use std::sync::atomic::Ordering;
//!
//! let segment = Segment::private(4096)?;
//! let draft = segment.reserve(Kind::new(*b"DEMO", 1), "requests", 8)?;
//! draft.cells()[0].store(17, Ordering::Relaxed);
//! draft.publish()?;
//!
//! let record = segment.find(Kind::new(*b"DEMO", 1), "requests")?.expect("it was just published");
//! assert_eq!(record.cells()[0].load(Ordering::Relaxed), 17);
//! # Ok::<(), quipu_segment::Error>(())
//! ```
//!
//! `docs/formats.md` in the repository draws the layout byte for byte.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]
// A child of a fork could wait forever: see clippy.toml.
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

#[cfg_attr(loom, allow(dead_code, reason = "a model uses a part of it"))]
mod barrier;
mod cells;
#[cfg_attr(loom, allow(dead_code, reason = "a model uses a part of it"))]
mod claims;
pub mod clock;
mod cpus;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod history;
mod list;
#[cfg_attr(
    any(loom, not(unix)),
    allow(dead_code, unreachable_pub, reason = "copies of files and a model use it")
)]
mod moved;
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "a model uses a part of it"))]
mod offset;
#[cfg_attr(loom, allow(dead_code, reason = "a model uses a part of it"))]
mod prefetch;
mod rseq;
mod stripes;
#[doc(hidden)]
pub mod sync;

#[cfg(not(loom))]
mod access;
#[cfg(not(loom))]
mod anchor;
#[cfg(all(target_os = "linux", not(loom)))]
mod cut;
#[cfg(not(loom))]
mod error;
#[cfg(all(unix, not(loom)))]
mod file;
#[cfg(not(loom))]
mod fork;
#[cfg(all(any(target_os = "linux", target_os = "android"), not(loom)))]
mod hold;
#[cfg(all(unix, not(loom)))]
#[doc(hidden)]
pub mod inspect;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
mod opening;
#[cfg(all(unix, not(loom)))]
mod origin;
#[cfg(all(unix, not(loom)))]
mod presence;
#[cfg(not(loom))]
mod printable;
#[cfg(not(loom))]
mod readings;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod segment;
#[doc(hidden)]
pub mod series;
#[cfg(not(loom))]
mod slots;
#[cfg(all(unix, not(loom)))]
mod space;
#[cfg(not(loom))]
mod thread;

#[doc(hidden)]
pub use cells::{Cells, Cycle, Line};
#[doc(hidden)]
pub use stripes::Stripes;

#[doc(hidden)]
pub use cpus::pretend_cpus;

#[cfg(loom)]
pub use list::model;
#[cfg(loom)]
pub use moved::model as moved_model;

#[cfg(not(loom))]
#[doc(hidden)]
pub use anchor::Anchor;
#[cfg(all(target_os = "linux", not(loom)))]
#[doc(hidden)]
pub use cut::survive_cuts;
#[cfg(not(loom))]
pub use error::{Error, ErrorKind};
#[cfg(not(loom))]
#[doc(hidden)]
pub use fork::{ForkSafeCell, generation, watch as watch_forks};
#[cfg(not(loom))]
#[doc(hidden)]
pub use layout::{HEADER_BYTES, Kind, LAYOUT_VERSION, LINE_BYTES, LINE_CELLS, MAGIC, NAME_BYTES};
#[cfg(not(loom))]
#[doc(hidden)]
pub use lease::LeaderLease;
#[cfg(not(loom))]
#[doc(hidden)]
pub use offset::CELL_BYTES;
#[cfg(not(loom))]
#[doc(hidden)]
pub use printable::{Printable, is_printable, printable};
#[cfg(not(loom))]
#[doc(hidden)]
pub use readings::Readings;
#[cfg(not(loom))]
#[doc(hidden)]
pub use segment::{Draft, Record, RegistrationGuard};
#[cfg(not(loom))]
pub use segment::{Options, Segment, SetAside};
#[cfg(all(unix, not(loom)))]
#[doc(hidden)]
pub use space::without_size_signal;
#[cfg(not(loom))]
#[doc(hidden)]
pub use thread::spawn_without_signals;
