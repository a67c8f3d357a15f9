//! Files that other programs cut while they are mapped. A process that touches a page after the end
//! of a file gets a SIGBUS, which ends it. A tool that opens the files of many programs can ask for
//! pages of zeros instead, and learns afterwards which file it was.
//!
//! The handler of the signal puts a page of private memory where the missing one was. It does so
//! only inside of mapped segments, which it finds in a table; any other SIGBUS ends the process as
//! before. What is read of the segments of other programs is not trusted anyway, so zeros do no
//! harm. What is written to such a page is lost: also this program's own counts, if its own file is
//! cut.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use libc::{BUS_ADRERR, SA_SIGINFO, SIG_DFL, SIGBUS};

/// A segment that is mapped, in the table of those that the handler knows, until it is dropped.
#[derive(Debug)]
pub(crate) struct WatchedMapping(&'static Mapping);

#[derive(Debug)]
struct Mapping {
    /// 0 for an entry that is free.
    start: AtomicUsize,
    /// 0 until the rest of the entry is complete.
    end: AtomicUsize,
    is_cut: AtomicBool,
}

/// The most files that one process may have open when the handler is in use.
pub(crate) const MOST: usize = 4096;

static MAPPINGS: [Mapping; MOST] = [const { Mapping::new() }; MOST];
/// The bytes of a page once the handler is in use, before that 0.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Keeps the process alive if another program cuts a segment file that this process has mapped:
/// reads of what is gone return zeros, and [`Segment::was_cut`](crate::Segment::was_cut) tells. It
/// holds for files that are opened afterwards, at most 4,096 at a time, and replaces the process's
/// handler of SIGBUS.
///
/// It is for tools that open the files of other programs: what the process itself counts in such
/// pages is lost without an error.
///
/// # Errors
/// That of the system if it refuses the handler.
pub fn survive_cuts() -> io::Result<()> {
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: all bytes of the action may be zero. The handler calls only what may be called in
    // one, and has the signature that SA_SIGINFO asks for.
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
    /// Adds a mapping to the table. `Ok(None)` if the handler is not in use.
    ///
    /// # Errors
    /// If the table is full.
    pub(crate) fn new(start: usize, length: usize) -> Result<Option<Self>, ()> {
        if PAGE.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let take = |mapping: &&'static Mapping| {
            // Acquire: the end that is stored below comes after the 0 of the mapping before.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            mapping.start.compare_exchange(0, start, success, failure).is_ok()
        };
        let mapping = MAPPINGS.iter().find(take).ok_or(())?;
        mapping.is_cut.store(false, Ordering::Relaxed);
        // Release: the handler that sees the end sees the start.
        mapping.end.store(start + length, Ordering::Release);
        Ok(Some(Self(mapping)))
    }

    /// Whether a page was missing when it was touched.
    pub(crate) fn is_cut(&self) -> bool {
        // What this thread read before is read before this.
        compiler_fence(Ordering::SeqCst);
        self.0.is_cut.load(Ordering::Relaxed)
    }
}

impl Drop for WatchedMapping {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Relaxed);
        // Release: the entry has no end when it is free.
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
    // SAFETY: both calls may be made in a handler. The signal is blocked until it returns: then
    // either the same instruction faults again, or the signal that is raised here arrives; its
    // default action ends the process.
    unsafe {
        libc::signal(signal, SIG_DFL);
        if code != BUS_ADRERR {
            libc::raise(signal);
        }
    }
}

/// Puts a page of zeros at an address, if that lies in a mapped segment.
fn replace_page(address: usize) -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    let Some(mapping) = MAPPINGS.iter().find(|mapping| mapping.has(address)) else { return false };
    mapping.is_cut.store(true, Ordering::Relaxed);
    let start = std::ptr::with_exposed_provenance_mut(address / page * page);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in the mapping of a segment, which is in use by the instruction that
    // faulted, and whose bytes are reached only as atomics that may change at any moment. The call
    // is a system call and nothing else, so it may be made in a handler.
    let result = unsafe { libc::mmap(start, page, protection, flags, -1, 0) };
    result != libc::MAP_FAILED
}
