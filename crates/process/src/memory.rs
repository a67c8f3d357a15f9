//! The memory of the process: checks for free address space, and the return of freed memory to the
//! system.

use std::hint::black_box;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use rustix::process::{Resource, getrlimit};

/// The smallest allocation with separate pages, which are returned when it is freed. The buffers of
/// most requests are smaller. The buffer for an exposition of many series is larger.
const LARGE: i32 = 8 << 20;
/// The same limit while the daemon starts.
const LARGE_AT_START: i32 = 32 << 10;
/// The free bytes that stay at the end of the heap.
const SPARE: i32 = 16 << 20;

/// Reserved address space, released on drop.
pub struct Room {
    _bytes: Vec<u8>,
}

/// Reserves address space for this many bytes in one piece. Returns `None` if there is no such
/// piece. Most other allocations would then end the process.
pub fn take_room(bytes: usize) -> Option<Room> {
    let mut room: Vec<u8> = Vec::new();
    let taken = room.try_reserve_exact(bytes);
    // Without this, the compiler may remove an unused allocation and assume that it succeeds.
    black_box(&room);
    taken.ok().map(|()| Room { _bytes: room })
}

/// Returns whether there is address space for this many bytes in one piece.
pub fn has_room(bytes: usize) -> bool {
    take_room(bytes).is_some()
}

/// Makes room for more bytes in a buffer. Returns false if this would leave too little address
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

/// The smallest buffer that [`reserve`] checks, and the room that it leaves.
const CHECKED: usize = 256 << 10;
const FOR_OTHERS: usize = 8 << 20;

/// Gives the tables that the daemon allocates at its start separate pages. Tables of zeros then
/// only take memory where they are used.
pub fn spread_tables() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The same as in `return_large`.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_AT_START);
    }
}

/// Makes all threads share one heap if the address space of the process is limited. Otherwise glibc
/// reserves 64 MiB or more for each thread that finds the heap in use, and a start could fail by
/// chance. You must call this before threads start.
pub fn share_heap_if_limited() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: The same as in `return_large`.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Permanently gives large allocations separate pages. Otherwise, once glibc has seen an allocation
/// of up to 32 MiB, it takes allocations of this size from the heap. The heap keeps them, so the
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

/// Returns the free pages of the heap to the system. Otherwise glibc keeps them while anything
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
