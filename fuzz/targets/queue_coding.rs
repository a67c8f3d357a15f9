//! The type of the daemon that the records of a queue use.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Snappy = 0,
    Zstd = 1,
    Gzip = 2,
    Plain = 3,
}
