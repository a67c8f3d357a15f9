//! The line at the top of the screen with the moment of a recording.

use std::time::{Duration, UNIX_EPOCH};

use crate::inspect::text::{date, duration};
use crate::look::{Moment, Recording, Writer};

/// The shown moment, and the speed.
#[derive(Debug, Clone)]
pub(in super::super) struct Playback {
    last: Moment,
    now: Moment,
    /// The length of the gap before the moment in nanoseconds, if there is one.
    gap: Option<u64>,
    interval: u64,
    writer: Writer,
    /// The speed as a factor.
    pub(super) speed: u32,
    pub(super) is_playing: bool,
}

const SECOND: u64 = 1_000_000_000;

impl Playback {
    pub(super) fn new(recording: &Recording, place: usize, speed: u32, is_playing: bool) -> Self {
        let moments = recording.moments();
        let (now, last) = (moments[place], moments[moments.len() - 1]);
        let before = place.checked_sub(1).map_or(now, |before| moments[before]);
        let gap = Some(now.time - before.time).filter(|gap| *gap > recording.longest_step());
        let (interval, writer) = (recording.interval(), recording.writer());
        Self { last, now, gap, interval, writer, speed, is_playing }
    }

    /// Returns the speed as a string.
    pub(in super::super) fn pace(&self) -> String {
        match (self.is_playing, self.speed) {
            (true, speed) => format!("{speed}x"),
            (false, 1) => "paused".to_owned(),
            (false, speed) => format!("paused, {speed}x"),
        }
    }

    /// Returns the moment and its position in the recording as a string.
    pub(in super::super) fn moment(&self) -> String {
        let mut text = match self.interval >= SECOND {
            true => date(self.now.unix),
            false => {
                let time = UNIX_EPOCH + Duration::from_nanos(self.now.unix);
                humantime::format_rfc3339_millis(time).to_string()
            }
        };
        match self.rounded(self.last.time - self.now.time) {
            0 => text.push_str(match self.writer {
                Writer::Lives => "  the last tick so far",
                Writer::Ended => "  the last tick: the recording was ended",
                Writer::Died => "  the last tick: the process died",
                Writer::Unknown => "  the last tick",
            }),
            before => text.push_str(&format!("  -{}", duration(before))),
        }
        if let Some(gap) = self.gap {
            text.push_str(&format!("  after a gap of {}", duration(self.rounded(gap))));
        }
        text
    }

    /// Rounds to seconds if ticks are at least a second apart, because ticks are not exact to the
    /// millisecond.
    fn rounded(&self, nanos: u64) -> u64 {
        match self.interval >= SECOND {
            true => nanos.saturating_add(SECOND / 2) / SECOND * SECOND,
            false => nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn playback(now: u64) -> Playback {
        let moment = |second: u64| Moment { time: second * SECOND, unix: second * SECOND };
        let (gap, writer) = ((now == 165).then_some(25 * SECOND), Writer::Died);
        let (last, now) = (moment(200), moment(now));
        Playback { last, now, gap, interval: SECOND, writer, speed: 1, is_playing: false }
    }

    #[test]
    fn the_text_has_the_date_the_place_and_gaps() {
        assert_eq!(playback(200).moment(), "1970-01-01T00:03:20Z  the last tick: the process died");
        let after = playback(165).moment();
        assert_eq!(after, "1970-01-01T00:02:45Z  -35s  after a gap of 25s");
        let (interval, speed) = (SECOND / 10, 60);
        let fast = Playback { interval, speed, is_playing: true, ..playback(101) };
        assert_eq!(fast.moment(), "1970-01-01T00:01:41.000Z  -1m 39s");
        let paused = Playback { is_playing: false, ..fast.clone() };
        let paces = [fast, paused, playback(101)].map(|playback| playback.pace());
        assert_eq!(paces, ["60x", "paused, 60x", "paused"]);
    }
}
