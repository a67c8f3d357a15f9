//! Groups: the values of all labels of fixed cardinality, as one number.

/// Splits a group into the indices of the labels' values. The last label varies fastest.
pub(crate) struct Indices {
    rest: u32,
    radix: u32,
}

impl Indices {
    /// Creates the indices of `group`. `groups` is the product of the labels' numbers of values.
    pub(crate) fn new(group: u32, groups: u32) -> Self {
        Self { rest: group, radix: groups.max(1) }
    }

    /// Returns the index of the next label, with `values` values.
    pub(crate) fn next(&mut self, values: usize) -> usize {
        // A label that all series of a source share takes a single value, and needs no division.
        if values > 1 {
            self.radix = (self.radix / u32::try_from(values).unwrap_or(u32::MAX)).max(1);
        }
        if self.rest < self.radix {
            return 0;
        }
        let index = self.rest / self.radix;
        self.rest %= self.radix;
        index as usize
    }
}
