//! `quipu top --replay`: what the flight recorder of a segment recorded, moment by moment, on the
//! screen of `quipu top`. A moment is shown with the looks before it, for rates and sparklines.

mod at;
mod playback;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::app::{Action, App};
use super::history::LENGTH;
use super::model::Model;
use super::screen::Feed;
use crate::look::{Look, Moment, Recorded, Writer};

pub(super) use at::At;
pub(super) use playback::Playback;

/// A recording, and the moment of it that is shown.
pub(super) struct Replay {
    recorded: Recorded,
    /// The segment's time up to which it was played.
    time: u64,
    /// The time of the tick that is shown.
    shown: Option<u64>,
    is_playing: bool,
    /// The place in `SPEEDS`.
    speed: usize,
    /// What could not be read of the moment, and why the file could not be read again.
    problems: Vec<String>,
    error: Option<String>,
    /// When it was played last, and when the file was read.
    played: Instant,
    refreshed: Instant,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// That many seconds forward, or back.
    Seconds(i64),
    First,
    Last,
    /// Plays, or pauses.
    Play,
    Faster,
    Slower,
}

/// How much faster than it was something can be played.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 60];
/// How often the file is read again, while a process may write it.
const REFRESH: Duration = Duration::from_secs(1);

impl Replay {
    /// Opens a recording at its last tick, or at a moment.
    ///
    /// # Errors
    /// A file without a recording, or a moment that is not in it; with the name of the file.
    pub(super) fn open(path: &Path, at: Option<At>, app: &mut App) -> Result<Self, String> {
        let recorded = Recorded::open(path)?;
        let moments = recorded.moments();
        let place = match at {
            None => moments.len() - 1,
            Some(at) => {
                let found = at.find(moments, recorded.interval());
                found.map_err(|what| format!("{}: --at: {what}", app.target))?
            }
        };
        let now = Instant::now();
        let mut replay = Self {
            time: moments[place].time,
            recorded,
            shown: None,
            is_playing: false,
            speed: 0,
            problems: Vec::new(),
            error: None,
            played: now,
            refreshed: now,
        };
        replay.show(app);
        Ok(replay)
    }

    /// Plays for as long as it was not called, and reads what is new in the file. Returns whether
    /// something changed.
    fn go_on(&mut self, app: &mut App) -> bool {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.played, now);
        let mut is_new = false;
        if now - self.refreshed >= REFRESH {
            self.refreshed = now;
            let last = self.last();
            let error = self.recorded.refresh(&stop(app)).err();
            is_new = self.last() != last || error != self.error;
            if error != self.error {
                self.error = error;
                app.problems = self.error.iter().chain(&self.problems).cloned().collect();
            }
        }
        if self.is_playing {
            self.play(passed);
        }
        if self.shown == Some(self.moment().time) {
            let is_changed =
                is_new || app.replay.as_ref().is_some_and(|it| it.is_playing != self.is_playing);
            if is_changed {
                self.describe(app);
            }
            return is_changed;
        }
        self.show(app);
        true
    }

    fn step(&mut self, step: Step, app: &mut App) {
        let place = self.place();
        let moments = self.recorded.moments();
        match step {
            Step::Seconds(seconds) => self.time = moments[moved(moments, place, seconds)].time,
            Step::First => self.time = moments[0].time,
            Step::Last => self.time = self.last(),
            Step::Faster => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            Step::Slower => self.speed = self.speed.saturating_sub(1),
            Step::Play => {
                self.is_playing = !self.is_playing;
                self.played = Instant::now();
                // What has ended begins again.
                if self.is_playing && self.time >= self.last() && !self.goes_on() {
                    self.time = moments[0].time;
                }
            }
        }
        if self.shown != Some(self.moment().time) {
            self.show(app);
        }
        self.describe(app);
    }

    /// Plays for a time. A gap takes none.
    fn play(&mut self, passed: Duration) {
        let last = self.last();
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let passed = passed.saturating_mul(SPEEDS[self.speed].into());
        self.time = self.time.saturating_add(passed).min(last);
        let (place, longest) = (self.place(), self.recorded.longest_step());
        if let [from, to, ..] = self.recorded.moments()[place..]
            && to.time - from.time > longest
            && self.time.saturating_sub(from.time) > self.recorded.interval()
        {
            self.time = to.time;
        }
        self.is_playing = self.time < last || self.goes_on();
    }

    fn goes_on(&self) -> bool {
        self.recorded.writer() == Writer::Lives
    }

    fn last(&self) -> u64 {
        self.recorded.moments().last().map_or(0, |last| last.time)
    }

    /// The place of the last tick up to the time.
    fn place(&self) -> usize {
        let after = self.recorded.moments().partition_point(|moment| moment.time <= self.time);
        after.saturating_sub(1)
    }

    fn moment(&self) -> Moment {
        self.recorded.moments()[self.place()]
    }

    /// Shows the moment, with what came before it.
    fn show(&mut self, app: &mut App) {
        let place = self.place();
        let first = place.saturating_sub(LENGTH);
        app.model = Model::default();
        let mut last: Option<(Moment, Look)> = None;
        let stop = stop(app);
        let is_whole = self.recorded.looks(first..place + 1, &stop, |moment, look| {
            if let Some((moment, look)) = last.replace((moment, look)) {
                app.model.update(&look, Duration::from_nanos(moment.time));
            }
        });
        match last {
            Some((moment, look)) => app.look(&Ok(look), Duration::from_nanos(moment.time)),
            None => {
                app.list();
                app.notes.clear();
                let what = match is_whole {
                    true => "this moment was overwritten meanwhile: go to a later one",
                    false => "this moment was not read: more ticks than can be are before it",
                };
                app.problems = vec![format!("{}: {what}", app.target)];
            }
        }
        self.problems = std::mem::take(&mut app.problems);
        self.problems.extend(self.recorded.problems());
        app.notes.extend(self.recorded.dropped());
        app.problems = self.error.iter().chain(&self.problems).cloned().collect();
        self.shown = Some(self.moment().time);
        self.describe(app);
    }

    fn describe(&self, app: &mut App) {
        let (place, speed) = (self.place(), SPEEDS[self.speed]);
        app.replay = Some(Playback::new(&self.recorded, place, speed, self.is_playing));
    }
}

impl Feed for Replay {
    fn poll(&mut self, app: &mut App) -> io::Result<bool> {
        Ok(self.go_on(app))
    }

    fn act(&mut self, app: &mut App, action: Action) {
        if let Action::Step(step) = action {
            self.step(step, app);
        }
    }
}

/// Whether a signal ends the program: then nothing more is read.
fn stop(app: &App) -> impl Fn() -> bool + use<> {
    let signal = Arc::clone(&app.signal);
    // SeqCst, as the handler stores it.
    move || signal.load(Ordering::SeqCst) != 0
}

/// The tick that is nearest to that many seconds from a tick, but another one, if there is one on
/// that side. So no step ends in a gap.
fn moved(moments: &[Moment], place: usize, seconds: i64) -> usize {
    let time = moments[place].time;
    let by = seconds.unsigned_abs().saturating_mul(1_000_000_000);
    let wanted = if seconds < 0 { time.saturating_sub(by) } else { time.saturating_add(by) };
    let last = moments.len() - 1;
    let after = moments.partition_point(|moment| moment.time < wanted).min(last);
    let before = after.saturating_sub(1);
    let distance = |place: usize| moments[place].time.abs_diff(wanted);
    let nearest = if distance(before) < distance(after) { before } else { after };
    match seconds < 0 {
        true => nearest.min(place.saturating_sub(1)),
        false => nearest.max((place + 1).min(last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_at_the_nearest_tick() {
        let at = |millis: u64| Moment { time: millis * 1_000_000, unix: 0 };
        let moments = [1000, 2002, 2999, 4000, 90_000, 91_000].map(at);
        let moved = |place, seconds| moved(&moments, place, seconds);
        assert_eq!([moved(0, 1), moved(1, 1), moved(2, 1), moved(3, 1)], [1, 2, 3, 4]);
        assert_eq!([moved(5, -1), moved(4, -1), moved(3, -1), moved(0, -1)], [4, 3, 2, 0]);
        // By a minute into the gap: to its other side.
        assert_eq!([moved(2, 60), moved(3, 60), moved(4, -60), moved(5, 60)], [4, 4, 3, 5]);
        assert_eq!(moved(1, i64::MIN), 0);
        let fast: Vec<Moment> = (0..1000).map(|i| at(i * 10)).collect();
        assert_eq!(super::moved(&fast, 300, 1), 400);
        assert_eq!(super::moved(&fast, 300, -60), 0);
        assert_eq!(super::moved(&[at(5)], 0, 1), 0);
    }
}
