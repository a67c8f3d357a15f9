//! What `quipu record` says: lines for people, or for the daemon that started it, an object of JSON
//! for each.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use quipu_segment::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::files::Files;

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is recorded.
    Recorded,
    /// Its program records it itself.
    ByProgram,
    /// No process has it open.
    Closed,
    /// Its program does not share it.
    Exclusive,
    /// Another recorder records it.
    Joined,
    /// This user may not write to it.
    NotWritable,
    /// Its limit, its disk or a limit of the process leaves no room for a recording.
    NoRoom,
    /// There are more files than may be recorded.
    LeftOut,
    /// It is not a segment of this version, is damaged, was cut, or is too large.
    Unusable,
}

impl State {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Recorded,
        Self::ByProgram,
        Self::Closed,
        Self::Exclusive,
        Self::Joined,
        Self::NotWritable,
        Self::NoRoom,
        Self::LeftOut,
        Self::Unusable,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::ByProgram => "by_program",
            Self::Closed => "closed",
            Self::Exclusive => "exclusive",
            Self::Joined => "joined",
            Self::NotWritable => "not_writable",
            Self::NoRoom => "no_room",
            Self::LeftOut => "left_out",
            Self::Unusable => "unusable",
        }
    }

    /// How long a file in this state is left alone.
    pub fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Recorded | Self::Closed => 0,
            Self::ByProgram | Self::Exclusive | Self::Joined | Self::LeftOut => 10,
            Self::NotWritable | Self::NoRoom | Self::Unusable => 60,
        })
    }
}

/// A file that is in another state than before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Change {
    /// Its path, for people.
    pub path: String,
    /// The state before, if there was one.
    pub before: Option<State>,
    /// The state from now on.
    pub state: State,
    /// Why it is not recorded.
    pub what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, before, state, what } = self;
        match (before, state) {
            (_, State::Recorded) => write!(f, "{path}: recording"),
            (Some(State::Recorded), _) => write!(f, "{path}: recorded until now: {what}"),
            _ => write!(f, "{path}: not recorded: {what}"),
        }
    }
}

/// What the daemon reads.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Line {
    /// In the order of [`State::ALL`].
    pub counts: [usize; State::ALL.len()],
    /// The changes since the last line.
    pub changes: Vec<Change>,
}

/// Writes what changes.
pub(super) struct Report {
    is_for_daemon: bool,
    /// When the last line was made.
    written: Option<Instant>,
    /// What its reader has not taken yet of the last line.
    pending: Vec<u8>,
}

/// The time from one line for the daemon to the next, if nothing changes.
const BEAT: Duration = Duration::from_millis(900);
/// The most changes in a line for the daemon.
const MOST_CHANGES: usize = 100;

impl Report {
    pub(super) fn for_people() -> Self {
        Self { is_for_daemon: false, written: None, pending: Vec::new() }
    }

    /// Has the pipe to the daemon never block.
    ///
    /// # Errors
    /// That of the system if standard output is closed.
    pub(super) fn for_daemon() -> io::Result<Self> {
        rustix::io::ioctl_fionbio(io::stdout(), true)?;
        Ok(Self { is_for_daemon: true, written: None, pending: Vec::new() })
    }

    /// Writes what has changed, as much of it as its reader takes at this moment: one that is
    /// stopped must not stop the recording. Returns false if it has gone.
    ///
    /// # Errors
    /// Output that cannot be written.
    pub(super) fn write(&mut self, files: &Files) -> io::Result<bool> {
        let written = if self.is_for_daemon { self.tell(files) } else { print(files) };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true),
        }
    }

    fn tell(&mut self, files: &Files) -> io::Result<()> {
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

fn print(files: &Files) -> io::Result<()> {
    let mut out = io::stdout().lock();
    loop {
        let mut one = [PollFd::new(&out, PollFlags::OUT)];
        if poll(&mut one, Some(&Timespec::default())).is_ok_and(|ready| ready == 0) {
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
    fn states_have_their_numbers_and_names() {
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            let written = serde_json::to_value(state).unwrap();
            assert_eq!(written, state.name());
        }
    }
}
