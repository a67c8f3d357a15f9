//! A bounded table by text, which keeps what was used recently.
//!
//! It has two generations: what is found in the older one moves to the newer one; when this is full,
//! it becomes the older one, and what was not used meanwhile is dropped.

use std::collections::HashMap;
use std::mem;

use quipu_segment::hash::Seeded;

/// Values by key, of which each generation has at most [`MOST`].
#[derive(Debug)]
pub(super) struct Recent<V> {
    newer: Generation<V>,
    older: Generation<V>,
}

/// The places of the values are apart from the values: so one look finds a value, or moves it from
/// one generation to the other.
#[derive(Debug)]
struct Generation<V> {
    places: HashMap<Box<str>, usize, Seeded>,
    /// `None` where a value has moved.
    values: Vec<Option<V>>,
}

/// The most values of a generation.
const MOST: usize = 8192;

impl<V> Recent<V> {
    /// The value of a key, which is made if none is kept. (It is always there.)
    #[inline]
    pub(super) fn get_or_make(&mut self, key: &str, make: impl FnOnce(&str) -> V) -> Option<&V> {
        let place = match self.newer.places.get(key) {
            Some(place) => *place,
            None => match self.renew(key) {
                Some(place) => place,
                None => self.insert(key.into(), make(key)),
            },
        };
        self.newer.values.get(place)?.as_ref()
    }

    /// Keeps a value under a key that has none, and returns its place.
    fn insert(&mut self, key: Box<str>, value: V) -> usize {
        if self.newer.values.len() >= MOST {
            self.older = mem::take(&mut self.newer);
        }
        let place = self.newer.values.len();
        self.newer.values.push(Some(value));
        self.newer.places.insert(key, place);
        place
    }

    /// Moves the value of a key to the newer generation, and returns its place there.
    #[cold]
    fn renew(&mut self, key: &str) -> Option<usize> {
        let (key, place) = self.older.places.remove_entry(key)?;
        let value = self.older.values.get_mut(place)?.take()?;
        Some(self.insert(key, value))
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { newer: Generation::default(), older: Generation::default() }
    }
}

impl<V> Default for Generation<V> {
    fn default() -> Self {
        Self { places: HashMap::default(), values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_is_dropped() {
        let mut recent = Recent::default();
        let mut made = 0;
        for number in 0..100_000 {
            for key in [&format!("c{number}"), "often"] {
                let found = recent.get_or_make(key, |key| {
                    made += usize::from(key == "often");
                    key.len()
                });
                assert_eq!(found, Some(&key.len()));
            }
        }
        assert_eq!(made, 1);
        assert!(recent.newer.places.len() <= MOST && recent.older.places.len() <= MOST);
    }
}
