//! [`KeyedWindows`], a window for each key, in a table of fixed size that evicts the least recently
//! used keys.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use crate::clock::{Clock, CoarseClock};
use hashbrown::HashTable;
#[allow(
    clippy::disallowed_types,
    reason = "a child of a fork makes windows of its own, as the page says"
)]
use parking_lot::{Mutex, MutexGuard};
use quipu_segment::hash::SeededState;
use quipu_segment::sync::Ordering;
use quipu_segment::{Cells, Kind, LINE_CELLS, Record, Segment};

use crate::error::{Error, ErrorKind};
use crate::ring::{Lines, Ring};
use crate::shape::Shape;

/// A sliding window for each key, with room for a fixed number of keys. Use this to count by
/// client, path, or tenant, for example.
///
/// When the table is full, a new key evicts the least recently counted key, with its events;
/// [`KeyedWindows::evicted`] counts the evictions. If you read a key, this does not count as a use.
///
/// # Error bound
/// The error bound of [`BucketedWindow`](crate::BucketedWindow), for each key since its insertion.
///
/// # Cost
/// Counting takes a lock for the time of a hash table lookup, an addition, and a move in a list.
/// The memory of the table is all reserved at the start (see [`KeyedOptions::bytes`]); the index
/// takes about 200 bytes per key.
///
/// # Processes
/// In a segment's file, every event survives the death of the process. Each process uses a
/// different hash seed, so no one can choose keys that collide. Open a table once and share it,
/// because two tables opened on the same record do not know each other's keys. A forked child must
/// not use the table of its parent: it could wait forever for the lock.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::KeyedWindows;
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
/// let clients = KeyedWindows::options(minute, second, 1000).build()?;
/// assert_eq!(clients.add_and_count(b"alice", 2)?, 2);
/// assert_eq!(clients.add_and_count(b"bob", 1)?, 1);
/// assert_eq!(clients.count(b"carol"), None);
/// assert_eq!(clients.top(1), [(b"alice".to_vec(), 2)]);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug)]
pub struct KeyedWindows<C = CoarseClock> {
    shape: Shape,
    key_bytes: usize,
    clock: C,
    table: Table,
    hasher: SeededState,
    #[allow(
        clippy::disallowed_types,
        reason = "a child of a fork makes windows of its own, as the page says"
    )]
    state: Mutex<KeyedState>,
}

/// The cells of a table, and their layout.
#[derive(Debug)]
struct Table {
    cells: Cells,
    accuracy: u64,
    /// The number of ticks in the longest window.
    span: u64,
    slot_cells: usize,
}

/// The maximum number of events of one [addition](KeyedWindows::add_and_count). A count is a
/// difference of sums modulo 2^64, so this limit keeps it correct for up to 2^32 such additions in
/// one window.
pub const MAX_EVENTS: u64 = 1 << 32;

/// The index of the keys. It is rebuilt from the table whenever you open the table.
#[derive(Debug)]
struct KeyedState {
    /// The slots that ever contained a key. A table that is not full touches no other memory.
    slots: Vec<Slot>,
    index: HashTable<u32>,
    /// The slots without a key.
    free: Vec<u32>,
    /// The most recently used slot; [`NONE`] if there is none.
    newest: u32,
    /// The least recently used slot; [`NONE`] if there is none.
    oldest: u32,
}

/// The maximum number of bytes of a key in the index while it is built: its slot; 16 for the order
/// of the uses and its sort; 18 for a hash table that grows, of up to 16/7 buckets a key with 5
/// bytes each; and 12 for a list of free slots that grows.
const INDEX_BYTES: u64 = size_of::<Slot>() as u64 + 16 + 18 + 12;

/// A slot of the table: a key and its window.
#[derive(Debug)]
struct Slot {
    cells: Cells,
    ring: Ring,
    hash: u64,
    newer: u32,
    older: u32,
}

/// Options for a [`KeyedWindows`] table. You can create it in private memory, or create or open it
/// in a segment.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{KeyedWindows, Segment};
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
/// let options = KeyedWindows::options(minute, second, 100).max_key_bytes(16);
/// let segment = Segment::private(options.bytes()? + (64 << 10))?;
/// let clients = options.build_in(&segment, "clients")?;
/// clients.add_and_count(b"alice", 1)?;
/// assert!(clients.add_and_count(b"a name of over 16 bytes", 1).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "options create nothing until you build the table"]
pub struct KeyedOptions {
    window: Duration,
    accuracy: Duration,
    span: Duration,
    capacity: usize,
    key_bytes: usize,
}

impl KeyedOptions {
    /// Sets the longest window that you can count. The default is the table's window.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Sets the greatest length of a key in bytes. The default is 128.
    pub fn max_key_bytes(mut self, bytes: usize) -> Self {
        self.key_bytes = bytes;
        self
    }

    /// Returns the bytes that the table takes in its segment.
    ///
    /// # Errors
    /// If a duration is invalid, or if the table is for no keys or for too many.
    pub fn bytes(&self) -> Result<u64, Error> {
        let (_, span) = self.shapes()?;
        Ok(Segment::record_bytes(self.cells(span)))
    }

    /// Returns the maximum number of bytes that the index of a full table takes when you open the
    /// table.
    #[doc(hidden)]
    pub fn index_bytes(&self) -> u64 {
        (self.capacity as u64).saturating_mul(INDEX_BYTES)
    }

    /// Returns the maximum number of bytes that opening the table `name` of a segment takes for its
    /// index.
    ///
    /// # Errors
    /// The errors of [`KeyedOptions::build_in`].
    #[doc(hidden)]
    pub fn index_bytes_in(&self, segment: &Segment, name: &str) -> Result<u64, Error> {
        let (_, span) = self.shapes()?;
        let found = segment.find(KIND, name).map_err(Error::from_segment)?;
        let Some(record) = found else { return Ok(0) };
        self.check(segment, &record, span)?;
        Ok((self.begun(record.cells()) as u64).saturating_mul(INDEX_BYTES))
    }

    /// Creates the table in private memory, on the kernel's coarse clock.
    ///
    /// # Errors
    /// If a duration is invalid, or if the table is for no keys or for too many.
    pub fn build(&self) -> Result<KeyedWindows, Error> {
        self.build_with_clock(CoarseClock::new())
    }

    /// Creates the table in private memory, on the given clock.
    ///
    /// # Errors
    /// The errors of [`KeyedOptions::build`].
    pub fn build_with_clock<C: Clock>(&self, clock: C) -> Result<KeyedWindows<C>, Error> {
        let (_, span) = self.shapes()?;
        let segment = Segment::private(Segment::bytes_for(&[self.cells(span)]))
            .map_err(Error::from_segment)?;
        self.build_in_with_clock(&segment, "keys", clock)
    }

    /// Creates the table `name` in a segment, or opens it, on the segment's clock.
    ///
    /// # Errors
    /// Invalid durations; an existing table of this name with other settings; the segment's errors.
    pub fn build_in(&self, segment: &Segment, name: &str) -> Result<KeyedWindows, Error> {
        self.build_in_with_clock(segment, name, CoarseClock::anchored(segment.anchor()))
    }

    /// Like [`KeyedOptions::build_in`], on the given clock.
    ///
    /// # Errors
    /// The errors of [`KeyedOptions::build_in`].
    pub fn build_in_with_clock<C: Clock>(
        &self,
        segment: &Segment,
        name: &str,
        clock: C,
    ) -> Result<KeyedWindows<C>, Error> {
        let (shape, span) = self.shapes()?;
        let registration = segment.lock_registration().map_err(Error::from_segment)?;
        let cells = match segment.find(KIND, name).map_err(Error::from_segment)? {
            Some(record) => {
                self.check(segment, &record, span)?;
                record.cells().clone()
            }
            None => {
                let draft =
                    segment.reserve(KIND, name, self.cells(span)).map_err(Error::from_segment)?;
                for (at, value) in self.settings(span) {
                    draft.cells()[at].store(value, Ordering::Relaxed);
                }
                draft.publish().map_err(Error::from_segment)?.cells().clone()
            }
        };
        drop(registration);
        let slot_cells = self.slot_cells(span);
        let table = Table { cells, accuracy: span.accuracy, span: span.ticks, slot_cells };
        let hasher = SeededState::default();
        let torn = segment.may_have_lost_power();
        let state = self.index(&table, &hasher, clock.settle(), torn);
        Ok(KeyedWindows {
            shape,
            key_bytes: self.key_bytes,
            clock,
            table,
            hasher,
            state: state.into(),
        })
    }

    /// Validates the options. Returns the shapes of the window and of the span.
    fn shapes(&self) -> Result<(Shape, Shape), Error> {
        let shapes = Shape::with_span(self.window, self.accuracy, self.span)?;
        if self.capacity == 0 || self.capacity > MAX_KEYS || self.key_bytes == 0 {
            return Err(ErrorKind::NoCapacity.into());
        }
        Ok(shapes)
    }

    /// Returns the number of cells of a slot: its head, its key, and its ring.
    fn slot_cells(&self, span: Shape) -> usize {
        let key = self.key_bytes.div_ceil(8).next_multiple_of(LINE_CELLS);
        LINE_CELLS.saturating_add(key).saturating_add(Ring::cells(span.ticks, Lines::ONE))
    }

    fn cells(&self, span: Shape) -> usize {
        LINE_CELLS.saturating_add(self.slot_cells(span).saturating_mul(self.capacity))
    }

    fn settings(&self, span: Shape) -> [(usize, u64); 4] {
        [
            (at::ACCURACY, span.accuracy),
            (at::SPAN, span.ticks),
            (at::CAPACITY, self.capacity as u64),
            (at::KEY_BYTES, self.key_bytes as u64),
        ]
    }

    /// Checks an existing record, which can contain anything.
    fn check(&self, segment: &Segment, record: &Record, span: Shape) -> Result<(), Error> {
        let mismatch = |message: String| {
            let message = format!("key table {:?} {message}", record.name());
            Error::from_segment(quipu_segment::Error::mismatch(segment, message))
        };
        if record.cells().len() < LINE_CELLS {
            return Err(mismatch("has no room for its settings".into()));
        }
        let found = |at: usize| record.cells()[at].load(Ordering::Relaxed);
        for ((at, wanted), setting) in self.settings(span).into_iter().zip(SETTINGS) {
            if found(at) != wanted {
                let shown = |value: u64| match at {
                    at::ACCURACY => format!("{:?}", Duration::from_nanos(value)),
                    _ => value.to_string(),
                };
                let (found, wanted) = (shown(found(at)), shown(wanted));
                return Err(mismatch(format!("was made with {setting} {found}, not {wanted}")));
            }
        }
        if record.cells().len() != self.cells(span) {
            return Err(mismatch("has a size that does not fit its settings".into()));
        }
        Ok(())
    }

    /// Returns the number of slots that ever contained a key.
    fn begun(&self, cells: &Cells) -> usize {
        let begun = cells[at::BEGUN].load(Ordering::Relaxed);
        usize::try_from(begun).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Builds the index of a table: its keys, and the order of their last uses.
    fn index(&self, table: &Table, hasher: &SeededState, now: u64, torn: bool) -> KeyedState {
        let begun = self.begun(&table.cells);
        let mut state = KeyedState {
            slots: (0..begun).map(|number| table.slot(number)).collect(),
            index: HashTable::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        };
        // Oldest first, because each one is linked as the newest. If a power loss left a key in two
        // slots, the more recently used slot is kept.
        let mut used: Vec<usize> = (0..begun).collect();
        used.sort_by_key(|&number| state.slots[number].used());
        if let Some(&newest) = used.last() {
            // After a power loss, the number of uses can be less than in the slots.
            let uses = state.slots[newest].used();
            table.cells[at::USES].fetch_max(uses, Ordering::Relaxed);
        }
        let mut key = Vec::new();
        for number in used {
            let slot = &mut state.slots[number];
            slot.read_key(&mut key);
            slot.hash = hasher.hash_one(&key[..]);
            let hash = slot.hash;
            let number = number as u32; // At most MAX_KEYS.
            match slot.key_length() {
                0 => {
                    state.free.push(number);
                    continue;
                }
                length if length > self.key_bytes as u64 || !slot.ring.fits(now) => {
                    slot.clear();
                    state.free.push(number);
                    continue;
                }
                _ if torn => {
                    slot.ring.mend();
                }
                _ => {}
            }
            if let Some(double) = state.find(hash, &key) {
                state.remove(double);
                state.free.push(double);
            }
            state.insert(number, hash);
        }
        state
    }
}

impl Table {
    /// Returns the slot of this number, which must be below the capacity.
    fn slot(&self, number: usize) -> Slot {
        let start = LINE_CELLS + number * self.slot_cells;
        let cells = self.cells.slice(start..start + self.slot_cells);
        let ring_at = self.slot_cells - Ring::cells(self.span, Lines::ONE);
        let ring_cells = cells.slice(ring_at..self.slot_cells);
        let ring = Ring::new(&ring_cells, self.accuracy, self.span, Lines::ONE);
        Slot { cells, ring, hash: 0, newer: NONE, older: NONE }
    }

    fn capacity(&self) -> usize {
        (self.cells.len() - LINE_CELLS) / self.slot_cells
    }
}

impl KeyedWindows {
    /// Returns the options for a table of `capacity` keys.
    pub fn options(window: Duration, accuracy: Duration, capacity: usize) -> KeyedOptions {
        KeyedOptions { window, accuracy, span: window, capacity, key_bytes: 128 }
    }
}

impl<C: Clock> KeyedWindows<C> {
    /// Counts `n` events of a key, at most [`MAX_EVENTS`], and returns the events of its window,
    /// including them.
    ///
    /// # Errors
    /// If the key is empty or longer than the table allows, or if there are more events than one
    /// addition can count.
    pub fn add_and_count(&self, key: &[u8], n: u64) -> Result<u64, Error> {
        if n > MAX_EVENTS {
            return Err(ErrorKind::TooManyEvents { n }.into());
        }
        if key.is_empty() || key.len() > self.key_bytes {
            return Err(ErrorKind::KeyLength { length: key.len(), most: self.key_bytes }.into());
        }
        let hash = self.hasher.hash_one(key);
        let now = self.clock.now();
        let state = &mut self.state();
        let number = match state.find(hash, key) {
            Some(number) => {
                state.unlink(number);
                number
            }
            None => self.admit(state, hash, key),
        };
        state.link_newest(number);
        let slot = &state.slots[number as usize];
        self.turn(&slot.ring, now);
        let count = slot.ring.add_and_count(n, self.shape.ticks);
        // The order of uses outlives the process, like the events. The number of uses is stored
        // last: if a thread sees this number change, and then syncs, the event is on the disk.
        let uses = self.table.cells[at::USES].load(Ordering::Relaxed);
        let use_number = uses.wrapping_add(1);
        slot.cells[slot_at::USED].store(use_number, Ordering::Relaxed);
        self.table.cells[at::USES].store(use_number, Ordering::Release);
        Ok(count)
    }

    /// Returns the events of a key's window; `None` if the table does not contain the key (any
    /// more).
    pub fn count(&self, key: &[u8]) -> Option<u64> {
        self.read(key, |ring, _| ring.count(self.shape.ticks))
    }

    /// Returns the events of a key in a window of another length.
    ///
    /// # Errors
    /// If the window is not a multiple of the accuracy, or longer than the span.
    pub fn count_over(&self, key: &[u8], window: Duration) -> Result<Option<u64>, Error> {
        let ticks = self.ticks(window)?;
        Ok(self.read(key, |ring, _| ring.count(ticks)))
    }

    /// Returns the events of a key in a window of this length, and its events per second. The rate
    /// counts the oldest bucket in part.
    ///
    /// # Errors
    /// The errors of [`KeyedWindows::count_over`].
    #[doc(hidden)]
    pub fn count_and_rate_over(
        &self,
        key: &[u8],
        window: Duration,
    ) -> Result<Option<(u64, f64)>, Error> {
        let ticks = self.ticks(window)?;
        let seconds = window.as_secs_f64();
        Ok(self.read(key, |ring, now| (ring.count(ticks), ring.estimate(ticks, now) / seconds)))
    }

    /// Returns the `most` keys with the most events in their windows, in descending order. This
    /// visits every key, but releases the lock after every 1024 slots.
    pub fn top(&self, most: usize) -> Vec<(Vec<u8>, u64)> {
        let mut ranking = Ranking::new(most);
        while !self.rank(&mut ranking, RANKED_AT_ONCE) {}
        ranking.finish()
    }

    /// Visits up to `places` more slots of the table for a ranking, with the lock held. Returns
    /// true when all slots are visited. See [`Ranking`].
    #[doc(hidden)]
    pub fn rank(&self, ranking: &mut Ranking, places: usize) -> bool {
        let now = self.clock.now();
        let state = &self.state();
        let end = ranking.seen.saturating_add(places).min(state.slots.len());
        for number in ranking.seen..end {
            let slot = &state.slots[number];
            if slot.key_length() > 0 {
                ranking.offer(slot.ring.peek(now, self.shape.ticks), number as u32, slot);
            }
        }
        ranking.seen = ranking.seen.max(end);
        ranking.seen >= state.slots.len()
    }

    /// Returns the number of keys in the table.
    pub fn len(&self) -> usize {
        self.state().index.len()
    }

    /// Returns whether the table contains no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that fit into the table.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns the number of keys that were evicted since the table was made.
    pub fn evicted(&self) -> u64 {
        self.table.cells[at::EVICTED].load(Ordering::Relaxed)
    }

    /// Returns the number of calls that added events since the table was made, including the calls
    /// for evicted keys.
    pub fn additions(&self) -> u64 {
        self.table.cells[at::USES].load(Ordering::Relaxed)
    }

    /// Returns the window of every key.
    pub fn window(&self) -> Duration {
        self.shape.window()
    }

    /// Returns the longest window that the table can count.
    pub fn span(&self) -> Duration {
        Shape { ticks: self.table.span, ..self.shape }.window()
    }

    /// Removes all keys and their events. They do not count as evicted.
    pub fn reset(&self) {
        let state = &mut self.state();
        while state.oldest != NONE {
            let number = state.oldest;
            state.remove(number);
            state.free.push(number);
        }
    }

    /// Assigns a slot to a new key. If there is no free slot, this evicts the least recently used
    /// key.
    fn admit(&self, state: &mut KeyedState, hash: u64, key: &[u8]) -> u32 {
        let number = match state.free.pop() {
            Some(number) => number,
            None if state.slots.len() < self.capacity() => {
                let number = state.slots.len();
                state.slots.push(self.table.slot(number));
                self.table.cells[at::BEGUN].store(number as u64 + 1, Ordering::Relaxed);
                number as u32 // At most MAX_KEYS.
            }
            None => {
                let oldest = state.oldest;
                state.remove(oldest);
                self.table.cells[at::EVICTED].fetch_add(1, Ordering::Relaxed);
                oldest
            }
        };
        let slot = &mut state.slots[number as usize];
        slot.hash = hash;
        slot.ring.begin(self.clock.settle());
        slot.write_key(key);
        state.index.insert_unique(hash, number, |&number| state.slots[number as usize].hash);
        number
    }

    fn ticks(&self, window: Duration) -> Result<u64, Error> {
        let shape = Shape::new(window, self.shape.accuracy())?;
        if shape.ticks > self.table.span {
            return Err(ErrorKind::OverSpan { window, span: self.span() }.into());
        }
        Ok(shape.ticks)
    }

    fn read<T>(&self, key: &[u8], read: impl FnOnce(&Ring, u64) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(key);
        let now = self.clock.now();
        let state = &self.state();
        let number = state.find(hash, key)?;
        let ring = &state.slots[number as usize].ring;
        self.turn(ring, now);
        Some(read(ring, now))
    }

    fn turn(&self, ring: &Ring, now: u64) {
        if ring.is_due(now) {
            ring.advance(self.clock.settle());
        }
    }

    fn state(&self) -> MutexGuard<'_, KeyedState> {
        self.state.lock()
    }
}

/// A search for the keys with the most events, in steps by [`KeyedWindows::rank`]. You can use this
/// for a table of many keys, because it does not lock the table for long.
///
/// Each count is correct at the time of its step. A key that is evicted between two steps can still
/// be in the ranking, and a new key can be missing.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{KeyedWindows, Ranking};
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
/// let clients = KeyedWindows::options(minute, second, 1000).build()?;
/// clients.add_and_count(b"alice", 2)?;
/// clients.add_and_count(b"bob", 1)?;
/// let mut ranking = Ranking::new(1);
/// while !clients.rank(&mut ranking, 100) {}
/// assert_eq!(ranking.finish(), [(b"alice".to_vec(), 2)]);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug)]
#[doc(hidden)]
pub struct Ranking {
    most: usize,
    /// The number of slots visited so far.
    seen: usize,
    /// The keys with the most events so far; the key with the fewest events is popped first.
    best: BinaryHeap<Reverse<RankedKey>>,
}

/// A key of a ranking, ordered by its events.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankedKey {
    count: u64,
    number: u32,
    key: Vec<u8>,
}

impl Ranking {
    /// Starts a ranking of the first `most` keys.
    pub fn new(most: usize) -> Self {
        Self { most, seen: 0, best: BinaryHeap::new() }
    }

    /// Returns the keys found so far and their events, in descending order of events.
    pub fn finish(self) -> Vec<(Vec<u8>, u64)> {
        let ranked = self.best.into_sorted_vec();
        // A key that moved to another slot between two steps may be visited twice.
        let mut keys = HashSet::with_capacity(ranked.len());
        let first: Vec<bool> = ranked.iter().map(|Reverse(it)| keys.insert(&it.key[..])).collect();
        let ranked = ranked.into_iter().zip(first).filter(|(_, first)| *first);
        ranked.map(|(Reverse(it), _)| (it.key, it.count)).collect()
    }

    fn offer(&mut self, count: u64, number: u32, slot: &Slot) {
        if self.best.len() < self.most {
            let mut key = Vec::new();
            slot.read_key(&mut key);
            self.best.push(Reverse(RankedKey { count, number, key }));
        } else if let Some(mut least) = self.best.peek_mut()
            && (least.0.count, least.0.number) < (count, number)
        {
            let least = &mut least.0;
            (least.count, least.number) = (count, number);
            slot.read_key(&mut least.key);
        }
    }
}

impl KeyedState {
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index
            .find(hash, |&number| {
                let slot = &self.slots[number as usize];
                slot.hash == hash && slot.has_key(key)
            })
            .copied()
    }

    /// Adds a slot, whose key is already written, to the index and the list.
    fn insert(&mut self, number: u32, hash: u64) {
        self.index.insert_unique(hash, number, |&number| self.slots[number as usize].hash);
        self.link_newest(number);
    }

    /// Removes a slot from the index and the list, and clears its key.
    fn remove(&mut self, number: u32) {
        let hash = self.slots[number as usize].hash;
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == number) {
            entry.remove();
        }
        self.unlink(number);
        self.slots[number as usize].clear();
    }

    fn link_newest(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        (slot.newer, slot.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = number,
            newest => self.slots[newest as usize].newer = number,
        }
        self.newest = number;
    }

    fn unlink(&mut self, number: u32) {
        let Slot { newer, older, .. } = self.slots[number as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }
}

impl Slot {
    /// Returns the length of the key in bytes; 0 for a free slot.
    fn key_length(&self) -> u64 {
        // Acquire: a thread that sees the length sees the key and the ring.
        self.cells[slot_at::KEY_LENGTH].load(Ordering::Acquire)
    }

    fn used(&self) -> u64 {
        self.cells[slot_at::USED].load(Ordering::Relaxed)
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.key_length() == key.len() as u64
            && words(key)
                .zip(&self.cells[slot_at::KEY..])
                .all(|(word, cell)| cell.load(Ordering::Relaxed) == word)
    }

    /// Reads the key, up to the end of the slot if its length is not valid.
    fn read_key(&self, key: &mut Vec<u8>) {
        key.clear();
        let length = usize::try_from(self.key_length()).unwrap_or(usize::MAX);
        for cell in &self.cells[slot_at::KEY..] {
            if key.len() >= length {
                break;
            }
            key.extend_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
        }
        key.truncate(length);
    }

    fn write_key(&self, key: &[u8]) {
        for (word, cell) in words(key).zip(&self.cells[slot_at::KEY..]) {
            cell.store(word, Ordering::Relaxed);
        }
        // Release: a thread that sees the length sees the key and the empty ring.
        self.cells[slot_at::KEY_LENGTH].store(key.len() as u64, Ordering::Release);
    }

    fn clear(&self) {
        self.cells[slot_at::KEY_LENGTH].store(0, Ordering::Release);
    }
}

/// Returns the words of a key; the last one is padded with zeros.
fn words(key: &[u8]) -> impl Iterator<Item = u64> {
    key.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    })
}

const KIND: Kind = Kind::new(*b"KEYS", 1);

/// The cells of a table's first line.
mod at {
    pub(super) const ACCURACY: usize = 0;
    pub(super) const SPAN: usize = 1;
    pub(super) const CAPACITY: usize = 2;
    pub(super) const KEY_BYTES: usize = 3;
    /// The additions of all keys, which number the uses of slots.
    pub(super) const USES: usize = 4;
    pub(super) const EVICTED: usize = 5;
    /// The number of slots that ever contained a key.
    pub(super) const BEGUN: usize = 6;
}

/// The cells of a slot.
mod slot_at {
    pub(super) const KEY_LENGTH: usize = 0;
    pub(super) const USED: usize = 1;
    pub(super) const KEY: usize = 8;
}

/// The names of the settings in error messages, in the order of `settings`.
const SETTINGS: [&str; 4] =
    ["an accuracy of", "a span in buckets of", "a capacity of", "a key size of"];

/// The number of slots that [`KeyedWindows::top`] visits before it releases the lock.
const RANKED_AT_ONCE: usize = 1024;

/// The number that stands for no slot.
const NONE: u32 = u32::MAX;
const MAX_KEYS: usize = 1 << 28;
