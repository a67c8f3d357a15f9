//! The segment: records that are reserved, filled, and published by one store.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::anchor::{Anchor, AnchorCells};
use crate::cells::Cells;
use crate::error::{Error, Flaw};
#[cfg(unix)]
use crate::file::MappedFile;
use crate::layout::{
    CELL_BYTES, Found, HEADER_BYTES, Kind, LAYOUT_VERSION, LINE_BYTES, MAGIC, MAX_LIMIT,
    NAME_BYTES, RECORD_BYTES, at, check_records, checksum, record_at, walk,
};
use crate::list;
use crate::lock;
use crate::lock::{Guard, Latch};
use crate::readings::Readings;
use crate::region::Region;
use crate::series;
use crate::sync::{Arc, AtomicU64, Ordering};

/// A handle to a segment. Clones share it; the last one that goes, cells included, releases the
/// memory, and the lock of the file.
#[derive(Debug, Clone)]
pub struct Segment {
    pub(crate) region: Arc<Region>,
    anchor: Anchor,
    /// The boot of the machine, as the anchor's cells have it.
    boot: [u8; 16],
    found: FoundAs,
    /// Whether power may have been lost since it was last in use.
    torn: bool,
    /// The end of the bytes that may hold anything when they are taken into use.
    dirty: u64,
    shared: Shared,
}

/// Whether other processes may have the file open too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// None may.
    Exclusive,
    /// All may that say so as well.
    Shared,
}

/// Who has the file, and what is left to do before it is used.
#[derive(Debug, Clone)]
struct Shared {
    access: Access,
    /// Whether this handle was the only one when the file was opened, and must put its families in
    /// order before they are used.
    unmended: Arc<Unmended>,
}

/// A mark, and who clears it. No lock of the standard library: a child that is forked while another
/// thread of its parent looks at it would wait for that thread, which it does not have.
#[derive(Debug, Default)]
struct Unmended {
    mark: AtomicBool,
    clearing: Latch,
    /// Held by the thread of this process that makes a record.
    making: Latch,
}

impl Shared {
    fn new(access: Access, unmended: bool) -> Self {
        let mark = AtomicBool::new(unmended);
        Self {
            access,
            unmended: Arc::new(Unmended {
                mark,
                clearing: Latch::default(),
                making: Latch::default(),
            }),
        }
    }
}

/// How a segment was when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundAs {
    New,
    Clean,
    Unclean,
}

/// How a file of a segment is made or opened.
#[derive(Debug, Clone)]
pub struct Options {
    limit: u64,
    size: u64,
    unmarked: bool,
    access: Access,
    readings: Option<Readings>,
}

impl Default for Options {
    fn default() -> Self {
        let access = Access::Exclusive;
        Self { limit: DEFAULT_LIMIT, size: 0, unmarked: false, access, readings: None }
    }
}

impl Options {
    /// The defaults: a limit of 256 MiB, no size in advance.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes up to which a new file may grow, at most 1 TiB. Whoever opens it reserves as many
    /// addresses; an existing file keeps the limit that it was made with.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The bytes that a new file gets at once, so that a full disk shows when it is made.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Leaves an existing file as it is, to the byte, until [`Segment::begin`] is called or a family
    /// is opened: for who may yet find that it cannot use what is in there.
    pub fn unmarked(mut self) -> Self {
        self.unmarked = true;
        self
    }

    /// Lets other processes open the file at the same time, if they share it too. All count in the
    /// same cells.
    pub fn shared(mut self) -> Self {
        self.access = Access::Shared;
        self
    }

    /// The clocks' readings, where time is injected.
    pub fn readings(mut self, readings: Readings) -> Self {
        self.readings = Some(readings);
        self
    }

    /// Opens the file at `path`, or makes it where there is none, and locks it for this process.
    ///
    /// # Errors
    /// A file that is no segment, is damaged, or is of a later layout is refused and left as it
    /// is; so are a file that another process holds, a directory, a full disk, and a place that
    /// cannot be written. [`Error`] says which and what to do.
    #[cfg(unix)]
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Segment, Error> {
        let path = path.as_ref();
        if cfg!(target_endian = "big") {
            let what = "segment files are little-endian, as this machine is not";
            return Err(Error::new(Some(path), Flaw::Request(what.into())));
        }
        if let Some(segment) = self.open_existing(path)? {
            return Ok(segment);
        }
        if let Some(segment) = self.create_new(path)? {
            return Ok(segment);
        }
        // Another process made it between the two looks; now it is there to be opened.
        self.open_existing(path)?.ok_or_else(|| Error::new(Some(path), Flaw::NoDirectory))
    }

    /// Opens the file at `path`, and makes none.
    ///
    /// # Errors
    /// As [`Options::open_or_create`], and where there is no file.
    #[cfg(unix)]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment, Error> {
        let path = path.as_ref();
        if cfg!(target_endian = "big") {
            let what = "segment files are little-endian, as this machine is not";
            return Err(Error::new(Some(path), Flaw::Request(what.into())));
        }
        let missing = || Flaw::Request("there is no such file; name one that is there".into());
        self.open_existing(path)?.ok_or_else(|| Error::new(Some(path), missing()))
    }

    #[cfg(unix)]
    fn open_existing(&self, path: &Path) -> Result<Option<Segment>, Error> {
        let Some((file, header, alone)) = MappedFile::open(path, self.access)? else {
            return Ok(None);
        };
        // Bytes that the header does not know of may be left from a growth that was cut off.
        let dirty = file.length()?.max(header.size);
        let region = Region::mapped(file, header.limit);
        check_records(&region).map_err(|flaw| Error::new(Some(path), flaw))?;
        let found = if header.clean { FoundAs::Clean } else { FoundAs::Unclean };
        let readings = self.now();
        let (anchor, rebooted) = if alone {
            anchor_cells(&region).resume(&readings)
        } else {
            // Whoever has the file open has seen this boot.
            (anchor_cells(&region).current(), false)
        };
        let torn = rebooted && !header.clean;
        let boot = readings.boot;
        let shared = Shared::new(self.access, alone);
        let region = Arc::new(region);
        let segment = Segment { region, anchor, boot, found, torn, dirty, shared };
        if alone {
            series::inspect(&segment)?;
        }
        if !self.unmarked || self.access == Access::Shared {
            segment.begin()?;
        }
        segment.share()?;
        Ok(Some(segment))
    }

    #[cfg(unix)]
    fn create_new(&self, path: &Path) -> Result<Option<Segment>, Error> {
        let fail = |what| Error::new(Some(path), Flaw::Request(what));
        let size = self.size.max(HEADER_BYTES).checked_next_multiple_of(LINE_BYTES);
        let Some(size) = size.filter(|&size| size <= self.limit && self.limit <= MAX_LIMIT) else {
            return Err(fail(format!(
                "a size of {} bytes and a limit of {} do not go together; \
                 the limit is at least the size and at most {MAX_LIMIT}",
                self.size, self.limit
            )));
        };
        let readings = self.now();
        let head = header(size, self.limit, &readings);
        let Some(file) = MappedFile::create(path, &head, size, self.limit)? else {
            return Ok(None);
        };
        let region = Region::mapped(file, self.limit);
        let segment = Segment::made(region, &readings, self.access);
        segment.share()?;
        Ok(Some(segment))
    }

    fn now(&self) -> Readings {
        self.readings.unwrap_or_else(Readings::now)
    }
}

impl Segment {
    /// A segment of `limit` bytes in private memory, which is taken page by page as it is used.
    ///
    /// # Errors
    /// A limit that holds no header, and memory that the system refuses.
    pub fn private(limit: u64) -> Result<Self, Error> {
        let limit = limit.checked_next_multiple_of(LINE_BYTES).filter(|&limit| limit <= MAX_LIMIT);
        let region = limit.filter(|&limit| limit >= HEADER_BYTES).and_then(Region::private);
        let (Some(limit), Some(region)) = (limit, region) else {
            let what = "its limit is too small for a header, or more than the system gives";
            return Err(Error::new(None, Flaw::Request(what.into())));
        };
        let readings = Readings::now();
        for (i, chunk) in header(limit, limit, &readings).chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().expect("a chunk has 8 bytes"));
            region.cell(i as u64 * CELL_BYTES).store(word, Ordering::Relaxed);
        }
        Ok(Self::made(region, &readings, Access::Exclusive))
    }

    /// A segment of at most `limit` bytes in memory that the children share which this process forks
    /// afterwards, and their children: all count in the same cells, and it ends with the last of
    /// them. It needs no directory that can be written.
    ///
    /// Memory is taken as the segment grows, and then all of it, so that no write finds none.
    ///
    /// # Errors
    /// A limit that holds no header, and a system that has no such memory: only Linux has.
    #[cfg(unix)]
    pub fn anonymous(limit: u64) -> Result<Self, Error> {
        let limit = limit.checked_next_multiple_of(LINE_BYTES);
        let limit = limit.filter(|limit| (HEADER_BYTES..=MAX_LIMIT).contains(limit));
        let Some(limit) = limit else {
            let what = format!("its limit must be {HEADER_BYTES} to {MAX_LIMIT} bytes");
            return Err(Error::new(None, Flaw::Request(what)));
        };
        let readings = Readings::now();
        let head = header(HEADER_BYTES, limit, &readings);
        let file = MappedFile::anonymous(&head, HEADER_BYTES, limit)?;
        Ok(Self::made(Region::mapped(file, limit), &readings, Access::Exclusive))
    }

    /// A segment whose header was just written.
    fn made(region: Region, readings: &Readings, access: Access) -> Self {
        let anchor = anchor_cells(&region).begin(readings);
        let (found, boot) = (FoundAs::New, readings.boot);
        let shared = Shared::new(access, false);
        Self { region: Arc::new(region), anchor, boot, found, torn: false, dirty: 0, shared }
    }

    /// Lets others open the file, if it is to be shared.
    fn share(&self) -> Result<(), Error> {
        #[cfg(unix)]
        if self.shared.access == Access::Shared
            && let Some(file) = self.region.file()
        {
            return file.share();
        }
        Ok(())
    }

    /// Renames the file at `path`, which nobody may have open, to the first of the names that is
    /// free, and returns that name: for a file that is damaged, so that another can be made in its
    /// place.
    ///
    /// # Errors
    /// A file that another process has open, and the file system's.
    #[cfg(unix)]
    pub fn set_aside(
        path: impl AsRef<Path>,
        names: impl Iterator<Item = PathBuf>,
    ) -> Result<PathBuf, Error> {
        MappedFile::set_aside(path.as_ref(), names)
    }

    /// Opens or makes a file with the default [`Options`].
    ///
    /// # Errors
    /// Those of [`Options::open_or_create`].
    #[cfg(unix)]
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open_or_create(path)
    }

    /// The bytes that private memory needs for records of so many cells each.
    pub fn bytes_for(records: &[usize]) -> u64 {
        records.iter().fold(HEADER_BYTES, |sum, &cells| sum.saturating_add(record_bytes(cells)))
    }

    /// The bytes that a record of so many cells takes.
    pub fn record_bytes(cells: usize) -> u64 {
        record_bytes(cells)
    }

    /// The file, where it lies in one.
    pub fn path(&self) -> Option<&Path> {
        self.region.path()
    }

    /// Whether it lies in memory of this process alone: a child of a fork has a copy.
    pub fn is_private(&self) -> bool {
        #[cfg(unix)]
        return self.region.file().is_none();
        #[cfg(not(unix))]
        true
    }

    /// The bytes in use by records, header included.
    pub fn used(&self) -> u64 {
        self.region.cell(at::CURSOR as u64).load(Ordering::Acquire)
    }

    /// The bytes of the file, or of private memory.
    pub fn size(&self) -> u64 {
        self.region.cell(at::SIZE as u64).load(Ordering::Acquire)
    }

    /// The bytes up to which it may grow.
    pub fn limit(&self) -> u64 {
        self.region.limit()
    }

    /// Its time, which goes on through restarts and reboots.
    pub fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Notes that counting begins: whoever opens the file before it is closed again learns that it
    /// [was left open](Segment::was_left_open). Opening does this by itself, unless it was told
    /// [not to](Options::unmarked).
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&self) -> Result<(), Error> {
        if self.is_unmended() {
            let _clearing = self.shared.unmended.clearing.lock();
            if self.is_unmended() {
                self.mend()?;
                // Release: who finds it mended finds what that changed.
                self.shared.unmended.mark.store(false, Ordering::Release);
            }
        }
        let anchor = anchor_cells(&self.region);
        // Others that share the file read it meanwhile: it never shows half an anchor to them.
        if !anchor.has(self.anchor, self.boot) {
            anchor.store(self.anchor, self.boot);
        }
        self.region.cell(at::CLEAN as u64).store(0, Ordering::Release);
        // On the disk before anything else: after a power loss, the file must not look closed.
        self.region.sync(0..HEADER_BYTES)
    }

    /// As [`Segment::begin`], unless that is done.
    pub(crate) fn begin_once(&self) -> Result<(), Error> {
        if self.is_unmended() { self.begin() } else { Ok(()) }
    }

    fn is_unmended(&self) -> bool {
        // Acquire: as above.
        self.shared.unmended.mark.load(Ordering::Acquire)
    }

    /// Puts the families in order.
    fn mend(&self) -> Result<(), Error> {
        if self.torn {
            // Tokens may be in there that were drawn after the count of them that is left: no process
            // shall have one again, and be taken for the one that died.
            let tokens = self.region.cell(at::TOKENS as u64);
            tokens.fetch_add(MOST_LOST_TOKENS, Ordering::Relaxed);
        }
        series::mend(self)?;
        for at in [at::GROWING, at::GROWING_BROKEN] {
            self.region.cell(at as u64).store(0, Ordering::Relaxed);
        }
        if self.torn {
            // What was cut off must stay so: the bytes behind the cursor go to others now.
            self.region.sync(0..self.size())?;
        }
        Ok(())
    }

    /// Whether this handle made it.
    pub fn is_new(&self) -> bool {
        self.found == FoundAs::New
    }

    /// Whether the last process that had it ended without closing it. Nothing is lost by that,
    /// unless the machine lost power as well.
    pub fn was_left_open(&self) -> bool {
        self.found == FoundAs::Unclean
    }

    /// Whether the machine may have lost power while it was in use: it was left open, and the
    /// machine was booted since. Pages of it may then be of different times.
    pub fn may_have_lost_power(&self) -> bool {
        self.torn
    }

    /// Lets one thread at a time, of one process, look for a record and make it where there is none.
    /// It is not for whoever makes a family meanwhile.
    ///
    /// # Errors
    /// The system's, where it does not let the process take a lock that its death releases.
    pub fn making(&self) -> Result<Making<'_>, Error> {
        // The threads of this process first, and then, where a file is not left as it is, those of
        // others: an exclusive one, and memory without a name, may have come to children of forks.
        let own = self.shared.unmended.making.lock();
        if self.is_private() || (self.shared.access == Access::Exclusive && self.is_unmended()) {
            return Ok(Making { _others: None, _own: own });
        }
        let (word, broken) = self.making_words();
        let token = self.region.token()?;
        let (others, _) = lock::acquire(word, broken, token, |token| self.region.is_alive(token));
        // Whoever died here has left a record that nobody finds, or a whole one.
        broken.store(0, Ordering::Relaxed);
        Ok(Making { _others: Some(others), _own: own })
    }

    /// A number that tells this process from all others that have, or had, the segment: a child of a
    /// fork has another one.
    ///
    /// # Errors
    /// The system's, where it does not let the process take a lock that its death releases.
    pub fn process(&self) -> Result<u64, Error> {
        self.region.token()
    }

    /// Whether the process of such a number lives. Private memory knows of its own process alone.
    pub fn is_alive(&self, process: u64) -> bool {
        self.region.is_alive(process)
    }

    /// The words of the lock that is held by whoever makes a family.
    pub(crate) fn making_words(&self) -> (&AtomicU64, &AtomicU64) {
        let region = &self.region;
        (region.cell(at::MAKING as u64), region.cell(at::MAKING_BROKEN as u64))
    }

    /// The offset of the newest record.
    pub(crate) fn root(&self) -> u64 {
        self.region.cell(at::ROOT as u64).load(Ordering::Acquire)
    }

    /// A number that no other segment has, with which keys are hashed.
    pub(crate) fn seed(&self) -> u64 {
        self.region.cell(at::INSTANCE as u64).load(Ordering::Relaxed)
    }

    /// Reserves a record of `cells` zeroed cells. It is seen by nobody until it is published;
    /// should the process die before, its bytes are lost and nothing else.
    ///
    /// # Errors
    /// A name longer than [`NAME_BYTES`], a record that does not fit under the limit, a full disk.
    pub fn reserve(&self, kind: Kind, name: &str, cells: usize) -> Result<Draft, Error> {
        if name.len() > NAME_BYTES {
            let what = format!(
                "the record name {name:?} has {} bytes; at most {NAME_BYTES} fit",
                name.len()
            );
            return Err(Error::new(self.path(), Flaw::Request(what)));
        }
        if self.region.cell(at::CLEAN as u64).load(Ordering::Relaxed) != 0 {
            self.begin()?;
        }
        let length = record_bytes(cells);
        let offset = self.allocate(length)?;
        self.clear(offset, length);
        let word = |at: usize, value: u64| {
            self.region.cell(offset + at as u64).store(value, Ordering::Relaxed);
        };
        word(record_at::LENGTH, length);
        word(record_at::KIND, kind.to_bits());
        let mut text = [0; RECORD_BYTES as usize - record_at::NAME_LENGTH];
        text[0] = name.len() as u8; // At most NAME_BYTES.
        text[1..=name.len()].copy_from_slice(name.as_bytes());
        for (i, chunk) in text.chunks_exact(8).enumerate() {
            let bytes = chunk.try_into().expect("a chunk has 8 bytes");
            word(record_at::NAME_LENGTH + 8 * i, u64::from_le_bytes(bytes));
        }
        let found = Found { offset, length, kind, name: name.to_owned(), next: 0 };
        Ok(Draft { segment: self.clone(), record: self.record(found) })
    }

    /// The records, newest first.
    ///
    /// # Errors
    /// An item is an error where a record contradicts the layout.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, Error>> {
        walk(&*self.region).map(|found| match found {
            Ok(found) => Ok(self.record(found)),
            Err(flaw) => Err(Error::new(self.path(), flaw)),
        })
    }

    /// The newest record of that kind's tag and that name.
    ///
    /// # Errors
    /// A record of that tag and name in another version of the kind, and a damaged list.
    pub fn find(&self, kind: Kind, name: &str) -> Result<Option<Record>, Error> {
        for record in self.records() {
            let record = record?;
            if record.kind().tag() != kind.tag() || record.name() != name {
                continue;
            }
            if record.kind() != kind {
                let what = format!(
                    "record {name:?} is of kind {:?} and this program reads {kind:?}",
                    record.kind()
                );
                return Err(Error::new(self.path(), Flaw::Mismatch(what)));
            }
            return Ok(Some(record));
        }
        Ok(None)
    }

    /// Writes everything to the disk and waits for it: what was counted before is there after a
    /// power loss. Threads go on counting meanwhile.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> Result<(), Error> {
        self.sync_at(&Readings::now())
    }

    /// As [`Segment::sync`], at the time of the given readings.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync_at(&self, readings: &Readings) -> Result<(), Error> {
        anchor_cells(&self.region).see(self.anchor, readings);
        self.region.sync(0..self.size())
    }

    /// Notes that everything is in order, and syncs. Cells may still be read; whoever writes to
    /// them after this undoes the mark's meaning.
    ///
    /// # Errors
    /// The disk's.
    pub fn close(&self) -> Result<(), Error> {
        self.sync()?;
        #[cfg(unix)]
        if self.shared.access == Access::Shared
            && let Some(file) = self.region.file()
            && !file.is_alone()
        {
            // Others go on counting: whoever is the last one marks it.
            return self.share();
        }
        self.mark_clean()?;
        self.share()
    }

    fn mark_clean(&self) -> Result<(), Error> {
        self.region.cell(at::CLEAN as u64).store(1, Ordering::Release);
        self.region.sync(0..HEADER_BYTES)
    }

    /// Takes so many zeroed words that no record describes. Their offset is in words.
    ///
    /// # Errors
    /// Those of [`Segment::reserve`], and a place that a word offset of 32 bits does not reach.
    pub(crate) fn take(&self, words: u64) -> Result<u32, Error> {
        let full = |length| {
            let flaw = Flaw::Full { wanted: length, limit: self.limit().min(u32::MAX.into()) };
            Error::new(self.path(), flaw)
        };
        let length = words
            .checked_mul(CELL_BYTES)
            .and_then(|bytes| bytes.checked_next_multiple_of(LINE_BYTES))
            .ok_or_else(|| full(u64::MAX))?;
        if self.used().saturating_add(length) / CELL_BYTES > u64::from(u32::MAX) {
            return Err(full(length));
        }
        let offset = self.allocate(length)?;
        // Other threads may have taken some meanwhile, in vain if this ends past what word offsets
        // reach.
        if (offset + length) / CELL_BYTES > u64::from(u32::MAX) {
            return Err(full(length));
        }
        self.clear(offset, length);
        u32::try_from(offset / CELL_BYTES).map_err(|_| full(length))
    }

    /// Zeroes bytes that were just taken, where they may hold anything: a power loss may have taken
    /// the cursor back before bytes that were in use.
    fn clear(&self, offset: u64, length: u64) {
        let end = (offset + length).min(self.dirty);
        for at in (offset..end).step_by(CELL_BYTES as usize) {
            self.region.cell(at).store(0, Ordering::Relaxed);
        }
    }

    /// Takes `length` bytes, a multiple of a line, from behind the cursor.
    fn allocate(&self, length: u64) -> Result<u64, Error> {
        let cursor = self.region.cell(at::CURSOR as u64);
        let mut offset = cursor.load(Ordering::Relaxed);
        loop {
            let end =
                offset.checked_add(length).filter(|&end| end <= self.limit()).ok_or_else(|| {
                    let flaw = Flaw::Full { wanted: length, limit: self.limit() };
                    Error::new(self.path(), flaw)
                })?;
            self.grow_to(end)?;
            match cursor.compare_exchange_weak(offset, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(offset),
                Err(found) => offset = found,
            }
        }
    }

    fn grow_to(&self, end: u64) -> Result<(), Error> {
        let size = self.region.cell(at::SIZE as u64);
        if end <= size.load(Ordering::Acquire) {
            return Ok(());
        }
        let word = |at: usize| self.region.cell(at as u64);
        let (growing, broken) = (word(at::GROWING), word(at::GROWING_BROKEN));
        let token = self.region.token()?;
        // Whoever died here has made the file longer than it says, which harms nothing.
        let _growing = lock::acquire(growing, broken, token, |token| self.region.is_alive(token)).0;
        if end <= size.load(Ordering::Acquire) {
            return Ok(());
        }
        let step = (size.load(Ordering::Relaxed) / 2).clamp(LEAST_GROWTH, MOST_GROWTH);
        let wanted = end.max(size.load(Ordering::Relaxed).saturating_add(step)).min(self.limit());
        let wanted = wanted / LINE_BYTES * LINE_BYTES;
        self.region.grow(wanted)?;
        // Release: the bytes are there before the size says so.
        size.fetch_max(wanted, Ordering::Release);
        Ok(())
    }

    fn record(&self, found: Found) -> Record {
        let cells = Cells::new(&self.region, found.cells(), found.cell_count());
        Record { found, cells }
    }
}

/// Held by the one thread that [makes a record](Segment::making).
#[must_use]
pub struct Making<'s> {
    _others: Option<Guard<'s>>,
    _own: Guard<'s>,
}

/// A record that is not yet published.
#[derive(Debug)]
#[must_use = "a draft that is not published is lost space"]
pub struct Draft {
    segment: Segment,
    record: Record,
}

impl Draft {
    /// Its cells, zeroed.
    pub fn cells(&self) -> &Cells {
        &self.record.cells
    }

    /// Makes the record visible to everyone who walks the segment, now and after a restart. What
    /// is in its cells by now is on the disk before, so that no power loss shows it without them.
    ///
    /// # Errors
    /// The disk's, where the segment lies in a file.
    pub fn publish(self) -> Result<Record, Error> {
        let region = &self.segment.region;
        let Found { offset, length, .. } = self.record.found;
        let root = region.cell(at::ROOT as u64);
        let next = region.cell(offset + record_at::NEXT as u64);
        list::push(root, next, offset, || region.sync(offset..offset + length))?;
        region.sync(0..HEADER_BYTES)?;
        Ok(self.record)
    }
}

/// A published record.
#[derive(Debug, Clone)]
pub struct Record {
    found: Found,
    cells: Cells,
}

impl Record {
    /// What it holds.
    pub fn kind(&self) -> Kind {
        self.found.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// The byte offset of its first cell.
    pub(crate) fn offset(&self) -> u64 {
        self.found.cells()
    }

    /// Its cells. Their number is what was asked for, rounded up to a cache line.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }
}

const DEFAULT_LIMIT: u64 = 256 << 20;
/// More processes than begin between two moments at which the system writes a page.
const MOST_LOST_TOKENS: u64 = 1 << 20;
/// The least and the most bytes by which a file grows at once.
const LEAST_GROWTH: u64 = 64 << 10;
const MOST_GROWTH: u64 = 16 << 20;

fn record_bytes(cells: usize) -> u64 {
    (cells as u64)
        .saturating_mul(CELL_BYTES)
        .checked_next_multiple_of(LINE_BYTES)
        .map_or(u64::MAX, |bytes| bytes.saturating_add(RECORD_BYTES))
}

fn anchor_cells(region: &Region) -> AnchorCells<'_> {
    let cell = |at: usize| -> &AtomicU64 { region.cell(at as u64) };
    AnchorCells {
        boot: [cell(at::BOOT), cell(at::BOOT + 8)],
        anchor: cell(at::ANCHOR),
        seen_time: cell(at::SEEN_TIME),
        seen_wall: cell(at::SEEN_WALL),
    }
}

/// The bytes of a new header.
fn header(size: u64, limit: u64, readings: &Readings) -> [u8; HEADER_BYTES as usize] {
    let mut head = [0; HEADER_BYTES as usize];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(at::MAGIC, &MAGIC);
    put(at::VERSION, &LAYOUT_VERSION.to_le_bytes());
    put(at::HEADER_BYTES, &(HEADER_BYTES as u32).to_le_bytes());
    put(at::LIMIT, &limit.to_le_bytes());
    let created = u64::try_from(readings.wall.as_nanos()).unwrap_or(u64::MAX);
    put(at::CREATED, &created.to_le_bytes());
    put(at::INSTANCE, &instance());
    put(at::SIZE, &size.to_le_bytes());
    put(at::CURSOR, &HEADER_BYTES.to_le_bytes());
    let sum = checksum(&head[..at::CHECKSUM]);
    head[at::CHECKSUM..at::CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
    head
}

/// 16 bytes that no other segment has.
fn instance() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    // The standard library seeds its hasher from the system's random numbers, once a thread: children
    // of one thread have the same, and differ by their ids.
    let own = (std::process::id(), std::time::SystemTime::now());
    let draw = |salt: u8| RandomState::new().hash_one((salt, own)).to_le_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&draw(0));
    bytes[8..].copy_from_slice(&draw(1));
    bytes
}
