//! `quipu top --replay`: shows the recording of a segment's flight recorder, moment by moment, on
//! the screen of `quipu top`. Each moment is shown with the looks before it, because rates and
//! sparklines are computed from them.

mod playback;
mod start;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::app::{Action, App};
use super::model::Model;
use super::screen::Feed;
use super::trend::LENGTH;
use crate::look::{Look, Moment, Recording, Writer};

pub(super) use playback::Playback;
pub(super) use start::ReplayStart;

/// A replay: the recording, and the current position.
pub(super) struct Replay {
    recording: Recording,
    /// The current position, by the segment's clock.
    time: u64,
    /// The time of the shown tick.
    shown: Option<u64>,
    is_playing: bool,
    /// The index of the speed in `SPEEDS`.
    speed: usize,
    /// The problems of the shown moment.
    problems: Vec<String>,
    /// The error of the last refresh.
    error: Option<String>,
    /// The time of the last call of [`Replay::play`].
    played: Instant,
    /// The time of the last refresh.
    refreshed: Instant,
}

/// A step in the recording, requested by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Go this number of seconds forward, or back.
    Seconds(i64),
    First,
    Last,
    /// Plays, or pauses.
    Play,
    Faster,
    Slower,
}

/// The speeds, as factors of real time.
const SPEEDS: [u32; 6] = [1, 2, 5, 10, 30, 60];
/// The time between two refreshes of the recording, because a process may still be writing.
const REFRESH: Duration = Duration::from_secs(1);

impl Replay {
    /// Opens a recording at its last tick, or at a given moment.
    ///
    /// # Errors
    /// Fails if there is no recording, or if it does not contain the moment. The message contains
    /// the name of the file.
    pub(super) fn open(
        path: &Path,
        at: Option<ReplayStart>,
        app: &mut App,
    ) -> Result<Self, String> {
        let recording = Recording::open(path)?;
        let moments = recording.moments();
        let place = match at {
            None => moments.len() - 1,
            Some(at) => {
                let found = at.find(moments, recording.interval());
                found.map_err(|message| format!("{}: --at: {message}", app.target))?
            }
        };
        let now = Instant::now();
        let mut replay = Self {
            time: moments[place].time,
            recording,
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

    /// Plays for the time since the last call, and reads new ticks. Returns whether the screen
    /// changed.
    fn advance(&mut self, app: &mut App) -> bool {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.played, now);
        let mut is_new = false;
        if now - self.refreshed >= REFRESH {
            self.refreshed = now;
            let last = self.last();
            let error = self.recording.refresh(&stop(app)).err();
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
            let is_changed = is_new
                || app
                    .replay
                    .as_ref()
                    .is_some_and(|playback| playback.is_playing != self.is_playing);
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
        let moments = self.recording.moments();
        match step {
            Step::Seconds(seconds) => self.time = moments[find_tick(moments, place, seconds)].time,
            Step::First => self.time = moments[0].time,
            Step::Last => self.time = self.last(),
            Step::Faster => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            Step::Slower => self.speed = self.speed.saturating_sub(1),
            Step::Play => {
                self.is_playing = !self.is_playing;
                self.played = Instant::now();
                // A recording at its end starts again.
                if self.is_playing && self.time >= self.last() && !self.is_live() {
                    self.time = moments[0].time;
                }
            }
        }
        if self.shown != Some(self.moment().time) {
            self.show(app);
        }
        self.describe(app);
    }

    /// Plays for this time, and skips gaps.
    fn play(&mut self, passed: Duration) {
        let last = self.last();
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let passed = passed.saturating_mul(SPEEDS[self.speed].into());
        self.time = self.time.saturating_add(passed).min(last);
        let (place, longest) = (self.place(), self.recording.longest_step());
        if let [from, to, ..] = self.recording.moments()[place..]
            && to.time - from.time > longest
            && self.time.saturating_sub(from.time) > self.recording.interval()
        {
            self.time = to.time;
        }
        self.is_playing = self.time < last || self.is_live();
    }

    /// Returns whether the process that records is alive.
    fn is_live(&self) -> bool {
        self.recording.writer() == Writer::Lives
    }

    fn last(&self) -> u64 {
        self.recording.moments().last().map_or(0, |last| last.time)
    }

    /// Returns the index of the last tick up to the current position.
    fn place(&self) -> usize {
        let after = self.recording.moments().partition_point(|moment| moment.time <= self.time);
        after.saturating_sub(1)
    }

    fn moment(&self) -> Moment {
        self.recording.moments()[self.place()]
    }

    /// Shows the current moment, with the looks before it.
    fn show(&mut self, app: &mut App) {
        let place = self.place();
        let first = place.saturating_sub(LENGTH);
        app.model = Model::default();
        let mut last: Option<(Moment, Look)> = None;
        let stop = stop(app);
        let is_whole = self.recording.visit(first..place + 1, &stop, |moment, look| {
            if let Some((moment, look)) = last.replace((moment, look)) {
                app.model.update(&look, Duration::from_nanos(moment.time));
            }
        });
        match last {
            Some((moment, look)) => app.look(&Ok(look), Duration::from_nanos(moment.time)),
            None => {
                app.list();
                app.notes.clear();
                let problem = match is_whole {
                    true => "this moment was overwritten meanwhile: go to a later one",
                    false => "this moment was not read: more ticks than can be are before it",
                };
                app.problems = vec![format!("{}: {problem}", app.target)];
            }
        }
        self.problems = std::mem::take(&mut app.problems);
        self.problems.extend(self.recording.problems());
        app.notes.extend(self.recording.dropped());
        app.problems = self.error.iter().chain(&self.problems).cloned().collect();
        self.shown = Some(self.moment().time);
        self.describe(app);
    }

    fn describe(&self, app: &mut App) {
        let (place, speed) = (self.place(), SPEEDS[self.speed]);
        app.replay = Some(Playback::new(&self.recording, place, speed, self.is_playing));
    }
}

impl Feed for Replay {
    fn poll(&mut self, app: &mut App) -> io::Result<bool> {
        Ok(self.advance(app))
    }

    fn act(&mut self, app: &mut App, action: Action) {
        if let Action::Step(step) = action {
            self.step(step, app);
        }
    }
}

/// Returns a function that stops reading after a signal.
fn stop(app: &App) -> impl Fn() -> bool + use<> {
    let signal = Arc::clone(&app.signal);
    // SeqCst, because the handler stores it with this ordering.
    move || signal.load(Ordering::SeqCst) != 0
}

/// Returns the index of the tick nearest to this number of seconds after (or before) the tick at
/// index `place`. If there is any tick on this side, the result differs from `place`, so a step
/// never gets stuck in a gap.
fn find_tick(moments: &[Moment], place: usize, seconds: i64) -> usize {
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
        let find_tick = |place, seconds| find_tick(&moments, place, seconds);
        assert_eq!(
            [find_tick(0, 1), find_tick(1, 1), find_tick(2, 1), find_tick(3, 1)],
            [1, 2, 3, 4]
        );
        assert_eq!(
            [find_tick(5, -1), find_tick(4, -1), find_tick(3, -1), find_tick(0, -1)],
            [4, 3, 2, 0]
        );
        // A step of a minute into the gap leads to its other side.
        assert_eq!(
            [find_tick(2, 60), find_tick(3, 60), find_tick(4, -60), find_tick(5, 60)],
            [4, 4, 3, 5]
        );
        assert_eq!(find_tick(1, i64::MIN), 0);
        let fast: Vec<Moment> = (0..1000).map(|i| at(i * 10)).collect();
        assert_eq!(super::find_tick(&fast, 300, 1), 400);
        assert_eq!(super::find_tick(&fast, 300, -60), 0);
        assert_eq!(super::find_tick(&[at(5)], 0, 1), 0);
    }
}
