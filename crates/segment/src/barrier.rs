//! An asymmetric memory barrier: one side is nearly free. The fast side is for a thread that often
//! stores one word and then loads another, the slow side for a thread that seldom does it the other
//! way round.
//!
//! Each of the two threads stores, passes its barrier, and loads. Then at least one of them sees
//! what the other one stored. The slow side calls `membarrier(2)`, which makes each running thread
//! of a registered process pass a full barrier; the fast side only keeps the compiler from moving
//! the load before the store. A process that the system does not let register pays for a fence.

use std::sync::atomic::compiler_fence;

use crate::sync::{Ordering, fence};

/// Registers this process for the barriers of others, and its future children too. Where it returns
/// false, the threads of this process need fences.
pub(crate) fn register() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED)
}

/// The barrier of the fast side. `relies` says whether its process is registered.
#[inline]
pub(crate) fn light(relies: bool) {
    // SeqCst, both: the store before comes before the load after, as `heavy` requires.
    if relies {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The barrier of the slow side. Where it returns false, it works only for threads that do not rely
/// on it, since they use fences.
pub(crate) fn heavy() -> bool {
    // SeqCst: as above, for the threads that use fences.
    fence(Ordering::SeqCst);
    membarrier(GLOBAL_EXPEDITED)
}

/// `linux/membarrier.h`.
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
