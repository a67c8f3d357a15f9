//! The operations on an open segment: allocating and growing, locking, and creating records.
//!
//! `open.rs` opens and creates files, and `disk.rs` writes them to the disk. `record.rs` contains
//! the records: you reserve one, fill it, and publish it with one store. `contents.rs` is the
//! interface to the code that knows the meaning of the records.

#![cfg_attr(not(unix), allow(unused_imports, reason = "fewer are used there"))]

mod contents;
#[cfg(unix)]
mod copy;
mod disk;
mod open;
mod record;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use self::contents::{Contents, Job, ToDo};
#[cfg(unix)]
pub(crate) use self::copy::Steps;
use self::disk::DiskState;
use self::open::{DEFAULT_LOCK_TIMEOUT, InitialState};
pub use self::open::{Options, SetAside};
pub use self::record::{Draft, Record};
use crate::access::Access;
use crate::anchor::{Anchor, AnchorCells};
use crate::cells::Cells;
use crate::clock::TestClock;
use crate::error::{Error, ErrorKind};
#[cfg(unix)]
use crate::file::{self, MappedFile};
#[cfg(unix)]
use crate::fork;
use crate::fork::ForkSafeMutex;
use crate::layout::{
    HEADER_BYTES, Kind, LAYOUT_VERSION, LINE_BYTES, MAGIC, MAX_LIMIT, NAME_BYTES, RECORD_BYTES,
    RecordHeader, TEXT_BYTES, at, check_at, checksum, record_at, record_checksum, walk,
};
use crate::lock::{self, BusyReason, Guard, StuckLock};
use crate::offset::{self, ByteOffset, CELL_BYTES, WordOffset};
#[cfg(unix)]
use crate::presence::{LockDeadline, LockedFile};
use crate::readings::Readings;
use crate::region::Region;
use crate::sync::{Arc, AtomicU64, Ordering};

/// A handle to a segment. Clones share the segment. When the last handle or cell is dropped, the
/// memory and the lock of the file are released.
#[derive(Debug, Clone)]
pub struct Segment {
    pub(crate) region: Arc<Region>,
    anchor: Anchor,
    /// The boot ID that the anchor's cells should contain.
    boot: [u8; 16],
    found: InitialState,
    /// Whether a power loss is possible since the last use.
    torn: bool,
    /// The segment's time at the last sync before a reboot; the greatest time if there was no
    /// reboot.
    seen: u64,
    /// The end of the bytes that may be nonzero when they are allocated.
    dirty: u64,
    shared: SharedFile,
    contents: Arc<dyn Contents>,
    /// The jobs that must be done before the contents are used.
    jobs: std::sync::Arc<[Job]>,
}

/// How the file is shared, and the state that the clones of a handle share.
#[derive(Debug, Clone)]
struct SharedFile {
    access: Access,
    state: Arc<State>,
}

/// State that the clones of a handle share. It uses no mutex of the standard library: if a process
/// forks while another thread holds one, the child would wait forever, because that thread does not
/// exist in the child.
#[derive(Debug, Default)]
struct State {
    /// Whether this handle opened the file first, and its families are not mended yet.
    unmended: AtomicBool,
    /// Held by the thread of this process that mends the families.
    mending: ForkSafeMutex,
    /// Held by the thread of this process that holds the registration lock, or is about to take the
    /// lock.
    registration: ForkSafeMutex,
    /// Trackers of stuck owners: of the registration lock and of the growth lock.
    stuck: [StuckLock; 2],
    /// The size where growing ahead failed.
    failed_growth: AtomicU64,
    /// This handle's knowledge of the disk.
    written: DiskState,
    /// The clock for the expiry of series, in tests. Otherwise it is the machine's.
    clock: Option<TestClock>,
}

impl State {
    /// Returns whether growing ahead is worth a try: it did not fail at this size before.
    fn may_grow(&self, size: u64) -> bool {
        self.failed_growth.load(Ordering::Relaxed) != size
    }

    fn cannot_grow(&self, size: u64) {
        self.failed_growth.store(size, Ordering::Relaxed);
    }
}

impl SharedFile {
    fn new(access: Access, unmended: bool) -> Self {
        let unmended = AtomicBool::new(unmended);
        Self {
            access,
            state: Arc::new(State {
                unmended,
                mending: ForkSafeMutex::default(),
                registration: ForkSafeMutex::default(),
                failed_growth: AtomicU64::new(0),
                stuck: Default::default(),
                written: DiskState::default(),
                clock: None,
            }),
        }
    }
}

impl Segment {
    /// See [`Segment::private`].
    pub(crate) fn in_private_memory(
        limit: u64,
        contents: Arc<dyn Contents>,
    ) -> Result<Self, Error> {
        let limit = limit.checked_next_multiple_of(LINE_BYTES).filter(|&limit| limit <= MAX_LIMIT);
        let Some(limit) = limit.filter(|&limit| limit >= HEADER_BYTES) else {
            let message = format!("its limit must be {HEADER_BYTES} to {MAX_LIMIT} bytes");
            return Err(Error::new(None, ErrorKind::Request(message)));
        };
        let Some(region) = Region::private(limit) else {
            return Err(Error::new(None, ErrorKind::NoMemory { wanted: limit }));
        };
        let readings = Readings::of_this_boot();
        for (i, chunk) in header(limit, limit, &readings).chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().expect("a chunk has 8 bytes"));
            region.cell(WordOffset::new(i as u32).byte()).store(word, Ordering::Relaxed);
        }
        Ok(Self::made(region, &readings, Access::Exclusive, contents))
    }

    /// See [`Segment::anonymous`].
    #[cfg(unix)]
    pub(crate) fn in_shared_memory(limit: u64, contents: Arc<dyn Contents>) -> Result<Self, Error> {
        let limit = limit.checked_next_multiple_of(LINE_BYTES);
        let limit = limit.filter(|limit| (HEADER_BYTES..=MAX_LIMIT).contains(limit));
        let Some(limit) = limit else {
            let message = format!("its limit must be {HEADER_BYTES} to {MAX_LIMIT} bytes");
            return Err(Error::new(None, ErrorKind::Request(message)));
        };
        let readings = Readings::now();
        let head = header(HEADER_BYTES, limit, &readings);
        let file = MappedFile::anonymous(&head, HEADER_BYTES, limit)?;
        let region = Region::mapped(file, HEADER_BYTES, limit);
        Ok(Self::made(region, &readings, Access::Exclusive, contents))
    }

    /// Returns a segment whose header was just written.
    fn made(
        region: Region,
        readings: &Readings,
        access: Access,
        contents: Arc<dyn Contents>,
    ) -> Self {
        let anchor = anchor_cells(&region).begin(readings);
        let (found, boot) = (InitialState::New, readings.boot);
        let shared = SharedFile::new(access, false);
        let region = Arc::new(region);
        let (torn, seen, dirty, jobs) = (false, u64::MAX, 0, [].into());
        Self { region, anchor, boot, found, torn, seen, dirty, shared, contents, jobs }
    }

    /// Registers this process as a user of the file. If the file is shared, others can open it from
    /// now on.
    #[cfg(unix)]
    fn be_present(&self, deadline: LockDeadline) -> Result<(), Error> {
        self.region.file().map_or(Ok(()), |file| file.be_present(self.shared.access, deadline))
    }

    /// Renames the file at `path` to the first free name among `names`, and returns that name. Use
    /// this on a damaged file, so you can create another one in its place.
    ///
    /// # Errors
    /// If a process is using the file. Also returns the errors of the file system.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn set_aside(
        path: impl AsRef<Path>,
        names: impl Iterator<Item = PathBuf>,
    ) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        let locked =
            LockedFile::open(path, Access::Exclusive, LockDeadline::after(DEFAULT_LOCK_TIMEOUT))?;
        let locked = locked.ok_or_else(|| Error::new(Some(path), ErrorKind::NoDirectory))?;
        file::set_aside(path, &locked.file, names)
    }

    /// Returns the number of bytes of private memory for records with these numbers of cells.
    #[doc(hidden)]
    pub fn bytes_for(records: &[usize]) -> u64 {
        records.iter().fold(HEADER_BYTES, |sum, &cells| sum.saturating_add(record_bytes(cells)))
    }

    /// Returns the size in bytes of a record of `cells` cells.
    #[doc(hidden)]
    pub fn record_bytes(cells: usize) -> u64 {
        record_bytes(cells)
    }

    /// Returns the path of the file; `None` if the segment is not in a file.
    pub fn path(&self) -> Option<&Path> {
        self.region.path()
    }

    /// Returns whether the segment is in private memory. The child of a fork then gets a copy.
    pub fn is_private(&self) -> bool {
        #[cfg(unix)]
        return self.region.file().is_none();
        #[cfg(not(unix))]
        true
    }

    /// Returns the bytes in use, including the header.
    pub fn used(&self) -> u64 {
        let cursor = self.region.cell(at::CURSOR).load(Ordering::Acquire);
        if self.region.reaches(cursor) { cursor } else { self.region.known() }
    }

    /// Returns the size of the file, or of private memory, in bytes.
    pub fn size(&self) -> u64 {
        let size = self.region.cell(at::SIZE).load(Ordering::Acquire);
        if self.region.reaches(size) { size } else { self.region.known() }
    }

    /// Returns the limit in bytes. The segment cannot grow further.
    pub fn limit(&self) -> u64 {
        self.region.limit()
    }

    /// Returns the Unix time in nanoseconds of its creation.
    pub fn created_ns(&self) -> u64 {
        self.region.cell(at::CREATED).load(Ordering::Relaxed)
    }

    /// Returns the ID of the segment: 16 bytes that no other segment shares.
    pub fn instance(&self) -> [u8; 16] {
        let word = |at: ByteOffset| self.region.cell(at).load(Ordering::Relaxed).to_le_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&word(at::INSTANCE));
        bytes[8..].copy_from_slice(&word(at::INSTANCE.plus(CELL_BYTES)));
        bytes
    }

    /// Returns the anchor of the segment's time, which continues across restarts and reboots.
    #[doc(hidden)]
    pub fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Uses a test's clock for the times of the series, for example for their expiry. This has no
    /// effect on a handle that was cloned.
    #[doc(hidden)]
    pub fn with_clock(mut self, clock: TestClock) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.shared.state) {
            state.clock = Some(clock);
        }
        self
    }

    /// Returns the test's clock, if there is one.
    pub(crate) fn clock(&self) -> Option<&TestClock> {
        self.shared.state.clock.as_ref()
    }

    /// Marks the file as open. Call this before you count: if your process then dies, the next one
    /// that opens the file learns that it [was left open](Segment::was_left_open). Opening a file
    /// does this, too, unless you used [`Options::unmarked`].
    ///
    /// # Errors
    /// Returns the errors of the disk.
    #[doc(hidden)]
    pub fn mark_open(&self) -> Result<(), Error> {
        if self.is_unmended() {
            let interrupted = || Error::held(self, "the segment", BusyReason::Interrupted);
            let _mending = self.shared.state.mending.lock().ok_or_else(interrupted)?;
            if self.is_unmended() {
                self.mend()?;
                // Release: a thread that finds the families mended sees all changes of the mending.
                self.shared.state.unmended.store(false, Ordering::Release);
            }
        }
        let anchor = anchor_cells(&self.region);
        // Write the anchor only if it differs, because other processes may read it now and must
        // never see half of a change.
        if !anchor.has(self.anchor, self.boot) {
            anchor.store(self.anchor, self.boot);
        }
        self.region.cell(at::LEFT).store(0, Ordering::Relaxed);
        self.region.cell(at::CLEAN).store(0, Ordering::Release);
        // Sync the mark before any counting: after a power loss, the file must not look closed.
        self.sync_range(0..HEADER_BYTES)
    }

    /// Like [`Segment::mark_open`], unless the file is marked already.
    pub(crate) fn ensure_marked_open(&self) -> Result<(), Error> {
        if self.is_unmended() { self.mark_open() } else { Ok(()) }
    }

    fn is_unmended(&self) -> bool {
        // Acquire: pairs with the store in `mark_open`.
        self.shared.state.unmended.load(Ordering::Acquire)
    }

    /// Repairs the families before their first use, because the last process may have died in the
    /// middle of a change.
    fn mend(&self) -> Result<(), Error> {
        if self.torn {
            // The file may contain tokens that were drawn after the token count that survived. No
            // process may get such a token again, because it would be taken for the process that
            // died.
            let tokens = self.region.cell(at::TOKENS);
            tokens.fetch_add(MAX_LOST_TOKENS, Ordering::Relaxed);
        }
        self.contents.mend(self, &self.jobs)?;
        for at in [at::GROWING, at::GROWING_BROKEN] {
            self.region.cell(at).store(0, Ordering::Relaxed);
        }
        if self.torn {
            // Sync now, because the bytes after the cursor will be allocated again, and a part that
            // was cut off must not reappear there.
            self.sync_range(0..self.size())?;
        }
        Ok(())
    }

    /// Returns whether this handle created the segment.
    pub fn is_new(&self) -> bool {
        self.found == InitialState::New
    }

    /// Returns whether the last process ended without [closing](Segment::close) the segment or
    /// [leaving it in order](Segment::leave_in_order). No counts are lost because of this, unless
    /// the machine lost power, too.
    pub fn was_left_open(&self) -> bool {
        self.found == InitialState::Unclean
    }

    /// Returns whether the machine could have lost power while the segment was in use, because the
    /// segment was left open and the machine rebooted since. Its pages may then be from different
    /// times.
    pub fn may_have_lost_power(&self) -> bool {
        self.torn
    }

    /// Takes the registration lock. Only its owner, a single thread of all processes, may look up a
    /// record and create it if it is missing. While your thread holds the guard, it must create
    /// families with [`RegistrationGuard::family`] only.
    ///
    /// # Errors
    /// [`ErrorKind::Held`] if another process holds the lock for 10 s, for example because it is
    /// stopped. Also returns the system's error if it refuses a lock that the death of the process
    /// would release.
    #[doc(hidden)]
    pub fn lock_registration(&self) -> Result<RegistrationGuard<'_>, Error> {
        // Lock out the threads of this process, then other processes. The second lock is needed
        // unless the file is still unmarked and exclusive, because an exclusive file in use, or
        // memory without a name, may be shared with children of forks.
        let busy = |busy| Error::held(self, "metric registration", busy);
        let own = self.shared.state.registration.lock();
        let own = own.ok_or_else(|| busy(BusyReason::Interrupted))?;
        if self.is_private() || (self.shared.access == Access::Exclusive && self.is_unmended()) {
            return Ok(RegistrationGuard { segment: self, _others: None, _own: own });
        }
        let (word, broken) = self.registration_words();
        let token = self.region.token()?;
        let (is_alive, stuck) = (|token| self.region.is_alive(token), &self.shared.state.stuck[0]);
        let (others, _) = lock::acquire(word, broken, token, is_alive, stuck, lock::REGISTRATION)
            .map_err(busy)?;
        // A process that died here left either an unlinked record or a complete one.
        broken.store(0, Ordering::Relaxed);
        Ok(RegistrationGuard { segment: self, _others: Some(others), _own: own })
    }

    /// Returns the token of this process, which is unique among all processes that ever used the
    /// segment. For example, the child of a fork gets another token than its parent.
    ///
    /// # Errors
    /// Returns the system's error if it refuses a lock that the death of the process would release.
    #[doc(hidden)]
    pub fn process(&self) -> Result<u64, Error> {
        self.region.token()
    }

    /// Returns whether the process with this token lives. Private memory knows only this process.
    #[doc(hidden)]
    pub fn is_alive(&self, process: u64) -> bool {
        self.region.is_alive(process)
    }

    /// Returns the words of the registration lock.
    pub(crate) fn registration_words(&self) -> (&AtomicU64, &AtomicU64) {
        let region = &self.region;
        (region.cell(at::REGISTRATION), region.cell(at::REGISTRATION_BROKEN))
    }

    /// Returns the contents, if they are of this type.
    pub(crate) fn contents<C: Contents>(&self) -> Option<&C> {
        let contents: &dyn Any = &*self.contents;
        contents.downcast_ref()
    }

    /// Returns the word with the offset of the first freed family.
    pub(crate) fn freed_word(&self) -> &AtomicU64 {
        self.region.cell(at::FREED)
    }

    /// Returns whether this process is the only one that can use the segment. Others could do so by
    /// its path, or as the child of a fork.
    pub(crate) fn is_alone(&self) -> bool {
        #[cfg(unix)]
        if fork::forks() != 0 || self.region.origin().is_some() {
            return false;
        }
        self.shared.access == Access::Exclusive
    }

    /// Returns the offset of the newest record.
    pub(crate) fn root(&self) -> u64 {
        self.region.cell(at::ROOT).load(Ordering::Acquire)
    }

    /// Returns a number unique to this segment. It seeds the hashes of keys.
    pub(crate) fn seed(&self) -> u64 {
        self.region.cell(at::INSTANCE).load(Ordering::Relaxed)
    }

    /// Reserves a record of `cells` zeroed cells. The record stays invisible until it is published.
    /// If the process dies before that, only the record's bytes are lost.
    ///
    /// # Errors
    /// If the name is longer than [`NAME_BYTES`], the record does not fit under the limit, or the
    /// disk is full.
    #[doc(hidden)]
    pub fn reserve(&self, kind: Kind, name: &str, cells: usize) -> Result<Draft, Error> {
        if name.len() > NAME_BYTES {
            let message = format!(
                "the record name {name:?} has {} bytes; at most {NAME_BYTES} fit",
                name.len()
            );
            return Err(Error::new(self.path(), ErrorKind::Request(message)));
        }
        if self.region.cell(at::CLEAN).load(Ordering::Relaxed) != 0 {
            self.mark_open()?;
        }
        let length = record_bytes(cells);
        let offset = self.allocate(length, lock::REGISTRATION)?;
        self.clear(offset, length);
        self.draft(offset, length, kind, name)
    }

    /// Returns an unlinked record of this kind under another name; its cells are not changed.
    ///
    /// # Errors
    /// If there is no such record at the offset. Also returns the errors of the disk.
    pub(crate) fn reuse(&self, offset: u64, kind: Kind, name: &str) -> Result<Draft, Error> {
        if self.region.cell(at::CLEAN).load(Ordering::Relaxed) != 0 {
            self.mark_open()?;
        }
        let found = check_at(&*self.region, offset);
        let found = found.map_err(|kind| Error::new(self.path(), kind))?;
        if found.kind != kind || name.len() > NAME_BYTES {
            let message = format!("the record {:?} at {offset} cannot be used again", found.name);
            return Err(Error::damaged(self, message));
        }
        self.draft(offset, found.length, kind, name)
    }

    /// Writes the header of a record.
    fn draft(&self, offset: u64, length: u64, kind: Kind, name: &str) -> Result<Draft, Error> {
        let word = |at: u64, value: u64| {
            self.region.cell(ByteOffset::new(offset + at)).store(value, Ordering::Relaxed);
        };
        word(record_at::LENGTH, length);
        word(record_at::KIND, kind.to_bits());
        let mut text = [0; TEXT_BYTES];
        text[0] = name.len() as u8; // At most NAME_BYTES.
        text[1..=name.len()].copy_from_slice(name.as_bytes());
        for (i, chunk) in text.chunks_exact(8).enumerate() {
            let bytes = chunk.try_into().expect("a chunk has 8 bytes");
            word(record_at::NAME_LENGTH + offset::bytes(i as u64), u64::from_le_bytes(bytes));
        }
        word(record_at::CHECKSUM, record_checksum(length, kind, &text));
        let found = RecordHeader { offset, length, kind, name: name.to_owned(), next: 0 };
        let record = self.record(found).map_err(|kind| Error::new(self.path(), kind))?;
        Ok(Draft { segment: self.clone(), record })
    }

    /// Returns the records, newest first.
    ///
    /// # Errors
    /// An item is an error if a record contradicts the layout.
    #[doc(hidden)]
    pub fn records(&self) -> impl Iterator<Item = Result<Record, Error>> {
        walk(&*self.region).map(|found| {
            let record = found.and_then(|found| self.record(found));
            record.map_err(|kind| Error::new(self.path(), kind))
        })
    }

    /// Returns the newest record with this name and with the tag of this kind.
    ///
    /// # Errors
    /// If the list is damaged, or if a record with this tag and name is of another version of the
    /// kind.
    #[doc(hidden)]
    pub fn find(&self, kind: Kind, name: &str) -> Result<Option<Record>, Error> {
        for record in self.records() {
            let record = record?;
            if record.kind().tag() != kind.tag() || record.name() != name {
                continue;
            }
            if record.kind() != kind {
                return Err(Error::record_version(self, &record, kind));
            }
            return Ok(Some(record));
        }
        Ok(None)
    }

    /// Checks that the path still names the file, and that the file is as long as before. Call this
    /// from time to time if your counts should outlive your process: it notices that the file was
    /// removed, replaced or truncated.
    ///
    /// # Errors
    /// [`ErrorKind::Moved`], [`ErrorKind::Cut`], and the system's errors.
    #[doc(hidden)]
    pub fn check_file(&self) -> Result<(), Error> {
        #[cfg(unix)]
        if let Some(file) = self.region.file() {
            return file.check(self.size());
        }
        Ok(())
    }

    /// Returns whether this is the last process with the file open; children of forks count, too.
    /// Returns `None` if that cannot be determined. Another process can open the file at any
    /// moment.
    #[cfg(unix)]
    pub fn is_last(&self) -> Option<bool> {
        self.region.file().and_then(MappedFile::is_alone)
    }

    /// Returns whether another program truncated the file and this process touched the missing
    /// part. Only a process that called [`survive_cuts`](crate::survive_cuts) can ask. Drop the
    /// segment then, because your process no longer reads the same cells as others.
    #[cfg(target_os = "linux")]
    #[doc(hidden)]
    pub fn was_cut(&self) -> bool {
        self.region.file().is_some_and(MappedFile::was_cut)
    }

    /// Removes the file if opening this segment created it. Use this if a start fails before
    /// anything was counted. Returns false, and leaves the file, if the file existed before or may
    /// be shared.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::check_file`] and of the file system.
    #[cfg(unix)]
    #[doc(hidden)]
    pub fn remove_new(&self) -> Result<bool, Error> {
        let Some(path) = self.path() else { return Ok(false) };
        if !self.is_new() || self.shared.access == Access::Shared {
            return Ok(false);
        }
        self.check_file()?;
        let removed = std::fs::remove_file(path);
        removed.map(|()| true).map_err(|error| Error::new(Some(path), ErrorKind::Io(error)))
    }

    /// Allocates `words` zeroed words that no record describes, and returns their offset in words.
    /// Waits at most `wait` for another thread that grows the segment.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::reserve`]. Also fails if the offset does not fit into 32
    /// bits.
    pub(crate) fn take(&self, words: u64, wait: Duration) -> Result<WordOffset, Error> {
        let full = |length| {
            let kind = ErrorKind::Full { wanted: length, limit: self.limit().min(u32::MAX.into()) };
            Error::new(self.path(), kind)
        };
        let length = words
            .checked_mul(CELL_BYTES)
            .and_then(|bytes| bytes.checked_next_multiple_of(LINE_BYTES))
            .ok_or_else(|| full(u64::MAX))?;
        if offset::words(self.used().saturating_add(length)) > u64::from(u32::MAX) {
            return Err(full(length));
        }
        let offset = self.allocate(length, wait)?;
        // Other threads can allocate in the meantime. If this range ends beyond the reach of word
        // offsets, its bytes are lost.
        if offset::words(offset + length) > u64::from(u32::MAX) {
            return Err(full(length));
        }
        self.clear(offset, length);
        u32::try_from(offset::words(offset)).map(WordOffset::new).map_err(|_| full(length))
    }

    /// Grows the segment if it lacks room for `words` more words. Never waits, and ignores errors.
    pub(crate) fn make_room(&self, words: u64) {
        let end = self.used().saturating_add(offset::bytes(words)).saturating_add(LINE_BYTES);
        if end <= self.limit() {
            let _ = self.grow_to(end, lock::SCRAPE);
        }
    }

    /// Allocates like [`Segment::take`], but only if the segment need not grow. A signal handler
    /// can call this, because it only touches memory.
    pub(crate) fn take_at_hand(&self, words: u64) -> Option<WordOffset> {
        let length = words.checked_mul(CELL_BYTES)?.checked_next_multiple_of(LINE_BYTES)?;
        let (cursor, size) = (self.region.cell(at::CURSOR), self.region.cell(at::SIZE));
        let mut offset = cursor.load(Ordering::Relaxed);
        loop {
            let end = offset.checked_add(length)?;
            let is_sound = offset >= HEADER_BYTES && offset.is_multiple_of(LINE_BYTES);
            let fits = end <= self.limit() && offset::words(end) <= u64::from(u32::MAX);
            // Acquire: the size is stored after the bytes exist.
            if !is_sound || !fits || end > size.load(Ordering::Acquire) || !self.region.reaches(end)
            {
                return None;
            }
            // Acquire: like in `allocate`.
            match cursor.compare_exchange_weak(offset, end, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => offset = found,
            }
        }
        self.clear(offset, length);
        u32::try_from(offset::words(offset)).map(WordOffset::new).ok()
    }

    /// Zeroes newly allocated bytes that may be nonzero: after a power loss, the cursor may point
    /// before bytes that were in use.
    fn clear(&self, offset: u64, length: u64) {
        let end = (offset + length).min(self.dirty);
        for at in (offset..end).step_by(CELL_BYTES as usize) {
            self.region.cell(ByteOffset::new(at)).store(0, Ordering::Relaxed);
        }
    }

    /// Allocates `length` bytes, a multiple of a cache line, at the cursor. Waits at most `wait`
    /// for another thread that grows the segment.
    fn allocate(&self, length: u64, wait: Duration) -> Result<u64, Error> {
        let cursor = self.region.cell(at::CURSOR);
        let mut offset = cursor.load(Ordering::Relaxed);
        loop {
            if offset < HEADER_BYTES || !offset.is_multiple_of(LINE_BYTES) {
                let message = format!("its allocation cursor {offset} is not at a cache line");
                return Err(Error::new(self.path(), ErrorKind::Damaged(message)));
            }
            let end =
                offset.checked_add(length).filter(|&end| end <= self.limit()).ok_or_else(|| {
                    let kind = ErrorKind::Full { wanted: length, limit: self.limit() };
                    Error::new(self.path(), kind)
                })?;
            self.grow_to(end, wait)?;
            // Acquire: freed bytes were zeroed before the cursor was set back.
            match cursor.compare_exchange_weak(offset, end, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(offset),
                Err(found) => offset = found,
            }
        }
    }

    fn grow_to(&self, end: u64, wait: Duration) -> Result<(), Error> {
        let size = self.region.cell(at::SIZE);
        // The size may be nonsense from another process, and the file shorter: then this grows it.
        let is_there = || end <= size.load(Ordering::Acquire) && self.region.reaches(end);
        if is_there() {
            return Ok(());
        }
        let word = |at| self.region.cell(at);
        let (growing, broken) = (word(at::GROWING), word(at::GROWING_BROKEN));
        let token = self.region.token()?;
        // A process that died here made the file longer than its size, which is harmless.
        let (is_alive, stuck) = (|token| self.region.is_alive(token), &self.shared.state.stuck[1]);
        let _growing = lock::acquire(growing, broken, token, is_alive, stuck, wait)
            .map_err(|busy| Error::held(self, "segment growth", busy))?;
        if is_there() {
            return Ok(());
        }
        self.grow_locked(end)
    }

    /// Grows the file ahead of need, if less than half a step is left and no other thread is
    /// growing it. The caller must hold no lock that other threads wait for.
    pub(crate) fn grow_ahead(&self) {
        let size = self.size();
        let left = size.saturating_sub(self.used());
        if left >= growth(size) / 2 || size == self.limit() || !self.shared.state.may_grow(size) {
            return;
        }
        let word = |at| self.region.cell(at);
        let Ok(token) = self.region.token() else { return };
        let (growing, broken) = (word(at::GROWING), word(at::GROWING_BROKEN));
        let (is_alive, stuck) = (|token| self.region.is_alive(token), &self.shared.state.stuck[1]);
        let growing = lock::acquire(growing, broken, token, is_alive, stuck, lock::SCRAPE);
        if growing.is_ok() && self.size() == size && self.grow_locked(size + LINE_BYTES).is_err() {
            self.shared.state.cannot_grow(size);
        }
    }

    /// Raises the size to at least `end`. The caller must hold the growth lock.
    fn grow_locked(&self, end: u64) -> Result<(), Error> {
        let size = self.region.cell(at::SIZE);
        // Count the bytes that exist, even if the size is nonsense.
        let from = self.size();
        let wanted = end.max(from.saturating_add(growth(from))).min(self.limit());
        let wanted = wanted / LINE_BYTES * LINE_BYTES;
        // If the disk lacks room for the whole step, try the part that is needed.
        let to = match self.region.grow(from..wanted) {
            Ok(()) => wanted,
            Err(_) if end < wanted => self.region.grow(from..end).map(|()| end)?,
            Err(error) => return Err(error),
        };
        // Release: the bytes exist before the size covers them.
        size.fetch_max(to, Ordering::Release);
        Ok(())
    }

    pub(crate) fn record(&self, found: RecordHeader) -> Result<Record, ErrorKind> {
        let outside = || {
            let RecordHeader { offset, length, .. } = found;
            ErrorKind::Damaged(format!("a record of {length} bytes at {offset} lies outside of it"))
        };
        let cells = Cells::new(&self.region, found.cells(), found.cell_count());
        Ok(Record { cells: cells.ok_or_else(outside)?, found })
    }
}

/// The guard of the [registration lock](Segment::lock_registration).
#[must_use]
pub struct RegistrationGuard<'s> {
    segment: &'s Segment,
    _others: Option<Guard<'s>>,
    _own: Guard<'s>,
}

impl std::fmt::Debug for RegistrationGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistrationGuard").finish_non_exhaustive()
    }
}

impl<'s> RegistrationGuard<'s> {
    /// Returns the segment. No other thread or process creates a family while this guard exists.
    pub(crate) fn segment(&self) -> &'s Segment {
        self.segment
    }
}

/// A bound on the number of processes that start between two writes of a page by the system.
const MAX_LOST_TOKENS: u64 = 1 << 20;
/// The minimum growth of a file, in bytes.
const MIN_GROWTH: u64 = 64 << 10;
/// The maximum growth of a file in one step, in bytes.
const MAX_GROWTH: u64 = 4 << 20;

/// Returns the growth of a file of this size in one step, in bytes.
fn growth(size: u64) -> u64 {
    (size / 2).clamp(MIN_GROWTH, MAX_GROWTH)
}

fn record_bytes(cells: usize) -> u64 {
    offset::bytes(cells as u64)
        .checked_next_multiple_of(LINE_BYTES)
        .map_or(u64::MAX, |bytes| bytes.saturating_add(RECORD_BYTES))
}

fn anchor_cells(region: &Region) -> AnchorCells<'_> {
    let cell = |at: ByteOffset| -> &AtomicU64 { region.cell(at) };
    AnchorCells {
        boot: [cell(at::BOOT), cell(at::BOOT.plus(CELL_BYTES))],
        anchor: cell(at::ANCHOR),
        seen_time: cell(at::SEEN_TIME),
        seen_wall: cell(at::SEEN_WALL),
    }
}

/// Returns the bytes of a new header.
fn header(size: u64, limit: u64, readings: &Readings) -> [u8; HEADER_BYTES as usize] {
    let mut head = [0; HEADER_BYTES as usize];
    let mut put = |at: ByteOffset, bytes: &[u8]| {
        head[at.index()..][..bytes.len()].copy_from_slice(bytes);
    };
    put(at::MAGIC, &MAGIC);
    put(at::VERSION, &LAYOUT_VERSION.to_le_bytes());
    put(at::HEADER_BYTES, &(HEADER_BYTES as u32).to_le_bytes());
    put(at::LIMIT, &limit.to_le_bytes());
    let created = u64::try_from(readings.wall.as_nanos()).unwrap_or(u64::MAX);
    put(at::CREATED, &created.to_le_bytes());
    put(at::INSTANCE, &instance());
    put(at::SIZE, &size.to_le_bytes());
    put(at::CURSOR, &HEADER_BYTES.to_le_bytes());
    put(at::SYNCED, &size.to_le_bytes());
    let (signed, rest) = head.split_at_mut(at::CHECKSUM.index());
    rest[..8].copy_from_slice(&checksum(signed).to_le_bytes());
    head
}

/// Returns an ID of 16 bytes that no other segment shares.
fn instance() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    // The standard library seeds its hasher from the system's random numbers, once per thread.
    // Children forked by the same thread share that seed, so the process ID is hashed, too.
    let own = (std::process::id(), std::time::SystemTime::now());
    let draw = |salt: u8| RandomState::new().hash_one((salt, own)).to_le_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&draw(0));
    bytes[8..].copy_from_slice(&draw(1));
    bytes
}
