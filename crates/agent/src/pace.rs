//! Schedules the scans of directories for sources. A scan follows soon after an event, but scans
//! happen only a few times a second even if other programs change the directories all the time.
//! Scans also take only a small share of the time, because they can be slow.

use std::time::{Duration, Instant};

/// The time between two scans without events.
const PERIOD: Duration = Duration::from_secs(5);
/// The minimum time between two scans because of events.
const CALM: Duration = Duration::from_millis(50);
/// The minimum time between two scans because of events, once events keep arriving.
const LONG_CALM: Duration = Duration::from_secs(1);
/// The minimum time between two scans, as a multiple of the duration of a scan.
const SHARE: u32 = 10;

/// The schedule of scans.
#[derive(Debug)]
pub(super) struct Pace {
    /// The end and the duration of the last scan.
    looked: Option<(Instant, Duration)>,
    /// The minimum time from the last scan to a scan because of events.
    calm: Duration,
    /// Whether such events were received since the last scan.
    has_events: bool,
    /// The time of the last events.
    heard: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { looked: None, calm: CALM, has_events: false, heard: None }
    }

    /// Records events. `is_call` determines whether they require a scan.
    pub(super) fn heard(&mut self, now: Instant, is_call: bool) {
        self.heard = Some(now);
        self.has_events |= is_call;
    }

    /// Returns the time until the next scan.
    pub(super) fn due_in(&self, now: Instant) -> Duration {
        let wait = if self.has_events { self.calm } else { PERIOD };
        self.left(now, wait)
    }

    /// Returns whether a scrape must wait for a new scan.
    pub(super) fn is_due_for_scrape(&self, now: Instant) -> bool {
        self.due_in(now).is_zero() || self.has_events && self.left(now, CALM).is_zero()
    }

    fn left(&self, now: Instant, wait: Duration) -> Duration {
        let Some((at, took)) = self.looked else { return Duration::ZERO };
        let wait = wait.max(took.saturating_mul(SHARE).min(PERIOD));
        wait.saturating_sub(now.saturating_duration_since(at))
    }

    /// Returns how long events can be ignored, if at all.
    pub(super) fn deaf_for(&self, now: Instant) -> Option<Duration> {
        if self.has_events {
            return Some(self.due_in(now));
        }
        let since = now.saturating_duration_since(self.heard?);
        (since < CALM).then(|| CALM - since)
    }

    /// Records a scan.
    pub(super) fn looked(&mut self, began: Instant, ended: Instant) {
        let before = self.looked.map(|(at, _)| began.saturating_duration_since(at));
        // If events keep arriving, scan less and less often until there is a pause.
        let goes_on = self.has_events && before.is_some_and(|before| before < LONG_CALM * 2);
        self.calm = if goes_on { (self.calm * 2).min(LONG_CALM) } else { CALM };
        self.looked = Some((ended, ended.saturating_duration_since(began)));
        self.has_events = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the looks in this time if events keep arriving, where each look takes `took`.
    fn looks(time: Duration, took: Duration, scrapes: bool) -> usize {
        let (mut now, mut pace, mut looks) = (Instant::now(), Pace::new(), 0);
        let end = now + time;
        while now < end {
            pace.heard(now, true);
            if pace.due_in(now).is_zero() || scrapes && pace.is_due_for_scrape(now) {
                looks += 1;
                pace.looked(now, now + took);
                now += took;
            }
            now += Duration::from_millis(1);
        }
        looks
    }

    #[test]
    fn looks_are_few_whatever_happens() {
        let minute = Duration::from_secs(60);
        let short = Duration::from_micros(100);
        assert!((55..80).contains(&looks(minute, short, false)));
        // Endless scrapes do not increase the limit much.
        assert!(looks(minute, short, true) <= 1201);
        // Slow looks take only a small share of the time.
        let long = Duration::from_millis(500);
        for scrapes in [false, true] {
            assert!((5..14).contains(&looks(minute, long, scrapes)));
        }
    }

    #[test]
    fn a_look_after_a_pause_comes_at_once() {
        let (start, mut pace) = (Instant::now(), Pace::new());
        assert!(pace.due_in(start).is_zero());
        pace.looked(start, start);
        assert_eq!(pace.due_in(start), PERIOD);
        pace.heard(start, false);
        assert_eq!((pace.due_in(start), pace.deaf_for(start)), (PERIOD, Some(CALM)));
        let later = start + Duration::from_secs(3);
        assert_eq!(pace.deaf_for(later), None);
        pace.heard(later, true);
        assert!(pace.due_in(later).is_zero());
        pace.looked(later, later);
        pace.heard(later, true);
        assert_eq!(pace.due_in(later), CALM);
        assert_eq!(pace.deaf_for(later), Some(CALM));
    }
}
