//! Lists of labels put together at compile time, for groups within groups.

use crate::snapshot::Label;

/// The labels of several groups, one behind the other. Only the derive of
/// [`LabelGroup`](crate::LabelGroup) needs it.
#[derive(Debug, Clone, Copy)]
pub struct Concatenated {
    labels: [Label<'static>; MOST],
    count: usize,
}

/// The most labels of a group.
const MOST: usize = 64;

impl Concatenated {
    /// Puts lists together.
    ///
    /// # Panics
    /// When it is compiled: a label that is there twice, and too many labels.
    pub const fn new(lists: &[&[Label<'static>]]) -> Self {
        let mut labels = [Label { name: "", values: None }; MOST];
        let mut count = 0;
        let mut list = 0;
        while list < lists.len() {
            let mut i = 0;
            while i < lists[list].len() {
                assert!(count < MOST, "a group of more than 64 labels");
                let label = lists[list][i];
                let mut other = 0;
                while other < count {
                    assert!(
                        !same(labels[other].name.as_bytes(), label.name.as_bytes()),
                        "a label is there twice: once in the group, once in one that is flattened \
                         into it; rename one of them"
                    );
                    other += 1;
                }
                labels[count] = label;
                count += 1;
                i += 1;
            }
            list += 1;
        }
        Self { labels, count }
    }

    /// The labels.
    pub const fn labels(&'static self) -> &'static [Label<'static>] {
        self.labels.split_at(self.count).0
    }
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut i = 0;
    while i < one.len() {
        if one[i] != other[i] {
            return false;
        }
        i += 1;
    }
    true
}
