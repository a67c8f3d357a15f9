//! The recording thread of `quipu record`. It records a tick of each segment once a second.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use quipu_segment::Segment;
use quipu_segment::history::Recorder;
use rustix::time::{ClockId, clock_gettime};

use super::files::{FLAW, Files, Refusal, check, check_program};
use super::report::{Reporter, State};

/// A message from another thread.
pub(super) enum Event {
    /// A segment to record, whose processes were joined.
    Joined(Box<RecordedSegment>),
    /// A scan has ended.
    Looked,
    /// End the recording.
    Stop,
}

/// A segment that is being recorded.
#[derive(Debug)]
pub(super) struct RecordedSegment {
    path: PathBuf,
    segment: Segment,
    recorder: Recorder,
    /// The time when the next tick is due.
    due: Instant,
}

/// The recording thread's state.
pub(super) struct Rounds {
    events: Receiver<Event>,
    files: Arc<Files>,
    reporter: Reporter,
    segments: Vec<RecordedSegment>,
}

/// The maximum processor time of a tick. A longer tick ends the recording of its segment.
const MOST_TIME: Duration = Duration::from_millis(100);
/// The maximum time of a check and a tick together. A longer time ends the recording of the
/// segment, because its disk is slow and the other segments wait.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// The minimum pause after some ticks, as a multiple of their duration.
const PAUSE: u32 = 3;
/// The maximum pause.
const LONGEST: Duration = Duration::from_secs(10);
/// The maximum sleep, because the daemon expects a heartbeat.
const BEAT: Duration = Duration::from_secs(1);

impl RecordedSegment {
    pub(super) fn new(path: PathBuf, segment: Segment, recorder: Recorder) -> Self {
        Self { path, segment, recorder, due: Instant::now() }
    }

    /// Records a tick.
    ///
    /// # Errors
    /// Returns the reason why this tick was the last one.
    pub(super) fn tick(&mut self) -> Result<(), Refusal> {
        let began = Instant::now();
        self.record()?;
        if began.elapsed() > MOST_WAIT {
            let reason = "a tick took more than a second: its disk is slow, or this was stopped";
            return Err((State::Unusable, reason.to_owned()));
        }
        self.due = Instant::now() + self.recorder.until_next();
        Ok(())
    }

    fn record(&mut self) -> Result<(), Refusal> {
        check(&self.segment)?;
        let began = processor_time();
        // An unreadable family does not affect the others. We catch panics, because the file is
        // from another program, and a bug in a reader must not end the recording of other files.
        let result = catch_unwind(AssertUnwindSafe(|| self.recorder.tick()));
        let took = processor_time().saturating_sub(began);
        let unusable = |reason: String| Err((State::Unusable, reason));
        let result = match result {
            Ok(result) => result,
            Err(_) => return unusable(FLAW.to_owned()),
        };
        check(&self.segment)?;
        match result {
            _ if self.recorder.is_leading() => {}
            Ok(_) => return Err((State::ByProgram, "its program records it itself".to_owned())),
            Err(error) => return unusable(error.to_string()),
        }
        // We check this after the tick, because the last tick must show how the program ended.
        check_program(&self.segment)?;
        if took > MOST_TIME {
            return unusable(format!("reading its series takes too long, {took:?}"));
        }
        Ok(())
    }
}

impl Rounds {
    pub(super) fn new(events: Receiver<Event>, files: Arc<Files>, reporter: Reporter) -> Self {
        Self { events, files, reporter, segments: Vec::new() }
    }

    /// Records until the stop event, or until this time.
    ///
    /// # Errors
    /// Fails if a report cannot be written.
    pub(super) fn run(mut self, until: Option<Instant>) -> io::Result<()> {
        let mut rests_until = Instant::now();
        loop {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Ok(());
            }
            match self.events.recv_timeout(self.sleep(now, rests_until, until)) {
                Ok(Event::Joined(segment)) => self.segments.push(*segment),
                Ok(Event::Looked) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let began = Instant::now();
            let is_read = if began < rests_until {
                self.reporter.write(&self.files)?
            } else {
                let (is_read, took) = self.round(began)?;
                rests_until = Instant::now() + rest(took);
                is_read
            };
            if !is_read {
                return Ok(());
            }
        }
    }

    /// Returns the time until the next tick is due.
    fn sleep(&self, now: Instant, rests_until: Instant, until: Option<Instant>) -> Duration {
        let due = self.segments.iter().map(|segment| segment.due.max(rests_until)).chain(until);
        due.map(|due| due.saturating_duration_since(now)).fold(BEAT, Duration::min)
    }

    /// Records the due ticks, and reports. Returns false if the reader of the reports is gone, and
    /// the duration of the ticks.
    fn round(&mut self, now: Instant) -> io::Result<(bool, Duration)> {
        let (mut at, mut took) = (0, Duration::ZERO);
        while let Some(segment) = self.segments.get_mut(at) {
            if segment.due > now {
                at += 1;
                continue;
            }
            let began = Instant::now();
            let result = segment.tick();
            took += began.elapsed();
            match result {
                Ok(()) => at += 1,
                Err(refusal) => {
                    // We close the segment before reporting the change.
                    let path = self.segments.swap_remove(at).path;
                    self.files.table().end_recording(&path, refusal);
                }
            }
            // We report after each segment, because a round can be long, and the daemon waits for a
            // heartbeat.
            if !self.reporter.write(&self.files)? {
                return Ok((false, took));
            }
        }
        Ok((self.reporter.write(&self.files)?, took))
    }
}

/// Returns the pause after ticks with this duration.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(PAUSE).min(LONGEST)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_take_a_fourth_of_the_time_and_a_stall_is_followed_by_a_bounded_pause() {
        assert_eq!(rest(Duration::from_millis(20)), Duration::from_millis(60));
        assert_eq!(rest(Duration::from_secs(600)), LONGEST);
    }
}
