//! The memory of the process: whether there is room for more, and what is freed goes back to the
//! system.

use std::hint::black_box;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use rustix::process::{Resource, getrlimit};

/// From how many bytes on an allocation has pages of its own, which go back when it is freed. The
/// buffers of most requests are smaller; those of an exposition of many series are larger.
const LARGE: i32 = 8 << 20;
/// The same while the daemon starts.
const LARGE_AT_START: i32 = 32 << 10;
/// How many free bytes stay at the end of the heap.
const SPARE: i32 = 16 << 20;

/// Address space that is taken, and given back when this is dropped.
pub struct Room {
    _bytes: Vec<u8>,
}

/// Takes address space for this many bytes in one piece. None if the process finds no such piece:
/// most allocations then end it.
pub fn take_room(bytes: usize) -> Option<Room> {
    let mut room: Vec<u8> = Vec::new();
    let taken = room.try_reserve_exact(bytes);
    // The compiler may leave out an allocation that nothing uses, and take it to succeed.
    black_box(&room);
    taken.ok().map(|()| Room { _bytes: room })
}

/// Whether the process finds address space for this many bytes in one piece.
pub fn has_room(bytes: usize) -> bool {
    take_room(bytes).is_some()
}

/// Makes room for more bytes in a buffer. Returns false if the process would then find too little
/// address space for anything else: an allocation that fails ends it.
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

/// The least size of a buffer that [`reserve`] is careful about, and the room that it leaves.
const CHECKED: usize = 256 << 10;
const FOR_OTHERS: usize = 8 << 20;

/// Gives the tables that the daemon makes at its start pages of their own: those that begin with
/// zeros then take memory only where they are used.
pub fn spread_tables() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: As in `return_large`.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_AT_START);
    }
}

/// Lets all threads share one heap if the process may not have as much address space as it likes.
/// glibc's allocator otherwise reserves 64 MiB and more for each thread that finds the heap in use,
/// and a start would go well or not by chance. Has to be called before threads start.
pub fn share_heap_if_limited() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: As in `return_large`.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Gives large allocations pages of their own, for good. glibc's allocator otherwise takes those of
/// up to 32 MiB from the heap as soon as it has seen one of that size, and the heap keeps them: the
/// daemon would be as large as its largest response for ever.
pub fn return_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The calls take no pointers. They change how the allocator works from now on, and what
    // it has given out stays valid.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
    }
}

/// Returns the free pages of the heap to the system. glibc's allocator otherwise keeps them as long
/// as anything above them in the heap is in use: after 10,000 connections, a single one that is
/// left would hold the memory of all.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: The call takes no pointers, and locks the heap as an allocation does.
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

    /// With optimisation, this fails if the compiler leaves the allocation out.
    #[test]
    fn there_is_room_for_some_bytes_and_not_for_half_of_all() {
        assert!(has_room(1 << 20));
        assert!(!has_room(usize::MAX / 2));
        assert!(!has_room(usize::MAX));
    }
}
