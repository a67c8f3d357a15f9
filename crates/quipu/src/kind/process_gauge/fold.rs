//! The reader of process gauges: combines the values that the processes of a segment set.
//!
//! A scrape reads all series of a family, groups them by all labels except the label of the
//! process, and reduces each group to the values that are shown. On the way, it folds the series
//! that remain from ended processes. For a sum, a minimum or a maximum, one such series in each
//! group absorbs the others; for the other aggregations, series that no longer count are removed.
//! So, except with [`Aggregation::All`], a group contains at most one series more than there are
//! living processes.
//!
//! Folding requires the family's folding lock, which is released when its owner dies. Absorbing a
//! value twice does no harm to a minimum or a maximum. For a sum, the result is logged before it is
//! stored: see [`absorb`]. A scrape does not wait for the owner of the lock, because it may be
//! stopped, and shows the sum as it will be once the fold completes.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};

use quipu_segment::Error;
use quipu_segment::series::{ClaimedCells, Cursor, Family, SeriesCells, View};
use quipu_segment::sync::Ordering;

use super::cells::{
    ABSORBED_PROCESS, NAME_LENGTH, PENDING_SUM, ProcessGaugeLayout, TIME, VALUE, decode,
    encode_value, read_name,
};
use crate::kind::aggregation::Aggregation;
use crate::snapshot::{Number, Series, Texts, Timestamp, Value};

/// The series of one family's processes, and memory that is reused for the next family.
#[derive(Default)]
pub(crate) struct Processes {
    entries: Vec<ProcessEntry>,
    /// The strings of the entries, followed by the strings of the shown series.
    texts: Vec<u8>,
    shown: Vec<ShownSeries>,
    /// The processes checked so far, and whether each is alive, sorted by token.
    liveness: Vec<(u64, bool)>,
    /// The buffer for the strings of a walk over the family.
    buffer: Vec<u8>,
    /// The tokens of the ended processes of one family.
    ended: Vec<u64>,
}

/// A series of one process.
#[derive(Debug, Clone)]
struct ProcessEntry {
    group: u32,
    overflow: bool,
    escape_free: bool,
    is_alive: bool,
    /// The strings of all labels except the label of the process.
    label_texts: Range<usize>,
    /// All strings.
    texts: Range<usize>,
    token: u64,
    id: u32,
    start: u64,
    value: Option<f64>,
    /// With [`Aggregation::LiveMostRecent`]: when the value was set.
    time: u64,
    /// With [`Aggregation::Sum`]: the token of the process whose series this one is absorbing, or
    /// 0; and the value after this.
    absorbing: u64,
    pending_sum: Option<f64>,
    /// Whether another series absorbed this one.
    is_absorbed: bool,
    /// Whether its cells moved while a file was copied.
    has_moved: bool,
}

/// A series that is shown.
#[derive(Debug, Clone)]
struct ShownSeries {
    group: u32,
    overflow: bool,
    escape_free: bool,
    texts: Range<usize>,
    start: u64,
    value: f64,
}

/// The maximum number of ended processes that are shown with [`Aggregation::All`].
const MAX_ENDED: usize = 64;
/// The maximum number of reads of a family that another thread folds.
const MAX_READINGS: usize = 4;
/// The maximum number of reads of a family in a copied file. This is more than [`MAX_READINGS`],
/// because each read is short, but the thread that folds does not wait.
const MAX_READINGS_OF_COPY: usize = 16;
/// Families with fewer series are not tidied when a process starts.
const MIN_TIDIED: u64 = 64;

impl Processes {
    /// Forgets which processes are alive.
    pub(crate) fn forget(&mut self) {
        self.liveness.clear();
    }

    /// Returns the shown series with this index.
    pub(crate) fn series(&self, number: usize) -> Option<Series<'_>> {
        let shown = self.shown.get(number)?;
        Some(Series {
            group: shown.group,
            texts: Texts::new(&self.texts[shown.texts.clone()]),
            escape_free: shown.escape_free,
            overflow: shown.overflow,
            start: Some(Timestamp::from_nanos(shown.start)),
            value: Value::Gauge(Number::Float(shown.value)),
            exemplar: None,
        })
    }

    /// Reads a family, folds the series of ended processes if the lock is free, and reduces the
    /// groups to the shown series.
    pub(crate) fn combine(&mut self, family: &Family, aggregation: Aggregation) {
        match aggregation {
            Aggregation::Min | Aggregation::Max | Aggregation::Sum => {
                self.read_folded(family, aggregation);
            }
            _ => self.read_without_leftovers(family, aggregation),
        }
        self.reduce(aggregation);
    }

    /// Reads a family where one series absorbs the series of ended processes.
    fn read_folded(&mut self, family: &Family, aggregation: Aggregation) {
        if family.is_copy() {
            return self.read_copy(family, aggregation);
        }
        let Some(_folding) = family.try_folding() else {
            return self.read_during_fold(family, aggregation);
        };
        self.read(family, aggregation);
        if aggregation == Aggregation::Sum {
            self.finish(family);
        }
        self.fold(family, aggregation);
    }

    /// Reads a family where the series of ended processes are removed.
    fn read_without_leftovers(&mut self, family: &Family, aggregation: Aggregation) {
        self.read(family, aggregation);
        if self.has_leftovers(aggregation)
            && let Some(_folding) = family.try_folding()
        {
            // Another thread may have removed some series since the first reading.
            self.read(family, aggregation);
            self.fold(family, aggregation);
        }
    }

    /// Reads a family while another thread folds its series, or is stopped in the middle of a fold.
    /// A single reading is not a consistent snapshot: it can read one series before this series
    /// absorbs another, and the other after its value was cleared. So this retries until two
    /// readings agree.
    fn read_during_fold(&mut self, family: &Family, aggregation: Aggregation) {
        let mut before = None;
        for _ in 0..MAX_READINGS {
            self.read(family, aggregation);
            let left = Some(self.digest_of_ended());
            if left == before {
                break;
            }
            before = left;
        }
        self.complete(aggregation);
    }

    /// Reads a family in the copy of a file, which the processes of the file may have folded while
    /// it was copied. If no value of an ended process moved, the copy is consistent. Otherwise,
    /// this reads the file until two readings agree, or omits the values that moved. If a part of a
    /// family cannot be read again, all of it is omitted, because values can move from one part to
    /// another.
    fn read_copy(&mut self, family: &Family, aggregation: Aggregation) {
        self.read(family, aggregation);
        let mut is_settled = !self.entries.iter().any(|entry| !entry.is_alive && entry.has_moved);
        let mut before = None;
        for _ in 0..MAX_READINGS_OF_COPY {
            if is_settled {
                break;
            }
            // `read` runs after the values were copied, and asks again which processes live. No
            // value of a process that still lives was folded before.
            self.liveness.clear();
            if !family.read_again() {
                return self.omit_groups(family, |_| true);
            }
            self.read(family, aggregation);
            let left = Some(self.digest_of_ended());
            (is_settled, before) = (left == before, left);
        }
        if !is_settled {
            self.omit_groups(family, |entry| !entry.is_alive && entry.has_moved);
        }
        self.complete(aggregation);
    }

    /// Omits the groups with such an entry.
    fn omit_groups(&mut self, family: &Family, is_such: impl Fn(&ProcessEntry) -> bool) {
        let mut begin = 0;
        while begin < self.entries.len() {
            let group = self.group(begin);
            let entries = &mut self.entries[group.clone()];
            if entries.iter().any(&is_such) {
                entries.iter_mut().for_each(|entry| (entry.value, entry.absorbing) = (None, 0));
                family.count_omitted();
            }
            begin = group.end;
        }
    }

    /// Returns a digest that changes when values of ended processes change.
    fn digest_of_ended(&self) -> u64 {
        let ended = self.entries.iter().filter(|entry| !entry.is_alive);
        let left = ended.fold(DefaultHasher::new(), |mut hasher, entry| {
            let value = entry.value.map(f64::to_bits);
            (entry.token, value, entry.absorbing).hash(&mut hasher);
            hasher
        });
        left.finish()
    }

    /// Like `finish`, but for this reading only.
    fn complete(&mut self, aggregation: Aggregation) {
        for i in 0..self.entries.len() {
            let token = self.entries[i].absorbing;
            if aggregation != Aggregation::Sum || token == 0 || self.entries[i].overflow {
                continue;
            }
            self.entries[i].value = self.entries[i].pending_sum;
            if let Some(at) = self.group_of(i).find(|&at| self.entries[at].token == token) {
                self.entries[at].value = None;
            }
        }
    }

    /// Reads and sorts all series: by group, then by process token, or by process ID if each
    /// process is shown.
    fn read(&mut self, family: &Family, aggregation: Aggregation) {
        self.entries.clear();
        self.texts.clear();
        let Self { entries, texts, liveness, buffer, .. } = self;
        let is_copy = family.is_copy();
        let _ = family.walk(&mut Cursor::default(), buffer, |view| {
            // The strings in a file are untrusted.
            let (own_texts, escape_free) = match is_copy {
                true => Texts::new(view.texts).checked(),
                false => (Cow::Borrowed(view.texts), view.escape_free),
            };
            let mut entry = ProcessEntry {
                group: view.group,
                overflow: view.overflow,
                escape_free,
                is_alive: true,
                label_texts: 0..0,
                texts: 0..0,
                token: 0,
                id: 0,
                start: view.start,
                value: None,
                time: 0,
                absorbing: 0,
                pending_sum: None,
                is_absorbed: false,
                has_moved: family.has_moved(view.cells.shared()),
            };
            if !view.overflow {
                // The name follows one byte with its length.
                let own = own_texts.len().checked_sub(NAME_LENGTH + 1);
                let name = own.and_then(|own| Some((own, read_name(&own_texts[own + 1..])?)));
                let Some((own, (token, id))) = name else {
                    return ControlFlow::Continue(());
                };
                if aggregation == Aggregation::LiveMostRecent && !read_in_order(family, view) {
                    family.count_omitted();
                    return ControlFlow::Continue(());
                }
                let begin = texts.len();
                texts.extend_from_slice(&own_texts);
                (entry.label_texts, entry.texts) = (begin..begin + own, begin..texts.len());
                (entry.token, entry.id) = (token, id);
                entry.is_alive = is_alive(family, liveness, token);
                match aggregation {
                    // Acquire, here and below: pairs with the release of the time; the value
                    // belongs to this time, or is a later one.
                    Aggregation::LiveMostRecent => {
                        entry.time = view.cells.plain(TIME).load(Ordering::Acquire);
                    }
                    Aggregation::Sum => {
                        entry.absorbing =
                            view.cells.plain(ABSORBED_PROCESS).load(Ordering::Acquire);
                        let sum = view.cells.plain(PENDING_SUM).load(Ordering::Relaxed);
                        entry.pending_sum = decode(sum);
                    }
                    _ => {}
                }
            }
            entry.value = decode(view.cells.plain(VALUE).load(Ordering::Acquire));
            entries.push(entry);
            ControlFlow::Continue(())
        });
        let texts = &*texts;
        entries.sort_unstable_by(|a, b| {
            let group = |entry: &ProcessEntry| (entry.overflow, entry.group);
            let own = |entry: &ProcessEntry| &texts[entry.label_texts.clone()];
            let process = |entry: &ProcessEntry| match aggregation {
                Aggregation::All | Aggregation::LiveAll => (entry.id, entry.token),
                _ => (0, entry.token),
            };
            group(a)
                .cmp(&group(b))
                .then_with(|| own(a).cmp(own(b)))
                .then_with(|| process(a).cmp(&process(b)))
        });
    }

    /// Returns the entries of the group that starts at `begin`.
    fn group(&self, begin: usize) -> Range<usize> {
        let first = &self.entries[begin];
        let others = self.entries[begin..].iter();
        begin..begin + others.take_while(|entry| self.is_same_group(first, entry)).count()
    }

    fn is_same_group(&self, one: &ProcessEntry, other: &ProcessEntry) -> bool {
        (one.overflow, one.group) == (other.overflow, other.group)
            && self.texts[one.label_texts.clone()] == self.texts[other.label_texts.clone()]
    }

    /// Returns whether ended processes left more series than are kept.
    fn has_leftovers(&mut self, aggregation: Aggregation) -> bool {
        let ended = self.entries.iter().filter(|entry| !entry.is_alive);
        match aggregation {
            Aggregation::All => {
                self.ended.clear();
                self.ended.extend(ended.map(|entry| entry.token));
                self.ended.sort_unstable();
                self.ended.dedup();
                self.ended.len() > MAX_ENDED
            }
            // For these, series are folded whenever they are read, if the lock is free.
            Aggregation::Min | Aggregation::Max | Aggregation::Sum => false,
            _ => self.entries.iter().any(|entry| !entry.is_alive),
        }
    }

    /// Folds the series of ended processes. Requires the lock.
    fn fold(&mut self, family: &Family, aggregation: Aggregation) {
        match aggregation {
            Aggregation::Min | Aggregation::Max | Aggregation::Sum => {}
            Aggregation::All => {
                // `has_leftovers` collects them.
                if !self.has_leftovers(aggregation) {
                    return;
                }
                let oldest = self.ended[self.ended.len() - MAX_ENDED];
                return self.remove(family, |entry| !entry.is_alive && entry.token < oldest);
            }
            _ => return self.remove(family, |entry| !entry.is_alive),
        }
        let mut begin = 0;
        while begin < self.entries.len() {
            let group = self.group(begin);
            begin = group.end;
            if self.entries[group.clone()].iter().any(|entry| entry.absorbing != 0) {
                // Its process died during a fold, and `finish` could not complete this.
                continue;
            }
            let Some(heir) = group.clone().find(|&i| !self.entries[i].is_alive) else { continue };
            let Ok(Some(to)) = self.cells_of(family, heir) else { continue };
            for i in heir + 1..group.end {
                if self.entries[i].is_alive {
                    continue;
                }
                if self.entries[i].value.is_some() {
                    // A series that cannot be claimed now is left for a later scrape.
                    let Ok(Some(from)) = self.cells_of(family, i) else { continue };
                    let (value, added) = (self.entries[heir].value, self.entries[i].value);
                    let joined = join(aggregation, value, added);
                    let token = self.entries[i].token;
                    absorb(aggregation, &to, &from, encode_value(joined), token);
                    self.entries[heir].value = joined;
                }
                self.entries[i].is_absorbed = true;
            }
        }
        self.remove(family, |entry| entry.is_absorbed);
    }

    /// Returns the cells of an entry; `None` if its series was removed in the meantime.
    fn cells_of<'f>(
        &self,
        family: &'f Family,
        entry: usize,
    ) -> Result<Option<ClaimedCells<'f>>, Error> {
        let entry = &self.entries[entry];
        family.find(|key| key.series(entry.group, &self.texts[entry.texts.clone()]))
    }

    /// Completes the fold of a process that died as the owner of the lock.
    fn finish(&mut self, family: &Family) {
        for i in 0..self.entries.len() {
            let token = self.entries[i].absorbing;
            if token == 0 || self.entries[i].overflow {
                continue;
            }
            let absorbed = self.group_of(i).find(|&at| self.entries[at].token == token);
            let from = absorbed.map_or(Ok(None), |at| self.cells_of(family, at));
            let (Ok(Some(to)), Ok(from)) = (self.cells_of(family, i), from) else { continue };
            let sum = to.plain(PENDING_SUM).load(Ordering::Relaxed);
            finish_absorbing(&to, from.as_deref(), sum);
            self.entries[i].value = decode(sum);
            self.entries[i].absorbing = 0;
            if let Some(at) = absorbed {
                self.entries[at].value = None;
            }
        }
    }

    /// Returns all entries of an entry's group.
    fn group_of(&self, entry: usize) -> Range<usize> {
        let is_same = |other: &&ProcessEntry| self.is_same_group(&self.entries[entry], other);
        let before = self.entries[..entry].iter().rev().take_while(is_same).count();
        self.group(entry - before)
    }

    /// Removes series from the family and from the entries.
    fn remove(&mut self, family: &Family, mut is_unwanted: impl FnMut(&ProcessEntry) -> bool) {
        let texts = &self.texts;
        self.entries.retain(|entry| {
            if entry.overflow || !is_unwanted(entry) {
                return true;
            }
            // If it cannot be removed now, the next scrape finds it.
            let _ = family.try_remove(|key| key.series(entry.group, &texts[entry.texts.clone()]));
            false
        });
    }
}

impl Processes {
    /// Reduces each group of entries to the shown series.
    fn reduce(&mut self, aggregation: Aggregation) {
        self.shown.clear();
        let mut begin = 0;
        while begin < self.entries.len() {
            let group = self.group(begin);
            begin = group.end;
            let counts = |entry: &ProcessEntry| {
                entry.value.is_some() && (entry.is_alive || !aggregation.is_live())
            };
            let is_each = matches!(aggregation, Aggregation::All | Aggregation::LiveAll);
            if is_each || self.entries[group.start].overflow {
                for i in group.clone() {
                    let entry = &self.entries[i];
                    // If several processes used the same ID, show only the process that started
                    // last.
                    let is_last = !self.entries[i + 1..group.end]
                        .iter()
                        .take_while(|other| other.id == entry.id)
                        .any(counts);
                    if counts(entry) && (is_last || entry.overflow) {
                        self.show(i, entry.value, entry.start, is_each);
                    }
                }
                continue;
            }
            let mut value = None;
            let (mut start, mut last) = (u64::MAX, 0);
            for entry in self.entries[group.clone()].iter().filter(|entry| counts(entry)) {
                start = start.min(entry.start);
                value = match aggregation {
                    Aggregation::LiveMostRecent if value.is_some() && entry.time < last => value,
                    Aggregation::LiveMostRecent => entry.value,
                    _ => join(aggregation, value, entry.value),
                };
                last = last.max(entry.time);
            }
            self.show(group.start, value, start, false);
        }
    }

    /// Shows a value with the labels of an entry, with or without the process ID.
    fn show(&mut self, entry: usize, value: Option<f64>, start: u64, with_id: bool) {
        let Some(value) = value else { return };
        let entry = &self.entries[entry];
        let ProcessEntry { group, overflow, escape_free, id, .. } = *entry;
        let mut texts = entry.label_texts.clone();
        if with_id && !overflow {
            let begin = self.texts.len();
            self.texts.extend_from_within(texts);
            Texts::push(&mut self.texts, itoa::Buffer::new().format(id));
            texts = begin..self.texts.len();
        }
        self.shown.push(ShownSeries { group, overflow, escape_free, texts, start, value });
    }
}

/// Folds the series of ended processes, if the family contains many series and the lock is free.
pub(crate) fn tidy(family: &Family, layout: &ProcessGaugeLayout) {
    if layout.is_shared() || family.len() < MIN_TIDIED {
        return;
    }
    let Some(_folding) = family.try_folding() else { return };
    let mut processes = Processes::default();
    processes.read(family, layout.aggregation);
    if layout.aggregation == Aggregation::Sum {
        processes.finish(family);
    }
    processes.fold(family, layout.aggregation);
}

/// Reads the time and the value of a series of a copy again, if they moved. Returns whether they
/// belong to this series: its process may have removed it, and another series may have taken over
/// the record.
fn read_in_order(family: &Family, view: &View<'_>) -> bool {
    let readings = family.readings();
    family.read_in_order(&view.cells, &[TIME, VALUE]);
    family.readings() == readings || family.is_there(view.id)
}

/// Returns whether a process is alive. Each process is checked once per scrape.
fn is_alive(family: &Family, known: &mut Vec<(u64, bool)>, token: u64) -> bool {
    match known.binary_search_by_key(&token, |(token, _)| *token) {
        Ok(at) => known[at].1,
        Err(at) => {
            let is_alive = family.segment().is_alive(token);
            known.insert(at, (token, is_alive));
            is_alive
        }
    }
}

/// Returns the minimum, the maximum, or the sum of two values.
fn join(aggregation: Aggregation, one: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    Some(match aggregation {
        Aggregation::Min | Aggregation::LiveMin => a.min(b),
        Aggregation::Max | Aggregation::LiveMax => a.max(b),
        _ => a + b,
    })
}

/// Takes the value of one ended process' series (`from`) into the series of another (`to`).
/// `joined` is the encoded result, and `token` the process of `from`. Requires the lock.
///
/// A sum is logged first, with the process whose value it includes. If a later owner of the lock
/// finds this log entry, it knows that an earlier one died, and repeats all stores. This is safe,
/// because the stores are idempotent and no other thread changes the cells of ended processes. The
/// log entry is cleared last, after the value in `from`, so no value is absorbed twice.
fn absorb(
    aggregation: Aggregation,
    to: &SeriesCells<'_>,
    from: &SeriesCells<'_>,
    joined: u64,
    token: u64,
) {
    if aggregation == Aggregation::Sum {
        to.plain(PENDING_SUM).store(joined, Ordering::Relaxed);
        // Release, here and below: the stores stay in this order, because the process can die
        // between any two.
        to.plain(ABSORBED_PROCESS).store(token, Ordering::Release);
        finish_absorbing(to, Some(from), joined);
    } else {
        to.plain(VALUE).store(joined, Ordering::Release);
    }
}

fn finish_absorbing(to: &SeriesCells<'_>, from: Option<&SeriesCells<'_>>, sum: u64) {
    to.plain(VALUE).store(sum, Ordering::Release);
    if let Some(from) = from {
        from.plain(VALUE).store(0, Ordering::Release);
    }
    to.plain(ABSORBED_PROCESS).store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::Segment;
    use quipu_segment::series::{Label, Schema};

    use super::*;

    /// Creates a family of sums.
    fn sums(segment: &Segment) -> Family {
        let labels = vec![Label { name: "quipu_process".into(), values: None }];
        let schema = Schema { name: "sum".into(), cells: 3, labels, ..Schema::default() };
        segment.family(&schema).unwrap()
    }

    /// Returns the cells of the series of a process with this token, which is not alive.
    fn cells_of(family: &Family, token: u64) -> ClaimedCells<'_> {
        let name = format!("{token:010x}{:08x}", 5);
        family.update_shown(|key| key.text(&name), |_| {});
        family.find(|key| key.text(&name)).unwrap().unwrap()
    }

    /// Returns the values that a family of sums shows.
    fn shown(family: &Family) -> Vec<f64> {
        let mut processes = Processes::default();
        processes.combine(family, Aggregation::Sum);
        processes.shown.iter().map(|shown| shown.value).collect()
    }

    /// Creates a segment in a new file, and returns the path of this file.
    #[cfg(all(unix, not(miri)))]
    fn shared() -> (tempfile::TempDir, std::path::PathBuf, Segment) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared");
        let segment = quipu_segment::Options::new().shared().open_or_create(&path).unwrap();
        (directory, path, segment)
    }

    /// At whatever point the owner of the lock is stopped, a scrape shows the same sum.
    #[test]
    fn a_sum_is_whole_while_another_thread_takes_one_series_into_another() {
        let segment = Segment::private(1 << 20).unwrap();
        let family = sums(&segment);
        let [to, from] = [(70, 1.0), (71, 2.0)].map(|(token, value)| {
            let cells = cells_of(&family, token);
            cells.plain(VALUE).store(encode_value(Some(value)), Ordering::Relaxed);
            cells
        });
        let folding = family.try_folding().unwrap();
        assert_eq!(shown(&family), [3.0]);
        let stores = [
            (&to, PENDING_SUM, encode_value(Some(3.0))),
            (&to, ABSORBED_PROCESS, 71),
            (&to, VALUE, encode_value(Some(3.0))),
            (&from, VALUE, 0),
            (&to, ABSORBED_PROCESS, 0),
        ];
        for (i, (cells, cell, value)) in stores.into_iter().enumerate() {
            cells.plain(cell).store(value, Ordering::Release);
            assert_eq!(shown(&family), [3.0], "after {} stores", i + 1);
        }
        assert_eq!(family.len(), 2);
        drop(folding);
        assert_eq!((shown(&family), family.len()), (vec![3.0], 1));
    }

    /// Returns the offset of the word in a file that equals this one, if there is only one.
    #[cfg(all(unix, not(miri)))]
    fn offset_of(path: &std::path::Path, word: u64) -> u64 {
        let bytes = std::fs::read(path).unwrap();
        let mut found =
            (0..bytes.len()).step_by(8).filter(|&at| bytes[at..at + 8] == word.to_le_bytes());
        let at = found.next().unwrap();
        assert_eq!(found.next(), None);
        at as u64
    }

    /// A file is copied while one series is folded into another, between the readings of the two.
    /// Only a part of the file is read again, and the reading can end at any place.
    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_copy_that_is_read_again_in_part_shows_no_sum_of_ended_processes() {
        let (_directory, path, segment) = shared();
        let family = sums(&segment);
        // The last two lie in a large block, which is followed by small readings.
        let all: Vec<_> = (70..520).map(|token| cells_of(&family, token)).collect();
        let (from, to) = (&all[448], &all[449]);
        let values = [1.0, 2.0, 3.0].map(|value| encode_value(Some(value)));
        let set =
            |cells: &ClaimedCells<'_>, value| cells.plain(VALUE).store(value, Ordering::Release);
        set(to, values[0]);
        set(from, values[1]);
        let at = [values[1], values[0]].map(|value| offset_of(&path, value));
        assert!(at[0] < at[1]);
        let open = std::fs::File::open(&path).unwrap();
        let mut seen = [0; 2];
        for budget in (0..20_000).step_by(150) {
            set(to, values[0]);
            set(from, values[1]);
            let copy = Segment::copy_within(&path, &open, budget, &mut |pass, offset| {
                if (pass, offset) == (1, at[0] + 8) {
                    set(to, values[2]);
                    set(from, 0);
                }
            });
            let copy = copy.unwrap();
            let shown = shown(&copy.families().unwrap()[0]);
            let is_shown = !shown.is_empty();
            assert!(if is_shown { shown == [3.0] } else { copy.omitted() > 0 }, "{shown:?}");
            seen[usize::from(is_shown)] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }

    /// After the copying, other series of the same process take the records.
    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_copy_shows_no_value_of_the_series_that_took_the_record_of_another() {
        let (_directory, path, segment) = shared();
        let label = |name: &str| Label { name: name.into(), values: None };
        let labels = vec![label("job"), label("quipu_process")];
        let schema = Schema { name: "last".into(), cells: 2, labels, ..Schema::default() };
        let family = segment.family(&schema).unwrap();
        let process = format!("{:010x}{:08x}", segment.process().unwrap(), 5);
        let jobs = |kind: char| (0..50).map(move |i| format!("{kind}{i}"));
        // Returns the address of the cells.
        let put = |job: &str, value: f64| {
            let at = std::cell::Cell::new(0);
            family.update_shown(
                |key| {
                    key.text(job);
                    key.text(&process);
                },
                |cells| {
                    cells.plain(VALUE).store(encode_value(Some(value)), Ordering::Relaxed);
                    cells.plain(TIME).fetch_add(1, Ordering::Release);
                    at.set(std::ptr::from_ref(cells.plain(VALUE)).addr());
                },
            );
            at.get()
        };
        let records: Vec<usize> = jobs('a').map(|job| put(&job, 1.0)).collect();
        let open = std::fs::File::open(&path).unwrap();
        let mut is_moved = false;
        let copy = Segment::copy_by_words(&path, &open, &mut |pass, _| {
            if pass == 1 && !std::mem::replace(&mut is_moved, true) {
                jobs('a').for_each(|job| _ = put(&job, 2.0));
            }
        });
        let copy = copy.unwrap();
        for job in jobs('a') {
            let removed = family.remove(|key| {
                key.text(&job);
                key.text(&process);
            });
            removed.unwrap();
        }
        let reused = jobs('b').filter(|job| records.contains(&put(job, 1000.0))).count();
        assert!(reused > 0);
        let copied = copy.families().unwrap().remove(0);
        let mut processes = Processes::default();
        processes.combine(&copied, Aggregation::LiveMostRecent);
        for shown in &processes.shown {
            let job = String::from_utf8_lossy(&processes.texts[shown.texts.clone()]);
            assert!(shown.value <= 2.0, "{job:?} has {}", shown.value);
        }
        assert!(copy.omitted() >= reused as u64, "{} of {reused}", copy.omitted());
    }

    /// A file is copied while one series is folded into another. At any moment of the copying,
    /// either all stores are done, or some of them are done and the others follow.
    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_copy_shows_a_sum_once_at_any_moment_of_a_fold() {
        let (_directory, path, segment) = shared();
        let family = sums(&segment);
        // Other series lie between the two.
        let cells = [70, 90, 91, 92, 71].map(|token| cells_of(&family, token));
        let (to, from) = (&cells[0], &cells[4]);
        let stores = [
            (to, PENDING_SUM, encode_value(Some(3.0))),
            (to, ABSORBED_PROCESS, 71),
            (to, VALUE, encode_value(Some(3.0))),
            (from, VALUE, 0),
            (to, ABSORBED_PROCESS, 0),
        ];
        let make = |stores: &[(&ClaimedCells<'_>, usize, u64)]| {
            for (cells, cell, value) in stores {
                cells.plain(*cell).store(*value, Ordering::Release);
            }
        };
        let open = std::fs::File::open(&path).unwrap();
        let copied = |before: &mut dyn FnMut(usize)| {
            make(&[
                (to, VALUE, encode_value(Some(1.0))),
                (to, PENDING_SUM, 0),
                (from, VALUE, encode_value(Some(2.0))),
            ]);
            let mut word = 0;
            let copy = Segment::copy_by_words(&path, &open, &mut |_, _| {
                before(word);
                word += 1;
            });
            (copy.unwrap(), word)
        };
        let (_, words) = copied(&mut |_| {});
        let moments: Vec<usize> = (0..=words).step_by(words / 60).collect();
        for (first, begin) in moments.iter().enumerate() {
            for (some, end) in
                [(5, begin), (1, begin), (2, begin), (3, begin), (4, begin)].into_iter().flat_map(
                    |(some, _)| moments[first..].iter().step_by(7).map(move |end| (some, end)),
                )
            {
                let (copy, _) = copied(&mut |word| {
                    if word == *begin {
                        make(&stores[..some]);
                    }
                    if word == *end {
                        make(&stores[some..]);
                    }
                });
                // The stores after the copying.
                make(&stores);
                let shown = shown(&copy.families().unwrap()[0]);
                assert_eq!(shown, [3.0], "{some} stores at {begin}, the others at {end}");
                assert_eq!(copy.omitted(), 0);
            }
        }
    }
}
