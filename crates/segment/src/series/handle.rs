//! Handles: a series that you look up once, and then update at the cost of the addition.
//!
//! A handle claims the record of its series, if there is one. A child of a fork inherits the
//! handle, but not the claim, and makes a separate claim at the first use.

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

/// A handle to one series. You look up the series only once, and an update then costs only the
/// addition.
///
/// You can remove the series while there are handles. Their counts are not shown afterwards, unless
/// all labels of the family have fixed values: the series then restarts from zero with the handle's
/// next update.
pub struct SeriesHandle {
    cells: SeriesCells<'static>,
    /// The record of the series, and the series' generation of the record. `None` if it is not
    /// stored in a record.
    record: Option<(WordOffset, u32)>,
    /// The slot of the series, if it is dense.
    slot: u32,
    /// The lower half is the claim on the record, or 0. The upper half is the fork generation of
    /// the process that made the claim.
    claim: AtomicU64,
    /// Other cells for a child of a fork, if the series was removed before the child claimed it;
    /// null if there are none.
    replacement: AtomicPtr<ReplacementCells>,
    /// The cached side allocation of `cells`, 0 for none: its offset (bits 0-31), and its numbers
    /// of words (32-47) and of cells (48-63). Its layout is the same as for `cells`.
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
        // lends them for no longer than the handle lives.
        let cells = unsafe { std::mem::transmute::<SeriesCells<'_>, SeriesCells<'static>>(cells) };
        let (claim, replacement) = (AtomicU64::new(claim), AtomicPtr::new(ptr::null_mut()));
        let (side, family) = (AtomicU64::new(0), family.clone());
        Self { cells, record, slot, claim, replacement, side, family }
    }

    /// Returns the cells of the series.
    #[inline]
    pub fn cells(&self) -> &SeriesCells<'_> {
        // Acquire: another thread may have claimed the record before it stored this.
        let claim = self.claim.load(Ordering::Acquire);
        if process_of(claim) == fork::generation() { &self.cells } else { self.inherit() }
    }

    /// Returns the side allocation at an offset, if [`SeriesHandle::side`] cached it. `of` must be
    /// from [`SeriesHandle::cells`].
    #[inline]
    pub fn side_at_hand(&self, of: &SeriesCells<'_>, at: u32) -> Option<SideAllocation<'_>> {
        let known = self.side.load(Ordering::Relaxed);
        let at = WordOffset::new(at);
        // Replacement cells use other side allocations.
        let is_it = WordOffset::unpack(known) == at && known != 0 && ptr::eq(of, &self.cells);
        // The truncation is intended: each cast keeps one part.
        let sizes = ((known >> 32) as u16, (known >> 48) as u16);
        // SAFETY: `side` found it.
        is_it.then(|| unsafe { self.family.known_side(of, at, sizes) })
    }

    /// Like [`Family::side`], for cells from [`SeriesHandle::cells`]. This caches the side
    /// allocation.
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

    /// Returns the family of the series.
    #[inline]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Stores the current time as the start of the series. Call this after setting the cells to
    /// zero.
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

    /// Returns whether the series was removed, so that counts of this handle are not shown.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match (self.record, &self.family.inner.layout) {
            (Some((at, generation)), Series::Dynamic(keyed)) => !keyed.is_series(at, generation),
            _ => false,
        }
    }

    /// Claims the record for a child of a fork, if the series still owns the record. The inherited
    /// claim belongs to the parent.
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
            // A dense series is never removed.
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
                // Release: a thread that finds the claim sees it complete. Acquire: another thread
                // may be faster.
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

    /// Replaces the series' own cells, unless another thread has done so.
    fn replace(&self, replacement: ReplacementCells) -> &SeriesCells<'_> {
        let null = ptr::null_mut();
        let new = Box::into_raw(Box::new(replacement));
        // Release: a thread that finds the replacement sees it complete. Acquire: another thread
        // may be faster.
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
    /// Returns cells that are never shown.
    fn new(count: NonZeroU32) -> Self {
        let memory: Box<[AtomicU64]> = (0..count.get()).map(|_| AtomicU64::new(0)).collect();
        let first = ptr::NonNull::from(&*memory).cast();
        // SAFETY: there is one lane of that many cells, which are freed with this value.
        Self { cells: unsafe { SeriesCells::new(first, count, Lanes::ONE, None) }, _memory: memory }
    }
}

impl Clone for SeriesHandle {
    fn clone(&self) -> Self {
        let process = fork::generation();
        let copy = |claim| Self::new(&self.family, self.cells, (self.record, self.slot), claim);
        // Pretend that another process made the claim, because the first use then claims the
        // record.
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
        // Return the claim only in the process that made it.
        if word != WordOffset::NONE
            && process_of(claim) == fork::generation()
            && let Series::Dynamic(keyed) = &self.family.inner.layout
        {
            keyed.give_back(HandleClaim(word));
        }
        let replacement = *self.replacement.get_mut();
        if !replacement.is_null() {
            // SAFETY: `replace` made it from a box, and there are no other users any more.
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

/// Packs the fork generation of a process and its claim into the word `claim`.
pub(super) fn pack_claim(process: u32, claim: Option<HandleClaim>) -> u64 {
    u64::from(process) << 32 | claim.map_or(0, |claim| claim.0.pack())
}

/// Returns the fork generation of the process that made a claim.
#[inline]
fn process_of(claim: u64) -> u32 {
    (claim >> 32) as u32
}
