//! A fast hash function for tables in memory, seeded for each table, and usable without a lock; and
//! a hash function that never changes.
//!
//! The hashers of the usual crates draw a seed for the whole process when you create the first
//! table, under a lock. A child that is forked at that moment would wait for the lock forever.

use std::hash::{BuildHasher, RandomState};

use foldhash::fast::{FixedState, FoldHasher};

/// The seeded state of a table, which builds its hashers. Each `default` draws a separate seed from
/// the system, because outsiders could otherwise choose keys that collide.
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

/// Returns the FNV-1a hash of 64 bits (Fowler, Noll, Vo 1991), which is the same on all machines
/// and in all versions. Use this for short strings, but not for tables that outsiders fill.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_of(bytes.iter().copied())
}

/// Like [`fnv1a`], for bytes that are not adjacent.
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
