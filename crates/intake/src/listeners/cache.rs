//! A bounded cache with string keys.
//!
//! An LRU cache would never hit if more keys than it can hold repeat in the same order. This cache
//! therefore keeps its values when it is full. After many misses ([`MissCounter`]), it is emptied,
//! and the next values fill it. A miss costs a lookup, and a share of refilling the cache.

use std::collections::HashMap;

use quipu_segment::hash::SeededState;

/// A map of at most [`MAX_VALUES`] values.
///
/// The values are in a separate vector, and the map contains their indices. A single lookup
/// therefore either finds a value or shows that it must be created.
#[derive(Debug)]
pub(super) struct BoundedCache<V> {
    indices: HashMap<Box<str>, usize, SeededState>,
    /// The cached values, followed by the last value that did not fit.
    values: Vec<V>,
    misses: MissCounter,
}

/// Counts the misses of a full cache, to determine when to empty it.
#[derive(Debug, Default)]
pub(crate) struct MissCounter {
    count: usize,
}

/// The maximum number of values in a cache.
const MAX_VALUES: usize = 16_384;
/// The number of misses that empties a full cache. This is a multiple of the size, because
/// refilling should cost little per miss.
const PATIENCE: usize = 8 * MAX_VALUES;

impl<V> BoundedCache<V> {
    /// Returns the value of a key. Creates the value if it is not cached. (This never fails.)
    #[inline]
    pub(super) fn get_or_insert_with(
        &mut self,
        key: &str,
        make: impl FnOnce(&str) -> V,
    ) -> Option<&V> {
        let index = match self.indices.get(key) {
            Some(index) => *index,
            None => self.insert(key, make(key)),
        };
        self.values.get(index)
    }

    /// Caches a value under a new key, if there is space. Returns the index of the value in either
    /// case.
    #[cold]
    fn insert(&mut self, key: &str, value: V) -> usize {
        if self.indices.len() >= MAX_VALUES {
            if !self.misses.count_miss() {
                self.values.truncate(MAX_VALUES);
                self.values.push(value);
                return MAX_VALUES;
            }
            *self = Self::default();
        }
        let index = self.values.len();
        self.values.push(value);
        self.indices.insert(key.into(), index);
        index
    }
}

impl<V> Default for BoundedCache<V> {
    fn default() -> Self {
        Self { indices: HashMap::default(), values: Vec::new(), misses: MissCounter::default() }
    }
}

impl MissCounter {
    /// Counts a miss. If this returns true, the caller empties the cache and resets this counter.
    pub(crate) fn count_miss(&mut self) -> bool {
        self.count += 1;
        self.count >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_keeps_its_values_until_many_misses() {
        let mut cache = BoundedCache::default();
        let mut is_made = |key: String| {
            let mut is_made = false;
            let found = cache.get_or_insert_with(&key, |key| {
                is_made = true;
                key.to_owned()
            });
            assert_eq!(found, Some(&key));
            assert!(cache.indices.len() <= MAX_VALUES && cache.values.len() <= MAX_VALUES + 1);
            is_made
        };
        // More keys than the cache can hold, repeated.
        for round in 0..3 {
            let made = (0..MAX_VALUES + 100).filter(|n| is_made(format!("n{n}"))).count();
            assert_eq!(made, if round == 0 { MAX_VALUES + 100 } else { 100 });
        }
        // Other keys replace them.
        let made = (0..).take_while(|n| is_made(format!("m{}", n % MAX_VALUES))).count();
        assert!(made < PATIENCE + 2 * MAX_VALUES, "{made}");
    }
}
