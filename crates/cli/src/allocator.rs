//! The allocator of a static program. The allocator of musl takes a lock for each call and returns
//! large blocks to the system at once: with it, a push takes 35% more processor time than with
//! glibc, and a compressed page 170% more. With mimalloc, it is 15% for a push.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set, mi_option_t, mi_option_use_numa_nodes};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h, which the crate does not list: the option before
/// `mi_option_use_numa_nodes`.
const PURGE_DELAY: mi_option_t = mi_option_use_numa_nodes - 1;

/// Returns freed pages to the system at once. By default, mimalloc returns them at a later call, so
/// an idle daemon would keep the memory of its busiest moment.
pub(crate) fn set_up() {
    const AT_ONCE: c_long = 0;
    // SAFETY: The option exists, and the call takes no pointers. No other thread runs yet.
    unsafe { mi_option_set(PURGE_DELAY, AT_ONCE) }
}
