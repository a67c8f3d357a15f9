//! Runs the terminal of `quipu top`: draws it after each change, handles keys and signals, and
//! always restores it, even after a signal or a panic.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use super::app::{Action, App};
use super::view;
use crate::output::Coverage;

/// The reason why `quipu top` ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The user quit.
    Quit,
    /// One frame was written.
    Frame(Coverage),
    /// A signal with this number arrived.
    Signal(i32),
}

/// The time that the screen waits for a key, before it checks for a look or a signal.
const WAIT: Duration = Duration::from_millis(50);

impl End {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Quit => 0,
            Self::Frame(coverage) => coverage.code(),
            // Shells use the same exit code.
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }
}

/// A provider of looks: a live target, or a recording.
pub(super) trait Feed {
    /// Passes a new look to the state of the screen. Returns whether there was one.
    fn poll(&mut self, app: &mut App) -> io::Result<bool>;

    /// Performs the action of a key.
    fn act(&mut self, app: &mut App, action: Action);
}

/// Shows looks until the user quits or a signal arrives.
pub(super) fn run(app: &mut App, feed: &mut dyn Feed) -> io::Result<End> {
    let signal = Arc::clone(&app.signal);
    for number in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        // This fits, because the numbers of signals are positive.
        flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    super::hangup::watch()?;
    let shown = show(app, feed, &signal);
    end(shown, signal.load(Ordering::SeqCst))
}

/// Returns the reason for the end. `signal` is the number of the signal that arrived, or 0. After a
/// hangup, the terminal can fail before or after the signal arrives.
fn end(shown: io::Result<End>, signal: usize) -> io::Result<End> {
    match shown {
        Err(_) if signal != 0 => Ok(End::Signal(signal as i32)),
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            Ok(End::Signal(SIGHUP))
        }
        other => other,
    }
}

fn show(app: &mut App, feed: &mut dyn Feed, signal: &AtomicUsize) -> io::Result<End> {
    let _guard = TerminalGuard;
    // This also sets a panic hook, because the terminal must be restored before the message is
    // written.
    let mut terminal = ratatui::try_init()?;
    let mut is_stale = true;
    loop {
        // SeqCst, because the handler stores it with this ordering.
        let number = signal.load(Ordering::SeqCst);
        if number != 0 {
            return Ok(End::Signal(number as i32));
        }
        is_stale |= feed.poll(app)?;
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| view::draw(app, frame))?;
        }
        let has_event = match event::poll(WAIT) {
            // A signal arrived.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        };
        if !has_event {
            continue;
        }
        is_stale = true;
        let Event::Key(key) = event::read()? else { continue };
        match app.key(key) {
            Action::Nothing => {}
            Action::Quit => return Ok(End::Quit),
            action => feed.act(app, action),
        }
    }
}

/// Restores the terminal when it is dropped.
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // We ignore the error, because it means that the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_fails_as_it_hangs_up_ends_by_the_signal() {
        let failed = |errno: Errno| Err(errno.into());
        let exit_code = |shown, signal| end(shown, signal).ok().map(End::code);
        assert_eq!(exit_code(failed(Errno::IO), 0), Some(129));
        assert_eq!(exit_code(failed(Errno::BADF), SIGTERM as usize), Some(143));
        assert_eq!(exit_code(Err(io::Error::other("it hung up")), SIGHUP as usize), Some(129));
        assert_eq!(exit_code(failed(Errno::BADF), 0), None);
        assert_eq!(exit_code(Ok(End::Quit), SIGHUP as usize), Some(0));
    }
}
