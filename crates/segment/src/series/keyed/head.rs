//! Indexes into the head of a family with dynamic labels, after the words that every family shares.
//! `docs/formats.md` draws them.

/// The number of times that the index was replaced or rebuilt.
pub(crate) const CHANGES: usize = 2;
pub(crate) const OVERFLOW: usize = 4;
pub(crate) const TABLE: usize = 6;
pub(crate) const PREVIOUS: usize = 7;
pub(crate) const LOCK: usize = 8;
pub(crate) const BROKEN: usize = 9;
pub(crate) const MIGRATED: usize = 10;
pub(crate) const ENTRIES: usize = 11;
pub(crate) const LIVE: usize = 12;
pub(crate) const HIDDEN: usize = 13;
pub(crate) const FIRST_BLOCK: usize = 16;
pub(crate) const LAST_BLOCK: usize = 17;
/// The first record in limbo, and the number of records in limbo.
pub(crate) const LIMBO: usize = 18;
pub(crate) const LIMBO_COUNT: usize = 19;
/// The number of records in limbo that were claimed at the last read of the claims, and the number
/// in limbo at which the claims are read again.
pub(crate) const CLAIMED: usize = 20;
pub(crate) const NEXT_READ: usize = 21;
/// A bit for each class with a ready record.
pub(crate) const FILLED: usize = 22;
/// The first ready record of each class.
pub(crate) const READY: usize = FILLED + 2;
/// Pairs of free tables, by the logarithm of their slots. Two are always enough, because a table is
/// created only if none is free, and at most one of each size is in use.
pub(crate) const RETIRED: usize = READY + super::free::CLASSES as usize;
pub(crate) const END: usize = RETIRED + 2 * (crate::series::index::MAX_BITS as usize + 1);
