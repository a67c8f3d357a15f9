//! Label sets as bytes: each name and each value is followed by the byte 0xFF, because UTF-8 never
//! contains this byte. Equal label sets in the same order are equal bytes. You can store many sets
//! in a [`SeriesSet`].

use std::hash::BuildHasher;
use std::sync::{LazyLock, OnceLock};

use hashbrown::HashTable;
use quipu_segment::hash::SeededState;

/// The byte after a name or a value.
const END: u8 = 0xff;
/// The byte after a label set in a [`SeriesSet`].
const LAST: u8 = 0xfe;

/// Packs labels.
pub(super) fn pack<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut packed = Vec::new();
    push(&mut packed, labels);
    packed
}

/// Appends packed labels.
pub(super) fn push<'a>(packed: &mut Vec<u8>, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, value) in labels {
        for text in [name, value] {
            packed.extend_from_slice(text.as_bytes());
            packed.push(END);
        }
    }
}

/// Unpacks labels.
pub(super) fn unpack(packed: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    // The bytes are valid, because only strings are packed.
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let mut texts = packed.split(|byte| *byte == END).map(text);
    std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
}

/// A set of packed label sets, in the order of their addition.
#[derive(Debug, Clone, Default)]
pub(super) struct SeriesSet {
    /// The label sets, each followed by [`LAST`].
    packed: Vec<u8>,
    len: u32,
    /// The positions of the label sets by hash, created for the first lookup.
    table: OnceLock<HashTable<u32>>,
}

impl PartialEq for SeriesSet {
    /// Returns whether both contain the same label sets in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.packed == other.packed
    }
}

impl Eq for SeriesSet {}

impl SeriesSet {
    /// Returns the number of label sets.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the label sets.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        // Omit the empty last part, because a split of "a, b," returns one.
        self.packed.split(|byte| *byte == LAST).take(self.len())
    }

    /// Returns the label set at a position, and the position of the next one. The first position is
    /// 0.
    pub(super) fn next(&self, at: usize) -> Option<(&[u8], usize)> {
        let rest = self.packed.get(at..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|byte| *byte == LAST)?;
        Some((&rest[..end], at + end + 1))
    }

    /// Adds a label set. Returns false if it is a duplicate, or if the set would exceed 4 GiB.
    pub(super) fn insert(&mut self, labels: &[u8]) -> bool {
        let Ok(start) = u32::try_from(self.packed.len()) else { return false };
        if self.contains(labels) {
            return false;
        }
        let hash = hash_of(labels);
        let Self { packed, table, .. } = self;
        let Some(table) = table.get_mut() else { return false };
        table.insert_unique(hash, start, |at| hash_of(label_set(packed, *at)));
        self.packed.extend_from_slice(labels);
        self.packed.push(LAST);
        self.len += 1;
        true
    }

    /// Returns whether the set contains a label set.
    pub(super) fn contains(&self, labels: &[u8]) -> bool {
        let is_it = |at: &u32| label_set(&self.packed, *at) == labels;
        self.table().find(hash_of(labels), is_it).is_some()
    }

    /// Returns the label sets that `gone` does not contain.
    pub(super) fn without(&self, gone: &Self) -> Self {
        let mut left = Self::default();
        for labels in self.iter().filter(|labels| !gone.contains(labels)) {
            left.insert(labels);
        }
        left.shrink();
        left
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.table = OnceLock::new();
        self.packed.shrink_to_fit();
    }

    fn table(&self) -> &HashTable<u32> {
        let Self { packed, len, table } = self;
        table.get_or_init(|| {
            let mut table = HashTable::with_capacity(*len as usize);
            let hash_at = |at: &u32| hash_of(label_set(packed, *at));
            let mut start = 0;
            while start < packed.len() {
                // Fits, because `insert` keeps offsets within 32 bits.
                let at = start as u32;
                table.insert_unique(hash_at(&at), at, hash_at);
                start += label_set(packed, at).len() + 1;
            }
            table
        })
    }
}

/// Returns a hash that no sender can predict.
fn hash_of(labels: &[u8]) -> u64 {
    static STATE: LazyLock<SeededState> = LazyLock::new(SeededState::default);
    STATE.hash_one(labels)
}

/// Returns the label set at a position.
fn label_set(packed: &[u8], at: u32) -> &[u8] {
    let rest = packed.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == LAST).unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_labels_can_be_unpacked() {
        let labels = [("a", ""), ("job", "x y"), ("z", "\u{20ac}")];
        let packed = pack(labels.into_iter());
        assert!(unpack(&packed).eq(labels));
        assert_eq!(unpack(&[]).count(), 0);
    }

    #[test]
    fn a_set_has_each_label_set_once() {
        let mut set = SeriesSet::default();
        let all: Vec<Vec<u8>> = (0..100)
            .map(|n: u32| match n {
                0 => Vec::new(),
                n => pack([("n", n.to_string().as_str())].into_iter()),
            })
            .collect();
        for labels in &all {
            assert!(set.insert(labels));
            assert!(!set.insert(labels));
        }
        assert!(set.iter().eq(all.iter().map(Vec::as_slice)));
        set.shrink();
        for labels in &all {
            assert!(set.contains(labels));
        }
        assert!(!set.contains(&pack([("n", "100")].into_iter())));
        assert!(!set.insert(&all[0]));
        assert_eq!(set.len(), 100);
        let mut at = 0;
        for labels in &all {
            let (found, next) = set.next(at).unwrap();
            assert_eq!(found, labels);
            at = next;
        }
        assert!(set.next(at).is_none());
    }
}
