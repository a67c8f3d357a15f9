//! A fixed set of texts, each of which has an index.

/// Texts that are known when a family is made.
#[derive(Debug, Clone)]
pub struct StringSet;
