//! Files that other programs truncate while they are mapped. A process that touches a page beyond
//! the end of a file gets a SIGBUS, which ends it. A tool that opens the files of many programs can
//! request pages of zeros instead, and learns afterwards which file was truncated.
//!
//! The signal handler maps a page of private memory in place of the missing one. It does so only
//! inside of mapped segments, which it finds in a table. Any other SIGBUS ends the process as
//! before. Zeros are harmless in another program's segment, because its words are not trusted
//! anyway. Stores to such a page are lost, and if this program's own file is truncated, these are
//! its own counts.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use libc::{BUS_ADRERR, SA_SIGINFO, SIG_DFL, SIGBUS};

/// A mapped segment in the handler's table, until it is dropped.
#[derive(Debug)]
pub(crate) struct WatchedMapping(&'static Mapping);

#[derive(Debug)]
struct Mapping {
    /// The first address; 0 for a free entry.
    start: AtomicUsize,
    /// The end address; 0 until the rest of the entry is complete.
    end: AtomicUsize,
    is_cut: AtomicBool,
}

/// The maximum number of files that one process can open while the handler is in use.
pub(crate) const MOST: usize = 4096;

static MAPPINGS: [Mapping; MOST] = [const { Mapping::new() }; MOST];
/// The size of a page in bytes; 0 until the handler is in use.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Keeps your process alive if another program truncates a segment file that it has mapped. Reads
/// of the missing part then return zeros, and [`Segment::was_cut`](crate::Segment::was_cut) returns
/// true. This works for files that you open afterwards, at most 4,096 at a time. It replaces the
/// process's handler of SIGBUS.
///
/// Use this in a tool that opens the files of other programs. If the process counts in such pages
/// itself, the counts are lost without an error.
///
/// # Errors
/// Returns the error of the system if it refuses the handler.
pub fn survive_cuts() -> io::Result<()> {
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: all bytes of the action can be zero. The handler only makes calls that are allowed in
    // a handler, and has the signature that SA_SIGINFO requires.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = SA_SIGINFO;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(SIGBUS, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Mapping {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
        }
    }

    fn has(&self, address: usize) -> bool {
        // Acquire: sees the start that belongs to this end.
        let end = self.end.load(Ordering::Acquire);
        address < end && self.start.load(Ordering::Relaxed) <= address
    }
}

impl WatchedMapping {
    /// Adds a mapping to the table. Returns `Ok(None)` if the handler is not in use.
    ///
    /// # Errors
    /// If the table is full.
    pub(crate) fn new(start: usize, length: usize) -> Result<Option<Self>, ()> {
        if PAGE.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let take = |mapping: &&'static Mapping| {
            // Acquire: the end that is stored below follows the 0 of the mapping before.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            mapping.start.compare_exchange(0, start, success, failure).is_ok()
        };
        let mapping = MAPPINGS.iter().find(take).ok_or(())?;
        mapping.is_cut.store(false, Ordering::Relaxed);
        // Release: the handler that sees the end sees the start.
        mapping.end.store(start + length, Ordering::Release);
        Ok(Some(Self(mapping)))
    }

    /// Returns whether a page was missing when this process touched it.
    pub(crate) fn is_cut(&self) -> bool {
        // Earlier reads of this thread are made before this.
        compiler_fence(Ordering::SeqCst);
        self.0.is_cut.load(Ordering::Relaxed)
    }
}

impl Drop for WatchedMapping {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Relaxed);
        // Release: a free entry contains no end.
        self.0.start.store(0, Ordering::Release);
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes the information about this signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code == BUS_ADRERR && replace_page(address) {
        return;
    }
    // SAFETY: both calls are allowed in a handler. The signal is blocked until the handler returns.
    // Then either the same instruction faults again, or the signal raised here arrives; its default
    // action ends the process.
    unsafe {
        libc::signal(signal, SIG_DFL);
        if code != BUS_ADRERR {
            libc::raise(signal);
        }
    }
}

/// Maps a page of zeros at an address, if that lies in a mapped segment.
fn replace_page(address: usize) -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    let Some(mapping) = MAPPINGS.iter().find(|mapping| mapping.has(address)) else { return false };
    mapping.is_cut.store(true, Ordering::Relaxed);
    let start = std::ptr::with_exposed_provenance_mut(address / page * page);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a mapped segment. The faulting instruction keeps the segment in use,
    // and its bytes are only accessed as atomics that can change at any moment. The call is just a
    // system call, so a handler may make it.
    let result = unsafe { libc::mmap(start, page, protection, flags, -1, 0) };
    result != libc::MAP_FAILED
}
