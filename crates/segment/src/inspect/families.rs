//! Reads families and their series from the untrusted words of a file.

use std::ops::Range;

use super::source::Source;
use super::{Damage, Report};
use crate::layout::RecordHeader;
use crate::series::Schema;
use crate::series::cells::{LANE_WORDS, is_float};
use crate::series::dense::Dense;
use crate::series::family::{FAMILY, at, is_dense};
use crate::series::keyed::head;
use crate::series::lanes::{self, Layout};
use crate::series::meta::{self, WORDS, state};

/// A family in a file.
#[derive(Debug, Clone)]
pub struct FamilySeen {
    /// The family's schema.
    pub schema: Schema,
    /// The byte offset of its record.
    pub at: u64,
    /// Unix time in nanoseconds when it was registered.
    pub created: u64,
    /// Whether the storage of each series is computed from its labels, without an index.
    pub is_dense: bool,
    /// The number of lanes: copies of the cells, so that CPUs and threads can count without
    /// sharing.
    pub lanes: u16,
    /// The number of shown series, without the overflow series.
    pub series: u64,
    /// The number of series that are hidden because they were idle.
    pub hidden: u64,
    /// The number of updates that went to the overflow series.
    pub overflowed: u64,
    /// The bytes of its head, its description and, if a label is dynamic, its overflow series.
    pub head_bytes: u64,
    /// The bytes of its series: the used records of a keyed family, all slots of a dense one.
    pub series_bytes: u64,
    /// The bytes of its indexes.
    pub index_bytes: u64,
    /// The bytes of free records and free indexes. Later series can use them.
    pub free_bytes: u64,
    /// The first word of its head.
    first: u64,
    groups: u32,
    /// Whether its series overlap others and are not read again. This keeps the time of all walks
    /// proportional to the length of the file.
    is_omitted: bool,
    /// Whether it is not shown, because it changed while it was copied.
    is_unsettled: bool,
    /// The words of its locks.
    pub(super) lock: u64,
    pub(super) folding: u64,
}

/// A series in a file.
#[derive(Debug, Clone, Default)]
pub struct SeriesSeen<'a> {
    /// The names and values of its labels; empty for the overflow series.
    pub labels: Vec<(&'a str, &'a str)>,
    /// Whether it counts the updates that found no room for a series.
    pub is_overflow: bool,
    /// Whether it is hidden because it was idle.
    pub is_hidden: bool,
    /// Unix time in nanoseconds of its start.
    pub start: u64,
    /// A number that no other series of the family, present or past, shares: see
    /// [`View::id`](crate::series::View::id).
    pub id: u64,
    /// The cells, added up over all lanes. A cell that the family declares as a float contains the
    /// float's bits.
    pub cells: &'a [u64],
}

/// The findings of a walk over the series of a family.
#[derive(Debug, Default)]
pub(super) struct WalkReport {
    series: u64,
    hidden: u64,
    series_words: u64,
    overflow_words: u64,
    free_words: u64,
    /// Whether the walk stopped because it met more words than the file contains.
    is_exhausted: bool,
    pub(super) damage: Vec<Damage>,
}

/// The words of a block's head.
const BLOCK_HEAD: u64 = 2;
const LOW: u64 = u32::MAX as u64;

/// Reads a family, and adds it to the report.
pub(super) fn read(source: &Source, record: &RecordHeader, report: &mut Report) {
    let mut family = match FamilySeen::read(source, record) {
        Ok(family) => family,
        Err(reason) => {
            let reason = format!("the family {:?} is omitted: {reason}", record.name);
            return report.add_damage(record.offset, reason);
        }
    };
    let walked = family.visit(source, false, |_| {});
    if let Some(copied) = source.copied().filter(|copied| copied.is_hidden(&family)) {
        copied.count_omitted(walked.series.max(1));
        family.is_unsettled = true;
    }
    family.is_omitted = walked.is_exhausted;
    if !family.is_omitted && !family.is_unsettled {
        (family.series, family.hidden) = (walked.series, walked.hidden);
    }
    (family.series_bytes, family.free_bytes) = (walked.series_words * 8, walked.free_words * 8);
    family.head_bytes = family.head_bytes.saturating_add(walked.overflow_words * 8);
    family.measure_indexes(source);
    for Damage { at, message, .. } in walked.damage {
        report.add_damage(at, message);
    }
    report.families.push(family);
}

impl FamilySeen {
    fn read(source: &Source, record: &RecordHeader) -> Result<Self, String> {
        if record.kind.version() != FAMILY.version() {
            return Err(format!("its record is of version {}", record.kind.version()));
        }
        let (first, words) = (record.cells().words(), record.cell_count() as u64);
        if words < at::END as u64 || !source.has_words(first, words) {
            return Err("its record is too short".into());
        }
        if !source.spend(words) {
            return Err("its record overlaps others".into());
        }
        let word = |at: usize| source.at(first + at as u64);
        let is_dense_here = word(at::DENSE) != 0;
        let before = if is_dense_here { at::END } else { head::END } as u64;
        let bytes = word(at::SCHEMA_BYTES);
        if before + bytes.div_ceil(8) > words {
            return Err("its description is longer than its record".into());
        }
        let mut text = Vec::new();
        source.bytes(first + before, bytes.div_ceil(8), &mut text);
        text.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        let (schema, groups) = Schema::decode_with_groups(&text)?;
        if is_dense(&schema, groups) != is_dense_here {
            return Err("the layout of its series contradicts its labels".into());
        }
        let keyed = |at: usize| if is_dense_here { 0 } else { word(at) };
        Ok(Self {
            at: record.offset,
            created: word(at::CREATED),
            is_dense: is_dense_here,
            lanes: Layout::unpack(word(at::DENSE)).lanes.max(1),
            series: 0,
            hidden: 0,
            overflowed: word(at::OVERFLOWED),
            head_bytes: record.length,
            series_bytes: 0,
            index_bytes: 0,
            free_bytes: 0,
            first,
            groups,
            is_omitted: false,
            is_unsettled: false,
            lock: keyed(head::LOCK),
            folding: word(at::FOLDING),
            schema,
        })
    }

    /// Returns the number that [`Family::id`](crate::series::Family::id) returns.
    pub(super) fn id(&self) -> u64 {
        self.first * 8
    }

    /// Returns the bytes of the family, without side allocations of its series, such as exemplars.
    pub fn bytes(&self) -> u64 {
        let Self { head_bytes, series_bytes, index_bytes, free_bytes, .. } = self;
        let all = [*head_bytes, *series_bytes, *index_bytes, *free_bytes];
        all.iter().fold(0, |sum, bytes| u64::saturating_add(sum, *bytes))
    }

    fn head(&self, source: &Source, at: usize) -> u64 {
        source.at(self.first + at as u64)
    }

    fn measure_indexes(&mut self, source: &Source) {
        if self.is_dense {
            return;
        }
        let bits = |word: u64| 1_u64.checked_shl((word >> 32) as u32).unwrap_or(0);
        let words = |at: usize| match self.head(source, at) {
            0 => 0,
            word => Some(bits(word)).filter(|&n| source.has_words(word & LOW, n)).unwrap_or(0),
        };
        let used = words(head::TABLE).saturating_add(words(head::PREVIOUS));
        let retired = (head::RETIRED..head::END)
            .enumerate()
            .filter(|(_, at)| self.head(source, *at) & LOW != 0);
        let retired: u64 = retired.map(|(i, _)| 1 << (i / 2)).sum();
        self.index_bytes = used.saturating_mul(8);
        self.free_bytes = self.free_bytes.saturating_add(retired.saturating_mul(8));
    }

    /// Calls `visit` with all series. With `settle`, the cells of a copied series are made
    /// consistent first.
    pub(super) fn visit(
        &self,
        source: &Source,
        settle: bool,
        visit: impl FnMut(&SeriesSeen<'_>),
    ) -> WalkReport {
        let mut walked = WalkReport::default();
        if self.is_omitted || self.is_unsettled {
            return walked;
        }
        match self.is_dense {
            true => self.visit_slots(source, settle, &mut walked, visit),
            false => self.visit_records(source, settle, &mut walked, visit),
        }
        walked
    }

    /// Prepares for reading a series with these cells. Returns false if the series must be skipped.
    fn begin(&self, source: &Source, settle: bool, cells: Range<u64>, id: u64) -> bool {
        source.copied().is_none_or(|copied| {
            copied.begin();
            !settle || copied.settle(cells, self.is_dense, id)
        })
    }

    fn damage(&self, walked: &mut WalkReport, word: u64, reason: &str) {
        let reason = format!("the family {:?}: {reason}", self.schema.name);
        walked.damage.push(Damage {
            at: word.saturating_mul(8),
            message: reason,
            is_truncation: false,
        });
    }

    /// Returns the labels of a series. The group determines the values of fixed labels; `texts`
    /// contains the values of dynamic ones.
    fn labels<'a>(
        &'a self,
        mut group: u32,
        mut texts: &'a [u8],
    ) -> Option<Vec<(&'a str, &'a str)>> {
        let mut labels: Vec<(&str, &str)> = Vec::with_capacity(self.schema.labels.len());
        for label in &self.schema.labels {
            let text = match &label.values {
                None => next_text(&mut texts)?,
                Some(_) => "",
            };
            labels.push((&label.name, text));
        }
        // The last label varies fastest.
        for (label, (_, value)) in self.schema.labels.iter().zip(&mut labels).rev() {
            let Some(values) = &label.values else { continue };
            let count = u32::try_from(values.len()).ok().filter(|&count| count > 0)?;
            *value = values.get((group % count) as usize)?;
            group /= count;
        }
        Some(labels)
    }

    fn visit_slots(
        &self,
        source: &Source,
        settle: bool,
        walked: &mut WalkReport,
        mut visit: impl FnMut(&SeriesSeen<'_>),
    ) {
        let layout = Layout::unpack(self.head(source, at::DENSE));
        let (first, marks) = (u64::from(layout.first.get()), self.head(source, at::MARKS));
        let (cells, lanes) = (u64::from(self.schema.cells), u64::from(layout.lanes));
        let slots = self.groups + 1;
        let lane = LANE_WORDS as u64;
        let per_slab = lane / cells;
        let slabs = u64::from(slots).div_ceil(per_slab);
        let words = match slabs {
            1 => lanes.saturating_sub(1) * lane + u64::from(slots) * cells,
            _ => slabs * lanes * lane,
        };
        let mark_words = Dense::mark_words(slots, self.schema.cells);
        let is_there = source.has_words(first, words) && source.has_words(marks, mark_words);
        if lanes == 0 || layout.cpus >= layout.lanes || first == 0 || marks == 0 || !is_there {
            return self.damage(walked, first, "its series lie outside of the file: omitted");
        }
        if !source.spend(u64::from(slots) * cells * lanes + mark_words) {
            walked.is_exhausted = true;
            return self.damage(walked, first, "its series overlap others: omitted");
        }
        walked.series_words = u64::from(slots) * cells * lanes + mark_words;
        let bases = marks + u64::from(slots).div_ceil(64);
        let slab_words = marks + mark_words - slabs;
        let mut sums = Vec::new();
        // State of the slab at the loop's position.
        let (mut earned, mut slab_bases) = (EarnedWords::default(), Vec::new());
        for slot in 0..slots {
            let number = u64::from(slot);
            if number % per_slab == 0 && self.schema.additive {
                let used = per_slab.min(u64::from(slots) - number) * cells;
                // Read the bases first, then the layout of the lanes, and then the lanes. This
                // order keeps a sum from falling below its base. See `series/lanes.rs`.
                slab_bases.clear();
                slab_bases.extend((0..used).map(|at| source.at(bases + number * cells + at)));
                let stated = source.at(slab_words + number / per_slab);
                let layout = Layout::unpack(stated);
                if stated != 0 && !layout.is_sound() {
                    let reason = "the place of its lanes makes no sense: it is ignored";
                    self.damage(walked, slab_words + number / per_slab, reason);
                }
                earned = EarnedWords::from_layout(layout, used);
                if !source.has_words(earned.first, earned.words()) {
                    return self.damage(walked, earned.first, "its lanes lie outside of the file");
                }
                if !source.spend(earned.words()) {
                    walked.is_exhausted = true;
                    return self.damage(walked, earned.first, "its lanes overlap others: omitted");
                }
                walked.series_words += earned.words();
            }
            let at = first + number / per_slab * lanes * lane + number % per_slab * cells;
            let shared = at + u64::from(layout.cpus) * lane;
            if !self.begin(source, settle, shared..shared + cells, number) {
                continue;
            }
            sums.clear();
            for cell in 0..cells {
                let in_slab = number % per_slab * cells + cell;
                let lanes = (0..lanes).map(|i| source.at(at + i * lane + cell));
                let lanes = lanes.chain(earned.cells(in_slab).map(|at| source.at(at)));
                // Only an additive family stores bases.
                let base = slab_bases.get(in_slab as usize).copied().unwrap_or(0);
                sums.push(sum(lanes, base, self.is_float(cell)));
            }
            let is_marked = source.at(marks + number / 64) >> (number % 64) & 1 == 1;
            let is_zero = (0..cells).zip(&sums).all(|(cell, &sum)| match self.is_float(cell) {
                true => f64::from_bits(sum) == 0.0,
                false => sum == 0,
            });
            if !is_marked && is_zero {
                continue;
            }
            let is_overflow = slot == self.groups;
            walked.series += u64::from(!is_overflow);
            let since = source.at(bases + u64::from(slots) * cells + number);
            let labels = if is_overflow { Some(Vec::new()) } else { self.labels(slot, &[]) };
            visit(&SeriesSeen {
                labels: labels.unwrap_or_default(),
                is_overflow,
                is_hidden: false,
                start: if since == 0 { self.created } else { since },
                id: number,
                cells: &sums,
            });
        }
    }

    fn is_float(&self, cell: u64) -> bool {
        // At most 512 cells.
        is_float(self.schema.floats, cell as usize)
    }

    fn visit_records(
        &self,
        source: &Source,
        settle: bool,
        walked: &mut WalkReport,
        mut visit: impl FnMut(&SeriesSeen<'_>),
    ) {
        let mut block = self.head(source, head::FIRST_BLOCK) & LOW;
        let mut end = 0;
        while block != 0 {
            let (word, used) = (source.at(block), source.at(block + 1));
            let own = word >> 32;
            let is_sound =
                block >= end && (BLOCK_HEAD..=own).contains(&used) && source.has_words(block, own);
            if !is_sound {
                let reason = "a block of its series contradicts the layout: the series from there on \
                            are omitted";
                return self.damage(walked, block, reason);
            }
            if !source.spend(own) {
                walked.is_exhausted = true;
                return self.damage(walked, block, "its series overlap others: omitted");
            }
            walked.free_words = walked.free_words.saturating_add(own);
            let words = block + BLOCK_HEAD..block + used;
            self.visit_block(source, settle, words, walked, &mut visit);
            (end, block) = (block + own, word & LOW);
        }
        let taken = walked.series_words + walked.overflow_words;
        walked.free_words = walked.free_words.saturating_sub(taken);
    }

    /// Visits the records in a range of words.
    fn visit_block(
        &self,
        source: &Source,
        settle: bool,
        mut words: Range<u64>,
        walked: &mut WalkReport,
        visit: &mut impl FnMut(&SeriesSeen<'_>),
    ) {
        let header = 2 + u64::from(self.schema.idle.is_some());
        let cells = u64::from(self.schema.cells);
        let overflow = self.head(source, head::OVERFLOW) & LOW;
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        while !words.is_empty() {
            let at = words.start;
            let meta = source.at(at);
            let length = meta & WORDS;
            // The writer has not finished this record.
            if length == 0 && source.copied().is_some() {
                return;
            }
            if length < header + cells || length > words.end - at {
                let reason = "the length of a series' record contradicts the layout: the rest of its \
                            block is omitted";
                return self.damage(walked, at, reason);
            }
            words.start += length;
            if !meta::is_series(meta) {
                continue;
            }
            let is_overflow = at == overflow;
            let is_hidden = meta::state_of(meta) == state::HIDDEN;
            match is_overflow {
                true => walked.overflow_words += length,
                false => walked.series_words += length,
            }
            let (cells, id) = (at + header..at + header + cells, id_of(at, meta));
            if !self.begin(source, settle, cells.clone(), id) {
                continue;
            }
            values.clear();
            values.extend(cells.clone().map(|word| source.at(word)));
            source.bytes(cells.end, words.start - cells.end, &mut texts);
            let origin = source.at(at + 1);
            let group = (origin >> 32) as u32;
            let labels = match is_overflow {
                true => Some(Vec::new()),
                false => self.labels(group, &texts).filter(|_| group < self.groups),
            };
            let Some(labels) = labels else {
                self.damage(walked, at, "the labels of a series cannot be read: it is omitted");
                continue;
            };
            if is_overflow && is_hidden {
                continue;
            }
            match (is_overflow, is_hidden) {
                (true, _) => {}
                (_, true) => walked.hidden += 1,
                (_, false) => walked.series += 1,
            }
            visit(&SeriesSeen {
                labels,
                is_overflow,
                is_hidden,
                start: self.created.saturating_add((origin & LOW) * TENTH),
                id,
                cells: &values,
            });
        }
    }
}

/// Returns the number of the series whose record begins at a word.
fn id_of(at: u64, meta: u64) -> u64 {
    at | u64::from(meta::generation_of(meta)) << 32
}

/// The lanes that a slab earned: see `series/lanes.rs`.
#[derive(Debug, Default)]
struct EarnedWords {
    /// The first word of the lanes.
    first: u64,
    lanes: u64,
    /// The words from the beginning of a lane to the next one's.
    distance: u64,
}

impl EarnedWords {
    /// Returns the lanes of a slab that uses `used` words of each. Returns no lanes if the layout
    /// is invalid, because processes ignore it too.
    fn from_layout(layout: Layout, used: u64) -> Self {
        if !layout.is_sound() {
            return Self::default();
        }
        // A slab uses at most 512 words.
        let distance = lanes::distance(used as u32).into();
        Self { first: layout.first.get().into(), lanes: layout.lanes.into(), distance }
    }

    fn words(&self) -> u64 {
        self.lanes * self.distance
    }

    /// Returns the position of one cell in all lanes, `at` words after each lane's beginning.
    fn cells(&self, at: u64) -> impl Iterator<Item = u64> {
        let Self { first, lanes, distance } = *self;
        (0..lanes).map(move |lane| first + lane * distance + at)
    }
}

/// A tenth of a second in nanoseconds.
const TENTH: u64 = 100_000_000;

/// Returns the sum over all lanes, minus its value at the last reset.
fn sum(lanes: impl Iterator<Item = u64>, base: u64, is_float: bool) -> u64 {
    if !is_float {
        return lanes.fold(0, u64::wrapping_add).wrapping_sub(base);
    }
    // Like in `SeriesCells`, the sum of a single lane keeps the sign of a zero.
    let sum = lanes.map(f64::from_bits).reduce(|a, b| a + b).unwrap_or(0.0);
    let base = f64::from_bits(base);
    if base == 0.0 { sum.to_bits() } else { (sum - base).to_bits() }
}

fn next_text<'t>(texts: &mut &'t [u8]) -> Option<&'t str> {
    let (&first, rest) = texts.split_first()?;
    let (length, rest) = match first {
        u8::MAX => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        length => (usize::from(length), rest),
    };
    let (text, rest) = rest.split_at_checked(length)?;
    *texts = rest;
    std::str::from_utf8(text).ok()
}
