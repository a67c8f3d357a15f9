//! Threads that the library starts inside of a program, without the program's knowledge.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that takes no signals. The threads of the program get them, because they may
/// handle or wait for them. Only signals of the new thread's own faults reach it.
///
/// # Errors
/// Returns the system's error if it refuses another thread.
#[doc(hidden)]
pub fn spawn_without_signals<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Set a size, because the standard library otherwise reads the environment, whose lock may stay
    // locked in the child of a fork.
    let thread = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    // Block the signals before the start, because the thread inherits the mask of its creator.
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    let _blocked = signals::BlockedSignals::new();
    thread.spawn(work)
}

const STACK_BYTES: usize = 1 << 20;

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod signals {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// Blocks the signals in this thread as long as this value lives.
    pub(super) struct BlockedSignals {
        before: libc::sigset_t,
    }

    /// The signals that a thread gets because of its own actions.
    const FAULTS: [libc::c_int; 7] = [
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGSEGV,
        libc::SIGSYS,
        libc::SIGTRAP,
    ];

    impl BlockedSignals {
        pub(super) fn new() -> Self {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: the sets are valid for the calls: the first call fills one, the last writes
            // the other, and does not fail for a valid first argument. The C library keeps the
            // signals that it needs itself out of the set.
            let before = unsafe {
                libc::sigfillset(all.as_mut_ptr());
                for fault in FAULTS {
                    libc::sigdelset(all.as_mut_ptr(), fault);
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
                before.assume_init()
            };
            Self { before }
        }
    }

    impl Drop for BlockedSignals {
        fn drop(&mut self) {
            // SAFETY: the set is the one that was read before; restoring it does not fail.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
            }
        }
    }
}
