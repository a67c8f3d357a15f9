//! The types of the daemon that the records of the queue of remote write use.

pub(crate) mod remote_write {
    pub(crate) mod coding {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Coding {
            Snappy,
            Zstd,
        }
    }
}
