//! A bounded table by text, and when what it contains gives way to others.
//!
//! A table that replaced a value whenever another one comes would keep nothing of more values than
//! it has room for, if they come in the same order again and again. So a full table keeps what it
//! has, and [`Turns`] counts what finds no room. After many of these, the table begins again, with
//! the values that come then. What finds no room costs a look, and its share of that.

use std::collections::HashMap;

use quipu_segment::hash::Seeded;

/// Values by key, of which at most [`MOST`] are kept.
///
/// The places of the values are apart from the values: so one look finds a value, or that it has to
/// be made.
#[derive(Debug)]
pub(super) struct Recent<V> {
    places: HashMap<Box<str>, usize, Seeded>,
    /// After those that are kept, the last one that found no room.
    values: Vec<V>,
    turns: Turns,
}

/// Counts what finds no room in a full table.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turned_away: usize,
}

/// The most values that are kept.
const MOST: usize = 16_384;
/// After this number of values that find no room, a table begins again: a few times what is in it,
/// so that to fill it costs little beside them.
const PATIENCE: usize = 8 * MOST;

impl<V> Recent<V> {
    /// The value of a key, which is made if none is kept. (It is always there.)
    #[inline]
    pub(super) fn get_or_make(&mut self, key: &str, make: impl FnOnce(&str) -> V) -> Option<&V> {
        let place = match self.places.get(key) {
            Some(place) => *place,
            None => self.insert(key, make(key)),
        };
        self.values.get(place)
    }

    /// Keeps a value under a key that has none, if there is room. Returns its place.
    #[cold]
    fn insert(&mut self, key: &str, value: V) -> usize {
        if self.places.len() >= MOST {
            if !self.turns.turn_away() {
                self.values.truncate(MOST);
                self.values.push(value);
                return MOST;
            }
            *self = Self::default();
        }
        let place = self.values.len();
        self.values.push(value);
        self.places.insert(key.into(), place);
        place
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { places: HashMap::default(), values: Vec::new(), turns: Turns::default() }
    }
}

impl Turns {
    /// Counts something that finds no room. Returns whether the table is to begin again, with new
    /// turns.
    pub(crate) fn turn_away(&mut self) -> bool {
        self.turned_away += 1;
        self.turned_away >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_does_not_replace_what_is_kept() {
        let mut recent = Recent::default();
        let mut is_made = |key: String| {
            let mut is_made = false;
            let found = recent.get_or_make(&key, |key| {
                is_made = true;
                key.to_owned()
            });
            assert_eq!(found, Some(&key));
            assert!(recent.places.len() <= MOST && recent.values.len() <= MOST + 1);
            is_made
        };
        // More than are kept come again and again.
        for round in 0..3 {
            let made = (0..MOST + 100).filter(|n| is_made(format!("n{n}"))).count();
            assert_eq!(made, if round == 0 { MOST + 100 } else { 100 });
        }
        // Others come instead.
        let made = (0..).take_while(|n| is_made(format!("m{}", n % MOST))).count();
        assert!(made < PATIENCE + 2 * MOST, "{made}");
    }
}
