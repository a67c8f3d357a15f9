//! Fetching memory into the cache before it is read.

/// Begins to fetch a place that will be read soon. A hint: on machines for which it is not written
/// it does nothing.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing, and the address is that of a reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
