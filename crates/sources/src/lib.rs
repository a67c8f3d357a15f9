//! Segments and files of other programs. This crate finds them and the processes that have them
//! open, reads them without any effect on these processes, and keeps their metrics.

pub mod apart;
pub mod labels;
pub mod places;
pub mod procfs;
pub mod recorded;
pub mod segment_file;
pub mod watcher;
