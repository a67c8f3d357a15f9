//! Adds up many series of a dense family at once, for a scrape.
//!
//! If a scrape added up cell by cell, it would visit the lanes of all CPUs again for each cell.
//! Lanes can be 4 KiB apart, so their cells compete for the same set of a cache. This module adds
//! up lane by lane instead: it reads a part of each lane once, from front to back.
//!
//! It reads starts first, then bases, and lanes last. This order keeps a sum from falling below its
//! base, and an old sum is never shown with a new start.

use std::ops::Range;

use super::cells::{SeriesCells, is_float};
use super::dense::Dense;
use crate::sync::Ordering;

/// The sums of the series that a scrape shows next.
#[derive(Debug)]
pub(crate) struct Sums {
    slots: Range<u32>,
    /// The sums of their cells, floats as bits, minus the bases.
    cells: [u64; WORDS],
    bases: [u64; WORDS],
    /// The times when the slots were reset.
    starts: [u64; WORDS],
}

/// The maximum number of cells that are added up at once: 1 KiB of each lane.
const WORDS: usize = 128;

impl Sums {
    /// Returns memory for sums if this way of adding up is faster: for several series in several
    /// lanes.
    #[inline]
    pub(crate) fn for_family(dense: &Dense) -> Option<Self> {
        let cells = dense.cells();
        let pays = dense.slots() > 2 && 2 * cells <= WORDS && dense.lanes() > LANES;
        if !pays {
            return None;
        }
        Some(Self { slots: 0..0, cells: [0; WORDS], bases: [0; WORDS], starts: [0; WORDS] })
    }

    /// Returns the cells of a slot with their sums, and the time of its reset; 0 for never.
    #[inline]
    pub(crate) fn get<'s>(
        &'s mut self,
        dense: &'s Dense,
        slot: u32,
        floats: u64,
    ) -> (SeriesCells<'s>, u64) {
        if !self.slots.contains(&slot) {
            self.read(dense, slot, floats);
        }
        let at = (slot - self.slots.start) as usize;
        let sums = self.cells.get(at * dense.cells()..(at + 1) * dense.cells());
        let start = self.starts.get(at).copied().unwrap_or(0);
        let cells = dense.cells_at(slot);
        (sums.map_or(cells, |sums| cells.with_sums(sums)), start)
    }

    /// Adds up the cells of some slots of one slab, from `slot` on.
    #[inline(never)]
    fn read(&mut self, dense: &Dense, slot: u32, floats: u64) {
        let cells = dense.cells();
        self.slots = slot..slot + dense.slots_after(slot).min((WORDS / cells) as u32);
        for (start, slot) in self.starts.iter_mut().zip(self.slots.clone()) {
            *start = dense.start(slot);
        }
        let words = self.slots.len() * cells;
        for (base, found) in self.bases.iter_mut().zip(dense.bases(slot, words)) {
            // Acquire: the lanes below are found and read after the base, so they contain all
            // counts that the base includes.
            *base = found.load(Ordering::Acquire);
        }
        // The positions of the float cells, which are added up separately, because a loop that
        // checks each cell would take several times as long.
        let mut positions = [0; WORDS];
        let all = (0..words).filter(|i| is_float(floats, i % cells));
        let count = positions.iter_mut().zip(all).map(|(position, i)| *position = i).count();
        let positions = &positions[..count];
        let mut float_sums = [0.0; WORDS];
        let sums = &mut self.cells[..words];
        sums.fill(0);
        let mut is_first = true;
        dense.visit_lanes(slot, words, |lane| {
            // Acquire: a reader that sees an addition sees the stores of its thread before it.
            for (sum, cell) in sums.iter_mut().zip(lane) {
                *sum = sum.wrapping_add(cell.load(Ordering::Acquire));
            }
            for &i in positions {
                let value = f64::from_bits(lane[i].load(Ordering::Acquire));
                // The first value is copied, because a sum keeps the sign of a zero.
                float_sums[i] = if is_first { value } else { float_sums[i] + value };
            }
            is_first = false;
        });
        for &i in positions {
            sums[i] = float_sums[i].to_bits();
        }
        for (i, (sum, base)) in sums.iter_mut().zip(&self.bases).enumerate() {
            *sum = less(*sum, *base, is_float(floats, i % cells));
        }
    }
}

/// The maximum number of lanes for which each cell is added up separately.
const LANES: u32 = 3;

#[inline]
fn less(sum: u64, base: u64, is_float: bool) -> u64 {
    if !is_float {
        return sum.wrapping_sub(base);
    }
    let base = f64::from_bits(base);
    // A base of zero is not subtracted, like in `SeriesCells::sum_float`.
    if base == 0.0 { sum } else { (f64::from_bits(sum) - base).to_bits() }
}
