//! [`RowTable`] aggregates the entries of many files: one row per key, regardless of the number of
//! files.
//!
//! A key is identified by its bytes, and parsed once, after all files are read. Most files contain
//! the same keys in the same order. So the row that followed in the previous file is tried before
//! the key is hashed: for example, for 500 files with 1,000 keys each, 1,000 keys are hashed.

use hashbrown::HashTable;
use quipu_arena::{Arena, Scope};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// How the values of several processes for one key are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Min,
    Max,
    /// The value with the latest time. A time of 0 means that the value was never set.
    MostRecent,
    /// All values, each with its process.
    Each,
}

/// A value, and when it was set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    pub(crate) value: f64,
    pub(crate) time: f64,
}

impl Fold {
    /// Adds one value. A number replaces NaN, so the order of the files does not matter.
    #[inline]
    pub(crate) fn add(self, into: &mut Reading, one: Reading) {
        match self {
            Self::Sum => into.value += one.value,
            Self::Min if one.value < into.value || into.value.is_nan() => *into = one,
            Self::Max if one.value > into.value || into.value.is_nan() => *into = one,
            Self::MostRecent if one.time > into.time => *into = one,
            Self::Min | Self::Max | Self::MostRecent | Self::Each => {}
        }
    }
}

/// A key and its combined value.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) reading: Reading,
    /// The number of a file that contains this key.
    pub(crate) file: u32,
    /// The row after this one in the previous file.
    next: u32,
}

/// The value of one process, for [`Fold::Each`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessValue {
    pub(crate) row: u32,
    /// The number of its file.
    pub(crate) file: u32,
    pub(crate) value: f64,
}

pub(crate) struct RowTable<'a> {
    pub(crate) fold: Fold,
    pub(crate) rows: Vec<Row<'a>>,
    /// With [`Fold::Each`], the values of all files; otherwise empty.
    pub(crate) process_values: Vec<ProcessValue>,
    index: HashTable<u32>,
    /// The first row of the previous file.
    first: u32,
    secrets: RapidSecrets,
}

const NONE: u32 = u32::MAX;

/// The position in a table while a file is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    file: u32,
    last: u32,
}

impl Place {
    pub(crate) fn new(file: u32) -> Self {
        Self { file, last: NONE }
    }
}

impl<'a> RowTable<'a> {
    pub(crate) fn new(fold: Fold) -> Self {
        Self {
            fold,
            rows: Vec::new(),
            process_values: Vec::new(),
            index: HashTable::new(),
            first: NONE,
            secrets: RapidSecrets::seed(seed()),
        }
    }

    /// Adds an entry of a file. New keys are copied into `scope`.
    #[inline]
    pub(crate) fn add(
        &mut self,
        place: &mut Place,
        key: &[u8],
        reading: Reading,
        scope: &Scope<'a>,
    ) {
        let expected = self.rows.get(place.last as usize).map_or(self.first, |row| row.next);
        let at = match self.rows.get(expected as usize) {
            Some(row) if row.key == key => expected,
            _ => self.find(key, scope),
        };
        match self.rows.get_mut(place.last as usize) {
            Some(row) => row.next = at,
            None => self.first = at,
        }
        place.last = at;
        self.fold_in(at, place.file, reading);
    }

    #[inline]
    fn fold_in(&mut self, at: u32, file: u32, reading: Reading) {
        let row = &mut self.rows[at as usize];
        if self.fold == Fold::Each {
            self.process_values.push(ProcessValue { row: at, file, value: reading.value });
        } else if row.file == NONE {
            row.reading = reading;
        } else {
            self.fold.add(&mut row.reading, reading);
        }
        if row.file == NONE {
            row.file = file;
        }
    }

    #[cold]
    fn find(&mut self, key: &[u8], scope: &Scope<'a>) -> u32 {
        let Self { rows, index, secrets, .. } = self;
        let hash = hash(key, secrets);
        if let Some(&at) = index.find(hash, |&at| rows[at as usize].key == key) {
            return at;
        }
        // Every row belongs to an entry of some file; all files contain fewer than 2^32 entries.
        let at = u32::try_from(rows.len()).expect("fewer keys than 2^32");
        let reading = Reading { value: 0.0, time: 0.0 };
        rows.push(Row { key: scope.alloc_slice_copy(key), reading, file: NONE, next: NONE });
        index.insert_unique(hash, at, |&at| self::hash(rows[at as usize].key, secrets));
        at
    }

    /// Adds all rows of another table with the same fold.
    pub(crate) fn merge(&mut self, other: &RowTable<'_>, scope: &Scope<'a>) {
        let mut place = Place::new(NONE);
        let mut rows = Vec::with_capacity(other.rows.len());
        for row in &other.rows {
            place.file = row.file;
            if self.fold == Fold::Each {
                rows.push(self.find(row.key, scope));
            } else {
                self.add(&mut place, row.key, row.reading, scope);
            }
        }
        for one in &other.process_values {
            let reading = Reading { value: one.value, time: 0.0 };
            self.fold_in(rows[one.row as usize], one.file, reading);
        }
    }
}

#[inline]
fn hash(key: &[u8], secrets: &RapidSecrets) -> u64 {
    rapidhash_v3_micro_inline::<true, false>(key, secrets)
}

/// Returns a random seed from the hasher of the standard library's maps, so no one can choose keys
/// that collide.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The memory of the keys, reused for the next scrape.
pub(crate) type Keys = Arena;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table<'a>(fold: Fold, scope: &Scope<'a>, files: &[&[(&str, f64, f64)]]) -> RowTable<'a> {
        let mut table = RowTable::new(fold);
        for (file, entries) in files.iter().enumerate() {
            let mut place = Place::new(u32::try_from(file).unwrap());
            for &(key, value, time) in *entries {
                table.add(&mut place, key.as_bytes(), Reading { value, time }, scope);
            }
        }
        table
    }

    fn values(table: &RowTable<'_>) -> Vec<(String, f64)> {
        let text = |row: &Row<'_>| String::from_utf8_lossy(row.key).into_owned();
        table.rows.iter().map(|row| (text(row), row.reading.value)).collect()
    }

    #[test]
    fn folds_do_not_depend_on_the_order_of_keys() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let files: &[&[_]] = &[
            &[("a", 1.0, 1.0), ("b", -2.0, 5.0)],
            &[("b", 7.0, 3.0), ("a", f64::NAN, 0.5), ("c", 1.0, 0.0)],
            &[("a", 3.0, 2.0), ("b", 4.0, 4.0)],
        ];
        for (fold, a, b) in [
            (Fold::Sum, f64::NAN, 9.0),
            (Fold::Min, 1.0, -2.0),
            (Fold::Max, 3.0, 7.0),
            (Fold::MostRecent, 3.0, -2.0),
        ] {
            let whole = values(&table(fold, &scope, files));
            let mut halves = table(fold, &scope, &files[..1]);
            halves.merge(&table(fold, &scope, &files[1..]), &scope);
            for found in [&whole, &values(&halves)] {
                assert_eq!(found.len(), 3);
                assert!(found[0].1 == a || (found[0].1.is_nan() && a.is_nan()), "{fold:?}");
                assert_eq!(found[1], ("b".into(), b), "{fold:?}");
            }
        }
        let mut halves = table(Fold::Each, &scope, &files[..1]);
        halves.merge(&table(Fold::Each, &scope, &files[1..]), &scope);
        assert_eq!(halves.process_values.len(), 7);
    }
}
