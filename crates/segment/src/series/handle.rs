//! Handles: a series that is looked up once and then updated at the cost of the addition.
//!
//! A handle has a claim on the record of its series, if the series has one. A child of a fork has
//! the handle, but not the claim, and makes one of its own at the first use.

use std::fmt;
use std::num::NonZeroU32;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use super::cells::{Lanes, SeriesCells};
use super::family::{Family, Series};
use super::side::SideAllocation;
use crate::fork;
use crate::offset::WordOffset;
use crate::slots::HandleClaim;
use crate::sync::{AtomicU64, Ordering};

/// A handle to one series, which is looked up only once: an update through it costs only the
/// addition.
///
/// Removing the series does not harm the handle. What it counts afterwards is not shown. In a
/// family whose labels all have fixed cardinality it is: the series starts again from zero with the
/// handle's next update.
pub struct SeriesHandle {
    cells: SeriesCells<'static>,
    /// The record of the series, and the generation of the record that the series has, if it has a
    /// record.
    record: Option<(WordOffset, u32)>,
    /// The slot of the series, if it has one.
    slot: u32,
    /// Lower half: the claim on the record, 0 for none. Upper half: the fork generation of the
    /// process that made the claim.
    claim: AtomicU64,
    /// The cells that replace the series' own in a child of a fork, if the series was removed
    /// before the child claimed it; null if there are none.
    replacement: AtomicPtr<ReplacementCells>,
    /// The side allocation of `cells` that is at hand, 0 for none: its offset (bits 0-31), and its
    /// numbers of words (32-47) and of cells (48-63), which are laid out as `cells` are.
    side: AtomicU64,
    family: Family,
}

/// Cells that replace a series' own: the cells of the overflow series, or cells that are never
/// shown.
struct ReplacementCells {
    cells: SeriesCells<'static>,
    _memory: Box<[AtomicU64]>,
}

impl SeriesHandle {
    pub(super) fn new(
        family: &Family,
        cells: SeriesCells<'_>,
        (record, slot): (Option<(WordOffset, u32)>, u32),
        claim: u64,
    ) -> Self {
        // SAFETY: the handle owns a share of the family, which keeps the region alive; `cells`
        // gives it out for no longer than the handle lives.
        let cells = unsafe { std::mem::transmute::<SeriesCells<'_>, SeriesCells<'static>>(cells) };
        let (claim, replacement) = (AtomicU64::new(claim), AtomicPtr::new(ptr::null_mut()));
        let (side, family) = (AtomicU64::new(0), family.clone());
        Self { cells, record, slot, claim, replacement, side, family }
    }

    /// The cells of the series.
    #[inline]
    pub fn cells(&self) -> &SeriesCells<'_> {
        // Acquire: another thread may have claimed the record before it stored this.
        let claim = self.claim.load(Ordering::Acquire);
        if process_of(claim) == fork::generation() { &self.cells } else { self.inherit() }
    }

    /// The side allocation at an offset, if it is the one that [`SeriesHandle::side`] returned
    /// last. `of` is what [`SeriesHandle::cells`] returned.
    #[inline]
    pub fn side_at_hand(&self, of: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        let known = self.side.load(Ordering::Relaxed);
        let at = WordOffset::new(at);
        // Cells that replace the series' own have other side allocations.
        let is_it = WordOffset::unpack(known) == at && known != 0 && ptr::eq(of, &self.cells);
        // Truncation is meant: each cast keeps one part.
        let sizes = ((known >> 32) as u16, (known >> 48) as u16);
        // SAFETY: `side` found it.
        is_it.then(|| unsafe { self.family.known_side(of, at, sizes) })
    }

    /// As [`Family::side`], for what [`SeriesHandle::cells`] returned. It is kept at hand.
    pub fn side(&self, of: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        let side = self.family.side(of, at)?;
        if ptr::eq(of, &self.cells)
            && let Some((words, cells)) = side.sizes(of)
        {
            let known = u64::from(at) | u64::from(words) << 32 | u64::from(cells) << 48;
            self.side.store(known, Ordering::Relaxed);
        }
        Some(side)
    }

    /// The family of the series.
    #[inline]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Notes that the series counts from zero as of now, after the caller has set it to zero.
    pub fn restart(&self) {
        let inner = &self.family.inner;
        match (self.record, &inner.layout) {
            (Some((at, generation)), Series::Dynamic(keyed)) => {
                keyed.restart_series(at, generation, inner.now());
            }
            (None, Series::Dense(dense)) => dense.restart(self.slot, inner.now().unix),
            _ => {}
        }
    }

    /// Whether the series was removed since: then counts through the handle are not shown.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match (self.record, &self.family.inner.layout) {
            (Some((at, generation)), Series::Dynamic(keyed)) => !keyed.is_series(at, generation),
            _ => false,
        }
    }

    /// In a child of a fork, where the claim is its parent's: claims the record for the child, if
    /// the series still has it.
    #[cold]
    fn inherit(&self) -> &SeriesCells<'_> {
        let inner = &*self.family.inner;
        let (before, process) = (self.claim.load(Ordering::Acquire), fork::generation());
        if process_of(before) == process {
            return &self.cells;
        }
        let Some((at, generation)) = self.record else {
            self.claim.store(pack_claim(process, None), Ordering::Release);
            return &self.cells;
        };
        let Series::Dynamic(keyed) = &inner.layout else { return &self.cells };
        if keyed.is_overflow(at) {
            // It is never removed.
            self.claim.store(pack_claim(process, None), Ordering::Release);
            return &self.cells;
        }
        if self.replacement.load(Ordering::Acquire).is_null() {
            let Some(claim) = keyed.claim_for_handle() else {
                let cells = keyed.cells_at(inner.overflow_of(keyed).at);
                // SAFETY: as in `new`.
                let cells =
                    unsafe { std::mem::transmute::<SeriesCells<'_>, SeriesCells<'static>>(cells) };
                return self.replace(ReplacementCells { cells, _memory: Box::default() });
            };
            keyed.hold(claim, at);
            if keyed.is_series(at, generation) {
                let after = pack_claim(process, Some(claim));
                // Release: a thread that finds it finds the claim. Acquire: another thread may be
                // faster.
                let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
                if self.claim.compare_exchange(before, after, success, failure).is_err() {
                    keyed.give_back(claim);
                }
                return &self.cells;
            }
            keyed.give_back(claim);
        }
        self.replace(ReplacementCells::new(self.cells.count()))
    }

    /// Puts other cells in place of the series' own, unless that was done already.
    fn replace(&self, replacement: ReplacementCells) -> &SeriesCells<'_> {
        let null = ptr::null_mut();
        let new = Box::into_raw(Box::new(replacement));
        // Release: a thread that finds them finds all of them. Acquire: another thread may be
        // faster.
        let stored =
            self.replacement.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire);
        let replacement = stored.map_or_else(
            |found| {
                // SAFETY: no other thread knows of these.
                drop(unsafe { Box::from_raw(new) });
                found
            },
            |_| new,
        );
        // SAFETY: they are freed with the handle.
        unsafe { &(*replacement).cells }
    }
}

impl ReplacementCells {
    /// Cells that are never shown.
    fn new(count: NonZeroU32) -> Self {
        let memory: Box<[AtomicU64]> = (0..count.get()).map(|_| AtomicU64::new(0)).collect();
        let first = ptr::NonNull::from(&*memory).cast();
        // SAFETY: there is one lane of that many cells, which are freed with this.
        Self { cells: unsafe { SeriesCells::new(first, count, Lanes::ONE, None) }, _memory: memory }
    }
}

impl Clone for SeriesHandle {
    fn clone(&self) -> Self {
        let process = fork::generation();
        let copy = |claim| Self::new(&self.family, self.cells, (self.record, self.slot), claim);
        // As if another process had made it: its first use claims the record.
        let inherited = pack_claim(!process, None);
        let is_own = ptr::eq(self.cells(), &self.cells);
        let (Some((at, generation)), Series::Dynamic(keyed)) =
            (self.record, &self.family.inner.layout)
        else {
            return copy(pack_claim(process, None));
        };
        if !is_own || keyed.is_overflow(at) {
            return copy(inherited);
        }
        let Some(claim) = keyed.claim_for_handle() else { return copy(inherited) };
        keyed.hold(claim, at);
        if keyed.is_series(at, generation) || keyed.hold_again(claim, at).is_ok() {
            return copy(pack_claim(process, Some(claim)));
        }
        keyed.give_back(claim);
        copy(inherited)
    }
}

impl Drop for SeriesHandle {
    fn drop(&mut self) {
        let claim = *self.claim.get_mut();
        let word = WordOffset::unpack(claim);
        // Only the parent gives back what the parent claimed.
        if word != WordOffset::NONE
            && process_of(claim) == fork::generation()
            && let Series::Dynamic(keyed) = &self.family.inner.layout
        {
            keyed.give_back(HandleClaim(word));
        }
        let replacement = *self.replacement.get_mut();
        if !replacement.is_null() {
            // SAFETY: `replace` made it from a box, and nothing uses it any more.
            drop(unsafe { Box::from_raw(replacement) });
        }
    }
}

impl fmt::Debug for SeriesHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeriesHandle")
            .field("family", &self.family.inner.schema.name)
            .finish_non_exhaustive()
    }
}

/// Packs the fork generation of a process and a claim that it made into the word `claim`.
pub(super) fn pack_claim(process: u32, claim: Option<HandleClaim>) -> u64 {
    u64::from(process) << 32 | claim.map_or(0, |claim| claim.0.pack())
}

/// The fork generation of the process that made a claim.
#[inline]
fn process_of(claim: u64) -> u32 {
    (claim >> 32) as u32
}
