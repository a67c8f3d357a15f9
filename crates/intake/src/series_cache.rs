//! A cache that finds a series by the encoded bytes of its name and labels in a request.
//!
//! A sender usually encodes the labels of a series in the same way in every request. On a hit, the
//! labels need not be parsed, checked or sorted, and the series is found without looking up its
//! family and its key.
//!
//! The bytes are compared as a whole, so two series are never confused. An outdated entry is
//! detected before its use: a [`Spot`] leads nowhere after its series was removed, and the type of
//! a name is looked up again after a family was created. A sample that does not fit its entry is
//! parsed and stored without the cache, which updates the entry.
//!
//! Most senders also keep the order of their series. The cache therefore first compares the series
//! that followed the current one last time, without a hash lookup, and prefetches the next ones.
//!
//! The size of a cache is bounded. A full cache keeps its entries until there were many times as
//! many misses as entries, and is then emptied. Rotating through too many series therefore costs
//! little more than no cache, and series that are no longer sent make room.

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use quipu::intake::{FamilyHandle, Intake, Moment, Spot};
use quipu_segment::hash::SeededState;
use quipu_wire::remote::write::SeriesType;

use super::Shared;
use super::types::{self, SampleType};

/// The cached series of one input. Each thread has a separate cache.
#[derive(Default)]
pub(super) struct SeriesCache {
    /// The entries, in the order in which they were first cached.
    entries: Vec<Entry>,
    /// The bytes of all entries, in a single buffer.
    bytes: Vec<u8>,
    /// The indices of entries by the hash of their bytes.
    numbers: HashTable<u32>,
    seeded: SeededState,
    names: Vec<CachedName>,
    by_name: HashMap<Box<str>, u32, SeededState>,
    /// The index of the entry that is expected next.
    next: usize,
    /// The number of misses since an entry was added.
    missed: usize,
}

struct Entry {
    hash: u64,
    /// The position of the entry's bytes in the buffer, and their length.
    start: u32,
    length: u32,
    /// The index of the series' name in `names`.
    name: u32,
    series: KnownSeries,
}

/// A cached series.
pub(super) struct KnownSeries {
    /// The handles of the family and of the series.
    pub(super) located: (FamilyHandle, Spot),
    /// The type of the name when the entry was added.
    pub(super) series_type: SeriesType,
    /// The type of the series' samples, unless the type of the name changes.
    pub(super) sample_type: SampleType,
}

/// A metric name, with the type of samples whose requests do not declare a type.
struct CachedName {
    text: Box<str>,
    kind: NameType,
    /// The version when the type was looked up.
    version: Version,
}

/// The type of a metric name, and whether its family has a help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameType {
    /// The type of the series with this name.
    pub(super) series_type: SeriesType,
    /// Whether a help exists. If so, a cached family without it is outdated.
    pub(super) has_help: bool,
}

/// Two counters that change whenever the type of a name may have changed.
pub(super) type Version = [u64; 2];

/// A value with its timestamp and its start time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedValue {
    /// The value.
    pub(super) value: f64,
    /// The timestamp, in milliseconds since 1970.
    pub(super) timestamp_ms: Option<i64>,
    /// The start time of a counter, if it is known.
    pub(super) start_ms: Option<i64>,
}

/// The maximum number of series in a cache.
const MAX_SERIES: usize = 1 << 17;
/// The maximum size of the names and labels of all series in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The maximum size of the name and labels of one series in bytes.
const MAX_SERIES_BYTES: usize = 4 << 10;
/// The number of misses that empties a full cache.
const PATIENCE: usize = 16 * MAX_SERIES;
/// The number of entries by which prefetching is ahead of the current series.
const AHEAD: usize = 6;

impl SeriesCache {
    /// Finds the series whose encoding is a prefix of these bytes. Returns the length of the
    /// encoding, and the index of the series. `is_end` tests whether an encoding can end before the
    /// given bytes, and `end` returns the end of the first encoding.
    #[inline]
    pub(super) fn find(
        &mut self,
        bytes: &[u8],
        is_end: impl Fn(&[u8]) -> bool,
        end: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<(usize, u32)> {
        if self.entries.is_empty() {
            return None;
        }
        let expected = self.entries.get(self.next);
        let rest = expected.and_then(|entry| bytes.strip_prefix(self.bytes_of(entry)));
        let found = match rest.is_some_and(is_end) {
            true => self.next,
            false => self.look_up(bytes.get(..end(bytes)?)?)?,
        };
        self.next = found + 1;
        if let Some(ahead) = self.entries.get(found + AHEAD) {
            let (handle, spot) = &ahead.series.located;
            handle.prefetch(*spot);
        }
        // Fits, because there are fewer than MAX_SERIES entries.
        self.entries.get(found).map(|entry| (entry.length as usize, found as u32))
    }

    /// Finds the entry with these bytes. Counts a miss.
    #[inline(never)]
    fn look_up(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = self.position(bytes);
        self.missed += usize::from(found.is_none());
        found
    }

    fn position(&self, bytes: &[u8]) -> Option<usize> {
        let hash = self.seeded.hash_one(bytes);
        let is_it = |number: &u32| {
            let entry = self.entries.get(*number as usize);
            entry.is_some_and(|entry| entry.hash == hash && self.bytes_of(entry) == bytes)
        };
        self.numbers.find(hash, is_it).map(|number| *number as usize)
    }

    #[inline]
    fn bytes_of(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        self.bytes.get(start..start + entry.length as usize).unwrap_or_default()
    }

    /// Returns the series with this index.
    #[inline]
    pub(super) fn series(&self, number: u32) -> Option<&KnownSeries> {
        self.entries.get(number as usize).map(|entry| &entry.series)
    }

    /// Returns the name of the series with this index.
    pub(super) fn name(&self, number: u32) -> &str {
        let entry = self.entries.get(number as usize);
        let name = entry.and_then(|entry| self.names.get(entry.name as usize));
        name.map_or("", |name| &name.text)
    }

    /// Returns whether an entry is current: its name still has the same type, and its family has a
    /// help if one exists. `look_up` returns the type of a name, and is only called if the
    /// version changed.
    #[inline]
    pub(super) fn is_current(
        &mut self,
        number: u32,
        version: Version,
        look_up: impl FnOnce(&str) -> NameType,
    ) -> bool {
        let Some(entry) = self.entries.get(number as usize) else { return false };
        let Some(name) = self.names.get_mut(entry.name as usize) else { return false };
        if name.version != version {
            name.kind = look_up(&name.text);
            name.version = version;
        }
        entry.series.has_type(name.kind)
    }

    /// Returns whether a series with these bytes can be cached. Empties the cache if it has been
    /// full for many misses.
    pub(super) fn has_room(&mut self, bytes: &[u8]) -> bool {
        if !(1..=MAX_SERIES_BYTES).contains(&bytes.len()) {
            return false;
        }
        let is_full =
            self.entries.len() >= MAX_SERIES || self.bytes.len() + bytes.len() > MAX_BYTES;
        if is_full && self.missed >= PATIENCE {
            *self = Self::default();
            return true;
        }
        !is_full || self.position(bytes).is_some()
    }

    /// Caches a series under these bytes, and replaces an older entry. Call this only after
    /// [`SeriesCache::has_room`] returned true. `kind` is the type of the name in this version.
    pub(super) fn keep(
        &mut self,
        bytes: &[u8],
        name: (&str, NameType, Version),
        series: KnownSeries,
    ) {
        let name = self.keep_name(name);
        if let Some(known) = self.position(bytes) {
            if let Some(entry) = self.entries.get_mut(known) {
                (entry.name, entry.series) = (name, series);
            }
            return;
        }
        // Fits, because all three are less than MAX_BYTES.
        let (start, length) = (self.bytes.len() as u32, bytes.len() as u32);
        let number = self.entries.len() as u32;
        let hash = self.seeded.hash_one(bytes);
        self.bytes.extend_from_slice(bytes);
        self.entries.push(Entry { hash, start, length, name, series });
        let entries = &self.entries;
        let hash_of = |number: &u32| entries.get(*number as usize).map_or(0, |entry| entry.hash);
        self.numbers.insert_unique(hash, number, hash_of);
        self.next = entries.len();
        self.missed = 0;
    }

    fn keep_name(&mut self, (text, kind, version): (&str, NameType, Version)) -> u32 {
        if let Some(&known) = self.by_name.get(text) {
            if let Some(name) = self.names.get_mut(known as usize) {
                (name.kind, name.version) = (kind, version);
            }
            return known;
        }
        // Fits, because there is at most one name per series.
        let number = self.names.len() as u32;
        self.names.push(CachedName { text: text.into(), kind, version });
        self.by_name.insert(text.into(), number);
        number
    }
}

impl KnownSeries {
    /// Returns whether the family of the series has a help.
    #[inline]
    pub(super) fn has_help(&self) -> bool {
        self.located.0.has_help()
    }

    /// Returns whether the entry is current if the name has this type.
    #[inline]
    pub(super) fn has_type(&self, kind: NameType) -> bool {
        self.series_type == kind.series_type && (!kind.has_help || self.has_help())
    }
}

impl Shared {
    /// Stores a sample of a cached series, with the same result as storing it by name and labels.
    /// Returns false, and changes nothing, if the sample must be stored by name and labels, because
    /// the series was removed, or because the sample is an exception, for example one to be
    /// refused.
    #[inline]
    pub(super) fn take_known(
        &self,
        intake: &Intake,
        known: &KnownSeries,
        sample: TimedValue,
        moment: &Moment,
    ) -> bool {
        let KnownSeries { located: (handle, spot), sample_type, .. } = known;
        let (given, mode) = types::given(*sample_type, sample.value);
        let Some(timestamp_ms) = sample.timestamp_ms else {
            // The intake compares the times of samples that contain a time.
            return sample.start_ms.is_none() && intake.take_at(handle, *spot, &given, mode);
        };
        let start = sample.start_ms.and_then(types::timestamp);
        let times = (start, types::sample_time(timestamp_ms));
        intake.take_next_at(handle, *spot, (&given, mode), times, moment)
    }
}

#[cfg(test)]
mod tests {
    use quipu::Registry;
    use quipu::intake::{Limits, Metric};

    use super::*;

    const UNKNOWN: NameType = NameType { series_type: SeriesType::Unknown, has_help: false };

    fn intake() -> Intake {
        let mut intake = Intake::new(&Registry::new(), Limits::default()).unwrap();
        let (given, mode) = types::given(SampleType::Gauge, 1.0);
        intake.take(Metric::new("m"), &[], &given, mode, None).unwrap();
        intake
    }

    fn known(intake: &mut Intake) -> KnownSeries {
        let (given, mode) = types::given(SampleType::Gauge, 1.0);
        let located = intake.locate(Metric::new("m"), &[], &given, mode).unwrap();
        KnownSeries { located, series_type: SeriesType::Unknown, sample_type: SampleType::Gauge }
    }

    fn keep(series: &mut SeriesCache, bytes: &[u8], known: KnownSeries) {
        assert!(series.has_room(bytes), "{}", series.entries.len());
        series.keep(bytes, ("m", UNKNOWN, [1, 1]), known);
    }

    /// Returns the number of the series of a line.
    fn find(series: &mut SeriesCache, line: &str) -> Option<u32> {
        let is_end = |rest: &[u8]| rest.first() == Some(&b' ');
        let end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b' ');
        let (length, number) = series.find(line.as_bytes(), is_end, end)?;
        assert_eq!(Some(length), end(line.as_bytes()));
        Some(number)
    }

    #[test]
    fn series_are_found_by_all_their_bytes_in_any_order() {
        let (mut series, mut intake) = (SeriesCache::default(), intake());
        assert_eq!(find(&mut series, "a 1"), None);
        for bytes in ["a", "ab", "abc", "b", "ab"] {
            keep(&mut series, bytes.as_bytes(), known(&mut intake));
        }
        let lines = ["a 1", "ab 1", "abc 1", "b 1"];
        for first in 0..lines.len() {
            for second in 0..lines.len() {
                for at in [first, second, second] {
                    assert_eq!(find(&mut series, lines[at]), Some(at as u32));
                }
                assert_eq!(find(&mut series, "abcd 1"), None);
                assert_eq!(find(&mut series, "abc"), None);
            }
        }
    }

    #[test]
    fn a_series_is_current_as_long_as_its_name_has_the_same_type() {
        let (mut series, mut intake) = (SeriesCache::default(), intake());
        keep(&mut series, b"a", known(&mut intake));
        let mut is_current = |version, kind| series.is_current(0, [version, 1], |_| kind);
        let gauge = NameType { series_type: SeriesType::Gauge, ..UNKNOWN };
        let helped = NameType { has_help: true, ..UNKNOWN };
        // The type is looked up again when the version changed.
        for (version, kind, expected) in [
            (1, gauge, true),
            (2, UNKNOWN, true),
            (3, gauge, false),
            (3, UNKNOWN, false),
            (4, helped, false),
            (5, UNKNOWN, true),
        ] {
            assert_eq!(is_current(version, kind), expected, "{version}");
        }
        assert!(!series.is_current(1, [1, 1], |_| UNKNOWN));
    }

    #[test]
    fn a_full_cache_is_emptied_after_many_misses() {
        let (mut series, mut intake) = (SeriesCache::default(), intake());
        let KnownSeries { located, series_type, sample_type } = known(&mut intake);
        let known = || KnownSeries { located: located.clone(), series_type, sample_type };
        for number in 0..MAX_SERIES {
            keep(&mut series, format!("{number}").as_bytes(), known());
        }
        assert!(!series.has_room(b"other"));
        // An existing entry can be renewed.
        keep(&mut series, b"17", known());
        for _ in 0..PATIENCE {
            assert!(series.look_up(b"other").is_none() && series.entries.len() == MAX_SERIES);
        }
        keep(&mut series, b"other", known());
        assert_eq!((series.entries.len(), find(&mut series, "17 1")), (1, None));
        let long = vec![b'a'; MAX_SERIES_BYTES];
        let count = MAX_BYTES / MAX_SERIES_BYTES - 1;
        for number in 0..count {
            let bytes = [&long[8..], format!("{number:08}").as_bytes()].concat();
            keep(&mut series, &bytes, known());
        }
        assert!(!series.has_room(&long) && series.bytes.len() <= MAX_BYTES);
        for bytes in [&b""[..], &[b'a'; MAX_SERIES_BYTES + 1]] {
            assert!(!SeriesCache::default().has_room(bytes));
        }
    }
}
