//! Segments and files of other programs: where they are, which processes have them open, reading
//! them without any effect on those, and keeping what they show.

pub mod apart;
pub mod labels;
pub mod places;
pub mod procfs;
pub mod recorded;
pub mod segment_file;
