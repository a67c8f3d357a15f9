//! The thread that records: once a second, a tick of each segment.

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
use super::report::{Report, State};

/// What other threads send.
pub(super) enum Event {
    /// A segment is to be recorded.
    Joined(Box<Joined>),
    /// All files were looked at.
    Looked,
    /// Ends the recording.
    Stop,
}

/// A segment that is recorded.
#[derive(Debug)]
pub(super) struct Joined {
    path: PathBuf,
    segment: Segment,
    recorder: Recorder,
    /// When its next tick is due.
    due: Instant,
}

/// The segments that are recorded.
pub(super) struct Rounds {
    events: Receiver<Event>,
    files: Arc<Files>,
    report: Report,
    joined: Vec<Joined>,
}

/// A tick that takes longer than this, of the processor's time, is the last one of its segment.
const MOST_TIME: Duration = Duration::from_millis(100);
/// A check and a tick that take longer than this together, by the clock, are the last ones of their
/// segment: its disk is slow, and the other segments wait for it.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// The least pause between ticks, in multiples of the time that the last ones took, and its bound.
const PAUSE: u32 = 3;
const LONGEST: Duration = Duration::from_secs(10);
/// The longest sleep: the daemon is told that this thread lives.
const BEAT: Duration = Duration::from_secs(1);

impl Joined {
    pub(super) fn new(path: PathBuf, segment: Segment, recorder: Recorder) -> Self {
        Self { path, segment, recorder, due: Instant::now() }
    }

    /// Records a tick; an error if it was the last one.
    pub(super) fn tick(&mut self) -> Result<(), Refusal> {
        let began = Instant::now();
        self.record()?;
        if began.elapsed() > MOST_WAIT {
            let what = "a tick took more than a second: its disk is slow, or this was stopped";
            return Err((State::Unusable, what.to_owned()));
        }
        self.due = Instant::now() + self.recorder.until_next();
        Ok(())
    }

    fn record(&mut self) -> Result<(), Refusal> {
        check(&self.segment)?;
        let began = processor_time();
        // If a family cannot be read, the others are recorded. What is read was written by others:
        // a flaw of a reader must not end the recording of other files.
        let ticked = catch_unwind(AssertUnwindSafe(|| self.recorder.tick()));
        let took = processor_time().saturating_sub(began);
        let unusable = |what: String| Err((State::Unusable, what));
        let ticked = match ticked {
            Ok(ticked) => ticked,
            Err(_) => return unusable(FLAW.to_owned()),
        };
        check(&self.segment)?;
        match ticked {
            _ if self.recorder.is_leading() => {}
            Ok(_) => return Err((State::ByProgram, "its program records it itself".to_owned())),
            Err(error) => return unusable(error.to_string()),
        }
        // After the tick: the last one shows how it ended.
        check_program(&self.segment)?;
        if took > MOST_TIME {
            return unusable(format!("reading its series takes too long, {took:?}"));
        }
        Ok(())
    }
}

impl Rounds {
    pub(super) fn new(events: Receiver<Event>, files: Arc<Files>, report: Report) -> Self {
        Self { events, files, report, joined: Vec::new() }
    }

    /// Records until another thread ends it, or up to that moment.
    ///
    /// # Errors
    /// A report that cannot be written.
    pub(super) fn run(mut self, until: Option<Instant>) -> io::Result<()> {
        let mut rests_until = Instant::now();
        loop {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Ok(());
            }
            match self.events.recv_timeout(self.sleep(now, rests_until, until)) {
                Ok(Event::Joined(joined)) => self.joined.push(*joined),
                Ok(Event::Looked) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let began = Instant::now();
            let is_read = if began < rests_until {
                self.report.write(&self.files)?
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

    /// How long nothing is due.
    fn sleep(&self, now: Instant, rests_until: Instant, until: Option<Instant>) -> Duration {
        let due = self.joined.iter().map(|joined| joined.due.max(rests_until)).chain(until);
        due.map(|due| due.saturating_duration_since(now)).fold(BEAT, Duration::min)
    }

    /// Ticks the segments that are due, and reports. Returns false if nothing reads that any more,
    /// and how long the ticks took.
    fn round(&mut self, now: Instant) -> io::Result<(bool, Duration)> {
        let (mut at, mut took) = (0, Duration::ZERO);
        while let Some(one) = self.joined.get_mut(at) {
            if one.due > now {
                at += 1;
                continue;
            }
            let began = Instant::now();
            let ticked = one.tick();
            took += began.elapsed();
            match ticked {
                Ok(()) => at += 1,
                Err(refusal) => {
                    // It is closed before that is said.
                    let path = self.joined.swap_remove(at).path;
                    self.files.table().left(&path, refusal);
                }
            }
            // A round may be long, and the daemon waits for a sign of life.
            if !self.report.write(&self.files)? {
                return Ok((false, took));
            }
        }
        Ok((self.report.write(&self.files)?, took))
    }
}

/// The pause after ticks that took this time.
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
    fn ticks_have_a_fourth_of_the_time_and_a_stall_has_a_bounded_rest() {
        assert_eq!(rest(Duration::from_millis(20)), Duration::from_millis(60));
        assert_eq!(rest(Duration::from_secs(600)), LONGEST);
    }
}
