//! Writes the reports of `quipu record`: lines for people, or JSON objects for the daemon.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use quipu_segment::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::files::Files;

/// The state of a file that `quipu record` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The file is recorded.
    Recorded,
    /// Its program already records the file.
    ByProgram,
    /// No process keeps the file open.
    Closed,
    /// The program does not share the file.
    Exclusive,
    /// Another recorder records the file.
    Joined,
    /// This user cannot write to the file.
    NotWritable,
    /// The limit of the file, its disk, or a limit of the process leaves no space for a recording.
    NoRoom,
    /// The maximum number of recorded files is reached.
    Omitted,
    /// The file is unusable, for example because it is not a segment of this version, or because it
    /// is damaged, truncated, or too large.
    Unusable,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Recorded,
        Self::ByProgram,
        Self::Closed,
        Self::Exclusive,
        Self::Joined,
        Self::NotWritable,
        Self::NoRoom,
        Self::Omitted,
        Self::Unusable,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::ByProgram => "by_program",
            Self::Closed => "closed",
            Self::Exclusive => "exclusive",
            Self::Joined => "joined",
            Self::NotWritable => "not_writable",
            Self::NoRoom => "no_room",
            Self::Omitted => "omitted",
            Self::Unusable => "unusable",
        }
    }

    /// Returns the time until a file in this state is examined again.
    pub fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Recorded | Self::Closed => 0,
            Self::ByProgram | Self::Exclusive | Self::Joined | Self::Omitted => 10,
            Self::NotWritable | Self::NoRoom | Self::Unusable => 60,
        })
    }
}

/// A change of a file's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateChange {
    /// The path of the file, in printable form.
    pub path: String,
    /// The previous state; `None` if the file is new.
    pub before: Option<State>,
    /// The new state.
    pub state: State,
    /// The reason, if the file is not recorded.
    pub reason: String,
}

impl fmt::Display for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, before, state, reason } = self;
        match (before, state) {
            (_, State::Recorded) => write!(f, "{path}: recording"),
            (Some(State::Recorded), _) => write!(f, "{path}: recording stopped: {reason}"),
            _ => write!(f, "{path}: not recorded: {reason}"),
        }
    }
}

/// A report to the daemon, written as a line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Line {
    /// The number of files in each state, in the order of [`State::ALL`].
    pub counts: [usize; State::ALL.len()],
    /// The changes since the last line.
    pub changes: Vec<StateChange>,
}

/// A writer of reports to standard output.
pub(super) struct Reporter {
    is_for_daemon: bool,
    /// The time of the last line.
    written: Option<Instant>,
    /// The unwritten rest of the last line.
    pending: Vec<u8>,
}

/// The time between two lines for the daemon if no state changes. They serve as a heartbeat.
const BEAT: Duration = Duration::from_millis(900);
/// The maximum number of changes in one line.
const MOST_CHANGES: usize = 100;

impl Reporter {
    pub(super) fn for_people() -> Self {
        Self { is_for_daemon: false, written: None, pending: Vec::new() }
    }

    /// Creates a reporter for the daemon. Its writes to the pipe never block.
    ///
    /// # Errors
    /// Fails if standard output is closed.
    pub(super) fn for_daemon() -> io::Result<Self> {
        rustix::io::ioctl_fionbio(io::stdout(), true)?;
        Ok(Self { is_for_daemon: true, written: None, pending: Vec::new() })
    }

    /// Writes as much as the reader accepts now. We never wait, because a stopped reader must not
    /// stop the recording. Returns false if the reader is gone.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub(super) fn write(&mut self, files: &Files) -> io::Result<bool> {
        let written =
            if self.is_for_daemon { self.write_line(files) } else { print_changes(files) };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Writes lines for the daemon.
    fn write_line(&mut self, files: &Files) -> io::Result<()> {
        let out = io::stdout().lock();
        loop {
            if self.pending.is_empty() {
                let changes = files.table().take_changes(MOST_CHANGES);
                let is_due = self.written.is_none_or(|written| written.elapsed() >= BEAT);
                if changes.is_empty() && !is_due {
                    return Ok(());
                }
                self.pending =
                    serde_json::to_vec(&Line { counts: files.table().counts(), changes })?;
                self.pending.push(b'\n');
                self.written = Some(Instant::now());
            }
            match rustix::io::write(&out, &self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Writes lines for people.
fn print_changes(files: &Files) -> io::Result<()> {
    let mut out = io::stdout().lock();
    loop {
        let mut output = [PollFd::new(&out, PollFlags::OUT)];
        if poll(&mut output, Some(&Timespec::default())).is_ok_and(|ready| ready == 0) {
            return Ok(());
        }
        let Some(change) = files.table().take_changes(1).pop() else { return out.flush() };
        writeln!(out, "{}", printable(&change.to_string()))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_by_the_names_of_metrics() {
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            let written = serde_json::to_value(state).unwrap();
            assert_eq!(written, state.name());
        }
    }
}
