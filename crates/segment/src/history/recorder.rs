//! The writer of the flight recorder. Once a second, it reads the series and adds a frame to the
//! ring.
//!
//! Only one process holds the lead, and another one takes over when it dies. The recorder does not
//! slow down counting, because it walks the series like a scrape. After it was opened, it waits for
//! no lock.

use std::ops::ControlFlow;
use std::time::Duration;

use super::HISTORY;
use super::code::Coder;
use super::frame::{Entry, MAX_ALL_CELLS, SeriesId, SeriesList, most_words};
use super::ring::{Geometry, Position, head};
use crate::cells::Cells;
use crate::clock::{Clock, PreciseClock};
use crate::error::{Error, ErrorKind};
use crate::layout::RECORD_BYTES;
use crate::lease::{LeaderLease, RestingLease};
use crate::readings::nanoseconds;
use crate::segment::{Draft, Record, Segment};
use crate::series::cells::is_float;
use crate::series::{Cursor, Family, Schema, SeriesCells};
use crate::sync::Ordering;

/// Options of the flight recorder: which series to record, how often, and in how much memory.
///
/// The memory is reserved when the recorder of a segment is created. This size cannot be changed
/// later.
#[derive(Debug, Clone)]
pub struct Options {
    bytes: u64,
    series: usize,
    interval: Duration,
    families: Vec<String>,
    filter: fn(&Schema) -> bool,
    gives_way: bool,
}

const BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=64 << 20;
const SERIES: std::ops::RangeInclusive<usize> = 1..=MAX_ALL_CELLS;
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults: up to 1,000 series of all families, each second, in 4 MiB.
    pub fn new() -> Self {
        let interval = Duration::from_secs(1);
        let (bytes, series, families) = (4 << 20, 1000, Vec::new());
        Self { bytes, series, interval, families, filter: |_| true, gives_way: false }
    }

    /// Sets the maximum number of bytes that the recorder may use in the segment, from 16 KiB to 64
    /// MiB. When they are full, the oldest sixteenth is overwritten. How long your history reaches
    /// back depends on the changes: for example, a counter that grows evenly takes one byte for
    /// each tick, and a constant one almost none.
    ///
    /// If the segment already contains a recorder, this setting is ignored.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the maximum number of series to record, from 1 to 16,384. The first series are
    /// recorded, in the order of the families and of the slots in each family. A series is dropped,
    /// too, if all series together would hold more than 16,384 cells, or if one tick could take
    /// more than a sixteenth of the bytes. You can read the number of dropped series with
    /// [`Recorder::dropped`].
    pub fn series(mut self, series: usize) -> Self {
        self.series = series;
        self
    }

    /// Sets the time from one tick to the next, from 1 ms to an hour.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the names of the families to record. Without names, all families are recorded.
    pub fn families<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.families = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a filter on families. A layer above can use this to exclude families for internal use.
    pub fn filter(mut self, filter: fn(&Schema) -> bool) -> Self {
        self.filter = filter;
        self
    }

    /// Gives the lead back after each tick. Use this if your process records the segment of another
    /// program. If that program starts its own recorder, it leads from its next tick on, even while
    /// your process is stopped between two ticks.
    pub fn give_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// Opens the recorder of a segment, or creates it. Call [`Recorder::tick`] to record.
    ///
    /// # Errors
    /// If the options are out of bounds, the segment is full, or the recorder is of another
    /// version. Also returns the errors of the disk and of the registration lock.
    pub fn open(&self, segment: &Segment) -> Result<Recorder, Error> {
        self.check().map_err(|reason| Error::request(segment, reason))?;
        segment.ensure_marked_open()?;
        let record = match segment.find(HISTORY, "")? {
            Some(record) => record,
            None if self.gives_way => self.make_as_guest(segment)?,
            None => {
                // All processes of a program may get here at once. This lock keeps two of them from
                // reserving the bytes.
                let _registration = segment.lock_registration()?;
                match segment.find(HISTORY, "")? {
                    Some(record) => record,
                    None => self.reserve(segment)?.publish()?,
                }
            }
        };
        let cells = record.cells().clone();
        let geometry = cells.first().map_or(0, |cell| cell.load(Ordering::Relaxed));
        let geometry = Geometry::unpack(geometry)
            .filter(|geometry| geometry.all_words() <= cells.len())
            .ok_or_else(|| {
                Error::damaged(segment, "the flight recorder's chunks do not lie in its record")
            })?;
        Ok(Recorder {
            clock: PreciseClock::anchored(segment.anchor()),
            segment: segment.clone(),
            options: self.clone(),
            interval: nanoseconds(self.interval),
            cells,
            geometry,
            lead: None,
            rest: None,
            families: Vec::new(),
            newest: 0,
            last: SeriesList::default(),
            next: SeriesList::default(),
            coder: Coder::default(),
            frame: Vec::new(),
            texts: Vec::new(),
            until_count: 0,
        })
    }

    /// Checks the options. The error explains the fault and the valid range. [`Options::open`]
    /// checks them, too: call this only if you handle the errors of options and of segments
    /// differently.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let Self { bytes, series, interval, .. } = self;
        if !BYTES.contains(bytes) {
            return Err(format!(
                "{bytes} bytes for the flight recorder are out of range: use {} to {}",
                BYTES.start(),
                BYTES.end()
            ));
        }
        if !SERIES.contains(series) {
            return Err(format!(
                "{series} series for the flight recorder are out of range: use 1 to {MAX_ALL_CELLS}"
            ));
        }
        if !INTERVALS.contains(interval) {
            return Err(format!(
                "an interval of {interval:?} for the flight recorder is out of range: use 1 ms to an \
                 hour"
            ));
        }
        Ok(())
    }

    /// Creates the recorder of another program's segment. This holds no lock while it waits for the
    /// disk, and returns reserved bytes that stay unused, because the program needs them.
    fn make_as_guest(&self, segment: &Segment) -> Result<Record, Error> {
        // Fail before any bytes are reserved if the lock cannot be taken.
        drop(segment.lock_registration()?);
        let draft = self.reserve(segment)?;
        let record = publish_as_guest(segment, &draft);
        let is_own = |record: &Record| record.cells().as_ptr() == draft.cells().as_ptr();
        if !record.as_ref().is_ok_and(is_own) {
            draft.give_back();
        }
        record
    }

    fn reserve(&self, segment: &Segment) -> Result<Draft, Error> {
        let cells = (self.bytes - RECORD_BYTES) / 8;
        // `check` has ensured that there are enough bytes.
        let geometry = Geometry::of_cells(cells).ok_or_else(|| Error::full(segment, self.bytes))?;
        let draft = segment.reserve(HISTORY, "", geometry.all_words());
        let draft = draft.map_err(|error| match error.kind() {
            ErrorKind::Full { limit, .. } => Error::request(
                segment,
                format!(
                    "the {} bytes for the flight recorder do not fit into its limit of {limit} \
                     bytes: record with fewer bytes, or create it with a higher limit",
                    self.bytes
                ),
            ),
            _ => error,
        })?;
        draft.cells()[head::GEOMETRY].store(geometry.pack(), Ordering::Relaxed);
        Ok(draft)
    }

    /// Returns whether to record the family. You can list it under its own name or under the one
    /// that scrapes show, for example `requests_total`.
    fn has(&self, schema: &Schema) -> bool {
        let is_named = |name: &String| {
            *name == schema.name || name.strip_suffix("_total") == Some(schema.name.as_str())
        };
        (self.filter)(schema) && (self.families.is_empty() || self.families.iter().any(is_named))
    }
}

/// How often a guest retries after its program published a record in the meantime.
const TRIES: usize = 16;

/// Publishes the record of a recorder. If the program has published one in the meantime, this
/// returns the program's record.
fn publish_as_guest(segment: &Segment, draft: &Draft) -> Result<Record, Error> {
    for _ in 0..TRIES {
        let newest = draft.prepare()?;
        let _registration = segment.lock_registration()?;
        let found = segment.find(HISTORY, "")?;
        if let Some(record) = found.or_else(|| draft.publish_before(newest)) {
            return Ok(record);
        }
    }
    Err(Error::request(segment, "its program makes metrics all the time: try again later".into()))
}

/// Records the series of a segment, unless another process already records them.
#[derive(Debug)]
pub struct Recorder {
    segment: Segment,
    clock: PreciseClock,
    options: Options,
    interval: u64,
    cells: Cells,
    geometry: Geometry,
    /// The writer's position, while this process holds the lead.
    lead: Option<(LeaderLease, Position)>,
    /// The position to resume from, if this process gave way and no other process has led since.
    rest: Option<(RestingLease, Position)>,
    /// The families to record, sorted by the offsets of their records.
    families: Vec<Family>,
    /// The newest record that was examined.
    newest: u64,
    /// The last recorded tick; empty if the next frame must be a key frame.
    last: SeriesList,
    next: SeriesList,
    coder: Coder,
    frame: Vec<u64>,
    texts: Vec<u8>,
    /// The number of ticks until the dropped series are counted again.
    until_count: u32,
}

/// Dropped series are counted only this often, because counting them takes longer than a tick.
const TICKS_PER_COUNT: u32 = 60;

impl Recorder {
    /// Records the current series. Returns false if another process records, or if this tick was
    /// recorded before.
    ///
    /// This call waits for no lock. If your process is stopped and skips ticks, the recording
    /// contains a gap.
    ///
    /// # Errors
    /// If this process cannot be marked as alive, or if the families cannot be read. In the latter
    /// case, the tick still records the families that are known.
    pub fn tick(&mut self) -> Result<bool, Error> {
        self.tick_at(self.clock.now(), self.clock.unix())
    }

    /// Like [`Recorder::tick`], with a given time of the segment and of the wall clock.
    ///
    /// # Errors
    /// Returns the errors of [`Recorder::tick`].
    pub fn tick_at(&mut self, now: u64, unix: u64) -> Result<bool, Error> {
        let ticked = self.tick_leading(now, unix);
        if self.options.gives_way
            && let Some((lease, position)) = self.lead.take()
        {
            self.rest = lease.rest().map(|rest| (rest, position));
        }
        ticked
    }

    fn tick_leading(&mut self, now: u64, unix: u64) -> Result<bool, Error> {
        let late = now % self.interval;
        let time = now - late;
        let Some(mut position) = self.lead()? else { return Ok(false) };
        if time == position.time {
            return Ok(false);
        }
        let looked = self.look_for_families();
        let is_full = self.collect();
        self.count_dropped(is_full);
        self.encode(time);
        if !position.has_room(self.frame.len()) {
            position.start(&self.cells, time, unix.wrapping_sub(late));
            self.last.clear();
            self.encode(time);
        }
        position.commit(&self.cells, &mut self.frame);
        position.time = time;
        std::mem::swap(&mut self.last, &mut self.next);
        if let Some((_, own)) = &mut self.lead {
            *own = position;
        }
        looked.map(|()| true)
    }

    /// Returns the time until the next tick is due.
    pub fn until_next(&self) -> Duration {
        Duration::from_nanos(self.interval - self.clock.now() % self.interval)
    }

    /// Returns whether this process held the lead at the last tick.
    pub fn is_leading(&self) -> bool {
        self.rest.is_some() || self.lead.as_ref().is_some_and(|(lease, _)| lease.is_held())
    }

    /// Returns the number of dropped series, counted within the last minute.
    pub fn dropped(&self) -> u64 {
        self.cells[head::DROPPED].load(Ordering::Relaxed)
    }

    /// Returns the position of the next frame; `None` if another process holds the lead.
    fn lead(&mut self) -> Result<Option<Position>, Error> {
        if let Some((rest, position)) = self.rest.take()
            && let Some(lease) = rest.resume()
        {
            self.lead = Some((lease, position));
            return Ok(Some(position));
        }
        if let Some((lease, position)) = &self.lead
            && lease.is_held()
        {
            return Ok(Some(*position));
        }
        self.lead = None;
        let Some(lease) = self.segment.lead(&self.cells, head::OWNER)? else { return Ok(None) };
        let position = Position::find(&self.cells, self.geometry);
        self.cells[head::INTERVAL].store(self.interval, Ordering::Relaxed);
        self.last.clear();
        self.until_count = 0;
        self.lead = Some((lease, position));
        Ok(Some(position))
    }

    /// Adds the families registered since the last tick.
    fn look_for_families(&mut self) -> Result<(), Error> {
        if self.segment.newest() == self.newest {
            return Ok(());
        }
        let (families, newest) = self.segment.families_since(self.newest)?;
        for family in families.into_iter().filter(|family| self.options.has(family.schema())) {
            // A damaged list of records may contain a record twice.
            if let Err(at) = self.families.binary_search_by_key(&family.id(), Family::id) {
                self.families.insert(at, family);
            }
        }
        self.newest = newest;
        Ok(())
    }

    /// Reads all series to record. Returns whether some had to be dropped.
    fn collect(&mut self) -> bool {
        let Self { families, next, texts, options, geometry, .. } = self;
        next.clear();
        let room = geometry.frame_words();
        for family in &*families {
            let schema = family.schema();
            let record = family.id() - RECORD_BYTES;
            let (cells, floats) = recorded(schema);
            let flow = family.walk(&mut Cursor::default(), texts, |view| {
                let series = next.entries.len() + 1;
                let all = next.values.len() + cells;
                if series > options.series || all > MAX_ALL_CELLS || most_words(series, all) > room
                {
                    return ControlFlow::Break(());
                }
                let id = SeriesId { family: record, id: view.id };
                // The cast is safe, because a series contains at most 512.
                let entry = Entry::new(id, cells as u16, floats);
                next.push(entry, (0..cells).map(|cell| bits(schema, &view.cells, cell)));
                ControlFlow::Continue(())
            });
            if flow.is_break() {
                return true;
            }
        }
        false
    }

    /// Writes the frame of the collected series.
    fn encode(&mut self, time: u64) {
        // The order of a walk.
        let order = |series: SeriesId| (series.family, series.id as u32);
        let Self { last, next, coder, frame, .. } = self;
        next.encode(last, time, order, coder, frame);
    }

    fn count_dropped(&mut self, is_full: bool) {
        let dropped = match (is_full, self.until_count) {
            (false, _) => {
                self.until_count = 0;
                0
            }
            (true, 0) => {
                self.until_count = TICKS_PER_COUNT;
                let shown = |family: &Family| family.len().saturating_sub(family.hidden());
                let all = self.families.iter().map(shown).fold(0, u64::saturating_add);
                all.saturating_sub(self.next.entries.len() as u64).max(1)
            }
            (true, _) => {
                self.until_count -= 1;
                return;
            }
        };
        self.cells[head::DROPPED].store(dropped, Ordering::Relaxed);
    }
}

/// Returns the number of cells to record for each series, and the bits of its float cells. The sums
/// of all pairs are recorded as a single sum, because each sum that changes takes about 8 bytes a
/// tick.
fn recorded(schema: &Schema) -> (usize, u64) {
    match usize::from(schema.pairs) {
        0 => (schema.cells.into(), schema.floats),
        pairs => (usize::from(schema.cells) - pairs + 1, 1),
    }
}

/// Returns the bits to record for the recorded cell with this number.
fn bits(schema: &Schema, cells: &SeriesCells<'_>, number: usize) -> u64 {
    let pairs = usize::from(schema.pairs);
    let cell = match number {
        number if pairs == 0 => number,
        0 => return cells.sum_of_pairs().to_bits(),
        number if number <= pairs => 2 * number - 1,
        number => number + pairs - 1,
    };
    match (schema.additive, is_float(schema.floats, cell)) {
        (true, false) => cells.sum(cell),
        (true, true) => cells.sum_float(cell).to_bits(),
        (false, _) => cells.plain(cell).load(Ordering::Relaxed),
    }
}
