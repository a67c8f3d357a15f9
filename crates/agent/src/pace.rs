//! When to look for sources again: soon after an event, but not more often than a few times a
//! second, whatever other programs do in the directories, and never for most of the time.

use std::time::{Duration, Instant};

/// The time between two looks for sources that no event announced.
const PERIOD: Duration = Duration::from_secs(5);
/// The least time between two looks, and that of looks because of events that do not end.
const CALM: Duration = Duration::from_millis(50);
const LONG_CALM: Duration = Duration::from_secs(1);
/// The least time between two looks, in multiples of the time that one takes.
const SHARE: u32 = 10;

/// When looks are due.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the last look ended, and how long it took.
    looked: Option<(Instant, Duration)>,
    /// The time that is to pass until events lead to another one.
    calm: Duration,
    /// Whether there were such events since.
    has_events: bool,
    /// When events were taken last.
    heard: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { looked: None, calm: CALM, has_events: false, heard: None }
    }

    /// Notes that events were taken, and whether they call for a look.
    pub(super) fn heard(&mut self, now: Instant, is_call: bool) {
        self.heard = Some(now);
        self.has_events |= is_call;
    }

    /// How long the next look has to wait.
    pub(super) fn due_in(&self, now: Instant) -> Duration {
        let wait = if self.has_events { self.calm } else { PERIOD };
        self.left(now, wait)
    }

    /// Whether a scrape has to look first.
    pub(super) fn is_due_for_scrape(&self, now: Instant) -> bool {
        self.due_in(now).is_zero() || self.has_events && self.left(now, CALM).is_zero()
    }

    fn left(&self, now: Instant, wait: Duration) -> Duration {
        let Some((at, took)) = self.looked else { return Duration::ZERO };
        let wait = wait.max(took.saturating_mul(SHARE).min(PERIOD));
        wait.saturating_sub(now.saturating_duration_since(at))
    }

    /// How long further events need not be taken.
    pub(super) fn deaf_for(&self, now: Instant) -> Option<Duration> {
        if self.has_events {
            return Some(self.due_in(now));
        }
        let since = now.saturating_duration_since(self.heard?);
        (since < CALM).then(|| CALM - since)
    }

    /// Notes a look.
    pub(super) fn looked(&mut self, began: Instant, ended: Instant) {
        let before = self.looked.map(|(at, _)| began.saturating_duration_since(at));
        // Events that go on lead to ever fewer looks, until there is a pause.
        let goes_on = self.has_events && before.is_some_and(|before| before < LONG_CALM * 2);
        self.calm = if goes_on { (self.calm * 2).min(LONG_CALM) } else { CALM };
        self.looked = Some((ended, ended.saturating_duration_since(began)));
        self.has_events = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of looks in that time, if there are events all the time. Each takes `took`.
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
        // Scrapes without end, too.
        assert!(looks(minute, short, true) <= 1201);
        // Looks that take long have a small part of the time.
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
