//! Whether this process is a child that was forked since.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How often this process' ancestors were forked since one of them asked first.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A number that a child does not share with its parent, if the parent has asked for it. It costs a
/// load. Forks are noticed where the C library makes them.
#[inline]
pub(crate) fn generation() -> u32 {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) {
        watch(&WATCHED);
    }
    GENERATION.load(Ordering::Relaxed)
}

#[cold]
fn watch(watched: &AtomicBool) {
    // SAFETY: the handler adds to an atomic, which is allowed after a fork. Where it cannot be
    // registered, children are not told apart. Two threads may both register it, which does no harm;
    // a lock might be held by a thread that a child does not have.
    #[cfg(unix)]
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    }
    watched.store(true, Ordering::Relaxed);
}

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
