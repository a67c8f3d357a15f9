//! Returns freed memory to the system.

/// Returns the free pages of the heap to the system. glibc's allocator otherwise keeps them as long
/// as anything above them in the heap is in use: after 10,000 connections, a single one that is
/// left would hold the memory of all.
pub(super) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The call takes no pointers, and locks the heap as an allocation does.
    unsafe {
        libc::malloc_trim(0);
    }
}
