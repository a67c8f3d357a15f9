//! The walk of a scrape over the series of a family: by slot, or by record. You can stop it after
//! any series, and continue from its [`Cursor`] later.

use std::ops::ControlFlow;

use super::cells::SeriesCells;
use super::dense::Dense;
use super::family::{Family, Inner, Series};
use super::keyed::{self, Records, WalkPosition};
use super::sums::Sums;

/// A series in a scrape.
#[derive(Debug)]
pub struct View<'a> {
    /// The index of its combination of fixed label values; the last label varies fastest.
    pub group: u32,
    /// The dynamic label values, each preceded by its length: one byte if it is less than 255,
    /// otherwise the byte 255 and four little-endian bytes.
    pub texts: &'a [u8],
    /// Whether no dynamic value contains a quote, a backslash or a line feed.
    pub escape_free: bool,
    /// Whether it is the overflow series, which counts the updates beyond the family's limit or
    /// fixed values.
    pub overflow: bool,
    /// Unix time in nanoseconds of its start from zero.
    pub start: u64,
    /// A number that no other series of the family, present or past, shares. The lower half is its
    /// slot, or the word offset of its record. The upper half changes with each series in the
    /// record.
    pub id: u64,
    /// The cells of the series.
    pub cells: SeriesCells<'a>,
}

/// The position of a walk over a family's series. The default is the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    slot: u32,
    record: WalkPosition,
    /// Whether it is after the last series.
    done: bool,
}

/// The source of a walk's series.
enum WalkSource<'s, 'c> {
    Slots(&'s Dense),
    Records(Records<'s, 'c>),
}

impl Family {
    /// Calls `visit` with each series from the cursor's position on. When `visit` breaks, this
    /// returns; after the last series, it returns `Continue`. `buffer` is memory for dynamic label
    /// values.
    ///
    /// This takes no lock, and holds no claim between two calls, so other threads can add and
    /// remove series in the meantime. A series that exists from the beginning to the end is shown
    /// once. If a series is removed and created again during the walk, it may be shown twice.
    ///
    /// If the segment is full, a thread may get no claim. It then takes the family's lock for each
    /// series, if the lock is free. If another thread holds the lock, the cells may be reused for
    /// another series while `visit` reads them. While the walk holds the lock, updates of this
    /// family by `visit` count in its overflow series.
    pub fn walk(
        &self,
        cursor: &mut Cursor,
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&View<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let inner = &*self.inner;
        if self.is_hidden() {
            self.skip(cursor);
        }
        let claim = match &inner.layout {
            Series::Dynamic(keyed) => keyed.claim(),
            Series::Dense(dense) => {
                dense.earn_wanted();
                None
            }
        };
        let mut source = match &inner.layout {
            Series::Dense(dense) => WalkSource::Slots(dense),
            Series::Dynamic(keyed) => WalkSource::Records(keyed.records(&mut cursor.record)),
        };
        let mut lock = None;
        let mut sums = match &source {
            WalkSource::Slots(dense) => Sums::for_family(dense),
            WalkSource::Records(_) => None,
        };
        // Use a single loop, because the compiler then inlines the single call of `visit`.
        while !cursor.done {
            let view = match &mut source {
                WalkSource::Slots(dense) => {
                    let slot = cursor.slot;
                    if slot >= dense.slots() {
                        break;
                    }
                    cursor.slot += 1;
                    match &mut sums {
                        Some(sums) => {
                            let (cells, start) = sums.get(dense, slot, inner.schema.floats);
                            inner.view_of(dense, slot, cells, Some(start))
                        }
                        None => inner.view(dense, slot),
                    }
                }
                WalkSource::Records(records) => {
                    let Some(record) = records.next() else {
                        cursor.done = true;
                        break;
                    };
                    let keyed = records.series;
                    if claim.is_none() {
                        drop(lock.take());
                        lock = keyed.try_lock();
                    }
                    keyed.read_claimed(record, claim.as_ref(), buffer, false).map(keyed_view)
                }
            };
            if let Some(view) = view {
                visit(&view)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Ends a walk over a family that did not settle, and counts its series as hidden.
    #[cold]
    fn skip(&self, cursor: &mut Cursor) {
        if let (Series::Dense(dense), false) = (&self.inner.layout, cursor.done) {
            let shown = (0..dense.slots()).filter(|&slot| self.inner.view(dense, slot).is_some());
            (0..shown.count().max(1)).for_each(|_| self.count_omitted());
        }
        cursor.done = true;
    }
}

impl Inner {
    #[inline(always)]
    pub(super) fn view<'a>(&self, dense: &'a Dense, slot: u32) -> Option<View<'a>> {
        self.view_of(dense, slot, dense.cells_at(slot), None)
    }

    /// Returns the slot, if it is shown. `start` is the time of its reset, if that was read before
    /// its sums.
    #[inline(always)]
    fn view_of<'a>(
        &self,
        dense: &Dense,
        slot: u32,
        cells: SeriesCells<'a>,
        start: Option<u64>,
    ) -> Option<View<'a>> {
        if !dense.is_marked(slot) && cells.is_zero(self.schema.floats) {
            return None;
        }
        let overflow = slot == self.groups;
        let start = match start.unwrap_or_else(|| dense.start(slot)) {
            0 => self.created,
            start => start,
        };
        let id = slot.into();
        Some(View { group: slot, texts: &[], escape_free: true, overflow, start, id, cells })
    }
}

#[inline(always)]
pub(super) fn keyed_view(seen: keyed::RecordReading<'_>) -> View<'_> {
    View {
        group: seen.group,
        texts: seen.texts,
        escape_free: seen.escape_free,
        overflow: seen.overflow,
        start: seen.start,
        id: seen.id,
        cells: seen.cells,
    }
}
