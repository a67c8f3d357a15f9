//! What the daemon remembers: a segment file with the window of all requests and those of keys.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quipu_segment::{Options, Segment};
use quipu_window::{Bucketed, Keyed};
use tracing::{info, warn};

use crate::config::{Damaged, Settings};

/// The open state.
#[derive(Debug)]
pub struct State {
    /// The file.
    pub segment: Segment,
    /// The window of all requests.
    pub requests: Bucketed,
    /// The windows of keys.
    pub keys: Keyed,
}

/// A state that cannot be used.
#[derive(Debug)]
pub enum Error {
    /// The file, or what lies in it.
    Window(quipu_window::Error),
    /// A file that was made with other settings.
    Mismatch(quipu_segment::Error),
    /// A damaged file, which the daemon could be told to set aside.
    Damaged(quipu_segment::Error),
    /// A damaged file that could not be set aside.
    SetAside(quipu_segment::Error),
}

impl State {
    /// Opens the state, or makes it where there is none.
    ///
    /// # Errors
    /// [`Error`], with the file and the way out.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let begun = Instant::now();
        let path = &settings.state;
        let state = match Self::open_as_it_is(settings) {
            Err(Error::Damaged(error)) if settings.damaged_state == Damaged::SetAside => {
                let aside = set_aside(path).map_err(Error::SetAside)?;
                warn!(%error, aside = %aside.display(), "set a damaged state file aside");
                Self::open_as_it_is(settings)?
            }
            other => other?,
        };
        info!(
            path = %path.display(),
            new = state.segment.is_new(),
            left_open = state.segment.was_left_open(),
            bytes = state.segment.size(),
            keys = state.keys.len(),
            took = ?begun.elapsed(),
            "opened the state"
        );
        Ok(state)
    }

    /// A number that is another one whenever something was counted.
    pub fn counted(&self) -> (u64, u64) {
        (self.requests.total(), self.keys.hits())
    }

    fn open_as_it_is(settings: &Settings) -> Result<Self, Error> {
        let records = settings.window.bytes()? + settings.keys.bytes()?;
        // All of it at once: a disk that is too full shows now, not when a key comes.
        let size = Segment::bytes_for(&[]).saturating_add(records);
        let options = Options::new().size(size).limit(size.saturating_add(ROOM)).unmarked();
        let segment = options.open_or_create(&settings.state)?;
        let requests = settings.window.open(&segment, "requests")?;
        let keys = settings.keys.open(&segment, "keys")?;
        segment.begin()?;
        Ok(Self { segment, requests, keys })
    }
}

/// Renames a damaged file to a name that says what it is.
fn set_aside(path: &Path) -> Result<PathBuf, quipu_segment::Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let names = (0..1000).map(|n| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{now}"));
        if n > 0 {
            name.push(format!("-{n}"));
        }
        PathBuf::from(name)
    });
    Segment::set_aside(path, names)
}

/// What a state file may grow by, for what later versions add to it.
const ROOM: u64 = 64 << 20;

impl From<quipu_window::Error> for Error {
    fn from(error: quipu_window::Error) -> Self {
        match error {
            quipu_window::Error::Segment(error) => error.into(),
            other => Self::Window(other),
        }
    }
}

impl From<quipu_segment::Error> for Error {
    fn from(error: quipu_segment::Error) -> Self {
        if error.is_damage() {
            Self::Damaged(error)
        } else if error.is_mismatch() {
            Self::Mismatch(error)
        } else {
            Self::Window(error.into())
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(error) => write!(f, "cannot use the state: {error}"),
            Self::Mismatch(error) => write!(
                f,
                "cannot use the state: {error}; it is laid out by --accuracy, --span, --keys, \
                 --key-bytes, --key-accuracy, and --window, from which others follow"
            ),
            Self::Damaged(error) => write!(
                f,
                "cannot use the state: {error}; --damaged-state set-aside does that by itself"
            ),
            Self::SetAside(error) => {
                write!(f, "cannot set the damaged state aside: {error}; or move it away by hand")
            }
        }
    }
}

impl std::error::Error for Error {}
