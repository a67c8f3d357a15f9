//! Files of one process each: those that Python's and Ruby's clients of Prometheus write when an
//! application has several processes, and a store that writes such files.
//!
//! [`Directories`] is a collector of what applications left, and still write, in directories. It
//! shows what the clients themselves would show, in less time: a key that is in 500 files is read
//! as JSON once. [`FileStore`] is a [`Store`](crate::Store) for those who want one file for each
//! process and metric; Ruby's client reads them.
//!
//! Nothing that is in a directory makes a scrape fail: what is of no use is left out, counted in
//! `quipu_scrape_files_skipped_total`, and told to whoever asked for [warnings](Warning).

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

pub use directories::{Directories, Warning};
#[doc(hidden)]
pub use exposition::exposition;
pub use families::Hint;
pub use store::FileStore;
