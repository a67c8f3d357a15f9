//! Lists of labels, concatenated at compile time for nested label groups.

use crate::names::is_equal;
use crate::snapshot::Label;

/// The labels of several groups, one after the other. Only the code that
/// [`LabelGroup`](crate::LabelGroup)'s derive generates needs this.
#[derive(Debug, Clone, Copy)]
pub struct ConcatenatedLabels {
    labels: [Label<'static>; MAX_LABELS],
    count: usize,
}

/// The maximum number of labels in a group.
const MAX_LABELS: usize = 64;

impl ConcatenatedLabels {
    /// Concatenates lists.
    ///
    /// # Panics
    /// At compile time, if a label appears twice or there are more than 64 labels.
    pub const fn new(lists: &[&[Label<'static>]]) -> Self {
        let mut labels = [Label::new(""); MAX_LABELS];
        let mut count = 0;
        let mut list = 0;
        while list < lists.len() {
            let mut i = 0;
            while i < lists[list].len() {
                assert!(count < MAX_LABELS, "a label group has more than 64 labels: remove some");
                let label = lists[list][i];
                let mut other = 0;
                while other < count {
                    assert!(
                        !is_equal(labels[other].name.as_bytes(), label.name.as_bytes()),
                        "a label group and the groups flattened into it have the same label twice: \
                         rename one"
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

    /// Returns the labels.
    pub const fn labels(&'static self) -> &'static [Label<'static>] {
        self.labels.split_at(self.count).0
    }
}
