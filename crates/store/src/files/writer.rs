//! Writes one file of this process, in the format of Ruby's client.
//!
//! Values are written with `pwrite`, not through a mapping. So a full disk, a file that another
//! process truncates, and a limit on file sizes are errors here, and do not kill the process. Each
//! update costs one system call, and three more that hide the signal of this limit (`SIGXFSZ`) from
//! the application.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quipu_segment::without_size_signal;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::time::{ClockId, clock_gettime};

use super::table::Reading;
use super::walk::{Flaw, Layout, Window, walk};

pub(super) struct Writer {
    file: File,
    /// Distinguishes the file of this process from others: usually its pid.
    identity: String,
    used: u64,
    size: u64,
    slots: HashMap<Box<str>, Slot>,
}

struct Slot {
    /// The offset of the value in the file.
    at: u64,
    value: f64,
}

/// The initial size of a file. It doubles when it is full.
const FIRST_SIZE: u64 = 16 << 10;
const HEADER: u64 = 8;
/// The maximum number of processes with the same pid, for example in containers that share a
/// directory, that get files.
const MAX_ALIKE: u32 = 1000;

impl Writer {
    /// Creates the file of this process, or continues the file of an earlier process with the same
    /// pid.
    pub(super) fn open(directory: &Path, metric: &str) -> io::Result<Self> {
        let pid = std::process::id();
        for number in 0..MAX_ALIKE {
            let identity = match number {
                0 => pid.to_string(),
                _ => format!("{pid}-{number}"),
            };
            let path = directory.join(format!("metric_{metric}___{identity}.bin"));
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
            if !own(&file)? {
                continue;
            }
            let mut writer = Self { file, identity, used: 0, size: 0, slots: HashMap::new() };
            without_size_signal(|| writer.begin())?;
            return Ok(writer);
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "too many processes have the same pid"))
    }

    /// Reads the existing entries. In a damaged file, writing continues where the damage begins.
    fn begin(&mut self) -> io::Result<()> {
        let (mut slots, mut end) = (HashMap::new(), HEADER);
        let result = walk(&self.file, Layout::Ruby, &mut Window::default(), |entry| {
            if let Ok(key) = std::str::from_utf8(entry.key)
                && !key.is_empty()
            {
                slots.insert(key.into(), Slot { at: entry.at, value: entry.reading.value });
            }
            end = entry.at + 16;
        });
        if let Err(Flaw::Unreadable(error)) = result {
            return Err(error);
        }
        self.size = self.file.metadata()?.len();
        if self.size < FIRST_SIZE {
            self.grow(FIRST_SIZE)?;
        }
        (self.slots, self.used) = (slots, end);
        self.put_used()
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the value of a key; `None` if there is no entry.
    pub(super) fn get(&self, key: &str) -> Option<f64> {
        Some(self.slots.get(key)?.value)
    }

    /// Sets the value of a key.
    pub(super) fn set(&mut self, key: &str, value: f64) -> io::Result<()> {
        let reading = Reading { value, time: now() };
        without_size_signal(|| {
            let Some(slot) = self.slots.get_mut(key) else { return self.append(key, reading) };
            self.file.write_all_at(&numbers(reading), slot.at)?;
            slot.value = value;
            Ok(())
        })
    }

    fn append(&mut self, key: &str, reading: Reading) -> io::Result<()> {
        let padded = key.len() + 8 - (key.len() + 4) % 8;
        let too_long = |_| io::Error::new(ErrorKind::InvalidInput, "the labels are too long");
        let length = i32::try_from(padded).map_err(too_long)?;
        let mut entry = Vec::with_capacity(4 + padded + 16);
        entry.extend_from_slice(&length.to_le_bytes());
        entry.extend_from_slice(key.as_bytes());
        entry.resize(4 + padded, b' ');
        entry.extend_from_slice(&numbers(reading));
        let end = self.used + entry.len() as u64;
        if end > self.size {
            // There may be space for this entry even if there is none for twice the size.
            self.grow((self.size * 2).max(end)).or_else(|_| self.grow(end))?;
        }
        self.file.write_all_at(&entry, self.used)?;
        let before = std::mem::replace(&mut self.used, end);
        // From here on, readers see the entry.
        self.put_used().inspect_err(|_| self.used = before)?;
        self.slots.insert(key.into(), Slot { at: end - 16, value: reading.value });
        Ok(())
    }

    fn put_used(&self) -> io::Result<()> {
        let full = |_| io::Error::new(ErrorKind::FileTooLarge, "the file has reached 2 GiB");
        let used = i32::try_from(self.used).map_err(full)?;
        self.file.write_all_at(&used.to_le_bytes(), 0)
    }

    /// Allocates blocks on the disk, because later writes must not fail on a full disk.
    fn grow(&mut self, size: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(size)?,
            Err(error) => return Err(error.into()),
        }
        self.size = size;
        Ok(())
    }

    /// Locks out readers that want a consistent view of several values. Returns false, without
    /// waiting, if a reader holds the lock.
    pub(super) fn lock(&self) -> bool {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    pub(super) fn unlock(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn numbers(Reading { value, time }: Reading) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[8..].copy_from_slice(&time.to_le_bytes());
    bytes
}

/// Reads the monotonic clock in seconds, like Ruby's client.
fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Claims the file for this process. Returns `false` if a live process owns it: a process with the
/// same pid, in another container. Readers use locks of another kind, which do not conflict with
/// this.
#[cfg(target_os = "linux")]
fn own(file: &File) -> io::Result<bool> {
    let lock = libc::flock {
        // The constants fit into the field, whose type differs between systems.
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the call reads one `flock`, which outlives it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::PermissionDenied => Ok(false),
        _ => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn own(_: &File) -> io::Result<bool> {
    Ok(true)
}
