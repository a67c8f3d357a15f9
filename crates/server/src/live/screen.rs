//! The terminal: drawn when something has changed, and always given back as it was, also after a
//! signal or a panic.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use super::app::{Action, App};
use super::reader::Reader;
use super::view;

/// Why the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The user asked for it.
    Quit,
    /// A signal with this number.
    Signal(i32),
}

/// How long the screen waits for a key before it sees whether there is a look or a signal.
const WAIT: Duration = Duration::from_millis(50);

impl End {
    /// The exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Quit => 0,
            // As shells report it.
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }
}

/// Shows looks until the user or a signal ends it. The times of the model count from `begun`.
pub(super) fn run(app: &mut App, reader: &Reader, begun: Instant) -> io::Result<End> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        // Numbers of signals are positive.
        flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    super::hangup::watch()?;
    let _given_back = Restore;
    // Sets a hook, too: a panic gives the terminal back before its message is written.
    let mut terminal = ratatui::try_init()?;
    let mut is_stale = true;
    loop {
        // SeqCst, as the handler stores it.
        let number = signal.load(Ordering::SeqCst);
        if number != 0 {
            return Ok(End::Signal(number as i32));
        }
        match reader.looks.try_recv() {
            Ok((at, look)) => {
                app.look(&look, at.saturating_duration_since(begun));
                is_stale = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that reads has panicked"));
            }
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| view::draw(app, frame))?;
        }
        let has_event = match event::poll(WAIT) {
            // A signal.
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
            Action::Pace => reader.set_interval((!app.is_paused).then_some(app.interval)),
        }
    }
}

/// Gives the terminal back when it is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // If that fails, the terminal is gone.
        let _ = ratatui::try_restore();
    }
}
