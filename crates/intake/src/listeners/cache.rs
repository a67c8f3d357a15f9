//! A bounded cache with text keys.
//!
//! An LRU cache would have no hits if more keys than it has room for came in the same order again
//! and again. So a full cache keeps its values, and [`MissCounter`] counts the misses. After many
//! misses, the cache is emptied, and filled with the next values. A miss costs a lookup, and its
//! share of the next filling.

use std::collections::HashMap;

use quipu_segment::hash::SeededState;

/// Values by key, at most [`MAX_VALUES`] of them.
///
/// The indices of the values are apart from the values: so one lookup finds a value, or that it has
/// to be made.
#[derive(Debug)]
pub(super) struct BoundedCache<V> {
    indices: HashMap<Box<str>, usize, SeededState>,
    /// The cached values, and after them the last value that found no room.
    values: Vec<V>,
    misses: MissCounter,
}

/// Counts the misses of a full cache.
#[derive(Debug, Default)]
pub(crate) struct MissCounter {
    count: usize,
}

/// The most values of a cache.
const MAX_VALUES: usize = 16_384;
/// After this number of misses, a full cache is emptied: a few times the number of its values, so
/// that filling it costs little in comparison.
const PATIENCE: usize = 8 * MAX_VALUES;

impl<V> BoundedCache<V> {
    /// Returns the value of a key, which is made if it is not cached. (It is always there.)
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

    /// Caches a value under a new key, if there is room. Returns the index of the value.
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
    /// Counts a miss. Returns whether to empty the cache, together with this counter.
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
        // More than are kept come again and again.
        for round in 0..3 {
            let made = (0..MAX_VALUES + 100).filter(|n| is_made(format!("n{n}"))).count();
            assert_eq!(made, if round == 0 { MAX_VALUES + 100 } else { 100 });
        }
        // Others come instead.
        let made = (0..).take_while(|n| is_made(format!("m{}", n % MAX_VALUES))).count();
        assert!(made < PATIENCE + 2 * MAX_VALUES, "{made}");
    }
}
