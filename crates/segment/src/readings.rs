//! The clocks of the machine, read from the system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of each clock of the machine at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readings {
    /// The ID of the boot that `since_boot` counts from; zeros if it is unknown.
    pub boot: [u8; 16],
    /// The time since boot, including suspended time.
    pub since_boot: Duration,
    /// The wall clock, as time since 1970.
    pub wall: Duration,
}

impl Readings {
    /// Reads the clocks.
    pub fn now() -> Self {
        Self { boot: boot_id(), ..Self::of_this_boot() }
    }

    /// Reads the clocks without the boot ID, because reading that takes a file. You can use this
    /// for memory that does not outlive the boot.
    pub(crate) fn of_this_boot() -> Self {
        let since_boot = Duration::from_nanos(since_boot());
        Self { boot: [0; 16], since_boot, wall: Duration::from_nanos(unix()) }
    }
}

/// Returns the wall clock's Unix time in nanoseconds; 0 if it is before 1970.
pub(crate) fn unix() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns nanoseconds, at most the 584 years that fit into 64 bits.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

#[cfg(any(not(target_os = "linux"), miri))]
fn boot_id() -> [u8; 16] {
    [0; 16]
}

/// Returns the nanoseconds since boot, including suspended time.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub(crate) fn since_boot() -> u64 {
    read(rustix::time::ClockId::Boottime)
}

/// Returns the time since the first call, which is as good for a process without a file.
#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn since_boot() -> u64 {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::time::Instant;

    static START: AtomicPtr<Instant> = AtomicPtr::new(ptr::null_mut());
    // Acquire and Release: a thread that finds the pointer finds the time.
    let mut start = START.load(Ordering::Acquire);
    if start.is_null() {
        // Use no lock, because it may stay locked forever in a child of a fork. The time is never
        // freed.
        let own = Box::into_raw(Box::new(Instant::now()));
        let put = START.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire);
        start = put.map_or_else(
            |first| {
                // SAFETY: the pointer is from `Box::into_raw` above, and no other thread has it.
                drop(unsafe { Box::from_raw(own) });
                first
            },
            |_| own,
        );
    }
    // SAFETY: the pointer is from a `Box`, and is never freed.
    nanoseconds(unsafe { *start }.elapsed())
}

/// Reads a clock of the kernel, in nanoseconds.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub(crate) fn read(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    // The kernel's clocks since boot are never negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
