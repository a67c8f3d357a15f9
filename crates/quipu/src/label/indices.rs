//! Groups: the values of all labels of fixed cardinality, as one number.

/// Splits a group into the indices of the labels' values. The last label varies fastest.
pub(crate) struct Indices {
    rest: u32,
    radix: u32,
}

impl Indices {
    /// The indices in `group`, of `groups`: the product of the labels' numbers of values.
    pub(crate) fn new(group: u32, groups: u32) -> Self {
        Self { rest: group, radix: groups.max(1) }
    }

    /// The index of the next label, which has `values` values.
    pub(crate) fn next(&mut self, values: usize) -> usize {
        // Labels that all series of a source have are of one value, and take no division.
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
