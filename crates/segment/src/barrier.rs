//! An asymmetric memory barrier, where one side is nearly free. Use the fast side in a thread that
//! often stores one word and then loads another, and the slow side in a thread that seldom does the
//! opposite.
//!
//! Each of the two threads stores, passes its barrier, and loads. At least one of them then sees
//! the other's store. The slow side calls `membarrier(2)`, which makes each running thread of a
//! registered process pass a full barrier. The fast side only keeps the compiler from moving the
//! load before the store. If the system does not let a process register, the process pays for a
//! fence.

use std::sync::atomic::compiler_fence;

use crate::sync::{Ordering, fence};

/// Registers this process, and its future children, for the barriers of others. If this returns
/// false, the threads of this process need fences.
pub(crate) fn register() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED)
}

/// Passes the fast side. `relies` is whether the process is registered.
#[inline]
pub(crate) fn light(relies: bool) {
    // SeqCst, both: the store before must precede the load after, because `heavy` requires this.
    if relies {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Passes the slow side. If this returns false, it works only for threads that use fences because
/// they do not rely on it.
pub(crate) fn heavy() -> bool {
    // SeqCst: as above, for the threads that use fences.
    fence(Ordering::SeqCst);
    membarrier(GLOBAL_EXPEDITED)
}

/// The constants of `linux/membarrier.h`.
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
fn membarrier(command: i32) -> bool {
    // SAFETY: the call takes three numbers, and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn membarrier(_command: i32) -> bool {
    false
}
