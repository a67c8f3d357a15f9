//! Queues of requests on the disk, for remote write (`--remote-write-queue disk`) and for OTLP with
//! delta temporality.
//!
//! Each receiver has a directory with numbered files, which contain the requests in order
//! (`records.rs`). A file is written without a sync, so it survives a crash of the process, but a
//! power loss can remove its end. A request that was accepted or refused is marked as done in
//! place, and a file without pending requests is deleted. The total size is limited: at the limit,
//! the oldest file is deleted, and its samples are counted as dropped.
//!
//! The shards of a receiver share a queue. Each request stores its shard and the number of shards,
//! because each shard sends its own requests in order. If the daemon restarts with another number
//! of shards, all old requests are sent before new ones, because series have moved to other shards.
//!
//! An error in the queue only affects its own requests. We count each error, but log it only
//! once.
//!
//! **Deltas.** A snapshot of deltas is a separate file ([`Queue::begin_snapshot`]), which also
//! contains the totals after its requests. The file is written under a temporary name, synced and
//! renamed, so it is either complete or absent. It is kept until the next snapshot is written. The
//! snapshot before it is kept as well, because it contains the totals to return to if the new
//! snapshot is revoked.

mod metrics;
mod records;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::mem;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use quipu_segment::printable;
use tracing::{info, warn};

use super::snapshot::Body;
pub(super) use metrics::{Metrics, QueueReceiverMetrics};
use quipu_process::temporary::sync_directory;
pub(super) use records::Form;
use records::{DONE, HEADER, Kind, PREFIX, Record, Records};

/// The pending requests for a receiver, the oldest first.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) folder: PathBuf,
    /// The maximum size of all files together, in bytes.
    limit: u64,
    /// The index of the last shard.
    last_shard: u8,
    /// The files by number. New requests are appended to the last one.
    files: BTreeMap<u64, QueueFile>,
    /// The size of all files, in bytes.
    bytes: u64,
    pending: VecDeque<PendingRequest>,
    /// The number of the next new file.
    next: u64,
    tail: Option<(u64, File)>,
    /// The file that was read last, kept open.
    reading: Option<(u64, File)>,
    /// Whether an error of the disk was logged.
    is_failing: bool,
    /// Whether a full queue was logged.
    was_full: bool,
    /// The number of the last file whose damage was logged.
    at_fault: Option<u64>,
    metrics: QueueReceiverMetrics,
    buffer: Vec<u8>,
    /// The open lock file. The lock excludes other daemons.
    _lock: File,
}

/// The identifier of a pending request: the number of its file, and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u64, u64);

/// A snapshot of deltas from an earlier run.
#[derive(Debug, Default)]
pub(super) struct DeltaSnapshot {
    /// The totals and their time, in nanoseconds since 1970.
    pub(super) totals: Vec<Body>,
    pub(super) time_ns: u64,
    /// The pending requests, and whether they are all requests of the snapshot.
    pub(super) owed: Vec<Body>,
    pub(super) is_whole: bool,
}

/// The size of a file, and the number of its pending requests.
#[derive(Debug, Default)]
struct QueueFile {
    bytes: u64,
    /// The number of pending requests; totals are always pending.
    waiting: usize,
}

/// A request in the queue.
#[derive(Debug)]
struct PendingRequest {
    id: Id,
    /// The size of the record in bytes.
    length: usize,
    /// The shard of the request, and the index of the last shard at that time.
    shard: u8,
    last_shard: u8,
    samples: u32,
    time: i64,
    /// The number of failures while other requests were accepted.
    failures: u32,
}

/// The maximum size of a file in bytes, unless it contains a single request.
const MOST_FILE: u64 = 16 << 20;
/// The maximum size of a file to read, in bytes. The daemon never writes such large files.
const MOST_READ: u64 = 128 << 20;
/// The number of failures after which other requests are sent before this one.
const MOST_FAILURES: u32 = 2;
/// The maximum number of samples to count for a damaged request, because its own number can be
/// damaged as well.
const MOST_SAMPLES: u32 = 10_000;
/// The last usable file number. Files with larger numbers are ignored.
const MOST_NUMBER: u64 = u64::MAX / 2;
/// The number of existing file names that a new file skips.
const TRIES: u32 = 16;
/// The extension of the files.
const EXTENSION: &str = "queue";

impl Queue {
    /// Opens the queue of a receiver, and scans its pending requests. `directory` contains the
    /// queues of all receivers.
    ///
    /// # Errors
    /// Returns a message with the problem and the `remedy`, if the directory is unusable or belongs
    /// to another daemon.
    pub(super) fn open(
        directory: &Path,
        receiver: &str,
        limit: u64,
        shards: u8,
        metrics: QueueReceiverMetrics,
        remedy: &str,
    ) -> Result<Self, String> {
        let folder = directory.join(folder_name(receiver));
        let fail =
            |error: io::Error| format!("cannot use {}: {error}; {remedy}", printable(&folder));
        make_folder(&folder).map_err(fail)?;
        let lock = plain(writable().create(true), &folder.join("lock")).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("another daemon has {} open; {remedy}", printable(&folder)));
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        // We ignore the error, because this file is only for people.
        let _ = name_receiver(&folder.join("receiver"), receiver);
        let mut this = Self {
            folder: folder.clone(),
            limit,
            last_shard: shards.saturating_sub(1),
            files: BTreeMap::new(),
            bytes: 0,
            pending: VecDeque::new(),
            next: 1,
            tail: None,
            reading: None,
            is_failing: false,
            was_full: false,
            at_fault: None,
            metrics,
            buffer: Vec::new(),
            _lock: lock,
        };
        for number in this.numbers().map_err(fail)? {
            this.scan(number);
        }
        this.make_room(0);
        this.show();
        if !this.pending.is_empty() {
            let (requests, bytes) = (this.pending.len(), this.bytes);
            info!(receiver, requests, bytes, "requests wait in the queue");
        }
        Ok(this)
    }

    /// Appends a request of a shard. Returns its identifier, or `None` if the disk cannot store it.
    pub(super) fn push(&mut self, shard: u8, timestamp_ms: i64, body: &Body) -> Option<Id> {
        let pushed = self.append(shard, timestamp_ms, body);
        self.show();
        match pushed {
            Ok(id) => {
                if mem::take(&mut self.is_failing) {
                    info!(folder = %printable(&self.folder), "the queue takes requests again");
                }
                Some(id)
            }
            Err(error) => {
                self.metrics.write_errors.inc();
                if !mem::replace(&mut self.is_failing, true) {
                    warn!(
                        folder = %printable(&self.folder), %error,
                        "the queue takes no request; the receiver gets the current totals alone"
                    );
                }
                None
            }
        }
    }

    /// Returns the next request of a shard. Unreadable requests are dropped and counted.
    pub(super) fn front(&mut self, shard: u8) -> Option<(Id, Body)> {
        let shards = u16::from(self.last_shard) + 1;
        loop {
            let last_shard = self.pending.front()?.last_shard;
            let mut run = self.pending.iter().take_while(|other| other.last_shard == last_shard);
            // A request whose shard no longer exists is sent by another shard.
            let request = run.find(|other| u16::from(other.shard) % shards == u16::from(shard))?;
            let (id, samples) = (request.id, request.samples);
            match self.read(id, request.length) {
                Ok(body) => return Some((id, body)),
                Err(error) => {
                    self.complain(id.0, &error.to_string());
                    self.metrics.damaged.inc_by(u64::from(samples));
                    self.finish(id);
                }
            }
        }
    }

    /// Removes a request that was accepted or refused.
    pub(super) fn finish(&mut self, id: Id) {
        let Some(at) = self.pending.iter().position(|request| request.id == id) else { return };
        self.pending.remove(at);
        let Id(number, offset) = id;
        let is_empty = self.files.get_mut(&number).is_some_and(|entry| {
            entry.waiting -= 1;
            entry.waiting == 0
        });
        if is_empty {
            self.remove(number);
        } else if let Err(error) = self.file(number).and_then(|f| f.write_all_at(&DONE, offset)) {
            // The mark was not written, so the request may be sent again after a restart.
            self.complain(number, &error.to_string());
        }
        self.show();
    }

    /// Records that a request failed while others were accepted. After [`MOST_FAILURES`], the
    /// requests after this one are sent first.
    pub(super) fn blame(&mut self, id: Id) {
        let Some(at) = self.pending.iter().position(|request| request.id == id) else { return };
        let Some(mut request) = self.pending.remove(at) else { return };
        request.failures += 1;
        if request.failures >= MOST_FAILURES {
            request.failures = 0;
            self.pending.push_back(request);
        } else {
            self.pending.insert(at, request);
        }
    }

    /// Counts samples that the receiver refused.
    pub(super) fn count_refused(&self, samples: u64) {
        self.metrics.refused.inc_by(samples);
    }

    /// Updates the metric for the age of the oldest samples.
    pub(super) fn show_age(&self, now_ms: i64) {
        let oldest = self.pending.iter().map(|request| request.time).min();
        let age = oldest.map_or(0, |oldest| now_ms.saturating_sub(oldest).max(0));
        self.metrics.oldest_age.set(age as f64 / 1000.0);
    }

    fn append(&mut self, shard: u8, timestamp_ms: i64, body: &Body) -> io::Result<Id> {
        let record = self.record(shard, timestamp_ms, body);
        let mut buffer = mem::take(&mut self.buffer);
        buffer.clear();
        let written = record.encode(&mut buffer).and_then(|()| self.write(&buffer));
        self.buffer = buffer;
        let id = written?;
        self.pending.push_back(PendingRequest::new(id, &record));
        Ok(id)
    }

    fn record<'b>(&self, shard: u8, time: i64, body: &'b Body) -> Record<'b> {
        Record {
            is_done: false,
            time,
            samples: u32::try_from(body.samples).unwrap_or(u32::MAX),
            form: body.form,
            coding: body.coding,
            shard,
            last_shard: self.last_shard,
            body: &body.bytes,
        }
    }

    /// Replaces all pending requests with a snapshot of deltas. The body with the totals after them
    /// is also stored.
    ///
    /// # Errors
    /// Fails if the snapshot cannot be written.
    pub(super) fn begin_snapshot(
        &mut self,
        time_ns: u64,
        totals: &[Body],
        owed: &[Body],
    ) -> io::Result<()> {
        let (number, time) = (self.next, time_ns.cast_signed());
        let path = self.path(number);
        let new = path.with_extension("new");
        // We delete the file of an earlier crash first, because another process could have it open.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = self.write_snapshot(&new, time, totals, owed);
        let written = written.and_then(|written| fs::rename(&new, &path).map(|()| written));
        // We delete the incomplete file, because it would keep a full disk full.
        let (entry, all) = written.inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        // The file now exists, although a power loss could still remove it.
        self.keep_last();
        (self.pending, self.next) = (all, number + 1);
        self.bytes += entry.bytes;
        self.files.insert(number, entry);
        sync_directory(&path)
    }

    /// Writes a snapshot to a temporary file, and renames it to the next number.
    fn write_snapshot(
        &mut self,
        new: &Path,
        time: i64,
        totals: &[Body],
        owed: &[Body],
    ) -> io::Result<(QueueFile, VecDeque<PendingRequest>)> {
        let number = self.next;
        let mut file = plain(writable().create_new(true), new)?;
        file.write_all(&HEADER)?;
        let mut entry = QueueFile { bytes: HEADER.len() as u64, waiting: 1 };
        let mut all = VecDeque::new();
        for body in totals.iter().chain(owed) {
            let record = self.record(0, time, body);
            self.buffer.clear();
            record.encode(&mut self.buffer)?;
            file.write_all(&self.buffer)?;
            if body.form != Form::Totals {
                all.push_back(PendingRequest::new(Id(number, entry.bytes), &record));
            }
            entry.bytes += self.buffer.len() as u64;
        }
        entry.waiting += all.len();
        file.sync_all()?;
        Ok((entry, all))
    }

    /// Deletes the last snapshot of deltas. None of its requests may be done.
    pub(super) fn take_back(&mut self) {
        self.pending.clear();
        if let Some((&number, _)) = self.files.last_key_value() {
            self.remove(number);
        }
    }

    /// Removes the next `count` requests of a snapshot of deltas, because they were accepted or
    /// refused.
    pub(super) fn finish_next(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.pending.front().map(|request| request.id);
            next.into_iter().for_each(|id| self.finish(id));
        }
    }

    /// Returns the last snapshot of deltas, if any.
    ///
    /// # Errors
    /// Fails if the snapshot is unreadable or damaged.
    pub(super) fn restore(&mut self) -> io::Result<Option<DeltaSnapshot>> {
        if self.next == 1 {
            return Ok(None);
        }
        let number = self.next - 1;
        if self.at_fault == Some(number) || !self.files.contains_key(&number) {
            return Err(io::Error::other("the last file has a fault"));
        }
        self.keep_last();
        self.pending.retain(|request| request.id.0 == number);
        let most = self.most_read();
        let bytes = read_all(self.file(number)?, most)?;
        let mut restored = DeltaSnapshot { is_whole: true, ..DeltaSnapshot::default() };
        for (_, record) in Records::new(&bytes, HEADER.len()) {
            restored.time_ns = record.time.cast_unsigned();
            match record.form {
                Form::Totals => restored.totals.push(body(&record)),
                _ if record.is_done => restored.is_whole = false,
                _ => restored.owed.push(body(&record)),
            }
        }
        Ok(Some(restored))
    }

    /// Deletes all files except the last one.
    fn keep_last(&mut self) {
        while self.files.len() > 1
            && let Some((&number, _)) = self.files.first_key_value()
        {
            self.remove(number);
        }
    }

    /// Appends a record to the last file, or to a new file if the last one is full.
    fn write(&mut self, record: &[u8]) -> io::Result<Id> {
        let length = record.len() as u64;
        if HEADER.len() as u64 + length > self.limit {
            let reason = format!("a request has {length} bytes, and the queue {}", self.limit);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        self.make_room(HEADER.len() as u64 + length);
        let most = MOST_FILE.min(self.limit / 8);
        let is_full = |number| {
            let entry = self.files.get(number);
            entry.is_none_or(|entry| entry.bytes.saturating_add(length) > most)
        };
        if self.tail.as_ref().is_some_and(|(number, _)| is_full(number)) {
            self.tail = None;
        }
        let (number, tail) = match self.tail.take() {
            Some(tail) => tail,
            None => self.begin_file()?,
        };
        let entry = self.files.entry(number).or_default();
        let offset = entry.bytes;
        match tail.write_all_at(record, offset) {
            Ok(()) => {
                entry.bytes += length;
                entry.waiting += 1;
                self.bytes += length;
                self.tail = Some((number, tail));
                Ok(Id(number, offset))
            }
            Err(error) => {
                // We remove the incomplete record, because the file can then grow further. If this
                // fails as well, the next start removes it.
                let is_empty = entry.waiting == 0;
                if tail.set_len(offset).is_ok() {
                    self.tail = Some((number, tail));
                }
                if is_empty {
                    self.remove(number);
                }
                Err(error)
            }
        }
    }

    fn begin_file(&mut self) -> io::Result<(u64, File)> {
        let mut tries = 0;
        let (number, path, file) = loop {
            let number = self.next;
            let path = self.path(number);
            let opened = plain(writable().create_new(true), &path);
            self.next = number.saturating_add(1);
            match opened {
                Ok(file) => break (number, path, file),
                // There is already a file with this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {
                    tries += 1;
                }
                Err(error) => {
                    self.next = number;
                    return Err(error);
                }
            }
        };
        if let Err(error) = file.write_all_at(&HEADER, 0) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        let bytes = HEADER.len() as u64;
        self.files.insert(number, QueueFile { bytes, waiting: 0 });
        self.bytes += bytes;
        Ok((number, file))
    }

    /// Deletes the oldest files until there is space for this number of bytes.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes.saturating_add(bytes) > self.limit {
            let Some((&number, _)) = self.files.first_key_value() else { return };
            let of_file = self.pending.iter().filter(|request| request.id.0 == number);
            let samples = of_file.map(|request| u64::from(request.samples)).sum();
            if !mem::replace(&mut self.was_full, true) {
                warn!(
                    folder = %printable(&self.folder), limit = self.limit,
                    "the queue is full: the oldest requests are dropped"
                );
            }
            self.metrics.full.inc_by(samples);
            self.pending.retain(|request| request.id.0 != number);
            self.remove(number);
        }
    }

    /// Deletes a file without pending requests.
    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.files.remove(&number) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
        for open in [&mut self.tail, &mut self.reading] {
            open.take_if(|(other, _)| *other == number);
        }
        if let Err(error) = fs::remove_file(self.path(number)) {
            self.complain(number, &error.to_string());
        }
        if self.pending.is_empty() {
            self.was_full = false;
        }
    }

    /// Scans a file of an earlier run.
    fn scan(&mut self, number: u64) {
        let opened = plain(&mut writable(), &self.path(number));
        let read = opened.and_then(|file| Ok((read_all(&file, self.most_read())?, file)));
        let (bytes, file) = match read {
            Ok(read) => read,
            Err(error) => return self.complain(number, &error.to_string()),
        };
        match records::kind(&bytes) {
            Kind::Foreign => {
                return self.complain(number, "it is not of this version of the queue; remove it");
            }
            Kind::Torn => return self.remove(number),
            Kind::Queue => {}
        }
        let mut records = Records::new(&bytes, HEADER.len());
        let mut entry = QueueFile::default();
        loop {
            for (at, record) in records.by_ref().filter(|(_, record)| !record.is_done) {
                entry.waiting += 1;
                if record.form == Form::Totals {
                    continue;
                }
                self.pending.push_back(PendingRequest::new(Id(number, at as u64), &record));
            }
            let Some(skipped) = records.skip_damaged() else { break };
            let samples = skipped.samples.min(MOST_SAMPLES);
            self.metrics.damaged.inc_by(samples.into());
            self.complain(number, &format!("skipped {} bytes that are damaged", skipped.bytes));
        }
        let end = records.end();
        entry.bytes = end as u64;
        if end < bytes.len() {
            let reason =
                format!("cut off {} bytes after the last whole request", bytes.len() - end);
            self.complain(number, &reason);
            if let Err(error) = file.set_len(end as u64) {
                self.complain(number, &error.to_string());
            }
        }
        let is_empty = entry.waiting == 0;
        self.bytes += entry.bytes;
        self.files.insert(number, entry);
        if is_empty {
            self.remove(number);
        }
    }

    /// Returns the numbers of all queue files, in order.
    fn numbers(&mut self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| {
                let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
                (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
            });
            match number {
                // We ignore this file, because no number would be left for a file after it.
                Some(number) if number > MOST_NUMBER => {
                    self.complain(number, "its number is too large; remove it");
                }
                number => numbers.extend(number),
            }
        }
        numbers.sort_unstable();
        self.next = numbers.last().map_or(1, |last| last.saturating_add(1));
        Ok(numbers)
    }

    fn read(&mut self, Id(number, offset): Id, length: usize) -> io::Result<Body> {
        let mut bytes = mem::take(&mut self.buffer);
        bytes.resize(length, 0);
        let read = self.file(number).and_then(|file| file.read_exact_at(&mut bytes, offset));
        let record = Records::new(&bytes, 0).next();
        let body = record.map(|(_, record)| body(&record));
        self.buffer = bytes;
        read?;
        body.ok_or_else(|| io::Error::other("a request was changed"))
    }

    /// Opens a file, or returns it if it is already open.
    fn file(&mut self, number: u64) -> io::Result<&File> {
        let file = match self.reading.take() {
            Some((other, file)) if other == number => file,
            _ => plain(&mut writable(), &self.path(number))?,
        };
        Ok(&self.reading.insert((number, file)).1)
    }

    /// Returns the maximum size of a file to read. A file with totals can have any size.
    fn most_read(&self) -> u64 {
        if self.limit == u64::MAX { u64::MAX } else { MOST_READ }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:016x}.{EXTENSION}"))
    }

    /// Counts an error of a file, and logs the first one of each file.
    fn complain(&mut self, number: u64, fault: &str) {
        self.metrics.file_errors.inc();
        if self.at_fault.replace(number) != Some(number) {
            let file = self.path(number);
            warn!(file = %printable(&file), error = fault, "a file of the queue has a fault");
        }
    }

    fn show(&self) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.size.set(i64::try_from(self.bytes).unwrap_or(i64::MAX));
        self.metrics.requests.set(number(self.pending.len()));
    }
}

impl Form {
    /// Returns the version of remote write; `None` for OTLP.
    pub(super) fn version(self) -> Option<i64> {
        match self {
            Self::Write1 => Some(1),
            Self::Write2 => Some(2),
            Self::Points | Self::Totals => None,
        }
    }
}

impl PendingRequest {
    fn new(id: Id, record: &Record<'_>) -> Self {
        let Record { shard, last_shard, samples, time, body, .. } = *record;
        Self { id, length: PREFIX + body.len(), shard, last_shard, samples, time, failures: 0 }
    }
}

/// Creates a directory that only this user can access, unless it exists. Refuses a symbolic link,
/// because it could lead to a directory where others can write, for example `/tmp`.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    match fs::symlink_metadata(folder)?.is_dir() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::NotADirectory, "it is a symbolic link")),
    }
}

/// Returns the name of a receiver's directory, a hash of its URL.
fn folder_name(receiver: &str) -> String {
    let hash: [u8; 16] = Md5::digest(receiver.as_bytes()).into();
    format!("{:032x}", u128::from_be_bytes(hash))
}

/// Writes the URL of the receiver to a file, so people can identify the directory.
fn name_receiver(path: &Path, receiver: &str) -> io::Result<()> {
    let text = format!("{receiver}\n");
    let file = plain(writable().create(true), path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Returns the request in a record.
fn body(record: &Record<'_>) -> Body {
    Body {
        form: record.form,
        coding: record.coding,
        bytes: record.body.to_vec(),
        samples: record.samples.into(),
        series: Vec::new(),
        ends: Vec::new(),
    }
}

/// Reads a whole file, up to `most` bytes.
fn read_all(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Opens a regular file. Fails for a symbolic link, a pipe or a device.
fn plain(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // We use `O_NONBLOCK` because opening a pipe could block the daemon.
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file; remove it")),
    }
}

/// Returns the options to open a file for reading and writing. A new file is only accessible to
/// this user.
fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests;
