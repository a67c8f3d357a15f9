//! The time of a segment: nanoseconds that advance across restarts, suspends and clock changes.
//!
//! A segment's time begins as the wall clock's Unix time. From then on, it follows the time since
//! boot. This clock cannot be set, and includes the time that the machine was suspended. After a
//! reboot, the segment's time continues from its value at the last sync, plus the advance of the
//! wall clock since then. It never goes backwards.

use std::time::Duration;

use crate::readings::{Readings, nanoseconds};
use crate::sync::{AtomicU64, Ordering};

/// The offset from the time since boot to a segment's time, modulo 2^64 nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anchor(u64);

impl Anchor {
    /// Returns the anchor of a segment whose time is now the wall clock's.
    pub fn at_wall(readings: &Readings) -> Self {
        Self::at(nanoseconds(readings.wall), readings)
    }

    /// Returns the anchor of a segment whose time is now `time` nanoseconds.
    pub fn at(time: u64, readings: &Readings) -> Self {
        Self(time.wrapping_sub(nanoseconds(readings.since_boot)))
    }

    /// Returns the segment's time in nanoseconds when the machine has been up for `since_boot`.
    pub fn time(self, since_boot: Duration) -> u64 {
        self.0.wrapping_add(nanoseconds(since_boot))
    }

    /// Returns the nanoseconds to add to the time since boot, modulo 2^64.
    pub(crate) fn offset(self) -> u64 {
        self.0
    }
}

/// The cells of the header that store a segment's time.
pub(crate) struct AnchorCells<'a> {
    pub(crate) boot: [&'a AtomicU64; 2],
    pub(crate) anchor: &'a AtomicU64,
    pub(crate) seen_time: &'a AtomicU64,
    pub(crate) seen_wall: &'a AtomicU64,
}

impl AnchorCells<'_> {
    /// Writes the anchor of a new segment, whose time is the wall clock's.
    pub(crate) fn begin(&self, readings: &Readings) -> Anchor {
        let anchor = Anchor::at_wall(readings);
        self.store(anchor, readings.boot);
        self.see(anchor, readings);
        anchor
    }

    /// Returns the anchor of an existing segment, and whether the machine was rebooted since the
    /// anchor was stored. After a reboot, this is a new anchor, which you must store.
    pub(crate) fn resume(&self, readings: &Readings) -> (Anchor, bool) {
        let boot = [0, 1].map(|i| self.boot[i].load(Ordering::Relaxed));
        if readings.boot != [0; 16] && boot == halves(readings.boot) {
            return (Anchor(self.anchor.load(Ordering::Relaxed)), false);
        }
        let seen_wall = self.seen_wall.load(Ordering::Relaxed);
        let elapsed = nanoseconds(readings.wall).saturating_sub(seen_wall);
        let time = self.seen_time.load(Ordering::Relaxed).saturating_add(elapsed);
        (Anchor::at(time, readings), true)
    }

    /// Returns the anchor of a segment that another process is using.
    pub(crate) fn current(&self) -> Anchor {
        Anchor(self.anchor.load(Ordering::Relaxed))
    }

    /// Returns whether this anchor is stored for this boot.
    pub(crate) fn has(&self, anchor: Anchor, boot: [u8; 16]) -> bool {
        let stored = [0, 1].map(|i| self.boot[i].load(Ordering::Relaxed));
        self.current() == anchor && stored == halves(boot)
    }

    /// Stores the current time, for the first start after the next boot.
    pub(crate) fn see(&self, anchor: Anchor, readings: &Readings) {
        // If only the first store survives, the segment's time does not advance by the time between
        // the last two calls.
        self.seen_wall.store(nanoseconds(readings.wall), Ordering::Relaxed);
        self.seen_time.store(anchor.time(readings.since_boot), Ordering::Relaxed);
    }

    /// Stores an anchor that is valid until the next boot.
    pub(crate) fn store(&self, anchor: Anchor, boot: [u8; 16]) {
        // A death between two stores leaves a boot ID that matches no boot. The next start treats
        // this as a reboot.
        self.boot[0].store(0, Ordering::Relaxed);
        self.boot[1].store(0, Ordering::Release);
        self.anchor.store(anchor.0, Ordering::Release);
        let boot = halves(boot);
        self.boot[1].store(boot[1], Ordering::Release);
        self.boot[0].store(boot[0], Ordering::Release);
    }
}

fn halves(boot: [u8; 16]) -> [u64; 2] {
    let (first, second) = boot.split_at(8);
    [first, second].map(|half| u64::from_le_bytes(half.try_into().expect("a half has 8 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn readings(boot: u8, since_boot: u64, wall: u64) -> Readings {
        let seconds = |n| SECOND * u32::try_from(n).unwrap();
        Readings { boot: [boot; 16], since_boot: seconds(since_boot), wall: seconds(wall) }
    }

    fn seconds(anchor: Anchor, readings: &Readings) -> u64 {
        anchor.time(readings.since_boot) / 1_000_000_000
    }

    /// Applies these starts to the header of a segment, and returns its time at each.
    fn times(starts: &[Readings]) -> Vec<u64> {
        let cells: [AtomicU64; 5] = Default::default();
        let cells = AnchorCells {
            boot: [&cells[0], &cells[1]],
            anchor: &cells[2],
            seen_time: &cells[3],
            seen_wall: &cells[4],
        };
        starts
            .iter()
            .enumerate()
            .map(|(i, now)| {
                let anchor = if i == 0 { cells.begin(now) } else { cells.resume(now).0 };
                cells.store(anchor, now.boot);
                cells.see(anchor, now);
                seconds(anchor, now)
            })
            .collect()
    }

    #[test]
    fn within_a_boot_the_wall_clock_does_not_matter() {
        let starts = [readings(1, 100, 5000), readings(1, 160, 1000), readings(1, 170, 99_000)];
        assert_eq!(times(&starts), [5000, 5060, 5070]);
    }

    #[test]
    fn a_reboot_advances_by_the_wall_clock() {
        let starts = [readings(1, 100, 5000), readings(2, 7, 5090), readings(2, 8, 5091)];
        assert_eq!(times(&starts), [5000, 5090, 5091]);
    }

    #[test]
    fn a_reboot_with_the_wall_clock_set_back_never_goes_backwards() {
        let starts = [readings(1, 100, 5000), readings(2, 7, 1000), readings(2, 9, 1002)];
        assert_eq!(times(&starts), [5000, 5000, 5002]);
    }

    #[test]
    fn an_unknown_boot_is_taken_as_a_reboot() {
        let starts = [readings(0, 100, 5000), readings(0, 3, 5010)];
        assert_eq!(times(&starts), [5000, 5010]);
    }

    #[test]
    fn clocks_are_read() {
        let now = Readings::now();
        assert!(now.wall > SECOND);
        let anchor = Anchor::at_wall(&now);
        assert!(
            anchor.time(Readings::now().since_boot) >= u64::try_from(now.wall.as_nanos()).unwrap()
        );
    }
}
