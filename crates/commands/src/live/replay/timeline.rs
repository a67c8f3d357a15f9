//! The line that shows which part of a recording is shown, and where nothing was recorded.

use std::time::{Duration, UNIX_EPOCH};

use crate::inspect::text::{date, duration};
use crate::look::{Moment, Recorded, Writer};

/// What the head of the screen says about the moment that is shown.
#[derive(Debug, Clone)]
pub(in super::super) struct Timeline {
    first: Moment,
    last: Moment,
    now: Moment,
    /// The times at which each gap begins and ends.
    gaps: Vec<(u64, u64)>,
    interval: u64,
    writer: Writer,
    /// How much faster than it was it is played.
    pub(super) speed: u32,
    pub(super) is_playing: bool,
}

/// The characters of the line: recorded, a gap in a part of it, a gap, the moment.
const LINES: [char; 4] = ['\u{2501}', '\u{254d}', '\u{b7}', '\u{25cf}'];
/// For terminals that have ASCII only.
const ASCII: [char; 4] = ['=', '-', '.', '|'];
/// The least width of the line, and the width if nothing bounds it.
const MIN_WIDTH: usize = 10;
const WIDTH: usize = 60;

const SECOND: u64 = 1_000_000_000;

impl Timeline {
    pub(super) fn new(recorded: &Recorded, place: usize) -> Self {
        let moments = recorded.moments();
        let moment = |moment: Option<&Moment>| moment.copied().unwrap_or_default();
        Self {
            first: moment(moments.first()),
            last: moment(moments.last()),
            now: moment(moments.get(place)),
            gaps: recorded.gaps().map(|(from, to)| (from.time, to.time)).collect(),
            interval: recorded.interval(),
            writer: recorded.writer(),
            speed: 1,
            is_playing: false,
        }
    }

    /// How fast it is played.
    pub(in super::super) fn pace(&self) -> String {
        match (self.is_playing, self.speed) {
            (true, speed) => format!("{speed}x"),
            (false, 1) => "paused".to_owned(),
            (false, speed) => format!("paused, {speed}x"),
        }
    }

    /// The moment, and where in the recording it is.
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
        if let Some((from, to)) = self.gaps.iter().find(|(_, to)| *to == self.now.time) {
            text.push_str(&format!("  after a gap of {}", duration(self.rounded(to - from))));
        }
        text
    }

    /// Ticks of a second and more are not exact to the millisecond.
    fn rounded(&self, nanos: u64) -> u64 {
        match self.interval >= SECOND {
            true => nanos.saturating_add(SECOND / 2) / SECOND * SECOND,
            false => nanos,
        }
    }

    /// The line, of at most this width if there is room for the least one.
    pub(in super::super) fn line(&self, width: Option<usize>, is_ascii: bool) -> String {
        let (first, last) = (date(self.first.unix), date(self.last.unix));
        let room = width.map(|width| width.saturating_sub(first.len() + last.len() + 2));
        let width = room.map_or(WIDTH, |room| room.max(MIN_WIDTH));
        let characters = if is_ascii { ASCII } else { LINES };
        format!("{first} {} {last}", self.bar(width, characters))
    }

    fn bar(&self, width: usize, [recorded, part, gap, now]: [char; 4]) -> String {
        let length = (self.last.time - self.first.time).max(1) as f64;
        // The place of a time in columns, as a fraction.
        let place = |time: u64| (time - self.first.time) as f64 / length * width as f64;
        let mut missing = vec![0.0; width];
        for &(from, to) in &self.gaps {
            let (from, to) = (place(from), place(to));
            // A cast of a float saturates.
            let columns = missing.iter_mut().enumerate().take(to.ceil() as usize);
            for (column, share) in columns.skip(from as usize) {
                let (begin, end) = (column as f64, column as f64 + 1.0);
                *share += to.min(end) - from.max(begin);
            }
        }
        let column = |missing: &f64| match *missing {
            share if share >= 0.999 => gap,
            share if share > 0.0 => part,
            _ => recorded,
        };
        let mut bar: Vec<char> = missing.iter().map(column).collect();
        bar[(place(self.now.time) as usize).min(width - 1)] = now;
        bar.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(now: u64) -> Timeline {
        let moment = |second: u64| Moment { time: second * SECOND, unix: second * SECOND };
        Timeline {
            first: moment(100),
            last: moment(200),
            now: moment(now),
            gaps: vec![(110 * SECOND, 112 * SECOND), (140 * SECOND, 165 * SECOND)],
            interval: SECOND,
            writer: Writer::Died,
            speed: 1,
            is_playing: false,
        }
    }

    #[test]
    fn gaps_and_the_moment_are_in_the_line() {
        let line = |now| timeline(now).line(Some(62), true);
        let (first, last) = ("1970-01-01T00:01:40Z", "1970-01-01T00:03:20Z");
        assert_eq!(line(200), format!("{first} ==-=====.....======| {last}"));
        assert_eq!(line(100), format!("{first} |=-=====.....======= {last}"));
    }

    #[test]
    fn the_moment_is_named() {
        assert_eq!(timeline(200).moment(), "1970-01-01T00:03:20Z  the last tick: the process died");
        let after = timeline(165).moment();
        assert_eq!(after, "1970-01-01T00:02:45Z  -35s  after a gap of 25s");
        let (interval, speed) = (SECOND / 10, 60);
        let fast = Timeline { interval, speed, is_playing: true, ..timeline(101) };
        assert_eq!(fast.moment(), "1970-01-01T00:01:41.000Z  -1m 39s");
        let paused = Timeline { is_playing: false, ..fast.clone() };
        let paces = [fast, paused, timeline(101)].map(|timeline| timeline.pace());
        assert_eq!(paces, ["60x", "paused, 60x", "paused"]);
    }
}
