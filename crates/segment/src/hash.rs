//! The hash function of tables in memory, which is fast, seeded for each table, and usable without
//! a lock; and a hash function that never changes.
//!
//! The hashers of the usual crates draw a seed for the whole process when the first table is made,
//! under a lock. A child that is forked at that moment waits for the lock forever.

use std::hash::{BuildHasher, RandomState};

use foldhash::fast::{FixedState, FoldHasher};

/// The seeded state of a table, which builds its hashers. Each `default` draws its own seed from
/// the system, so that no outsider can choose keys that collide.
#[derive(Debug, Clone)]
pub struct SeededState(FixedState);

impl Default for SeededState {
    fn default() -> Self {
        // The standard library keeps its keys per thread, and gets them from the system.
        Self(FixedState::with_seed(RandomState::new().hash_one(0)))
    }
}

impl BuildHasher for SeededState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo 1991): the same on all machines and in all versions. It is for
/// short texts, and not for tables that outsiders fill.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_of(bytes.iter().copied())
}

/// [`fnv1a`] of bytes that do not lie side by side.
pub fn fnv1a_of(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_own_seed() {
        let (one, other) = (SeededState::default(), SeededState::default());
        assert_eq!(one.hash_one("key"), one.clone().hash_one("key"));
        assert_ne!(one.hash_one("key"), other.hash_one("key"));
    }
}
