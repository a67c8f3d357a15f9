//! What a series has beside its cells, such as exponential buckets: side allocations.

use super::{Inspection, SeriesSeen};
use crate::series::MAX_CELLS;
use crate::series::cells::LANE_WORDS;

/// A side allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideSeen {
    /// The offset of the side allocation before this one; 0 if there is none.
    pub link: u32,
    /// Two words of the code that took it.
    pub user_data: [u64; 2],
    /// The shared words.
    pub words: Vec<u64>,
    /// The cells, each added up over all lanes.
    pub sums: Vec<u64>,
}

/// The words of its head: see `series/side.rs`.
pub(super) const HEAD: u64 = 8;

/// The numbers of shared words and of words of cells, as the head states them.
pub(super) fn words(head: impl Fn(u64) -> u64) -> [u64; 2] {
    let (sizes, lanes) = (head(2), u64::from((head(3) >> 32) as u16));
    let (words, cells) = (u64::from(sizes as u16), u64::from((sizes >> 32) as u16));
    [words, lanes.saturating_sub(1) * LANE_WORDS as u64 * u64::from(cells > 0) + cells]
}

impl Inspection {
    /// The side allocation at an offset that a cell of a series, or another side allocation of it,
    /// has. `None` if there is none, or if it is that of another series.
    ///
    /// Call it only inside of [`Inspection::series`]: what all calls read together is bounded.
    pub fn side(&self, series: &SeriesSeen<'_>, at: u64) -> Option<SideSeen> {
        let (source, lane) = (&self.source, LANE_WORDS as u64);
        if at == 0 || series.cells_at == 0 || !source.has_words(at, HEAD) {
            return None;
        }
        if let Some(copied) = source.copied() {
            let cells = series.cells_at / 8..;
            let name = cells.zip(series.plain).find(|(_, word)| **word == at);
            copied.settle_side(name.map(|(cell, _)| cell), at);
        }
        let head = |word: u64| source.at(at + word);
        if head(6) != series.cells_at {
            return None;
        }
        let (sizes, lanes) = (head(2), u64::from((head(3) >> 32) as u16));
        let (words, cells) = (u64::from(sizes as u16), u64::from((sizes >> 32) as u16));
        let first = at + HEAD + words.next_multiple_of(8);
        let there = match (cells, lanes) {
            (0, _) => 0,
            (_, 0) => return None,
            _ => (lanes - 1) * lane + cells,
        };
        let is_sound = cells <= MAX_CELLS.into()
            && source.has_words(at + HEAD, words)
            && source.has_words(first, there)
            && source.spend(HEAD + words + cells * lanes);
        let sum = |cell: u64| {
            let lanes = (0..lanes).map(|i| source.at(first + i * lane + cell));
            lanes.fold(0, u64::wrapping_add)
        };
        is_sound.then(|| SideSeen {
            // It is stored as 32 bits.
            link: head(0) as u32,
            user_data: [head(1), head(4)],
            words: (0..words).map(|word| source.at(at + HEAD + word)).collect(),
            sums: (0..cells).map(sum).collect(),
        })
    }
}
