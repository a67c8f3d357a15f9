//! The daemon's state file: a segment with the window of all requests, the windows of keys, and all
//! received metrics.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use quipu::Registry;
use quipu::intake::Intake;
use quipu_segment::{ErrorKind, Options, Segment, printable};
use quipu_window::{BucketedWindow, KeyedWindows};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config::Settings;
use quipu_commands::count::{KEYS, REQUESTS};
use quipu_process::flags;
use quipu_process::memory::has_room;
use quipu_process::time::Time;

flags! {
    /// The settings of the state.
    #[command(next_help_heading = "State")]
    pub struct StateFlags {
        /// File that keeps the counts [default: state.quipu]
        #[arg(long, env = "QUIPU_STATE", value_name = "FILE")]
        state: PathBuf = "state.quipu".into(),

        /// Reaction to a damaged state file [default: refuse]
        #[arg(long, env = "QUIPU_DAMAGED_STATE", value_name = "WHAT")]
        damaged_state: DamagePolicy = DamagePolicy::Refuse,

        /// How often a changed state is synced to disk, at least 1ms: the most that a power loss
        /// can cost. A killed process loses no count [default: 500ms]
        #[arg(long, env = "QUIPU_CHECKPOINT", value_name = "TIME")]
        checkpoint: Time = Time(Duration::from_millis(500)),
    }
}

/// The reaction to a truncated or damaged state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamagePolicy {
    /// Refuse to start, and leave the file untouched.
    Refuse,
    /// Rename the file, and start with a new one.
    SetAside,
}

/// The open state.
pub struct State {
    /// The state file.
    pub segment: Segment,
    /// The window of all requests.
    pub requests: BucketedWindow,
    /// The windows of keys.
    pub keys: KeyedWindows,
    /// The intake of received metrics. Each thread uses a clone.
    pub intake: Intake,
    /// The number of samples that were accepted since the daemon started.
    pub taken: AtomicU64,
}

/// Removes a state file that this start created, if the start fails. You can then start the daemon
/// with other settings, and it can create a new file.
pub struct StartGuard(Option<&'static State>);

/// An error of the state file.
#[derive(Debug)]
pub enum Error {
    /// The file or its contents cannot be used.
    Window(quipu_window::Error),
    /// The file was created with other settings.
    Mismatch(quipu_segment::Error),
    /// The file is damaged. The daemon can set it aside if the settings allow this.
    Damaged(quipu_segment::Error),
    /// The metrics in the file cannot be used.
    Intake(quipu::Error),
    /// The damaged file could not be set aside.
    SetAside(quipu_segment::Error),
    /// The file is larger than the disk or a limit allows.
    Size(quipu_segment::Error),
    /// There is too little address space for the heap. Contains the address space that the daemon
    /// needs in total, in bytes.
    Heap(u64),
    /// There is too little address space for the file. Contains the address space that the daemon
    /// needs in total, in bytes.
    Addresses(quipu_segment::Error, u64),
}

impl StartGuard {
    /// Creates a guard of this state, until [`StartGuard::done`].
    pub fn new(state: &'static State) -> Self {
        Self(Some(state))
    }

    /// Keeps the state file, because the daemon has started.
    pub fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        let Some(state) = self.0 else { return };
        if state.counted() != (0, 0, 0) || !matches!(state.segment.remove_new(), Ok(true)) {
            // We ignore the error, because it would hide the error that ended the start.
            let _ = state.segment.close();
        }
    }
}

impl State {
    /// Opens the state file, or creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the file and the remedy.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let begun = Instant::now();
        let path = &settings.state;
        let state = match Self::open_as_it_is(settings) {
            Err(Error::Damaged(error)) if settings.damaged_state == DamagePolicy::SetAside => {
                let aside = set_aside(path).map_err(Error::SetAside)?;
                warn!(%error, aside = %printable(&aside), "set a damaged state file aside");
                Self::open_as_it_is(settings)?
            }
            other => other?,
        };
        info!(
            path = %printable(path),
            new = state.segment.is_new(),
            left_open = state.segment.was_left_open(),
            bytes = state.segment.size(),
            keys = state.keys.len(),
            took = ?begun.elapsed(),
            "opened the state"
        );
        Ok(state)
    }

    /// Returns totals that change with each event, to detect whether a sync is needed.
    pub fn counted(&self) -> (u64, u64, u64) {
        (self.requests.total(), self.keys.additions(), self.taken.load(Ordering::Relaxed))
    }

    fn open_as_it_is(settings: &Settings) -> Result<Self, Error> {
        // Allocate the whole file now, because a full disk should be noticed at the start and not
        // with a later key.
        let size = size(settings)?;
        let limit = size.saturating_add(ROOM).saturating_add(settings.input_bytes);
        let options = Options::new().size(size).limit(limit).unmarked();
        let segment =
            options.open_or_create(&settings.state).map_err(|error| match error.kind() {
                ErrorKind::NoMemory { .. } => Error::Addresses(error, addresses(settings)),
                _ => error.into(),
            })?;
        let windows = || -> Result<_, Error> {
            check_heap(settings, 0)?;
            let requests = settings.window.build_in(&segment, REQUESTS)?;
            check_heap(settings, settings.keys.index_bytes_in(&segment, KEYS)?)?;
            let keys = settings.keys.build_in(&segment, KEYS)?;
            segment.mark_open()?;
            Ok((requests, keys))
        };
        let opened = windows().and_then(|(requests, keys)| {
            check_heap(settings, 0)?;
            let registry = Registry::from_segment(segment.clone());
            match Intake::free_unused(&registry, settings.forget_names) {
                Ok(0) => {}
                Ok(families) => info!(families, "freed families that are no longer used"),
                Err(error) => warn!(%error, "cannot free families that are no longer used"),
            }
            let intake = Intake::new(&registry, settings.intake.clone()).map_err(Error::Intake)?;
            let taken = AtomicU64::new(0);
            Ok(Self { segment: segment.clone(), requests, keys, intake, taken })
        });
        match opened {
            Ok(state) => Ok(state),
            Err(error) => {
                let _ = segment.remove_new();
                Err(error)
            }
        }
    }
}

/// Checks that the heap can grow enough for the next step of the start, whose largest allocation is
/// `large` bytes. Otherwise a failed allocation in this step would end the process.
fn check_heap(settings: &Settings, large: u64) -> Result<(), Error> {
    let bytes = usize::try_from(large.saturating_add(FOR_HEAP)).unwrap_or(usize::MAX);
    if has_room(bytes) { Ok(()) } else { Err(Error::Heap(addresses(settings))) }
}

/// The bytes that a step of the start needs on the heap at most, in addition to its largest
/// allocation: for the windows without the index of keys, and for the tables of the empty intake.
const FOR_HEAP: u64 = 2 << 20;

/// Returns the size of the windows in the state file with these settings, in bytes.
fn size(settings: &Settings) -> Result<u64, Error> {
    let records = settings.window.bytes()? + settings.keys.bytes()?;
    Ok(Segment::bytes_for(&[]).saturating_add(records))
}

/// Returns a sufficient address space for the whole daemon (`ulimit -v`), in bytes.
pub fn addresses(settings: &Settings) -> u64 {
    let clients = settings.outputs.receivers.len() + settings.targets.targets.len();
    let threads = settings.http.threads + clients;
    let threads = (threads as u64).saturating_mul(ADDRESS_SPACE_PER_THREAD);
    let state = size(settings).unwrap_or(0).saturating_add(ROOM);
    let state = state.saturating_add(settings.input_bytes);
    let state = state.saturating_add(settings.keys.index_bytes());
    state.saturating_add(ADDRESSES).saturating_add(threads)
}

/// The address space of the program itself, its metrics, and two threads, in bytes.
const ADDRESSES: u64 = 128 << 20;
/// The address space of each further thread in bytes.
const ADDRESS_SPACE_PER_THREAD: u64 = 8 << 20;

/// Renames a damaged file to a name that ends in `.damaged-` and the time. Returns this name.
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

/// The space in a state file for records of later versions, in bytes.
const ROOM: u64 = 64 << 20;

impl From<quipu_window::Error> for Error {
    fn from(error: quipu_window::Error) -> Self {
        error.into_segment().map_or_else(Self::Window, Self::from)
    }
}

impl From<quipu_segment::Error> for Error {
    fn from(error: quipu_segment::Error) -> Self {
        if error.is_damage() {
            Self::Damaged(error)
        } else {
            match error.kind() {
                ErrorKind::Mismatch(_) => Self::Mismatch(error),
                ErrorKind::NoSpace { .. } | ErrorKind::FileTooLarge { .. } => Self::Size(error),
                _ => Self::Window(quipu_window::Error::from_segment(error)),
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(error) => write!(f, "cannot use the state: {error}"),
            Self::Intake(error) => write!(f, "cannot use the metrics in the state: {error}"),
            Self::Mismatch(error) => write!(
                f,
                "cannot use the state: {error}; its layout depends on --accuracy, --span, --keys, \
                 --key-bytes, --key-accuracy, and --window, from which others are derived"
            ),
            Self::Damaged(error) => write!(
                f,
                "cannot use the state: {error}; --damaged-state set-aside does so by itself"
            ),
            Self::Size(error) => {
                write!(f, "cannot use the state: {error}; use fewer --keys, or a shorter --span")
            }
            Self::Heap(bytes) => write!(
                f,
                "too little address space is left for the keys and the metrics that come in; the \
                 whole daemon needs {} KiB of addresses (ulimit -v)",
                bytes.div_ceil(1024)
            ),
            Self::Addresses(error, bytes) => write!(
                f,
                "cannot use the state: {error}; the whole daemon needs {} KiB of addresses \
                 (ulimit -v)",
                bytes.div_ceil(1024)
            ),
            Self::SetAside(error) => {
                write!(f, "cannot set the damaged state aside: {error}; move it away by hand")
            }
        }
    }
}

impl std::error::Error for Error {}
