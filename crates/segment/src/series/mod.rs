//! Families and series, built on the records of a segment.
//!
//! A *family* is all series of one metric name. It is a self-describing record, which includes the
//! labels, so that any process that opens the segment can show it. A *series* is the cells of one
//! set of label values.
//!
//! ```
//! use quipu_segment::Segment;
//! use quipu_segment::series::{Label, Schema};
//!
//! let segment = Segment::private(1 << 20)?;
//! let family = segment.family(&Schema {
//!     name: "requests".into(),
//!     cells: 1,
//!     additive: true,
//!     labels: vec![Label { name: "user".into(), values: None }],
//!     ..Schema::default()
//! })?;
//! family.add(|key| key.text("ada"), 0, 1);
//! family.add(|key| key.text("ada"), 0, 1);
//! assert_eq!(family.bind(|key| key.text("ada")).cells().sum(0), 2);
//! # Ok::<(), quipu_segment::Error>(())
//! ```
//!
//! If all labels have fixed values, the storage of a series is computed from them, and its cells
//! lie
//! in lanes, one for each CPU. If a label is dynamic, each series is a separate record with its
//! label values and cells, and an index finds it without a lock.

#[cfg(not(loom))]
mod cached;
#[cfg(not(loom))]
pub(crate) mod cells;
#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
pub(crate) mod dense;
#[cfg(not(loom))]
pub(crate) mod family;
#[cfg(not(loom))]
mod freed;
#[cfg(not(loom))]
mod handle;
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "a model uses a part of it"))]
mod index;
#[cfg(not(loom))]
mod key;
#[cfg(not(loom))]
pub(crate) mod keyed;
#[cfg(not(loom))]
mod lane_set;
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "a model uses a part of it"))]
pub(crate) mod lanes;
#[cfg(not(loom))]
mod make;
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "a model uses a part of it"))]
pub(crate) mod meta;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod schema;
#[cfg(all(unix, not(loom)))]
mod settle;
#[cfg(not(loom))]
mod side;
#[cfg(not(loom))]
mod single;
#[cfg(not(loom))]
mod spot;
#[cfg(not(loom))]
mod strings;
#[cfg(not(loom))]
mod sums;
#[cfg(not(any(unix, loom)))]
mod uncopied;
#[cfg(not(loom))]
mod walk;

#[cfg(not(loom))]
pub use cached::{CachedSeries, FoldGuard};
#[cfg(not(loom))]
pub use cells::SeriesCells;
#[cfg(not(loom))]
pub use family::{ClaimedCells, Family};
#[cfg(not(loom))]
pub use handle::SeriesHandle;
#[cfg(not(loom))]
pub use key::{KeyWriter, Values};
#[cfg(not(loom))]
pub use schema::{Identity, Label, MAX_CELLS, Schema};
#[cfg(not(loom))]
pub use side::{SideAllocation, SideAllocations};
#[cfg(not(loom))]
#[cfg(not(loom))]
pub use spot::Spot;
#[cfg(not(loom))]
pub use strings::StringSet;
#[cfg(not(loom))]
pub use walk::{Cursor, View};

#[cfg(not(loom))]
pub(crate) use names::Names;

#[cfg(loom)]
pub mod model {
    //! The parts that loom checks.
    pub use super::index::model::SmallIndex;
    pub use super::lanes::model::{Process, SharedMemory};
    pub use super::meta::model::ModelRecord;
}
