//! Finds and reads the segment files of other programs, without any effect on these programs, and
//! stores their metrics in memory. This crate also finds the processes that have a segment open.

pub mod labels;
pub mod offload;
pub mod places;
pub mod procfs;
pub mod recorded;
pub mod segment_file;
pub mod watcher;
