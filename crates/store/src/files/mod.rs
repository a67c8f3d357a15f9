//! Metric files with one process each: a reader of the files that the Python and Ruby clients of
//! Prometheus write for applications with several processes, and a store that writes such files.
//!
//! [`Directories`] is a collector of the files that applications wrote, or are writing, in some
//! directories. It returns the same result as the clients themselves, in less time: for example, a
//! key in 500 files is parsed as JSON once. [`FileStore`] is a [`Store`](crate::Store) with one
//! file per process and metric. You can read these files with Ruby's client.
//!
//! The content of a directory cannot make a scrape fail: unusable data is omitted, counted in
//! `quipu_scrape_files_skipped_total`, and reported as a [warning](Warning).

mod below;
mod directories;
mod emit;
mod exposition;
mod families;
mod key;
mod name;
mod store;
mod table;
mod walk;
mod writer;

#[doc(hidden)]
pub use below::open_below;
pub use directories::{Directories, Warning};
#[doc(hidden)]
pub use exposition::exposition;
pub use families::Hint;
pub use store::FileStore;
