//! The daemon's type for the coding of records in a queue.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Snappy = 0,
    Zstd = 1,
    Gzip = 2,
    Plain = 3,
}
