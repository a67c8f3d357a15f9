//! The module of the daemon to which the records of the queue of remote write refer.

pub(crate) mod remote_write {
    pub(crate) mod coding {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Coding {
            Snappy,
            Zstd,
        }
    }
}
