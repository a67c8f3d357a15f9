//! Threads that the library starts inside of a program that does not know of them.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that takes no signals: the threads of the program get them, whether these have
/// handlers or wait for them. Only signals of its own faults reach it.
///
/// # Errors
/// The system's, if it does not let this process have another thread.
#[doc(hidden)]
pub fn spawn_without_signals<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Without a size, the standard library reads the environment, whose lock the child of a fork
    // may find locked.
    let thread = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    // The thread begins with the mask of the one that starts it, so that no signal comes between.
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    let _blocked = signals::BlockedSignals::new();
    thread.spawn(work)
}

const STACK_BYTES: usize = 1 << 20;

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod signals {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// Blocks the signals in this thread while this lives.
    pub(super) struct BlockedSignals {
        before: libc::sigset_t,
    }

    /// A thread gets these for what it does itself.
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
            // SAFETY: the sets are valid for the calls: the first makes one, the last writes the
            // other, and does not fail for a valid first argument. The C library keeps the signals
            // that it needs itself out of the set.
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
