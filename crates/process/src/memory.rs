//! Controls the memory of the process: checks for free address space, and returns freed memory to
//! the system.

use std::hint::black_box;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use rustix::process::{Resource, getrlimit};

/// The minimum size of an allocation with separate pages, which the system gets back when it is
/// freed. The buffers of most requests are smaller, and the buffer for a page of many series is
/// larger.
const LARGE: i32 = 8 << 20;
/// The minimum size of an allocation with separate pages while the daemon starts.
const LARGE_AT_START: i32 = 32 << 10;
/// The number of free bytes that stay at the end of the heap.
const SPARE: i32 = 16 << 20;

/// Reserved address space. Dropping this value releases it.
pub struct Room {
    _bytes: Vec<u8>,
}

/// Reserves contiguous address space. Returns `None` if there is not enough. In this case, most
/// other allocations would fail and end the process.
pub fn take_room(bytes: usize) -> Option<Room> {
    let mut room: Vec<u8> = Vec::new();
    let taken = room.try_reserve_exact(bytes);
    // Without this, the compiler can remove an unused allocation and assume that it succeeds.
    black_box(&room);
    taken.ok().map(|()| Room { _bytes: room })
}

/// Returns whether this number of bytes of contiguous address space is free.
pub fn has_room(bytes: usize) -> bool {
    take_room(bytes).is_some()
}

/// Reserves memory for more bytes in a buffer. Returns false if this would leave too little address
/// space for other allocations, because a failed allocation ends the process.
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> bool {
    let whole = buffer.len().saturating_add(more);
    if whole <= buffer.capacity() {
        return true;
    }
    let grown = whole.max(buffer.capacity().saturating_mul(2));
    if grown >= CHECKED && !has_room(grown.saturating_add(FOR_OTHERS)) {
        return false;
    }
    buffer.try_reserve(more).is_ok()
}

/// The minimum size of a buffer that [`reserve`] checks.
const CHECKED: usize = 256 << 10;
/// The address space that [`reserve`] leaves for other allocations.
const FOR_OTHERS: usize = 8 << 20;

/// Places the tables that the daemon allocates at its start on separate pages. A table of zeros
/// then takes memory only where it is used.
pub fn spread_tables() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The same as in `return_large`.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_AT_START);
    }
}

/// Makes all threads share one heap, if the address space of the process is limited. Otherwise
/// glibc reserves 64 MiB or more for each thread that finds the heap locked, and the daemon could
/// fail to start by chance. Call this before any thread starts.
pub fn share_heap_if_limited() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: The same as in `return_large`.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Places large allocations on separate pages from now on. Otherwise glibc, once it has seen an
/// allocation of up to 32 MiB, allocates this size on the heap. The heap keeps its pages, so the
/// daemon would stay as large as its largest response.
pub fn return_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The calls take no pointers. They only change later allocations, and existing ones
    // stay valid.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
    }
}

/// Returns the free pages of the heap to the system. Otherwise glibc keeps them while any memory
/// above them is in use. For example, after 10,000 connections, a single remaining one would hold
/// the memory of all.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The call takes no pointers, and locks the heap like an allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{has_room, reserve};

    #[test]
    fn a_buffer_grows_as_far_as_there_is_room() {
        let mut buffer = vec![1; 10];
        assert!(reserve(&mut buffer, 1 << 20) && buffer.capacity() >= 10 + (1 << 20));
        assert!(!reserve(&mut buffer, usize::MAX / 2) && !reserve(&mut buffer, usize::MAX));
        assert_eq!(buffer, [1; 10]);
    }

    /// With optimisation, this fails if the compiler removes the allocation.
    #[test]
    fn there_is_room_for_some_bytes_and_not_for_half_of_all() {
        assert!(has_room(1 << 20));
        assert!(!has_room(usize::MAX / 2));
        assert!(!has_room(usize::MAX));
    }
}
