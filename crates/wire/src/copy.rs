//! Copies a few bytes without a call.

/// Copies `len` bytes. Ids and short lists of values have 8 to 64, for which calling a general copy
/// costs more than the copy: 2 to 4 ns per message.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: Each load is within the first or the last of the `len` bytes, and so is each store.
    // A step loads everything before it stores, so its blocks may overlap.
    unsafe {
        if (32..=64).contains(&len) {
            let (first, last) = (load::<32>(from), load::<32>(from.add(len - 32)));
            store(to, first);
            store(to.add(len - 32), last);
        } else if (16..32).contains(&len) {
            let (first, last) = (load::<16>(from), load::<16>(from.add(len - 16)));
            store(to, first);
            store(to.add(len - 16), last);
        } else if (8..16).contains(&len) {
            let (first, last) = (load::<8>(from), load::<8>(from.add(len - 8)));
            store(to, first);
            store(to.add(len - 8), last);
        } else {
            core::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// # Safety
///
/// `from` is valid for reads of N bytes.
#[inline(always)]
unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: The caller's obligation.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

/// # Safety
///
/// `to` is valid for writes of N bytes.
#[inline(always)]
unsafe fn store<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    // SAFETY: The caller's obligation.
    unsafe { to.cast::<[u8; N]>().write_unaligned(bytes) }
}
