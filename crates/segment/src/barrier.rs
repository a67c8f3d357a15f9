//! A memory barrier of which one side costs nothing: for a thread that stores a word and then loads
//! another one, often, and a thread that does it the other way round, seldom.
//!
//! Each of the two stores, passes its barrier, and loads. Then at least one of them sees what the
//! other one stored. The seldom side calls `membarrier(2)`, which makes each thread that runs in a
//! registered process pass a full barrier; the often side only keeps the compiler from moving the
//! load before the store. A process that the system does not let register pays for a fence.

use std::sync::atomic::compiler_fence;

use crate::sync::{Ordering, fence};

/// Makes this process take part in the barriers of others. Where it returns false, its threads need
/// fences. It holds for children of forks too.
pub(crate) fn register() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED)
}

/// The barrier of the often side; `relies` says whether its process is registered.
#[inline]
pub(crate) fn light(relies: bool) {
    // SeqCst, both: the store before comes before the load after, as `heavy` needs it.
    if relies {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The barrier of the seldom side. Where it returns false, it works for those only that do not rely
/// on it.
pub(crate) fn heavy() -> bool {
    // SeqCst: as above, for those that use fences.
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
