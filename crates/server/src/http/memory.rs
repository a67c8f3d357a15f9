//! Memory that was freed, given back to the system.

/// Gives the pages of the heap that are free back to the system. The allocator of glibc keeps them
/// otherwise, as long as anything behind them is in use: 10,000 connections of which one is left
/// would hold the memory of all.
pub(super) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The call takes no pointers, and locks the heap as an allocation does.
    unsafe {
        libc::malloc_trim(0);
    }
}
