//! The hash of tables in memory: fast, seeded for each table, and ready without a lock.
//!
//! The hashers that crates of tables bring draw a seed for all of the process when the first table is
//! made, behind a lock. A child that is forked by then waits for it for ever.

use std::hash::{BuildHasher, RandomState};

use foldhash::fast::{FixedState, FoldHasher};

/// Makes the hashers of a table. Each `default` has a seed of its own from the system, so that nobody
/// chooses keys that collide.
#[derive(Debug, Clone)]
pub struct Seeded(FixedState);

impl Default for Seeded {
    fn default() -> Self {
        // The standard library keeps its keys in the thread, and has them from the system.
        Self(FixedState::with_seed(RandomState::new().hash_one(0)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_own_seed() {
        let (one, other) = (Seeded::default(), Seeded::default());
        assert_eq!(one.hash_one("key"), one.clone().hash_one("key"));
        assert_ne!(one.hash_one("key"), other.hash_one("key"));
    }
}
