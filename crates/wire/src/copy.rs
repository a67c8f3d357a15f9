//! Copies a few bytes without a call.

/// Copies `len` bytes. This exists because ids and short lists are 8 to 64 bytes long. There, the
/// call of a general copy function costs more than the copy: 2 to 4 ns per message.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: Each block is within the `len` bytes. If two blocks overlap, both write the same
    // bytes.
    unsafe {
        if (32..=64).contains(&len) {
            block::<32>(from, to);
            block::<32>(from.add(len - 32), to.add(len - 32));
        } else if (16..32).contains(&len) {
            block::<16>(from, to);
            block::<16>(from.add(len - 16), to.add(len - 16));
        } else if (8..16).contains(&len) {
            block::<8>(from, to);
            block::<8>(from.add(len - 8), to.add(len - 8));
        } else {
            core::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// # Safety
///
/// `from` is valid for reads and `to` for writes of N bytes, and they do not overlap.
#[inline(always)]
unsafe fn block<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: The caller's obligation.
    unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) }
}
