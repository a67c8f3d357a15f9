//! The time of the last sample of a series, in one of its cells. The series uses this time to keep
//! the order of its samples.
//!
//! The time is in nanoseconds of Unix time. Each update without a time raises it by a nanosecond,
//! because a series that gets the same value again is not idle and must change. So a series whose
//! samples carry no time stores a time shortly after 1970.
//!
//! The time of a sample is stored after its value. While the value is stored, the cell contains a
//! time past the last sample. So a process can die at any point: if the sender repeats both
//! samples, the last one is late, and the next one is stored once more.

use std::sync::atomic::fence;

use quipu_segment::sync::{AtomicU64, Ordering};

/// The cell of the time of the last sample of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleTime<'c>(pub(crate) &'c AtomicU64);

impl SampleTime<'_> {
    /// Returns the time of the last sample; 0 if there is none. A time after `latest` is from a
    /// clock that was ahead, and counts as unknown, because otherwise it would lock the series
    /// until then.
    #[inline]
    pub(crate) fn last(self, latest: u64) -> u64 {
        // Acquire: the values are at least as new as the time.
        let time = self.0.load(Ordering::Acquire);
        if time > latest { 0 } else { time }
    }

    /// Raises the time past the last sample, before the value changes to the next sample or to an
    /// update without a time.
    #[inline]
    pub(crate) fn pass(self, next: Option<u64>) {
        let passed = self.0.load(Ordering::Relaxed).saturating_add(1);
        if next.is_none_or(|next| next > passed) {
            self.0.store(passed, Ordering::Relaxed);
            // The values are stored after this.
            fence(Ordering::Release);
        }
    }

    /// Stores the time of a sample, after its value, because the sender may repeat the same sample.
    #[inline]
    pub(crate) fn store(self, sample: Option<u64>) {
        if let Some(sample) = sample {
            self.0.store(sample, Ordering::Release);
        }
    }

    /// Raises the time to this one, before the increment with this time is added. Returns false if
    /// the time is not later.
    pub(crate) fn advance(self, time: u64, latest: u64) -> bool {
        let is_later = |last: u64| (time > last || last > latest).then_some(time);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_later).is_ok()
    }
}
